//! Orders in which samples are asked for: forwards, backwards, in strides, and several such sequences at
//! once, as the workers of a loader make them.
//!
//! A sequence begins with four numbers at equal distances among the last ones asked for: in a random order
//! that is rare. It is followed a few numbers ahead, further with each number that came as expected, and
//! forgotten when other numbers were asked for so long that it must have ended.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;

/// The count of last numbers that are remembered.
const RECENT: usize = 32;
const MAX_SEQUENCES: usize = 64;
/// The widest step from one number of a sequence to the next.
const MAX_STEP: u64 = 4096;
/// Workers overtake one another: a number may come this many steps early or late.
const MAX_JITTER: u64 = 16;
/// After this many numbers that are not of a sequence, the sequence has ended: few while it is short, since chance
/// makes short sequences.
const MIN_PATIENCE: u64 = 64;
const MAX_PATIENCE: u64 = 2048;
/// The most numbers that are kept from being given again, and as many once more.
const RECENTLY_GIVEN: u64 = 2048;
/// These numbers are at most a pass over all numbers divided by this, and as many once more: the next pass is foreseen, too.
const SHARE: u64 = 4;

#[derive(Default)]
pub(super) struct Patterns {
    recent: VecDeque<u64>,
    sequences: Vec<Sequence>,
    clock: u64,
    /// The numbers that were asked for or given recently, the newer half first: sequences cross.
    recently: [HashSet<u64>; 2],
}

struct Sequence {
    /// The furthest number that was asked for.
    front: u64,
    step: i64,
    /// How often the next number of the sequence came.
    length: u64,
    /// How many steps beyond `front` were given.
    ahead: u64,
    last_seen: u64,
}

impl Sequence {
    /// How many steps `number` lies beyond the front (negative: behind it), if it is of this sequence.
    fn steps_to(&self, number: u64) -> Option<i64> {
        let distance = number.wrapping_sub(self.front).cast_signed();
        (distance.checked_rem(self.step)? == 0).then(|| distance / self.step)
    }

    fn jitter(&self) -> u64 {
        (self.length / 2).min(MAX_JITTER).max(self.ahead / 2)
    }

    fn has_ended(&self, clock: u64) -> bool {
        let patience = (self.length * MIN_PATIENCE / 4).clamp(MIN_PATIENCE, MAX_PATIENCE);
        clock - self.last_seen > patience
    }

    fn advance(&mut self, steps: u64) {
        self.front = self.front.wrapping_add_signed(self.step * steps.cast_signed());
        self.ahead = self.ahead.saturating_sub(steps);
        self.length += 1;
    }

    /// The next numbers to fetch, up to `depth` steps ahead and within `all`.
    fn next(&mut self, depth: u64, all: &Range<u64>) -> Vec<u64> {
        // Less far than the sequence has come: a sequence that ends soon wastes little.
        let depth = depth.min(self.length.saturating_sub(1));
        let mut numbers = Vec::new();
        if self.ahead > depth / 2 {
            // Many numbers at a time: neighbours are fetched with one read.
            return numbers;
        }
        while self.ahead < depth {
            let steps = self.step.saturating_mul((self.ahead + 1).cast_signed());
            match self.front.checked_add_signed(steps) {
                Some(number) if all.contains(&number) => numbers.push(number),
                _ => break,
            }
            self.ahead += 1;
        }
        numbers
    }
}

impl Patterns {
    /// Takes note of a number that was asked for, of `all`; gives the numbers to fetch now, in order, so that every sequence
    /// is up to `depth` numbers ahead. A pass over the dataset, of which `all` may be a part, has `pass` numbers.
    pub(super) fn observe(
        &mut self,
        number: u64,
        depth: u64,
        all: &Range<u64>,
        pass: u64,
    ) -> Vec<u64> {
        let mut next = self.follow(number, depth, all);
        self.note_if_new(number, pass);
        next.retain(|&number| self.note_if_new(number, pass));
        next
    }

    /// Whether a number was neither asked for nor given recently; from now on it counts as given.
    fn note_if_new(&mut self, number: u64, pass: u64) -> bool {
        if self.recently[0].len() as u64 >= (pass / SHARE).clamp(1, RECENTLY_GIVEN) {
            self.recently.swap(0, 1);
            self.recently[0].clear();
        }
        !self.recently[1].contains(&number) && self.recently[0].insert(number)
    }

    fn follow(&mut self, number: u64, depth: u64, all: &Range<u64>) -> Vec<u64> {
        self.clock += 1;
        let clock = self.clock;
        for sequence in &mut self.sequences {
            let Some(steps) = sequence.steps_to(number) else { continue };
            if steps.unsigned_abs() > sequence.jitter() || sequence.has_ended(clock) {
                continue;
            }
            sequence.last_seen = clock;
            if steps > 0 {
                sequence.advance(steps.unsigned_abs());
            }
            return sequence.next(depth, all);
        }
        let found = self.begin(number, clock);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(number);
        found.map_or_else(Vec::new, |at| self.sequences[at].next(depth, all))
    }

