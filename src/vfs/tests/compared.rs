//! Values that are decoded from chunks, and compared with a sidecar.

use super::*;
use crate::format::sidecar;
use crate::format::stream::Interval;

const MIB: u64 = 1 << 20;

/// The array of a fixture, or its rows, with a sidecar that is right.
fn world(verify: Verify, rows: bool) -> World {
    world_with(verify, rows, 256 * MIB)
}

/// As `world`, with `cache_bytes` of memory.
fn world_with(verify: Verify, rows: bool, cache_bytes: u64) -> World {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/ordered.h5");
    let bytes = std::fs::read(path).unwrap();
    let source: Arc<dyn crate::format::Source> =
        Arc::new(MemorySource::new("ordered.h5", bytes.clone()));
    let opened = OpenOptions { rows, ..OpenOptions::default() };
    let container = crate::format::open(Arc::clone(&source), &opened).unwrap();
    let crc32 = |index| {
        let sample = container.sample(index).unwrap();
        let mut value = vec![0; sample.size_bytes() as usize];
        container.decode(index, &bytes[place(sample.extent())], &mut value).unwrap();
        crc32fast::hash(&value)
    };
    let sums: Vec<_> = (0..container.len()).map(crc32).collect();
    let key = sidecar::Key::of(source.as_ref(), container.as_ref()).unwrap();
    let mut written = Vec::new();
    sidecar::write(&mut written, &key, &sums).unwrap();
    let written: Arc<dyn crate::format::Source> = Arc::new(MemorySource::new("sums", written));
    let section = Arc::new(sidecar::read(&written).unwrap().remove(0));
    let mut dataset = Dataset::new(vec![container]);
    dataset.set_sums([Some((section, "sums".into()))]);
    let names = Numbered::new(dataset.len(), None, Suffix::Fixed(String::new())).into();
    let part = Part::in_memory("/ordered.h5".to_owned(), bytes.clone(), SystemTime::UNIX_EPOCH);
    let options = Options { threads: 4, ..options(verify, cache_bytes) };
    let vfs = Vfs::new(dataset, names, Store::new(vec![Arc::new(part)]), options);
    World { vfs, disk: vec![bytes] }
}

fn place(range: std::ops::Range<u64>) -> std::ops::Range<usize> {
    range.start as usize..range.end as usize
}

fn length(range: &std::ops::Range<u64>) -> u64 {
    range.end - range.start
}

impl World {
    fn interval(&self, number: u64) -> Option<Interval> {
        self.vfs.dataset().containers()[0].intervals(0).unwrap().nth(number)
    }

    fn size(&self) -> u64 {
        self.vfs.dataset().locate(0).unwrap().unwrap().sample.size_bytes()
    }

    /// Puts another chunk of the same length in the place of a chunk, whose number is returned.
    fn change_a_chunk(&mut self) -> u64 {
        let all = || (0..).map_while(|number| self.interval(number)).map(|found| found.stored);
        let same = |one: &_| all().find(|other| other != one && length(other) == length(one));
        let (one, other) =
            all().skip(12).find_map(|one| same(&one).map(|other| (one, other))).unwrap();
        let number = all().position(|range| range == one).unwrap();
        let bytes = self.disk[0][place(other)].to_vec();
        assert!(self.disk[0][place(one.clone())] != bytes);
        self.disk[0][place(one)].copy_from_slice(&bytes);
        number as u64
    }

    /// Forgets all decoded intervals.
    fn empty_cache(&self) {
        self.vfs.ahead().end_runs();
        for bytes in [0, 256 * MIB] {
            self.vfs.control().tuning().set_cache_bytes(bytes);
        }
    }

    fn counted(&self, name: &str) -> u64 {
        self.snapshot()[name].as_u64().unwrap()
    }
}

#[test]
fn a_comparison_with_a_sidecar_that_meets_an_interval_in_flight_goes_on_with_it() {
    let world = world(Verify::Always, true);
    let (row_of, at_once) = (|number: u64| number * 10, 10);
    let (mut met, mut number, mut read) = (0, 0, 0);
    while world.interval(number).is_some() {
        let rows = row_of(number) + read..row_of(number) + at_once;
        rows.for_each(|row| _ = world.read(row, 0, 200_000).unwrap());
        (number, read) = (number + 1, 0);
        let Some(mut decode) = world.vfs.ahead().next() else { continue };
        // The next interval is being decoded when the first of its rows is read: the read does not begin anew as a whole.
        let Step::Turn(task, _) = world.vfs.read(ino_of(row_of(number)), 0, 200_000) else {
            panic!("it must wait, and go on")
        };
        world.fetch(decode.span());
        world.vfs.ahead().decode(decode, Ok(()));
        world.drive(world.vfs.worked(task)).unwrap();
        (met, read) = (met + 1, 1);
    }
    assert!(met > 10, "{met} intervals were in flight");
    assert_eq!(world.counted("intervals_decoded"), number, "none was decoded twice");
    assert_eq!((world.counted("samples_verified"), world.counted("checksum_failures")), (240, 0));
}

