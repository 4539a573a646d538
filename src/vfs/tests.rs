//! The file system on a simulated disk: which bytes are fetched, when they are checked, which reader waits for which.

mod ahead;
mod announce;
mod announced;
mod blocks;
mod changes;
mod compared;
mod lacking;
mod looked_up;
mod names;
mod schedule;
mod warmed_up;

use super::*;
use crate::catalog::{Catalog, Dataset, Numbered, Suffix};
use crate::format::ffrecord::{Writer, header_bytes};
use crate::format::{MemorySource, OpenOptions};
use crate::io::{Change, ReadError};
use crate::store::{Part, Store};
use std::io::{self, Cursor};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

// ---- the simulated disk --------------------------------------------------------------------------

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut rng = Rng(seed | 1 << 40);
    let mut bytes: Vec<u8> =
        (0..length.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}

/// xorshift64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// True once in `times`; never for 0.
    fn once_in(&mut self, times: usize) -> bool {
        times > 0 && self.below(times) == 0
    }
}

/// A dataset, and the bytes of its containers as the disk has them (which may differ from the indexed bytes).
struct World {
    vfs: Vfs,
    disk: Vec<Vec<u8>>,
}

fn ino_of(sample: u64) -> u64 {
    sample * 2 + 2
}

fn options(verify: Verify, cache_bytes: u64) -> Options {
    Options { verify, cache_bytes, ..Options::default() }
}

impl World {
    /// A container for each list of samples; `cut` bytes are missing at the end of the last container.
    fn cut(parts: &[Vec<Vec<u8>>], options: Options, cut: usize) -> Self {
        Self::named(parts, options, cut, |samples| {
            Numbered::new(samples, None, Suffix::Fixed(String::new())).into()
        })
    }

    /// As `cut`, with names that are made for the number of samples.
    fn named(
        parts: &[Vec<Vec<u8>>],
        options: Options,
        cut: usize,
        names: impl FnOnce(u64) -> Catalog,
    ) -> Self {
        let mut disk: Vec<Vec<u8>> = parts.iter().map(|samples| pack(samples)).collect();
        let last = disk.last_mut().unwrap();
        last.truncate(last.len() - cut);
        let containers = disk.iter().enumerate().map(|(part, bytes)| {
            let source = MemorySource::new(format!("part{part}.ffr"), bytes.clone());
            crate::format::open(
                Arc::new(source),
                &OpenOptions { allow_damaged: true, ..OpenOptions::default() },
            )
            .unwrap()
        });
        let dataset = Dataset::new(containers.collect());
        let names = names(dataset.len());
        let modified = |part| SystemTime::UNIX_EPOCH + Duration::from_secs(100 + part as u64);
        let part = |(part, bytes): (usize, &Vec<u8>)| {
            let name = format!("/part{part}.ffr");
            Arc::new(Part::in_memory(name, bytes.clone(), modified(part)))
        };
        let parts = Store::new(disk.iter().enumerate().map(part).collect());
        Self { vfs: Vfs::new(dataset, names, parts, options), disk }
    }

    fn new(parts: &[Vec<Vec<u8>>], options: Options) -> Self {
        Self::cut(parts, options, 0)
    }

    /// One container.
    fn of(samples: &[Vec<u8>], options: Options) -> Self {
        Self::new(&[samples.to_vec()], options)
    }

    /// The place of byte `at` of a sample on the disk: container, offset.
    fn place(&self, sample: u64, at: usize) -> (usize, usize) {
        let located = self.vfs.dataset().locate(sample).unwrap().unwrap();
        (located.part, located.sample.offset_bytes as usize + at)
    }

    fn flip(&mut self, sample: u64, at: usize) {
        let (part, offset) = self.place(sample, at);
        self.disk[part][offset] ^= 0x40;
    }

    /// Fetches as a good disk does.
    fn fetch(&self, span: &mut Span) {
        self.fetch_aligned(span, 1);
    }

