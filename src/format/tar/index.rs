//! What a scan finds, packed: rows of fixed length and the text of names, in little-endian arrays that can
//! be kept in a file and looked up where they lie.
//!
//! ```text
//! "ffrfstar" | u32 version | u32 crc | u64 bytes[8] | u64 data bytes | samples | names | paths | targets |
//!                                                     sparse | pieces | folders | warnings
//! sample  u64 offset | u64 length | i64 seconds | u32 links | u32 sparse | u32 nanoseconds | u16 mode | u16 flags
//! name    u32 bytes | u32 node                            paths stand one after the other, in this order
//! sparse  u64 size | u64 first piece                      the last piece is before the next one's first
//! piece   u64 in the file | u64 length | u64 in the archive
//! folder  i64 seconds | u32 nanoseconds | u16 mode | u16 flags
//! ```
//!
//! A symbolic link's offset and length are those of its target among the targets. `crc` (zlib's CRC-32) covers
//! all that follows it.

use super::NAME;
use crate::format::{
    Attributes, Checksum, Content, Error, Kind, Member, Node, PartName, Piece, Result, Sample,
    Source, Table,
};
use std::io;

const MAGIC: [u8; 8] = *b"ffrfstar";
const VERSION: u32 = 1;
const SECTIONS: usize = 8;
/// Magic number, version and checksum.
const CHECKED_AT: u64 = 16;
/// What stands before the first section: the above, a length a section, and the sum.
const HEAD_BYTES: u64 = 16 + 8 * (SECTIONS as u64 + 1);
/// How much is copied or checked at a time.
const CHUNK_BYTES: usize = 256 << 10;

pub(super) const SAMPLE_BYTES: usize = 40;
pub(super) const NAME_BYTES: usize = 8;
const SPARSE_BYTES: u64 = 16;
const PIECE_BYTES: u64 = 24;
const FOLDER_BYTES: usize = 16;

/// Set in a name's node: it is a folder.
pub(super) const FOLDER_BIT: u32 = 1 << 31;

pub(super) const IS_SYMLINK: u16 = 1;
pub(super) const IS_SPARSE: u16 = 2;
pub(super) const IS_DAMAGED: u16 = 4;
const HAS_MODE: u16 = 8;
const HAS_TIME: u16 = 16;

/// The sections, in the order in which they stand.
#[derive(Debug, Clone, Copy)]
pub(super) enum Section {
    Samples,
    Names,
    Paths,
    Targets,
    Sparse,
    Pieces,
    Folders,
    Warnings,
}

/// The members of an archive: up to 48 bytes each, and their names.
pub struct Index {
    part: PartName,
    sections: Vec<(Box<dyn Table>, u64)>,
    data_bytes: u64,
    warnings: Vec<String>,
}

impl Index {
    /// The sections as they were built in memory.
    pub(super) fn from_parts(part: PartName, parts: [Vec<u8>; SECTIONS], data_bytes: u64) -> Self {
        let warnings = lines(parts.last().map_or(&[], Vec::as_slice));
        let pack = |mut part: Vec<u8>| -> (Box<dyn Table>, u64) {
            part.shrink_to_fit();
            let length = part.len() as u64;
            (Box::new(part), length)
        };
        Self { part, sections: parts.into_iter().map(pack).collect(), data_bytes, warnings }
    }

    /// Whether there is a sparse file.
    #[must_use]
    pub fn has_holes(&self) -> bool {
        self.length(Section::Sparse) > 0
    }

