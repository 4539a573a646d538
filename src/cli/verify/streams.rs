//! Samples in compressed streams: each interval of a stream is decoded once, however many samples lie in it.

use super::{Fault, Run, reason};
use crate::catalog::Located;
use crate::format::stream::{Interval, StreamIndex};
use crate::io::Buffer;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// What is known of intervals, by container and number: what is wrong, if anything is.
#[derive(Default)]
pub(super) struct Intervals(Mutex<HashMap<(usize, u64), Option<Fault>>>);

impl Run<'_> {
    /// Checks the intervals that a sample lies in; `None` if it was interrupted.
    pub(super) fn check_in_stream(
        &self,
        stream: &StreamIndex,
        located: &Located,
        buffer: &mut Buffer,
    ) -> Option<Option<Fault>> {
        if located.sample.damaged {
            return Some(Some(Fault::Damaged));
        }
        let container = self.container(located);
        let mut at = 0;
        loop {
            let piece = match container.piece(located.index, at) {
                Ok(Some(piece)) => piece,
                Ok(None) => return Some(None),
                Err(error) => return Some(Some(Fault::Structure { error: error.to_string() })),
            };
            let end = piece.offset_bytes + piece.length_bytes;
            let mut offset = piece.offset_bytes;
            while offset < end {
                let Some(interval) = stream.interval(offset) else {
                    return Some(Some(Fault::Damaged));
                };
                offset = interval.decoded.end;
                if let Some(fault) = self.check_interval(stream, &interval, located, buffer)? {
                    return Some(Some(fault));
                }
            }
            at = piece.at_bytes + piece.length_bytes;
        }
    }

    fn check_interval(
        &self,
        stream: &StreamIndex,
        interval: &Interval,
        located: &Located,
        buffer: &mut Buffer,
    ) -> Option<Option<Fault>> {
        let key = (located.container, interval.number);
        let known = || self.intervals.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fault) = known().get(&key) {
            return Some(fault.clone());
        }
        if self.interrupt.requested() {
            return None;
        }
        let fault = self.decode_interval(stream, interval, located, buffer).err();
        known().insert(key, fault.clone());
        Some(fault)
    }

    fn decode_interval(
        &self,
        stream: &StreamIndex,
        interval: &Interval,
        located: &Located,
        buffer: &mut Buffer,
    ) -> Result<(), Fault> {
        let length = (interval.stored.end - interval.stored.start) as usize;
        let start = self.opened.dataset.base_of(located.container) + interval.stored.start;
        buffer.reserve(length);
        let stored = &mut buffer.as_mut_slice()[..length];
        let read = self.part(located).read(stored, start, length);
        read.map_err(|error| Fault::Unreadable { error: reason(&error) })?;
        let mut decoded = vec![0; (interval.decoded.end - interval.decoded.start) as usize];
        let checked = stream.decode(interval.number, stored, &mut decoded);
        checked.map_err(|error| Fault::Structure { error })
    }
}
