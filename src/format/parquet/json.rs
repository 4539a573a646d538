//! Lists, maps and structures as JSON: a text for each row.
//!
//! Imports cursors, the literals of values, and the schema; and text of this room.

use super::cursors::{Cursors, ENDS_EARLY, Kept, Read, Start, Stop, Stored, StoredPage};
use super::footer::Group;
use super::literals::write_value;
use super::page::{Header, MAX_PAGE_BYTES};
use super::schema::{Kind, Meaning, Node, Schema};
use crate::format::Fault;
use crate::format::bytes::{u32_at, u64_at};
use crate::format::json::write_text;
use std::borrow::Cow;

/// Bytes of a place in a kept index.
const START_BYTES: usize = 24;

/// Some rows of a column: their number, and the place where the values of each leaf begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JsonPart {
    pub(super) rows: u32,
    pub(super) starts: Vec<Start>,
}

impl JsonPart {
    pub(super) fn pack(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.rows.to_le_bytes());
        out.extend_from_slice(&(self.starts.len() as u32).to_le_bytes());
        for start in &self.starts {
            let (places, numbers) = ([start.page, start.left], [start.passed, start.dictionary]);
            places.iter().for_each(|place| out.extend_from_slice(&place.to_le_bytes()));
            numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        }
    }

    /// Reads a part that [`JsonPart::pack`] wrote, and takes it from `rest`.
    pub(super) fn unpack(rest: &mut &[u8]) -> Option<Self> {
        let (rows, leaves) = (u32_at(rest, 0)?, u32_at(rest, 4)?);
        let length = (leaves as usize).checked_mul(START_BYTES)?;
        let (starts, behind) = rest.get(8..)?.split_at_checked(length)?;
        let start = |bytes: &[u8]| {
            Some(Start {
                page: u64_at(bytes, 0)?,
                left: u64_at(bytes, 8)?,
                passed: u32_at(bytes, 16)?,
                dictionary: u32_at(bytes, 20)?,
            })
        };
        let starts = starts.chunks_exact(START_BYTES).map(start).collect::<Option<_>>()?;
        *rest = behind;
        Some(Self { rows, starts })
    }
}

/// Bytes of a file.
struct Slice<'a> {
    /// The offset of the first byte.
    at: u64,
    bytes: &'a [u8],
}

impl Stored for Slice<'_> {
    fn page(&self, at: u64, end: u64) -> Read<StoredPage<'_>> {
        let range = at.checked_sub(self.at).zip(end.checked_sub(self.at));
        let range = range.and_then(|(start, end)| {
            let end = usize::try_from(end).unwrap_or(usize::MAX).min(self.bytes.len());
            Some(usize::try_from(start).ok()?..end)
        });
        let rest = range.and_then(|range| self.bytes.get(range)).unwrap_or_default();
        let (header, body) = Header::split(rest)?;
        let length = (body.as_ptr() as usize).saturating_sub(rest.as_ptr() as usize);
        let page = rest.get(..length.saturating_add(body.len())).unwrap_or_default();
        Ok((header, length, Cow::Borrowed(page)))
    }
}

/// A column of a row group that is shown as JSON.
pub(super) struct Source<'a> {
    pub(super) schema: &'a Schema,
    pub(super) group: &'a Group,
    /// The number of the column's first leaf.
    pub(super) column: usize,
    /// Finds a kept dictionary.
    pub(super) kept: &'a Kept<'a>,
}

impl Source<'_> {
    /// Makes the texts of some rows, one behind the other, from the stored bytes at an offset of the file.
    ///
    /// # Errors
    /// The bytes are not such rows; the fault says why.
    pub(super) fn text(
        &self,
        part: &JsonPart,
        (at, stored): (u64, &[u8]),
        length: usize,
    ) -> Result<Vec<u8>, Fault> {
        let node = find(&self.schema.columns, self.column);
        let node = node.ok_or("a column that is not in the schema")?;
        let slice = Slice { at, bytes: stored };
        let made = (|| {
            let mut cursors = Cursors::new(&slice, self.schema, self.group, node)?;
            cursors.go_to(&part.starts, self.kept)?;
            let mut out = Vec::new();
            for _ in 0..part.rows {
                write_row(&mut cursors, node, &mut out)?;
                if out.len() > length {
                    return Err("texts that are longer than they were".into());
                }
            }
            Ok(out)
        })();
        made.map_err(|stop| match stop {
            Stop::Failed(error) => error.into(),
            Stop::Wrong(fault) => fault,
        })
    }
}

/// Finds the tree of a leaf that is shown as JSON: below structures that are directories.
pub(super) fn find(nodes: &[Node], leaf: usize) -> Option<&Node> {
    let node = nodes.iter().find(|node| node.leaves().contains(&leaf))?;
    match &node.kind {
        Kind::Struct(fields) => find(fields, leaf),
        _ => Some(node),
    }
}