    /// Writes it so that [`Index::read`] finds it again.
    ///
    /// # Errors
    /// As `out` has them.
    pub fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut head = Vec::new();
        for (_, length) in &self.sections {
            head.extend_from_slice(&length.to_le_bytes());
        }
        head.extend_from_slice(&self.data_bytes.to_le_bytes());
        let mut crc = crc32fast::Hasher::new();
        crc.update(&head);
        self.visit(&mut |bytes| {
            crc.update(bytes);
            Ok(())
        })?;
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&crc.finalize().to_le_bytes())?;
        out.write_all(&head)?;
        self.visit(&mut |bytes| out.write_all(bytes))
    }

    /// Shows all sections' bytes, in order.
    fn visit(&self, visit: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut buf = vec![0; CHUNK_BYTES];
        for (table, length) in &self.sections {
            let mut at = 0;
            while at < *length {
                let left = length.saturating_sub(at);
                let take = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
                let chunk = buf.get_mut(..take).unwrap_or_default();
                table.copy_to(at, chunk)?;
                visit(chunk)?;
                at = at.saturating_add(take as u64);
            }
        }
        Ok(())
    }

    /// Finds an index again, and checks all of it. It stays where it is, as [`Source::table`] has it.
    ///
    /// # Errors
    /// The source cannot be read, is no index of this version, or fails its checksum.
    pub fn read(source: &dyn Source) -> Result<Self> {
        let (lengths, data_bytes) = read_head(source)?;
        check_crc(source)?;
        let mut sections = Vec::with_capacity(SECTIONS);
        let mut at = HEAD_BYTES;
        for length in lengths {
            let table = source.table(at, length).map_err(|e| unreadable(source.name(), at, e))?;
            sections.push((table, length));
            at = at.saturating_add(length);
        }
        let part = source.name().clone();
        let mut index = Self { part, sections, data_bytes, warnings: Vec::new() };
        let text = index.text(Section::Warnings, 0, index.length(Section::Warnings))?;
        index.warnings = lines(&text);
        Ok(index)
    }

    /// The number of samples.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.rows(Section::Samples, SAMPLE_BYTES)
    }

    /// Whether there is no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of all samples together, as they are shown.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// What the scan had to say.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn length(&self, section: Section) -> u64 {
        self.sections.get(section as usize).map_or(0, |(_, length)| *length)
    }

    fn rows(&self, section: Section, row_bytes: usize) -> u64 {
        self.length(section).checked_div(row_bytes as u64).unwrap_or(0)
    }

    fn get<const N: usize>(&self, section: Section, at: u64) -> Result<[u8; N]> {
        let mut out = [0; N];
        self.copy(section, at, &mut out)?;
        Ok(out)
    }

    fn copy(&self, section: Section, at: u64, out: &mut [u8]) -> Result<()> {
        let copied = match self.sections.get(section as usize) {
            Some((table, _)) => table.copy_to(at, out),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        };
        copied.map_err(|e| unreadable(&self.part, at, e))
    }

    /// A piece of text; no memory is taken for one that is not there.
    fn text(&self, section: Section, at: u64, length: u64) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.text_into(section, at, length, &mut out)?;
        Ok(out)
    }

    fn text_into(&self, section: Section, at: u64, length: u64, out: &mut Vec<u8>) -> Result<()> {
        let is_there = at.checked_add(length).is_some_and(|end| end <= self.length(section));
        let length = usize::try_from(length).ok().filter(|_| is_there);
        let Some(length) = length else {
            return Err(unreadable(&self.part, at, io::ErrorKind::UnexpectedEof.into()));
        };
        out.resize(length, 0);
        self.copy(section, at, out)
    }

    fn row(&self, index: u64) -> Result<Row> {
        let at = index.saturating_mul(SAMPLE_BYTES as u64);
        Ok(Row::unpack(&self.get(Section::Samples, at)?))
    }

    /// Where a sample lies in the archive.
    ///
    /// # Errors
    /// There is none of that number, or the index cannot be read.
    pub fn sample(&self, index: u64) -> Result<Sample> {
        let row = self.row(index)?;
        if row.flags & IS_SYMLINK != 0 {
            return Ok(Sample::default());
        }
        let damaged = row.flags & IS_DAMAGED != 0;
        let content = if row.flags & IS_SPARSE != 0 {
            Content::Sparse(self.sparse(row.sparse)?.0)
        } else {
            Content::Stored
        };
        Ok(Sample {
            offset_bytes: row.offset,
            length_bytes: if damaged { row.length.max(1) } else { row.length },
            damaged,
            content,
            ..Sample::default()
        })
    }

    /// The size of a sparse file, and its first piece.
    fn sparse(&self, number: u32) -> Result<(u64, u64)> {
        let at = u64::from(number).saturating_mul(SPARSE_BYTES);
        let row: [u8; SPARSE_BYTES as usize] = self.get(Section::Sparse, at)?;
        Ok((u64_at(&row, 0), u64_at(&row, 8)))
    }

    fn stored_piece(&self, number: u64) -> Result<Piece> {
        let at = number.saturating_mul(PIECE_BYTES);
        let row: [u8; PIECE_BYTES as usize] = self.get(Section::Pieces, at)?;
        Ok(Piece {
            at_bytes: u64_at(&row, 0),
            length_bytes: u64_at(&row, 8),
            offset_bytes: u64_at(&row, 16),
        })
    }

    /// As [`crate::format::Container::piece`].
    ///
    /// # Errors
    /// As [`Index::sample`].
    pub fn piece(&self, index: u64, offset_bytes: u64) -> Result<Option<Piece>> {
        let row = self.row(index)?;
        if row.flags & IS_SPARSE == 0 {
            return Ok(None);
        }
        let (mut low, end) = (self.sparse(row.sparse)?.1, self.end_of_pieces(row.sparse)?);
        let mut high = end;
        while low < high {
            let middle = low.midpoint(high);
            let piece = self.stored_piece(middle)?;
            if piece.at_bytes.saturating_add(piece.length_bytes) <= offset_bytes {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        (low < end).then(|| self.stored_piece(low)).transpose()
    }

    fn end_of_pieces(&self, number: u32) -> Result<u64> {
        let next = u64::from(number).saturating_add(1);
        match u32::try_from(next) {
            Ok(next_number) if next < self.length(Section::Sparse) / SPARSE_BYTES => {
                Ok(self.sparse(next_number)?.1)
            }
            _ => Ok(self.length(Section::Pieces) / PIECE_BYTES),
        }
    }

    /// What is known of a sample beside its bytes.
    ///
    /// # Errors
    /// As [`Index::sample`].
    pub fn attributes(&self, index: u64) -> Result<Attributes> {
        let row = self.row(index)?;
        let kind = if row.flags & IS_SYMLINK != 0 { Kind::Symlink } else { Kind::File };
        Ok(Attributes { kind, links: row.links, ..row.meta() })
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// As [`Index::sample`].
    pub fn link_target(&self, index: u64) -> Result<Vec<u8>> {
        let row = self.row(index)?;
        if row.flags & IS_SYMLINK == 0 {
            return Ok(Vec::new());
        }
        self.text(Section::Targets, row.offset, row.length)
    }

    /// Visits every name in the order of the archive.
    ///
    /// # Errors
    /// As [`Index::sample`], or what `visit` says.
    pub fn members(&self, visit: &mut dyn FnMut(Member) -> Result<()>) -> Result<()> {
        let mut path = Vec::new();
        let mut path_at = 0u64;
        for number in 0..self.rows(Section::Names, NAME_BYTES) {
            let at = number.saturating_mul(NAME_BYTES as u64);
            let row: [u8; NAME_BYTES] = self.get(Section::Names, at)?;
            let length = u64::from(u32_at(&row, 0));
            self.text_into(Section::Paths, path_at, length, &mut path)?;
            path_at = path_at.saturating_add(length);
            let node = match u32_at(&row, 4) {
                folder if folder & FOLDER_BIT != 0 => Node::Folder(self.folder(folder)?),
                sample => Node::Sample(u64::from(sample)),
            };
            visit(Member { path: &path, node })?;
        }
        Ok(())
    }

    fn folder(&self, number: u32) -> Result<Attributes> {
        let at = u64::from(number & !FOLDER_BIT).saturating_mul(FOLDER_BYTES as u64);
        let row: [u8; FOLDER_BYTES] = self.get(Section::Folders, at)?;
        let seconds = u64_at(&row, 0).cast_signed();
        let row = Row {
            seconds,
            nanoseconds: u32_at(&row, 8),
            mode: u16_at(&row, 12),
            flags: u16_at(&row, 14),
            ..Row::default()
        };
        Ok(row.meta())
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("samples", &self.len()).finish_non_exhaustive()
    }
}

/// A row of the samples.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Row {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) seconds: i64,
    pub(super) links: u32,
    pub(super) sparse: u32,
    pub(super) nanoseconds: u32,
    pub(super) mode: u16,
    pub(super) flags: u16,
}

impl Row {
    pub(super) fn new(meta: &Attributes) -> Self {
        let (seconds, nanoseconds) = meta.modified.unwrap_or_default();
        let has_mode = if meta.mode.is_some() { HAS_MODE } else { 0 };
        let has_time = if meta.modified.is_some() { HAS_TIME } else { 0 };
        Self {
            seconds,
            nanoseconds,
            links: 1,
            mode: meta.mode.unwrap_or(0),
            flags: has_mode | has_time,
            ..Self::default()
        }
    }

    fn meta(&self) -> Attributes {
        Attributes {
            mode: (self.flags & HAS_MODE != 0).then_some(self.mode),
            modified: (self.flags & HAS_TIME != 0).then_some((self.seconds, self.nanoseconds)),
            ..Attributes::default()
        }
    }

    pub(super) fn pack(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&self.seconds.to_le_bytes());
        out.extend_from_slice(&self.links.to_le_bytes());
        out.extend_from_slice(&self.sparse.to_le_bytes());
        self.pack_tail(out);
    }

    fn pack_tail(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.nanoseconds.to_le_bytes());
        out.extend_from_slice(&self.mode.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
    }

    pub(super) fn pack_folder(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seconds.to_le_bytes());
        self.pack_tail(out);
    }

    pub(super) fn unpack(row: &[u8; SAMPLE_BYTES]) -> Self {
        Self {
            offset: u64_at(row, 0),
            length: u64_at(row, 8),
            seconds: u64_at(row, 16).cast_signed(),
            links: u32_at(row, 24),
            sparse: u32_at(row, 28),
            nanoseconds: u32_at(row, 32),
            mode: u16_at(row, 36),
            flags: u16_at(row, 38),
        }
    }
}

