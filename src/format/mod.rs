//! Bytes → samples: what lies where in a container, and how it is checked.
//!
//! One file (or folder) a format, the registry [`FORMATS`], positioned [`Source`]s and errors. This room
//! imports nothing from the others: no FUSE, no threads, no system calls, no `unsafe`, and no panic on
//! any input.
//!
//! A new format is one module that implements [`Format`] and [`Container`], and one line in [`FORMATS`].

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

mod error;
pub mod ffrecord;
pub mod magic;
mod source;

pub use error::{Error, Result};
pub use ffrecord::pickle::{Entry, Folder};
pub use source::{MemorySource, Source, Table};

use std::sync::Arc;

/// Every format that can be mounted, in the order in which they are tried.
pub static FORMATS: &[&dyn Format] = &[&ffrecord::FfRecord];

/// A kind of container.
pub trait Format: Sync {
    /// The name that people know it by, such as `FFRecord`.
    fn name(&self) -> &'static str;

    /// File name endings without the dot, in lower case.
    fn extensions(&self) -> &'static [&'static str];

    /// Whether the content looks like this format; cheap, and no promise that [`Format::open`] succeeds.
    ///
    /// # Errors
    /// The source cannot be read.
    fn detect(&self, source: &dyn Source) -> Result<bool>;

    /// Reads and checks the container's structure (not its samples).
    ///
    /// # Errors
    /// The source cannot be read, its structure is wrong, or its index fails its checksum.
    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>>;
}

/// How strict [`Format::open`] is.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenOptions {
    /// Accept damage that is confined to samples (those give an error when they are read).
    pub allow_damaged: bool,
}

/// One open container: an immutable list of samples.
pub trait Container: Send + Sync {
    /// The format's name, as in [`Format::name`].
    fn format(&self) -> &'static str;

    /// The number of samples.
    fn len(&self) -> u64;

    /// Whether there is no sample.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where sample `index` lies.
    ///
    /// # Errors
    /// `index` is out of range, or the container was changed so that its index cannot be read any more.
    fn sample(&self, index: u64) -> Result<Sample>;

    /// Whether the file is still the one that was opened, so that its index can be believed.
    ///
    /// # Errors
    /// It was changed meanwhile: how.
    fn check_unchanged(&self) -> std::io::Result<()>;

    /// The bytes of all samples together.
    fn data_bytes(&self) -> u64;

    /// The names that the container stores for samples `0..samples`.
    ///
    /// # Errors
    /// The source cannot be read, or the stored names fail their checksum.
    fn names(&self, samples: u64) -> Result<Names>;

    /// Whether the index carries a checksum (which then was right when the container was opened).
    fn index_checksum(&self) -> IndexChecksum;

    /// What an admin should know but what does not keep the container from being used.
    fn warnings(&self) -> &[String];
}

/// Where a sample lies in its container, and what its bytes must add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// First byte, from the start of the container.
    pub offset_bytes: u64,
    /// Length in bytes. Never 0 for a damaged sample: nobody would ask for its bytes and get the error.
    pub length_bytes: u64,
    /// CRC-32 (zlib's) of the bytes, if the format has one.
    pub crc32: Option<u32>,
    /// The index alone shows that the sample cannot be whole.
    pub damaged: bool,
}

/// Names found in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Names {
    /// Samples have numbers only.
    None,
    /// A tree of names over the samples.
    Tree(Folder),
    /// Something that looks like a tree of names and is none that may be trusted: why.
    Refused(String),
}

/// State of the checksum over a container's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexChecksum {
    /// Present and right.
    Ok,
    /// The format has one, this container does not.
    Absent,
}

/// Opens a container with the format that its content, or failing that its name, asks for.
///
/// # Errors
/// As [`Format::open`]; or no format knows the content.
pub fn open(source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
    for format in FORMATS {
        if format.detect(source.as_ref())? {
            return format.open(source, options);
        }
    }
    let extension = source.path().extension().map(|e| e.to_string_lossy().to_lowercase());
    let by_name =
        FORMATS.iter().find(|f| extension.as_deref().is_some_and(|e| f.extensions().contains(&e)));
    match by_name {
        // It cannot be right, but its own reader says best what is wrong.
        Some(format) => format.open(source, options),
        None => Err(Error::unknown(source.as_ref())),
    }
}

/// Whether a file name ends as some format's files do: what a folder of containers is searched for.
#[must_use]
pub fn has_known_extension(path: &std::path::Path) -> bool {
    let Some(extension) = path.extension().and_then(|e| e.to_str()) else { return false };
    FORMATS.iter().any(|f| f.extensions().iter().any(|e| e.eq_ignore_ascii_case(extension)))
}
