//! The entries of a directory tree, sorted by name within each directory.

use super::types::{Entries, Entry, EntryKind, EntryMetadata};
use crate::failure::Failure;
use crate::format::Fault;
use crate::interrupt::Interrupt;
use crate::tools::reader::{
    Chunk, FileBytes, SPAN_BYTES, Scratch, Stop, TakeChunk, WholeFile, reserve,
};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Deeper directories are refused: they are more likely a loop than a dataset, and readers refuse them as well.
const MAX_DEPTH: usize = 250;
/// The maximum number of files that are read together.
const MAX_TOGETHER: usize = 256;

/// A directory whose tree was walked.
pub(crate) struct DirectoryEntries {
    root: PathBuf,
    /// Whether links are followed, so that their targets replace them.
    follows: bool,
    entries: Vec<Entry>,
    stats: Vec<Stat>,
    names: Vec<u8>,
}

struct Stat {
    path: Range<usize>,
    mode: u16,
    modified: (i64, u32),
}

impl DirectoryEntries {
    /// Walks the tree of a directory, except names that `is_wanted` refuses; `None` if the user interrupts it.
    pub(crate) fn walk(
        root: &Path,
        follows: bool,
        interrupt: &Interrupt,
        is_wanted: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Option<Self>, Failure> {
        let (entries, stats, names) = (Vec::new(), Vec::new(), Vec::new());
        let tree = Self { root: root.to_owned(), follows, entries, stats, names };
        let (above, first_names) = (Vec::new(), HashMap::new());
        let mut walk = Walk { tree, above, first_names, interrupt, is_wanted };
        Ok(walk.directory(&mut Vec::new())?.then_some(walk.tree))
    }

    fn whole_path(&self, entry: usize) -> PathBuf {
        self.root.join(OsStr::from_bytes(&self.names[self.stats[entry].path.clone()]))
    }

    fn open(&self, entry: usize) -> io::Result<File> {
        // The file may have been replaced by a link to elsewhere, or by a pipe, on which `open` would block.
        let no_follow = if self.follows { 0 } else { libc::O_NOFOLLOW };
        let flags = no_follow | libc::O_NONBLOCK;
        OpenOptions::new().read(true).custom_flags(flags).open(self.whole_path(entry))
    }
}

struct Walk<'a> {
    tree: DirectoryEntries,
    /// The directories above the present one, to detect links to one of them.
    above: Vec<(u64, u64)>,
    /// Files with several names, by device and inode.
    first_names: HashMap<(u64, u64), usize>,
    interrupt: &'a Interrupt,
    is_wanted: &'a dyn Fn(&[u8]) -> bool,
}

impl Walk<'_> {
    /// False if the user interrupts it.
    fn directory(&mut self, path: &mut Vec<u8>) -> Result<bool, Failure> {
        let whole = self.tree.root.join(OsStr::from_bytes(path));
        let unreadable = |e| Failure::unreadable(whole.display(), e);
        let metadata = fs::metadata(&whole).map_err(unreadable)?;
        let identity = (metadata.dev(), metadata.ino());
        if self.above.contains(&identity) || self.above.len() >= MAX_DEPTH {
            return Err(unreadable(io::Error::other(
                "a link leads back, or directories are too deep",
            )));
        }
        let mut children = Vec::new();
        for entry in fs::read_dir(&whole).map_err(unreadable)? {
            children.push(entry.map_err(unreadable)?.file_name());
        }
        children.sort();
        self.above.push(identity);
        let length = path.len();
        for name in children {
            if self.interrupt.requested() {
                return Ok(false);
            }
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            if !self.child(path)? {
                return Ok(false);
            }
            path.truncate(length);
        }
        self.above.pop();
        Ok(true)
    }

    fn child(&mut self, path: &mut Vec<u8>) -> Result<bool, Failure> {
        let whole = self.tree.root.join(OsStr::from_bytes(path));
        let metadata = match self.tree.follows {
            true => fs::metadata(&whole),
            false => fs::symlink_metadata(&whole),
        };
        let metadata = metadata.map_err(|e| Failure::unreadable(whole.display(), e))?;
        let file_type = metadata.file_type();
        if file_type.is_dir() {
            let before = (self.tree.entries.len(), self.tree.names.len());
            self.add(path, EntryKind::Directory, &metadata);
            let is_whole = self.directory(path)?;
            if self.tree.entries.len() == before.0 + 1 && !(self.is_wanted)(path) {
                // Neither the directory nor an entry in it is wanted.
                self.tree.entries.truncate(before.0);
                self.tree.stats.truncate(before.0);
                self.tree.names.truncate(before.1);
            }
            return Ok(is_whole);
        }
        if !(self.is_wanted)(path) {
            return Ok(true);
        }
        if file_type.is_symlink() {
            self.add(path, EntryKind::Symlink, &metadata);
        } else if file_type.is_file() {
            let mut kind = EntryKind::File;
            if metadata.nlink() > 1 && !self.tree.follows {
                let number = self.tree.entries.len();
                let identity = (metadata.dev(), metadata.ino());
                let first = *self.first_names.entry(identity).or_insert(number);
                kind = if first == number { EntryKind::File } else { EntryKind::HardLink(first) };
            }
            self.add(path, kind, &metadata);
        } else {
            tracing::warn!("{}: left out: neither file nor directory", whole.display());
        }
        Ok(true)
    }

    fn add(&mut self, path: &[u8], kind: EntryKind, metadata: &Metadata) {
        let is_file = matches!(kind, EntryKind::File | EntryKind::HardLink(_));
        let size_bytes = if is_file { metadata.len() } else { 0 };
        let start = self.tree.names.len();
        self.tree.names.extend_from_slice(path);
        self.tree.entries.push(Entry { kind, size_bytes });
        self.tree.stats.push(Stat {
            path: start..self.tree.names.len(),
            mode: (metadata.mode() & 0o7777) as u16,
            modified: (metadata.mtime(), metadata.mtime_nsec() as u32),
        });
    }
}

