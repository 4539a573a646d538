//! The fastest request is one that is never sent: the kernel does not ask again for what it was told once.

use crate::common::{
    Held, Mount, Need, Transport, fixture, for_each_transport, have, python, samples, undisturbed,
};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// The requests that `what` sends to the daemon.
fn requests_of(mount: &Mount, what: impl FnOnce()) -> BTreeMap<String, u64> {
    let before = mount.requests();
    what();
    let mut after = mount.requests();
    for (kind, count) in &before {
        *after.get_mut(kind).expect("the same kinds") -= count;
    }
    after.retain(|_, count| *count > 0);
    after
}

/// Checks that `what` sends no request the second time. The kernel may evict what it holds, and then asks for it as it did
/// the first time: then `what` is done once more.
#[track_caller]
fn second_time_is_free(mount: &Mount, what: impl Fn()) {
    let first = requests_of(mount, &what);
    assert!(!first.is_empty(), "the first time asked nothing: the test is wrong");
    undisturbed(|| {
        let mut second = BTreeMap::new();
        for _ in 0..10 {
            second = requests_of(mount, &what);
            if second.is_empty() && requests_of(mount, &what).is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the first time: {first:?}, each time after it, the last time: {second:?}");
    });
}

/// On a mount that can be written, the kernel drops a file's time of access when it reads the file: see below.
const READ_ONLY: &str = "ro";

fn mount(transport: Transport, options: &[&str]) -> Mount {
    let options = [options, &[READ_ONLY]].concat();
    Mount::with_samples(transport, &samples(100, 20_000), &options)
}

#[test]
fn without_ro_a_file_is_asked_once_for_its_attributes_after_it_was_read() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples(100, 20_000), &[]);
        let read_all = || {
            for number in 0..100 {
                mount.read(format!("{number:06}")).unwrap();
            }
        };
        read_all();
        // The host takes no page of these files.
        let held = |number| Held::new(&mount.path(format!("{number:06}")));
        let _held: Vec<Held> = (0..100).map(held).collect();
        let second = requests_of(&mount, read_all);
        assert!(second.keys().all(|kind| kind == "getattr"), "{second:?}");
        assert!(second.values().all(|&count| count <= 100), "{second:?}");
        assert!(requests_of(&mount, read_all).is_empty());
    });
}

#[test]
fn a_second_read_of_a_file_asks_nothing() {
    for_each_transport(|transport| {
        let mount = mount(transport, &[]);
        let read_all = || {
            for number in 0..100 {
                mount.read(format!("{number:06}")).unwrap();
            }
        };
        second_time_is_free(&mount, read_all);
    });
}

#[test]
fn a_second_read_through_another_descriptor_and_at_other_offsets_asks_nothing() {
    for_each_transport(|transport| {
        let mount = mount(transport, &[]);
        let name = (0..100).map(|number| format!("{number:06}"));
        let largest =
            name.max_by_key(|name| fs::metadata(mount.path(name)).unwrap().len()).unwrap();
        mount.read(&largest).unwrap();
        // The host takes no page of this file.
        let _held = Held::new(&mount.path(&largest));
        let asked = requests_of(&mount, || {
            let mut buffer = [0; 777];
            for offset in [0, 1, 5_000, 4_096, 19_000] {
                File::open(mount.path(&largest)).unwrap().read_at(&mut buffer, offset).unwrap();
            }
        });
        assert!(asked.is_empty(), "{asked:?}");
    });
}

#[test]
fn a_second_stat_asks_nothing() {
    for_each_transport(|transport| {
        let mount = mount(transport, &[]);
        second_time_is_free(&mount, || {
            for number in 0..100 {
                fs::metadata(mount.path(format!("{number:06}"))).unwrap();
            }
            fs::metadata(mount.point()).unwrap();
        });
    });
}

#[test]
fn a_second_look_for_what_is_not_there_asks_nothing() {
    for_each_transport(|transport| {
        let mount = mount(transport, &[]);
        second_time_is_free(&mount, || {
            for name in ["000100", "0", "x.jpg", "no directory/000000"] {
                fs::metadata(mount.path(name)).unwrap_err();
            }
        });
    });
}

#[test]
fn a_second_listing_asks_nothing() {
    for_each_transport(|transport| {
        let mount = mount(transport, &[]);
        second_time_is_free(&mount, || assert_eq!(mount.list("").len(), 100));
        let fanned = self::mount(transport, &["fanout=10"]);
        second_time_is_free(&fanned, || {
            for directory in fanned.list("") {
                assert_eq!(fanned.list(&directory).len(), 10);
            }
        });
    });
}

