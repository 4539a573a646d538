//! The records of a zip file, field by field, as APPNOTE 6.3.10 section 4.3 and 4.5 lay them out.

use super::crypto::Lock;
use crate::format::bytes::{u16_at, u32_at, u64_at};

/// The fixed part of a local file header.
pub(super) const LOCAL_BYTES: u64 = 30;
/// The fixed part of a row of the central directory.
pub(super) const CENTRAL_BYTES: usize = 46;

pub(super) const LOCAL_MARK: &[u8; 4] = b"PK\x03\x04";
pub(super) const CENTRAL_MARK: &[u8; 4] = b"PK\x01\x02";

/// The value of sizes and offsets that stand in the zip64 field instead.
const IN_ZIP64: u32 = u32::MAX;
/// The method of a member with WinZip's AES: the true method is in its extra field.
const METHOD_AES: u16 = 99;

const FLAG_ENCRYPTED: u16 = 1;
const FLAG_STRONG_ENCRYPTION: u16 = 1 << 6;
pub(super) const FLAG_UTF8: u16 = 1 << 11;
/// PKWARE's encryption of the central directory: local headers hide their values.
pub(super) const FLAG_MASKED: u16 = 1 << 13;

pub(super) const EXTRA_ZIP64: u16 = 0x0001;
pub(super) const EXTRA_NTFS: u16 = 0x000a;
const EXTRA_PKWARE_UNIX: u16 = 0x000d;
pub(super) const EXTRA_TIMESTAMP: u16 = 0x5455;
const EXTRA_INFOZIP_UNIX: u16 = 0x5855;
pub(super) const EXTRA_UNICODE_PATH: u16 = 0x7075;
const EXTRA_AES: u16 = 0x9901;
/// The bytes of the AES field: version, vendor, length of the key, method.
const AES_BYTES: usize = 7;

/// PKZIP for DOS; also programs that name no system.
const HOST_DOS: u8 = 0;
pub(super) const HOST_UNIX: u8 = 3;
/// NTFS as APPNOTE numbers it, and as Info-ZIP and 7-Zip do.
const HOST_NTFS: u8 = 10;
const HOST_NTFS_OF_INFO_ZIP: u8 = 11;
const HOST_VFAT: u8 = 14;
const HOST_OSX: u8 = 19;

/// DOS attributes.
const DOS_READ_ONLY: u32 = 1;
const DOS_DIRECTORY: u32 = 0x10;
/// PKZIP for Unix: the member is another name of the one that its extra field names.
const HARD_LINK: u32 = 0x800;

const TYPE_MASK: u32 = 0o170_000;

/// The name of [`FLAG_STRONG_ENCRYPTION`] in messages.
pub(super) const STRONG_ENCRYPTION: &str = "PKWARE's strong encryption";

/// The fixed part of a row of the central directory, with the values that its extra fields give instead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    host: u8,
    pub(super) flags: u16,
    /// The compression method, below an encryption.
    pub(super) method: u16,
    pub(super) dos_time: u32,
    pub(super) crc32: u32,
    /// The length of the data in the file, with the bytes that an encryption adds.
    pub(super) stored_bytes: u64,
    pub(super) size_bytes: u64,
    name_bytes: u16,
    extra_bytes: u16,
    comment_bytes: u16,
    /// The part of a split archive that holds the member.
    pub(super) disk: u16,
    external: u32,
    /// The offset of the local header, as stored.
    pub(super) offset_bytes: u64,
    pub(super) lock: Lock,
}

