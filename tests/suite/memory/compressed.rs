//! Many readers of a compressed archive.

use super::*;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

const FILES: usize = 600;
const FILE_BYTES: usize = 100_000;
const READERS: usize = 256;
const READS: usize = 4;
const IN_TIME: Duration = Duration::from_secs(60);

/// Half noise, half zeros, which are decoded as fast as typical data.
fn content(number: usize) -> Vec<u8> {
    let mut bytes = noise(number as u64, FILE_BYTES / 2);
    bytes.resize(FILE_BYTES, 0);
    bytes
}

/// The memory of a process without pages of files.
fn anonymous_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
    kilobytes.map_or(0, |kilobytes: u64| kilobytes * 1024)
}

#[test]
fn readers_of_a_tar_gz_share_what_is_decoded_and_keep_the_daemon_within_its_memory_and_32_mib() {
    const MEMORY: u64 = 64 << 20;
    let directory = temp_dir();
    let source = directory.path().join("x.tar.gz");
    run(&mut packing(directory.path())).ok();
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &["memory=64M"]);
        let (done, peak) = (AtomicBool::new(false), AtomicU64::new(0));
        let start = Instant::now();
        let slowest = std::thread::scope(|scope| {
            let (mount, done, peak) = (&mount, &done, &peak);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    peak.fetch_max(anonymous_bytes(mount.pid()), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            let readers: Vec<_> = (0..READERS)
                .map(|reader| {
                    scope.spawn(move || {
                        let mut slowest = Duration::ZERO;
                        for step in 0..READS {
                            // Each file is read by one or two readers, in no order.
                            let number = (reader * READS + step) * 7919 % FILES;
                            let began = Instant::now();
                            let bytes = mount.read(format!("d/{number:04}")).unwrap();
                            slowest = slowest.max(began.elapsed());
                            assert!(bytes == content(number), "{number}");
                        }
                        slowest
                    })
                })
                .collect();
            let slowest = readers.into_iter().map(|reader| reader.join().unwrap()).max();
            done.store(true, Ordering::Relaxed);
            slowest.unwrap()
        });
        let (all, reads) = (start.elapsed(), READERS * READS);
        let cache = &mount.stats()["cache"];
        let decoded = cache["misses"].as_u64().unwrap();
        let peak = peak.load(Ordering::Relaxed);
        println!(
            "{transport:?}: {reads} reads in {all:?}, the slowest {slowest:?}; {decoded} decoded, \
             {} MiB at most",
            peak >> 20
        );
        assert!(peak <= MEMORY + (32 << 20), "{} MiB", peak >> 20);
        assert!(decoded * 4 <= reads as u64, "{decoded} intervals were decoded for {reads} reads");
        mount.unmount();
    });
}

#[test]
fn an_archive_that_is_read_in_order_is_decoded_ahead_and_what_nobody_reads_is_given_back() {
    let directory = temp_dir();
    let source = directory.path().join("x.tar.gz");
    run(packing(directory.path()).arg("--sort=name")).ok();
    for_each_transport(|transport| {
        wait_until("the kernel asks for each byte once", IN_TIME, || {
            is_decoded_ahead(&Mount::new(transport, &source, &["memory=256M"]))
        });
        // The reader of this mount goes away.
        let mount = Mount::new(transport, &source, &["memory=256M"]);
        let cached = |name: &str| mount.stats()["cache"][name].as_u64().unwrap();
        wait_until("what is ahead is given back", IN_TIME, || {
            // Reads once more if the threads had decoded nothing ahead.
            if cached("intervals_unused") == 0 && cached("intervals_ahead") == 0 {
                for number in 0..FILES / 3 {
                    mount.read(format!("d/{number:04}")).unwrap();
                }
            }
            cached("intervals_unused") > 0 && cached("intervals_ahead") == 0
        });
        mount.unmount();
    });
}

/// Reads all files in order. False if an interval was decoded twice because the kernel dropped pages of a file before they
/// were read, and asked for them again: an interval is dropped once as many bytes were given out as it has.
fn is_decoded_ahead(mount: &Mount) -> bool {
    // An interval is 4 MiB or more, but for the last one.
    let most = (FILES * (FILE_BYTES + 1024)).div_ceil(4 << 20) as u64;
    let counted = |name: &str| mount.stats()[name].as_u64().unwrap();
    let read = |files: Range<usize>| {
        for number in files {
            let bytes = mount.read(format!("d/{number:04}")).unwrap();
            assert!(bytes == content(number), "{number}");
        }
    };
    // Threads decode ahead sooner or later; a reader that stops to wait for them seems to have gone.
    let mut next = FILES / 3;
    read(0..next);
    wait_until("it is decoded ahead", IN_TIME, || {
        read(next..(next + 1).min(FILES));
        next = (next + 1).min(FILES);
        counted("intervals_decoded_ahead") > 0
    });
    read(next..FILES);
    let (decoded, cache) = (counted("intervals_decoded"), &mount.stats()["cache"]);
    let [used, unused] = ["used", "unused"].map(|what| cache[format!("intervals_{what}")].as_u64());
    println!("{decoded} of {most} intervals; ahead {used:?}, unused {unused:?}");
    let (used, unused) = (used.unwrap(), unused.unwrap());
    assert!(used + unused > 0);
    // On a machine that stands still for seconds the reader seems to have gone.
    let is_each_once = decoded <= most + unused;
    let is_asked_once = counted("bytes_served") == (FILES * FILE_BYTES) as u64;
    assert!(is_each_once || !is_asked_once, "{decoded} of {most}: some were decoded twice");
    is_each_once
}

/// Packs the files into `x.tar.gz` in this directory.
fn packing(directory: &Path) -> Command {
    fs::create_dir(directory.join("d")).unwrap();
    for number in 0..FILES {
        fs::write(directory.join(format!("d/{number:04}")), content(number)).unwrap();
    }
    let mut command = Command::new("tar");
    command.current_dir(directory).args(["-cf", "x.tar.gz", "-I", "gzip -1", "d"]);
    command
}
