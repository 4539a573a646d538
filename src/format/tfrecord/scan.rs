//! Finds the records of a file, one behind the other, as a state machine: see [`Scanner`].

use super::example::Parser;
use super::{TfRecord, length_of, stored_checksum};
use crate::format::records::{DAMAGED, Pass, Row, TRUNCATED};
use crate::format::scanned::Scanner;
use crate::format::{Container, Fault, Mismatch, OpenOptions, PartName, Result, Source, ending};
use crate::format::{counted, one_or_many};
use std::sync::Arc;

/// Bytes before the data of a record, and behind it.
pub(super) const HEAD_BYTES: u64 = 12;
const TAIL_BYTES: u64 = 4;
/// The largest record that is read into memory to look for features; a larger one is one file.
const MAX_EXAMPLE_BYTES: u64 = 256 << 20;

/// A pass over a file.
pub(super) struct TfRecordScanner {
    pass: Pass<TfRecord>,
    /// The record whose length is known: the offset of its data, their length, and whether they are read.
    open: Option<(u64, u64, bool)>,
    values: Vec<u8>,
    /// The number of records that do not match their checksum.
    mismatches: u64,
}

impl TfRecordScanner {
    /// Begins a pass at the first byte. Errors call the file `part`.
    pub(super) fn new(part: &PartName, options: &OpenOptions) -> Self {
        let pass = Pass::new(part, options, HEAD_BYTES);
        Self { pass, open: None, values: Vec::new(), mismatches: 0 }
    }

    /// Takes the header bytes of a record, at `at`, or no bytes at the end.
    fn head(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            self.pass.want = None;
            return Ok(());
        }
        let Some(head) = bytes.first_chunk() else {
            let found = counted(bytes.len(), "byte");
            return self.pass.end(at, "a length and its checksum, 12 bytes", found, TRUNCATED);
        };
        let Some(length) = length_of(head) else {
            let found = "other bytes".to_owned();
            return self.pass.end(at, "a length that matches its checksum", found, DAMAGED);
        };
        let data_at = at.saturating_add(HEAD_BYTES);
        let next = data_at.checked_add(length).and_then(|end| end.checked_add(TAIL_BYTES));
        let Some(next) = next.filter(|next| *next < i64::MAX as u64) else {
            let found = length.to_string();
            return self.pass.end(at, "the length of a record in a file", found, DAMAGED);
        };
        let is_read = self.pass.is_typed && length <= MAX_EXAMPLE_BYTES;
        self.open = Some((data_at, length, is_read));
        // The header bytes of the next record come with it.
        let from = if is_read { data_at } else { next.saturating_sub(TAIL_BYTES) };
        self.pass.want = Some((from, next.saturating_sub(from).saturating_add(HEAD_BYTES)));
        Ok(())
    }

    /// Takes the data of the record that was begun, if they are read, and the bytes behind it.
    fn body(&mut self, (at, length, is_read): (u64, u64, bool), bytes: &[u8]) -> Result<()> {
        let data_bytes = if is_read { usize::try_from(length).unwrap_or(usize::MAX) } else { 0 };
        let data = bytes.get(..data_bytes);
        let behind = bytes.get(data_bytes..).unwrap_or_default();
        let (Some(data), Some((tail, next))) = (data, behind.split_first_chunk::<4>()) else {
            let at = at.saturating_sub(HEAD_BYTES);
            let expected = format!("a record of {}", counted(length, "byte"));
            return self.pass.end(
                at,
                &expected,
                "the end of the file within it".to_owned(),
                TRUNCATED,
            );
        };
        let checksum = stored_checksum(*tail);
        let next_at = at.saturating_add(length).saturating_add(TAIL_BYTES);
        let mut parser = Parser {
            at,
            builder: &mut self.pass.builder,
            record: &mut self.pass.record,
            values: &mut self.values,
            end: next_at,
        };
        let is_example = is_read && parser.parse(data);
        let wrong = if is_read { checksum.check(data).err() } else { None };
        self.mismatches = self.mismatches.saturating_add(u64::from(wrong.is_some()));
        if !is_example {
            self.pass.record.clear();
            let mut row = Row::stored(at, length, ending::NONE);
            row.checksum = Some(checksum);
            self.pass.record.whole(row, length);
        } else if let Some(Mismatch { expected, found }) = wrong {
            let what = format!("the record at byte {}", at.saturating_sub(HEAD_BYTES));
            let (expected, found) = (expected.value(), found.value());
            let fault = Fault::PartChecksum { what, expected, found };
            let reason = self.pass.builder.reason(&fault);
            self.pass.record.set_damaged(reason);
        }
        self.pass.add(at)?;
        self.head(next_at, next)
    }
}

impl Scanner for TfRecordScanner {
    fn want(&self) -> Option<(u64, u64)> {
        self.pass.want
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        let Some((at, _)) = self.pass.want else { return Ok(()) };
        match self.open.take() {
            None => self.head(at, bytes),
            Some(open) => self.body(open, bytes),
        }
    }

    fn finish(mut self: Box<Self>, source: Arc<dyn Source>) -> Result<Box<dyn Container>> {
        if self.mismatches > 0 {
            let (part, count) = (&self.pass.part, self.mismatches);
            self.pass.builder.warn(format!(
                "{part}: {} not match the checksum: reading fails",
                one_or_many(count, "record does", "records do")
            ));
        }
        self.pass.finish(source)
    }
}
