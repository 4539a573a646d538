//! Stored names, packed: 18 bytes an entry and the bytes of its name. No name is an object of its own.

use super::builder::check_name;
use super::column::Column;
use super::numbered::MAX_NAME_BYTES;
use super::slots::Slots;
use super::{Emit, Node, Renamed};
use crate::format::{Attributes, Error, Kind, PartName, Result, SliceSource, Source};
use std::cmp::Ordering;
use std::io;
use std::sync::{Arc, OnceLock};

/// The bit of an entry's place that is set for a directory; a name's place in the arena needs far fewer bits.
pub(super) const DIRECTORY_BIT: u64 = 1 << 63;
/// The place of a name: 48 bits of offset, 8 bits of length above them.
pub(super) const LENGTH_SHIFT: u32 = 48;
pub(super) const OFFSET_MASK: u64 = (1 << LENGTH_SHIFT) - 1;

/// The count of numbers in a directory's row.
const DIRECTORY_FIELDS: usize = 4;
/// The first bytes of a kept tree, the last of which is its version; the lengths of its columns and a CRC-32 follow.
const MAGIC: [u8; 8] = *b"FFRTREE4";
const COLUMNS: usize = 7;
const HEAD_BYTES: u64 = 8 + 8 * COLUMNS as u64 + 8;
const ATTRIBUTE_BYTES: usize = 24;

/// An immutable tree of names over samples.
#[derive(Debug)]
pub struct Tree {
    pub(super) part: PartName,
    /// Per directory: [`DirectoryRow`].
    pub(super) directories: Column,
    /// Per entry: where its name lies, and whether it is a directory. Grouped by directory, sorted by name.
    pub(super) places: Column,
    /// Per entry: number of the sample or directory.
    pub(super) targets: Column,
    pub(super) arena: Column,
    pub(super) slots: Slots,
    /// The attributes of directories that are stored as such, by number.
    pub(super) attributes: Vec<(u32, Attributes)>,
    pub(super) renamed: Renamed,
    /// The samples that have a name, found when they are first asked for; `None` if all samples have a name, or the names
    /// cannot be read.
    pub(super) named: Box<OnceLock<Option<Named>>>,
}

/// The samples that have a name: a bit for each sample.
#[derive(Debug)]
pub struct Named(pub(super) Vec<u64>);

impl Named {
    /// Whether a sample has a name.
    #[must_use]
    pub fn has(&self, sample: u64) -> bool {
        let word = usize::try_from(sample / 64).ok().and_then(|word| self.0.get(word));
        word.is_some_and(|word| word >> (sample % 64) & 1 == 1)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct DirectoryRow {
    pub(super) first_entry: u32,
    pub(super) end_entry: u32,
    pub(super) parent: u32,
    pub(super) subdirectories: u32,
}

impl DirectoryRow {
    pub(super) fn fields(&self) -> [u32; DIRECTORY_FIELDS] {
        [self.first_entry, self.end_entry, self.parent, self.subdirectories]
    }
}

impl Tree {
    pub(super) fn row(&self, directory: u64) -> io::Result<Option<DirectoryRow>> {
        if directory >= self.directories() {
            return Ok(None);
        }
        let first = directory as usize * DIRECTORY_FIELDS;
        let field = |number| self.directories.u32_at(first + number);
        Ok(Some(DirectoryRow {
            first_entry: field(0)?,
            end_entry: field(1)?,
            parent: field(2)?,
            subdirectories: field(3)?,
        }))
    }

    pub(super) fn name<'a>(&'a self, place: u64, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let start = (place & OFFSET_MASK) as usize;
        let length = (place >> LENGTH_SHIFT) as usize & MAX_NAME_BYTES;
        self.arena.slice(start, length, buffer)
    }

    fn node(&self, entry: usize, place: u64) -> io::Result<Node> {
        let target = u64::from(self.targets.u32_at(entry)?);
        Ok(if place & DIRECTORY_BIT != 0 { Node::Directory(target) } else { Node::Sample(target) })
    }

    pub(super) fn lookup(&self, directory: u64, name: &[u8]) -> Result<Option<Node>> {
        self.find(directory, name).map_err(|e| self.unreadable(e))
    }

    fn find(&self, directory: u64, name: &[u8]) -> io::Result<Option<Node>> {
        let Some(row) = self.row(directory)? else { return Ok(None) };
        let (mut low, mut high) = (row.first_entry as usize, row.end_entry as usize);
        let mut buffer = [0; MAX_NAME_BYTES];
        let is_it = |entry: usize| {
            let is_here = (low..high).contains(&entry);
            Ok(is_here && self.name(self.places.u64_at(entry)?, &mut buffer)? == name)
        };
        if let Some(found) = self.slots.find(directory as u32, name, is_it)? {
            let node = |entry| self.node(entry, self.places.u64_at(entry)?);
            return found.map(node).transpose();
        }
        while low < high {
            let middle = low.midpoint(high);
            let place = self.places.u64_at(middle)?;
            match self.name(place, &mut buffer)?.cmp(name) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return self.node(middle, place).map(Some),
            }
        }
        Ok(None)
    }

