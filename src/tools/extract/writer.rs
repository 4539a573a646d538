//! Writes entries to a directory, several at a time. Each file gets its name when it is whole and checked.
//!
//! Symbolic links are made last, and are never followed: whatever a container holds, nothing is written outside of the
//! directory. Imports `place.rs`.

use super::place::{LastDirectory, Temporary, name_of, path_of};
use crate::failure::{Exit, Failure};
use crate::format::Fault;
use crate::interrupt::Interrupt;
use crate::io::files::beneath::{self, Beneath, Modified};
use crate::tools::entries::{Entries, Entry, EntryKind, EntryMetadata, total_bytes};
use crate::tools::reader::{Chunk, Scratch, Stop, exit_of, for_each};
use indicatif::ProgressBar;
use nix::sys::stat::FileStat;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Mode bits that let a program run with the rights of others; they are not taken from a container.
const SPECIAL_BITS: u16 = 0o7000;

/// How existing files are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Existing {
    /// Whether they are replaced.
    pub(crate) overwrite: bool,
    /// Whether those with the right size and time are left alone.
    pub(crate) resume: bool,
}

/// Writes entries to a directory.
pub(crate) struct TreeWriter<'a> {
    pub(crate) entries: &'a dyn Entries,
    /// The name of the directory in errors.
    pub(crate) root: &'a Path,
    pub(crate) directory: Beneath,
    pub(crate) existing: Existing,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) progress: ProgressBar,
}

/// The outcome for all entries.
#[derive(Debug, Default)]
pub(crate) struct Extracted {
    /// Bad entries, by item.
    pub(crate) bad: Vec<(usize, Fault)>,
    /// Files that were written without their set-user-ID, set-group-ID or sticky bit.
    pub(crate) special: u64,
    /// Files and directories whose permissions the file system does not keep.
    pub(crate) unkept_modes: u64,
    pub(crate) is_interrupted: bool,
}

/// The state that the threads share.
#[derive(Default)]
struct State {
    next: usize,
    extracted: Extracted,
}

/// Buffers that a thread reuses for each batch.
#[derive(Default)]
struct Thread {
    scratch: Scratch,
    directory: LastDirectory,
}

