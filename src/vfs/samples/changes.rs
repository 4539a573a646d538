//! Whether containers are still the files that were mounted.
//!
//! No answer about names and attributes makes a system call. It notes the container that it tells of, and a
//! thread of the transport looks at the noted containers soon afterwards. So for less than a second an answer
//! may tell what the index of a rewritten file says. Bytes are given out only if the container was unchanged
//! after they were fetched; bytes in memory also if a checksum proves that they are the sample's.

use super::Samples;
use crate::catalog::Located;
use crate::io::ReadError;
use crate::vfs::Errno;
use crate::vfs::bits::Bits;
use std::collections::HashSet;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which containers are to be looked at.
pub(super) struct Changes {
    /// By container: an answer has told of it since the last look.
    noted: Bits,
    /// The thread that looks waits to be woken.
    sleeps: AtomicBool,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Changes {
    pub(super) fn new(containers: usize) -> Self {
        let (sleeps, wake) = (AtomicBool::new(false), OnceLock::new());
        Self { noted: Bits::new(containers as u64), sleeps, wake }
    }
}

/// Whether a look has found another file. A file server that does not answer now may answer later.
fn is_change(error: &io::Error) -> bool {
    let reason = error.get_ref().and_then(|reason| reason.downcast_ref());
    matches!(reason, Some(ReadError::Changed(_)))
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

    /// As [`Samples::note`], before an answer about names or attributes.
    ///
    /// # Errors
    /// EIO: the container is known to have changed.
    pub(in crate::vfs) fn note_unchanged(&self, located: &Located) -> Result<(), Errno> {
        self.note(located);
        match self.bad.has_changed(located.part) {
            false => Ok(()),
            true => {
                self.stats.io_error();
                Err(Errno::EIO)
            }
        }
    }

    /// Looks at a container now.
    ///
    /// # Errors
    /// EIO: it has changed.
    pub(in crate::vfs) fn check_unchanged(&self, located: &Located) -> Result<(), Errno> {
        self.container(located).check_unchanged().map_err(|error| {
            self.stats.io_error();
            if is_change(&error) {
                self.add_changed_part(located.part, error.to_string());
            }
            Errno::EIO
        })
    }

    /// Looks at the containers that were noted. If it returns false, there was none, and it is to be called
    /// again when `wake` is called.
    pub(in crate::vfs) fn check_noted(&self) -> bool {
        if self.look_at_noted() {
            return true;
        }
        self.changes.sleeps.store(true, Ordering::SeqCst);
        // What was noted before that has woken nobody.
        let any = self.look_at_noted();
        if any {
            self.changes.sleeps.store(false, Ordering::SeqCst);
        }
        any
    }

    fn look_at_noted(&self) -> bool {
        let mut looked_at = HashSet::new();
        self.changes.noted.take_each(|container| {
            let container = container as usize;
            let part = self.dataset.file_of(container);
            // Containers in containers share a file. Reads refuse a changed one until the unmount.
            if looked_at.insert(part)
                && !self.bad.has_changed(part)
                && let Err(error) = self.dataset.parts()[container].check_unchanged()
                && is_change(&error)
            {
                self.add_changed_part(part, error.to_string());
            }
        });
        !looked_at.is_empty()
    }

    /// Sets what wakes the thread that looks. What was set first counts.
    pub(in crate::vfs) fn when_noted(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.changes.wake.set(Box::new(wake));
    }

    /// Marks a part that is not the file any more that was mounted.
    pub(in crate::vfs) fn add_changed_part(&self, part: usize, what: String) {
        self.bad.add_changed(part, self.name_of(part), what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_server_that_does_not_answer_is_no_change() {
        assert!(is_change(&io::Error::other(ReadError::Changed("truncated"))));
        assert!(!is_change(&io::Error::other(ReadError::Io(io::ErrorKind::TimedOut.into()))));
        assert!(!is_change(&io::ErrorKind::TimedOut.into()));
    }
}
