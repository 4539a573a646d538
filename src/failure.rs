//! How an operation of the program fails: a message for the user, and the class that decides the exit code.
//!
//! Used by [`crate::dataset`] and the rooms that import it. The classes are documented in `ffrfs --help`.

use crate::format;
use crate::io::NO_THREAD;
use crate::store::remote::{ErrorKind, StoreError};
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::iter;

/// Why something failed: a message, or an error of a library.
pub(crate) type Reason = Box<dyn Error + Send + Sync>;

/// A line on stderr. A closed stderr changes nothing.
pub(crate) fn say(line: fmt::Arguments) {
    let line = without_numbers(line.to_string());
    let mut shown = visible(line.as_bytes(), true).into_owned();
    shown.push(b'\n');
    let _ = io::stderr().write_all(&shown);
}

/// What an [`io::Error`] of the system puts between its text and its number.
const NUMBER: &str = " (os error ";

/// Whether [`without_numbers`] may change a text.
pub(crate) fn may_have_numbers(text: &str) -> bool {
    text.contains(NUMBER)
}

/// Text in which errors of the system end without ` (os error 2)`, which says nothing more to people. Names of files that
/// hold such words stay as they are: only what stands behind that error's own text goes, at the end of a name or word.
pub(crate) fn without_numbers(mut text: String) -> String {
    let mut from = 0;
    while let Some(at) = text[from..].find(NUMBER).map(|at| from + at) {
        let digits_at = at + NUMBER.len();
        let rest = text[digits_at..].trim_start_matches(|c: char| c.is_ascii_digit());
        let digits_end = text.len() - rest.len();
        from = digits_at;
        let Ok(number) = text[digits_at..digits_end].parse() else { continue };
        let said = io::Error::from_raw_os_error(number).to_string();
        let Some((before, behind)) = text.split_at_checked(digits_end + 1) else { continue };
        let is_name = behind
            .trim_start_matches(['.', '-', '_'])
            .starts_with(|c: char| c.is_alphanumeric() || c == '/');
        if before.ends_with(&said) && !is_name {
            text.replace_range(at..=digits_end, "");
            from = at;
        }
    }
    text
}

/// Text whose control characters, which could command a terminal, are written as `\x1b`, and those that change the
/// direction of text or break lines as `\u{202e}`; newlines and tabs stay if `keeps_lines`.
pub(crate) fn visible(text: &[u8], keeps_lines: bool) -> Cow<'_, [u8]> {
    let control_at = |at: usize| {
        control(&text[at..]).filter(|_| !(keeps_lines && matches!(text[at], b'\n' | b'\t')))
    };
    if !(0..text.len()).any(|at| control_at(at).is_some()) {
        return text.into();
    }
    let mut out = Vec::with_capacity(text.len() + 16);
    let mut at = 0;
    while at < text.len() {
        match control_at(at) {
            Some((escaped, length)) => {
                out.extend_from_slice(escaped.as_bytes());
                at += length;
            }
            None => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
    out.into()
}

/// The control character that a text begins with: as it is shown, and how many bytes it has.
fn control(text: &[u8]) -> Option<(String, usize)> {
    let format = |code: u32| format!("\\u{{{code:x}}}");
    Some(match *text {
        [byte, ..] if byte.is_ascii_control() => (format!("\\x{byte:02x}"), 1),
        [0xc2, byte @ 0x80..=0x9f, ..] => (format!("\\x{byte:02x}"), 2),
        [0xd8, 0x9c, ..] => (format(0x61c), 2),
        [0xe2, 0x80, byte @ (0x8e | 0x8f | 0xa8..=0xae), ..] => {
            (format(0x1f80 + u32::from(byte)), 3)
        }
        [0xe2, 0x81, byte @ 0xa6..=0xa9, ..] => (format(0x1fc0 + u32::from(byte)), 3),
        _ => return None,
    })
}

/// How the program ends; the number is the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All is well.
    Ok = 0,
    /// Wrong usage.
    Usage = 1,
    /// A source cannot be read.
    Unreadable = 2,
    /// A source is not a usable container.
    Malformed = 3,
    /// A checksum does not match.
    Checksum = 4,
    /// Mounting or unmounting failed.
    Mount = 5,
    /// The output cannot be written.
    Output = 6,
    /// A store does not allow the access.
    Denied = 7,
    /// A store cannot be reached, or does not answer.
    Unreachable = 8,
    /// A password is missing or wrong, or an encryption is not read.
    Password = 9,
    /// Interrupted by the user.
    Interrupted = 130,
}

/// A failed operation. Displayed with all its reasons: `what: why: why that`.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What was being done, outermost first.
    contexts: Vec<String>,
    reason: Reason,
    /// What is shown in place of the reasons.
    said: Option<String>,
}

impl Failure {
    /// An error of class `exit`: a message, or an error of a library.
    pub fn new(exit: Exit, reason: impl Into<Reason>) -> Self {
        Self { exit, contexts: Vec::new(), reason: reason.into(), said: None }
    }

