//! The cache that all mounts of a node share.

use super::*;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::time::Duration;

const BLOCK: u64 = 8 << 20;

#[test]
fn a_second_mount_asks_the_store_for_no_data() {
    for_each_transport(|transport| {
        let samples = even_samples(300, 50_000);
        let remote = Remote::with_samples(&samples);
        // The store may come to a request that was sent twice only later.
        let mount = remote.data(transport, &ONCE);
        check(&mount, &samples, shuffled(300, 1));
        mount.unmount();
        remote.store.forget_requests();
        let mount = remote.data(transport, &[]);
        check(&mount, &samples, shuffled(300, 2));
        assert_eq!(remote.sent(), 0, "{:#?}", remote.store.gets());
        assert!(
            remote.store.summary().heads >= 1,
            "the store was not asked whether it is the same version"
        );
    });
}

#[test]
fn a_mount_asks_the_store_with_its_own_credentials_before_it_shows_what_is_cached() {
    for_each_transport(|transport| {
        let samples = even_samples(30, 5000);
        let remote = Remote::with_samples(&samples);
        let mount = remote.data(transport, &[]);
        check(&mount, &samples, 0..30);
        mount.unmount();
        remote.store.require_token(Some("a token that this user has not"));
        let cache = format!("cache-dir={}", remote.cache().display());
        let endpoint = format!("endpoint={}", remote.store.endpoint());
        let point = temp_dir();
        let options = [&*cache, &endpoint, "anonymous", "region=us-east-1"];
        let url = remote.s3("data.ffr");
        let outcome =
            run(&mut mount_command(transport, &[Path::new(&url)], point.path(), &options));
        clean_up(point.path(), 0);
        assert_ne!(outcome.code, 0);
        assert!(outcome.stderr.contains("403"), "{}", outcome.stderr);
    });
}

#[test]
fn what_two_urls_hold_is_not_mixed_up() {
    for_each_transport(|transport| {
        let remote = Remote::new();
        let (one, other) = (even_samples(30, 5000), samples(30, 9000));
        for (key, samples) in [("bucket/one/data.ffr", &one), ("bucket/other/data.ffr", &other)] {
            let path = container_in(&remote.cache, samples);
            remote.store.put(key, fs::read(path).unwrap());
        }
        for _ in 0..2 {
            for (key, samples) in [("one/data.ffr", &one), ("other/data.ffr", &other)] {
                for url in [remote.s3(key), remote.http(key)] {
                    let mount = remote.mount(transport, &[&url], &[]);
                    check(&mount, samples, 0..30);
                    mount.unmount();
                }
            }
        }
    });
}

#[test]
fn a_warmup_fills_the_cache_with_whole_ranges_and_reads_nothing_back() {
    for_each_transport(|transport| {
        let samples = even_samples(300, 110_000);
        let remote = Remote::with_samples(&samples);
        let mount = remote.data(transport, &ONCE);
        remote.store.forget_requests();
        let outcome = run(Command::new(FFRFS).arg("warmup").arg(mount.point())).ok();
        assert!(outcome.stderr.contains("300 samples warmed up"), "{}", outcome.stderr);
        let (gets, ranges) = (remote.store.summary().gets, (300u64 * 110_000).div_ceil(BLOCK));
        assert!(gets <= ranges + 1, "{gets} requests for {ranges} ranges of 8 MiB");
        let stats = mount.stats();
        assert_eq!(stats["prefetch"]["stored_bytes"], 0, "{stats:#}");
        remote.store.forget_requests();
        check(&mount, &samples, shuffled(300, 1));
        assert_eq!(remote.sent(), 0, "{:#?}", remote.store.gets());
    });
}

#[test]
fn a_warmup_that_finds_no_room_in_the_cache_says_so_and_ends() {
    for_each_transport(|transport| {
        let samples = even_samples(400, 110_000);
        let remote = Remote::with_samples(&samples);
        let mount = remote.data(transport, &["cache-max=20M"]);
        let outcome = run(Command::new(FFRFS).arg("warmup").arg(mount.point())).ok();
        assert!(outcome.stderr.contains("no room in this node's cache"), "{}", outcome.stderr);
        check(&mount, &samples, shuffled(400, 1));
        let again = run(Command::new(FFRFS).arg("warmup").arg(mount.point())).ok();
        assert!(again.stderr.contains("no room in this node's cache"), "{}", again.stderr);
    });
}

