//! The command line: one file a sub-command. Errors become one line on stderr and an exit code.

mod cat;
mod doctor;
mod expand;
mod failure;
mod index;
mod info;
mod interrupt;
mod kept;
mod logging;
mod ls;
mod memory;
mod mount;
mod nest;
mod options;
mod pack;
mod source;
mod umount;
mod verify;
mod view;
mod warmup;

pub use failure::{Exit, Failure};

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

const EXIT_CODES: &str = "\
Exit codes:
    0  all is well
    1  wrong usage
    2  a source cannot be read
    3  a source is not a usable container
    4  a checksum does not match
    5  mounting or unmounting failed
    6  the output cannot be written
  130  interrupted";

/// Mount a dataset container so that every sample is a plain file.
#[derive(Debug, Parser)]
#[command(name = "ffrfs", version, after_help = EXIT_CODES, max_term_width = 100)]
#[command(propagate_version = true, subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Mount(mount::MountArgs),
    Umount(umount::UmountArgs),
    Info(info::InfoArgs),
    Index(index::IndexCommandArgs),
    Ls(ls::LsArgs),
    Cat(cat::CatArgs),
    Verify(verify::VerifyArgs),
    Warmup(warmup::WarmupArgs),
    Pack(pack::PackArgs),
    Doctor(doctor::DoctorArgs),
}

/// Runs the command line `args` (the program's name first).
#[must_use]
pub fn main(args: Vec<OsString>) -> ExitCode {
    let outcome = parse(args).and_then(|cli| match cli.command {
        Command::Mount(args) => mount::run(args),
        Command::Umount(args) => umount::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Index(args) => index::run(args),
        Command::Ls(args) => ls::run(&args),
        Command::Cat(args) => cat::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Warmup(args) => warmup::run(&args),
        Command::Pack(args) => pack::run(&args),
        Command::Doctor(args) => doctor::run(&args),
    });
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.print();
            failure.exit.into()
        }
    }
}

/// Help and version go to stdout with exit code 0, everything else that clap refuses is wrong usage.
fn parse(args: Vec<OsString>) -> Result<Cli, Failure> {
    let args = options::expand(args, mount::option_takes)?;
    Cli::try_parse_from(args).map_err(|error| {
        let exit = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
        Failure::clap(exit, error)
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
