//! Why a request to a store failed: for messages, error numbers, and whether to try again.

use std::fmt;
use std::io;
use std::time::Duration;

/// The classes of failed requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// There is no such object (404).
    NotFound,
    /// The credentials are missing, wrong, expired, or do not allow this (401, 403).
    Denied,
    /// The object is not the version that was opened (412, another ETag, generation, length or time).
    Changed,
    /// The store asks for fewer requests (429, 503).
    Throttled,
    /// The store or the way to it fails for now (5xx, no connection).
    Unavailable,
    /// The connection or the body ended early.
    Broken,
    /// Nothing came for too long.
    TimedOut,
    /// The answer is not one to the request: no range, another range, another length, not the protocol.
    Malformed,
    /// The request cannot work (other 4xx, an unusable configuration).
    Refused,
    /// The reader no longer waits.
    Interrupted,
    /// The cache of this node does not take the bytes.
    NoRoom,
}

/// Why a request to a store failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    /// The object or store, without secrets.
    pub url: String,
    /// The class.
    pub kind: ErrorKind,
    /// The HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// What the store said, or what is wrong; and what to do, where that is known.
    pub message: String,
    /// The store's own number of the request.
    pub request_id: Option<String>,
    /// How long the store asks to wait.
    pub retry_after: Option<Duration>,
}

impl StoreError {
    /// An error of this class without an answer of the store.
    #[must_use]
    pub fn new(url: impl Into<String>, kind: ErrorKind, message: impl Into<String>) -> Self {
        let (url, message) = (url.into(), message.into());
        Self { url, kind, status: None, message, request_id: None, retry_after: None }
    }

    /// The cache takes nothing more of this object.
    #[must_use]
    pub fn no_room(url: impl Into<String>) -> Self {
        Self::new(url, ErrorKind::NoRoom, "the cache has no room for it; see `ffrfs cache ls`")
    }

    /// The store's error that an error of the system stands for, if it stands for one.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Whether the version that was opened is gone for good.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self.kind, ErrorKind::Changed | ErrorKind::NotFound)
    }

    /// Says that a request was sent so often, the last time after so long.
    #[must_use]
    pub fn given_up(mut self, attempts: u32, elapsed: Duration) -> Self {
        if attempts > 1 {
            let seconds = elapsed.as_secs_f64();
            self.message += &format!("; given up after {attempts} attempts in {seconds:.1} s");
        }
        self
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        use ErrorKind::{Broken, Throttled, TimedOut, Unavailable};
        matches!(self.kind, Throttled | Unavailable | Broken | TimedOut)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: ", self.url)?;
        if let Some(status) = self.status {
            write!(out, "status {status}: ")?;
        }
        out.write_str(&self.message)?;
        match &self.request_id {
            Some(id) => write!(out, " (request {id})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for StoreError {}

/// The kind tells the error number: ENOENT and a change become ESTALE for open files, see [`crate::vfs`].
impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> Self {
        let kind = match error.kind {
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::Denied => io::ErrorKind::PermissionDenied,
            ErrorKind::Changed => io::ErrorKind::StaleNetworkFileHandle,
            ErrorKind::TimedOut => io::ErrorKind::TimedOut,
            ErrorKind::Interrupted => io::ErrorKind::Interrupted,
            ErrorKind::Malformed => io::ErrorKind::InvalidData,
            ErrorKind::NoRoom => io::ErrorKind::StorageFull,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
