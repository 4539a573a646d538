//! The structures of `linux/fuse.h` that requests and answers consist of, in native byte order. Imports the
//! vfs's attributes, to lay them out; nothing else.
//!
//! Structures and fields are called as in that header, without `fuse_`; `tests/suite/wire.rs` compares their
//! sizes and offsets with it. Those of io_uring's own are in [`crate::io::ring`].
#![expect(missing_docs, reason = "linux/fuse.h documents the structures and their fields")]

use crate::vfs::{self, FileKind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Operation codes.
pub(super) mod op {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
}

/// Bits of [`SetattrIn::valid`].
pub(super) mod valid {
    pub(crate) const MODE: u32 = 1;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
}

/// Bits of [`IoctlIn::flags`].
pub(super) mod ioctl {
    pub(crate) const UNRESTRICTED: u32 = 1 << 1;
}

/// Bits of [`InitIn::flags`], and above them those of [`InitIn::flags2`].
pub(super) mod init {
    pub(crate) const ASYNC_READ: u64 = 1;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const HAS_RESEND: u64 = 1 << 39;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// Notices to the kernel: they have the place of an answer's error.
pub(super) mod notice {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const STORE: i32 = 4;
    pub(crate) const RESEND: i32 = 7;
}

/// Bits of [`OpenOut::open_flags`].
pub(super) mod fopen {
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    pub(crate) const CACHE_DIR: u32 = 1 << 3;
    pub(crate) const NOFLUSH: u32 = 1 << 5;
}

/// Declares structures as C lays them out, which can be read from bytes and written as bytes.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty),+ $(,)? })+) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
            #[repr(C)]
            pub struct $name { $(pub $field: $kind),+ }
        )+
    };
}

structures! {
    Attr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr,
    }
    /// A name follows, and zeros up to a multiple of eight bytes.
    Dirent { ino: u64, off: u64, namelen: u32, r#type: u32 }
    Direntplus { entry_out: EntryOut, dirent: Dirent }
    Kstatfs {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64,
        bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6],
    }
    StatfsOut { st: Kstatfs }
    /// Kernels before 7.36 send the first 16 bytes.
    InitIn {
        major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11],
    }
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32,
        max_background: u16, congestion_threshold: u16, max_write: u32, time_gran: u32,
        max_pages: u16, map_alignment: u16, flags2: u32, unused: [u32; 7],
    }
    ForgetIn { nlookup: u64 }
    /// That many [`ForgetOne`] follow.
    BatchForgetIn { count: u32, dummy: u32 }
    ForgetOne { nodeid: u64, nlookup: u64 }
    /// The request that is interrupted.
    InterruptIn { unique: u64 }
    /// The bytes follow.
    NotifyStoreOut { nodeid: u64, offset: u64, size: u32, padding: u32 }
    NotifyInvalInodeOut { ino: u64, off: i64, len: i64 }
    OpenIn { flags: u32, open_flags: u32 }
    OpenOut { fh: u64, open_flags: u32, padding: u32 }
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    ReadIn {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteIn {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteOut { size: u32, padding: u32 }
    GetxattrIn { size: u32, padding: u32 }
    GetxattrOut { size: u32, padding: u32 }
    IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    LseekOut { offset: u64 }
}

/// The size of a read that `stat` recommends: large enough that a small file takes one read.
pub(super) const PREFERRED_READ_BYTES: u32 = 64 << 10;

const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;

impl Attr {
    fn new(attr: &vfs::Attr) -> Self {
        let since = attr.modified.duration_since(UNIX_EPOCH);
        let (seconds, nanos) = match since {
            Ok(since) => (since.as_secs().cast_signed(), since.subsec_nanos()),
            Err(before) => before_epoch(before.duration()),
        };
        let seconds = seconds.cast_unsigned();
        Self {
            ino: attr.shown_ino,
            size: attr.size,
            blocks: attr.stored_bytes.div_ceil(512),
            atime: seconds,
            mtime: seconds,
            ctime: seconds,
            atimensec: nanos,
            mtimensec: nanos,
            ctimensec: nanos,
            mode: file_type(attr.kind) | u32::from(attr.mode),
            nlink: attr.links,
            uid: attr.uid,
            gid: attr.gid,
            rdev: 0,
            blksize: PREFERRED_READ_BYTES,
            flags: 0,
        }
    }
}

impl AttrOut {
    /// Attributes that the kernel may keep for `valid`.
    pub(super) fn new(attr: &vfs::Attr, valid: Duration) -> Self {
        Self {
            attr_valid: valid.as_secs(),
            attr_valid_nsec: valid.subsec_nanos(),
            dummy: 0,
            attr: Attr::new(attr),
        }
    }
}

impl EntryOut {
    /// An entry that the kernel may keep for `valid`, with its attributes.
    pub(super) fn new(attr: &vfs::Attr, valid: Duration) -> Self {
        Self {
            nodeid: attr.ino,
            // Inode numbers are never used again.
            generation: 0,
            entry_valid: valid.as_secs(),
            attr_valid: valid.as_secs(),
            entry_valid_nsec: valid.subsec_nanos(),
            attr_valid_nsec: valid.subsec_nanos(),
            attr: Attr::new(attr),
        }
    }
}

impl StatfsOut {
    /// The totals of a file system without free space.
    pub(super) fn new(totals: &vfs::Totals) -> Self {
        let (blocks, files) = (totals.bytes.div_ceil(BLOCK_BYTES.into()), totals.files);
        let (bsize, namelen, frsize) = (PREFERRED_BLOCK_BYTES, MAX_NAME_BYTES, BLOCK_BYTES);
        Self { st: Kstatfs { blocks, files, bsize, namelen, frsize, ..Kstatfs::default() } }
    }
}

/// The unit of `statfs`'s counts.
pub(super) const BLOCK_BYTES: u32 = 512;
/// The size of a transfer, as `statfs` recommends it.
pub(super) const PREFERRED_BLOCK_BYTES: u32 = 4096;
/// The longest name that `statfs` tells of.
pub(super) const MAX_NAME_BYTES: u32 = 255;

/// Writes structures and bytes one after another.
pub(super) struct Out<'a> {
    bytes: &'a mut [u8],
    length: usize,
}

