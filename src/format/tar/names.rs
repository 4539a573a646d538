//! Names in other character sets than UTF-8.

use crate::format::charset::Charset;
use crate::format::{Error, OpenOptions, PartName, Result, quoted};

/// The character set of names that do not state it. Unless the options name one, names stay as they are, as on any Unix.
pub(super) fn charset(options: &OpenOptions, part: &PartName) -> Result<Charset> {
    let Some(label) = &options.encoding else { return Ok(Charset::Raw) };
    Charset::named(label).ok_or_else(|| Error::Malformed {
        part: part.clone(),
        format: super::NAME,
        offset_bytes: 0,
        expected: "a character set for names, such as cp437, shift_jis, gbk or koi8-r".to_owned(),
        found: quoted(label),
        hint: "",
    })
}

/// A name in UTF-8, if its character set is known; one that is UTF-8 already stays.
pub(super) fn decode(charset: Charset, name: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(name) {
        Ok(_) => name.to_vec(),
        Err(_) => charset.decode(name).into_owned(),
    }
}
