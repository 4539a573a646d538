//! The samples and names that a scan finds, packed: rows of fixed length and text, in little-endian tables that can be kept
//! in a file and looked up in it.
//!
//! ```text
//! "FFRSCAN\0" | u32 version of this layout | u32 CRC-32 of all that follows
//! 16 bytes name of the format | u32 version of its rows | u32 number of tables | u64 data bytes
//! tables × u64 bytes of a table | tables
//!
//! samples      rows of the format
//! names        u32 bytes of the path | u32 node: the number of a sample, or of a directory and bit 31
//! paths        one after the other, in the order of the names
//! directories  i64 seconds | u32 nanoseconds | u16 mode | u16 flags (1: mode is known, 2: time is known)
//! targets      of symbolic links: the rows of the samples say where
//! pieced       u64 size of a file in pieces | u64 first piece
//! pieces       u64 in the file | u64 length | u64 in the container
//! warnings     a line each
//! ```
//! Indexes of other versions, and files that are no index, are told from damaged indexes: both are made anew.

use super::row::{DIRECTORY_BIT, Fields, MAX_ROW_BYTES, NameRow, Packed, PiecedRow};
use super::row::{SampleRow, Stamp};
use crate::format::counted;
use crate::format::{Attributes, Error, Member, Node, PartName, Piece, Result, Source, Table};
use std::io::{self, ErrorKind};
use std::marker::PhantomData;

const MAGIC: [u8; 8] = *b"FFRSCAN\0";
const VERSION: u32 = 1;
/// The offset behind magic number, version and checksum.
const CHECKED_AT: u64 = 16;
const NAME_BYTES: usize = 16;
/// Bytes before the first table.
const HEAD_BYTES: usize = 48 + 8 * TABLES;
/// Bytes that are copied or checked at a time.
const CHUNK_BYTES: usize = 256 << 10;
const TABLES: usize = 8;

/// The tables, in the order in which they stand.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Samples,
    Names,
    Paths,
    Directories,
    Targets,
    Pieced,
    Pieces,
    Warnings,
}

/// The samples of a container, and their names if it has any.
pub(in crate::format) struct Index<R> {
    part: PartName,
    tables: Vec<(Box<dyn Table>, u64)>,
    data_bytes: u64,
    warnings: Vec<String>,
    row: PhantomData<fn() -> R>,
}

impl<R: SampleRow> Index<R> {
    /// An index whose tables are in memory.
    pub(super) fn from_tables(part: PartName, tables: [Vec<u8>; TABLES], data_bytes: u64) -> Self {
        let warnings = lines(tables.last().map_or(&[], Vec::as_slice));
        let pack = |mut table: Vec<u8>| -> (Box<dyn Table>, u64) {
            table.shrink_to_fit();
            let length = table.len() as u64;
            (Box::new(table), length)
        };
        let tables = tables.into_iter().map(pack).collect();
        Self { part, tables, data_bytes, warnings, row: PhantomData }
    }

    /// Reads an index that [`Index::write`] wrote, and checks all of it. Its tables stay in `source`, as [`Source::table`]
    /// has it. `None` if the source is an index of another format or version, or no index.
    ///
    /// # Errors
    /// The source cannot be read, or is damaged.
    pub(in crate::format) fn read(source: &dyn Source) -> Result<Option<Self>> {
        let part = source.name();
        let unreadable = |at, e| unreadable(part, at, e);
        if source.len() < HEAD_BYTES as u64 {
            return Ok(None);
        }
        let mut head = [0; HEAD_BYTES];
        source.read_exact_at(&mut head, 0).map_err(|e| unreadable(0, e))?;
        let mut fields = Fields(&head);
        let (magic, version) = (fields.u64().to_le_bytes(), fields.u32());
        let expected = fields.u32();
        let mut name = [0; NAME_BYTES];
        name.as_chunks_mut::<8>().0.iter_mut().for_each(|half| *half = fields.u64().to_le_bytes());
        let of_format = (fields.u32(), fields.u32());
        if (magic, version) != (MAGIC, VERSION)
            || name != name_of::<R>()
            || of_format != (R::VERSION, TABLES as u32)
        {
            return Ok(None);
        }
        check(source, expected)?;
        let data_bytes = fields.u64();
        let mut at = HEAD_BYTES as u64;
        let mut tables = Vec::with_capacity(TABLES);
        for row_bytes in Self::row_bytes() {
            let length = fields.u64();
            let end = at.checked_add(length).filter(|&end| end <= source.len());
            let Some(end) = end.filter(|_| length.is_multiple_of(row_bytes as u64)) else {
                let found = format!("{} of {}", counted(length, "byte"), source.len());
                return Err(malformed(part, at, "a table of whole rows within the file", found));
            };
            tables.push((source.table(at, length).map_err(|e| unreadable(at, e))?, length));
            at = end;
        }
        if at != source.len() {
            let found = format!("a file of {}", counted(source.len(), "byte"));
            return Err(malformed(part, at, "the end of the index", found));
        }
        let part = part.clone();
        let mut index = Self { part, tables, data_bytes, warnings: Vec::new(), row: PhantomData };
        let text = index.text(Part::Warnings, 0, index.length(Part::Warnings))?;
        index.warnings = lines(&text);
        Ok(Some(index))
    }