fn array<const N: usize>(row: &[u8], at: usize) -> [u8; N] {
    row.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

pub(super) fn u64_at(row: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(row, at))
}

pub(super) fn u32_at(row: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(row, at))
}

fn u16_at(row: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(row, at))
}

fn lines(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text).lines().map(str::to_owned).collect()
}

/// The lengths of the sections, which fill the file, and the sum of the data.
fn read_head(source: &dyn Source) -> Result<([u64; SECTIONS], u64)> {
    let malformed = |at, expected: &str, found: String| Error::Malformed {
        part: source.name().clone(),
        format: "tar index",
        offset_bytes: at,
        expected: expected.to_owned(),
        found,
        hint: "",
    };
    if source.len() < HEAD_BYTES {
        return Err(malformed(0, "an index", format!("a file of {} bytes", source.len())));
    }
    let mut head = [0; HEAD_BYTES as usize];
    source.read_exact_at(&mut head, 0).map_err(|e| unreadable(source.name(), 0, e))?;
    if !head.starts_with(&MAGIC) {
        return Err(malformed(0, "the magic number of an index", "another one".to_owned()));
    }
    let version = u32_at(&head, 8);
    if version != VERSION {
        return Err(malformed(8, &format!("version {VERSION}"), version.to_string()));
    }
    let mut lengths = [0; SECTIONS];
    let words = head.get(CHECKED_AT as usize..).unwrap_or_default().as_chunks::<8>().0;
    for (length, word) in lengths.iter_mut().zip(words) {
        *length = u64::from_le_bytes(*word);
    }
    let data_bytes = words.last().map_or(0, |word| u64::from_le_bytes(*word));
    let end = lengths.iter().try_fold(HEAD_BYTES, |sum, length| sum.checked_add(*length));
    let row_bytes = [
        SAMPLE_BYTES as u64,
        NAME_BYTES as u64,
        1,
        1,
        SPARSE_BYTES,
        PIECE_BYTES,
        FOLDER_BYTES as u64,
        1,
    ];
    let is_whole = lengths.iter().zip(row_bytes).all(|(length, row)| length.is_multiple_of(row));
    if end != Some(source.len()) || !is_whole {
        let found = format!("{} bytes", source.len());
        return Err(malformed(CHECKED_AT, "sections that fill the file", found));
    }
    Ok((lengths, data_bytes))
}

