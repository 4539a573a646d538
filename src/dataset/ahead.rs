//! Reads that open a container in a store. A request costs a round trip, so both ends of the container are fetched at
//! once, its index in several large pieces at a time, and a pass over the whole container is read ahead.

use crate::format::{PartName, Source, Table, table_in_memory};
use crate::store::{Bytes, Part};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, JoinHandle};

/// Fetched from the beginning of a container.
const HEAD_BYTES: u64 = 64 << 10;
/// Fetched from the end of a container, where a zip has its directory and a kept index's key has a checksum.
const TAIL_BYTES: u64 = 128 << 10;
/// The minimum fetch while a container is opened.
const PIECE_BYTES: u64 = 256 << 10;
/// The maximum number of such pieces that are remembered.
const PIECES: usize = 8;
/// The first pieces are those of both ends.
const ENDS: usize = 2;
/// The alignment and size of the pieces of large ranges, and of a pass's read-ahead.
const LARGE_BYTES: u64 = 8 << 20;
/// The number of large pieces that are fetched at a time, over all containers that are opened together.
const LARGE_PIECES: usize = 8;
/// The size of a pass's pieces when many passes run at a time.
const SHARED_BYTES: u64 = 1 << 20;

/// A container in a store while it is being opened.
pub(crate) struct Ahead {
    part: Arc<Part>,
    is_opened: AtomicBool,
    state: Mutex<State>,
    /// The read-ahead of a pass: the size of a piece, and the number of pieces.
    pass: (u64, usize),
}

#[derive(Default)]
struct State {
    /// The bytes that were read, by offset.
    pieces: VecDeque<(u64, Arc<Vec<u8>>)>,
    /// The pieces that a pass's read-ahead is fetching, in order.
    coming: VecDeque<Coming>,
    is_pass: bool,
    /// Where the pass last read.
    passed: u64,
}

struct Coming {
    start: u64,
    fetch: JoinHandle<io::Result<Vec<u8>>>,
}

/// The source for a pass over a container; `together` is the number of concurrent passes.
pub(super) fn pass(part: &Arc<Part>, together: usize) -> Arc<dyn Source> {
    match part.bytes() {
        Bytes::Remote(_) => {
            let ahead = Ahead::new(Arc::clone(part), together);
            ahead.begin_pass();
            ahead
        }
        Bytes::Local(_) | Bytes::Memory(_) => Arc::clone(part) as Arc<dyn Source>,
    }
}

impl Ahead {
    /// Fetches both ends of a container; `together` is the number of containers that are opened at a time.
    pub(crate) fn new(part: Arc<Part>, together: usize) -> Arc<Self> {
        let pass = match LARGE_PIECES / together.max(1) {
            0 => (SHARED_BYTES, 1),
            depth => (LARGE_BYTES, depth),
        };
        let length = part.len_bytes();
        let (is_opened, state) = (AtomicBool::new(false), Mutex::default());
        let ahead = Arc::new(Self { part, is_opened, state, pass });
        let tail = length.saturating_sub(TAIL_BYTES).max(HEAD_BYTES)..length;
        thread::scope(|scope| {
            // The read that needs the bytes reports the error.
            if !tail.is_empty() {
                let _ = Builder::new().spawn_scoped(scope, || ahead.piece(tail).is_ok());
            }
            let _ = ahead.piece(0..HEAD_BYTES.min(length));
        });
        ahead
    }

    /// Notes the beginning of a pass over the whole container.
    pub(crate) fn begin_pass(&self) {
        self.state().is_pass = true;
    }

    /// Notes the end of the pass.
    pub(crate) fn end_pass(&self) {
        let mut state = self.state();
        state.is_pass = false;
        state.coming.clear();
    }

