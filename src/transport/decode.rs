//! The threads that decode ahead: as many as serve requests, once there are intervals to decode. They serve no request, so that
//! no reader waits behind them. Imports `reads` and `threads`.

use super::reads;
use super::threads::Crew;
use crate::io::{Buffer, ReadError};
use crate::store::Cause;
use crate::vfs::Vfs;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use nix::sched::{sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::sync::{Arc, Weak};

/// Has the intervals that `vfs` expects to be read decoded, on up to `threads` threads, which end with `vfs`.
pub(super) fn start(vfs: &Arc<Vfs>, threads: usize) {
    // A message for each thread: more would wake no thread.
    let (wake, woken) = bounded(threads.max(1));
    let decoder = Decoder { vfs: Arc::downgrade(vfs), woken };
    let crew = Crew::new("decode", "decoding", threads);
    let cpus = sched_getaffinity(Pid::from_raw(0)).ok();
    vfs.ahead().when_there_is_something(move || {
        crew.start(|| {
            let (decoder, cpus) = (decoder.clone(), cpus);
            move || {
                // A thread that serves a queue is pinned to its CPU, and the threads that it starts would be, too.
                if let Some(cpus) = cpus {
                    let _ = sched_setaffinity(Pid::from_raw(0), &cpus);
                }
                decoder.run();
            }
        });
        // A full channel will wake the threads anyway.
        let _ = wake.try_send(());
    });
}

#[derive(Clone)]
struct Decoder {
    vfs: Weak<Vfs>,
    woken: Receiver<()>,
}

impl Decoder {
    /// Decodes until the file system is dropped.
    fn run(&self) {
        while let Some(vfs) = self.vfs.upgrade() {
            decode_all(&vfs);
            let patience = vfs.ahead().patience();
            drop(vfs);
            let woken = match patience {
                Some(patience) => self.woken.recv_timeout(patience),
                None => self.woken.recv().map_err(RecvTimeoutError::from),
            };
            if woken == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }
}

fn decode_all(vfs: &Vfs) {
    let mut memory = Buffer::empty();
    while let Some(mut decode) = vfs.ahead().next() {
        decode.lend(memory);
        let fetched = match reads::fetch(vfs.store(), decode.span(), false) {
            // A reader that comes to this interval meanwhile follows, and cannot hurry the store any more.
            Err(ReadError::WouldBlock) => {
                reads::fetch_waiting(vfs.store(), decode.span(), Cause::Demand)
            }
            fetched => fetched,
        };
        memory = vfs.ahead().decode(decode, fetched);
    }
}
