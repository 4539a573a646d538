//! The encodings of a member's bytes, and the most bytes that they can become.

use super::crypto::Lock;
use super::record::Head;
use crate::format::codec::Codec;

/// The meaning of a method number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Stored,
    Coded(Codec),
}

impl Method {
    /// The method with this number (APPNOTE 4.4.5). `None` if ffrfs cannot decode it.
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

    /// The most bytes that `stored_bytes` can be decoded to: by the best ratio of the coding, rounded up. The size
    /// of a member that claims more is wrong, whatever its bytes are.
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
    /// An unknown encryption.
    Lock,
    /// The member is encrypted, and no password was given.
    Password,
    /// An unknown method.
    Method,
    /// Sizes that cannot be right together.
    Size,
    /// The member does not lie before the central directory.
    Extent,
}

/// The fault that a row shows, if any; all but [`Fault::Extent`], which [`super::room`] shows.
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
    // No reader would ask for the bytes of an empty file, and see that its CRC is wrong.
    let is_cut = head.size_bytes == 0 && head.crc32 != 0 && head.lock.has_crc();
    (is_cut || !is_right || !can_be_shown).then_some(Fault::Size)
}