#[test]
fn a_warmup_ends_with_an_error_if_the_store_fails() {
    for_each_transport(|transport| {
        let samples = even_samples(100, 110_000);
        let remote = Remote::with_samples(&samples);
        let mount = remote.data(transport, &["timeout=1"]);
        remote.store.require_token(Some("a token that this user has not"));
        let outcome = run(Command::new(FFRFS).arg("warmup").arg(mount.point()));
        assert_eq!(outcome.code, 4, "{}", outcome.stderr);
        assert!(outcome.stderr.contains("could not be fetched"), "{}", outcome.stderr);
    });
}

#[test]
fn no_cache_writes_no_file() {
    for_each_transport(|transport| {
        let samples = even_samples(100, 20_000);
        let remote = Remote::with_samples(&samples);
        let home = remote.cache.path().to_owned();
        let endpoint = format!("endpoint={}", remote.store.endpoint());
        let options = ["cache=none", &endpoint, "anonymous", "region=us-east-1"];
        let url = remote.s3("data.ffr");
        let mount = Mount::started(transport, &[Path::new(&url)], &options, |mut command| {
            command.env("XDG_CACHE_HOME", &home).env("HOME", &home);
            command
        });
        check(&mount, &samples, 0..100);
        let files = walkdir::WalkDir::new(&home).into_iter().flatten();
        let data = files.filter(|entry| entry.file_type().is_file());
        let names: Vec<_> = data.map(|entry| entry.path().to_owned()).collect();
        assert!(!names.iter().any(|path| is_data(path)), "{names:?}");
    });
}

#[test]
fn a_cache_that_is_deleted_underneath_is_done_without() {
    for_each_transport(|transport| {
        let samples = even_samples(300, 50_000);
        let remote = Remote::with_samples(&samples);
        let mount = remote.data(transport, &[]);
        check(&mount, &samples, 0..100);
        // The daemon may measure the cache meanwhile, and makes its lock anew.
        wait_until("the cache is gone", Duration::from_secs(30), || {
            let _ = fs::remove_dir_all(remote.cache());
            !remote.cache().exists()
        });
        check(&mount, &samples, shuffled(300, 3));
        mount.unmount();
        let mount = remote.data(transport, &[]);
        check(&mount, &samples, shuffled(300, 4));
    });
}

#[test]
fn a_full_file_system_is_served_on_without_the_cache() {
    if !have(Need::Root) {
        return;
    }
    for_each_transport(|transport| {
        let samples = even_samples(300, 100_000);
        let remote = Remote::with_samples(&samples);
        let small = Tmpfs::new(remote.cache(), "12m");
        let mount = remote.data(transport, &[]);
        check(&mount, &samples, shuffled(300, 1));
        small.resize("100m");
        fs::write(small.point().join("filler"), vec![1; 60 << 20]).unwrap();
        small.resize("75m");
        forget_pages(&mount, 300);
        check(&mount, &samples, shuffled(300, 2));
        mount.unmount();
        let mount = remote.data(transport, &[]);
        check(&mount, &samples, shuffled(300, 3));
        mount.unmount();
    });
}

/// Whether this file of the cache holds bytes of an object.
pub(super) fn is_data(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "data")
}

#[test]
fn a_cache_of_half_of_the_data_hits_half_of_the_second_epoch() {
    for_each_transport(|transport| {
        let samples = even_samples(480, 110_000);
        let remote = Remote::new();
        let length = remote.put_samples(&samples);
        let options = [&*format!("cache-max={}", length / 2), "hedge=no", PATIENT];
        let mount = remote.data(transport, &options);
        check(&mount, &samples, shuffled(480, 1));
        forget_pages(&mount, 480);
        remote.store.forget_requests();
        check(&mount, &samples, shuffled(480, 2));
        let (sent, used) = (remote.sent(), 480 * 110_000);
        // The cache holds whole blocks of 1 MiB, of which the last may have no room.
        assert!(sent <= used * 51 / 100 + (1 << 20), "{sent} bytes of {used} were not cached");
        mount.unmount();
    });
}