/// Writes rows of a column.
struct Writer<'a, 'b> {
    cursors: &'a mut Cursors<'b>,
    out: &'a mut Vec<u8>,
    /// The repetition level of the list whose item is written; 0 outside of lists.
    level: u32,
}

/// Writes the next row of a column.
///
/// # Errors
/// Its pages cannot be read, or are not of this column.
pub(super) fn write_row(cursors: &mut Cursors, node: &Node, out: &mut Vec<u8>) -> Read<()> {
    Writer { cursors, out, level: 0 }.node(node)
}

impl Writer<'_, '_> {
    fn levels(&mut self, node: &Node) -> Read<(u32, u32)> {
        self.cursors.levels(node.leaves().start)
    }

    /// Writes a tree, or `null` if it is absent.
    fn node(&mut self, node: &Node) -> Read<()> {
        if self.out.len() > MAX_PAGE_BYTES as usize {
            return Err("more than 256 MiB of JSON in a row".into());
        }
        if let Kind::Leaf(leaf) = node.kind {
            return self.leaf(leaf);
        }
        let (_, definition) = self.levels(node)?;
        if definition < node.present {
            self.out.extend_from_slice(b"null");
            return self.pass(node, node.present);
        }
        match &node.kind {
            Kind::Leaf(_) => Ok(()),
            Kind::Struct(fields) => {
                for (number, field) in fields.iter().enumerate() {
                    self.out.extend_from_slice(if number == 0 { b"{" } else { b"," });
                    self.text(&field.name);
                    self.out.push(b':');
                    self.node(field)?;
                }
                self.out.push(b'}');
                Ok(())
            }
            Kind::List { there, level, item } => {
                self.items(node, (*there, *level), b"[]", &mut |writer| writer.node(item))
            }
            Kind::Map { there, level, key, value } => {
                // A name in JSON is text: a map with other keys is a list of pairs.
                let is_text = self.is_text(key);
                let around: &[u8; 2] = if is_text { b"{}" } else { b"[]" };
                self.items(node, (*there, *level), around, &mut |writer| {
                    if !is_text {
                        writer.out.push(b'[');
                    }
                    let start = writer.out.len();
                    writer.node(key)?;
                    // As Python's `json` writes it: a name must be text.
                    if is_text && writer.out.get(start..) == Some(b"null") {
                        writer.out.truncate(start);
                        writer.out.extend_from_slice(b"\"null\"");
                    }
                    writer.out.extend_from_slice(if is_text { b":" } else { b"," });
                    match value {
                        Some(value) => writer.node(value)?,
                        None => writer.out.extend_from_slice(b"null"),
                    }
                    if !is_text {
                        writer.out.push(b']');
                    }
                    Ok(())
                })
            }
        }
    }

    fn is_text(&self, key: &Node) -> bool {
        match key.kind {
            Kind::Leaf(leaf) => {
                self.cursors.leaf(leaf).is_some_and(|leaf| leaf.meaning == Meaning::Text)
            }
            _ => false,
        }
    }

    fn items(
        &mut self,
        node: &Node,
        (there, level): (u32, u32),
        around: &[u8; 2],
        each: &mut dyn FnMut(&mut Self) -> Read<()>,
    ) -> Read<()> {
        let [open, close] = around;
        self.out.push(*open);
        let (_, definition) = self.levels(node)?;
        if definition < there {
            self.out.push(*close);
            return self.pass(node, there);
        }
        let outer = std::mem::replace(&mut self.level, level);
        loop {
            each(self)?;
            let next = self.cursors.peek(node.leaves().start)?;
            if next.is_none_or(|(repetition, _)| repetition != level) {
                break;
            }
            self.out.push(b',');
        }
        self.level = outer;
        self.out.push(*close);
        Ok(())
    }

    /// Passes over all leaves of an absent tree, whose entries must have a definition level below `there`. DuckDB writes a null
    /// array with an entry for each element.
    fn pass(&mut self, node: &Node, there: u32) -> Read<()> {
        for leaf in node.leaves() {
            self.cursors.take(leaf)?;
            while let Some((repetition, definition)) = self.cursors.peek(leaf)?
                && repetition > self.level
            {
                if definition >= there {
                    return Err("a list that is not there has values".into());
                }
                self.cursors.take(leaf)?;
            }
        }
        Ok(())
    }

    fn leaf(&mut self, leaf: usize) -> Read<()> {
        let known = self.cursors.leaf(leaf).ok_or(ENDS_EARLY)?;
        match self.cursors.take(leaf)? {
            None => self.out.extend_from_slice(b"null"),
            Some(value) => {
                write_value(self.out, value, known.meaning, known.physical, known.is_utc);
            }
        }
        Ok(())
    }

    fn text(&mut self, text: &[u8]) {
        write_text(self.out, text);
    }
}
