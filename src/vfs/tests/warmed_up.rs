//! Warming up: the samples that are left to readers, and those that are dropped.

use super::ahead::world_of;
use super::*;
use crate::store::testing::{Faraway, LONG_PATIENCE};
use crate::vfs::prefetch::UNNAMED;

#[test]
fn samples_that_are_decoded_as_they_are_read_are_neither_fetched_nor_failed() {
    for name in ["ordered.parquet", "ordered.h5"] {
        let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let world = world_of(name, std::fs::read(fixtures.join(name)).unwrap(), 256 << 20, 1);
        let all: Vec<u64> = (0..world.vfs.dataset().len()).collect();
        let container = &world.vfs.dataset().containers()[0];
        let decoded = all.iter().filter(|&&sample| container.intervals(sample).is_some()).count();
        world.vfs.prefetch().warm_up(&all).unwrap();
        while let Some(mut fetch) = world.vfs.next_fetch() {
            world.fetch(fetch.span());
            drop(world.vfs.land(fetch, Ok(())));
        }
        let figures = world.vfs.prefetch_figures();
        assert_eq!((figures.done, figures.failed), (all.len() as u64, 0), "{name}: {figures:?}");
        assert!(decoded > 0 && figures.skipped == decoded as u64, "{name}: {figures:?}");
    }
}

#[test]
fn a_sample_that_cannot_be_read_counts_as_failed_in_each_warm_up() {
    let samples = [vec![vec![1; 10], vec![2; 10]]];
    let world = World::cut(&samples, options(Verify::Always, 1 << 20), 10);
    for times in [1, 2] {
        world.vfs.prefetch().warm_up(&[0, 1]).unwrap();
        while let Some(mut fetch) = world.vfs.next_fetch() {
            world.fetch(fetch.span());
            drop(world.vfs.land(fetch, Ok(())));
        }
        let figures = world.vfs.prefetch_figures();
        assert_eq!((figures.done, figures.failed), (2 * times, times), "{figures:?}");
    }
    let bad = world.vfs.bad_list();
    assert!(bad.lines().count() == 1 && bad.starts_with("000001\tdamaged\t"), "{bad}");
}

/// Containers of ten samples, each container in a store, with a cache of this node.
fn faraway(containers: u64) -> Vfs {
    let disk: Vec<_> = (0..containers).map(|part| pack(&vec![noise(part, 5000); 10])).collect();
    let open = |bytes: &Vec<u8>| {
        let source = MemorySource::new("x.ffr", bytes.clone());
        crate::format::open(Arc::new(source), &OpenOptions::default()).unwrap()
    };
    let dataset = Dataset::new(disk.iter().map(open).collect());
    let names = Numbered::new(dataset.len(), None, Suffix::Fixed(String::new())).into();
    let part = |bytes| Arc::new(Faraway::part(LONG_PATIENCE, bytes, &[]).0);
    Vfs::new(dataset, names, Store::new(disk.into_iter().map(part).collect()), Options::default())
}

#[test]
fn a_warm_up_that_is_dropped_begins_no_more_fetches_for_the_cache_of_the_node() {
    let vfs = faraway(4);
    let all: Vec<u64> = (0..vfs.dataset().len()).collect();
    vfs.prefetch().warm_up(&all).unwrap();
    let first = vfs.next_fetch().unwrap();
    assert!(first.is_fill());
    assert_eq!(vfs.prefetch_figures().waiting, 30);
    vfs.prefetch().drop_order(UNNAMED);
    assert_eq!(vfs.prefetch_figures().waiting, 30, "a new order leaves them alone");
    vfs.prefetch().drop_all();
    assert!(vfs.next_fetch().is_none());
    vfs.land(first, Ok(()));
    let figures = vfs.prefetch_figures();
    assert_eq!((figures.waiting, figures.in_flight, figures.done), (0, 0, 10), "{figures:?}");
}
