//! Announced samples in a window with room for four: which are fetched, and for which others they make room.

use super::*;

const BYTES: u64 = 100_000;

fn world() -> World {
    let samples: Vec<_> = (0..200).map(|sample| noise(sample, BYTES as usize)).collect();
    World::of(&samples, options(Verify::Once, 1 << 20))
}

impl World {
    fn announce(&self, samples: &[u64]) {
        self.vfs.prefetch().announce(0, samples).unwrap();
    }

    /// Fetches samples as far as there is room; the kernel takes all that it is given.
    pub(super) fn fetch_ahead(&self) {
        while let Some(mut fetch) = self.vfs.next_fetch() {
            self.fetch(fetch.span());
            for store in self.vfs.land(fetch, Ok(())) {
                self.vfs.stored(store, true);
            }
        }
    }

    fn read_whole(&self, sample: u64) {
        assert!(self.read(sample, 0, BYTES).unwrap() == noise(sample, BYTES as usize));
    }

    /// Reads a sample that only the disk has.
    fn demand(&self, sample: u64) {
        let Step::Read(task) = self.vfs.read(ino_of(sample), 0, BYTES) else {
            panic!("memory has sample {sample}")
        };
        let bytes = self.drive(self.vfs.must_wait(task)).unwrap();
        assert!(bytes == noise(sample, BYTES as usize));
    }
}

#[test]
fn what_chance_foresaw_makes_room_for_what_is_announced() {
    let world = world();
    // Four at a time, these look like the beginning of a sequence.
    for sample in [0, 2, 4, 6, 100, 102, 104, 106] {
        world.demand(sample);
        world.fetch_ahead();
    }
    assert_eq!((world.vfs.prefetch_figures().foreseen, world.vfs.prefetch_figures().reads), (4, 4));
    let order = [20, 33, 27, 48, 29];
    world.announce(&order);
    for sample in order {
        world.fetch_ahead();
        world.read_whole(sample);
    }
    let figures = world.vfs.prefetch_figures();
    assert_eq!((figures.used, figures.done, figures.is_full), (5, 5, false), "{figures:?}");
}

#[test]
fn what_readers_have_left_over_makes_room_for_what_is_announced() {
    let world = world();
    // Readers look at the beginnings of more samples than memory holds.
    for sample in 0..20 {
        assert_eq!(world.read(sample, 0, 10).unwrap(), noise(sample, BYTES as usize)[..10]);
    }
    assert!(world.vfs.cache_figures().entries >= 9);
    let order = [120, 133, 127, 148, 129];
    world.announce(&order);
    for sample in order {
        world.fetch_ahead();
        world.read_whole(sample);
    }
    let figures = world.vfs.prefetch_figures();
    assert_eq!((figures.used, figures.done), (5, 5), "{figures:?}");
}

#[test]
fn a_sample_that_is_announced_several_times_is_fetched_for_each_of_its_reads() {
    let world = world();
    let order = [0, 6, 2, 12, 4, 30].repeat(3);
    world.announce(&order);
    for &sample in &order {
        world.fetch_ahead();
        world.read_whole(sample);
    }
    let figures = world.vfs.prefetch_figures();
    assert_eq!((figures.used, figures.reads), (18, 18), "{figures:?}");
    assert_eq!(figures.foreseen, 0, "an announced order has no pattern to be found");
}

#[test]
fn samples_at_which_a_reader_has_overtaken_the_prefetch_are_not_fetched_behind_it() {
    let world = world();
    let order = [0, 6, 2, 12, 4, 30, 20, 24, 4];
    world.announce(&order);
    world.fetch_ahead();
    for sample in [4, 30, 0, 6, 2, 12] {
        world.read_whole(sample);
    }
    world.fetch_ahead();
    let figures = world.vfs.prefetch_figures();
    // The reads of the last sample count: it was read once, and is announced twice.
    assert_eq!((figures.used, figures.reads, figures.done), (4, 4 + 3, 9), "{figures:?}");
}

