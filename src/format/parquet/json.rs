//! Lists, maps and structures as JSON: a text for each row of a column's chunks in a row group.
//!
//! Imports pages, values and the schema.

use super::footer::Group;
use super::page::{Header, Kind as PageKind, MAX_PAGE_BYTES, Page};
use super::schema::{Kind, Leaf, Meaning, Node, Physical, Schema};
use super::values::{self, Values};
use crate::format::bytes::{u32_at, u64_at};
use std::io::Write;
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
        let cursors = leaves.clone().map(|leaf| self.cursor(leaf, stored));
        let mut cursors = cursors.collect::<Result<Vec<_>>>()?;
        let (mut out, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..self.group.rows {
            let mut writer = Writer { cursors: &mut cursors, first: leaves.start, out: &mut out };
            writer.node(node)?;
            ends.push(u32::try_from(out.len()).unwrap_or(u32::MAX));
        }
        Ok((out, ends))
    }

    fn cursor(&self, number: usize, stored: &[u8]) -> Result<Cursor<'_>> {
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
        let (mut dictionary, mut bytes) = (None, 0_usize);
        while (cursor.count as u64) < chunk.values && !rest.is_empty() {
            let (header, body) = Header::split(rest)?;
            let end = (body.as_ptr() as usize).saturating_sub(rest.as_ptr() as usize);
            let behind = rest.get(end.saturating_add(body.len())..).unwrap_or_default();
            match header.kind {
                PageKind::Other => (),
                PageKind::Dictionary => {
                    let page = Page::open(header, body, leaf, chunk.codec)?;
                    let count = header.values as usize;
                    dictionary = Some(values::decode(leaf, 0, &page.bytes, count, None)?);
                }
                PageKind::Data | PageKind::DataV2 { .. } => {
                    let page = Page::open(header, body, leaf, chunk.codec)?;
                    let (count, encoding) = (page.present(leaf), header.encoding);
                    let found =
                        values::decode(leaf, encoding, page.values(), count, dictionary.as_ref())?;
                    bytes = bytes.saturating_add(found.bytes.len());
                    if bytes > MAX_PAGE_BYTES as usize {
                        return Err("more than 256 MiB of values in a row group".to_owned());
                    }
                    cursor.count = cursor.count.saturating_add(header.values as usize);
                    if cursor.count as u64 > MAX_VALUES {
                        return Err(format!("more than {MAX_VALUES} values in a row group"));
                    }
                    cursor.repetition.extend(page.repetition);
                    cursor.definition.extend(page.definition);
                    cursor.pages.push(found);
                }
            }
            rest = behind;
        }
        Ok(cursor)
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

/// Writing to memory does not fail.
fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    let _ = serde_json::to_writer(out, &String::from_utf8_lossy(text));
}

fn write_value(
    out: &mut Vec<u8>,
    value: &[u8],
    meaning: Meaning,
    physical: Physical,
    is_utc: bool,
) {
    match meaning {
        Meaning::Text | Meaning::Decimal(_) => write_text(out, value),
        Meaning::Bytes => match std::str::from_utf8(value) {
            Ok(_) if physical == Physical::Bytes => write_text(out, value),
            _ => write_text(out, &base64(value)),
        },
        Meaning::Number(descr, _) => write_number(out, value, descr, is_utc),
    }
}

fn write_number(out: &mut Vec<u8>, value: &[u8], descr: &str, is_utc: bool) {
    let unsigned = match value {
        [only] => u64::from(*only),
        [low, high] => u64::from(u16::from_le_bytes([*low, *high])),
        [_, _, _, _] => u32_at(value, 0).unwrap_or(0).into(),
        _ => u64_at(value, 0).unwrap_or(0),
    };
    // The sign, from as many bits as there are.
    let shift = 64_u32.saturating_sub((value.len().min(8) as u32).saturating_mul(8));
    let signed = unsigned.wrapping_shl(shift).cast_signed().wrapping_shr(shift);
    let _ = match descr {
        "|b1" => write!(out, "{}", unsigned != 0),
        "<f4" => serde_json::to_writer(out, &f32::from_bits(unsigned as u32)).map_err(Into::into),
        "<f8" => serde_json::to_writer(out, &f64::from_bits(unsigned)).map_err(Into::into),
        "<f2" => serde_json::to_writer(out, &half(unsigned as u16)).map_err(Into::into),
        _ if descr.starts_with("<M8") => {
            out.push(b'"');
            write_time(out, signed, descr, is_utc);
            out.push(b'"');
            Ok(())
        }
        _ if descr.get(1..2) == Some("u") => write!(out, "{unsigned}"),
        _ => write!(out, "{signed}"),
    };
}

