//! Streams that are read in order: their intervals are decoded ahead, each once, and given back if they are not read.

use super::schedule::{Request, Schedule};
use super::*;

const MIB: u64 = 1 << 20;
const INTERVAL: u64 = 4 * MIB;
const INTERVALS: u64 = 12;
const SIZE: u64 = INTERVALS * INTERVAL;

/// MiB number `at` of the content, all of one byte that no other MiB has.
fn mib(at: u64) -> Vec<u8> {
    vec![at as u8 ^ 0x5a; MIB as usize]
}

fn content() -> Vec<u8> {
    (0..SIZE / MIB).map(mib).collect::<Vec<_>>().concat()
}

/// A file with an interval for every four of its frames.
fn world(cache_bytes: u64, threads: u64) -> World {
    let frames = (0..SIZE / MIB).map(|at| zstd::bulk::compress(&mib(at), 1).unwrap());
    world_of("x.zst", frames.flatten().collect(), cache_bytes, threads)
}

pub(super) fn world_of(name: &str, bytes: Vec<u8>, cache_bytes: u64, threads: u64) -> World {
    let source = MemorySource::new(name.to_owned(), bytes.clone());
    let by_rows = OpenOptions { rows: true, ..OpenOptions::default() };
    let container = crate::format::open(Arc::new(source), &by_rows).unwrap();
    let dataset = Dataset::new(vec![container]);
    let names = Numbered::new(dataset.len(), None, Suffix::Fixed(String::new())).into();
    let part = Part::in_memory(format!("/{name}"), bytes.clone(), SystemTime::UNIX_EPOCH);
    let options = Options { threads, ..options(Verify::Always, cache_bytes) };
    let vfs = Vfs::new(dataset, names, Store::new(vec![Arc::new(part)]), options);
    World { vfs, disk: vec![bytes] }
}

impl World {
    /// Reads a MiB, as the kernel does.
    fn read_mib(&self, at: u64) -> Vec<u8> {
        self.read(0, at * MIB, MIB).unwrap()
    }

    /// Reads in order up to a MiB; nothing is decoded ahead meanwhile.
    fn read_up_to(&self, end: u64) {
        (0..end).for_each(|at| _ = self.read_mib(at));
    }

    fn decode(&self, mut decode: DecodeAhead) {
        self.fetch(decode.span());
        self.vfs.ahead().decode(decode, Ok(()));
    }

    /// Decodes ahead as the threads do; returns the number of intervals.
    fn decode_all(&self) -> u64 {
        let decodes = std::iter::from_fn(|| self.vfs.ahead().next());
        decodes.map(|decode| self.decode(decode)).count() as u64
    }

    fn decoded(&self) -> (u64, u64) {
        let stats = self.snapshot();
        let get = |name| stats[name].as_u64().unwrap();
        (get("intervals_decoded"), get("intervals_decoded_ahead"))
    }
}

#[test]
fn a_stream_that_is_read_in_order_is_decoded_ahead_and_no_interval_twice() {
    let (world, content) = (world(256 * MIB, 4), content());
    for at in 0..SIZE / MIB {
        let bytes = world.read_mib(at);
        assert!(bytes == content[(at * MIB) as usize..][..MIB as usize], "MiB {at}");
        let is_proven = (at + 1) * MIB >= INTERVAL;
        assert!(is_proven || world.decode_all() == 0, "nothing is proven by MiB {at}");
        world.decode_all();
    }
    assert_eq!(world.decoded(), (INTERVALS, INTERVALS - 1));
    let figures = world.vfs.cache_figures();
    assert_eq!((figures.intervals_used, figures.intervals_unused), (INTERVALS - 1, 0));
    assert_eq!(figures.intervals_ahead, 0);
}

#[test]
fn a_reader_that_comes_to_an_interval_while_it_is_decoded_ahead_follows() {
    let world = world(256 * MIB, 4);
    world.read_up_to(4);
    let mut decode = world.vfs.ahead().next().unwrap();
    let followers: Vec<_> = (0..3)
        .map(|reader| {
            let Step::Wait(flight) = world.vfs.read(ino_of(0), INTERVAL + reader, 1) else {
                panic!("it must wait")
            };
            let woken = Arc::new(AtomicU64::new(0));
            let told = Arc::clone(&woken);
            flight.when_ended(move || _ = told.fetch_add(1, Ordering::Relaxed));
            woken
        })
        .collect();
    world.fetch(decode.span());
    world.vfs.ahead().decode(decode, Ok(()));
    assert!(followers.iter().all(|woken| woken.load(Ordering::Relaxed) == 1));
    assert_eq!(world.read_mib(4), mib(4));
    assert_eq!(world.decoded(), (2, 1));
}