impl Head {
    /// Parses the fixed part of a row. `None` if the bytes are too few, or are not a row.
    pub(super) fn parse(row: &[u8]) -> Option<Self> {
        let row: &[u8; CENTRAL_BYTES] = row.first_chunk()?;
        if !row.starts_with(CENTRAL_MARK) {
            return None;
        }
        let flags = u16_at(row, 8)?;
        let lock = match flags & (FLAG_ENCRYPTED | FLAG_STRONG_ENCRYPTION) {
            FLAG_ENCRYPTED => Lock::ZipCrypto,
            locked if locked & FLAG_ENCRYPTED != 0 => Lock::Unknown,
            _ => Lock::None,
        };
        Some(Self {
            host: *row.get(5)?,
            flags,
            method: u16_at(row, 10)?,
            dos_time: u32_at(row, 12)?,
            crc32: u32_at(row, 16)?,
            stored_bytes: u32_at(row, 20)?.into(),
            size_bytes: u32_at(row, 24)?.into(),
            name_bytes: u16_at(row, 28)?,
            extra_bytes: u16_at(row, 30)?,
            comment_bytes: u16_at(row, 32)?,
            disk: u16_at(row, 34)?,
            external: u32_at(row, 38)?,
            offset_bytes: u32_at(row, 42)?.into(),
            lock,
        })
    }

    pub(super) fn name_bytes(&self) -> usize {
        self.name_bytes.into()
    }

    /// The bytes of the name and the extra fields.
    pub(super) fn behind_bytes(&self) -> usize {
        self.name_bytes().saturating_add(self.extra_bytes.into())
    }

    /// The bytes of the whole row.
    pub(super) fn row_bytes(&self) -> usize {
        let behind = self.behind_bytes().saturating_add(self.comment_bytes.into());
        CENTRAL_BYTES.saturating_add(behind)
    }

    /// Whether the extra fields say where the member lies or how it is encoded.
    pub(super) fn needs_extra(&self) -> bool {
        let all = [self.stored_bytes, self.size_bytes, self.offset_bytes];
        all.contains(&IN_ZIP64.into()) || self.method == METHOD_AES
    }

    /// Takes sizes, offset and encryption from the extra fields, where the fixed part says so. Values that are
    /// missing there stay as they are.
    pub(super) fn apply(&mut self, extra: &[u8]) {
        if let Some(mut zip64) = field(extra, EXTRA_ZIP64) {
            for value in [&mut self.size_bytes, &mut self.stored_bytes, &mut self.offset_bytes] {
                if *value == u64::from(IN_ZIP64)
                    && let Some((wide, rest)) = zip64.split_first_chunk()
                {
                    *value = u64::from_le_bytes(*wide);
                    zip64 = rest;
                }
            }
        }
        if self.method == METHOD_AES && self.flags & FLAG_ENCRYPTED != 0 {
            let whole = field(extra, EXTRA_AES).filter(|field| field.len() >= AES_BYTES);
            match whole.map(Lock::aes) {
                Some(Some((lock, method))) => (self.lock, self.method) = (lock, method),
                Some(None) => self.lock = Lock::Unknown,
                None if self.lock == Lock::Unknown => {}
                // The row is damaged: a member without AES cannot have method 99.
                None => self.lock = Lock::None,
            }
        }
    }

    /// The encryption of a member with [`Lock::Unknown`], for messages.
    pub(super) fn unknown_lock(&self) -> &'static str {
        match self.flags & FLAG_STRONG_ENCRYPTION {
            0 => "AES with an unknown version or length of its key",
            _ => STRONG_ENCRYPTION,
        }
    }

    pub(super) fn is_utf8(&self) -> bool {
        self.flags & FLAG_UTF8 != 0
    }

    /// The method that the local header must show.
    pub(super) fn local_method(&self) -> u16 {
        if matches!(self.lock, Lock::Aes { .. }) { METHOD_AES } else { self.method }
    }

    /// Type and permissions, if the member comes from a system that has them.
    fn unix_mode(&self) -> Option<u32> {
        let mode = self.external.checked_shr(16)?;
        match self.host {
            HOST_UNIX | HOST_OSX => (mode != 0).then_some(mode),
            // PKZIP for Unix calls itself DOS where DOS would understand the rest of the row.
            HOST_DOS => (mode & TYPE_MASK != 0).then_some(mode),
            _ => None,
        }
    }

    /// Permission bits: Unix ones, or those of a read-only file of DOS.
    pub(super) fn mode(&self) -> Option<u16> {
        match self.unix_mode() {
            Some(mode) => u16::try_from(mode & 0o7777).ok(),
            None => (self.external & DOS_READ_ONLY != 0).then_some(0o444),
        }
    }
}

