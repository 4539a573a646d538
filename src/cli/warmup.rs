//! `ffrfs warmup`: has a mount fetch samples before they are read.
//!
//! The kernel is made to know the files first, by looking at each: what is fetched for a file that it knows
//! can go straight into its page cache.

use crate::failure::{Exit, Failure, say};
use crate::io::{MAX_ANNOUNCEMENT_BYTES, announce};
use crate::tools::interrupt::Interrupt;
use crate::vfs::{CONTROL_FOLDER, sample_of_inode};
use clap::Args;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use walkdir::{DirEntryExt, WalkDir};

/// Numbers announced at a time.
const CHUNK: usize = MAX_ANNOUNCEMENT_BYTES / 8;
/// Between two looks at how far it is.
const PAUSE: Duration = Duration::from_millis(100);
/// So many looks in a row that find no room: nobody reads.
const PATIENCE: u32 = 20;

/// Have a mount fetch its samples before they are read
#[derive(Debug, Args)]
pub(super) struct WarmupArgs {
    /// Where the dataset is mounted
    #[arg(value_name = "MOUNTPOINT")]
    target: PathBuf,
    /// Only these, in this order: a file with a sample number or a path a line; - is standard input
    #[arg(short = 'f', long = "list", value_name = "LIST")]
    list: Option<PathBuf>,
    /// Do not wait for it
    #[arg(long)]
    background: bool,
}

/// What is needed of `info.json`.
#[derive(Debug, Deserialize)]
struct Info {
    samples: u64,
}

/// What is needed of `stats.json`.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
struct Figures {
    bytes_fetched: u64,
    prefetch: Prefetch,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
struct Prefetch {
    waiting: u64,
    is_full: bool,
    in_flight: u64,
    done: u64,
    failed: u64,
}

pub(super) fn run(args: &WarmupArgs) -> Result<Exit, Failure> {
    let mount = Mount::open(&args.target)?;
    let prefetch = mount.open_prefetch()?;
    let interrupt = Interrupt::listen();
    let samples = match &args.list {
        None => mount.all(&interrupt)?,
        Some(list) => mount.listed(&read_list(list)?, &interrupt)?,
    };
    let Some(samples) = samples else {
        say(format_args!("interrupted; nothing was announced"));
        return Ok(Exit::Interrupted);
    };
    let before = mount.figures()?;
    let progress = Progress::new(samples.len() as u64, before, args.background);
    let announced = mount.announce(&prefetch, &samples, &interrupt, &progress)?;
    if announced < samples.len() {
        progress.bar.finish_and_clear();
        let all = samples.len();
        say(format_args!("interrupted; the fetching of {announced} of {all} samples goes on"));
        return Ok(Exit::Interrupted);
    }
    if args.background {
        say(format_args!("{announced} samples are being fetched"));
        return Ok(Exit::Ok);
    }
    let end = watch(|| mount.figures(), || interrupt.requested(), |now| progress.show(now), PAUSE);
    progress.bar.finish_and_clear();
    let Some(end) = end? else {
        say(format_args!("interrupted; the fetching goes on"));
        return Ok(Exit::Interrupted);
    };
    Ok(report(&mount.root, announced, &before, &end))
}

/// Says what came of it.
fn report(root: &Path, announced: usize, before: &Figures, end: &Figures) -> Exit {
    let bytes = HumanBytes(end.bytes_fetched.saturating_sub(before.bytes_fetched));
    let waiting = end.prefetch.waiting;
    let done = (announced as u64).saturating_sub(waiting);
    say(format_args!("{done} samples warmed up, {bytes} read"));
    if waiting > 0 {
        say(format_args!(
            "for {waiting} more there is no memory now: they follow as these are read (a quarter of the \
             memory takes what is warmed up at once)"
        ));
    }
    match end.prefetch.failed.saturating_sub(before.prefetch.failed) {
        0 => Exit::Ok,
        failed => {
            let bad = root.join(CONTROL_FOLDER).join("bad");
            say(format_args!("{failed} samples could not be had: see {}", bad.display()));
            Exit::Checksum
        }
    }
}

/// Looks again and again until nothing is left to fetch; `None` if it was interrupted.
fn watch(
    mut look: impl FnMut() -> Result<Figures, Failure>,
    interrupted: impl Fn() -> bool,
    show: impl Fn(&Figures),
    pause: Duration,
) -> Result<Option<Figures>, Failure> {
    let mut full = 0;
    loop {
        let now = look()?;
        show(&now);
        full = if now.prefetch.is_full { full + 1 } else { 0 };
        if now.prefetch.in_flight == 0 && (now.prefetch.waiting == 0 || full > PATIENCE) {
            return Ok(Some(now));
        }
        if interrupted() {
            return Ok(None);
        }
        std::thread::sleep(pause);
    }
}

/// The bar on a terminal.
struct Progress {
    bar: ProgressBar,
    before: Figures,
    start: Instant,
}

impl Progress {
    fn new(samples: u64, before: Figures, background: bool) -> Self {
        let bar = if io::stderr().is_terminal() && !background {
            let style = ProgressStyle::with_template(
                "{bar:30} {human_pos}/{human_len} samples, {msg}, {eta} left",
            );
            let bar = ProgressBar::new(samples);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        } else {
            ProgressBar::hidden()
        };
        Self { bar, before, start: Instant::now() }
    }

