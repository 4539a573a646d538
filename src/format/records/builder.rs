//! Collects the files of records as a pass finds them. Names are stored once as long as all records have the same files.

use super::file::RecordFile;
use super::reason;
use super::row::{
    HEADER_BLOCK_BYTES, IS_FIRST, IS_OF_ALL, IS_RECORD, LIST_HEADER_BYTES, MAX_FIELDS,
    RecordFormat, Row, Shown,
};
use crate::format::scanned::{self, Headers, TooMany};
use crate::format::{Attributes, Fault, PartName, Piece, Source, npy};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

/// The files, and the bytes of their names, that a container may have whatever its length is.
const FREE_FILES: u64 = 1 << 16;
const FREE_NAME_BYTES: u64 = 16 << 20;
/// The further bytes of names for each byte of the container.
const NAME_BYTES_A_BYTE: u64 = 4;
/// The most damaged files with a reason; further ones have none, so that the headers of other files have room.
const MAX_REASONS: u32 = 1 << 18;

/// The files of one record.
#[derive(Debug)]
pub(in crate::format) struct Record<F> {
    /// Names, without their endings, one behind the other.
    names: Vec<u8>,
    files: Vec<File<F>>,
    directories: Vec<Range<usize>>,
}

#[derive(Debug)]
struct File<F> {
    name: Range<usize>,
    /// Whether the file is the whole record.
    is_record: bool,
    row: Row<F>,
    /// The size of the file that is shown.
    size_bytes: u64,
}

/// An earlier end of a record.
#[derive(Debug, Default)]
pub(in crate::format) struct Mark {
    names: usize,
    files: usize,
    directories: usize,
}

impl<F> Default for Record<F> {
    fn default() -> Self {
        Self { names: Vec::new(), files: Vec::new(), directories: Vec::new() }
    }
}

impl<F> Record<F> {
    pub(in crate::format) fn clear(&mut self) {
        self.cut(&Mark::default());
    }

    /// The present end of the record.
    pub(in crate::format) fn mark(&self) -> Mark {
        Mark {
            names: self.names.len(),
            files: self.files.len(),
            directories: self.directories.len(),
        }
    }

    /// Removes the files and directories that were added behind a mark.
    pub(in crate::format) fn cut(&mut self, mark: &Mark) {
        self.names.truncate(mark.names);
        self.files.truncate(mark.files);
        self.directories.truncate(mark.directories);
    }

    /// Whether the record has no files and no directories.
    pub(in crate::format) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.directories.is_empty()
    }

    /// The number of its files and directories.
    pub(in crate::format) fn len(&self) -> usize {
        self.files.len().saturating_add(self.directories.len())
    }

    /// Adds a file. `name` has the components of its path, without the ending.
    pub(in crate::format) fn file(&mut self, name: &[&[u8]], row: Row<F>) {
        let name = self.add_name(name);
        let size_bytes = match row.shown {
            Shown::Stored | Shown::Pieced | Shown::Headed | Shown::Coded => row.length,
            Shown::Array => row.length.saturating_add(row.header_bytes().into()),
            Shown::Integers | Shown::Floats => row
                .elements()
                .map_or(0, |(header, bytes)| bytes.saturating_add(header.len() as u64)),
        };
        self.files.push(File { name, is_record: false, row, size_bytes });
    }

    /// Makes one file of `size_bytes` bytes the whole record.
    pub(in crate::format) fn whole(&mut self, row: Row<F>, size_bytes: u64) {
        self.files.push(File { name: 0..0, is_record: true, row, size_bytes });
    }

    /// Adds a file of `size_bytes` bytes.
    pub(in crate::format) fn sized(&mut self, name: &[&[u8]], row: Row<F>, size_bytes: u64) {
        let name = self.add_name(name);
        self.files.push(File { name, is_record: false, row, size_bytes });
    }

    /// Adds a directory without files.
    pub(in crate::format) fn directory(&mut self, name: &[&[u8]]) {
        let name = self.add_name(name);
        self.directories.push(name);
    }

    /// Makes all files of the record damaged, for a reason that [`Builder::reason`] has given.
    pub(in crate::format) fn set_damaged(&mut self, reason: u32) {
        for file in &mut self.files {
            file.row.is_damaged = true;
            (file.row.reason, file.row.checksum) = (reason, None);
            file.row.length = file.row.length.max(1);
        }
    }

    fn add_name(&mut self, parts: &[&[u8]]) -> Range<usize> {
        let start = self.names.len();
        for (number, part) in parts.iter().enumerate() {
            if number > 0 {
                self.names.push(b'/');
            }
            self.names.extend_from_slice(part);
        }
        start..self.names.len()
    }

    fn name(&self, range: &Range<usize>) -> &[u8] {
        self.names.get(range.clone()).unwrap_or_default()
    }
}

/// The things of which a container has too many for its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::format) enum Full {
    Files,
    /// Bytes of names that are stored for each file.
    Names,
}

