//! Fractal heaps, which hold the links of large groups.
//!
//! ```text
//! "FRHP" | u8 0 | u16 bytes of an ID | u16 bytes of filters | u8 flags | u32 largest object | …
//!         u16 width | first block | largest direct block | u16 bits of an offset | u16 | root | u16 rows | stored as?
//!         filters? | u32 lookup3
//! "FHDB" | u8 0 | heap | offset | u32 lookup3? | objects
//! "FHIB" | u8 0 | heap | offset | of each block: address | stored as? | u32 lookup3
//! ID      u8 kind | offset | length; or the object itself; or (of a huge one) its place, or its key in a B-tree of places
//! place   address | length | if it is filtered: u32 filters that were left out | length without filters
//! ```
//! Blocks lie in rows of `width`: those of rows 0 and 1 have the first size, those of each further row twice as much. Direct
//! blocks of a heap with filters are stored as: length | u32 filters that were left out.
//!
//! Imports the input, filters and B-trees.

use super::super::Result;
use super::filter::{self, Filter};
use super::input::{Block, Fields, Input, bytes_for, lookup3, number};
use super::tree2;
use crate::format::counted;
use std::borrow::Cow;
use std::collections::HashMap;

const DIRECT_HAS_CHECKSUM: u8 = 0x02;
/// The deepest nesting of a heap: each level has blocks of at least twice the size.
const MAX_NESTING: u32 = 64;
/// The types of records of huge objects, and of filtered ones: a place, and a key.
const HUGE: [u8; 2] = [1, 2];
/// The most bytes of a block or a filtered object: the library's own blocks of links have 64 KiB.
const MAX_OBJECT_BYTES: u64 = 16 << 20;
/// The most bytes of a heap's blocks that are held in memory, which suffice for tens of millions of links. Without a
/// bound, holes of a sparse file could take all memory.
const MAX_HELD_BYTES: u64 = 1 << 30;

/// A heap whose head was read.
pub(super) struct Heap<'a> {
    input: &'a Input<'a>,
    at: u64,
    flags: u8,
    width: u64,
    first_bytes: u64,
    largest_bytes: u64,
    offset_bits: u16,
    /// Bytes of an object's offset and of its length, in an ID.
    id_bytes: (usize, usize),
    root: Option<u64>,
    rows: u16,
    filtered: Option<Filtered>,
    blocks: HashMap<u64, Block>,
    /// Bytes of the blocks that are held.
    held_bytes: u64,
    huge: Huge,
}

/// A filtered block or object: its stored length, and the filters that were left out.
#[derive(Clone, Copy)]
struct Stored {
    bytes: u64,
    mask: u32,
}

impl Stored {
    fn read(fields: &mut Fields<'_>) -> Result<Self> {
        Ok(Self { bytes: fields.length()?, mask: fields.u32()? })
    }
}

/// The filters of blocks and huge objects.
struct Filtered {
    /// How the root is stored, if it is a direct block.
    root: Stored,
    filters: Vec<Filter>,
}

impl Filtered {
    fn read(fields: &mut Fields<'_>) -> Result<Self> {
        let root = Stored::read(fields)?;
        let before = fields.clone();
        let filters = Filter::read_all(fields)?;
        match filters.iter().find_map(Filter::missing) {
            Some(missing) => Err(before.wrong("links whose filters are known", missing)),
            None => Ok(Self { root, filters }),
        }
    }
}

/// The address and the length of a huge object.
#[derive(Clone, Copy)]
struct Place {
    address: u64,
    bytes: u64,
    stored: Option<Stored>,
}

/// Objects that are too long for blocks: each lies by itself.
struct Huge {
    /// Whether an ID holds the object's place, as it has room for that.
    is_direct: bool,
    /// Bytes of a key in an ID.
    key_bytes: usize,
    tree: Option<u64>,
    /// The places by their keys, once the tree was read.
    places: Option<HashMap<u64, Place>>,
}

