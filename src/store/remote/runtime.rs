//! The runtimes for requests to stores: a few threads each, started with the first request, so that no thread runs before a
//! daemon has left its parent. Imports a text of `io`.

use crate::io::NO_THREAD;
use std::future::Future;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;
use std::{io, thread};
use tokio::runtime::{Builder, Handle, Runtime};

/// Requests wait more than they compute.
const THREADS: usize = 2;
/// Threads for blocking work: cache writes, host name lookups, files with credentials.
const BLOCKING_THREADS: usize = 16;
/// How long such a thread stays without work: if no more can be started, work waits for the existing ones, but if there are
/// none, tokio panics.
const IDLE: Duration = Duration::from_secs(600);

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

/// The runtime for requests to NameNodes: the Kerberos library blocks the thread that logs in, for minutes if the KDC hangs,
/// and no other work may wait for that, least of all timeouts.
///
/// # Errors
/// No thread can be started.
#[cfg(feature = "hdfs")]
pub(super) fn for_namenodes() -> io::Result<&'static Handle> {
    started(&NAMENODES, "ffrfs-namenode")
}

fn started(place: &'static OnceLock<Runtime>, name: &str) -> io::Result<&'static Handle> {
    // One runtime at a time: there may be room for the threads of one alone.
    static STARTING: Mutex<()> = Mutex::new(());
    let is_there = || place.get().map(Runtime::handle);
    if let Some(handle) = is_there() {
        return Ok(handle);
    }
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = is_there() {
        return Ok(handle);
    }
    let runtime = start(name)?;
    Ok(place.get_or_init(|| runtime).handle())
}

/// A runtime, if all its threads can be started. If not, tokio panics, and then waits without limit for the end of the threads
/// that it has started.
fn start(name: &str) -> io::Result<Runtime> {
    let are_complete = Arc::new(OnceLock::<bool>::new());
    let begins = Arc::clone(&are_complete);
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(THREADS).max_blocking_threads(BLOCKING_THREADS);
    builder.thread_keep_alive(IDLE).thread_name(name).enable_all();
    builder.on_thread_start(move || {
        if !*begins.wait() {
            panic::resume_unwind(Box::new(NO_THREAD));
        }
    });
    let build = || {
        let runtime = builder.build()?;
        // The first thread for blocking work: later there may be no room for it.
        runtime.spawn_blocking(|| ());
        Ok(runtime)
    };
    let fails = Arc::clone(&are_complete);
    let built = unless_it_panics(build, move || {
        let _ = fails.set(false);
    });
    let _ = are_complete.set(true);
    built.unwrap_or_else(|| Err(io::Error::other(NO_THREAD)))
}

/// Does `work`. If it panics, nothing is logged: `on_panic` is called, before the values that `work` holds are dropped.
fn unless_it_panics<R>(
    work: impl FnOnce() -> R,
    on_panic: impl Fn() + Send + Sync + 'static,
) -> Option<R> {
    let (this, log) = (thread::current().id(), Arc::new(panic::take_hook()));
    let log_others = Arc::clone(&log);
    panic::set_hook(Box::new(move |panic| match thread::current().id() == this {
        true => on_panic(),
        false => log_others(panic),
    }));
    let done = catch_unwind(AssertUnwindSafe(work));
    drop(panic::take_hook());
    if let Some(log) = Arc::into_inner(log) {
        panic::set_hook(log);
    }
    done.ok()
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