/// The kind of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    File,
    Symlink,
    Directory,
    /// A device, a pipe or a socket.
    Special,
}

/// A row of the central directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) head: Head,
    pub(super) name: &'a [u8],
    pub(super) extra: &'a [u8],
}

impl<'a> Row<'a> {
    /// Parses a row. `None` if it is not whole.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut head = Head::parse(bytes)?;
        let (name, rest) = bytes.get(CENTRAL_BYTES..)?.split_at_checked(head.name_bytes())?;
        let extra = rest.get(..head.extra_bytes.into())?;
        if head.needs_extra() {
            head.apply(extra);
        }
        Some(Self { head, name, extra })
    }

    /// Whether backslashes separate the names of the member's path: they do if it was made on DOS or Windows, as by 7-Zip.
    pub(super) fn has_backslashes(&self) -> bool {
        let is_of_windows =
            matches!(self.head.host, HOST_DOS | HOST_NTFS | HOST_NTFS_OF_INFO_ZIP | HOST_VFAT);
        is_of_windows && self.name.contains(&b'\\')
    }

    /// The kind of the member. A name that ends in a slash is a directory's. So is an empty member with a directory's
    /// mode or DOS attribute; one with content is a file all the same, lest the content be lost.
    pub(super) fn class(&self) -> Class {
        let is_empty = self.head.size_bytes == 0;
        if self.name.last() == Some(&b'/') {
            return Class::Directory;
        }
        // In some character sets a letter ends in the byte of a backslash.
        let is_text = || std::str::from_utf8(self.name).is_ok();
        if is_empty && self.name.last() == Some(&b'\\') && self.has_backslashes() && is_text() {
            return Class::Directory;
        }
        match self.head.unix_mode().map_or(0, |mode| mode & TYPE_MASK) {
            0o040_000 if is_empty => Class::Directory,
            0o120_000 => Class::Symlink,
            0o020_000 | 0o060_000 | 0o140_000 => Class::Special,
            // `zip` also gives this type to content that it read from a pipe: such a member is a file.
            0o010_000 if is_empty && field(self.extra, EXTRA_PKWARE_UNIX).is_some() => {
                Class::Special
            }
            0 if is_empty && self.head.external & DOS_DIRECTORY != 0 => Class::Directory,
            _ => Class::File,
        }
    }

    /// The path of the member that this one is another name of, as PKZIP for Unix writes it.
    pub(super) fn hard_link(&self) -> Option<&'a [u8]> {
        self.head.unix_mode()?;
        let is_link = self.head.external & HARD_LINK != 0 && self.head.size_bytes == 0;
        if is_link { self.pkware_target() } else { None }
    }

    /// The path at the end of PKWARE's field for Unix.
    pub(super) fn pkware_target(&self) -> Option<&'a [u8]> {
        field(self.extra, EXTRA_PKWARE_UNIX)?.get(12..).filter(|target| !target.is_empty())
    }

    /// The time of last modification, in seconds and nanoseconds since 1970, UTC: the finest that the row has.
    pub(super) fn modified(&self) -> Option<(i64, u32)> {
        let from_timestamp = || {
            let stamp = field(self.extra, EXTRA_TIMESTAMP)?;
            let has_modified = stamp.first()? & 1 != 0;
            has_modified.then(|| u32_at(stamp, 1)).flatten()
        };
        let from_unix = |id| u32_at(field(self.extra, id)?, 4);
        ntfs_time(self.extra).or_else(|| {
            let seconds = from_timestamp()
                .or_else(|| from_unix(EXTRA_INFOZIP_UNIX))
                .or_else(|| from_unix(EXTRA_PKWARE_UNIX));
            match seconds {
                Some(seconds) => Some((seconds.cast_signed().into(), 0)),
                None => dos_time(self.head.dos_time).map(|seconds| (seconds, 0)),
            }
        })
    }
}

