//! [`Vfs`]: the methods that the transports, the tools and the daemon call. It wires the modules and has no state of its own.

mod ahead;
#[cfg(test)]
mod testing;

use super::checkpoints::CheckpointStore;
use super::control::{Control, Settings, Shown};
use super::inode::Inode;
use super::memory::Memory;
use super::namespace::{Attr, FileKind, Listed, Lookup, Namespace, Totals};
use super::options::{FOREVER, Options, Verify};
use super::prefetch::Prefetch;
use super::reader::{Payload, Reader, Reply, Step, Task};
use super::report::{MountInfo, MountStats};
use super::samples::{ContainersChecked, Samples};
use super::{Errno, Stats, Trace};
use crate::catalog::{Catalog, Dataset, Node};
use crate::io::{Buffer, ControlRequest, ReadError};
use crate::store::Store;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A mounted dataset.
pub struct Vfs {
    samples: Arc<Samples>,
    namespace: Arc<Namespace>,
    prefetch: Arc<Prefetch>,
    reader: Reader,
    control: Control,
    trace: Arc<Trace>,
}

impl Vfs {
    /// Makes the file system of a dataset and its names.
    ///
    /// # Panics
    /// `store` lacks a part that the dataset lies in.
    #[must_use]
    pub fn new(dataset: Dataset, catalog: Catalog, store: Store, options: Options) -> Self {
        let (count, bytes) = (dataset.len(), dataset.data_bytes());
        let Options { cache_bytes, fetching_bytes, concurrency, threads, .. } = options;
        let (caps, at_a_time) = ((cache_bytes, fetching_bytes), (concurrency, threads));
        let memory = Arc::new(Memory::new(caps, (count, bytes), at_a_time, store.profile()));
        let samples = Arc::new(Samples::new(dataset, store, options.verify));
        let trace = Arc::new(Trace::default());
        let namespace = Arc::new(Namespace::new(Arc::clone(&samples), catalog, &options));
        let prefetch = Arc::new(Prefetch::new(
            Arc::clone(&samples),
            Arc::clone(&memory),
            Arc::clone(&trace),
            options.kernel_bytes,
        ));
        let reader = Reader::new(
            Arc::clone(&samples),
            Arc::clone(&memory),
            Arc::clone(&prefetch),
            Arc::clone(&trace),
        );
        let shown = Shown {
            samples: Arc::clone(&samples),
            memory,
            namespace: Arc::clone(&namespace),
            prefetch: Arc::clone(&prefetch),
            trace: Arc::clone(&trace),
        };
        if let Some(stores) = &options.stores {
            let trace: Weak<Trace> = Arc::downgrade(&trace);
            stores.observe(trace);
        }
        let control = Control::new(shown, options);
        Self { samples, namespace, prefetch, reader, control, trace }
    }

    /// Sets the transport's name, and the memory that requests take until the unmount, in bytes. The first call counts.
    pub fn set_transport(&self, name: &'static str, request_bytes: u64) {
        self.control.tuning().set_transport(name, request_bytes);
    }

    /// Sets the store where checkpoints of large samples are kept. The first call counts.
    pub fn keep_checkpoints(&self, store: Arc<dyn CheckpointStore>) {
        self.reader.keep_checkpoints(store);
    }

    /// Waits until all checkpoints that were found are written.
    pub fn finish_checkpoints(&self) {
        self.reader.finish_checkpoints();
    }

    /// Sets the directory of the spool, for samples that cannot be decoded from the middle. The first call counts.
    pub fn spool_to(&self, directory: PathBuf) {
        self.reader.spool_to(directory);
    }

    /// Makes the control file `settings` work. The first call counts.
    pub fn set_settings(&self, settings: impl Settings + 'static) {
        self.control.set_settings(Box::new(settings));
    }

    /// Changes settings, lines `NAME=VALUE`: all of them, or none. The log has the reason if none are changed.
    ///
    /// # Errors
    /// One of the settings cannot be changed.
    pub fn change_settings(&self, lines: &[u8]) -> Result<(), Errno> {
        self.control.change_settings(lines)
    }

