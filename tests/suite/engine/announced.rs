//! An announced order end to end: announced samples are in memory when they are asked for.

use super::{Data, assert_at_rest, figure, have_direct, middling, name, sample, small};
use crate::common::{
    FFRFS, Mount, Transport, assert_errno, evicted_pages, flip_byte, for_each_transport, offsets,
    run, undisturbed, wait_until,
};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::process::Command;
use std::time::Duration;

/// The most raw numbers in a write, which the kernel takes in one piece.
const PIECE: usize = 512;

/// The longest wait for the daemon.
const LIMIT: Duration = Duration::from_secs(60);

/// The counts that [`Mount::requests`] returns.
type Requests = BTreeMap<String, u64>;

/// A mount that takes announcements by a write.
fn mount(data: &Data, transport: Transport, options: &[&str]) -> Mount {
    data.mount(transport, &[options, &["rw"]].concat())
}

fn announce(mount: &Mount, order: &[usize]) {
    let mut file = fs::File::options().append(true).open(mount.path(".ffrfs/prefetch")).unwrap();
    for piece in order.chunks(PIECE) {
        let bytes: Vec<u8> = piece.iter().flat_map(|&i| (i as u64).to_le_bytes()).collect();
        file.write_all(&bytes).unwrap();
    }
}

/// Waits until all samples are fetched, which are all announced, or as many of them as there is room for.
#[track_caller]
fn wait_for_prefetch(mount: &Mount, data: &Data) {
    let announced = || figure(mount, "prefetch.announced") == data.samples.len() as u64;
    wait_until("the daemon has heard of all", LIMIT, announced);
    wait_until("all are fetched, or there is no room", LIMIT, || {
        let stats = mount.stats();
        let prefetch = &stats["prefetch"];
        // Samples that come in blocks do not wait, though their blocks may.
        let are_here = stats["bytes_fetched"].as_u64() >= Some(data.bytes());
        let has_all = prefetch["waiting"] == 0 && are_here;
        prefetch["in_flight"] == 0 && (has_all || prefetch["is_full"] == true)
    });
}

#[test]
fn an_announced_permutation_is_there_when_it_is_read() {
    let everything: &[&str] = &[];
    for (samples, options) in [
        (small(4000), everything),
        (middling(300), everything),
        // The window is a fraction of the data, and moves on.
        (middling(300), &["cache_size=8M"]),
        (small(4000), &["cache_size=4M", "io=buffered"]),
    ] {
        let data = Data::new(samples, 2);
        let count = data.samples.len();
        for_each_transport(|transport| {
            let mount = mount(&data, transport, options);
            let order = data.shuffled(5);
            announce(&mount, &order);
            // A reader that gets a CPU while the prefetch thread gets none would overtake it, were it not to wait.
            for piece in order.chunks(16) {
                wait_for_prefetch(&mount, &data);
                data.read(&mount, 1, piece);
            }
            assert_at_rest(&mount);
            wait_until("no sample waits", LIMIT, || figure(&mount, "prefetch.waiting") == 0);
            let prefetch = &mount.stats()["prefetch"];
            // Small samples that all fit come in blocks.
            let used = figure(&mount, "prefetch.used") + figure(&mount, "blocks.hits");
            assert!(used * 10 >= count as u64 * 9, "{options:?}, {count} samples: {prefetch}");
            assert_eq!(figure(&mount, "prefetch.failed"), 0);
            if options.is_empty() && count == 300 {
                // In a batch of small samples, the bytes between two of them are read as well.
                let fetched = figure(&mount, "bytes_fetched");
                assert!(fetched <= data.bytes() * 13 / 10, "{fetched} of {}", data.bytes());
            }
        });
    }
}

#[test]
fn a_sample_that_has_no_room_beside_another_is_fetched_once_that_was_read() {
    // Each sample takes three eighths of the memory, half of which holds samples that are fetched ahead.
    let data = Data::new((0..2).map(|number| sample(number, 3_200_000)).collect(), 1);
    for_each_transport(|transport| {
        let mount = mount(&data, transport, &["cache_size=8M"]);
        announce(&mount, &[0, 1]);
        wait_until("the first one is there", LIMIT, || figure(&mount, "prefetch.done") == 1);
        data.read_one(&mount, 0);
        // The memory of the first sample is free only after the answer, when the prefetch thread is not told of it.
        wait_until("the second one is there", LIMIT, || figure(&mount, "prefetch.done") == 2);
        data.read_one(&mount, 1);
        assert_eq!(figure(&mount, "prefetch.used"), 2, "{}", mount.stats()["prefetch"]);
    });
}

#[test]
fn what_is_announced_while_others_read_disturbs_nobody() {
    let data = Data::new(middling(200).into_iter().chain(small(1500)).collect(), 2);
    for_each_transport(|transport| {
        for options in [&[][..], &["cache_size=2M"], &["io=buffered"]] {
            let mount = mount(&data, transport, options);
            std::thread::scope(|scope| {
                scope.spawn(|| data.read(&mount, 16, &data.shuffled(1)));
                for seed in 0..8 {
                    announce(&mount, &data.shuffled(seed));
                }
            });
            assert_at_rest(&mount);
        }
    });
}

