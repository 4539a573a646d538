//! Maps of sparse files: which pieces of a file are stored.

use super::header::{Dialect, Header, number};
use super::pax;

/// A piece as a map has it: its offset in the file, and its length.
type Entry = (u64, u64);

/// The map in a header of type `S`: GNU's old form, or star's.
#[derive(Debug)]
pub(super) struct OldMap {
    pub(super) entries: Vec<Entry>,
    /// The size of the file; `None` if the field is no number.
    pub(super) real_size: Option<u64>,
    /// Whether a block with more entries follows.
    pub(super) has_more: bool,
    /// Whether an entry is no pair of numbers.
    pub(super) is_damaged: bool,
}

impl OldMap {
    pub(super) fn new(header: Header) -> Self {
        let (entries_at, more_at, size_at) = match header.dialect() {
            Dialect::Star => (356, 355, 452),
            _ => (386, 482, 483),
        };
        let mut map = Self {
            entries: Vec::new(),
            real_size: number(header.field(size_at, 12)).and_then(|size| size.try_into().ok()),
            has_more: false,
            is_damaged: false,
        };
        map.take(header.field(entries_at, 4 * 24), header.field(more_at, 1));
        map
    }

    /// Takes a block of further entries.
    pub(super) fn extend(&mut self, block: &[u8]) {
        let header = Header::new(block);
        self.take(header.field(0, 21 * 24), header.field(504, 1));
    }

    fn take(&mut self, entries: &[u8], more: &[u8]) {
        self.has_more = more.first().is_some_and(|more| !matches!(more, 0 | b'0'));
        for entry in entries.as_chunks::<24>().0 {
            let (at, length) = entry.split_at(12);
            if length.first() == Some(&0) {
                break;
            }
            let value = |field| number(field).and_then(|value| u64::try_from(value).ok());
            match value(at).zip(value(length)) {
                Some(entry) => self.entries.push(entry),
                None => self.is_damaged = true,
            }
        }
    }
}

/// The map that stands before the data (pax 1.0): decimal numbers, a line each; first the number of entries,
/// then offset and length of each. The map is read block by block.
#[derive(Debug, Default)]
pub(super) struct TextMap {
    line: Vec<u8>,
    entries_left: Option<u64>,
    offset: Option<u64>,
    pub(super) entries: Vec<Entry>,
}

/// The longest line that a map may have: a number of 64 bits, or a remark.
const MAX_LINE_BYTES: usize = 80;

impl TextMap {
    /// Takes a block of the map. `Ok(true)`: the map ends in this block.
    pub(super) fn take(&mut self, block: &[u8]) -> Result<bool, ()> {
        for byte in block {
            if *byte != b'\n' {
                self.line.push(*byte);
                if self.line.len() > MAX_LINE_BYTES {
                    return Err(());
                }
                continue;
            }
            if !self.line.starts_with(b"#") {
                self.number(pax::number(&self.line).ok_or(())?);
            }
            self.line.clear();
            if self.entries_left == Some(0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn number(&mut self, value: u64) {
        match (self.entries_left, self.offset.take()) {
            (None, _) => self.entries_left = Some(value),
            (Some(_), None) => self.offset = Some(value),
            (Some(left), Some(offset)) => {
                self.entries.push((offset, value));
                self.entries_left = Some(left.saturating_sub(1));
            }
        }
    }
}

/// The pieces of a map that can be believed: in order, apart, within the file and within the stored bytes. Returns
/// those that are not empty, each with its offset behind the member's first stored byte.
pub(super) fn check(
    entries: &[Entry],
    real_size: u64,
    stored: u64,
) -> Option<Vec<(u64, u64, u64)>> {
    let mut pieces = Vec::new();
    let (mut file_at, mut stored_at) = (0u64, 0u64);
    for &(at, length) in entries {
        let end = at.checked_add(length).filter(|end| *end <= real_size)?;
        if at < file_at {
            return None;
        }
        if length > 0 {
            pieces.push((at, length, stored_at));
        }
        file_at = end;
        stored_at = stored_at.checked_add(length).filter(|end| *end <= stored)?;
    }
    Some(pieces)
}

/// The pieces of Solaris' list of the offsets where data and holes begin by turns. The file is stored whole.
pub(super) fn holes(turns: &[u64], stored: u64) -> Option<Vec<(u64, u64, u64)>> {
    if turns.last() != Some(&stored) || !turns.is_sorted() {
        return None;
    }
    let data = turns.as_chunks::<2>().0.iter();
    let pieces = data.filter_map(|[start, end]| {
        end.checked_sub(*start).filter(|length| *length > 0).map(|length| (*start, length, *start))
    });
    Some(pieces.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_in_order_apart_and_within_file_and_store() {
        assert_eq!(check(&[(0, 4), (8, 0), (10, 2)], 12, 6), Some(vec![(0, 4, 0), (10, 2, 4)]));
        for wrong in
            [&[(0, 4), (3, 1)][..], &[(4, 1), (0, 1)], &[(10, 3)], &[(0, 7)], &[(u64::MAX, 2)]]
        {
            assert_eq!(check(wrong, 12, 6), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_map_in_the_data_is_read_over_block_ends() {
        let mut map = TextMap::default();
        assert_eq!(map.take(b"#!remark\n2\n0\n1"), Ok(false));
        assert_eq!(map.take(b"0\n4096\n5\n\0\0\0"), Ok(true));
        assert_eq!(map.entries, [(0, 10), (4096, 5)]);
        assert_eq!(TextMap::default().take(b"0\n\0"), Ok(true));
        assert_eq!(TextMap::default().take(b"x\n"), Err(()));
        assert_eq!(TextMap::default().take(&[b'1'; 512]), Err(()));
    }

    #[test]
    fn lists_of_holes_give_pieces_in_place() {
        assert_eq!(holes(&[0, 4, 8, 12], 12), Some(vec![(0, 4, 0), (8, 4, 8)]));
        assert_eq!(holes(&[0, 4, 12, 12], 12), Some(vec![(0, 4, 0)]));
        assert_eq!(holes(&[4, 12], 12), Some(vec![(4, 8, 4)]));
        assert_eq!(holes(&[0, 4], 12), None);
        assert_eq!(holes(&[0, 9, 8, 12], 12), None);
    }
}
