//! Members of archives: what they are called, and what is known of them beside their bytes.

/// A name in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// The path as the archive has it, in UTF-8 where its character set is known. Directories may end in `/`.
    /// It may lead out of the archive, stand twice, or not be a path at all.
    pub path: &'a [u8],
    /// What has this name.
    pub node: Node,
}

/// What has a name in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// A sample, by its number.
    Sample(u64),
    /// A directory; its `kind` and `links` are of no account.
    Directory(Attributes),
}

/// What is known of a member beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// What it is.
    pub kind: Kind,
    /// Permission bits, 0 to 0o7777.
    pub mode: Option<u16>,
    /// When it was last modified: seconds (before 1970: negative) and nanoseconds (0 to 999,999,999) since
    /// 1970, UTC.
    pub modified: Option<(i64, u32)>,
    /// How many names it has.
    pub links: u32,
}

/// What a sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// A regular file.
    #[default]
    File,
    /// A symbolic link: [`super::Container::link_target`].
    Symlink,
}

impl Default for Attributes {
    fn default() -> Self {
        Self { kind: Kind::File, mode: None, modified: None, links: 1 }
    }
}
