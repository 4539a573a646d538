//! A [`Check`], as `doctor` reports it, and functions with which the checks read files of `/proc` and `/sys`.

use crate::failure::without_numbers;
use crate::format::one_line;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Nothing needs to change.
    Ok,
    /// A mount works, but could be better; or the check could not be made.
    Note,
    /// Mounting would fail, or the mount does not work.
    Problem,
}

/// One fact about the host, a mount or a container, and the conclusion from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    /// The name of the check.
    pub(crate) check: String,
    pub(crate) state: State,
    /// The fact.
    pub(crate) found: String,
    /// The change that helps; empty if no change is needed.
    pub(crate) advice: String,
}

impl Check {
    pub(crate) fn ok(check: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(check, State::Ok, found, "")
    }

    pub(crate) fn note(
        check: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(check, State::Note, found, advice)
    }

    pub(crate) fn problem(
        check: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(check, State::Problem, found, advice)
    }

    /// Control characters, which file contents and paths may hold, are escaped: a check stays one line. Errors of the
    /// system stand without their numbers.
    fn new(
        check: impl Into<String>,
        state: State,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let clean = |text: String| one_line(without_numbers(text));
        let (check, found, advice) = (check.into(), found.into(), advice.into());
        Self { check: clean(check), state, found: clean(found), advice: clean(advice) }
    }
}

/// The text of a small file; `None` if the file cannot be read.
pub(crate) fn text(path: impl AsRef<Path>) -> Option<String> {
    fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// The number that a file holds.
pub(crate) fn number(text: Option<&str>) -> Option<u64> {
    text?.trim().parse().ok()
}

/// `3 MiB`; below that `4 KiB`.
pub(crate) fn mebibytes(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_stays_one_line_whatever_was_found() {
        let check = Check::problem("a\nb", "\x1b[31mred\r\n", "do\tit");
        let Check { check, found, advice, .. } = &check;
        assert_eq!([check, found, advice], ["a\\x0ab", "\\x1b[31mred\\x0d\\x0a", "do\\x09it"]);
    }

    #[test]
    fn only_whole_numbers_are_numbers() {
        assert_eq!(number(Some(" 12\n")), Some(12));
        for odd in [None, Some(""), Some("-1"), Some("x"), Some("99999999999999999999")] {
            assert_eq!(number(odd), None, "{odd:?}");
        }
        assert_eq!(mebibytes(1 << 20), "1 MiB");
        assert_eq!(mebibytes(4096), "4 KiB");
    }
}
