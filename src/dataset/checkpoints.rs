//! Checkpoints of large compressed members, kept from one mount to the next in a [`RecordFile`] of the container.
//!
//! ```text
//! key of a record: u64 offset | u64 stored | u64 decoded bytes | u32 kind of the member's checksum (0: none) | u32 that checksum
//! ```

use super::options::IndexOptions;
use super::record_file::{RecordFile, RecordKey};
use crate::format::OpenOptions;
use crate::store::Store;
use crate::vfs::{CheckpointKey, CheckpointStore};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// What checkpoints were called when the file was new.
const FORMAT: &str = "restart points";

/// The checkpoints of a dataset's containers.
pub struct KeptCheckpoints {
    store: Store,
    indexes: IndexOptions,
    options: OpenOptions,
    files: Mutex<HashMap<usize, Arc<RecordFile>>>,
    writers: Mutex<Vec<JoinHandle<()>>>,
    /// The number of members whose checkpoints could not be written.
    failures: Arc<AtomicU64>,
}

impl KeptCheckpoints {
    /// `None` if checkpoints are neither written nor read.
    #[must_use]
    pub fn new(store: &Store, indexes: &IndexOptions, options: &OpenOptions) -> Option<Self> {
        indexes.is_used().then(|| Self {
            store: store.clone(),
            indexes: indexes.clone(),
            options: options.clone(),
            files: Mutex::default(),
            writers: Mutex::default(),
            failures: Arc::default(),
        })
    }

    fn file(&self, number: usize) -> Option<Arc<RecordFile>> {
        let mut files = lock(&self.files);
        if let Some(file) = files.get(&number) {
            return Some(Arc::clone(file));
        }
        let part = self.store.parts().get(number)?;
        let place = (&self.indexes, self.indexes.paths(part.name()));
        let file = Arc::new(RecordFile::new(part, place, &self.options, FORMAT).ok()?);
        files.insert(number, Arc::clone(&file));
        Some(file)
    }
}

impl CheckpointStore for KeptCheckpoints {
    fn load(&self, key: &CheckpointKey) -> Option<Vec<u8>> {
        self.file(key.file)?.load(&record_key(key))
    }

    fn keep(&self, key: &CheckpointKey, bytes: Vec<u8>) {
        let Some(file) = self.file(key.file).filter(|file| file.writes) else { return };
        let (key, failures) = (record_key(key), Arc::clone(&self.failures));
        let keep = move || match file.keep(&key, &bytes) {
            Ok(path) => {
                let (path, container) = (path.display(), &file.container);
                tracing::info!("checkpoints of a member of {container} kept in {path}");
            }
            Err(why) => {
                failures.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    "checkpoints cannot be kept, the next mount decodes the member again: {why}"
                );
            }
        };
        match std::thread::Builder::new().name("ffrfs-index".to_owned()).spawn(keep) {
            Ok(writer) => {
                let mut writers = lock(&self.writers);
                writers.retain(|writer| !writer.is_finished());
                writers.push(writer);
            }
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                tracing::warn!("checkpoints cannot be kept: no thread can be started: {error}");
            }
        }
    }

    fn finish(&self) {
        for writer in lock(&self.writers).drain(..) {
            let _ = writer.join();
        }
    }
}

impl KeptCheckpoints {
    /// The number of members whose checkpoints could not be written; the log has the reasons.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

impl Drop for KeptCheckpoints {
    fn drop(&mut self) {
        self.finish();
    }
}

fn record_key(key: &CheckpointKey) -> RecordKey {
    let mut out = RecordKey::default();
    let values = [key.offset_bytes, key.stored_bytes, key.decoded_bytes];
    for (field, value) in out.chunks_exact_mut(8).zip(values) {
        field.copy_from_slice(&value.to_le_bytes());
    }
    let member = key.checksum.map_or((0, 0), |member| (member.kind().code(), member.value()));
    for (field, value) in out[24..].chunks_exact_mut(4).zip([member.0, member.1]) {
        field.copy_from_slice(&value.to_le_bytes());
    }
    out
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