/// A number of 16 bits.
fn half(bits: u16) -> f32 {
    let sign = if bits & 0x8000 != 0 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2_f32.powi(-24),
        31 if fraction > 0.0 => f32::NAN,
        31 => f32::INFINITY,
        exponent => (1.0 + fraction / 1024.0) * 2_f32.powi(exponent.saturating_sub(15)),
    }
}

/// As ISO 8601 has it: `2024-02-29`, `2024-02-29T12:00:00.000001Z`.
fn write_time(out: &mut Vec<u8>, value: i64, descr: &str, is_utc: bool) {
    let (in_second, digits) = match descr {
        "<M8[D]" => (0_i64, 0),
        "<M8[ms]" => (1000, 3),
        "<M8[us]" => (1_000_000, 6),
        _ => (1_000_000_000, 9),
    };
    let in_day = in_second.saturating_mul(86_400);
    let days = if in_day == 0 { value } else { value.div_euclid(in_day) };
    let (year, month, day) = date(days);
    let _ = write!(out, "{year:04}-{month:02}-{day:02}");
    if in_day == 0 {
        return;
    }
    let within = value.rem_euclid(in_day);
    let (second, behind) = (within.div_euclid(in_second), within.rem_euclid(in_second));
    let (hour, minute, second) =
        (second.div_euclid(3600), second.div_euclid(60).rem_euclid(60), second.rem_euclid(60));
    let zone = if is_utc { "Z" } else { "" };
    let _ = write!(out, "T{hour:02}:{minute:02}:{second:02}.{behind:0digits$}{zone}");
}

/// Days since 1970 → year, month, day of the Gregorian calendar.
fn date(days: i64) -> (i64, i64, i64) {
    // Years that begin in March, in eras of 400.
    let days = days.saturating_add(719_468);
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let leap = (day / 1460).saturating_sub(day / 36_524).saturating_add(day / 146_096);
    let year = day.saturating_sub(leap) / 365;
    let before = year.saturating_mul(365).saturating_add(year / 4).saturating_sub(year / 100);
    let day = day.saturating_sub(before);
    let month = day.saturating_mul(5).saturating_add(2) / 153;
    let first = month.saturating_mul(153).saturating_add(2) / 5;
    let is_next = i64::from(month >= 10);
    let year = era.saturating_mul(400).saturating_add(year).saturating_add(is_next);
    let month = month.saturating_add(3).saturating_sub(is_next.saturating_mul(12));
    (year, month, day.saturating_sub(first).saturating_add(1))
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for group in bytes.chunks(3) {
        let all = (0..3)
            .fold(0_u32, |all, place| all << 8 | u32::from(group.get(place).copied().unwrap_or(0)));
        for (place, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let digit = BASE64.get((all.wrapping_shr(shift) & 63) as usize);
            out.push(if place > group.len() { b'=' } else { digit.copied().unwrap_or(b'A') });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(value: i64, descr: &str, is_utc: bool) -> String {
        let mut out = Vec::new();
        write_time(&mut out, value, descr, is_utc);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time(0, "<M8[D]", false), "1970-01-01");
        assert_eq!(time(19_782, "<M8[D]", false), "2024-02-29");
        assert_eq!(time(-1, "<M8[D]", false), "1969-12-31");
        assert_eq!(time(951_868_800_000, "<M8[ms]", true), "2000-03-01T00:00:00.000Z");
        assert_eq!(time(-1, "<M8[us]", false), "1969-12-31T23:59:59.999999");
    }

    #[test]
    fn bytes_that_are_no_text_are_base64() {
        for (bytes, text) in [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v")] {
            assert_eq!(base64(bytes), text.as_bytes());
        }
    }

    #[test]
    fn short_floats_are_numbers() {
        for (bits, number) in
            [(0x3c00, 1.0), (0xc000, -2.0), (1, 5.960_464_5e-8), (0x7c00, f32::INFINITY)]
        {
            assert!((half(bits) - number).abs() < f32::EPSILON || half(bits) == number);
        }
        assert!(half(0x7e00).is_nan());
    }
}
