//! Writes Syrah: the keys that the first item has. The metadata stand behind the data, and the header is written last.

use super::{DTYPES, HEAD_BYTES, MAGIC};
use crate::format::npy::Array;
use crate::format::write::{Field, Gather, RecordWriter, in_order, invalid};
use crate::format::{Holds, MemberWriter, NewMember, Outline, Output, WriteFormat};
use std::io::{self, Seek, SeekFrom, Write};

/// Bytes of the offset and the size of an array.
const EXTENT_BYTES: u64 = 16;
/// The version that the package writes: 0.0.2.0.
const VERSION: [u8; 4] = [0, 0, 2, 0];
/// The type of a file that is neither text nor an array of at most one dimension: that of bytes.
const BYTES: &str = "uint8";
const TEXT: &str = "str";

/// Writes Syrah.
#[derive(Debug)]
pub struct WriteSyrah;

impl WriteFormat for WriteSyrah {
    fn name(&self) -> &'static str {
        super::NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["syr"]
    }

    fn holds(&self) -> Holds {
        Holds::FIELDS
    }

    fn member_bytes(&self, member: &NewMember) -> u64 {
        member.data_bytes().saturating_add(EXTENT_BYTES)
    }

    fn begin<'a>(
        &self,
        mut out: Box<dyn Output + 'a>,
        outline: &Outline,
    ) -> io::Result<Box<dyn MemberWriter + 'a>> {
        out.write_all(&[0; HEAD_BYTES as usize])?;
        let items = Items { out, keys: Vec::new(), end: HEAD_BYTES };
        Ok(Box::new(Gather::new(items, outline.grouping)))
    }
}

struct Items<'a> {
    out: Box<dyn Output + 'a>,
    keys: Vec<Key>,
    /// The end of the data.
    end: u64,
}

/// A key, with the offsets and sizes of its arrays.
struct Key {
    name: String,
    dtype: &'static str,
    offsets: Vec<u8>,
    sizes: Vec<u8>,
}

impl Key {
    fn of(field: &Field) -> Self {
        let dtype = match vector(field) {
            Some((dtype, _)) => dtype,
            None if matches!(field.ending, ".txt" | ".json") => TEXT,
            None => BYTES,
        };
        let name = field.name.to_owned();
        Self { name, dtype, offsets: Vec::new(), sizes: Vec::new() }
    }

    /// The bytes to store of a file; `None` if it is not of the key's type.
    fn stored<'a>(&self, field: &Field<'a>) -> Option<&'a [u8]> {
        match (vector(field), self.dtype) {
            (Some((dtype, array)), _) if dtype == self.dtype => Some(array.elements),
            (_, BYTES) => Some(field.bytes),
            (None, TEXT) => std::str::from_utf8(field.bytes).is_ok().then_some(field.bytes),
            _ => None,
        }
    }
}

/// The array of a field and its type, if the format can hold the array: it keeps no shape.
fn vector<'a>(field: &Field<'a>) -> Option<(&'static str, Array<'a>)> {
    let array = field.array().filter(|array| array.shape.len() <= 1)?;
    let dtype = DTYPES.iter().find(|(_, descr)| *descr == array.descr)?;
    Some((dtype.0, array))
}

impl RecordWriter for Items<'_> {
    fn record(&mut self, fields: &[Field]) -> io::Result<()> {
        if self.keys.is_empty() {
            self.keys = fields.iter().map(Key::of).collect();
        }
        let fields = in_order(fields, self.keys.iter().map(|key| key.name.as_str()))?;
        for (field, key) in fields.into_iter().zip(&mut self.keys) {
            let stored = key.stored(field).ok_or_else(|| {
                field.invalid(format_args!("it is no {}, as the first sample's is", key.dtype))
            })?;
            self.out.write_all(stored)?;
            key.offsets.extend_from_slice(&self.end.to_le_bytes());
            key.sizes.extend_from_slice(&(stored.len() as u64).to_le_bytes());
            self.end = self.end.saturating_add(stored.len() as u64);
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        let mut entries = Vec::new();
        for key in &self.keys {
            let dtype = [key.dtype.as_bytes(), b"\0"].concat();
            let inner = [
                element(0x05, "offset", &binary(&key.offsets)?),
                element(0x05, "size", &binary(&key.sizes)?),
                element(0x02, "dtype", &[&length(dtype.len())?[..], &dtype].concat()),
            ];
            entries.extend(element(0x03, &key.name, &document(&inner.concat())?));
        }
        let metadata = document(&entries)?;
        self.out.write_all(&metadata)?;
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&MAGIC)?;
        self.out.write_all(&VERSION)?;
        self.out.write_all(&self.end.to_le_bytes())?;
        self.out.write_all(&(metadata.len() as u64).to_le_bytes())?;
        self.out.flush()
    }
}

/// An element of a BSON document.
fn element(kind: u8, name: &str, value: &[u8]) -> Vec<u8> {
    [&[kind][..], name.as_bytes(), b"\0", value].concat()
}

fn document(elements: &[u8]) -> io::Result<Vec<u8>> {
    Ok([&length(elements.len().saturating_add(5))?[..], elements, b"\0"].concat())
}

fn binary(bytes: &[u8]) -> io::Result<Vec<u8>> {
    Ok([&length(bytes.len())?[..], b"\0", bytes].concat())
}

fn length(bytes: usize) -> io::Result<[u8; 4]> {
    let length = i32::try_from(bytes);
    length.map(i32::to_le_bytes).map_err(|_| invalid("more than 2 GiB of metadata (--shards N)"))
}
