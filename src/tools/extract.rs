//! Members → files in a folder, several at a time. Each gets its name when it is whole and checked.
//!
//! Symbolic links are made last, and none is ever followed: whatever a container holds, nothing is written
//! outside of the folder.

use crate::failure::{Exit, Failure, say};
use crate::format::Fault;
use crate::io::beneath::{self, Beneath, Modified};
use crate::tools::entries::{Entries, Entry, EntryKind, EntryMetadata, total_bytes};
use crate::tools::interrupt::Interrupt;
use crate::tools::reader::{Chunk, Scratch, Stop, exit_of, for_each};
use indicatif::ProgressBar;
use nix::sys::stat::FileStat;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bits that give rights of others than the reader: they are not taken from a container.
const SPECIAL_BITS: u16 = 0o7000;

/// What is done where there is a file already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Existing {
    /// It is replaced.
    pub(crate) overwrite: bool,
    /// It is left if it has the right size and time.
    pub(crate) resume: bool,
}

/// Writes members to a folder.
pub(crate) struct Files<'a> {
    pub(crate) entries: &'a dyn Entries,
    /// The folder, as it is called.
    pub(crate) root: &'a Path,
    pub(crate) folder: Beneath,
    pub(crate) existing: Existing,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) progress: ProgressBar,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Those that are bad, by item.
    pub(crate) bad: Vec<(usize, Fault)>,
    /// Files that were written without their set-user-ID, set-group-ID or sticky bit.
    pub(crate) special: u64,
    pub(crate) is_interrupted: bool,
}

/// What the threads share.
#[derive(Default)]
struct State {
    next: usize,
    outcome: Outcome,
}

/// What a thread keeps from one batch to the next.
#[derive(Default)]
struct Thread {
    scratch: Scratch,
    above: Above,
}

