//! The error of a failed request to a store. The class decides the message, the error number, and whether to retry.

use crate::format::counted;
use std::fmt;
use std::io;
use std::time::Duration;

/// The classes of failed requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// There is no such object (404).
    NotFound,
    /// The credentials are missing, wrong or expired, or do not allow the request (401, 403).
    Denied,
    /// The object is no longer the version that was opened (412, another ETag, generation, length or time).
    Changed,
    /// The store asks for fewer requests (429, 503).
    Throttled,
    /// The store or the connection to it fails at the moment (5xx, no connection).
    Unavailable,
    /// The connection or the body ended early.
    Broken,
    /// No byte came within the timeout.
    TimedOut,
    /// The response does not match the request: no range, another range or length, a violation of the protocol.
    Malformed,
    /// The request cannot work (other 4xx, an unusable configuration).
    Refused,
    /// The reader no longer waits.
    Interrupted,
    /// The cache of this node has no room for the bytes.
    NoRoom,
}

/// The error of a failed request to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    /// The object or store, without secrets.
    pub url: String,
    /// The class.
    pub kind: ErrorKind,
    /// The HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// The store's message or the problem found, with advice if there is any.
    pub message: String,
    /// The request's id at the store.
    pub request_id: Option<String>,
    /// How long the store asks to wait.
    pub retry_after: Option<Duration>,
}

impl StoreError {
    /// An error of this class without a response of the store.
    #[must_use]
    pub fn new(url: impl Into<String>, kind: ErrorKind, message: impl Into<String>) -> Self {
        let (url, message) = (url.into(), message.into());
        Self { url, kind, status: None, message, request_id: None, retry_after: None }
    }

    /// The error of a cache without room for this object's bytes.
    #[must_use]
    pub fn no_room(url: impl Into<String>) -> Self {
        Self::new(url, ErrorKind::NoRoom, "the cache has no room for it; see `ffrfs cache ls`")
    }

    /// The store's error inside of an error of the system, if there is one.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Whether the version that was opened is gone for good.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self.kind, ErrorKind::Changed | ErrorKind::NotFound)
    }

    /// Adds to the message the number of attempts, and the time since the first.
    #[must_use]
    pub fn given_up(mut self, attempts: u32, elapsed: Duration) -> Self {
        if attempts > 1 {
            let seconds = elapsed.as_secs_f64();
            self.message +=
                &format!("; given up after {} in {seconds:.1} s", counted(attempts, "attempt"));
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

/// The kind decides the error number: `NotFound` and `Changed` become ESTALE for open files, see [`crate::vfs`].
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
