//! The order in which cached objects will be read, as far as it is announced, and the rule by which a block takes the
//! place of another in a full cache. Imports the size of a block and the place of a read.
//!
//! A cache that never evicts keeps what it took first, which is right for epochs: each reads everything once. A block takes the
//! place of another one only if its announced reads pay for that: it is fetched once as a whole instead of sample by sample,
//! and the evicted block may have to be fetched once more. So
//!
//! - the announced reads of the block must save as many bytes as both; reads of the same sample that follow each other so
//!   soon that memory serves them count once;
//! - the evicted block must have been announced, too: of others it is not known when they are needed;
//! - it must have no announced read left, or only reads after those by which the block has saved as much.
//!
//! Of blocks whose announced reads have been made, the one that was read last is evicted: if the order repeats, it is needed
//! last. An order that is announced in pieces may still return to an evicted block, which is then fetched again.

use crate::store::Place;
use crate::store::cache::BLOCK_BYTES;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;

/// Reads beyond this number are not remembered; each takes 8 bytes.
const MOST_USES: usize = 1 << 21;
/// Reads of more blocks than this are not remembered; each takes some 200 bytes.
const MOST_BLOCKS: usize = 1 << 16;
/// How many reads of a block are weighed.
const MOST_READS: usize = 2048;
/// The unit in which offsets and lengths of reads are remembered.
const UNIT_BYTES: u64 = 16;
/// How many cached blocks with later reads are considered for eviction.
const MOST_CONSIDERED: usize = 256;
/// How many blocks are looked at to find these.
const MOST_LOOKS: usize = 4096;

/// A block of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BlockId {
    pub(super) object: u64,
    pub(super) block: u64,
}

/// Whether a block can make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Eviction {
    Possible,
    NotNow,
    /// The block is not cached.
    Absent,
}

/// An announced read of a block.
#[derive(Debug, Clone, Copy)]
struct Use {
    number: u32,
    /// Offset in the block and length, in units.
    start: u16,
    length: u16,
}

/// The announced reads of all objects.
#[derive(Default)]
pub(super) struct Order {
    /// The announced reads of each block, by number. The first ones may have been made already.
    left: BTreeMap<BlockId, VecDeque<Use>>,
    /// The first remembered read of each block with reads left.
    next: BTreeSet<(u32, BlockId)>,
    /// Cached blocks whose announced reads have all been made, by the time of the last.
    spent: BTreeMap<u64, BlockId>,
    /// The keys of these blocks in `spent`.
    spent_at: HashMap<BlockId, u64>,
    spents: u64,
    /// Reads with lower numbers have been made.
    reached: u64,
    held: u64,
    uses: usize,
}

