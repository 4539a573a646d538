//! Helpers for the unit tests of all rooms, which say that a test checks nothing, and why. This file imports no room.

use std::io::{self, Write};

/// Says that the running test checks nothing here, and why.
pub(crate) fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // The print macros are not used: their output is swallowed when a test passes.
    let _ = writeln!(io::stderr(), "SKIPPED: {test}: {reason}");
}

/// Whether this program can be started once more; if not, the running test says so. An emulated program cannot: the kernel
/// knows no programs of the emulated machine.
#[cfg(feature = "remote")]
pub(crate) fn starts_again() -> bool {
    use std::process::{Command, Stdio};
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a test that there is not"]);
    let started = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_unknown = match &started {
        Ok(status) => status.code() == Some(127),
        Err(error) => error.raw_os_error() == Some(libc::ENOEXEC),
    };
    if is_unknown {
        skip("execve(2) cannot start this program, as under an emulator");
    }
    !is_unknown
}
