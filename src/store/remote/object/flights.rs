//! The fetches of one object that are in flight, and the readers that wait for them. Imports the cache and `waiting`.

use super::waiting::Waiting;
use crate::store::Cause;
use crate::store::cache::{BLOCK_BYTES, Entry};
use crate::store::remote::{ErrorKind, Location, StoreError};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The length of a chunk. One request fetches at most one chunk, and none crosses a multiple of this: stores keep
/// objects in parts of this length, and a range in two parts takes longer.
pub(super) const CHUNK_BYTES: u64 = 8 << 20;

/// The part of a waiting reader's range that comes from one source.
pub(super) type Share = (Arc<Waiting>, Range<u64>);

/// The fetches of an object that are in flight.
#[derive(Default)]
pub(super) struct Flights {
    flights: Vec<Flight>,
    last: u64,
    /// Shares whose bytes came before their reader joined, and shares of fills: when their block is published, readers
    /// get the bytes from the file, and fills are told.
    passed: Vec<Share>,
    /// Announced chunks.
    pub(super) announced: HashSet<u64>,
    /// Chunks that another daemon has fetched for too long, with the first byte of the block that was waited for. They are read
    /// past the cache while that daemon holds the block.
    abandoned: HashMap<u64, u64>,
}

struct Flight {
    number: u64,
    range: Range<u64>,
    /// The end of the bytes that have arrived.
    position: u64,
    /// Whether the fetched blocks go into the cache.
    is_kept: bool,
    is_urgent: Arc<AtomicBool>,
    shares: Vec<Share>,
}

/// The description of a fetch that has begun.
pub(super) struct Begun {
    pub(super) number: u64,
    pub(super) range: Range<u64>,
    pub(super) is_urgent: Arc<AtomicBool>,
}

impl Begun {
    /// The cause of the readers that wait at the end of a fetch that was begun for `cause`: a reader may have joined.
    pub(super) fn cause_now(&self, cause: Cause) -> Cause {
        let is_urgent = self.is_urgent.load(Ordering::Relaxed);
        if is_urgent && !cause.is_urgent() { Cause::Demand } else { cause }
    }
}

impl Flights {
    /// Adds a fetch.
    pub(super) fn begin(&mut self, range: Range<u64>, is_kept: bool, is_urgent: bool) -> Begun {
        self.last += 1;
        if is_kept {
            self.abandoned.retain(|_, held| !range.contains(held));
        }
        let is_urgent = Arc::new(AtomicBool::new(is_urgent));
        let begun =
            Begun { number: self.last, range: range.clone(), is_urgent: Arc::clone(&is_urgent) };
        let (number, position, shares) = (self.last, range.start, Vec::new());
        self.flights.push(Flight { number, range, position, is_kept, is_urgent, shares });
        begun
    }

    /// Lets a reader wait for a fetch that covers all of `part`, if there is one (for a fill: one that goes into the
    /// cache). `part` lies in one block.
    pub(super) fn join(
        &mut self,
        waiting: &Arc<Waiting>,
        part: &Range<u64>,
        is_urgent: bool,
    ) -> bool {
        let is_fill = waiting.is_fill();
        let covers = |flight: &&mut Flight| {
            flight.range.start <= part.start
                && part.end <= flight.range.end
                && (flight.is_kept || !is_fill && flight.position <= part.start)
        };
        let Some(flight) = self.flights.iter_mut().find(covers) else { return false };
        if is_urgent {
            flight.is_urgent.store(true, Ordering::Relaxed);
        }
        let middle = if is_fill { part.end } else { flight.position.clamp(part.start, part.end) };
        if part.start < middle {
            self.passed.push((Arc::clone(waiting), part.start..middle));
        }
        if middle < part.end {
            flight.shares.push((Arc::clone(waiting), middle..part.end));
        }
        true
    }

    /// Notes that another daemon has fetched the block of `part` for too long.
    pub(super) fn abandon(&mut self, part: &Range<u64>) {
        self.abandoned.insert(part.start / CHUNK_BYTES, part.start - part.start % BLOCK_BYTES);
    }

    /// Whether a reader does not wait for the daemon that fetches `part`: a daemon has fetched this chunk for too long, and
    /// still holds the block that was waited for then. Fills wait on.
    pub(super) fn is_abandoned(
        &mut self,
        waiting: &Waiting,
        part: &Range<u64>,
        entry: &Entry,
    ) -> bool {
        let chunk = part.start / CHUNK_BYTES;
        let Some(held) = self.abandoned.get(&chunk) else { return false };
        if !entry.is_fetched_elsewhere(held / BLOCK_BYTES) {
            self.abandoned.remove(&chunk);
            return false;
        }
        !waiting.is_fill()
    }

