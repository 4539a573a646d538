//! Counts in messages. Imports nothing of ours.

use std::fmt::Display;

/// A number with its noun: `1 file`, `2 files`, `3 entries`, `4 indexes`.
pub(crate) fn counted(number: impl Display, noun: &str) -> String {
    let many = match noun.strip_suffix('y').filter(|before| !before.ends_with(VOWELS)) {
        Some(before) => format!("{before}ies"),
        None if HISSING.iter().any(|end| noun.ends_with(end)) => format!("{noun}es"),
        None => format!("{noun}s"),
    };
    one_or_many(number, noun, &many)
}

/// A number with words that agree with it: `1 file is`, `2 files are`.
pub(crate) fn one_or_many(number: impl Display, one: &str, many: &str) -> String {
    let number = number.to_string();
    let words = if number == "1" { one } else { many };
    format!("{number} {words}")
}

const VOWELS: [char; 5] = ['a', 'e', 'i', 'o', 'u'];
/// Nouns with these ends take `es`.
const HISSING: [&str; 4] = ["s", "x", "ch", "sh"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_has_no_plural_and_all_other_counts_have_one() {
        for (one, many) in [
            ("file", "files"),
            ("entry", "entries"),
            ("key", "keys"),
            ("index", "indexes"),
            ("pass", "passes"),
            ("damaged block", "damaged blocks"),
        ] {
            assert_eq!(counted(1, one), format!("1 {one}"));
            assert_eq!(counted(0, one), format!("0 {many}"));
            assert_eq!(counted(2_u64, one), format!("2 {many}"));
            assert_eq!(counted("1,000", one), format!("1,000 {many}"));
        }
        assert_eq!(one_or_many(1, "file is", "files are"), "1 file is");
        assert_eq!(one_or_many(11, "file is", "files are"), "11 files are");
    }
}
