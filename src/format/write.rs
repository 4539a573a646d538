//! Writing containers: the attributes that a format can hold, and how members are added.
//!
//! A new format's writer is one file, `writer.rs` in its directory, and one line in [`WRITERS`].

mod records;

pub(super) use records::{Field, Gather, RecordWriter, in_order};

use super::{Checksum, ffcv, ffrecord, mds, syrah, tar, tfrecord, zip};
use std::io::{self, Read, Seek, Write};

/// Every format that can be written.
pub static WRITERS: &[&dyn WriteFormat] = &[
    &ffrecord::WriteFfRecord,
    &zip::WriteZip,
    &tar::WriteTar,
    &tfrecord::WriteTfRecord,
    &mds::WriteMds,
    &syrah::WriteSyrah,
    &ffcv::WriteFfcv,
];

/// A kind of container that can be written.
pub trait WriteFormat: Sync {
    /// The format's name, as in [`super::Format::name`].
    fn name(&self) -> &'static str;

    /// File name endings without the dot, in lower case.
    fn extensions(&self) -> &'static [&'static str];

    /// The attributes of a member that are kept beside its name and its bytes.
    fn holds(&self) -> Holds;

    /// Whether the format's samples have fields: members that belong together ([`Outline::grouping`]).
    fn has_fields(&self) -> bool {
        self.holds() == Holds::FIELDS
    }

    /// About how many bytes of the container a member takes, its headers and index entries included.
    fn member_bytes(&self, member: &NewMember) -> u64;

    /// The list of the containers of a directory, for a format whose containers lie in one.
    fn listed(&self) -> Option<&dyn WriteList> {
        None
    }

    /// Begins a container at the start of `out`.
    ///
    /// # Errors
    /// `out` cannot be written, or the format cannot hold as much as `outline` says.
    fn begin<'a>(
        &self,
        out: Box<dyn Output + 'a>,
        outline: &Outline,
    ) -> io::Result<Box<dyn MemberWriter + 'a>>;
}

/// A format whose containers lie in a directory, with a list of them.
pub trait WriteList {
    /// The name of the container of this number.
    fn container_name(&self, number: usize) -> String;

    /// The most bytes of a container, unless the user asks for another limit.
    fn container_bytes(&self) -> u64;

    /// The name of the list.
    fn list_name(&self) -> &'static str;

    /// The list of these containers, whose bytes are given, in order.
    ///
    /// # Errors
    /// A container cannot be read.
    fn list(
        &self,
        containers: &mut dyn Iterator<Item = io::Result<Box<dyn Input>>>,
    ) -> io::Result<Vec<u8>>;
}

/// The file that a container is read from after it was written.
pub trait Input: Read + Seek {}

impl<T: Read + Seek> Input for T {}

/// The file that a container is written to.
pub trait Output: Write + Seek {}

impl<T: Write + Seek> Output for T {}

/// The facts of a container that are known before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outline {
    /// The number of members that are files.
    pub files: u64,
    /// Whether members are called by their numbers: a format that can do without names then stores no names.
    pub is_numbered: bool,
    /// The members that make a sample, for formats whose samples have fields.
    pub grouping: Grouping,
    /// The number of samples that this grouping makes.
    pub records: u64,
    /// Length of the largest file.
    pub largest_bytes: u64,
}

/// The members that make a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// Each file by itself.
    Files,
    /// The files in one numbered directory, such as `000123/`; perhaps in a directory of such directories.
    Records,
    /// The files that differ only behind the first dot of their name, as in WebDataset.
    Keys,
}

/// The least digits of a numbered directory, and of a directory of such directories.
const RECORD_DIGITS: usize = 6;
const OUTER_DIGITS: usize = 3;

impl Grouping {
    /// The path of the numbered directory that a file lies in.
    #[must_use]
    pub fn record_directory(path: &[u8]) -> Option<&[u8]> {
        let slash = |from: usize| {
            let rest = path.get(from..)?;
            rest.iter().position(|byte| *byte == b'/')?.checked_add(from)
        };
        let is_number = |from: usize, to: usize, digits: usize| {
            let name = path.get(from..to).unwrap_or_default();
            name.len() >= digits && name.iter().all(u8::is_ascii_digit)
        };
        let first = slash(0)?;
        if let Some(second) = slash(first.saturating_add(1))
            && is_number(0, first, OUTER_DIGITS)
            && is_number(first.saturating_add(1), second, RECORD_DIGITS)
        {
            return path.get(..second);
        }
        is_number(0, first, RECORD_DIGITS).then(|| path.get(..first)).flatten()
    }

