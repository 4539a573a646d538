//! The sample cache by itself.

use super::CacheKey::Sample;
use super::*;
use crate::format::ChecksumKind;
use crate::io::Buffer;
use crate::vfs::memory::verified::Bytes;

fn whole(bytes: usize) -> Cached {
    let buffer = Buffer::with_capacity(bytes).unwrap();
    let crc = ChecksumKind::Crc32.of(&buffer.as_slice()[..bytes]);
    Cached::Whole(Arc::new(Verified::check(Bytes::Own(buffer), 0..bytes, Some(crc)).ok().unwrap()))
}

fn cache(cap_bytes: u64) -> Arc<SampleCache> {
    let budget = Budget::new(cap_bytes);
    let blocks = Arc::new(Blocks::new(budget.clone(), 0, 0, &crate::store::Profile::DISK));
    Arc::new(SampleCache::new(budget, blocks, 1))
}

fn arrival(number: u64) -> Arrival {
    Arrival { number, is_announced: true, is_looked_up: false }
}

fn lead(cache: &Arc<SampleCache>, sample: u64) -> Leader {
    match cache.get_or_lead(Sample(sample), 1) {
        CacheAnswer::Lead(lead) => lead,
        _ => panic!("nobody else fetches sample {sample}"),
    }
}

#[test]
fn a_sample_leaves_when_all_of_it_was_given_out() {
    let cache = cache(64 << 20);
    lead(&cache, 5).end_with(whole(300), 100);
    assert!(matches!(cache.get_or_lead(Sample(5), 100), CacheAnswer::Cached(_)));
    assert_eq!(cache.figures().entries, 1);
    assert!(matches!(cache.get_or_lead(Sample(5), 100), CacheAnswer::Cached(_)));
    assert_eq!((cache.figures().entries, cache.figures().bytes), (0, 0));
}

#[test]
fn the_cap_is_hard_and_the_least_recently_used_goes_first() {
    let cache = cache(64 << 10);
    for sample in 0..100 {
        lead(&cache, sample).end_with(whole(8 << 10), 1);
        assert!(cache.figures().bytes <= 64 << 10);
    }
    assert!(matches!(cache.get_or_lead(Sample(99), 1), CacheAnswer::Cached(_)));
    lead(&cache, 0);
    assert_eq!((cache.figures().entries, cache.figures().evictions), (8, 92));
}

#[test]
fn what_was_prefetched_stays_until_all_of_it_was_given_out() {
    let cache = cache(64 << 20);
    let Cached::Whole(verified) = whole(300) else { unreachable!() };
    let ahead = cache.lead_prefetch(7).unwrap();
    assert!(cache.lead_prefetch(7).is_none() && !cache.is_idle());
    assert!(matches!(cache.get(Sample(7), 1), Some(CacheAnswer::InFlight(_))));
    ahead.end_prefetch(Arc::clone(&verified), arrival(3));
    assert!(matches!(cache.get_or_lead(Sample(7), 100), CacheAnswer::Prefetched(_, _, false)));
    let CacheAnswer::Prefetched(_, came, is_used_up) = cache.get_or_lead(Sample(7), 200) else {
        panic!("it was prefetched")
    };
    assert_eq!((came, is_used_up), (arrival(3), true));
    assert!(cache.is_idle() && cache.get(Sample(7), 1).is_none());
    cache.lead_prefetch(8).unwrap().end_prefetch(verified, arrival(4));
    assert!(matches!(cache.get_or_lead(Sample(8), 100), CacheAnswer::Prefetched(_, _, false)));
    assert_eq!((cache.drop_prefetched(8), cache.drop_prefetched(8)), (Some(200), None));
    assert!(cache.is_idle());
}

#[test]
fn a_second_asker_joins_the_first_and_is_told_when_it_landed() {
    let cache = cache(64 << 20);
    let first = lead(&cache, 1);
    let CacheAnswer::InFlight(read) = cache.get_or_lead(Sample(1), 1) else { panic!("joined") };
    let told = Arc::new(AtomicU64::new(0));
    let count = |told: &Arc<AtomicU64>| {
        let told = Arc::clone(told);
        move || {
            told.fetch_add(1, Ordering::Relaxed);
        }
    };
    read.when_ended(count(&told));
    assert_eq!(told.load(Ordering::Relaxed), 0);
    drop(first);
    assert_eq!(told.load(Ordering::Relaxed), 1);
    read.when_ended(count(&told));
    assert_eq!(told.load(Ordering::Relaxed), 2);
    lead(&cache, 1);
}

