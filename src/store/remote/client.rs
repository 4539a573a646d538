//! What a client of a store can do: one attempt at one request.

use super::{Location, StoreError};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use std::ops::Range;
use std::time::SystemTime;

/// An object as its store describes it, pinned to one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Where it lies.
    pub location: Location,
    /// Its length.
    pub length_bytes: u64,
    /// When it was modified, if the store says so.
    pub modified: Option<SystemTime>,
    /// The version id or generation, which is asked for by name: the object may change and this version stays.
    pub version_id: Option<String>,
    /// The strong ETag, quoted, which each answer must have.
    pub etag: Option<String>,
}

/// The bytes of one answer, in order. It gives exactly the range that was asked for, or ends with an error:
/// [`ErrorKind::Broken`](super::ErrorKind::Broken) if the body ends early.
pub type Body = BoxStream<'static, Result<Bytes, StoreError>>;

/// One store: a bucket, a container, an HTTP server, a name service of HDFS. Runs on the runtime of the remote parts.
///
/// A client makes one attempt at each request: it neither tries again nor limits the time. It compares the version and
/// the range of each answer with what was asked for, and gives no byte of another version.
pub trait Client: Send + Sync {
    /// Looks an object up, and pins the version that is current.
    fn head<'a>(&'a self, location: &'a Location) -> BoxFuture<'a, Result<Object, StoreError>>;

    /// Begins to read a range, which is neither empty nor reaches behind the end, of this version of the object.
    fn get<'a>(
        &'a self,
        object: &'a Object,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Body, StoreError>>;

    /// The objects whose keys begin with that of `prefix`, in order, each with its length and version.
    fn list<'a>(&'a self, prefix: &'a Location) -> BoxStream<'a, Result<Object, StoreError>>;

    /// Where the credentials of its requests come from, in words without secrets; asks for them. `None`: requests have
    /// none.
    fn identity<'a>(
        &'a self,
        location: &'a Location,
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        let _ = location;
        Box::pin(async { Ok(None) })
    }

    /// By how many seconds the store's clock was ahead of ours when it last answered. `None`: it has not told.
    fn clock_ahead_seconds(&self) -> Option<i64> {
        None
    }
}
