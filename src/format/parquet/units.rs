//! Units, the intervals of a file: a page is one; so is a dictionary, and some rows of a column of lists and structures, as
//! JSON.
//!
//! Their decoded bytes lie in one space of addresses behind the file's own bytes: in a slot for each chunk of a leaf, and for
//! the JSON of each column of a row group. The slots of a column stand side by side, in the order of the row groups. An address
//! below the file's length is a byte of the file.
//!
//! Imports pages, values, dictionaries and JSON of this directory.

use super::dictionaries::{self, Dictionaries, NO_DICTIONARY};
use super::footer::Footer;
use super::json::{self, JsonPart};
use super::page::{self, Header, Page};
use super::schema::{Leaf, Schema};
use super::{codecs, values};
use crate::format::stream::{Interval, Intervals, Order};
use crate::format::{Fault, counted};
use std::ops::Range;

/// The addresses for the decoded bytes of a chunk.
pub(super) const SLOT_BYTES: u64 = 1 << 40;
/// The most slots of a file: all addresses are numbers of 63 bits.
pub(super) const MAX_SLOTS: u64 = 1 << 22;
/// Bytes of a unit in a kept index.
pub(super) const UNIT_BYTES: usize = 40;

/// How a unit is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The decompressed page, without levels that stand beside its compressed part.
    Raw,
    /// The values of a data page, as they are shown.
    Values,
    /// The values of a dictionary, as they are shown.
    Dictionary,
    /// The JSON of some rows of a column.
    Json,
    /// Names of labels, which stand in the footer.
    Labels,
}

const KINDS: [Kind; 5] = [Kind::Raw, Kind::Values, Kind::Dictionary, Kind::Json, Kind::Labels];

/// An interval: stored bytes that are decoded at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    /// The address of its decoded bytes.
    pub(super) decoded: u64,
    pub(super) decoded_bytes: u32,
    /// The offset of its stored bytes; a page begins with its header.
    pub(super) stored: u64,
    pub(super) stored_bytes: u32,
    pub(super) kind: Kind,
    pub(super) has_checksum: bool,
    /// Whether the unit is from the page index: the page's header was not read.
    pub(super) is_indexed: bool,
    /// The number of the leaf; of JSON, of the column's first leaf; of labels, of the field.
    pub(super) column: u32,
    pub(super) group: u32,
    /// The number of the dictionary of its values; of JSON, of its [`JsonPart`].
    pub(super) dictionary: u32,
}

impl Unit {
    fn range(&self) -> Range<u64> {
        self.decoded..self.decoded.saturating_add(self.decoded_bytes.into())
    }

    /// The class and the column of its slots, in the order of the addresses.
    fn slots(&self) -> (u8, u32) {
        let class = match self.kind {
            Kind::Raw | Kind::Values | Kind::Dictionary => 0,
            Kind::Json => 1,
            Kind::Labels => 2,
        };
        (class, self.column)
    }

    pub(super) fn pack(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.decoded.to_le_bytes());
        out.extend_from_slice(&self.stored.to_le_bytes());
        let numbers = [self.decoded_bytes, self.stored_bytes, self.column, self.group];
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        out.extend_from_slice(&self.dictionary.to_le_bytes());
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(0);
        out.extend_from_slice(&[
            kind as u8,
            u8::from(self.has_checksum),
            u8::from(self.is_indexed),
            0,
        ]);
    }

    /// Reads a unit that [`Unit::pack`] wrote.
    pub(super) fn unpack(bytes: &[u8; UNIT_BYTES]) -> Option<Self> {
        let u32_at = |at| crate::format::bytes::u32_at(bytes, at);
        let u64_at = |at| crate::format::bytes::u64_at(bytes, at);
        Some(Self {
            decoded: u64_at(0)?,
            stored: u64_at(8)?,
            decoded_bytes: u32_at(16)?,
            stored_bytes: u32_at(20)?,
            column: u32_at(24)?,
            group: u32_at(28)?,
            dictionary: u32_at(32)?,
            kind: KINDS.get(usize::from(*bytes.get(36)?)).copied()?,
            has_checksum: *bytes.get(37)? != 0,
            is_indexed: *bytes.get(38)? != 0,
        })
    }
}

/// All units of a file, in the order of their addresses.
#[derive(Debug, Default)]
pub(super) struct Units {
    pub(super) footer: Footer,
    pub(super) schema: Schema,
    /// Names of labels, by the number of their field.
    pub(super) labels: Vec<Vec<Vec<u8>>>,
    pub(super) units: Vec<Unit>,
    /// The decoded bytes of all units before each unit.
    pub(super) starts: Vec<u64>,
    /// The dictionaries that several units need.
    pub(super) dictionaries: Dictionaries,
    /// The rows of units of JSON.
    pub(super) parts: Vec<JsonPart>,
}

impl Units {
    /// Takes the units, in any order.
    pub(super) fn set(&mut self, mut units: Vec<Unit>) {
        units.sort_unstable_by_key(|unit| unit.decoded);
        units.shrink_to_fit();
        let start = |at: &mut u64, unit: &Unit| {
            let start = *at;
            *at = at.saturating_add(unit.decoded_bytes.into());
            Some(start)
        };
        self.starts = units.iter().scan(0, start).collect();
        self.units = units;
    }

    fn number_at(&self, address: u64) -> Option<usize> {
        let behind = self.units.partition_point(|unit| unit.decoded <= address);
        behind.checked_sub(1)
    }

