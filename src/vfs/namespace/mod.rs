//! Names, attributes, sizes, extended attributes: all of them are resident, and no function here waits.

mod attr;
mod list;
mod xattr;

pub use attr::{Attr, FileKind, Listed, Lookup, Totals};
pub use xattr::XATTR_PREFIX;

use super::Errno;
use super::inode::{CONTROL_NAME, Inode};
use super::options::Options;
use super::samples::Samples;
use crate::catalog::{Catalog, Located, Node, ROOT};
use crate::format::{Content, Error, Kind};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The owner and the permission bits of files and directories, as the user decides.
#[derive(Debug, Clone, Copy)]
struct Ownership {
    uid: u32,
    gid: u32,
    file_mode: u16,
    directory_mode: u16,
    file_mask: u16,
    directory_mask: u16,
}

/// The tree of names over the dataset's samples, and their attributes.
pub(super) struct Namespace {
    samples: Arc<Samples>,
    catalog: Catalog,
    ownership: Ownership,
    /// The time of modification of the newest part.
    modified: SystemTime,
    has_control: bool,
}

impl Namespace {
    pub(super) fn new(samples: Arc<Samples>, catalog: Catalog, options: &Options) -> Self {
        let Options { uid, gid, file_mode, directory_mode, file_mask, directory_mask, .. } =
            *options;
        Self {
            modified: samples.store().modified().unwrap_or(SystemTime::UNIX_EPOCH),
            ownership: Ownership { uid, gid, file_mode, directory_mode, file_mask, directory_mask },
            samples,
            catalog,
            has_control: options.has_control,
        }
    }

    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Whether a name in a directory of the dataset is the control directory's.
    pub(super) fn is_control_name(&self, directory: u64, name: &[u8]) -> bool {
        directory == ROOT && name == CONTROL_NAME && self.has_control
    }

    /// Finds a name in a directory of the dataset.
    pub(super) fn lookup(&self, directory: u64, name: &[u8]) -> Result<Option<Attr>, Errno> {
        let found = self.catalog.lookup(self.samples.dataset(), directory, name);
        let node = found.map_err(|error| self.name_failed(&error))?;
        node.map(|node| self.attr(node)).transpose()
    }

    /// Attributes of a sample or a directory of the dataset.
    pub(super) fn attr(&self, node: Node) -> Result<Attr, Errno> {
        match node {
            Node::Sample(sample) => self.attr_of_sample(sample),
            Node::Directory(directory) => self.attr_of_directory(directory),
        }
    }

    /// Attributes of a directory for which the dataset stores no others.
    pub(super) fn plain_directory(&self, inode: Inode) -> Attr {
        let Ownership { uid, gid, directory_mode, .. } = self.ownership;
        Attr {
            ino: inode.number(),
            shown_ino: inode.number(),
            kind: FileKind::Directory,
            size: 4096,
            stored_bytes: 4096,
            mode: directory_mode,
            links: 2,
            uid,
            gid,
            modified: self.modified,
        }
    }

    fn attr_of_directory(&self, directory: u64) -> Result<Attr, Errno> {
        self.catalog.parent(directory).ok_or(Errno::ENOENT)?;
        let Ownership { directory_mode, directory_mask, .. } = self.ownership;
        let subdirectories = self.catalog.subdirectories(directory).saturating_add(2);
        let stored = self.catalog.attributes(directory).copied().unwrap_or_default();
        Ok(Attr {
            links: u32::try_from(subdirectories).unwrap_or(u32::MAX),
            mode: stored.mode.map_or(directory_mode, |mode| mode & directory_mask),
            modified: stored.modified.map_or(self.modified, system_time),
            ..self.plain_directory(Inode::Node(Node::Directory(directory)))
        })
    }

