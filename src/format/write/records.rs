//! Members → records: formats whose samples have fields get the members of a sample together, each as a field with the
//! ending and the bytes of its file.
//!
//! A record is held in memory until it is whole. Imports `npy`, `ending` and `name` of this room.

use super::{Announced, Grouping, MemberWriter, NewMember, NewNode, invalid};
use crate::format::{ending, npy, quoted};
use std::io;
use std::ops::Range;

/// The most bytes of a record: no larger one is held in memory.
const MAX_RECORD_BYTES: u64 = 1 << 30;
/// The name of the field of a sample that is one file.
pub(in crate::format) const ONLY_FIELD: &str = "data";
/// The name of the field that holds a sample's key, as WebDataset calls it.
const KEY_FIELD: &str = "__key__";

/// A field of a record that is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::format) struct Field<'a> {
    pub(in crate::format) name: &'a str,
    /// The ending of its file with the dot; empty if the file has none.
    pub(in crate::format) ending: &'a str,
    /// The bytes of the file.
    pub(in crate::format) bytes: &'a [u8],
}

impl<'a> Field<'a> {
    /// The array in the file, if the file is a `.npy` of a plain type in C's order.
    pub(in crate::format) fn array(&self) -> Option<npy::Array<'a>> {
        (self.ending == ".npy").then(|| npy::read(self.bytes)).flatten()
    }

    /// Whether the file's name says that it is a JPEG.
    pub(in crate::format) fn is_jpeg(&self) -> bool {
        matches!(self.ending, ".jpg" | ".jpeg")
    }

    /// An error of this field.
    pub(in crate::format) fn invalid(&self, why: impl std::fmt::Display) -> io::Error {
        invalid(&format!("field {}: {why}", quoted(self.name)))
    }
}

/// The fields of a record, in the order of `names`: those of the first record's fields.
///
/// # Errors
/// The record has not the same fields.
pub(in crate::format) fn in_order<'f, 'a, 'n>(
    fields: &'f [Field<'a>],
    names: impl Iterator<Item = &'n str> + Clone,
) -> io::Result<Vec<&'f Field<'a>>> {
    let ordered = names.clone().map(|name| {
        let field = fields.iter().find(|field| field.name == name);
        field.ok_or_else(|| {
            invalid(&format!("there is no field {}, as the first sample has", quoted(name)))
        })
    });
    let ordered = ordered.collect::<io::Result<Vec<_>>>()?;
    let is_new = |field: &&Field| names.clone().all(|name| name != field.name);
    match fields.iter().find(is_new) {
        Some(field) => Err(field.invalid("the first sample has no such field")),
        None => Ok(ordered),
    }
}

/// Writes records, one after the other.
pub(in crate::format) trait RecordWriter {
    /// Adds a record of a field or more. Fields differ in their names.
    ///
    /// # Errors
    /// Writing failed; or the format cannot hold such a record.
    fn record(&mut self, fields: &[Field]) -> io::Result<()>;

    /// Adds a sample that is one file; formats that have no such records write a record of one field.
    ///
    /// # Errors
    /// As [`RecordWriter::record`].
    fn file(&mut self, bytes: &[u8]) -> io::Result<()> {
        // If one sample is an image, all are; a sample may look like a text by chance.
        let ending = ending::named(ending::code_of(bytes));
        let ending = if matches!(ending, ".jpg" | ".png") { ending } else { "" };
        self.record(&[Field { name: ONLY_FIELD, ending, bytes }])
    }

    /// As [`MemberWriter::finish`].
    ///
    /// # Errors
    /// Writing failed; or these are not as many records as were announced.
    fn finish(&mut self) -> io::Result<()>;
}

/// Gathers members, and writes records of them.
pub(in crate::format) struct Gather<W> {
    writer: W,
    grouping: Grouping,
    /// The key of the record, with which the paths of its members begin.
    key: Option<Vec<u8>>,
    files: Vec<File>,
    /// The bytes of the files, one behind the other.
    bytes: Vec<u8>,
    left: Announced,
}

/// A file of the record that is being gathered.
struct File {
    /// The path of the file without the key.
    name: String,
    bytes: Range<usize>,
}

impl<W: RecordWriter> Gather<W> {
    pub(in crate::format) fn new(writer: W, grouping: Grouping) -> Self {
        let (files, bytes) = (Vec::new(), Vec::new());
        Self { writer, grouping, key: None, files, bytes, left: Announced::default() }
    }

