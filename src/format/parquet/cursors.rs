//! The values of all leaves of a column, page by page, from any row on: JSON is made from them.
//!
//! Imports pages, values, the footer and the schema.

use super::dictionaries::NO_DICTIONARY;
use super::footer::{Chunk, Group};
use super::page::{Header, Kind as PageKind, MAX_PAGE_BYTES, MAX_PAGES_BEHIND, Page};
use super::schema::{Leaf, Node, Schema};
use super::values::{self, Values};
use crate::format::{Error, Fault, counted};
use std::borrow::Cow;
use std::sync::Arc;

const TOO_MUCH: &str = "the pages that a row is made from have over 256 MiB once they are decoded";

/// The reason why no more values can be read.
#[derive(Debug)]
pub(super) enum Stop {
    /// The file cannot be read.
    Failed(Error),
    /// The pages are not those of such a column, or fail a checksum.
    Wrong(Fault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Wrong(fault)
    }
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Wrong(why.into())
    }
}

impl From<&str> for Stop {
    fn from(why: &str) -> Self {
        Self::Wrong(why.into())
    }
}

pub(super) type Read<T> = Result<T, Stop>;

/// The header of a page, the header's length, and the page with its header.
pub(super) type StoredPage<'a> = (Header, usize, Cow<'a, [u8]>);

/// A source of stored pages.
pub(super) trait Stored {
    /// Reads the page at offset `at` of the file, which ends at or before offset `end`.
    fn page(&self, at: u64, end: u64) -> Read<StoredPage<'_>>;
}

/// The place where the values of a leaf go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    /// The offset of a page, and the number of the chunk's values from there on.
    pub(super) page: u64,
    pub(super) left: u64,
    /// The number of the page's values before the place.
    pub(super) passed: u32,
    /// The number of the kept dictionary.
    pub(super) dictionary: u32,
}

/// The next values of a leaf.
struct Cursor {
    leaf: Leaf,
    chunk: Chunk,
    /// The offsets of the page that was read last and of the page behind it, and the number of values from there on.
    page_at: u64,
    at: u64,
    left: u64,
    repetition: Vec<u8>,
    definition: Vec<u8>,
    values: Values,
    /// The number of values of the page, nulls included; the number of the next value, and of the values before it that are not
    /// null.
    count: usize,
    next: usize,
    passed: usize,
    held: u64,
    dictionary: Option<Dictionary>,
}

struct Dictionary {
    values: Arc<Values>,
    /// The stored page, until it is kept; then the number of the kept dictionary.
    page: Vec<u8>,
    number: u32,
}

/// The next values of all leaves of a column.
pub(super) struct Cursors<'a> {
    stored: &'a dyn Stored,
    cursors: Vec<Cursor>,
    /// The number of the first cursor's leaf.
    first: usize,
    /// Bytes that the values of all pages take.
    held: u64,
    /// The end of the last page that was read.
    end: u64,
}

pub(super) const ENDS_EARLY: &str = "a column with fewer values than its row group has rows";

/// Finds the kept dictionary of a leaf, whose chunk has a codec, by its number.
pub(super) type Kept<'a> = dyn Fn(u32, &Leaf, i32) -> Result<Arc<Values>, Fault> + 'a;

impl<'a> Cursors<'a> {
    /// Makes cursors at the first row of a row group.
    ///
    /// # Errors
    /// The column is not in the footer.
    pub(super) fn new(
        stored: &'a dyn Stored,
        schema: &Schema,
        group: &Group,
        node: &Node,
    ) -> Read<Self> {
        let leaves = node.leaves();
        let both = schema.leaves.get(leaves.clone()).zip(group.chunks.get(leaves.clone()));
        let (schema, chunks) = both.ok_or("a column that is not in the footer")?;
        let cursors = schema.iter().zip(chunks).map(|(leaf, chunk)| Cursor {
            leaf: leaf.in_json(),
            chunk: *chunk,
            page_at: chunk.at,
            at: chunk.at,
            left: chunk.values,
            repetition: Vec::new(),
            definition: Vec::new(),
            values: Values::default(),
            count: 0,
            next: 0,
            passed: 0,
            held: 0,
            dictionary: None,
        });
        let first = leaves.start;
        Ok(Self { stored, cursors: cursors.collect(), first, held: 0, end: 0 })
    }

