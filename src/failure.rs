//! How an operation of the program fails: a message for the user, and the class that decides the exit code.
//!
//! Used by [`crate::dataset`] and the rooms that import it. The classes are documented in `ffrfs --help`.

use crate::format::{self, one_line};
use crate::io::NO_THREAD;
use crate::store::remote::{ErrorKind, StoreError};
use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::iter;

/// The reason of a failure: a message, or an error of a library.
pub(crate) type Reason = Box<dyn Error + Send + Sync>;

/// Writes one line to stderr, and no second one: names may hold line breaks. A closed stderr changes nothing.
pub(crate) fn say(line: fmt::Arguments) {
    let mut line = one_line(without_numbers(line.to_string()));
    line.push('\n');
    let _ = io::stderr().write_all(line.as_bytes());
}

/// The words that an [`io::Error`] of the system puts between its text and its number.
const NUMBER: &str = " (os error ";

/// Whether [`without_numbers`] may change a text.
pub(crate) fn may_have_numbers(text: &str) -> bool {
    text.contains(NUMBER)
}

/// Text in which errors of the system end without ` (os error 2)`, which says nothing more to people. Names of files that
/// hold such words stay as they are: the words go only behind that error's own text, at the end of a name or word.
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

/// A failed operation. Displayed with all its reasons: `context: reason: reason of that`.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// The operations that were being done, outermost first.
    contexts: Vec<String>,
    reason: Reason,
    /// A text that is shown in place of the reasons.
    said: Option<String>,
}

impl Failure {
    /// An error of class `exit`: a message, or an error of a library.
    pub fn new(exit: Exit, reason: impl Into<Reason>) -> Self {
        Self { exit, contexts: Vec::new(), reason: reason.into(), said: None }
    }

    /// Adds the operation that was being done: `context: reason`.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.contexts.insert(0, context.to_string());
        self
    }

    /// Is shown as `text`; [`Failure::reason`] still finds the reasons.
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

    /// A source cannot be read; `what` names the source.
    pub fn unreadable(what: impl fmt::Display, error: io::Error) -> Self {
        let is_limit = is_limit(&error);
        let failure = Self::new(Exit::Unreadable, error);
        match is_limit {
            true => failure.context(TOO_MANY_FILES).context(what),
            false => failure.context(what),
        }
    }

    /// The output cannot be written; `what` names the output. A reader of a pipe that went away is no failure.
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
        let mut parts: Vec<_> = self.contexts.iter().cloned().chain(reasons).collect();
        // Some reasons end with the text of their own reason.
        parts.dedup_by(|part, before| before.ends_with(&*part));
        out.write_str(&without_numbers(parts.join(": ")))
    }
}

/// The message where a limit keeps this process from opening a file.
const TOO_MANY_FILES: &str = "this process may not open more files (ulimit -n)";

fn is_limit(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMFILE)
}

impl From<format::Error> for Failure {
    fn from(error: format::Error) -> Self {
        let is_limit =
            matches!(&error, format::Error::Unreadable { source, .. } if is_limit(source));
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
        let failure = Self::new(exit, error);
        if is_limit { failure.context(TOO_MANY_FILES) } else { failure }
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