/// The first extra field with this number. Bytes that are no field end the search: some tools pad.
pub(super) fn field(mut extra: &[u8], id: u16) -> Option<&[u8]> {
    loop {
        let (found, length) = (u16_at(extra, 0)?, u16_at(extra, 2)?);
        let (value, rest) = extra.get(4..)?.split_at_checked(length.into())?;
        if found == id {
            return Some(value);
        }
        extra = rest;
    }
}

/// NTFS counts units of 100 ns since 1601.
pub(super) const UNITS_A_SECOND: u64 = 10_000_000;
pub(super) const SECONDS_1601_TO_1970: i64 = 11_644_473_600;

/// The time of an NTFS field.
fn ntfs_time(extra: &[u8]) -> Option<(i64, u32)> {
    let times = field(field(extra, EXTRA_NTFS)?.get(4..)?, 1)?;
    let units = u64_at(times, 0)?;
    let seconds = i64::try_from(units.checked_div(UNITS_A_SECOND)?).ok()?;
    let nanoseconds = u32::try_from(units.checked_rem(UNITS_A_SECOND)?).ok()?.checked_mul(100)?;
    Some((seconds.checked_sub(SECONDS_1601_TO_1970)?, nanoseconds))
}

/// The time of the fixed part, which has two seconds' resolution and no time zone: taken as UTC, so that
/// a mount shows the same time everywhere.
pub(super) fn dos_time(stored: u32) -> Option<i64> {
    let bits = |shift: u32, count: u32| -> i64 {
        let mask = 1u32.checked_shl(count).map_or(u32::MAX, |bit| bit.saturating_sub(1));
        (stored.checked_shr(shift).unwrap_or(0) & mask).into()
    };
    let (year, month, day) = (bits(25, 7).checked_add(1980)?, bits(21, 4), bits(16, 5));
    if !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let (hour, minute, second) = (bits(11, 5), bits(5, 6), bits(0, 5).checked_mul(2)?);
    let in_day =
        hour.checked_mul(3600)?.checked_add(minute.checked_mul(60)?)?.checked_add(second)?;
    days(year, month, day)?.checked_mul(86_400)?.checked_add(in_day)
}

/// Days since 1970-01-01, by the Gregorian calendar: a year is taken to begin in March, so that the leap
/// day is its last.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let (year, month) = match month {
        1 | 2 => (year.checked_sub(1)?, month.checked_add(9)?),
        _ => (year, month.checked_sub(3)?),
    };
    let leaps = year.div_euclid(4).checked_sub(year.div_euclid(100))?;
    let leaps = leaps.checked_add(year.div_euclid(400))?;
    let in_year = month.checked_mul(153)?.checked_add(2)?.div_euclid(5);
    let days = year.checked_mul(365)?.checked_add(leaps)?.checked_add(in_year)?;
    days.checked_add(day)?.checked_sub(719_469)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dos_times_are_days_and_seconds_of_utc() {
        let dos = |y: u32, mo: u32, d: u32, h: u32, mi: u32, s: u32| {
            dos_time((y - 1980) << 25 | mo << 21 | d << 16 | h << 11 | mi << 5 | (s / 2))
        };
        assert_eq!(dos(1980, 1, 1, 0, 0, 0), Some(315_532_800));
        assert_eq!(dos(2000, 2, 29, 12, 30, 58), Some(951_827_458));
        assert_eq!(dos(2000, 3, 1, 0, 0, 0), Some(951_868_800));
        assert_eq!(dos(2107, 12, 31, 23, 59, 58), Some(4_354_819_198));
        assert_eq!(dos_time(0), None);
    }

    #[test]
    fn an_extra_field_is_found_behind_others_and_padding_ends_the_search() {
        let extra = b"\x01\x00\x02\x00ab\x55\x54\x01\x00c\x00\x00\x00";
        assert_eq!(field(extra, 0x5455), Some(&b"c"[..]));
        assert_eq!(field(extra, 0x7075), None);
        assert_eq!(field(b"\x55\x54\xff\xff", 0x5455), None);
    }
}
