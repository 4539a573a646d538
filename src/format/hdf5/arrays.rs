//! Fixed and extensible arrays, which say where the chunks of newer files lie.
//!
//! ```text
//! element          address, or (if chunks are filtered) address | bytes | u32 filters that were left out
//! "FAHD" | u8 0 | u8 kind | u8 bytes of an element | u8 bits of a page | elements | block | u32 lookup3
//! "FADB" | u8 0 | u8 kind | head | pages that are there? | elements | u32 lookup3
//! "EAHD" | u8 0 | u8 kind | 6 × u8 | 6 lengths | index block | u32 lookup3
//! "EAIB" | u8 0 | u8 kind | head | first elements | blocks | super blocks | u32 lookup3
//! "EASB" | u8 0 | u8 kind | head | offset | pages that are there? | blocks | u32 lookup3
//! "EADB" | u8 0 | u8 kind | head | offset | elements | u32 lookup3
//! ```
//! A block of more elements than a page has consists of its head with a checksum, and of pages with a checksum each.
//!
//! Imports the input.

use super::super::Result;
use super::input::{Fields, Input};
use crate::format::counted;

/// A function that is given a chunk of an index: its number, its address, and its bytes and skipped filters if it is
/// filtered.
pub(super) type Visit<'v> = dyn FnMut(u64, u64, Option<(u64, u32)>) -> Result<()> + 'v;

/// The layout of an array's elements.
#[derive(Clone, Copy)]
struct Elements {
    bytes: u64,
    is_filtered: bool,
    page: u64,
}

impl Elements {
    fn new(before: &Fields<'_>, kind: u8, bytes: u8, page_bits: u8) -> Result<Self> {
        let a = before.input.address_bytes as u64;
        let (bytes, is_filtered) = (u64::from(bytes), kind == 1);
        let room = bytes.checked_sub(if is_filtered { a.saturating_add(4) } else { a });
        let is_right = kind <= 1 && page_bits < 32 && room.is_some_and(|size| size <= 8);
        if !is_right || is_filtered && room == Some(0) || !is_filtered && room != Some(0) {
            let found = format!("{} of kind {kind}", counted(bytes, "byte"));
            return Err(before.wrong("elements that say where a chunk is", found));
        }
        Ok(Self { bytes, is_filtered, page: 1_u64.wrapping_shl(page_bits.into()) })
    }

    /// Visits a run of elements: `run` is the number of the first one, and their count.
    fn visit(self, fields: &mut Fields<'_>, run: (u64, u64), visit: &mut Visit<'_>) -> Result<()> {
        let (first, count) = run;
        for number in first..first.saturating_add(count) {
            let address = fields.address()?;
            let filtered = match self.is_filtered {
                true => {
                    let used = fields.input.address_bytes.saturating_add(4) as u64;
                    let size = fields.number(self.bytes.saturating_sub(used) as usize)?;
                    Some((size, fields.u32()?))
                }
                false => None,
            };
            if let Some(address) = address {
                visit(number, address, filtered)?;
            }
        }
        Ok(())
    }

    fn pages(self, count: u64) -> u64 {
        if count > self.page { count.div_ceil(self.page.max(1)) } else { 0 }
    }

    /// Visits the pages behind a block's head that exist according to `is_there`.
    fn visit_pages(
        self,
        input: &Input<'_>,
        start: u64,
        (first, count): (u64, u64),
        is_there: &dyn Fn(u64) -> bool,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let page_bytes = self.page.saturating_mul(self.bytes).saturating_add(4);
        for number in 0..self.pages(count) {
            if !is_there(number) {
                continue;
            }
            let done = number.saturating_mul(self.page);
            let here = count.saturating_sub(done).min(self.page);
            let address = start.saturating_add(number.saturating_mul(page_bytes));
            let length = here.saturating_mul(self.bytes).saturating_add(4);
            let block = input.block("a page of an index", address, length)?;
            input.check("a page of an index", &block)?;
            self.visit(&mut input.fields(&block), (first.saturating_add(done), here), visit)?;
        }
        Ok(())
    }
}

