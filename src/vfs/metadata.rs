//! Everything but `read`: names, attributes, sizes. All of it is resident.

use super::inode::Inode;
use super::{Errno, FOREVER, Options, Vfs, control};
use crate::catalog::{Located, Node};
use crate::format::{Checksum, Content, Error, Kind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the names of our extended attributes begin with.
pub const XATTR_PREFIX: &str = "user.ffrfs.";

/// Their ends.
const XATTRS: [&str; 6] = ["container", "index", "offset", "length", "crc32", "verified"];

/// What an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Symlink,
}

/// Attributes of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: u64,
    /// What it is.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Bytes that it takes where it is stored, as `du` counts them: less than its size if it has holes.
    pub stored_bytes: u64,
    /// Permission bits.
    pub mode: u16,
    /// Names it has, as `stat` counts them.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// When it was last modified.
    pub modified: SystemTime,
}

/// The answer to a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// It is there, for as long as the mount.
    Found(Attr),
    /// It is there, and is another one at the next lookup.
    Passing(Attr),
    /// It is not there, and never will be.
    Absent,
}

impl Lookup {
    /// The inode, if there is one.
    #[must_use]
    pub fn ino(&self) -> Option<u64> {
        match self {
            Lookup::Found(attr) | Lookup::Passing(attr) => Some(attr.ino),
            Lookup::Absent => None,
        }
    }
}

/// An entry of a folder.
#[derive(Debug, Clone, Copy)]
pub struct Listed<'a> {
    /// Inode number.
    pub ino: u64,
    /// Where the listing goes on behind this entry.
    pub next: u64,
    /// The name.
    pub name: &'a [u8],
    /// What it is.
    pub kind: FileKind,
    /// Whether it is an entry of the dataset: its attributes may be kept.
    pub lasting: bool,
}

/// Sizes and counts of the whole mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of all samples.
    pub bytes: u64,
    /// Files and folders.
    pub files: u64,
}

impl Vfs {
    /// Whether an inode belongs to the control folder.
    #[must_use]
    pub fn is_control(&self, ino: u64) -> bool {
        !matches!(Inode::of(ino), Inode::Node(_))
    }

    /// Whether a name in a folder belongs to the control folder.
    #[must_use]
    pub fn is_control_name(&self, parent: u64, name: &[u8]) -> bool {
        self.is_control(parent) || (parent == 1 && name == control::FOLDER)
    }

