//! Writes the entries of containers or of a directory as another container or as a directory.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `gathered` | entries in an order in which the files of each sample stand together |
//! | `shards` | which entries go to which of several outputs |
//! | `ordered` | files read by several threads, delivered in order |
//! | `write` | entries in order as containers |
//! | `losses` | what the format of the output cannot hold |

mod gathered;
mod losses;
mod ordered;
mod shards;
mod write;

use gathered::Gathered;
pub(crate) use losses::Losses;
use shards::grouping;
pub(crate) use shards::{Cut, MAX_SHARDS, cut, is_numbered, shard_names, summary};
pub(crate) use write::WriteContainers;

use crate::failure::{Exit, Failure};
use crate::format::{Input, WriteFormat, WriteList};
use crate::interrupt::Interrupt;
use crate::io::files::beneath::Beneath;
use crate::tools::entries::{Entries, file_bytes};
use crate::tools::extract::{Existing, Extracted, TreeWriter};
use crate::tools::{output, progress};
use std::fs::{self, File};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How entries are written to another place.
pub(crate) struct Conversion<'a> {
    pub(crate) output: &'a Path,
    /// Whether samples are named by their numbers.
    pub(crate) is_numbered: bool,
    /// Whether times are cut to seconds.
    pub(crate) whole_seconds: bool,
    /// Whether an existing output is replaced.
    pub(crate) force: bool,
    pub(crate) threads: usize,
    pub(crate) interrupt: &'a Interrupt,
}

impl Conversion<'_> {
    /// Writes containers. Returns the properties that they could not hold, and their names.
    ///
    /// # Errors
    /// A file of `entries` is bad, the output cannot be written, or the user has interrupted the work; then there is no
    /// output.
    pub(crate) fn to_containers(
        &self,
        entries: &dyn Entries,
        format: &dyn WriteFormat,
        how: Cut,
    ) -> Result<(Losses, Vec<PathBuf>), Failure> {
        let gathered = match format.has_fields() {
            true => Gathered::new(entries, grouping(entries, self.is_numbered)),
            false => None,
        };
        let entries = gathered.as_ref().map_or(entries, |gathered| gathered as &dyn Entries);
        if let Some(list) = format.listed() {
            return self.to_listed(entries, format, list, how);
        }
        let write = self.writer(entries, format);
        let ranges = cut(entries, format, write.grouping, how)?;
        let names = match how {
            Cut::One => vec![self.output.to_owned()],
            Cut::Count(_) | Cut::Bytes(_) => shard_names(self.output, ranges.len()),
        };
        for name in &names {
            output::check_free(name, self.force)?;
        }
        Ok((write.all(&names, &ranges)?, names))
    }

    fn writer<'b>(
        &'b self,
        entries: &'b dyn Entries,
        format: &'b dyn WriteFormat,
    ) -> WriteContainers<'b> {
        WriteContainers {
            entries,
            format,
            is_numbered: self.is_numbered,
            grouping: grouping(entries, self.is_numbered),
            shown_in: None,
            last: None,
            whole_seconds: self.whole_seconds,
            threads: self.threads,
            force: self.force,
            interrupt: self.interrupt,
            progress: progress::of_bytes(file_bytes(entries)),
        }
    }

    /// Writes a directory of containers with a list of them, which gets its name only when it is whole.
    fn to_listed(
        &self,
        entries: &dyn Entries,
        format: &dyn WriteFormat,
        list: &dyn WriteList,
        how: Cut,
    ) -> Result<(Losses, Vec<PathBuf>), Failure> {
        let failed = |e| Failure::output(self.output.display(), e);
        self.check_directory()?;
        let how = match (how, NonZeroU64::new(list.container_bytes())) {
            (Cut::One, Some(bytes)) => Cut::Bytes(bytes),
            (how, _) => how,
        };
        let write = WriteContainers { shown_in: Some(self.output), ..self.writer(entries, format) };
        let ranges = cut(entries, format, write.grouping, how)?;
        let directory = output::directory_beside(self.output).map_err(failed)?;
        let name = |number| directory.path().join(list.container_name(number));
        let names: Vec<PathBuf> = (0..ranges.len()).map(name).collect();
        let losses = write.all(&names, &ranges)?;
        let open = |name: &PathBuf| Ok(Box::new(File::open(name)?) as Box<dyn Input>);
        let text = list.list(&mut names.iter().map(open)).map_err(failed)?;
        fs::write(directory.path().join(list.list_name()), text).map_err(failed)?;
        output::give_directory_name(directory, self.output, false).map_err(failed)?;
        Ok((losses, vec![self.output.to_owned()]))
    }

    /// Refuses a directory as output that has something in it.
    fn check_directory(&self) -> Result<(), Failure> {
        let failed = |e| Failure::output(self.output.display(), e);
        let is_free = match self.output.read_dir() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => true,
            listed => listed.map_err(failed)?.next().is_none(),
        };
        // The whole directory gets its name at the end: that of no mount, and of none that a process works in.
        let device = |path: &Path| path.metadata().map(|metadata| metadata.dev()).ok();
        let devices = device(self.output).zip(device(&self.output.join("..")));
        let is_mount = devices.is_some_and(|(own, above)| own != above);
        let mut names = self.output.as_os_str().as_bytes().rsplit(|&byte| byte == b'/');
        let is_dots = names
            .find(|name| !name.is_empty())
            .is_none_or(|name| [&b"."[..], b".."].contains(&name));
        // Without slashes at its end.
        let is_link = self.output.components().as_path().is_symlink();
        if self.output.is_dir() && (is_mount || is_dots || is_link) {
            let why = "a mount point, a link, or a directory that is named by dots, is not replaced: name a directory \
                       in it (`ffrfs extract` writes into one)";
            return Err(failed(io::Error::other(why)));
        }
        if is_free {
            return Ok(());
        }
        let why = "the directory is not empty (`ffrfs extract` adds to one)";
        Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, why)))
    }

    /// Writes a directory, which gets its name only if no file is bad.
    ///
    /// # Errors
    /// The directory is not empty, or cannot be written.
    pub(crate) fn to_directory(&self, entries: &dyn Entries) -> Result<Extracted, Failure> {
        let failed = |e| Failure::output(self.output.display(), e);
        self.check_directory()?;
        let directory = output::directory_beside(self.output).map_err(failed)?;
        let writer = TreeWriter {
            entries,
            root: directory.path(),
            directory: Beneath::open(directory.path()).map_err(failed)?,
            existing: Existing { overwrite: false, resume: false },
            interrupt: self.interrupt,
            progress: progress::of_bytes(file_bytes(entries)),
        };
        let extracted = writer.write(self.threads, true)?;
        if extracted.exit() == Exit::Ok {
            output::give_directory_name(directory, self.output, false).map_err(failed)?;
        }
        Ok(extracted)
    }
}
