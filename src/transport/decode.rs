//! The threads that decode ahead: one of the daemon's, and as many as serve requests once something is to be decoded. They
//! serve no request, so that no reader waits behind them. Imports `reads` and `threads`.

use super::reads;
use super::threads;
use crate::io::{Buffer, ReadError};
use crate::store::Cause;
use crate::vfs::Vfs;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::io;
use std::sync::{Arc, Weak};

/// Starts to decode what `vfs` expects to be read, on up to `threads` threads. They end with it.
///
/// # Errors
/// No thread can be started.
pub(super) fn start(vfs: &Arc<Vfs>, threads: usize) -> io::Result<()> {
    // A message for each thread: more would wake nobody.
    let (wake, woken) = bounded(threads.max(1));
    let decoder = Decoder { vfs: Arc::downgrade(vfs), woken };
    // The threads that serve queues are pinned to their CPUs, and what they start would be, too: the first one, which is not,
    // starts the others.
    threads::spawn("ffrfs-decode-0", move || decoder.run_with_others(threads))?;
    vfs.ahead().when_there_is_something(move || tell(&wake));
    Ok(())
}

fn tell(wake: &Sender<()>) {
    // A full channel will wake the threads anyway.
    let _ = wake.try_send(());
}

#[derive(Clone)]
struct Decoder {
    vfs: Weak<Vfs>,
    woken: Receiver<()>,
}

impl Decoder {
    fn run_with_others(&self, threads: usize) {
        if self.woken.recv().is_err() {
            return;
        }
        for number in 1..threads {
            let other = self.clone();
            let started = threads::spawn(format!("ffrfs-decode-{number}"), move || other.run());
            if let Err(error) = started {
                tracing::warn!("cannot start a decoding thread: {error}");
            }
        }
        self.run();
    }

    /// Decodes until nobody has the file system any more.
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
            // A reader that comes to it meanwhile follows, and cannot hurry the store any more.
            Err(ReadError::WouldBlock) => {
                reads::fetch_waiting(vfs.store(), decode.span(), Cause::Demand)
            }
            fetched => fetched,
        };
        memory = vfs.ahead().decode(decode, fetched);
    }
}
