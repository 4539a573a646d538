//! The values of a chunk of a leaf, page by page: where each is, without what it is.
//!
//! Imports pages, values, units and the schema.

use super::super::Result;
use super::super::reader::Reader;
use super::footer::{Chunk, wrong_at};
use super::page::{Header, Kind as PageKind, MAX_HEADER_BYTES, Page};
use super::schema::{Leaf, Physical};
use super::units::{self, NO_DICTIONARY, Unit};
use super::values::{self, Values};
use super::{codecs, page};
use crate::format::ending;
use std::cell::{Cell as Shared, RefCell};

/// Read at once.
const WINDOW_BYTES: u64 = 1 << 20;
/// Read first, to find where a header ends.
const HEADER_BYTES: u64 = 64 << 10;

/// What a value is looked at for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing: it is a number.
    Number,
    /// It is the number of a label.
    Label,
    /// It is an element of an array: where it lies is all that counts, one behind the other.
    Element,
    /// What it is, by magic; text has its ending if nothing else does.
    Magic { is_text: bool },
    /// The ending of the file that it names.
    Path,
}

/// Where a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cell {
    pub(super) state: State,
    /// The code of its ending.
    pub(super) ending: u8,
    pub(super) length: u32,
    /// A place in the file, or behind it in what is decoded.
    pub(super) address: u64,
    /// As a label.
    pub(super) label: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    #[default]
    Null,
    There,
    /// It cannot be read.
    Damaged,
}

pub(super) const DAMAGED: Cell =
    Cell { state: State::Damaged, ending: 0, length: 1, address: 0, label: -1 };

/// What the scans of all columns share.
pub(super) struct Budget {
    /// Values that may still be looked at, nulls among them.
    pub(super) values: Shared<u64>,
    /// Bytes that may still be decoded.
    pub(super) bytes: Shared<u64>,
    pub(super) units: RefCell<Vec<Unit>>,
    pub(super) dictionaries: RefCell<Vec<Vec<u8>>>,
    /// What is said of pages that cannot be read.
    pub(super) notes: RefCell<Vec<String>>,
}

impl Budget {
    fn take(&self, header: &Header) -> std::result::Result<(), String> {
        let values = self.values.get().checked_sub(header.values.into());
        let bytes = self.bytes.get().checked_sub(header.stored.max(header.decoded).into());
        self.values.set(values.ok_or("there are too many values for the length of the file")?);
        self.bytes.set(bytes.ok_or("it would be more than a thousand times as long as the file")?);
        Ok(())
    }
}

/// Where a chunk is, and what it is of.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) leaf: &'a Leaf,
    pub(super) column: u32,
    pub(super) group: u32,
    pub(super) chunk: Chunk,
    /// The address of what is decoded first.
    pub(super) slot: u64,
}

/// The dictionary of a chunk: where each value is.
struct Dictionary {
    cells: Vec<Cell>,
    /// Its page, for units that need it.
    page: Vec<u8>,
    kept: Option<u32>,
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
    dictionary: Option<Dictionary>,
    /// The address of what is decoded next.
    address: u64,
    cells: Vec<Cell>,
    repetition: Vec<u32>,
    definition: Vec<u32>,
    next: usize,
    /// Where the page lies that was read last.
    page_at: u64,
    /// Values of a broken page are missing behind the last one.
    is_cut: bool,
}

/// A value with its levels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) cell: Cell,
    pub(super) repetition: u32,
    pub(super) definition: u32,
}

