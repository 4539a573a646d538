//! Members of archives: their names and attributes.

/// A name in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// The path as the archive has it, in UTF-8 where its character set is known. Paths of directories may end in `/`. A
    /// path may lead out of the archive, stand twice, or not be a path at all.
    pub path: &'a [u8],
    /// The sample or directory with this name.
    pub node: Node,
}

/// The sample or directory that a name in an archive belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// A sample, by its number.
    Sample(u64),
    /// A directory; its `kind` and `links` are ignored.
    Directory(Attributes),
}

/// Attributes of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// The kind of member.
    pub kind: Kind,
    /// Permission bits, 0 to 0o7777.
    pub mode: Option<u16>,
    /// Time of the last modification: seconds (before 1970: negative) and nanoseconds (0 to 999,999,999) since 1970, UTC.
    pub modified: Option<(i64, u32)>,
    /// Number of names of the member.
    pub links: u32,
}

/// The kind of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// A regular file.
    #[default]
    File,
    /// A symbolic link to [`super::Container::link_target`].
    Symlink,
}

impl Default for Attributes {
    fn default() -> Self {
        Self { kind: Kind::File, mode: None, modified: None, links: 1 }
    }
}
