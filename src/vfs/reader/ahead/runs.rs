//! Streams that are read in order, and the intervals of them that will be asked for next. Only reads count: a run goes on
//! where its next bytes are asked for, wherever the bytes came from.

use crate::vfs::memory::cache::CacheKey;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The number of runs that are remembered; the run that went on longest ago makes room.
const RUNS: usize = 16;
/// The most bytes between two reads of a run: headers, padding, a small file that is passed over.
const GAP_BYTES: u64 = 256 << 10;
/// The most bytes behind its front at which a run may be read: requests and readers overtake one another.
const TAIL_BYTES: u64 = 8 << 20;
/// The bytes that are read in order, an interval at least, before an interval is decoded ahead.
const PROOF_BYTES: u64 = 4 << 20;
/// The most small intervals, such as pages and chunks, that count as one, with up to [`PROOF_BYTES`] together: one alone would
/// be read before the next is begun.
const MOST_AS_ONE: u64 = 16;
/// The time after which a run that has not gone on has ended; unit tests may wait longer for a CPU.
pub(super) const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 5 });

/// The runs that are going on, the one that went on longest ago first.
#[derive(Default)]
pub(super) struct Runs {
    runs: Vec<Run>,
    /// Intervals that were to be decoded ahead, and that no reader will ask for.
    given_up: Vec<CacheKey>,
}

/// A part of a stream that was read in order.
struct Run {
    stream: CacheKey,
    /// The decoded bytes that were read.
    read: Range<u64>,
    /// The interval that `read` ends in.
    number: u64,
    /// The sample that was read last, and whether the run has gone from one sample into another.
    sample: u64,
    has_crossed: bool,
    /// No interval from this one on was given out to be decoded ahead.
    next: u64,
    /// The intervals that were given out and are not passed, in order.
    ahead: VecDeque<u64>,
    went_on: Instant,
}

/// A read of bytes that lie in one interval.
pub(in crate::vfs::reader) struct Seen {
    /// The interval.
    pub(in crate::vfs::reader) key: CacheKey,
    /// The decoded length of the interval.
    pub(in crate::vfs::reader) interval_bytes: u64,
    /// The decoded bytes of the stream that were asked for, as they follow each other in order.
    pub(in crate::vfs::reader) read: Range<u64>,
    /// The sample that was read.
    pub(in crate::vfs::reader) sample: u64,
    /// The last interval that follows in order.
    pub(in crate::vfs::reader) last: u64,
}

/// The most intervals that may be ahead of a run.
#[derive(Clone, Copy)]
pub(super) struct Most {
    /// The number of large intervals, or of groups of small ones that count as one.
    pub(super) at_once: u64,
    pub(super) bytes: u64,
}

impl Run {
    /// A run of one read.
    fn new(seen: &Seen, now: Instant) -> Self {
        let (stream, number) = seen.key.in_stream();
        let (read, sample, ahead) = (seen.read.clone(), seen.sample, VecDeque::new());
        Self { stream, read, number, sample, has_crossed: false, next: 0, ahead, went_on: now }
    }

    fn awaits(&self, key: CacheKey) -> bool {
        let (stream, number) = key.in_stream();
        self.stream == stream && self.number < number && self.has_ahead(number)
    }

    /// Whether this interval was given out, and is not passed.
    fn has_ahead(&self, number: u64) -> bool {
        self.ahead.binary_search(&number).is_ok()
    }

    /// Whether another run of the same stream begins, ends or lies where this one ends.
    fn touches(&self, other: &Run) -> bool {
        let first = self.read.start.max(self.read.end.saturating_sub(TAIL_BYTES));
        self.stream == other.stream
            && other.read.start <= self.read.end.saturating_add(GAP_BYTES)
            && first <= other.read.end.saturating_add(GAP_BYTES)
    }

    /// Makes one run of two that touch.
    fn join(&mut self, other: Run) {
        if other.read.end > self.read.end {
            (self.read.end, self.number) = (other.read.end, other.number);
        }
        self.read.start = self.read.start.min(other.read.start);
        self.has_crossed |= other.has_crossed || self.sample != other.sample;
        self.next = self.next.max(other.next);
        if self.ahead.is_empty() {
            self.ahead = other.ahead;
        } else if !other.ahead.is_empty() {
            self.ahead.extend(other.ahead);
            self.ahead.make_contiguous().sort_unstable();
        }
    }

    /// How many intervals are decoded ahead of the run: 1, 2, 4 … as it goes on. Small intervals count together.
    fn depth(&self, interval_bytes: u64, most: Most) -> u64 {
        let proofs = (self.read.end - self.read.start) / interval_bytes.max(PROOF_BYTES);
        let each = (PROOF_BYTES / interval_bytes.max(1)).clamp(1, MOST_AS_ONE);
        let room = (most.bytes / interval_bytes.max(1)).max(1);
        match proofs.checked_sub(1) {
            Some(doublings) => ((1 << doublings.min(32)).min(most.at_once) * each).min(room),
            None => 0,
        }
    }
}

