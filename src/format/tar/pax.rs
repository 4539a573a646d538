//! Extended headers of pax: records of `LENGTH KEY=VALUE\n` that override values of the next header (`x`), or of
//! all further ones (`g`).

/// The most entries of a sparse file's map.
pub(super) const MAX_MAP_ENTRIES: usize = 1 << 20;

/// The values of records. `Some(None)` is an empty value: earlier values are void.
#[derive(Debug, Clone, Default)]
pub(super) struct Pax {
    pub(super) path: Option<Option<Vec<u8>>>,
    pub(super) link_path: Option<Option<Vec<u8>>>,
    pub(super) size: Option<Option<u64>>,
    pub(super) modified: Option<Option<(i64, u32)>>,
    /// Whether names are in no known character set.
    pub(super) is_binary: Option<bool>,
    pub(super) sparse: Sparse,
}

/// Records of sparse files: GNU's, star's and Solaris'.
#[derive(Debug, Clone, Default)]
pub(super) struct Sparse {
    /// Whether the map stands before the data, as in version 1.0.
    pub(super) is_map_in_data: bool,
    pub(super) name: Option<Vec<u8>>,
    pub(super) real_size: Option<u64>,
    /// Version 0: offset and length of each piece.
    pub(super) pieces: Option<Vec<(u64, u64)>>,
    /// Solaris: the offsets where data and holes begin by turns, and last that of the end; the holes are stored.
    pub(super) holes: Option<Vec<u64>>,
    /// Whether the value of a record is invalid.
    pub(super) is_damaged: bool,
    offset: Option<u64>,
}

/// An invalid record: the offset where it begins, and its fault.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadRecord {
    pub(super) at: usize,
    pub(super) why: &'static str,
}

impl Pax {
    /// Takes all records of a header.
    pub(super) fn read(&mut self, text: &[u8]) -> Result<(), BadRecord> {
        let mut rest = text;
        // Some writers fill up with NULs.
        while rest.first().is_some_and(|first| *first != 0) {
            let bad = |why| BadRecord { at: text.len().wrapping_sub(rest.len()), why };
            let (record, behind) = split_record(rest).map_err(bad)?;
            self.record(record).map_err(bad)?;
            rest = behind;
        }
        Ok(())
    }

    fn record(&mut self, record: &[u8]) -> Result<(), &'static str> {
        let equals =
            record.iter().position(|byte| *byte == b'=').ok_or("a record without an `=`")?;
        let (key, value) = record.split_at(equals);
        let value = value.get(1..).unwrap_or_default();
        let text = || (!value.is_empty()).then(|| value.to_vec());
        match key {
            b"path" => self.path = Some(text()),
            b"linkpath" => self.link_path = Some(text()),
            b"size" => {
                let size = |value| number(value).ok_or("a size that is not a number");
                self.size = Some((!value.is_empty()).then_some(value).map(size).transpose()?);
            }
            b"mtime" => self.modified = Some(time(value)),
            b"hdrcharset" => self.is_binary = Some(value == b"BINARY"),
            _ => self.sparse.record(key, value),
        }
        Ok(())
    }

    /// The values for a member: those of its own header, else those of the global one.
    pub(super) fn over(self, global: &Self) -> Self {
        Self {
            path: self.path.or_else(|| global.path.clone()),
            link_path: self.link_path.or_else(|| global.link_path.clone()),
            size: self.size.or(global.size),
            modified: self.modified.or(global.modified),
            is_binary: self.is_binary.or(global.is_binary),
            sparse: self.sparse,
        }
    }
}

impl Sparse {
    fn record(&mut self, key: &[u8], value: &[u8]) {
        match key {
            b"GNU.sparse.major" => self.is_map_in_data = value == b"1",
            b"GNU.sparse.name" => self.name = Some(value.to_vec()),
            b"GNU.sparse.size" | b"GNU.sparse.realsize" | b"SCHILY.realsize" => {
                self.real_size = self.checked(number(value));
            }
            b"GNU.sparse.numblocks" => {
                self.pieces.get_or_insert_default();
            }
            b"GNU.sparse.offset" => self.offset = self.checked(number(value)),
            b"GNU.sparse.numbytes" => {
                let piece = self.offset.take().zip(number(value));
                let pieces = self.pieces.get_or_insert_default();
                match piece.filter(|_| pieces.len() < MAX_MAP_ENTRIES) {
                    Some(piece) => pieces.push(piece),
                    None => self.is_damaged = true,
                }
            }
            b"GNU.sparse.map" => {
                let numbers = self.checked(list(value, b',')).unwrap_or_default();
                let (pairs, odd) = numbers.as_chunks::<2>();
                self.is_damaged |= !odd.is_empty();
                self.pieces = Some(pairs.iter().map(|[at, length]| (*at, *length)).collect());
            }
            // Nothing is lost if the list is invalid: the holes are stored, too.
            b"SUN.holesdata" => self.holes = list(value.trim_ascii(), b' '),
            _ => {}
        }
    }

