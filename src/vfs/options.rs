//! How a dataset is mounted: what the user decides.

use crate::store::remote::Counters;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long the kernel may keep a sample's entry and attributes: nothing changes while it is mounted.
pub const FOREVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// When samples are checked.
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

/// What the user decides.
#[derive(Debug, Clone)]
pub struct Options {
    /// When samples are checked.
    pub verify: Verify,
    /// Hard cap of what is held in memory, in bytes: blocks, samples, what is being fetched ahead.
    pub cache_bytes: u64,
    /// Memory for samples that readers wait for while the disk gives them, in bytes, beside `cache_bytes`.
    pub fetching_bytes: u64,
    /// How much of what is announced and not read yet may be put into the kernel's page cache, in bytes.
    pub kernel_bytes: u64,
    /// How samples are read, for `info.json`: `direct`, `buffered` or `mixed`.
    pub io: &'static str,
    /// Where messages go, for `info.json`.
    pub log: String,
    /// How far the daemon is confined, once that is known, for `info.json`.
    pub sandbox: Arc<OnceLock<String>>,
    /// How often a supervisor starts another daemon within a minute, for `info.json`; 0: there is none.
    pub restarts: u16,
    /// The mount options that were given, for `info.json`.
    pub given: Vec<String>,
    /// What is asked of the stores that containers lie in, for `stats.json`.
    pub stores: Option<Arc<Counters>>,
    /// How many reads may be under way at a time, each with memory for a whole sample.
    pub concurrency: u64,
    /// Threads that serve requests.
    pub threads: u64,
    /// Worker threads beside them, for reads that wait.
    pub workers: u64,
    /// Owner of everything.
    pub uid: u32,
    /// Who may change settings and trace, beside root: the user of this process, whoever owns the files.
    pub master: u32,
    /// Group of everything.
    pub gid: u32,
    /// Permission bits of files for which none are stored.
    pub file_mode: u16,
    /// Permission bits of directories for which none are stored.
    pub directory_mode: u16,
    /// Which of the stored permission bits files have.
    pub file_mask: u16,
    /// Which of the stored permission bits directories have.
    pub directory_mask: u16,
    /// Permission bits of `/.ffrfs/prefetch`; without a write bit it takes no announcements.
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