    pub(super) fn list(&self, directory: u64, from: u64, emit: &mut Emit) -> Result<()> {
        let mut list = || -> io::Result<()> {
            let Some(row) = self.row(directory)? else { return Ok(()) };
            let first = u64::from(row.first_entry).saturating_add(from);
            let mut buffer = [0; MAX_NAME_BYTES];
            for entry in first..u64::from(row.end_entry) {
                let entry = entry as usize;
                let place = self.places.u64_at(entry)?;
                let node = self.node(entry, place)?;
                let name = self.name(place, &mut buffer)?;
                // A kept tree may come from anybody.
                let is_right = match node {
                    Node::Directory(child) => child > directory,
                    Node::Sample(_) => true,
                };
                if !is_right || check_name(name).is_err() {
                    return Err(damaged());
                }
                if !emit(name, node) {
                    break;
                }
            }
            Ok(())
        };
        list().map_err(|e| self.unreadable(e))
    }

    pub(super) fn parent(&self, directory: u64) -> Option<u64> {
        self.row(directory).ok().flatten().map(|row| u64::from(row.parent))
    }

    pub(super) fn subdirectories(&self, directory: u64) -> u64 {
        self.row(directory).ok().flatten().map_or(0, |row| u64::from(row.subdirectories))
    }

    pub(super) fn directories(&self) -> u64 {
        self.directories.bytes() / (4 * DIRECTORY_FIELDS as u64)
    }

    pub(super) fn samples(&self) -> u64 {
        (self.targets.bytes() / 4).saturating_sub(self.directories().saturating_sub(1))
    }

    pub(super) fn attributes(&self, directory: u64) -> Option<&Attributes> {
        let directory = u32::try_from(directory).ok()?;
        let place =
            self.attributes.binary_search_by_key(&directory, |(directory, _)| *directory).ok()?;
        self.attributes.get(place).map(|(_, attributes)| attributes)
    }

    /// The counts of members that are not shown as they are stored.
    #[must_use]
    pub fn renamed(&self) -> &Renamed {
        &self.renamed
    }

    pub(super) fn unreadable(&self, source: io::Error) -> Error {
        let part = self.part.clone();
        Error::Unreadable { part, what: "the names", offset_bytes: 0, source }
    }
}

pub(super) fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is damaged: no directory has such an entry")
}

// ---- kept on disk ----------------------------------------------------------------------------------

