//! A part that answers late, out of order, short, or not at all: the second kind that the seam is tried with.

use super::{Arrival, Cause, Part, Pin, Profile, Remote, Version};
use crate::format::PartName;
use crate::io::File;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, SystemTime};
use std::{fs, io, thread};

/// What becomes of the requests that touch a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Answered at once, on the thread that asks.
    Prompt,
    /// Answered at once with the bytes, which are not kept.
    Unkept,
    /// Answered after a while, several requests in reverse order.
    Late,
    /// Refused the first time.
    Flaky,
    /// Told to be there, but the last byte is missing.
    Short,
    /// Refused.
    Refused,
    /// Given up without a word.
    Dropped,
    /// Never answered.
    Silent,
}

impl Fate {
    /// Whether its readers get the bytes.
    pub(crate) fn is_good(self) -> bool {
        matches!(self, Fate::Prompt | Fate::Unkept | Fate::Late | Fate::Flaky)
    }
}

/// How long [`Fate::Late`] takes.
const LATE: Duration = Duration::from_millis(15);
/// How long [`Fate::Silent`] is waited for, where a test waits for the deadline.
pub(crate) const PATIENCE: Duration = Duration::from_millis(300);
/// For a test in which something must arrive: no machine is so busy that an answer takes this long.
pub(crate) const LONG_PATIENCE: Duration = Duration::from_secs(600);

type Demand = (Range<u64>, Arrival);

/// The store that a part lies in.
pub(crate) struct Faraway {
    /// What is present, at its place; zeros elsewhere.
    file: File,
    cache: fs::File,
    bytes: Vec<u8>,
    /// By their starts; what no range covers is prompt.
    fates: BTreeMap<u64, (u64, Fate)>,
    state: Mutex<State>,
    late: Mutex<mpsc::Sender<Demand>>,
}

#[derive(Default)]
struct State {
    /// Per byte: containers of tests are small.
    present: Vec<bool>,
    refused: HashSet<u64>,
    /// Each pin has a share.
    pins: Arc<()>,
    unanswered: Vec<Arrival>,
    /// What is silent is dropped.
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

    /// How often bytes were asked for.
    pub(crate) fn demands(&self) -> usize {
        self.lock().demands
    }

    /// How many requests are silent now.
    pub(crate) fn unanswered(&self) -> usize {
        self.lock().unanswered.len()
    }

    /// Ends all silence: what is asked for later is dropped too.
    pub(crate) fn give_up(&self) {
        self.lock().gives_up = true;
        self.drop_unanswered();
    }

    /// Drops the requests that are silent now, as their deadline would.
    pub(crate) fn drop_unanswered(&self) {
        let unanswered = std::mem::take(&mut self.lock().unanswered);
        drop(unanswered);
    }

    /// Loses all that is present, as soon as nothing of it is pinned.
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
                // Also of a longer range: the sample's own last byte never comes.
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
