//! The page index: the offsets of the pages of a chunk and the rows that they hold, without reading the pages.
//!
//! ```text
//! OffsetIndex   1: pages { 1: i64 byte | 2: i32 length with the header | 3: i64 first row }
//! ColumnIndex   5: i64 null counts of the pages
//! ```
//! An index that does not agree with its chunk is not used. Imports the footer, pages, the schema and Thrift.

use super::super::Result;
use super::super::reader::Reader;
use super::footer::Chunk;
use super::page::{Header, Kind, MAX_PAGE_BYTES, MAX_VALUES};
use super::schema::Leaf;
use super::thrift::{I32, I64, LIST, STRUCT, Thrift, Wrong};

/// The longest index that is read.
const MAX_INDEX_BYTES: u32 = 16 << 20;
/// The longest dictionary that is kept in memory: with a longer one, the pages are read.
const MAX_DICTIONARY_BYTES: u64 = 64 << 10;
/// The shortest page: a header alone is longer.
const MIN_PAGE_BYTES: u32 = 8;
/// The fewest bytes of the place of a page, whose three numbers take no less: shorter ones would take many times their length
/// in memory.
const MIN_PLACE_BYTES: usize = 7;
/// Bytes of a page that are read to find its header.
const HEADER_BYTES: u64 = 16 << 10;

/// A page of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Indexed {
    pub(super) at: u64,
    pub(super) length: u32,
    pub(super) rows: u32,
    first_row: u64,
}

/// The pages of a chunk, and their common properties.
#[derive(Debug)]
pub(super) struct PageIndex {
    pub(super) pages: std::vec::IntoIter<Indexed>,
    pub(super) has_checksum: bool,
    /// The stored page of the dictionary.
    pub(super) dictionary: Option<Vec<u8>>,
}

/// Reads the index of a chunk with one value a row and no nulls. `None` if the chunk has no index that can be used.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read(reader: Reader<'_>, chunk: &Chunk, leaf: &Leaf) -> Result<Option<PageIndex>> {
    let Some(bytes) = part(reader, chunk.offset_index)? else { return Ok(None) };
    let Ok(pages) = places(&bytes) else { return Ok(None) };
    let Some(pages) = checked(pages, chunk, leaf) else { return Ok(None) };
    if leaf.definition > 0 {
        let Some(bytes) = part(reader, chunk.column_index)? else { return Ok(None) };
        if null_counts(&bytes) != Ok((pages.len(), true)) {
            return Ok(None);
        }
    }
    let Some(first) = pages.first().copied() else { return Ok(None) };
    let Some(header) = header(reader, first.at, first.length.into())? else { return Ok(None) };
    let is_data = matches!(header.kind, Kind::Data | Kind::DataV2 { .. });
    if !is_data || header.values != first.rows {
        return Ok(None);
    }
    let mut dictionary = None;
    let length = first.at.saturating_sub(chunk.at);
    if length > 0 {
        let found = dictionary_page(reader, chunk.at, length)?;
        let Some(bytes) = found else { return Ok(None) };
        dictionary = Some(bytes);
    }
    let has_checksum = header.crc32.is_some();
    Ok(Some(PageIndex { pages: pages.into_iter(), has_checksum, dictionary }))
}

/// Reads the bytes of an index, if the footer gives a possible place for it.
fn part(reader: Reader<'_>, (at, length): (u64, u32)) -> Result<Option<Vec<u8>>> {
    let is_within = at.checked_add(length.into()).is_some_and(|end| end <= reader.len());
    if length == 0 || length > MAX_INDEX_BYTES || !is_within {
        return Ok(None);
    }
    let mut bytes = vec![0; length as usize];
    reader.read("the page index", &mut bytes, at)?;
    Ok(Some(bytes))
}

/// Reads the header of a page, if the page has this length.
fn header(reader: Reader<'_>, at: u64, length: u64) -> Result<Option<Header>> {
    let mut bytes = vec![0; usize::try_from(length.min(HEADER_BYTES)).unwrap_or(0)];
    reader.read("the header of a page", &mut bytes, at)?;
    let found = Header::read(&bytes).ok();
    let whole = |(header, head): &(Header, usize)| {
        (*head as u64).saturating_add(header.stored.into()) == length && header.too_long().is_none()
    };
    Ok(found.filter(whole).map(|(header, _)| header))
}

