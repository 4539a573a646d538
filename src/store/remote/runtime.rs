//! The runtimes for requests to stores: a few threads each, started with the first request, so that none runs before a
//! daemon has left its parent. Imports a text of `io`.

use crate::io::NO_THREAD;
use std::future::Future;
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;
use std::{io, thread};
use tokio::runtime::{Builder, Handle, Runtime};

/// Requests wait more than they compute.
const THREADS: usize = 2;
/// Threads for blocking work: cache writes, host name lookups, files with credentials.
const BLOCKING_THREADS: usize = 16;
/// How long such a thread stays without work: where no more can be started, work waits for those that there are, but if there
/// is none, tokio panics.
const IDLE: Duration = Duration::from_secs(600);
/// How many threads are tried before a runtime starts its own, for which tokio panics or hangs if there can be none: more
/// than those and one for blocking work, as threads that have just ended may still count.
const TRIED: usize = 2 * (THREADS + 1);

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
    // One at a time: there may be room for the threads of one alone.
    static STARTING: Mutex<()> = Mutex::new(());
    let is_there = || place.get().map(Runtime::handle);
    if let Some(handle) = is_there() {
        return Ok(handle);
    }
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = is_there() {
        return Ok(handle);
    }
    try_threads().map_err(|error| io::Error::other(format!("{NO_THREAD}: {error}")))?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_keep_alive(IDLE)
        .thread_name(name)
        .enable_all()
        .build()?;
    // The first thread for blocking work: later there may be no room for it.
    runtime.spawn_blocking(|| ());
    Ok(place.get_or_init(|| runtime).handle())
}

/// Starts threads that are there at the same time, and end.
fn try_threads() -> io::Result<()> {
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let closed = gate.lock();
        let start = |_| thread::Builder::new().spawn_scoped(scope, || drop(gate.lock()));
        let tried: Vec<_> = (0..TRIED).map(start).collect();
        drop(closed);
        for thread in tried {
            let _ = thread?.join();
        }
        Ok(())
    })
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