fn warmup(mount: &Mount) -> crate::common::Outcome {
    run(Command::new(FFRFS).arg("warmup").arg(mount.point()))
}

/// Reads samples that were warmed up, each by its path, and compares them. Returns how many of their pages the kernel had
/// evicted by then: only for these it may ask again.
fn read_warm(mount: &Mount, samples: impl Iterator<Item = (String, &'static [u8])>) -> u64 {
    let mut evicted = 0;
    for (path, expected) in samples {
        // The file is opened before its pages are counted: the opening itself must not invalidate pages.
        let mut file = fs::File::open(mount.path(&path)).unwrap();
        let mut bytes = Vec::with_capacity(expected.len() + 1);
        evicted += evicted_pages(&file).unwrap_or(0);
        file.read_to_end(&mut bytes).unwrap();
        assert!(bytes == expected, "{path}");
    }
    evicted
}

/// Checks that there was no LOOKUP between these counts, and no READ but for evicted pages.
#[track_caller]
fn assert_not_asked(before: &Requests, after: &Requests, evicted: u64) {
    assert_eq!(before["lookup"], after["lookup"]);
    let reads = after["read"] - before["read"];
    eprintln!("{reads} READs; the kernel had evicted {evicted} pages");
    assert!(reads <= evicted, "{reads} READs, {evicted} pages were evicted");
}

#[test]
fn after_a_warmup_an_epoch_sends_no_lookup_and_no_read() {
    for samples in [small(3000), middling(300)] {
        let data = Data::new(samples, 2);
        for_each_transport(|transport| {
            undisturbed(|| {
                let mount = mount(&data, transport, &[]);
                assert_eq!(warmup(&mount).ok().code, 0);
                let stored = figure(&mount, "prefetch.stored_bytes");
                assert_eq!(stored, data.bytes(), "{}", mount.stats()["prefetch"]);
                let before = mount.requests();
                let order = data.shuffled(2);
                let read = |order: &[usize]| {
                    read_warm(&mount, order.iter().map(|&i| (name(i), data.samples[i])))
                };
                let (first, second) = order.split_at(order.len() / 2);
                let evicted = std::thread::scope(|scope| {
                    let other = scope.spawn(|| read(first));
                    read(second) + other.join().unwrap()
                });
                assert_not_asked(&before, &mount.requests(), evicted);
                assert_at_rest(&mount);
            });
        });
    }
}

#[test]
fn a_warmup_of_a_directory_of_directories_leaves_nothing_to_ask_either() {
    let data = Data::new(small(2000), 1);
    for_each_transport(|transport| {
        undisturbed(|| {
            let mount = mount(&data, transport, &["fanout=100"]);
            warmup(&mount).ok();
            let before = mount.requests();
            let path = |number| format!("{:03}/{}", number / 100, name(number));
            let samples = data.samples.iter().enumerate().map(|(i, bytes)| (path(i), *bytes));
            let evicted = read_warm(&mount, samples);
            assert_not_asked(&before, &mount.requests(), evicted);
        });
    });
}

#[test]
fn a_warmup_that_meets_a_corrupt_sample_names_it_and_the_others_are_fine() {
    let data = Data::new(small(1000), 1);
    let at = offsets(&data.samples)[700] + 5;
    flip_byte(&data.containers()[0], at);
    for_each_transport(|transport| {
        // A sample that the kernel forgets before its turn comes is fetched in a block, and compared when it is read.
        undisturbed(|| {
            let mount = mount(&data, transport, &[]);
            let outcome = warmup(&mount);
            assert_eq!(outcome.code, 4, "{}", outcome.stderr);
            assert!(outcome.stderr.contains("1 sample could not be fetched"), "{}", outcome.stderr);
            let bad = mount.bad();
            assert_eq!(bad.len(), 1, "{bad:?}");
            assert_eq!(bad[0][0], name(700));
            assert_errno(mount.read(name(700)), libc::EIO);
            let others: Vec<usize> = data.in_order().into_iter().filter(|&i| i != 700).collect();
            data.read(&mount, 4, &others);
            assert_eq!(mount.bad().len(), 1);
        });
    });
}

#[test]
fn a_corrupt_sample_that_was_announced_is_eio_for_its_reader_alone() {
    if !have_direct() {
        return;
    }
    for samples in [small(1000), middling(60)] {
        let data = Data::new(samples, 1);
        let corrupt = data.samples.len() / 2;
        flip_byte(&data.containers()[0], offsets(&data.samples)[corrupt] + 500);
        for_each_transport(|transport| {
            let mount = mount(&data, transport, &["io=direct"]);
            let order = data.shuffled(8);
            announce(&mount, &order);
            // Some samples are not there yet when the reading begins.
            for &number in &order {
                if number == corrupt {
                    assert_errno(mount.read(name(number)), libc::EIO);
                } else {
                    data.read_one(&mount, number);
                }
            }
            let bad = mount.bad();
            assert_eq!((bad.len(), bad[0][0].as_str()), (1, name(corrupt).as_str()), "{bad:?}");
            assert!(mount.is_served());
        });
    }
}