    fn show(&self, now: &Figures) {
        let bytes = now.bytes_fetched.saturating_sub(self.before.bytes_fetched);
        let rate = (bytes as f64 / self.start.elapsed().as_secs_f64().max(0.001)) as u64;
        self.bar.set_position(now.prefetch.done.saturating_sub(self.before.prefetch.done));
        self.bar.set_message(format!("{}, {}/s", HumanBytes(bytes), HumanBytes(rate)));
    }
}

/// A mount of ours, by its root.
struct Mount {
    root: PathBuf,
    device: u64,
    samples: u64,
}

impl Mount {
    fn open(root: &Path) -> Result<Self, Failure> {
        let info: Info = control(root, "info.json").map_err(|e| {
            let failure =
                Failure::new(Exit::Mount, e).context("no dataset of ffrfs is mounted there");
            failure.context(root.display())
        })?;
        let metadata = fs::metadata(root).map_err(|e| Failure::unreadable(root.display(), e))?;
        Ok(Self { root: root.to_owned(), device: metadata.dev(), samples: info.samples })
    }

    fn open_prefetch(&self) -> Result<File, Failure> {
        let path = self.root.join(CONTROL_FOLDER).join("prefetch");
        File::open(&path).map_err(|e| Failure::new(Exit::Mount, e).context(path.display()))
    }

    fn figures(&self) -> Result<Figures, Failure> {
        control(&self.root, "stats.json").map_err(|e| {
            let what = format!("{}: the mount is gone", self.root.display());
            Failure::new(Exit::Mount, e).context(what)
        })
    }

    /// All samples that have a name, in order of their containers; the kernel knows their files then.
    /// `None` if it was interrupted.
    fn all(&self, interrupt: &Interrupt) -> Result<Option<Vec<u64>>, Failure> {
        let mut samples = Vec::new();
        let whole = self.visit(interrupt, |sample| {
            samples.push(sample);
            true
        })?;
        samples.sort_unstable();
        Ok(whole.then_some(samples))
    }

    /// Goes through all files, and looks at those for which `wanted` says so. False if interrupted.
    fn visit(
        &self,
        interrupt: &Interrupt,
        mut wanted: impl FnMut(u64) -> bool,
    ) -> Result<bool, Failure> {
        for entry in WalkDir::new(&self.root).same_file_system(true) {
            let entry = entry.map_err(|e| self.unreadable(e))?;
            if interrupt.requested() {
                return Ok(false);
            }
            let sample = sample_of_inode(entry.ino()).filter(|_| entry.file_type().is_file());
            if sample.is_some_and(&mut wanted) {
                entry.metadata().map_err(|e| self.unreadable(e))?;
            }
        }
        Ok(true)
    }

    fn unreadable(&self, error: walkdir::Error) -> Failure {
        Failure::unreadable(self.root.display(), error.into())
    }

    /// The samples of a list. `None` if it was interrupted.
    fn listed(&self, list: &List, interrupt: &Interrupt) -> Result<Option<Vec<u64>>, Failure> {
        let mut numbers = HashSet::new();
        let mut samples = Vec::new();
        for (place, line) in list.lines() {
            if interrupt.requested() {
                return Ok(None);
            }
            samples.push(match number(line) {
                Some(number) if number.is_some_and(|number| number < self.samples) => {
                    let number = number.unwrap_or_default();
                    numbers.insert(number);
                    number
                }
                Some(_) => {
                    let text = String::from_utf8_lossy(line);
                    let message = format!("there is no sample {text}, there are {}", self.samples);
                    return Err(list.wrong(place, &message));
                }
                None => self.sample_at(list, place, line)?,
            });
        }
        // Numbers do not tell which files they are.
        let known = numbers.is_empty() || self.visit(interrupt, |s| numbers.contains(&s))?;
        Ok(known.then_some(samples))
    }

    /// The sample that a path in the mount shows.
    fn sample_at(&self, list: &List, place: usize, path: &[u8]) -> Result<u64, Failure> {
        let start = path.iter().position(|&b| b != b'/').unwrap_or(path.len());
        let path = self.root.join(OsStr::from_bytes(&path[start..]));
        let metadata = fs::symlink_metadata(&path)
            .map_err(|e| Failure::unreadable(format!("{list}:{place}: {}", path.display()), e))?;
        let here = metadata.dev() == self.device && metadata.is_file();
        sample_of_inode(metadata.ino())
            .filter(|_| here)
            .ok_or_else(|| list.wrong(place, &format!("{} is no sample", path.display())))
    }

