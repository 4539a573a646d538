//! A range that a reader waits for, and the pieces of it that have arrived. Imports the errors.

use crate::store::remote::error::StoreError;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

type Then = Box<dyn FnOnce(Result<Vec<Bytes>, StoreError>) + Send>;

/// A range that a reader waits for.
pub(super) struct Waiting {
    range: Range<u64>,
    /// Whether the reader needs the range in the cache's file only.
    is_fill: bool,
    state: Mutex<State>,
}

struct State {
    /// The pieces by their offsets; they do not overlap.
    pieces: BTreeMap<u64, Bytes>,
    missing_bytes: u64,
    /// `None` once the wait has ended.
    then: Option<Then>,
    is_wanted: Box<dyn Fn() -> bool + Send>,
}

impl Waiting {
    /// A wait that calls `then` once, with the whole range in order or with an error. `is_wanted` tells whether the
    /// reader still waits.
    pub(super) fn new(
        range: Range<u64>,
        is_wanted: impl Fn() -> bool + Send + 'static,
        then: impl FnOnce(Result<Vec<Bytes>, StoreError>) + Send + 'static,
    ) -> Self {
        let (then, is_wanted): (Then, Box<dyn Fn() -> bool + Send>) =
            (Box::new(then), Box::new(is_wanted));
        let (pieces, missing_bytes) = (BTreeMap::new(), range.end - range.start);
        let state = State { pieces, missing_bytes, then: Some(then), is_wanted };
        Self { range, is_fill: false, state: Mutex::new(state) }
    }

    /// Like [`Waiting::new`], for a fill, which needs the range in the cache's file and no bytes.
    pub(super) fn for_file(
        range: Range<u64>,
        is_wanted: impl Fn() -> bool + Send + 'static,
        then: impl FnOnce(Result<(), StoreError>) + Send + 'static,
    ) -> Self {
        let waiting = Self::new(range, is_wanted, move |arrived| then(arrived.map(drop)));
        Self { is_fill: true, ..waiting }
    }

    pub(super) fn is_fill(&self) -> bool {
        self.is_fill
    }

    pub(super) fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// Whether the wait has not ended, and the reader still wants the range.
    pub(super) fn is_waiting(&self) -> bool {
        let state = self.lock();
        state.then.is_some() && (state.is_wanted)()
    }

    /// Takes those of `bytes` at `offset` that lie in `part`, which is a part of the range that comes from one source.
    pub(super) fn offer(&self, part: &Range<u64>, offset: u64, bytes: &Bytes) {
        let end = part.end.min(offset + bytes.len() as u64);
        let start = part.start.max(offset);
        if start >= end {
            return;
        }
        self.add(start..end, bytes.slice((start - offset) as usize..(end - offset) as usize));
    }

    /// Notes that the cache's file holds `part`.
    pub(super) fn note_kept(&self, part: &Range<u64>) {
        self.add(part.clone(), Bytes::new());
    }

    fn add(&self, part: Range<u64>, piece: Bytes) {
        let mut state = self.lock();
        if state.pieces.insert(part.start, piece).is_none() {
            state.missing_bytes = state.missing_bytes.saturating_sub(part.end - part.start);
        }
        if state.missing_bytes > 0 {
            return;
        }
        let pieces = std::mem::take(&mut state.pieces).into_values().collect();
        if let Some(then) = state.then.take() {
            drop(state);
            then(Ok(pieces));
        }
    }

    /// Ends the wait with an error.
    pub(super) fn fail(&self, error: &StoreError) {
        let mut state = self.lock();
        let then = state.then.take();
        state.pieces.clear();
        drop(state);
        if let Some(then) = then {
            then(Err(error.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
