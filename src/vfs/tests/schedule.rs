//! The step machine under many readers: reads end in any order, fail and lie; every reply is compared with
//! a model.

use super::*;
use proptest::collection::vec;
use proptest::prelude::{
    Just, ProptestConfig, Strategy, TestCaseError, any, prop, prop_assert, prop_assert_eq,
    prop_assume, prop_oneof, proptest,
};
use std::collections::BTreeMap;
use std::sync::Mutex;

#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) sample: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
}

enum State {
    /// The reader must ask, perhaps again.
    Ready,
    /// The disk has the reader's task.
    Reading(Box<Task>),
    /// The file I/O of the task is done.
    Working(Box<Task>),
    /// The task waits for its turn to decode.
    Queued(Box<Task>),
    /// The reader waits to be woken.
    Waiting,
}

struct Reader {
    number: usize,
    request: Request,
    state: State,
    /// How many of the reader's own fetches failed on the disk.
    failures: u64,
}

/// Serves requests, `at_once` at a time, each step that of a reader, or of the threads that fetch and decode ahead,
/// chosen at random.
pub(super) struct Schedule<'a> {
    world: &'a World,
    rng: Rng,
    fail_once_in: usize,
    woken: Arc<Mutex<Vec<usize>>>,
    /// The reply to each request, and how often the disk failed for it.
    pub(super) replies: BTreeMap<usize, (Result<Vec<u8>, Errno>, u64)>,
    ahead: Vec<Fetch>,
    decodes: Vec<DecodeAhead>,
}

impl<'a> Schedule<'a> {
    pub(super) fn new(world: &'a World, seed: u64, fail_once_in: usize) -> Self {
        let (rng, woken, replies) = (Rng(seed), Arc::default(), BTreeMap::new());
        let (ahead, decodes) = (Vec::new(), Vec::new());
        Self { world, rng, fail_once_in, woken, replies, ahead, decodes }
    }

    pub(super) fn run(&mut self, requests: &[Request], at_once: usize) {
        let mut coming = requests.iter().cloned().enumerate().rev().collect::<Vec<_>>();
        let mut readers: Vec<Reader> = Vec::new();
        loop {
            while readers.len() < at_once
                && let Some((number, request)) = coming.pop()
            {
                readers.push(Reader { number, request, state: State::Ready, failures: 0 });
            }
            if self.rng.once_in(4) {
                self.fetch_ahead();
                self.decode_ahead();
            }
            for number in self.woken.lock().unwrap().drain(..) {
                let reader = readers.iter_mut().find(|reader| reader.number == number).unwrap();
                reader.state = match std::mem::replace(&mut reader.state, State::Ready) {
                    State::Waiting => State::Ready,
                    State::Queued(task) => State::Working(task),
                    _ => panic!("woken twice"),
                };
            }
            let able = |reader: &Reader| !matches!(reader.state, State::Waiting | State::Queued(_));
            let able: Vec<_> = (0..readers.len()).filter(|&i| able(&readers[i])).collect();
            let figures = self.world.vfs.cache_figures();
            assert!(figures.bytes <= figures.capacity_bytes, "the cap is hard");
            if able.is_empty() {
                if !self.ahead.is_empty() || !self.decodes.is_empty() {
                    self.fetch_ahead();
                    self.decode_ahead();
                    continue;
                }
                assert!(readers.is_empty(), "{} readers were never woken", readers.len());
                return;
            }
            let chosen = able[self.rng.below(able.len())];
            let reader = readers.swap_remove(chosen);
            readers.extend(self.step(reader));
        }
    }

    /// Begins a fetch ahead, or ends one that is under way.
    fn fetch_ahead(&mut self) {
        let vfs = &self.world.vfs;
        if self.ahead.is_empty() || self.rng.once_in(2) {
            self.ahead.extend(vfs.next_fetch());
            return;
        }
        let mut fetch = self.ahead.swap_remove(self.rng.below(self.ahead.len()));
        if self.rng.once_in(self.fail_once_in) {
            assert!(vfs.land(fetch, fails()).is_empty());
            return;
        }
        self.world.fetch_aligned(fetch.span(), [1, 512, 4096][self.rng.below(3)]);
        for store in vfs.land(fetch, Ok(())) {
            if vfs.may_store(&store) {
                let is_stored = self.rng.once_in(2);
                vfs.stored(store, is_stored);
            }
        }
    }

