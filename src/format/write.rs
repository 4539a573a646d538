//! Writing containers: what a format can hold, and how members are added.
//!
//! A new format's writer is one file, `writer.rs` in its directory, and one line in [`WRITERS`].

use super::{Checksum, ffrecord, tar, zip};
use std::io::{self, Seek, Write};

/// Every format that can be written.
pub static WRITERS: &[&dyn WriteFormat] =
    &[&ffrecord::WriteFfRecord, &zip::WriteZip, &tar::WriteTar];

/// A kind of container that can be written.
pub trait WriteFormat: Sync {
    /// The format's name, as in [`super::Format::name`].
    fn name(&self) -> &'static str;

    /// File name endings without the dot, in lower case.
    fn extensions(&self) -> &'static [&'static str];

    /// What is kept of a member beside its name and its bytes.
    fn holds(&self) -> Holds;

    /// About how many bytes of the container a member takes, its headers and index entries included.
    fn member_bytes(&self, member: &NewMember) -> u64;

    /// Begins a container at the start of `out`.
    ///
    /// # Errors
    /// `out` cannot be written, or the format cannot hold so much.
    fn begin<'a>(
        &self,
        out: Box<dyn Output + 'a>,
        outline: &Outline,
    ) -> io::Result<Box<dyn MemberWriter + 'a>>;
}

/// What a container is written to.
pub trait Output: Write + Seek {}

impl<T: Write + Seek> Output for T {}

/// What is known of a container before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outline {
    /// How many of its members are files.
    pub files: u64,
    /// Members are called by their numbers: a format that can do without names stores none.
    pub is_numbered: bool,
}

/// What a format keeps of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holds {
    /// Permission bits.
    pub modes: bool,
    /// Times of last modification, to so many nanoseconds; 0: not at all.
    pub times_nanos: u32,
    /// Symbolic links.
    pub symlinks: bool,
    /// Several names of one file.
    pub hard_links: bool,
    /// Names that are not UTF-8, so that every reader shows the same bytes.
    pub any_names: bool,
}

/// A member to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewMember<'a> {
    /// Its path: names that a directory can hold, with `/` between them.
    pub path: &'a [u8],
    /// What it is.
    pub node: NewNode<'a>,
    /// Permission bits, 0 to 0o7777; `None`: what is usual.
    pub mode: Option<u16>,
    /// When it was last modified, as [`super::Attributes::modified`].
    pub modified: (i64, u32),
}

/// What a member to be added is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// A file: so many bytes follow, with this checksum if it is known.
    File {
        /// Length in bytes.
        size_bytes: u64,
        /// The checksum.
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
    /// Its permission bits, or those that files, directories and links usually have.
    #[must_use]
    pub fn mode_or_usual(&self) -> u16 {
        self.mode.unwrap_or(match self.node {
            NewNode::File { .. } | NewNode::HardLink(_) => 0o644,
            NewNode::Directory => 0o755,
            NewNode::Symlink(_) => 0o777,
        })
    }

    /// How many bytes are to follow.
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

    /// Writes what stands behind all members, and flushes.
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
