//! `ffrfs completions`: a script with which a shell completes command lines.
//!
//! clap writes the words that are known beforehand. Mount points, names of mount options and settings are asked of
//! the program while the user types (`--offer`); the scripts for that are in `completions`, beside this file.

use super::options;
use crate::daemon::settings;
use crate::failure::{Exit, Failure};
use crate::io::mount::mounts;
use clap::{Arg, Args, Command, CommandFactory, ValueEnum, ValueHint};
use clap_complete::{Shell, generate};
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;

const AFTER_HELP: &str = "\
Make the directory first where it is not there yet. The next shell completes.

Examples:
  ffrfs completions bash > ~/.local/share/bash-completion/completions/ffrfs
  ffrfs completions zsh > ~/.zfunc/_ffrfs      # a directory of $fpath
  ffrfs completions fish > ~/.config/fish/completions/ffrfs.fish";

/// Print a script for the completion of command lines in a shell
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, override_usage = "ffrfs completions <SHELL>")]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", required_unless_present = "offer")]
    shell: Option<ShellName>,
    /// Print what can stand here, one per line
    // The scripts call this option.
    #[arg(long, hide = true)]
    offer: Option<Offer>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ShellName {
    Bash,
    Zsh,
    Fish,
}

/// What is looked up while the user types.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Offer {
    /// Where datasets are mounted.
    Mounts,
    /// Mount options.
    Options,
    /// Mount options that can be changed while the dataset is mounted.
    Settings,
}

pub(super) fn run(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut out = Vec::new();
    match (args.offer, args.shell) {
        (Some(offer), _) => offer.write(&mut out),
        (None, Some(ShellName::Bash)) => {
            generate(Shell::Bash, &mut visible(), "ffrfs", &mut out);
            out.extend_from_slice(include_bytes!("completions/offer.bash"));
        }
        (None, Some(ShellName::Zsh)) => out = zsh(),
        (None, Some(ShellName::Fish)) => {
            generate(Shell::Fish, &mut visible(), "ffrfs", &mut out);
            out.extend_from_slice(include_bytes!("completions/offer.fish"));
            out.extend_from_slice(fish_words().as_bytes());
        }
        (None, None) => {}
    }
    io::stdout().write_all(&out).map_err(|e| Failure::output("standard output", e))?;
    Ok(Exit::Ok)
}

impl Offer {
    /// Writes the words. Asks no daemon: one that hangs must not keep the user from typing.
    fn write(self, out: &mut Vec<u8>) {
        let is_setting =
            |option: &String| settings::can_change(option.split('=').next().unwrap_or_default());
        let lines: Vec<Vec<u8>> = match self {
            Offer::Mounts => {
                let table = mounts::table().unwrap_or_default().into_iter();
                let ours = table.filter(|mount| mount.fs_type == mounts::FS_TYPE);
                ours.map(|mount| mount.target.into_os_string().into_vec()).collect()
            }
            Offer::Options => options::offered().into_iter().map(String::into_bytes).collect(),
            Offer::Settings => {
                let settings = options::offered().into_iter().filter(is_setting);
                settings.map(String::into_bytes).collect()
            }
        };
        for line in lines.iter().filter(|line| !line.contains(&b'\n')) {
            out.extend_from_slice(line);
            out.push(b'\n');
        }
    }
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

/// clap can name a completer of zsh only by the kind of value that it completes. No argument of ours has one of these kinds:
/// they stand for our own completers, whose names take the place of zsh's.
const STAND_INS: [(ValueHint, &str, &str); 4] = [
    (ValueHint::Hostname, ":_hosts'", ":_ffrfs_mounts'"),
    (ValueHint::Username, ":_users'", ":_ffrfs_options'"),
    (ValueHint::EmailAddress, ":_email_addresses'", ":_ffrfs_settings'"),
    (ValueHint::Url, ":_urls'", ":_ffrfs_mounts_and_files'"),
];

/// The lines that clap's script for fish lacks: the values of a command's first word, and the commands that `help` takes.
fn fish_words() -> String {
    let offered = |command: &str, words: &str| {
        let place = format!(
            "__fish_ffrfs_using_subcommand {command}; and test (count (commandline -opc)) -lt 3"
        );
        format!("complete -c ffrfs -n \"{place}\" -f -a \"{words}\"\n")
    };
    let program = visible();
    let names: Vec<_> = program.get_subcommands().map(Command::get_name).collect();
    let first_words = program.get_subcommands().filter_map(|command| {
        let values = command.get_positionals().next()?.get_possible_values();
        let words: Vec<_> = values.iter().map(|value| value.get_name().to_owned()).collect();
        (!words.is_empty()).then(|| offered(command.get_name(), &words.join(" ")))
    });
    first_words.chain([offered("help", &names.join(" "))]).collect()
}

fn zsh() -> Vec<u8> {
    let hint_of = |arg: &Arg| {
        let names: Vec<_> = arg.get_value_names().unwrap_or_default().iter().collect();
        match names.first().map(|name| name.as_str()) {
            Some("MOUNTPOINT") => Some(STAND_INS[0].0),
            Some(name) if name.split('|').any(|name| name == "MOUNTPOINT") => Some(STAND_INS[3].0),
            Some("OPT[,OPT…]" | "OPTION") => Some(STAND_INS[1].0),
            Some("NAME=VALUE") => Some(STAND_INS[2].0),
            _ => None,
        }
    };
    let with_hints = |command: Command| {
        command.mut_args(|arg| match hint_of(&arg) {
            Some(hint) => arg.value_hint(hint),
            None => arg,
        })
    };
    let mut program = visible().mut_subcommands(with_hints);
    let mut script = Vec::new();
    generate(Shell::Zsh, &mut program, "ffrfs", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    for (_, theirs, ours) in STAND_INS {
        script = script.replace(theirs, ours);
    }
    // With two colons zsh forgets, behind the first such argument, that there are options. Options that --help hides have no
    // help.
    let lines = script.lines().filter(|line| !line.contains("=[]:"));
    let lines =
        lines.map(|line| line.replacen("'*::", "'*:", usize::from(line.starts_with("'*::"))));
    script = lines.flat_map(|line| [line, "\n".to_owned()]).collect();
    // The last lines of the script call functions that must be defined before.
    let end = script.rfind("if [ \"$funcstack[1]\"").unwrap_or(script.len());
    script.insert_str(end, include_str!("completions/offer.zsh"));
    script.into_bytes()
}