/// Whether bit `number` is set, counted from the highest bit of the first byte.
fn bit(bits: &[u8], number: u64) -> bool {
    let byte = usize::try_from(number >> 3).ok().and_then(|at| bits.get(at));
    byte.is_some_and(|byte| byte.wrapping_shr(7_u32.wrapping_sub((number & 7) as u32)) & 1 == 1)
}

/// Visits a fixed array.
pub(super) fn fixed(input: &Input<'_>, address: u64, visit: &mut Visit<'_>) -> Result<()> {
    let (a, l) = (input.address_bytes as u64, input.length_bytes as u64);
    let head = input.block(
        "the head of a fixed array",
        address,
        l.saturating_add(a).saturating_add(12),
    )?;
    input.check("the head of a fixed array", &head)?;
    let mut fields = input.fields(&head);
    fields.mark(b"FAHD", 0)?;
    let before = fields.clone();
    let (kind, bytes, page_bits) = (fields.u8()?, fields.u8()?, fields.u8()?);
    let elements = Elements::new(&before, kind, bytes, page_bits)?;
    let (count, block) = (fields.length()?, fields.address()?);
    let Some(block_at) = block else { return Ok(()) };
    let pages = elements.pages(count);
    let head_bytes = a.saturating_add(6);
    let within = if pages > 0 { pages.div_ceil(8) } else { count.saturating_mul(elements.bytes) };
    let length = head_bytes.saturating_add(within).saturating_add(4);
    let block = input.block("a block of a fixed array", block_at, length)?;
    input.check("a block of a fixed array", &block)?;
    let mut fields = input.fields(&block);
    fields.mark(b"FADB", 0)?;
    fields.take(input.address_bytes.saturating_add(1))?;
    if pages == 0 {
        return elements.visit(&mut fields, (0, count), visit);
    }
    let bits = fields.take(usize::try_from(within).unwrap_or(usize::MAX))?;
    let start = block_at.saturating_add(length);
    elements.visit_pages(input, start, (0, count), &|page| bit(bits, page), visit)
}

/// An extensible array whose head was read.
struct Extensible<'a> {
    input: &'a Input<'a>,
    elements: Elements,
    /// Bytes of an element's number, in a block's head.
    offset_bytes: u64,
    min_elements: u64,
}

/// Visits an extensible array.
pub(super) fn extensible(input: &Input<'_>, address: u64, visit: &mut Visit<'_>) -> Result<()> {
    let (a, l) = (input.address_bytes as u64, input.length_bytes as u64);
    let length = l.saturating_mul(6).saturating_add(a).saturating_add(16);
    let head = input.block("the head of an extensible array", address, length)?;
    input.check("the head of an extensible array", &head)?;
    let mut fields = input.fields(&head);
    fields.mark(b"EAHD", 0)?;
    let before = fields.clone();
    let (kind, bytes, bits, first) = (fields.u8()?, fields.u8()?, fields.u8()?, fields.u8()?);
    let (min_elements, min_pointers, page_bits) =
        (u64::from(fields.u8()?), u64::from(fields.u8()?), fields.u8()?);
    let elements = Elements::new(&before, kind, bytes, page_bits)?;
    let is_right = bits <= 64 && min_elements.is_power_of_two() && min_pointers.is_power_of_two();
    let supers = u32::from(bits).checked_sub(min_elements.max(1).ilog2());
    let Some(supers) = supers.filter(|_| is_right).map(|supers| supers.saturating_add(1)) else {
        let found = format!(
            "{}, {}, {}",
            counted(bits, "bit"),
            counted(min_elements, "element"),
            counted(min_pointers, "block")
        );
        return Err(before.wrong("an extensible array by powers of 2", found));
    };
    fields.take(usize::try_from(l.saturating_mul(6)).unwrap_or(usize::MAX))?;
    let Some(index) = fields.address()? else { return Ok(()) };
    let offset_bytes = u64::from(bits).div_ceil(8);
    let array = Extensible { input, elements, offset_bytes, min_elements };
    // The index block has the addresses of the first super blocks' data blocks itself.
    let direct_supers = min_pointers.ilog2().saturating_mul(2).min(supers);
    let blocks: u64 = min_pointers.saturating_sub(1).saturating_mul(2);
    let pointers = blocks.saturating_add(supers.saturating_sub(direct_supers).into());
    let length = u64::from(first)
        .saturating_mul(elements.bytes)
        .saturating_add(pointers.saturating_mul(a))
        .saturating_add(a)
        .saturating_add(10);
    let block = input.block("the index of an extensible array", index, length)?;
    input.check("the index of an extensible array", &block)?;
    let mut fields = input.fields(&block);
    fields.mark(b"EAIB", 0)?;
    fields.take(input.address_bytes.saturating_add(1))?;
    elements.visit(&mut fields, (0, first.into()), visit)?;
    let mut number = u64::from(first);
    for level in 0..direct_supers {
        for _ in 0..super_blocks(level) {
            let count = array.block_elements(level);
            if let Some(address) = fields.address()? {
                array.block(address, (number, count), &|_| true, visit)?;
            }
            number = number.saturating_add(count);
        }
    }
    for level in direct_supers..supers {
        let all = super_blocks(level).saturating_mul(array.block_elements(level));
        if let Some(address) = fields.address()? {
            array.super_block(address, level, number, visit)?;
        }
        number = number.saturating_add(all);
    }
    Ok(())
}

