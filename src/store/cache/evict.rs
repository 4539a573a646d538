//! Listing the entries of a cache, and removing whole entries. Imports `directory`, `key` and `lease`.

use super::directory::Directory;
use super::key::EntryId;
use super::lease::in_use;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// The unit of `st_blocks`.
const SECTOR_BYTES: u64 = 512;

/// An entry, as described by its files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored {
    pub(super) id: EntryId,
    /// Disk space that its data file occupies.
    pub(super) bytes: u64,
    /// When it was last opened or closed.
    pub(super) last_used: SystemTime,
    pub(super) is_pinned: bool,
}

/// All entries with a data file.
pub(super) fn stored(directory: &Directory) -> io::Result<Vec<Stored>> {
    let mut entries = Vec::new();
    for found in fs::read_dir(directory.entries())? {
        let name = found?.file_name();
        let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(".data")) else {
            continue;
        };
        let Some(id) = EntryId::from_stem(stem) else { continue };
        // Another process may remove the entry meanwhile.
        entries.extend(entry(directory, id));
    }
    Ok(entries)
}

fn entry(directory: &Directory, id: EntryId) -> Option<Stored> {
    let paths = directory.paths(&id);
    let data = fs::symlink_metadata(&paths.data).ok()?;
    let meta = fs::symlink_metadata(&paths.meta).and_then(|meta| meta.modified());
    Some(Stored {
        id,
        bytes: data.blocks() * SECTOR_BYTES,
        last_used: meta.unwrap_or(SystemTime::UNIX_EPOCH),
        is_pinned: fs::symlink_metadata(&paths.pin).is_ok(),
    })
}

/// Removes entries that are neither open nor pinned, until `bytes` are freed: first other versions of objects that are
/// in use, then the least recently used entries. Returns the removed entries. Removes none if it is not known which ones are
/// open.
pub(super) fn evict(
    directory: &Directory,
    mut entries: Vec<Stored>,
    bytes: u64,
) -> io::Result<Vec<Stored>> {
    let locked = directory.lock_exclusively()?;
    let found = in_use(directory, true)?;
    if let Some(why) = found.unknown {
        static TOLD: Mutex<String> = Mutex::new(String::new());
        let (why, mut told) =
            (why.to_string(), TOLD.lock().unwrap_or_else(PoisonError::into_inner));
        if *told != why {
            let entries = directory.entries();
            tracing::warn!("{}: no object is evicted: cannot read {why}", entries.display());
            *told = why;
        }
        return Ok(Vec::new());
    }
    let used = found.entries;
    let objects: HashSet<&[u8]> = used.keys().map(EntryId::object).collect();
    entries.retain(|entry| !entry.is_pinned && !used.contains_key(&entry.id));
    entries.sort_by_key(|entry| (!objects.contains(entry.id.object()), entry.last_used));
    let mut freed = 0;
    entries.retain(|entry| {
        let is_victim = freed < bytes && discard(directory, &entry.id).is_ok();
        freed += if is_victim { entry.bytes } else { 0 };
        is_victim
    });
    drop(locked);
    empty_trash(directory);
    Ok(entries)
}

/// Takes an entry's files out of the cache. The caller has locked the directory exclusively, and empties the trash
/// after unlocking it, as deleting a large file takes long.
pub(super) fn discard(directory: &Directory, id: &EntryId) -> io::Result<()> {
    let paths = directory.paths(id);
    let entries = directory.open(&directory.entries())?;
    let trash = directory.open(&directory.trash())?;
    let name = |path: &Path| path.file_name().map(PathBuf::from).unwrap_or_default();
    let gone = |done: io::Result<()>| match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    // Without its map an entry is unusable, so a crash after this line is harmless.
    gone(entries.remove(&name(&paths.map)))?;
    // Data of this name that is in the trash already is being deleted.
    gone(entries.move_to(&name(&paths.data), &trash, &name(&paths.data)))?;
    for path in [&paths.meta, &paths.usage, &paths.pin] {
        gone(entries.remove(&name(path)))?;
    }
    Ok(())
}

/// Deletes the files in the trash, including those of processes that were killed.
pub(super) fn empty_trash(directory: &Directory) {
    let Ok(trash) = directory.open(&directory.trash()) else { return };
    for name in trash.names().unwrap_or_default() {
        let _ = trash.remove(Path::new(&name));
    }
}
