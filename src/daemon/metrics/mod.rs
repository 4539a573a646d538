//! `metrics=`: the counters of a mount for Prometheus, on a socket.

mod address;
mod http;
mod text;

pub(crate) use address::{Address, FileId};

use crate::failure::{Exit, Failure};
use crate::vfs::Vfs;
use address::{Listener, Stream};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The most connections at a time; further ones are refused.
const MAX_CONNECTIONS: usize = 8;
/// The pause after an `accept` that failed: descriptors may be scarce for a while.
const PAUSE: Duration = Duration::from_millis(100);

/// A bound socket. Dropping it removes the socket's file, if this process serves the mount.
pub(crate) struct Metrics {
    listener: Arc<Listener>,
    address: Address,
    is_ours: bool,
}

/// The socket of a process that has served the mount before. It stays bound: clients that connect meanwhile wait.
#[derive(Debug)]
pub(crate) struct Bound {
    /// The address, as [`Address`] is written.
    pub(crate) address: String,
    pub(crate) socket: OwnedFd,
    /// The socket's file, if it has one and the process has told of it.
    pub(crate) file: Option<FileId>,
}

impl Bound {
    /// Removes the socket's file, if it was bound to `address`.
    pub(crate) fn remove(&self, address: &Address) {
        let is_bound_there = self.address == address.to_string();
        if let (Some(path), Some(file), true) = (address.path(), self.file, is_bound_there) {
            address::remove(path, file);
        }
    }
}

impl Metrics {
    /// Takes the address, or the socket that another process has bound to it; such a socket is not ours yet.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub(crate) fn bind(address: &Address, bound: Option<Bound>) -> Result<Self, Failure> {
        let bound = bound.filter(|bound| bound.address == address.to_string());
        let is_ours = bound.is_none();
        let listener = match bound {
            Some(bound) => address::listener(address, bound.socket, bound.file),
            None => address.bind().map_err(|e| not_bound(address, e))?,
        };
        Ok(Self { listener: Arc::new(listener), address: address.clone(), is_ours })
    }

    /// Looks whether the address can be taken, and makes no file.
    ///
    /// # Errors
    /// As for [`Metrics::bind`].
    pub(crate) fn check(address: &Address) -> Result<(), Failure> {
        address.check().map_err(|e| not_bound(address, e))
    }

    /// Sets whether this process serves the mount from now on, or another one, which then removes the socket's file in the end.
    pub(crate) fn set_ours(&mut self, is_ours: bool) {
        self.is_ours = is_ours;
    }

    /// The address, the socket that is bound to it, and the socket's file.
    pub(crate) fn bound(&self) -> (String, BorrowedFd<'_>, Option<FileId>) {
        (self.address.to_string(), self.listener.as_fd(), self.listener.file())
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

fn not_bound(address: &Address, error: io::Error) -> Failure {
    Failure::new(Exit::Mount, error).context(format_args!("metrics={address}"))
}

impl Drop for Metrics {
    fn drop(&mut self) {
        if self.is_ours {
            self.listener.remove();
        }
    }
}

/// Answers connections until the process ends, together with the mount.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_socket_is_removed_where_the_user_has_named_it_and_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        let named = |name: &str| Address::Unix(directory.path().join(name));
        let (address, elsewhere) = (named("socket"), named("elsewhere"));
        let path = address.path().unwrap();
        let listener = address.bind().unwrap();
        let socket = listener.as_fd().try_clone_to_owned().unwrap();
        let bound = Bound { address: address.to_string(), socket, file: listener.file() };
        bound.remove(&elsewhere);
        assert!(path.exists());
        let moved = directory.path().join("moved");
        std::fs::rename(path, &moved).unwrap();
        let other = address.bind().unwrap();
        bound.remove(&address);
        assert!(path.exists(), "it is another daemon's");
        other.remove();
        std::fs::rename(&moved, path).unwrap();
        bound.remove(&address);
        assert!(!path.exists());
    }
}