#[test]
fn a_failure_ahead_is_left_to_the_reader_and_leaves_nothing_behind() {
    type End = fn(&World, DecodeAhead);
    let ends: [(&str, End); 4] = [
        ("a disk that fails", |world, decode| drop(world.vfs.ahead().decode(decode, fails()))),
        ("a changed file", |world, decode| {
            world.vfs.ahead().decode(decode, Err(ReadError::Changed(Change::Truncated)));
        }),
        ("an error of the decoder", |world, mut decode| {
            decode.span().target(1).unwrap().1.fill(0x11);
            world.vfs.ahead().decode(decode, Ok(()));
        }),
        ("nothing", |_, decode| drop(decode)),
    ];
    for (what, end) in ends {
        let world = world(256 * MIB, 4);
        world.read_up_to(4);
        end(&world, world.vfs.ahead().next().unwrap());
        // A turn or an in-flight read that was left behind would panic: there is no other reader.
        assert_eq!(world.read_mib(4), mib(4), "after {what}");
        world.read_up_to(SIZE / MIB);
        world.vfs.ahead().end_runs();
        world.vfs.control().tuning().set_cache_bytes(0);
        let figures = world.vfs.cache_figures();
        assert_eq!((figures.intervals_ahead, figures.bytes), (0, 0), "after {what}");
    }
}

#[test]
fn a_broken_interval_gives_eio_to_its_reader_alone() {
    let mut world = world(256 * MIB, 4);
    // A byte in the third interval.
    let broken = world.disk[0].len() / INTERVALS as usize * 2 + 20;
    world.disk[0][broken..broken + 8].fill(0xff);
    world.read_up_to(4);
    world.decode_all();
    world.read_up_to(8);
    world.decode_all();
    assert_eq!(world.read(0, 2 * INTERVAL, 1), Err(Errno::EIO));
}

#[test]
fn what_is_ahead_of_a_reader_that_has_gone_is_given_back() {
    let world = world(256 * MIB, 4);
    world.read_up_to(16);
    let ahead = world.decode_all();
    let held = world.vfs.cache_figures();
    assert!(ahead >= 2 && held.intervals_ahead == ahead);
    assert!(world.vfs.ahead().patience().is_some());
    world.vfs.ahead().end_runs();
    let figures = world.vfs.cache_figures();
    assert_eq!((figures.intervals_ahead, figures.intervals_unused), (0, ahead));
    assert_eq!(figures.bytes, held.bytes - ahead * INTERVAL);
    assert!(world.vfs.ahead().patience().is_none() && world.vfs.ahead().next().is_none());
    // An interval that is being decoded then serves any reader, like other intervals.
    let world = self::world(256 * MIB, 4);
    world.read_up_to(4);
    let decode = world.vfs.ahead().next().unwrap();
    world.vfs.ahead().end_runs();
    world.decode(decode);
    let figures = world.vfs.cache_figures();
    assert_eq!((figures.intervals_ahead, figures.entries), (0, 1));
    world.read_mib(4);
    assert_eq!(world.decoded(), (2, 1));
}

#[test]
fn what_is_ahead_takes_a_quarter_of_the_memory_and_makes_room_for_what_is_asked_for() {
    let world = world(9 * INTERVAL, 8);
    for at in 0..SIZE / MIB / 2 {
        world.read_mib(at);
        world.decode_all();
        let figures = world.vfs.cache_figures();
        assert!(figures.intervals_ahead <= 2 && figures.bytes <= figures.capacity_bytes);
    }
    assert_eq!(world.vfs.cache_figures().intervals_ahead, 2);
    assert_eq!(world.decoded().0, INTERVALS / 2 + 2, "none was decoded twice");
    // A reader has no less room because of intervals ahead of another reader.
    world.vfs.control().tuning().set_cache_bytes(2 * INTERVAL);
    for at in (0..SIZE / MIB).rev() {
        assert_eq!(world.read_mib(at), mib(at));
    }
    let decoded = world.decoded().0 - (INTERVALS / 2 + 2);
    assert!(decoded <= INTERVALS, "{decoded} were decoded to read them in order");
    // An interval that is larger than a quarter of the cache is not decoded ahead.
    let world = self::world(3 * INTERVAL, 8);
    for at in 0..SIZE / MIB {
        world.read_mib(at);
        assert_eq!(world.decode_all(), 0);
    }
}

