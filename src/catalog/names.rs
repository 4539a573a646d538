//! What archives call their members → names that a directory can hold. Never outside the mount, never lost.
//!
//! A path is cut at its slashes; empty parts and `.` go, so `/a//./b` is `a/b`. A part that cannot be an
//! entry of a directory is escaped: `..` becomes `%2E%2E`, a NUL `%00`, and a name of more than 255 bytes
//! is cut and ends in `~` and the 8 hexadecimal digits of its CRC-32, before its ending if it has a short one.

use super::numbered::MAX_NAME_BYTES;
use std::borrow::Cow;

/// What stands for `..`.
const UP: &[u8] = b"%2E%2E";
/// `~` and the digits.
const MARK_BYTES: usize = 9;
/// Endings up to this length, dot included, stay where names are cut.
const MAX_ENDING_BYTES: usize = 16;

/// The names on the way down a stored path, and whether one of them had to be escaped or the path is
/// absolute.
pub(super) fn parts(path: &[u8]) -> impl Iterator<Item = Cow<'_, [u8]>> {
    path.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b".")).map(escape)
}

/// Whether a path is shown as another one than it is stored as; `./` at its start does not count.
pub(super) fn is_changed(path: &[u8]) -> bool {
    path.first() == Some(&b'/') || parts(path).any(|part| matches!(part, Cow::Owned(_)))
}

/// A part of a path as a directory can hold it.
pub(super) fn escape(part: &[u8]) -> Cow<'_, [u8]> {
    let mut name = match part {
        b".." => Cow::Borrowed(UP).into_owned().into(),
        _ if part.contains(&0) => {
            let escaped = part.iter().flat_map(|byte| match byte {
                0 => &b"%00"[..],
                byte => std::slice::from_ref(byte),
            });
            Cow::Owned(escaped.copied().collect())
        }
        _ => Cow::Borrowed(part),
    };
    if name.len() > MAX_NAME_BYTES {
        name = Cow::Owned(cut(&name));
    }
    name
}

fn cut(name: &[u8]) -> Vec<u8> {
    let (stem, ending) = split_ending(name);
    let room = MAX_NAME_BYTES - MARK_BYTES - ending.len();
    let mut end = room.min(stem.len());
    // Not within a character of UTF-8.
    while end > room.saturating_sub(4) && stem.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
        end -= 1;
    }
    let mark = format!("~{:08x}", crc32fast::hash(name));
    [&stem[..end], mark.as_bytes(), ending].concat()
}

/// A name and its ending: `.jpg`, or nothing.
fn split_ending(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().rposition(|&byte| byte == b'.') {
        Some(dot) if dot > 0 && name.len() - dot <= MAX_ENDING_BYTES => name.split_at(dot),
        _ => (name, b""),
    }
}

/// The name of the `number`th further member that is called `name`: `x (1).jpg`.
pub(super) fn numbered(name: &[u8], number: u32) -> Vec<u8> {
    let mark = format!(" ({number})");
    let (stem, ending) = split_ending(name);
    let room = MAX_NAME_BYTES - mark.len() - ending.len();
    [&stem[..stem.len().min(room)], mark.as_bytes(), ending].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(path: &[u8]) -> String {
        let parts: Vec<_> =
            parts(path).map(|part| String::from_utf8_lossy(&part).into_owned()).collect();
        parts.join("/")
    }

    #[test]
    fn a_path_never_leads_out_and_never_gets_lost() {
        for (stored, expected, changed) in [
            ("a/b", "a/b", false),
            ("./a//b/", "a/b", false),
            ("/etc/passwd", "etc/passwd", true),
            ("../../x", "%2E%2E/%2E%2E/x", true),
            ("a\0b", "a%00b", true),
            ("...", "...", false),
        ] {
            assert_eq!(shown(stored.as_bytes()), expected);
            assert_eq!(is_changed(stored.as_bytes()), changed, "{stored}");
        }
    }

    #[test]
    fn a_long_name_is_cut_and_keeps_its_ending_and_differs_from_others() {
        let long = |last| [&[b'x'; 300][..], last, b".jpg"].concat();
        let (one, two) = (escape(&long(b"1")).into_owned(), escape(&long(b"2")).into_owned());
        assert_ne!(one, two);
        assert!(one.len() == 255 && one.ends_with(b".jpg"));
        assert_eq!(one, escape(&long(b"1")).into_owned());
        let text = "ü".repeat(200);
        assert!(std::str::from_utf8(&escape(text.as_bytes())).is_ok());
    }

    #[test]
    fn a_second_name_has_its_number_before_the_ending() {
        assert_eq!(numbered(b"x.jpg", 1), b"x (1).jpg");
        assert_eq!(numbered(b".profile", 2), b".profile (2)");
        assert_eq!(numbered(&[b'x'; 255], 10).len(), 255);
    }
}
