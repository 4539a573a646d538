//! The ending of a value's file, by the value itself, where its container does not name the kind of value.
//!
//! Imports only `magic`.

use super::magic;
use serde::de::IgnoredAny;

/// Every ending; its position here is its code, which kept indexes hold.
pub(super) const ENDINGS: [&str; 33] = [
    "", ".jpg", ".png", ".gif", ".webp", ".bmp", ".tif", ".npy", ".json", ".txt", ".ppm", ".pgm",
    ".bin", ".jpeg", ".JPEG", ".JPG", ".PNG", ".tiff", ".avif", ".jp2", ".wav", ".WAV", ".flac",
    ".mp3", ".ogg", ".opus", ".m4a", ".aac", ".mp4", ".webm", ".avi", ".mkv", ".pdf",
];

/// The number of endings, from the first, that a value itself gives; only the path of a file gives the others.
const BY_VALUE: usize = 13;

/// The code of `.bin`, the last ending that a value gives.
pub(super) const BIN: u8 = BY_VALUE.saturating_sub(1) as u8;

/// The code of a name without an ending.
pub(super) const NONE: u8 = 0;

/// The ending with this code; empty if there is no such code.
pub(super) fn named(code: u8) -> &'static str {
    ENDINGS.get(usize::from(code)).copied().unwrap_or("")
}

/// The code of an ending; that of `.bin` if the ending has no code.
pub(super) fn code(ending: &str) -> u8 {
    let place = ENDINGS.iter().position(|known| *known == ending);
    place.map_or(BIN, |place| u8::try_from(place).unwrap_or(NONE))
}

/// The code of the ending of a path as it is written, or else in small letters; [`NONE`] if neither has a code.
pub(super) fn code_of_path(path: &[u8]) -> u8 {
    let start = path.iter().rposition(|byte| *byte == b'.').unwrap_or(path.len());
    let ending = String::from_utf8_lossy(path.get(start..).unwrap_or_default());
    let small = ending.to_ascii_lowercase();
    let place = |wanted: &str| ENDINGS.iter().position(|known| *known == wanted);
    let found = place(&ending).or_else(|| place(&small)).unwrap_or(0);
    u8::try_from(found).unwrap_or(NONE)
}

/// Whether this is one of [`ENDINGS`], by which files are recognised.
pub(super) fn is_known(ending: &str) -> bool {
    ENDINGS.contains(&ending)
}

/// The code of the ending of a value.
pub(super) fn code_of(value: &[u8]) -> u8 {
    code_of_head(value, value.len() as u64).unwrap_or_else(|| {
        code(match value {
            _ if is_json(value) => ".json",
            _ if is_text(value) => ".txt",
            _ => ".bin",
        })
    })
}

/// The code of the ending of a value of `length_bytes`, if the value's first [`magic::HEAD_BYTES`] suffice.
pub(super) fn code_of_head(head: &[u8], length_bytes: u64) -> Option<u8> {
    if is_bitmap(head, length_bytes) {
        return Some(code(".bmp"));
    }
    let suffix = magic::sniff(head).map_or("", |kind| kind.suffix);
    let is_ending =
        !suffix.is_empty() && ENDINGS.iter().take(BY_VALUE).any(|known| *known == suffix);
    match is_ending {
        true => Some(code(suffix)),
        false => is_binary(head).then_some(BIN),
    }
}

/// Whether the head of a value shows that it is neither text nor JSON.
fn is_binary(head: &[u8]) -> bool {
    let head = head.get(..magic::HEAD_BYTES).unwrap_or(head);
    let is_control = |byte: &u8| *byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\x0c' | b'\r');
    let is_cut_text = || match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    // The parser of JSON decides whether bytes that are not UTF-8 are JSON.
    let may_be_json = matches!(head.trim_ascii_start().first(), None | Some(b'{' | b'['));
    head.iter().any(is_control) || !may_be_json && !is_cut_text()
}

/// A Windows bitmap, which tells its own length.
fn is_bitmap(head: &[u8], length_bytes: u64) -> bool {
    let length = head.strip_prefix(b"BM").and_then(<[u8]>::first_chunk::<4>);
    length.is_some_and(|length| u64::from(u32::from_le_bytes(*length)) == length_bytes)
}

/// An object or an array that parses.
fn is_json(value: &[u8]) -> bool {
    let text = value.trim_ascii();
    let is_closed =
        matches!((text.first(), text.last()), (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']')));
    is_closed && serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

/// UTF-8 without control characters but tab and newline.
fn is_text(value: &[u8]) -> bool {
    let is_shown = |c: char| !c.is_control() || matches!(c, '\t' | '\n');
    std::str::from_utf8(value).is_ok_and(|text| text.chars().all(is_shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_tells_the_ending_of_its_file() {
        for (value, ending) in [
            (&b"\xff\xd8\xff\xe0JFIF"[..], ".jpg"),
            (b"\x89PNG\r\n\x1a\n", ".png"),
            (b"RIFF\0\0\0\0WEBPVP8 ", ".webp"),
            (b"BM\x0a\0\0\0\0\0\0\0", ".bmp"),
            (b"BM\x0b\0\0\0\0\0\0\0", ".bin"),
            (b"II*\0", ".tif"),
            (b"\x93NUMPY\x01\0", ".npy"),
            (b" {\"a\": [1, 2]}\n", ".json"),
            (b"[1, 2", ".txt"),
            (b"7", ".txt"),
            (b"", ".txt"),
            ("käse\tund\n".as_bytes(), ".txt"),
            (b"a\rb", ".bin"),
            (b"\xff", ".bin"),
            // A kind of its own, but none of these endings.
            (b"%PDF-1.7", ".txt"),
            // A character that the head ends in.
            ("fifteen bytes: ä".as_bytes(), ".txt"),
            (b"\x0c{}", ".json"),
            (b"{\"a\": \"\x7f\"}", ".json"),
        ] {
            assert_eq!(named(code_of(value)), ending, "{value:?}");
        }
        // The head alone shows that nothing is to be read of the rest.
        for (head, is_known) in [
            (&b"\x08\x03text text text"[..], true),
            (b"\xfftext", true),
            (b"text", false),
            (b"{\"", false),
        ] {
            assert_eq!(code_of_head(head, 1 << 20).is_some(), is_known, "{head:?}");
        }
        assert_eq!(named(BIN), ".bin");
        // Deeper than any parser of a program goes: no panic.
        let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
        assert_eq!(named(code_of(&deep)), ".json");
        assert_eq!(named(200), "");
    }
}
