//! The rules of requests, in time that the tests control; parts with a cache and without.

use super::counters::Counters;
use super::engine::{Engine, Get, Joined};
use super::requests::{Observer, Request};
use super::testing::{Answer, MemoryStore, content, location, wait_until};
use super::{CacheMax, CachePlace, ErrorKind, RemoteFigures, RemoteOptions, StoreError, Stores};
use crate::format::Source;
use crate::io::ReadError;
use crate::store::cache::{Cache, CacheDirectory, Claim, Entry, Fetching, boot_anew};
use crate::store::{Arrived, Cause, Part, Place, Store};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

const MIB: u64 = 1 << 20;

fn engine() -> Engine {
    Engine::new(&RemoteOptions::default(), Arc::new(Counters::default()))
}

async fn get(
    engine: &Engine,
    store: &MemoryStore,
    range: Range<u64>,
) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Joined::default();
    let get = Get {
        client: store,
        object: &store.object(),
        range,
        is_urgent: &Arc::new(AtomicBool::new(true)),
        cause: Cause::Demand,
    };
    engine.get(get, None, &mut bytes).await.map(|()| bytes.into_bytes().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_goes_on_at_its_byte() {
    let (engine, store) = (engine(), MemoryStore::new(100_000));
    store.answer([Answer::Breaks(30_000), Answer::Hangs(20_000), Answer::Fails(ErrorKind::Broken)]);
    let found = get(&engine, &store, 1_000..91_000).await.unwrap();
    assert!(found == content(100_000)[1_000..91_000]);
    let starts: Vec<u64> = store.asked().iter().map(|range| range.start).collect();
    assert_eq!(starts, [1_000, 31_000, 51_000, 51_000]);
    let figures = engine.counters.figures();
    assert_eq!((figures.gets(), figures.fetched_bytes, figures.in_flight), (4, 90_000, 0));
    assert_eq!((figures.retries_broken, figures.retries_timed_out), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_a_while_is_asked_again_and_one_that_refuses_is_not() {
    let (engine, store) = (engine(), MemoryStore::new(1_000));
    store.answer([Answer::Fails(ErrorKind::Unavailable); 8]);
    assert!(get(&engine, &store, 0..1_000).await.is_ok());
    store.answer([Answer::Fails(ErrorKind::Unavailable); 9]);
    let error = get(&engine, &store, 0..1_000).await.unwrap_err();
    assert_eq!((error.kind, store.asked().len()), (ErrorKind::Unavailable, 18));
    assert!(error.message.contains("as the test wants; given up after 9 attempts in "), "{error}");
    for kind in [ErrorKind::Denied, ErrorKind::Changed, ErrorKind::NotFound, ErrorKind::Malformed] {
        store.answer([Answer::Fails(kind)]);
        assert_eq!(get(&engine, &store, 0..1_000).await.unwrap_err().kind, kind);
    }
    // A missing object is no failure.
    assert_eq!((store.asked().len(), engine.counters.figures().failures), (22, 4));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_given_up_within_a_minute_or_so() {
    let (engine, store) = (engine(), MemoryStore::new(1_000));
    store.answer([Answer::Hangs(0); 100]);
    let start = Instant::now();
    let error = get(&engine, &store, 0..1_000).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TimedOut);
    assert!((50..75).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_trickles_is_asked_for_on_another_connection_and_given_up_if_that_is_no_faster()
{
    let options = RemoteOptions { hedge: false, ..RemoteOptions::default() };
    let engine = Engine::new(&options, Arc::new(Counters::default()));
    let store = MemoryStore::with(100_000, Duration::ZERO, (100, Duration::from_secs(3)));
    let start = Instant::now();
    let error = get(&engine, &store, 0..100_000).await.unwrap_err();
    assert!(error.message.starts_with("the bytes come too slowly; given up after "), "{error}");
    assert!((60..90).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert!((5..9).contains(&store.asked().len()), "{:?}", store.asked());
    // Bytes that have come are kept, even if they came too slowly.
    let store = MemoryStore::with(300, Duration::ZERO, (100, Duration::from_secs(6)));
    assert!(get(&engine, &store, 0..300).await.unwrap() == content(300));
    assert_eq!(store.asked().len(), 1);
    // A slow link is not a link that trickles.
    let store = MemoryStore::with(20_000, Duration::ZERO, (500, Duration::from_secs(3)));
    assert!(get(&engine, &store, 0..20_000).await.unwrap() == content(20_000));
    assert_eq!(store.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_pause_that_a_throttling_store_asks_for_is_kept() {
    let (engine, store) = (engine(), MemoryStore::new(1_000));
    store.answer([Answer::Throttled(Duration::from_secs(4))]);
    let start = Instant::now();
    assert!(get(&engine, &store, 0..1_000).await.is_ok());
    assert!((4_000..4_100).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    assert_eq!(engine.counters.figures().retries_throttled, 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_long_is_sent_twice_and_the_first_answer_wins() {
    let (engine, store) = (engine(), MemoryStore::new(1_000));
    for _ in 0..40 {
        assert!(get(&engine, &store, 0..1_000).await.is_ok());
    }
    store.answer([Answer::After(Duration::from_secs(2))]);
    let start = Instant::now();
    assert!(get(&engine, &store, 0..1_000).await.unwrap() == content(1_000));
    assert!((50..70).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    let figures = engine.counters.figures();
    assert_eq!((figures.gets_hedge, figures.hedges_won, figures.in_flight), (1, 1, 0));
    // The second request fails, but the first one still counts.
    store.answer([Answer::After(Duration::from_secs(2)), Answer::Fails(ErrorKind::Throttled)]);
    assert!(get(&engine, &store, 0..1_000).await.is_ok());
    store.answer([Answer::After(Duration::from_secs(2))]);
    let start = Instant::now();
    assert!(get(&engine, &store, 0..1_000).await.is_ok());
    assert_eq!(start.elapsed().as_secs(), 2, "none is sent twice after a 503");
}

fn stores(store: &Arc<MemoryStore>, cache: Option<&Path>) -> Arc<Stores> {
    let cache = cache.map_or(CachePlace::None, |place| CachePlace::Directory(place.to_owned()));
    stores_with(store, RemoteOptions { cache, ..RemoteOptions::default() })
}

fn stores_with(store: &Arc<MemoryStore>, options: RemoteOptions) -> Arc<Stores> {
    let store = Arc::clone(store);
    // On a busy machine any request may be slow.
    let options = RemoteOptions { hedge: false, ..options };
    Stores::with(options, move |_, _| Ok(Arc::clone(&store) as Arc<_>))
}

fn read(part: &Part, range: Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    let length = bytes.len();
    part.read(&mut bytes, range.start, length).unwrap();
    bytes
}

/// Reads a range as a prefetch does.
fn read_ahead(part: &Part, range: Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    match part.wait(range.clone(), Cause::Prefetch).unwrap().take(&mut bytes) {
        Some(_pin) => read(part, range),
        None => bytes,
    }
}

fn figures(stores: &Stores) -> RemoteFigures {
    stores.counters().figures()
}

#[test]
fn a_part_without_a_cache_fetches_exactly_what_is_read_and_more_to_open_it() {
    let store = MemoryStore::new(20 << 20);
    let (stores, all) = (stores(&store, None), content(20 << 20));
    let part = stores.open(&location()).unwrap();
    assert!(part.file().is_none());
    assert!(read(&part, 5_000..6_000) == all[5_000..6_000]);
    // A range across a chunk boundary takes two requests.
    assert!(read(&part, 8 * MIB - 10..8 * MIB + 10) == all[(8 << 20) - 10..(8 << 20) + 10]);
    assert_eq!(store.asked()[0], 5_000..6_000);
    assert_eq!(figures(&stores).fetched_bytes, 1_020);
    assert_eq!((store.asked().len(), figures(&stores).used_bytes), (3, 1_020));
    let mut header = [0; 100];
    for place in [0, 300, 50_000, 200_000] {
        part.read_exact_at(&mut header, place).unwrap();
        assert!(header[..] == all[place as usize..][..100]);
    }
    let asked = store.asked();
    assert_eq!((asked.len(), &asked[3]), (4, &(0..256 << 10)), "they lie close together");
    let small = stores.small(&location()).unwrap().unwrap();
    assert!(small == all);
}

#[test]
fn a_part_with_a_cache_fetches_each_block_once() {
    let directory = CacheDirectory::make();
    let (length, store) = (20_000_000, MemoryStore::new(20_000_000));
    let (stores, all) = (stores(&store, Some(directory.path())), content(length));
    let part = stores.open(&location()).unwrap();
    thread::scope(|scope| {
        for reader in 0..8_u64 {
            let (part, all) = (&part, &all);
            scope.spawn(move || {
                for step in 0..40 {
                    let start = (step * 7_919_777 + reader * 1_234_567) % 19_800_000;
                    let range = start..start + 150_000;
                    let bytes = read(part, range.clone());
                    assert!(bytes == all[start as usize..range.end as usize], "{range:?}");
                }
            });
        }
    });
    assert!(read(&part, 0..length as u64) == all);
    let figures = figures(&stores);
    assert_eq!(figures.fetched_bytes, length as u64, "each byte came once");
    let requests = store.asked().len();
    assert!(read(&part, 0..length as u64) == all);
    assert_eq!(store.asked().len(), requests);
}

#[test]
fn what_is_announced_comes_in_whole_chunks_before_it_is_read() {
    let directory = CacheDirectory::make();
    let (length, store) = (30_000_000, MemoryStore::new(30_000_000));
    let (stores, all) = (stores(&store, Some(directory.path())), content(length));
    let part = stores.open(&location()).unwrap();
    let crate::store::Bytes::Remote(remote) = part.bytes() else { panic!("it is remote") };
    for start in [25_000_000, 100, 9_000_000, 17_000_000, 200, 29_000_000] {
        remote.announce(start..start + 1_000, Place { number: 0, held: 0 });
    }
    assert!(read(&part, 17_000_000..17_200_000) == all[17_000_000..17_200_000]);
    assert!(part.wait(0..length as u64, Cause::Demand).is_ok());
    assert!(read(&part, 0..length as u64) == all);
    let mut asked = store.asked();
    asked.sort_by_key(|range| range.start);
    assert_eq!(asked, [0..8 * MIB, 8 * MIB..16 * MIB, 16 * MIB..24 * MIB, 24 * MIB..30_000_000]);
}

#[test]
fn an_object_that_has_changed_gives_nothing_any_more() {
    let store = MemoryStore::new(1_000_000);
    let stores = stores(&store, None);
    let part = stores.open(&location()).unwrap();
    assert!(read(&part, 0..10) == content(10));
    store.answer([Answer::Fails(ErrorKind::Changed)]);
    for _ in 0..3 {
        let error = part.read(&mut [0; 10], 500, 10).unwrap_err();
        assert!(error.to_string().contains("as the test wants"), "{error}");
    }
    assert_eq!(store.asked().len(), 2);
}

#[test]
fn a_cache_that_is_deleted_while_it_is_used_costs_no_reader_anything() {
    let directory = CacheDirectory::make();
    let store = MemoryStore::new(3_000_000);
    let (stores, all) = (stores(&store, Some(directory.path())), content(3_000_000));
    let part = stores.open(&location()).unwrap();
    assert!(read(&part, 0..1_000_000) == all[..1_000_000]);
    // It may be measured meanwhile, which makes its lock anew.
    while directory.path().exists() {
        let _ = std::fs::remove_dir_all(directory.path());
    }
    for range in [0..1_000_000, 900_000..2_900_000] {
        assert!(read(&part, range.clone()) == all[range.start as usize..range.end as usize]);
    }
    assert!(part.lose_file(&"deleted"));
    assert!(read(&part, 0..3_000_000) == all);
    part.read_exact_at(&mut [0; 100], 0).unwrap();
}

#[test]
fn a_failure_is_the_answer_to_others_that_ask_for_the_same_bytes() {
    let store = MemoryStore::new(1_000_000);
    let stores = stores(&store, None);
    let part = stores.open(&location()).unwrap();
    store.answer([Answer::Fails(ErrorKind::Denied)]);
    for range in [500..600, 550..650] {
        let error = part.wait(range, Cause::Demand).err().unwrap();
        assert_eq!(error.to_string(), "s3://bucket/object: as the test wants");
    }
    assert_eq!(store.asked().len(), 1);
    assert!(read(&part, 600..700) == content(700)[600..]);
}

#[test]
fn a_block_that_is_not_trusted_is_fetched_once_more() {
    let directory = CacheDirectory::make();
    let store = MemoryStore::new(3_000_000);
    let stores = stores(&store, Some(directory.path()));
    let part = stores.open(&location()).unwrap();
    let crate::store::Bytes::Remote(remote) = part.bytes() else { panic!("it is remote") };
    read(&part, 1_200_000..1_300_000);
    // Readers are served before the block is in the file.
    wait_until("the block is in the file", || remote.pin(&(MIB..2 * MIB)).is_some());
    // Two readers have had the same bytes: a block that the first one distrusts is absent for the second.
    assert!(remote.distrust(1_200_000..1_300_000) && remote.distrust(1_200_000..1_300_000));
    read(&part, 1_200_000..1_300_000);
    assert_eq!(store.asked(), [MIB..2 * MIB, MIB..2 * MIB]);
}

/// The stores of these tests, which wait for half a second at most.
fn impatient(store: &Arc<MemoryStore>, cache: &Path) -> Arc<Stores> {
    let (cache, timeout) = (CachePlace::Directory(cache.to_owned()), Duration::from_millis(500));
    stores_with(store, RemoteOptions { cache, timeout, ..RemoteOptions::default() })
}

/// Claims a block, as a daemon does before it fetches the block.
fn claim(entry: &Arc<Entry>, block: u64) -> Fetching {
    match entry.claim(block) {
        Claim::Fetch(fetching) => fetching,
        _ => panic!("block {block} is absent, and nobody fetches it"),
    }
}

#[test]
fn readers_wait_once_for_all_blocks_that_a_stopped_daemon_holds_and_anew_for_another_daemon() {
    let directory = CacheDirectory::make();
    let store = MemoryStore::new(5_000_000);
    let other = Cache::open(directory.path(), None).unwrap().entry(&store.object(), "").unwrap();
    let stores = impatient(&store, directory.path());
    let part = stores.open(&location()).unwrap();
    let waits_after = |block: u64| {
        let range = block * MIB..block * MIB + 1_000;
        assert!(read(&part, range.clone()) == content(5_000_000)[range.start as usize..][..1_000]);
        figures(&stores).lock_joins
    };
    let held: Vec<Fetching> = (0..4).map(|block| claim(&other, block)).collect();
    assert_eq!([0, 1, 2, 1, 0].map(waits_after), [1; 5]);
    drop(held);
    let held = claim(&other, 2);
    assert_eq!([2, 0, 2].map(waits_after), [2; 3]);
    drop(held);
}

#[test]
fn a_block_that_a_stopped_daemon_holds_is_read_without_the_cache() {
    let directory = CacheDirectory::make();
    let store = MemoryStore::new(3_000_000);
    let stopped = Cache::open(directory.path(), None).unwrap().entry(&store.object(), "").unwrap();
    let held = claim(&stopped, 0);
    let stores = impatient(&store, directory.path());
    let part = stores.open(&location()).unwrap();
    for _ in 0..2 {
        assert!(read(&part, 1_000..2_000) == content(2_000)[1_000..]);
    }
    drop(held);
    assert!(read(&part, 1_000..2_000) == content(2_000)[1_000..]);
    let mut asked = store.asked();
    asked.dedup();
    assert_eq!(asked, [1_000..2_000, 0..MIB]);
}

/// Makes another reader ask for bytes of the first request at the moment when this request has ended.
struct JoinsAtTheEnd {
    dataset: Store,
    counters: Arc<Counters>,
    has_joined: AtomicBool,
    came: mpsc::Sender<Result<Arrived, ReadError>>,
}

impl Observer for JoinsAtTheEnd {
    fn is_watching(&self) -> bool {
        !self.has_joined.swap(true, Ordering::Relaxed)
    }

    fn ended(&self, _: Request) {
        let came = self.came.clone();
        let join = || {
            self.dataset.begin(0, 500_000..500_100, Cause::Demand, move |arrived| {
                drop(came.send(arrived));
            });
        };
        // This is a thread of the runtime, which would begin a request made here only once the thread has returned.
        thread::scope(|scope| drop(scope.spawn(join)));
        let is_joined = || self.counters.joins.load(Ordering::Relaxed) > 0;
        wait_until("the request has not ended yet, and the other reader joins it", is_joined);
    }
}

#[test]
fn who_joins_a_request_that_nobody_else_waits_for_any_more_gets_the_bytes_all_the_same() {
    let latency = Duration::from_secs(1);
    let store = MemoryStore::with(1_000_000, latency, (64 << 10, Duration::ZERO));
    let stores = stores(&store, None);
    let dataset = Store::new(vec![Arc::new(stores.open(&location()).unwrap())]);
    let (counters, (came, comes)) = (Arc::clone(stores.counters()), mpsc::channel());
    let (has_joined, of_both) = (AtomicBool::new(false), dataset.clone());
    let joins = Arc::new(JoinsAtTheEnd { dataset: of_both, counters, has_joined, came });
    let observer: Arc<dyn Observer> = Arc::clone(&joins) as Arc<_>;
    stores.counters().observe(Arc::downgrade(&observer));
    // The first reader gives up before the first byte comes, so that the other bytes are not fetched.
    dataset.begin(0, 0..1_000_000, Cause::Prefetch, drop);
    dataset.give_up();
    let mut bytes = [0; 100];
    comes.recv().unwrap().unwrap().take(&mut bytes);
    assert!(bytes[..] == content(1_000_000)[500_000..500_100]);
    let figures = figures(&stores);
    assert_eq!((figures.gets_prefetch, figures.gets_demand), (1, 1), "a reader waits");
}

/// The bytes and requests of a read after a boot of the machine, from a cache in which byte `at` of the object was damaged.
fn read_after_a_crash(at: u64, range: Range<u64>) -> (Vec<u8>, Vec<Range<u64>>) {
    let directory = CacheDirectory::make();
    let store = MemoryStore::new(3_000_000);
    let first = stores(&store, Some(directory.path()));
    let part = first.open(&location()).unwrap();
    let filled = part.wait(0..3_000_000, Cause::Fill).map(drop);
    assert!(filled.is_ok());
    drop((part, first));
    boot_anew(directory.path(), at);
    let asked = store.asked().len();
    let part = stores(&store, Some(directory.path())).open(&location()).unwrap();
    let bytes = read(&part, range);
    (bytes, store.asked().split_off(asked))
}

#[test]
fn a_cached_block_that_a_crash_of_the_machine_has_damaged_is_fetched_once_more() {
    let all = content(3_000_000);
    let (bytes, asked) = read_after_a_crash(1_500_000, 1_400_000..2_500_000);
    assert!(bytes == all[1_400_000..2_500_000]);
    assert_eq!((asked.len(), asked.first()), (1, Some(&(MIB..2 * MIB))));
    let (bytes, asked) = read_after_a_crash(100, 1_400_000..2_500_000);
    assert!(bytes == all[1_400_000..2_500_000]);
    assert!(asked.is_empty(), "the others are whole: {asked:?}");
}

#[test]
fn a_range_that_ends_behind_the_object_is_an_error_and_no_change_of_it() {
    let directory = CacheDirectory::make();
    let store = MemoryStore::new(3_000_000);
    for cache in [Some(directory.path()), None] {
        let part = stores(&store, cache).open(&location()).unwrap();
        assert!(read(&part, 0..3_000_000) == content(3_000_000));
        let asked = store.asked().len();
        for start in [2_999_995, 3_000_000, 5_000_000] {
            let error = part.read(&mut [0; 10], start, 10).unwrap_err();
            assert!(error.to_string().contains("end of file"), "{error}");
        }
        assert_eq!(store.asked().len(), asked);
        assert!(read(&part, 2_000_000..3_000_000) == content(3_000_000)[2_000_000..]);
    }
}

#[test]
fn what_comes_from_the_store_without_a_cache_is_trusted() {
    let store = MemoryStore::new(3_000_000);
    let part = stores(&store, None).open(&location()).unwrap();
    let crate::store::Bytes::Remote(remote) = part.bytes() else { panic!("it is remote") };
    read(&part, 1_200_000..1_300_000);
    assert!(!remote.distrust(1_200_000..1_300_000));
}

/// The stores of these tests, with a cache of `blocks` blocks.
fn limited(store: &Arc<MemoryStore>, cache: &Path, blocks: u64) -> Arc<Stores> {
    let (cache, cache_max) =
        (CachePlace::Directory(cache.to_owned()), Some(CacheMax::Bytes(blocks * MIB)));
    stores_with(store, RemoteOptions { cache, cache_max, ..RemoteOptions::default() })
}

#[test]
fn readers_of_an_announced_order_find_right_bytes_while_blocks_take_each_others_places() {
    const SAMPLE: u64 = 100_000;
    let directory = CacheDirectory::make();
    let store = MemoryStore::with(24 << 20, Duration::from_millis(1), (256 << 10, Duration::ZERO));
    let (stores, all) = (limited(&store, directory.path(), 6), content(24 << 20));
    let part = stores.open(&location()).unwrap();
    let crate::store::Bytes::Remote(remote) = part.bytes() else { panic!("it is remote") };
    // Windows of 3 MiB, each read four times.
    let order: Vec<u64> = (0..8)
        .flat_map(|window| (0..4 * 30).map(move |at| window * 3 * MIB + at * 7 % 30 * SAMPLE))
        .collect();
    for (number, &start) in (0..).zip(&order) {
        remote.announce(start..start + SAMPLE, Place { number, held: 8 });
    }
    let (next, reached) = (AtomicUsize::new(0), |at: usize| at.saturating_sub(16) as u64);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while let at = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(&start) = order.get(at)
                {
                    remote.note_reached(reached(at));
                    let bytes = read_ahead(&part, start..start + SAMPLE);
                    assert!(bytes == all[start as usize..(start + SAMPLE) as usize], "{start}");
                }
            });
        }
    });
    let figures = figures(&stores);
    assert!(figures.evicted_blocks > 8, "{figures:?}");
    // Six blocks stay at first; each sample of the other blocks would be fetched four times.
    assert!(store.asked().len() < 18 * 40 / 2, "{} requests", store.asked().len());
    assert!(read(&part, 0..24 * MIB) == all);
}
