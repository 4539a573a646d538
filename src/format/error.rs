//! What can be wrong with a container, always with the file and the byte.

use super::{FORMATS, PartName, Source};
use crate::format::counted;
use std::io;
use std::path::Path;

/// Result of reading a container.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a container, or a part of it, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system does not give the bytes.
    #[error("{part}: cannot read {what} at byte {offset_bytes}: {source}")]
    Unreadable {
        /// The container.
        part: PartName,
        /// Which part of it.
        what: &'static str,
        /// Where in the file.
        offset_bytes: u64,
        /// The operating system's word.
        source: io::Error,
    },

    /// The structure is not what the format says.
    #[error(
        "{part}: not a usable {format} container: at byte {offset_bytes}: expected {expected}, found {found}{hint}"
    )]
    Malformed {
        /// The container.
        part: PartName,
        /// The format that was tried.
        format: &'static str,
        /// Where in the file.
        offset_bytes: u64,
        /// What should stand there.
        expected: String,
        /// What does.
        found: String,
        /// What to do about it; empty, or text that begins with its own punctuation.
        hint: &'static str,
    },

    /// A file of a kind that no format here reads.
    #[error("{part} is {kind}, which ffrfs does not mount: {advice}{hint}")]
    Foreign {
        /// The file.
        part: PartName,
        /// What it is, with its article.
        kind: &'static str,
        /// What to do about it.
        advice: &'static str,
        /// What else can be done; empty, or text that begins with its own punctuation.
        hint: &'static str,
    },

    /// A password that does not decrypt what it should.
    #[error("{part}: wrong password{hint}")]
    WrongPassword {
        /// The container.
        part: PartName,
        /// What else may be wrong, and what to do; empty, or text that begins with its own punctuation.
        hint: &'static str,
    },

    /// Encrypted, and no password was given.
    #[error("{part}: encrypted: give --password-file")]
    Locked {
        /// The container.
        part: PartName,
    },

    /// Encrypted so that no password helps.
    #[error("{part}: {}", unread_encryption(.how))]
    Encryption {
        /// The container.
        part: PartName,
        /// The way of encryption.
        how: &'static str,
    },

    /// Stored bytes that are no encoding of what they should be.
    #[error("{part}: damaged at byte {offset_bytes}: {why}")]
    Undecodable {
        /// The container.
        part: PartName,
        /// Where they begin in the file.
        offset_bytes: u64,
        /// What is wrong with them.
        why: String,
    },

    /// A compressed stream that can only be decoded from its beginning.
    #[error(
        "{part}: this {format} stream cannot be read in the middle: at byte {offset_bytes}: expected \
         checkpoints at most 64 MiB apart, found {found}: --spool DIR decodes it to disk, or compress it in \
         frames or blocks (zstd: pzstd, xz: -T0)"
    )]
    NoCheckpoints {
        /// The container.
        part: PartName,
        /// The codec.
        format: &'static str,
        /// Where in the file.
        offset_bytes: u64,
        /// What is there instead.
        found: String,
    },

    /// Bytes that do not add up to their checksum.
    #[error(
        "{part}: checksum mismatch in {what} at byte {offset_bytes}: expected {expected:#010x}, found {found:#010x}{hint}"
    )]
    Checksum {
        /// The container.
        part: PartName,
        /// Which part of it.
        what: String,
        /// Where that part begins.
        offset_bytes: u64,
        /// The stored checksum.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
        /// What to do about it; empty, or text that begins with its own punctuation.
        hint: &'static str,
    },
}

impl Error {
    pub(super) fn unknown(source: &dyn Source) -> Self {
        let names: Vec<_> = FORMATS.iter().map(|f| f.name()).collect();
        Error::Malformed {
            part: source.name().clone(),
            format: "dataset",
            offset_bytes: 0,
            expected: format!("a container of a known format ({})", names.join(", ")),
            found: format!("{} of no known format", counted(source.len(), "byte")),
            hint: hint_of(source.name().file_name()),
        }
    }
}

/// What is said of what is encrypted in such a way.
pub(super) fn unread_encryption(how: &str) -> String {
    format!(
        "encrypted in a way that ffrfs does not read ({how}): decrypt the archive with the program that made it"
    )
}

/// What the name of a file tells of a content that has no magic number.
fn hint_of(path: &Path) -> &'static str {
    match unread_codec(path) {
        Some("brotli") => ": brotli is not read: decompress it first (brotli -d)",
        Some(_) => ": snappy is not read: decompress it first",
        None => "",
    }
}

/// The codec of a file that is compressed so that it is not read, by its name: MosaicML Streaming writes such shards.
#[must_use]
pub fn unread_codec(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()? {
        "br" | "brotli" => Some("brotli"),
        "snappy" | "sz" => Some("snappy"),
        _ => None,
    }
}
