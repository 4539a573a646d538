//! Directory → pickle.

use std::io::{self, Write};

use super::{Directory, Entry, MAX_DEPTH, check_name};
use crate::format::quoted;

/// Protocol 4, without frames (readers do not need them), then `OrderedDict` as memo entry 0.
const START: &[u8] = b"\x80\x04ccollections\nOrderedDict\nq\x00";
/// The number of entries that CPython puts into one SETITEMS; its unpickler holds them on its stack.
const BATCH: usize = 1000;

/// Writes `directory` as a pickle that Python (3.4 or later) loads as nested `OrderedDict`s.
///
/// It writes many small pieces: give it a buffered writer. Bytes of names that are not UTF-8 become
/// the lone surrogates by which Python's `surrogateescape` replaces them.
///
/// # Errors
/// `InvalidInput` for a tree that [`decode`](super::decode) would refuse: a name that no file can
/// have, an index over `i64::MAX`, or more than [`MAX_DEPTH`] levels. Names and indices used
/// twice are not looked for. All other errors are those of `out`.
pub fn encode(directory: &Directory, out: &mut impl Write) -> io::Result<()> {
    out.write_all(START)?;
    // The class is on the stack already, so the root does not fetch it from the memo.
    write_directory(directory, MAX_DEPTH, b")R", out)?;
    out.write_all(b".")
}

fn write_directory(
    directory: &Directory,
    levels_left: u16,
    create: &[u8],
    out: &mut impl Write,
) -> io::Result<()> {
    let Some(levels_below) = levels_left.checked_sub(1) else {
        return Err(invalid("the directories are nested too deeply"));
    };
    out.write_all(create)?;
    for batch in directory.entries.chunks(BATCH) {
        out.write_all(b"(")?;
        for (name, entry) in batch {
            write_name(name, out)?;
            match entry {
                Entry::File(index) => write_index(*index, out)?,
                Entry::Directory(child) => write_directory(child, levels_below, b"h\x00)R", out)?,
            }
        }
        out.write_all(b"u")?;
    }
    Ok(())
}

fn write_name(name: &[u8], out: &mut impl Write) -> io::Result<()> {
    check_name(name).map_err(|why| invalid(&format!("name {} {why}", quoted(name))))?;
    let escaped;
    let text = match std::str::from_utf8(name) {
        Ok(_) => name,
        Err(_) => {
            escaped = surrogate_escape(name);
            &escaped
        }
    };
    match u8::try_from(text.len()) {
        Ok(len) => out.write_all(&[0x8c, len])?,
        // A name has at most 255 bytes, its escaped form at most three times as many.
        Err(_) => {
            let len = u32::try_from(text.len()).map_err(|_| invalid("name too long"))?;
            out.write_all(b"X")?;
            out.write_all(&len.to_le_bytes())?;
        }
    }
    out.write_all(text)
}

/// Each byte that is not part of UTF-8 becomes U+DC00 + byte, in three bytes as UTF-8 would have it.
fn surrogate_escape(name: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for chunk in name.utf8_chunks() {
        text.extend_from_slice(chunk.valid().as_bytes());
        for byte in chunk.invalid() {
            text.extend_from_slice(&[0xed, 0xb0 | byte >> 6, 0x80 | byte & 0x3f]);
        }
    }
    text
}

fn write_index(index: u64, out: &mut impl Write) -> io::Result<()> {
    if let Ok(small) = u8::try_from(index) {
        return out.write_all(&[b'K', small]);
    }
    if let Ok(short) = u16::try_from(index) {
        out.write_all(b"M")?;
        return out.write_all(&short.to_le_bytes());
    }
    if let Ok(int) = i32::try_from(index) {
        out.write_all(b"J")?;
        return out.write_all(&int.to_le_bytes());
    }
    let long = i64::try_from(index).map_err(|_| invalid("an index is over 2^63 - 1"))?;
    out.write_all(b"\x8a\x08")?;
    out.write_all(&long.to_le_bytes())
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
