//! Code that formats share that must read a container whole to find its samples: one pass over the container ([`Scanner`]),
//! an index of the samples that it finds (`Index`, made by a `Builder`), and the index in a file, so that it is mapped the
//! next time.
//!
//! A format defines its row of a sample (`SampleRow`) and its pass. Names, directories, targets of links, files in pieces,
//! warnings, the file with its version and checksum, and reading ahead are here. Imports from [`crate::format`] alone.

mod builder;
mod file;
mod format;
mod headers;
mod index;
mod row;
#[cfg(test)]
mod tests;
mod window;

pub(in crate::format) use builder::{Builder, TooMany};
pub(in crate::format) use file::{MemberRow, MembersFile};
pub(in crate::format) use format::ScannedFormat;
pub(in crate::format) use headers::Headers;
pub(in crate::format) use index::Index;
pub(in crate::format) use row::{Fields, Packed, SampleRow, Stamp};

use super::{Container, Result, Source};
use std::sync::Arc;
pub(in crate::format) use window::{Window, keep_behind};

/// The most bytes by which formats recognise a decoded stream.
pub const FIRST_BYTES: usize = 512;

/// A pass over a container that goes only forward, so that a file and a decoded stream can drive it alike. It says which
/// bytes it needs next, and takes them; it skips the data of samples.
pub trait Scanner {
    /// The range that is needed next: its offset and its length in bytes, behind all earlier ranges. `None` if the pass has
    /// ended.
    fn want(&self) -> Option<(u64, u64)>;

    /// Takes the bytes of that range; fewer, if the container ends within it.
    ///
    /// # Errors
    /// The container is malformed.
    fn take(&mut self, bytes: &[u8]) -> Result<()>;

    /// The container that was scanned; `source` holds its bytes.
    ///
    /// # Errors
    /// The container is malformed, or ends early.
    fn finish(self: Box<Self>, source: Arc<dyn Source>) -> Result<Box<dyn Container>>;
}

/// Drives a pass over a container that can be read at any offset.
pub(in crate::format) fn scan(
    source: Arc<dyn Source>,
    mut scanner: Box<dyn Scanner>,
) -> Result<Box<dyn Container>> {
    let mut window = Window::new(source.as_ref());
    while let Some((offset_bytes, length_bytes)) = scanner.want() {
        scanner.take(window.get(offset_bytes, length_bytes)?)?;
    }
    scanner.finish(source)
}
