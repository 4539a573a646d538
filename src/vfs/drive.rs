//! The one loop that follows a read's steps to its answer, and the methods that a driver must have for it.
//!
//! | driver | fetches | works | waits for a leader by |
//! | --- | --- | --- | --- |
//! | `Blocking` | in place | in place | blocking the thread |
//! | `transport/devfuse.rs` | from the page cache in place, else on a worker thread | on a worker thread | going on where the leader ends |
//! | `transport/queue.rs` | from the page cache in place, else through the ring | on a worker thread | parking the slot |
//! | the simulator in the tests | when chance says so | when chance says so | being chosen again |

use super::facade::Vfs;
use super::{InFlightRead, Reply, Span, Step, Task};
use crate::io::ReadError;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::{Arc, mpsc};

/// The file and the bytes that a read asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRequest {
    /// The inode.
    pub ino: u64,
    /// The first byte that is read, as an offset in the file.
    pub offset_bytes: u64,
    /// The most bytes that are read.
    pub length_bytes: u64,
}

/// Takes one read through its steps. A method breaks with the output when the driver has put the read aside
/// to go on later (with [`drive`]), and else continues with the driver and the task for the next step.
pub trait Driver: Sized {
    /// The value that [`drive`] returns.
    type Output;

    /// The file system that is read.
    fn vfs(&self) -> &Vfs;

    /// The request of the read: a read that waited for another one begins anew with it.
    fn request(&self) -> ReadRequest;

    /// Fetches [`Task::span`]. After [`ReadError::WouldBlock`] the step machine decides which bytes to wait for; a task
    /// that [`Task::waits`] is fetched from storage.
    fn fetch(self, task: Task) -> ControlFlow<Self::Output, (Self, Task, Result<(), ReadError>)>;

    /// Calls [`Task::work`] on a thread that may block or be busy: file I/O beside the containers, and decoding.
    fn work(self, task: Task) -> ControlFlow<Self::Output, (Self, Task)>;

    /// Waits until `read` has ended; a thread that serves other requests does not block meanwhile.
    fn follow(self, read: Arc<InFlightRead>) -> ControlFlow<Self::Output, Self>;

    /// Keeps the task until `turn` has ended; a thread that serves other requests does not block meanwhile.
    fn await_turn(
        self,
        task: Task,
        turn: Arc<InFlightRead>,
    ) -> ControlFlow<Self::Output, (Self, Task)>;

    /// Sends the answer, and takes its memory back with [`Vfs::finish`].
    fn answer(self, reply: Reply) -> Self::Output;
}

/// Begins a read and follows its steps.
pub fn begin<D: Driver>(driver: D) -> D::Output {
    let ReadRequest { ino, offset_bytes, length_bytes } = driver.request();
    let step = driver.vfs().read(ino, offset_bytes, length_bytes);
    drive(driver, step)
}

/// Follows a read from `step` until it is answered or the driver puts it aside.
#[inline]
pub fn drive<D: Driver>(mut driver: D, mut step: Step) -> D::Output {
    loop {
        step = match step {
            Step::Done(reply) => return driver.answer(reply),
            Step::Wait(read) => match driver.follow(read) {
                Break(output) => return output,
                Continue(same) => {
                    driver = same;
                    let ReadRequest { ino, offset_bytes, length_bytes } = driver.request();
                    driver.vfs().read(ino, offset_bytes, length_bytes)
                }
            },
            Step::Turn(task, turn) => match driver.await_turn(task, turn) {
                Break(output) => return output,
                Continue((same, task)) => {
                    driver = same;
                    driver.vfs().worked(task)
                }
            },
            Step::Work(task) => match driver.work(task) {
                Break(output) => return output,
                Continue((same, task)) => {
                    driver = same;
                    driver.vfs().worked(task)
                }
            },
            Step::Read(task) => match driver.fetch(task) {
                Break(output) => return output,
                Continue((same, task, fetched)) => {
                    driver = same;
                    match fetched {
                        Err(ReadError::WouldBlock) => driver.vfs().must_wait(task),
                        fetched => driver.vfs().resume(task, fetched),
                    }
                }
            },
        }
    }
}

/// A driver that may block its thread: for tools, benchmarks and tests.
struct Blocking<'a, F> {
    vfs: &'a Vfs,
    request: ReadRequest,
    fetch: F,
}

impl<F: FnMut(&mut Span) -> Result<(), ReadError>> Driver for Blocking<'_, F> {
    type Output = Reply;

    fn vfs(&self) -> &Vfs {
        self.vfs
    }

    fn request(&self) -> ReadRequest {
        self.request
    }

    fn fetch(mut self, mut task: Task) -> ControlFlow<Reply, (Self, Task, Result<(), ReadError>)> {
        let fetched = (self.fetch)(task.span());
        Continue((self, task, fetched))
    }

    fn work(self, mut task: Task) -> ControlFlow<Reply, (Self, Task)> {
        task.work();
        Continue((self, task))
    }

    fn follow(self, read: Arc<InFlightRead>) -> ControlFlow<Reply, Self> {
        wait_for(&read);
        Continue(self)
    }

    fn await_turn(self, task: Task, turn: Arc<InFlightRead>) -> ControlFlow<Reply, (Self, Task)> {
        wait_for(&turn);
        Continue((self, task))
    }

    fn answer(self, reply: Reply) -> Reply {
        reply
    }
}

/// Blocks this thread until a read has ended.
fn wait_for(read: &InFlightRead) {
    let (ended, end) = mpsc::sync_channel(1);
    read.when_ended(move || {
        let _ = ended.send(());
    });
    // An in-flight read ends even if its leader fails: the message comes.
    let _ = end.recv();
}

impl Vfs {
    /// Reads on this thread, which may block; `fetch` fills a span. Give the reply back with
    /// [`Vfs::finish`].
    pub fn read_blocking(
        &self,
        request: ReadRequest,
        fetch: impl FnMut(&mut Span) -> Result<(), ReadError>,
    ) -> Reply {
        begin(Blocking { vfs: self, request, fetch })
    }
}
