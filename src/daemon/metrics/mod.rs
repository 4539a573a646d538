//! `metrics=`: the counters of a mount for Prometheus, on a socket.

mod address;
mod http;
mod text;

pub(crate) use address::Address;

use crate::failure::{Exit, Failure};
use crate::vfs::Vfs;
use address::{Listener, Stream};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// More connections at a time are refused.
const MAX_CONNECTIONS: usize = 8;
/// After an `accept` that failed: descriptors may be scarce for a while.
const PAUSE: Duration = Duration::from_millis(100);

/// A bound socket. Dropping it removes its file.
pub(crate) struct Metrics {
    listener: Arc<Listener>,
    address: Address,
}

impl Metrics {
    /// Takes the address.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub(crate) fn bind(address: &Address) -> Result<Self, Failure> {
        let listener = address
            .bind()
            .map_err(|e| Failure::new(Exit::Mount, e).context(format!("metrics={address}")))?;
        Ok(Self { listener: Arc::new(listener), address: address.clone() })
    }

    /// Answers connections on a thread of its own.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn serve(&self, vfs: &Arc<Vfs>, mount: &str, source: &str) -> io::Result<()> {
        let labels = text::labels(&[("mount", mount), ("source", source)]);
        let (listener, vfs) = (Arc::clone(&self.listener), Arc::clone(vfs));
        let body: Arc<dyn Fn() -> String + Send + Sync> = Arc::new(move || {
            text::render(&labels, &vfs.mount_info(), &vfs.mount_stats(), text::process())
        });
        let thread = std::thread::Builder::new().name("ffrfs-metrics".to_owned());
        thread.spawn(move || accept(&listener, &body))?;
        tracing::info!("metrics are served on {}", self.address);
        Ok(())
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.listener.remove();
    }
}

/// Runs until the process ends, which is when the mount does.
fn accept(listener: &Listener, body: &Arc<dyn Fn() -> String + Send + Sync>) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let stream = match listener.accept() {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!("metrics: {error}");
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        let connection = Connection::new(&open);
        if open.load(Ordering::Relaxed) > MAX_CONNECTIONS {
            http::refuse(stream);
            continue;
        }
        let body = Arc::clone(body);
        let answer = move || {
            let _counted = connection;
            answer(stream, &*body);
        };
        let thread = std::thread::Builder::new().name("ffrfs-scrape".to_owned());
        if let Err(error) = thread.spawn(answer) {
            tracing::debug!("metrics: {error}");
        }
    }
}

fn answer(stream: Stream, body: &dyn Fn() -> String) {
    if let Err(error) = http::answer(stream, text::CONTENT_TYPE, body) {
        tracing::debug!("metrics: {error}");
    }
}

/// Counts a connection, as long as it lives.
struct Connection(Arc<AtomicUsize>);

impl Connection {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
