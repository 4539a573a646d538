//! The JSON of the rows of a column, made while a file is scanned: some rows at a time are a unit.
//!
//! Imports cursors, JSON, cells, the budget and units.

use super::super::Result;
use super::super::reader::Reader;
use super::budget::Budget;
use super::cells::{Cell, State, damaged};
use super::cursors::{Cursors, Read, Stop, Stored, StoredPage};
use super::dictionaries::NO_DICTIONARY;
use super::footer::{Group, wrong_at};
use super::json::{self, JsonPart};
use super::page::{Header, MAX_HEADER_BYTES};
use super::schema::{Node, Schema};
use super::units::{Kind, SLOT_BYTES, Unit};
use crate::format::counted;
use std::borrow::Cow;

/// A unit ends with the row with which its text reaches this length, and this share of the pages that it is decoded from.
const TEXT_BYTES: u64 = 1 << 20;
const TEXT_SHARE: u64 = 4;
/// The least length of a unit's text for each leaf, of which the unit keeps a place.
const TEXT_BYTES_A_LEAF: u64 = 24 * 64;
/// The most stored bytes in which the pages of all leaves of a unit lie.
const MAX_STORED_BYTES: u64 = 256 << 20;
/// Bytes that are read first, to find the end of a header.
const HEADER_BYTES: u64 = 1 << 10;

/// Reads pages from the file.
pub(super) struct Pages<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) budget: &'a Budget,
}

/// The JSON of a column in a row group.
pub(super) struct Texts<'a> {
    cursors: Cursors<'a>,
    node: &'a Node,
    budget: &'a Budget,
    /// The next unit, but for its lengths and its place in the file.
    unit: Unit,
    /// The end of the addresses that the units may have.
    slot_end: u64,
    rows_left: u64,
    /// Whether a row could not be made.
    is_broken: bool,
    /// The number of the reason why the rows that were left out last cannot be read.
    reason: u32,
    block: Block,
    /// The number of the row behind the block.
    row: u64,
}

/// The rows of a unit.
#[derive(Default)]
struct Block {
    address: u64,
    /// The end of each row's text, and whether the row is null.
    ends: Vec<(u32, bool)>,
    /// The unit, until one of its rows is shown.
    unit: Option<(Unit, JsonPart)>,
}

impl Stored for Pages<'_> {
    fn page(&self, at: u64, end: u64) -> Read<StoredPage<'_>> {
        let left = end.saturating_sub(at);
        let read = |length: u64| {
            // The length is at most that of the chunk, which lies within the file.
            let mut bytes = vec![0; usize::try_from(length.min(left)).unwrap_or(0)];
            let read = self.reader.read("a page", &mut bytes, at);
            read.map(|()| bytes).map_err(Stop::Failed)
        };
        // A longer header is read again, so that no header costs much more than its own bytes.
        let mut length = HEADER_BYTES;
        loop {
            match Header::read(&read(length)?) {
                Ok((header, head)) => {
                    if let Some(why) = header.too_long() {
                        return Err(format!("the page at byte {at}: {why}").into());
                    }
                    self.budget.take(&header)?;
                    let whole = (head as u64).saturating_add(header.stored.into());
                    if whole > left {
                        return Err(
                            format!("a page of {} at byte {at}", counted(whole, "byte")).into()
                        );
                    }
                    return Ok((header, head, Cow::Owned(read(whole)?)));
                }
                Err(_) if length < MAX_HEADER_BYTES && left > length => {
                    length = length.saturating_mul(4);
                }
                Err(wrong) => return Err(wrong_at(self.reader, at, &wrong).to_string().into()),
            }
        }
    }
}

impl<'a> Texts<'a> {
    /// Makes the texts of the column that begins with a leaf, in a row group whose JSON is decoded to a slot. `None` if there
    /// is no such column.
    pub(super) fn new(
        pages: &'a Pages<'a>,
        (schema, group): (&'a Schema, &'a Group),
        (leaf, number): (usize, u32),
        slot: u64,
    ) -> Option<Self> {
        let node = json::find(&schema.columns, leaf)?;
        let cursors = Cursors::new(pages, schema, group, node).ok()?;
        let unit = Unit {
            decoded: slot,
            decoded_bytes: 0,
            stored: 0,
            stored_bytes: 0,
            kind: Kind::Json,
            has_checksum: false,
            is_indexed: false,
            column: u32::try_from(leaf).ok()?,
            group: number,
            dictionary: NO_DICTIONARY,
        };
        Some(Self {
            cursors,
            node,
            budget: pages.budget,
            unit,
            slot_end: slot.saturating_add(SLOT_BYTES),
            rows_left: group.rows,
            is_broken: false,
            reason: 0,
            block: Block::default(),
            row: 0,
        })
    }

