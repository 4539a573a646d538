//! Reads of what is in memory already: fetched ahead, left over, or part of a block.

use super::Vfs;
use super::block::{self, Chunk};
use super::cache::{Entered, Known};
use super::content::{Unfit, stored_range};
use super::read::{Payload, Reply, Step};
use super::verify::{Memory, Verified};
use crate::catalog::Located;
use crate::format::Content;
use std::ops::Range;
use std::sync::Arc;

impl Vfs {
    /// What was fetched ahead, or with others, or is on its way.
    pub(super) fn in_memory(
        &self,
        sample: u64,
        located: &Located,
        want: &Range<u64>,
    ) -> Option<Step> {
        if !self.cache.is_idle() {
            match self.cache.look(sample, want.end - want.start) {
                Some(Entered::Ahead(verified, used_up)) => {
                    self.used_ahead(sample, located, used_up);
                    return Some(self.give_shared(verified, want));
                }
                Some(Entered::Hit(Known::Whole(verified))) => {
                    return Some(self.give_shared(verified, want));
                }
                Some(Entered::Join(flight)) => return Some(Step::Wait(flight)),
                Some(Entered::Hit(Known::Digests(_) | Known::Stream(_)) | Entered::Lead(_))
                | None => {}
            }
        }
        if self.blocks.is_idle() || !self.is_small(&located.sample) {
            return None;
        }
        let range = located.sample.extent();
        let asked = want.end - want.start;
        match self.blocks.around(located.part, &range) {
            Some(id) => match self.blocks.look(id, asked)? {
                block::Entered::Hit(chunk, is_first) => {
                    if is_first {
                        self.observe(sample, located);
                    }
                    self.in_block(sample, located, want, id, &chunk)
                }
                block::Entered::Join(flight) => Some(Step::Wait(flight)),
                block::Entered::Lead(_) | block::Entered::Refused => None,
            },
            None => self.in_two_blocks(sample, located, want, &range),
        }
    }

    /// `None` if the bytes there are not what they should be: then they are fetched again.
    pub(super) fn in_block(
        &self,
        sample: u64,
        located: &Located,
        want: &Range<u64>,
        id: block::BlockId,
        chunk: &Arc<Chunk>,
    ) -> Option<Step> {
        let at = located.sample;
        let block = self.blocks.range(id, self.store.part(located.part).len_bytes());
        let place = |range: Range<u64>| {
            (range.start - block.start) as usize..(range.end - block.start) as usize
        };
        let range = place(at.extent());
        if range.end > chunk.unchecked().len() {
            return None;
        }
        let as_stored = matches!(at.content, Content::Stored) && at.lead_bytes == 0;
        if as_stored && !self.must_check(sample, located) {
            let range = place(stored_range(&at, want));
            self.stats.served(want.end - want.start);
            return Some(Step::Done(Reply(Ok(Payload::Unchecked(Arc::clone(chunk), range)))));
        }
        match self.admit(sample, located, Memory::Shared(Arc::clone(chunk)), range) {
            Ok(verified) => Some(self.give_part(sample, located, verified, want)),
            Err(Unfit::Moved) => None,
            Err(Unfit::Fault(_)) => {
                self.blocks.remove(id);
                None
            }
        }
    }

    /// A sample across the border of two blocks that are both there.
    fn in_two_blocks(
        &self,
        sample: u64,
        located: &Located,
        want: &Range<u64>,
        range: &Range<u64>,
    ) -> Option<Step> {
        let [first, second] = self.blocks.both(located.part, range)?;
        let (first, second) = (first.unchecked(), second.unchecked());
        let length = (range.end - range.start) as usize;
        let id = self.blocks.around(located.part, &(range.start..range.start))?;
        let block = self.blocks.range(id, self.store.part(located.part).len_bytes());
        let head = first.get((range.start - block.start) as usize..)?;
        let tail = second.get(..length.checked_sub(head.len())?)?;
        let mut buffer = self.buffers.take(length);
        buffer.as_mut_slice()[..head.len()].copy_from_slice(head);
        buffer.as_mut_slice()[head.len()..length].copy_from_slice(tail);
        let verified = self.admit(sample, located, Memory::Own(buffer), 0..length).ok()?;
        Some(self.give_part(sample, located, verified, want))
    }

    /// Gives out a part of a sample out of a block; what was made of it for that is kept for its other parts.
    fn give_part(
        &self,
        sample: u64,
        located: &Located,
        verified: Verified,
        want: &Range<u64>,
    ) -> Step {
        let verified = Arc::new(verified);
        let at = located.sample;
        let is_made = !matches!(at.content, Content::Stored);
        if is_made && *want != (0..at.size_bytes()) {
            let asked = want.end - want.start;
            if let Entered::Lead(lead) = self.cache.enter(sample, asked) {
                lead.land(Known::Whole(Arc::clone(&verified)), asked);
            }
        }
        self.give_shared(verified, want)
    }

    pub(super) fn give_shared(&self, verified: Arc<Verified>, want: &Range<u64>) -> Step {
        self.stats.served(want.end - want.start);
        let range = want.start as usize..want.end as usize;
        Step::Done(Reply(Ok(Payload::Shared(verified, range))))
    }
}
