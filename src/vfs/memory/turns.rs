//! Turns to decode intervals: as many at a time as there are CPUs to decode and memory to decode in, in the order in
//! which they were asked for. A task that waits for its turn holds hardly any memory.

use super::budget::Budget;
use super::in_flight::InFlightRead;
use super::sync::{Mutex, MutexGuard};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

/// The share of the cap that decoding takes, in eighths, beside the bytes that the cap allows to be held.
const EIGHTHS: u64 = 5;
/// The bytes of memory that decoding may always take.
const LEAST_BYTES: u64 = 16 << 20;

/// The turns that are taken, and the queue of tasks that wait for one.
pub(in crate::vfs) struct Turns {
    most: usize,
    budget: Budget,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: usize,
    taken_bytes: u64,
    waiting: VecDeque<Arc<Ticket>>,
}

/// A place in the queue.
struct Ticket {
    bytes: u64,
    /// Ends when the turn has come.
    comes: Arc<InFlightRead>,
}

/// The right to decode, or a place in the queue for it. Dropped, it lets the next task have its turn.
pub(in crate::vfs) struct Turn {
    turns: Arc<Turns>,
    ticket: Arc<Ticket>,
}

impl Turns {
    /// Makes at most `most` turns at a time; their memory is bounded by a share of the cap of `budget`.
    pub(super) fn new(most: usize, budget: Budget) -> Self {
        Self { most: most.max(1), budget, state: Mutex::default() }
    }

    /// A turn that takes `bytes` bytes of memory; with the in-flight read to wait for if the turn has not come yet.
    pub(in crate::vfs) fn take(self: &Arc<Self>, bytes: u64) -> (Turn, Option<Arc<InFlightRead>>) {
        let comes = Arc::new(InFlightRead::new());
        let ticket = Arc::new(Ticket { bytes, comes: Arc::clone(&comes) });
        let mut state = self.lock();
        let waits = !state.waiting.is_empty() || !self.has_room(&state, bytes);
        if waits {
            state.waiting.push_back(Arc::clone(&ticket));
        } else {
            state.grant(bytes);
        }
        drop(state);
        (Turn { turns: Arc::clone(self), ticket }, waits.then_some(comes))
    }

    /// A turn for work that no reader waits for: only if no task waits for a turn, and another turn as large is left for
    /// the next task.
    pub(in crate::vfs) fn take_spare(self: &Arc<Self>, bytes: u64) -> Option<Turn> {
        let mut state = self.lock();
        let is_spare = state.waiting.is_empty()
            && state.taken + 1 < self.most
            && state.taken_bytes.saturating_add(bytes.saturating_mul(2)) <= self.most_bytes();
        if !is_spare {
            return None;
        }
        state.grant(bytes);
        drop(state);
        let ticket = Arc::new(Ticket { bytes, comes: Arc::new(InFlightRead::new()) });
        Some(Turn { turns: Arc::clone(self), ticket })
    }

    /// How many turns [`Turns::take_spare`] gives at a time.
    pub(in crate::vfs) fn spare(&self) -> usize {
        self.most - 1
    }

    fn most_bytes(&self) -> u64 {
        (self.budget.cap_bytes() / 8 * EIGHTHS).max(LEAST_BYTES)
    }