impl TreeWriter<'_> {
    /// Writes all entries on `threads` threads; `is_empty`: the directory has no entries yet.
    pub(crate) fn write(&self, threads: usize, is_empty: bool) -> Result<Extracted, Failure> {
        let all: Vec<usize> = (0..self.entries.list().len()).collect();
        let todo = if is_empty { all } else { self.missing(all)? };
        let is_file = |item: &usize| self.item(*item).kind == EntryKind::File;
        let files: Vec<usize> = todo.iter().copied().filter(is_file).collect();
        self.progress.set_length(total_bytes(files.iter().map(|item| self.item(*item))));
        let run = Run { writer: self, todo: &files, state: Mutex::default() };
        run.make_directories(&todo)?;
        let written = for_each(threads, self.interrupt, &|| Ok(run.take()), &|batch, thread| {
            run.write(batch, thread)
        });
        let mut state = run.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.progress.finish_and_clear();
        match written {
            Err(failure) if failure.exit == Exit::Interrupted => {
                state.extracted.is_interrupted = true;
            }
            written => written?,
        }
        state.extracted.bad.sort_by_key(|(item, _)| *item);
        state.extracted.is_interrupted |= self.interrupt.requested();
        if !state.extracted.is_interrupted {
            self.write_links(&todo, &mut state.extracted)?;
            self.finish_directories(&todo, &mut state.extracted)?;
        }
        Ok(state.extracted)
    }

    fn item(&self, item: usize) -> Entry {
        self.entries.list()[item]
    }

    fn failed(&self, path: &Path, error: io::Error) -> Failure {
        let error = match error.raw_os_error() {
            Some(libc::ELOOP | libc::EXDEV) => {
                io::Error::other("a symbolic link is in the way; it is not followed")
            }
            Some(libc::EEXIST) => io::Error::other("exists already (--overwrite replaces it)"),
            _ => error,
        };
        Failure::output(self.root.join(path).display(), error)
    }

    /// The items that do not exist yet. Refuses existing files that are in the way, before anything is written.
    fn missing(&self, all: Vec<usize>) -> Result<Vec<usize>, Failure> {
        let (mut missing, mut in_the_way) = (Vec::new(), Vec::new());
        let mut directory = LastDirectory::default();
        for item in all {
            let path = path_of(&self.entries.path(item));
            let found = match directory.open(&self.directory, &path, false) {
                Ok(directory) => directory.look(name_of(&path)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(e) => Err(e),
            };
            match found.map_err(|e| self.failed(&path, e))? {
                None => missing.push(item),
                Some(found)
                    if is_directory(&found) && self.item(item).kind == EntryKind::Directory =>
                {
                    missing.push(item);
                }
                Some(found)
                    if self.existing.resume && self.is_same(item, &found, &mut directory)? => {}
                Some(found) if self.existing.overwrite && !is_directory(&found) => {
                    missing.push(item)
                }
                Some(_) => in_the_way.push(path),
            }
        }
        let Some(first) = in_the_way.first() else { return Ok(missing) };
        let and_more = match in_the_way.len() {
            1 => String::new(),
            count => format!(", and so do {} more", count - 1),
        };
        let why = format!(
            "exists already{and_more}; nothing was written (--overwrite replaces files, --resume \
             leaves those that are whole)"
        );
        Err(Failure::output(self.root.join(first).display(), io::Error::other(why)))
    }

    /// Whether the entry was extracted before: a file gets its name and time only when it is whole.
    fn is_same(
        &self,
        item: usize,
        found: &FileStat,
        directory: &mut LastDirectory,
    ) -> Result<bool, Failure> {
        let (entry, metadata) = (self.item(item), self.entries.metadata(item)?);
        let kind = found.st_mode & libc::S_IFMT;
        Ok(match entry.kind {
            EntryKind::Directory => false,
            EntryKind::Symlink if kind != libc::S_IFLNK => false,
            EntryKind::Symlink => {
                let path = path_of(&self.entries.path(item));
                let there = directory.open(&self.directory, &path, false);
                let there = there.and_then(|directory| directory.read_link(name_of(&path)));
                let there = there.map_err(|e| self.failed(&path, e))?;
                // Of a damaged link nothing better can be made.
                self.entries.link_target(item).map_or(true, |target| there.as_bytes() == target)
            }
            EntryKind::File | EntryKind::HardLink(_) => {
                let size = found.st_size.unsigned_abs();
                let time = (found.st_mtime, found.st_mtime_nsec);
                kind == libc::S_IFREG
                    && size == entry.size_bytes
                    && is_kept_as(metadata.modified, time)
            }
        })
    }

    fn write_links(&self, todo: &[usize], extracted: &mut Extracted) -> Result<(), Failure> {
        let mut directory = LastDirectory::default();
        for &item in todo {
            let is_bad = |first| extracted.bad.iter().any(|(bad, _)| *bad == first);
            let path = path_of(&self.entries.path(item));
            let made = match self.item(item).kind {
                EntryKind::File | EntryKind::Directory => continue,
                EntryKind::HardLink(first) if is_bad(first) => continue,
                EntryKind::HardLink(first) => {
                    let first = path_of(&self.entries.path(first));
                    self.make(&mut directory, &path, |directory, name| {
                        let of =
                            self.directory.directory(first.parent().unwrap_or(Path::new("")))?;
                        directory.make_hard_link(name, &of, name_of(&first))
                    })
                }
                EntryKind::Symlink => {
                    let modified = self.entries.metadata(item)?.modified;
                    let target = match self.entries.link_target(item) {
                        Ok(target) => target,
                        Err(fault) => {
                            extracted.bad.push((item, fault));
                            continue;
                        }
                    };
                    self.make(&mut directory, &path, |directory, name| {
                        directory.make_symlink(
                            name,
                            Path::new(OsStr::from_bytes(&target)),
                            modified,
                        )
                    })
                }
            };
            made.map_err(|e| self.failed(&path, e))?;
        }
        Ok(())
    }

    /// Makes an entry under a temporary name, and then renames it.
    fn make(
        &self,
        directory: &mut LastDirectory,
        path: &Path,
        make: impl FnOnce(&Beneath, &Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let directory = directory.open(&self.directory, path, true)?;
        if !self.existing.overwrite {
            return make(directory, name_of(path));
        }
        let temporary = Temporary::new(directory);
        make(directory, &temporary.name)?;
        temporary.give_name(name_of(path), true)
    }

    /// Sets the permissions and times of directories, after their last entry was written.
    fn finish_directories(&self, todo: &[usize], extracted: &mut Extracted) -> Result<(), Failure> {
        for &item in todo.iter().rev().filter(|item| self.item(**item).kind == EntryKind::Directory)
        {
            let (path, metadata) =
                (path_of(&self.entries.path(item)), self.entries.metadata(item)?);
            let directory = self.directory.directory(&path);
            let mode = metadata.mode.map(|mode| mode & !SPECIAL_BITS);
            let keeps_mode = directory
                .and_then(|directory| directory.set(mode, metadata.modified))
                .map_err(|e| self.failed(&path, e))?;
            extracted.unkept_modes += u64::from(!keeps_mode);
        }
        Ok(())
    }
}

impl Extracted {
    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self.is_interrupted {
            true => Exit::Interrupted,
            false => exit_of(self.bad.iter().map(|(_, fault)| fault)),
        }
    }
}

