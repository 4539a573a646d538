//! The interface itself: the bytes and errors that the readers of a part get, however its store behaves.

use super::testing::{Faraway, Fate, LONG_PATIENCE, PATIENCE};
use super::{Bytes, Cause, Part, Store};
use crate::format::Source;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};

const BYTES: u64 = 10_000;

fn bytes() -> Vec<u8> {
    (0..BYTES).map(|at| (at / 3) as u8).collect()
}

fn part_of(fate: Fate) -> (Part, Arc<Faraway>) {
    let patience = if fate == Fate::Silent { PATIENCE } else { LONG_PATIENCE };
    Faraway::part(patience, bytes(), &[(1_000..BYTES, fate)])
}

#[test]
fn bytes_that_come_at_once_late_or_at_the_second_attempt_are_right() {
    for fate in [Fate::Prompt, Fate::Late] {
        let (part, store) = part_of(fate);
        let mut buf = [0; 5_000];
        part.read(&mut buf, 2_000, 4_000).unwrap();
        assert_eq!(buf[..4_000], bytes()[2_000..6_000], "{fate:?}");
        part.read_exact_at(&mut buf[..100], 2_500).unwrap();
        assert_eq!(buf[..100], bytes()[2_500..2_600], "{fate:?}");
        assert_eq!(store.demands(), 1, "{fate:?}: what is present is not asked for again");
        store.evict();
        part.read_exact_at(&mut buf[..100], 2_500).unwrap();
        assert_eq!((buf[0], store.demands()), (bytes()[2_500], 2), "{fate:?}");
    }
    let (part, store) = part_of(Fate::Unkept);
    let mut buf = [0; 5_000];
    for demands in 1..3 {
        part.read(&mut buf, 2_000, 4_000).unwrap();
        part.read_exact_at(&mut buf[4_000..], 6_000).unwrap();
        assert_eq!(buf[..], bytes()[2_000..7_000]);
        assert_eq!(store.demands(), 2 * demands, "what is not kept is asked for again");
    }
    let (part, _) = part_of(Fate::Flaky);
    assert!(part.wait(2_000..2_010, Cause::Demand).is_err());
    assert!(part.wait(2_000..2_010, Cause::Demand).is_ok());
}

#[test]
fn an_answer_that_is_short_refused_or_missing_is_an_error_and_no_data() {
    for (fate, why) in [
        (Fate::Short, "the store's answer is short"),
        (Fate::Refused, "503 Slow Down"),
        (Fate::Dropped, "the store gave no answer"),
        (Fate::Silent, "the store does not answer"),
    ] {
        let (part, _store) = part_of(fate);
        let start = Instant::now();
        let error = part.read(&mut [0; 10], 5_000, 10).unwrap_err();
        assert_eq!(error.to_string(), why);
        assert!(start.elapsed() < PATIENCE + Duration::from_secs(20), "{fate:?}");
        assert_eq!(part.read_exact_at(&mut [0; 10], 5_000).unwrap_err().to_string(), why);
        assert!(part.table(5_000, 10).is_err(), "{fate:?}");
        let mut first = [0; 10];
        // On a busy machine, an answer may come after the deadline, and is there then.
        let read = part.read_exact_at(&mut first, 0);
        read.or_else(|_| part.read_exact_at(&mut first, 0)).unwrap();
        assert_eq!(first[..], bytes()[..10], "the rest of the part can be read");
    }
}

#[test]
fn who_waits_hears_once_even_if_the_answer_comes_after_the_deadline() {
    let (part, remote) = part_of(Fate::Silent);
    let store = Store::new(vec![Arc::new(part)]);
    let (send, receive) = mpsc::channel();
    store.begin(0, 2_000..2_010, Cause::Demand, move |arrived| send.send(arrived.is_ok()).unwrap());
    assert_eq!(receive.recv(), Ok(false));
    // The store drops the request, as its reader has gone.
    drop((store, remote));
    assert!(receive.recv().is_err());
}

#[test]
fn a_read_past_the_end_is_refused_before_the_store_is_asked() {
    let (part, store) = part_of(Fate::Prompt);
    for (at, length) in [(BYTES, 1), (BYTES - 1, 2), (u64::MAX, 2)] {
        assert!(part.read_exact_at(&mut vec![0; length], at).is_err());
        assert!(part.table(at, length as u64).is_err());
    }
    assert_eq!(store.demands(), 0);
}

#[test]
fn parts_in_memory_and_local_files_are_read_without_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("part");
    std::fs::write(&path, bytes()).unwrap();
    let local = Part::from(crate::io::File::open(&path).unwrap());
    let memory = Part::in_memory("part", bytes(), SystemTime::UNIX_EPOCH);
    assert!(matches!(local.bytes(), Bytes::Local(_)) && local.file().is_some());
    for part in [local, memory] {
        let mut buf = [0; 20];
        part.read(&mut buf, 100, 20).unwrap();
        assert_eq!(buf[..], bytes()[100..120]);
        assert_eq!((part.len_bytes(), part.len()), (BYTES, BYTES));
        let store = Store::new(vec![Arc::new(part)]);
        let (send, receive) = mpsc::channel();
        store.begin(0, 0..10, Cause::Demand, move |arrived| send.send(arrived.is_ok()).unwrap());
        assert_eq!(receive.recv(), Ok(true));
    }
}