    /// Length of a row of each table.
    fn row_bytes() -> [usize; TABLES] {
        let text = 1;
        [R::BYTES, NameRow::BYTES, text, Stamp::BYTES, text, PiecedRow::BYTES, Piece::BYTES, text]
    }

    /// Writes the index for [`Index::read`].
    ///
    /// # Errors
    /// A table cannot be read, or `out` fails.
    pub(in crate::format) fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut rest = name_of::<R>().to_vec();
        rest.extend_from_slice(&R::VERSION.to_le_bytes());
        rest.extend_from_slice(&(TABLES as u32).to_le_bytes());
        rest.extend_from_slice(&self.data_bytes.to_le_bytes());
        for (_, length) in &self.tables {
            rest.extend_from_slice(&length.to_le_bytes());
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&rest);
        self.visit(&mut |bytes| {
            crc.update(bytes);
            Ok(())
        })?;
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&crc.finalize().to_le_bytes())?;
        out.write_all(&rest)?;
        self.visit(&mut |bytes| out.write_all(bytes))
    }

    /// Shows the bytes of all tables, in order.
    fn visit(&self, visit: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK_BYTES];
        for (table, length) in &self.tables {
            let mut at = 0;
            while at < *length {
                let chunk = chunk(&mut buffer, length.saturating_sub(at));
                table.copy_to(at, chunk)?;
                visit(chunk)?;
                at = at.saturating_add(chunk.len() as u64);
            }
        }
        Ok(())
    }

    /// The number of samples.
    pub(in crate::format) fn len(&self) -> u64 {
        self.rows::<R>(Part::Samples)
    }

    /// The bytes of all samples together, as they are shown.
    pub(in crate::format) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// The warnings of the scan.
    pub(in crate::format) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether there is a file in pieces.
    pub(in crate::format) fn has_pieces(&self) -> bool {
        self.length(Part::Pieced) > 0
    }

    /// The row of a sample.
    ///
    /// # Errors
    /// There is no sample of that number, or the index cannot be read.
    pub(in crate::format) fn sample(&self, number: u64) -> Result<R> {
        self.row(Part::Samples, number)
    }

    /// The size of a file in pieces.
    ///
    /// # Errors
    /// As [`Index::sample`].
    pub(in crate::format) fn pieced_bytes(&self, number: u64) -> Result<u64> {
        self.row(Part::Pieced, number).map(|row: PiecedRow| row.size_bytes)
    }

    /// The piece of a file that begins at or behind `offset_bytes`, or that this byte lies in. `None` if the rest of the
    /// file is a hole.
    ///
    /// # Errors
    /// As [`Index::sample`].
    pub(in crate::format) fn piece(&self, number: u64, offset_bytes: u64) -> Result<Option<Piece>> {
        let mut low = self.row::<PiecedRow>(Part::Pieced, number)?.first_piece;
        let next = number.saturating_add(1);
        let end = match next < self.rows::<PiecedRow>(Part::Pieced) {
            true => self.row::<PiecedRow>(Part::Pieced, next)?.first_piece,
            false => self.rows::<Piece>(Part::Pieces),
        };
        let mut high = end;
        while low < high {
            let middle = low.midpoint(high);
            let piece: Piece = self.row(Part::Pieces, middle)?;
            if piece.at_bytes.saturating_add(piece.length_bytes) <= offset_bytes {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        (low < end).then(|| self.row(Part::Pieces, low)).transpose()
    }

    /// The target of a symbolic link, by the offset and length that [`super::Builder::target`] returned.
    ///
    /// # Errors
    /// As [`Index::sample`].
    pub(in crate::format) fn target(&self, at: u64, length: u64) -> Result<Vec<u8>> {
        self.text(Part::Targets, at, length)
    }

    /// Visits every name in the order of the container.
    ///
    /// # Errors
    /// As [`Index::sample`], or an error that `visit` returns.
    pub(in crate::format) fn members(
        &self,
        visit: &mut dyn FnMut(Member) -> Result<()>,
    ) -> Result<()> {
        let (mut path, mut path_at) = (Vec::new(), 0_u64);
        for number in 0..self.rows::<NameRow>(Part::Names) {
            let row: NameRow = self.row(Part::Names, number)?;
            let length = u64::from(row.path_bytes);
            self.text_into(Part::Paths, path_at, length, &mut path)?;
            path_at = path_at.saturating_add(length);
            let node = match row.node {
                node if node & DIRECTORY_BIT != 0 => Node::Directory(self.directory(node)?),
                node if u64::from(node) < self.len() => Node::Sample(node.into()),
                node => {
                    let expected = format!("one of {}", counted(self.len(), "sample"));
                    return Err(malformed(&self.part, 0, &expected, format!("sample {node}")));
                }
            };
            visit(Member { path: &path, node })?;
        }
        Ok(())
    }

    /// The first names in the order of the container, `most` of them at most.
    ///
    /// # Errors
    /// As [`Index::sample`].
    pub(in crate::format) fn first_names(&self, most: u64) -> Result<Vec<Vec<u8>>> {
        let mut at = 0_u64;
        let name = |number| {
            let row: NameRow = self.row(Part::Names, number)?;
            let path = self.text(Part::Paths, at, row.path_bytes.into())?;
            at = at.saturating_add(row.path_bytes.into());
            Ok(path)
        };
        (0..self.rows::<NameRow>(Part::Names).min(most)).map(name).collect()
    }

    fn directory(&self, node: u32) -> Result<Attributes> {
        let stamp: Stamp = self.row(Part::Directories, u64::from(node & !DIRECTORY_BIT))?;
        Ok(stamp.attributes())
    }

    fn length(&self, part: Part) -> u64 {
        self.tables.get(part as usize).map_or(0, |(_, length)| *length)
    }

    fn rows<P: Packed>(&self, part: Part) -> u64 {
        self.length(part).checked_div(P::BYTES as u64).unwrap_or(0)
    }

    fn row<P: Packed>(&self, part: Part, number: u64) -> Result<P> {
        const { assert!(P::BYTES <= MAX_ROW_BYTES) };
        let mut buffer = [0; MAX_ROW_BYTES];
        let row = buffer.get_mut(..P::BYTES).unwrap_or_default();
        self.copy(part, number.saturating_mul(P::BYTES as u64), row)?;
        Ok(P::unpack(&mut Fields(row)))
    }

    fn copy(&self, part: Part, at: u64, out: &mut [u8]) -> Result<()> {
        let copied = match self.tables.get(part as usize) {
            Some((table, _)) => table.copy_to(at, out),
            None => Err(ErrorKind::UnexpectedEof.into()),
        };
        copied.map_err(|e| unreadable(&self.part, at, e))
    }

    fn text(&self, part: Part, at: u64, length: u64) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.text_into(part, at, length, &mut out)?;
        Ok(out)
    }

    /// Reads text; takes no memory for text that the table does not have.
    fn text_into(&self, part: Part, at: u64, length: u64, out: &mut Vec<u8>) -> Result<()> {
        let is_there = at.checked_add(length).is_some_and(|end| end <= self.length(part));
        let Some(length) = usize::try_from(length).ok().filter(|_| is_there) else {
            return Err(unreadable(&self.part, at, ErrorKind::UnexpectedEof.into()));
        };
        out.resize(length, 0);
        self.copy(part, at, out)
    }
}

