//! `ffrfs sum`: checksums of samples, as lists that other programs check, and as sidecars.

use super::open::{OpenArgs, check_answered, refuse_url};
use super::print::unless_unread;
use super::view::ViewArgs;
use crate::catalog::Catalog;
use crate::daemon::{logging, patience};
use crate::dataset::hash::{Algorithm, hex};
use crate::dataset::{Opened, Options, digest, parts};
use crate::failure::{Exit, Failure, say};
use crate::format::{PartName, one_or_many, visible};
use crate::interrupt::Interrupt;
use crate::tools::encrypted::Encrypted;
use crate::tools::output::{check_free, file_beside, give_name};
use crate::tools::progress::{self, Terminal};
use crate::tools::reader::thread_count;
use crate::tools::sum::{
    Names, Samples, Tally, Verdict, check, format_line, may_replace, parse_list, write_sidecars,
};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

const AFTER_HELP: &str = "\
Examples:
  ffrfs sum train.tar > SUMS; (cd /mnt/ds && sha256sum --check) < SUMS
  ffrfs sum --check SUMS train.tar           the same without a mount
  ffrfs sum --sidecar train.tar              mounts check each sample by it
  ffrfs sum --container train.tar            for digest=, which refuses others
  ffrfs sum --sidecar shards/ -o all.ffrsum  one for all; mount --checksums FILE";

