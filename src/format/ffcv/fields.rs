//! The fields of an FFCV file: their descriptors, and their places in a metadata record.
//!
//! ```text
//! u8 type | 16 bytes name | 1024 bytes arguments        an array's arguments: u64 shape[32] | u64 n | n bytes JSON
//! ```

use super::super::name::FieldNames;
use super::super::reader::Reader;
use super::super::{View, npy, quoted};
use super::Result;

/// Bytes of a descriptor.
pub(super) const FIELD_BYTES: u64 = 1041;
const ARGUMENTS_AT: usize = 17;
const DIMENSIONS: usize = 32;
const RGB_BYTES: u64 = 13;

/// A field of every sample.
pub(super) struct Field {
    pub(super) kind: Kind,
    /// The offset of the field in a metadata record.
    pub(super) at: u64,
    /// The header before the stored bytes, if it is the same for every sample.
    pub(super) header: Vec<u8>,
    /// The names that its file may have; those of an image by [`Image`].
    pub(super) names: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// 8 bytes, in the metadata themselves.
    Scalar,
    /// Packed: u8 mode, u16 width, u16 height, u64 ptr.
    Rgb,
    /// Packed: u64 ptr, u64 size.
    Bytes,
    /// As `Bytes`; the last stored byte is a NUL.
    Json,
    /// u64 ptr, to this number of bytes.
    Array(u64),
}

/// How an image is stored, which selects one of the field's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Image {
    Jpeg = 0,
    Raw = 1,
    Unknown = 2,
}

impl Kind {
    /// Size in a metadata record, in bytes.
    pub(super) fn bytes(self) -> usize {
        usize::try_from(self.layout().0).unwrap_or_default()
    }

    /// Alignment in a metadata record.
    pub(super) fn alignment(self) -> usize {
        usize::try_from(self.layout().1).unwrap_or(1)
    }

    /// Size and alignment in a metadata record.
    fn layout(self) -> (u64, u64) {
        match self {
            Kind::Scalar | Kind::Array(_) => (8, 8),
            Kind::Rgb => (RGB_BYTES, 1),
            Kind::Bytes | Kind::Json => (16, 1),
        }
    }
}