impl<'a> Out<'a> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, length: 0 }
    }

    /// How many bytes were written.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        self.bytes[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }

    pub(super) fn structure(&mut self, structure: &(impl IntoBytes + Immutable)) {
        self.bytes(structure.as_bytes());
    }

    /// Writes a directory entry, in a [`Direntplus`] if `attr` is given with the time that it is valid for. Returns false, and
    /// writes nothing, if the entry does not fit into `limit` bytes in all.
    pub(super) fn entry(
        &mut self,
        limit: usize,
        entry: &vfs::Listed,
        attr: Option<(&vfs::Attr, Duration)>,
    ) -> bool {
        let before = attr.map_or(0, |_| size_of::<EntryOut>());
        let padded = (size_of::<Dirent>() + entry.name.len()).next_multiple_of(8);
        if self.length + before + padded > limit.min(self.bytes.len()) {
            return false;
        }
        if let Some((attr, valid)) = attr {
            self.structure(&EntryOut::new(attr, valid));
        }
        self.structure(&Dirent {
            ino: attr.map_or(entry.ino, |(attr, _)| attr.shown_ino),
            off: entry.next,
            namelen: entry.name.len() as u32,
            r#type: file_type(entry.kind) >> 12,
        });
        self.bytes(entry.name);
        self.bytes(&[0; 8][..padded - size_of::<Dirent>() - entry.name.len()]);
        true
    }
}

fn file_type(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => S_IFREG,
        FileKind::Directory => S_IFDIR,
        FileKind::Symlink => S_IFLNK,
    }
}

fn before_epoch(before: Duration) -> (i64, u32) {
    match (before.as_secs().cast_signed(), before.subsec_nanos()) {
        (seconds, 0) => (-seconds, 0),
        (seconds, nanos) => (-seconds - 1, 1_000_000_000 - nanos),
    }
}

/// Attributes of no file: with an entry whose inode is 0 the kernel remembers that a name does not exist.
pub(super) const ABSENT: vfs::Attr = vfs::Attr {
    ino: 0,
    shown_ino: 0,
    kind: FileKind::File,
    size: 0,
    stored_bytes: 0,
    mode: 0,
    links: 0,
    uid: 0,
    gid: 0,
    modified: SystemTime::UNIX_EPOCH,
};
