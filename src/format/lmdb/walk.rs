//! One pass over the trees of a database, in the order of the keys.
//!
//! Pages may point anywhere. Each read of a page of a tree, and each page of a long value, is taken off the number of
//! pages that the file has: a walk over pages that point at themselves, or that are shared, comes to an end. A tree is no
//! deeper than its description says, which says no more than LMDB's own limit.

use super::key;
use super::page::{self, DATABASE_BYTES, Database, HEAD_BYTES, Node, Page, Value, Wrong};
use super::pickles::Unpickler;
use super::row::{Builder, Row};
use crate::format::ending;
use crate::format::magic;
use crate::format::reader::Reader;
use crate::format::scanned::Window;
use crate::format::{Attributes, Error, OpenOptions, Result, Source, View};
use crate::format::{counted, one_or_many};
use std::ops::Range;

/// The most levels of a tree: LMDB's cursors have room for no more.
const MAX_DEPTH: u16 = 32;
/// The most bytes of a value that is read to see whether it is text.
const MAX_TEXT_BYTES: u32 = 16 << 20;
/// Paths may take `PATH_FACTOR` times the bytes of the file, and `PATH_BYTES_FREE` more: the name of a database stands
/// before each of its keys.
const PATH_FACTOR: u64 = 16;
const PATH_BYTES_FREE: u64 = 1 << 20;
const TRUNCATED: &str = ": the file is truncated, or was copied while it was written \
     (--allow-damaged serves the values that are whole)";

/// The content of a tree's leaves.
enum Holds {
    /// The entries of the main database: values, and other databases.
    Main,
    /// The entries of the database that `path` names.
    Entries,
    /// The values of the key that `path` names.
    Values,
}

/// A pass over the trees of a database.
pub(super) struct Walk<'a> {
    reader: Reader<'a>,
    pages: Window<'a>,
    heads: Window<'a>,
    page_bytes: u32,
    allow_damaged: bool,
    /// Whether names get endings.
    has_endings: bool,
    unpickler: Unpickler,
    /// Pages that may still be used.
    pages_left: u64,
    path_bytes_left: u64,
    pub(super) build: Builder,
    damaged: u64,
    /// The path that is being made: of a database, then of a key in it.
    path: Vec<u8>,
    /// Entries of the tree that is walked.
    found: u64,
}

impl<'a> Walk<'a> {
    pub(super) fn new(source: &'a dyn Source, page_bytes: u32, options: &OpenOptions) -> Self {
        let pages = source.len().div_ceil(page_bytes.max(1).into());
        Self {
            reader: Reader::new(source, super::NAME),
            pages: Window::new(source),
            heads: Window::new(source),
            page_bytes,
            allow_damaged: options.allow_damaged,
            has_endings: options.view != View::Raw,
            unpickler: Unpickler::new(source.len(), options),
            pages_left: pages,
            path_bytes_left: source
                .len()
                .saturating_mul(PATH_FACTOR)
                .saturating_add(PATH_BYTES_FREE),
            build: Builder::default(),
            damaged: 0,
            path: Vec::new(),
            found: 0,
        }
    }

    /// Walks the main database, and all databases that it names.
    pub(super) fn main(&mut self, main: &Database, described_at: u64) -> Result<()> {
        self.tree(main, described_at, &Holds::Main)?;
        if self.damaged > 0 {
            let text = format!(
                "{}: {} not where they should be",
                self.part(),
                one_or_many(self.damaged, "value is", "values are")
            );
            self.build.warn(text);
        }
        Ok(())
    }

    fn part(&self) -> &crate::format::PartName {
        self.reader.part()
    }

    /// Walks a tree whose description stands at `described_at`.
    fn tree(&mut self, database: &Database, described_at: u64, holds: &Holds) -> Result<()> {
        let before = std::mem::take(&mut self.found);
        if database.root != page::NO_PAGE {
            if !(1..=MAX_DEPTH).contains(&database.depth) {
                let expected = format!("a tree of 1 to {MAX_DEPTH} levels");
                let at = described_at.saturating_add(6);
                let error = self.reader.malformed(at, expected, database.depth.to_string(), "");
                self.tolerate(error)?;
            } else {
                let is_integer = database.has_integer_keys();
                let mut pending = vec![(database.root, database.depth)];
                while let Some((number, level)) = pending.pop() {
                    if let Err(error) = self.page(number, level, &mut pending, (holds, is_integer))
                    {
                        self.tolerate(error)?;
                    }
                }
            }
        }
        let found = std::mem::replace(&mut self.found, before);
        if found != database.entries {
            let (at, expected) = (described_at.saturating_add(32), database.entries);
            let expected = format!("a tree of {}", counted(expected, "entry"));
            let error = self.reader.malformed(at, expected, counted(found, "entry"), "");
            self.tolerate(error)?;
        }
        Ok(())
    }

    /// Makes damage of a part of a tree a warning, if damage is allowed.
    fn tolerate(&mut self, error: Error) -> Result<()> {
        match error {
            Error::Malformed { .. } if self.allow_damaged => {
                self.build.warn(error.to_string());
                Ok(())
            }
            error => Err(error),
        }
    }

