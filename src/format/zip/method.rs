//! How a member's bytes are encoded, and how large they can get.

use super::crypto::Lock;
use super::record::Head;
use crate::format::codec::Codec;

/// What a method number means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Stored,
    Coded(Codec),
}

impl Method {
    /// APPNOTE 4.4.5. `None`: nobody decodes it.
    pub(super) fn of(number: u16) -> Option<Self> {
        Some(Method::Coded(match number {
            0 => return Some(Method::Stored),
            8 => Codec::Deflate,
            9 => Codec::Deflate64,
            12 => Codec::Bzip2,
            14 => Codec::Lzma,
            20 | 93 => Codec::Zstd,
            95 => Codec::Xz,
            98 => Codec::Ppmd,
            _ => return None,
        }))
    }

    /// The most bytes that so many can be decoded to: what the coding allows at its best, rounded up. A
    /// member that claims more is lying, whatever its bytes are.
    fn most_bytes(self, stored_bytes: u64) -> u64 {
        let ratio = match self {
            Method::Stored => return stored_bytes,
            // 258 bytes in two bits.
            Method::Coded(Codec::Deflate) => 1032,
            // A block of up to 46 MB in some forty bytes.
            Method::Coded(Codec::Bzip2) => 1_500_000,
            // 65,538 bytes in 18 bits; 128 KiB in four bytes; long matches at less than a bit each.
            Method::Coded(_) => 100_000,
        };
        stored_bytes.saturating_mul(ratio)
    }
}

/// Why a member cannot be served, as far as the central directory shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// An encryption that nobody knows.
    Lock,
    /// There is no password.
    Password,
    /// An unknown method.
    Method,
    /// Sizes that cannot be right together.
    Size,
    /// It does not lie before the central directory.
    Extent,
}

/// What a row shows to be wrong, if anything; whether it lies where it can is for another to say.
pub(super) fn fault(head: &Head, has_password: bool) -> Option<Fault> {
    match head.lock {
        Lock::None => {}
        Lock::Unknown => return Some(Fault::Lock),
        _ if !has_password => return Some(Fault::Password),
        _ => {}
    }
    let Some(method) = Method::of(head.method) else { return Some(Fault::Method) };
    let Some(coded) = head.stored_bytes.checked_sub(head.lock.added_bytes()) else {
        return Some(Fault::Size);
    };
    let is_right = match method {
        Method::Stored => coded == head.size_bytes,
        Method::Coded(_) => head.size_bytes <= method.most_bytes(coded),
    };
    let can_be_shown = head.size_bytes <= i64::MAX as u64;
    // Nobody would ask for its bytes, and be told.
    let is_cut = head.size_bytes == 0 && head.crc32 != 0 && head.lock.has_crc();
    (is_cut || !is_right || !can_be_shown).then_some(Fault::Size)
}
