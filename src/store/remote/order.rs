//! The order in which cached objects will be read, as far as it is announced, and the rule by which a block takes the
//! place of another in a full cache. Imports nothing of ours but the place of a read.
//!
//! A cache that never evicts keeps what it took first, which is right for epochs: each reads everything once. A block
//! takes the place of another one only if what is announced pays for that: it is fetched once as a whole instead of
//! sample by sample, and the evicted block may have to be fetched once more. So
//!
//! - the announced reads of the block must save as many bytes as both; reads of the same sample that follow each other so
//!   soon that memory serves them count once;
//! - the evicted block must have been announced, too: of others nobody knows when they are needed;
//! - it must have no announced read left, or only reads after those by which the block has saved as much.
//!
//! Of blocks that are read to the end, the one goes that was read last: if the order repeats, it is needed last. An order
//! that is announced in pieces may still return to what was evicted: then that is fetched again.

use crate::store::Place;
use crate::store::cache::BLOCK_BYTES;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;

/// Reads beyond this number are not remembered; each takes 8 bytes.
const MOST_USES: usize = 1 << 21;
/// The unit in which offsets and lengths of reads are remembered.
const UNIT_BYTES: u64 = 16;
/// How many blocks with later reads are considered for eviction.
const MOST_CONSIDERED: usize = 256;

/// A block of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockId {
    pub(super) object: u64,
    pub(super) block: u64,
}

/// An announced read of a block.
#[derive(Debug, Clone, Copy)]
struct Use {
    number: u32,
    /// Offset in the block and length, in units.
    start: u16,
    length: u16,
}

/// The announced reads of a block.
#[derive(Default)]
struct Uses {
    /// By number. The first ones may have been made already.
    left: VecDeque<Use>,
    /// The key in the list of blocks that were read to the end.
    spent: Option<u64>,
}

/// The announced reads of all objects.
#[derive(Default)]
pub(super) struct Order {
    objects: HashMap<u64, Vec<Uses>>,
    /// The first remembered read of each block with reads left.
    next: BTreeSet<(u32, BlockId)>,
    /// Blocks whose announced reads have all been made, by the time of the last.
    spent: BTreeMap<u64, BlockId>,
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
            if self.uses >= MOST_USES {
                return;
            }
            let first = block * BLOCK_BYTES;
            let (start, end) = (range.start.max(first), range.end.min(first + BLOCK_BYTES));
            let units = |bytes: u64| u16::try_from(bytes / UNIT_BYTES).unwrap_or(u16::MAX);
            let read = Use { number, start: units(start - first), length: units(end - start) };
            self.add(BlockId { object, block }, read);
        }
    }

    fn add(&mut self, id: BlockId, read: Use) {
        let blocks = self.objects.entry(id.object).or_default();
        let place = id.block as usize;
        if place >= blocks.len() {
            blocks.resize_with(place + 1, Uses::default);
        }
        let uses = &mut blocks[place];
        if let Some(spent) = uses.spent.take() {
            self.spent.remove(&spent);
        }
        let before = uses.left.front().map(|first| first.number);
        let at = uses.left.partition_point(|other| other.number <= read.number);
        uses.left.insert(at, read);
        self.uses += 1;
        if at == 0 {
            if let Some(before) = before {
                self.next.remove(&(before, id));
            }
            self.next.insert((read.number, id));
        }
    }

    /// Notes that reads with lower numbers have been made.
    pub(super) fn advance(&mut self, number: u64) {
        self.reached = self.reached.max(number);
        while let Some(&(first, id)) = self.next.first()
            && u64::from(first) < self.reached
        {
            self.next.pop_first();
            let Some(uses) = uses_of(&mut self.objects, id) else { continue };
            while uses.left.front().is_some_and(|read| u64::from(read.number) < self.reached) {
                uses.left.pop_front();
                self.uses -= 1;
            }
            match uses.left.front() {
                Some(next) => drop(self.next.insert((next.number, id))),
                None => {
                    uses.left = VecDeque::new();
                    self.spents += 1;
                    uses.spent = Some(self.spents);
                    self.spent.insert(self.spents, id);
                }
            }
        }
    }

    /// Forgets an object that is closed.
    pub(super) fn forget(&mut self, object: u64) {
        for (block, uses) in (0..).zip(self.objects.remove(&object).unwrap_or_default()) {
            if let Some(spent) = uses.spent {
                self.spent.remove(&spent);
            }
            if let Some(first) = uses.left.front() {
                self.next.remove(&(first.number, BlockId { object, block }));
            }
            self.uses -= uses.left.len();
        }
    }

    /// The bytes that each announced read of a block would fetch alone, in order. A read of what memory holds fetches none.
    fn reads(&self, id: BlockId) -> Vec<(u32, u64)> {
        let uses = self.objects.get(&id.object).and_then(|blocks| blocks.get(id.block as usize));
        let mut reads: Vec<Use> =
            uses.map_or(Vec::new(), |uses| uses.left.iter().copied().collect());
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
        let paid = Self::paid(&self.reads(id), price(bytes, bytes));
        let has_later = |paid| self.next.last().is_some_and(|(number, _)| *number > paid);
        paid.is_some_and(|paid| !self.spent.is_empty() || has_later(paid))
    }

    /// The block whose place a block of `bytes` bytes takes, if one is to make room for it.
    pub(super) fn victim(
        &mut self,
        id: BlockId,
        bytes: u64,
        is_present: impl Fn(BlockId) -> bool,
    ) -> Option<BlockId> {
        let reads = self.reads(id);
        let paid = Self::paid(&reads, price(bytes, bytes))?;
        while let Some((_, victim)) = self.spent.pop_last() {
            if let Some(uses) = uses_of(&mut self.objects, victim) {
                uses.spent = None;
            }
            if is_present(victim) {
                return Some(victim);
            }
        }
        let later = self.next.iter().rev().take_while(|(number, _)| *number > paid);
        let mut later = later.take(MOST_CONSIDERED);
        let found = later.find(|(number, victim)| {
            let again = || self.reads(*victim).iter().map(|(_, bytes)| bytes).sum::<u64>();
            let price = || price(bytes, again().min(2 * bytes) + bytes / 4);
            *victim != id
                && is_present(*victim)
                && Self::paid(&reads, price()).is_some_and(|paid| paid < *number)
        });
        found.map(|(_, victim)| *victim)
    }
}

fn uses_of(objects: &mut HashMap<u64, Vec<Uses>>, id: BlockId) -> Option<&mut Uses> {
    objects.get_mut(&id.object)?.get_mut(id.block as usize)
}

/// What a block of `bytes` bytes has to save in the place of another one of which `again` bytes are fetched again. Some of
/// a block may belong to no sample.
fn price(bytes: u64, again: u64) -> u64 {
    bytes - bytes / 10 + again
}

#[cfg(test)]
mod tests;
