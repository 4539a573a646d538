//! The opening of one container: its source, the files beside it, and its progress.

use super::ahead::Ahead;
use super::objects::Neighbours;
use super::options::{Watch, Work};
use crate::format::{PartName, Source, Table};
use crate::store::remote::RemoteOptions;
use crate::store::{Bytes, Part};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A container that is to be opened.
pub(super) struct Unopened {
    pub(super) part: Arc<Part>,
    /// The files beside an object.
    pub(super) neighbours: Option<Neighbours>,
}

impl From<Part> for Unopened {
    fn from(part: Part) -> Self {
        Self { part: Arc::new(part), neighbours: None }
    }
}

impl Unopened {
    pub(super) fn is_remote(&self) -> bool {
        matches!(self.part.bytes(), Bytes::Remote(_))
    }
}

/// A container that is being opened.
pub(super) struct Opening<'a> {
    /// The files beside an object.
    pub(super) neighbours: Option<&'a Neighbours>,
    /// The read-ahead of a part in a store.
    pub(super) ahead: Option<Arc<Ahead>>,
    /// The options with the user's cache.
    pub(super) remote: &'a RemoteOptions,
}

/// Held while a container is read from one end to the other.
pub(super) struct Pass<'a>(&'a Opening<'a>);

impl Opening<'_> {
    /// The source from which formats read the container.
    pub(super) fn source(&self, part: &Arc<Part>) -> Arc<dyn Source> {
        match &self.ahead {
            Some(ahead) => Arc::clone(ahead) as Arc<dyn Source>,
            None => Arc::clone(part) as Arc<dyn Source>,
        }
    }

    pub(super) fn begin_pass(&self) -> Pass<'_> {
        if let Some(ahead) = &self.ahead {
            ahead.begin_pass();
        }
        Pass(self)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if let Some(ahead) = &self.0.ahead {
            ahead.end_pass();
        }
    }
}

/// Sums the progress of several containers that are opened together.
pub(super) struct Together {
    watch: Arc<dyn Watch>,
    bytes: u64,
    has_begun: AtomicBool,
    done_bytes: AtomicU64,
}

/// The progress of one container.
struct Share {
    of: Arc<Together>,
    done_bytes: AtomicU64,
}

impl Together {
    /// `bytes` is the total length of all containers.
    pub(super) fn new(watch: &Arc<dyn Watch>, bytes: u64) -> Arc<Self> {
        let (has_begun, done_bytes) = (AtomicBool::new(false), AtomicU64::new(0));
        Arc::new(Self { watch: Arc::clone(watch), bytes, has_begun, done_bytes })
    }

    /// A watch for one container.
    pub(super) fn share(self: &Arc<Self>) -> Arc<dyn Watch> {
        Arc::new(Share { of: Arc::clone(self), done_bytes: AtomicU64::new(0) })
    }

    /// Opens one container of so many bytes: they are done when it is open, also if not all of them were read.
    pub(super) fn one<R>(
        self: &Arc<Self>,
        bytes: u64,
        open: impl FnOnce(&Arc<dyn Watch>) -> R,
    ) -> R {
        let share = self.share();
        let opened = open(&share);
        share.done(bytes);
        opened
    }

    /// Notes that all containers are open.
    pub(super) fn end(&self) {
        if self.has_begun.load(Ordering::Relaxed) {
            self.watch.end();
        }
    }
}

impl Watch for Share {
    fn begin(&self, work: Work, _: u64) {
        if !self.of.has_begun.swap(true, Ordering::Relaxed) {
            self.of.watch.begin(work, self.of.bytes);
        }
    }

    fn done(&self, amount: u64) {
        let before = self.done_bytes.fetch_max(amount, Ordering::Relaxed);
        let more = amount.saturating_sub(before);
        let all = self.of.done_bytes.fetch_add(more, Ordering::Relaxed).saturating_add(more);
        if self.of.has_begun.load(Ordering::Relaxed) {
            self.of.watch.done(all);
        }
    }

    fn end(&self) {}

    fn is_cancelled(&self) -> bool {
        self.of.watch.is_cancelled()
    }
}

/// A container that is read as a whole: reports its progress, and fails when the work is cancelled.
pub(super) struct Watched {
    inner: Arc<dyn Source>,
    watch: Arc<dyn Watch>,
}

impl Watched {
    pub(super) fn new(inner: Arc<dyn Source>, watch: Arc<dyn Watch>) -> Self {
        watch.begin(Work::Index, inner.len());
        Self { inner, watch }
    }
}

impl Source for Watched {
    fn name(&self) -> &PartName {
        self.inner.name()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        if self.watch.is_cancelled() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        self.watch.done(offset_bytes);
        self.inner.read_exact_at(buf, offset_bytes)
    }

    fn check_unchanged(&self) -> io::Result<()> {
        self.inner.check_unchanged()
    }

    fn table(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Box<dyn Table>> {
        self.inner.table(offset_bytes, length_bytes)
    }
}