    /// Notes that the container is open, and frees the remembered bytes.
    pub(crate) fn end(&self) {
        self.is_opened.store(true, Ordering::Relaxed);
        *self.state() = State::default();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fetches a range and remembers it.
    fn piece(&self, range: Range<u64>) -> io::Result<Arc<Vec<u8>>> {
        let start = range.start;
        let bytes = Arc::new(read(&self.part, range)?);
        self.state().remember(start, &bytes);
        Ok(bytes)
    }

    /// Reads a range that is not longer than a piece.
    fn small(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        let end = offset_bytes.saturating_add(PIECE_BYTES).min(self.part.len_bytes());
        match self.piece(offset_bytes..end).as_ref().map(|bytes| bytes.get(..buf.len())) {
            Ok(Some(bytes)) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            // The bytes behind the requested range may be the ones that fail.
            _ => self.part.read_exact_at(buf, offset_bytes),
        }
    }

    /// Reads a range of any length, in pieces that are fetched at the same time.
    fn large(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        let first = LARGE_BYTES - offset_bytes % LARGE_BYTES;
        let (head, rest) = buf.split_at_mut(buf.len().min(first as usize));
        let rest = rest.chunks_mut(LARGE_BYTES as usize);
        let mut pieces: Vec<_> = std::iter::once(head).chain(rest).collect();
        let mut at = offset_bytes;
        for batch in pieces.chunks_mut(LARGE_PIECES) {
            let fetched = thread::scope(|scope| {
                let mut fetches = Vec::with_capacity(batch.len());
                for piece in batch {
                    let start = at;
                    at += piece.len() as u64;
                    let fetch = move || self.part.read_exact_at(piece, start);
                    fetches.push(Builder::new().spawn_scoped(scope, fetch)?);
                }
                fetches.into_iter().try_for_each(|fetch| joined(fetch.join()))
            });
            fetched?;
        }
        Ok(())
    }

    /// Copies the bytes that a pass needs next from its read-ahead. `false` if they are not there.
    fn pass(&self, buf: &mut [u8], offset_bytes: u64) -> bool {
        let (piece_bytes, depth) = self.pass;
        let (mut done, length) = (0, self.part.len_bytes());
        while done < buf.len() {
            let at = offset_bytes + done as u64;
            let mut state = self.state();
            let far = state.passed.saturating_add(piece_bytes * (depth as u64 + 1));
            let is_jump = !(state.passed..far).contains(&at);
            state.passed = at;
            let found = state.found(at);
            if is_jump && found.is_none() {
                // The pass skipped a large member: it may read only headers from here on.
                return false;
            }
            let (start, bytes) = match found {
                Some(found) => found,
                None => {
                    let start = at - at % piece_bytes;
                    let until = start.saturating_add(piece_bytes * depth as u64).min(length);
                    let coming = state.next(start, piece_bytes, until, &self.part);
                    drop(state);
                    let Some(coming) = coming else { return false };
                    let Ok(bytes) = joined(coming.fetch.join()) else { return false };
                    let bytes = Arc::new(bytes);
                    self.state().remember(start, &bytes);
                    (start, bytes)
                }
            };
            let there = &bytes[(at - start) as usize..];
            let count = there.len().min(buf.len() - done);
            buf[done..done + count].copy_from_slice(&there[..count]);
            done += count;
        }
        true
    }
}

impl State {
    fn remember(&mut self, start: u64, bytes: &Arc<Vec<u8>>) {
        // A pass needs each piece once; the pieces of both ends stay.
        let most = if self.is_pass { ENDS } else { PIECES };
        while self.pieces.len() > most {
            self.pieces.remove(ENDS);
        }
        self.pieces.push_back((start, Arc::clone(bytes)));
    }

    /// The piece that contains a byte.
    fn found(&self, at: u64) -> Option<(u64, Arc<Vec<u8>>)> {
        let holds = |(start, bytes): &&(u64, Arc<Vec<u8>>)| {
            (*start..*start + bytes.len() as u64).contains(&at)
        };
        self.pieces.iter().rev().find(holds).cloned()
    }

    /// The piece of a pass that begins at `start`; also starts fetching the pieces up to `until`.
    fn next(&mut self, start: u64, bytes: u64, until: u64, part: &Arc<Part>) -> Option<Coming> {
        while self.coming.front().is_some_and(|coming| coming.start != start) {
            self.coming.pop_front();
        }
        let mut at = self.coming.back().map_or(start, |last| last.start + bytes);
        while at < until {
            // Where there can be no thread, the pass waits for the rest when it comes to it.
            let Some(coming) = fetch(part, at, bytes) else { break };
            self.coming.push_back(coming);
            at += bytes;
        }
        self.coming.pop_front()
    }
}

fn fetch(part: &Arc<Part>, start: u64, bytes: u64) -> Option<Coming> {
    let part = Arc::clone(part);
    let end = start.saturating_add(bytes).min(part.len_bytes());
    let fetch = Builder::new().spawn(move || read(&part, start..end)).ok()?;
    Some(Coming { start, fetch })
}

fn read(part: &Part, range: Range<u64>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    part.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes)
}

