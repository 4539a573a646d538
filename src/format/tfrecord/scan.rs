//! Finds the records of a file, one behind the other, as a state machine: see [`Scanner`].

use super::example::Parser;
use super::{TfRecord, length_of, stored_checksum};
use crate::format::records::{Builder, Record, Row};
use crate::format::scanned::{Scanner, TooMany};
use crate::format::{Container, Error, OpenOptions, PartName, Result, Source, View, ending};
use std::sync::Arc;

/// What stands before the data of a record, and what behind it.
pub(super) const HEAD_BYTES: u64 = 12;
const TAIL_BYTES: u64 = 4;
/// A larger record is one file: it is not taken into memory to look for features.
const MAX_EXAMPLE_BYTES: u64 = 256 << 20;
const DAMAGED: &str = ": the file is damaged (--allow-damaged serves the records before this byte)";
const TRUNCATED: &str =
    ": the file is truncated (--allow-damaged serves the records before this byte)";

/// A pass over a file.
pub(super) struct TfRecordScanner {
    part: PartName,
    allow_damaged: bool,
    /// Records are looked into.
    is_typed: bool,
    want: Option<(u64, u64)>,
    /// The record whose length is known: where its data begin, their length, and whether they are asked for.
    open: Option<(u64, u64, bool)>,
    builder: Builder<TfRecord>,
    record: Record<TfRecord>,
    values: Vec<u8>,
    records: u64,
    /// Records that do not match their checksum.
    mismatches: u64,
}

impl TfRecordScanner {
    /// Begins at the first byte. Errors call the file `part`.
    pub(super) fn new(part: &PartName, options: &OpenOptions) -> Self {
        Self {
            part: part.clone(),
            allow_damaged: options.allow_damaged,
            is_typed: options.view != View::Raw,
            want: Some((0, HEAD_BYTES)),
            open: None,
            builder: Builder::default(),
            record: Record::default(),
            values: Vec::new(),
            records: 0,
            mismatches: 0,
        }
    }

    /// What stands at `at` before a record, or at the end nothing.
    fn head(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            self.want = None;
            return Ok(());
        }
        let Some(head) = bytes.first_chunk() else {
            let found = format!("{} bytes", bytes.len());
            return self.end(at, "a length and its checksum, 12 bytes", found, TRUNCATED);
        };
        let Some(length) = length_of(head) else {
            let found = "other bytes".to_owned();
            return self.end(at, "a length that matches its checksum", found, DAMAGED);
        };
        let data_at = at.saturating_add(HEAD_BYTES);
        let next = data_at.checked_add(length).and_then(|end| end.checked_add(TAIL_BYTES));
        let Some(next) = next.filter(|next| *next < i64::MAX as u64) else {
            let found = length.to_string();
            return self.end(at, "the length of a record in a file", found, DAMAGED);
        };
        let is_read = self.is_typed && length <= MAX_EXAMPLE_BYTES;
        self.open = Some((data_at, length, is_read));
        // The head of the next record comes with it.
        let from = if is_read { data_at } else { next.saturating_sub(TAIL_BYTES) };
        self.want = Some((from, next.saturating_sub(from).saturating_add(HEAD_BYTES)));
        Ok(())
    }

    /// The record that was begun, as far as it was asked for, and what stands behind it.
    fn body(&mut self, (at, length, is_read): (u64, u64, bool), bytes: &[u8]) -> Result<()> {
        let data_bytes = if is_read { usize::try_from(length).unwrap_or(usize::MAX) } else { 0 };
        let data = bytes.get(..data_bytes);
        let behind = bytes.get(data_bytes..).unwrap_or_default();
        let (Some(data), Some((tail, next))) = (data, behind.split_first_chunk::<4>()) else {
            let at = at.saturating_sub(HEAD_BYTES);
            let expected = format!("a record of {length} bytes");
            return self.end(at, &expected, "the end of the file within it".to_owned(), TRUNCATED);
        };
        let checksum = stored_checksum(*tail);
        let next_at = at.saturating_add(length).saturating_add(TAIL_BYTES);
        let mut parser = Parser {
            at,
            builder: &mut self.builder,
            record: &mut self.record,
            values: &mut self.values,
            end: next_at,
        };
        let is_example = is_read && parser.parse(data);
        let is_wrong = is_read && checksum.check(data).is_err();
        self.mismatches = self.mismatches.saturating_add(u64::from(is_wrong));
        if !is_example {
            self.record.clear();
            let mut row = Row::stored(at, length, ending::NONE);
            row.checksum = Some(checksum);
            self.record.whole(row, length);
        } else if is_wrong {
            self.record.set_damaged();
        }
        let added = self.builder.add(&self.record);
        added.map_err(|TooMany| {
            let found = format!("{} records", self.records);
            self.malformed(at, "fewer files than 2³¹", found, "")
        })?;
        self.records = self.records.saturating_add(1);
        self.head(next_at, next)
    }

    /// The rest of the file is of no use: refused, or passed over.
    fn end(&mut self, at: u64, expected: &str, found: String, hint: &'static str) -> Result<()> {
        self.want = None;
        if !self.allow_damaged {
            let hint = if self.records == 0 && hint == DAMAGED { "" } else { hint };
            return Err(self.malformed(at, expected, found, hint));
        }
        let part = &self.part;
        self.builder.warn(format!(
            "{part}: at byte {at}: expected {expected}, found {found}: nothing behind it is shown"
        ));
        Ok(())
    }

    fn malformed(&self, at: u64, expected: &str, found: String, hint: &'static str) -> Error {
        Error::Malformed {
            part: self.part.clone(),
            format: super::NAME,
            offset_bytes: at,
            expected: expected.to_owned(),
            found,
            hint,
        }
    }
}

impl Scanner for TfRecordScanner {
    fn want(&self) -> Option<(u64, u64)> {
        self.want
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        let Some((at, _)) = self.want else { return Ok(()) };
        match self.open.take() {
            None => self.head(at, bytes),
            Some(open) => self.body(open, bytes),
        }
    }

    fn finish(mut self: Box<Self>, source: Arc<dyn Source>) -> Result<Box<dyn Container>> {
        if self.mismatches > 0 {
            let (part, count) = (&self.part, self.mismatches);
            self.builder.warn(format!(
                "{part}: {count} records do not match their checksum: reading them fails"
            ));
        }
        Ok(Box::new(self.builder.finish(self.part, source)?))
    }
}