    /// Fetches as a disk does that reads whole blocks; bytes behind the file's end are arbitrary.
    fn fetch_aligned(&self, span: &mut Span, alignment_bytes: u64) {
        let bytes = &self.disk[span.part()];
        let (start, target) = span.target(alignment_bytes).unwrap();
        let there = (bytes.len() - start as usize).min(target.len());
        target[..there].copy_from_slice(&bytes[start as usize..][..there]);
        target[there..].fill(0xee);
        assert!(span.needed_bytes() <= there, "nothing is needed from behind the end");
    }

    /// Fetches as a disk does that returns one wrong byte (of a part, at an offset).
    fn fetch_lying(&self, span: &mut Span, lie: Option<(usize, usize)>) {
        self.fetch(span);
        if let Some((part, offset)) = lie
            && part == span.part()
            && span.range().contains(&(offset as u64))
        {
            let start = span.range().start;
            span.target(1).unwrap().1[(offset as u64 - start) as usize] ^= 0x40;
        }
    }

    /// Reads without other readers.
    fn read(&self, sample: u64, offset: u64, length: u64) -> Result<Vec<u8>, Errno> {
        begin(request(sample, offset, length).alone_in(self))
    }

    /// Goes on from a step, without other readers.
    fn drive(&self, step: Step) -> Result<Vec<u8>, Errno> {
        drive(request(0, 0, 0).alone_in(self), step)
    }

    /// Begins a partial read that will fetch the sample.
    fn lead(&self, sample: u64) -> Task {
        match self.vfs.read(ino_of(sample), 0, 1) {
            Step::Read(task) => task,
            Step::Done(_) | Step::Work(_) | Step::Wait(_) | Step::Turn(..) => {
                panic!("it must be fetched")
            }
        }
    }

    /// Begins a read that has to wait; returns the number of times that it was woken.
    fn follow(&self, sample: u64) -> Arc<AtomicU64> {
        let Step::Wait(flight) = self.vfs.read(ino_of(sample), 1, 1) else {
            panic!("it must wait")
        };
        let woken = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&woken);
        flight.when_ended(move || {
            told.fetch_add(1, Ordering::Relaxed);
        });
        woken
    }

    fn take(&self, reply: Reply) -> Result<Vec<u8>, Errno> {
        let bytes = reply.bytes().map(<[u8]>::to_vec);
        self.vfs.finish(reply);
        bytes
    }

    fn snapshot(&self) -> serde_json::Value {
        serde_json::to_value(self.vfs.stats().snapshot()).unwrap()
    }
}

fn request(sample: u64, offset_bytes: u64, length_bytes: u64) -> ReadRequest {
    ReadRequest { ino: ino_of(sample), offset_bytes, length_bytes }
}

impl ReadRequest {
    /// A driver for a world without other readers, on a good disk.
    fn alone_in(self, world: &World) -> Alone<'_, impl FnMut(&mut Span)> {
        Alone { world, request: self, fetch: |span: &mut Span| world.fetch(span) }
    }
}

/// The only reader.
struct Alone<'a, F> {
    world: &'a World,
    request: ReadRequest,
    fetch: F,
}

impl<F: FnMut(&mut Span)> Driver for Alone<'_, F> {
    type Output = Result<Vec<u8>, Errno>;

    fn vfs(&self) -> &Vfs {
        &self.world.vfs
    }

    fn request(&self) -> ReadRequest {
        self.request
    }

    fn fetch(
        mut self,
        mut task: Task,
    ) -> ControlFlow<Self::Output, (Self, Task, Result<(), ReadError>)> {
        (self.fetch)(task.span());
        ControlFlow::Continue((self, task, Ok(())))
    }

    fn work(self, mut task: Task) -> ControlFlow<Self::Output, (Self, Task)> {
        task.work();
        ControlFlow::Continue((self, task))
    }

    fn follow(self, _: Arc<InFlightRead>) -> ControlFlow<Self::Output, Self> {
        panic!("nobody else reads: an in-flight read was left behind")
    }

    fn await_turn(self, _: Task, _: Arc<InFlightRead>) -> ControlFlow<Self::Output, (Self, Task)> {
        panic!("nobody else reads: a turn was not given back")
    }

    fn answer(self, reply: Reply) -> Self::Output {
        self.world.take(reply)
    }
}

