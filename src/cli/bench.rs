//! `ffrfs bench`: how fast the files of datasets are opened, read and closed, side by side.

mod chart;
mod passes;
mod table;
mod target;

use crate::daemon::logging;
use crate::failure::{Exit, Failure, say};
use crate::tools::interrupt::Interrupt;
use crate::tools::output;
use clap::{Args, ValueEnum};
use passes::{Figures, Plan, read_pass};
use serde::Serialize;
use std::io::Write;
use std::num::{NonZeroU16, NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;
use target::Target;

const AFTER_HELP: &str = "\
Each file is opened, read to its end and closed, as programs do it. Containers are mounted privately for each
round, so that the first pass finds nothing in the mount's page cache; the second pass reads the same files
again. A folder, or a dataset that is mounted already, is read as it is. Rounds are interleaved, and the
medians shown. What is printed holds for the machine in the state in which it is.

Examples:
  ffrfs bench train.ffr
  ffrfs bench train.ffr train.zip /data/train-as-files --cold --svg train.svg
  ffrfs bench /mnt/ds --mode loader -j 8 --batch 64 --seconds 30";

/// Measure how fast files of a dataset are read
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct BenchArgs {
    /// Containers, mounts or folders; each is measured, and shown beside the others
    #[arg(required = true, value_name = "SOURCE|MOUNTPOINT|FOLDER")]
    targets: Vec<PathBuf>,
    /// In what order files are read, and by whom
    #[arg(long, value_name = "MODE", value_delimiter = ',', default_values = ["sequential", "shuffled", "loader"])]
    mode: Vec<Mode>,
    /// Threads of `shuffled`, workers of `loader`
    #[arg(short = 'j', long, value_name = "N", default_value = "4")]
    jobs: NonZeroU16,
    /// Files in a batch of `loader`
    #[arg(long, value_name = "N", default_value = "32")]
    batch: NonZeroU32,
    /// Passes in a round: the first, and further ones
    #[arg(long, value_name = "N", default_value = "2")]
    epochs: NonZeroU32,
    /// Times that each is measured
    #[arg(long, value_name = "N", default_value = "3")]
    rounds: NonZeroU32,
    /// No pass takes longer
    #[arg(long, value_name = "S", default_value = "10")]
    seconds: NonZeroU32,
    /// No pass reads more files than this; they are spread over all [default: all of them]
    #[arg(long, value_name = "N")]
    samples: Option<NonZeroU64>,
    /// Drop what the machine has cached before each first pass (root only)
    #[arg(long)]
    cold: bool,
    /// A mount option for containers, such as transport=devfuse; may be given again
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

/// In what order files are read, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    /// All files as they are listed, by one thread
    Sequential,
    /// In random order, each by the next free thread
    Shuffled,
    /// In random order, in batches, each by one worker and handed on in order, as a `DataLoader` does it
    Loader,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Sequential => "sequential",
            Mode::Shuffled => "shuffled",
            Mode::Loader => "loader",
        }
    }
}

/// What was measured of a target in a mode.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    target: String,
    /// How it is read: `mounted for this`, `as it is`.
    access: &'static str,
    mode: Mode,
    threads: u16,
    /// The first pass of each round.
    first: Vec<Figures>,
    /// Those that followed.
    later: Vec<Figures>,
}

pub(super) fn run(args: &BenchArgs) -> Result<Exit, Failure> {
    logging::to_stderr("warn");
    let interrupt = Interrupt::listen();
    if let Some(svg) = &args.svg {
        output::check_free(svg, args.force)?;
    }
    let targets: Vec<Target> = args.targets.iter().map(|path| Target::new(path)).collect();
    let mut rows = Vec::new();
    for target in &targets {
        for &mode in &args.mode {
            let threads = if mode == Mode::Sequential { 1 } else { args.jobs.get() };
            let (target, access) = (target.name(), target.access());
            rows.push(Row { target, access, mode, threads, first: vec![], later: vec![] });
        }
    }
    // A B A B: what changes on the machine meanwhile meets all of them.
    for round in 0..args.rounds.get() {
        for mode in 0..args.mode.len() {
            for (number, target) in targets.iter().enumerate() {
                let row = &mut rows[number * args.mode.len() + mode];
                args.measure(target, row, round, &interrupt)?;
                if interrupt.requested() {
                    say(format_args!("ffrfs: interrupted; what was measured until then:"));
                    args.print(&rows)?;
                    return Ok(Exit::Interrupted);
                }
            }
        }
    }
    args.print(&rows)?;
    if let Some(svg) = &args.svg {
        args.draw(&rows, svg)?;
    }
    let failed: u64 =
        rows.iter().flat_map(|r| r.first.iter().chain(&r.later)).map(|f| f.failed).sum();
    if failed > 0 {
        say(format_args!("ffrfs: {failed} reads failed; they count as nothing read"));
        return Ok(Exit::Checksum);
    }
    Ok(Exit::Ok)
}

impl BenchArgs {
    fn measure(
        &self,
        target: &Target,
        row: &mut Row,
        round: u32,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        if self.cold {
            target::drop_caches()?;
        }
        let mounted = target.open(&self.options)?;
        let files = target::files(mounted.path(), self.samples, interrupt)?;
        let mut plan = Plan {
            files: &files,
            mode: row.mode,
            threads: row.threads.into(),
            batch: self.batch.get() as usize,
            limit: Duration::from_secs(self.seconds.get().into()),
            seed: u64::from(round),
            count: files.len(),
            interrupt,
        };
        for epoch in 0..self.epochs.get() {
            let figures = read_pass(&plan);
            if interrupt.requested() {
                return Ok(());
            }
            match epoch {
                0 => {
                    // Later passes read what this one had time for: only that was read before.
                    plan.count = figures.files as usize;
                    row.first.push(figures);
                }
                _ => row.later.push(figures),
            }
        }
        Ok(())
    }

    fn print(&self, rows: &[Row]) -> Result<(), Failure> {
        let failed = |e| Failure::output("standard output", e);
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &rows).map_err(|e| failed(e.into()))?;
            return writeln!(out).map_err(failed);
        }
        out.write_all(table::of(rows).as_bytes()).map_err(failed)
    }

    fn draw(&self, rows: &[Row], path: &std::path::Path) -> Result<(), Failure> {
        let failed = |e| Failure::output(path.display(), e);
        let mut file = output::file_beside(path).map_err(failed)?;
        file.write_all(chart::of(rows).as_bytes()).map_err(failed)?;
        output::give_name(file.into_temp_path(), path, self.force).map_err(failed)
    }
}

/// The middle one, or the mean of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some(f64::midpoint(values[low], values[high]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_middle_ones() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median([].into_iter()), None);
    }
}
