//! Files with holes: a range is put together piece by piece.

use super::Reader;
use super::pieces::Pieces;
use super::task::{State, Step, Task};
use crate::format::Fault;
use crate::vfs::Errno;
use crate::vfs::memory::block_checksums::BlockChecksums;
use crate::vfs::memory::cache::{CacheAnswer, CacheKey, Cached};
use std::ops::Range;
use std::sync::Arc;

impl Reader {
    pub(super) fn begin_pieces(&self, want: &Range<u64>) -> Result<Box<Pieces>, Fault> {
        let buffer = self.samples.buffer((want.end - want.start) as usize)?;
        Ok(Pieces::new(buffer, want))
    }

    /// Reads a file with holes: all its stored bytes are read first, if they must be checked.
    pub(super) fn read_sparse(&self, mut task: Task) -> Step {
        let must_check = self.samples.must_check(task.sample, &task.located);
        if !must_check || task.located.sample.length_bytes == 0 {
            return self.read_pieces(task, None);
        }
        let (key, asked) = (CacheKey::Sample(task.sample), task.want.end - task.want.start);
        match self.memory.cache().get_or_lead(key, asked) {
            CacheAnswer::Cached(Cached::Checksums(checksums)) => {
                self.read_pieces(task, Some(checksums))
            }
            CacheAnswer::InFlight(read) => Step::Wait(read),
            CacheAnswer::Lead(leader) => {
                task.leader = Some(leader);
                self.begin_checksum(task)
            }
            // Only checksums are cached of such a sample.
            CacheAnswer::Cached(_) | CacheAnswer::Prefetched(..) => self.fail(task, Fault::Damaged),
        }
    }

    /// Reads the wanted range of a file with holes.
    pub(super) fn read_pieces(&self, task: Task, checksums: Option<Arc<BlockChecksums>>) -> Step {
        let mut pieces = match self.begin_pieces(&task.want) {
            Ok(pieces) => pieces,
            Err(fault) => return self.fail(task, fault),
        };
        pieces.checksums = checksums;
        self.next_piece(task, pieces)
    }

    /// Fetches the next piece, or answers when the range is complete.
    fn next_piece(&self, task: Task, mut pieces: Box<Pieces>) -> Step {
        let container = self.samples.container(&task.located);
        let want = task.want.clone();
        match container.piece(task.located.index, pieces.end()) {
            Ok(Some(piece)) if piece.at_bytes < want.end && pieces.end() < want.end => {
                let start = piece.at_bytes.max(pieces.end());
                let end = piece.at_bytes.saturating_add(piece.length_bytes).min(want.end);
                if start >= end {
                    return self.fail(task, Fault::Damaged);
                }
                pieces.current = start..end;
                let first = self.samples.dataset().base_of(task.located.container)
                    + piece.offset_bytes
                    + (start - piece.at_bytes);
                pieces.first = first;
                let range = first..first + (end - start);
                match range_to_fetch(&task, &pieces, range) {
                    Some(range) => task.fetch(State::Piece(pieces), range),
                    None => self.fail(task, Fault::Damaged),
                }
            }
            Ok(_) => self.answer_pieces(&want, *pieces),
            Err(error) => Step::failed(Errno::from(&error)),
        }
    }

    /// Takes the piece that was fetched, perhaps with bytes around it.
    pub(super) fn after_piece(&self, mut task: Task, mut pieces: Box<Pieces>) -> Step {
        let fetched = task.span.range().start;
        if let Some(checksums) = &pieces.checksums {
            let start = fetched - task.located.sample.offset_bytes;
            if let Err((_, mismatch)) = checksums.check(start, task.span.bytes()) {
                if self.distrusts_fetched(&mut task) {
                    return task.fetch_again(State::Piece(pieces));
                }
                return self.fail(task, Fault::Checksum(mismatch));
            }
        }
        let Range { start, end } = pieces.current.clone();
        let skip = (pieces.first - fetched) as usize;
        let bytes = &task.span.bytes()[skip..skip + (end - start) as usize];
        pieces.copy(&task.want, start, bytes);
        self.next_piece(task, pieces)
    }
}

/// The range to fetch for a piece at `range` of the part: whole blocks around the piece, if blocks are checked. `None` if
/// the piece lies outside of the sample.
fn range_to_fetch(task: &Task, pieces: &Pieces, range: Range<u64>) -> Option<Range<u64>> {
    let Some(checksums) = &pieces.checksums else { return Some(range) };
    let at = task.located.sample;
    let start = range.start.checked_sub(at.offset_bytes)?;
    let end = (range.end <= at.end_bytes()).then(|| range.end - at.offset_bytes)?;
    let (start, end) = checksums.around(start, end, at.length_bytes);
    Some(task.in_container(start, end))
}
