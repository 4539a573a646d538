//! Writes zip: members stored as they are, so that they can be read in place; zip64 where sizes or counts
//! need it. Times are UTC, to 100 ns where they are that fine.

use super::record::{
    CENTRAL_MARK, EXTRA_NTFS, EXTRA_TIMESTAMP, EXTRA_ZIP64, FLAG_UTF8, HOST_UNIX, LOCAL_MARK,
    SECONDS_1601_TO_1970, UNITS_A_SECOND,
};
use crate::format::write::{Announced, invalid};
use crate::format::{
    Checksum, Holds, MemberWriter, NewMember, NewNode, Outline, Output, WriteFormat,
};
use std::io::{self, SeekFrom};

/// The offset of the CRC-32 in a local header.
const CRC_AT: u64 = 14;
/// The version of the format that zip64 came with.
const VERSION_ZIP64: u16 = 45;
const VERSION_DIRECTORIES: u16 = 20;
const VERSION_PLAIN: u16 = 10;

/// Writes zip.
#[derive(Debug)]
pub struct WriteZip;

impl WriteFormat for WriteZip {
    fn name(&self) -> &'static str {
        super::NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["zip"]
    }

    fn holds(&self) -> Holds {
        Holds {
            modes: true,
            times_nanos: 100,
            symlinks: true,
            hard_links: false,
            any_names: false,
            empty_directories: true,
        }
    }

    fn member_bytes(&self, member: &NewMember) -> u64 {
        let row = Row::new(member, 0);
        let headers = row.local().len().saturating_add(row.central().len());
        member.data_bytes().max(row.size_bytes).saturating_add(headers as u64)
    }

    fn begin<'a>(
        &self,
        out: Box<dyn Output + 'a>,
        _outline: &Outline,
    ) -> io::Result<Box<dyn MemberWriter + 'a>> {
        Ok(Box::new(Members {
            out,
            position: 0,
            directory: Vec::new(),
            members: 0,
            open: None,
            left: Announced::default(),
        }))
    }
}

struct Members<'a> {
    out: Box<dyn Output + 'a>,
    position: u64,
    /// Rows of the central directory.
    directory: Vec<u8>,
    members: u64,
    open: Option<Open>,
    left: Announced,
}

/// The member that is being written.
struct Open {
    row: Row,
    /// Computes the member's CRC-32, if that was not known before.
    crc: Option<crc32fast::Hasher>,
}

impl Members<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.position = self.position.saturating_add(bytes.len() as u64);
        Ok(())
    }

    fn end_member(&mut self) -> io::Result<()> {
        self.left.check_done()?;
        let Some(Open { mut row, crc }) = self.open.take() else { return Ok(()) };
        if let Some(crc) = crc {
            row.crc32 = crc.finalize();
            self.out.seek(SeekFrom::Start(row.offset_bytes.saturating_add(CRC_AT)))?;
            self.out.write_all(&row.crc32.to_le_bytes())?;
            self.out.seek(SeekFrom::Start(self.position))?;
        }
        self.directory.extend(row.central());
        self.members = self.members.saturating_add(1);
        Ok(())
    }
}

impl MemberWriter for Members<'_> {
    fn begin(&mut self, member: &NewMember) -> io::Result<()> {
        self.end_member()?;
        if let NewNode::HardLink(_) = member.node {
            return Err(invalid("zip holds no hard links"));
        }
        let row = Row::new(member, self.position);
        if u16::try_from(row.name.len()).is_err() {
            return Err(invalid("a path of more than 65535 bytes"));
        }
        self.left.expect(member.data_bytes())?;
        self.put(&row.local())?;
        if let NewNode::Symlink(target) = member.node {
            self.put(target)?;
        }
        let is_open = match member.node {
            NewNode::File { checksum, .. } => checksum.and_then(Checksum::crc32).is_none(),
            _ => false,
        };
        self.open = Some(Open { row, crc: is_open.then(crc32fast::Hasher::new) });
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.left.take(bytes.len())?;
        if let Some(crc) = self.open.as_mut().and_then(|open| open.crc.as_mut()) {
            crc.update(bytes);
        }
        self.put(bytes)
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.end_member()?;
        let directory = std::mem::take(&mut self.directory);
        let directory_at = self.position;
        self.put(&directory)?;
        let end = end(self.members, directory.len() as u64, directory_at);
        self.put(&end)?;
        self.out.flush()
    }
}

/// The values in the headers of a member.
struct Row {
    name: Vec<u8>,
    is_directory: bool,
    crc32: u32,
    size_bytes: u64,
    /// Type and permissions.
    unix_mode: u32,
    modified: (i64, u32),
    offset_bytes: u64,
}

