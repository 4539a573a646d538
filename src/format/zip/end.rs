//! The end of a zip file: where its central directory is (APPNOTE 4.3.14 to 4.3.16).

use super::reader;
use super::record::{CENTRAL_MARK, FLAG_MASKED, LOCAL_MARK, STRONG_ENCRYPTION};
use crate::format::bytes::{u16_at, u32_at, u64_at};
use crate::format::counted;
use crate::format::{Error, Result, Source};
use memchr::memmem;

const END_MARK: &[u8; 4] = b"PK\x05\x06";
const END64_MARK: &[u8; 4] = b"PK\x06\x06";
const LOCATOR_MARK: &[u8; 4] = b"PK\x06\x07";
/// The first bytes of the first part of a split archive.
const SPLIT_MARK: &[u8; 4] = b"PK\x07\x08";

const END_BYTES: usize = 22;
const END64_BYTES: usize = 56;
const LOCATOR_BYTES: u64 = 20;
/// The bytes at the end of a file in which an end record is searched: as many as a record with the longest comment has.
const TAIL_BYTES: u64 = END_BYTES as u64 + u16::MAX as u64;

/// The hint where other bytes stand in place of the central directory.
const OR_ENCRYPTED: &str = ": it is damaged or encrypted";

/// The place of the central directory, and the number of its rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) directory_at: u64,
    pub(super) directory_bytes: u64,
    /// The number of the directory's rows; without zip64 only the lower 16 bits of it.
    pub(super) rows: u64,
    pub(super) is_zip64: bool,
    /// The bytes that every stored offset lacks, because other bytes were put before the archive.
    pub(super) shift_bytes: u64,
    /// The bytes behind the end record and its comment.
    pub(super) trailing_bytes: u64,
}

/// The reason why a signature is not that of an end record with a central directory, as it stands in an
/// [`Error::Malformed`].
#[derive(Debug)]
struct Reject {
    at: u64,
    expected: &'static str,
    found: String,
    hint: &'static str,
}

type Found<T> = Result<std::result::Result<T, Reject>>;

fn reject<T>(at: u64, expected: &'static str, found: String, hint: &'static str) -> Found<T> {
    Ok(Err(Reject { at, expected, found, hint }))
}

/// The first four bytes of the file.
pub(super) fn mark(source: &dyn Source) -> Result<[u8; 4]> {
    mark_at(source, 0).map(Option::unwrap_or_default)
}

pub(super) fn is_local(mark: [u8; 4]) -> bool {
    mark == *LOCAL_MARK
}

pub(super) fn is_split(mark: [u8; 4]) -> bool {
    mark == *SPLIT_MARK
}

/// Finds the end record among all signatures in the last 64 KiB (a comment may hold a signature, too): one that a
/// central directory belongs to; first those of archives that are not empty, then those whose comment ends
/// exactly with the file, then the last one.
///
/// # Errors
/// No signature is that of an end record: the error has the reason of the signature that looks most like one.
pub(super) fn find(source: &dyn Source) -> Result<End> {
    let tail_bytes = TAIL_BYTES.min(source.len());
    let tail_at = source.len().saturating_sub(tail_bytes);
    let mut tail = vec![0; usize::try_from(tail_bytes).unwrap_or(0)];
    reader(source).read("the end of the file", &mut tail, tail_at)?;
    let mut best: Option<(u8, End)> = None;
    let mut reason: Option<(bool, Reject)> = None;
    for at in memmem::rfind_iter(&tail, END_MARK) {
        let Some(record) = tail.get(at..) else { continue };
        let position = tail_at.saturating_add(at as u64);
        let Some((behind, is_exact)) = behind_comment(record) else { continue };
        match examine(source, record, position)? {
            Ok(mut end) => {
                end.trailing_bytes = behind;
                let rank = u8::from(is_exact) | u8::from(end.directory_bytes > 0) << 1;
                if best.is_none_or(|(other, _)| rank > other) {
                    best = Some((rank, end));
                }
                if rank == 3 {
                    break;
                }
            }
            Err(why) => {
                if reason.as_ref().is_none_or(|(exact, _)| is_exact && !exact) {
                    reason = Some((is_exact, why));
                }
            }
        }
    }
    if let Some((_, end)) = best {
        return Ok(end);
    }
    let may_be_encrypted = reason.as_ref().is_some_and(|(_, why)| why.hint == OR_ENCRYPTED);
    if may_be_encrypted && is_masked(source)? {
        return Err(Error::Encryption { part: source.name().clone(), how: STRONG_ENCRYPTION });
    }
    Err(match reason {
        Some((_, why)) => reader(source).malformed(why.at, why.expected, why.found, why.hint),
        None if is_split(mark(source)?) => {
            let hint = ": join the parts first (zip -s 0)";
            reader(source).malformed(0, "a whole archive", "a part of a split one".to_owned(), hint)
        }
        None => {
            let found = "none in the last 64 KiB".to_owned();
            let hint = ": the file is truncated (copy it again: the directory of a zip is at its end), or is not a zip file";
            reader(source).malformed(
                source.len(),
                "an end record with the central directory",
                found,
                hint,
            )
        }
    })
}