    fn checked<T>(&mut self, value: Option<T>) -> Option<T> {
        self.is_damaged |= value.is_none();
        value
    }
}

/// The first record without its length and its end, and the text that follows the record.
fn split_record(text: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    let blank = text.iter().take(20).position(|byte| *byte == b' ');
    let blank = blank.ok_or("a record without its length")?;
    let length = text.get(..blank).and_then(number).ok_or("a record without its length")?;
    let length = usize::try_from(length).map_err(|_| "a record that is too long")?;
    let start = blank.saturating_add(1);
    let (record, rest) = text.split_at_checked(length).ok_or("a record that is too long")?;
    let record = record.get(start..).ok_or("a record that is too short")?;
    match record.split_last() {
        Some((b'\n', record)) => Ok((record, rest)),
        // Some writers forget the end of the last record.
        Some(_) if rest.is_empty() => Ok((record, rest)),
        _ => Err("a record without its end"),
    }
}

/// Decimal digits.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    for digit in text {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Numbers that are separated by `between`.
fn list(text: &[u8], between: u8) -> Option<Vec<u64>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let most = MAX_MAP_ENTRIES.saturating_mul(2);
    let numbers = text.split(|byte| *byte == between);
    // The first number beyond the limit counts as invalid, and the list with it.
    let limited = numbers.enumerate().map(|(at, text)| number(text).filter(|_| at < most));
    limited.collect()
}

/// Seconds with any number of decimals → seconds, rounded down, and nanoseconds.
fn time(text: &[u8]) -> Option<(i64, u32)> {
    let (is_negative, text) = match text.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let mut halves = text.splitn(2, |byte| *byte == b'.');
    let seconds = i64::try_from(number(halves.next()?)?).ok()?;
    let decimals = halves.next().unwrap_or_default();
    let mut nanoseconds: u32 = 0;
    for place in 0..9 {
        let digit = match decimals.get(place) {
            Some(digit) => digit.checked_sub(b'0').filter(|digit| *digit < 10)?,
            None => 0,
        };
        nanoseconds = nanoseconds.checked_mul(10)?.checked_add(u32::from(digit))?;
    }
    Some(match (is_negative, nanoseconds) {
        (false, _) => (seconds, nanoseconds),
        (true, 0) => (seconds.checked_neg()?, 0),
        (true, _) => {
            (seconds.checked_neg()?.checked_sub(1)?, 1_000_000_000u32.checked_sub(nanoseconds)?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<Pax, BadRecord> {
        let mut pax = Pax::default();
        pax.read(text).map(|()| pax)
    }

    #[test]
    fn records_give_names_sizes_and_times() {
        let pax =
            read(b"10 path=a\n12 size=123\n17 mtime=-1.5000\n21 hdrcharset=BINARY\n").unwrap();
        assert_eq!(pax.path, Some(Some(b"a".to_vec())));
        assert_eq!(pax.size, Some(Some(123)));
        assert_eq!(pax.modified, Some(Some((-2, 500_000_000))));
        assert_eq!(pax.is_binary, Some(true));
    }

    #[test]
    fn a_value_may_hold_line_ends_and_equals_signs() {
        assert_eq!(read(b"14 path=a\n=b\n\n").unwrap().path, Some(Some(b"a\n=b\n".to_vec())));
    }

    #[test]
    fn times_round_down_and_have_nanoseconds() {
        assert_eq!(time(b"12.0000000019"), Some((12, 1)));
        assert_eq!(time(b"-3"), Some((-3, 0)));
        assert_eq!(time(b"-0.25"), Some((-1, 750_000_000)));
        assert_eq!(time(b"1."), Some((1, 0)));
        assert_eq!(time(b""), None);
        assert_eq!(time(b"99999999999999999999"), None);
    }

    #[test]
    fn a_last_record_without_its_end_is_read() {
        assert!(read(b"4 x=").is_ok());
        assert!(read(b"10 path=a\n\0\0\0").is_ok());
    }

    #[test]
    fn records_that_are_none_are_refused_where_they_begin() {
        for (text, at) in [
            (&b"10 path=a\n99 path=b\n"[..], 10),
            (b"x path=a\n", 0),
            (b"8 path=a\n8 path=b\n", 0),
            (b"2 path=a\n", 0),
            (b"0 \n", 0),
            (b"7 path\n", 0),
            (b"12 size=-19\n", 0),
        ] {
            assert_eq!(read(text).unwrap_err().at, at, "{text:?}");
        }
    }

    #[test]
    fn an_empty_value_voids_what_was_said_for_all() {
        let (own, all) = (read(b"8 path=\n").unwrap(), read(b"10 path=a\n").unwrap());
        assert_eq!(own.over(&all).path, Some(None));
    }
}