    /// Announces samples, waiting while too many are. Gives how many were: less than all if interrupted.
    fn announce(
        &self,
        to: &File,
        samples: &[u64],
        interrupt: &Interrupt,
        progress: &Progress,
    ) -> Result<usize, Failure> {
        let mut announced = 0;
        while announced < samples.len() && !interrupt.requested() {
            let end = (announced + CHUNK).min(samples.len());
            let bytes: Vec<u8> =
                samples[announced..end].iter().flat_map(|s| s.to_le_bytes()).collect();
            match announce(to, &bytes) {
                Ok(()) => announced = end,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::StorageFull => {
                    progress.show(&self.figures()?);
                    std::thread::sleep(PAUSE);
                }
                Err(e) => {
                    let what = format!("{}: cannot announce", self.root.display());
                    return Err(Failure::new(Exit::Mount, e).context(what));
                }
            }
        }
        Ok(announced)
    }
}

/// A control file of the mount.
fn control<T: DeserializeOwned>(root: &Path, name: &str) -> io::Result<T> {
    let text = fs::read(root.join(CONTROL_FOLDER).join(name))?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// What the user wants to be fetched.
struct List {
    name: String,
    text: Vec<u8>,
}

impl std::fmt::Display for List {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl List {
    /// The lines that are not empty, with their numbers from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let lines = self.text.split(|&b| b == b'\n').enumerate();
        let lines = lines.map(|(i, line)| (i + 1, line.strip_suffix(b"\r").unwrap_or(line)));
        lines.filter(|(_, line)| !line.is_empty())
    }

    fn wrong(&self, place: usize, what: &str) -> Failure {
        Failure::usage(format!("{self}:{place}: {what}"))
    }
}

fn read_list(path: &Path) -> Result<List, Failure> {
    let (name, text) = if path == Path::new("-") {
        let mut text = Vec::new();
        let read = io::stdin().read_to_end(&mut text);
        ("standard input".to_owned(), read.map(|_| text))
    } else {
        (path.display().to_string(), fs::read(path))
    };
    match text {
        Ok(text) => Ok(List { name, text }),
        Err(e) => Err(Failure::unreadable(name, e)),
    }
}

/// `None`: a path, for it is not all digits. `Some(None)`: a number beyond all samples.
fn number(line: &[u8]) -> Option<Option<u64>> {
    let digits = line.iter().all(u8::is_ascii_digit);
    digits.then(|| std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn figures(waiting: u64, in_flight: u64, failed: u64) -> Figures {
        let done = 10 - waiting - in_flight;
        Figures {
            bytes_fetched: 0,
            prefetch: Prefetch { waiting, is_full: false, in_flight, done, failed },
        }
    }

    #[test]
    fn it_is_over_when_nothing_waits_and_nothing_is_under_way() {
        let mut states =
            [figures(9, 1, 0), figures(0, 2, 0), figures(1, 0, 0), figures(0, 0, 0)].into_iter();
        let shown = Cell::new(0);
        let show = |now: &Figures| shown.set(shown.get().max(now.prefetch.done));
        let look = || Ok(states.next().expect("it goes on when all is done"));
        let end = watch(look, || false, show, Duration::ZERO).unwrap();
        assert_eq!((end.unwrap().prefetch.done, shown.get()), (10, 10));
        assert!(states.next().is_none(), "it has ended too early");
    }

    #[test]
    fn it_is_over_when_there_is_no_room_and_that_stays_so() {
        let mut looks = 0u32;
        let look = || {
            looks += 1;
            let mut now = figures(5, 0, 0);
            now.prefetch.is_full = looks != 3;
            Ok(now)
        };
        let end = watch(look, || false, |_| (), Duration::ZERO).unwrap();
        assert_eq!(end.unwrap().prefetch.waiting, 5);
        assert_eq!(looks, 3 + PATIENCE + 1, "from the last time that there was room");
    }

    #[test]
    fn an_interrupt_ends_the_watching_unless_all_is_done() {
        let look = || Ok(figures(5, 1, 0));
        assert!(watch(look, || true, |_| (), Duration::ZERO).unwrap().is_none());
        assert!(watch(|| Ok(figures(0, 0, 0)), || true, |_| (), PAUSE).unwrap().is_some());
    }

    #[test]
    fn a_mount_that_goes_away_ends_it_with_an_error() {
        let gone = || Err(Failure::new(Exit::Mount, "gone"));
        assert_eq!(watch(gone, || false, |_| (), PAUSE).unwrap_err().exit, Exit::Mount);
    }

    #[test]
    fn samples_that_failed_meanwhile_make_exit_code_4() {
        let exit = |before, end| report(Path::new("/mnt"), 10, &before, &end);
        assert_eq!(exit(figures(0, 0, 3), figures(0, 0, 3)), Exit::Ok);
        assert_eq!(exit(figures(0, 0, 3), figures(0, 0, 4)), Exit::Checksum);
    }

    #[test]
    fn a_list_has_numbers_and_paths_and_empty_lines_mean_nothing() {
        let list =
            List { name: "list".to_owned(), text: b"7\r\n\na/b\n99999999999999999999".into() };
        let lines: Vec<_> = list.lines().collect();
        assert_eq!(lines, [(1, &b"7"[..]), (3, b"a/b"), (4, b"99999999999999999999")]);
        let numbers: Vec<_> = lines.iter().map(|(_, line)| number(line)).collect();
        assert_eq!(numbers, [Some(Some(7)), None, Some(None)]);
    }
}
