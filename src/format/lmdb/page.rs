//! The pages of an LMDB file, as 64-bit little-endian machines write them.
//!
//! ```text
//! page      u64 number | u16 pad | u16 flags | u16 lower | u16 upper, or u32 pages of an overflow
//!           u16 places of nodes, up to `lower`
//! node      u32 length of the value | u16 flags | u16 length of the key | key | value        in a leaf
//!           u32 and u16: number of the page below | u16 length of the key | key              in a branch
//! meta      page | u32 0xbeefc0de | u32 version | u64 address | u64 size of the map
//!           2 databases: of free pages, and the main one | u64 last page | u64 transaction
//! database  u32 page size | u16 flags | u16 depth | u64 branches | u64 leaves | u64 overflows
//!           u64 entries | u64 root
//! ```
//!
//! Imports numbers at places of this room.

use super::super::bytes::{u16_at, u32_at, u64_at};
use crate::format::counted;
use std::ops::Range;

/// Bytes before the nodes, or the value, of a page.
pub(super) const HEAD_BYTES: usize = 16;
/// Bytes of a database's description.
pub(super) const DATABASE_BYTES: usize = 48;
/// Bytes of a meta page, as far as it is used.
pub(super) const META_BYTES: usize = HEAD_BYTES + 24 + 2 * DATABASE_BYTES + 16;
pub(super) const MAGIC: u32 = 0xbeef_c0de;
const VERSION: u32 = 1;
/// The root of a database without entries.
pub(super) const NO_PAGE: u64 = u64::MAX;

const IS_BRANCH: u16 = 0x01;
const IS_LEAF: u16 = 0x02;
const IS_OVERFLOW: u16 = 0x04;
const IS_META: u16 = 0x08;
/// The flag of a leaf that has values of one length, without nodes.
const IS_FIXED: u16 = 0x20;

const NODE_BYTES: usize = 8;
const NODE_BIG: u16 = 0x01;
const NODE_DATABASE: u16 = 0x02;
const NODE_DUPLICATES: u16 = 0x04;

/// The flag of a database whose keys are integers of the machine.
const INTEGER_KEYS: u16 = 0x08;

/// An error in a page, and its place.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) at: usize,
    pub(super) expected: &'static str,
    pub(super) found: String,
}

fn wrong<T>(at: usize, expected: &'static str, found: impl ToString) -> Result<T, Wrong> {
    Err(Wrong { at, expected, found: found.to_string() })
}

/// A tree of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Database {
    pub(super) page_bytes: u32,
    flags: u16,
    pub(super) depth: u16,
    pub(super) entries: u64,
    pub(super) root: u64,
}

impl Database {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            page_bytes: u32_at(bytes, 0)?,
            flags: u16_at(bytes, 4)?,
            depth: u16_at(bytes, 6)?,
            entries: u64_at(bytes, 32)?,
            root: u64_at(bytes, 40)?,
        })
    }

    pub(super) fn has_integer_keys(&self) -> bool {
        self.flags & INTEGER_KEYS != 0
    }
}

/// One of the two pages that describe the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meta {
    pub(super) page_bytes: u32,
    pub(super) main: Database,
    pub(super) transaction: u64,
}

impl Meta {
    pub(super) fn read(page: &[u8]) -> Result<Self, Wrong> {
        let magic = u32_at(page, HEAD_BYTES).unwrap_or(0);
        if magic != MAGIC {
            return wrong(HEAD_BYTES, "LMDB's 0xbeefc0de", format!("{magic:#010x}"));
        }
        let version = u32_at(page, 20).unwrap_or(0);
        if version != VERSION {
            return wrong(20, "version 1 of the format", version);
        }
        let flags = u16_at(page, 10).unwrap_or(0);
        if flags & IS_META == 0 {
            return wrong(10, "the flags of a meta page", format!("{flags:#06x}"));
        }
        let database = |at| page.get(at..).and_then(Database::read);
        let found = (database(40), database(40 + DATABASE_BYTES), u64_at(page, META_BYTES - 8));
        let (Some(free), Some(main), Some(transaction)) = found else {
            return wrong(page.len(), "a whole meta page", "the end");
        };
        let page_bytes = free.page_bytes;
        if !(page_bytes.is_power_of_two() && (256..=65_536).contains(&page_bytes)) {
            return wrong(40, "a page size of 256 to 65536, a power of 2", page_bytes);
        }
        Ok(Self { page_bytes, main, transaction })
    }
}

/// A page of a tree, or one that lies in a node (with the values of one key).
#[derive(Clone, Copy)]
pub(super) struct Page<'a> {
    bytes: &'a [u8],
    flags: u16,
    lower: usize,
}

/// The value or the values that a leaf holds under a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// The value, in the page.
    Here(Range<usize>),
    /// A value on pages of its own: the number of the first page, and the value's length in bytes.
    Overflow(u64, u32),
    /// A database of its own, under the name that is the key.
    Named(Database),
    /// Several values, in a page within this range of the leaf.
    Duplicates(Range<usize>),
    /// Several values, in a tree.
    Tree(Database),
}

/// A node of a leaf.
pub(super) struct Node {
    pub(super) key: Range<usize>,
    pub(super) value: Value,
}

impl<'a> Page<'a> {
    /// A page of a tree, whose number must be `number` if it is given.
    pub(super) fn read(bytes: &'a [u8], number: Option<u64>) -> Result<Self, Wrong> {
        let (Some(stored), Some(flags), Some(lower)) =
            (u64_at(bytes, 0), u16_at(bytes, 10), u16_at(bytes, 12))
        else {
            return wrong(bytes.len(), "a page", "the end");
        };
        if number.is_some_and(|number| number != stored) {
            return wrong(0, "a page with its own number", stored);
        }
        let lower = usize::from(lower);
        // Values of one byte each have no room for places: `lower` counts these all the same, and may exceed the page.
        let is_fixed = flags & IS_FIXED != 0;
        if lower < HEAD_BYTES || lower > bytes.len() && !is_fixed {
            return wrong(12, "the end of the places within the page", lower);
        }
        Ok(Self { bytes, flags, lower })
    }

