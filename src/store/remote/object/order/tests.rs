//! The rule of replacement, compared with a cache that never evicts: the rule costs no more if the order is known, and it
//! gains if an order returns to the same samples after more reads than memory holds.

use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

/// Samples in a block, which they fill except for a hundredth.
const SAMPLES: u64 = 10;
const SAMPLE_BYTES: u64 = BLOCK_BYTES / 100 * 99 / SAMPLES;
/// The number of samples that are fetched as one batch.
const BATCH: usize = 8;
/// The number of samples that the memory holds.
const HELD: u64 = 20;

/// The requests and bytes that a store was asked for, and the reads that hit the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Cost {
    gets: u64,
    bytes: u64,
    hits: u64,
}

/// A cache of `room` blocks, and the reads that were made of it.
struct World {
    order: Order,
    evicts: bool,
    room: usize,
    cached: HashSet<u64>,
    read: HashMap<u64, u64>,
    announced: u64,
    cost: Cost,
}

impl World {
    fn new(room: usize, evicts: bool) -> Self {
        let (order, cached, read) = (Order::default(), HashSet::new(), HashMap::new());
        Self { order, evicts, room, cached, read, announced: 0, cost: Cost::default() }
    }

    /// Announces these samples, and reads them in this order.
    fn read_announced(&mut self, samples: &[u64]) -> Cost {
        let before = self.cost;
        for (number, sample) in (self.announced..).zip(samples) {
            let start = sample / SAMPLES * BLOCK_BYTES + sample % SAMPLES * SAMPLE_BYTES;
            let place = Place { number, held: HELD };
            self.order.announce(0, &(start..start + SAMPLE_BYTES), place);
        }
        for batch in samples.chunks(BATCH) {
            self.advance();
            for sample in batch {
                self.read(*sample);
                self.announced += 1;
            }
        }
        self.advance();
        let Cost { gets, bytes, hits } = self.cost;
        Cost { gets: gets - before.gets, bytes: bytes - before.bytes, hits: hits - before.hits }
    }

    fn advance(&mut self) {
        let cached = &self.cached;
        self.order.advance(self.announced, |id| cached.contains(&id.block));
    }

    fn read(&mut self, sample: u64) {
        let block = sample / SAMPLES;
        let before = self.read.insert(sample, self.announced);
        if before.is_some_and(|before| self.announced - before < HELD) {
            return;
        }
        if self.cached.contains(&block) {
            self.cost.hits += 1;
            return;
        }
        self.cost.gets += 1;
        let id = BlockId { object: 0, block };
        let has_room = self.cached.len() < self.room;
        let evicts = !has_room && self.evicts && self.order.is_worthy(id, BLOCK_BYTES);
        let cached = &self.cached;
        let victim = evicts
            .then(|| self.order.victim(id, BLOCK_BYTES, |id| eviction(cached.contains(&id.block))))
            .flatten();
        if let Some(victim) = victim {
            assert!(self.cached.remove(&victim.block) && victim != id);
        }
        let is_kept = has_room || victim.is_some();
        if is_kept {
            self.cached.insert(block);
        }
        self.cost.bytes += if is_kept { BLOCK_BYTES } else { SAMPLE_BYTES };
    }
}

fn eviction(is_cached: bool) -> Eviction {
    if is_cached { Eviction::Possible } else { Eviction::Absent }
}

/// The numbers of a range in an order that is independent of their places.
fn shuffled(range: Range<u64>, seed: u64) -> Vec<u64> {
    let mut order: Vec<_> = range.collect();
    order.sort_by_key(|sample| {
        blake3::hash(&[*sample, seed].map(u64::to_le_bytes).concat()).to_hex()
    });
    order
}

/// Windows of `blocks` blocks, each read `rounds` times in random order before the next.
fn windows(all: u64, blocks: u64, rounds: u64, seed: u64) -> Vec<u64> {
    let mut order = Vec::new();
    for window in shuffled(0..all / blocks, seed) {
        let range = window * blocks * SAMPLES..(window + 1) * blocks * SAMPLES;
        for round in 0..rounds {
            order.extend(shuffled(range.clone(), seed * 100 + round));
        }
    }
    order
}