    /// Writes the record that was gathered.
    fn end_record(&mut self) -> io::Result<()> {
        self.left.check_done()?;
        let Some(key) = self.key.take() else { return Ok(()) };
        let written = match self.grouping {
            Grouping::Files => self.writer.file(&self.bytes),
            Grouping::Records => {
                fields(&self.files, &self.bytes, None).and_then(|all| self.writer.record(&all))
            }
            Grouping::Keys => fields(&self.files, &self.bytes, Some(&key))
                .and_then(|all| self.writer.record(&all)),
        };
        self.files.clear();
        self.bytes.clear();
        let name = String::from_utf8_lossy(&key);
        written.map_err(|e| match e.kind() {
            io::ErrorKind::InvalidInput => invalid(&format!("sample {name}: {e}")),
            _ => e,
        })
    }
}

/// The fields of a record, in the order of their files.
fn fields<'a>(
    files: &'a [File],
    bytes: &'a [u8],
    key: Option<&'a [u8]>,
) -> io::Result<Vec<Field<'a>>> {
    let split: Vec<_> = files.iter().map(|file| split(&file.name)).collect();
    let mut fields = Vec::with_capacity(split.len().saturating_add(1));
    for (file, (stem, ending)) in files.iter().zip(&split) {
        // Where two files differ only in their endings, their fields keep these.
        let is_alone = split.iter().filter(|(other, _)| other == stem).count() == 1;
        let name = if is_alone { stem } else { file.name.as_str() };
        let bytes = bytes.get(file.bytes.clone()).unwrap_or_default();
        fields.push(Field { name, ending, bytes });
    }
    if let Some(key) = key {
        fields.push(Field { name: KEY_FIELD, ending: ".txt", bytes: key });
    }
    let mut names: Vec<_> = fields.iter().map(|field| field.name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair.first() == pair.last()) {
        Some(pair) => {
            Err(invalid(&format!("two fields are called {}", quoted(pair.first().unwrap_or(&"")))))
        }
        None => Ok(fields),
    }
}

/// The name of a field, and the ending of its file: `image/encoded` and `.jpg`. If the file's name is only an ending, as it
/// is behind a key of WebDataset, the ending is the field's name, too: `jpg` and `.jpg`.
fn split(name: &str) -> (&str, &str) {
    let last = name.rsplit('/').next().unwrap_or(name);
    let dot = last.rfind('.').and_then(|dot| dot.checked_add(name.len().checked_sub(last.len())?));
    match dot.and_then(|dot| name.split_at_checked(dot)) {
        Some(("", ending)) => (ending.get(1..).unwrap_or_default(), ending),
        Some((stem, ending)) if ending::is_known(ending) => {
            (stem.strip_prefix('.').unwrap_or(stem), ending)
        }
        _ if name.is_empty() => (ONLY_FIELD, ""),
        _ => (name, ""),
    }
}

impl<W: RecordWriter> MemberWriter for Gather<W> {
    fn begin(&mut self, member: &NewMember) -> io::Result<()> {
        self.left.check_done()?;
        let size_bytes = match member.node {
            NewNode::File { size_bytes, .. } => size_bytes,
            NewNode::Directory => return Ok(()),
            NewNode::Symlink(_) | NewNode::HardLink(_) => {
                return Err(invalid("records hold no links"));
            }
        };
        let key = self.grouping.key(member.path);
        let is_next = match self.grouping {
            Grouping::Files => true,
            Grouping::Records | Grouping::Keys => self.key.as_deref() != Some(key),
        };
        if is_next {
            self.end_record()?;
            self.key = Some(key.to_vec());
        }
        let start = self.bytes.len();
        if (start as u64).saturating_add(size_bytes) > MAX_RECORD_BYTES {
            return Err(invalid("a record of over 1 GiB"));
        }
        let name = member.path.get(key.len()..).unwrap_or_default();
        let name = name.strip_prefix(b"/").unwrap_or(name);
        self.left.expect(size_bytes)?;
        self.files.push(File {
            name: String::from_utf8_lossy(name).into_owned(),
            bytes: start..start.saturating_add(usize::try_from(size_bytes).unwrap_or(0)),
        });
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.left.take(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.end_record()?;
        self.writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_called_as_its_file_without_the_ending() {
        for (name, expected) in [
            ("image/encoded.jpg", ("image/encoded", ".jpg")),
            ("label.npy", ("label", ".npy")),
            (".jpg", ("jpg", ".jpg")),
            (".seg.png", ("seg", ".png")),
            (".flac", ("flac", ".flac")),
            ("a.b/c", ("a.b/c", "")),
            ("v1.5", ("v1.5", "")),
            ("", ("data", "")),
        ] {
            assert_eq!(split(name), expected, "{name}");
        }
    }
}
