//! The superblock: the length of addresses, and the place of the root group.
//!
//! ```text
//! 0, 1  mark | u8 version | 4 × u8 | u8 bytes of an address | u8 of a length | u8 | u16 | u16 | u32 flags
//!       version 1: u32 | base | free space | end | driver | root: name, header, u32, u32, 16 bytes
//! 2, 3  mark | u8 version | u8 bytes of an address | u8 of a length | u8 flags | base | extension | end | root
//!       u32 lookup3
//! ```
//! It stands at byte 0, or behind a user block at 512, 1024, 2048 …
//!
//! Imports the input, and headers of objects.

use super::super::Result;
use super::super::reader::Reader;
use super::input::{Fields, Input};
use super::object::Extension;
use crate::format::counted;

pub(super) const MARK: &[u8; 8] = b"\x89HDF\r\n\x1a\n";
/// The most bytes of a superblock.
const MAX_BYTES: u64 = 128;
/// The longest user block behind which the mark is looked for, in a file of this format.
pub(super) const MAX_USER_BLOCK: u64 = 64 << 20;
/// The same in a file of unknown format: user blocks of MATLAB have 512 bytes, and a look is a request to a store.
pub(super) const MAX_FOREIGN_USER_BLOCK: u64 = 2048;
/// The flag of version 3 for a file that is open for writing.
const IS_WRITTEN: u8 = 1;
/// Drivers of the library that spread a file over several ones: cut in pieces, or with data apart from the structure.
const FAMILY: &[u8; 8] = b"NCSAfami";
const MULTI: &[u8; 8] = b"NCSAmult";
const TRUNCATED: &str = ": the file is truncated (--allow-damaged serves what is whole)";

/// Finds the offset of the superblock, behind a user block of `max_user_block` bytes at most.
pub(super) fn find(reader: Reader<'_>, max_user_block: u64) -> Result<Option<u64>> {
    let mut at = 0_u64;
    while at <= max_user_block && at.saturating_add(MARK.len() as u64) <= reader.len() {
        if &reader.bytes::<8>("a superblock", at)? == MARK {
            return Ok(Some(at));
        }
        at = at.saturating_mul(2).max(512);
    }
    Ok(None)
}

/// Addresses of headers of objects.
pub(super) struct Heads {
    pub(super) root: u64,
    /// The address of the superblock's extension, which only newer files have.
    pub(super) extension: Option<u64>,
    /// Whether a program is writing the file, or has not closed it.
    pub(super) is_open: bool,
}

/// Reads the superblock at `at`.
pub(super) fn read(reader: Reader<'_>, at: u64, allow_damaged: bool) -> Result<(Input<'_>, Heads)> {
    let mut input = Input::new(reader, at);
    let length = reader.len().saturating_sub(at).min(MAX_BYTES);
    let block = input.block("the superblock", 0, length)?;
    let (version, sizes) = sizes(&input.fields(&block))?;
    (input.address_bytes, input.length_bytes) = (sizes.0.into(), sizes.1.into());
    let mut fields = input.fields(&block);
    let before = fields.take(match version {
        0 => 24,
        1 => 28,
        _ => 12,
    })?;
    let is_open = version == 3 && before.last().is_some_and(|flags| flags & IS_WRITTEN != 0);
    let base = fields.address()?.unwrap_or(0);
    // In old files, this is the address of free space.
    let extension = fields.address()?.filter(|_| version >= 2);
    let before = fields.clone();
    let end = fields.address()?.unwrap_or(0);
    // A user block may have been put before the file since, or taken away: `h5unjam` does not change the superblock.
    let end = end.saturating_sub(base).saturating_add(at);
    let driver_block = if version < 2 { fields.address()? } else { None };
    if !allow_damaged {
        refuse_parts(&input, (driver_block, extension), (before.at(), end))?;
    }
    if end > reader.len() && !allow_damaged {
        let found = format!("a file of {}", counted(reader.len(), "byte"));
        let expected = format!("{}, as the superblock says", counted(end, "byte"));
        return Err(reader.malformed(before.at(), expected, found, TRUNCATED));
    }
    if version < 2 {
        // The name of the root, which is an offset in a heap.
        fields.length()?;
    }
    let before = fields.clone();
    let Some(root) = fields.address()? else {
        return Err(before.wrong("the address of the root group", "none".to_owned()));
    };
    if version >= 2 {
        let length = fields.taken().saturating_add(4) as u64;
        let whole = input.block("the superblock", 0, length)?;
        input.check("a superblock", &whole)?;
    }
    Ok((input, Heads { root, extension, is_open }))
}

/// Reads the version of a superblock, and the number of bytes of an address and of a length.
fn sizes(fields: &Fields<'_>) -> Result<(u8, (u8, u8))> {
    let mut fields = fields.clone();
    fields.take(MARK.len())?;
    let before = fields.clone();
    let version = fields.u8()?;
    match version {
        0 | 1 => drop(fields.take(4)?),
        2 | 3 => (),
        _ => return Err(before.wrong("a superblock of version 0 to 3", version.to_string())),
    }
    let before = fields.clone();
    let sizes = (fields.u8()?, fields.u8()?);
    if !matches!(sizes, (2 | 4 | 8, 2 | 4 | 8)) {
        let found = format!("{} and {}", sizes.0, sizes.1);
        return Err(before.wrong("addresses and lengths of 2, 4 or 8 bytes", found));
    }
    Ok((version, sizes))
}

/// Refuses a file that is whole only together with others; `at` is the offset of the field with the end of the file.
fn refuse_parts(
    input: &Input<'_>,
    (driver_block, extension): (Option<u64>, Option<u64>),
    (at, end): (u64, u64),
) -> Result<()> {
    let reader = input.reader;
    let (found, hint) = match driver(input, driver_block, extension).as_ref() {
        // A family whose members were put behind each other is complete.
        Some(FAMILY) if end > reader.len() => {
            ("the first of a family of files", ": h5repart makes one file of them")
        }
        Some(MULTI) => ("one whose data are in another", ": h5repack makes one file of both"),
        _ => return Ok(()),
    };
    Err(reader.malformed(at, "a whole HDF5 file", found, hint))
}

/// The name of the driver that wrote the file, if the file has it: in a block of its own, or in newer files in the
/// extension.
fn driver(input: &Input<'_>, block: Option<u64>, extension: Option<u64>) -> Option<[u8; 8]> {
    match block {
        Some(at) => input.block("a driver's block", at, 16).ok()?.bytes.last_chunk().copied(),
        None => Extension::read(input, extension?).ok()?.driver,
    }
}