/// Whether the first local header says that the central directory is encrypted.
fn is_masked(source: &dyn Source) -> Result<bool> {
    let mut front = [0; 8];
    if source.len() < front.len() as u64 {
        return Ok(false);
    }
    reader(source).read("the first local header", &mut front, 0)?;
    let flags = u16_at(&front, 6).unwrap_or_default();
    Ok(front.starts_with(LOCAL_MARK) && flags & FLAG_MASKED != 0)
}

/// The number of bytes behind an end record's comment, and whether it is 0. `None` if the record is cut.
fn behind_comment(record: &[u8]) -> Option<(u64, bool)> {
    let comment = usize::from(u16_at(record, 20)?);
    let behind = record.len().checked_sub(END_BYTES.checked_add(comment)?)?;
    Some((behind as u64, behind == 0))
}

/// The values of an end record, or of zip64's end record if the archive has one.
struct Stated {
    rows: u64,
    directory_bytes: u64,
    offset_bytes: u64,
    /// The offset where the directory must end at the latest.
    limit: u64,
    is_zip64: bool,
}

fn examine(source: &dyn Source, record: &[u8], at: u64) -> Found<End> {
    let stated = match state(source, record, at)? {
        Ok(stated) => stated,
        Err(why) => return Ok(Err(why)),
    };
    let end = |directory_at: u64, shift_bytes| {
        Ok(Ok(End {
            directory_at,
            directory_bytes: stated.directory_bytes,
            rows: stated.rows,
            is_zip64: stated.is_zip64,
            shift_bytes,
            trailing_bytes: 0,
        }))
    };
    let expected = "a central directory before the end record";
    let Some(before) = stated.limit.checked_sub(stated.directory_bytes) else {
        let found = format!("one of {}", counted(stated.directory_bytes, "byte"));
        return reject(at, expected, found, ": the file lacks its beginning, or is not a zip file");
    };
    if stated.directory_bytes == 0 {
        if stated.rows == 0 {
            return end(before, 0);
        }
        return reject(at, expected, format!("none, for {}", counted(stated.rows, "member")), "");
    }
    let is_row = |at| Ok(mark_at(source, at)?.is_some_and(|found| found == *CENTRAL_MARK));
    if is_row(before)? {
        return match before.checked_sub(stated.offset_bytes) {
            Some(shift) => end(before, shift),
            None => {
                let found = format!("one at byte {before}, not {}", stated.offset_bytes);
                reject(at, expected, found, ": the file lacks its beginning")
            }
        };
    }
    // Other bytes lie between the directory and its end record.
    if stated.offset_bytes <= before && is_row(stated.offset_bytes)? {
        return end(stated.offset_bytes, 0);
    }
    reject(before, expected, "other bytes".to_owned(), OR_ENCRYPTED)
}

