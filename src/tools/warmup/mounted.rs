//! A mount that fetches samples: lists its samples, announces them, and reads the statistics of the fetches.
//!
//! Imports the lists of this directory.

use super::list::{Line, List};
use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::io::mount::{control_file, mounts, unshared};
use crate::io::{MAX_ANNOUNCEMENT_BYTES, announce, drop_all, warm_up};
use crate::vfs::{CONTROL_DIRECTORY, sample_of_inode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use walkdir::{DirEntryExt, WalkDir};

/// The maximum number of samples in one announcement.
const MAX_ANNOUNCED: usize = MAX_ANNOUNCEMENT_BYTES / 8;

/// With io_uring, a mount whose daemon has died may be missing for a moment before it is made anew.
const MADE_ANEW: Duration = Duration::from_secs(1);

/// The fields of `info.json` that the warm-up reads.
#[derive(Debug, Deserialize)]
struct Info {
    samples: u64,
    pid: u32,
}

/// The fields of `stats.json` that the warm-up reads.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) struct Figures {
    /// The daemon; 0 if that is older than this field.
    #[serde(default)]
    pub(crate) pid: u32,
    pub(crate) bytes_fetched: u64,
    pub(crate) prefetch: PrefetchFigures,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) struct PrefetchFigures {
    pub(crate) waiting: u64,
    pub(crate) is_full: bool,
    #[serde(default)]
    pub(crate) cache_is_full: bool,
    pub(crate) in_flight: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    /// Samples that are fetched only when they are read, or not shown.
    #[serde(default)]
    pub(crate) skipped: u64,
    /// Samples that a reader has taken from memory.
    #[serde(default)]
    pub(crate) used: u64,
}

/// Whether a mount that has no room may have some later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    More,
    NoRoom,
}

/// The order in which samples will be read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    /// The order of the announcement: the mount holds the first ones in memory for their readers.
    Given,
    /// An unknown order.
    Any,
}

/// A mount of ffrfs, by its root.
pub(crate) struct Mounted {
    root: PathBuf,
    device: u64,
    samples: u64,
    /// The daemon that is to fetch.
    pid: u32,
    prefetch: File,
}

impl Mounted {
    pub(crate) fn open(root: &Path) -> Result<Self, Failure> {
        let info: Info = control(root, "info.json").map_err(|e| unreached(root, e))?;
        let metadata = fs::metadata(root).map_err(|e| Failure::unreadable(root.display(), e))?;
        let path = root.join(CONTROL_DIRECTORY).join("prefetch");
        let prefetch = control_file::opened_anew(|| control_file::open(&path))
            .map_err(|e| Failure::new(Exit::Mount, e).context(path.display()))?;
        let device = metadata.dev();
        let Info { samples, pid } = info;
        Ok(Self { root: root.to_owned(), device, samples, pid, prefetch })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// # Errors
    /// The mount is gone, or another daemon serves it than the one that was to fetch.
    pub(crate) fn figures(&self) -> Result<Figures, Failure> {
        let gone = |e: io::Error| match e.kind() {
            // That says nothing more.
            ErrorKind::NotFound | ErrorKind::NotADirectory => {
                Failure::new(Exit::Mount, "the mount is gone").context(self.root.display())
            }
            _ => self.failed("the mount is gone", e),
        };
        let read = || control::<Figures>(&self.root, "stats.json");
        let figures = read().or_else(|e| match e.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => {
                std::thread::sleep(MADE_ANEW);
                read()
            }
            _ => Err(e),
        });
        let figures = figures.map_err(gone)?;
        // Stale, if it was opened at another daemon.
        self.prefetch.metadata().map_err(gone)?;
        if figures.pid != 0 && figures.pid != self.pid {
            return Err(self.ended());
        }
        Ok(figures)
    }

    /// What was announced to a daemon, the next one does not know.
    fn ended(&self) -> Failure {
        let (root, pid) = (self.root.display(), self.pid);
        let why = format!(
            "{root}: its daemon, process {pid}, has died or was upgraded, and what was left to fetch is lost: run the \
             warm-up again"
        );
        Failure::new(Exit::Mount, why)
    }

    fn failed(&self, what: &str, error: io::Error) -> Failure {
        if control_file::is_stale(&error) || mounts::is_dead(&error) {
            return self.ended();
        }
        let context = format!("{}: {what}", self.root.display());
        Failure::new(Exit::Mount, error).context(context)
    }

    /// All samples with a name, in the order of their containers; the kernel then knows their files. `None` if the user
    /// interrupts it.
    pub(crate) fn all(&self, interrupt: &Interrupt) -> Result<Option<Vec<u64>>, Failure> {
        let mut samples = Vec::new();
        let is_whole = self.visit(interrupt, |sample| {
            samples.push(sample);
            true
        })?;
        samples.sort_unstable();
        Ok(is_whole.then_some(samples))
    }

    /// Visits all files, and looks up those that `wanted` accepts. False if the user interrupts it.
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