impl Row {
    fn new(member: &NewMember, offset_bytes: u64) -> Self {
        let mut name = member.path.to_vec();
        let (kind, size_bytes, crc32) = match member.node {
            NewNode::File { size_bytes, checksum } => {
                let crc32 = checksum.and_then(Checksum::crc32);
                (0o100_000, size_bytes, crc32.unwrap_or(0))
            }
            NewNode::Symlink(to) => (0o120_000, to.len() as u64, crc32fast::hash(to)),
            NewNode::HardLink(_) => (0o100_000, 0, 0),
            NewNode::Directory => {
                name.push(b'/');
                (0o040_000, 0, 0)
            }
        };
        let unix_mode = kind | u32::from(member.mode_or_usual());
        let (is_directory, modified) = (kind == 0o040_000, member.modified);
        Self { name, is_directory, crc32, size_bytes, unix_mode, modified, offset_bytes }
    }

    fn is_large(&self) -> bool {
        self.size_bytes >= u32::MAX.into()
    }

    fn version(&self) -> u16 {
        match self.is_large() || self.offset_bytes >= u32::MAX.into() {
            true => VERSION_ZIP64,
            false if self.is_directory => VERSION_DIRECTORIES,
            false => VERSION_PLAIN,
        }
    }

    /// The fields that both headers have: from the version to the sizes.
    fn common(&self) -> Vec<u8> {
        let is_text = !self.name.is_ascii() && std::str::from_utf8(&self.name).is_ok();
        let flags = if is_text { FLAG_UTF8 } else { 0 };
        let (stored, size) = (fits(self.size_bytes), fits(self.size_bytes));
        let mut out = Vec::new();
        put(&mut out, &[self.version().into(), flags.into(), 0], 2);
        put(&mut out, &[dos_time(self.modified.0), self.crc32, stored, size], 4);
        out
    }

    /// The header before the data.
    fn local(&self) -> Vec<u8> {
        let sizes = [self.size_bytes, self.size_bytes];
        let extra = self.extra(if self.is_large() { &sizes } else { &[] });
        let mut out = LOCAL_MARK.to_vec();
        out.extend(self.common());
        put(&mut out, &[self.name.len() as u32, extra.len() as u32], 2);
        out.extend_from_slice(&self.name);
        out.extend(extra);
        out
    }

    /// The row of the directory.
    fn central(&self) -> Vec<u8> {
        let mut wide = Vec::new();
        if self.is_large() {
            wide.extend([self.size_bytes, self.size_bytes]);
        }
        if self.offset_bytes >= u32::MAX.into() {
            wide.push(self.offset_bytes);
        }
        let extra = self.extra(&wide);
        let made_by = u16::from(HOST_UNIX).rotate_left(8) | self.version().max(30);
        let dos_attributes = if self.is_directory { 0x10 } else { 0 };
        let mut out = CENTRAL_MARK.to_vec();
        put(&mut out, &[made_by.into()], 2);
        out.extend(self.common());
        put(&mut out, &[self.name.len() as u32, extra.len() as u32, 0, 0, 0], 2);
        put(&mut out, &[self.unix_mode.rotate_left(16) | dos_attributes], 4);
        put(&mut out, &[fits(self.offset_bytes)], 4);
        out.extend_from_slice(&self.name);
        out.extend(extra);
        out
    }

    /// Extra fields: the `wide` values, which do not fit elsewhere, and the time as Unix has it, or NTFS.
    fn extra(&self, wide: &[u64]) -> Vec<u8> {
        let (seconds, nanos) = self.modified;
        let mut out = Vec::new();
        if !wide.is_empty() {
            field(
                &mut out,
                EXTRA_ZIP64,
                &wide.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>(),
            );
        }
        let unix = i32::try_from(seconds);
        if let Ok(unix) = unix {
            // Bit 0: the time of last modification follows.
            let [a, b, c, d] = unix.to_le_bytes();
            field(&mut out, EXTRA_TIMESTAMP, &[1, a, b, c, d]);
        }
        if (nanos != 0 || unix.is_err())
            && let Some(units) = ntfs_units(seconds, nanos)
        {
            let mut times = vec![0, 0, 0, 0, 1, 0, 24, 0];
            for _ in 0..3 {
                times.extend(units.to_le_bytes());
            }
            field(&mut out, EXTRA_NTFS, &times);
        }
        out
    }
}

/// The records behind the directory; those of zip64, too, where the old record cannot hold a value.
fn end(members: u64, directory_bytes: u64, directory_at: u64) -> Vec<u8> {
    let count = u16::try_from(members).unwrap_or(u16::MAX);
    let mut out = Vec::new();
    let is_wide =
        count == u16::MAX || directory_bytes >= u32::MAX.into() || directory_at >= u32::MAX.into();
    if is_wide {
        let end_at = directory_at.saturating_add(directory_bytes);
        out.extend_from_slice(b"PK\x06\x06");
        out.extend(44u64.to_le_bytes());
        let made_by = u16::from(HOST_UNIX).rotate_left(8) | VERSION_ZIP64;
        put(&mut out, &[made_by.into(), VERSION_ZIP64.into()], 2);
        put(&mut out, &[0, 0], 4);
        for value in [members, members, directory_bytes, directory_at] {
            out.extend(value.to_le_bytes());
        }
        out.extend_from_slice(b"PK\x06\x07");
        put(&mut out, &[0], 4);
        out.extend(end_at.to_le_bytes());
        put(&mut out, &[1], 4);
    }
    out.extend_from_slice(b"PK\x05\x06");
    put(&mut out, &[0, 0, count.into(), count.into()], 2);
    put(&mut out, &[fits(directory_bytes), fits(directory_at)], 4);
    put(&mut out, &[0], 2);
    out
}

