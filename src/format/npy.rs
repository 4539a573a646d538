//! The header of NumPy's `.npy` files, byte for byte as `numpy.save` writes it.
//!
//! ```text
//! "\x93NUMPY" | u8 1 | u8 0 | u16 length | text, padded with spaces, newline        version 1.0
//! "\x93NUMPY" | u8 2 | u8 0 | u32 length | text, padded with spaces, newline        if that is too short
//!             u8 3                                                                 if names need UTF-8
//! ```
//!
//! The array begins at a multiple of 64 bytes. (numpy/lib/format.py, NumPy 1.23 to 2.4.)

const MAGIC: &[u8] = b"\x93NUMPY";
const ALIGN_BYTES: usize = 64;
/// The digits of the dimension along which an array grows, for which NumPy leaves room.
const FIRST_DIGITS: usize = 21;

/// The header of an array in C order. `descr` is the type of the elements as NumPy writes it, such as `<f4`; it holds no
/// character that Python would escape.
pub(super) fn header(descr: &str, shape: &[u64]) -> Vec<u8> {
    ordered_header(&format!("'{descr}'"), shape, "False")
}

/// As [`header`]; `descr` is as Python writes it: a string in its quotes, or a list of fields.
pub(super) fn literal_header(descr: &str, shape: &[u64]) -> Vec<u8> {
    ordered_header(descr, shape, "False")
}

/// As [`header`], for an array in Fortran's order.
pub(super) fn fortran_header(descr: &str, shape: &[u64]) -> Vec<u8> {
    ordered_header(&format!("'{descr}'"), shape, "True")
}

fn ordered_header(descr: &str, shape: &[u64], is_fortran: &str) -> Vec<u8> {
    let dimensions: Vec<_> = shape.iter().map(u64::to_string).collect();
    // NumPy leaves room in the dimension along which an array grows.
    let growing = if is_fortran == "True" { dimensions.last() } else { dimensions.first() };
    let spare = growing.map_or(0, |first| FIRST_DIGITS.saturating_sub(first.len()));
    let comma = if dimensions.len() == 1 { "," } else { "" };
    let text = format!(
        "{{'descr': {descr}, 'fortran_order': {is_fortran}, 'shape': ({}{comma}), }}{:spare$}",
        dimensions.join(", "),
        "",
    );
    let (padded_bytes, padding) = padded(&text, 2);
    let (version, length, padding) = match u16::try_from(padded_bytes) {
        Ok(length) if text.is_ascii() => (1, length.to_le_bytes().to_vec(), padding),
        _ => {
            let (padded_bytes, padding) = padded(&text, 4);
            let length = u32::try_from(padded_bytes).unwrap_or(u32::MAX);
            (if text.is_ascii() { 2 } else { 3 }, length.to_le_bytes().to_vec(), padding)
        }
    };
    let spaces = vec![b' '; padding];
    [MAGIC, &[version, 0], &length, text.as_bytes(), &spaces, b"\n"].concat()
}

/// The length of the padded text, and the number of spaces that pad it: 1 to 64, as NumPy has it.
fn padded(text: &str, length_bytes: usize) -> (usize, usize) {
    let with_newline = text.len().saturating_add(1);
    let before = MAGIC.len().saturating_add(2).saturating_add(length_bytes);
    let over = before.saturating_add(with_newline) & ALIGN_BYTES.saturating_sub(1);
    let padding = ALIGN_BYTES.saturating_sub(over);
    (with_newline.saturating_add(padding), padding)
}

/// The size of an element of type `descr`, in bytes. `None` if it is no plain type, which a `.npy` file can hold without
/// pickles.
pub(super) fn item_bytes(descr: &str) -> Option<u64> {
    let rest = descr.strip_prefix(['<', '>', '|'])?;
    let kind = rest.chars().next()?;
    let rest = rest.strip_prefix(kind)?;
    let (digits, unit) = rest.split_at(rest.find('[').unwrap_or(rest.len()));
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || (digits.starts_with('0') && digits != "0") {
        return None;
    }
    let size: u64 = digits.parse().ok()?;
    let is_unit = unit.is_empty() || {
        let inner = unit.strip_prefix('[')?.strip_suffix(']')?;
        matches!(kind, 'm' | 'M')
            && !inner.is_empty()
            && inner.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let is_known = match kind {
        'b' => size == 1,
        'i' | 'u' => matches!(size, 1 | 2 | 4 | 8),
        'f' => matches!(size, 2 | 4 | 8 | 16),
        'c' => matches!(size, 8 | 16 | 32),
        'm' | 'M' => size == 8,
        'S' | 'U' | 'V' => true,
        _ => false,
    };
    if !(is_unit && is_known) {
        return None;
    }
    if kind == 'U' { size.checked_mul(4) } else { Some(size) }
}

/// An array of a plain type in C's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Array<'a> {
    pub(super) descr: String,
    pub(super) shape: Vec<u64>,
    /// The bytes of all elements.
    pub(super) elements: &'a [u8],
}