    /// Begins to decode an interval ahead, or ends one that is under way, perhaps without having decoded it.
    fn decode_ahead(&mut self) {
        let ahead = self.world.vfs.ahead();
        if self.decodes.is_empty() || self.rng.once_in(3) {
            self.decodes.extend(ahead.next());
            return;
        }
        let mut decode = self.decodes.swap_remove(self.rng.below(self.decodes.len()));
        if self.rng.once_in(self.fail_once_in) {
            return match self.rng.once_in(2) {
                true => drop(ahead.decode(decode, fails())),
                false => drop(decode),
            };
        }
        self.world.fetch_aligned(decode.span(), [1, 512, 4096][self.rng.below(3)]);
        ahead.decode(decode, Ok(()));
    }

    /// Makes one step of a reader, and returns the reader if it was not answered.
    fn step(&mut self, mut reader: Reader) -> Option<Reader> {
        let vfs = &self.world.vfs;
        match std::mem::replace(&mut reader.state, State::Waiting) {
            State::Waiting | State::Queued(_) => unreachable!("it waits"),
            State::Ready => {
                let sample = reader.request.sample;
                if self.rng.once_in(10) {
                    vfs.announce(&[sample, (sample + 1) % vfs.dataset().len()]).unwrap();
                }
                match self.rng.below(8) {
                    0 => vfs.kernel_knows(ino_of(sample)),
                    1 => vfs.forget(ino_of(sample), 1),
                    _ => {}
                }
                begin(Turn { schedule: self, reader })
            }
            State::Working(task) => {
                let step = vfs.worked(*task);
                drive(Turn { schedule: self, reader }, step)
            }
            State::Reading(mut task) if self.rng.once_in(8) => {
                // The task waits in a queue without its memory.
                vfs.shelve(&mut task);
                reader.state = State::Reading(task);
                Some(reader)
            }
            State::Reading(task) => {
                let step = if !task.waits() && self.rng.once_in(2) {
                    vfs.must_wait(*task)
                } else if self.rng.once_in(self.fail_once_in) {
                    reader.failures += 1;
                    vfs.resume(*task, fails())
                } else {
                    let mut task = task;
                    self.world.fetch_aligned(task.span(), [1, 512, 4096][self.rng.below(3)]);
                    vfs.resume(*task, Ok(()))
                };
                drive(Turn { schedule: self, reader }, step)
            }
        }
    }
}

/// A reader's turn, which ends with the next step that is not an answer.
struct Turn<'a, 'w> {
    schedule: &'a mut Schedule<'w>,
    reader: Reader,
}

impl Driver for Turn<'_, '_> {
    type Output = Option<Reader>;

    fn vfs(&self) -> &Vfs {
        &self.schedule.world.vfs
    }

    fn request(&self) -> ReadRequest {
        let Request { sample, offset, length } = self.reader.request;
        request(sample, offset, length)
    }

    fn fetch(
        mut self,
        task: Task,
    ) -> ControlFlow<Self::Output, (Self, Task, Result<(), ReadError>)> {
        self.reader.state = State::Reading(Box::new(task));
        ControlFlow::Break(Some(self.reader))
    }

    fn work(mut self, mut task: Task) -> ControlFlow<Self::Output, (Self, Task)> {
        task.work();
        match self.schedule.rng.once_in(2) {
            true => ControlFlow::Continue((self, task)),
            false => {
                self.reader.state = State::Working(Box::new(task));
                ControlFlow::Break(Some(self.reader))
            }
        }
    }

    fn follow(self, read: Arc<InFlightRead>) -> ControlFlow<Self::Output, Self> {
        let (woken, number) = (Arc::clone(&self.schedule.woken), self.reader.number);
        read.when_ended(move || woken.lock().unwrap().push(number));
        ControlFlow::Break(Some(self.reader))
    }

    fn await_turn(
        mut self,
        task: Task,
        turn: Arc<InFlightRead>,
    ) -> ControlFlow<Self::Output, (Self, Task)> {
        let (woken, number) = (Arc::clone(&self.schedule.woken), self.reader.number);
        self.reader.state = State::Queued(Box::new(task));
        turn.when_ended(move || woken.lock().unwrap().push(number));
        ControlFlow::Break(Some(self.reader))
    }

    fn answer(self, reply: Reply) -> Self::Output {
        let bytes = self.schedule.world.take(reply);
        self.schedule.replies.insert(self.reader.number, (bytes, self.reader.failures));
        None
    }
}

