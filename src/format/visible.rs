//! Text from anywhere → text that a terminal shows and does not obey: one form for names, messages and reports.
//!
//! Imports nothing.

use std::borrow::Cow;

/// Text whose control characters, which could command a terminal, are written as `\x1b`, and those that change the
/// direction of text or break lines as `\u{202e}`; newlines and tabs stay if `keeps_lines`.
pub(crate) fn visible(text: &[u8], keeps_lines: bool) -> Cow<'_, [u8]> {
    let escaped = |c: char| match u32::from(c) {
        code @ 0..0x100 => format!("\\x{code:02x}"),
        code => format!("\\u{{{code:x}}}"),
    };
    written(text, |c| keeps_lines && matches!(c, '\n' | '\t'), escaped)
}

/// As [`visible`], for text that must stay one line; bytes that are not UTF-8 are shown as U+FFFD.
pub(crate) fn one_line(text: impl AsRef<[u8]>) -> String {
    String::from_utf8_lossy(&visible(text.as_ref(), false)).into_owned()
}

/// A name as messages show it: in quotation marks, on one line.
pub(crate) fn quoted(name: impl AsRef<[u8]>) -> String {
    format!("\"{}\"", one_line(name))
}

/// JSON of the same value with those characters only as `\u009b`. Its own newlines stay.
pub(crate) fn visible_json(json: &[u8]) -> Cow<'_, [u8]> {
    written(json, |c| c == '\n', |c| format!("\\u{:04x}", u32::from(c)))
}

/// Text in which characters that a terminal obeys are escaped, but for those that are kept.
fn written(
    text: &[u8],
    is_kept: impl Fn(char) -> bool,
    escaped: impl Fn(char) -> String,
) -> Cow<'_, [u8]> {
    // Most names and lines of JSON: no character needs to be decoded. Without an early end, many bytes are seen at once.
    if text.iter().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~')) {
        return text.into();
    }
    let is_escaped = |c: char| is_obeyed(c) && !is_kept(c);
    if !text.utf8_chunks().any(|chunk| chunk.valid().chars().any(&is_escaped)) {
        return text.into();
    }
    let mut out = Vec::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match is_escaped(c) {
                true => out.extend_from_slice(escaped(c).as_bytes()),
                false => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        out.extend_from_slice(chunk.invalid());
    }
    out.into()
}

/// Whether a terminal obeys a character instead of showing it: controls, and marks of direction, line and paragraph.
fn is_obeyed(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}'..='\u{202e}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_visible_and_letters_stay() {
        let shown = |text: &str| String::from_utf8(visible(text.as_bytes(), false).into()).unwrap();
        assert_eq!(shown("a\x1b[31mb\x07\nc\u{9b}d"), "a\\x1b[31mb\\x07\\x0ac\\x9bd");
        assert_eq!(shown("größer €  日本"), "größer €  日本");
        let turned = "a\u{202e}gpj\u{2066}\u{61c}\u{200f}\u{2028}b \u{200d}‐…";
        let said = "a\\u{202e}gpj\\u{2066}\\u{61c}\\u{200f}\\u{2028}b \u{200d}‐…";
        assert_eq!(shown(turned), said);
        assert_eq!(visible(b"a\tb\n", true), &b"a\tb\n"[..]);
        assert_eq!(visible(b"\x9b\xff", false), &b"\x9b\xff"[..], "no character at all");
        assert_eq!(visible(b"\xff\x1b\xc3", false), &b"\xff\\x1b\xc3"[..]);
        assert_eq!(one_line(b"a\tb\n\xff"), "a\\x09b\\x0a\u{fffd}");
        assert_eq!(quoted("a\x1b \"b\""), "\"a\\x1b \"b\"\"");
    }

    #[test]
    fn json_stays_the_same_value_without_control_characters() {
        let name = "a\u{7f}\u{9b}\u{202e}\u{200e}\u{2069}\u{61c}\n\x1bä\"\\日\u{1f600}";
        let json = serde_json::to_vec_pretty(&[name]).unwrap();
        let shown = String::from_utf8(visible_json(&json).into()).unwrap();
        let said = "a\\u007f\\u009b\\u202e\\u200e\\u2069\\u061c\\n\\u001bä";
        assert!(shown.contains(said), "{shown}");
        assert!(!shown.contains(|c: char| is_obeyed(c) && c != '\n'), "{shown:?}");
        let [read]: [String; 1] = serde_json::from_str(&shown).unwrap();
        assert_eq!(read, name);
        for same in ["[\n  1\n]", "[1]", " ~", ""] {
            assert!(matches!(visible_json(same.as_bytes()), Cow::Borrowed(_)), "{same}");
        }
    }
}
