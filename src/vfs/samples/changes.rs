//! Whether containers are still the files that were mounted.
//!
//! No answer about names and attributes makes a system call. It notes what it tells of, and a thread of the
//! transport looks at the noted containers soon afterwards. So for less than a second an answer may tell what
//! the index of a rewritten file says. The kernel would keep such attributes; it is told to drop those of
//! all samples that answers told of since the last look that found the container unchanged. What was told of a
//! file that has lost its name, of an object, or from an index in memory is true.
//!
//! Bytes are given out only if the container was unchanged after they were fetched; bytes in memory also if a
//! checksum proves that they are the sample's, or if the index cannot change with the file.

use super::Samples;
use crate::catalog::{Located, Node};
use crate::io::{Change, ReadError};
use crate::store::remote::StoreError;
use crate::vfs::Errno;
use crate::vfs::bits::Bits;
use crate::vfs::inode::Inode;
use std::collections::HashSet;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// So many samples, numbered on from a multiple, share a bit of [`Changes::told`].
const GROUP: u64 = 64;

/// Which containers are to be looked at.
pub(super) struct Changes {
    /// By container: an answer has told of it since the last look.
    noted: Bits,
    /// By group of samples: an answer has told of attributes since the last look.
    told: Bits,
    /// The thread that looks waits to be woken.
    sleeps: AtomicBool,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Changes {
    pub(super) fn new(containers: usize, samples: u64) -> Self {
        let (noted, told) = (Bits::new(containers as u64), Bits::new(samples.div_ceil(GROUP)));
        Self { noted, told, sleeps: AtomicBool::new(false), wake: OnceLock::new() }
    }
}

/// What a look at the containers that answers told of has found.
#[derive(Debug)]
pub struct ContainersChecked {
    /// Whether there was a container to look at.
    pub any: bool,
    /// Inodes of rewritten containers: an answer may have told the kernel of wrong attributes since the last look.
    /// Some of them the kernel may not know.
    pub outdated_inodes: Vec<u64>,
}

/// What has changed, if a look has found that. A file server that does not answer now may answer later.
fn change_of(error: &io::Error) -> Option<Change> {
    match error.get_ref()?.downcast_ref()? {
        ReadError::Changed(change) => Some(*change),
        ReadError::WouldBlock | ReadError::Absent | ReadError::Io(_) => None,
    }
}

impl Samples {
    /// Notes that an answer tells of a container: one load, but for the first time since the last look.
    pub(in crate::vfs) fn note(&self, located: &Located) {
        if self.changes.noted.set(located.container as u64)
            && self.changes.sleeps.swap(false, Ordering::SeqCst)
            && let Some(wake) = self.changes.wake.get()
        {
            wake();
        }
    }

    /// Refuses to tell of a container that is known to have changed.
    ///
    /// # Errors
    /// EIO, or ESTALE of an object: it has changed.
    pub(in crate::vfs) fn refuse_changed(&self, located: &Located) -> Result<(), Errno> {
        match self.bad.has_changed(located.part) {
            false => Ok(()),
            true => {
                self.stats.io_error();
                Err(self.hopeless(located.part))
            }
        }
    }

    /// What a read of a part gives that cannot be read any more.
    pub(in crate::vfs) fn hopeless(&self, part: usize) -> Errno {
        match self.store.part(part).is_remote() && self.bad.has_changed(part) {
            true => Errno::ESTALE,
            false => Errno::EIO,
        }
    }

    /// As [`Samples::note`], before an answer about attributes. They must have been read from the index already:
    /// the next look then tells whether they were right.
    pub(in crate::vfs) fn note_attributes(&self, sample: u64, located: &Located) {
        self.changes.told.set(sample / GROUP);
        self.note(located);
    }