    /// Goes to the places where the values go on.
    ///
    /// # Errors
    /// The places are not of this column, or their pages cannot be read.
    pub(super) fn go_to(&mut self, starts: &[Start], kept: &Kept) -> Read<()> {
        if starts.len() != self.cursors.len() {
            return Err("places of another column".into());
        }
        for (number, start) in starts.iter().enumerate() {
            let Some(cursor) = self.cursors.get_mut(number) else { continue };
            (cursor.page_at, cursor.at, cursor.left) = (start.page, start.page, start.left);
            if start.dictionary != NO_DICTIONARY {
                let values = kept(start.dictionary, &cursor.leaf, cursor.chunk.codec)?;
                let number = start.dictionary;
                cursor.dictionary = Some(Dictionary { values, page: Vec::new(), number });
            }
            if start.passed > 0 {
                self.load(number)?;
            }
            let Some(cursor) = self.cursors.get_mut(number) else { continue };
            cursor.next = start.passed as usize;
            let before = cursor.definition.iter().take(cursor.next);
            let is_there = |level: &&u8| u32::from(**level) == cursor.leaf.definition;
            cursor.passed = match cursor.leaf.definition {
                0 => cursor.next,
                _ => before.filter(is_there).count(),
            };
        }
        Ok(())
    }

    /// Returns the places where the values go on. `keep` keeps the stored page of a dictionary, and returns its number.
    pub(super) fn starts(&mut self, keep: &dyn Fn(Vec<u8>) -> u32) -> Vec<Start> {
        let start = |cursor: &mut Cursor| {
            let dictionary = cursor.dictionary.as_mut().map_or(NO_DICTIONARY, |dictionary| {
                if dictionary.number == NO_DICTIONARY {
                    dictionary.number = keep(std::mem::take(&mut dictionary.page));
                }
                dictionary.number
            });
            if cursor.next >= cursor.count {
                return Start { page: cursor.at, left: cursor.left, passed: 0, dictionary };
            }
            let left = cursor.left.saturating_add(cursor.count as u64);
            let passed = u32::try_from(cursor.next).unwrap_or(u32::MAX);
            Start { page: cursor.page_at, left, passed, dictionary }
        };
        self.cursors.iter_mut().map(start).collect()
    }