    /// Finds four numbers at equal distances that end with `number`.
    fn begin(&mut self, number: u64, clock: u64) -> Option<usize> {
        let has = |wanted: Option<u64>| wanted.is_some_and(|wanted| self.recent.contains(&wanted));
        let step = self.recent.iter().rev().find_map(|&before| {
            let step = number.wrapping_sub(before).cast_signed();
            let fits = step != 0 && step.unsigned_abs() <= MAX_STEP;
            let back = |steps: i64| number.checked_add_signed(-step * steps);
            (fits && has(back(2)) && has(back(3))).then_some(step)
        })?;
        self.sequences.retain(|sequence| !sequence.has_ended(clock));
        if self.sequences.len() == MAX_SEQUENCES {
            let oldest = self.sequences.iter().enumerate().min_by_key(|(_, s)| s.last_seen)?.0;
            self.sequences.swap_remove(oldest);
        }
        self.sequences.push(Sequence {
            front: number,
            step,
            length: 3,
            ahead: 0,
            last_seen: clock,
        });
        Some(self.sequences.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Range<u64> = 0..100_000;

    /// Asks for numbers in order; gives those that came after they were fetched, and those fetched in all.
    fn run(numbers: impl IntoIterator<Item = u64>) -> (usize, usize, usize) {
        let mut patterns = Patterns::default();
        let (mut fetched, mut hits, mut asked) = (HashSet::new(), 0, 0);
        for number in numbers {
            hits += usize::from(fetched.contains(&number));
            asked += 1;
            fetched.extend(patterns.observe(number, 64, &ALL, ALL.end));
        }
        (hits, fetched.len(), asked)
    }

    #[test]
    fn forwards_backwards_and_strided_orders_are_foreseen() {
        for numbers in [
            (500..1500).collect::<Vec<_>>(),
            (500..1500).rev().collect(),
            (0..1000).map(|i| 3 + i * 8).collect(),
            (0..1000).map(|i| 90_000 - i * 64).collect(),
        ] {
            let (hits, fetched, _) = run(numbers);
            assert!(hits >= 995 && fetched <= 1100, "{hits} {fetched}");
        }
    }

    #[test]
    fn several_sequences_at_once_are_told_apart() {
        // Eight workers, each with its own eighth, and eight that share every eighth sample.
        let parts = (0..500).flat_map(|i| (0..8).map(move |worker| worker * 5000 + i));
        let (hits, _, asked) = run(parts);
        assert!(hits * 100 >= asked * 97, "{hits} of {asked}");
        let ranks = (0..500).flat_map(|i| (0..8).map(move |rank| i * 8 + (rank * 5 + i) % 8));
        let (hits, _, asked) = run(ranks);
        assert!(hits * 100 >= asked * 97, "{hits} of {asked}");
    }

    #[test]
    fn workers_that_overtake_one_another_do_not_end_a_sequence() {
        let jittered = (0..250).flat_map(|i| [i * 4 + 1, i * 4, i * 4 + 3, i * 4 + 2]);
        let (hits, fetched, asked) = run(jittered);
        assert!(hits * 100 >= asked * 95 && fetched <= 1200, "{hits} {fetched} of {asked}");
    }

    #[test]
    fn sequences_that_cross_give_a_number_once() {
        let mut patterns = Patterns::default();
        let mut seen = HashSet::new();
        // In order, and by fours, of the same numbers.
        for i in 0..1000 {
            for number in [i, (i * 4) % 1000] {
                for next in patterns.observe(number, 64, &(0..1000), 100_000) {
                    assert!(seen.insert(next), "{next} twice");
                }
            }
        }
    }

    #[test]
    fn a_second_pass_is_foreseen_as_the_first_one_was_of_few_numbers_and_of_many() {
        for count in [300, 1000, 3000, 10_000] {
            let mut patterns = Patterns::default();
            for pass in 0..4 {
                let mut given = Vec::new();
                for number in 0..count {
                    given.extend(patterns.observe(number, 64, &(0..count), count));
                }
                let distinct: HashSet<u64> = given.iter().copied().collect();
                assert_eq!(given.len(), distinct.len(), "pass {pass} of {count}");
                assert!(given.len() as u64 * 10 >= count * 9, "pass {pass}: {}", given.len());
            }
        }
    }

    #[test]
    fn a_random_order_wastes_next_to_nothing() {
        for all in [1000, 10_000, 100_000] {
            let mut order: Vec<u64> = (0..all).collect();
            let mut state = 88_172_645_463_325_252u64;
            for i in (1..order.len()).rev() {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                order.swap(i, (state % (i as u64 + 1)) as usize);
            }
            let (_, fetched, asked) = run(order);
            assert!(fetched * 100 <= asked * 5, "{fetched} of {asked}");
        }
    }

    #[test]
    fn a_sequence_ends_at_the_ends_of_the_dataset() {
        let mut patterns = Patterns::default();
        let foreseen: Vec<u64> = (0..6).flat_map(|i| patterns.observe(i, 64, &(0..6), 6)).collect();
        assert_eq!(foreseen, [4, 5]);
        let back: Vec<u64> =
            (0..6).rev().flat_map(|i| patterns.observe(i, 64, &(0..6), 6)).collect();
        assert!(back.iter().all(|&number| number < 6));
        for number in [u64::MAX, u64::MAX - 1, u64::MAX - 2, u64::MAX - 3, 0, 1] {
            patterns.observe(number, 64, &(0..u64::MAX), u64::MAX);
        }
    }
}