impl<'a> Heap<'a> {
    pub(super) fn open(input: &'a Input<'a>, address: u64) -> Result<Self> {
        let (a, l) = (input.address_bytes as u64, input.length_bytes as u64);
        let head = head(input, address)?;
        let mut fields = input.fields(&head);
        fields.mark(b"FRHP", 0)?;
        let behind_kind = usize::from(fields.u16()?).saturating_sub(1);
        let is_filtered = fields.u16()? > 0;
        let flags = fields.u8()?;
        let largest_object = u64::from(fields.u32()?);
        fields.length()?;
        let place_bytes = match is_filtered {
            true => a.saturating_add(l.saturating_mul(2)).saturating_add(4),
            false => a.saturating_add(l),
        };
        let huge = Huge {
            is_direct: place_bytes <= behind_kind as u64,
            key_bytes: behind_kind.min(8),
            tree: fields.address()?,
            places: None,
        };
        // The fields of free space and statistics.
        let skip = l.saturating_mul(9).saturating_add(a);
        fields.take(usize::try_from(skip).unwrap_or(usize::MAX))?;
        let before = fields.clone();
        let (width, first_bytes) = (u64::from(fields.u16()?), fields.length()?);
        let (largest_bytes, offset_bits) = (fields.length()?, fields.u16()?);
        fields.take(2)?;
        let (root, rows) = (fields.address()?, fields.u16()?);
        let is_right = width.is_power_of_two()
            && first_bytes.is_power_of_two()
            && largest_bytes.is_power_of_two()
            && first_bytes <= largest_bytes
            && largest_bytes <= u64::from(u32::MAX)
            && (1..=64).contains(&offset_bits);
        if !is_right {
            let found = format!(
                "{} of {first_bytes} to {}",
                counted(width, "block"),
                counted(largest_bytes, "byte")
            );
            return Err(before.wrong("rows of blocks whose sizes are powers of 2", found));
        }
        let filtered = is_filtered.then(|| Filtered::read(&mut fields)).transpose()?;
        let length_bytes = bytes_for(largest_bytes).min(bytes_for(largest_object));
        let id_bytes = (usize::from(offset_bits).div_ceil(8), length_bytes);
        let blocks = HashMap::new();
        let at = head.at;
        Ok(Self {
            input,
            at,
            flags,
            width,
            first_bytes,
            largest_bytes,
            offset_bits,
            id_bytes,
            root,
            rows,
            filtered,
            blocks,
            held_bytes: 0,
            huge,
        })
    }

    /// The object with an ID, and the object's offset in the file.
    pub(super) fn object(&mut self, id: &[u8], id_at: u64) -> Result<(Vec<u8>, u64)> {
        let mut fields = self.input.fields_at(id, id_at);
        let before = fields.clone();
        let head = fields.u8()?;
        match head >> 4 & 3 {
            0 => {
                let offset = fields.number(self.id_bytes.0)?;
                let length = fields.number(self.id_bytes.1)?;
                self.managed(offset, length)
            }
            1 => self.huge(&mut fields),
            2 => {
                let length = usize::from(head & 15).saturating_add(1);
                Ok((fields.take(length)?.to_vec(), id_at.saturating_add(1)))
            }
            kind => Err(before.wrong("an object of kind 0, 1 or 2", format!("kind {kind}"))),
        }
    }

    fn huge(&mut self, id: &mut Fields<'_>) -> Result<(Vec<u8>, u64)> {
        let before = id.clone();
        let place = match self.huge.is_direct {
            true => place(id, self.filtered.is_some())?,
            false => {
                let key = id.number(self.huge.key_bytes)?;
                self.huge_places()?.get(&key).copied()
            }
        };
        let Some(Place { address, bytes, stored }) = place else {
            return Err(before.wrong("a huge object that its heap has", "none".to_owned()));
        };
        let block = self.unfiltered("a huge object of a heap", (address, bytes), stored)?;
        Ok((block.bytes, block.at))
    }

