//! Samples that are fetched because they are looked up: how long they are held for readers of a part of them.

use super::*;
use crate::vfs::prefetch::UNNAMED;
use std::ops::Range;
use std::time::Instant;

/// The size of a sample: too large for blocks.
const BYTES: usize = 33_000;

impl World {
    /// A world of `samples` samples. Without checks, a sample that is read in part is not kept for its other parts.
    fn of_equal(samples: usize) -> Self {
        Self::of(&vec![vec![7; BYTES]; samples], options(Verify::Off, 4 << 20))
    }

    /// Looks samples up, and reads `length` bytes of each; returns how many were fetched because of the lookup.
    fn look_up_and_read(&self, samples: Range<u64>, length: usize) -> usize {
        let is_fetched = |&sample: &u64| {
            self.vfs.stats().request(Operation::Lookup, false, Instant::now());
            let fetch = self.vfs.looked_up(ino_of(sample), |_| true);
            let is_fetched = fetch.is_some();
            if let Some(mut fetch) = fetch {
                self.fetch(fetch.span());
                drop(self.vfs.land(fetch, Ok(())));
            }
            assert!(self.read(sample, 0, length as u64).unwrap() == vec![7; length]);
            is_fetched
        };
        samples.filter(is_fetched).count()
    }

    fn ahead_entries(&self) -> u64 {
        self.vfs.cache_figures().ahead_entries
    }
}

#[test]
fn samples_that_were_looked_up_and_read_in_part_make_room_for_later_ones() {
    let world = World::of_equal(500);
    for samples in [0..300, 300..500] {
        let fetched = world.look_up_and_read(samples, 10);
        assert!(fetched > 0, "{:?}", world.vfs.prefetch_figures());
        let held = world.vfs.cache_figures();
        assert!(held.ahead_entries > 0 && held.bytes <= held.capacity_bytes / 4, "{held:?}");
    }
}

#[test]
fn samples_that_were_looked_up_and_read_in_part_go_also_when_no_more_are_looked_up() {
    let world = World::of_equal(700);
    assert!(world.look_up_and_read(0..300, 10) > 0 && world.ahead_entries() > 0);
    for sample in 400..700 {
        let Step::Read(task) = world.vfs.read(ino_of(sample), 0, 10) else {
            panic!("memory has sample {sample}")
        };
        world.drive(world.vfs.must_wait(task)).unwrap();
    }
    assert_eq!(world.ahead_entries(), 0);
    assert!(world.look_up_and_read(300..400, 10) > 0 && world.ahead_entries() > 0);
    world.vfs.prefetch().drop_order(UNNAMED);
    assert_eq!(world.ahead_entries(), 0);
}

#[test]
fn lookups_of_other_programs_do_not_make_announced_samples_stale() {
    let world = World::of_equal(900);
    world.vfs.announce(&(0..100).collect::<Vec<u64>>()).unwrap();
    world.fetch_ahead();
    let held = world.ahead_entries();
    assert!(held > 0 && world.vfs.prefetch_figures().is_full);
    // More samples than may arrive before an announced sample is stale.
    assert!(world.look_up_and_read(200..900, BYTES) > 400);
    world.fetch_ahead();
    let used = world.vfs.prefetch_figures().used;
    for sample in 0..held {
        world.read(sample, 0, BYTES as u64).unwrap();
    }
    assert_eq!(world.vfs.prefetch_figures().used - used, held);
}
