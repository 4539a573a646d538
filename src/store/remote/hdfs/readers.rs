//! Readers of files, each for one version of a file.
//!
//! A reader has the list of its file's blocks, and a block never changes: an overwritten file has other blocks, and the old
//! blocks give the old bytes or, soon, no bytes. So no response mixes two versions. A changed file shows in its length and
//! modification time, which are compared after a reader has got its blocks, and while it is used, at most once every
//! [`LOOK_INTERVAL`].
//!
//! A reader never retries a failed DataNode, learns where blocks have moved, or renews its access tokens. So it is
//! reopened after an error, and after [`MAX_AGE`].

use super::super::{Body, ErrorKind, Object, StoreError};
use super::error::store_error;
use super::namenode::{NameNode, path};
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, future};
use hdfs_native::file::FileReader;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How long a change of a file in use may go unnoticed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a read waits for the NameNode to confirm the version; after that it goes on without.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);
/// The pause before the next question to a NameNode that did not respond.
const RESPITE: Duration = Duration::from_secs(10);
/// Blocks move, and access tokens expire after ten hours.
const MAX_AGE: Duration = Duration::from_secs(600);
/// The maximum number of open readers. Each takes about 500 bytes for each replica of each block.
const KEPT: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// A version of a file: its key, length and modification time.
type Version = (String, u64, Option<SystemTime>);

/// The readers of one name service.
pub(super) struct Readers(Mutex<LruCache<Version, Arc<Slot>>>);

impl Default for Readers {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(KEPT)))
    }
}

/// The reader of one version of a file, if it is open.
#[derive(Default)]
struct Slot {
    reader: Mutex<Option<Arc<Reader>>>,
    /// Held by the task that opens the reader.
    opening: tokio::sync::Mutex<()>,
}

struct Reader {
    file: FileReader,
    opened: Instant,
    looked: Mutex<Instant>,
}

/// The results of `hdfs-native`: bytes, an error, or a caught panic.
type Raw = BoxStream<'static, std::thread::Result<hdfs_native::Result<Bytes>>>;

impl Readers {
    /// Begins to read a range.
    pub(super) async fn get(
        &self,
        name_node: &NameNode,
        object: &Object,
        range: Range<u64>,
    ) -> Result<Body, StoreError> {
        let slot = self.slot(object);
        let reader = slot.reader(name_node, object).await?;
        let (offset, length) = within(&range, reader.file.file_length()).ok_or_else(|| {
            let why = format!("bytes {} to {} are not in the file", range.start, range.end);
            StoreError::new(object.location.to_string(), ErrorKind::Refused, why)
        })?;
        let raw = reader.file.read_range_stream(offset, length);
        let mut raw: Raw = AssertUnwindSafe(raw.boxed()).catch_unwind().boxed();
        // The stream does nothing until its first bytes are requested.
        let (unchanged, first) = future::join(reader.look(name_node, object), raw.next()).await;
        if let Err(error) = unchanged {
            slot.forget(&reader);
            return Err(error);
        }
        let raw = stream::iter(first).chain(raw).boxed();
        let left = range.end - range.start;
        let reading = Reading { raw, left, slot, reader, object: object.clone() };
        let mut body = reading.into_body();
        let first = body.next().await.transpose()?;
        Ok(stream::iter(first.map(Ok)).chain(body).boxed())
    }

    fn slot(&self, object: &Object) -> Arc<Slot> {
        let version = (object.location.key.clone(), object.length_bytes, object.modified);
        Arc::clone(lock(&self.0).get_or_insert(version, Arc::default))
    }
}

impl Slot {
    async fn reader(
        &self,
        name_node: &NameNode,
        object: &Object,
    ) -> Result<Arc<Reader>, StoreError> {
        if let Some(reader) = self.current() {
            return Ok(reader);
        }
        let _opening = self.opening.lock().await;
        if let Some(reader) = self.current() {
            return Ok(reader);
        }
        let reader = Arc::new(Reader::open(name_node, object).await?);
        *lock(&self.reader) = Some(Arc::clone(&reader));
        Ok(reader)
    }

