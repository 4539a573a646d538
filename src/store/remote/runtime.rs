//! The runtimes for requests to stores: a few threads each, started with the first request, so that none runs before a
//! daemon has left its parent. Imports nothing of ours.

use std::future::Future;
use std::io;
use std::sync::{OnceLock, mpsc};
use tokio::runtime::{Builder, Handle, Runtime};

/// Requests wait more than they compute.
const THREADS: usize = 2;
/// Threads for blocking work: cache writes, host name lookups, files with credentials.
const BLOCKING_THREADS: usize = 16;

static RUNTIME: OnceLock<Runtime> = OnceLock::new();
#[cfg(feature = "hdfs")]
static NAMENODES: OnceLock<Runtime> = OnceLock::new();

/// The runtime of this process.
///
/// # Errors
/// No thread can be started.
pub(super) fn handle() -> io::Result<&'static Handle> {
    started(&RUNTIME, "ffrfs-remote")
}

/// The runtime for requests to NameNodes: the Kerberos library blocks the thread that logs in, for minutes if the KDC
/// hangs, and nothing else may wait for that, least of all timeouts.
///
/// # Errors
/// No thread can be started.
#[cfg(feature = "hdfs")]
pub(super) fn for_namenodes() -> io::Result<&'static Handle> {
    started(&NAMENODES, "ffrfs-namenode")
}

fn started(place: &'static OnceLock<Runtime>, name: &str) -> io::Result<&'static Handle> {
    if let Some(runtime) = place.get() {
        return Ok(runtime.handle());
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name(name)
        .enable_all()
        .build()?;
    // If two threads make one at a time, the second one is dropped, without waiting for its threads.
    if let Err(second) = place.set(runtime) {
        second.shutdown_background();
    }
    place.get().map(Runtime::handle).ok_or_else(|| io::Error::other("no runtime"))
}

/// Runs `work` on the runtime and waits for it. Must not be called on a thread of the runtime.
///
/// # Errors
/// No thread can be started, or `work` has panicked.
pub(super) fn wait_for<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> io::Result<T> {
    let (send, receive) = mpsc::sync_channel(1);
    handle()?.spawn(async move { drop(send.send(work.await)) });
    receive.recv().map_err(io::Error::other)
}
