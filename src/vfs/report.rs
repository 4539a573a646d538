//! Reports about a dataset and a mount, for people and programs: `info`, `info.json`, `stats.json`.

use super::{BlockFigures, CacheFigures, PrefetchFigures, Snapshot};
use crate::catalog::{Catalog, Dataset, Renamed};
use crate::format::{IndexChecksum, PartName, visible_json};
use crate::store::remote::RemoteFigures;
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::path::Path;

/// A dataset in a few figures.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Info {
    /// Version of this program.
    pub ffrfs_version: Cow<'static, str>,
    /// Samples in all.
    pub samples: u64,
    /// Samples that have a name in the tree.
    pub named_samples: u64,
    /// Records that samples are fields of; 0 if samples are no fields.
    pub records: u64,
    /// Directories, the root included.
    #[serde(rename = "folders")]
    pub directories: u64,
    /// Bytes of all samples.
    pub bytes: u64,
    /// `numbered`, `records` (numbered directories, each with the files of one record) or `tree`.
    pub names: Cow<'static, str>,
    /// Stored names that are shown as other names, or not at all.
    pub renamed: Renamed,
    /// The containers in order.
    pub containers: Vec<ContainerInfo>,
}

/// A container in a few figures.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerInfo {
    /// The container's path.
    pub path: PartName,
    /// The format's name.
    pub format: Cow<'static, str>,
    /// Number of samples.
    pub samples: u64,
    /// Records that its samples are fields of; 0 if they are no fields.
    pub records: u64,
    /// Bytes of its samples.
    pub bytes: u64,
    /// `ok`, `absent` if the container has no checksum of its index, `none` if its format has none.
    pub index_checksum: Cow<'static, str>,
    /// The sidecar by which its samples are checked, if the container itself has no checksums of them.
    pub checksums: Option<PartName>,
    /// Facts that an admin should know.
    pub warnings: Vec<String>,
}

/// Describes a dataset whose parts are called `names`. Nested containers are not listed: they stand behind the containers
/// that are a part each.
pub fn info<'a>(
    dataset: &Dataset,
    catalog: &Catalog,
    names: impl Iterator<Item = &'a PartName>,
) -> Info {
    let fields = catalog.fields();
    let mut warnings = vec![Vec::new(); dataset.part_count()];
    for number in 0..dataset.containers().len() {
        warnings[dataset.part_of(number)].extend(dataset.warnings_of(number));
    }
    let containers = dataset.containers().iter().enumerate();
    let containers = containers.zip(names).map(|((number, container), name)| ContainerInfo {
        path: name.clone(),
        format: container.format().into(),
        samples: container.len(),
        records: fields.map_or(0, |fields| container.len() / fields.max(1)),
        bytes: container.data_bytes(),
        index_checksum: match container.index_checksum() {
            IndexChecksum::Ok => "ok",
            IndexChecksum::Absent => "absent",
            IndexChecksum::None => "none",
        }
        .into(),
        checksums: dataset.sums_of(number).cloned(),
        warnings: warnings.get_mut(number).map(std::mem::take).unwrap_or_default(),
    });
    Info {
        ffrfs_version: env!("CARGO_PKG_VERSION").into(),
        samples: dataset.len(),
        named_samples: catalog.samples(),
        records: fields.map_or(0, |fields| dataset.len() / fields.max(1)),
        directories: catalog.directories(),
        bytes: dataset.data_bytes(),
        names: match catalog {
            Catalog::Numbered(_) => "numbered",
            Catalog::Records(_) => "records",
            Catalog::Tree(_) => "tree",
        }
        .into(),
        renamed: catalog.renamed(),
        containers: containers.collect(),
    }
}

/// `info.json`. When it is read back, a field that another version does not have gets its default.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MountInfo {
    /// The mounted dataset.
    #[serde(flatten)]
    pub dataset: Info,
    /// When samples are compared with their checksums: `always`, `once` or `off`.
    pub verify: String,
    /// Hard cap of held memory.
    pub cache_size_bytes: u64,
    /// The transport by which requests come: `uring` or `devfuse`.
    pub transport: Cow<'static, str>,
    /// Memory for requests that come through io_uring.
    pub request_bytes: u64,
    /// How containers are read: `direct` (past the page cache), `buffered` (through it), or `mixed`.
    pub io: Cow<'static, str>,
    /// The destination of log messages: `journald`, `syslog`, `stderr`, a file, or `nowhere` and the reason.
    pub log: String,
    /// How far the daemon is confined: `off`, or the measures in effect, and those that are missing with the reason.
    pub sandbox: String,
    /// How often at most a supervisor starts another daemon within a minute; 0 without a supervisor.
    pub restarts: u16,
    /// Threads that serve requests from /dev/fuse.
    pub threads: u64,
    /// Worker threads that wait for the disk on behalf of those threads.
    pub workers: u64,
    /// The process id of the daemon.
    pub pid: u32,
    /// The number of readers of `trace`.
    pub trace_readers: u64,
    /// The mount options that were given, as `name` or `name=value`.
    pub options: Vec<String>,
}

/// `stats.json`. When it is read back, a field that another version does not have gets its default.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MountStats {
    /// The process id of the daemon. A daemon that takes over from another counts from zero.
    pub pid: u32,
    /// Requests, bytes and latencies.
    #[serde(flatten)]
    pub counters: Snapshot,
    /// The sample cache, and all memory that is held.
    pub cache: CacheFigures,
    /// Blocks around small samples.
    pub blocks: BlockFigures,
    /// Samples that were fetched ahead.
    pub prefetch: PrefetchFigures,
    /// Reads that wait for the disk now.
    pub reads_waiting: u64,
    /// Samples listed in `bad`.
    pub bad_samples: u64,
    /// Containers that cannot be used any more.
    pub bad_containers: u64,
    /// Requests to stores, and the cache of their objects, if a container lies in a store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteFigures>,
}

/// Serializes a path as text, since JSON has no bytes: those that are not UTF-8 are shown as U+FFFD.
///
/// # Errors
/// The serializer's errors.
pub fn lossy<P: AsRef<Path>, S: Serializer>(path: &P, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.as_ref().to_string_lossy())
}

/// JSON for people: indented, with a newline at the end.
pub fn json(value: &impl Serialize) -> Vec<u8> {
    ended(serde_json::to_vec_pretty(value))
}

/// JSON for programs: one line, with a newline at the end.
pub fn json_line(value: &impl Serialize) -> Vec<u8> {
    ended(serde_json::to_vec(value))
}

/// Ends a JSON text with a newline, and escapes characters that are not visible: the text may be printed on a terminal.
fn ended(json: serde_json::Result<Vec<u8>>) -> Vec<u8> {
    let json = json.unwrap_or_default();
    let shown = match visible_json(&json) {
        Cow::Owned(shown) => Some(shown),
        Cow::Borrowed(_) => None,
    };
    let mut text = shown.unwrap_or(json);
    text.push(b'\n');
    text
}