/// Print checksums of samples, check them against a list, or write them for formats that have none
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct SumArgs {
    /// Containers, or directories, globs or brace lists of them
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PartName>,
    /// The kind of checksum [default: sha256; with --check what the list has]
    #[arg(short = 'a', long, value_name = "KIND", conflicts_with = "sidecar")]
    algorithm: Option<Algorithm>,
    /// Threads [default: as many as CPUs]
    #[arg(short = 'j', long, value_name = "N")]
    jobs: Option<NonZeroU16>,
    /// Write to this file, once all is done, instead of standard output or beside the container
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Compare with this list instead (-: standard input)
    #[arg(short = 'c', long, value_name = "FILE", conflicts_with_all = ["sidecar", "output"])]
    check: Option<PathBuf>,
    /// With --check: do not print samples that match
    #[arg(short = 'q', long, requires = "check")]
    quiet: bool,
    /// Write a file beside each container without checksums, by which its samples are checked from then on
    #[arg(long)]
    sidecar: bool,
    /// Print the SHA-256 of the containers themselves, as the mount option that refuses all others
    #[arg(long, conflicts_with_all = ["sidecar", "check", "algorithm", "output"])]
    container: bool,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn run(mut args: SumArgs) -> Result<Exit, Failure> {
    logging::to_stderr("warn");
    args.output.as_deref().map_or(Ok(()), refuse_url)?;
    patience::check(args.output.iter().chain(&args.check).map(PathBuf::as_path))?;
    if args.container {
        check_answered(&args.sources)?;
        return print_digest(&args.sources, &args.open.options()?);
    }
    args.view.check_answered()?;
    args.open.read_password(&args.sources)?;
    if args.sidecar {
        return print_sidecars(&args);
    }
    let opened = args.open.open(&args.sources)?;
    let catalog = opened.catalog(&args.view, &args.open)?;
    let renamed = catalog.renamed();
    let exit = match &args.check {
        Some(list) => print_check(&args, list, opened, catalog),
        None => print_list(&args, opened, catalog),
    }?;
    args.view.say_not_shown(&renamed);
    Ok(exit)
}

/// The samples; no progress is shown where the results go to the terminal.
fn samples(opened: Opened, catalog: Catalog, is_quiet: bool) -> Samples {
    let bytes = opened.dataset.data_bytes();
    let progress = if is_quiet { ProgressBar::hidden() } else { progress::of_bytes(bytes) };
    Samples::new(opened, catalog, Interrupt::listen(), progress)
}

/// Prints the line for fstab, or behind `-o`. The containers need not be opened for it.
fn print_digest(sources: &[PartName], options: &Options) -> Result<Exit, Failure> {
    let digest = digest::show(&digest::of(&parts(sources, options)?, Terminal::watch().as_ref())?);
    let mut out = std::io::stdout();
    writeln!(out, "digest={digest}").map_err(|e| Failure::output("standard output", e))?;
    Ok(Exit::Ok)
}

/// Prints a list of all samples.
fn print_list(args: &SumArgs, opened: Opened, catalog: Catalog) -> Result<Exit, Failure> {
    let algorithm = args.algorithm.unwrap_or(Algorithm::Sha256);
    let mut out = Output::new(args.output.as_deref(), &opened)?;
    let samples = samples(opened, catalog, out.is_terminal());
    let names = Names::of(&samples)?;
    let (mut bad, mut other_password, mut encrypted) = (0, 0, Encrypted::default());
    let threads = thread_count(args.jobs);
    samples.hash(names.samples(), threads, &|_| vec![algorithm], &mut |sample, hashes| {
        let digits = match hashes {
            Ok(hashes) => hashes.first().map(|hash| hex(hash)).unwrap_or_default(),
            Err(fault) if encrypted.count(&fault) => return Ok(()),
            Err(fault) => {
                *if fault.is_encrypted() { &mut other_password } else { &mut bad } += 1;
                return samples.log_bad(sample, &names.path(&samples, sample)?, &fault);
            }
        };
        names.paths(&samples, sample, &mut |path| out.write(&format_line(&digits, path)))
    })?;
    out.finish()?;
    for (count, one, many) in [
        (bad, "bad sample is left out", "bad samples are left out"),
        (other_password, OTHER_PASSWORD.0, OTHER_PASSWORD.1),
    ] {
        if count > 0 {
            say(format_args!("ffrfs: {}", one_or_many(count, one, many)));
        }
    }
    say_encrypted(encrypted);
    Ok(exit(bad, other_password + encrypted.all))
}

/// Prints the lines of a list, each with its verdict.
fn print_check(
    args: &SumArgs,
    list: &Path,
    opened: Opened,
    catalog: Catalog,
) -> Result<Exit, Failure> {
    let (lines, unusable) = parse_list(&read_list(list)?, args.algorithm);
    if lines.is_empty() {
        let message = format!("{}: no line of it is a checksum and a path", list.display());
        return Err(Failure::usage(message));
    }
    if unusable > 0 {
        tracing::warn!(
            "{}: {} not a checksum and a path",
            list.display(),
            one_or_many(unusable, "line is", "lines are")
        );
    }
    let mut out = Output::new(None, &opened)?;
    let samples = samples(opened, catalog, out.is_terminal());
    let threads = thread_count(args.jobs);
    let Tally { missing, bad, encrypted, other_password, wrong } =
        check(&samples, lines, threads, &mut |path, verdict| {
            let words = match verdict {
                Verdict::Right if args.quiet => return Ok(()),
                Verdict::Right => "OK",
                Verdict::Wrong => "FAILED",
                Verdict::Bad => "FAILED: bad in its container",
                Verdict::Locked => "FAILED: encrypted",
                Verdict::Missing => "FAILED: no such sample",
            };
            unless_unread(out.write(&[path, b": ", words.as_bytes(), b"\n"].concat()))
        })?;
    unless_unread(out.finish())?;
    for (count, one, many) in [
        (missing, "listed sample does not exist", "listed samples do not exist"),
        (bad, "sample is bad", "samples are bad"),
        (wrong, "checksum did not match", "checksums did not match"),
        (other_password, OTHER_PASSWORD.0, OTHER_PASSWORD.1),
    ] {
        if count > 0 {
            say(format_args!("ffrfs: {}", one_or_many(count, one, many)));
        }
    }
    say_encrypted(encrypted);
    Ok(exit(missing + bad + wrong, other_password + encrypted.all))
}

fn read_list(list: &Path) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let read = match list == Path::new("-") {
        true => io::stdin().read_to_end(&mut text).map(|_| text),
        false => std::fs::read(list),
    };
    read.map_err(|e| Failure::unreadable(list.display(), e))
}

