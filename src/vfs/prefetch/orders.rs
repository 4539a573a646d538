//! Announced samples that wait, and the order that each belongs to.

use std::collections::VecDeque;

/// The name of all orders that have no name of their own.
pub(in crate::vfs) const UNNAMED: u64 = 0;
/// The number of runs from which on orders take turns too often to be kept apart.
const MAX_RUNS: usize = 1 << 14;

#[derive(Default)]
pub(super) struct Orders {
    samples: VecDeque<u64>,
    /// Runs of consecutive samples of one order: the order's name, and the number of samples.
    runs: VecDeque<(u64, usize)>,
    /// The order of the sample that was taken last.
    last_taken: Option<u64>,
}

impl Orders {
    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &u64> {
        self.samples.iter()
    }

    /// Whether one more announcement of this order can be told from the others.
    pub(super) fn has_room_for(&self, order: u64) -> bool {
        self.runs.len() < MAX_RUNS || self.runs.back().is_some_and(|last| last.0 == order)
    }

    pub(super) fn extend(&mut self, order: u64, samples: &[u64]) {
        if samples.is_empty() {
            return;
        }
        self.samples.extend(samples);
        match self.runs.back_mut() {
            Some((last, count)) if *last == order => *count += samples.len(),
            _ => self.runs.push_back((order, samples.len())),
        }
    }

    /// Takes the first `count` samples.
    pub(super) fn take(&mut self, count: usize) -> Vec<u64> {
        let taken: Vec<u64> = self.samples.drain(..count.min(self.samples.len())).collect();
        let mut left = taken.len();
        while let Some((order, run)) = self.runs.front_mut().filter(|_| left > 0) {
            self.last_taken = Some(*order);
            let part = left.min(*run);
            (*run, left) = (*run - part, left - part);
            if *run == 0 {
                self.runs.pop_front();
            }
        }
        taken
    }

    /// Whether the sample that was taken last was of this order.
    pub(super) fn took_last(&self, order: u64) -> bool {
        self.last_taken == Some(order)
    }

    /// Drops the samples of an order that wait; returns their number.
    pub(super) fn drop_order(&mut self, order: u64) -> usize {
        let before = self.samples.len();
        let runs = std::mem::take(&mut self.runs);
        if runs.iter().all(|run| run.0 != order) {
            self.runs = runs;
            return 0;
        }
        let mut samples = std::mem::take(&mut self.samples);
        for (of, count) in runs {
            let run: Vec<u64> = samples.drain(..count.min(samples.len())).collect();
            if of != order {
                self.extend(of, &run);
            }
        }
        before - self.samples.len()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders() -> Orders {
        let mut orders = Orders::default();
        for (order, samples) in [(7, &[1, 2][..]), (9, &[3]), (9, &[4]), (7, &[5, 6]), (9, &[])] {
            orders.extend(order, samples);
        }
        orders
    }

    #[test]
    fn a_dropped_order_leaves_the_others_as_they_were_announced() {
        let mut orders = orders();
        assert_eq!(orders.take(1), [1]);
        assert_eq!((orders.drop_order(7), orders.drop_order(7), orders.drop_order(8)), (3, 0, 0));
        assert_eq!((orders.take(9), orders.is_empty()), (vec![3, 4], true));
        assert!(orders.took_last(9) && !orders.took_last(7) && orders.runs.is_empty());
    }

    #[test]
    fn orders_that_take_turns_too_often_find_no_room() {
        let mut orders = Orders::default();
        for turn in 0..MAX_RUNS as u64 {
            assert!(orders.has_room_for(turn % 2));
            orders.extend(turn % 2, &[turn]);
        }
        assert!(orders.has_room_for(1) && !orders.has_room_for(0));
    }
}