    fn check_kind(&self, kind: u16, expected: &'static str) -> Result<(), Wrong> {
        match self.flags & (IS_BRANCH | IS_LEAF | IS_OVERFLOW | IS_META) == kind {
            true => Ok(()),
            false => wrong(10, expected, format!("{:#06x}", self.flags)),
        }
    }

    fn count(&self) -> usize {
        self.lower.saturating_sub(HEAD_BYTES) / 2
    }

    /// The offset of each node.
    fn places(&self) -> impl Iterator<Item = usize> {
        let places = self.bytes.get(HEAD_BYTES..self.lower).unwrap_or_default();
        places.as_chunks::<2>().0.iter().map(|place| usize::from(u16::from_le_bytes(*place)))
    }

    /// The numbers of the pages below a branch.
    pub(super) fn children(&self) -> Result<Vec<u64>, Wrong> {
        self.check_kind(IS_BRANCH, "the flags of a branch")?;
        let mut children = Vec::with_capacity(self.count());
        for at in self.places() {
            let number = (u32_at(self.bytes, at), u16_at(self.bytes, at.saturating_add(4)));
            let (Some(low), Some(high)) = number else {
                return wrong(at, "a node within the page", "the end");
            };
            children.push(u64::from(low) | u64::from(high) << 32);
        }
        Ok(children)
    }

    /// The nodes of a leaf. They take no more bytes than the page has, so that nodes that overlap cannot make more of the
    /// page than it is.
    pub(super) fn nodes(&self) -> Result<Vec<Node>, Wrong> {
        self.check_kind(IS_LEAF, "the flags of a leaf")?;
        if self.flags & IS_FIXED != 0 {
            return wrong(10, "a leaf with nodes", "one with values of a fixed length");
        }
        let mut nodes = Vec::with_capacity(self.count());
        let mut left = self.bytes.len();
        for at in self.places() {
            let Some((node, length)) = self.node(at)? else {
                return wrong(at, "a node within the page", "the end");
            };
            let Some(rest) = left.checked_sub(length) else {
                return wrong(at, "nodes that do not overlap", "more than the page can hold");
            };
            left = rest;
            nodes.push(node);
        }
        Ok(nodes)
    }

    /// Reads a node, and counts its bytes. `None` if it reaches beyond the page.
    fn node(&self, at: usize) -> Result<Option<(Node, usize)>, Wrong> {
        let number = |offset: usize| u16_at(self.bytes, at.saturating_add(offset));
        let (Some(length), Some(flags), Some(key_bytes)) =
            (u32_at(self.bytes, at), number(4), number(6))
        else {
            return Ok(None);
        };
        let key_at = at.saturating_add(NODE_BYTES);
        let value_at = key_at.saturating_add(usize::from(key_bytes));
        let is_big = flags & NODE_BIG != 0;
        let here = if is_big { 8 } else { usize::try_from(length).unwrap_or(usize::MAX) };
        let end = value_at.saturating_add(here);
        let Some(stored) = self.bytes.get(value_at..end) else { return Ok(None) };
        let kind = flags & (NODE_DATABASE | NODE_DUPLICATES);
        let database = || match Database::read(stored).filter(|_| here == DATABASE_BYTES) {
            Some(database) if !is_big => Ok(database),
            _ => wrong(value_at, "a database of 48 bytes", counted(length, "byte")),
        };
        let value = match kind {
            0 if is_big => Value::Overflow(u64_at(stored, 0).unwrap_or(NO_PAGE), length),
            0 => Value::Here(value_at..end),
            NODE_DATABASE => Value::Named(database()?),
            NODE_DUPLICATES if !is_big => Value::Duplicates(value_at..end),
            NODE_DUPLICATES => return wrong(at, "values within the node", "an overflow"),
            _ => Value::Tree(database()?),
        };
        Ok(Some((Node { key: key_at..value_at, value }, end.saturating_sub(at))))
    }

    /// The places of the values in a leaf of several values of one key.
    pub(super) fn values(&self) -> Result<Vec<Range<usize>>, Wrong> {
        self.check_kind(IS_LEAF, "the flags of a leaf of values")?;
        if self.flags & IS_FIXED == 0 {
            return Ok(self.nodes()?.into_iter().map(|node| node.key).collect());
        }
        // The length of a value stands where other pages have unused bytes.
        let length = usize::from(u16_at(self.bytes, 8).unwrap_or(0));
        let all = self.count().saturating_mul(length).saturating_add(HEAD_BYTES);
        if all > self.bytes.len() || length == 0 {
            return wrong(8, "values of a length that fit into the page", length);
        }
        let value = |number: usize| {
            let start = HEAD_BYTES.saturating_add(number.saturating_mul(length));
            start..start.saturating_add(length)
        };
        Ok((0..self.count()).map(value).collect())
    }
}

/// Whether the first bytes of an overflow are those of page `number`, with enough pages for `length` bytes.
pub(super) fn is_overflow(head: &[u8], number: u64, length: u32, page_bytes: u32) -> bool {
    let (Some(stored), Some(flags), Some(pages)) =
        (u64_at(head, 0), u16_at(head, 10), u32_at(head, 12))
    else {
        return false;
    };
    let room = u64::from(pages).saturating_mul(page_bytes.into());
    stored == number
        && flags & IS_OVERFLOW != 0
        && u64::from(length).saturating_add(HEAD_BYTES as u64) <= room
}
