//! The interface of a store's client: one attempt at one request.

use super::{Location, StoreError};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use std::ops::Range;
use std::time::SystemTime;

/// An object as its store describes it, pinned to one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The object's location.
    pub location: Location,
    /// The object's length.
    pub length_bytes: u64,
    /// The modification time, if the store reports it.
    pub modified: Option<SystemTime>,
    /// The version id or generation, which requests name: this version stays readable when the object changes.
    pub version_id: Option<String>,
    /// The strong ETag, quoted, which each response must have.
    pub etag: Option<String>,
}

/// The bytes of one response, in order: exactly the requested range, or an error,
/// [`ErrorKind::Broken`](super::ErrorKind::Broken) if the body ends early.
pub type Body = BoxStream<'static, Result<Bytes, StoreError>>;

/// One store: a bucket, a container, an HTTP server, a name service of HDFS. Runs on the runtime of the remote parts.
///
/// A client makes one attempt at each request: it neither retries nor limits the time. It compares the version and the
/// range of each response with the request, and returns no byte of another version.
pub trait Client: Send + Sync {
    /// Looks an object up, and pins the version that is current.
    fn head<'a>(&'a self, location: &'a Location) -> BoxFuture<'a, Result<Object, StoreError>>;

    /// Begins to read a range of this version of the object; the range is not empty and ends within the object.
    fn get<'a>(
        &'a self,
        object: &'a Object,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Body, StoreError>>;

    /// The objects whose keys begin with that of `prefix`, in order, each with its length and version. An item is a page,
    /// the answer to a request of its own, and may have no object.
    fn list<'a>(&'a self, prefix: &'a Location) -> BoxStream<'a, Result<Vec<Object>, StoreError>>;

    /// Where the credentials of the requests come from, in words without secrets; looks for them. `None` for unsigned
    /// requests.
    fn identity<'a>(
        &'a self,
        location: &'a Location,
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        let _ = location;
        Box::pin(async { Ok(None) })
    }

    /// By how many seconds the store's clock was ahead of ours at its last response. `None` if no response had the
    /// time.
    fn clock_ahead_seconds(&self) -> Option<i64> {
        None
    }
}