/// The cost of reading these announcements one after the other, without eviction and with it.
fn both(room: usize, announcements: &[Vec<u64>]) -> (Cost, Cost) {
    let cost = |evicts| {
        let mut world = World::new(room, evicts);
        for samples in announcements {
            world.read_announced(samples);
        }
        world.cost
    };
    (cost(false), cost(true))
}

#[test]
fn epochs_keep_what_is_cached_in_whatever_order_and_however_early_they_are_announced() {
    let blocks = 40;
    let in_order: Vec<u64> = (0..blocks * SAMPLES).collect();
    for epochs in [
        (0..4).map(|seed| shuffled(0..blocks * SAMPLES, seed)).collect::<Vec<_>>(),
        vec![in_order; 4],
        (0..4).map(|seed| windows(blocks, 5, 1, seed)).collect(),
        (0..4).map(|_| windows(blocks, 5, 1, 7)).collect(),
    ] {
        let pieces: Vec<_> = epochs.concat().chunks(57).map(<[u64]>::to_vec).collect();
        for announcements in [epochs.clone(), vec![epochs.concat()], pieces] {
            let (never, evicts) = both(blocks as usize / 2, &announcements);
            assert_eq!(never.hits, evicts.hits, "{never:?} {evicts:?}");
        }
        let mut world = World::new(blocks as usize / 2, true);
        world.read_announced(&epochs[0]);
        for epoch in &epochs[1..] {
            assert!(world.read_announced(epoch).hits >= blocks * SAMPLES / 2 * 98 / 100);
        }
    }
}

#[test]
fn windows_that_are_read_several_times_take_the_place_of_those_that_are_done() {
    for rounds in [2, 3, 5] {
        let epochs: Vec<_> = (0..3).map(|seed| windows(64, 8, rounds, seed)).collect();
        for announcements in [epochs.clone(), vec![epochs.concat()]] {
            let (never, evicts) = both(24, &announcements);
            assert!(evicts.gets * 2 < never.gets, "{rounds}: {never:?} {evicts:?}");
            assert!(evicts.bytes <= never.bytes, "{rounds}: {never:?} {evicts:?}");
        }
        // The order of the windows repeats: the window that age would evict first is needed first.
        let epochs = vec![windows(64, 8, rounds, 1); 3];
        let (never, evicts) = both(24, &epochs);
        assert!(evicts.gets * 2 < never.gets, "{rounds}: {never:?} {evicts:?}");
        assert!(evicts.bytes <= never.bytes, "{rounds}: {never:?} {evicts:?}");
    }
}

#[test]
fn blocks_that_no_announcement_named_stay() {
    let mut world = World::new(4, true);
    for block in 0..4 {
        world.cached.insert(100 + block);
    }
    world.read_announced(&windows(8, 4, 5, 1));
    assert!((100..104).all(|block| world.cached.contains(&block)));
    assert_eq!(world.cost.hits, 0);
}

#[test]
fn reads_that_follow_within_the_reach_of_memory_count_once() {
    let mut order = Order::default();
    let id = BlockId { object: 0, block: 3 };
    let range = 3 * BLOCK_BYTES..4 * BLOCK_BYTES;
    for number in [0, 5, 9, 30] {
        order.announce(0, &range, Place { number, held: 10 });
    }
    let whole = BLOCK_BYTES - UNIT_BYTES;
    assert_eq!(order.reads(id), [(0, whole), (5, 0), (9, 0), (30, whole)]);
    assert_eq!(Order::paid(&order.reads(id), whole + 1), Some(30));
    assert_eq!(Order::paid(&order.reads(id), 2 * BLOCK_BYTES), None);
    order.advance(10, |_| true);
    assert_eq!(order.reads(id), [(30, whole)]);
    order.advance(31, |_| true);
    assert!(order.reads(id).is_empty() && order.spent.len() == 1);
    order.announce(0, &range, Place { number: 40, held: 10 });
    assert!(order.spent.is_empty() && order.next.len() == 1 && order.uses == 1);
    order.forget(0);
    assert!(order.next.is_empty() && order.uses == 0);
    order.announce(0, &range, Place { number: 50, held: 10 });
    order.forget_reads();
    assert!(order.reads(id).is_empty() && order.spent.is_empty() && order.uses == 0);
}

