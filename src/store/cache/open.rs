//! Opening an entry's files, and making them. Imports `directory`, `key`, `map`, `meta`, `state`
//! and `usage`.

use super::directory::{Directory, Paths, open_plain};
use super::key::EntryId;
use super::map::{self, HEAD_BYTES, Records};
use super::meta::Meta;
use super::state::{MapFile, MapVersion, read_up_to};
use super::usage::FILE_BYTES;
use crate::io::{File, Io, Pool};
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// The files of an entry.
pub(super) struct Files {
    pub(super) file: File,
    pub(super) map: MapFile,
}

/// Opens the files of an entry. `None` if they are missing or unusable. The caller has locked the directory.
pub(super) fn open(
    paths: &Paths,
    id: &EntryId,
    length_bytes: u64,
    pool: &Arc<Pool>,
    boot: &[u8],
) -> io::Result<Option<Files>> {
    let (Ok(data), Ok(map)) = (open_plain(&paths.data, false), open_plain(&paths.map, false))
    else {
        return Ok(None);
    };
    let found = data.metadata()?;
    let mut head = [0; HEAD_BYTES];
    let is_usable = found.len() == length_bytes
        && read_up_to(&map, &mut head, 0) == HEAD_BYTES
        && head == map::header(id, length_bytes);
    if !is_usable {
        return Ok(None);
    }
    let records = records(id, &data, boot)?;
    let version = MapVersion::from(&map.metadata()?);
    // A block that was just fetched is in the page cache; a direct read would first have to write it to the disk.
    let is_full = found.blocks() * 512 >= length_bytes;
    let mut file = File::filled(data, paths.data.as_path())?;
    file.set_io(if is_full { Io::Auto } else { Io::Buffered })?;
    file.share(pool)?;
    Ok(Some(Files { file, map: MapFile { records, version } }))
}

/// Makes the files of an entry, in place of unusable ones. The caller has locked the directory exclusively.
pub(super) fn make(
    directory: &Directory,
    paths: &Paths,
    id: &EntryId,
    meta: &Meta,
) -> io::Result<()> {
    directory.create(&paths.data, true)?.set_len(meta.length_bytes)?;
    directory.create(&paths.meta, true)?.write_all_at(&meta.to_json(), 0)?;
    directory.create(&paths.usage, true)?.write_all_at(&[0; FILE_BYTES], 0)?;
    let map = directory.create(&paths.map, true)?;
    map.set_len(map::record_range(map::blocks_of(meta.length_bytes)).start)?;
    map.write_all_at(&map::header(id, meta.length_bytes), 0)
}

/// Records that the entry is in use now.
pub(super) fn touch(meta: &Path) {
    let now = TimeSpec::UTIME_NOW;
    let _ = utimensat(nix::fcntl::AT_FDCWD, meta, &now, &now, UtimensatFlags::NoFollowSymlink);
}

/// The codec for the records of an entry with this data file. Blocks that were written into this file since the machine
/// booted need no check.
pub(super) fn records(id: &EntryId, data: &fs::File, boot: &[u8]) -> io::Result<Records> {
    Ok(Records::new(id, epoch(boot, data.metadata()?.ino())))
}

/// Identifies the current boot of the machine.
pub(super) fn boot() -> Vec<u8> {
    fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| {
        // Without a boot id each process checks the blocks again.
        format!("{} {:?}", std::process::id(), SystemTime::now()).into_bytes()
    })
}

fn epoch(boot: &[u8], data_inode: u64) -> u64 {
    let mut hash = blake3::Hasher::new();
    hash.update(boot);
    hash.update(&data_inode.to_le_bytes());
    let [a, b, c, d, e, f, g, h, ..] = *hash.finalize().as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}