#[test]
fn a_listing_with_attributes_leaves_nothing_to_look_up() {
    for_each_transport(|transport| {
        undisturbed(|| {
            let mount = mount(transport, &[]);
            let stat_all = || {
                for entry in fs::read_dir(mount.point()).unwrap() {
                    entry.unwrap().metadata().unwrap();
                }
            };
            let first = requests_of(&mount, stat_all);
            let lookups = first.get("lookup").copied().unwrap_or(0);
            assert!(lookups < 100, "{first:?}");
            let second = requests_of(&mount, stat_all);
            assert!(second.is_empty(), "{second:?}");
        });
    });
}

#[test]
fn a_walk_over_a_tree_is_free_the_second_time() {
    for_each_transport(|transport| {
        let mount = Mount::new(transport, fixture("packed_folder.ffr"), &[READ_ONLY]);
        fn walk(directory: &Path) {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if fs::metadata(&path).unwrap().is_dir() {
                    walk(&path);
                } else {
                    fs::read(&path).unwrap();
                }
            }
        }
        second_time_is_free(&mount, || walk(mount.point()));
    });
}

#[test]
fn open_opendir_and_flush_are_asked_once_at_most() {
    for_each_transport(|transport| {
        let mount = mount(transport, &["fanout=10"]);
        for directory in mount.list("") {
            for name in mount.list(&directory) {
                mount.read(Path::new(&directory).join(name)).unwrap();
            }
        }
        let requests = mount.requests();
        for kind in ["open", "opendir", "flush", "access", "lseek"] {
            assert!(requests[kind] <= 1, "{kind}: {requests:?}");
        }
        assert_eq!(requests["other"], 0, "{requests:?}");
        let reads: u64 = requests["read"];
        assert!(reads <= 110, "a small file takes one request: {requests:?}");
    });
}

#[test]
fn control_files_are_asked_for_every_time_and_counted_apart() {
    for_each_transport(|transport| {
        let mount = mount(transport, &[]);
        mount.stats();
        let (first, asked) = (mount.stats(), mount.requests());
        assert_eq!(mount.requests(), asked);
        let last = mount.stats();
        let control = |stats: &serde_json::Value| stats["control_requests"].as_u64().unwrap();
        assert!(control(&last) > control(&first));
    });
}

#[test]
fn what_was_announced_with_fadvise_is_read_ahead() {
    if !have(Need::Python("os")) {
        return;
    }
    const ADVISE: &str = "
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
";
    for_each_transport(|transport| {
        undisturbed(|| {
            let mount = Mount::with_samples(transport, &[[9; 100_000]], &[READ_ONLY]);
            python(ADVISE, &[mount.path("000000")]).ok();
            crate::common::wait_until("it is read", std::time::Duration::from_secs(30), || {
                mount.stats()["bytes_served"] == 100_000
            });
            let asked =
                requests_of(&mount, || assert_eq!(mount.read("000000").unwrap(), [9; 100_000]));
            assert!(asked.is_empty(), "{asked:?}");
        });
    });
}

#[test]
fn counters_and_latencies_add_up() {
    for_each_transport(|transport| {
        undisturbed(|| {
            let mount = mount(transport, &[]);
            let names = mount.list("");
            let bytes: u64 = names.iter().map(|name| mount.read(name).unwrap().len() as u64).sum();
            mount.requests();
            let stats = mount.stats();
            assert_eq!(stats["bytes_served"], bytes);
            assert_eq!(stats["bytes_fetched"], bytes);
            // One of the samples is empty, and is not read.
            assert!(stats["samples_verified"].as_u64().unwrap() >= 99, "{stats}");
            assert_eq!(stats["checksum_failures"], 0);
            let buckets = stats["latency_us"]["read"]["count"].as_array().unwrap();
            let sum: u64 = buckets.iter().map(|count| count.as_u64().unwrap()).sum();
            assert_eq!(sum, stats["requests"]["read"]);
            let bounds = stats["latency_us"]["read"]["le"].as_array().unwrap();
            assert_eq!(bounds.len() + 1, buckets.len());
            assert!(stats["uptime_seconds"].as_f64().unwrap() > 0.0);
        });
    });
}
