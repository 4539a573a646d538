//! The options of a mount. Imports nothing of ours.

use std::fmt;
use std::sync::Arc;

/// How requests come from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// Through io_uring where the host supports that, else through /dev/fuse.
    #[default]
    Auto,
    /// Through io_uring.
    Uring,
    /// Through /dev/fuse.
    DevFuse,
}

/// Whether listing a directory also gives the attributes of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Readdirplus {
    /// As the kernel decides.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The options of a mount.
#[derive(Debug, Clone, Default)]
pub struct MountOptions {
    /// The source that `findmnt` shows.
    pub source: String,
    /// Users other than the one who mounts may use the mount.
    pub allow_other: bool,
    /// No program on the mount can be executed.
    pub noexec: bool,
    /// The kernel itself refuses all writes. Else `/.ffrfs/prefetch` can be written and the daemon refuses other
    /// writes; and the kernel takes each READ for a change of the access time, so that the next `stat` of a file
    /// that was read costs a GETATTR.
    pub read_only: bool,
    /// Extended attributes are answered; else the kernel is told once that there are none.
    pub xattrs: bool,
    /// Whether listings give attributes.
    pub readdirplus: Readdirplus,
    /// How requests come from the kernel.
    pub transport: Transport,
    /// Memory for requests that come through io_uring, in bytes.
    pub request_bytes: u64,
    /// Threads that serve requests from /dev/fuse.
    pub threads: usize,
    /// Threads for reads that must wait.
    pub workers: usize,
    /// The action before the first request.
    pub before_requests: BeforeRequests,
}

type Confine = dyn Fn() -> Result<(), String> + Send + Sync;

/// An action that is called once, when all threads and rings of a mount exist, and no request has been taken.
#[derive(Clone, Default)]
pub struct BeforeRequests(Option<Arc<Confine>>);

impl BeforeRequests {
    /// An error of `confine` says why no request may be served.
    pub fn new(confine: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(confine)))
    }

    pub(super) fn run(&self) -> Result<(), String> {
        self.0.as_ref().map_or(Ok(()), |confine| confine())
    }
}

impl fmt::Debug for BeforeRequests {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.0.is_some() { "BeforeRequests" } else { "nothing" })
    }
}
