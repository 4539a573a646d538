//! Errors of containers: each names the file, and the byte if there is one.

use super::{FORMATS, PartName, Source};
use crate::format::counted;
use std::io;
use std::path::Path;

/// Result of reading a container.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a container, or some of it, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system does not give the bytes.
    #[error("{part}: cannot read {what} at byte {offset_bytes}: {source}")]
    Unreadable {
        /// The container.
        part: PartName,
        /// The name of the bytes.
        what: &'static str,
        /// Their offset in the file.
        offset_bytes: u64,
        /// The operating system's error.
        source: io::Error,
    },

    /// The structure does not follow the format.
    #[error(
        "{part}: not a usable {format} container: at byte {offset_bytes}: expected {expected}, found {found}{hint}"
    )]
    Malformed {
        /// The container.
        part: PartName,
        /// The format that was tried.
        format: &'static str,
        /// The offset of the fault in the file.
        offset_bytes: u64,
        /// The content that should stand there.
        expected: String,
        /// The content that stands there.
        found: String,
        /// Advice; empty, or text that begins with its own punctuation.
        hint: &'static str,
    },

    /// A file of a kind that no format here reads.
    #[error("{part} is {kind}, which ffrfs does not mount: {advice}{hint}")]
    Foreign {
        /// The file.
        part: PartName,
        /// The kind of file, with its article.
        kind: &'static str,
        /// Advice.
        advice: &'static str,
        /// More advice; empty, or text that begins with its own punctuation.
        hint: &'static str,
    },

    /// A password that does not decrypt the data.
    #[error("{part}: wrong password{hint}")]
    WrongPassword {
        /// The container.
        part: PartName,
        /// Another possible cause, and advice; empty, or text that begins with its own punctuation.
        hint: &'static str,
    },

    /// Encrypted data, and no password was given.
    #[error("{part}: encrypted: give --password-file")]
    Locked {
        /// The container.
        part: PartName,
    },

    /// Data that are encrypted in a way that is not read: no password helps.
    #[error("{part}: {}", unread_encryption(.how))]
    Encryption {
        /// The container.
        part: PartName,
        /// The way of encryption.
        how: &'static str,
    },

    /// Stored bytes that cannot be decoded.
    #[error("{part}: damaged at byte {offset_bytes}: {why}")]
    Undecodable {
        /// The container.
        part: PartName,
        /// Their offset in the file.
        offset_bytes: u64,
        /// The reason.
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
        /// The offset in the file at which a checkpoint is missing.
        offset_bytes: u64,
        /// The number of bytes without a checkpoint, as text; "none" for a codec without checkpoints.
        found: String,
    },

    /// Bytes that do not match their checksum.
    #[error(
        "{part}: checksum mismatch in {what} at byte {offset_bytes}: expected {expected:#010x}, found {found:#010x}{hint}"
    )]
    Checksum {
        /// The container.
        part: PartName,
        /// The name of the bytes.
        what: String,
        /// Their offset in the file.
        offset_bytes: u64,
        /// The stored checksum.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
        /// Advice; empty, or text that begins with its own punctuation.
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

/// The message about data that are encrypted in a way that is not read.
pub(super) fn unread_encryption(how: &str) -> String {
    format!(
        "encrypted in a way that ffrfs does not read ({how}): decrypt the archive with the program that made it"
    )
}

/// Advice about content without a magic number, by the name of its file.
fn hint_of(path: &Path) -> &'static str {
    match unread_codec(path) {
        Some("brotli") => ": brotli is not read: decompress it first (brotli -d)",
        Some(_) => ": snappy is not read: decompress it first",
        None => "",
    }
}

/// The codec of a file, by its name, if ffrfs does not read that codec: MosaicML Streaming writes such shards.
#[must_use]
pub fn unread_codec(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()? {
        "br" | "brotli" => Some("brotli"),
        "snappy" | "sz" => Some("snappy"),
        _ => None,
    }
}
