//! Paths of members in archives → names that a directory can hold. No path leads out of the mount, and none is lost.
//!
//! A path is cut at its slashes; empty parts and `.` go, so `/a//./b` is `a/b`. A part that cannot be an
//! entry of a directory is escaped, as the fields of a record are: `crate::format::name`.

use std::borrow::Cow;

pub(super) use crate::format::name::{numbered, parts};

/// Whether a path is not shown as it is stored; `./` at its start does not count.
pub(super) fn is_changed(path: &[u8]) -> bool {
    path.first() == Some(&b'/') || parts(path).any(|part| matches!(part, Cow::Owned(_)))
}

/// Whether macOS or Windows made a file or directory of this name, and not the people whose data it lies beside.
pub(super) fn is_left_by_system(name: &[u8]) -> bool {
    match name {
        b"__MACOSX" | b".DS_Store" | b"Thumbs.db" => true,
        _ => name.len() > 2 && name.starts_with(b"._"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::name::escape;

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
