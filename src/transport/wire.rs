//! Answers as the kernel's `linux/fuse.h` lays them out, written into a slice. Native byte order.

use crate::vfs::{Attr, FileKind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Operation codes.
pub(super) mod op {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const LSEEK: u32 = 46;
}

/// Bits of `fuse_setattr_in.valid`.
pub(super) mod valid {
    pub(crate) const MODE: u32 = 1;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
}

/// What `stat` recommends as size of a read: large enough that a small file takes one.
pub(super) const PREFERRED_READ_BYTES: u32 = 64 << 10;

const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;
const ENTRY_BYTES: usize = 128;
const DIRENT_BYTES: usize = 24;

/// Writes fields one behind the other.
pub(super) struct Out<'a> {
    bytes: &'a mut [u8],
    length: usize,
}

impl<'a> Out<'a> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, length: 0 }
    }

    /// How much was written.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        self.bytes[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_ne_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_ne_bytes());
    }

    fn attr(&mut self, attr: &Attr) {
        let since = attr.modified.duration_since(UNIX_EPOCH);
        let (seconds, nanos) = match since {
            Ok(since) => (since.as_secs().cast_signed(), since.subsec_nanos()),
            Err(before) => before_epoch(before.duration()),
        };
        self.u64(attr.ino);
        self.u64(attr.size);
        self.u64(attr.stored_bytes.div_ceil(512));
        (0..3).for_each(|_| self.u64(seconds.cast_unsigned()));
        (0..3).for_each(|_| self.u32(nanos));
        self.u32(file_type(attr.kind) | u32::from(attr.mode));
        self.u32(attr.links);
        self.u32(attr.uid);
        self.u32(attr.gid);
        self.u32(0);
        self.u32(PREFERRED_READ_BYTES);
        self.u32(0);
    }

    /// `fuse_attr_out`.
    pub(super) fn attr_out(&mut self, attr: &Attr, valid: Duration) {
        self.u64(valid.as_secs());
        self.u32(valid.subsec_nanos());
        self.u32(0);
        self.attr(attr);
    }

    /// `fuse_entry_out`.
    pub(super) fn entry(&mut self, attr: &Attr, valid: Duration) {
        self.u64(attr.ino);
        self.u64(0);
        (0..2).for_each(|_| self.u64(valid.as_secs()));
        (0..2).for_each(|_| self.u32(valid.subsec_nanos()));
        self.attr(attr);
    }

    /// `fuse_dirent`, behind a `fuse_entry_out` if `entry` is given. False, and nothing, if it does not fit
    /// into `limit` bytes in all.
    pub(super) fn dirent(
        &mut self,
        limit: usize,
        name: &[u8],
        next: u64,
        ino: u64,
        kind: FileKind,
        entry: Option<(&Attr, Duration)>,
    ) -> bool {
        let before = entry.map_or(0, |_| ENTRY_BYTES);
        let padded = (DIRENT_BYTES + name.len()).next_multiple_of(8);
        if self.length + before + padded > limit.min(self.bytes.len()) {
            return false;
        }
        if let Some((attr, valid)) = entry {
            self.entry(attr, valid);
        }
        self.u64(ino);
        self.u64(next);
        self.u32(name.len() as u32);
        self.u32(file_type(kind) >> 12);
        self.bytes(name);
        self.bytes(&[0; 8][..padded - DIRENT_BYTES - name.len()]);
        true
    }

    /// `fuse_ioctl_out` of a request that brings nothing back.
    pub(super) fn ioctl_out(&mut self) {
        (0..4).for_each(|_| self.u32(0));
    }

    /// `fuse_lseek_out`.
    pub(super) fn lseek_out(&mut self, offset_bytes: u64) {
        self.u64(offset_bytes);
    }

    /// `fuse_write_out`.
    pub(super) fn write_out(&mut self, bytes: u32) {
        self.u32(bytes);
        self.u32(0);
    }

    /// `fuse_statfs_out`.
    pub(super) fn statfs(&mut self, bytes: u64, files: u64) {
        self.u64(bytes.div_ceil(512));
        self.u64(0);
        self.u64(0);
        self.u64(files);
        self.u64(0);
        // Block size, longest name, fragment size, padding.
        [4096, 255, 512, 0].into_iter().for_each(|value| self.u32(value));
        self.bytes(&[0; 24]);
    }
}

fn file_type(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => S_IFREG,
        FileKind::Folder => S_IFDIR,
        FileKind::Symlink => S_IFLNK,
    }
}

fn before_epoch(before: Duration) -> (i64, u32) {
    match (before.as_secs().cast_signed(), before.subsec_nanos()) {
        (seconds, 0) => (-seconds, 0),
        (seconds, nanos) => (-seconds - 1, 1_000_000_000 - nanos),
    }
}

/// A u32 of an operation's header.
pub(super) fn u32_at(operation: &[u8; 128], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&operation[at..at + 4]);
    u32::from_ne_bytes(bytes)
}

/// A u64 of an operation's header.
pub(super) fn u64_at(operation: &[u8; 128], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&operation[at..at + 8]);
    u64::from_ne_bytes(bytes)
}

/// Attributes of no file: an entry with inode 0 makes the kernel remember that there is none.
pub(super) const ABSENT: Attr = Attr {
    ino: 0,
    kind: FileKind::File,
    size: 0,
    stored_bytes: 0,
    mode: 0,
    links: 0,
    uid: 0,
    gid: 0,
    modified: SystemTime::UNIX_EPOCH,
};
