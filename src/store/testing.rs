//! A part that answers late, out of order, short, or not at all: the second kind of part, to test the store's
//! interface.

use super::{Arrival, Cause, Part, Pin, Profile, Remote, Version};
use crate::format::PartName;
use crate::io::File;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, SystemTime};
use std::{fs, io, thread};

/// How the store treats requests that touch a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Answered at once, on the thread that asks.
    Prompt,
    /// Answered at once with bytes in memory, which no file keeps.
    Unkept,
    /// Answered after a delay; several requests are answered in reverse order.
    Late,
    /// Refused the first time, then late.
    Flaky,
    /// Reported as present, though the last byte is missing.
    Short,
    /// Refused.
    Refused,
    /// Dropped without an answer.
    Dropped,
    /// Never answered.
    Silent,
}

impl Fate {
    /// Whether the readers of the range get its bytes.
    pub(crate) fn is_good(self) -> bool {
        matches!(self, Fate::Prompt | Fate::Unkept | Fate::Late | Fate::Flaky)
    }
}

/// The delay of [`Fate::Late`].
const LATE: Duration = Duration::from_millis(15);
/// The deadline of [`Fate::Silent`], for tests that wait for it.
pub(crate) const PATIENCE: Duration = Duration::from_millis(300);
/// The deadline for tests in which the bytes must arrive: no machine is so busy that an answer takes this long.
pub(crate) const LONG_PATIENCE: Duration = Duration::from_secs(600);

type Demand = (Range<u64>, Arrival);

/// The store that holds a part.
pub(crate) struct Faraway {
    /// The present bytes at their offsets; zeros elsewhere.
    file: File,
    cache: fs::File,
    bytes: Vec<u8>,
    /// By the start of the range; ranges that are not listed are prompt.
    fates: BTreeMap<u64, (u64, Fate)>,
    state: Mutex<State>,
    late: Mutex<mpsc::Sender<Demand>>,
}

#[derive(Default)]
struct State {
    /// One flag for each byte: the tests' containers are small.
    present: Vec<bool>,
    refused: HashSet<u64>,
    /// Each pin holds a clone.
    pins: Arc<()>,
    unanswered: Vec<Arrival>,
    /// Whether silent requests are dropped at once.
    gives_up: bool,
    demands: usize,
}

fn bytes_of(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}

impl Faraway {
    /// A part of these bytes, and its store.
    pub(crate) fn part(
        patience: Duration,
        bytes: Vec<u8>,
        fates: &[(Range<u64>, Fate)],
    ) -> (Part, Arc<Self>) {
        let cache = tempfile::tempfile().unwrap();
        cache.set_len(bytes.len() as u64).unwrap();
        let name = PartName::Url("test://bucket/part".to_owned());
        let file = File::filled(cache.try_clone().unwrap(), name.clone()).unwrap();
        let (send, receive) = mpsc::channel();
        let fates = fates.iter().map(|(range, fate)| (range.start, (range.end, *fate))).collect();
        let state = State { present: vec![false; bytes.len()], ..State::default() };
        let (state, late) = (Mutex::new(state), Mutex::new(send));
        let store = Arc::new(Self { file, cache, bytes, fates, state, late });
        let weak = Arc::downgrade(&store);
        thread::spawn(move || {
            while let Ok(first) = receive.recv() {
                thread::sleep(LATE);
                let mut demands: Vec<Demand> =
                    std::iter::once(first).chain(receive.try_iter()).collect();
                demands.reverse();
                let Some(store) = weak.upgrade() else { return };
                demands.into_iter().for_each(|(range, arrival)| store.answer(&range, arrival));
            }
        });
        let profile = Profile { patience, ..Profile::DISK };
        let version = Version::Object { tag: "\"1\"".to_owned() };
        let remote = Arc::clone(&store) as Arc<dyn Remote>;
        (Part::remote(name, version, SystemTime::UNIX_EPOCH, profile, remote), store)
    }

    /// The number of requests so far.
    pub(crate) fn demands(&self) -> usize {
        self.lock().demands
    }

    /// The number of silent requests now.
    pub(crate) fn unanswered(&self) -> usize {
        self.lock().unanswered.len()
    }

    /// Drops all silent requests, and later ones at once.
    pub(crate) fn give_up(&self) {
        self.lock().gives_up = true;
        self.drop_unanswered();
    }

    /// Drops the requests that are silent now, as their deadline would.
    pub(crate) fn drop_unanswered(&self) {
        let unanswered = std::mem::take(&mut self.lock().unanswered);
        drop(unanswered);
    }

    /// Makes all bytes absent, as soon as no pin is held.
    pub(crate) fn evict(&self) {
        loop {
            let mut state = self.lock();
            if Arc::strong_count(&state.pins) == 1 {
                state.present.fill(false);
                return self.cache.write_all_at(&vec![0; self.bytes.len()], 0).unwrap();
            }
            drop(state);
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fate(&self, range: &Range<u64>) -> (u64, Fate) {
        let touched = self.fates.range(..range.end).filter(|(_, (end, _))| *end > range.start);
        let worst = touched.max_by_key(|(_, (_, fate))| *fate as u8);
        worst.map_or((0, Fate::Prompt), |(start, (_, fate))| (*start, *fate))
    }

    fn fill(&self, range: &Range<u64>) {
        let mut state = self.lock();
        self.cache.write_all_at(&self.bytes[bytes_of(range)], range.start).unwrap();
        state.present[bytes_of(range)].fill(true);
    }

    fn answer(&self, range: &Range<u64>, arrival: Arrival) {
        self.fill(range);
        arrival.finish(Ok(()));
    }
}

impl Remote for Faraway {
    fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn file(&self) -> Option<&File> {
        Some(&self.file)
    }

    fn pin(&self, range: &Range<u64>) -> Option<Pin> {
        let state = self.lock();
        state.present[bytes_of(range)]
            .iter()
            .all(|byte| *byte)
            .then(|| Pin::new(Arc::clone(&state.pins)))
    }

    fn begin(&self, range: Range<u64>, _: Cause, arrival: Arrival) {
        let (start, fate) = self.fate(&range);
        let mut state = self.lock();
        state.demands += 1;
        let is_first = state.refused.insert(start);
        if fate == Fate::Silent && !state.gives_up {
            return state.unanswered.push(arrival);
        }
        drop(state);
        let refused = || io::Error::other("503 Slow Down");
        match fate {
            Fate::Prompt => self.answer(&range, arrival),
            Fate::Unkept => {
                let (head, tail) =
                    self.bytes[bytes_of(&range)].split_at(bytes_of(&range).len() / 3);
                arrival.deliver([head, tail].map(bytes::Bytes::copy_from_slice).into());
            }
            Fate::Flaky if is_first => arrival.finish(Err(refused().into())),
            Fate::Refused => arrival.finish(Err(refused().into())),
            Fate::Short => {
                // Longer requests end here, too: the last byte of the sample never arrives.
                let end = self.fates[&start].0.min(range.end);
                self.fill(&(range.start..end - 1));
                arrival.finish(Ok(()));
            }
            Fate::Late | Fate::Flaky => {
                let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
                late.send((range, arrival)).unwrap();
            }
            Fate::Dropped | Fate::Silent => drop(arrival),
        }
    }
}