/// The common form of the records so far.
#[derive(Debug)]
enum Alike {
    /// No record was added yet.
    Empty,
    /// Each record is a file.
    Files,
    /// Each record has files of these names, in this order.
    Fields(Vec<Vec<u8>>),
    /// No common form: the names of all files are stored.
    Mixed,
}

/// The order of the files of a record that has the same files as the records before it.
enum Order {
    /// The order of the records before it.
    Same,
    /// The places of its files, in the order of the records before it.
    Other(Vec<usize>),
}

/// The index of a container of records as it grows.
#[derive(Debug)]
pub(in crate::format) struct Builder<F> {
    index: scanned::Builder<Row<F>>,
    alike: Alike,
    files: u64,
    /// Bytes of names that are stored for each file.
    name_bytes: u64,
    /// Types and shapes of arrays: the place of the text, and the header's length in blocks.
    shapes: HashMap<String, (u32, u8)>,
    headers: Headers,
    reasons: u32,
    /// Memory for the text of a shape, and for a name.
    shape: String,
    name: Vec<u8>,
}

impl<F: RecordFormat> Default for Builder<F> {
    fn default() -> Self {
        Self {
            index: scanned::Builder::default(),
            alike: Alike::Empty,
            files: 0,
            name_bytes: 0,
            shapes: HashMap::new(),
            headers: Headers::default(),
            reasons: 0,
            shape: String::new(),
            name: Vec::new(),
        }
    }
}

impl<F: RecordFormat> Builder<F> {
    pub(in crate::format) fn warn(&mut self, text: String) {
        self.index.warn(text);
    }

    /// Whether a container of which `bytes` bytes were read may have the files of a record besides those it has, `most` of them
    /// in all: short forged records must not take much memory.
    ///
    /// # Errors
    /// The container would have too many files, or too many bytes of names.
    pub(in crate::format) fn room(
        &self,
        record: &Record<F>,
        most: u64,
        bytes: u64,
    ) -> Result<(), Full> {
        let files = self.files.saturating_add(record.len() as u64);
        let name_bytes = self.name_bytes.saturating_add(record.names.len() as u64);
        let most_bytes = FREE_NAME_BYTES.saturating_add(bytes.saturating_mul(NAME_BYTES_A_BYTE));
        if files > FREE_FILES.saturating_add(most) {
            return Err(Full::Files);
        }
        if name_bytes > most_bytes { Err(Full::Names) } else { Ok(()) }
    }

    /// Notes the reason why files are damaged, and returns its number for [`Row::reason`]; 0 if there are too many reasons.
    pub(in crate::format) fn reason(&mut self, fault: &Fault) -> u32 {
        if self.reasons >= MAX_REASONS {
            return 0;
        }
        self.reasons = self.reasons.saturating_add(1);
        self.headers.place(&mut self.index, &reason::pack(fault), None).map_or(0, reason::number)
    }

    /// Makes the row of an array of type `descr` and this shape, whose elements are stored as they are. `None` if the header
    /// for so many dimensions is too long, or there are too many headers.
    pub(in crate::format) fn array(
        &mut self,
        (offset, length): (u64, u64),
        descr: &str,
        shape: &[u64],
    ) -> Option<Row<F>> {
        self.shape.clear();
        self.shape.push_str(descr);
        for length in shape {
            // Writing to memory does not fail.
            let _ = write!(self.shape, ",{length}");
        }
        let (number, blocks) = match self.shapes.get(&self.shape) {
            Some(found) => *found,
            None => {
                let header = u32::try_from(npy::header(descr, shape).len()).ok()?;
                let blocks = u8::try_from(header.checked_div(HEADER_BLOCK_BYTES)?).ok()?;
                let number = self.headers.place(&mut self.index, self.shape.as_bytes(), None)?;
                self.shapes.insert(self.shape.clone(), (number, blocks));
                (number, blocks)
            }
        };
        Some(Row { shown: Shown::Array, number, ..Row::stored(offset, length, blocks) })
    }

    /// Makes the row of stored bytes behind a header. `None` if there are too many headers, or this one is too long.
    pub(in crate::format) fn headed(
        &mut self,
        (offset, length): (u64, u64),
        header: &[u8],
        ending: u8,
    ) -> Option<Row<F>> {
        let number = self.headers.place(&mut self.index, header, None)?;
        Some(Row { shown: Shown::Headed, number, ..Row::stored(offset, length, ending) })
    }

    /// As `headed`, for stored bytes that encode `decoded_bytes` bytes.
    pub(in crate::format) fn coded(
        &mut self,
        (offset, length): (u64, u64),
        header: &[u8],
        decoded_bytes: usize,
        ending: u8,
    ) -> Option<Row<F>> {
        let decoded_bytes = Some(decoded_bytes as u64);
        let number = self.headers.place(&mut self.index, header, decoded_bytes)?;
        Some(Row { shown: Shown::Coded, number, ..Row::stored(offset, length, ending) })
    }