#[test]
fn a_victim_that_could_not_be_evicted_is_found_again_behind_many_blocks_that_are_not_cached() {
    let mut order = Order::default();
    let block = |block: u64| block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
    order.announce(0, &block(1), Place { number: 0, held: 0 });
    order.advance(1, |_| true);
    for number in [1, 2, 3] {
        order.announce(0, &block(2), Place { number, held: 0 });
    }
    for number in 10..1010 {
        order.announce(1, &block(number), Place { number, held: 0 });
    }
    let (wanted, spent) = (BlockId { object: 0, block: 2 }, BlockId { object: 0, block: 1 });
    let later = BlockId { object: 1, block: 20 };
    let mut victim = |kept: BlockId| {
        order.victim(wanted, BLOCK_BYTES, |id| match id {
            id if id == kept => Eviction::NotNow,
            id => eviction(id == spent || id == later),
        })
    };
    assert_eq!(victim(later), Some(spent));
    assert_eq!(victim(spent), Some(later));
    assert_eq!(victim(later), Some(spent), "it is still a candidate");
}

#[test]
fn reads_announced_out_of_order_or_too_late_are_put_in_their_place() {
    let mut order = Order::default();
    for number in [7, 3, 9, 1, 5] {
        order.announce(0, &(0..100), Place { number, held: 0 });
    }
    let numbers = |order: &Order| -> Vec<u32> {
        order.left[&BlockId { object: 0, block: 0 }].iter().map(|read| read.number).collect()
    };
    assert_eq!(numbers(&order), [1, 3, 5, 7, 9]);
    assert_eq!(order.next.first().map(|(number, _)| *number), Some(1));
    order.advance(4, |_| true);
    order.announce(0, &(0..100), Place { number: 2, held: 0 });
    assert_eq!(numbers(&order), [5, 7, 9]);
    assert_eq!((order.next.len(), order.uses), (1, 3));
}

/// Parts of an order: windows that are read several times, in order or not, or single samples.
fn orders() -> impl Strategy<Value = Vec<u64>> {
    let window = (0..40u64, 1..12u64, 1..5u64, any::<bool>(), any::<u64>());
    let part = window.prop_map(|(first, blocks, rounds, is_shuffled, seed)| {
        let range = first * SAMPLES..(first + blocks).min(40) * SAMPLES;
        (0..rounds)
            .flat_map(|round| match is_shuffled {
                true => shuffled(range.clone(), seed ^ round),
                false => range.clone().collect(),
            })
            .collect::<Vec<_>>()
    });
    prop::collection::vec(part, 1..12).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..<_>::default() })]

    #[test]
    fn an_order_that_is_announced_as_a_whole_costs_no_more_than_with_a_cache_that_never_evicts(
        order in orders(), room in 1..30usize
    ) {
        let (never, evicts) = both(room, &[order]);
        let spare = |cost: u64| cost + cost / 20;
        prop_assert!(evicts.bytes <= spare(never.bytes) + 4 * BLOCK_BYTES, "{:?} {:?}", never, evicts);
        prop_assert!(evicts.gets <= spare(never.gets) + 4 * SAMPLES, "{:?} {:?}", never, evicts);
    }

    /// Samples that are announced later may return to blocks that were evicted.
    #[test]
    fn an_order_that_is_announced_in_pieces_costs_little_more_at_worst(
        order in orders(), room in 1..30usize, announced in 1..2000usize
    ) {
        let announcements: Vec<_> = order.chunks(announced).map(<[u64]>::to_vec).collect();
        let (never, evicts) = both(room, &announcements);
        let spare = |cost: u64| cost + cost / 2;
        prop_assert!(evicts.bytes <= spare(never.bytes) + 8 * BLOCK_BYTES, "{:?} {:?}", never, evicts);
        prop_assert!(evicts.gets <= spare(never.gets) + 8 * SAMPLES, "{:?} {:?}", never, evicts);
    }
}
