//! Files with holes: a range is put together piece by piece.

use super::bad::Fault;
use super::cache::{Entered, Known};
use super::read::{Goal, Payload, Reply, Step, Task};
use super::verify::Digests;
use super::{Errno, Vfs};
use crate::format::Content;
use crate::io::Buffer;
use std::ops::Range;
use std::sync::Arc;

/// A range of a file on its way into memory; what is not fetched stays zero.
pub(super) struct Pieces {
    buffer: Buffer,
    /// The part of the file that is being fetched.
    part: Range<u64>,
    /// Where that begins in the container.
    first: u64,
    /// What the blocks of the stored bytes must match, if they are checked.
    digests: Option<Arc<Digests>>,
}

impl Pieces {
    /// Up to where the range is there.
    pub(super) fn end(&self) -> u64 {
        self.part.end
    }

    /// Puts the next bytes, from byte `start` of the file, where they belong in `want`.
    pub(super) fn copy(&mut self, want: &Range<u64>, start: u64, bytes: &[u8]) {
        let first = (start - want.start) as usize;
        self.buffer.as_mut_slice()[first..first + bytes.len()].copy_from_slice(bytes);
        self.part = start..start + bytes.len() as u64;
    }
}

impl Vfs {
    pub(super) fn begin_pieces(&self, want: &Range<u64>) -> Box<Pieces> {
        let length = (want.end - want.start) as usize;
        let mut buffer = self.buffers.take(length);
        buffer.as_mut_slice()[..length].fill(0);
        Box::new(Pieces { buffer, part: want.start..want.start, first: 0, digests: None })
    }

    /// Reads a file with holes: what is stored of it is passed over first, if it must be checked.
    pub(super) fn read_sparse(&self, mut task: Task) -> Step {
        let is_checked = self.must_check(task.sample(), &task.located);
        if !is_checked || task.located.sample.length_bytes == 0 {
            return self.read_pieces(task, None);
        }
        match self.cache.enter(task.sample(), task.want.end - task.want.start) {
            Entered::Hit(Known::Digests(digests)) => self.read_pieces(task, Some(digests)),
            Entered::Join(flight) => Step::Wait(flight),
            Entered::Lead(lead) => {
                task.lead = Some(lead);
                self.begin_scan(task)
            }
            // Nothing else is kept of such a sample.
            Entered::Hit(_) | Entered::Ahead(..) => self.fail(task, Fault::Damaged),
        }
    }

    /// Reads the wanted range of a file with holes.
    pub(super) fn read_pieces(&self, task: Task, digests: Option<Arc<Digests>>) -> Step {
        let mut pieces = self.begin_pieces(&task.want);
        pieces.digests = digests;
        self.next_piece(task, pieces)
    }

    /// Fetches the next piece, or gives the range out if there is none.
    fn next_piece(&self, task: Task, mut pieces: Box<Pieces>) -> Step {
        let container = self.container(&task.located);
        let want = task.want.clone();
        match container.piece(task.located.index, pieces.part.end) {
            Ok(Some(piece)) if piece.at_bytes < want.end && pieces.part.end < want.end => {
                let start = piece.at_bytes.max(pieces.part.end);
                let end = piece.at_bytes.saturating_add(piece.length_bytes).min(want.end);
                if start >= end {
                    return self.fail(task, Fault::Damaged);
                }
                pieces.part = start..end;
                let first = self.dataset.base_of(task.located.container)
                    + piece.offset_bytes
                    + (start - piece.at_bytes);
                let mut range = first..first + (end - start);
                if let Some(digests) = &pieces.digests {
                    let at = task.located.sample;
                    let stored = range
                        .start
                        .checked_sub(at.offset_bytes)
                        .zip((range.end <= at.end_bytes()).then(|| range.end - at.offset_bytes));
                    let Some((start, end)) = stored else {
                        return self.fail(task, Fault::Damaged);
                    };
                    let (start, end) = digests.around(start, end, at.length_bytes);
                    range = task.of_container(start, end);
                }
                pieces.first = first;
                task.next(Goal::Pieces(pieces), range)
            }
            Ok(_) => self.give_pieces(&want, *pieces),
            Err(error) => Step::Done(Reply(Err(Errno::from(&error)))),
        }
    }

    pub(super) fn give_pieces(&self, want: &Range<u64>, pieces: Pieces) -> Step {
        let length = (want.end - want.start) as usize;
        self.stats.served(length as u64);
        Step::Done(Reply(Ok(Payload::Fetched(pieces.buffer, 0..length))))
    }

    /// Takes the piece that was fetched, perhaps with what lies around it.
    pub(super) fn take_piece(&self, task: Task, mut pieces: Box<Pieces>) -> Step {
        let fetched = task.span.range().start;
        if let Some(digests) = &pieces.digests {
            let start = fetched - task.located.sample.offset_bytes;
            if let Err((_, mismatch)) = digests.check(start, task.span.bytes()) {
                return self.mismatch(task, Fault::Checksum(mismatch));
            }
        }
        let part = pieces.part.clone();
        let skip = (pieces.first - fetched) as usize;
        let bytes = &task.span.bytes()[skip..skip + (part.end - part.start) as usize];
        pieces.copy(&task.want, part.start, bytes);
        self.next_piece(task, pieces)
    }

    /// Where the next data or the next hole of a file begins, at or behind `offset_bytes`.
    ///
    /// # Errors
    /// ENXIO: there is none. ENOSYS: no file has holes, the kernel knows the answer for all of them.
    pub fn seek(&self, ino: u64, offset_bytes: u64, for_data: bool) -> Result<u64, Errno> {
        if !self.dataset.parts().iter().any(|part| part.has_holes()) {
            return Err(Errno::ENOSYS);
        }
        let located = self.located_file(ino)?;
        let size = located.sample.size_bytes();
        if offset_bytes >= size {
            return Err(Errno::ENXIO);
        }
        if !matches!(located.sample.content, Content::Sparse(_)) {
            return Ok(if for_data { offset_bytes } else { size });
        }
        let mut at = offset_bytes;
        loop {
            let found = self.container(&located).piece(located.index, at);
            match found.map_err(|e| Errno::from(&e))? {
                None if for_data => return Err(Errno::ENXIO),
                Some(piece) if for_data => return Ok(piece.at_bytes.max(at)),
                Some(piece) if piece.at_bytes <= at && at < size => {
                    at = piece.at_bytes.saturating_add(piece.length_bytes);
                }
                // There is a hole behind the end of every file.
                _ => return Ok(at.min(size)),
            }
        }
    }
}
