//! The 512 bytes that stand before a member: V7, POSIX ustar, GNU and star.
//!
//! Fields and types as POSIX.1-2017 (pax, "ustar Interchange Format"), tar(5) of libarchive and the manual of
//! GNU tar ("Basic Tar Format") have them.

/// The bytes of a block: headers and data come in blocks.
pub(super) const BLOCK_BYTES: u64 = 512;
const CHECKSUM_AT: usize = 148;
const CHECKSUM_BYTES: usize = 8;

/// The form of a header, by its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// No magic number.
    V7,
    /// POSIX; pax too.
    Ustar,
    /// Fields of its own where POSIX has the prefix of the name.
    Gnu,
    /// A shorter prefix, then times.
    Star,
}

/// A block that is read as a header.
#[derive(Clone, Copy)]
pub(super) struct Header<'a>(&'a [u8]);

impl<'a> Header<'a> {
    pub(super) fn new(block: &'a [u8]) -> Self {
        Self(block)
    }

    /// Text up to the first NUL.
    fn text(self, at: usize, length: usize) -> &'a [u8] {
        until_nul(self.field(at, length))
    }

    pub(super) fn field(self, at: usize, length: usize) -> &'a [u8] {
        self.0.get(at..).and_then(|rest| rest.get(..length)).unwrap_or_default()
    }

    pub(super) fn is_zero(self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    /// Whether the checksum is the sum of all bytes, with its own field taken as blanks; old writers added signed bytes.
    pub(super) fn has_right_checksum(self) -> bool {
        let stored = number(self.field(CHECKSUM_AT, CHECKSUM_BYTES));
        // Blanks alone add up to more than 0; signed bytes may add up to any number.
        let Some(stored) = stored.filter(|stored| *stored > 0) else { return false };
        let sum = |bytes: &[u8]| bytes.iter().fold(0u32, |sum, b| sum.wrapping_add(u32::from(*b)));
        let own = sum(self.field(CHECKSUM_AT, CHECKSUM_BYTES));
        let blanks = u32::from(b' ').wrapping_mul(CHECKSUM_BYTES as u32);
        let unsigned = sum(self.0).wrapping_sub(own).wrapping_add(blanks);
        if stored == i64::from(unsigned) {
            return self.0.len() as u64 == BLOCK_BYTES;
        }
        let is_own =
            |at: &usize| (CHECKSUM_AT..CHECKSUM_AT.wrapping_add(CHECKSUM_BYTES)).contains(at);
        let high = self.0.iter().enumerate().filter(|(at, b)| **b >= 0x80 && !is_own(at)).count();
        let signed = i64::from(unsigned).wrapping_sub((high as i64).wrapping_mul(256));
        stored == signed && self.0.len() as u64 == BLOCK_BYTES
    }

    pub(super) fn dialect(self) -> Dialect {
        match self.field(257, 8) {
            b"ustar  \0" => Dialect::Gnu,
            magic if magic.starts_with(b"ustar") => {
                if self.field(508, 4) == b"tar\0" {
                    Dialect::Star
                } else {
                    Dialect::Ustar
                }
            }
            // Old star had no magic number in the usual place.
            _ if self.field(508, 4) == b"tar\0" => Dialect::Star,
            _ => Dialect::V7,
        }
    }

    pub(super) fn kind(self) -> u8 {
        self.field(156, 1).first().copied().unwrap_or(0)
    }

    /// Writes the name to `out`, behind its prefix if it has one.
    pub(super) fn name(self, out: &mut Vec<u8>) {
        let prefix = match self.dialect() {
            Dialect::V7 | Dialect::Gnu => &b""[..],
            Dialect::Ustar => self.text(345, 155),
            Dialect::Star if self.kind() == b'S' => &b""[..],
            Dialect::Star => self.text(345, 131),
        };
        out.clear();
        if !prefix.is_empty() {
            out.extend_from_slice(prefix);
            out.push(b'/');
        }
        out.extend_from_slice(self.text(0, 100));
    }

    pub(super) fn link_name(self) -> &'a [u8] {
        self.text(157, 100)
    }

    /// The size of the data; `None` if the field is no number, or negative.
    pub(super) fn size(self) -> Option<u64> {
        number(self.field(124, 12)).and_then(|size| u64::try_from(size).ok())
    }

    /// Permission bits; `None` if the field is no number.
    pub(super) fn mode(self) -> Option<u16> {
        let mode = number(self.field(100, 8))?;
        u16::try_from(mode & 0o7777).ok()
    }

    /// Seconds since 1970; `None` if the field is no number.
    pub(super) fn modified(self) -> Option<i64> {
        number(self.field(136, 12))
    }
}

/// The bytes before the first NUL.
pub(super) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A number of a header: octal digits among blanks, or, with the highest bit set, base 256. An empty field,
/// or one that begins with NUL, is 0. `None` if the field is no number, or a number that is too large.
pub(super) fn number(field: &[u8]) -> Option<i64> {
    if field.first().is_some_and(|first| first & 0x80 != 0) {
        return base_256(field);
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = field.iter().position(|byte| !is_blank(byte)).unwrap_or(field.len());
    let text = until_nul(field.get(start..).unwrap_or_default());
    let (is_negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let end = digits.iter().position(is_blank).unwrap_or(digits.len());
    let mut value: i64 = 0;
    for digit in digits.get(..end).unwrap_or_default() {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value = value.checked_mul(8)?.checked_add(i64::from(digit))?;
    }
    Some(if is_negative { value.wrapping_neg() } else { value })
}

/// Two's complement behind the highest bit, which is only a mark.
fn base_256(field: &[u8]) -> Option<i64> {
    let (first, rest) = field.split_first()?;
    let is_negative = first & 0x40 != 0;
    let mut bytes = [if is_negative { 0xff } else { 0 }; 16];
    let (head, tail) = bytes.split_at_mut_checked(16usize.checked_sub(rest.len())?)?;
    tail.copy_from_slice(rest);
    *head.last_mut()? = if is_negative { *first } else { first & 0x3f };
    i64::try_from(i128::from_be_bytes(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_with_any_padding_or_base_256() {
        for (field, expected) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"644     ", Some(0o644)),
            (b"77777777", Some(0o77_777_777)),
            (b"        ", Some(0)),
            (b"\0\x0016\0\0\0", Some(0)),
            (b"-0000001", Some(-1)),
            (b"00648\0\0\0", None),
            (b"abc\0\0\0\0\0", None),
            (b"\x80\0\0\0\0\0\x01\x02", Some(0x102)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
            (b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", None),
            (b"\x80\0\0\0\0\xff\xff\xff\xff\xff\xff\xff", Some(0xff_ffff_ffff_ffff)),
        ] {
            assert_eq!(number(field), expected, "{field:?}");
        }
    }

    #[test]
    fn signed_and_unsigned_checksums_are_both_right() {
        let mut block = [0u8; 512];
        block[..4].copy_from_slice(b"f\xfc\xfcr");
        block[156] = b'0';
        let sum = |signed: bool| {
            let bytes = block.iter().enumerate().filter(|(at, _)| !(148..156).contains(at));
            let value = |b: u8| if signed { i64::from(b.cast_signed()) } else { i64::from(b) };
            bytes.map(|(_, b)| value(*b)).sum::<i64>() + 256
        };
        for signed in [false, true] {
            let mut block = block;
            block[148..156].copy_from_slice(format!("{:06o}\0 ", sum(signed)).as_bytes());
            assert!(Header::new(&block).has_right_checksum());
            block[300] ^= 1;
            assert!(!Header::new(&block).has_right_checksum());
        }
    }
}
