//! Checksums of samples: the algorithm, and the value that a container or a sidecar stores.
//!
//! Imports nothing from the other files. Samples are hashed only here; checksums of the structure of one format (its
//! index, its headers) stay with that format.

use crc_fast::{CrcAlgorithm, Digest, checksum_combine};
use std::fmt;

/// The constant that TFRecord adds to a CRC-32C when it masks it.
const MASK_DELTA: u32 = 0xa282_ead8;

/// A stored checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// CRC-32 as in zlib, zip, gzip and FFRecord.
    Crc32(u32),
    /// CRC-32C (Castagnoli).
    Crc32c(u32),
    /// CRC-32C as TFRecord stores it: rotated right by 15 bits, plus a constant.
    MaskedCrc32c(u32),
}

/// The algorithm of a [`Checksum`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChecksumKind {
    /// [`Checksum::Crc32`].
    Crc32,
    /// [`Checksum::Crc32c`].
    Crc32c,
    /// [`Checksum::MaskedCrc32c`].
    MaskedCrc32c,
}

/// The error for bytes that do not match their checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// The stored checksum.
    pub expected: Checksum,
    /// The checksum of the bytes, by the same algorithm.
    pub found: Checksum,
}

impl Checksum {
    /// The checksum's algorithm.
    #[must_use]
    pub fn kind(self) -> ChecksumKind {
        match self {
            Checksum::Crc32(_) => ChecksumKind::Crc32,
            Checksum::Crc32c(_) => ChecksumKind::Crc32c,
            Checksum::MaskedCrc32c(_) => ChecksumKind::MaskedCrc32c,
        }
    }

    /// The checksum's value, as it is stored.
    #[must_use]
    pub fn value(self) -> u32 {
        match self {
            Checksum::Crc32(value) | Checksum::Crc32c(value) | Checksum::MaskedCrc32c(value) => {
                value
            }
        }
    }

    /// The checksum's value, if it is a CRC-32.
    #[must_use]
    pub fn crc32(self) -> Option<u32> {
        match self {
            Checksum::Crc32(value) => Some(value),
            Checksum::Crc32c(_) | Checksum::MaskedCrc32c(_) => None,
        }
    }

    /// Compares the checksum with that of `bytes`, all of the bytes that it covers.
    ///
    /// # Errors
    /// The bytes do not match the checksum.
    pub fn check(self, bytes: &[u8]) -> Result<(), Mismatch> {
        self.compare(self.kind().of(bytes))
    }

    /// Compares the checksum with `found`, that of the bytes that were read.
    ///
    /// # Errors
    /// The checksums differ.
    pub fn compare(self, found: Checksum) -> Result<(), Mismatch> {
        if found == self { Ok(()) } else { Err(Mismatch { expected: self, found }) }
    }

    /// A hasher by the same algorithm, for [`Checksum::compare`].
    #[must_use]
    pub fn hasher(self) -> Hasher {
        Hasher::new(self.kind())
    }
}

impl ChecksumKind {
    /// Every algorithm.
    pub const ALL: [Self; 3] = [Self::Crc32, Self::Crc32c, Self::MaskedCrc32c];