/// The number of data blocks of a super block.
fn super_blocks(level: u32) -> u64 {
    1_u64.checked_shl(level >> 1).unwrap_or(u64::MAX)
}

impl Extensible<'_> {
    /// The number of elements of each data block of a super block.
    fn block_elements(&self, level: u32) -> u64 {
        let doublings = level.saturating_add(1) >> 1;
        1_u64.checked_shl(doublings).unwrap_or(u64::MAX).saturating_mul(self.min_elements)
    }

    /// Bytes of the head of a block: mark, version, kind, head, offset.
    fn head_bytes(&self) -> u64 {
        (self.input.address_bytes as u64).saturating_add(6).saturating_add(self.offset_bytes)
    }

    fn super_block(
        &self,
        address: u64,
        level: u32,
        first: u64,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let (blocks, count) = (super_blocks(level), self.block_elements(level));
        let pages = self.elements.pages(count);
        let bits = pages.div_ceil(8);
        let length = bits
            .saturating_add(self.input.address_bytes as u64)
            .saturating_mul(blocks)
            .saturating_add(self.head_bytes())
            .saturating_add(4);
        let block = self.input.block("a super block of an index", address, length)?;
        self.input.check("a super block of an index", &block)?;
        let mut fields = self.input.fields(&block);
        fields.mark(b"EASB", 0)?;
        let skip = self.head_bytes().saturating_sub(5);
        fields.take(usize::try_from(skip).unwrap_or(usize::MAX))?;
        let all =
            fields.take(usize::try_from(bits.saturating_mul(blocks)).unwrap_or(usize::MAX))?;
        for number in 0..blocks {
            // Each block has whole bytes of room, but its bits follow those of the block before.
            let before = number.saturating_mul(pages);
            if let Some(address) = fields.address()? {
                let first = first.saturating_add(number.saturating_mul(count));
                let is_there = |page: u64| bit(all, before.saturating_add(page));
                self.block(address, (first, count), &is_there, visit)?;
            }
        }
        Ok(())
    }

    fn block(
        &self,
        address: u64,
        (first, count): (u64, u64),
        is_there: &dyn Fn(u64) -> bool,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let is_paged = self.elements.pages(count) > 0;
        let within = if is_paged { 0 } else { count.saturating_mul(self.elements.bytes) };
        let length = self.head_bytes().saturating_add(within).saturating_add(4);
        let block = self.input.block("a block of an index", address, length)?;
        self.input.check("a block of an index", &block)?;
        let mut fields = self.input.fields(&block);
        fields.mark(b"EADB", 0)?;
        let skip = self.head_bytes().saturating_sub(5);
        fields.take(usize::try_from(skip).unwrap_or(usize::MAX))?;
        if !is_paged {
            return self.elements.visit(&mut fields, (first, count), visit);
        }
        let start = address.saturating_add(length);
        self.elements.visit_pages(self.input, start, (first, count), is_there, visit)
    }
}