#[test]
fn what_is_decoded_again_must_be_what_it_was_when_everything_is_to_be_checked_always() {
    for (verify, expected) in [(Verify::Always, Err(Errno::EIO)), (Verify::Once, Ok(1000))] {
        let mut world = world(verify, false);
        let read = |world: &World, at| world.read(0, at, 1000).map(|bytes| bytes.len());
        assert_eq!(read(&world, 0), Ok(1000));
        let number = world.change_a_chunk();
        let first = world.interval(number).unwrap().decoded.start
            - world.interval(0).unwrap().decoded.start;
        let header = world.size()
            - (0..).map_while(|n| world.interval(n)).map(|i| length(&i.decoded)).sum::<u64>();
        world.empty_cache();
        assert_eq!(read(&world, header + first), expected, "{verify:?}");
        let failed = u64::from(expected.is_err());
        assert_eq!(world.counted("checksum_failures"), failed);
    }
}

#[test]
fn what_has_changed_when_it_is_decoded_again_is_bad_in_all_its_samples_also_if_it_was_decoded_ahead()
 {
    let mut world = world(Verify::Always, true);
    let row_of = |number: u64| number * 10;
    let read = |world: &World, row| world.read(row, 0, 16 * MIB).map(drop);
    (0..240).for_each(|row| read(&world, row).unwrap());
    let number = world.change_a_chunk();
    world.empty_cache();
    // Rows in order up to the changed chunk, which is then decoded ahead of its readers.
    let mut ahead = 0;
    for row in row_of(0)..row_of(number) {
        read(&world, row).unwrap();
        while let Some(mut decode) = world.vfs.ahead().next() {
            world.fetch(decode.span());
            world.vfs.ahead().decode(decode, Ok(()));
            ahead += 1;
        }
    }
    assert!(ahead > 0);
    for row in (row_of(number)..row_of(number + 1)).cycle().take(20) {
        assert_eq!(read(&world, row), Err(Errno::EIO), "row {row}");
    }
}

#[test]
fn an_interval_that_is_right_again_is_believed_where_its_samples_match_their_sidecar() {
    let world = world(Verify::Always, true);
    let read = |row| world.read(row, 0, 16 * MIB).map(|bytes| crc32fast::hash(&bytes));
    let right: Vec<u32> = (0..240).map(|row| read(row).unwrap()).collect();
    // The interval seems to have had other bytes before, which are wrong in a row that was not read.
    let samples = world.vfs.known_samples();
    let located = samples.locate(50).unwrap();
    let interval = world.interval(5).unwrap();
    assert!(samples.decoded_again(&located, &interval, b"other bytes").is_err());
    samples.decoded_again(&located, &interval, b"other bytes").unwrap();
    (0..240).for_each(|row| samples.set_verified(row));
    world.empty_cache();
    for row in 0..240 {
        assert_eq!(read(row), Ok(right[row as usize]), "row {row}");
    }
    let sums = (world.counted("checksum_failures"), world.counted("samples_verified"));
    // The rows from the interval on were compared once more.
    assert_eq!(sums, (0, 240 + 190));
}

#[test]
fn a_sample_is_compared_again_if_one_of_its_intervals_was_found_changed_meanwhile() {
    let world = world(Verify::Always, true);
    let compared = || world.counted("samples_verified");
    world.read(50, 0, 200_000).unwrap();
    world.empty_cache();
    let begun = world.vfs.read(ino_of(51), 0, 200_000);
    world.vfs.known_samples().forget_decoded(0, &[world.interval(5).unwrap().number]);
    world.drive(begun).unwrap();
    assert_eq!(compared(), 3, "the second one twice");
    world.read(51, 0, 200_000).unwrap();
    assert_eq!(compared(), 3);
}

#[test]
fn a_comparison_of_more_than_fits_in_memory_keeps_nothing_and_pushes_nothing_out() {
    for (memory, is_kept) in [(16 * MIB, false), (256 * MIB, true)] {
        let world = world_with(Verify::Once, false, memory);
        assert!(world.size() > 16 * MIB);
        world.read(0, 0, 1000).unwrap();
        let cache = world.vfs.cache_figures();
        assert_eq!(cache.evictions, 0, "{cache:?}");
        // Otherwise only the interval that was asked for is in memory.
        assert_eq!(cache.entries > 1, is_kept, "{cache:?}");
        assert_eq!(world.counted("samples_verified"), 1);
    }
}
