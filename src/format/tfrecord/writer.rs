//! Writes TFRecord: a sample of several files is a `tf.Example`, a sample that is one file is the record itself.

use crate::format::write::{Field, Gather, RecordWriter};
use crate::format::{
    ChecksumKind, Holds, MemberWriter, NewMember, Outline, Output, WriteFormat, npy,
};
use std::io;

/// Bytes around a record, and the most bytes of a feature besides its name and its value.
const RECORD_BYTES: u64 = 16;
const FEATURE_BYTES: u64 = 40;

/// Writes TFRecord.
#[derive(Debug)]
pub struct WriteTfRecord;

impl WriteFormat for WriteTfRecord {
    fn name(&self) -> &'static str {
        super::NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["tfrecord", "tfrecords", "tfrec"]
    }

    fn holds(&self) -> Holds {
        Holds::FIELDS
    }

    fn member_bytes(&self, member: &NewMember) -> u64 {
        let around = RECORD_BYTES.saturating_add(FEATURE_BYTES);
        member.data_bytes().saturating_add(around).saturating_add(member.path.len() as u64)
    }

    fn begin<'a>(
        &self,
        out: Box<dyn Output + 'a>,
        outline: &Outline,
    ) -> io::Result<Box<dyn MemberWriter + 'a>> {
        Ok(Box::new(Gather::new(Records { out, example: Vec::new() }, outline.grouping)))
    }
}

struct Records<'a> {
    out: Box<dyn Output + 'a>,
    example: Vec<u8>,
}

impl Records<'_> {
    fn put(&mut self, data: &[u8]) -> io::Result<()> {
        let length = (data.len() as u64).to_le_bytes();
        let checksum = |bytes: &[u8]| ChecksumKind::MaskedCrc32c.of(bytes).value().to_le_bytes();
        self.out.write_all(&length)?;
        self.out.write_all(&checksum(&length))?;
        self.out.write_all(data)?;
        self.out.write_all(&checksum(data))
    }
}

impl RecordWriter for Records<'_> {
    fn record(&mut self, fields: &[Field]) -> io::Result<()> {
        let mut features = Vec::new();
        let mut fields = fields.to_vec();
        sort_lists(&mut fields);
        let mut rest = &fields[..];
        while let Some((first, behind)) = rest.split_first() {
            let several = numbered(rest);
            let (name, list, used) = match several {
                0 => (first.name, value(first), 1),
                _ => {
                    let values =
                        rest.iter().take(several).flat_map(|field| message(1, field.bytes));
                    let list = message(1, &values.collect::<Vec<_>>());
                    (first.name.strip_suffix("/0").unwrap_or(first.name), list, several)
                }
            };
            let entry = [message(1, name.as_bytes()), message(2, &list)].concat();
            features.extend(message(1, &entry));
            rest = rest.get(used..).unwrap_or(behind);
        }
        self.example.clear();
        let mut example = std::mem::take(&mut self.example);
        example.extend(message(1, &features));
        let written = self.put(&example);
        self.example = example;
        written
    }

    fn file(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.put(bytes)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Sorts the values of each list by their numbers: a directory sorts them as text, `words/10` before `words/2`.
fn sort_lists(fields: &mut [Field]) {
    let number = |field: &Field| place(field.name).map(|(_, number)| number);
    fields
        .chunk_by_mut(|a, b| {
            let (a, b) = (place(a.name), place(b.name));
            a.zip(b).is_some_and(|((a, _), (b, _))| a == b)
        })
        .for_each(|list| list.sort_by_key(number));
}

/// The list of which a field of this name is a value, and the value's number there.
fn place(name: &str) -> Option<(&str, u64)> {
    let (list, number) = name.rsplit_once('/')?;
    let is_number = number == "0" || !number.starts_with(['0', '+']);
    Some((list, number.parse().ok().filter(|_| is_number)?))
}

/// The number of fields, from the first on, that are the values of one list: `words/0`, `words/1` …; 0 if fewer than two.
fn numbered(fields: &[Field]) -> usize {
    let Some(stem) = fields.first().and_then(|field| field.name.strip_suffix("/0")) else {
        return 0;
    };
    let is_value = |(number, field): &(usize, &Field)| {
        let place = field.name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('/'));
        place == Some(number.to_string().as_str()) && numbers(field).is_none()
    };
    let count = fields.iter().enumerate().take_while(is_value).count();
    if count > 1 { count } else { 0 }
}

/// Encodes the list of one feature: of numbers if the field is such an array, else of its bytes.
fn value(field: &Field) -> Vec<u8> {
    numbers(field).unwrap_or_else(|| message(1, &message(1, field.bytes)))
}

/// Encodes the list of floats or integers of a field that is a number, or a vector of float32 or int64.
fn numbers(field: &Field) -> Option<Vec<u8>> {
    let npy::Array { descr, shape, elements } = field.array()?;
    let is_number = shape.is_empty();
    if !is_number && shape.len() > 1 {
        return None;
    }
    let integers = |values: &mut dyn Iterator<Item = i64>| {
        let mut packed = Vec::new();
        values.for_each(|value| varint(value.cast_unsigned(), &mut packed));
        Some(message(3, &message(1, &packed)))
    };
    match descr.as_str() {
        "<f4" => Some(message(2, &message(1, elements))),
        "<i8" => integers(&mut chunks(elements).map(i64::from_le_bytes)),
        "<i4" if is_number => integers(&mut chunks(elements).map(|v| i32::from_le_bytes(v).into())),
        "<u4" if is_number => integers(&mut chunks(elements).map(|v| u32::from_le_bytes(v).into())),
        "<i2" if is_number => integers(&mut chunks(elements).map(|v| i16::from_le_bytes(v).into())),
        "<u2" if is_number => integers(&mut chunks(elements).map(|v| u16::from_le_bytes(v).into())),
        "|i1" if is_number => integers(&mut chunks(elements).map(|v| i8::from_le_bytes(v).into())),
        "|u1" | "|b1" if is_number => {
            integers(&mut chunks(elements).map(|v| u8::from_le_bytes(v).into()))
        }
        _ => None,
    }
}

fn chunks<const N: usize>(elements: &[u8]) -> impl Iterator<Item = [u8; N]> {
    elements.as_chunks::<N>().0.iter().copied()
}

/// Encodes a field of a message whose value is bytes.
fn message(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len().saturating_add(11));
    out.push(number << 3 | 2);
    varint(bytes.len() as u64, &mut out);
    out.extend_from_slice(bytes);
    out
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
