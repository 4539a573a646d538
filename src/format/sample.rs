//! Where a sample lies, and how its file comes from the stored bytes.
//!
//! Imports only checksums of this room.

use super::Checksum;

/// A sample's place in its container, and the checksum of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// Offset of the first stored byte, from the start of the container.
    pub offset_bytes: u64,
    /// Length as stored, in bytes. Never 0 for a damaged sample: no program would ask for its bytes and get the error.
    pub length_bytes: u64,
    /// Number of header bytes before the sample: they are fetched with it, and [`super::Container::check_header`] must see
    /// them first.
    pub header_bytes: u32,
    /// Checksum of the bytes that the container holds for the sample, decoded if they are encoded. It is stored in the
    /// container, or in a [`super::sidecar`] (then [`crate::catalog::Dataset::locate`] puts it here).
    pub checksum: Option<Checksum>,
    /// Whether the index alone shows that the sample cannot be whole.
    pub damaged: bool,
    /// How the file that is shown comes from the stored bytes.
    pub content: Content,
    /// Memory that decoding takes beside the stored and the shown bytes, in bytes.
    pub scratch_bytes: u64,
}

/// How a file comes from stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Content {
    /// The file is the stored bytes.
    #[default]
    Stored,
    /// The stored bytes stand behind this number of bytes, which [`super::Container::prefix`] gives.
    Prefixed(u32),
    /// The stored bytes are an encoding of this number of bytes: [`super::Container::decode`].
    Encoded(u64),
    /// The stored bytes are pieces of a file of this size in bytes: [`super::Container::piece`].
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

    /// The largest piece of memory for reading the whole sample, in bytes: stored bytes, shown bytes, or scratch memory.
    #[must_use]
    pub fn largest_bytes(&self) -> u64 {
        self.length_bytes.max(self.size_bytes()).max(self.scratch_bytes)
    }

    /// All memory for reading the whole sample, in bytes.
    #[must_use]
    pub fn working_bytes(&self) -> u64 {
        self.length_bytes.saturating_add(self.size_bytes()).saturating_add(self.scratch_bytes)
    }

    /// The approximate number of stored bytes that `shown_bytes` of the file are made of, header bytes included.
    #[must_use]
    pub fn stored_share(&self, shown_bytes: u64) -> u64 {
        if self.content == Content::Stored && self.header_bytes == 0 {
            return shown_bytes;
        }
        let stored = self.length_bytes.saturating_add(u64::from(self.header_bytes));
        let product = u128::from(shown_bytes).saturating_mul(u128::from(stored));
        let share = product.checked_div(u128::from(self.size_bytes())).unwrap_or(0);
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// The offset behind the last stored byte.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes.saturating_add(self.length_bytes)
    }

    /// The range that must be fetched for the whole sample, header bytes included, from the start of the container.
    #[must_use]
    pub fn extent(&self) -> std::ops::Range<u64> {
        let start = self.offset_bytes.saturating_sub(u64::from(self.header_bytes));
        start..self.end_bytes()
    }
}

/// A stored piece of a sparse file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the file, in bytes.
    pub at_bytes: u64,
    /// Length in bytes; not 0.
    pub length_bytes: u64,
    /// Offset in the container, in bytes.
    pub offset_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_file_has_as_large_a_share_of_the_stored_bytes() {
        let share = |length_bytes, content, shown_bytes| {
            Sample { length_bytes, content, ..Sample::default() }.stored_share(shown_bytes)
        };
        assert_eq!(share(100, Content::Stored, 30), 30);
        assert_eq!(share(8, Content::Prefixed(128), 136), 8);
        let content = Content::Encoded(400);
        let member = Sample { length_bytes: 100, header_bytes: 50, content, ..Sample::default() };
        assert_eq!([400, 200].map(|shown| member.stored_share(shown)), [150, 75]);
        let encoded = [400, 200, 3, 0].map(|shown| share(100, Content::Encoded(400), shown));
        assert_eq!(encoded, [100, 50, 0, 0]);
        assert_eq!(share(7, Content::Encoded(0), 5), 0);
        assert_eq!(share(u64::MAX, Content::Encoded(1), u64::MAX), u64::MAX);
    }
}