impl Runs {
    /// Takes note of a read. Gives the intervals of its stream to decode now, so that up to `most` are ahead of its run; `last`
    /// gives the last interval that the run can come to, by whether the run `has_crossed` from one sample into another.
    pub(super) fn observe(
        &mut self,
        seen: &Seen,
        now: Instant,
        most: Most,
        last: impl FnOnce(bool) -> u64,
    ) -> Range<u64> {
        self.end_idle(now, PATIENCE, None);
        let mut run = Run::new(seen, now);
        let mut touched = self.runs.iter_mut().filter(|other| other.touches(&run));
        if let (Some(only), None) = (touched.next(), touched.next())
            && only.read.end >= run.read.end
        {
            // The bytes were read before, or their read comes late: neither keeps a run alive.
            only.read.start = only.read.start.min(run.read.start);
            return 0..0;
        }
        let mut at = 0;
        while at < self.runs.len() {
            match self.runs[at].touches(&run) {
                true => run.join(self.runs.remove(at)),
                false => at += 1,
            }
        }
        let stream = run.stream;
        while run.ahead.front().is_some_and(|&number| number < run.number) {
            self.given_up.extend(run.ahead.pop_front().map(|number| stream.interval(number)));
        }
        let (first, depth) = (run.next.max(run.number + 1), run.depth(seen.interval_bytes, most));
        let mut next = first..run.number + 1 + depth;
        if !next.is_empty() {
            next.end = next.end.min(last(run.has_crossed).saturating_add(1)).max(first);
            run.ahead.extend(next.clone());
            run.next = next.end;
        }
        if self.runs.len() == RUNS {
            let oldest = self.runs.remove(0);
            self.give_up(oldest);
        }
        self.runs.push(run);
        next
    }

    /// Ends the runs that have not gone on for longer than `patience`, except those that come to the interval `but`.
    pub(super) fn end_idle(&mut self, now: Instant, patience: Duration, but: Option<CacheKey>) {
        let mut at = 0;
        while let Some(run) = self.runs.get(at)
            && now.saturating_duration_since(run.went_on) > patience
        {
            if but.is_some_and(|key| run.awaits(key)) {
                at += 1;
            } else {
                let idle = self.runs.remove(at);
                self.give_up(idle);
            }
        }
    }

    fn give_up(&mut self, run: Run) {
        self.given_up.extend(run.ahead.iter().map(|&number| run.stream.interval(number)));
    }

    /// Takes the intervals that no reader will ask for; each is given once.
    pub(super) fn take_given_up(&mut self) -> Vec<CacheKey> {
        std::mem::take(&mut self.given_up)
    }

    /// Whether a run will come to an interval, or has come to it.
    pub(super) fn holds(&self, key: CacheKey) -> bool {
        let (stream, number) = key.in_stream();
        self.runs.iter().any(|run| run.stream == stream && run.has_ahead(number))
    }

    /// Whether a run will come to an interval.
    pub(super) fn awaits(&self, key: CacheKey) -> bool {
        self.runs.iter().any(|run| run.awaits(key))
    }

