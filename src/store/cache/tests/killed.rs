//! Daemons that are killed at any point leave no wrong byte and no lock.

use super::*;
use crate::io::Reading;
use crate::io::testing::starts_again;
use crate::store::cache::testing::Random;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const DIRECTORY: &str = "FFRFS_TEST_CACHE_WORKER";
const BLOCKS: u64 = 12;
/// A file in the cache's directory, made by the first worker that evicts a block.
const EVICTED: &str = "evicted";
/// The least time for which workers are killed, and the most if they make little progress.
const LEAST: Duration = Duration::from_secs(4);
const MOST: Duration = Duration::from_mins(5);

fn the_object() -> crate::store::remote::Object {
    object("s3://bucket/killed", "\"1\"", (BLOCKS - 1) * BLOCK_BYTES + 12345)
}

/// The test below runs this in separate processes: reads, fetches and evicts at random until it is killed. Now and then it
/// closes the entry, so that another process is the only user.
#[test]
fn a_worker_reads_fetches_and_evicts_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let cache = Cache::open(Path::new(&directory), None).unwrap();
    let mut entry = cache.entry(&the_object(), "").unwrap();
    let mut random = Random::new(u64::from(std::process::id()));
    loop {
        if random.below(20) == 0 {
            drop(entry);
            std::thread::sleep(Duration::from_millis(random.below(10)));
            entry = cache.entry(&the_object(), "").unwrap();
        }
        let block = random.below(BLOCKS);
        let range = map::block_range(block, entry.length_bytes());
        let reading = Reading::begin();
        if entry.is_present(&range) {
            assert!(read(&entry, range.clone()) == bytes(range), "block {block}");
            drop(reading);
            match random.below(4) {
                0 => entry.invalidate(block),
                1 if entry.replace(&[block, random.below(BLOCKS)]).is_some() => {
                    fs::write(Path::new(&directory).join(EVICTED), "").unwrap();
                }
                _ => {}
            }
            continue;
        }
        drop(reading);
        match entry.claim(block) {
            Claim::Fetch(mut fetching) => {
                let content = bytes(range.clone());
                for piece in content.chunks(100_000) {
                    fetching.write(fetching.next(), piece).unwrap();
                }
                fetching.publish().unwrap();
            }
            Claim::Elsewhere => drop(entry.wait(block, Duration::from_millis(50))),
            _ => {}
        }
    }
}

fn worker(directory: &TempDir) -> Child {
    let name = "store::cache::tests::killed::a_worker_reads_fetches_and_evicts_until_it_is_killed";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command.env(DIRECTORY, directory.path()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn workers_that_are_killed_leave_no_wrong_byte_and_no_lock() {
    if starts_again() {
        kill_workers(4, |_| true);
    }
}

#[test]
fn workers_that_are_killed_while_they_evict_leave_no_wrong_byte_and_no_lock() {
    if starts_again() {
        let has_evicted = |directory: &Path| directory.join(EVICTED).exists();
        let directory = kill_workers(2, has_evicted);
        assert!(has_evicted(directory.path()), "no worker has evicted a block");
    }
}

fn has_entry(directory: &Path) -> bool {
    let Ok(Some(contents)) = Contents::open(directory) else { return false };
    contents.list().is_ok_and(|listed| listed.iter().any(|entry| entry.cached_bytes > 0))
}

/// Kills workers for a while, and goes on for longer while the cache has no entry, or `has_happened` is false for its
/// directory.
fn kill_workers(count: usize, has_happened: impl Fn(&Path) -> bool) -> CacheDirectory {
    let directory = CacheDirectory::make();
    let mut random = Random::new(1);
    let mut workers: Vec<_> = (0..count).map(|_| worker(&directory)).collect();
    let start = Instant::now();
    let is_over = || {
        let is_enough = || has_entry(directory.path()) && has_happened(directory.path());
        start.elapsed() > MOST || (start.elapsed() > LEAST && is_enough())
    };
    while !is_over() {
        // On a busy machine a worker takes long to begin: later it gets more time.
        let longest_ms = 60 + start.elapsed().saturating_sub(LEAST).as_millis() as u64 / 10;
        std::thread::sleep(Duration::from_millis(5 + random.below(longest_ms)));
        let killed = random.below(count as u64) as usize;
        workers[killed].kill().unwrap();
        let status = workers[killed].wait().unwrap();
        assert_eq!(status.signal(), Some(9), "a worker found something wrong: {status}");
        workers[killed] = worker(&directory);
    }
    for mut worker in workers {
        worker.kill().unwrap();
        assert_eq!(worker.wait().unwrap().signal(), Some(9));
    }
    let contents = Contents::open(directory.path()).unwrap().unwrap();
    let listed = contents.list().unwrap();
    assert_eq!((listed.len(), listed[0].users), (1, 0));
    assert_eq!(contents.check(&listed[0], &mut |_| true).unwrap().damaged, 0);
    let entry = daemon(&directory).entry(&the_object(), "").unwrap();
    fill_all(&entry);
    let all = 0..entry.length_bytes();
    assert!(read(&entry, all.clone()) == bytes(all));
    directory
}
