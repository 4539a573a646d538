//! How a dataset is mounted: the options of the user.

use crate::store::remote::Counters;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The time for which the kernel may keep a sample's entry and attributes: a mounted dataset does not change.
pub const FOREVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// When samples are compared with their checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    /// Whenever bytes come from storage.
    #[default]
    Always,
    /// The first time that a sample's bytes come from storage.
    Once,
    /// Never.
    Off,
}

/// The options that the user decides, and facts for the control files.
#[derive(Debug, Clone)]
pub struct Options {
    /// When samples are compared with their checksums.
    pub verify: Verify,
    /// Hard cap of held memory, in bytes: blocks, samples, and samples that are being fetched ahead.
    pub cache_bytes: u64,
    /// Memory for samples that readers wait for while the disk reads them, in bytes, beside `cache_bytes`.
    pub fetching_bytes: u64,
    /// The most bytes of announced samples that are put into the kernel's page cache before they are read.
    pub kernel_bytes: u64,
    /// How containers are read, for `info.json`: `direct`, `buffered` or `mixed`.
    pub io: &'static str,
    /// The destination of log messages, for `info.json`.
    pub log: String,
    /// How far the daemon is confined, for `info.json`; set once the daemon knows it.
    pub sandbox: Arc<OnceLock<String>>,
    /// How often at most a supervisor starts another daemon within a minute, for `info.json`; 0 without a supervisor.
    pub restarts: u16,
    /// The mount options that were given, for `info.json`.
    pub given: Vec<String>,
    /// Counters of the stores that containers lie in, for `stats.json`.
    pub stores: Option<Arc<Counters>>,
    /// The most reads that are under way at a time, each with memory for a whole sample.
    pub concurrency: u64,
    /// Threads that serve requests.
    pub threads: u64,
    /// Worker threads beside `threads`, for reads that wait.
    pub workers: u64,
    /// Owner of all files and directories.
    pub uid: u32,
    /// The user who may change settings and trace, beside root: the user of this process, whoever owns the files.
    pub master: u32,
    /// Group of all files and directories.
    pub gid: u32,
    /// Permission bits of files without stored ones.
    pub file_mode: u16,
    /// Permission bits of directories without stored ones.
    pub directory_mode: u16,
    /// The stored permission bits that files may have.
    pub file_mask: u16,
    /// The stored permission bits that directories may have.
    pub directory_mask: u16,
    /// Permission bits of `/.ffrfs/prefetch`; without a write bit the file takes no announcements.
    pub prefetch_mode: u16,
    /// Whether the root has the control directory.
    pub has_control: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            verify: Verify::Always,
            cache_bytes: 256 << 20,
            fetching_bytes: 64 << 20,
            kernel_bytes: 1 << 30,
            io: "buffered",
            log: String::new(),
            sandbox: Arc::default(),
            restarts: 0,
            given: Vec::new(),
            stores: None,
            concurrency: 1,
            threads: 1,
            workers: 0,
            uid: 0,
            master: 0,
            gid: 0,
            file_mode: 0o444,
            directory_mode: 0o555,
            file_mask: 0o7777,
            directory_mask: 0o7777,
            prefetch_mode: 0o666,
            has_control: true,
        }
    }
}