    fn huge_places(&mut self) -> Result<&HashMap<u64, Place>> {
        if self.huge.places.is_none() {
            let (mut places, is_filtered) = (HashMap::new(), self.filtered.is_some());
            if let Some(tree) = self.huge.tree {
                tree2::walk(self.input, tree, &HUGE, &mut |record, _| {
                    let place = place(record, is_filtered)?;
                    let key = record.length()?;
                    places.extend(place.map(|place| (key, place)));
                    Ok(())
                })?;
            }
            self.huge.places = Some(places);
        }
        Ok(self.huge.places.get_or_insert_default())
    }

    /// Reads the block at an address, of `bytes` bytes once its filters are undone.
    fn unfiltered(
        &self,
        what: &'static str,
        (address, bytes): (u64, u64),
        stored: Option<Stored>,
    ) -> Result<Block> {
        let (Some(Stored { bytes: length, mask }), Some(filtered)) = (stored, &self.filtered)
        else {
            return self.input.block(what, address, bytes);
        };
        let mut block = self.input.block(what, address, length)?;
        self.check_length(what, block.at, bytes)?;
        self.input.charge(block.at, bytes)?;
        let size = usize::try_from(bytes).unwrap_or(0);
        let made = filter::decode(&filtered.filters, mask, &block.bytes, size).map(Cow::into_owned);
        block.bytes = made.map_err(|fault| self.input.reader.faulty(block.at, what, fault))?;
        Ok(block)
    }

    fn check_length(&self, what: &'static str, at: u64, bytes: u64) -> Result<()> {
        if bytes <= MAX_OBJECT_BYTES {
            return Ok(());
        }
        let expected = format!("{what} of {MAX_OBJECT_BYTES} bytes at most");
        Err(self.input.reader.malformed(at, expected, counted(bytes, "byte"), ""))
    }

    /// Holds a block for the objects that follow.
    fn hold(&mut self, address: u64, block: Block) -> Result<()> {
        self.held_bytes = self.held_bytes.saturating_add(block.bytes.len() as u64);
        if self.held_bytes > MAX_HELD_BYTES {
            let expected = format!("a heap with blocks of {MAX_HELD_BYTES} bytes at most");
            return Err(self.input.reader.malformed(block.at, expected, "more", ""));
        }
        self.blocks.insert(address, block);
        Ok(())
    }

    fn managed(&mut self, offset: u64, length: u64) -> Result<(Vec<u8>, u64)> {
        let (address, size, start, stored) = self.find(offset)?;
        let has_checksum = self.flags & DIRECT_HAS_CHECKSUM != 0;
        let head = self.head_bytes().saturating_add(if has_checksum { 4 } else { 0 });
        let first = offset.saturating_sub(start);
        let end = first.saturating_add(length);
        let is_new = !self.blocks.contains_key(&address);
        if is_new {
            self.check_length("a block of a heap", self.at, size)?;
            let mut block = self.unfiltered("a block of a heap", (address, size), stored)?;
            self.input.fields(&block).mark(b"FHDB", 0)?;
            if has_checksum {
                check_direct(self.input, &mut block, self.head_bytes())?;
            }
            self.hold(address, block)?;
        }
        let wrong = |at| {
            let expected = "an object within a block of its heap";
            let found = format!("{} at byte {first} of {size}", counted(length, "byte"));
            self.input.reader.malformed(at, expected, found, "")
        };
        let Some(block) = self.blocks.get(&address) else { return Err(wrong(self.at)) };
        let range = usize::try_from(first).ok().zip(usize::try_from(end).ok());
        let bytes = range.and_then(|(first, end)| block.bytes.get(first..end));
        let bytes = bytes.filter(|_| first >= head).ok_or_else(|| wrong(block.at))?;
        let at = block.at.saturating_add(first);
        // Many links may refer to one object.
        self.input.charge(at, length)?;
        Ok((bytes.to_vec(), at))
    }

    /// Bytes of the head of a block: mark, version, address of the heap, offset.
    fn head_bytes(&self) -> u64 {
        5_u64.saturating_add(self.input.address_bytes as u64).saturating_add(self.id_bytes.0 as u64)
    }