impl Files<'_> {
    /// Writes all members; `is_empty`: there is nothing in the folder yet.
    pub(crate) fn write(&self, jobs: usize, is_empty: bool) -> Result<Outcome, Failure> {
        let all: Vec<usize> = (0..self.entries.list().len()).collect();
        let todo = if is_empty { all } else { self.missing(all)? };
        let is_file = |item: &usize| self.item(*item).kind == EntryKind::File;
        let files: Vec<usize> = todo.iter().copied().filter(is_file).collect();
        self.progress.set_length(total_bytes(files.iter().map(|item| self.item(*item))));
        let run = Run { files: self, todo: &files, state: Mutex::default() };
        run.make_folders(&todo)?;
        let written = for_each(jobs, self.interrupt, &|| Ok(run.take()), &|batch, thread| {
            run.write(batch, thread)
        });
        let mut state = run.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.progress.finish_and_clear();
        match written {
            Err(failure) if failure.exit == Exit::Interrupted => {
                state.outcome.is_interrupted = true;
            }
            written => written?,
        }
        state.outcome.bad.sort_by_key(|(item, _)| *item);
        state.outcome.is_interrupted |= self.interrupt.requested();
        if !state.outcome.is_interrupted {
            self.write_links(&todo, &mut state.outcome)?;
            self.finish_folders(&todo)?;
        }
        Ok(state.outcome)
    }

    fn item(&self, item: usize) -> Entry {
        self.entries.list()[item]
    }

    fn failed(&self, path: &Path, error: io::Error) -> Failure {
        let error = match error.raw_os_error() {
            Some(libc::ELOOP | libc::EXDEV) => {
                io::Error::other("a symbolic link is in the way; it is not followed")
            }
            Some(libc::EEXIST) => io::Error::other("is there already (--overwrite replaces it)"),
            _ => error,
        };
        Failure::output(self.root.join(path).display(), error)
    }

    /// What is not there yet. What is in the way is refused before anything is written.
    fn missing(&self, all: Vec<usize>) -> Result<Vec<usize>, Failure> {
        let (mut missing, mut in_the_way) = (Vec::new(), Vec::new());
        let mut above = Above::default();
        for item in all {
            let path = path_of(&self.entries.path(item));
            let found = match above.open(&self.folder, &path, false) {
                Ok(folder) => folder.look(name_of(&path)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(e) => Err(e),
            };
            match found.map_err(|e| self.failed(&path, e))? {
                None => missing.push(item),
                Some(found)
                    if is_folder(&found) && self.item(item).kind == EntryKind::Directory =>
                {
                    missing.push(item);
                }
                Some(found) if self.existing.resume && self.is_same(item, &found)? => {}
                Some(found) if self.existing.overwrite && !is_folder(&found) => missing.push(item),
                Some(_) => in_the_way.push(path),
            }
        }
        let Some(first) = in_the_way.first() else { return Ok(missing) };
        let and_more = match in_the_way.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let why = format!(
            "is there already{and_more}; nothing was written (--overwrite replaces files, --resume \
             leaves those that are whole)"
        );
        Err(Failure::output(self.root.join(first).display(), io::Error::other(why)))
    }

    /// Whether it was written before: files have their name only when they are whole, and their time.
    fn is_same(&self, item: usize, found: &FileStat) -> Result<bool, Failure> {
        let (entry, metadata) = (self.item(item), self.entries.metadata(item)?);
        let kind = found.st_mode & libc::S_IFMT;
        let is_timed = found.st_mtime == metadata.modified.0
            && [0, i64::from(metadata.modified.1)].contains(&found.st_mtime_nsec);
        Ok(match entry.kind {
            EntryKind::Directory => false,
            EntryKind::Symlink => kind == libc::S_IFLNK,
            EntryKind::File | EntryKind::HardLink(_) => {
                let size = found.st_size.unsigned_abs();
                kind == libc::S_IFREG && size == entry.size_bytes && is_timed
            }
        })
    }

    fn write_links(&self, todo: &[usize], outcome: &mut Outcome) -> Result<(), Failure> {
        let mut above = Above::default();
        for &item in todo {
            let is_bad = |first| outcome.bad.iter().any(|(bad, _)| *bad == first);
            let path = path_of(&self.entries.path(item));
            let made = match self.item(item).kind {
                EntryKind::File | EntryKind::Directory => continue,
                EntryKind::HardLink(first) if is_bad(first) => continue,
                EntryKind::HardLink(first) => {
                    let first = path_of(&self.entries.path(first));
                    self.make(&mut above, &path, |folder, name| {
                        let of = self.folder.folder(first.parent().unwrap_or(Path::new("")))?;
                        folder.make_hard_link(name, &of, name_of(&first))
                    })
                }
                EntryKind::Symlink => {
                    let EntryMetadata { target, modified, .. } = self.entries.metadata(item)?;
                    self.make(&mut above, &path, |folder, name| {
                        folder.make_symlink(name, Path::new(OsStr::from_bytes(&target)), modified)
                    })
                }
            };
            made.map_err(|e| self.failed(&path, e))?;
        }
        Ok(())
    }

    /// Makes something under a temporary name, and then gives it its own.
    fn make(
        &self,
        above: &mut Above,
        path: &Path,
        make: impl FnOnce(&Beneath, &Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let folder = above.open(&self.folder, path, true)?;
        if !self.existing.overwrite {
            return make(folder, name_of(path));
        }
        let temporary = Temporary::new(folder);
        make(folder, &temporary.name)?;
        temporary.give_name(name_of(path), true)
    }

    /// Folders get their permissions and times when nothing is put in them any more.
    fn finish_folders(&self, todo: &[usize]) -> Result<(), Failure> {
        for &item in todo.iter().rev().filter(|item| self.item(**item).kind == EntryKind::Directory)
        {
            let (path, metadata) =
                (path_of(&self.entries.path(item)), self.entries.metadata(item)?);
            let folder = self.folder.folder(&path);
            let mode = metadata.mode.map(|mode| mode & !SPECIAL_BITS);
            folder
                .and_then(|folder| folder.set(mode, metadata.modified))
                .map_err(|e| self.failed(&path, e))?;
        }
        Ok(())
    }

    /// Says which files are bad; the exit code.
    pub(crate) fn report(&self, outcome: &Outcome) -> Exit {
        for (item, fault) in &outcome.bad {
            let path = self.entries.path(*item);
            say(format_args!("ffrfs: {}: {fault}", String::from_utf8_lossy(&path)));
        }
        if outcome.special > 0 {
            say(format_args!(
                "ffrfs: {} files without their set-user-ID, set-group-ID or sticky bit",
                outcome.special
            ));
        }
        match outcome.is_interrupted {
            true => Exit::Interrupted,
            false => exit_of(outcome.bad.iter().map(|(_, fault)| fault)),
        }
    }
}

struct Run<'a> {
    files: &'a Files<'a>,
    todo: &'a [usize],
    state: Mutex<State>,
}

