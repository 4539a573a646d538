//! Models: what must hold however the threads interleave.

use super::blocks::{BlockAnswer, Blocks};
use super::budget::Budget;
use super::cache::{Arrival, CacheAnswer, CacheKey, Cached, SampleCache};
use super::in_flight::InFlightRead;
use super::verified::{Bytes, Verified};
use crate::io::Buffer;
use crate::store::Profile;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use std::sync::Arc;

const BYTES: usize = 4096;
const ARRIVAL: Arrival = Arrival { number: 7, is_announced: true, is_looked_up: false };

fn whole() -> Arc<Verified> {
    let bytes = Bytes::Own(Buffer::with_capacity(BYTES).unwrap());
    Arc::new(Verified::check(bytes, 0..BYTES, None).ok().unwrap())
}

fn cache() -> Arc<SampleCache> {
    let budget = Budget::new(1 << 20);
    let blocks = Arc::new(Blocks::new(budget.clone(), 0, 0, &Profile::DISK));
    Arc::new(SampleCache::new(budget, blocks, 1))
}

fn counter() -> Arc<AtomicUsize> {
    Arc::new(AtomicUsize::new(0))
}

#[test]
fn loom_a_follower_is_called_once_whether_it_comes_before_the_end_or_behind_it() {
    loom::model(|| {
        let (read, called) = (Arc::new(InFlightRead::new()), counter());
        let (ends, count) = (Arc::clone(&read), Arc::clone(&called));
        let leader = thread::spawn(move || ends.end());
        read.when_ended(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        leader.join().unwrap();
        assert_eq!(called.load(Ordering::Relaxed), 1);
    });
}

/// Reads a part of sample 0; counts who has led, and the followers that were called.
fn read_part(cache: &Arc<SampleCache>, led: &AtomicUsize, followed: &Arc<AtomicUsize>) -> usize {
    match cache.get_or_lead(CacheKey::Sample(0), 1) {
        CacheAnswer::Lead(leader) => {
            led.fetch_add(1, Ordering::Relaxed);
            leader.end_with(Cached::Whole(whole()), 1);
            0
        }
        CacheAnswer::InFlight(read) => {
            let count = Arc::clone(followed);
            read.when_ended(move || {
                count.fetch_add(1, Ordering::Relaxed);
            });
            1
        }
        CacheAnswer::Cached(_) => 0,
        CacheAnswer::Prefetched(..) => panic!("nothing is prefetched"),
    }
}

#[test]
fn loom_of_two_readers_of_a_sample_one_fetches_it_and_the_other_is_let_go() {
    loom::model(|| {
        let (cache, led, followed) = (cache(), counter(), counter());
        let other = {
            let (cache, led, followed) =
                (Arc::clone(&cache), Arc::clone(&led), Arc::clone(&followed));
            thread::spawn(move || read_part(&cache, &led, &followed))
        };
        let follows = read_part(&cache, &led, &followed) + other.join().unwrap();
        assert_eq!(led.load(Ordering::Relaxed), 1);
        assert_eq!(followed.load(Ordering::Relaxed), follows);
        assert_eq!(cache.figures().entries, 1);
    });
}

#[test]
fn loom_a_prefetch_and_a_reader_leave_nothing_in_flight_and_nothing_counted() {
    loom::model(|| {
        let cache = cache();
        let prefetches = Arc::clone(&cache);
        let prefetch = thread::spawn(move || {
            if let Some(leader) = prefetches.lead_prefetch(0) {
                leader.end_prefetch(whole(), ARRIVAL);
            }
        });
        let read = cache.get_or_lead(CacheKey::Sample(0), BYTES as u64);
        let is_read = matches!(read, CacheAnswer::Prefetched(_, ARRIVAL, true));
        drop(read);
        prefetch.join().unwrap();
        let is_left = cache.drop_prefetched(0).is_some();
        assert!(!(is_read && is_left), "what was read whole is gone");
        assert!(cache.is_idle());
        assert!(cache.lead(CacheKey::Sample(0)).is_ok(), "nothing is in flight");
    });
}

#[test]
fn loom_of_two_prefetches_of_a_sample_one_fetches_it() {
    loom::model(|| {
        let (cache, led) = (cache(), counter());
        let prefetch = |cache: &Arc<SampleCache>, led: &AtomicUsize| {
            if let Some(leader) = cache.lead_prefetch(0) {
                led.fetch_add(1, Ordering::Relaxed);
                leader.end_prefetch(whole(), ARRIVAL);
            }
        };
        let other = {
            let (cache, led) = (Arc::clone(&cache), Arc::clone(&led));
            thread::spawn(move || prefetch(&cache, &led))
        };
        prefetch(&cache, &led);
        other.join().unwrap();
        assert_eq!(led.load(Ordering::Relaxed), 1);
        assert_eq!(cache.drop_prefetched(0), Some(BYTES as u64));
        assert!(cache.is_idle());
    });
}

#[test]
fn loom_an_interval_is_decoded_once_whether_ahead_or_for_its_reader() {
    loom::model(|| {
        let (cache, led, followed) = (cache(), counter(), counter());
        let key = CacheKey::Sample(0);
        let ahead = {
            let (cache, led) = (Arc::clone(&cache), Arc::clone(&led));
            thread::spawn(move || {
                let room = cache.room_ahead(key, BYTES as u64).unwrap();
                if let Some(leader) = cache.lead_ahead(key) {
                    led.fetch_add(1, Ordering::Relaxed);
                    leader.hold(whole(), (room, None));
                }
            })
        };
        let follows = read_part(&cache, &led, &followed);
        ahead.join().unwrap();
        assert_eq!(led.load(Ordering::Relaxed), 1);
        assert_eq!(followed.load(Ordering::Relaxed), follows);
        let figures = cache.figures();
        assert_eq!(figures.entries + figures.intervals_ahead, 1);
        assert!(cache.lead(key).is_ok(), "nothing is in flight");
    });
}

#[test]
fn loom_a_block_whose_leader_gives_up_lets_its_follower_go_and_frees_its_memory() {
    loom::model(|| {
        let budget = Budget::new(8 << 20);
        let blocks = Arc::new(Blocks::new(budget.clone(), 10_000, 30_000_000, &Profile::DISK));
        let (others, called) = (Arc::clone(&blocks), counter());
        let leader = blocks.lead((0, 0)).unwrap();
        let gives_up = thread::spawn(move || drop(leader));
        let count = Arc::clone(&called);
        let follows = match others.get_or_lead((0, 0), 1) {
            BlockAnswer::InFlight(read) => {
                read.when_ended(move || {
                    count.fetch_add(1, Ordering::Relaxed);
                });
                1
            }
            BlockAnswer::Lead(leader) => {
                drop(leader);
                0
            }
            BlockAnswer::Held(..) | BlockAnswer::Refused => panic!("it was never fetched"),
        };
        gives_up.join().unwrap();
        assert_eq!(called.load(Ordering::Relaxed), follows);
        assert!(blocks.is_idle());
        assert_eq!(budget.held_bytes(), 0);
    });
}

#[test]
fn loom_two_reservations_never_exceed_the_budget() {
    loom::model(|| {
        let budget = Budget::new(100);
        let other = budget.clone();
        let reserves = thread::spawn(move || other.reserve(60));
        let mine = budget.reserve(60);
        let theirs = reserves.join().unwrap();
        assert!(mine.is_some() != theirs.is_some());
        drop((mine, theirs));
        assert_eq!(budget.held_bytes(), 0);
    });
}