    /// The store where the dataset's bytes lie.
    #[must_use]
    pub fn store(&self) -> &Store {
        self.samples.store()
    }

    /// The mounted dataset.
    #[must_use]
    pub fn dataset(&self) -> &Dataset {
        self.samples.dataset()
    }

    /// The names of the dataset's samples.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        self.namespace.catalog()
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        self.samples.stats()
    }

    /// Recent requests, recorded while `/.ffrfs/trace` is read.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The number of samples that have a name.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.catalog().samples()
    }

    /// The present content of `info.json`.
    #[must_use]
    pub fn mount_info(&self) -> MountInfo {
        self.control.mount_info()
    }

    /// The present content of `stats.json`.
    #[must_use]
    pub fn mount_stats(&self) -> MountStats {
        self.control.mount_stats()
    }

    /// When samples are compared with their checksums.
    #[must_use]
    pub fn verify(&self) -> Verify {
        self.samples.verify()
    }
}

/// Names and attributes.
impl Vfs {
    /// Whether an inode belongs to the control directory.
    #[must_use]
    pub fn is_control(&self, ino: u64) -> bool {
        !matches!(Inode::of(ino), Inode::Node(_))
    }

    /// Whether a name in a directory belongs to the control directory.
    #[must_use]
    pub fn is_control_name(&self, parent: u64, name: &[u8]) -> bool {
        match Inode::of(parent) {
            Inode::Node(Node::Directory(directory)) => {
                self.namespace.is_control_name(directory, name)
            }
            inode => !matches!(inode, Inode::Node(_)),
        }
    }