/// Whether `start` can be the beginning of a descriptor as the package writes it.
pub(super) fn is_plausible(start: &[u8; ARGUMENTS_AT]) -> bool {
    let [kind, name @ ..] = start;
    let text = trim(name);
    matches!(kind, 0..=6 | 255)
        && !text.is_empty()
        && text.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

/// A name without the NULs that fill it up.
fn trim(name: &[u8]) -> &[u8] {
    let end = name.iter().rposition(|&byte| byte != 0).map_or(0, |last| last.saturating_add(1));
    name.get(..end).unwrap_or_default()
}

/// Reads the descriptors of `count` fields; also returns the size of a metadata record.
pub(super) fn read(
    reader: Reader<'_>,
    start: u64,
    count: u16,
    view: View,
) -> Result<(Vec<Field>, u64)> {
    let mut fields = Vec::with_capacity(usize::from(count));
    let mut names = FieldNames::default();
    let (mut end, mut widest) = (0u64, 1u64);
    for number in 0..u64::from(count) {
        let at = start.saturating_add(number.saturating_mul(FIELD_BYTES));
        let bytes: [u8; FIELD_BYTES as usize] = reader.bytes("a field's description", at)?;
        let mut field = field(reader, at, &bytes, view, &mut names)?;
        let (size, alignment) = field.kind.layout();
        field.at = end.next_multiple_of(alignment);
        end = field.at.saturating_add(size);
        widest = widest.max(alignment);
        fields.push(field);
    }
    Ok((fields, end.next_multiple_of(widest)))
}

fn field(
    reader: Reader<'_>,
    at: u64,
    bytes: &[u8],
    view: View,
    names: &mut FieldNames,
) -> Result<Field> {
    let (start, arguments) = bytes.split_at_checked(ARGUMENTS_AT).unwrap_or_default();
    let (code, name) = start.split_first().unwrap_or((&255, &[]));
    let name = trim(name);
    let mut header = Vec::new();
    let kind = match code {
        0 | 1 => {
            header = npy::header(if *code == 0 { "<f8" } else { "<i8" }, &[]);
            Kind::Scalar
        }
        2 => Kind::Rgb,
        3 => Kind::Bytes,
        5 => Kind::Json,
        4 | 6 => {
            let Some((descr, shape, bytes)) = array(arguments) else {
                let arguments_at = at.saturating_add(ARGUMENTS_AT as u64);
                let found = format!("other arguments of {}", quoted(name));
                let expected = "the shape and the plain type of an array";
                return Err(reader.malformed(arguments_at, expected, found, ""));
            };
            header = npy::header(&descr, &shape);
            Kind::Array(bytes)
        }
        _ => {
            let custom = if *code == 255 { " (custom)" } else { "" };
            let found = format!("type {code}{custom} of {}", quoted(name));
            return Err(reader.malformed(at, "a field of a type of FFCV's own, 0 to 6", found, ""));
        }
    };
    let endings: &[&str] = match (kind, view) {
        (_, View::Raw) => {
            header.clear();
            &[""]
        }
        (Kind::Scalar | Kind::Array(_), _) => &[".npy"],
        (Kind::Rgb, View::Npy) => &[".jpg", ".npy", ".bin"],
        (Kind::Rgb, View::Typed) => &[".jpg", ".ppm", ".bin"],
        (Kind::Bytes, _) => &[".bin"],
        (Kind::Json, _) => &[".json"],
    };
    Ok(Field { kind, at: 0, header, names: names.take(name, endings) })
}

/// The type, shape and size in bytes that an array's arguments give.
fn array(arguments: &[u8]) -> Option<(String, Vec<u64>, u64)> {
    let (numbers, text) = arguments.split_at_checked(DIMENSIONS.saturating_mul(8))?;
    let (length, text) = text.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let descr: Vec<(String, String)> = serde_json::from_slice(text.get(..length)?).ok()?;
    let [(name, descr)] = <[_; 1]>::try_from(descr).ok()?;
    if !name.is_empty() {
        return None;
    }
    let numbers = numbers.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number));
    let mut shape: Vec<u64> = numbers.collect();
    // As the package reads it: the shape ends where the zeros begin that fill up the list.
    while shape.last() == Some(&0) {
        shape.pop();
    }
    let item_bytes = npy::item_bytes(&descr)?;
    // Without the zeros: a product that overflows is not a size, also if a further 0 would make it one.
    let bytes = shape
        .iter()
        .filter(|length| **length != 0)
        .try_fold(item_bytes, |bytes, length| bytes.checked_mul(*length))?;
    Some((descr, shape.clone(), if shape.contains(&0) { 0 } else { bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn arguments(shape: &[u64], json: &str) -> Vec<u8> {
        let mut bytes: Vec<u8> = shape.iter().flat_map(|length| length.to_le_bytes()).collect();
        bytes.resize(256, 0);
        bytes.extend_from_slice(&(json.len() as u64).to_le_bytes());
        bytes.extend_from_slice(json.as_bytes());
        bytes.resize(1024, 0);
        bytes
    }

    #[test]
    fn arguments_give_the_type_and_the_shape_of_an_array() {
        for (shape, json, expected) in [
            (&[3, 5][..], r#"[["", "<f4"]]"#, Some(("<f4", &[3, 5][..], 60))),
            (&[], r#"[["", "|u1"]]"#, Some(("|u1", &[], 1))),
            (&[2, 0, 3], r#"[["", "<U5"]]"#, Some(("<U5", &[2, 0, 3], 0))),
            (&[1 << 40, 1 << 40], r#"[["", "<f4"]]"#, None),
            (&[3], r#"[["", "|O"]]"#, None),
            (&[3], r#"[["x", "<f4"]]"#, None),
            (&[3], r#"[["", "<f4"], ["", "<f4"]]"#, None),
            (&[3], r#"[["", "<f4", [2]]]"#, None),
            (&[3], "[[", None),
        ] {
            let expected =
                expected.map(|(descr, shape, bytes)| (descr.to_owned(), shape.to_vec(), bytes));
            assert_eq!(array(&arguments(shape, json)), expected, "{json}");
        }
        let mut long = arguments(&[3], "");
        long[256..264].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(array(&long), None);
    }

    /// Offsets and strides that NumPy gives for these fields.
    #[test]
    fn records_are_laid_out_as_numpy_lays_them_out() {
        for (kinds, expected, stride) in [
            (&[2, 1][..], &[0, 16][..], 24),
            (&[2, 3], &[0, 13], 29),
            (&[3, 1], &[0, 16], 24),
            (&[2, 2, 0], &[0, 13, 32], 40),
            (&[5], &[0], 16),
        ] {
            let mut file = Vec::new();
            for kind in kinds {
                file.push(*kind);
                file.extend_from_slice(&[b'x'; 16]);
                file.extend_from_slice(&[0; 1024]);
            }
            let source = crate::format::MemorySource::new("t", file);
            let reader = Reader::new(&source, "t");
            let (fields, bytes) = read(reader, 0, kinds.len() as u16, View::Typed).unwrap();
            let places: Vec<_> = fields.iter().map(|field| field.at).collect();
            assert_eq!((places.as_slice(), bytes), (expected, stride), "{kinds:?}");
        }
    }
}
