//! The command line: one file for each sub-command. Errors become one line on stderr and an exit code.
//!
//! Imports from all rooms; no room imports from it.

mod bench;
#[cfg(feature = "remote")]
mod cache;
mod cat;
mod completions;
mod config;
mod convert;
mod doctor;
mod extract;
mod helper;
mod index;
mod info;
mod list;
mod ls;
mod man;
mod mount;
mod mount_paths;
mod open;
mod options;
mod pack;
mod print;
mod remote;
mod remount;
mod seconds;
mod set;
mod settings;
mod stats;
mod sum;
mod top;
mod trace;
mod umount;
mod upgrade;
mod verify;
mod view;
mod warmup;
mod wrong_usage;

pub use crate::failure::{Exit, Failure};

use crate::format::{self, PartName, one_line};
use crate::io::mount::mounts::Ours;
use crate::io::process;
use clap::error::ErrorKind;
use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

/// The names that options have for values that are numbers.
const NUMBERS: [&str; 6] = ["N", "BYTES", "SIZE", "OCTAL", "S", "SECONDS"];

const EXIT_CODES: &str = "\
Exit codes:
    0  success
    1  wrong usage
    2  a source cannot be read
    3  a source is not a usable container
    4  a checksum does not match
    5  mounting or unmounting failed
    6  the output cannot be written
    7  a store does not allow the access
    8  a store cannot be reached
    9  a password is missing or wrong, or an encryption is not read
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
    Mount(Box<mount::MountArgs>),
    Umount(umount::UmountArgs),
    Info(info::InfoArgs),
    Index(index::IndexCommandArgs),
    Ls(ls::LsArgs),
    Cat(cat::CatArgs),
    Verify(verify::VerifyArgs),
    Sum(sum::SumArgs),
    Warmup(warmup::WarmupArgs),
    #[cfg(feature = "remote")]
    Cache(cache::CacheArgs),
    Top(top::TopArgs),
    Trace(trace::TraceArgs),
    Pack(pack::PackArgs),
    Convert(convert::ConvertArgs),
    Extract(extract::ExtractArgs),
    Bench(bench::BenchArgs),
    Doctor(doctor::DoctorArgs),
    Set(set::SetArgs),
    Upgrade(upgrade::UpgradeArgs),
    Stats(stats::StatsArgs),
    List(list::ListArgs),
    Completions(completions::CompletionsArgs),
    #[command(hide = true)]
    Man(man::ManArgs),
}

/// Runs the command line `args` (the program's name first).
#[must_use]
pub fn main(args: Vec<OsString>) -> ExitCode {
    process::reset_signals();
    if helper::is_called_by(&args) {
        return helper::main(args);
    }
    let outcome = parse(args).and_then(|cli| match cli.command {
        Command::Mount(args) => mount::run(*args),
        Command::Umount(args) => umount::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Index(args) => index::run(args),
        Command::Ls(args) => ls::run(&args),
        Command::Cat(args) => cat::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Sum(args) => sum::run(args),
        Command::Warmup(args) => warmup::run(&args),
        #[cfg(feature = "remote")]
        Command::Cache(args) => cache::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Pack(args) => pack::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Extract(args) => extract::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Set(args) => set::run(&args),
        Command::Upgrade(args) => upgrade::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::List(args) => list::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    });
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => print::print_last(&failure).into(),
    }
}

/// The command line that the program understands.
fn command() -> clap::Command {
    let is_number = |arg: &Arg| {
        let names = arg.get_value_names().unwrap_or_default();
        arg.get_long().is_some()
            && names.iter().flat_map(|name| name.split('|')).any(|name| NUMBERS.contains(&name))
    };
    // Else `--memory -5` would be blamed on an option -5.
    let with_numbers = |command: clap::Command| {
        command.mut_args(|arg| if is_number(&arg) { arg.allow_hyphen_values(true) } else { arg })
    };
    Cli::command().mut_subcommands(with_numbers).mut_subcommand("mount", mount::with_short_help)
}

/// Parses a command line. Help and version go to stdout with exit code 0; all else that clap refuses is wrong usage.
fn parse(args: Vec<OsString>) -> Result<Cli, Failure> {
    parse_unnamed(args.clone()).map_err(|failure| mount_paths::name_usage(failure, &args))
}

fn parse_unnamed(args: Vec<OsString>) -> Result<Cli, Failure> {
    let args = config::expand(args)?;
    let args = options::expand(args, options::takes)?;
    let mut command = command();
    let matches =
        command.try_get_matches_from_mut(args.clone()).map_err(|error| {
            match lacks_mount(error.kind(), &args) {
                true => Failure::usage(format!("did you mean: ffrfs mount {}", meant(&args[1..]))),
                false if error.kind() == ErrorKind::InvalidUtf8 => not_text(&args),
                false => error.into(),
            }
        })?;
    let mut cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    if let (Command::Mount(mount), Some((_, matches))) = (&mut cli.command, matches.subcommand()) {
        mount.given = options::given(matches);
    }
    Ok(cli)
}