    /// Adds the pieces of a file, and returns the number of the file in pieces.
    pub(in crate::format) fn pieces(
        &mut self,
        size_bytes: u64,
        pieces: impl Iterator<Item = Piece>,
    ) -> Result<u32, TooMany> {
        self.index.pieced(size_bytes, pieces)
    }

    /// Adds the next record, which has at least one file or directory.
    pub(in crate::format) fn add(&mut self, record: &Record<F>) -> Result<(), TooMany> {
        match self.order(record) {
            Some(Order::Same) => {
                (0..record.files.len()).for_each(|place| self.add_row(record, place));
            }
            Some(Order::Other(order)) => {
                order.into_iter().for_each(|place| self.add_row(record, place));
            }
            None => {
                self.mix()?;
                self.add_named(record)?;
            }
        }
        Ok(())
    }

    /// The order of a record's files, if it has the same files as the records before it.
    fn order(&mut self, record: &Record<F>) -> Option<Order> {
        if let Alike::Empty = self.alike {
            self.alike = self.alike_of(record)?;
        }
        let files = record.files.len();
        match &self.alike {
            Alike::Files => {
                let file = record.files.first().filter(|file| file.is_record && files == 1);
                file.map(|_| Order::Same)
            }
            Alike::Fields(fields) if fields.len() == files && record.directories.is_empty() => {
                let is_it = |file: &File<F>, name: &Vec<u8>| {
                    !file.is_record && record.name(&file.name) == name
                };
                // Mostly all records have the same order.
                if record.files.iter().zip(fields).all(|(file, name)| is_it(file, name)) {
                    return Some(Order::Same);
                }
                let place = |name| record.files.iter().position(|file| is_it(file, name));
                fields.iter().map(place).collect::<Option<_>>().map(Order::Other)
            }
            _ => None,
        }
    }

    /// The form of records of which this is the first; `None` if their names must be stored.
    fn alike_of(&mut self, record: &Record<F>) -> Option<Alike> {
        if record.files.first().is_some_and(|file| file.is_record) {
            return Some(Alike::Files);
        }
        let names: Vec<_> =
            record.files.iter().map(|file| record.name(&file.name).to_vec()).collect();
        let different: HashSet<_> = names.iter().collect();
        let is_plain = different.len() == names.len()
            && !names.is_empty()
            && names.len() <= MAX_FIELDS
            && record.directories.is_empty();
        is_plain.then_some(Alike::Fields(names))
    }

    fn add_row(&mut self, record: &Record<F>, place: usize) {
        let Some(file) = record.files.get(place) else { return };
        self.index.sample(&file.row, file.size_bytes);
        self.files = self.files.saturating_add(1);
    }

    /// Stores the names of all files before, and from here on that of each file.
    fn mix(&mut self) -> Result<(), TooMany> {
        match std::mem::replace(&mut self.alike, Alike::Mixed) {
            Alike::Empty | Alike::Mixed => Ok(()),
            Alike::Files => (0..self.files)
                .try_for_each(|sample| self.index.name(&[IS_FIRST | IS_RECORD], sample)),
            Alike::Fields(fields) => {
                let names: Vec<Vec<u8>> = (fields.iter().enumerate())
                    .map(|(place, name)| [&[u8::from(place == 0)], &name[..]].concat())
                    .collect();
                let all = names.iter().cycle();
                (0..self.files)
                    .zip(all)
                    .try_for_each(|(sample, name)| self.index.name(name, sample))
            }
        }
    }

    fn add_named(&mut self, record: &Record<F>) -> Result<(), TooMany> {
        let mut flags = IS_FIRST;
        self.name_bytes = self.name_bytes.saturating_add(record.names.len() as u64);
        for (place, file) in record.files.iter().enumerate() {
            let flag = if file.is_record { IS_RECORD } else { 0 };
            self.name.clear();
            self.name.push(flags | flag);
            self.name.extend_from_slice(record.name(&file.name));
            let sample = self.files;
            self.add_row(record, place);
            self.index.name(&self.name, sample)?;
            flags = 0;
        }
        for directory in &record.directories {
            self.name.clear();
            self.name.push(flags);
            self.name.extend_from_slice(record.name(directory));
            self.index.directory(&self.name, &Attributes::default())?;
            flags = 0;
        }
        Ok(())
    }

    /// Makes the container, whose bytes `source` has.
    pub(in crate::format) fn finish(
        mut self,
        part: PartName,
        source: Arc<dyn Source>,
    ) -> crate::format::Result<RecordFile<F>> {
        if let Alike::Fields(fields) = &self.alike {
            for (place, name) in (0_u64..).zip(fields) {
                self.name.clear();
                self.name.push(IS_OF_ALL);
                self.name.extend_from_slice(name);
                // The container has at least as many samples as names, which are few.
                let _ = self.index.name(&self.name, place);
            }
        }
        RecordFile::new(source, self.index.finish(part))
    }
}

// The length of a list's header is known before the header is made.
const _: () = assert!(LIST_HEADER_BYTES == 2 * HEADER_BLOCK_BYTES as u64);
