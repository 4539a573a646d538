//! Lists, maps and structures as JSON: a text for each row of a column's chunks in a row group.
//!
//! Imports pages, values, their literals and the schema.

use super::footer::Group;
use super::literals::{write_text, write_value};
use super::page::{Header, Kind as PageKind, MAX_PAGE_BYTES, Page};
use super::schema::{Kind, Leaf, Meaning, Node, Schema};
use super::values::{self, Values};
use std::ops::Range;

/// The chunks of all leaves of a column in a row group lie in so many bytes at most.
pub(super) const MAX_STORED_BYTES: u64 = 256 << 20;
/// Values of all leaves together, nulls among them.
const MAX_VALUES: u64 = 1 << 24;

/// Where a row group's columns are taken from.
pub(super) struct Source<'a> {
    pub(super) schema: &'a Schema,
    pub(super) group: &'a Group,
    /// Where in the file the bytes that are given begin.
    pub(super) at: u64,
}

/// The values of a leaf.
struct Cursor<'a> {
    leaf: &'a Leaf,
    repetition: Vec<u32>,
    definition: Vec<u32>,
    count: usize,
    pages: Vec<Values>,
    /// The next level, and the next value: of which page, and which of it.
    next: usize,
    page: usize,
    value: usize,
}

/// What is wrong.
type Result<T> = std::result::Result<T, String>;

/// The bytes that the chunks of a column lie in.
pub(super) fn stored_range(node: &Node, group: &Group) -> Option<Range<u64>> {
    let chunks = group.chunks.get(node.leaves())?;
    let start = chunks.iter().map(|chunk| chunk.at).min()?;
    let end = chunks.iter().map(|chunk| chunk.at.saturating_add(chunk.length)).max()?;
    (end.saturating_sub(start) <= MAX_STORED_BYTES).then_some(start..end)
}

impl Source<'_> {
    /// The texts of all rows, one behind the other, and where each ends. `column` is the number of the first leaf.
    pub(super) fn texts(&self, column: usize, stored: &[u8]) -> Result<(Vec<u8>, Vec<u32>)> {
        let node =
            find(&self.schema.columns, column).ok_or("a column that is not in the schema")?;
        let leaves = node.leaves();
        let all: u64 = self
            .group
            .chunks
            .get(leaves.clone())
            .unwrap_or_default()
            .iter()
            .fold(0, |all, chunk| all.saturating_add(chunk.values));
        if all > MAX_VALUES {
            return Err(format!("more than {MAX_VALUES} values in a row group"));
        }
        let mut room = Room::default();
        let cursors = leaves.clone().map(|leaf| self.cursor(leaf, stored, &mut room));
        let mut cursors = cursors.collect::<Result<Vec<_>>>()?;
        let (mut out, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..self.group.rows {
            let mut writer = Writer { cursors: &mut cursors, first: leaves.start, out: &mut out };
            writer.node(node)?;
            ends.push(u32::try_from(out.len()).unwrap_or(u32::MAX));
        }
        Ok((out, ends))
    }

    fn cursor(&self, number: usize, stored: &[u8], room: &mut Room) -> Result<Cursor<'_>> {
        let leaf = self.schema.leaves.get(number).ok_or("a column that is not in the schema")?;
        let chunk = self.group.chunks.get(number).ok_or("a chunk that is not in the footer")?;
        let start = chunk.at.checked_sub(self.at).and_then(|start| usize::try_from(start).ok());
        let bytes = start.and_then(|start| stored.get(start..)).unwrap_or_default();
        let length = usize::try_from(chunk.length).unwrap_or(usize::MAX).min(bytes.len());
        let mut rest = bytes.get(..length).unwrap_or_default();
        let mut cursor = Cursor {
            leaf,
            repetition: Vec::new(),
            definition: Vec::new(),
            count: 0,
            pages: Vec::new(),
            next: 0,
            page: 0,
            value: 0,
        };
        let mut dictionary = None;
        while (cursor.count as u64) < chunk.values && !rest.is_empty() {
            let (header, body) = Header::split(rest)?;
            let end = (body.as_ptr() as usize).saturating_sub(rest.as_ptr() as usize);
            let behind = rest.get(end.saturating_add(body.len())..).unwrap_or_default();
            room.take_page(&header)?;
            match header.kind {
                PageKind::Other => (),
                PageKind::Dictionary => {
                    let page = Page::open(header, body, leaf, chunk.codec)?;
                    let count = header.values as usize;
                    let found = values::decode(leaf, 0, &page.bytes, count, None)?;
                    room.take_values(&found)?;
                    dictionary = Some(found);
                }
                PageKind::Data | PageKind::DataV2 { .. } => {
                    let left = chunk.values.saturating_sub(cursor.count as u64);
                    if u64::from(header.values) > left {
                        return Err(format!("a page of {} values, not {left}", header.values));
                    }
                    let page = Page::open(header, body, leaf, chunk.codec)?;
                    let (count, encoding) = (page.present(leaf), header.encoding);
                    let found =
                        values::decode(leaf, encoding, page.values(), count, dictionary.as_ref())?;
                    room.take_values(&found)?;
                    cursor.count = cursor.count.saturating_add(header.values as usize);
                    cursor.repetition.extend(page.repetition);
                    cursor.definition.extend(page.definition);
                    cursor.pages.push(found);
                }
            }
            rest = behind;
        }
        match (cursor.count as u64) < chunk.values {
            true => Err(format!("{} values, not {}", cursor.count, chunk.values)),
            false => Ok(cursor),
        }
    }
}