#[test]
fn windows_that_are_announced_several_times_take_the_place_of_those_that_are_done() {
    for_each_transport(|transport| {
        let samples = even_samples(480, 110_000);
        let rounds: Vec<Vec<usize>> = (0..12)
            .map(|round| {
                let window = round / 3 * 120;
                shuffled(120, round as u64).into_iter().map(|sample| window + sample).collect()
            })
            .collect();
        let costs = |is_alone: bool| {
            let remote = Remote::new();
            let limit = format!("cache-max={}", remote.put_samples(&samples) / 2);
            let options = [&*limit, "hedge=no", PATIENT, "memory=4M", "rw"];
            let mount = remote.data(transport, &options);
            // Entries that another mount has open stay in the cache.
            let _other = (!is_alone).then(|| remote.data(transport, &options));
            remote.store.forget_requests();
            let lines: String =
                rounds.iter().flatten().map(|sample| format!("{sample}\n")).collect();
            let control = fs::File::options().append(true).open(mount.path(".ffrfs/prefetch"));
            control.unwrap().write_all(lines.as_bytes()).unwrap();
            for round in &rounds {
                check(&mount, &samples, round.iter().copied());
            }
            let evicted = mount.stats()["remote"]["evicted_blocks"].as_u64();
            (remote.store.summary().gets, remote.sent(), evicted.expect("a count"))
        };
        // Prefetched samples lie in the page cache until they are read, and their blocks may be evicted meanwhile: a reader
        // fetches samples that the host drops from the page cache one by one.
        undisturbed(|| {
            let ((gets, sent, evicted), (most, all, none)) = (costs(true), costs(false));
            let figures =
                format!("{gets} GETs of {sent} bytes, {evicted} blocks evicted; {most}, {all}");
            assert!(evicted > 0 && none == 0, "{figures}, {none}");
            println!("{figures}");
            assert!(gets * 5 < most && sent < all, "{figures}");
        });
    });
}

#[test]
fn daemons_of_one_node_fetch_each_block_once() {
    for_each_transport(|transport| {
        let samples = even_samples(600, 110_000);
        let gets = |daemons: u64| {
            let remote = Remote::new();
            let length = remote.put_samples(&samples);
            remote.store.rule(Rule::gets(Fault::Latency { median_ms: 20.0, sigma: 0.3 }));
            let mounts: Vec<_> = (0..daemons).map(|_| remote.data(transport, &ONCE)).collect();
            remote.store.forget_requests();
            std::thread::scope(|scope| {
                for (daemon, mount) in mounts.iter().enumerate() {
                    let samples = &samples;
                    scope.spawn(move || {
                        let order = shuffled(600, daemon as u64);
                        announce(mount, &order);
                        check(mount, samples, order);
                    });
                }
            });
            let (summary, blocks) = (remote.store.summary(), length.div_ceil(BLOCK));
            let ranges: Vec<_> = remote.store.gets().into_iter().map(|get| get.range).collect();
            (summary.gets, summary.sent_bytes, length, blocks, ranges)
        };
        let (one, ..) = gets(1);
        let (four, sent, length, blocks, ranges) = gets(4);
        assert!(
            four <= one + one.div_ceil(50),
            "{four} GETs of four daemons, {one} of one: {ranges:?}"
        );
        assert!(sent <= length + length / 50, "{sent} bytes of {length} in {blocks} blocks");
    });
}

#[test]
fn a_confined_daemon_of_root_keeps_the_right_to_the_files_of_others_in_a_shared_cache() {
    /// A group to which root does not belong.
    const GROUP: u32 = 65_533;
    const DAC_OVERRIDE: u64 = 1 << 1;
    if !have(Need::Root) {
        return;
    }
    for_each_transport(|transport| {
        let samples = even_samples(3, 5000);
        let remote = Remote::with_samples(&samples);
        fs::create_dir(remote.cache()).unwrap();
        chown(remote.cache(), None, Some(GROUP)).unwrap();
        fs::set_permissions(remote.cache(), fs::Permissions::from_mode(0o2770)).unwrap();
        let mount = remote.data(transport, &["sandbox=auto"]);
        let status = fs::read_to_string(format!("/proc/{}/status", mount.pid())).unwrap();
        let kept = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        let kept = u64::from_str_radix(kept.trim(), 16).unwrap();
        assert_ne!(kept & DAC_OVERRIDE, 0, "{status}");
        check(&mount, &samples, 0..3);
    });
}