impl Entries for DirectoryEntries {
    fn list(&self) -> &[Entry] {
        &self.entries
    }

    fn path(&self, entry: usize) -> Vec<u8> {
        self.names[self.stats[entry].path.clone()].to_vec()
    }

    fn metadata(&self, entry: usize) -> Result<EntryMetadata, Failure> {
        let stat = &self.stats[entry];
        let (mode, modified) = (Some(stat.mode), stat.modified);
        Ok(EntryMetadata { mode, modified, has_time: true, checksum: None })
    }

    fn link_target(&self, entry: usize) -> Result<Vec<u8>, Fault> {
        if self.entries[entry].kind != EntryKind::Symlink {
            return Ok(Vec::new());
        }
        let target = fs::read_link(self.whole_path(entry)).map_err(|e| Fault::of_io(&e))?;
        Ok(target.into_os_string().into_encoded_bytes())
    }

    fn batch_len(&self, entries: &[usize]) -> usize {
        let mut bytes = 0;
        let fits = |entry: &&usize| {
            bytes += self.entries[**entry].size_bytes;
            bytes <= SPAN_BYTES
        };
        entries.iter().take(MAX_TOGETHER).take_while(fits).count().max(1)
    }

    fn read_batch(
        &self,
        entries: &[usize],
        scratch: &mut Scratch,
    ) -> Result<Vec<Result<WholeFile, Fault>>, Failure> {
        let sizes = entries.iter().map(|entry| self.entries[*entry].size_bytes as usize);
        let total = sizes.clone().sum();
        if let Err(fault) = reserve(&mut scratch.buffer, total) {
            return Ok(entries.iter().map(|_| Err(fault.clone())).collect());
        }
        let mut rest = &mut scratch.buffer.as_mut_slice()[..total];
        let (mut results, mut start) = (Vec::with_capacity(entries.len()), 0);
        for (entry, size) in entries.iter().zip(sizes) {
            let (target, behind) = rest.split_at_mut(size);
            rest = behind;
            let read = self.open(*entry).and_then(|mut file| {
                file.read_exact(target)?;
                check_end(&mut file)
            });
            let read = read.map_err(|e| self.fault(*entry, &e));
            let bytes = FileBytes::InBuffer(start..start + size);
            let read = read.map(|()| WholeFile { bytes, checksum: None });
            results.push(read);
            start += size;
        }
        Ok(results)
    }

    fn stream(
        &self,
        entry: usize,
        scratch: &mut Scratch,
        take: &mut TakeChunk,
    ) -> Result<(), Stop> {
        let fault = |e: io::Error| self.fault(entry, &e);
        let mut file = self.open(entry).map_err(fault)?;
        let mut left = self.entries[entry].size_bytes;
        reserve(&mut scratch.buffer, SPAN_BYTES as usize)?;
        while left > 0 {
            let length = left.min(SPAN_BYTES) as usize;
            let target = &mut scratch.buffer.as_mut_slice()[..length];
            file.read_exact(target).map_err(fault)?;
            take(Chunk::Data(target))?;
            left -= length as u64;
        }
        Ok(check_end(&mut file).map_err(fault)?)
    }
}

impl DirectoryEntries {
    fn fault(&self, entry: usize, error: &io::Error) -> Fault {
        let why = match error.kind() {
            io::ErrorKind::UnexpectedEof => "it became shorter while it was read".to_owned(),
            _ => error.to_string(),
        };
        Fault::Unreadable(format!("{}: {why}", self.whole_path(entry).display()))
    }
}

/// Refuses a file that has grown since it was listed.
fn check_end(file: &mut File) -> io::Result<()> {
    match file.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(io::Error::other("it became longer while it was read")),
    }
}
