//! The values of a chunk of a leaf, page by page: the place of each, without the value itself.
//!
//! Imports cells, the budget, pages, values, units and the schema; the windows of scans of this room.

mod page_cells;

use super::super::Result;
use super::super::reader::Reader;
use super::budget::{Budget, Held};
use super::cells::{Cell, Cells, Look, damaged};
use super::codecs;
use super::dictionaries::NO_DICTIONARY;
use super::footer::{Chunk, wrong_at};
use super::page::{Header, Kind as PageKind, MAX_HEADER_BYTES, MAX_PAGES_BEHIND};
use super::page_index::{self, PageIndex};
use super::schema::Leaf;
use super::units::{self, Unit};
use crate::format::scanned::keep_behind;
use crate::format::{Fault, counted};

/// Bytes that are read first, to find the end of a header.
const HEADER_BYTES: u64 = 64 << 10;

/// A chunk, with its leaf and its place in the file.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) leaf: &'a Leaf,
    pub(super) column: u32,
    pub(super) group: u32,
    pub(super) chunk: Chunk,
    /// The address of the first decoded byte.
    pub(super) slot: u64,
    /// Bytes that are read at once.
    pub(super) window: u64,
}

/// The dictionary of a chunk.
struct Dictionary<'a> {
    /// The places of the values, and their number.
    cells: Cells,
    count: usize,
    _held: Held<'a>,
    /// The stored page of the dictionary, for units that need it.
    page: Vec<u8>,
    kept: Option<u32>,
}

/// The values of a page.
struct Loaded<'a> {
    /// The number of values, nulls included.
    count: usize,
    cells: Cells,
    /// The definition level of values that are not null.
    most: u32,
    repetition: Vec<u8>,
    definition: Vec<u8>,
    _held: Option<Held<'a>>,
}

/// The values of a chunk.
pub(super) struct Column<'a> {
    place: Place<'a>,
    budget: &'a Budget,
    look: Look,
    at: u64,
    values_left: u64,
    buffer: Vec<u8>,
    buffer_at: u64,
    dictionary: Option<Dictionary<'a>>,
    /// The pages of the page index, if it can be used, and the number of their dictionary.
    index: Option<(PageIndex, u32)>,
    is_begun: bool,
    /// The address of the next decoded byte.
    address: u64,
    page: Loaded<'a>,
    /// The number of the next value of the page, and of the values before it that are not null.
    next: usize,
    passed: usize,
    /// The offset of the page that was read last.
    page_at: u64,
    /// Whether values of a broken page are missing behind the last value.
    is_cut: bool,
    /// The number of the reason why these values are missing.
    reason: u32,
    /// The fault of the dictionary, if it cannot be read.
    lost: Option<Fault>,
}

/// A value with its levels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) cell: Cell,
    pub(super) repetition: u32,
    pub(super) definition: u32,
}

type Decoded<T> = std::result::Result<T, Fault>;

impl<'a> Column<'a> {
    pub(super) fn new(place: Place<'a>, budget: &'a Budget, look: Look) -> Self {
        Self {
            at: place.chunk.at,
            values_left: place.chunk.values,
            address: place.slot,
            place,
            budget,
            look,
            buffer: Vec::new(),
            buffer_at: 0,
            dictionary: None,
            index: None,
            is_begun: false,
            page: Loaded::damaged(0, 0),
            next: 0,
            passed: 0,
            page_at: place.chunk.at,
            is_cut: false,
            reason: 0,
            lost: None,
        }
    }

    /// Returns the next value without taking it; `None` at the end.
    ///
    /// # Errors
    /// The file cannot be read, or a page's header is wrong.
    pub(super) fn peek(&mut self) -> Result<Option<Entry>> {
        while self.next >= self.page.count {
            if !self.fill()? {
                return Ok(None);
            }
        }
        let level = |levels: &[u8]| levels.get(self.next).copied().unwrap_or(0).into();
        let (repetition, definition) = (level(&self.page.repetition), level(&self.page.definition));
        let cell = match self.page.is_there(self.next) {
            true => {
                let dictionary = self.dictionary.as_ref().map(|dictionary| &dictionary.cells);
                self.page.cells.get(self.passed, dictionary.unwrap_or(&Cells::Damaged(0)))
            }
            false => Cell::default(),
        };
        Ok(Some(Entry { cell, repetition, definition }))
    }

    /// Takes the next value; `None` at the end.
    ///
    /// # Errors
    /// As [`Column::peek`].
    pub(super) fn take(&mut self) -> Result<Option<Entry>> {
        let entry = self.peek()?;
        self.passed = self.passed.saturating_add(usize::from(self.page.is_there(self.next)));
        self.next = self.next.saturating_add(1);
        Ok(entry)
    }

