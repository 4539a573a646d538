//! Makes paths of keys. A key that is not a path of UTF-8 is shown by its hexadecimal digits, below `hex/`.
//!
//! Imports names and endings of this room.

use super::super::ending;
use super::super::name::{MAX_NAME_BYTES, escape};

/// The directory of keys that are integers, or no paths.
const HEX: &[u8] = b"hex/";
/// The longest key that is taken for a path. Keys of LMDB have up to 511 bytes, unless it was built otherwise.
const MAX_PATH_BYTES: usize = 1024;
/// The longest ending, with its dot.
const ENDING_BYTES: usize = 5;

/// Appends the path of a key.
pub(super) fn push(path: &mut Vec<u8>, key: &[u8], is_integer: bool) {
    if !is_integer && is_path(key) {
        return path.extend_from_slice(key);
    }
    let digits: Vec<u8> = key.iter().flat_map(|byte| hex(*byte)).collect();
    path.extend_from_slice(HEX);
    // A name that is cut differs from all others, too: `~` and a checksum end it.
    let room = MAX_NAME_BYTES.saturating_sub(ENDING_BYTES);
    match digits.len() <= room {
        true => path.extend_from_slice(&digits),
        false => path.extend_from_slice(&escape(&digits)),
    }
}

/// Appends the ending of a value, unless the path has it already.
pub(super) fn end(path: &mut Vec<u8>, ending: &str) {
    let same: &[&str] = match ending {
        ".jpg" => &[".jpg", ".jpeg"],
        ".tif" => &[".tif", ".tiff"],
        _ => &[ending],
    };
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let has = |ending: &&str| {
        let start = name.len().checked_sub(ending.len()).filter(|start| *start > 0);
        let end = start.and_then(|start| name.get(start..));
        end.is_some_and(|end| end.eq_ignore_ascii_case(ending.as_bytes()))
    };
    if !same.iter().any(has) {
        path.extend_from_slice(ending.as_bytes());
    }
}

/// The ending of a value that was read.
pub(super) fn ending_of(value: &[u8]) -> &'static str {
    ending::named(ending::code_of(value))
}

fn hex(byte: u8) -> [u8; 2] {
    let digit = |half: u8| char::from_digit(half.into(), 16).map_or(b'0', |digit| digit as u8);
    [digit(byte >> 4), digit(byte & 15)]
}

fn is_path(key: &[u8]) -> bool {
    let is_name = |part: &[u8]| {
        let room = MAX_NAME_BYTES.saturating_sub(ENDING_BYTES);
        !matches!(part, b"" | b"." | b"..") && part.len() <= room
    };
    key.len() <= MAX_PATH_BYTES
        && str::from_utf8(key).is_ok_and(|text| !text.chars().any(char::is_control))
        && key.split(|byte| *byte == b'/').all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(key: &[u8], is_integer: bool) -> String {
        let mut path = Vec::new();
        push(&mut path, key, is_integer);
        end(&mut path, ".jpg");
        String::from_utf8(path).unwrap()
    }

    #[test]
    fn a_key_that_is_a_path_is_its_name() {
        for (key, expected) in [
            (&b"00000017"[..], "00000017.jpg"),
            (b"train/cat 1", "train/cat 1.jpg"),
            (b"a.JPEG", "a.JPEG"),
            (b"a.jpg", "a.jpg"),
            (b".jpg", ".jpg.jpg"),
            (b"d.jpg/x", "d.jpg/x.jpg"),
            ("ümlaut".as_bytes(), "ümlaut.jpg"),
            (b"", "hex/.jpg"),
            (b"a//b", "hex/612f2f62.jpg"),
            (b"/a", "hex/2f61.jpg"),
            (b"..", "hex/2e2e.jpg"),
            (b"nul\0", "hex/6e756c00.jpg"),
            (b"\xff\x00", "hex/ff00.jpg"),
        ] {
            assert_eq!(shown(key, false), expected);
        }
        assert_eq!(shown(b"AAAA", true), "hex/41414141.jpg");
    }

    #[test]
    fn long_keys_have_names_that_differ() {
        let long = |last: u8| shown(&[&[b'x'; 300][..], &[last]].concat(), false);
        let (one, other) = (long(1), long(2));
        assert_ne!(one, other);
        assert!(one.len() <= 4 + 255 + 4 && one.starts_with("hex/7878"));
    }
}
