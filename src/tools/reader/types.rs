//! The types of the offline reader: memory, chunks, whole files, and why a read stopped.
//!
//! Imports no other file of this directory.

use crate::failure::{Exit, Failure};
use crate::format::{Checksum, Fault};
use crate::io::Buffer;
use std::ops::Range;

/// The length of a span, so that small samples become large reads.
pub(crate) const SPAN_BYTES: u64 = 4 << 20;

/// The memory that a thread reads to and reuses.
pub(crate) struct Scratch {
    pub(crate) buffer: Buffer,
    /// The most recently decoded interval of a compressed stream.
    pub(super) interval: Option<DecodedInterval>,
}

/// A decoded interval of a compressed stream.
pub(super) struct DecodedInterval {
    pub(super) container: usize,
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self { buffer: Buffer::empty(), interval: None }
    }
}

/// A file that was read whole, and checked.
pub(crate) struct WholeFile {
    pub(crate) bytes: FileBytes,
    /// The checksum of the bytes, if it is known.
    pub(crate) checksum: Option<Checksum>,
}

/// Where the bytes of a file are.
pub(crate) enum FileBytes {
    /// In [`Scratch::buffer`].
    InBuffer(Range<usize>),
    Own(Vec<u8>),
}

impl FileBytes {
    /// The bytes; `buffer` is the one that they were read to.
    pub(crate) fn get<'a>(&'a self, buffer: &'a Buffer) -> &'a [u8] {
        match self {
            FileBytes::InBuffer(range) => &buffer.as_slice()[range.clone()],
            FileBytes::Own(bytes) => bytes,
        }
    }
}

/// A piece of a file.
pub(crate) enum Chunk<'a> {
    Data(&'a [u8]),
    /// A hole of this many bytes: zeros that are not stored.
    Hole(u64),
}

static ZEROS: [u8; 65536] = [0; 65536];

impl Chunk<'_> {
    /// Passes the bytes of the chunk to `take`; a hole is zeros.
    pub(crate) fn each_slice<E>(
        &self,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match *self {
            Chunk::Data(bytes) => take(bytes),
            Chunk::Hole(mut left) => {
                while left > 0 {
                    let length = left.min(ZEROS.len() as u64);
                    take(&ZEROS[..length as usize])?;
                    left -= length;
                }
                Ok(())
            }
        }
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match *self {
            Chunk::Data(bytes) => bytes.len() as u64,
            Chunk::Hole(length) => length,
        }
    }
}

/// Takes the chunks of a file in order.
pub(crate) type TakeChunk<'a> = dyn FnMut(Chunk) -> Result<(), Failure> + 'a;

/// Why a file was not read to its end.
pub(crate) enum Stop {
    /// The file is bad.
    Bad(Fault),
    /// The receiver of the chunks has failed, or the user has interrupted the work.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Failed(failure)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Stop::Bad(fault)
    }
}

/// The exit code for bad samples, which tells unreadable samples from wrong ones. Encrypted samples decide it only if
/// there are no others.
pub(crate) fn exit_of<'a>(faults: impl Iterator<Item = &'a Fault>) -> Exit {
    let is_locked = std::cell::Cell::new(false);
    let mut faults = faults.filter(|fault| {
        is_locked.set(is_locked.get() || **fault == Fault::Locked);
        **fault != Fault::Locked
    });
    match faults.next() {
        None if is_locked.get() => Exit::Password,
        None => Exit::Ok,
        Some(first) => match !first.is_permanent() && faults.all(|fault| !fault.is_permanent()) {
            true => Exit::Unreadable,
            false => Exit::Checksum,
        },
    }
}

/// The tool's failure for a bad file.
pub(crate) fn bad_file(path: &[u8], fault: &Fault) -> Failure {
    let exit = exit_of(std::iter::once(fault));
    Failure::new(exit, format!("{}: {fault}", String::from_utf8_lossy(path)))
}