    /// Whether there are more values, also in pages that the footer does not count.
    ///
    /// # Errors
    /// As [`Column::peek`].
    pub(super) fn has_more(&mut self) -> Result<bool> {
        // The place of a chunk without values is not checked.
        if self.is_cut || self.place.chunk.values == 0 {
            return Ok(false);
        }
        if self.peek()?.is_some() {
            return Ok(true);
        }
        if self.is_cut() || self.index.is_some() {
            return Ok(false);
        }
        let (mut at, end) = (self.at, self.end());
        for _ in 0..MAX_PAGES_BEHIND {
            // Bytes that are not a page are padding.
            let Some((header, header_bytes)) = (at < end).then(|| self.header(at).ok()).flatten()
            else {
                return Ok(false);
            };
            if header.is_data() && header.values > 0 {
                break;
            }
            at = at.saturating_add(header_bytes).saturating_add(header.stored.into());
        }
        Ok(true)
    }

    /// The offset of the page of the last value.
    pub(super) fn page_at(&self) -> u64 {
        self.page_at
    }

    /// The cell in place of a value that is missing at the end of the column.
    pub(super) fn missing(&self) -> Cell {
        damaged(self.reason)
    }

    /// Whether values are missing at the end of the column, once it is reached.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut || self.values_left > 0
    }

    fn end(&self) -> u64 {
        self.place.chunk.at.saturating_add(self.place.chunk.length)
    }

    /// Brings bytes of the chunk into the buffer: `length` or more, or all that follow `at` in the chunk.
    fn bring(&mut self, at: u64, length: u64) -> Result<()> {
        let left = self.end().saturating_sub(at);
        let behind = at.wrapping_sub(self.buffer_at);
        let have = (self.buffer.len() as u64).saturating_sub(behind);
        if at >= self.buffer_at && have >= length.min(left) {
            return Ok(());
        }
        let kept = keep_behind(&mut self.buffer, self.buffer_at, at);
        let length = length.max(self.place.window.saturating_add(kept as u64)).min(left);
        // The length is at most that of the chunk, which lies within the file.
        self.buffer.resize(usize::try_from(length).unwrap_or(0), 0);
        self.buffer_at = at;
        let rest = self.buffer.get_mut(kept..).unwrap_or_default();
        let read = self.place.reader.read("a page", rest, at.saturating_add(kept as u64));
        if read.is_err() {
            self.buffer.clear();
        }
        read
    }

    /// The range of the `length` bytes from `at` on in the buffer; a shorter range if it has fewer bytes.
    fn brought(&self, at: u64, length: u64) -> std::ops::Range<usize> {
        let all = self.buffer.len();
        let start = usize::try_from(at.wrapping_sub(self.buffer_at)).unwrap_or(all).min(all);
        let length = usize::try_from(length).unwrap_or(all);
        start..start.saturating_add(length).min(all)
    }

    /// Reads the next page; false if no page follows.
    fn fill(&mut self) -> Result<bool> {
        (self.next, self.passed) = (0, 0);
        self.page = Loaded::damaged(0, 0);
        if self.values_left == 0 || self.at >= self.end() {
            return Ok(false);
        }
        if !std::mem::replace(&mut self.is_begun, true) {
            self.find_index()?;
        }
        if self.index.is_some() {
            return Ok(self.pass_indexed());
        }
        let at = self.at;
        self.page_at = at;
        let (header, header_bytes) = self.header(at)?;
        let body_at = at.saturating_add(header_bytes);
        let all = header_bytes.saturating_add(header.stored.into());
        if body_at.saturating_add(header.stored.into()) > self.end() {
            let found = format!(
                "{} in a chunk that ends at {}",
                counted(header.stored, "byte"),
                self.end()
            );
            return Err(self.place.reader.malformed(at, "a page within its chunk", found, ""));
        }
        let too_long = header.too_long();
        // A page that is too long to be decoded is passed over.
        if too_long.is_none() {
            self.bring(at, all)?;
        }
        self.at = at.saturating_add(all);
        let is_data = header.is_data();
        if is_data && u64::from(header.values) > self.values_left {
            let found = header.values.to_string();
            let expected = format!("{} at most", counted(self.values_left, "value"));
            return Err(self.place.reader.malformed(at, expected, found, ""));
        }
        if is_data {
            self.values_left = self.values_left.saturating_sub(header.values.into());
        }
        let range = self.brought(at, all);
        let buffer = std::mem::take(&mut self.buffer);
        let stored = buffer.get(range).unwrap_or_default();
        let body = stored.get(usize::try_from(header_bytes).unwrap_or(0)..).unwrap_or_default();
        let done = match (too_long, header.kind) {
            (Some(why), _) => Err(why.into()),
            (None, PageKind::Other) => self.budget.take(&header).map_err(Fault::from),
            (None, PageKind::Dictionary) => self.dictionary(header, stored, (body, at, body_at)),
            (None, PageKind::Data | PageKind::DataV2 { .. }) => {
                self.data(header, (body, at, body_at))
            }
        };
        self.buffer = buffer;
        if let Err(fault) = done {
            if header.kind == PageKind::Dictionary {
                self.lost = Some(fault.clone().within(&format!("its dictionary at byte {at}")));
            }
            let reason = self.budget.fault(at, fault.within(&format!("the page at byte {at}")));
            // The number of rows of a page is known if each value is a row.
            let most = self.budget.values.get().max(1 << 16);
            if is_data && self.place.leaf.repetition == 0 && u64::from(header.values) <= most {
                self.page = Loaded::damaged(header.values as usize, reason);
            } else if is_data {
                (self.values_left, self.is_cut, self.reason) = (0, true, reason);
            }
        }
        Ok(true)
    }

    /// Looks for a page index, with which pages of numbers without nulls need not be read. Only compressed numbers have a use
    /// for it: others are served in place.
    fn find_index(&mut self) -> Result<()> {
        let Place { reader, leaf, chunk, .. } = self.place;
        let is_number = self.look == Look::Number && leaf.repetition == 0;
        if !is_number || chunk.codec == codecs::UNCOMPRESSED || chunk.offset_index.1 == 0 {
            return Ok(());
        }
        let indexes = u64::from(chunk.offset_index.1).saturating_add(chunk.column_index.1.into());
        if !self.budget.take_index(indexes) {
            return Ok(());
        }
        let Some(mut index) = page_index::read(reader, &chunk, leaf)? else { return Ok(()) };
        let number = match index.dictionary.take() {
            None => Some(NO_DICTIONARY),
            Some(page) => self.budget.keep_for_good(page),
        };
        // If the dictionary is not kept, the pages are read.
        self.index = number.map(|number| (index, number));
        Ok(())
    }

    /// Passes to the next page of the index; false if it has no further page.
    fn pass_indexed(&mut self) -> bool {
        let Some((index, dictionary)) = &mut self.index else { return false };
        let Some(page) = index.pages.next() else { return false };
        let width = self.place.leaf.width().unwrap_or(0);
        let unit = Unit {
            decoded: self.address,
            decoded_bytes: page.rows.saturating_mul(width),
            stored: page.at,
            stored_bytes: page.length,
            kind: units::Kind::Values,
            has_checksum: index.has_checksum,
            is_indexed: true,
            column: self.place.column,
            group: self.place.group,
            dictionary: *dictionary,
        };
        self.page_at = page.at;
        self.at = page.at.saturating_add(page.length.into());
        self.values_left = self.values_left.saturating_sub(page.rows.into());
        self.add_unit(unit);
        let cells = Cells::Rows { address: unit.decoded, width };
        self.page = Loaded { cells, ..Loaded::damaged(page.rows as usize, 0) };
        true
    }

    fn header(&mut self, at: u64) -> Result<(Header, u64)> {
        for length in [HEADER_BYTES.min(self.place.window), MAX_HEADER_BYTES] {
            self.bring(at, length)?;
            let range = self.brought(at, length);
            match Header::read(self.buffer.get(range).unwrap_or_default()) {
                Ok((header, length)) => return Ok((header, length as u64)),
                Err(_) if length < MAX_HEADER_BYTES && self.end().saturating_sub(at) > length => (),
                Err(wrong) => return Err(wrong_at(self.place.reader, at, &wrong)),
            }
        }
        Err(self.place.reader.malformed(at, "the header of a page", "a longer one", ""))
    }
}

impl Loaded<'_> {
    /// Makes a page of `count` values that cannot be read, with the number of the reason.
    fn damaged(count: usize, reason: u32) -> Self {
        let (repetition, definition) = (Vec::new(), Vec::new());
        Self { count, cells: Cells::Damaged(reason), most: 0, repetition, definition, _held: None }
    }

    /// Whether a value is not null.
    fn is_there(&self, number: usize) -> bool {
        let level = self.definition.get(number).copied().unwrap_or(0);
        u32::from(level) == self.most
    }
}
