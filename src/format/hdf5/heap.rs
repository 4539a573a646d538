//! Fractal heaps, which hold the links of large groups.
//!
//! ```text
//! "FRHP" | u8 0 | u16 bytes of an ID | u16 bytes of filters | u8 flags | u32 largest object | …
//!         u16 width | first block | largest direct block | u16 bits of an offset | u16 | root | u16 rows | u32 lookup3
//! "FHDB" | u8 0 | heap | offset | u32 lookup3? | objects
//! "FHIB" | u8 0 | heap | offset | addresses of blocks | u32 lookup3
//! ID      u8 kind | offset | length; or the object itself; or (of a huge one) address | length, or its key in a B-tree
//! ```
//! Blocks lie in rows of `width`: those of rows 0 and 1 have the first size, those of each further row twice as much.
//!
//! Imports the input and B-trees.

use super::super::Result;
use super::input::{Block, Fields, Input, bytes_for, lookup3, number};
use super::tree2;
use crate::format::counted;
use std::collections::HashMap;

const DIRECT_HAS_CHECKSUM: u8 = 0x02;
/// No heap nests deeper: each level has blocks of at least twice the size.
const MAX_NESTING: u32 = 64;
/// Records of huge objects: address, length, key.
const HUGE: u8 = 1;

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
    blocks: HashMap<u64, Block>,
    huge: Huge,
}

/// Objects that are too long for blocks: each lies by itself.
struct Huge {
    /// Whether an ID says where, as it has room for that.
    is_direct: bool,
    /// Bytes of a key in an ID.
    key_bytes: usize,
    tree: Option<u64>,
    /// Address and length by the key, once the tree was read.
    places: Option<HashMap<u64, (u64, u64)>>,
}

impl<'a> Heap<'a> {
    pub(super) fn open(input: &'a Input<'a>, address: u64) -> Result<Self> {
        let (a, l) = (input.address_bytes as u64, input.length_bytes as u64);
        let length = l.saturating_mul(12).saturating_add(a.saturating_mul(3)).saturating_add(26);
        let head = input.block("the head of a heap", address, length)?;
        let mut fields = input.fields(&head);
        fields.mark(b"FRHP", 0)?;
        let behind_kind = usize::from(fields.u16()?).saturating_sub(1);
        let before = fields.clone();
        let filters = fields.u16()?;
        if filters > 0 {
            return Err(before.wrong("a heap of links without filters", filters.to_string()));
        }
        input.check("the head of a heap", &head)?;
        let flags = fields.u8()?;
        let largest_object = u64::from(fields.u32()?);
        fields.length()?;
        let huge = Huge {
            is_direct: a.saturating_add(l) <= behind_kind as u64,
            key_bytes: behind_kind.min(8),
            tree: fields.address()?,
            places: None,
        };
        // What free space and statistics have.
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
            blocks,
            huge,
        })
    }

    /// The object with an ID, and where it stands in the file.
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
            true => id.address()?.zip(Some(id.length()?)),
            false => {
                let key = id.number(self.huge.key_bytes)?;
                self.huge_places()?.get(&key).copied()
            }
        };
        let Some((address, length)) = place else {
            return Err(before.wrong("a huge object that its heap has", "none".to_owned()));
        };
        let block = self.input.block("a huge object of a heap", address, length)?;
        Ok((block.bytes, block.at))
    }

    fn huge_places(&mut self) -> Result<&HashMap<u64, (u64, u64)>> {
        if self.huge.places.is_none() {
            let mut places = HashMap::new();
            if let Some(tree) = self.huge.tree {
                tree2::walk(self.input, tree, &[HUGE], &mut |record, _| {
                    let (address, length) = (record.address()?, record.length()?);
                    let key = record.length()?;
                    places.extend(address.map(|address| (key, (address, length))));
                    Ok(())
                })?;
            }
            self.huge.places = Some(places);
        }
        Ok(self.huge.places.get_or_insert_default())
    }

    fn managed(&mut self, offset: u64, length: u64) -> Result<(Vec<u8>, u64)> {
        let (address, size, start) = self.find(offset)?;
        let has_checksum = self.flags & DIRECT_HAS_CHECKSUM != 0;
        let head = self.head_bytes().saturating_add(if has_checksum { 4 } else { 0 });
        let first = offset.saturating_sub(start);
        let end = first.saturating_add(length);
        let is_new = !self.blocks.contains_key(&address);
        if is_new {
            let mut block = self.input.block("a block of a heap", address, size)?;
            self.input.fields(&block).mark(b"FHDB", 0)?;
            if has_checksum {
                check_direct(self.input, &mut block, self.head_bytes())?;
            }
            self.blocks.insert(address, block);
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

    /// Mark, version, address of the heap, offset.
    fn head_bytes(&self) -> u64 {
        5_u64.saturating_add(self.input.address_bytes as u64).saturating_add(self.id_bytes.0 as u64)
    }

    /// The direct block that an offset lies in: its address, its size, and the offset of its first byte.
    fn find(&mut self, offset: u64) -> Result<(u64, u64, u64)> {
        let root = self.root.ok_or_else(|| self.no_block(offset))?;
        if self.rows == 0 {
            return match offset < self.first_bytes {
                true => Ok((root, self.first_bytes, 0)),
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
            let child = self.child(address, rows, number)?;
            start = start.saturating_add(row_start).saturating_add(column.saturating_mul(size));
            if size <= self.largest_bytes {
                return Ok((child, size, start));
            }
            let units = size.checked_div(unit).unwrap_or(0);
            (address, rows) = (child, u64::from(units.max(1).ilog2()).saturating_add(1));
        }
        Err(self.no_block(offset))
    }

    /// The address of a child of an indirect block with so many rows.
    fn child(&mut self, address: u64, rows: u64, number: u64) -> Result<u64> {
        let entries = rows.saturating_mul(self.width);
        let a = self.input.address_bytes as u64;
        let length = entries.saturating_mul(a).saturating_add(self.head_bytes()).saturating_add(4);
        if !self.blocks.contains_key(&address) {
            let block = self.input.block("a block of a heap", address, length)?;
            self.input.fields(&block).mark(b"FHIB", 0)?;
            self.input.check("a block of a heap", &block)?;
            self.blocks.insert(address, block);
        }
        let Some(block) = self.blocks.get(&address) else { return Err(self.no_block(number)) };
        let mut fields = self.input.fields(block);
        let skip = self.head_bytes().saturating_add(number.saturating_mul(a));
        fields.take(usize::try_from(skip).unwrap_or(usize::MAX))?;
        let before: Fields<'_> = fields.clone();
        fields.address()?.ok_or_else(|| before.wrong("the address of a block", "none".to_owned()))
    }

    fn no_block(&self, offset: u64) -> super::super::Error {
        let expected = format!(
            "a heap with a block for offset {offset} of {}",
            counted(self.offset_bits, "bit")
        );
        self.input.reader.malformed(self.at, expected, "none", "")
    }
}

/// The checksum of a direct block is taken with its own place as zeros.
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
