//! Listing a directory of the dataset.

use super::{FileKind, Listed, Namespace};
use crate::catalog::Node;
use crate::vfs::Errno;
use crate::vfs::inode::Inode;

impl Namespace {
    /// Emits `.` and `..` of a directory, unless the cursor `from` is behind them; false if `emit` wants no
    /// further entry.
    pub(in crate::vfs) fn list_dots(
        ino: u64,
        parent: u64,
        from: u64,
        emit: &mut dyn FnMut(Listed) -> bool,
    ) -> bool {
        let dots = [(ino, &b"."[..]), (parent, &b".."[..])];
        dots.into_iter().enumerate().skip(from.min(2) as usize).all(|(place, (ino, name))| {
            let kind = FileKind::Directory;
            emit(Listed { ino, next: place as u64 + 1, name, kind, lasting: false })
        })
    }

    /// Lists a directory of the dataset from cursor `from` (0 at first, then [`Listed::next`]) until `emit` returns
    /// false.
    pub(in crate::vfs) fn list(
        &self,
        directory: u64,
        from: u64,
        emit: &mut dyn FnMut(Listed) -> bool,
    ) -> Result<(), Errno> {
        let number = |directory| Inode::Node(Node::Directory(directory)).number();
        let parent = self.catalog.parent(directory).ok_or(Errno::ENOENT)?;
        if !Self::list_dots(number(directory), number(parent), from, emit) {
            return Ok(());
        }
        let from = from.max(2);
        let (mut next, mut failed) = (from, None);
        let list = &mut |name: &[u8], node| match self.kind_of(node) {
            Ok(kind) => {
                next += 1;
                // A sample with the name of the control directory cannot be reached.
                let is_hidden = self.is_control_name(directory, name);
                let ino = Inode::Node(node).number();
                is_hidden || emit(Listed { ino, next, name, kind, lasting: true })
            }
            Err(errno) => {
                failed = Some(errno);
                false
            }
        };
        let listed = self.catalog.list(self.samples.dataset(), directory, from - 2, list);
        listed.map_err(|error| self.name_failed(&error))?;
        failed.map_or(Ok(()), Err)
    }
}