    /// The name that people know the algorithm by.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ChecksumKind::Crc32 => "CRC-32",
            ChecksumKind::Crc32c => "CRC-32C",
            ChecksumKind::MaskedCrc32c => "masked CRC-32C",
        }
    }

    /// The algorithm's name in options and figures.
    #[must_use]
    pub fn option(self) -> &'static str {
        match self {
            ChecksumKind::Crc32 => "crc32",
            ChecksumKind::Crc32c => "crc32c",
            ChecksumKind::MaskedCrc32c => "masked-crc32c",
        }
    }

    /// A checksum by this algorithm whose stored value is `value`.
    #[must_use]
    pub fn with_value(self, value: u32) -> Checksum {
        match self {
            ChecksumKind::Crc32 => Checksum::Crc32(value),
            ChecksumKind::Crc32c => Checksum::Crc32c(value),
            ChecksumKind::MaskedCrc32c => Checksum::MaskedCrc32c(value),
        }
    }

    /// The checksum of `bytes`.
    #[must_use]
    pub fn of(self, bytes: &[u8]) -> Checksum {
        match self {
            ChecksumKind::Crc32 => Checksum::Crc32(crc32fast::hash(bytes)),
            ChecksumKind::Crc32c => Checksum::Crc32c(crc32c(bytes)),
            ChecksumKind::MaskedCrc32c => Checksum::MaskedCrc32c(mask(crc32c(bytes))),
        }
    }

    /// The algorithm's number in files that the program keeps; not 0, and never changed.
    #[must_use]
    pub fn code(self) -> u32 {
        match self {
            ChecksumKind::Crc32 => 1,
            ChecksumKind::Crc32c => 2,
            ChecksumKind::MaskedCrc32c => 3,
        }
    }

    /// The algorithm with this [`ChecksumKind::code`].
    #[must_use]
    pub fn with_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// The checksum of bytes that come piece by piece.
#[derive(Debug, Clone)]
pub struct Hasher(State);

#[derive(Debug, Clone)]
enum State {
    Crc32(crc32fast::Hasher),
    Crc32c { crc: u32, length: usize, is_masked: bool },
}

impl Hasher {
    /// A hasher that has seen no bytes.
    #[must_use]
    pub fn new(kind: ChecksumKind) -> Self {
        let crc32c = |is_masked| State::Crc32c { crc: 0, length: 0, is_masked };
        Self(match kind {
            ChecksumKind::Crc32 => State::Crc32(crc32fast::Hasher::new()),
            ChecksumKind::Crc32c => crc32c(false),
            ChecksumKind::MaskedCrc32c => crc32c(true),
        })
    }

    /// Hashes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Crc32(hasher) => hasher.update(bytes),
            State::Crc32c { crc, length, .. } => {
                *crc = crc32c_append(*crc, bytes);
                *length = length.wrapping_add(bytes.len());
            }
        }
    }

    /// Appends the bytes that `next` has hashed, without looking at them again. Both hashers must have the same
    /// algorithm.
    pub fn combine(&mut self, next: &Self) {
        match (&mut self.0, &next.0) {
            (State::Crc32(hasher), State::Crc32(next)) => hasher.combine(next),
            (State::Crc32c { crc, length, .. }, State::Crc32c { crc: next, length: more, .. }) => {
                let parts = (u64::from(*crc), u64::from(*next), *more as u64);
                *crc = checksum_combine(CrcAlgorithm::Crc32Iscsi, parts.0, parts.1, parts.2) as u32;
                *length = length.wrapping_add(*more);
            }
            (State::Crc32(_), _) | (State::Crc32c { .. }, _) => {
                debug_assert!(false, "checksums by two algorithms cannot be combined");
            }
        }
    }

    /// The checksum of all bytes that were hashed.
    #[must_use]
    pub fn finish(self) -> Checksum {
        match self.0 {
            State::Crc32(hasher) => Checksum::Crc32(hasher.finalize()),
            State::Crc32c { crc, is_masked: false, .. } => Checksum::Crc32c(crc),
            State::Crc32c { crc, is_masked: true, .. } => Checksum::MaskedCrc32c(mask(crc)),
        }
    }
}

/// The CRC-32C of bytes.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC-32C of bytes whose CRC-32C is `crc`, followed by `bytes`.
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    digest.finalize() as u32
}

/// A CRC-32C as TFRecord stores it.
#[must_use]
pub fn mask(crc32c: u32) -> u32 {
    crc32c.rotate_right(15).wrapping_add(MASK_DELTA)
}

/// The CRC-32C that TFRecord stores as `masked`.
#[must_use]
pub fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(MASK_DELTA).rotate_left(15)
}

impl fmt::Display for Checksum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {:#010x}", self.kind().name(), self.value())
    }
}

/// Shows the value alone.
impl fmt::LowerHex for Checksum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.value(), out)
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { expected, found } = self;
        write!(out, "checksum mismatch: expected {expected:#010x}, found {found:#010x}")
    }
}

#[cfg(test)]
mod tests;