    /// Whether there is room for a turn of `bytes` bytes. A turn that is alone has room, however many bytes it takes.
    fn has_room(&self, state: &State, bytes: u64) -> bool {
        state.taken == 0
            || (state.taken < self.most
                && state.taken_bytes.saturating_add(bytes) <= self.most_bytes())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a turn back, or leaves the queue; then the tasks go on whose turn has come.
    fn leave(&self, ticket: &Arc<Ticket>) {
        let mut state = self.lock();
        let place = state.waiting.iter().position(|other| Arc::ptr_eq(other, ticket));
        match place {
            Some(place) => _ = state.waiting.remove(place),
            None => {
                state.taken -= 1;
                state.taken_bytes -= ticket.bytes;
            }
        }
        let mut next = Vec::new();
        while let Some(first) = state.waiting.front()
            && self.has_room(&state, first.bytes)
        {
            let bytes = first.bytes;
            next.extend(state.waiting.pop_front());
            state.grant(bytes);
        }
        drop(state);
        tell(next);
    }
}

/// Tells the tasks whose turn has come. A task that leaves at once, as its reader is gone, gives its turn to the next one
/// within this function: that task is told by the loop that runs already, so that the stack does not grow with the queue.
fn tell(tickets: Vec<Arc<Ticket>>) {
    thread_local!(static COMING: RefCell<Option<VecDeque<Arc<Ticket>>>> = const { RefCell::new(None) });
    /// Ends the loop, also after a panic of a task that was told.
    struct Done;
    impl Drop for Done {
        fn drop(&mut self) {
            COMING.set(None);
        }
    }
    let is_told = COMING.with_borrow_mut(|coming| match coming {
        Some(coming) => {
            coming.extend(tickets);
            true
        }
        None => {
            *coming = Some(tickets.into());
            false
        }
    });
    if is_told {
        return;
    }
    let _done = Done;
    while let Some(ticket) = COMING.with_borrow_mut(|coming| coming.as_mut()?.pop_front()) {
        ticket.comes.end();
    }
}

impl State {
    fn grant(&mut self, bytes: u64) {
        self.taken += 1;
        self.taken_bytes += bytes;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.leave(&self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const MIB: u64 = 1 << 20;

    fn turns(most: usize) -> Arc<Turns> {
        Arc::new(Turns::new(most, Budget::new(MIB)))
    }

    #[test]
    fn turns_come_in_the_order_in_which_they_were_asked_for() {
        let turns = turns(1);
        let (first, waits) = turns.take(MIB);
        assert!(waits.is_none());
        let come = Arc::new(AtomicUsize::new(0));
        let wait = |place: usize| {
            let (turn, comes) = turns.take(MIB);
            let come = Arc::clone(&come);
            comes.unwrap().when_ended(move || {
                assert_eq!(come.fetch_add(1, Ordering::Relaxed), place);
            });
            turn
        };
        let waiting: Vec<_> = (0..3).map(wait).collect();
        drop(first);
        assert_eq!(come.load(Ordering::Relaxed), 1);
        drop(waiting);
        assert_eq!(come.load(Ordering::Relaxed), 3);
        assert!(turns.take(MIB).1.is_none(), "all turns were given back");
    }

    #[test]
    fn who_leaves_the_queue_leaves_its_turn_to_the_next() {
        let turns = turns(1);
        let (first, _) = turns.take(MIB);
        let (second, _) = turns.take(MIB);
        let (_third, comes) = turns.take(MIB);
        drop(second);
        let has_come = Arc::new(AtomicUsize::new(0));
        let noted = Arc::clone(&has_come);
        comes.unwrap().when_ended(move || noted.store(1, Ordering::Relaxed));
        assert_eq!(has_come.load(Ordering::Relaxed), 0);
        drop(first);
        assert_eq!(has_come.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_spare_turn_leaves_one_for_whoever_comes_and_is_none_while_somebody_waits() {
        let turns = turns(3);
        let spare = (turns.take_spare(MIB).unwrap(), turns.take_spare(MIB).unwrap());
        assert!(turns.take_spare(MIB).is_none());
        let (asked, waits) = turns.take(MIB);
        assert!(waits.is_none());
        let (waiting, waits) = turns.take(MIB);
        assert!(waits.is_some());
        drop(spare);
        // Both of those that asked have a turn now.
        assert!(turns.take_spare(MIB).is_none());
        drop((asked, waiting));
        assert!(turns.take_spare(LEAST_BYTES / 2).is_some());
        assert!(turns.take_spare(LEAST_BYTES / 2 + 1).is_none(), "none as large would be left");
        assert!(Arc::new(Turns::new(0, Budget::new(MIB))).take_spare(1).is_none());
    }

    #[test]
    fn of_many_who_leave_when_their_turn_comes_none_is_told_by_the_one_before() {
        const MANY: usize = 10_000;
        let turns = turns(1);
        let (first, _) = turns.take(MIB);
        let told = Arc::new(AtomicUsize::new(0));
        for _ in 0..MANY {
            let (turn, comes) = turns.take(MIB);
            let told = Arc::clone(&told);
            comes.unwrap().when_ended(move || {
                told.fetch_add(1, Ordering::Relaxed);
                drop(turn);
            });
        }
        // Each one inside the one before would need more than the stack of a thread.
        drop(first);
        assert_eq!(told.load(Ordering::Relaxed), MANY);
        assert!(turns.take(MIB).1.is_none(), "all turns were given back");
    }

    #[test]
    fn memory_bounds_the_turns_but_one_may_always_decode() {
        let turns = turns(100);
        let (large, waits) = turns.take(1 << 40);
        assert!(waits.is_none() && turns.take(1).1.is_some());
        drop(large);
        let taken: Vec<_> = (0..16).map(|_| turns.take(MIB)).collect();
        assert!(taken.iter().all(|(_, waits)| waits.is_none()));
        assert!(turns.take(MIB).1.is_some());
    }
}