impl Order {
    /// Remembers that `range` of an object will be read.
    pub(super) fn announce(&mut self, object: u64, range: &Range<u64>, place: Place) {
        let Ok(number) = u32::try_from(place.number) else { return };
        if place.number < self.reached || range.is_empty() {
            return;
        }
        self.held = place.held;
        for block in range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES) {
            let first = block * BLOCK_BYTES;
            let (start, end) = (range.start.max(first), range.end.min(first + BLOCK_BYTES));
            let units = |bytes: u64| u16::try_from(bytes / UNIT_BYTES).unwrap_or(u16::MAX);
            let read = Use { number, start: units(start - first), length: units(end - start) };
            self.add(BlockId { object, block }, read);
        }
    }

    fn add(&mut self, id: BlockId, read: Use) {
        self.unspend(id);
        let is_full = self.left.len() >= MOST_BLOCKS && !self.left.contains_key(&id);
        if self.uses >= MOST_USES || is_full {
            return;
        }
        let uses = self.left.entry(id).or_default();
        let before = uses.front().map(|first| first.number);
        let at = uses.partition_point(|other| other.number <= read.number);
        uses.insert(at, read);
        self.uses += 1;
        if at == 0 {
            if let Some(before) = before {
                self.next.remove(&(before, id));
            }
            self.next.insert((read.number, id));
        }
    }

    /// Notes that reads with lower numbers have been made.
    pub(super) fn advance(&mut self, number: u64, is_cached: impl Fn(BlockId) -> bool) {
        self.reached = self.reached.max(number);
        while let Some(&(first, id)) = self.next.first()
            && u64::from(first) < self.reached
        {
            self.next.pop_first();
            let Some(uses) = self.left.get_mut(&id) else { continue };
            while uses.front().is_some_and(|read| u64::from(read.number) < self.reached) {
                uses.pop_front();
                self.uses -= 1;
            }
            if let Some(next) = uses.front() {
                self.next.insert((next.number, id));
                continue;
            }
            self.left.remove(&id);
            if is_cached(id) {
                self.spend(id);
            }
        }
    }

    /// Forgets the reads that have not been made: the readers do not follow the announced order.
    pub(super) fn forget_reads(&mut self) {
        self.left.clear();
        self.next.clear();
        self.uses = 0;
    }

    /// Forgets an object that is closed.
    pub(super) fn forget(&mut self, object: u64) {
        let all = BlockId { object, block: 0 }..=BlockId { object, block: u64::MAX };
        while let Some((&id, uses)) = self.left.range(all.clone()).next() {
            if let Some(first) = uses.front() {
                self.next.remove(&(first.number, id));
            }
            self.uses -= uses.len();
            self.left.remove(&id);
        }
        self.spent.retain(|_, id| id.object != object);
        self.spent_at.retain(|id, _| id.object != object);
    }

    fn spend(&mut self, id: BlockId) {
        self.spents += 1;
        self.spent.insert(self.spents, id);
        self.spent_at.insert(id, self.spents);
        if self.spent.len() > MOST_BLOCKS
            && let Some((_, first)) = self.spent.pop_first()
        {
            self.spent_at.remove(&first);
        }
    }

    fn unspend(&mut self, id: BlockId) {
        if let Some(at) = self.spent_at.remove(&id) {
            self.spent.remove(&at);
        }
    }

    /// The bytes that each announced read of a block would fetch alone, in order. A read of bytes that memory holds fetches
    /// none.
    fn reads(&self, id: BlockId) -> Vec<(u32, u64)> {
        let uses = self.left.get(&id);
        let mut reads: Vec<Use> =
            uses.map_or(Vec::new(), |uses| uses.iter().take(MOST_READS).copied().collect());
        reads.sort_unstable_by_key(|read| (read.start, read.number));
        let mut before = None;
        for read in &mut reads {
            let is_held = before.is_some_and(|(start, number)| {
                start == read.start && u64::from(read.number - number) < self.held.max(1)
            });
            before = Some((read.start, read.number));
            read.length = if is_held { 0 } else { read.length };
        }
        reads.sort_unstable_by_key(|read| read.number);
        reads.iter().map(|read| (read.number, u64::from(read.length) * UNIT_BYTES)).collect()
    }

    /// The number of the read by which a block has saved `price` bytes, if its reads save as many.
    fn paid(reads: &[(u32, u64)], price: u64) -> Option<u32> {
        let mut saved = 0;
        let mut paid = reads.iter().skip_while(|(_, bytes)| {
            saved += bytes;
            saved < price
        });
        paid.next().map(|(number, _)| *number)
    }

    /// Whether a block of `bytes` bytes may be worth the place of another.
    pub(super) fn is_worthy(&self, id: BlockId, bytes: u64) -> bool {
        // Most blocks of an order that reads everything once are read by few reads.
        if self.left.get(&id).is_none_or(|uses| uses.len() < 2) {
            return false;
        }
        let paid = Self::paid(&self.reads(id), price(bytes, bytes));
        let has_later = |paid| self.next.last().is_some_and(|(number, _)| *number > paid);
        paid.is_some_and(|paid| !self.spent.is_empty() || has_later(paid))
    }

    /// The block whose place a block of `bytes` bytes takes, if one is to make room for it.
    pub(super) fn victim(
        &mut self,
        id: BlockId,
        bytes: u64,
        eviction: impl Fn(BlockId) -> Eviction,
    ) -> Option<BlockId> {
        let reads = self.reads(id);
        let paid = Self::paid(&reads, price(bytes, bytes))?;
        let mut absent = Vec::new();
        let spent = self.spent.values().rev().take(MOST_LOOKS).copied().find(|victim| {
            let eviction = eviction(*victim);
            if eviction == Eviction::Absent {
                absent.push(*victim);
            }
            eviction == Eviction::Possible
        });
        absent.into_iter().for_each(|victim| self.unspend(victim));
        if spent.is_some() {
            return spent;
        }
        let later = self.next.iter().rev().take_while(|(number, _)| *number > paid);
        let later = later.take(MOST_LOOKS);
        let later = later.filter(|(_, victim)| eviction(*victim) == Eviction::Possible);
        let mut later = later.take(MOST_CONSIDERED);
        let found = later.find(|(number, victim)| {
            let again = || self.reads(*victim).iter().map(|(_, bytes)| bytes).sum::<u64>();
            let price = || price(bytes, again().min(2 * bytes) + bytes / 4);
            *victim != id && Self::paid(&reads, price()).is_some_and(|paid| paid < *number)
        });
        found.map(|(_, victim)| *victim)
    }
}

/// The bytes that a block of `bytes` bytes has to save in the place of another one of which `again` bytes are fetched again.
/// Some bytes of a block may belong to no sample.
fn price(bytes: u64, again: u64) -> u64 {
    bytes - bytes / 10 + again
}

#[cfg(test)]
mod tests;