struct Run<'a> {
    writer: &'a TreeWriter<'a>,
    todo: &'a [usize],
    state: Mutex<State>,
}

impl Run<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_directories(&self, todo: &[usize]) -> Result<(), Failure> {
        for &item in
            todo.iter().filter(|item| self.writer.item(**item).kind == EntryKind::Directory)
        {
            let path = path_of(&self.writer.entries.path(item));
            let made = self.writer.directory.make_directory(&path);
            made.map_err(|e| self.writer.failed(&path, e))?;
        }
        Ok(())
    }

    /// The next files that are read together.
    fn take(&self) -> Option<&[usize]> {
        let mut state = self.lock();
        let rest = &self.todo[state.next..];
        if rest.is_empty() {
            return None;
        }
        let count = self.writer.entries.batch_len(rest);
        state.next += count;
        Some(&rest[..count])
    }

    fn write(&self, batch: &[usize], thread: &mut Thread) -> Result<(), Failure> {
        let writer = self.writer;
        if let [one] = batch {
            return self.write_one(*one, thread);
        }
        let read = writer.entries.read_batch(batch, &mut thread.scratch)?;
        for (&item, whole) in batch.iter().zip(read) {
            writer.interrupt.check()?;
            match whole {
                Err(fault) => self.lock().extracted.bad.push((item, fault)),
                Ok(whole) => self.place(item, &mut thread.directory, |file, _| {
                    Ok(file.write_all(whole.bytes.get(&thread.scratch.buffer))?)
                })?,
            }
            writer.progress.inc(writer.item(item).size_bytes);
        }
        Ok(())
    }

    fn write_one(&self, item: usize, thread: &mut Thread) -> Result<(), Failure> {
        let writer = self.writer;
        let size = writer.item(item).size_bytes;
        let mut bad = None;
        self.place(item, &mut thread.directory, |file, path| {
            let failed = |e| writer.failed(path, e);
            let streamed = writer.entries.stream(item, &mut thread.scratch, &mut |chunk| {
                writer.interrupt.check()?;
                match chunk {
                    Chunk::Data(bytes) => file.write_all(bytes).map_err(failed)?,
                    Chunk::Hole(length) => {
                        file.seek(SeekFrom::Current(length.cast_signed())).map_err(failed)?;
                    }
                }
                writer.progress.inc(chunk.len());
                Ok(())
            });
            match streamed {
                Ok(()) => Ok(file.set_len(size)?),
                Err(Stop::Failed(failure)) => Err(Unplaced::Failed(failure)),
                Err(Stop::Bad(fault)) => {
                    bad = Some(fault);
                    Err(Unplaced::Bad)
                }
            }
        })?;
        if let Some(fault) = bad {
            self.lock().extracted.bad.push((item, fault));
        }
        Ok(())
    }

    /// Makes a file, fills it, and gives it its name.
    fn place(
        &self,
        item: usize,
        directory: &mut LastDirectory,
        fill: impl FnOnce(&mut File, &Path) -> Result<(), Unplaced>,
    ) -> Result<(), Failure> {
        let (writer, path) = (self.writer, path_of(&self.writer.entries.path(item)));
        let failed = |e| writer.failed(&path, e);
        let EntryMetadata { mode, modified, .. } = writer.entries.metadata(item)?;
        let directory = directory.open(&writer.directory, &path, true).map_err(failed)?;
        let temporary = Temporary::new(directory);
        let mut file = directory.make_file(&temporary.name).map_err(failed)?;
        match fill(&mut file, &path) {
            Ok(()) => {}
            Err(Unplaced::Bad) => return Ok(()),
            Err(Unplaced::Failed(failure)) => return Err(failure),
            Err(Unplaced::Unwritten(error)) => return Err(failed(error)),
        }
        if mode.is_some_and(|mode| mode & SPECIAL_BITS != 0) {
            self.lock().extracted.special += 1;
        }
        let finish = |file, modified: Modified| -> io::Result<bool> {
            let keeps_mode = beneath::set(&file, mode.map(|mode| mode & !SPECIAL_BITS), modified)?;
            beneath::close(file)?;
            temporary.give_name(name_of(&path), writer.existing.overwrite)?;
            Ok(keeps_mode)
        };
        if !finish(file, modified).map_err(failed)? {
            self.lock().extracted.unkept_modes += 1;
        }
        Ok(())
    }
}