    /// Says what was being done: `context: reason`.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.contexts.insert(0, context.to_string());
        self
    }

    /// Is shown as `text`; its reasons stay what they are.
    #[must_use]
    pub(crate) fn saying(mut self, text: &str) -> Self {
        self.contexts.clear();
        self.said = Some(text.to_owned());
        self
    }

    /// Wrong usage.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message.to_string())
    }

    /// A source cannot be read; `what` names it.
    pub fn unreadable(what: impl fmt::Display, error: io::Error) -> Self {
        let is_limit = error.raw_os_error() == Some(libc::EMFILE);
        let failure = Self::new(Exit::Unreadable, error);
        match is_limit {
            true => {
                failure.context("this process may not open more files (ulimit -n)").context(what)
            }
            false => failure.context(what),
        }
    }

    /// The output cannot be written; `what` names it. A reader that went away is no failure.
    pub fn output(what: impl fmt::Display, error: io::Error) -> Self {
        let exit = if error.kind() == io::ErrorKind::BrokenPipe { Exit::Ok } else { Exit::Output };
        Self::new(exit, error).context(what)
    }

    /// The system starts no thread for the work.
    pub(crate) fn no_thread(error: io::Error) -> Self {
        Self::new(Exit::Unreadable, error).context(NO_THREAD)
    }

    /// The user has interrupted the work.
    #[must_use]
    pub fn interrupted() -> Self {
        Self::new(Exit::Interrupted, "interrupted")
    }

    /// The innermost reason of a kind, if there is one.
    pub(crate) fn reason<E: Error + 'static>(&self) -> Option<&E> {
        self.reasons().filter_map(|reason| reason.downcast_ref()).last()
    }

    fn reasons(&self) -> impl Iterator<Item = &(dyn Error + 'static)> {
        let outermost: &(dyn Error + 'static) = self.reason.as_ref();
        iter::successors(Some(outermost), |reason: &&(dyn Error + 'static)| (*reason).source())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons = self.reasons().map(ToString::to_string).filter(|_| self.said.is_none());
        let reasons = self.said.iter().cloned().chain(reasons);
        let parts: Vec<_> = self.contexts.iter().cloned().chain(reasons).collect();
        out.write_str(&without_numbers(parts.join(": ")))
    }
}

impl From<format::Error> for Failure {
    fn from(error: format::Error) -> Self {
        let exit = match &error {
            format::Error::Unreadable { .. } => Exit::Unreadable,
            format::Error::Malformed { .. }
            | format::Error::Foreign { .. }
            | format::Error::Undecodable { .. }
            | format::Error::NoCheckpoints { .. } => Exit::Malformed,
            format::Error::Checksum { .. } => Exit::Checksum,
            format::Error::WrongPassword { .. }
            | format::Error::Locked { .. }
            | format::Error::Encryption { .. } => Exit::Password,
        };
        Self::new(exit, error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = match error.kind {
            ErrorKind::Refused if error.status.is_none() => Exit::Usage,
            ErrorKind::Interrupted => Exit::Interrupted,
            ErrorKind::Denied => Exit::Denied,
            ErrorKind::Unavailable
            | ErrorKind::Throttled
            | ErrorKind::Broken
            | ErrorKind::TimedOut => Exit::Unreachable,
            _ => Exit::Unreadable,
        };
        Self::new(exit, error)
    }
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
    }

    #[test]
    fn errors_of_the_system_are_said_without_their_numbers() {
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        let failure = Failure::unreadable("a.zip", error)
            .context(format_args!("{} (x)", io::Error::from_raw_os_error(libc::EACCES)));
        let said = "Permission denied (x): a.zip: No such file or directory";
        assert_eq!(failure.to_string(), said);
        for odd in ["a (os error x)", "a (os error 5", " (os error ", "(os error 5)"] {
            assert_eq!(without_numbers(odd.to_owned()), odd);
        }
        // Names of files are no errors.
        for name in
            ["run (os error 5)", "run (os error 5).zip", "Input/output error (os error 5).zip"]
        {
            let error = io::Error::from_raw_os_error(libc::ENOENT);
            let said = Failure::unreadable(name, error).to_string();
            assert_eq!(said, format!("{name}: No such file or directory"));
        }
        let both = format!("x: {}; y", io::Error::from_raw_os_error(libc::EIO));
        assert_eq!(without_numbers(both), "x: Input/output error; y");
    }

    #[test]
    fn a_failure_says_what_was_done_and_all_reasons_in_order() {
        let error = io::Error::other("the disk is on fire");
        let failure = Failure::unreadable("train.ffr", error).context("mount");
        assert_eq!(failure.to_string(), "mount: train.ffr: the disk is on fire");
        assert!(
            failure.reason::<io::Error>().is_some() && failure.reason::<fmt::Error>().is_none()
        );
    }
}
