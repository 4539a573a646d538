//! Threads of the transport. Imports nothing of ours.

use std::io;
use std::thread::{self, JoinHandle};

/// Starts a thread whose panic ends the process, after the panic hook has logged it: a request that is never answered
/// would hold its reader, and `umount`, for ever.
pub(super) fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    thread::Builder::new().name(name.into()).spawn(move || {
        let _guard = EndOfProcess;
        work()
    })
}

/// Ends the process when it is dropped by a panic.
struct EndOfProcess;

impl Drop for EndOfProcess {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}