    /// Finds a name in a directory.
    ///
    /// # Errors
    /// The parent is no directory; or the container cannot be read any more.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<Lookup, Errno> {
        match Inode::of(parent) {
            Inode::Node(Node::Directory(directory))
                if self.namespace.is_control_name(directory, name) =>
            {
                self.control.attr(Inode::ControlDirectory).map(Lookup::Found)
            }
            Inode::Node(Node::Directory(directory)) => {
                match self.namespace.lookup(directory, name)? {
                    Some(attr) => {
                        self.kernel_knows(attr.ino);
                        Ok(Lookup::Found(attr))
                    }
                    None => Ok(Lookup::Absent),
                }
            }
            Inode::ControlDirectory => {
                Ok(self.control.lookup(name).map_or(Lookup::Absent, Lookup::Passing))
            }
            Inode::Node(Node::Sample(_)) | Inode::Snapshot(_) => Err(Errno::ENOTDIR),
        }
    }

    /// Notes that the kernel has dropped an inode that `lookups` lookups told it of.
    pub fn forget(&self, ino: u64, lookups: u64) {
        match Inode::of(ino) {
            Inode::Snapshot(number) => self.control.forget(number, lookups),
            Inode::Node(Node::Sample(sample)) => self.prefetch.kernel_forgot(sample),
            Inode::Node(Node::Directory(_)) | Inode::ControlDirectory => {}
        }
    }

    /// Notes that the kernel is told of an inode.
    pub(super) fn kernel_knows(&self, ino: u64) {
        if let Inode::Node(Node::Sample(sample)) = Inode::of(ino) {
            self.prefetch.kernel_knows(sample);
        }
    }

    /// Attributes of an inode.
    ///
    /// # Errors
    /// There is no such inode; or the container cannot be read any more.
    pub fn getattr(&self, ino: u64) -> Result<Attr, Errno> {
        match Inode::of(ino) {
            Inode::Node(node) => self.namespace.attr(node),
            inode => self.control.attr(inode),
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// EINVAL if the inode is no symbolic link; or the container cannot be read any more, or has changed.
    pub fn readlink(&self, ino: u64) -> Result<Vec<u8>, Errno> {
        self.namespace.readlink(ino)
    }

    /// Lists a directory from cursor `from` (0 at first, then [`Listed::next`]) until `emit` returns false.
    ///
    /// # Errors
    /// The inode is no directory; or the container cannot be read any more.
    pub fn readdir(
        &self,
        ino: u64,
        from: u64,
        emit: &mut dyn FnMut(Listed) -> bool,
    ) -> Result<(), Errno> {
        match Inode::of(ino) {
            Inode::Node(Node::Directory(directory)) => self.namespace.list(directory, from, emit),
            Inode::ControlDirectory => {
                if Namespace::list_dots(ino, 1, from, emit) {
                    let mut next = from.max(2);
                    let _ = Control::list(next - 2).all(|(ino, name)| {
                        next += 1;
                        let kind = FileKind::File;
                        emit(Listed { ino, next, name, kind, lasting: false })
                    });
                }
                Ok(())
            }
            Inode::Node(Node::Sample(_)) | Inode::Snapshot(_) => Err(Errno::ENOTDIR),
        }
    }

    /// Attributes of an entry of `directory`, and the time for which they are valid. For a control file this is a lookup:
    /// an inode that the kernel is not told of must be forgotten.
    ///
    /// # Errors
    /// The container cannot be read any more.
    pub fn attr_of_listed(
        &self,
        directory: u64,
        entry: &Listed,
    ) -> Result<(Attr, Duration), Errno> {
        if entry.lasting {
            self.kernel_knows(entry.ino);
            return Ok((self.getattr(entry.ino)?, FOREVER));
        }
        match self.lookup(directory, entry.name) {
            Ok(Lookup::Passing(attr)) => Ok((attr, Duration::ZERO)),
            // Of the attributes of `.` and `..` the kernel uses only the number and the type.
            _ => Ok((self.getattr(entry.ino)?, Duration::ZERO)),
        }
    }

    /// Sizes and counts of the whole mount.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.namespace.totals()
    }

    /// The value of an extended attribute of a sample.
    ///
    /// # Errors
    /// ENODATA: there is no attribute of this name. EOPNOTSUPP: there are no attributes of this kind.
    pub fn getxattr(&self, ino: u64, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.namespace.getxattr(ino, name)
    }

    /// The offset where the next data or the next hole of a file begins, at or behind `offset_bytes`.
    ///
    /// # Errors
    /// ENXIO: no data or no hole follows. ENOSYS: no file has holes, and the kernel can answer for all files.
    pub fn seek(&self, ino: u64, offset_bytes: u64, for_data: bool) -> Result<u64, Errno> {
        self.namespace.seek(ino, offset_bytes, for_data)
    }
}

/// Reads, as a [`super::Driver`] does them.
impl Vfs {
    /// Begins to read up to `length` bytes of an inode from `offset`.
    pub fn read(&self, ino: u64, offset: u64, length: u64) -> Step {
        match Inode::of(ino) {
            Inode::Node(Node::Sample(sample)) => self.reader.read(sample, offset, length),
            Inode::Snapshot(number) => match self.control.read(number, offset, length) {
                Ok((bytes, range)) => Step::done(Payload::Control(bytes, range)),
                Err(errno) => Step::failed(errno),
            },
            Inode::Node(Node::Directory(_)) | Inode::ControlDirectory => {
                Step::failed(Errno::EISDIR)
            }
        }
    }

    /// Decides which bytes a task waits for whose span is not in memory, so that it must wait for the disk.
    pub fn must_wait(&self, task: Task) -> Step {
        self.reader.must_wait(task)
    }

    /// Goes on with a task whose bytes were fetched into [`Task::span`], or whose fetch failed.
    pub fn resume(&self, task: Task, fetched: Result<(), ReadError>) -> Step {
        self.reader.resume(task, fetched)
    }

    /// Goes on with a task whose [`Task::work`] is done.
    pub fn worked(&self, task: Task) -> Step {
        self.reader.transition(task)
    }

    /// Offers a task memory to fetch into, such as the memory that the answer is sent from. The memory is taken if the bytes
    /// fit and are for this answer alone; otherwise it is dropped.
    pub fn lend(&self, task: &mut Task, memory: Buffer) {
        self.reader.lend(task, memory);
    }

