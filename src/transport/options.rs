//! What the user decides about a mount. Imports nothing of the other files.

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// Through io_uring where the host offers it, else through /dev/fuse.
    #[default]
    Auto,
    /// Through io_uring.
    Uring,
    /// Through /dev/fuse.
    DevFuse,
}

/// Whether a listing brings the attributes of what it lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Readdirplus {
    /// As the kernel thinks best.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What mount(8) users say.
#[derive(Debug, Clone, Default)]
pub struct MountOptions {
    /// What `findmnt` shows as source.
    pub source: String,
    /// Users other than the one who mounts may use it.
    pub allow_other: bool,
    /// No program can be run from it.
    pub noexec: bool,
    /// The kernel itself refuses all writing; else `/.ffrfs/prefetch` can be written, and the daemon
    /// refuses the rest. Else, too, the kernel takes a READ for a change of the time of access, and asks for
    /// attributes with the next `stat`: a GETATTR for each file that was read.
    pub read_only: bool,
    /// Whether a listing brings attributes.
    pub readdirplus: Readdirplus,
    /// How requests come.
    pub transport: Transport,
    /// Memory for requests that come through io_uring, in bytes.
    pub request_bytes: u64,
    /// Threads that serve requests from /dev/fuse.
    pub threads: usize,
    /// Threads for reads that must wait.
    pub workers: usize,
}