fn check_crc(source: &dyn Source) -> Result<()> {
    let mut stored = [0; 4];
    let mut crc = crc32fast::Hasher::new();
    source.read_exact_at(&mut stored, 12).map_err(|e| unreadable(source.name(), 12, e))?;
    let mut buf = vec![0; usize::try_from(source.len()).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES)];
    let mut at = CHECKED_AT;
    while at < source.len() {
        let left = source.len().saturating_sub(at);
        let take = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        let chunk = buf.get_mut(..take).unwrap_or_default();
        source.read_exact_at(chunk, at).map_err(|e| unreadable(source.name(), at, e))?;
        crc.update(chunk);
        at = at.saturating_add(take as u64);
    }
    let (expected, found) = (u32::from_le_bytes(stored), crc.finalize());
    if expected == found {
        return Ok(());
    }
    Err(Error::Checksum {
        part: source.name().clone(),
        what: format!("the index of a {NAME} archive"),
        offset_bytes: CHECKED_AT,
        expected: Checksum::Crc32(expected),
        found: Checksum::Crc32(found),
        hint: "",
    })
}

fn unreadable(part: &PartName, offset_bytes: u64, source: io::Error) -> Error {
    Error::Unreadable { part: part.clone(), what: "the index", offset_bytes, source }
}
