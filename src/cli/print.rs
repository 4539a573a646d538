//! Printing a failure; the exit code of the process.

use super::{Exit, Failure, wrong_usage};
use crate::failure::say;
use crate::format::visible;
use crate::io::process;
use clap::error::ErrorKind;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// Prints a failure as one line on stderr (help in clap's own form).
pub(super) fn print(failure: &Failure) {
    if let Some(error) = failure.reason::<clap::Error>() {
        let _ = error.print();
    } else if failure.exit != Exit::Ok {
        // journald reads the priority (3: error) of a line of stderr from this prefix.
        let priority = if process::stderr_is_the_journal() { "<3>" } else { "" };
        say(format_args!("{priority}ffrfs: {failure}"));
    }
}

/// As [`print`]; returns how the program ends: help that cannot be written is a failure.
pub(super) fn print_last(failure: &Failure) -> Exit {
    if let Some(error) = failure.reason::<clap::Error>().filter(|_| failure.exit == Exit::Ok) {
        let printed = error.print().map_err(|e| Failure::output("standard output", e));
        return printed.map_or_else(|failure| print_last(&failure), |()| Exit::Ok);
    }
    print(failure);
    failure.exit
}

/// Writes text to standard output, without control characters if that is a terminal.
pub(super) fn to_stdout(text: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let shown = if out.is_terminal() { visible(text, true) } else { text.into() };
    out.write_all(&shown).map_err(|e| Failure::output("standard output", e))
}

/// Makes no failure of a reader that has stopped, as `head` does: the findings still decide the exit code.
pub(super) fn unless_unread(written: Result<(), Failure>) -> Result<(), Failure> {
    written.or_else(|failure| if failure.exit == Exit::Ok { Ok(()) } else { Err(failure) })
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// `--help` and `--version` are no failures, and are printed as clap does it; so is the help for a missing command.
impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Self::new(Exit::Ok, error),
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Self::new(Exit::Usage, error),
            _ => Self::usage(wrong_usage::in_one_line(&error)),
        }
    }
}