#[test]
fn who_follows_a_read_finds_what_it_brought_until_it_goes_on_though_there_is_no_room_for_it() {
    let cache = cache(0);
    let leader = lead(&cache, 1);
    let CacheAnswer::InFlight(read) = cache.get_or_lead(Sample(1), 1) else { panic!("joined") };
    leader.end_with(whole(4096), 1);
    assert_eq!((cache.figures().entries, cache.figures().bytes), (0, 0));
    for _ in 0..2 {
        assert!(matches!(cache.get_or_lead(Sample(1), 1), CacheAnswer::Cached(Cached::Whole(_))));
    }
    drop(read);
    lead(&cache, 1).end_with(whole(4096), 1);
    assert!(cache.get(Sample(1), 1).is_none(), "nobody followed this one");
}

#[test]
fn what_a_read_brought_is_not_found_in_a_cache_that_was_emptied() {
    let cache = cache(64 << 20);
    let leader = lead(&cache, 1);
    let CacheAnswer::InFlight(_read) = cache.get_or_lead(Sample(1), 1) else { panic!("joined") };
    leader.end_with(whole(4096), 1);
    cache.clear();
    lead(&cache, 1);
}

#[test]
fn a_lowered_cap_frees_memory_at_once_and_forgetting_frees_all() {
    let cache = cache(1 << 20);
    (0..100).for_each(|sample| lead(&cache, sample).end_with(whole(8 << 10), 1));
    cache.budget.set_cap_bytes(64 << 10);
    cache.shrink();
    assert_eq!((cache.figures().entries, cache.figures().bytes), (8, 64 << 10));
    let Cached::Whole(verified) = whole(300) else { unreachable!() };
    cache.lead_prefetch(700).unwrap().end_prefetch(verified, arrival(1));
    cache.clear();
    assert_eq!((cache.figures().entries, cache.figures().bytes), (0, 0));
    assert!(cache.is_idle());
}

#[test]
fn a_cache_without_room_keeps_nothing() {
    let cache = cache(0);
    assert_eq!(cache.max_whole_bytes(), 0);
    lead(&cache, 1).end_with(whole(4096), 1);
    assert_eq!(cache.figures().entries, 0);
}

#[test]
fn keys_of_different_things_are_told_apart_and_small() {
    let cache = cache(64 << 20);
    let keys = [
        Sample(3),
        CacheKey::DecodeTurn,
        CacheKey::Interval { checkpoints: 0, number: 3 },
        CacheKey::Interval { checkpoints: 1, number: 3 },
        CacheKey::ContainerInterval { container: 0, number: 3 },
        CacheKey::ContainerInterval { container: 1, number: 3 },
    ];
    for key in keys {
        let CacheAnswer::Lead(leader) = cache.get_or_lead(key, 1) else { panic!("{key:?}") };
        leader.end_with(whole(4096), 1);
    }
    assert_eq!(cache.figures().entries, keys.len() as u64);
    assert_eq!(size_of::<CacheKey>(), 16);
}

#[test]
fn what_is_decoded_ahead_evicts_nothing_if_that_makes_no_room() {
    let cache = cache(100_000);
    for sample in 0..5 {
        lead(&cache, sample).end_with(whole(8192), 1);
    }
    let held = cache.figures().bytes;
    let others = cache.budget.reserve(40_000).unwrap();
    let key = CacheKey::Sample(99);
    assert!(cache.room_ahead(key, 70_000).is_none());
    assert_eq!((cache.figures().entries, cache.figures().evictions), (5, 0));
    assert!(cache.room_ahead(key, 40_000).is_some());
    let evicted = cache.figures().evictions;
    assert!((1..5).contains(&evicted), "{evicted}: so many as are needed");
    drop(others);
    assert!(cache.room_ahead(key, 100_000).is_some());
    assert_eq!((cache.figures().entries, cache.figures().bytes), (0, 0));
    assert!(held >= 5 * 8192 && cache.room_ahead(key, 100_001).is_none());
}
