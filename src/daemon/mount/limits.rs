//! Limits of memory, processes and open files that keep a mount from being made: messages with the limit, and with the need of
//! a mount.

use super::request::MountRequest;
use crate::dataset;
use crate::failure::{Exit, Failure};
use crate::io::process::{self, cgroup};
use crate::transport::MountError;
use nix::sys::resource::{Resource, getrlimit};
use std::hint::black_box;
use std::io;

/// A mount needs more address space than this for its threads and buffers.
const LEAST_MEMORY: usize = 32 << 20;

/// Looks whether there is memory for a mount: an allocation of the C library or of Rust's that fails later ends the process
/// without a word.
///
/// # Errors
/// There is not enough memory (ENOMEM).
pub(super) fn check_memory() -> Result<(), Failure> {
    let mut room: Vec<u8> = Vec::new();
    let reserved = room.try_reserve_exact(LEAST_MEMORY);
    black_box(&room);
    reserved.map_err(|_| Failure::new(Exit::Mount, io::Error::from_raw_os_error(libc::ENOMEM)))
}

/// Adds to a failure the limit that it comes from, if it comes from a limit.
pub(super) fn explain(failure: Failure, request: &MountRequest) -> Failure {
    match errno(&failure) {
        Some(libc::EMFILE) => failure.context(open_files()),
        Some(libc::ENOMEM) => failure.context(memory()),
        Some(libc::EAGAIN) => failure.context(processes(request.settings.most_threads())),
        _ => failure,
    }
}

/// The number of the system's error that a failure comes from.
pub(super) fn errno(failure: &Failure) -> Option<i32> {
    let errno = failure.reason::<io::Error>().and_then(io::Error::raw_os_error);
    let refused = failure.reason::<MountError>().and_then(|error| match error {
        MountError::Refused { error, .. }
        | MountError::PassedConnection(error, _)
        | MountError::Device(error, _) => error.raw_os_error(),
        MountError::Transport(_, errno) => *errno,
        _ => None,
    });
    errno.or(refused)
}

fn memory() -> String {
    let limit = address_space().map_or("no limit".to_owned(), |kib| kib.to_string());
    let needed = LEAST_MEMORY >> 20;
    format!(
        "a mount needs over {needed} MiB beside what the program itself takes (ulimit -v: {limit})"
    )
}

/// The limit of address space, in KiB.
fn address_space() -> Option<u64> {
    let limit = getrlimit(Resource::RLIMIT_AS).ok().map(|(soft, _)| soft);
    limit.filter(|&soft| soft != libc::RLIM_INFINITY).map(|bytes| bytes >> 10)
}

fn open_files() -> String {
    let limit = process::raise_open_files_limit();
    let needed = dataset::LEAST_OPEN_FILES;
    format!("no more files can be opened, and a mount needs up to {needed} (ulimit -n: {limit})")
}

/// Threads are processes here, as the kernel counts them.
fn processes(needed: usize) -> String {
    let limit = |limit: Option<u64>| limit.map_or("no limit".to_owned(), |limit| limit.to_string());
    let own = getrlimit(Resource::RLIMIT_NPROC).ok().map(|(soft, _)| soft);
    let own = own.filter(|&soft| soft != libc::RLIM_INFINITY);
    // A thread for whose stack there is no room is refused with the same error.
    let memory = address_space().map_or(String::new(), |kib| format!("; ulimit -v: {kib}"));
    format!(
        "no more processes and threads can be started, and a mount needs {needed} (ulimit -u: {}; pids.max \
         of the cgroup: {}{memory})",
        limit(own),
        limit(cgroup::most_processes())
    )
}
