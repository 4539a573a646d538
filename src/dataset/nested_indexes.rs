//! What is kept of containers that are members of others, from one mount to the next: in a [`RecordFile`] of the outermost
//! container, whose records have the SHA-256 of the sample numbers that lead to the member, and of its length.

use super::beside::INDEX;
use super::options::IndexOptions;
use super::record_file::{Record, RecordFile, RecordKey};
use crate::format::{MemorySource, OpenOptions, SliceSource, Source};
use crate::io::File;
use crate::store::Part;
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

const FORMAT: &str = "nested members";
/// Smaller records are read into memory.
const WORTH_MAPPING_BYTES: usize = 1 << 20;
/// With more parts than this nothing is mapped, as each file would keep a descriptor.
const FEW: usize = 64;

/// The kept indexes of a dataset's nested containers.
pub(super) struct NestedIndexes<'a> {
    indexes: &'a IndexOptions,
    options: &'a OpenOptions,
    parts: Vec<OfPart>,
    /// Files that were written to.
    written: Mutex<BTreeSet<PathBuf>>,
    /// The number of containers of which nothing could be kept.
    failures: AtomicU64,
}

/// Those in one part of the store.
struct OfPart {
    part: Arc<Part>,
    /// `None`: nothing is kept of this part.
    found: OnceLock<Option<Found>>,
}

struct Found {
    file: RecordFile,
    records: HashMap<RecordKey, (Record, Arc<File>)>,
}

impl<'a> NestedIndexes<'a> {
    /// Reads nothing until a part is asked for.
    pub(super) fn new(
        parts: &[Arc<Part>],
        indexes: &'a IndexOptions,
        options: &'a OpenOptions,
    ) -> Self {
        let of_part = |part: &Arc<Part>| OfPart { part: Arc::clone(part), found: OnceLock::new() };
        let parts = parts.iter().map(of_part).collect();
        let (written, failures) = (Mutex::default(), AtomicU64::new(0));
        Self { indexes, options, parts, written, failures }
    }

    /// Whether what is found in a part is to be kept.
    pub(super) fn keeps(&self, part: usize) -> bool {
        self.indexes.may_write() && self.found(part).is_some()
    }

    /// What is kept of the member to which these sample numbers lead; the last of `numbers` is its length in bytes.
    pub(super) fn find(&self, part: usize, numbers: &[u64]) -> Option<Arc<dyn Source>> {
        let found = self.found(part)?;
        let (record, file) = found.records.get(&key_of(numbers))?;
        let name = file.name().clone();
        if record.length < WORTH_MAPPING_BYTES || self.parts.len() > FEW {
            let mut bytes = vec![0; record.length];
            file.read_exact_at(&mut bytes, record.at).ok()?;
            return record.is_whole(&bytes).then(|| Arc::new(MemorySource::new(name, bytes)) as _);
        }
        let (file, length) = (Arc::clone(file) as Arc<dyn Source>, record.length as u64);
        let slice = SliceSource::new(name, file, record.at, length);
        record.is_whole_in(&slice).then(|| Arc::new(slice) as _)
    }

    /// Keeps what [`NestedIndexes::find`] gives to a later mount.
    pub(super) fn keep(&self, part: usize, numbers: &[u64], bytes: &[u8]) {
        let Some(found) = self.found(part) else { return };
        match found.file.keep(&key_of(numbers), bytes) {
            Ok(path) => {
                let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
                if written.insert(path.clone()) {
                    let (path, container) = (path.display(), &found.file.container);
                    tracing::info!("indexes of containers in {container} kept in {path}");
                }
            }
            Err(why) => {
                if self.failures.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::warn!(
                        "the indexes of nested containers cannot be kept, the next mount decodes these again: {why}"
                    );
                }
            }
        }
    }

    /// The files that were written to, and the number of containers of which nothing could be kept.
    pub(super) fn outcome(self) -> (BTreeSet<PathBuf>, u64) {
        let written = self.written.into_inner().unwrap_or_else(PoisonError::into_inner);
        (written, self.failures.into_inner())
    }

    fn found(&self, part: usize) -> Option<&Found> {
        let of_part = self.parts.get(part).filter(|_| self.indexes.is_used())?;
        let open = || {
            let part = &of_part.part;
            let place = (self.indexes, self.paths(part));
            let file = RecordFile::new(part, place, self.options, FORMAT).ok()?;
            let mut records = HashMap::new();
            for (path, _, found) in file.all() {
                let Ok(file) = File::open(path).map(Arc::new) else { continue };
                // The last of a key is valid.
                let of_file = found.into_iter().map(|record| (record.key, record));
                records.extend(of_file.map(|(key, record)| (key, (record, Arc::clone(&file)))));
            }
            Some(Found { file, records })
        };
        of_part.found.get_or_init(open).as_ref()
    }

    /// Beside the files of the part's own index.
    fn paths(&self, part: &Part) -> Vec<PathBuf> {
        let ending = format!("nested.{INDEX}");
        let paths = self.indexes.paths(part.name());
        paths.into_iter().map(|path| path.with_extension(&ending)).collect()
    }
}

fn key_of(numbers: &[u64]) -> RecordKey {
    let mut hash = Sha256::new();
    numbers.iter().for_each(|number| hash.update(number.to_le_bytes()));
    hash.finalize().into()
}