    /// The samples of a list. `None` if the user interrupts it.
    pub(crate) fn listed(
        &self,
        list: &List,
        interrupt: &Interrupt,
    ) -> Result<Option<Vec<u64>>, Failure> {
        let mut numbers = HashSet::new();
        let mut samples = Vec::new();
        let absent = |place, number: &str| {
            let message = format!("there is no sample {number}, there are {}", self.samples);
            Err(list.wrong(place, &message))
        };
        for (place, line) in list.lines() {
            if interrupt.requested() {
                return Ok(None);
            }
            samples.push(match line {
                Line::Number(number) if number < self.samples => {
                    numbers.insert(number);
                    number
                }
                Line::Number(number) => return absent(place, &number.to_string()),
                Line::HugeNumber(digits) => {
                    return absent(place, &String::from_utf8_lossy(digits));
                }
                Line::Path(path) => self.sample_at(list, place, path)?,
            });
        }
        // Files that the list gives by number must still be looked up.
        let is_known = numbers.is_empty() || self.visit(interrupt, |s| numbers.contains(&s))?;
        Ok(is_known.then_some(samples))
    }

    /// The sample at a path in the mount.
    fn sample_at(&self, list: &List, place: usize, path: &[u8]) -> Result<u64, Failure> {
        let start = path.iter().position(|&b| b != b'/').unwrap_or(path.len());
        let path = self.root.join(OsStr::from_bytes(&path[start..]));
        let metadata = fs::symlink_metadata(&path).map_err(|e| match mounts::is_dead(&e) {
            true => self.failed("cannot look up a sample", e),
            false => Failure::unreadable(format!("{list}:{place}: {}", path.display()), e),
        })?;
        let is_here = metadata.dev() == self.device && metadata.is_file();
        sample_of_inode(metadata.ino())
            .filter(|_| is_here)
            .ok_or_else(|| list.wrong(place, &format!("{} is no sample", path.display())))
    }

    /// Drops what is announced and not read yet, and what warm-ups have not begun to fetch.
    pub(crate) fn drop_announced(&self) -> Result<(), Failure> {
        match drop_all(&self.prefetch) {
            Ok(()) => Ok(()),
            // Another daemon serves: what was announced to the one before is lost anyway.
            Err(e) if control_file::is_stale(&e) => Ok(()),
            Err(e) => {
                let refused = format!("{}: cannot drop what is announced", self.root.display());
                Err(Failure::new(Exit::Mount, e).context(refused))
            }
        }
    }

    /// Announces samples for fetching; calls `wait` while the mount has too many, and ends when that says that there will
    /// be no room. Returns how many were announced, which are not all then, or if the user interrupts it.
    pub(crate) fn announce(
        &self,
        (samples, order): (&[u64], Order),
        interrupt: &Interrupt,
        wait: &mut dyn FnMut(&Figures) -> Wait,
    ) -> Result<usize, Failure> {
        let mut announced = 0;
        while announced < samples.len() && !interrupt.requested() {
            let end = (announced + MAX_ANNOUNCED).min(samples.len());
            let bytes: Vec<u8> =
                samples[announced..end].iter().flat_map(|s| s.to_le_bytes()).collect();
            let taken = match order {
                Order::Given => announce(&self.prefetch, &bytes),
                Order::Any => warm_up(&self.prefetch, &bytes).or_else(|e| match e.raw_os_error() {
                    // The daemon is older than this program.
                    Some(libc::ENOTTY) => announce(&self.prefetch, &bytes),
                    _ => Err(e),
                }),
            };
            match taken {
                Ok(()) => announced = end,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::StorageFull => match wait(&self.figures()?) {
                    Wait::More => {}
                    Wait::NoRoom => break,
                },
                Err(e) => return Err(self.failed("cannot announce", e)),
            }
        }
        Ok(announced)
    }
}

/// Why a mount cannot be asked to fetch.
fn unreached(root: &Path, error: io::Error) -> Failure {
    let shown = root.display();
    let mount = match mounts::resolve(root).and_then(|target| mounts::at(&target)) {
        Ok(mount) => mount,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let why = "no such directory (ffrfs list shows all mounts)";
            return Failure::new(Exit::Mount, why).context(shown);
        }
        Err(error) => return Failure::new(Exit::Mount, error).context(shown),
    };
    let Some(mount) = mount.filter(|mount| mount.fs_type == mounts::FS_TYPE) else {
        // What is missing there, of which the system tells, is a file of a mount.
        let why = "no dataset of ffrfs is mounted there (ffrfs list shows all that are)";
        return Failure::new(Exit::Mount, why).context(shown);
    };
    let failure = if mounts::is_dead(&error) {
        let cure = format!("its daemon is dead: run ffrfs umount {shown}, and mount it again");
        Failure::new(Exit::Mount, cure)
    } else if error.kind() == ErrorKind::NotADirectory {
        Failure::new(Exit::Mount, "it was mounted with --no-control, and takes no announcement")
    } else if error.kind() == ErrorKind::PermissionDenied
        && let Some(user) = unshared::other_user(&mount)
    {
        let why = unshared::said_of(user);
        let cure = format!("warm it up as that user: sudo -u '#{user}' ffrfs warmup ...");
        Failure::new(Exit::Mount, format!("{error}: {why}; {cure}"))
    } else {
        Failure::new(Exit::Mount, error)
    };
    failure.context(shown)
}

fn control<T: DeserializeOwned>(root: &Path, name: &str) -> io::Result<T> {
    let text = control_file::read(&root.join(CONTROL_DIRECTORY).join(name))?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}
