//! Announced samples in a window that has room for four: which are fetched, and for whom they make room.

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

    /// Fetches what there is room for; the kernel takes what it is given.
    fn fetch_ahead(&self) {
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
    // Each four of these look like the beginning of a sequence.
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
    // They look at the beginnings of more samples than memory holds.
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
    // The last one: it was read once, and is announced twice.
    assert_eq!((figures.used, figures.reads, figures.done), (4, 4 + 3, 9), "{figures:?}");
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
