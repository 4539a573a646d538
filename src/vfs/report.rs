//! What people and programs are told of a dataset: `info`, `stats.json`, `bad`.

use super::bad::{AllBad, Bad, Fault};
use super::{BlockFigures, CacheFigures, PrefetchFigures, Snapshot, Vfs};
use crate::catalog::{Catalog, Dataset, Renamed};
use crate::format::{IndexChecksum, Mismatch, PartName, Result};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt::Write;

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
    /// Folders, the root included.
    pub folders: u64,
    /// Bytes of all samples.
    pub bytes: u64,
    /// `numbered`, `records` (numbered folders, each with the files of one record) or `tree`.
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
    /// Bytes of its samples.
    pub bytes: u64,
    /// `ok`, `absent` where the container has none, `none` where its format has none.
    pub index_checksum: Cow<'static, str>,
    /// The sidecar that its samples are checked by, where it has no checksums of them itself.
    pub checksums: Option<PartName>,
    /// What an admin should know.
    pub warnings: Vec<String>,
}

/// Describes a dataset whose parts are called `names`.
pub fn info<'a>(
    dataset: &Dataset,
    catalog: &Catalog,
    names: impl Iterator<Item = &'a PartName>,
) -> Info {
    let parts = dataset.parts().iter().enumerate();
    let containers = parts.zip(names).map(|((number, part), name)| ContainerInfo {
        path: name.clone(),
        format: part.format().into(),
        samples: part.len(),
        bytes: part.data_bytes(),
        index_checksum: match part.index_checksum() {
            IndexChecksum::Ok => "ok",
            IndexChecksum::Absent => "absent",
            IndexChecksum::None => "none",
        }
        .into(),
        checksums: dataset.sums_of(number).cloned(),
        warnings: part.warnings().to_vec(),
    });
    Info {
        ffrfs_version: env!("CARGO_PKG_VERSION").into(),
        samples: dataset.len(),
        named_samples: catalog.samples(),
        folders: catalog.folders(),
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
    /// Threads that serve requests from /dev/fuse.
    pub threads: u64,
    /// Threads that wait for the disk for them.
    pub workers: u64,
    /// The daemon.
    pub pid: u32,
    /// How many read `trace`.
    pub trace_readers: u64,
    /// The mount options that were given, as `name` or `name=value`.
    pub options: Vec<String>,
}

/// What `info.json` says now.
pub fn mount_info(vfs: &Vfs) -> MountInfo {
    MountInfo {
        dataset: info(&vfs.dataset, &vfs.catalog, vfs.store.parts().iter().map(|part| part.name())),
        verify: format!("{:?}", vfs.verify()).to_lowercase(),
        cache_size_bytes: vfs.cache_bytes(),
        transport: vfs.transport.get().map_or("none", |(name, _)| name).into(),
        request_bytes: vfs.request_bytes(),
        io: vfs.options.io.into(),
        threads: vfs.options.concurrency.saturating_sub(vfs.options.workers),
        workers: vfs.options.workers,
        options: vfs.options.given.clone(),
        pid: std::process::id(),
        trace_readers: vfs.trace.readers() as u64,
    }
}

/// `stats.json`. Read back, what another version does not say has its default.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MountStats {
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
}

/// What `stats.json` says now.
#[must_use]
pub fn stats(vfs: &Vfs) -> MountStats {
    let (bad_samples, bad_containers) = vfs.bad.counts();
    MountStats {
        counters: vfs.stats.snapshot(),
        cache: vfs.cache.figures(),
        blocks: vfs.blocks.figures(),
        prefetch: vfs.prefetch_figures(),
        reads_waiting: vfs.reads_waiting(),
        bad_samples,
        bad_containers,
    }
}

/// `prefetch` as it is read.
pub(super) fn prefetch(vfs: &Vfs) -> String {
    let PrefetchFigures { waiting, in_flight, .. } = vfs.prefetch_figures();
    let mut text = format!(
        "Write here what will be read next, in order: sample numbers, or paths from the root of the\n\
         mount, one a line; or sample numbers as raw little-endian u64.\n\
         waiting: {waiting}\n\
         in flight: {in_flight}"
    );
    // The kernel cuts what is appended at page boundaries, which then are boundaries of numbers too.
    while text.len() % 8 != 7 {
        text.push(' ');
    }
    text + "\n"
}

/// JSON for people: indented, with a newline at the end.
pub fn json(value: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).unwrap_or_default();
    text.push(b'\n');
    text
}

/// `bad`: a line a bad sample, fields set apart by tabs; empty as long as all is well.
pub(super) fn bad(vfs: &Vfs) -> String {
    let AllBad { samples, unlisted, containers } = vfs.bad.all();
    let numbers: Vec<u64> = samples.iter().map(|&(sample, _)| sample).collect();
    let paths = if numbers.is_empty() { Ok(Vec::new()) } else { vfs.paths(&numbers) };
    let mut out = String::new();
    for (place, (sample, bad)) in samples.iter().enumerate() {
        let path = paths.as_ref().ok().and_then(|paths| paths.get(place));
        let path = path.map_or_else(|| sample.to_string(), |p| escape(p));
        let _ = writeln!(out, "{path}\t{}", fields(vfs, *sample, bad));
    }
    for (part, what) in containers {
        let container = escape(vfs.store.part(part).name().as_bytes());
        let _ = writeln!(out, "-\t{what}\t{container}\t-\t-\t-\t-\t-");
    }
    if unlisted > 0 {
        let _ = writeln!(out, "-\tand {unlisted} more requests for bad samples\t-\t-\t-\t-\t-\t-");
    }
    out
}

fn fields(vfs: &Vfs, sample: u64, bad: &Bad) -> String {
    let located = &bad.located;
    let (reason, expected, found) = match &bad.fault {
        Fault::Checksum(Mismatch { expected, found }) => {
            ("checksum".to_owned(), format!("{expected:#010x}"), format!("{found:#010x}"))
        }
        Fault::Structure(what) => (escape(what.as_bytes()), "-".to_owned(), "-".to_owned()),
        Fault::Damaged => ("damaged".to_owned(), "-".to_owned(), "-".to_owned()),
        Fault::Unreadable(error) => (escape(error.as_bytes()), "-".to_owned(), "-".to_owned()),
    };
    let container = escape(vfs.store.part(located.part).name().as_bytes());
    let (offset, length) = (located.sample.offset_bytes, located.sample.length_bytes);
    format!("{reason}\t{container}\t{sample}\t{offset}\t{length}\t{expected}\t{found}")
}

/// Tabs, newlines and backslashes as escapes, so that a line is a line.
fn escape(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\\' => out.push_str("\\\\"),
            other => out.push(other),
        }
        out
    })
}

impl Vfs {
    fn paths(&self, samples: &[u64]) -> Result<Vec<Vec<u8>>> {
        self.catalog.paths(&self.dataset, samples)
    }
}
