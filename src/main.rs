//! The `ffrfs` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ffrfs::cli::main(std::env::args_os().collect())
}