    /// The end of the last page that was read.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The offset of values behind the last row, which belong to no row, if there are some.
    pub(super) fn left_over(&mut self, node: &Node) -> Read<Option<u64>> {
        for leaf in node.leaves() {
            // The place of a chunk without values is not checked.
            if self.cursor(leaf)?.chunk.values == 0 {
                continue;
            }
            if self.peek(leaf)?.is_some() {
                return Ok(Some(self.cursor(leaf)?.page_at));
            }
            let cursor = self.cursor(leaf)?;
            let (at, end) = (cursor.at, cursor.chunk.at.saturating_add(cursor.chunk.length));
            if self.has_values_behind(at, end) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Whether pages from `at` on, which the footer does not count, have values.
    fn has_values_behind(&self, mut at: u64, end: u64) -> bool {
        for _ in 0..MAX_PAGES_BEHIND {
            // Bytes that are not a page are padding.
            let page = (at < end).then(|| self.stored.page(at, end).ok()).flatten();
            let Some((header, _, stored)) = page else { return false };
            if header.is_data() && header.values > 0 {
                break;
            }
            at = at.saturating_add(stored.len() as u64);
        }
        true
    }

    fn cursor(&mut self, leaf: usize) -> Read<&mut Cursor> {
        let place = leaf.saturating_sub(self.first);
        self.cursors.get_mut(place).ok_or_else(|| ENDS_EARLY.into())
    }

    pub(super) fn leaf(&self, leaf: usize) -> Option<Leaf> {
        self.cursors.get(leaf.saturating_sub(self.first)).map(|cursor| cursor.leaf)
    }

    /// The repetition and the definition level of the next value of a leaf; `None` at the end.
    pub(super) fn peek(&mut self, leaf: usize) -> Read<Option<(u32, u32)>> {
        loop {
            let cursor = self.cursor(leaf)?;
            if let Some(levels) = cursor.levels() {
                return Ok(Some(levels));
            }
            if !self.load(leaf.saturating_sub(self.first))? {
                return Ok(None);
            }
        }
    }

    /// The repetition and the definition level of the next value of a leaf.
    pub(super) fn levels(&mut self, leaf: usize) -> Read<(u32, u32)> {
        self.peek(leaf)?.ok_or_else(|| ENDS_EARLY.into())
    }

    /// Takes the next value of a leaf; `None` if it is null.
    pub(super) fn take(&mut self, leaf: usize) -> Read<Option<&[u8]>> {
        let (_, definition) = self.levels(leaf)?;
        let cursor = self.cursor(leaf)?;
        cursor.next = cursor.next.saturating_add(1);
        if definition < cursor.leaf.definition {
            return Ok(None);
        }
        let value = cursor.passed;
        cursor.passed = value.saturating_add(1);
        cursor.values.get(value).map(Some).ok_or_else(|| ENDS_EARLY.into())
    }

    /// Reads the next page with values; false if no page follows.
    fn load(&mut self, place: usize) -> Read<bool> {
        let cursor = self.cursors.get_mut(place).ok_or(ENDS_EARLY)?;
        let before = cursor.held;
        while cursor.next >= cursor.count {
            let end = cursor.chunk.at.saturating_add(cursor.chunk.length);
            if cursor.left == 0 {
                return Ok(false);
            }
            if cursor.at >= end {
                return Err(
                    format!("{} fewer than its chunk has", counted(cursor.left, "value")).into()
                );
            }
            let (header, length, page) = self.stored.page(cursor.at, end)?;
            let at = cursor.at;
            let wrong = |fault: Fault| Stop::Wrong(fault.within(&format!("the page at byte {at}")));
            let held = self.held.saturating_sub(before).saturating_add(header.held_bytes());
            if held > MAX_PAGE_BYTES.into() {
                return Err(wrong(TOO_MUCH.into()));
            }
            cursor.take_page(header, length, &page).map_err(wrong)?;
            self.end = self.end.max(cursor.at);
        }
        self.held = self.held.saturating_sub(before).saturating_add(cursor.held);
        if self.held > MAX_PAGE_BYTES.into() {
            return Err(format!("the page at byte {}: {TOO_MUCH}", cursor.page_at).into());
        }
        Ok(true)
    }
}

impl Cursor {
    fn levels(&self) -> Option<(u32, u32)> {
        if self.next >= self.count {
            return None;
        }
        let level = |levels: &[u8]| levels.get(self.next).copied().unwrap_or(0).into();
        Some((level(&self.repetition), level(&self.definition)))
    }

    /// Decodes the next page.
    fn take_page(&mut self, header: Header, length: usize, stored: &[u8]) -> Result<(), Fault> {
        let body = stored.get(length..).unwrap_or_default();
        let codec = self.chunk.codec;
        match header.kind {
            PageKind::Other => (),
            PageKind::Dictionary => {
                let page = Page::open(header, body, &self.leaf, codec)?;
                let found =
                    values::decode(&self.leaf, 0, &page.bytes, header.values as usize, None)?;
                let (values, page) = (Arc::new(found), stored.to_vec());
                self.dictionary = Some(Dictionary { values, page, number: NO_DICTIONARY });
            }
            PageKind::Data | PageKind::DataV2 { .. } => {
                let left = self.left.checked_sub(header.values.into());
                let left = left.ok_or_else(|| {
                    format!("{}, not {}", counted(header.values, "value"), self.left)
                })?;
                let page = Page::open(header, body, &self.leaf, codec)?;
                let (count, encoding) = (page.present(&self.leaf), header.encoding);
                let dictionary = self.dictionary.as_ref().map(|dictionary| &*dictionary.values);
                self.values =
                    values::decode(&self.leaf, encoding, page.values(), count, dictionary)?;
                (self.repetition, self.definition) = (page.repetition, page.definition);
                (self.count, self.next, self.passed) = (header.values as usize, 0, 0);
                (self.left, self.page_at) = (left, self.at);
            }
        }
        let dictionary = self.dictionary.as_ref().map_or(0, |dictionary| {
            dictionary.values.held_bytes().saturating_add(dictionary.page.len() as u64)
        });
        let levels = self.repetition.len().saturating_add(self.definition.len()) as u64;
        self.held = self.values.held_bytes().saturating_add(levels).saturating_add(dictionary);
        self.at = self.at.saturating_add(stored.len() as u64);
        Ok(())
    }
}