/// Bytes that all leaves of a column may still take in a row group.
struct Room {
    /// Of pages, as they are stored or as they are decompressed.
    pages: u64,
    /// Of what is decoded of them.
    values: u64,
}

impl Default for Room {
    fn default() -> Self {
        Self { pages: MAX_PAGE_BYTES.into(), values: MAX_PAGE_BYTES.into() }
    }
}

impl Room {
    fn take_page(&mut self, header: &Header) -> Result<()> {
        let left = self.pages.checked_sub(header.stored.max(header.decoded).into());
        self.pages = left.ok_or("more than 256 MiB of pages in a row group")?;
        Ok(())
    }

    fn take_values(&mut self, values: &Values) -> Result<()> {
        let left = self.values.checked_sub(values.bytes.len() as u64);
        self.values = left.ok_or("more than 256 MiB of values in a row group")?;
        Ok(())
    }
}

/// The tree that begins with a leaf, and is shown as JSON: below structures that are directories.
pub(super) fn find(nodes: &[Node], leaf: usize) -> Option<&Node> {
    let node = nodes.iter().find(|node| node.leaves().contains(&leaf))?;
    match &node.kind {
        Kind::Struct(fields) => find(fields, leaf),
        _ => Some(node),
    }
}

impl Cursor<'_> {
    /// The levels of the next value.
    fn levels(&self) -> Option<(u32, u32)> {
        if self.next >= self.count {
            return None;
        }
        let repetition =
            if self.leaf.repetition == 0 { 0 } else { *self.repetition.get(self.next)? };
        let definition =
            if self.leaf.definition == 0 { 0 } else { *self.definition.get(self.next)? };
        Some((repetition, definition))
    }

    /// Goes on behind the next value, which is not there.
    fn pass(&mut self) {
        self.next = self.next.saturating_add(1);
    }

    /// The next value; `None`: it is null.
    fn take(&mut self) -> Result<Option<&[u8]>> {
        let (_, definition) = self.levels().ok_or(ENDS_EARLY)?;
        self.pass();
        if definition < self.leaf.definition {
            return Ok(None);
        }
        while self.pages.get(self.page).is_some_and(|page| self.value >= page.len()) {
            (self.page, self.value) = (self.page.saturating_add(1), 0);
        }
        let value = self.value;
        self.value = value.saturating_add(1);
        let found = self.pages.get(self.page).and_then(|page| page.get(value));
        found.map(Some).ok_or_else(|| ENDS_EARLY.to_owned())
    }
}

