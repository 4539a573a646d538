//! Exit codes, and which error has which.

use crate::format;
use crate::io::process;
use crate::transport::MountError;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// A line on stderr. Nobody may be there to read it: that changes nothing.
pub(super) fn say(line: std::fmt::Arguments) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// How the program ends.
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
    /// Interrupted by the user.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// An error on its way to the user.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    error: anyhow::Error,
}

impl Failure {
    /// An error of class `exit`.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into() }
    }

    /// Wrong usage.
    pub fn usage(message: impl std::fmt::Display) -> Self {
        Self { exit: Exit::Usage, error: anyhow::anyhow!("{message}") }
    }

    /// A source cannot be read; `what` names it.
    pub fn unreadable(what: impl std::fmt::Display, error: io::Error) -> Self {
        Self::new(Exit::Unreadable, anyhow::Error::new(error).context(what.to_string()))
    }

    /// The output cannot be written; `what` names it. A reader that went away is no failure.
    pub fn output(what: impl std::fmt::Display, error: io::Error) -> Self {
        let exit = if error.kind() == io::ErrorKind::BrokenPipe { Exit::Ok } else { Exit::Output };
        Self::new(exit, anyhow::Error::new(error).context(what.to_string()))
    }

    /// The innermost reason of a kind, if there is one.
    pub(super) fn reason<E: std::error::Error + Send + Sync + 'static>(&self) -> Option<&E> {
        self.error.chain().rev().find_map(|reason| reason.downcast_ref())
    }

    /// One line on stderr (what clap has to say is in clap's own form).
    pub fn print(&self) {
        if let Some(error) = self.error.downcast_ref::<clap::Error>() {
            let _ = error.print();
        } else if self.exit != Exit::Ok {
            // From stderr the journal takes the priority (an error) by a prefix, as the kernel's log has it.
            let priority = if process::stderr_is_the_journal() { "<3>" } else { "" };
            say(format_args!("{priority}ffrfs: {:#}", self.error));
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#}", self.error)
    }
}

/// What was asked for (help, the version) is no failure.
impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        let exit = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
        Self::new(exit, error)
    }
}

impl From<format::Error> for Failure {
    fn from(error: format::Error) -> Self {
        let exit = match &error {
            format::Error::Unreadable { .. } => Exit::Unreadable,
            format::Error::Malformed { .. } | format::Error::NoRestarts { .. } => Exit::Malformed,
            format::Error::Checksum { .. } => Exit::Checksum,
        };
        Self::new(exit, error)
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        Self::new(Exit::Mount, error)
    }
}
