//! Writes a `.ffr` file sample by sample; only the index and the names are held in memory.

use super::{ENTRY_BYTES, PACKED_DIRECTORY_MAGIC, pickle};
use crate::format::counted;
use crate::format::write::{Announced, invalid};
use crate::format::{
    Checksum, Directory, Entry, Holds, MemberWriter, NewMember, NewNode, Outline, Output,
    WriteFormat,
};
use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// Bytes of a sample that are copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// The offset of the first sample of a container of `samples` samples.
#[must_use]
pub fn header_bytes(samples: u64) -> u64 {
    samples.saturating_mul(ENTRY_BYTES).saturating_add(super::HEAD_BYTES)
}

/// A container that is being written. Until [`Writer::finish`] it is not a valid one.
pub struct Writer<W: Write + Seek> {
    out: W,
    samples: u64,
    crcs: Vec<u8>,
    offsets: Vec<u8>,
    position: u64,
}

impl<W: Write + Seek> Writer<W> {
    /// Begins a container of exactly `samples` samples at the start of `out`.
    ///
    /// # Errors
    /// `out` cannot be positioned, or `samples` is more than the format can count.
    pub fn new(mut out: W, samples: u64) -> io::Result<Self> {
        let position = header_bytes(samples);
        if i64::try_from(position).is_err() {
            return Err(invalid("too many samples"));
        }
        out.seek(SeekFrom::Start(position))?;
        Ok(Self { out, samples, crcs: Vec::new(), offsets: Vec::new(), position })
    }

    /// Appends a sample: all bytes of `data`. Returns its length in bytes.
    ///
    /// # Errors
    /// Reading or writing failed; or more samples than announced.
    pub fn write_sample(&mut self, data: &mut impl Read) -> io::Result<u64> {
        let start = self.position;
        self.begin_sample()?;
        let mut crc = crc32fast::Hasher::new();
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            let read = match data.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            let chunk = buffer.get(..read).unwrap_or_default();
            crc.update(chunk);
            self.append(chunk)?;
        }
        self.end_sample(crc.finalize());
        Ok(self.position.saturating_sub(start))
    }

    fn begin_sample(&mut self) -> io::Result<()> {
        if self.written() >= self.samples {
            return Err(invalid("more samples than announced"));
        }
        self.offsets.extend_from_slice(&self.position.to_le_bytes());
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.position = self.position.saturating_add(bytes.len() as u64);
        Ok(())
    }

    fn end_sample(&mut self, crc32: u32) {
        self.crcs.extend_from_slice(&crc32.to_le_bytes());
    }

    fn written(&self) -> u64 {
        (self.crcs.len() / 4) as u64
    }

    /// Writes the index and returns the output, positioned anywhere.
    ///
    /// # Errors
    /// Writing failed; or fewer samples than announced.
    pub fn finish(mut self) -> io::Result<W> {
        if self.written() != self.samples {
            let message = format!(
                "{} announced, {} written",
                counted(self.samples, "sample"),
                self.written()
            );
            return Err(invalid(&message));
        }
        let count = self.samples.to_le_bytes();
        let mut crc = crc32fast::Hasher::new();
        for part in [&count[..], &self.crcs, &self.offsets] {
            crc.update(part);
        }
        self.out.seek(SeekFrom::Start(0))?;
        for part in [&crc.finalize().to_le_bytes()[..], &count, &self.crcs, &self.offsets] {
            self.out.write_all(part)?;
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Writes FFRecord: as a packed directory, or numbered samples alone.
#[derive(Debug)]
pub struct WriteFfRecord;

impl WriteFormat for WriteFfRecord {
    fn name(&self) -> &'static str {
        super::NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["ffr"]
    }

    fn holds(&self) -> Holds {
        Holds {
            modes: false,
            times_nanos: 0,
            symlinks: false,
            hard_links: false,
            any_names: true,
            empty_directories: true,
        }
    }

    fn member_bytes(&self, member: &NewMember) -> u64 {
        // A pickled name has some bytes around it.
        let named = (member.path.len() as u64).saturating_add(8);
        member.data_bytes().saturating_add(ENTRY_BYTES).saturating_add(named)
    }

    fn begin<'a>(
        &self,
        out: Box<dyn Output + 'a>,
        outline: &Outline,
    ) -> io::Result<Box<dyn MemberWriter + 'a>> {
        let names = (!outline.is_numbered).then(PackedNames::default);
        let samples = outline.files.saturating_add(names.is_some().into());
        let writer = Writer::new(out, samples)?;
        Ok(Box::new(Members { writer, names, open: None, left: Announced::default() }))
    }
}