    /// The direct block that an offset lies in: its address, its size, the offset of its first byte, and how it is stored.
    fn find(&mut self, offset: u64) -> Result<(u64, u64, u64, Option<Stored>)> {
        let root = self.root.ok_or_else(|| self.no_block(offset))?;
        if self.rows == 0 {
            return match offset < self.first_bytes {
                true => Ok((root, self.first_bytes, 0, self.filtered.as_ref().map(|one| one.root))),
                false => Err(self.no_block(offset)),
            };
        }
        let (mut address, mut rows, mut start) = (root, u64::from(self.rows), 0_u64);
        for _ in 0..MAX_NESTING {
            let within = offset.saturating_sub(start);
            let unit = self.width.saturating_mul(self.first_bytes);
            let row = match within.checked_div(unit).unwrap_or(0) {
                0 => 0,
                units => u64::from(units.ilog2()).saturating_add(1),
            };
            let doublings = u32::try_from(row.saturating_sub(1)).unwrap_or(u32::MAX);
            let size = self.first_bytes.checked_shl(doublings).filter(|size| *size > 0);
            let Some(size) = size.filter(|_| row < rows) else { return Err(self.no_block(offset)) };
            let row_start = match row {
                0 => 0,
                _ => self.width.saturating_mul(size),
            };
            let column = within.saturating_sub(row_start).checked_div(size).unwrap_or(0);
            let number = row.saturating_mul(self.width).saturating_add(column);
            let (child, stored) = self.child(address, rows, number)?;
            start = start.saturating_add(row_start).saturating_add(column.saturating_mul(size));
            if size <= self.largest_bytes {
                return Ok((child, size, start, stored));
            }
            let units = size.checked_div(unit).unwrap_or(0);
            (address, rows) = (child, u64::from(units.max(1).ilog2()).saturating_add(1));
        }
        Err(self.no_block(offset))
    }

    /// The address of child `number` of an indirect block with `rows` rows, and how the child is stored.
    fn child(&mut self, address: u64, rows: u64, number: u64) -> Result<(u64, Option<Stored>)> {
        let (a, l) = (self.input.address_bytes as u64, self.input.length_bytes as u64);
        let entries = rows.saturating_mul(self.width);
        // Direct blocks come first: two rows of the first size, and one row of each doubled size.
        let sizes = self.largest_bytes.checked_div(self.first_bytes).unwrap_or(1).max(1);
        let direct = u64::from(sizes.ilog2()).saturating_add(2).saturating_mul(self.width);
        let stored_bytes = if self.filtered.is_some() { l.saturating_add(4) } else { 0 };
        let before = |entries: u64| {
            let stored = entries.min(direct).saturating_mul(stored_bytes);
            self.head_bytes().saturating_add(entries.saturating_mul(a)).saturating_add(stored)
        };
        let (skip, length) = (before(number), before(entries).saturating_add(4));
        if !self.blocks.contains_key(&address) {
            let block = self.input.block("a block of a heap", address, length)?;
            self.input.fields(&block).mark(b"FHIB", 0)?;
            self.input.check("a block of a heap", &block)?;
            self.hold(address, block)?;
        }
        let Some(block) = self.blocks.get(&address) else { return Err(self.no_block(number)) };
        let mut fields = self.input.fields(block);
        fields.take(usize::try_from(skip).unwrap_or(usize::MAX))?;
        let before: Fields<'_> = fields.clone();
        let child = fields.address()?;
        let is_stored = stored_bytes > 0 && number < direct;
        let stored = is_stored.then(|| Stored::read(&mut fields)).transpose()?;
        let child = child.ok_or_else(|| before.wrong("the address of a block", "none".to_owned()));
        Ok((child?, stored))
    }

    fn no_block(&self, offset: u64) -> super::super::Error {
        let expected = format!(
            "a heap with a block for offset {offset} of {}",
            counted(self.offset_bits, "bit")
        );
        self.input.reader.malformed(self.at, expected, "none", "")
    }
}