    fn attr_of_sample(&self, sample: u64) -> Result<Attr, Errno> {
        let located = self.samples.locate(sample)?;
        self.samples.refuse_changed(&located)?;
        let container = self.samples.container(&located);
        let failed = |error: Error| self.samples.index_failed(sample, &error);
        let stored = container.attributes(located.index).map_err(failed)?;
        let (size, at) = (located.sample.size_bytes(), located.sample);
        let Ownership { uid, gid, file_mode, file_mask, .. } = self.ownership;
        let ino = Inode::Node(Node::Sample(sample)).number();
        let attr = Attr {
            ino,
            shown_ino: ino,
            kind: FileKind::File,
            size,
            stored_bytes: match at.content {
                Content::Sparse(_) => at.length_bytes,
                _ => size,
            },
            mode: stored.mode.map_or(file_mode, |mode| mode & file_mask),
            links: stored.links,
            uid,
            gid,
            modified: match stored.modified {
                Some(modified) => system_time(modified),
                None => self.samples.store().part(located.part).modified(),
            },
        };
        let attr = match stored.kind {
            // No program reads a file that seems empty, so no read would show that the container has changed.
            Kind::File if size == 0 => {
                self.samples.check_unchanged(&located)?;
                attr
            }
            Kind::File => attr,
            Kind::Symlink => {
                // A link with an unreadable target is shown, and readlink returns its error.
                let target = match container.link_target(located.index) {
                    Err(error @ (Error::Unreadable { .. } | Error::Checksum { .. })) => {
                        return Err(failed(error));
                    }
                    target => target.unwrap_or_default(),
                };
                let size = target.len() as u64;
                Attr { kind: FileKind::Symlink, size, stored_bytes: 0, mode: 0o777, ..attr }
            }
        };
        self.samples.note_attributes(sample, &located);
        Ok(attr)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// EINVAL if the inode is no symbolic link; or the container cannot be read any more, or has changed.
    pub(in crate::vfs) fn readlink(&self, ino: u64) -> Result<Vec<u8>, Errno> {
        let Inode::Node(Node::Sample(sample)) = Inode::of(ino) else { return Err(Errno::EINVAL) };
        if self.kind_of_sample(sample)? != FileKind::Symlink {
            return Err(Errno::EINVAL);
        }
        let located = self.samples.locate(sample)?;
        // No read follows that would show that the container has changed.
        self.samples.check_unchanged(&located)?;
        self.samples.dataset().link_target(sample).map_err(|error| {
            let errno = Errno::from(&error);
            self.samples.add_bad(sample, located, error.into());
            errno
        })
    }

    fn kind_of_sample(&self, sample: u64) -> Result<FileKind, Errno> {
        let attributes = self.samples.dataset().attributes(sample);
        Ok(match attributes.map_err(|e| self.samples.index_failed(sample, &e))?.kind {
            Kind::File => FileKind::File,
            Kind::Symlink => FileKind::Symlink,
        })
    }

    fn kind_of(&self, node: Node) -> Result<FileKind, Errno> {
        match node {
            Node::Directory(_) => Ok(FileKind::Directory),
            Node::Sample(sample) => self.kind_of_sample(sample),
        }
    }

    /// The place of a file of the dataset.
    fn locate_file(&self, ino: u64) -> Result<Located, Errno> {
        match Inode::of(ino) {
            Inode::Node(Node::Sample(sample)) => self.samples.locate(sample),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Logs and counts a failed lookup or listing: a name depends on a sample's bytes, which cannot be read.
    fn name_failed(&self, error: &Error) -> Errno {
        tracing::error!("{error}");
        self.samples.stats().io_error();
        Errno::from(error)
    }

    /// The offset where the next data or the next hole of a file begins, at or behind `offset_bytes`.
    ///
    /// # Errors
    /// ENXIO: no data or no hole follows. ENOSYS: no file has holes, and the kernel can answer for all files.
    pub(super) fn seek(&self, ino: u64, offset_bytes: u64, for_data: bool) -> Result<u64, Errno> {
        if !self.samples.dataset().containers().iter().any(|part| part.has_holes()) {
            return Err(Errno::ENOSYS);
        }
        let located = self.locate_file(ino)?;
        let size = located.sample.size_bytes();
        if offset_bytes >= size {
            return Err(Errno::ENXIO);
        }
        if !matches!(located.sample.content, Content::Sparse(_)) {
            return Ok(if for_data { offset_bytes } else { size });
        }
        let mut at = offset_bytes;
        loop {
            let found = self.samples.container(&located).piece(located.index, at);
            match found.map_err(|e| Errno::from(&e))? {
                None if for_data => return Err(Errno::ENXIO),
                Some(piece) if for_data => return Ok(piece.at_bytes.max(at)),
                Some(piece) if piece.at_bytes <= at && at < size => {
                    at = piece.at_bytes.saturating_add(piece.length_bytes);
                }
                // There is a hole behind the end of every file.
                _ => return Ok(at.min(size)),
            }
        }
    }

    /// Sizes and counts of the whole mount.
    pub(super) fn totals(&self) -> Totals {
        let files = self.catalog.samples().saturating_add(self.catalog.directories());
        Totals { bytes: self.samples.dataset().data_bytes(), files }
    }
}

/// Converts a time as archives store it; a time that `SystemTime` cannot hold becomes the beginning of 1970.
fn system_time((seconds, nanos): (i64, u32)) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time = match seconds {
        0.. => UNIX_EPOCH.checked_add(whole),
        _ => UNIX_EPOCH.checked_sub(whole),
    };
    time.and_then(|time| time.checked_add(Duration::from_nanos(u64::from(nanos))))
        .unwrap_or(UNIX_EPOCH)
}