/// The members of a container that is being written.
struct Members<'a> {
    writer: Writer<Box<dyn Output + 'a>>,
    /// The names to store behind the last sample.
    names: Option<PackedNames>,
    open: Option<OpenCrc>,
    left: Announced,
}

/// The checksum of the sample that is being written.
enum OpenCrc {
    Known(u32),
    Counted(crc32fast::Hasher),
}

impl Members<'_> {
    fn end_sample(&mut self) -> io::Result<()> {
        self.left.check_done()?;
        match self.open.take() {
            Some(OpenCrc::Known(crc32)) => self.writer.end_sample(crc32),
            Some(OpenCrc::Counted(crc)) => self.writer.end_sample(crc.finalize()),
            None => {}
        }
        Ok(())
    }
}

impl MemberWriter for Members<'_> {
    fn begin(&mut self, member: &NewMember) -> io::Result<()> {
        self.end_sample()?;
        let (names, number) = (&mut self.names, self.writer.written());
        match member.node {
            NewNode::File { size_bytes, checksum } => {
                names.as_mut().map_or(Ok(()), |names| names.add_file(member.path, number))?;
                self.left.expect(size_bytes)?;
                self.writer.begin_sample()?;
                let count = || OpenCrc::Counted(crc32fast::Hasher::new());
                let crc32 = checksum.and_then(Checksum::crc32);
                self.open = Some(crc32.map_or_else(count, OpenCrc::Known));
                Ok(())
            }
            NewNode::Directory => {
                names.as_mut().map_or(Ok(()), |names| names.add_directory(member.path))
            }
            NewNode::Symlink(_) | NewNode::HardLink(_) => Err(invalid("FFRecord holds no links")),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.left.take(bytes.len())?;
        if let Some(OpenCrc::Counted(crc)) = &mut self.open {
            crc.update(bytes);
        }
        self.writer.append(bytes)
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.end_sample()?;
        if let Some(names) = self.names.take() {
            self.writer.write_sample(&mut &names.encode()?[..])?;
        }
        self.writer.finish().map(drop)
    }
}

/// The names of a packed directory, which its last sample holds.
#[derive(Default)]
pub struct PackedNames(Branch);

impl PackedNames {
    /// Names a sample.
    ///
    /// # Errors
    /// Another entry has this name already, or the path is too deep.
    pub fn add_file(&mut self, path: &[u8], sample: u64) -> io::Result<()> {
        self.0.add(path, Branch::File(sample))
    }

    /// Names a directory, which may be empty.
    ///
    /// # Errors
    /// As [`PackedNames::add_file`].
    pub fn add_directory(&mut self, path: &[u8]) -> io::Result<()> {
        self.0.add(path, Branch::default())
    }

    /// Returns the bytes of the last sample.
    ///
    /// # Errors
    /// The format cannot hold such names.
    pub fn encode(self) -> io::Result<Vec<u8>> {
        let mut stored = PACKED_DIRECTORY_MAGIC.to_vec();
        if let Branch::Directory(entries) = self.0 {
            pickle::encode(&directory(entries), &mut stored)?;
        }
        Ok(stored)
    }
}

/// An entry of the tree; names are sorted, so that the same members give the same bytes.
enum Branch {
    File(u64),
    Directory(BTreeMap<Box<[u8]>, Branch>),
}

impl Default for Branch {
    fn default() -> Self {
        Branch::Directory(BTreeMap::new())
    }
}

impl Branch {
    fn add(&mut self, path: &[u8], leaf: Branch) -> io::Result<()> {
        let (mut place, mut depth) = (self, 0u16);
        for name in path.split(|byte| *byte == b'/') {
            depth = depth.saturating_add(1);
            let Branch::Directory(entries) = place else {
                return Err(invalid("a file and a directory with the same name"));
            };
            place = entries.entry(name.into()).or_default();
        }
        if depth >= pickle::MAX_DEPTH {
            return Err(invalid("the directories are nested too deeply"));
        }
        match (&place, &leaf) {
            (Branch::Directory(entries), _) if entries.is_empty() => *place = leaf,
            // A directory that was implied by its members.
            (Branch::Directory(_), Branch::Directory(_)) => {}
            _ => return Err(invalid("two members with the same name")),
        }
        Ok(())
    }
}

fn directory(entries: BTreeMap<Box<[u8]>, Branch>) -> Directory {
    let entries = entries.into_iter().map(|(name, branch)| match branch {
        Branch::File(number) => (name, Entry::File(number)),
        Branch::Directory(inner) => (name, Entry::Directory(directory(inner))),
    });
    Directory { entries: entries.collect() }
}