    /// The place of the JSON of a row, which must not be before the last one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn cell(&mut self, row: u64) -> Result<Cell> {
        while row >= self.row {
            if self.rows_left == 0 {
                return Ok(damaged(self.reason));
            }
            self.next_block()?;
        }
        let first = self.row.saturating_sub(self.block.ends.len() as u64);
        let number = row.checked_sub(first).and_then(|number| usize::try_from(number).ok());
        let end_of = |number: usize| self.block.ends.get(number).copied();
        let Some(&(end, is_null)) = number.and_then(|number| self.block.ends.get(number)) else {
            return Ok(damaged(self.reason));
        };
        let before = number.and_then(|number| number.checked_sub(1)).and_then(end_of);
        let start = before.map_or(0, |(end, _)| end);
        if is_null {
            return Ok(Cell::default());
        }
        if let Some((unit, part)) = self.block.unit.take() {
            let mut parts = self.budget.parts.borrow_mut();
            let dictionary = u32::try_from(parts.len()).unwrap_or(NO_DICTIONARY);
            parts.push(part);
            self.budget.units.borrow_mut().push(Unit { dictionary, ..unit });
        }
        let address = self.block.address.saturating_add(start.into());
        let length = end.saturating_sub(start);
        Ok(Cell { state: State::There, length, address, ..Cell::default() })
    }

    /// About the offset of values behind the last row, which belong to no row, if there are some.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn left_over(&mut self) -> Result<Option<u64>> {
        if self.is_broken || self.rows_left > 0 {
            return Ok(None);
        }
        match self.cursors.left_over(self.node) {
            Ok(at) => Ok(at),
            Err(Stop::Failed(error)) => Err(error),
            // The values behind the rows cannot be read.
            Err(Stop::Wrong(_)) => Ok(None),
        }
    }

    /// Makes the texts of the next rows, up to a row that cannot be made.
    fn next_block(&mut self) -> Result<()> {
        let starts = self.cursors.starts(&|page| self.budget.keep_dictionary(page));
        let stored = starts.iter().map(|start| start.page).min().unwrap_or(0);
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        let least = TEXT_BYTES.max(TEXT_BYTES_A_LEAF.saturating_mul(starts.len() as u64));
        self.block = Block::default();
        while self.rows_left > 0 {
            let start = text.len();
            let written = json::write_row(&mut self.cursors, self.node, &mut text);
            let taken = text.len().saturating_sub(start);
            match written.and_then(|()| Ok(self.budget.take_text(taken)?)) {
                Ok(()) => (),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Wrong(fault)) => {
                    let fault = fault.within(&format!("the column from byte {stored} on"));
                    self.reason = self.budget.fault(stored, fault);
                    (self.rows_left, self.is_broken) = (0, true);
                    text.truncate(start);
                    break;
                }
            }
            self.rows_left = self.rows_left.saturating_sub(1);
            let is_null = text.get(start..) == Some(b"null");
            ends.push((u32::try_from(text.len()).unwrap_or(u32::MAX), is_null));
            let share = self.cursors.end().saturating_sub(stored) / TEXT_SHARE;
            if text.len() as u64 >= least.max(share) {
                break;
            }
        }
        self.row = self.row.saturating_add(ends.len() as u64);
        let stored_bytes = self.cursors.end().saturating_sub(stored);
        let end = self.unit.decoded.saturating_add(text.len() as u64);
        if stored_bytes > MAX_STORED_BYTES || end > self.slot_end {
            let why = "lists and structures that lie in more than 256 MiB of a row group";
            let why = format!("the column from byte {stored} on: {why}");
            self.reason = self.budget.fault(stored, why.into());
            ends.clear();
        }
        let part = JsonPart { rows: u32::try_from(ends.len()).unwrap_or(u32::MAX), starts };
        let unit = Unit {
            decoded_bytes: u32::try_from(text.len()).unwrap_or(u32::MAX),
            stored,
            stored_bytes: u32::try_from(stored_bytes).unwrap_or(u32::MAX),
            ..self.unit
        };
        let unit = (!ends.is_empty()).then_some((unit, part));
        self.block = Block { address: self.unit.decoded, ends, unit };
        self.unit.decoded = end;
        Ok(())
    }
}