impl Run<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_folders(&self, todo: &[usize]) -> Result<(), Failure> {
        for &item in todo.iter().filter(|item| self.files.item(**item).kind == EntryKind::Directory)
        {
            let path = path_of(&self.files.entries.path(item));
            let made = self.files.folder.make_folder(&path);
            made.map_err(|e| self.files.failed(&path, e))?;
        }
        Ok(())
    }

    /// The next files, to be read together.
    fn take(&self) -> Option<&[usize]> {
        let mut state = self.lock();
        let rest = &self.todo[state.next..];
        if rest.is_empty() {
            return None;
        }
        let count = self.files.entries.batch_len(rest);
        state.next += count;
        Some(&rest[..count])
    }

    fn write(&self, batch: &[usize], thread: &mut Thread) -> Result<(), Failure> {
        let files = self.files;
        if let [one] = batch {
            return self.write_one(*one, thread);
        }
        let read = files.entries.read_batch(batch, &mut thread.scratch)?;
        for (&item, whole) in batch.iter().zip(read) {
            files.interrupt.check()?;
            match whole {
                Err(fault) => self.lock().outcome.bad.push((item, fault)),
                Ok(whole) => self.place(item, &mut thread.above, |file, _| {
                    Ok(file.write_all(whole.bytes.get(&thread.scratch.buffer))?)
                })?,
            }
            files.progress.inc(files.item(item).size_bytes);
        }
        Ok(())
    }

    fn write_one(&self, item: usize, thread: &mut Thread) -> Result<(), Failure> {
        let files = self.files;
        let size = files.item(item).size_bytes;
        let mut bad = None;
        self.place(item, &mut thread.above, |file, path| {
            let failed = |e| files.failed(path, e);
            let streamed = files.entries.stream(item, &mut thread.scratch, &mut |chunk| {
                files.interrupt.check()?;
                match chunk {
                    Chunk::Data(bytes) => file.write_all(bytes).map_err(failed)?,
                    Chunk::Hole(length) => {
                        file.seek(SeekFrom::Current(length.cast_signed())).map_err(failed)?;
                    }
                }
                files.progress.inc(chunk.len());
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
            self.lock().outcome.bad.push((item, fault));
        }
        Ok(())
    }

    /// Makes a file, has it filled, and gives it its name.
    fn place(
        &self,
        item: usize,
        above: &mut Above,
        fill: impl FnOnce(&mut File, &Path) -> Result<(), Unplaced>,
    ) -> Result<(), Failure> {
        let (files, path) = (self.files, path_of(&self.files.entries.path(item)));
        let failed = |e| files.failed(&path, e);
        let EntryMetadata { mode, modified, .. } = files.entries.metadata(item)?;
        let folder = above.open(&files.folder, &path, true).map_err(failed)?;
        let temporary = Temporary::new(folder);
        let mut file = folder.make_file(&temporary.name).map_err(failed)?;
        match fill(&mut file, &path) {
            Ok(()) => {}
            Err(Unplaced::Bad) => return Ok(()),
            Err(Unplaced::Failed(failure)) => return Err(failure),
            Err(Unplaced::Unwritten(error)) => return Err(failed(error)),
        }
        if mode.is_some_and(|mode| mode & SPECIAL_BITS != 0) {
            self.lock().outcome.special += 1;
        }
        let finish = |file, modified: Modified| -> io::Result<()> {
            beneath::set(&file, mode.map(|mode| mode & !SPECIAL_BITS), modified)?;
            beneath::close(file)?;
            temporary.give_name(name_of(&path), files.existing.overwrite)
        };
        finish(file, modified).map_err(failed)
    }
}

/// Why a file does not get its name.
enum Unplaced {
    /// Its bytes are not what they should be.
    Bad,
    Failed(Failure),
    Unwritten(io::Error),
}

impl From<io::Error> for Unplaced {
    fn from(error: io::Error) -> Self {
        Unplaced::Unwritten(error)
    }
}

/// The folder that was used last: the next file is mostly in it, too.
#[derive(Default)]
struct Above(Option<(PathBuf, Beneath)>);

impl Above {
    /// The folder that `path` lies in.
    fn open(&mut self, root: &Beneath, path: &Path, makes: bool) -> io::Result<&Beneath> {
        let wanted = path.parent().unwrap_or(Path::new(""));
        if self.0.as_ref().is_none_or(|(path, _)| path != wanted) {
            let opened = if makes { root.make_folder(wanted)? } else { root.folder(wanted)? };
            self.0 = Some((wanted.to_owned(), opened));
        }
        match &self.0 {
            Some((_, folder)) => Ok(folder),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// A name that nothing has; what gets it is removed unless it gets another one.
struct Temporary<'a> {
    folder: &'a Beneath,
    name: PathBuf,
    is_named: std::cell::Cell<bool>,
}

impl<'a> Temporary<'a> {
    fn new(folder: &'a Beneath) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".ffrfs-{}-{number}", std::process::id()).into();
        Self { folder, name, is_named: false.into() }
    }

    fn give_name(&self, name: &Path, replaces: bool) -> io::Result<()> {
        self.folder.rename(&self.name, name, replaces)?;
        self.is_named.set(true);
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_named.get() {
            let _ = self.folder.remove(&self.name);
        }
    }
}

fn is_folder(found: &FileStat) -> bool {
    found.st_mode & libc::S_IFMT == libc::S_IFDIR
}

fn path_of(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}

fn name_of(path: &Path) -> &Path {
    Path::new(path.file_name().unwrap_or_default())
}
