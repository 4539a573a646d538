//! Any bytes → a name that a directory can hold: never outside the mount, never lost.
//!
//! A name that cannot be an entry of a directory is escaped: `..` becomes `%2E%2E`, a NUL `%00`, a slash `%2F`, an empty
//! name `%`; a name of more than 255 bytes is cut and ends in `~` and the 8 hexadecimal digits of its CRC-32, before its
//! ending if it has a short one.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// The longest name that Linux takes.
pub(crate) const MAX_NAME_BYTES: usize = 255;
/// The length of `~` and the digits.
const MARK_BYTES: usize = 9;
/// Endings up to this length, dot included, stay when names are cut.
const MAX_ENDING_BYTES: usize = 16;

/// A name as a directory can hold it; borrowed if `part` is such a name.
pub(crate) fn escape(part: &[u8]) -> Cow<'_, [u8]> {
    let name = match part {
        b"" => Cow::Owned(b"%".to_vec()),
        b"." => Cow::Owned(b"%2E".to_vec()),
        b".." => Cow::Owned(b"%2E%2E".to_vec()),
        _ if part.iter().any(|byte| matches!(byte, 0 | b'/')) => {
            let escaped = part.iter().flat_map(|byte| match byte {
                0 => &b"%00"[..],
                b'/' => b"%2F",
                byte => std::slice::from_ref(byte),
            });
            Cow::Owned(escaped.copied().collect())
        }
        _ => Cow::Borrowed(part),
    };
    if name.len() > MAX_NAME_BYTES { Cow::Owned(cut(&name)) } else { name }
}

/// The names on the way down a stored path, each escaped; empty ones and `.` are left out.
pub(crate) fn parts(path: &[u8]) -> impl Iterator<Item = Cow<'_, [u8]>> {
    path.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b".")).map(escape)
}

fn cut(name: &[u8]) -> Vec<u8> {
    let (stem, ending) = split_ending(name);
    let room = MAX_NAME_BYTES.saturating_sub(MARK_BYTES).saturating_sub(ending.len());
    let mut end = room.min(stem.len());
    // A character of UTF-8 is not cut.
    while end > room.saturating_sub(4) && stem.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
        end = end.saturating_sub(1);
    }
    let mark = format!("~{:08x}", crc32fast::hash(name));
    [stem.get(..end).unwrap_or_default(), mark.as_bytes(), ending].concat()
}

/// A name without its ending, and the ending: `.jpg`, or empty.
fn split_ending(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().rposition(|&byte| byte == b'.') {
        Some(dot) if dot > 0 && name.len().saturating_sub(dot) <= MAX_ENDING_BYTES => {
            name.split_at(dot)
        }
        _ => (name, b""),
    }
}

/// The name of the `number`th further entry that is called `name`: `x (1).jpg`.
pub(crate) fn numbered(name: &[u8], number: u32) -> Vec<u8> {
    let mark = format!(" ({number})");
    let (stem, ending) = split_ending(name);
    let room = MAX_NAME_BYTES.saturating_sub(mark.len()).saturating_sub(ending.len());
    let end = stem.len().min(room);
    [stem.get(..end).unwrap_or_default(), mark.as_bytes(), ending].concat()
}

/// The names of one record's fields, which differ from each other.
#[derive(Default)]
pub(super) struct FieldNames {
    taken: HashSet<Vec<u8>>,
    /// The number to try next for a name, so that many equal names do not take quadratic time.
    next: HashMap<Vec<u8>, u32>,
}

impl FieldNames {
    /// The names of a field, one for each ending that its file may have. No other field gets any of them.
    pub(super) fn take(&mut self, stem: &[u8], endings: &[&str]) -> Vec<Vec<u8>> {
        let wanted: Vec<Vec<u8>> = endings
            .iter()
            .map(|ending| escape(&[stem, ending.as_bytes()].concat()).into_owned())
            .collect();
        let next = self.next.entry(wanted.first().cloned().unwrap_or_default()).or_default();
        loop {
            let names: Vec<_> = match *next {
                0 => wanted.clone(),
                number => wanted.iter().map(|name| numbered(name, number)).collect(),
            };
            *next = next.saturating_add(1);
            if names.iter().all(|name| !self.taken.contains(name)) {
                self.taken.extend(names.iter().cloned());
                return names;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_an_entry_is_escaped() {
        for (stored, expected) in [
            (&b""[..], &b"%"[..]),
            (b".", b"%2E"),
            (b"..", b"%2E%2E"),
            (b"a/b\0", b"a%2Fb%00"),
            (b"...", b"..."),
            (b"plain.npy", b"plain.npy"),
        ] {
            assert_eq!(escape(stored).as_ref(), expected);
        }
    }

    #[test]
    fn no_two_fields_share_a_name() {
        let mut names = FieldNames::default();
        assert_eq!(names.take(b"x", &[".npy", ""]), [&b"x.npy"[..], b"x"]);
        assert_eq!(names.take(b"x.npy", &[""]), [b"x (1).npy"]);
        assert_eq!(names.take(b"x", &[".npy", ""]), [&b"x (2).npy"[..], b"x (2)"]);
        assert_eq!(names.take(b"x (3)", &[".npy"]), [b"x (3).npy"]);
        assert_eq!(names.take(b"x", &[".npy", ""]), [&b"x (4).npy"[..], b"x (4)"]);
    }

    #[test]
    fn very_many_equal_fields_are_named_quickly() {
        let mut names = FieldNames::default();
        let last = (0..65_535).map(|_| names.take(b"x", &[".npy"])).last().unwrap();
        assert_eq!(last, [b"x (65534).npy"]);
    }
}
