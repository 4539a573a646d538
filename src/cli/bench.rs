//! `ffrfs bench`: how fast the files of datasets are opened, read and closed, side by side.

mod chart;
mod table;

use super::open::refuse_url;
use super::print::to_stdout;
use crate::daemon::{logging, patience};
use crate::failure::{Exit, Failure, say};
use crate::format::counted;
use crate::interrupt::Interrupt;
use crate::tools::bench::{Bench, Mode, Row, Unread, WORDS};
use crate::tools::output;
use crate::tools::reader::thread_count;
use crate::vfs::report;
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use std::io::Write;
use std::num::{NonZeroU16, NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

const AFTER_HELP: &str = "\
Each file is opened, read to its end and closed, as programs do it. Containers are mounted \
privately for each round, so that the first pass finds nothing in the mount's page cache; the \
second pass reads the same files again. Each is mounted as it comes, read-only, and with rw, where \
a second pass is slower; -O ro or -O rw chooses one of the two. A directory, or a dataset that is \
mounted already, is read as it is. Rounds are interleaved, and medians shown. The figures hold for \
this machine in its present state.

Examples:
  ffrfs bench train.ffr
  ffrfs bench train.ffr train.zip /data/train-as-files --cold --svg train.svg
  ffrfs bench /mnt/ds --mode loader -j 8 --batch 64 --seconds 30
  ffrfs bench s3://data/a.ffr -O endpoint=http://minio:9000 -O cache=none";

/// The least seconds of a pass whose figures are not chance.
const SHORT_SECONDS: f64 = 0.2;

/// Measure how fast files of a dataset are read
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct BenchArgs {
    /// Containers, mounts or directories; each is measured, and shown beside the others
    #[arg(required = true, value_name = "SOURCE|URL|MOUNTPOINT|DIRECTORY")]
    targets: Vec<PathBuf>,
    /// In what order files are read, and by which threads; several are separated by commas
    #[arg(
        long,
        value_name = "MODE",
        value_delimiter = ',',
        default_value = "sequential,shuffled,loader"
    )]
    mode: Vec<Mode>,
    /// Threads of `shuffled`, workers of `loader` [default: as many as CPUs]
    #[arg(short = 'j', long, value_name = "N")]
    jobs: Option<NonZeroU16>,
    /// Files in a batch of `loader`
    #[arg(long, value_name = "N", default_value = "32")]
    batch: NonZeroU32,
    /// Passes in each round: a first one, and further ones
    #[arg(long, value_name = "N", default_value = "2")]
    epochs: NonZeroU32,
    /// How many times each source is measured
    #[arg(long, value_name = "N", default_value = "3")]
    rounds: NonZeroU32,
    /// Stop each pass after S seconds
    #[arg(long, value_name = "S", default_value = "10")]
    seconds: NonZeroU32,
    /// No pass reads more files than this; they are spread over all [default: all of them]
    #[arg(long, value_name = "N")]
    samples: Option<NonZeroU64>,
    /// Drop what the machine has cached before each first pass (root only)
    #[arg(long)]
    cold: bool,
    /// A mount option for containers, such as transport=devfuse, or endpoint=URL for those in stores (can be given several times)
    #[arg(short = 'O', long = "mount-option", value_name = "OPTION")]
    options: Vec<String>,
    /// All figures as JSON
    #[arg(long)]
    json: bool,
    /// Also draw a chart
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Replace the chart if it is there
    #[arg(long)]
    force: bool,
}

impl ValueEnum for Mode {
    fn value_variants<'a>() -> &'a [Self] {
        &Mode::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()).help(match self {
            Mode::Sequential => "All files as they are listed, by one thread",
            Mode::Shuffled => "In random order, each by the next free thread",
            Mode::Loader => {
                "In random order, in batches, each by one worker and passed on in order, as a `DataLoader` does it"
            }
        }))
    }
}

pub(super) fn run(args: &BenchArgs) -> Result<Exit, Failure> {
    logging::to_stderr("warn");
    patience::check(args.targets.iter().chain(&args.svg).map(PathBuf::as_path))?;
    let interrupt = Interrupt::listen();
    if let Some(svg) = &args.svg {
        refuse_url(svg)?;
        output::check_free(svg, args.force)?;
    }
    let bench = Bench {
        targets: &args.targets,
        modes: &args.mode,
        threads: u16::try_from(thread_count(args.jobs)).unwrap_or(u16::MAX),
        batch: args.batch.get(),
        epochs: args.epochs.get(),
        rounds: args.rounds.get(),
        limit: Duration::from_secs(args.seconds.get().into()),
        samples: args.samples,
        is_cold: args.cold,
        options: &args.options,
        interrupt: &interrupt,
    };
    let rows = bench.run()?;
    if interrupt.requested() {
        say(format_args!("ffrfs: interrupted; figures so far:"));
        args.print(&rows)?;
        return Ok(Exit::Interrupted);
    }
    args.print(&rows)?;
    if let Some(svg) = &args.svg {
        args.draw(&rows, svg)?;
    }
    let passes = || rows.iter().flat_map(|row| row.first.iter().chain(&row.later));
    let short = passes().filter(|pass| pass.seconds < SHORT_SECONDS).count();
    if short > 0 {
        say(format_args!(
            "ffrfs: {short} of {} took less than {SHORT_SECONDS} s: read more files, or do not trust the figures",
            counted(passes().count(), "pass")
        ));
    }
    let failed: u64 = passes().map(|pass| pass.failed).sum();
    if failed > 0 {
        say(format_args!(
            "ffrfs: {} failed; each counts as a file of 0 bytes",
            counted(failed, "read")
        ));
        return Ok(said_of_unread(&rows));
    }
    Ok(Exit::Ok)
}

/// Says which files could not be read because they are encrypted; returns the exit code for the reads that failed.
fn said_of_unread(rows: &[Row]) -> Exit {
    let mut said: Vec<&str> = Vec::new();
    for Row { target, unread, .. } in rows.iter().filter(|row| row.unread.encrypted > 0) {
        if !said.contains(&target.as_str()) {
            said.push(target);
            for sentence in unread.sentences(&WORDS) {
                say(format_args!("ffrfs: {target}: {sentence}"));
            }
        }
    }
    let fails = |row: &Row| row.first.iter().chain(&row.later).any(|pass| pass.failed > 0);
    let mut failing = rows.iter().filter(|row| fails(row)).map(|row| row.unread);
    match failing.all(Unread::are_all_encrypted) {
        true => Exit::Password,
        false => Exit::Checksum,
    }
}

impl BenchArgs {
    fn print(&self, rows: &[Row]) -> Result<(), Failure> {
        match self.json {
            true => to_stdout(&report::json(&rows)),
            false => to_stdout(table::of(rows).as_bytes()),
        }
    }

    fn draw(&self, rows: &[Row], path: &std::path::Path) -> Result<(), Failure> {
        let failed = |e| Failure::output(path.display(), e);
        let mut file = output::file_beside(path).map_err(failed)?;
        file.write_all(chart::of(rows).as_bytes()).map_err(failed)?;
        output::give_name(file.into_temp_path(), path, self.force).map_err(failed)
    }
}