/// Appends numbers, each in `bytes` bytes, little-endian.
fn put(out: &mut Vec<u8>, values: &[u32], bytes: usize) {
    for value in values {
        out.extend(value.to_le_bytes().iter().take(bytes));
    }
}

fn field(out: &mut Vec<u8>, id: u16, value: &[u8]) {
    put(out, &[id.into(), value.len() as u32], 2);
    out.extend_from_slice(value);
}

/// The value in 32 bits; all ones stand for one that the zip64 field or record holds.
fn fits(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Units of 100 ns since 1601.
fn ntfs_units(seconds: i64, nanos: u32) -> Option<u64> {
    let seconds = u64::try_from(seconds.checked_add(SECONDS_1601_TO_1970)?).ok()?;
    seconds.checked_mul(UNITS_A_SECOND)?.checked_add(u64::from(nanos.checked_div(100)?))
}

/// A time of two seconds' resolution, from 1980 to 2107; a time beyond becomes the nearest of these.
fn dos_time(seconds: i64) -> u32 {
    const FIRST: i64 = 315_532_800;
    const LAST: i64 = 4_354_819_198;
    let seconds = seconds.clamp(FIRST, LAST);
    let (days, in_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let at = |value: i64, shift: u32| -> u32 {
        u32::try_from(value).unwrap_or(0).checked_shl(shift).unwrap_or(0)
    };
    let (hour, minute, second) =
        (in_day.div_euclid(3600), in_day.rem_euclid(3600).div_euclid(60), in_day.rem_euclid(60));
    at(year.saturating_sub(1980), 25)
        | at(month, 21)
        | at(day, 16)
        | at(hour, 11)
        | at(minute, 5)
        | at(second.div_euclid(2), 0)
}

/// Year, month and day of the Gregorian calendar, from days since 1970-01-01: a year is taken to begin in
/// March, so that the leap day is its last.
fn date(days: i64) -> (i64, i64, i64) {
    const DAYS_TO_1970: i64 = 719_468;
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let days = days.saturating_add(DAYS_TO_1970);
    let (era, day) = (days.div_euclid(DAYS_OF_400_YEARS), days.rem_euclid(DAYS_OF_400_YEARS));
    let leaps = day.div_euclid(1460).saturating_sub(day.div_euclid(36_524));
    let leaps = leaps.saturating_add(day.div_euclid(146_096));
    let year = day.saturating_sub(leaps).div_euclid(365);
    let before = year.saturating_mul(365).saturating_add(year.div_euclid(4));
    let in_year = day.saturating_sub(before.saturating_sub(year.div_euclid(100)));
    let month = in_year.saturating_mul(5).saturating_add(2).div_euclid(153);
    let begins = month.saturating_mul(153).saturating_add(2).div_euclid(5);
    let day = in_year.saturating_sub(begins).saturating_add(1);
    let (month, carry) =
        if month < 10 { (month.saturating_add(3), 0) } else { (month.saturating_sub(9), 1) };
    (era.saturating_mul(400).saturating_add(year).saturating_add(carry), month, day)
}

#[cfg(test)]
mod tests {
    use super::super::record;
    use super::*;

    #[test]
    fn dos_times_are_those_that_the_reader_finds() {
        for seconds in [
            315_532_800,
            951_782_400,
            951_827_458,
            951_868_800,
            1_700_000_000,
            1_709_164_800,
            4_107_542_400,
            4_354_819_198,
        ] {
            assert_eq!(record::dos_time(dos_time(seconds)), Some(seconds), "{seconds}");
        }
        assert_eq!(record::dos_time(dos_time(0)), Some(315_532_800));
        assert_eq!(record::dos_time(dos_time(i64::MAX)), Some(4_354_819_198));
    }

    #[test]
    fn members_beyond_4_gib_have_their_sizes_and_places_in_zip64_fields() {
        let node = NewNode::File { size_bytes: 5 << 30, checksum: Some(Checksum::Crc32(7)) };
        let member = NewMember { path: b"a", node, mode: Some(0o600), modified: (1, 0) };
        let row = Row::new(&member, 6 << 30);
        let bytes = row.central();
        let read = record::Row::parse(&bytes).unwrap();
        assert_eq!((read.head.size_bytes, read.head.stored_bytes), (5 << 30, 5 << 30));
        assert_eq!(read.head.offset_bytes, 6 << 30);
        assert_eq!((read.head.mode(), read.modified()), (Some(0o600), Some((1, 0))));
    }
}