type Decoded<T> = std::result::Result<T, String>;

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
            cells: Vec::new(),
            repetition: Vec::new(),
            definition: Vec::new(),
            next: 0,
            page_at: place.chunk.at,
            is_cut: false,
        }
    }

    /// The next value, which stays the next one. `None`: there is none.
    ///
    /// # Errors
    /// The file cannot be read, or a page's header is wrong.
    pub(super) fn peek(&mut self) -> Result<Option<Entry>> {
        while self.next >= self.cells.len() {
            if !self.fill()? {
                return Ok(None);
            }
        }
        let level = |levels: &[u32]| levels.get(self.next).copied().unwrap_or(0);
        Ok(self.cells.get(self.next).map(|cell| Entry {
            cell: *cell,
            repetition: level(&self.repetition),
            definition: level(&self.definition),
        }))
    }

    /// The next value.
    ///
    /// # Errors
    /// As [`Column::peek`].
    pub(super) fn take(&mut self) -> Result<Option<Entry>> {
        let entry = self.peek()?;
        self.next = self.next.saturating_add(1);
        Ok(entry)
    }

    /// Where the page of the last value lies.
    pub(super) fn page_at(&self) -> u64 {
        self.page_at
    }

    /// Of a column at its end: whether values are missing there.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut || self.values_left > 0
    }

    fn end(&self) -> u64 {
        self.place.chunk.at.saturating_add(self.place.chunk.length)
    }

    /// Brings bytes of the chunk into the buffer: as many as were asked for, or as there are.
    fn bring(&mut self, at: u64, length: u64) -> Result<()> {
        let left = self.end().saturating_sub(at);
        let behind = at.wrapping_sub(self.buffer_at);
        let have = (self.buffer.len() as u64).saturating_sub(behind);
        if at >= self.buffer_at && have >= length.min(left) {
            return Ok(());
        }
        let length = length.max(WINDOW_BYTES).min(left);
        self.buffer.clear();
        // No more than the chunk has, which lies within the file.
        self.buffer.resize(usize::try_from(length).unwrap_or(0), 0);
        self.buffer_at = at;
        self.place.reader.read("a page", &mut self.buffer, at)
    }

    /// Where the bytes from `at` on are in the buffer; fewer, if there are no more.
    fn brought(&self, at: u64, length: u64) -> std::ops::Range<usize> {
        let all = self.buffer.len();
        let start = usize::try_from(at.wrapping_sub(self.buffer_at)).unwrap_or(all).min(all);
        let length = usize::try_from(length).unwrap_or(all);
        start..start.saturating_add(length).min(all)
    }

    /// Reads the next page of values. False: there is none.
    fn fill(&mut self) -> Result<bool> {
        self.cells.clear();
        self.next = 0;
        if self.values_left == 0 || self.at >= self.end() {
            return Ok(false);
        }
        let at = self.at;
        self.page_at = at;
        let (header, header_bytes) = self.header(at)?;
        let body_at = at.saturating_add(header_bytes);
        let all = header_bytes.saturating_add(header.stored.into());
        if body_at.saturating_add(header.stored.into()) > self.end() {
            let found = format!("{} bytes in a chunk that ends at {}", header.stored, self.end());
            return Err(self.place.reader.malformed(at, "a page within its chunk", found, ""));
        }
        self.bring(at, all)?;
        self.at = at.saturating_add(all);
        let is_data = matches!(header.kind, PageKind::Data | PageKind::DataV2 { .. });
        if is_data && u64::from(header.values) > self.values_left {
            let found = header.values.to_string();
            let expected = format!("{} values at most", self.values_left);
            return Err(self.place.reader.malformed(at, expected, found, ""));
        }
        let range = self.brought(at, all);
        let buffer = std::mem::take(&mut self.buffer);
        let stored = buffer.get(range).unwrap_or_default();
        let body = stored.get(usize::try_from(header_bytes).unwrap_or(0)..).unwrap_or_default();
        let done = match header.kind {
            PageKind::Other => self.budget.take(&header),
            PageKind::Dictionary => self.dictionary(header, stored, (body, at, body_at)),
            PageKind::Data | PageKind::DataV2 { .. } => {
                self.values_left = self.values_left.saturating_sub(header.values.into());
                self.data(header, (body, at, body_at))
            }
        };
        self.buffer = buffer;
        if let Err(why) = done {
            self.note(at, &why);
            self.cells.clear();
            // How many rows a page has is known if each value is one.
            let most = self.budget.values.get().max(1 << 16);
            if is_data && self.place.leaf.repetition == 0 && u64::from(header.values) <= most {
                self.cells.resize(header.values as usize, DAMAGED);
            } else if is_data {
                (self.values_left, self.is_cut) = (0, true);
            }
        }
        Ok(true)
    }

    fn note(&self, at: u64, why: &str) {
        self.budget.notes.borrow_mut().push(format!("the page at byte {at}: {why}"));
    }

    fn header(&mut self, at: u64) -> Result<(Header, u64)> {
        for length in [HEADER_BYTES, MAX_HEADER_BYTES] {
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

    fn dictionary(
        &mut self,
        header: Header,
        stored: &[u8],
        (body, at, body_at): (&[u8], u64, u64),
    ) -> Decoded<()> {
        self.budget.take(&header)?;
        let (leaf, codec) = (self.place.leaf, self.place.chunk.codec);
        let head = body_at.saturating_sub(at);
        let (mut cells, mut kept) = (Vec::new(), Vec::new());
        if header.codec(codec) == codecs::UNCOMPRESSED && header.decoded != header.stored {
            return Err(format!("{} stored bytes, not {}", header.stored, header.decoded));
        }
        if self.look == Look::Element {
            kept = stored.to_vec();
        } else {
            let page = Page::open(header, body, leaf, codec)?;
            let unit = self.unit(units::Kind::Raw, (at, &header, head), page.bytes.len())?;
            cells = match leaf.is_plain() {
                true => self.plain(&page, header.values as usize, (unit, body_at))?,
                false => {
                    let values =
                        values::decode(leaf, 0, &page.bytes, header.values as usize, None)?;
                    let kind = units::Kind::Dictionary;
                    let unit = Unit { kind, decoded_bytes: length_of(&values)?, ..unit };
                    self.add_unit(unit);
                    self.cells_of(&values, unit.decoded)
                }
            };
        }
        self.dictionary = Some(Dictionary { cells, page: kept, kept: None });
        Ok(())
    }

    /// Finds the values of a page.
    fn data(&mut self, header: Header, (body, at, body_at): (&[u8], u64, u64)) -> Decoded<()> {
        self.budget.take(&header)?;
        let (leaf, codec) = (self.place.leaf, self.place.chunk.codec);
        let head = body_at.saturating_sub(at);
        let page = Page::open(header, body, leaf, codec)?;
        let count = page.present(leaf);
        let is_dictionary = values::is_dictionary(header.encoding);
        let there = if count == 0 {
            // Only nulls: writers leave out the dictionary, and what stands before values.
            Vec::new()
        } else if self.look == Look::Element {
            self.elements(&page, count, (at, head))?
        } else if is_dictionary {
            let numbers = values::numbers(page.values(), count)?;
            let dictionary = self.dictionary.as_ref().ok_or("there is no dictionary")?;
            let cell = |number: &u32| dictionary.cells.get(*number as usize).copied();
            let cells = numbers.iter().map(cell).collect::<Option<Vec<_>>>();
            cells.ok_or("a number beyond its dictionary")?
        } else if values::is_plain(header.encoding) && leaf.is_plain() {
            let unit = self.unit(units::Kind::Raw, (at, &header, head), page.bytes.len())?;
            self.plain(&page, count, (unit, body_at))?
        } else {
            let values = values::decode(leaf, header.encoding, page.values(), count, None)?;
            let unit = self.unit(units::Kind::Values, (at, &header, head), values.bytes.len())?;
            self.add_unit(unit);
            self.cells_of(&values, unit.decoded)
        };
        if leaf.definition == 0 {
            self.cells = there;
        } else {
            let mut there = there.into_iter();
            let cells = page.definition.iter().map(|level| match *level == leaf.definition {
                true => there.next().unwrap_or(DAMAGED),
                false => Cell::default(),
            });
            self.cells = cells.collect();
        }
        (self.repetition, self.definition) = (page.repetition, page.definition);
        Ok(())
    }

    /// Elements of arrays: one behind the other in all that the chunk decodes to.
    fn elements(
        &mut self,
        page: &Page,
        count: usize,
        (at, head): (u64, u64),
    ) -> Decoded<Vec<Cell>> {
        let width = self.place.leaf.width().ok_or("elements of different lengths")?;
        let all = count.saturating_mul(width as usize);
        let mut unit = self.unit(units::Kind::Values, (at, &page.header, head), all)?;
        if values::is_dictionary(page.header.encoding) {
            let dictionary = self.dictionary.as_mut().ok_or("there is no dictionary")?;
            let mut kept = self.budget.dictionaries.borrow_mut();
            unit.dictionary = *dictionary.kept.get_or_insert_with(|| {
                kept.push(std::mem::take(&mut dictionary.page));
                u32::try_from(kept.len().saturating_sub(1)).unwrap_or(NO_DICTIONARY)
            });
        }
        self.add_unit(unit);
        let cell = |number: usize| Cell {
            state: State::There,
            length: width,
            address: unit.decoded.saturating_add((number as u64).saturating_mul(width.into())),
            ..Cell::default()
        };
        Ok((0..count).map(cell).collect())
    }

    /// A unit of a page that decodes to so many bytes.
    fn unit(
        &self,
        kind: units::Kind,
        (at, header, head): (u64, &Header, u64),
        decoded: usize,
    ) -> Decoded<Unit> {
        let decoded_bytes = u32::try_from(decoded).ok().filter(|b| *b <= page::MAX_PAGE_BYTES);
        let stored_bytes = head.saturating_add(header.stored.into());
        Ok(Unit {
            decoded: self.address,
            decoded_bytes: decoded_bytes.ok_or("values of more than 256 MiB")?,
            stored: at,
            stored_bytes: u32::try_from(stored_bytes).unwrap_or(u32::MAX),
            kind,
            has_checksum: header.crc32.is_some(),
            column: self.place.column,
            group: self.place.group,
            dictionary: NO_DICTIONARY,
        })
    }

    fn add_unit(&mut self, unit: Unit) {
        if unit.decoded_bytes == 0 || self.look == Look::Path {
            return;
        }
        let end = unit.decoded.saturating_add(unit.decoded_bytes.into());
        if end.saturating_sub(self.place.slot) <= units::SLOT_BYTES {
            self.address = end;
            self.budget.units.borrow_mut().push(unit);
        }
    }

    /// Values that are shown as they are stored: in place, if nothing is to be decompressed or compared.
    fn plain(
        &mut self,
        page: &Page,
        count: usize,
        (unit, body_at): (Unit, u64),
    ) -> Decoded<Vec<Cell>> {
        let header = &page.header;
        let codec = header.codec(self.place.chunk.codec);
        let is_in_place = codec == codecs::UNCOMPRESSED && header.crc32.is_none();
        let base = match is_in_place {
            true => body_at.saturating_add(header.levels().into()),
            false => unit.decoded,
        };
        let base = base.saturating_add(page.values_at as u64);
        if !is_in_place {
            self.add_unit(unit);
        }
        let values = page.values();
        let places = match self.place.leaf.physical {
            Physical::Bytes => values::plain_places(values, count)?,
            Physical::Boolean | Physical::Fixed(_) => {
                let width = self.place.leaf.width().unwrap_or(1);
                if count.saturating_mul(width as usize) > values.len() {
                    return Err("its values end early".to_owned());
                }
                let at = |number| u32::try_from(number).unwrap_or(u32::MAX).saturating_mul(width);
                (0..count).map(|number| (at(number), width)).collect()
            }
        };
        let cell = |(start, length): (u32, u32)| {
            let value = values.get(start as usize..).and_then(|rest| rest.get(..length as usize));
            self.cell(base.saturating_add(start.into()), value.unwrap_or_default())
        };
        Ok(places.into_iter().map(cell).collect())
    }

    fn cells_of(&self, values: &Values, address: u64) -> Vec<Cell> {
        let cell = |number| {
            let (start, _) = values.place(number).unwrap_or_default();
            self.cell(address.saturating_add(start.into()), values.get(number).unwrap_or_default())
        };
        (0..values.len()).map(cell).collect()
    }

    fn cell(&self, address: u64, value: &[u8]) -> Cell {
        let mut cell = Cell {
            state: State::There,
            length: u32::try_from(value.len()).unwrap_or(u32::MAX),
            address,
            ..Cell::default()
        };
        match self.look {
            Look::Number | Look::Element => (),
            Look::Label => {
                let mut number = [0; 8];
                number.iter_mut().zip(value).for_each(|(to, from)| *to = *from);
                cell.label = i64::from_le_bytes(number);
            }
            Look::Magic { is_text } => {
                let code = ending::code_of(value);
                let is_none = is_text && code == ending::code(".bin");
                cell.ending = if is_none { ending::code(".txt") } else { code };
            }
            Look::Path => cell.ending = ending::code_of_path(value),
        }
        cell
    }
}

fn length_of(values: &Values) -> Decoded<u32> {
    u32::try_from(values.bytes.len()).map_err(|_| "values of more than 256 MiB".to_owned())
}