#[test]
fn nothing_is_decoded_ahead_while_a_reader_waits_for_its_turn() {
    let world = world(256 * MIB, 1);
    world.read_up_to(4);
    // Both turns are taken, and a third reader waits.
    let reads: Vec<_> =
        [5, 7, 9].map(|interval| world.vfs.read(ino_of(0), interval * INTERVAL, 1)).into();
    assert!(matches!(reads[..], [Step::Read(_), Step::Read(_), Step::Turn(..)]));
    assert!(world.vfs.ahead().next().is_none());
    drop(reads);
    assert!(world.vfs.ahead().next().is_some(), "it was put off");
}

#[test]
fn readers_in_any_order_beside_what_is_decoded_ahead_get_the_right_bytes() {
    let content = content();
    for seed in 1..16 {
        let mut rng = Rng(seed);
        let cache_bytes = [2 * INTERVAL, 9 * INTERVAL, 256 * MIB][rng.below(3)];
        let fail_once_in = [0, 30][rng.below(2)];
        let world = world(cache_bytes, 1 + rng.below(4) as u64);
        // Two readers that read in order, of which one stops, and one that does not.
        let (first, second) = (rng.below(6) as u64, rng.below(20) as u64);
        let mut offsets = Vec::new();
        for step in 0..24 {
            offsets.push((first + step) * MIB);
            offsets.extend((step < 12).then_some((second + step) * MIB));
            offsets.push(rng.below((SIZE - MIB) as usize) as u64);
        }
        let length = |offset: u64| if offset.is_multiple_of(MIB) { MIB } else { 1000 };
        let requests: Vec<_> = offsets
            .iter()
            .map(|&offset| Request { sample: 0, offset, length: length(offset) })
            .collect();
        let mut schedule = Schedule::new(&world, seed, fail_once_in);
        schedule.run(&requests, 1 + rng.below(6));
        for (number, Request { offset, length, .. }) in requests.iter().enumerate() {
            match &schedule.replies[&number] {
                (Ok(bytes), _) => {
                    let place = *offset as usize..(offset + length) as usize;
                    assert!(bytes == &content[place], "seed {seed}, byte {offset}");
                }
                (Err(errno), failed) => assert!(*errno == Errno::EIO && *failed > 1),
            }
        }
        world.vfs.ahead().end_runs();
        let figures = world.vfs.cache_figures();
        assert_eq!(figures.intervals_ahead, 0);
        assert!(figures.intervals_used + figures.intervals_unused <= world.decoded().1);
    }
}

// ---- rows of tables and matrices -------------------------------------------------------------------

const ROWS: u64 = 240;
/// The number of rows in a page or chunk.
const ROWS_AT_ONCE: u64 = 10;
const PAGES: u64 = ROWS / ROWS_AT_ONCE;

/// A fixture of rows of 100 KB, the number of samples in a row, and the data of a row.
type Table = (&'static str, u64, fn(u64) -> Vec<u8>);

const TABLES: [Table; 2] = [
    ("ordered.parquet", 2, |row| [&(row as u32).to_le_bytes()[..], &[row as u8; 99_996]].concat()),
    ("ordered.h5", 1, |row| vec![row as u8; 100_000]),
];

/// The fixture, and the offset of the data in a row: behind the header of an array.
fn table((name, _, data): &Table, cache_bytes: u64) -> (World, u64) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let world = world_of(name, std::fs::read(path).unwrap(), cache_bytes, 4);
    let at = world.vfs.dataset().locate(0).unwrap().unwrap().sample;
    let header = at.size_bytes() - data(0).len() as u64;
    (world, header)
}

impl World {
    fn row(&self, (_, samples, data): &Table, header: u64, row: u64) -> Result<(), Errno> {
        let bytes = self.read(row * samples, 0, header + 100_000)?;
        assert!(bytes[header as usize..] == data(row), "row {row}");
        Ok(())
    }
}

#[test]
fn rows_that_are_read_in_order_have_their_pages_decoded_ahead_through_all_row_groups() {
    for table_of in &TABLES {
        let (world, header) = table(table_of, 256 * MIB);
        for row in 0..ROWS {
            world.row(table_of, header, row).unwrap();
            let is_proven = (row + 1) * 100_000 >= 4 * MIB;
            assert!(is_proven || world.decode_all() == 0, "nothing is proven by row {row}");
            world.decode_all();
        }
        // Intervals that are read before the order is proven are not decoded ahead.
        let first = (4 * MIB).div_ceil(ROWS_AT_ONCE * 100_000);
        assert_eq!(world.decoded(), (PAGES, PAGES - first), "{}", table_of.0);
        let figures = world.vfs.cache_figures();
        assert_eq!((figures.intervals_used, figures.intervals_unused), (PAGES - first, 0));
        assert_eq!(figures.intervals_ahead, 0);
    }
}