    fn unit_at(&self, address: u64) -> Option<&Unit> {
        self.units.get(self.number_at(address)?).filter(|unit| unit.range().contains(&address))
    }

    /// Whether all units of a range carry checksums.
    pub(super) fn are_checked(&self, range: Range<u64>) -> bool {
        let (first, last) =
            (self.number_at(range.start), self.number_at(range.end.saturating_sub(1)));
        let Some((first, last)) = first.zip(last) else { return false };
        let units = self.units.get(first..=last).unwrap_or_default();
        !units.is_empty() && units.iter().all(|unit| unit.has_checksum)
    }

    fn leaf(&self, unit: &Unit) -> Result<(&Leaf, i32), String> {
        let group = self.footer.groups.get(unit.group as usize);
        let chunk = group.and_then(|group| group.chunks.get(unit.column as usize));
        let leaf = self.schema.leaves.get(unit.column as usize);
        let (leaf, chunk) = leaf.zip(chunk).ok_or("a column that is not in the footer")?;
        Ok((leaf, chunk.codec))
    }

    fn fill(&self, unit: &Unit, stored: &[u8], out: &mut [u8]) -> Result<(), Fault> {
        let made = match unit.kind {
            Kind::Raw => {
                let (header, body) = Header::split(stored)?;
                let (_, codec) = self.leaf(unit)?;
                page::check(&header, body)?;
                let (_, compressed, decoded) = page::split(&header, body)?;
                if decoded as usize != out.len() {
                    return Err(format!(
                        "a page of {}, not {}",
                        counted(decoded, "byte"),
                        out.len()
                    )
                    .into());
                }
                return Ok(codecs::decode(header.codec(codec), compressed, out)?);
            }
            Kind::Values => {
                let (leaf, codec) = self.leaf(unit)?;
                let (header, body) = Header::split(stored)?;
                if unit.has_checksum && header.crc32.is_none() {
                    return Err("a page without a checksum, in a chunk of pages with one".into());
                }
                let page = Page::open(header, body, leaf, codec)?;
                let (count, encoding) = (page.present(leaf), header.encoding);
                let is_data = header.is_data();
                let rows = leaf.width().and_then(|width| unit.decoded_bytes.checked_div(width));
                let agrees =
                    is_data && header.values as usize == count && rows == Some(header.values);
                if unit.is_indexed && !agrees {
                    return Err(format!(
                        "{}, other than the page index says",
                        counted(count, "value")
                    )
                    .into());
                }
                let dictionary = match unit.dictionary {
                    NO_DICTIONARY => None,
                    number => Some(self.dictionaries.get(number, leaf, codec)?),
                };
                let dictionary = dictionary.as_deref();
                values::decode(leaf, encoding, page.values(), count, dictionary)?.bytes
            }
            Kind::Dictionary => {
                let (leaf, codec) = self.leaf(unit)?;
                dictionaries::decode(stored, leaf, codec)?.bytes
            }
            Kind::Json => {
                let group = self.footer.groups.get(unit.group as usize);
                let group = group.ok_or("a row group that is not in the footer")?;
                let part = self.parts.get(unit.dictionary as usize);
                let part = part.ok_or("rows that are not in the index")?;
                let kept = |number, leaf: &Leaf, codec| self.dictionaries.get(number, leaf, codec);
                let (schema, column) = (&self.schema, unit.column as usize);
                let source = json::Source { schema, group, column, kept: &kept };
                source.text(part, (unit.stored, stored), out.len())?
            }
            Kind::Labels => {
                let names = self.labels.get(unit.column as usize);
                names.map_or(Vec::new(), |names| names.concat())
            }
        };
        match made.len() == out.len() {
            true => out.copy_from_slice(&made),
            false => {
                return Err(format!("{}, not {}", counted(made.len(), "byte"), out.len()).into());
            }
        }
        Ok(())
    }
}

impl Intervals for Units {
    fn interval(&self, decoded_offset: u64) -> Option<Interval> {
        self.unit_at(decoded_offset)?;
        self.nth(self.number_at(decoded_offset)? as u64)
    }

    fn nth(&self, number: u64) -> Option<Interval> {
        let unit = self.units.get(usize::try_from(number).ok()?)?;
        let end = unit.stored.saturating_add(unit.stored_bytes.into());
        Some(Interval { number, stored: unit.stored..end, decoded: unit.range(), crc32: 0 })
    }

    fn order(&self, number: u64) -> Option<Order> {
        let number = usize::try_from(number).ok()?;
        let (unit, start) = self.units.get(number).zip(self.starts.get(number))?;
        // The units of a column stand together, in the order of the row groups.
        let behind = self.units.partition_point(|other| other.slots() <= unit.slots());
        Some(Order { start: *start, last: behind.checked_sub(1)? as u64 })
    }

    fn decode(&self, number: u64, stored: &[u8], out: &mut [u8]) -> Result<(), Fault> {
        let unit = usize::try_from(number).ok().and_then(|number| self.units.get(number));
        let unit = unit.ok_or_else(|| format!("there is no interval {number}"))?;
        if stored.len() != unit.stored_bytes as usize || out.len() != unit.decoded_bytes as usize {
            return Err(format!("interval {number} has other lengths").into());
        }
        let decoded = self.fill(unit, stored, out);
        decoded.map_err(|fault| fault.within(&format!("the page at byte {}", unit.stored)))
    }
}