fn print_sidecars(args: &SumArgs) -> Result<Exit, Failure> {
    if args.open.nested > 0 {
        return Err(Failure::usage(
            "--sidecar: a container in a container can have no sidecar; leave out --nested",
        ));
    }
    if !args.view.selection.selection().is_everything() {
        return Err(Failure::usage(
            "--sidecar: a sidecar has the checksums of all samples; leave out --include, --exclude, --subdir \
             and --strip",
        ));
    }
    let mut open = args.open.clone();
    // An existing sidecar is not read: it is the one to be written anew.
    open.checksums.checksums = "none".into();
    let opened = open.open(&args.sources)?;
    let view = ViewArgs { flat: true, ..ViewArgs::default() };
    let catalog = opened.catalog(&view, &open)?;
    if let Some(output) = &args.output {
        refuse_source(output, &opened)?;
        check_free(output, true)?;
        may_replace(output).map_err(|e| Failure::output(output.display(), e))?;
    }
    let samples = samples(opened, catalog, false);
    let sidecars = write_sidecars(&samples, args.output.as_deref(), thread_count(args.jobs))?;
    drop(samples);
    for name in &sidecars.complete {
        say(format_args!("{name}: every sample has a checksum already"));
    }
    for name in &sidecars.bad {
        say(format_args!("ffrfs: {name}: has bad samples: no sidecar was written"));
    }
    for (name, encrypted, other_password) in &sidecars.encrypted {
        let others = one_or_many(*other_password, OTHER_PASSWORD.0, OTHER_PASSWORD.1);
        let others = (*other_password > 0).then_some(others);
        for sentence in encrypted.sentences("sample is", "samples are").into_iter().chain(others) {
            say(format_args!("ffrfs: {name}: no sidecar was written: {sentence}"));
        }
    }
    sidecars.written.iter().for_each(|path| say(format_args!("{}", path.display())));
    Ok(exit(sidecars.bad.len() as u64, sidecars.encrypted.len() as u64))
}

/// The words for one sample that the password does not open, and for several.
const OTHER_PASSWORD: (&str, &str) = (
    "sample is encrypted with another password, or damaged",
    "samples are encrypted with another password, or damaged",
);

fn say_encrypted(encrypted: Encrypted) {
    for sentence in encrypted.sentences("sample is", "samples are") {
        say(format_args!("ffrfs: {sentence}"));
    }
}

/// The exit code for `bad` bad samples and `locked` encrypted ones.
fn exit(bad: u64, locked: u64) -> Exit {
    match (bad, locked) {
        (0, 0) => Exit::Ok,
        (0, _) => Exit::Password,
        _ => Exit::Checksum,
    }
}

/// Standard output, or a file that has its name once it is whole.
enum Output {
    Stdout(BufWriter<io::Stdout>),
    File(Box<BufWriter<NamedTempFile>>, PathBuf),
}

impl Output {
    fn new(path: Option<&Path>, opened: &Opened) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Output::Stdout(BufWriter::new(io::stdout()))) };
        refuse_source(path, opened)?;
        check_free(path, true)?;
        let file = file_beside(path).map_err(|e| Failure::output(path.display(), e))?;
        let file = Box::new(BufWriter::with_capacity(1 << 20, file));
        Ok(Output::File(file, path.to_owned()))
    }

    fn is_terminal(&self) -> bool {
        matches!(self, Output::Stdout(_)) && io::stdout().is_terminal()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Output::Stdout(out) => {
                let shown =
                    if out.get_ref().is_terminal() { visible(bytes, true) } else { bytes.into() };
                out.write_all(&shown).map_err(|e| Failure::output("standard output", e))
            }
            Output::File(out, path) => {
                out.write_all(bytes).map_err(|e| Failure::output(path.display(), e))
            }
        }
    }

    fn finish(self) -> Result<(), Failure> {
        match self {
            Output::Stdout(mut out) => {
                out.flush().map_err(|e| Failure::output("standard output", e))
            }
            Output::File(out, path) => {
                let named = || -> io::Result<()> {
                    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
                    file.as_file().sync_all()?;
                    give_name(file.into_temp_path(), &path, true)
                };
                named().map_err(|e| Failure::output(path.display(), e))
            }
        }
    }
}

/// Refuses a container as the output: one that was named by mistake must not be lost.
fn refuse_source(path: &Path, opened: &Opened) -> Result<(), Failure> {
    let Ok(there) = path.canonicalize() else { return Ok(()) };
    match opened.store.parts().iter().any(|part| part.name().as_path() == Some(&there)) {
        true => Err(Failure::usage(format!("{}: is one of the sources", path.display()))),
        false => Ok(()),
    }
}
impl ValueEnum for Algorithm {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Sha256, Self::Sha512, Self::Blake3, Self::Crc32, Self::Crc32c]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            Self::Sha256 => ("sha256", "For `sha256sum --check`"),
            Self::Sha512 => ("sha512", "For `sha512sum --check`"),
            Self::Blake3 => ("blake3", "For `b3sum --check`"),
            Self::Crc32 => ("crc32", "As in zip, gzip and FFRecord; finds damage, not tampering"),
            Self::Crc32c => {
                ("crc32c", "Castagnoli, as clouds store it; finds damage, not tampering")
            }
        };
        Some(PossibleValue::new(name).help(help))
    }
}
