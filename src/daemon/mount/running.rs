//! The processes that a supervisor has started.

use super::program::Program;
use crate::io::workers::Worker;
use std::time::Instant;

/// What a worker is there for.
pub(super) enum Role {
    /// It serves, or will once it has opened the dataset.
    Serves,
    /// It is to serve in place of another one, and is a program of its own.
    Follows(Program),
    /// Another one serves in its place since then.
    Leaves(Instant),
}

pub(super) struct Running {
    pub(super) worker: Worker,
    /// When it was started, or has begun to serve.
    pub(super) started: Instant,
    /// It has told of its mount.
    pub(super) is_ready: bool,
    pub(super) role: Role,
}