    /// Takes pages off those that may still be used.
    fn spend(&mut self, pages: u64, at: u64) -> Result<()> {
        let Some(left) = self.pages_left.checked_sub(pages) else {
            let found = "more: pages point at themselves, or at the same pages";
            let expected = "trees of no more pages than the file has";
            return Err(self.reader.malformed(at, expected, found, ""));
        };
        self.pages_left = left;
        Ok(())
    }

    fn page(
        &mut self,
        number: u64,
        level: u16,
        pending: &mut Vec<(u64, u16)>,
        (holds, is_integer): (&Holds, bool),
    ) -> Result<()> {
        let length = u64::from(self.page_bytes);
        let end = number.checked_add(1).and_then(|next| next.checked_mul(length));
        let Some(end) = end.filter(|end| *end <= self.reader.len()) else {
            let expected =
                format!("pages within the file of {}", counted(self.reader.len(), "byte"));
            let found = format!("page {number}");
            return Err(self.reader.malformed(self.reader.len(), expected, found, TRUNCATED));
        };
        let at = end.saturating_sub(length);
        self.spend(1, at)?;
        // A copy, as values that the page points at are read while it is in use.
        let bytes = self.pages.get(at, length)?.to_vec();
        let wrong = |reader: Reader<'_>, wrong: Wrong| {
            reader.malformed(at.saturating_add(wrong.at as u64), wrong.expected, wrong.found, "")
        };
        let reader = self.reader;
        let page = Page::read(&bytes, Some(number)).map_err(|w| wrong(reader, w))?;
        if level > 1 {
            let below = page.children().map_err(|w| wrong(reader, w))?;
            let level = level.saturating_sub(1);
            pending.extend(below.into_iter().rev().map(|child| (child, level)));
            return Ok(());
        }
        if let Holds::Values = holds {
            let values = page.values().map_err(|w| wrong(reader, w))?;
            return values.into_iter().try_for_each(|value| self.one_of_many(&bytes, value, at));
        }
        for node in page.nodes().map_err(|w| wrong(reader, w))? {
            self.node(&bytes, &node, at, (holds, is_integer))?;
        }
        Ok(())
    }

    /// Adds an entry of a leaf that stands at `at`.
    fn node(
        &mut self,
        bytes: &[u8],
        node: &Node,
        at: u64,
        (holds, is_integer): (&Holds, bool),
    ) -> Result<()> {
        let within = |range: &Range<usize>| bytes.get(range.clone()).unwrap_or_default();
        let before = self.path.len();
        key::push(&mut self.path, within(&node.key), is_integer);
        let done = match &node.value {
            Value::Here(range) => self.here(within(range), at.saturating_add(range.start as u64)),
            Value::Overflow(page, length) => self.overflow(*page, *length, at),
            Value::Named(database) if matches!(holds, Holds::Main) => {
                let described_at = at.saturating_add(node.key.end as u64);
                self.found = self.found.saturating_add(1);
                self.path.push(b'/');
                self.tree(database, described_at, &Holds::Entries)
            }
            Value::Named(_) => {
                let found = "a database in a database";
                let at = at.saturating_add(node.key.end as u64);
                Err(self.reader.malformed(at, "a value", found, ""))
            }
            Value::Duplicates(range) => {
                self.path.push(b'/');
                self.duplicates(within(range), at.saturating_add(range.start as u64))
            }
            Value::Tree(database) => {
                let described_at = at.saturating_add(node.key.end as u64);
                self.path.push(b'/');
                let done = self.tree(database, described_at, &Holds::Values);
                // The values are entries of the tree that the key stands in.
                self.found = self.found.saturating_add(database.entries);
                done
            }
        };
        self.path.truncate(before);
        done
    }

    /// Adds the values of a key that lie in a page within its node.
    fn duplicates(&mut self, bytes: &[u8], at: u64) -> Result<()> {
        let values = Page::read(bytes, None).and_then(|page| page.values());
        let values = values.map_err(|w| {
            let at = at.saturating_add(w.at as u64);
            self.reader.malformed(at, w.expected, w.found, "")
        })?;
        let before = std::mem::take(&mut self.found);
        let mut values = values.into_iter();
        let done = values.try_for_each(|value| self.one_of_many(bytes, value, at));
        self.found = before.saturating_add(self.found);
        done
    }

    /// Adds one of several values of a key, in a page that stands at `at`.
    fn one_of_many(&mut self, page: &[u8], range: Range<usize>, at: u64) -> Result<()> {
        let before = self.path.len();
        self.path.extend_from_slice(format!("{:06}", self.found).as_bytes());
        let value = page.get(range.clone()).unwrap_or_default();
        let done = self.here(value, at.saturating_add(range.start as u64));
        self.path.truncate(before);
        done
    }

    /// Adds a value that lies in a page, at offset `at` of the file.
    fn here(&mut self, value: &[u8], at: u64) -> Result<()> {
        if self.is_taken_apart(value, at)? {
            return Ok(());
        }
        let ending = self.ending_of(|| key::ending_of(value));
        self.value((at, value.len()), ending, true)
    }

    fn ending_of(&self, ending: impl FnOnce() -> &'static str) -> &'static str {
        if self.has_endings { ending() } else { "" }
    }

    /// Adds a value on pages of its own, from page `number` on; the leaf that points at it stands at `leaf_at`.
    fn overflow(&mut self, number: u64, length: u32, leaf_at: u64) -> Result<()> {
        let page_bytes = u64::from(self.page_bytes);
        let all = u64::from(length).saturating_add(HEAD_BYTES as u64);
        let at = number.checked_mul(page_bytes);
        let end = at.and_then(|at| at.checked_add(all));
        let (Some(at), Some(_)) = (at, end.filter(|end| *end <= self.reader.len())) else {
            let expected =
                format!("a value within the file of {}", counted(self.reader.len(), "byte"));
            let found = format!("{} from page {number} on", counted(length, "byte"));
            let error = self.reader.malformed(leaf_at, expected, found, TRUNCATED);
            if !self.allow_damaged {
                return Err(error);
            }
            return self.value((0, length as usize), self.ending_of(|| ".bin"), false);
        };
        self.spend(all.div_ceil(page_bytes), leaf_at)?;
        let value_at = at.saturating_add(HEAD_BYTES as u64);
        let seen =
            (HEAD_BYTES as u64).saturating_add(u64::from(length).min(magic::HEAD_BYTES as u64));
        let head = self.heads.get(at, seen)?;
        let is_whole = page::is_overflow(head, number, length, self.page_bytes);
        // A copy, as the value may be read while its head is in use.
        let mut first = [0; magic::HEAD_BYTES];
        let head = head.get(HEAD_BYTES..).unwrap_or_default();
        let head_bytes = head.len().min(first.len());
        first.iter_mut().zip(head).for_each(|(to, from)| *to = *from);
        let head = first.get(..head_bytes).unwrap_or_default();
        if is_whole && self.unpickler.may_take(head, length) {
            let mut value = vec![0; length as usize];
            self.reader.read("a value", &mut value, value_at)?;
            if self.is_taken_apart(&value, value_at)? {
                return Ok(());
            }
        }
        let ending = match self.has_endings {
            true => self.ending_of_long(head, value_at, length)?,
            false => "",
        };
        self.value((value_at, length as usize), ending, is_whole)
    }

    fn ending_of_long(&self, head: &[u8], at: u64, length: u32) -> Result<&'static str> {
        if let Some(code) = ending::code_of_head(head, length.into()) {
            return Ok(ending::named(code));
        }
        if length > MAX_TEXT_BYTES {
            return Ok(".bin");
        }
        let mut value = vec![0; length as usize];
        self.reader.read("a value", &mut value, at)?;
        Ok(key::ending_of(&value))
    }

    /// Adds a value under the path.
    fn value(
        &mut self,
        (offset, length): (u64, usize),
        ending: &str,
        is_whole: bool,
    ) -> Result<()> {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let row = Row { offset, length, is_damaged: !is_whole, ..Row::default() };
        self.found = self.found.saturating_add(1);
        self.damaged = self.damaged.saturating_add(u64::from(!is_whole));
        self.file(&row, if is_whole { length.into() } else { 0 }, ending)
    }

    /// Adds the files of a value that is a pickle; false if the value stays one file.
    fn is_taken_apart(&mut self, value: &[u8], at: u64) -> Result<bool> {
        let room = self.path_bytes_left / 2;
        let taken = self.unpickler.take(value, at, (self.path.len(), room), &mut self.build);
        let Some(files) = taken else { return Ok(false) };
        let before = self.path.len();
        for file in files {
            for name in &file.path {
                self.path.push(b'/');
                self.path.extend_from_slice(name);
            }
            let added = match &file.row {
                Some(row) => self.file(row, file.size_bytes, file.ending),
                None => self.directory(at),
            };
            self.path.truncate(before);
            added?;
        }
        self.found = self.found.saturating_add(1);
        Ok(true)
    }

    /// Adds a file under the path.
    fn file(&mut self, row: &Row, size_bytes: u64, ending: &str) -> Result<()> {
        let before = self.path.len();
        key::end(&mut self.path, ending);
        let sample = self.build.sample(row, size_bytes);
        let added = self.build.name(&self.path, sample).is_ok();
        let done = self.named(added, row.offset);
        self.path.truncate(before);
        done
    }

    /// Adds a directory under the path, of a value that stands at `at`.
    fn directory(&mut self, at: u64) -> Result<()> {
        let added = self.build.directory(&self.path, &Attributes::default()).is_ok();
        self.named(added, at)
    }

    /// Takes the bytes of the path, which was added, off those that paths may still have.
    fn named(&mut self, is_added: bool, at: u64) -> Result<()> {
        let left = self.path_bytes_left.checked_sub(self.path.len() as u64);
        let (Some(left), true) = (left, is_added) else {
            let expected = "names that a mount can hold";
            return Err(self.reader.malformed(at, expected, "too many, or too long ones", ""));
        };
        self.path_bytes_left = left;
        Ok(())
    }
}

const _: () = assert!(DATABASE_BYTES == 48);
