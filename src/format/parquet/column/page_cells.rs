//! The cells of the values of a column's page, and the unit that they are decoded in.
//!
//! Imports the same modules as its parent.

use super::{Column, Decoded, Dictionary, Loaded};
use crate::format::Fault;
use crate::format::parquet::cells::{Cells, Look, room_for};
use crate::format::parquet::codecs;
use crate::format::parquet::dictionaries::NO_DICTIONARY;
use crate::format::parquet::page::{self, Header, Page};
use crate::format::parquet::schema::Physical;
use crate::format::parquet::units::{self, Unit};
use crate::format::parquet::values::{self, Values};

impl Column<'_> {
    pub(super) fn dictionary(
        &mut self,
        header: Header,
        stored: &[u8],
        (body, at, body_at): (&[u8], u64, u64),
    ) -> Decoded<()> {
        self.budget.take(&header)?;
        let (leaf, codec) = (self.place.leaf, self.place.chunk.codec);
        let head = body_at.saturating_sub(at);
        let (mut cells, mut kept) = (Cells::Damaged(0), Vec::new());
        if header.codec(codec) == codecs::UNCOMPRESSED && header.decoded != header.stored {
            let why = format!("{} stored bytes, not {}", header.stored, header.decoded);
            return Err(why.into());
        }
        let count = header.values as usize;
        if self.look == Look::Element {
            kept = stored.to_vec();
        } else {
            let page = Page::open(header, body, leaf, codec)?;
            let unit = self.unit(units::Kind::Raw, (at, &header, head), page.bytes.len())?;
            cells = match leaf.is_plain() {
                true => self.plain(&page, count, (unit, body_at))?,
                false => {
                    let values = values::decode(leaf, 0, &page.bytes, count, None)?;
                    self.decoded(&values, Unit { kind: units::Kind::Dictionary, ..unit })?
                }
            };
        }
        let held = self.budget.hold(cells.held_bytes().saturating_add(kept.len() as u64))?;
        self.dictionary = Some(Dictionary { cells, count, _held: held, page: kept, kept: None });
        Ok(())
    }

    /// Finds the values of a page.
    pub(super) fn data(
        &mut self,
        header: Header,
        (body, at, body_at): (&[u8], u64, u64),
    ) -> Decoded<()> {
        self.budget.take(&header)?;
        let (leaf, codec) = (self.place.leaf, self.place.chunk.codec);
        let head = body_at.saturating_sub(at);
        let page = Page::open(header, body, leaf, codec)?;
        let count = page.present(leaf);
        let is_dictionary = values::is_dictionary(header.encoding);
        let cells = if count == 0 {
            // Only nulls: writers leave out the dictionary, and the bytes before the values.
            Cells::Damaged(0)
        } else if self.look == Look::Element {
            self.elements(&page, count, (at, head))?
        } else if is_dictionary {
            let numbers = values::numbers(page.values(), count)?;
            let dictionary = self.dictionary.as_ref().ok_or_else(|| self.no_dictionary())?;
            if numbers.iter().any(|number| *number as usize >= dictionary.count) {
                return Err("a number beyond its dictionary".into());
            }
            Cells::Numbers(numbers)
        } else if values::is_plain(header.encoding) && leaf.is_plain() {
            let unit = self.unit(units::Kind::Raw, (at, &header, head), page.bytes.len())?;
            self.plain(&page, count, (unit, body_at))?
        } else {
            let values = values::decode(leaf, header.encoding, page.values(), count, None)?;
            let unit = self.unit(units::Kind::Values, (at, &header, head), values.bytes.len())?;
            self.decoded(&values, unit)?
        };
        let levels = page.repetition.len().saturating_add(page.definition.len()) as u64;
        let held = self.budget.hold(cells.held_bytes().saturating_add(levels))?;
        self.page = Loaded {
            count: header.values as usize,
            cells,
            most: leaf.definition,
            repetition: page.repetition,
            definition: page.definition,
            _held: Some(held),
        };
        Ok(())
    }

    /// Returns the cells of decoded values, which get a unit of their own.
    fn decoded(&mut self, values: &Values, unit: Unit) -> Decoded<Cells> {
        let decoded_bytes = u32::try_from(values.bytes.len());
        let decoded_bytes = decoded_bytes.map_err(|_| "values of more than 256 MiB".to_owned())?;
        let cells = match (self.look, self.place.leaf.width()) {
            (Look::Number, Some(width)) => Cells::Rows { address: unit.decoded, width },
            _ => Cells::Listed(self.look.cells_of(values, unit.decoded)?),
        };
        self.add_unit(Unit { decoded_bytes, ..unit });
        Ok(cells)
    }

    /// Returns the cells of elements of arrays, which lie one behind the other in the decoded chunk.
    fn elements(&mut self, page: &Page, count: usize, (at, head): (u64, u64)) -> Decoded<Cells> {
        let width = self.place.leaf.width().ok_or("elements of different lengths")?;
        let all = count.saturating_mul(width as usize);
        let mut unit = self.unit(units::Kind::Values, (at, &page.header, head), all)?;
        if values::is_dictionary(page.header.encoding) {
            let none = self.no_dictionary();
            let dictionary = self.dictionary.as_mut().ok_or(none)?;
            unit.dictionary = *dictionary.kept.get_or_insert_with(|| {
                self.budget.keep_dictionary(std::mem::take(&mut dictionary.page))
            });
        }
        self.add_unit(unit);
        Ok(Cells::Rows { address: unit.decoded, width })
    }

    /// The fault of values that need a missing dictionary: that of the dictionary, if it cannot be read.
    fn no_dictionary(&self) -> Fault {
        self.lost.clone().unwrap_or_else(|| "there is no dictionary".into())
    }

    /// Makes the unit of a page that decodes to `decoded` bytes.
    fn unit(
        &self,
        kind: units::Kind,
        (at, header, head): (u64, &Header, u64),
        decoded: usize,
    ) -> Decoded<Unit> {
        let decoded_bytes = u32::try_from(decoded).ok().filter(|b| *b <= page::MAX_PAGE_BYTES);
        let stored_bytes = head.saturating_add(header.stored.into());
        Ok(Unit {
            decoded: self.address,
            decoded_bytes: decoded_bytes.ok_or("values of more than 256 MiB")?,
            stored: at,
            stored_bytes: u32::try_from(stored_bytes).unwrap_or(u32::MAX),
            kind,
            has_checksum: header.crc32.is_some(),
            is_indexed: false,
            column: self.place.column,
            group: self.place.group,
            dictionary: NO_DICTIONARY,
        })
    }

    pub(super) fn add_unit(&mut self, unit: Unit) {
        if unit.decoded_bytes == 0 || self.look == Look::Path {
            return;
        }
        let end = unit.decoded.saturating_add(unit.decoded_bytes.into());
        if end.saturating_sub(self.place.slot) <= units::SLOT_BYTES {
            self.address = end;
            self.budget.units.borrow_mut().push(unit);
        }
    }

    /// Returns the cells of values that are shown as they are stored: in place, if the page is not compressed and has no
    /// checksum.
    fn plain(&mut self, page: &Page, count: usize, (unit, body_at): (Unit, u64)) -> Decoded<Cells> {
        let header = &page.header;
        let codec = header.codec(self.place.chunk.codec);
        let is_in_place = codec == codecs::UNCOMPRESSED && header.crc32.is_none();
        let base = match is_in_place {
            true => body_at.saturating_add(header.levels().into()),
            false => unit.decoded,
        };
        let base = base.saturating_add(page.values_at as u64);
        let values = page.values();
        let value = |start: u32, length: u32| {
            let found = values.get(start as usize..).and_then(|rest| rest.get(..length as usize));
            self.look.cell(base.saturating_add(start.into()), found.unwrap_or_default())
        };
        let width = self.place.leaf.width().unwrap_or(1);
        if self.place.leaf.physical != Physical::Bytes
            && count.saturating_mul(width as usize) > values.len()
        {
            return Err("its values end early".into());
        }
        let cells = match (self.place.leaf.physical, self.look) {
            (Physical::Bytes, _) => {
                room_for(count)?;
                let mut cells = Vec::with_capacity(count.min(values.len() / 4));
                values::plain_places(values, count, |start, length| {
                    cells.push(value(start, length));
                    Ok(())
                })?;
                Cells::Listed(cells)
            }
            (_, Look::Number) => Cells::Rows { address: base, width },
            _ => {
                room_for(count)?;
                let at = |number| u32::try_from(number).unwrap_or(u32::MAX).saturating_mul(width);
                Cells::Listed((0..count).map(|number| value(at(number), width)).collect())
            }
        };
        if !is_in_place {
            self.add_unit(unit);
        }
        Ok(cells)
    }
}