    /// Takes an answer back after it was sent, so that its memory is used again.
    pub fn finish(&self, reply: Reply) {
        self.reader.finish(reply);
    }

    /// Takes the right to memory for the span of a task that [`Task::needs_room`]. Without this right, the task must be fetched
    /// later, unless it `is_alone`: a sample may be larger than all of that memory.
    pub fn take_room(&self, task: &mut Task, is_alone: bool) -> bool {
        self.reader.take_room(task) || is_alone
    }

    /// Takes a task's memory for other tasks while it waits in a queue to be fetched.
    pub fn shelve(&self, task: &mut Task) {
        self.reader.shelve(task);
    }

    /// Gives a task memory again, the buffer that this thread used last: new pages cost a fault each.
    pub fn unshelve(&self, task: &mut Task) {
        self.reader.unshelve(task);
    }
}

/// Checks whether containers have changed.
impl Vfs {
    /// Checks the containers that answers told of since the last call. A thread of the transport calls it now and
    /// then; after a call without such containers, only when `wake` of [`Vfs::when_containers_are_noted`] was called.
    pub fn check_containers(&self) -> ContainersChecked {
        self.samples.check_noted()
    }

    /// Sets the function that is called when [`Vfs::check_containers`] has containers to check again.
    pub fn when_containers_are_noted(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.samples.when_noted(wake);
    }
}

/// Control files that are written to.
impl Vfs {
    /// Checks that an inode may be opened for writing.
    ///
    /// # Errors
    /// EROFS: the inode is no control file that can be written to. ESTALE: the inode was a control file of the process that
    /// served the mount before.
    pub fn open_for_writing(&self, ino: u64) -> Result<(), Errno> {
        self.control.open_for_writing(ino)
    }

    /// Accepts a new size of a control file that can be written to, without effect, so that `>` of a shell works.
    ///
    /// # Errors
    /// EROFS: as [`Vfs::open_for_writing`].
    pub fn set_size(&self, ino: u64) -> Result<Attr, Errno> {
        self.control.set_size(ino)
    }

    /// Takes the next bytes of an announcement, or changes of settings. The offset has one use: after a write that ends
    /// at a page's end, more bytes of the same line probably follow.
    ///
    /// # Errors
    /// * EROFS: as [`Vfs::open_for_writing`].
    /// * EINVAL, ENOENT, EISDIR: a line or number names no sample. The samples before it are announced (and once more
    ///   if this write is repeated), the samples behind it in this write are not.
    /// * ENOSPC: too many samples are waiting. No byte of this write was taken; try it again later.
    /// * EIO: a name depends on bytes that cannot be read.
    /// * EINVAL: a setting has no such value. This write changes no setting.
    pub fn write(&self, ino: u64, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.control.write(ino, offset_bytes, bytes)
    }

    /// Checks the last line without a newline when a descriptor of a control file is closed: see `control`.
    ///
    /// # Errors
    /// As [`Vfs::write`]: the last line has no newline and names no sample.
    pub fn flush(&self, ino: u64) -> Result<(), Errno> {
        self.control.flush(ino)
    }

    /// Takes an ioctl to a control file from a process that may have the file open for reading only, as on a read-only
    /// mount: see [`ControlRequest`].
    ///
    /// # Errors
    /// ENOTTY: the file takes no such ioctl. EINVAL: the bytes are no samples or no name. ENOSPC: too many samples are waiting;
    /// try again later. Otherwise as [`Vfs::write`].
    pub fn take_ioctl(&self, ino: u64, request: ControlRequest, bytes: &[u8]) -> Result<(), Errno> {
        self.control.take_ioctl(ino, request, bytes)
    }

    /// Ends the last line of writers that have written nothing for a while, but keep the file open. True if lines
    /// without an end remain: call this again in 100 ms or so.
    pub fn tick_announcements(&self) -> bool {
        self.control.tick()
    }
}