    /// The beginning that the paths of a sample's members have in common, and no other sample's.
    #[must_use]
    pub fn key(self, path: &[u8]) -> &[u8] {
        let name = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at.saturating_add(1));
        match self {
            Grouping::Files => path,
            Grouping::Records => Self::record_directory(path).unwrap_or(path),
            Grouping::Keys => {
                let dot = path.iter().skip(name.saturating_add(1)).position(|byte| *byte == b'.');
                let end = dot.map(|dot| dot.saturating_add(name).saturating_add(1));
                end.and_then(|end| path.get(..end)).unwrap_or(path)
            }
        }
    }
}

/// The attributes of a member that a format keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holds {
    /// Permission bits.
    pub modes: bool,
    /// The resolution of times of last modification, in nanoseconds; 0 if no times are kept.
    pub times_nanos: u32,
    /// Symbolic links.
    pub symlinks: bool,
    /// Several names of one file.
    pub hard_links: bool,
    /// Names that are not UTF-8, so that every reader shows the same bytes.
    pub any_names: bool,
    /// Directories without files.
    pub empty_directories: bool,
}

impl Holds {
    /// Records and their fields, and nothing else.
    pub(super) const FIELDS: Self = Self {
        modes: false,
        times_nanos: 0,
        symlinks: false,
        hard_links: false,
        any_names: false,
        empty_directories: false,
    };
}

/// A member to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewMember<'a> {
    /// The path: names that a directory can hold, with `/` between them.
    pub path: &'a [u8],
    /// The kind of the member.
    pub node: NewNode<'a>,
    /// Permission bits, 0 to 0o7777; `None` for the usual ones.
    pub mode: Option<u16>,
    /// The time of last modification, as [`super::Attributes::modified`].
    pub modified: (i64, u32),
}

/// The kind of a member to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// A file, whose bytes follow.
    File {
        /// Length in bytes.
        size_bytes: u64,
        /// The checksum of the bytes, if it is known.
        checksum: Option<Checksum>,
    },
    /// A directory.
    Directory,
    /// A symbolic link to this path.
    Symlink(&'a [u8]),
    /// Another name of the file that was added under this path.
    HardLink(&'a [u8]),
}

impl NewMember<'_> {
    /// The member's permission bits, or those that files, directories and links usually have.
    #[must_use]
    pub fn mode_or_usual(&self) -> u16 {
        self.mode.unwrap_or(match self.node {
            NewNode::File { .. } | NewNode::HardLink(_) => 0o644,
            NewNode::Directory => 0o755,
            NewNode::Symlink(_) => 0o777,
        })
    }

    /// The number of bytes that are to follow.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        match self.node {
            NewNode::File { size_bytes, .. } => size_bytes,
            NewNode::Directory | NewNode::Symlink(_) | NewNode::HardLink(_) => 0,
        }
    }
}

/// A container that is being written. Until [`MemberWriter::finish`] it is not a valid one.
pub trait MemberWriter {
    /// Adds a member. The bytes of a file follow.
    ///
    /// # Errors
    /// Writing failed; the format does not hold such members ([`WriteFormat::holds`]); or the member before
    /// it has not got all of its bytes.
    fn begin(&mut self, member: &NewMember) -> io::Result<()>;

    /// Appends to the file that was begun.
    ///
    /// # Errors
    /// Writing failed, or these are more bytes than announced.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Writes the bytes behind all members, and flushes.
    ///
    /// # Errors
    /// Writing failed; or fewer bytes or members than announced.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// The writer of this name: a format's, or a file name ending of one.
#[must_use]
pub fn writer_named(text: &str) -> Option<&'static dyn WriteFormat> {
    let is_meant = |format: &&&dyn WriteFormat| {
        format.name().eq_ignore_ascii_case(text)
            || format.extensions().iter().any(|ending| ending.eq_ignore_ascii_case(text))
    };
    WRITERS.iter().find(is_meant).copied()
}

/// Bytes that were announced and have not come yet.
#[derive(Debug, Default)]
pub(super) struct Announced(u64);

impl Announced {
    pub(super) fn expect(&mut self, bytes: u64) -> io::Result<()> {
        self.check_done()?;
        self.0 = bytes;
        Ok(())
    }

    pub(super) fn take(&mut self, bytes: usize) -> io::Result<()> {
        let left = self.0.checked_sub(bytes as u64);
        self.0 = left.ok_or_else(|| invalid("more bytes than announced"))?;
        Ok(())
    }

    pub(super) fn is_done(&self) -> bool {
        self.0 == 0
    }

    pub(super) fn check_done(&self) -> io::Result<()> {
        if self.is_done() { Ok(()) } else { Err(invalid("fewer bytes than announced")) }
    }
}

pub(super) fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
