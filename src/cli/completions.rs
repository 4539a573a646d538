//! `ffrfs completions`: a script with which a shell completes command lines.

use crate::failure::{Exit, Failure};
use clap::{Args, Command, CommandFactory, ValueEnum};
use clap_complete::{Shell, generate};
use std::io::{self, Write};

const AFTER_HELP: &str = "\
Examples:
  ffrfs completions bash > ~/.local/share/bash-completion/completions/ffrfs
  ffrfs completions zsh > ~/.zfunc/_ffrfs      # a directory of $fpath
  ffrfs completions fish > ~/.config/fish/completions/ffrfs.fish";

/// Print a script for the completion of command lines in a shell
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: ShellName,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ShellName {
    Bash,
    Zsh,
    Fish,
}

pub(super) fn run(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let shell = match args.shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
    };
    let mut out = Vec::new();
    generate(shell, &mut visible(), "ffrfs", &mut out);
    io::stdout().write_all(&out).map_err(|e| Failure::output("standard output", e))?;
    Ok(Exit::Ok)
}

/// The program without commands that --help does not show: the generators would offer them too.
fn visible() -> Command {
    let program = super::Cli::command();
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
    Command::new("ffrfs")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .subcommands(commands)
}
