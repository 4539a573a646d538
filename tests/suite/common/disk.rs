//! A disk that is slow or broken: a FUSE file system of the test's own, which shows one real file.

use super::{TempDir, temp_dir, unmount, write_container};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, Request,
};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

/// The faults of the disk.
#[derive(Default)]
struct Faults {
    delay_ms: AtomicU64,
    broken: Mutex<Range<u64>>,
    /// The number of reads that have not been answered yet.
    waiting: AtomicU64,
}

/// A container on such a disk.
pub(crate) struct Disk {
    directory: TempDir,
    faults: Arc<Faults>,
    session: Option<BackgroundSession>,
}

impl Disk {
    /// Writes these samples to a disk without faults.
    pub(crate) fn new(samples: &[impl AsRef<[u8]>]) -> Self {
        Self::showing(|path| write_container(path, samples))
    }

    /// A disk with the container that `write` writes, in any format.
    pub(crate) fn showing(write: impl FnOnce(&Path)) -> Self {
        let directory = temp_dir();
        let point = directory.path().join("disk");
        fs::create_dir(&point).unwrap();
        let path = directory.path().join("data.ffr");
        write(&path);
        let faults = Arc::new(Faults::default());
        let shown = Shown { file: File::open(&path).unwrap(), faults: Arc::clone(&faults) };
        let session = fuser::spawn_mount(shown, &point, &Config::default());
        Self { directory, faults, session: Some(session.expect("mount the disk")) }
    }

    /// The container, on the disk.
    pub(crate) fn container(&self) -> PathBuf {
        self.directory.path().join("disk/data.ffr")
    }

    /// The file of the container without the disk's faults.
    pub(crate) fn real(&self) -> PathBuf {
        self.directory.path().join("data.ffr")
    }

    /// Makes each read take this long from now on.
    pub(crate) fn slow_down(&self, delay: Duration) {
        self.faults.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }

    /// Makes reads of any of these bytes fail with EIO from now on.
    pub(crate) fn break_range(&self, range: Range<u64>) {
        *self.faults.broken.lock().unwrap() = range;
    }

    /// The number of reads that are under way.
    pub(crate) fn waiting(&self) -> u64 {
        self.faults.waiting.load(Ordering::Relaxed)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.slow_down(Duration::ZERO);
        let _ = unmount(&self.directory.path().join("disk"), true);
        drop(self.session.take());
    }
}

struct Shown {
    file: File,
    faults: Arc<Faults>,
}

const CONTAINER: u64 = 2;

impl Shown {
    fn attr(&self, ino: u64) -> FileAttr {
        let metadata = self.file.metadata().expect("its metadata");
        let is_file = ino == CONTAINER;
        let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
        FileAttr {
            ino: INodeNo(ino),
            size: if is_file { metadata.len() } else { 0 },
            blocks: 0,
            atime: modified,
            mtime: modified,
            ctime: modified,
            crtime: modified,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: if is_file { 0o644 } else { 0o755 },
            nlink: metadata.nlink() as u32,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        }
    }
}

impl Filesystem for Shown {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == "data.ffr" {
            true => reply.entry(&Duration::ZERO, &self.attr(CONTAINER), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::ZERO, &self.attr(ino.0));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = self.file.try_clone().expect("a descriptor");
        let faults = Arc::clone(&self.faults);
        // As the disk is when the request comes, whenever its thread gets a CPU.
        let delay_ms = faults.delay_ms.load(Ordering::Relaxed);
        faults.waiting.fetch_add(1, Ordering::Relaxed);
        let answer = move || {
            std::thread::sleep(Duration::from_millis(delay_ms));
            let broken = faults.broken.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let mut bytes = vec![0; size as usize];
            let read = file.read_at(&mut bytes, offset);
            faults.waiting.fetch_sub(1, Ordering::Relaxed);
            match read {
                Ok(count) if broken.end <= offset || offset + count as u64 <= broken.start => {
                    reply.data(&bytes[..count]);
                }
                _ => reply.error(Errno::EIO),
            }
        };
        match delay_ms {
            0 => answer(),
            _ => drop(std::thread::spawn(answer)),
        }
    }
}

/// A small file system that is unmounted with the value.
pub(crate) struct Tmpfs(PathBuf);

impl Tmpfs {
    pub(crate) fn new(point: PathBuf, size: &str) -> Self {
        fs::create_dir(&point).unwrap();
        let options = format!("size={size}");
        mount(Some("none"), &point, Some("tmpfs"), MsFlags::empty(), Some(&*options)).unwrap();
        Self(point)
    }

    /// The mount point.
    pub(crate) fn point(&self) -> &Path {
        &self.0
    }

    /// Makes the file system larger or smaller.
    pub(crate) fn resize(&self, size: &str) {
        let options = format!("size={size}");
        mount(Some("none"), &self.0, Some("tmpfs"), MsFlags::MS_REMOUNT, Some(&*options)).unwrap();
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}