    /// Whether intervals were given out that are not passed.
    pub(super) fn are_ahead(&self) -> bool {
        self.runs.iter().any(|run| !run.ahead.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: u64 = PROOF_BYTES;
    const FILE: u64 = 110_000;
    const END: u64 = 1000;
    const MOST: Most = Most { at_once: 8, bytes: 256 << 20 };

    fn key(stream: u32, number: u64) -> CacheKey {
        CacheKey::ContainerInterval { container: stream, number }
    }

    /// Reads within one interval, of a stream and a sample.
    fn seen(stream: u32, read: Range<u64>, sample: u64) -> Seen {
        let key = key(stream, (read.end - 1) / INTERVAL);
        Seen { key, interval_bytes: INTERVAL, read, sample, last: END }
    }

    /// Files of a stream, as they lie in it; gives what is to be decoded ahead.
    fn read_files(runs: &mut Runs, stream: u32, files: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let now = Instant::now();
        let ahead = files.into_iter().flat_map(|file| {
            let read = file * FILE + 512..(file + 1) * FILE;
            runs.observe(&seen(stream, read, file), now, MOST, |_| END)
        });
        ahead.collect()
    }

    fn first_files() -> Range<u64> {
        0..200
    }

    #[test]
    fn what_is_read_in_order_is_foreseen_each_interval_once_and_ever_further_ahead() {
        let mut runs = Runs::default();
        let (mut ahead, mut depths) = (Vec::new(), Vec::new());
        for file in first_files() {
            ahead.extend(read_files(&mut runs, 0, [file]));
            let number = ((file + 1) * FILE - 1) / INTERVAL;
            depths.push(ahead.last().map_or(0, |last| last - number.min(*last)));
        }
        assert_eq!(ahead, (2..2 + ahead.len() as u64).collect::<Vec<_>>());
        let first = depths.iter().position(|&depth| depth > 0).unwrap() as u64;
        assert!(first * FILE >= INTERVAL - FILE, "file {first} is an early one");
        depths.dedup();
        assert_eq!(depths[..4], [0, 1, 2, 4]);
        let most = MOST.at_once;
        assert!(depths.iter().all(|&depth| depth <= most) && depths.contains(&most));
    }

    #[test]
    fn requests_and_readers_that_overtake_one_another_are_one_run() {
        let mut runs = Runs::default();
        let swapped = (0..100).flat_map(|pair| [pair * 2 + 1, pair * 2]);
        let ahead = read_files(&mut runs, 0, swapped);
        assert_eq!(ahead, (2..2 + ahead.len() as u64).collect::<Vec<_>>());
        assert_eq!(runs.runs.len(), 1);
        let four = (0..50).flat_map(|i| [3, 0, 2, 1].map(|worker| i * 4 + worker));
        let ahead = read_files(&mut Runs::default(), 0, four);
        assert_eq!(ahead, (2..2 + ahead.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn random_and_backward_orders_foresee_nothing() {
        let mut runs = Runs::default();
        let mut state = 88_172_645_463_325_252_u64;
        let random = (0..100_000).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % 900
        });
        assert_eq!(read_files(&mut runs, 0, random), [0; 0]);
        assert_eq!(read_files(&mut Runs::default(), 0, first_files().rev()), [0; 0]);
        assert!(!runs.are_ahead());
    }

    #[test]
    fn a_file_that_is_read_alone_is_not_left() {
        let mut runs = Runs::default();
        let now = Instant::now();
        let mut ahead = Vec::new();
        for piece in 0..12 {
            let read = piece << 20..(piece + 1) << 20;
            let last = |has_crossed| if has_crossed { END } else { 3 };
            ahead.extend(runs.observe(&seen(0, read, 7), now, MOST, last));
        }
        assert_eq!(ahead, [1, 2, 3]);
        let read = 12 << 20..13 << 20;
        let ahead = runs.observe(&seen(0, read, 8), now, MOST, |crossed| {
            assert!(crossed);
            END
        });
        assert_eq!(ahead, 4..8);
    }

    #[test]
    fn a_run_whose_reader_has_gone_ends_and_gives_up_what_is_ahead() {
        let mut runs = Runs::default();
        let ahead = read_files(&mut runs, 0, first_files());
        let passed = runs.take_given_up().len();
        assert!(runs.are_ahead() && ahead.iter().filter(|n| runs.holds(key(0, **n))).count() > 1);
        // Reads of what was read before do not keep it alive.
        let later = Instant::now() + PATIENCE / 2;
        let last = first_files().end - 1;
        let again = seen(0, last * FILE + 512..(last + 1) * FILE, last);
        assert_eq!(runs.observe(&again, later, MOST, |_| END), 0..0);
        runs.end_idle(later + PATIENCE / 2 + Duration::from_secs(1), PATIENCE, None);
        let given_up = runs.take_given_up();
        assert_eq!(passed + given_up.len(), ahead.len());
        assert!(!runs.are_ahead() && !ahead.iter().any(|number| runs.holds(key(0, *number))));
    }

    #[test]
    fn the_run_that_went_on_longest_ago_makes_room_for_new_ones() {
        let mut runs = Runs::default();
        read_files(&mut runs, 0, first_files());
        runs.take_given_up();
        let others = 1..RUNS as u32 + 1;
        others.for_each(|stream| _ = read_files(&mut runs, stream, 0..3));
        assert_eq!(runs.runs.len(), RUNS);
        assert!(!runs.are_ahead() && !runs.take_given_up().is_empty());
    }

    #[test]
    fn a_second_reader_of_a_stream_is_another_run_until_it_comes_to_the_first() {
        let mut runs = Runs::default();
        let first = read_files(&mut runs, 0, first_files());
        let second = read_files(&mut runs, 0, 0..100);
        assert_eq!(second, (2..2 + second.len() as u64).collect::<Vec<_>>());
        assert_eq!(runs.runs.len(), 2);
        let more = read_files(&mut runs, 0, 100..250);
        assert_eq!(runs.runs.len(), 1);
        assert!(more.windows(2).all(|pair| pair[0] < pair[1]), "{more:?}");
        assert!(more.last() > first.last());
    }

    #[test]
    fn an_interval_that_its_reader_has_come_to_is_awaited_no_more() {
        let mut runs = Runs::default();
        let ahead = read_files(&mut runs, 0, 0..60);
        let next = *ahead.last().unwrap();
        assert!(runs.awaits(key(0, next)) && runs.holds(key(0, next)));
        read_files(&mut runs, 0, 60..=next * INTERVAL / FILE);
        assert!(!runs.awaits(key(0, next)) && runs.holds(key(0, next)));
    }
}