    /// Finds a name in a folder.
    ///
    /// # Errors
    /// The parent is no folder; or the container cannot be read any more.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<Lookup, Errno> {
        match Inode::of(parent) {
            Inode::Node(Node::Folder(0)) if name == control::FOLDER => {
                self.attr_of(Inode::ControlFolder).map(Lookup::Found)
            }
            Inode::Node(Node::Folder(folder)) => {
                let found = self.catalog.lookup(&self.dataset, folder, name);
                match found.map_err(|e| self.name_error(&e))? {
                    Some(node) => {
                        let attr = self.attr_of(Inode::Node(node))?;
                        self.kernel_knows(attr.ino);
                        Ok(Lookup::Found(attr))
                    }
                    None => Ok(Lookup::Absent),
                }
            }
            Inode::ControlFolder => {
                Ok(self.lookup_control(name).map_or(Lookup::Absent, Lookup::Passing))
            }
            Inode::Node(Node::Sample(_)) | Inode::Snapshot(_) => Err(Errno::ENOTDIR),
        }
    }

    /// The kernel has dropped an inode that `lookups` lookups told it of.
    pub fn forget(&self, ino: u64, lookups: u64) {
        match Inode::of(ino) {
            Inode::Snapshot(number) => self.forget_control(number, lookups),
            Inode::Node(Node::Sample(sample)) => {
                self.known.clear(sample);
                self.delivered.clear(sample);
            }
            Inode::Node(Node::Folder(_)) | Inode::ControlFolder => {}
        }
    }

    /// The kernel is told of an inode: its page cache can take the file's bytes from then on.
    pub(super) fn kernel_knows(&self, ino: u64) {
        if let Inode::Node(Node::Sample(sample)) = Inode::of(ino) {
            self.known.set(sample);
        }
    }

    /// Attributes of an inode.
    ///
    /// # Errors
    /// There is no such inode; or the container cannot be read any more.
    pub fn getattr(&self, ino: u64) -> Result<Attr, Errno> {
        self.attr_of(Inode::of(ino))
    }

    pub(super) fn attr_of(&self, inode: Inode) -> Result<Attr, Errno> {
        let Options { uid, gid, folder_mode, .. } = self.options;
        let attr = Attr {
            ino: inode.number(),
            kind: FileKind::Folder,
            size: 4096,
            stored_bytes: 4096,
            mode: folder_mode,
            links: 2,
            uid,
            gid,
            modified: self.modified,
        };
        Ok(match inode {
            Inode::Node(Node::Sample(sample)) => self.attr_of_sample(sample, attr)?,
            Inode::Node(Node::Folder(folder)) => {
                self.catalog.parent(folder).ok_or(Errno::ENOENT)?;
                let subfolders = self.catalog.subfolders(folder).saturating_add(2);
                let stored = self.catalog.attributes(folder).copied().unwrap_or_default();
                Attr {
                    links: u32::try_from(subfolders).unwrap_or(u32::MAX),
                    mode: stored.mode.map_or(folder_mode, |mode| mode & self.options.folder_mask),
                    modified: stored.modified.map_or(self.modified, system_time),
                    ..attr
                }
            }
            Inode::ControlFolder => attr,
            Inode::Snapshot(number) => {
                let bytes = self.control_content(number)?.len() as u64;
                let (kind, (uid, mode)) = (FileKind::File, self.control_owner(number));
                let (size, stored_bytes, modified) = (bytes, bytes, SystemTime::now());
                Attr { kind, size, stored_bytes, mode, links: 1, uid, modified, ..attr }
            }
        })
    }

    fn attr_of_sample(&self, sample: u64, attr: Attr) -> Result<Attr, Errno> {
        let located = self.located(sample)?;
        // The index is mapped: of a file that was rewritten, it tells of somebody else's samples.
        let part = &self.dataset.parts()[located.container];
        part.check_unchanged().map_err(|e| self.container_error(located.part, &e))?;
        let stored = part.attributes(located.index).map_err(|e| self.index_error(sample, &e))?;
        let (size, at) = (located.sample.size_bytes(), located.sample);
        let container_modified = self.store.part(located.part).modified();
        let attr = Attr {
            kind: FileKind::File,
            size,
            stored_bytes: if matches!(at.content, Content::Sparse(_)) {
                at.length_bytes
            } else {
                size
            },
            mode: stored.mode.map_or(self.options.file_mode, |mode| mode & self.options.file_mask),
            links: stored.links,
            modified: stored.modified.map_or(container_modified, system_time),
            ..attr
        };
        Ok(match stored.kind {
            Kind::File => attr,
            Kind::Symlink => {
                let target = part.link_target(located.index);
                let length = target.map_err(|e| self.index_error(sample, &e))?.len() as u64;
                Attr { kind: FileKind::Symlink, size: length, stored_bytes: 0, mode: 0o777, ..attr }
            }
        })
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// EINVAL: it is none; or the container cannot be read any more.
    pub fn readlink(&self, ino: u64) -> Result<Vec<u8>, Errno> {
        let Inode::Node(Node::Sample(sample)) = Inode::of(ino) else { return Err(Errno::EINVAL) };
        if self.kind_of_sample(sample)? != FileKind::Symlink {
            return Err(Errno::EINVAL);
        }
        self.dataset.link_target(sample).map_err(|e| self.index_error(sample, &e))
    }

    fn kind_of_sample(&self, sample: u64) -> Result<FileKind, Errno> {
        let attributes = self.dataset.attributes(sample);
        Ok(match attributes.map_err(|e| self.index_error(sample, &e))?.kind {
            Kind::File => FileKind::File,
            Kind::Symlink => FileKind::Symlink,
        })
    }

    fn kind_of(&self, node: Node) -> Result<FileKind, Errno> {
        match node {
            Node::Folder(_) => Ok(FileKind::Folder),
            Node::Sample(sample) => self.kind_of_sample(sample),
        }
    }

    pub(super) fn located(&self, sample: u64) -> Result<Located, Errno> {
        self.dataset.locate(sample).map_err(|e| self.index_error(sample, &e))?.ok_or(Errno::ENOENT)
    }

    /// Where a file of the dataset lies.
    pub(super) fn located_file(&self, ino: u64) -> Result<Located, Errno> {
        match Inode::of(ino) {
            Inode::Node(Node::Sample(sample)) => self.located(sample),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The index cannot be read any more: that is the end of the whole container.
    fn index_error(&self, sample: u64, error: &Error) -> Errno {
        match self.dataset.part_of(sample) {
            Some((container, _)) => self.container_error(self.dataset.file_of(container), error),
            None => Errno::from(error),
        }
    }

    fn container_error(&self, part: usize, error: &dyn std::error::Error) -> Errno {
        self.stats.io_error();
        self.bad.add_container(part, self.store.part(part).name(), error.to_string());
        Errno::EIO
    }

    /// A name that depends on a sample's bytes, which cannot be read.
    fn name_error(&self, error: &Error) -> Errno {
        tracing::error!("{error}");
        self.stats.io_error();
        Errno::from(error)
    }

    /// Lists a folder from cursor `from` (0 at first, then as told) until `emit` returns false.
    ///
    /// # Errors
    /// It is no folder; or the container cannot be read any more.
    pub fn readdir(
        &self,
        ino: u64,
        from: u64,
        emit: &mut dyn FnMut(Listed) -> bool,
    ) -> Result<(), Errno> {
        let inode = Inode::of(ino);
        let parent = match inode {
            Inode::Node(Node::Folder(folder)) => {
                let parent = self.catalog.parent(folder).ok_or(Errno::ENOENT)?;
                Inode::Node(Node::Folder(parent)).number()
            }
            Inode::ControlFolder => 1,
            Inode::Node(Node::Sample(_)) | Inode::Snapshot(_) => return Err(Errno::ENOTDIR),
        };
        let dots = [(ino, &b"."[..]), (parent, &b".."[..])];
        for (place, (ino, name)) in dots.into_iter().enumerate().skip(from.min(2) as usize) {
            let next = place as u64 + 1;
            let kind = FileKind::Folder;
            if !emit(Listed { ino, next, name, kind, lasting: false }) {
                return Ok(());
            }
        }
        let from = from.max(2);
        let mut next = from;
        let mut emit = |ino, name: &[u8], kind, lasting| {
            next += 1;
            // A sample that happens to have the control folder's name cannot be reached.
            let is_hidden =
                lasting && name == control::FOLDER && parent == 1 && inode.number() == 1;
            is_hidden || emit(Listed { ino, next, name, kind, lasting })
        };
        match inode {
            Inode::Node(Node::Folder(folder)) => {
                let mut wrong = None;
                let list = &mut |name: &[u8], node| match self.kind_of(node) {
                    Ok(kind) => emit(Inode::Node(node).number(), name, kind, true),
                    Err(errno) => {
                        wrong = Some(errno);
                        false
                    }
                };
                let listed = self.catalog.list(&self.dataset, folder, from - 2, list);
                listed.map_err(|e| self.name_error(&e))?;
                wrong.map_or(Ok(()), Err)
            }
            _ => {
                let _ = Self::list_control(from - 2)
                    .all(|(ino, name)| emit(ino, name, FileKind::File, false));
                Ok(())
            }
        }
    }

    /// Attributes of an entry of `folder`, and how long they are good. For a control file this is a lookup:
    /// what is not told to the kernel must be forgotten.
    ///
    /// # Errors
    /// The container cannot be read any more.
    pub fn attr_of_listed(&self, folder: u64, entry: &Listed) -> Result<(Attr, Duration), Errno> {
        if entry.lasting {
            self.kernel_knows(entry.ino);
            return Ok((self.getattr(entry.ino)?, FOREVER));
        }
        match self.lookup(folder, entry.name) {
            Ok(Lookup::Passing(attr)) => Ok((attr, Duration::ZERO)),
            // `.` and `..`: the kernel takes the number and the type from here, no more.
            _ => Ok((self.getattr(entry.ino)?, Duration::ZERO)),
        }
    }

    /// Sizes and counts.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let files = self.catalog.samples().saturating_add(self.catalog.folders());
        Totals { bytes: self.total_bytes, files }
    }

    /// The value of an extended attribute of a sample.
    ///
    /// # Errors
    /// ENODATA: there is none of that name.
    pub fn getxattr(&self, ino: u64, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let Inode::Node(Node::Sample(sample)) = Inode::of(ino) else { return Err(Errno::ENODATA) };
        let name = name.strip_prefix(XATTR_PREFIX.as_bytes()).ok_or(Errno::ENODATA)?;
        let Located { part, index, sample: at, .. } = self.located(sample)?;
        Ok(match name {
            b"container" => self.store.part(part).name().as_bytes().to_vec(),
            b"index" => index.to_string().into_bytes(),
            b"offset" => at.offset_bytes.to_string().into_bytes(),
            b"length" => at.length_bytes.to_string().into_bytes(),
            b"crc32" => match at.checksum.and_then(Checksum::crc32) {
                Some(crc) => format!("{crc:08x}").into_bytes(),
                None => return Err(Errno::ENODATA),
            },
            b"verified" if self.bad.contains(sample) => b"bad".to_vec(),
            b"verified" if self.verified.get(sample) => b"yes".to_vec(),
            b"verified" => b"no".to_vec(),
            _ => return Err(Errno::ENODATA),
        })
    }

    /// The names of an inode's extended attributes, each with a NUL behind it.
    #[must_use]
    pub fn listxattr(&self, ino: u64) -> Vec<u8> {
        match Inode::of(ino) {
            Inode::Node(Node::Sample(_)) => XATTRS
                .iter()
                .flat_map(|end| format!("{XATTR_PREFIX}{end}\0").into_bytes())
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// A time as archives store it; one that no clock can show is 1970.
fn system_time((seconds, nanos): (i64, u32)) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time = match seconds {
        0.. => UNIX_EPOCH.checked_add(whole),
        _ => UNIX_EPOCH.checked_sub(whole),
    };
    time.and_then(|time| time.checked_add(Duration::from_nanos(u64::from(nanos))))
        .unwrap_or(UNIX_EPOCH)
}