    /// Whether a fetch in flight brings this block into the cache.
    pub(super) fn keeps(&self, block: &Range<u64>) -> bool {
        let holds = |flight: &Flight| {
            flight.is_kept && flight.range.start <= block.start && block.end <= flight.range.end
        };
        self.flights.iter().any(holds)
    }

    /// Notes that bytes have arrived. Returns the shares that they belong to, and whether a reader or the cache needs
    /// the bytes that follow.
    pub(super) fn arrived(
        &mut self,
        number: u64,
        offset: u64,
        bytes: &Bytes,
    ) -> (Vec<Share>, bool) {
        let end = offset + bytes.len() as u64;
        let Some(flight) = self.flights.iter_mut().find(|flight| flight.number == number) else {
            return (Vec::new(), false);
        };
        flight.position = end;
        let touched = |(_, part): &&Share| part.start < end && offset < part.end;
        let shares = flight.shares.iter().filter(touched).cloned().collect();
        flight.shares.retain(|(_, part)| part.end > end);
        let is_needed =
            flight.is_kept || flight.shares.iter().any(|(waiting, _)| waiting.is_waiting());
        (shares, is_needed)
    }

    /// Notes that a block can be read from the file. Returns the shares that wait for it.
    pub(super) fn published(&mut self, block: &Range<u64>) -> Vec<Share> {
        self.take_passed(block)
    }

    fn take_passed(&mut self, range: &Range<u64>) -> Vec<Share> {
        let lies_in = |(_, part): &mut Share| range.start <= part.start && part.end <= range.end;
        self.passed.extract_if(.., lies_in).collect()
    }

    /// Removes a fetch that has ended. Returns the shares that still wait for its bytes, which fail if it failed, and
    /// those that wait for blocks that the cache did not take.
    pub(super) fn end(&mut self, number: u64) -> (Vec<Share>, Vec<Share>) {
        let Some(place) = self.flights.iter().position(|flight| flight.number == number) else {
            return (Vec::new(), Vec::new());
        };
        let flight = self.flights.swap_remove(place);
        let passed = if flight.is_kept { self.take_passed(&flight.range) } else { Vec::new() };
        (flight.shares, passed)
    }
}

/// A fetch that ends when the value is dropped. If it has not ended before, as when it panics, the readers that wait for it get
/// an error.
pub(super) struct Ending<'a> {
    pub(super) flights: &'a Mutex<Flights>,
    pub(super) number: u64,
    pub(super) location: &'a Location,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut shares, passed) = flights.end(self.number);
        drop(flights);
        shares.extend(passed);
        if !shares.is_empty() {
            let why = "the fetch has ended by an error of ffrfs";
            fail(&shares, &StoreError::new(self.location.to_string(), ErrorKind::Broken, why));
        }
    }
}

/// Fails the waits of these shares.
pub(super) fn fail(shares: &[Share], error: &StoreError) {
    shares.iter().for_each(|(waiting, _)| waiting.fail(error));
}

/// Splits `range` at the multiples of `length`.
pub(super) fn split(range: Range<u64>, length: u64) -> impl Iterator<Item = Range<u64>> {
    let mut next = range.start;
    std::iter::from_fn(move || {
        let start = next;
        next = range.end.min((start / length + 1) * length);
        (start < range.end).then_some(start..next)
    })
}

/// Widens `range` to multiples of `length`, at most to `end`.
pub(super) fn around(range: &Range<u64>, length: u64, end: u64) -> Range<u64> {
    range.start - range.start % length..range.end.next_multiple_of(length).min(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_split_at_multiples_and_widened_to_them() {
        let pieces: Vec<_> = split(5..27, 10).collect();
        assert_eq!(pieces, [5..10, 10..20, 20..27]);
        assert_eq!(split(5..5, 10).count(), 0);
        assert_eq!((around(&(5..11), 10, 17), around(&(10..20), 10, 99)), (0..17, 10..20));
    }

    #[test]
    fn those_that_wait_for_a_fetch_that_dies_get_an_error() {
        let location = Location::parse("s3://b/k").expect("a URL").expect("a location");
        let flights = Mutex::new(Flights::default());
        let (send, receive) = std::sync::mpsc::channel();
        let waiting = Waiting::new(0..4, || true, move |end| send.send(end).expect("a test"));
        let number = {
            let mut flights = flights.lock().expect("no panic");
            let number = flights.begin(0..8, false, true).number;
            assert!(flights.join(&Arc::new(waiting), &(0..4), true));
            number
        };
        drop(Ending { flights: &flights, number, location: &location });
        let error = receive.try_recv().expect("an end").expect_err("an error");
        assert_eq!(error.kind, ErrorKind::Broken);
        assert!(flights.lock().expect("no panic").flights.is_empty());
    }
}
