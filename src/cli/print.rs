//! Printing a failure; the exit code of the process.

use super::{Exit, Failure};
use crate::failure::say;
use crate::io::process;
use std::process::ExitCode;

/// One line on stderr (clap's errors in clap's own form).
pub(super) fn print(failure: &Failure) {
    if let Some(error) = failure.reason::<clap::Error>() {
        let _ = error.print();
    } else if failure.exit != Exit::Ok {
        // journald reads the priority (3: error) of a line of stderr from this prefix.
        let priority = if process::stderr_is_the_journal() { "<3>" } else { "" };
        say(format_args!("{priority}ffrfs: {failure}"));
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// `--help` and `--version` are no failures.
impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        let exit = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
        Self::new(exit, error)
    }
}