    fn current(&self) -> Option<Arc<Reader>> {
        lock(&self.reader).clone().filter(|reader| reader.opened.elapsed() < MAX_AGE)
    }

    fn forget(&self, reader: &Arc<Reader>) {
        let mut current = lock(&self.reader);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, reader)) {
            *current = None;
        }
    }
}

impl Reader {
    async fn open(name_node: &NameNode, object: &Object) -> Result<Self, StoreError> {
        let path = path(&object.location);
        let file = name_node
            .ask(&object.location, move |native| async move { native.read(&path).await })
            .await?;
        // Only now: an earlier check would let the blocks of a later version pass for those of the pinned one.
        compare(name_node, object).await?;
        if file.file_length() as u64 != object.length_bytes {
            let why = "the file is still being written";
            return Err(StoreError::new(object.location.to_string(), ErrorKind::Changed, why));
        }
        let now = Instant::now();
        Ok(Self { file, opened: now, looked: Mutex::new(now) })
    }

    /// Checks whether the file has changed, if the check is due. A NameNode that does not respond holds up no reads.
    async fn look(&self, name_node: &NameNode, object: &Object) -> Result<(), StoreError> {
        {
            let mut looked = lock(&self.looked);
            if looked.elapsed() < LOOK_INTERVAL {
                return Ok(());
            }
            *looked = Instant::now();
        }
        match tokio::time::timeout(LOOK_PATIENCE, compare(name_node, object)).await {
            Ok(Err(error)) if !error.is_passing() => return Err(error),
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => *lock(&self.looked) = Instant::now() + RESPITE,
        }
        Ok(())
    }
}

/// Compares the file's length and time with those of the pinned version.
async fn compare(name_node: &NameNode, object: &Object) -> Result<(), StoreError> {
    let now = name_node.status(&object.location).await?;
    if (now.length_bytes, now.modified) == (object.length_bytes, object.modified) {
        return Ok(());
    }
    let why = "the file has another length or time of modification than when it was opened";
    Err(StoreError::new(object.location.to_string(), ErrorKind::Changed, why))
}

/// A range that is being read.
struct Reading {
    raw: Raw,
    /// The number of bytes that are still to come.
    left: u64,
    slot: Arc<Slot>,
    reader: Arc<Reader>,
    object: Object,
}

impl Reading {
    /// Exactly the bytes of the range, or an error at the end.
    fn into_body(self) -> Body {
        let body = stream::unfold(Some(self), |reading| async {
            let mut reading = reading?;
            match reading.next().await? {
                Ok(bytes) => Some((Ok(bytes), Some(reading))),
                Err(error) => {
                    reading.slot.forget(&reading.reader);
                    Some((Err(error), None))
                }
            }
        });
        body.boxed()
    }

    async fn next(&mut self) -> Option<Result<Bytes, StoreError>> {
        let failed =
            |kind, why| Some(Err(StoreError::new(self.object.location.to_string(), kind, why)));
        match self.raw.next().await {
            Some(Ok(Ok(bytes))) => match self.left.checked_sub(bytes.len() as u64) {
                Some(left) => {
                    self.left = left;
                    Some(Ok(bytes))
                }
                None => failed(ErrorKind::Malformed, "more bytes came than were asked for"),
            },
            Some(Ok(Err(error))) => Some(Err(store_error(&self.object.location, &error))),
            Some(Err(_)) => {
                failed(ErrorKind::Malformed, "the answer of a DataNode cannot be understood")
            }
            None if self.left > 0 => failed(ErrorKind::Broken, "the response ends early"),
            None => None,
        }
    }
}

/// The offset and length of the range, if it is not empty and lies within a file of this length.
fn within(range: &Range<u64>, file_length: usize) -> Option<(usize, usize)> {
    let (start, end) = (usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?);
    (start < end && end <= file_length).then(|| (start, end - start))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