/// Sizes around every limit of a cache of 64 KiB (kept whole up to 16 KiB) and of the blocks of a scan.
fn any_size() -> impl Strategy<Value = usize> {
    prop_oneof![
        2 => Just(0usize),
        6 => 1usize..5000,
        3 => (16usize << 10) - 2..(16 << 10) + 3,
        3 => 5000usize..120_000,
        1 => (128usize << 10) - 2..(128 << 10) + 3,
        1 => (1usize << 20) - 2..(1 << 20) + 3,
        1 => (2usize << 20)..(5 << 19),
    ]
}

/// A sample by place, the beginning of a range of it in parts per million of its size (more: past its
/// end), and the range's length.
type Place = (prop::sample::Index, u32, u64);

fn any_request(length: impl Strategy<Value = u64>) -> impl Strategy<Value = Place> {
    (any::<prop::sample::Index>(), 0u32..1_050_000, length)
}

fn any_length() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(1u64), 3 => 1u64..9000, 1 => Just(1 << 20), 1 => Just(u64::MAX)]
}

fn any_mode() -> impl Strategy<Value = Verify> {
    prop_oneof![3 => Just(Verify::Always), 2 => Just(Verify::Once), 1 => Just(Verify::Off)]
}

/// A dataset, the faults of its disk, and the requests of its readers.
#[derive(Debug, Clone)]
struct Scenario {
    sizes: Vec<Vec<usize>>,
    corrupt: Vec<prop::sample::Index>,
    verify: Verify,
    cache_bytes: u64,
    in_order: bool,
    requests: Vec<Place>,
    at_once: usize,
    fail_once_in: usize,
    seed: u64,
}

fn any_scenario(requests: impl Strategy<Value = Vec<Place>>) -> impl Strategy<Value = Scenario> {
    let sizes = prop_oneof![
        2 => vec(vec(any_size(), 0..4), 1..4),
        1 => vec(vec(1usize..9000, 100..200), 1..3),
    ];
    let cache_bytes =
        prop_oneof![Just(0u64), Just(16 << 10), Just(64 << 10), Just(1 << 20), Just(64 << 20)];
    let fail_once_in = prop_oneof![Just(0usize), Just(4), Just(30)];
    let data = (sizes, vec(any::<prop::sample::Index>(), 0..3), any_mode(), cache_bytes);
    let readers = (any::<bool>(), requests, 1usize..24, fail_once_in, 1u64..);
    (data, readers).prop_map(|(data, readers)| {
        let (sizes, corrupt, verify, cache_bytes) = data;
        let (in_order, requests, at_once, fail_once_in, seed) = readers;
        Scenario {
            sizes,
            corrupt,
            verify,
            cache_bytes,
            in_order,
            requests,
            at_once,
            fail_once_in,
            seed,
        }
    })
}

impl Scenario {
    /// The containers' samples as they were packed.
    fn parts(&self) -> Vec<Vec<Vec<u8>>> {
        let samples = |sizes: &Vec<usize>| {
            sizes.iter().map(|&size| noise(self.seed ^ size as u64, size)).collect()
        };
        self.sizes.iter().map(samples).collect()
    }

    fn requests(&self, samples: &[Vec<u8>]) -> Vec<Request> {
        let requests = self.requests.iter().enumerate();
        let request = |(place, (index, millionths, length)): (usize, &Place)| {
            let (place, any) = (place % samples.len(), index.index(samples.len()));
            let sample = if self.in_order { place } else { any };
            let offset = samples[any].len() as u64 * u64::from(*millionths) / 1_000_000;
            Request { sample: sample as u64, offset, length: *length }
        };
        requests.map(request).collect()
    }