impl Tree {
    /// Writes the tree so that [`Tree::read`] finds it again.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let attributes = Column::Memory(self.attributes.iter().flat_map(pack).collect());
        let renamed = Column::Memory(self.renamed.pack());
        let (directories, places, slots) = (&self.directories, &self.places, &self.slots.0);
        let columns =
            [directories, places, &self.targets, &self.arena, slots, &attributes, &renamed];
        let mut head = MAGIC.to_vec();
        head.extend(columns.iter().flat_map(|column| column.bytes().to_le_bytes()));
        let mut crc = Crc(crc32fast::Hasher::new());
        io::Write::write_all(&mut crc, &head)?;
        for column in columns {
            column.write(&mut crc)?;
        }
        head.extend(u64::from(crc.0.finalize()).to_le_bytes());
        out.write_all(&head)?;
        columns.iter().try_for_each(|column| column.write(out))
    }

    /// Reads a tree that [`Tree::write`] wrote. `None` if the source is no tree, or a damaged one.
    ///
    /// # Errors
    /// The source cannot be read.
    pub fn read(source: &Arc<dyn Source>) -> io::Result<Option<Self>> {
        let mut head = vec![0; HEAD_BYTES as usize];
        if source.len() < HEAD_BYTES {
            return Ok(None);
        }
        source.read_exact_at(&mut head, 0)?;
        let (checked, crc) = head.split_at(head.len() - 8);
        let numbers: Vec<u64> = checked[8..].chunks(8).map(number).collect();
        let total = numbers.iter().try_fold(HEAD_BYTES, |sum, length| sum.checked_add(*length));
        if checked[..8] != MAGIC || total != Some(source.len()) {
            return Ok(None);
        }
        if checksum(source.as_ref(), checked)? != number(crc) {
            return Ok(None);
        }
        let mut at = HEAD_BYTES;
        let mut columns = Vec::new();
        for length in numbers {
            columns.push(Column::Kept(source.table(at, length)?, length));
            at += length;
        }
        // The small columns are not mapped.
        let mut last = || -> io::Result<Vec<u8>> {
            let mut packed = Vec::new();
            columns.pop().map_or(Ok(()), |column| column.write(&mut packed))?;
            Ok(packed)
        };
        let (renamed, packed) = (Renamed::unpack(&last()?), last()?);
        let [directories, places, targets, arena, slots] =
            columns.try_into().map_err(|_| io::Error::other("too few columns"))?;
        let attributes = packed.chunks_exact(ATTRIBUTE_BYTES).map(unpack).collect();
        let part = source.name().clone();
        let (slots, named) = (Slots(slots), Box::default());
        Ok(Some(Self {
            part,
            directories,
            places,
            targets,
            arena,
            slots,
            attributes,
            renamed,
            named,
        }))
    }

    /// As [`Tree::read`], from a part of a source.
    ///
    /// # Errors
    /// The source cannot be read.
    pub fn read_part(
        source: &Arc<dyn Source>,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> io::Result<Option<Self>> {
        let (name, inner) = (source.name().clone(), Arc::clone(source));
        let part: Arc<dyn Source> =
            Arc::new(SliceSource::new(name, inner, offset_bytes, length_bytes));
        Self::read(&part)
    }
}

/// The CRC-32 of a kept tree, whose first bytes are `head`.
fn checksum(source: &dyn Source, head: &[u8]) -> io::Result<u64> {
    let mut crc = crc32fast::Hasher::new();
    crc.update(head);
    let mut chunk = vec![0; 1 << 20];
    let mut at = HEAD_BYTES;
    while at < source.len() {
        let take = (source.len() - at).min(chunk.len() as u64) as usize;
        source.read_exact_at(&mut chunk[..take], at)?;
        crc.update(&chunk[..take]);
        at += take as u64;
    }
    Ok(u64::from(crc.finalize()))
}

struct Crc(crc32fast::Hasher);

impl io::Write for Crc {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn number(bytes: &[u8]) -> u64 {
    let mut out = [0; 8];
    out.copy_from_slice(bytes);
    u64::from_le_bytes(out)
}

/// Packs attributes: seconds, directory, mode (or all ones), nanoseconds (or all ones: no time), 0.
fn pack((directory, attributes): &(u32, Attributes)) -> Vec<u8> {
    let mode = attributes.mode.map_or(u32::MAX, u32::from);
    let (seconds, nanos) = attributes.modified.unwrap_or((0, u32::MAX));
    let mut out = Vec::with_capacity(ATTRIBUTE_BYTES);
    out.extend(seconds.to_le_bytes());
    [*directory, mode, nanos, 0].iter().for_each(|value| out.extend(value.to_le_bytes()));
    out
}

fn unpack(row: &[u8]) -> (u32, Attributes) {
    let seconds = number(&row[..8]).cast_signed();
    let (first, second) = (number(&row[8..16]), number(&row[16..]));
    let (directory, mode, nanos) = (first as u32, (first >> 32) as u32, second as u32);
    let attributes = Attributes {
        kind: Kind::File,
        mode: u16::try_from(mode).ok(),
        modified: (nanos != u32::MAX).then_some((seconds, nanos)),
        links: 1,
    };
    (directory, attributes)
}
