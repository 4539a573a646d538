//! What people and programs are told of a dataset and a mount: `info`, `info.json`, `stats.json`.

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
    /// Records that samples are fields of; 0 where they are not.
    pub records: u64,
    /// Directories, the root included.
    #[serde(rename = "folders")]
    pub directories: u64,
    /// Bytes of all samples.
    pub bytes: u64,
    /// `numbered`, `records` (numbered directories, each with the files of one record) or `tree`.
    pub names: Cow<'static, str>,
    /// Stored names that are shown as others, or not at all.
    pub renamed: Renamed,
    /// The containers in order.
    pub containers: Vec<ContainerInfo>,
}

/// A container in a few figures.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerInfo {
    /// Its path.
    pub path: PartName,
    /// The format's name.
    pub format: Cow<'static, str>,
    /// Number of samples.
    pub samples: u64,
    /// Records that these are fields of; 0 where they are not.
    pub records: u64,
    /// Bytes of its samples.
    pub bytes: u64,
    /// `ok`, `absent` where the container has none, `none` where its format has none.
    pub index_checksum: Cow<'static, str>,
    /// The sidecar that its samples are checked by, where it has no checksums of them itself.
    pub checksums: Option<PartName>,
    /// What an admin should know.
    pub warnings: Vec<String>,
}

/// Describes a dataset whose parts are called `names`. Nested containers are not listed: they stand behind those that
/// are a part each.
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

/// `info.json`. Read back, what another version does not say has its default.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MountInfo {
    /// What is mounted.
    #[serde(flatten)]
    pub dataset: Info,
    /// When samples are checked: `always`, `once` or `off`.
    pub verify: String,
    /// Hard cap of what is held in memory.
    pub cache_size_bytes: u64,
    /// How requests come: `uring` or `devfuse`.
    pub transport: Cow<'static, str>,
    /// Memory for requests that come through io_uring.
    pub request_bytes: u64,
    /// How samples are read: `direct` (past the page cache), `buffered` (through it), or `mixed`.
    pub io: Cow<'static, str>,
    /// Where messages go: `journald`, `syslog`, `stderr`, a file, or `nowhere` and why.
    pub log: String,
    /// How far the daemon is confined: `off`, or what it is confined in, and what not and why.
    pub sandbox: String,
    /// How often a supervisor starts another daemon within a minute; 0: there was none.
    pub restarts: u16,
    /// Threads that serve requests from /dev/fuse.
    pub threads: u64,
    /// Threads that wait for the disk for them.
    pub workers: u64,
    /// The daemon.
    pub pid: u32,
    /// How many readers `trace` has.
    pub trace_readers: u64,
    /// The mount options that were given, as `name` or `name=value`.
    pub options: Vec<String>,
}

/// `stats.json`. Read back, what another version does not say has its default.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MountStats {
    /// The daemon. One that takes over from another counts from zero.
    pub pid: u32,
    /// Requests, bytes and latencies.
    #[serde(flatten)]
    pub counters: Snapshot,
    /// What was left over of samples, and all memory that is held.
    pub cache: CacheFigures,
    /// Blocks around small samples.
    pub blocks: BlockFigures,
    /// What was fetched ahead.
    pub prefetch: PrefetchFigures,
    /// Reads that wait for the disk now.
    pub reads_waiting: u64,
    /// Samples listed in `bad`.
    pub bad_samples: u64,
    /// Containers that cannot be used any more.
    pub bad_containers: u64,
    /// What was asked of stores, if a container lies in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteFigures>,
}

/// A path as text, for JSON, which has no other: bytes that are not UTF-8 are shown as U+FFFD.
///
/// # Errors
/// Those of the serializer.
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

/// It may be printed on a terminal.
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