/// Whether a command line that clap refuses is one of `ffrfs mount` without `mount`.
fn lacks_mount(refused: ErrorKind, args: &[OsString]) -> bool {
    let [_, first, others @ ..] = args else { return false };
    let is_meant = match refused {
        ErrorKind::InvalidSubcommand => is_source(first),
        // Options stand first. With a command behind them they are in the wrong place.
        ErrorKind::UnknownArgument if is_option(first) => {
            let program = Cli::command();
            let mut words = others.iter().filter(|arg| !is_option(arg));
            !others.iter().any(|arg| program.find_subcommand(arg).is_some())
                && words.any(|word| is_source(word))
        }
        _ => false,
    };
    is_meant && mount_takes(&args[1..])
}

/// Whether `ffrfs mount` understands these arguments. It refuses a password on the command line, where all would see it.
fn mount_takes(args: &[OsString]) -> bool {
    let words = ["ffrfs", "mount"].map(OsString::from).into_iter().chain(args.iter().cloned());
    options::expand(words.collect(), options::takes)
        .is_ok_and(|words| command().try_get_matches_from(words).is_ok())
}

fn is_option(arg: &OsStr) -> bool {
    arg.as_bytes().starts_with(b"-")
}

/// Whether an argument is a source that people mount, and no command with a slip of the finger.
fn is_source(arg: &OsStr) -> bool {
    let name = PartName::from(arg.to_owned());
    // A stopped daemon would not say whether a file is in its mount.
    let is_in_ours = |path: &Path| Ours::now().is_ok_and(|ours| ours.met_by(path).is_some());
    name.as_path()
        .is_none_or(|path| format::has_known_extension(path) || is_in_ours(path) || path.exists())
}

/// The arguments that `ffrfs mount` takes; a directory alone gives its mount point no name.
fn meant(args: &[OsString]) -> String {
    match args {
        [only] if Path::new(only).is_dir() => format!("{} MOUNTPOINT", shown(args)),
        _ => shown(args),
    }
}

/// Names the argument that is not UTF-8 where it must be: clap does not.
fn not_text(args: &[OsString]) -> Failure {
    let is_text = |arg: &OsString| arg.to_str().is_some();
    let is_it = |number: &usize| {
        let all = args.iter().enumerate();
        let others_are_text = all.map(|(other, arg)| match other == *number {
            true => arg.clone(),
            false => arg.to_string_lossy().into_owned().into(),
        });
        command()
            .try_get_matches_from(others_are_text)
            .is_err_and(|error| error.kind() == ErrorKind::InvalidUtf8)
    };
    let wrong = (0..args.len()).filter(|number| !is_text(&args[*number])).find(is_it).unwrap_or(0);
    let named = match wrong.checked_sub(1).filter(|before| is_option(&args[*before])) {
        Some(before) if !is_option(&args[wrong]) => &args[before..=wrong],
        _ => &args[wrong..=wrong],
    };
    let named: Vec<_> = named.iter().map(|arg| one_line(arg.as_bytes())).collect();
    let why = "this must be UTF-8 (in a pattern, ? stands for a byte that is not)";
    Failure::usage(format!("{}: {why}", named.join(" ")))
}

/// The arguments as a shell takes them.
fn shown(args: &[OsString]) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-=:,@%+".contains(c);
    let words = args.iter().map(|arg| {
        let arg = arg.to_string_lossy();
        match !arg.is_empty() && arg.chars().all(is_plain) {
            true => arg.into_owned(),
            false => format!("'{}'", arg.replace('\'', r"'\''")),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::CommandFactory;

    #[test]
    fn a_command_line_that_is_suggested_can_be_pasted() {
        let args = ["with space & é.zip", "m", "", "it's", "a[1]", "s3://b/k?v=1"];
        let shown = super::shown(&args.map(Into::into));
        assert_eq!(shown, r"'with space & é.zip' m '' 'it'\''s' 'a[1]' 's3://b/k?v=1'");
    }

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn footers_are_not_broken_in_a_sentence_at_80_and_at_100_columns() {
        let program = super::Cli::command();
        for (command, width) in program.get_subcommands().flat_map(|c| [(c, 80), (c, 100)]) {
            let name = command.get_name();
            let help = command.clone().term_width(width).render_long_help().to_string();
            let lines: Vec<_> = help.lines().collect();
            let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
            for pair in lines.windows(2).filter(|pair| pair.iter().all(|line| is_prose(line))) {
                let next = pair[1].split(' ').next().unwrap_or_default();
                let joined = pair[0].chars().count() + 1 + next.chars().count();
                assert!(joined > width, "{name}: {} / {}", pair[0], pair[1]);
            }
            let footer = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in footer.lines().filter(|line| !is_prose(line)) {
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
        }
    }
}
