//! One pass over files: each is opened, read to its end and closed.
//!
//! Imports `row.rs`.

use super::row::{Mode, PassFigures};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crossbeam_channel::bounded;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

/// The number of finished batches by which a worker may be ahead.
const AHEAD: usize = 2;
/// The minimum size of a read buffer.
const BUFFER_BYTES: usize = 64 << 10;

/// What a pass reads, and how.
pub(super) struct Plan<'a> {
    pub(super) files: &'a [PathBuf],
    pub(super) mode: Mode,
    pub(super) threads: usize,
    pub(super) batch: usize,
    pub(super) limit: Duration,
    pub(super) seed: u64,
    /// The number of files to read, in the order of the pass.
    pub(super) count: usize,
    pub(super) interrupt: &'a Interrupt,
}

/// The reads of a thread.
#[derive(Default)]
struct Tally {
    bytes: u64,
    failed: u64,
    nanos: Vec<u64>,
}

/// Reads the files in the order of the plan.
///
/// # Errors
/// A thread cannot be started: fewer would measure something else.
pub(super) fn read_pass(plan: &Plan) -> Result<PassFigures, Failure> {
    let mut order: Vec<usize> = (0..plan.files.len()).collect();
    if plan.mode != Mode::Sequential {
        shuffle(&mut order, plan.seed);
    }
    order.truncate(plan.count);
    let start = Instant::now();
    let is_over = || start.elapsed() >= plan.limit || plan.interrupt.requested();
    let tallies = match plan.mode {
        Mode::Sequential | Mode::Shuffled => share(plan, &order, &is_over),
        Mode::Loader => load(plan, &order, &is_over),
    };
    Ok(figures(tallies?, start.elapsed()))
}

/// Each thread takes the next file.
fn share(
    plan: &Plan,
    order: &[usize],
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<Tally>, Failure> {
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut tally, mut buffer) = worker();
        while let Some(&file) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            if is_over() {
                break;
            }
            tally.read(&plan.files[file], &mut buffer);
        }
        tally
    };
    thread::scope(|scope| {
        let started = (0..plan.threads).map(|_| Builder::new().spawn_scoped(scope, work));
        let threads = started.collect::<io::Result<Vec<_>>>().map_err(|error| {
            // Those that run find no file any more.
            next.store(order.len(), Ordering::Relaxed);
            Failure::no_thread(error)
        })?;
        Ok(threads.into_iter().filter_map(|thread| thread.join().ok()).collect())
    })
}

/// Worker n reads batches n, n + workers …; the batches are taken in order.
fn load(
    plan: &Plan,
    order: &[usize],
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<Tally>, Failure> {
    let batches: Vec<&[usize]> = order.chunks(plan.batch).collect();
    let batches = &batches;
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for number in 0..plan.threads {
            let (sender, receiver) = bounded(AHEAD);
            let work = move || {
                let (mut tally, mut buffer) = worker();
                for batch in batches.iter().skip(number).step_by(plan.threads) {
                    for &file in *batch {
                        if is_over() {
                            return tally;
                        }
                        tally.read(&plan.files[file], &mut buffer);
                    }
                    if sender.send(()).is_err() {
                        break;
                    }
                }
                tally
            };
            // Those that run end when their receivers are gone.
            let thread = Builder::new().spawn_scoped(scope, work).map_err(Failure::no_thread)?;
            workers.push((receiver, thread));
        }
        for number in 0..batches.len() {
            // A worker without another batch has stopped because the time is over.
            if workers[number % plan.threads].0.recv().is_err() {
                break;
            }
        }
        let (receivers, threads): (Vec<_>, Vec<_>) = workers.into_iter().unzip();
        drop(receivers);
        Ok(threads.into_iter().filter_map(|thread| thread.join().ok()).collect())
    })
}

/// Gives the thread a file table of its own, like that of a process: threads that share one contend in `open`.
fn worker() -> (Tally, Vec<u8>) {
    let _ = nix::sched::unshare(nix::sched::CloneFlags::CLONE_FILES);
    (Tally::default(), vec![0; BUFFER_BYTES])
}