fn pack(samples: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = Writer::new(Cursor::new(Vec::new()), samples.len() as u64).unwrap();
    for sample in samples {
        writer.write_sample(&mut &sample[..]).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn fails() -> Result<(), ReadError> {
    Err(ReadError::Io(io::Error::from_raw_os_error(libc::EIO)))
}

impl World {
    /// Ends a read whose disk fails, also the second time.
    fn fail(&self, task: Task) -> Result<Vec<u8>, Errno> {
        let Step::Read(again) = self.vfs.resume(task, fails()) else { panic!("it is tried again") };
        self.drive(self.vfs.resume(again, fails()))
    }
}

// ---- which reader fetches, which waits -----------------------------------------------------------

#[test]
fn followers_are_woken_however_the_fetch_ends() {
    type End = fn(&World, Task);
    let end_in: [(&str, End); 5] = [
        ("success", |world, task| assert!(world.drive(Step::Read(task)).is_ok())),
        ("an I/O error", |world, task| {
            assert_eq!(world.fail(task), Err(Errno::EIO));
        }),
        ("a changed file", |world, task| {
            let changed = Err(ReadError::Changed(Change::Truncated));
            assert_eq!(world.drive(world.vfs.resume(task, changed)), Err(Errno::EIO));
        }),
        ("a mismatch", |world, mut task| {
            task.span().target(1).unwrap().1.fill(0x11);
            let mut step = world.vfs.resume(task, Ok(()));
            while let Step::Read(mut next) = step {
                next.span().target(1).unwrap().1.fill(0x11);
                step = world.vfs.resume(next, Ok(()));
            }
            assert_eq!(world.drive(step), Err(Errno::EIO));
        }),
        ("nothing", |_, task| drop(task)),
    ];
    // A sample that is kept whole, and one that is passed over in two fetches.
    for size in [5000, (1 << 20) + 1] {
        for (what, end) in &end_in {
            let world = World::of(&[noise(1, size)], options(Verify::Always, 1 << 20));
            let leader = world.lead(0);
            let followers: Vec<_> = (0..20).map(|_| world.follow(0)).collect();
            assert!(followers.iter().all(|woken| woken.load(Ordering::Relaxed) == 0));
            end(&world, leader);
            let woken = followers.iter().all(|woken| woken.load(Ordering::Relaxed) == 1);
            assert!(woken, "after {what}, {size} bytes");
            let next = world.read(0, 1, 1);
            match *what {
                "a changed file" | "a mismatch" => assert_eq!(next, Err(Errno::EIO), "{what}"),
                _ => assert_eq!(next.as_deref(), Ok(&noise(1, size)[1..2]), "{what}"),
            }
        }
    }
}

#[test]
fn a_large_sample_is_passed_over_once_and_then_read_in_blocks() {
    let size = 3 << 20;
    let world = World::of(&[noise(2, size)], options(Verify::Always, 64 << 10));
    let mut leader = world.lead(0);
    let mut fetches = Vec::new();
    let reply = loop {
        fetches.push(leader.span().target(1).unwrap().1.len());
        assert_eq!(leader.is_long(), fetches.len() <= 3);
        world.fetch(leader.span());
        match world.vfs.resume(leader, Ok(())) {
            Step::Read(task) => leader = task,
            step => break world.drive(step),
        }
    };
    assert_eq!(fetches, [1 << 20, 1 << 20, 1 << 20, 128 << 10]);
    assert_eq!(reply.unwrap(), noise(2, size)[..1]);
    let fetched = world.snapshot()["bytes_fetched"].as_u64().unwrap();
    for offset in [0, 1 << 20, size as u64 - 1] {
        assert_eq!(world.read(0, offset, 1).unwrap(), noise(2, size)[offset as usize..][..1]);
    }
    let blocks = world.snapshot()["bytes_fetched"].as_u64().unwrap() - fetched;
    assert_eq!(blocks, 3 * (128 << 10));
    assert_eq!(world.snapshot()["samples_verified"], 1);
}

#[test]
fn a_small_sample_asked_for_byte_by_byte_is_fetched_once() {
    let bytes = noise(3, 3000);
    let world = World::of(std::slice::from_ref(&bytes), options(Verify::Always, 1 << 20));
    let read: Vec<u8> = (0..3000).flat_map(|at| world.read(0, at, 1).unwrap()).collect();
    assert_eq!(read, bytes);
    let stats = world.snapshot();
    assert_eq!((&stats["bytes_fetched"], &stats["bytes_served"]), (&3000.into(), &3000.into()));
    assert_eq!(world.vfs.cache_figures().entries, 0, "all of it was given out");
}

#[test]
fn a_sample_asked_for_whole_is_not_kept() {
    let bytes = noise(4, 5000);
    let world = World::of(std::slice::from_ref(&bytes), options(Verify::Always, 1 << 20));
    for length in [5000, 5001, u64::MAX] {
        assert_eq!(world.read(0, 0, length).unwrap(), bytes);
    }
    let figures = world.vfs.cache_figures();
    assert_eq!((figures.entries, figures.hits, figures.misses), (0, 0, 0));
}

#[test]
fn a_file_that_changed_takes_its_own_samples_with_it_and_no_others() {
    let parts = [vec![noise(1, 100), noise(2, 100)], vec![noise(3, 100)]];
    let world = World::new(&parts, options(Verify::Always, 1 << 20));
    assert!(world.read(1, 0, 10).is_ok());
    let step = world.vfs.resume(world.lead(0), Err(ReadError::Changed(Change::Rewritten)));
    assert_eq!(world.drive(step), Err(Errno::EIO));
    // Also samples in the cache: they are older than the rest.
    for sample in [0, 1] {
        assert_eq!(world.read(sample, 10, 10), Err(Errno::EIO));
    }
    assert_eq!(world.read(2, 0, 100).unwrap(), parts[1][0]);
    assert!(world.vfs.bad_list().contains("rewritten"));
}

// ---- when samples are checked --------------------------------------------------------------------

#[test]
fn a_byte_that_changes_between_the_pass_and_the_read_gives_eio() {
    let mut world = World::of(&[noise(5, 1 << 20)], options(Verify::Always, 64 << 10));
    assert!(world.read(0, 0, 1).is_ok());
    world.flip(0, 700_000);
    assert!(world.read(0, 100, 1).is_ok(), "another block");
    assert_eq!(world.read(0, 699_999, 1), Err(Errno::EIO));
    assert_eq!(world.read(0, 100, 1), Err(Errno::EIO), "the sample is bad now");
}

#[test]
fn once_checks_the_first_time_and_then_fetches_what_is_asked_for() {
    let bytes = noise(6, 4000);
    let mut world = World::of(&[bytes.clone(), noise(7, 10)], options(Verify::Once, 1 << 20));
    assert_eq!(world.read(0, 0, u64::MAX).unwrap(), bytes);
    let before = world.snapshot()["bytes_fetched"].as_u64().unwrap();
    assert_eq!(world.read(0, 7, 3).unwrap(), bytes[7..10]);
    assert_eq!(world.snapshot()["bytes_fetched"].as_u64().unwrap() - before, 3);
    world.flip(1, 0);
    assert_eq!(world.read(1, 5, 1), Err(Errno::EIO));
    assert_eq!(world.read(1, 5, 1), Err(Errno::EIO));
}

#[test]
fn off_gives_the_bytes_as_they_are() {
    let mut world = World::of(&[vec![0; 100]], options(Verify::Off, 1 << 20));
    world.flip(0, 3);
    assert_eq!(world.read(0, 2, 3).unwrap(), [0, 0x40, 0]);
    assert_eq!(world.snapshot()["samples_verified"], 0);
}

#[test]
fn a_sample_that_is_not_all_there_gives_eio_without_a_fetch() {
    for verify in [Verify::Always, Verify::Off] {
        let world = World::cut(&[vec![vec![1; 10], vec![2; 10]]], options(verify, 1 << 20), 10);
        assert_eq!(world.read(0, 0, 10).unwrap(), [1; 10]);
        for (offset, length) in [(0, 1), (0, 0), (1 << 40, 1), (u64::MAX, u64::MAX)] {
            assert_eq!(world.read(1, offset, length), Err(Errno::EIO));
        }
        assert_eq!(world.snapshot()["bytes_fetched"], 10);
        assert_eq!(world.vfs.getattr(ino_of(1)).unwrap().size, 1);
    }
}

#[test]
fn an_announced_sample_that_never_fits_does_not_hold_up_the_others() {
    // The window is half of the cache; a read of the first sample is widened, so that it is larger.
    let samples = [noise(1, (512 << 10) - 100), noise(2, 5000)];
    let world = World::of(&samples, options(Verify::Always, 1 << 20));
    for sample in [0, 1] {
        world.vfs.announce(&[sample]).unwrap();
    }
    while let Some(mut fetch) = world.vfs.next_fetch() {
        world.fetch(fetch.span());
        world.vfs.land(fetch, Ok(()));
    }
    let figures = world.vfs.prefetch_figures();
    assert_eq!((figures.waiting, figures.done), (0, 2));
    assert_eq!((figures.failed, figures.skipped), (0, 1), "it is whole, and can be read");
    assert_eq!(world.read(0, 0, 1).unwrap(), samples[0][..1]);
}

#[test]
fn an_error_that_passes_is_not_seen() {
    let world = World::of(&[noise(8, 100)], options(Verify::Always, 1 << 20));
    let step = world.vfs.resume(world.lead(0), fails());
    assert_eq!(world.drive(step).as_deref(), Ok(&noise(8, 100)[..1]));
    assert_eq!(world.vfs.bad_list(), "");
    assert_eq!(world.snapshot()["io_errors"], 1);
}

#[test]
fn a_passing_error_is_forgotten_when_the_disk_recovers() {
    let world = World::of(&[noise(8, 100)], options(Verify::Always, 1 << 20));
    assert_eq!(world.fail(world.lead(0)), Err(Errno::EIO));
    assert!(world.vfs.bad_list().contains("Input/output error"));
    assert_eq!(world.read(0, 0, 1).unwrap(), noise(8, 100)[..1]);
}

#[test]
fn a_mismatch_found_after_a_passing_error_takes_its_place() {
    let mut world = World::of(&[noise(8, 100)], options(Verify::Always, 1 << 20));
    world.flip(0, 99);
    assert_eq!(world.fail(world.lead(0)), Err(Errno::EIO));
    for _ in 0..2 {
        assert_eq!(world.read(0, 0, 1), Err(Errno::EIO));
    }
    assert!(world.vfs.bad_list().starts_with("000000\tchecksum\t"));
    assert_eq!(world.snapshot()["checksum_failures"], 1, "it is not fetched again");
    // A known error stays, even if the disk fails as well.
    assert_eq!(world.vfs.bad_list().lines().count(), 1);
}

#[test]
fn a_mismatch_is_listed_with_what_was_expected_and_found() {
    let parts = [vec![noise(1, 5)], vec![noise(2, 5), noise(3, 50)]];
    let mut world = World::new(&parts, options(Verify::Always, 1 << 20));
    assert_eq!(world.vfs.bad_list(), "");
    world.flip(2, 0);
    for _ in 0..3 {
        assert_eq!(world.read(2, 10, 10), Err(Errno::EIO));
    }
    let mut found = parts[1][1].clone();
    found[0] ^= 0x40;
    let (expected, found) = (crc32fast::hash(&parts[1][1]), crc32fast::hash(&found));
    let offset = header_bytes(2) + 5;
    let line =
        format!("000002\tchecksum\t/part1.ffr\t2\t{offset}\t50\t{expected:#010x}\t{found:#010x}\n");
    assert_eq!(world.vfs.bad_list(), line);
    assert_eq!(world.snapshot()["checksum_failures"], 1);
}