#[test]
fn columns_that_are_read_row_by_row_are_runs_of_their_own() {
    let (world, _) = table(&TABLES[0], 256 * MIB);
    for row in 0..ROWS {
        world.row(&TABLES[0], 0, row).unwrap();
        let number = world.read(row * 2 + 1, 0, 1000).unwrap();
        assert_eq!(number[number.len() - 8..], row.to_le_bytes());
        world.decode_all();
    }
    let (all, ahead) = world.decoded();
    // Each row group has a page of numbers.
    assert_eq!((all, ahead), (PAGES + 8, PAGES - 5));
}

#[test]
fn rows_in_any_other_order_have_nothing_decoded_ahead() {
    for table_of in &TABLES {
        let (world, header) = table(table_of, 256 * MIB);
        // Each page once, from the last to the first.
        for row in (0..ROWS).rev().step_by(ROWS_AT_ONCE as usize) {
            world.row(table_of, header, row).unwrap();
            assert_eq!(world.decode_all(), 0);
        }
        assert_eq!(world.decoded(), (PAGES, 0));
    }
}

#[test]
fn a_page_that_is_broken_ahead_is_an_error_of_its_rows_alone() {
    const BROKEN: u64 = 11;
    for table_of in &TABLES {
        let (mut world, header) = table(table_of, 256 * MIB);
        let (part, at) = world.place(BROKEN * ROWS_AT_ONCE * table_of.1, 0);
        world.disk[part][at..at + 16].fill(0xff);
        for row in 0..ROWS {
            let is_broken = row / ROWS_AT_ONCE == BROKEN;
            let expected = if is_broken { Err(Errno::EIO) } else { Ok(()) };
            assert_eq!(world.row(table_of, header, row), expected, "row {row}");
            world.decode_all();
        }
        assert!(world.decoded().1 > PAGES / 2);
        assert_eq!(world.vfs.cache_figures().intervals_ahead, 0);
    }
}

#[test]
fn what_is_ahead_of_rows_takes_a_quarter_of_the_memory_and_is_given_back() {
    for table_of in &TABLES {
        let (world, header) = table(table_of, 16 * MIB);
        for row in 0..ROWS / 2 {
            world.row(table_of, header, row).unwrap();
            world.decode_all();
            let figures = world.vfs.cache_figures();
            assert!(figures.intervals_ahead <= 4 && figures.bytes <= figures.capacity_bytes);
        }
        assert!(world.vfs.cache_figures().intervals_ahead > 1);
        world.vfs.ahead().end_runs();
        assert_eq!(world.vfs.cache_figures().intervals_ahead, 0);
        assert!(world.vfs.ahead().next().is_none());
    }
}

#[test]
fn readers_of_rows_in_any_order_beside_what_is_decoded_ahead_get_the_right_bytes() {
    for (seed, table_of) in (1..9).flat_map(|seed| TABLES.iter().map(move |table| (seed, table))) {
        let mut rng = Rng(seed);
        let cache_bytes = [4 * MIB, 16 * MIB, 256 * MIB][rng.below(3)];
        let fail_once_in = [0, 30][rng.below(2)];
        let (world, header) = table(table_of, cache_bytes);
        let (first, second) = (rng.below(100) as u64, rng.below(100) as u64);
        let rows: Vec<_> = (0..100)
            .flat_map(|step| [first + step, second + step, rng.below(ROWS as usize) as u64])
            .collect();
        let requests: Vec<_> = rows
            .iter()
            .map(|row| Request { sample: row * table_of.1, offset: header, length: 100_000 })
            .collect();
        let mut schedule = Schedule::new(&world, seed, fail_once_in);
        schedule.run(&requests, 1 + rng.below(6));
        for (number, row) in rows.iter().enumerate() {
            match &schedule.replies[&number] {
                (Ok(bytes), _) => assert!(*bytes == (table_of.2)(*row), "seed {seed}, row {row}"),
                (Err(errno), failed) => assert!(*errno == Errno::EIO && *failed > 1),
            }
        }
        world.vfs.ahead().end_runs();
        let figures = world.vfs.cache_figures();
        assert_eq!(figures.intervals_ahead, 0);
        assert!(figures.intervals_used + figures.intervals_unused <= world.decoded().1);
    }
}