fn state(source: &dyn Source, record: &[u8], at: u64) -> Found<Stated> {
    let short = |offset| u16_at(record, offset).unwrap_or_default();
    let long = |offset| u32_at(record, offset).unwrap_or_default();
    let disks = [short(4), short(6)];
    let mut stated = Stated {
        rows: short(10).into(),
        directory_bytes: long(12).into(),
        offset_bytes: long(16).into(),
        limit: at,
        is_zip64: false,
    };
    let has_locator = match at.checked_sub(LOCATOR_BYTES) {
        Some(locator) => mark_at(source, locator)? == Some(*LOCATOR_MARK),
        None => false,
    };
    let zip64 = if has_locator { end64(source, at)? } else { None };
    let refers_to_zip64 = short(10) == u16::MAX || [12, 16].map(long).contains(&u32::MAX);
    // A last name, extra field or comment may hold a locator's signature by chance.
    let zip64 = zip64.filter(|(record64, _)| refers_to_zip64 || agrees(record, record64));
    if let Some((record64, at64)) = zip64 {
        let wide = |offset| u64_at(&record64, offset).unwrap_or_default();
        stated.is_zip64 = true;
        stated.limit = at64;
        stated.rows = wide(32);
        stated.directory_bytes = wide(40);
        stated.offset_bytes = wide(48);
        let disks64 = [u32_at(&record64, 16), u32_at(&record64, 20)];
        if disks64.iter().any(|disk| disk.is_some_and(|disk| disk != 0)) {
            return split(at64);
        }
    } else if has_locator && refers_to_zip64 {
        let expected = "a zip64 end record where its locator says";
        let hint = ": the file is damaged";
        return reject(at.saturating_sub(LOCATOR_BYTES), expected, "none".to_owned(), hint);
    } else if disks != [0, 0] {
        return split(at);
    }
    Ok(Ok(stated))
}

/// Whether zip64's end record says the same as the end record, which holds only the lower bits of each value.
fn agrees(record: &[u8], record64: &[u8; END64_BYTES]) -> bool {
    let same = |offset: usize, offset64: usize, bytes: usize| {
        let low = record64.get(offset64..).and_then(|field| field.get(..bytes));
        low.is_some() && low == record.get(offset..).and_then(|field| field.get(..bytes))
    };
    same(10, 32, 2) && same(12, 40, 4) && same(16, 48, 4)
}

fn split<T>(at: u64) -> Found<T> {
    let found = "the last part of a split one".to_owned();
    reject(at, "a whole archive", found, ": join the parts first (zip -s 0)")
}

/// Zip64's end record and its offset: the one that the locator states, or the one right before the locator.
fn end64(source: &dyn Source, end_at: u64) -> Result<Option<([u8; END64_BYTES], u64)>> {
    let locator_at = end_at.saturating_sub(LOCATOR_BYTES);
    let mut locator = [0; LOCATOR_BYTES as usize];
    reader(source).read("the zip64 locator", &mut locator, locator_at)?;
    let stated = u64_at(&locator, 8).unwrap_or_default();
    for at in [Some(stated), locator_at.checked_sub(END64_BYTES as u64)].into_iter().flatten() {
        let fits = at.checked_add(END64_BYTES as u64).is_some_and(|end| end <= locator_at);
        if fits && mark_at(source, at)? == Some(*END64_MARK) {
            let mut record = [0; END64_BYTES];
            reader(source).read("the zip64 end record", &mut record, at)?;
            return Ok(Some((record, at)));
        }
    }
    Ok(None)
}

fn mark_at(source: &dyn Source, at: u64) -> Result<Option<[u8; 4]>> {
    if at.checked_add(4).is_none_or(|end| end > source.len()) {
        return Ok(None);
    }
    let mut found = [0; 4];
    reader(source).read("a signature", &mut found, at)?;
    Ok(Some(found))
}