impl<R: SampleRow> std::fmt::Debug for Index<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("samples", &self.len()).finish_non_exhaustive()
    }
}

fn name_of<R: SampleRow>() -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    name.iter_mut().zip(R::FORMAT.bytes()).for_each(|(to, from)| *to = from);
    name
}

fn lines(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text).lines().map(str::to_owned).collect()
}

/// The start of `buffer`, for as many of `left` bytes as it holds.
fn chunk(buffer: &mut [u8], left: u64) -> &mut [u8] {
    let take = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
    buffer.get_mut(..take).unwrap_or_default()
}

/// Compares all of an index with its checksum.
fn check(source: &dyn Source, expected: u32) -> Result<()> {
    let mut crc = crc32fast::Hasher::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = CHECKED_AT;
    while at < source.len() {
        let chunk = chunk(&mut buffer, source.len().saturating_sub(at));
        source.read_exact_at(chunk, at).map_err(|e| unreadable(source.name(), at, e))?;
        crc.update(chunk);
        at = at.saturating_add(chunk.len() as u64);
    }
    match crc.finalize() {
        found if found == expected => Ok(()),
        found => Err(Error::Checksum {
            part: source.name().clone(),
            what: "the kept index".to_owned(),
            offset_bytes: CHECKED_AT,
            expected,
            found,
            hint: "",
        }),
    }
}

fn malformed(part: &PartName, offset_bytes: u64, expected: &str, found: String) -> Error {
    Error::Malformed {
        part: part.clone(),
        format: "kept index",
        offset_bytes,
        expected: expected.to_owned(),
        found,
        hint: "",
    }
}

fn unreadable(part: &PartName, offset_bytes: u64, source: io::Error) -> Error {
    Error::Unreadable { part: part.clone(), what: "the index", offset_bytes, source }
}