impl Tally {
    fn read(&mut self, path: &Path, buffer: &mut Vec<u8>) {
        let start = Instant::now();
        match read(path, buffer) {
            Ok(bytes) => self.bytes += bytes,
            Err(_) => self.failed += 1,
        }
        self.nanos.push(start.elapsed().as_nanos() as u64);
    }
}

/// Reads like Python's `open(path, "rb").read()`: asks for the size, reads everything, and reads again to see the end.
fn read(path: &Path, buffer: &mut Vec<u8>) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let wanted = usize::try_from(size).unwrap_or(BUFFER_BYTES).saturating_add(1).min(64 << 20);
    if buffer.len() < wanted {
        buffer.resize(wanted, 0);
    }
    let mut bytes = 0;
    loop {
        match file.read(buffer)? {
            0 => return Ok(bytes),
            read => bytes += read as u64,
        }
    }
}

fn figures(tallies: Vec<Tally>, elapsed: Duration) -> PassFigures {
    let mut nanos: Vec<u64> =
        tallies.iter().flat_map(|tally| tally.nanos.iter().copied()).collect();
    nanos.sort_unstable();
    let at = |share: f64| {
        let place = (nanos.len().saturating_sub(1) as f64 * share) as usize;
        nanos.get(place).map_or(0.0, |nanos| *nanos as f64 / 1000.0)
    };
    PassFigures {
        files: nanos.len() as u64,
        bytes: tallies.iter().map(|tally| tally.bytes).sum(),
        failed: tallies.iter().map(|tally| tally.failed).sum(),
        seconds: elapsed.as_secs_f64(),
        p50_us: at(0.5),
        p99_us: at(0.99),
    }
}

/// Shuffles reproducibly for each seed (Fisher and Yates; `SplitMix64`).
fn shuffle(order: &mut [usize], seed: u64) {
    let mut state = seed;
    let mut random = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    for end in (1..order.len()).rev() {
        let other = ((u128::from(random()) * (end as u128 + 1)) >> 64) as usize;
        order.swap(end, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(files: &[PathBuf], mode: Mode) -> Plan<'_> {
        static NEVER: std::sync::OnceLock<Interrupt> = std::sync::OnceLock::new();
        let interrupt = NEVER.get_or_init(Interrupt::default);
        let limit = Duration::from_secs(60);
        Plan { files, mode, threads: 3, batch: 4, limit, seed: 7, count: files.len(), interrupt }
    }

    #[test]
    fn every_mode_reads_every_file_once() {
        let directory = tempfile::tempdir().unwrap();
        let files: Vec<_> = (0..41).map(|n| directory.path().join(n.to_string())).collect();
        for (number, file) in files.iter().enumerate() {
            std::fs::write(file, vec![0; 1000 * number]).unwrap();
        }
        for mode in [Mode::Sequential, Mode::Shuffled, Mode::Loader] {
            let figures = read_pass(&plan(&files, mode)).unwrap();
            assert_eq!(
                (figures.files, figures.bytes, figures.failed),
                (41, 820_000, 0),
                "{mode:?}"
            );
            assert!(figures.seconds > 0.0 && figures.p50_us <= figures.p99_us);
        }
        std::fs::remove_file(&files[5]).unwrap();
        let figures = read_pass(&plan(&files, Mode::Loader)).unwrap();
        assert_eq!((figures.files, figures.failed), (41, 1));
    }

    #[test]
    fn a_pass_ends_when_its_time_is_over() {
        let directory = tempfile::tempdir().unwrap();
        let files = vec![directory.path().join("missing"); 3_000_000];
        for mode in [Mode::Shuffled, Mode::Loader] {
            let limit = Duration::from_millis(50);
            let figures = read_pass(&Plan { limit, ..plan(&files, mode) }).unwrap();
            assert!(figures.files < 3_000_000, "{mode:?}");
        }
    }

    #[test]
    fn a_shuffled_order_has_all_and_is_the_same_for_the_same_seed() {
        let shuffled = |seed| {
            let mut order: Vec<usize> = (0..1000).collect();
            shuffle(&mut order, seed);
            order
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut sorted = shuffled(3);
        assert!(!sorted.is_sorted());
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
    }
}