/// Why a file did not get its name.
enum Unplaced {
    /// Its bytes are wrong.
    Bad,
    Failed(Failure),
    Unwritten(io::Error),
}

impl From<io::Error> for Unplaced {
    fn from(error: io::Error) -> Self {
        Unplaced::Unwritten(error)
    }
}

fn is_directory(found: &FileStat) -> bool {
    found.st_mode & libc::S_IFMT == libc::S_IFDIR
}

/// Whether a file system may have kept this modification time so: in steps of 1 ns, 100 ns (NTFS), 1 µs, 1 ms, 10 ms (exFAT),
/// 1 s (ext3) or 2 s (vfat), and cut off. exFAT and vfat begin in 1980, in a time zone.
fn is_kept_as((seconds, nanos): Modified, kept: (i64, i64)) -> bool {
    const STEPS: [i64; 6] = [1, 100, 1_000, 1_000_000, 10_000_000, 1_000_000_000];
    const YEAR_1980: i64 = 315_532_800;
    const DAY: u64 = 86_400;
    let nanos = i64::from(nanos);
    let is_first = seconds < YEAR_1980 && kept.0.abs_diff(YEAR_1980) <= DAY;
    let mut times = STEPS.iter().map(|step| (seconds, nanos - nanos % step));
    is_first || times.any(|time| time == kept) || kept == (seconds - seconds.rem_euclid(2), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_known_again_however_coarsely_it_was_kept() {
        let modified = (1_700_000_001, 987_654_321);
        for nanos in [987_654_321, 987_654_300, 987_654_000, 987_000_000, 980_000_000, 0] {
            assert!(is_kept_as(modified, (1_700_000_001, nanos)), "{nanos}");
        }
        assert!(is_kept_as(modified, (1_700_000_000, 0)));
        assert!(is_kept_as((-1, 5), (-2, 0)), "before 1970");
        assert!(is_kept_as((0, 0), (315_532_800 - 3600, 0)), "1980, an hour east");
        for other in [
            (1_700_000_001, 987_654_322),
            (1_700_000_001, 900_000_000),
            (1_700_000_000, 987_654_321),
            (1_700_000_002, 0),
            (1_699_999_999, 0),
        ] {
            assert!(!is_kept_as(modified, other), "{other:?}");
        }
        assert!(!is_kept_as((1_700_000_000, 0), (1_699_999_998, 0)));
    }
}