/// The array that a `.npy` file holds. `None` if it is no such file, or its array has another order or no plain type.
pub(super) fn read(file: &[u8]) -> Option<Array<'_>> {
    let (version, rest) = file.strip_prefix(MAGIC)?.split_first_chunk::<2>()?;
    let (length, rest) = match version {
        [1, 0] => {
            let (length, rest) = rest.split_first_chunk()?;
            (u32::from(u16::from_le_bytes(*length)), rest)
        }
        [2 | 3, 0] => {
            let (length, rest) = rest.split_first_chunk()?;
            (u32::from_le_bytes(*length), rest)
        }
        _ => return None,
    };
    let (text, elements) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let text = str::from_utf8(text).ok()?;
    let value = |key: &str| Some(text.split_once(key)?.1.trim_start());
    let descr = value("'descr':")?.strip_prefix('\'')?.split_once('\'')?.0.to_owned();
    value("'fortran_order':")?.strip_prefix("False")?;
    let shape = value("'shape':")?.strip_prefix('(')?.split_once(')')?.0;
    let lengths = shape.split(',').map(str::trim).filter(|length| !length.is_empty());
    let shape = lengths.map(|length| length.parse().ok()).collect::<Option<Vec<u64>>>()?;
    let item = item_bytes(&descr)?;
    let bytes = shape.iter().try_fold(item, |bytes, length| bytes.checked_mul(*length))?;
    (bytes == elements.len() as u64).then_some(Array { descr, shape, elements })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `numpy.save` of NumPy 2.4.6 wrote.
    #[test]
    fn headers_are_those_that_numpy_writes() {
        let line = |text: &str, length: usize| {
            let mut header = b"\x93NUMPY\x01\0".to_vec();
            header.extend_from_slice(&(length as u16 - 10).to_le_bytes());
            header.extend_from_slice(text.as_bytes());
            header.resize(length - 1, b' ');
            header.push(b'\n');
            header
        };
        let ones = ", 1".repeat(20);
        for (descr, shape, text, length) in [
            ("<f8", &[][..], "{'descr': '<f8', 'fortran_order': False, 'shape': (), }", 128),
            ("<f4", &[3], "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", 128),
            (
                "<i2",
                &[2, 3, 4],
                "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3, 4), }",
                128,
            ),
            (
                "|u1",
                &[0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
                &format!("{{'descr': '|u1', 'fortran_order': False, 'shape': (0{ones}), }}"),
                192,
            ),
        ] {
            assert_eq!(header(descr, shape), line(text, length), "{text}");
        }
    }

    #[test]
    fn arrays_come_back_from_their_files() {
        for (descr, shape) in [("<f4", &[2, 3][..]), ("<i8", &[]), ("|u1", &[0]), ("|b1", &[5])] {
            let bytes = shape.iter().product::<u64>() * item_bytes(descr).unwrap();
            let elements = vec![7; bytes as usize];
            let file = [header(descr, shape), elements.clone()].concat();
            let (descr, shape) = (descr.to_owned(), shape.to_vec());
            assert_eq!(read(&file), Some(Array { descr, shape, elements: &elements }));
            assert_eq!(read(&[&file[..], b"x"].concat()), None);
            (0..file.len()).for_each(|length| assert_eq!(read(&file[..length]), None));
        }
        assert_eq!(read(&[fortran_header("<f4", &[1, 1]), vec![0; 4]].concat()), None);
    }

    /// As NumPy 2.4.6 has it: with 13 dimensions of 1 behind the first the header has 128 bytes, with 14 it
    /// has 192, since there is always at least one space.
    #[test]
    fn the_length_changes_where_numpy_changes_it() {
        for ones in 0..32 {
            let shape = [&[0][..], &[1].repeat(ones)].concat();
            assert_eq!(header("|u1", &shape).len(), if ones < 14 { 128 } else { 192 }, "{ones}");
        }
    }

    #[test]
    fn the_length_of_a_vector_does_not_change_the_headers_length() {
        for descr in ["|b1", "<f16"] {
            for count in [0, 9, 10, u64::from(u32::MAX), u64::MAX] {
                assert_eq!(header(descr, &[count]).len(), 128);
            }
        }
    }

    #[test]
    fn a_long_header_is_of_version_2() {
        let header = header("|u1", &[1; 30_000]);
        assert_eq!(&header[..8], b"\x93NUMPY\x02\0");
        let length = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
        assert_eq!(header.len(), 12 + length);
        assert_eq!(header.len() % 64, 0);
        assert!(header.ends_with(b" \n"));
    }

    #[test]
    fn sizes_of_elements_are_those_of_numpy_and_objects_have_none() {
        for (descr, bytes) in [
            ("|b1", 1),
            ("|i1", 1),
            ("<f2", 2),
            (">f4", 4),
            ("<f16", 16),
            ("<c32", 32),
            ("<M8[ns]", 8),
            ("<m8[25us]", 8),
            ("<M8", 8),
            ("<U5", 20),
            ("|S7", 7),
            ("|V0", 0),
        ] {
            assert_eq!(item_bytes(descr), Some(bytes), "{descr}");
        }
        for descr in [
            "",
            "<",
            "f4",
            "<f3",
            "|O",
            "|O8",
            "<i",
            "<f+4",
            "<f04",
            "<f4[ns]",
            "<M8[]",
            "<M8[n's]",
            "<U99999999999999999999",
            "<U9223372036854775807",
            "<é4",
        ] {
            assert_eq!(item_bytes(descr), None, "{descr}");
        }
    }
}