/// Reads the head of a heap, which is longer if the heap has filters.
fn head(input: &Input<'_>, address: u64) -> Result<Block> {
    const WHAT: &str = "the head of a heap";
    let (a, l) = (input.address_bytes as u64, input.length_bytes as u64);
    let length = l.saturating_mul(12).saturating_add(a.saturating_mul(3)).saturating_add(26);
    let mut head = input.block(WHAT, address, length)?;
    let filter_bytes = {
        let mut fields = input.fields(&head);
        fields.mark(b"FRHP", 0)?;
        fields.u16()?;
        u64::from(fields.u16()?)
    };
    if filter_bytes > 0 {
        let more = l.saturating_add(filter_bytes).saturating_add(4);
        head = input.block(WHAT, address, length.saturating_add(more))?;
    }
    input.check(WHAT, &head)?;
    Ok(head)
}

/// Reads the place of a huge object; `None` if its address is undefined.
fn place(fields: &mut Fields<'_>, is_filtered: bool) -> Result<Option<Place>> {
    let (address, bytes) = (fields.address()?, fields.length()?);
    let (bytes, stored) = match is_filtered {
        true => {
            let mask = fields.u32()?;
            (fields.length()?, Some(Stored { bytes, mask }))
        }
        false => (bytes, None),
    };
    Ok(address.map(|address| Place { address, bytes, stored }))
}

/// Compares the checksum of a direct block, which is computed with zeros in the checksum's own place.
fn check_direct(input: &Input<'_>, block: &mut Block, at: u64) -> Result<()> {
    let start = usize::try_from(at).unwrap_or(usize::MAX);
    let end = start.saturating_add(4);
    let Some(place) = block.bytes.get_mut(start..end) else { return Ok(()) };
    let stored = number(place) as u32;
    place.fill(0);
    let found = lookup3(&block.bytes);
    if found == stored {
        return Ok(());
    }
    let expected = format!("a block of a heap with checksum {stored:#010x}");
    Err(input.reader.malformed(block.at, expected, format!("{found:#010x}"), ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{MemorySource, Source};

    /// A heap of one direct block of so many bytes, which has no checksum, and the length of its head.
    fn heap(bytes: u64) -> (Vec<u8>, u64) {
        let start = [&b"FRHP\0\x09\0\0\0\0\0\x10\0\0"[..], &[0; 8], &[0xff; 8], &[0; 80]].concat();
        let sizes =
            [&[4, 0][..], &bytes.to_le_bytes(), &bytes.to_le_bytes(), &[32, 0, 1, 0]].concat();
        let head_bytes = (start.len() + sizes.len() + 14) as u64;
        let head = [&start[..], &sizes, &head_bytes.to_le_bytes(), &[0, 0]].concat();
        let sum = lookup3(&head).to_le_bytes();
        let mut file = [&head[..], &sum, b"FHDB\0"].concat();
        file.resize((head_bytes + bytes) as usize, 7);
        (file, head_bytes)
    }

    fn object(heap: &mut Heap<'_>) -> Result<(Vec<u8>, u64)> {
        heap.object(&[0, 100, 0, 0, 0, 3, 0, 0, 0], 0)
    }

    #[test]
    fn blocks_that_are_held_have_a_longest_length_and_a_sum() {
        let (file, head_bytes) = heap(1 << 24);
        let source = MemorySource::new("x", file);
        let input = Input::new(super::super::input::reader(&source), 0);
        let mut heap_of_one = Heap::open(&input, 0).unwrap();
        assert_eq!(object(&mut heap_of_one).unwrap(), (vec![7; 3], head_bytes + 100));
        assert_eq!(heap_of_one.held_bytes, 1 << 24);
        let mut full = Heap::open(&input, 0).unwrap();
        full.held_bytes = MAX_HELD_BYTES - (1 << 24) + 1;
        let said = object(&mut full).unwrap_err().to_string();
        assert!(said.contains("a heap with blocks of 1073741824 bytes at most"), "{said}");

        let (file, _) = heap(1 << 25);
        let source = MemorySource::new("x", file);
        let input = Input::new(super::super::input::reader(&source), 0);
        let said = object(&mut Heap::open(&input, 0).unwrap()).unwrap_err().to_string();
        assert!(said.contains("a block of a heap of 16777216 bytes at most"), "{said}");
        assert!(source.len() > 1 << 25);
    }
}