fn joined<T>(outcome: thread::Result<io::Result<T>>) -> io::Result<T> {
    outcome.unwrap_or_else(|_| Err(io::Error::other("the fetch of a range panicked")))
}

impl Source for Ahead {
    fn name(&self) -> &PartName {
        self.part.name()
    }

    fn len(&self) -> u64 {
        self.part.len_bytes()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        let end = offset_bytes.checked_add(buf.len() as u64);
        let is_within = end.is_some_and(|end| end <= self.part.len_bytes());
        if self.is_opened.load(Ordering::Relaxed) || buf.is_empty() || !is_within {
            return self.part.read_exact_at(buf, offset_bytes);
        }
        let state = self.state();
        let (found, is_pass) = (state.found(offset_bytes), state.is_pass);
        drop(state);
        if let Some((start, bytes)) = found
            && let Some(there) = bytes.get((offset_bytes - start) as usize..)
            && let Some(there) = there.get(..buf.len())
        {
            buf.copy_from_slice(there);
            return Ok(());
        }
        if is_pass && self.pass(buf, offset_bytes) {
            return Ok(());
        }
        match buf.len() as u64 <= PIECE_BYTES {
            true => self.small(buf, offset_bytes),
            false => self.large(buf, offset_bytes),
        }
    }

    fn check_unchanged(&self) -> io::Result<()> {
        Source::check_unchanged(self.part.as_ref())
    }

    fn table(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Box<dyn Table>> {
        table_in_memory(self, offset_bytes, length_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::{Faraway, LONG_PATIENCE};

    fn ahead(length: u64) -> (Arc<Ahead>, Arc<Faraway>, Vec<u8>) {
        let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + at / 251) as u8).collect();
        let (part, store) = Faraway::part(LONG_PATIENCE, bytes.clone(), &[]);
        (Ahead::new(Arc::new(part), 1), store, bytes)
    }

    fn check(ahead: &Ahead, bytes: &[u8], at: u64, length: usize) {
        let mut found = vec![0; length];
        ahead.read_exact_at(&mut found, at).unwrap();
        assert!(found == bytes[at as usize..][..length], "{length} bytes at {at}");
    }

    #[test]
    fn both_ends_come_with_two_requests_and_serve_all_small_reads_in_them() {
        let (ahead, store, bytes) = ahead(1 << 20);
        assert_eq!(store.demands(), 2);
        for (at, length) in
            [(0, 8), (512, 4000), ((1 << 20) - 22, 22), ((1 << 20) - 70_000, 70_000)]
        {
            check(&ahead, &bytes, at, length);
        }
        assert_eq!(store.demands(), 2);
        check(&ahead, &bytes, 300_000, 46);
        check(&ahead, &bytes, 400_000, 46);
        assert_eq!(store.demands(), 3, "what lies near comes with it");
    }

    #[test]
    fn a_small_container_is_fetched_once_and_an_empty_one_not_at_all() {
        let (first, store, bytes) = ahead(1000);
        check(&first, &bytes, 0, 1000);
        assert_eq!(store.demands(), 1);
        assert!(first.read_exact_at(&mut [0; 2], 999).is_err());
        let (empty, _, _) = ahead(0);
        assert!(empty.read_exact_at(&mut [0], 0).is_err());
    }

    #[test]
    fn a_large_table_comes_in_aligned_pieces_at_a_time() {
        let (ahead, store, bytes) = ahead(20 << 20);
        let (at, length) = (100_000, 18 << 20);
        let table = ahead.table(at, length).unwrap();
        let mut found = vec![0; length as usize];
        table.copy_to(0, &mut found).unwrap();
        assert!(found == bytes[at as usize..][..length as usize]);
        assert_eq!(store.demands() - 2, 3);
    }

    #[test]
    fn a_pass_reads_each_piece_once_and_passes_over_what_is_large() {
        let (ahead, store, bytes) = ahead(40 << 20);
        ahead.begin_pass();
        let before = store.demands();
        for at in (0..40 << 20).step_by(100_000) {
            check(&ahead, &bytes, at, 512);
        }
        assert_eq!(store.demands() - before, 5);
        // A range across the border of two pieces.
        let (ahead, _, bytes) = super::tests::ahead(20 << 20);
        ahead.begin_pass();
        check(&ahead, &bytes, (8 << 20) - 100, 300);
        ahead.end_pass();
        ahead.end();
        check(&ahead, &bytes, 5 << 20, 300);
    }
}
