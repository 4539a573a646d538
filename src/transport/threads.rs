//! Threads of the transport.

use crate::io::heap;
use std::io;
use std::thread::{self, JoinHandle};

/// Starts a thread whose panic ends the process, after the panic hook has logged it: a request that is never answered
/// would hold its reader, and `umount`, for ever.
///
/// # Errors
/// There is no thread left, or no memory for it.
pub(super) fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    heap::check_headroom()?;
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
