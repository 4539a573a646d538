//! Bytes that were fetched to open containers without a cache: opening makes many small reads close together. Imports
//! nothing of ours.

use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The limit of all remembered bytes.
const MOST_BYTES: u64 = 32 << 20;

/// The ranges of all objects that were fetched last.
#[derive(Default)]
pub(in crate::store::remote) struct Opening(Mutex<VecDeque<Kept>>);

struct Kept {
    object: u64,
    range: Range<u64>,
    pieces: Vec<Bytes>,
}

impl Opening {
    /// The bytes of a range of object number `object`.
    pub(super) fn get(&self, object: u64, range: &Range<u64>) -> Option<Vec<Bytes>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let covers = |kept: &&Kept| {
            kept.object == object && kept.range.start <= range.start && range.end <= kept.range.end
        };
        let found = kept.iter().find(covers)?;
        Some(cut(&found.pieces, found.range.start, range))
    }

    /// Remembers a range, and forgets the oldest ones beyond the limit.
    pub(super) fn keep(&self, object: u64, range: Range<u64>, pieces: Vec<Bytes>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(Kept { object, range, pieces });
        let length = |kept: &Kept| kept.range.end - kept.range.start;
        while kept.iter().map(length).sum::<u64>() > MOST_BYTES {
            kept.pop_front();
        }
    }
}

/// Cuts `range` out of pieces that begin at `start`.
pub(super) fn cut(pieces: &[Bytes], start: u64, range: &Range<u64>) -> Vec<Bytes> {
    let (mut found, mut place) = (Vec::new(), start);
    for piece in pieces {
        let end = place + piece.len() as u64;
        let (from, to) = (range.start.max(place), range.end.min(end));
        if from < to {
            found.push(piece.slice((from - place) as usize..(to - place) as usize));
        }
        place = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_inside_of_what_was_kept_until_there_is_too_much() {
        let opening = Opening::default();
        let pieces = || vec![Bytes::from_static(b"abc"), Bytes::from_static(b"defg")];
        opening.keep(1, 10..17, pieces());
        assert_eq!(opening.get(1, &(12..15)).unwrap().concat(), b"cde");
        assert!(opening.get(2, &(12..15)).is_none() && opening.get(1, &(12..18)).is_none());
        opening.keep(2, 0..MOST_BYTES, Vec::new());
        assert!(opening.get(1, &(12..15)).is_none());
    }
}