const ENDS_EARLY: &str = "a column with fewer values than its row group has rows";

struct Writer<'a, 'b> {
    cursors: &'a mut [Cursor<'b>],
    /// The leaf that the first cursor is of.
    first: usize,
    out: &'a mut Vec<u8>,
}

impl<'b> Writer<'_, 'b> {
    fn cursor(&mut self, leaf: usize) -> Result<&mut Cursor<'b>> {
        let place = leaf.saturating_sub(self.first);
        self.cursors.get_mut(place).ok_or_else(|| ENDS_EARLY.to_owned())
    }

    fn levels(&mut self, node: &Node) -> Result<(u32, u32)> {
        let leaf = node.leaves().start;
        self.cursor(leaf)?.levels().ok_or_else(|| ENDS_EARLY.to_owned())
    }

    /// Writes a tree, unless it is not there.
    fn node(&mut self, node: &Node) -> Result<()> {
        if self.out.len() > MAX_PAGE_BYTES as usize {
            return Err("more than 256 MiB of JSON in a row group".to_owned());
        }
        if let Kind::Leaf(leaf) = node.kind {
            return self.leaf(leaf);
        }
        let (_, definition) = self.levels(node)?;
        if definition < node.present {
            self.out.extend_from_slice(b"null");
            return self.pass(node);
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
                // A name is text; other keys are pairs of a list.
                let is_text = self.is_text(key);
                let around: &[u8; 2] = if is_text { b"{}" } else { b"[]" };
                self.items(node, (*there, *level), around, &mut |writer| {
                    if !is_text {
                        writer.out.push(b'[');
                    }
                    writer.node(key)?;
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

    fn is_text(&mut self, key: &Node) -> bool {
        match key.kind {
            Kind::Leaf(leaf) => {
                self.cursor(leaf).is_ok_and(|cursor| cursor.leaf.meaning == Meaning::Text)
            }
            _ => false,
        }
    }

    fn items(
        &mut self,
        node: &Node,
        (there, level): (u32, u32),
        around: &[u8; 2],
        each: &mut dyn FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let [open, close] = around;
        self.out.push(*open);
        let (_, definition) = self.levels(node)?;
        if definition < there {
            self.out.push(*close);
            return self.pass(node);
        }
        loop {
            each(self)?;
            let leaf = node.leaves().start;
            let next = self.cursor(leaf)?.levels();
            if next.is_none_or(|(repetition, _)| repetition != level) {
                break;
            }
            self.out.push(b',');
        }
        self.out.push(*close);
        Ok(())
    }

    /// Passes over the next value of all leaves of a tree that is not there.
    fn pass(&mut self, node: &Node) -> Result<()> {
        for leaf in node.leaves() {
            let cursor = self.cursor(leaf)?;
            cursor.levels().ok_or(ENDS_EARLY)?;
            cursor.pass();
        }
        Ok(())
    }

    fn leaf(&mut self, leaf: usize) -> Result<()> {
        let place = leaf.saturating_sub(self.first);
        let cursor = self.cursors.get_mut(place).ok_or(ENDS_EARLY)?;
        let (meaning, physical, is_utc) =
            (cursor.leaf.meaning, cursor.leaf.physical, cursor.leaf.is_utc);
        match cursor.take()? {
            None => self.out.extend_from_slice(b"null"),
            Some(value) => write_value(self.out, value, meaning, physical, is_utc),
        }
        Ok(())
    }

    fn text(&mut self, text: &[u8]) {
        write_text(self.out, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_leaves_share_the_room_for_their_pages() {
        let header = |stored, decoded| Header {
            kind: PageKind::Data,
            stored,
            decoded,
            crc32: None,
            values: 1,
            encoding: 0,
            levels: [3; 2],
        };
        let mut room = Room::default();
        room.take_page(&header(1, MAX_PAGE_BYTES / 2)).unwrap();
        room.take_page(&header(MAX_PAGE_BYTES / 2, 1)).unwrap();
        assert!(room.take_page(&header(1, 0)).is_err());
    }
}
