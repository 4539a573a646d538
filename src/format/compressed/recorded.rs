//! Reads of a source while a container is opened, recorded so that the next opening need not decode their bytes again.

use crate::format::bytes::u64_at;
use crate::format::{PartName, Source, Table};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most memory of a record; a larger record is not kept.
const MAX_BYTES: u64 = 256 << 20;
/// Memory that a read takes beside its bytes.
const READ_BYTES: u64 = 96;
/// A row of the table of reads: offset and length.
const ROW_BYTES: u64 = 16;

/// The bytes of each read, by its offset and length.
type Reads = BTreeMap<(u64, u64), Vec<u8>>;

/// A source that remembers all reads until [`RecordedSource::end`].
pub(super) struct RecordedSource {
    inner: Arc<dyn Source>,
    /// The reads so far; `None` if the record has ended or was too large.
    record: Mutex<Option<Record>>,
}

#[derive(Default)]
struct Record {
    reads: Reads,
    memory_bytes: u64,
}

impl RecordedSource {
    /// Remembers reads only if `records`.
    pub(super) fn new(inner: Arc<dyn Source>, records: bool) -> Self {
        Self { inner, record: Mutex::new(records.then(Record::default)) }
    }

    /// Ends the record. `None` if it was too large, or no reads were to be remembered.
    pub(super) fn end(&self) -> Option<Recorded> {
        self.record().take().map(|record| Recorded(record.reads))
    }

    fn record(&self) -> MutexGuard<'_, Option<Record>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a read; `bytes` copies the bytes that were read.
    fn note(
        &self,
        (offset_bytes, length_bytes): (u64, u64),
        bytes: impl FnOnce() -> io::Result<Vec<u8>>,
    ) -> io::Result<()> {
        let mut guard = self.record();
        let Some(record) = guard.as_mut() else { return Ok(()) };
        let more = length_bytes.saturating_add(READ_BYTES);
        record.memory_bytes = record.memory_bytes.saturating_add(more);
        if record.memory_bytes > MAX_BYTES {
            *guard = None;
            return Ok(());
        }
        if let Entry::Vacant(place) = record.reads.entry((offset_bytes, length_bytes)) {
            place.insert(bytes()?);
        }
        Ok(())
    }
}

impl Source for RecordedSource {
    fn name(&self) -> &PartName {
        self.inner.name()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        self.inner.read_exact_at(buf, offset_bytes)?;
        self.note((offset_bytes, buf.len() as u64), || Ok(buf.to_vec()))
    }

    fn check_unchanged(&self) -> io::Result<()> {
        self.inner.check_unchanged()
    }

    fn table(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Box<dyn Table>> {
        let table = self.inner.table(offset_bytes, length_bytes)?;
        self.note((offset_bytes, length_bytes), || {
            // No longer than the table.
            let mut bytes = vec![0; usize::try_from(length_bytes).map_err(io::Error::other)?];
            table.copy_to(0, &mut bytes)?;
            Ok(bytes)
        })?;
        Ok(table)
    }
}

/// The reads of a container's opening.
#[derive(Default)]
pub(super) struct Recorded(Reads);

impl Recorded {
    /// The number of reads.
    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Writes the rows of the reads, and then their bytes.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        for (offset_bytes, length_bytes) in self.0.keys() {
            out.extend_from_slice(&offset_bytes.to_le_bytes());
            out.extend_from_slice(&length_bytes.to_le_bytes());
        }
        self.0.values().for_each(|bytes| out.extend_from_slice(bytes));
    }
}

/// A source that takes recorded reads from the kept bytes, and decodes all others.
pub(super) struct ReplayedSource {
    inner: Arc<dyn Source>,
    kept: Arc<dyn Source>,
    /// Offset and length of each read, rising, and the offset of its kept bytes.
    reads: Vec<(u64, u64, u64)>,
}

impl ReplayedSource {
    /// Reads the rows of `count` reads, which are kept at `at`. Also returns the end of the reads' bytes. `Ok(None)` if
    /// [`Recorded::write`] did not write them.
    pub(super) fn new(
        inner: Arc<dyn Source>,
        kept: &Arc<dyn Source>,
        at: u64,
        count: u64,
    ) -> io::Result<Option<(Self, u64)>> {
        let rows_end = count.checked_mul(ROW_BYTES).and_then(|bytes| at.checked_add(bytes));
        let Some(rows_end) = rows_end.filter(|end| *end <= kept.len()) else { return Ok(None) };
        let length = usize::try_from(rows_end.saturating_sub(at)).map_err(io::Error::other)?;
        let mut rows = vec![0; length];
        kept.read_exact_at(&mut rows, at)?;
        let mut reads = Vec::new();
        let mut place = rows_end;
        for row in rows.chunks_exact(ROW_BYTES as usize) {
            let (Some(offset_bytes), Some(length_bytes)) = (u64_at(row, 0), u64_at(row, 8)) else {
                return Ok(None);
            };
            let end = place.checked_add(length_bytes).filter(|end| *end <= kept.len());
            let Some(end) = end else { return Ok(None) };
            reads.push((offset_bytes, length_bytes, place));
            place = end;
        }
        let is_rising = reads.is_sorted();
        Ok(is_rising.then(|| (Self { inner, kept: Arc::clone(kept), reads }, place)))
    }

    /// The offset of the kept bytes of a read, if it was recorded.
    fn place(&self, offset_bytes: u64, length_bytes: u64) -> Option<u64> {
        let key = |read: &(u64, u64, u64)| (read.0, read.1);
        let found = self.reads.binary_search_by_key(&(offset_bytes, length_bytes), key).ok()?;
        self.reads.get(found).map(|(_, _, place)| *place)
    }
}

impl Source for ReplayedSource {
    fn name(&self) -> &PartName {
        self.inner.name()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        match self.place(offset_bytes, buf.len() as u64) {
            Some(place) => self.kept.read_exact_at(buf, place),
            None => self.inner.read_exact_at(buf, offset_bytes),
        }
    }

    fn check_unchanged(&self) -> io::Result<()> {
        self.inner.check_unchanged()
    }

    fn table(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Box<dyn Table>> {
        match self.place(offset_bytes, length_bytes) {
            Some(place) => self.kept.table(place, length_bytes),
            None => self.inner.table(offset_bytes, length_bytes),
        }
    }
}