#[test]
fn announced_samples_that_are_read_in_part_make_room_for_later_ones() {
    // Half of the memory holds more samples than `stale_age` says: samples make room by their age alone.
    let samples: Vec<_> = (0..16_000).map(|sample| noise(sample, 1000)).collect();
    let world = World::of(&samples, options(Verify::Off, 16 << 20));
    let order: Vec<u64> = (0..16_000).collect();
    world.announce(&order);
    for (sample, bytes) in (0..).zip(&samples) {
        world.fetch_ahead();
        assert_eq!(world.read(sample, 0, 100).unwrap(), bytes[..100]);
    }
    let figures = world.vfs.prefetch_figures();
    assert_eq!((figures.done, figures.waiting), (16_000, 0), "{figures:?}");
}

#[test]
fn announced_samples_that_are_read_in_part_make_room_also_where_memory_holds_fewer() {
    // Memory holds some 90 samples: their age never reaches `stale_age`.
    let samples: Vec<_> = (0..600).map(|sample| noise(sample, 33_000)).collect();
    let world = World::of(&samples, options(Verify::Off, 6 << 20));
    world.announce(&(0..600).collect::<Vec<u64>>());
    for (sample, bytes) in (0..).zip(&samples) {
        world.fetch_ahead();
        assert_eq!(world.read(sample, 0, 10).unwrap(), bytes[..10]);
    }
    let figures = world.vfs.prefetch_figures();
    assert_eq!((figures.done, figures.waiting), (600, 0), "{figures:?}");
    let misses = world.vfs.cache_figures().misses;
    assert_eq!(misses, 0, "each of them was there when it was read");
}

#[test]
fn announced_samples_that_are_read_in_part_make_room_at_last_where_memory_holds_four() {
    let world = world();
    world.announce(&(0..200).collect::<Vec<u64>>());
    for sample in 0..200 {
        world.fetch_ahead();
        let step = match world.vfs.read(ino_of(sample), 0, 10) {
            Step::Read(task) => world.vfs.must_wait(task),
            step => step,
        };
        assert_eq!(world.drive(step).unwrap(), noise(sample, BYTES as usize)[..10]);
    }
    // Readers might have come back until they had begun 32 other samples.
    let figures = world.vfs.prefetch_figures();
    assert!(figures.reads >= 8, "{figures:?}");
}

#[test]
fn announced_samples_that_are_read_part_by_part_beside_others_are_held_until_their_end() {
    let world = world();
    let order: Vec<u64> = (0..200).collect();
    world.announce(&order);
    // As many readers as memory holds samples.
    for together in order.chunks(4) {
        for part in 0..4 {
            for &sample in together {
                world.fetch_ahead();
                world.read(sample, part * BYTES / 4, BYTES / 4).unwrap();
            }
        }
    }
    let figures = world.vfs.prefetch_figures();
    assert_eq!((figures.used, figures.reads, figures.unused_bytes), (200, 200, 0), "{figures:?}");
}

#[test]
fn the_kernel_is_given_more_once_what_it_was_given_has_been_read() {
    let samples: Vec<_> = (0..200).map(|sample| noise(sample, BYTES as usize)).collect();
    let kernel_bytes = 2 * BYTES;
    let world = World::of(&samples, Options { kernel_bytes, ..options(Verify::Once, 1 << 20) });
    (0..200).for_each(|sample| world.vfs.kernel_knows(ino_of(sample)));
    let given = || world.vfs.prefetch_figures().stored_bytes;
    world.announce(&(0..200).collect::<Vec<u64>>().repeat(2));
    for (place, sample) in (0..200).chain(0..200).enumerate() {
        world.fetch_ahead();
        // The kernel has the first two samples, and answers by itself.
        if sample >= 2 {
            world.read_whole(sample);
        }
        assert!(place >= 200 || given() == kernel_bytes, "{} at {place}", given());
    }
    assert!(given() > kernel_bytes, "{}", given());
}

#[test]
fn a_sample_whose_pages_the_kernel_has_dropped_is_fetched_when_it_is_announced_again() {
    let world = world();
    world.vfs.lookup(1, b"000009").unwrap();
    world.announce(&[9]);
    world.fetch_ahead();
    world.announce(&[9]);
    world.fetch_ahead();
    assert_eq!(world.vfs.prefetch_figures().reads, 1, "the kernel has it");
    world.read_whole(9);
    world.announce(&[9]);
    world.fetch_ahead();
    assert_eq!(world.vfs.prefetch_figures().reads, 2);
}