/// Reads the page at `at`, if it is a dictionary and short.
fn dictionary_page(reader: Reader<'_>, at: u64, length: u64) -> Result<Option<Vec<u8>>> {
    if length > MAX_DICTIONARY_BYTES {
        return Ok(None);
    }
    let Some(header) = header(reader, at, length)? else { return Ok(None) };
    if header.kind != Kind::Dictionary {
        return Ok(None);
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    reader.read("a dictionary", &mut bytes, at)?;
    Ok(Some(bytes))
}

/// Gives the pages their numbers of rows, if they are those of a chunk, one behind the other.
fn checked(mut pages: Vec<Indexed>, chunk: &Chunk, leaf: &Leaf) -> Option<Vec<Indexed>> {
    let ends = pages.iter().skip(1).map(|page| page.first_row);
    let ends: Vec<u64> = ends.chain([chunk.values]).collect();
    let width = u64::from(leaf.width()?);
    let (mut at, mut row) = (pages.first()?.at, 0);
    if at < chunk.at {
        return None;
    }
    for (page, end) in pages.iter_mut().zip(ends) {
        let rows = end.checked_sub(page.first_row)?;
        let is_page = page.at == at && page.first_row == row && page.length >= MIN_PAGE_BYTES;
        let bytes = rows.saturating_mul(width).max(page.length.into());
        let fits = rows <= MAX_VALUES.into() && bytes <= MAX_PAGE_BYTES.into();
        if !is_page || !fits || rows == 0 {
            return None;
        }
        page.rows = u32::try_from(rows).ok()?;
        (at, row) = (at.checked_add(page.length.into())?, end);
    }
    (at == chunk.at.saturating_add(chunk.length)).then_some(pages)
}

type Read<T> = std::result::Result<T, Wrong>;

fn places(bytes: &[u8]) -> Read<Vec<Indexed>> {
    let mut pages = Vec::new();
    Thrift::new(bytes).structure(&mut |id, kind, thrift| match (id, kind) {
        (1, LIST) => thrift.list(&mut |kind, thrift| {
            let (mut page, before) = (Indexed::default(), thrift.taken());
            if kind != STRUCT {
                return Err(thrift.wrong("the place of a page"));
            }
            thrift.structure(&mut |id, kind, thrift| {
                match (id, kind) {
                    (1, I64) => page.at = thrift.size()?,
                    (2, I32) => page.length = u32::try_from(thrift.size()?).unwrap_or(u32::MAX),
                    (3, I64) => page.first_row = thrift.size()?,
                    _ => thrift.skip(kind)?,
                }
                Ok(())
            })?;
            if thrift.taken().saturating_sub(before) < MIN_PLACE_BYTES {
                return Err(thrift.wrong("a place of 7 bytes or more"));
            }
            pages.push(page);
            Ok(())
        }),
        (_, kind) => thrift.skip(kind),
    })?;
    Ok(pages)
}

/// The number of pages whose nulls are counted, and whether all counts are 0.
fn null_counts(bytes: &[u8]) -> Read<(usize, bool)> {
    let (mut pages, mut has_none) = (0_usize, true);
    Thrift::new(bytes).structure(&mut |id, kind, thrift| match (id, kind) {
        (5, LIST) => thrift.list(&mut |kind, thrift| {
            if kind != I64 {
                return Err(thrift.wrong("a count of nulls"));
            }
            pages = pages.saturating_add(1);
            has_none &= thrift.number()? == 0;
            Ok(())
        }),
        (_, kind) => thrift.skip(kind),
    })?;
    Ok((pages, has_none))
}

#[cfg(test)]
mod tests {
    use super::super::footer::Element;
    use super::super::schema::Schema;
    use super::*;

    fn found(pages: &[(u64, u32, u64)]) -> Option<Vec<u32>> {
        let root = Element { children: 1, ..Element::default() };
        let leaf = Element { physical: Some(1), ..Element::default() };
        let schema = Schema::new(&[root, leaf]).unwrap();
        let mut chunk = Chunk::default();
        (chunk.at, chunk.length, chunk.values) = (4, 100, 10);
        let page = |&(at, length, first_row)| Indexed { at, length, rows: 0, first_row };
        let pages = checked(pages.iter().map(page).collect(), &chunk, &schema.leaves[0])?;
        Some(pages.iter().map(|page| page.rows).collect())
    }

    #[test]
    fn pages_that_are_not_those_of_the_chunk_are_not_used() {
        assert_eq!(found(&[(4, 60, 0), (64, 40, 7)]), Some(vec![7, 3]));
        // Behind a dictionary.
        assert_eq!(found(&[(24, 40, 0), (64, 40, 7)]), Some(vec![7, 3]));
        for pages in [
            &[][..],
            &[(3, 61, 0), (64, 40, 7)],
            &[(4, 60, 0), (65, 39, 7)],
            &[(4, 60, 0), (64, 41, 7)],
            &[(4, 60, 0), (64, 40, 0)],
            &[(4, 60, 1), (64, 40, 7)],
            &[(4, 60, 0), (64, 40, 10)],
            &[(4, 60, 0), (64, 40, u64::MAX)],
            &[(4, 100, 0), (104, 0, 7)],
            &[(4, 97, 0), (101, 3, 7)],
            &[(u64::MAX, 100, 0)],
        ] {
            assert_eq!(found(pages), None, "{pages:?}");
        }
    }

    #[test]
    fn places_that_are_too_short_for_their_numbers_are_none() {
        let index = |place: &[u8]| [&[0x19, 0x2c][..], &place.repeat(2), &[0]].concat();
        assert_eq!(places(&index(&[0x16, 8, 0x15, 8, 0x16, 0, 0])).unwrap().len(), 2);
        assert!(places(&index(&[0x16, 8, 0x35, 8, 0])).is_err());
        let counts = |counts: &[u8]| [&[0x59, 0x26][..], counts, &[0]].concat();
        assert_eq!(null_counts(&counts(&[0, 0])), Ok((2, true)));
        assert_eq!(null_counts(&counts(&[0, 2])), Ok((2, false)));
    }
}
