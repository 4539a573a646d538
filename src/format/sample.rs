//! Where a sample lies, and how its file comes from the stored bytes.
//!
//! Imports only checksums of this room.

use super::Checksum;

/// Where a sample lies in its container, and what its bytes must add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// First stored byte, from the start of the container.
    pub offset_bytes: u64,
    /// Length as stored, in bytes. Never 0 for a damaged sample: nobody would ask for its bytes and get the
    /// error.
    pub length_bytes: u64,
    /// Bytes of its header, which stand before it: they are fetched with it, and [`super::Container::check_header`] must see
    /// them first.
    pub header_bytes: u32,
    /// Of the bytes that the container holds for it, decoded if they are encoded: what the container stores,
    /// or a [`super::sidecar`] (then [`crate::catalog::Dataset::locate`] puts it here).
    pub checksum: Option<Checksum>,
    /// The index alone shows that the sample cannot be whole.
    pub damaged: bool,
    /// How the file that is shown comes from the stored bytes.
    pub content: Content,
    /// What decoding it takes in memory beside the stored and the shown bytes, in bytes.
    pub scratch_bytes: u64,
}

/// How a file comes from stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Content {
    /// It is them.
    #[default]
    Stored,
    /// They stand behind so many bytes that [`super::Container::prefix`] gives.
    Prefixed(u32),
    /// They are an encoding of so many bytes: [`super::Container::decode`].
    Encoded(u64),
    /// They are pieces of a file of so many bytes: [`super::Container::piece`].
    Sparse(u64),
}

impl Sample {
    /// The size of the file that is shown, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match self.content {
            Content::Stored => self.length_bytes,
            Content::Prefixed(prefix) => self.length_bytes.saturating_add(u64::from(prefix)),
            Content::Encoded(size) | Content::Sparse(size) => size,
        }
    }

    /// The largest of what is held in memory to read it as a whole, in bytes: as it is stored, as it is shown, and between.
    #[must_use]
    pub fn largest_bytes(&self) -> u64 {
        self.length_bytes.max(self.size_bytes()).max(self.scratch_bytes)
    }

    /// All that is held in memory to read it as a whole, in bytes.
    #[must_use]
    pub fn working_bytes(&self) -> u64 {
        self.length_bytes.saturating_add(self.size_bytes()).saturating_add(self.scratch_bytes)
    }

    /// One past the last stored byte.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes.saturating_add(self.length_bytes)
    }

    /// All that must be fetched for the whole of it, from the start of the container.
    #[must_use]
    pub fn extent(&self) -> std::ops::Range<u64> {
        let start = self.offset_bytes.saturating_sub(u64::from(self.header_bytes));
        start..self.end_bytes()
    }
}

/// A stored piece of a sparse file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where in the file.
    pub at_bytes: u64,
    /// How long, in bytes; not 0.
    pub length_bytes: u64,
    /// Where in the container.
    pub offset_bytes: u64,
}
