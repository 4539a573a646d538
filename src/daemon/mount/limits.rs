//! Limits of processes and open files that keep a mount from being made: which it is, and what is needed.

use super::request::MountRequest;
use crate::dataset;
use crate::failure::Failure;
use crate::io::{cgroup, process};
use crate::transport::MountError;
use nix::sys::resource::{Resource, getrlimit};
use std::io;

/// Says which limit a failure comes from, if it comes from one.
pub(super) fn explain(failure: Failure, request: &MountRequest) -> Failure {
    let errno = failure.reason::<io::Error>().and_then(io::Error::raw_os_error);
    let refused = failure.reason::<MountError>().and_then(|error| match error {
        MountError::Refused { error, .. } | MountError::PassedConnection(error, _) => {
            error.raw_os_error()
        }
        _ => None,
    });
    match errno.or(refused) {
        Some(libc::EMFILE) => failure.context(open_files()),
        Some(libc::EAGAIN) => failure.context(processes(request.settings.most_threads())),
        _ => failure,
    }
}

fn open_files() -> String {
    let limit = process::raise_open_files_limit();
    let needed = dataset::LEAST_OPEN_FILES;
    format!("no more files can be opened, and a mount needs {needed} (ulimit -n: {limit})")
}

/// Threads are processes here, as the kernel counts them.
fn processes(needed: usize) -> String {
    let limit = |limit: Option<u64>| limit.map_or("no limit".to_owned(), |limit| limit.to_string());
    let own = getrlimit(Resource::RLIMIT_NPROC).ok().map(|(soft, _)| soft);
    let own = own.filter(|&soft| soft != libc::RLIM_INFINITY);
    format!(
        "no more processes and threads can be started, and a mount needs {needed} (ulimit -u: {}; pids.max \
         of the cgroup: {})",
        limit(own),
        limit(cgroup::most_processes())
    )
}