    /// Serves the requests, and compares every reply with the model.
    fn check(&self) -> Result<(), TestCaseError> {
        let parts = self.parts();
        let samples: Vec<Vec<u8>> = parts.iter().flatten().cloned().collect();
        prop_assume!(!samples.is_empty());
        let mut world = World::new(&parts, options(self.verify, self.cache_bytes));
        let mut on_disk = samples.clone();
        for index in &self.corrupt {
            let sample = index.index(samples.len());
            if !samples[sample].is_empty() {
                let at = index.index(samples[sample].len());
                world.flip(sample as u64, at);
                on_disk[sample][at] ^= 0x40;
            }
        }
        let requests = self.requests(&samples);
        let mut schedule = Schedule::new(&world, self.seed, self.fail_once_in);
        schedule.run(&requests, self.at_once);
        let replies = schedule.replies;
        let (mut served, mut failures) = (0, 0);
        for (number, request) in requests.iter().enumerate() {
            let (reply, failed) = &replies[&number];
            failures += failed;
            served += reply.as_ref().map_or(0, |bytes| bytes.len() as u64);
            self.compare(request, reply, *failed, &samples, &on_disk)?;
        }
        let stats = world.snapshot();
        prop_assert_eq!(stats["bytes_served"].as_u64(), Some(served));
        prop_assert_eq!(stats["io_errors"].as_u64(), Some(failures));
        prop_assert!(!world.vfs.is_waited_for());
        prop_assert_eq!(world.vfs.prefetch_figures().in_flight, 0);
        // No fetch was left unfinished: the next reader leads, or is answered.
        for (sample, (good, stored)) in samples.iter().zip(&on_disk).enumerate() {
            let expected = match (self.verify, good == stored) {
                (Verify::Off, _) => Ok(stored[..stored.len().min(1)].to_vec()),
                (_, true) => Ok(good[..good.len().min(1)].to_vec()),
                (_, false) => Err(Errno::EIO),
            };
            prop_assert_eq!(world.read(sample as u64, 0, 1), expected);
        }
        Ok(())
    }

    /// Checks that a reply, before which the disk failed `failed` times, is that of the model.
    fn compare(
        &self,
        request: &Request,
        reply: &Result<Vec<u8>, Errno>,
        failed: u64,
        samples: &[Vec<u8>],
        on_disk: &[Vec<u8>],
    ) -> Result<(), TestCaseError> {
        let sample = request.sample as usize;
        let bytes = if self.verify == Verify::Off { &on_disk[sample] } else { &samples[sample] };
        let start = request.offset.min(bytes.len() as u64) as usize;
        let end = request.offset.saturating_add(request.length).min(bytes.len() as u64) as usize;
        let range = start..end.max(start);
        let is_bad = self.verify != Verify::Off && samples[sample] != on_disk[sample];
        if is_bad && !range.is_empty() {
            prop_assert_eq!(reply, &Err(Errno::EIO), "{:?}", request);
        } else if failed > 1 && reply.is_err() {
            // After a second failure in a row the read is given up.
            prop_assert_eq!(reply, &Err(Errno::EIO), "{:?}", request);
        } else if is_bad {
            // An empty range is answered without bytes, or with the error that is known by now.
            prop_assert!(matches!(reply, Err(Errno::EIO)) || reply == &Ok(Vec::new()));
        } else {
            prop_assert_eq!(reply.as_deref(), Ok(&bytes[range]), "{:?}", request);
        }
        Ok(())
    }
}

/// The number of cases that a property is tried with: FFRFS_CASES, or as many as take a second or two.
fn cases() -> ProptestConfig {
    let asked = std::env::var("FFRFS_CASES").ok();
    ProptestConfig::with_cases(asked.map_or(120, |n| n.parse().expect("FFRFS_CASES is a number")))
}

proptest! {
    #![proptest_config(cases())]
    #[test]
    fn every_reply_is_what_the_model_says(
        scenario in any_scenario(vec(any_request(any_length()), 1..60)),
    ) {
        scenario.check()?;
    }

    #[test]
    fn every_reply_of_one_byte_is_what_the_model_says(
        scenario in any_scenario(vec(any_request(Just(1)), 1..300)),
    ) {
        scenario.check()?;
    }

    #[test]
    fn a_disk_that_lies_now_and_then_never_gets_a_wrong_byte_through(
        size in any_size(),
        cache_bytes in prop_oneof![Just(0u64), Just(64 << 10), Just(64 << 20)],
        offsets in vec((0u32..1_000_000, 1u64..5000), 1..12),
        seed in 1u64..,
    ) {
        let sample = noise(seed, size);
        let world = World::of(std::slice::from_ref(&sample), options(Verify::Always, cache_bytes));
        let mut rng = Rng(seed);
        for (millionths, length) in offsets {
            let offset = size as u64 * u64::from(millionths) / 1_000_000;
            let reply = begin(Alone {
                world: &world,
                request: request(0, offset, length),
                fetch: |span: &mut Span| {
                    let lie = rng.once_in(5) && size > 0;
                    let at = rng.below(size.max(1));
                    world.fetch_lying(span, lie.then(|| world.place(0, at)));
                },
            });
            if let Ok(bytes) = reply {
                let start = offset as usize;
                let end = (start + length as usize).min(size);
                prop_assert_eq!(bytes, &sample[start..end.max(start)]);
            }
        }
    }
}
