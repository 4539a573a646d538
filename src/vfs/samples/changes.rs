//! Whether containers are still the files that were mounted.
//!
//! No answer about names and attributes makes a system call. It notes the sample and its container, and a thread of the
//! transport checks the noted containers soon afterwards. So for less than a second an answer may come from
//! the index of a rewritten file. The kernel would keep such attributes; it is told to drop those of
//! all samples that answers told of since the last check that found the container unchanged. Attributes of a
//! file that has lost its name, of an object, or from an index in memory are right.
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

/// The number of samples, numbered on from a multiple of it, that share a bit of [`Changes::told`].
const GROUP: u64 = 64;

/// The containers that are to be checked.
pub(super) struct Changes {
    /// By container: whether an answer has told of it since the last check.
    noted: Bits,
    /// By group of samples: whether an answer has told of their attributes since the last check.
    told: Bits,
    /// Whether the thread that checks waits to be woken.
    sleeps: AtomicBool,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Changes {
    pub(super) fn new(containers: usize, samples: u64) -> Self {
        let (noted, told) = (Bits::new(containers as u64), Bits::new(samples.div_ceil(GROUP)));
        Self { noted, told, sleeps: AtomicBool::new(false), wake: OnceLock::new() }
    }
}

/// The result of a check of the containers that answers told of.
#[derive(Debug)]
pub struct ContainersChecked {
    /// Whether any container was checked.
    pub any: bool,
    /// Inodes of rewritten containers: an answer may have told the kernel of wrong attributes since the last check.
    /// The kernel may not know some of these inodes.
    pub outdated_inodes: Vec<u64>,
}

/// The change, if the error of a check says that there is one. A file server that does not answer now may answer later.
fn change_of(error: &io::Error) -> Option<Change> {
    match error.get_ref()?.downcast_ref()? {
        ReadError::Changed(change) => Some(*change),
        ReadError::WouldBlock | ReadError::Absent | ReadError::Io(_) => None,
    }
}

impl Samples {
    /// Notes that an answer tells of a container. This costs one load, except the first time since the last check.
    pub(in crate::vfs) fn note(&self, located: &Located) {
        if self.changes.noted.set(located.container as u64)
            && self.changes.sleeps.swap(false, Ordering::SeqCst)
            && let Some(wake) = self.changes.wake.get()
        {
            wake();
        }
    }

    /// Refuses to give attributes from a container that is known to have changed.
    ///
    /// # Errors
    /// EIO, or ESTALE for an object: the container has changed.
    pub(in crate::vfs) fn refuse_changed(&self, located: &Located) -> Result<(), Errno> {
        match self.bad.has_changed(located.part) {
            false => Ok(()),
            true => {
                self.stats.io_error();
                Err(self.hopeless(located.part))
            }
        }
    }

    /// The error of a read from a part that cannot be read any more.
    pub(in crate::vfs) fn hopeless(&self, part: usize) -> Errno {
        match self.store.part(part).is_remote() && self.bad.has_changed(part) {
            true => Errno::ESTALE,
            false => Errno::EIO,
        }
    }

    /// As [`Samples::note`], before an answer about attributes. They must have been read from the index already:
    /// the next check then tells whether they were right.
    pub(in crate::vfs) fn note_attributes(&self, sample: u64, located: &Located) {
        self.changes.told.set(sample / GROUP);
        self.note(located);
    }

    /// Checks at once that a container is unchanged.
    ///
    /// # Errors
    /// EIO: the container has changed, or cannot be checked.
    pub(in crate::vfs) fn check_unchanged(&self, located: &Located) -> Result<(), Errno> {
        self.container(located).check_unchanged().map_err(|error| {
            self.stats.io_error();
            if let Some(change) = change_of(&error) {
                self.add_changed_part(located.part, change);
            }
            Errno::EIO
        })
    }

    /// As [`Samples::check_unchanged`], for bytes that are in memory: if the index cannot change with the file, its
    /// entry for them is still right, and the container is not checked.
    ///
    /// # Errors
    /// As [`Samples::check_unchanged`].
    pub(in crate::vfs) fn check_index(&self, located: &Located) -> Result<(), Errno> {
        match self.container(located).index_is_fixed() {
            true => Ok(()),
            false => self.check_unchanged(located),
        }
    }

    /// Checks the containers that were noted. If none were noted, it is to be called again when `wake` is called.
    pub(in crate::vfs) fn check_noted(&self) -> ContainersChecked {
        let look = self.look_at_noted();
        if look.any {
            return look;
        }
        self.changes.sleeps.store(true, Ordering::SeqCst);
        // A container that was noted before `sleeps` was set has not woken the thread.
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
            // Nested containers share a file. Reads refuse a changed part until the unmount, so it needs no further check.
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
        // The containers of these samples may be noted only after this check.
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

    /// Whether attributes that the kernel was told of a sample may have come from the index of a rewritten file.
    fn is_outdated(&self, sample: u64) -> bool {
        self.dataset.container_of(sample).is_some_and(|(container, _)| {
            self.bad.was_rewritten(self.dataset.part_of(container))
                && !self.dataset.containers()[container].index_is_fixed()
        })
    }

    /// Sets the function that wakes the thread that checks. The first call counts.
    pub(in crate::vfs) fn when_noted(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.changes.wake.set(Box::new(wake));
    }

    /// Marks a part that is no longer the file that was mounted.
    pub(in crate::vfs) fn add_changed_part(&self, part: usize, change: Change) {
        self.bad.add_changed(part, self.name_of(part), change);
    }

    /// Marks a part that is no longer the object that was mounted.
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
