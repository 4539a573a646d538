//! Measures how fast the files of datasets are opened, read and closed: through the kernel, as programs do it.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `row` | results, and the orders in which files are read |
//! | `target` | private mounts of containers, or existing directories |
//! | `passes` | one pass over files |

mod passes;
mod row;
mod target;

pub(crate) use row::{Mode, PassFigures, Row, Unread, WORDS, Words, median};

use crate::failure::{Exit, Failure};
use crate::format::counted;
use crate::interrupt::Interrupt;
use passes::{Plan, read_pass};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;
use target::Target;

/// What to measure, and how.
pub(crate) struct Bench<'a> {
    /// Containers, mounts or directories.
    pub(crate) targets: &'a [PathBuf],
    pub(crate) modes: &'a [Mode],
    /// Threads in all modes except [`Mode::Sequential`].
    pub(crate) threads: u16,
    /// Files in a batch of [`Mode::Loader`].
    pub(crate) batch: u32,
    /// Passes in a round.
    pub(crate) epochs: u32,
    pub(crate) rounds: u32,
    /// The time limit of a pass.
    pub(crate) limit: Duration,
    /// The maximum number of files of a pass.
    pub(crate) samples: Option<NonZeroU64>,
    /// Whether to drop the machine's caches before each first pass.
    pub(crate) is_cold: bool,
    /// Options for the mounts of containers.
    pub(crate) options: &'a [String],
    pub(crate) interrupt: &'a Interrupt,
}

impl Bench<'_> {
    /// Measures every target in every mode. If the user interrupts it, the rows have the passes that were finished.
    pub(crate) fn run(&self) -> Result<Vec<Row>, Failure> {
        let targets = self.targets.iter().flat_map(|path| Target::all_of(path, self.options));
        let targets: Vec<Target> = targets.collect();
        let mut rows = Vec::new();
        for target in &targets {
            for &mode in self.modes {
                let threads = if mode == Mode::Sequential { 1 } else { self.threads };
                let (target, access) = (target.name(), target.access());
                let (first, later, unread) = (Vec::new(), Vec::new(), Unread::default());
                rows.push(Row { target, access, mode, threads, first, later, unread });
            }
        }
        // Targets take turns (A B A B), so that changes of the machine's state affect all of them.
        for round in 0..self.rounds {
            for mode in 0..self.modes.len() {
                for (number, target) in targets.iter().enumerate() {
                    self.measure(target, &mut rows[number * self.modes.len() + mode], round)?;
                    if self.interrupt.requested() {
                        return Ok(rows);
                    }
                }
            }
        }
        Ok(rows)
    }

    fn measure(&self, target: &Target, row: &mut Row, round: u32) -> Result<(), Failure> {
        if self.is_cold {
            target::drop_caches()?;
        }
        let mounted = target.open(self.options)?;
        let files = target::files(mounted.path(), self.samples, self.interrupt)?;
        let mut plan = Plan {
            files: &files,
            mode: row.mode,
            threads: row.threads.into(),
            batch: self.batch as usize,
            limit: self.limit,
            seed: u64::from(round),
            count: files.len(),
            interrupt: self.interrupt,
        };
        for epoch in 0..self.epochs {
            let figures = read_pass(&plan)?;
            if self.interrupt.requested() {
                return Ok(());
            }
            if figures.failed > 0 {
                let unread = mounted.unread();
                if figures.failed == figures.files && unread.are_all_encrypted() {
                    let (target, files) = (&row.target, counted(figures.files, "file"));
                    let said = unread.said_of_all(&WORDS);
                    let why = format!("{target}: {files} read, and all are {said}");
                    return Err(Failure::new(Exit::Password, why));
                }
                if unread.is_more_than(row.unread) {
                    row.unread = unread;
                }
            }
            match epoch {
                0 => {
                    // Later passes read the same files as this one, which the time limit may have cut short.
                    plan.count = figures.files as usize;
                    row.first.push(figures);
                }
                _ => row.later.push(figures),
            }
        }
        Ok(())
    }
}