    /// Looks at a container now.
    ///
    /// # Errors
    /// EIO: it has changed.
    pub(in crate::vfs) fn check_unchanged(&self, located: &Located) -> Result<(), Errno> {
        self.container(located).check_unchanged().map_err(|error| {
            self.stats.io_error();
            if let Some(change) = change_of(&error) {
                self.add_changed_part(located.part, change);
            }
            Errno::EIO
        })
    }

    /// As [`Samples::check_unchanged`], for bytes that are in memory: what the index says of them is still true
    /// if it cannot change with the file, and then nothing is looked at.
    ///
    /// # Errors
    /// As [`Samples::check_unchanged`].
    pub(in crate::vfs) fn check_index(&self, located: &Located) -> Result<(), Errno> {
        match self.container(located).index_is_fixed() {
            true => Ok(()),
            false => self.check_unchanged(located),
        }
    }

    /// Looks at the containers that were noted. If there was none, it is to be called again when `wake` is called.
    pub(in crate::vfs) fn check_noted(&self) -> ContainersChecked {
        let look = self.look_at_noted();
        if look.any {
            return look;
        }
        self.changes.sleeps.store(true, Ordering::SeqCst);
        // What was noted before that has woken nobody.
        let look = self.look_at_noted();
        if look.any {
            self.changes.sleeps.store(false, Ordering::SeqCst);
        }
        look
    }

    fn look_at_noted(&self) -> ContainersChecked {
        let (mut looked_at, mut told) = (HashSet::new(), Vec::new());
        let mut look_at = |container: usize| {
            let part = self.dataset.part_of(container);
            // Containers in containers share a file. Reads refuse a changed one until the unmount.
            if looked_at.insert(part)
                && !self.bad.has_changed(part)
                && let Err(error) = self.dataset.containers()[container].check_unchanged()
                && let Some(change) = change_of(&error)
            {
                self.add_changed_part(part, change);
            }
        };
        self.changes.told.take_each(|group| told.push(group * GROUP..(group + 1) * GROUP));
        self.changes.noted.take_each(|container| look_at(container as usize));
        // Their containers may be noted only after this look.
        for group in &told {
            let last = (group.end - 1).min(self.dataset.len().saturating_sub(1));
            if let (Some((first, _)), Some((last, _))) =
                (self.dataset.container_of(group.start), self.dataset.container_of(last))
            {
                (first..=last).for_each(&mut look_at);
            }
        }
        let any = !looked_at.is_empty();
        let outdated = told.into_iter().flatten().filter(|&sample| self.is_outdated(sample));
        let ino = |sample| Inode::Node(Node::Sample(sample)).number();
        ContainersChecked { any, outdated_inodes: outdated.map(ino).collect() }
    }

    /// Whether attributes that were told of a sample may have come from the index of a rewritten file.
    fn is_outdated(&self, sample: u64) -> bool {
        self.dataset.container_of(sample).is_some_and(|(container, _)| {
            self.bad.was_rewritten(self.dataset.part_of(container))
                && !self.dataset.containers()[container].index_is_fixed()
        })
    }

    /// Sets what wakes the thread that looks. What was set first counts.
    pub(in crate::vfs) fn when_noted(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.changes.wake.set(Box::new(wake));
    }

    /// Marks a part that is not the file any more that was mounted.
    pub(in crate::vfs) fn add_changed_part(&self, part: usize, change: Change) {
        self.bad.add_changed(part, self.name_of(part), change);
    }

    /// Marks a part that is not the object any more that was mounted.
    pub(in crate::vfs) fn add_stale_part(&self, part: usize, error: &StoreError) {
        self.bad.add_stale(part, self.name_of(part), error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_server_that_does_not_answer_is_no_change() {
        let truncated = io::Error::other(ReadError::Changed(Change::Truncated));
        assert_eq!(change_of(&truncated), Some(Change::Truncated));
        let late = io::Error::other(ReadError::Io(io::ErrorKind::TimedOut.into()));
        assert_eq!(change_of(&late), None);
        assert_eq!(change_of(&io::ErrorKind::TimedOut.into()), None);
    }
}
