//! Reads of bytes that are in memory already: prefetched, left over, or in a block.

use super::Reader;
use super::task::{Payload, Step};
use crate::catalog::Located;
use crate::format::Content;
use crate::vfs::memory::blocks::{BlockAnswer, BlockId};
use crate::vfs::memory::cache::{CacheAnswer, CacheKey, Cached};
use crate::vfs::memory::chunk::Chunk;
use crate::vfs::memory::verified::{Bytes, Verified};
use crate::vfs::samples::check::{Unfit, stored_range};
use std::ops::Range;
use std::sync::Arc;

impl Reader {
    /// Lets an answer of bytes in memory pass. The mapped index of a rewritten file may lead to bytes of another
    /// sample: where no checksum would tell, a look at the file does.
    pub(super) fn check_resident(&self, sample: u64, located: &Located, step: Step) -> Step {
        match step {
            Step::Done(reply) if reply.0.is_ok() && !self.samples.must_check(sample, located) => {
                match self.samples.check_index(located) {
                    Ok(()) => Step::Done(reply),
                    Err(errno) => {
                        self.finish(reply);
                        Step::failed(errno)
                    }
                }
            }
            step => step,
        }
    }

    /// The answer if memory has the bytes, or a wait for the in-flight read that will bring them.
    pub(super) fn in_memory(
        &self,
        sample: u64,
        located: &Located,
        want: &Range<u64>,
    ) -> Option<Step> {
        let (cache, blocks) = (self.memory.cache(), self.memory.blocks());
        if !cache.is_idle() {
            match cache.get(CacheKey::Sample(sample), want.end - want.start) {
                Some(CacheAnswer::Prefetched(verified, arrival, is_used_up)) => {
                    self.prefetch.prefetched_was_read(sample, located, (arrival, is_used_up));
                    return Some(self.answer_shared(located, verified, want));
                }
                Some(CacheAnswer::Cached(Cached::Whole(verified))) => {
                    return Some(self.answer_shared(located, verified, want));
                }
                Some(CacheAnswer::InFlight(read)) => return Some(Step::Wait(read)),
                Some(
                    CacheAnswer::Cached(Cached::Checksums(_) | Cached::Checkpoints(_))
                    | CacheAnswer::Lead(_),
                )
                | None => {}
            }
        }
        if blocks.is_idle() || !self.memory.is_small(&located.sample) {
            return None;
        }
        let range = located.sample.extent();
        let asked = located.sample.stored_share(want.end - want.start);
        match blocks.around(located.part, &range) {
            Some(id) => match blocks.get(id, asked)? {
                BlockAnswer::Held(chunk, is_first) => {
                    if is_first {
                        self.prefetch.observe(sample, located);
                    }
                    self.in_block(sample, located, want, (id, &chunk))
                }
                BlockAnswer::InFlight(read) => Some(Step::Wait(read)),
                BlockAnswer::Lead(_) | BlockAnswer::Refused => None,
            },
            None => self.in_two_blocks(sample, located, want, &range),
        }
    }

    /// The answer out of a block; `None` if the block has wrong bytes for the sample: then they are fetched again.
    pub(super) fn in_block(
        &self,
        sample: u64,
        located: &Located,
        want: &Range<u64>,
        (id, chunk): (BlockId, &Arc<Chunk>),
    ) -> Option<Step> {
        let at = located.sample;
        let block = self.memory.blocks().range(id, self.samples.bytes_of(located.part));
        let place = |range: Range<u64>| {
            (range.start - block.start) as usize..(range.end - block.start) as usize
        };
        let range = place(at.extent());
        if range.end > chunk.unchecked().len() {
            return None;
        }
        let as_stored = matches!(at.content, Content::Stored) && at.header_bytes == 0;
        if as_stored && !self.samples.must_check(sample, located) {
            let range = place(stored_range(&at, want));
            self.samples.stats().served(want.end - want.start);
            return Some(Step::done(Payload::Unchecked(Arc::clone(chunk), range)));
        }
        match self.samples.check_whole(sample, located, Bytes::Shared(Arc::clone(chunk)), range) {
            Ok(verified) => Some(self.answer_part(sample, located, verified, want)),
            Err(Unfit::Moved) => None,
            Err(Unfit::Fault(_)) => {
                self.memory.blocks().remove(id);
                None
            }
        }
    }

    /// The answer for a sample across the border of two blocks, if both are cached.
    fn in_two_blocks(
        &self,
        sample: u64,
        located: &Located,
        want: &Range<u64>,
        range: &Range<u64>,
    ) -> Option<Step> {
        let [first, second] = self.memory.blocks().both(located.part, range)?;
        let (first, second) = (first.unchecked(), second.unchecked());
        let length = (range.end - range.start) as usize;
        let id = self.memory.blocks().around(located.part, &(range.start..range.start))?;
        let block = self.memory.blocks().range(id, self.samples.bytes_of(located.part));
        let head = first.get((range.start - block.start) as usize..)?;
        let tail = second.get(..length.checked_sub(head.len())?)?;
        let mut buffer = self.samples.buffer(length).ok()?;
        buffer.as_mut_slice()[..head.len()].copy_from_slice(head);
        buffer.as_mut_slice()[head.len()..length].copy_from_slice(tail);
        let verified =
            self.samples.check_whole(sample, located, Bytes::Own(buffer), 0..length).ok()?;
        Some(self.answer_part(sample, located, verified, want))
    }

    /// Answers with a range of a sample out of a block; a sample that was decoded for that is cached for reads of its
    /// other ranges.
    fn answer_part(
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
            let key = CacheKey::Sample(sample);
            if let CacheAnswer::Lead(leader) = self.memory.cache().get_or_lead(key, asked) {
                leader.end_with(Cached::Whole(Arc::clone(&verified)), asked);
            }
        }
        self.answer_shared(located, verified, want)
    }
}
