//! The output of `trace`, `doctor` and `stats` about requests to a store.

use super::*;
use crate::metrics::ask;
use crate::trace::{Tracer, assert_phases_lie_in, event, page, phases};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn is_get(event: &Value) -> bool {
    event["operation"] == "get"
}

#[test]
fn requests_to_the_store_are_traced_with_their_cause_range_and_phases() {
    for_each_transport(|transport| {
        let samples = even_samples(60, 110_000);
        let remote = Remote::with_samples(&samples);
        let options = ["cache=none", "hedge=no"];
        let mount = remote.mount_with(transport, &[&remote.s3("data.ffr")], &options);
        page(&mount);
        remote.store.forget_requests();
        remote.store.rule(Rule::gets(Fault::Stall { ms: 40 }));
        check(&mount, &samples, [41]);
        let get = event(&mount, is_get);
        assert_phases_lie_in(&get);
        assert!(phases(&get).starts_with(&["queue", "first-byte"]), "{get}");
        assert!(phases(&get).ends_with(&["body"]), "{get}");
        let of_first_byte = |phase: &&Value| phase["name"] == "first-byte";
        let waited = get["phases"].as_array().unwrap().iter().find(of_first_byte).unwrap();
        assert!(waited["duration_ns"].as_u64().unwrap() >= 35_000_000, "{get}");
        assert_eq!(get["container"], remote.s3("data.ffr"));
        assert_eq!(get["store"]["attempt"], 1);
        assert_eq!((&get["store"]["cause"], &get["errno"]), (&"demand".into(), &0.into()));
        let asked = remote.store.gets()[0].clone();
        let range = asked.range.expect("a range");
        assert_eq!(get["offset"], range.start);
        assert_eq!((&get["length"], &get["bytes"]), (&get["bytes"], &get["length"]));
        assert_eq!(get["length"], range.end - range.start);
    });
}

#[test]
fn the_read_that_waits_for_the_store_and_each_retry_are_traced() {
    for_each_transport(|transport| {
        let samples = even_samples(60, 110_000);
        let remote = Remote::with_samples(&samples);
        let options = ["cache=none", "hedge=no"];
        let mount = remote.mount_with(transport, &[&remote.s3("data.ffr")], &options);
        page(&mount);
        remote.store.rule(Rule::gets(Fault::Status { status: 503, retry_after: None }).times(1));
        check(&mount, &samples, [41]);
        let mut events = Vec::new();
        wait_until("all is traced", std::time::Duration::from_secs(30), || {
            events.extend(page(&mount).1);
            let waits = |event: &Value| {
                event["operation"] == "read"
                    && phases(event).iter().any(|p| *p == "store" || *p == "wait")
            };
            events.iter().filter(|event| is_get(event)).count() >= 2 && events.iter().any(waits)
        });
        let gets: Vec<_> = events.iter().filter(|event| is_get(event)).collect();
        assert_eq!(
            (&gets[0]["store"]["attempt"], &gets[0]["errno"]),
            (&1.into(), &libc::EIO.into())
        );
        let why = gets[0]["store"]["error"].as_str().unwrap();
        assert!(why.contains("status 503") && why.contains("data.ffr"), "{why}");
        assert_eq!((&gets[1]["store"]["attempt"], &gets[1]["errno"]), (&2.into(), &0.into()));
    });
}

#[test]
fn a_trace_for_perfetto_has_tracks_of_requests_to_the_store() {
    for_each_transport(|transport| {
        let samples = even_samples(60, 110_000);
        let remote = Remote::with_samples(&samples);
        let mount = remote.mount_with(transport, &[&remote.s3("data.ffr")], &["cache=none"]);
        let file = mount.scratch().join("trace.json");
        let mut tracer = Tracer::new(&mount, &["--chrome", file.to_str().unwrap()]);
        page(&mount);
        check(&mount, &samples, [41, 7]);
        // A request may be noted just after a reader has its bytes.
        event(&mount, is_get);
        assert_eq!(tracer.interrupt(), 0);
        let trace: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let records = trace["traceEvents"].as_array().unwrap();
        let gets: Vec<_> = records.iter().filter(|record| record["name"] == "get").collect();
        assert!(!gets.is_empty(), "{records:#?}");
        let named = |record: &Value, name: &str| record["args"]["name"] == name;
        let track = records.iter().find(|record| named(record, "store 1")).expect("a track");
        for get in gets {
            assert_eq!(get["pid"], mount.pid());
            assert_eq!(get["args"]["cause"], "demand");
        }
        assert!(track["tid"].as_u64().unwrap() > 1_000_000);
    });
}

/// The checks of `ffrfs doctor` for a mount.
fn doctor(mount: &Mount) -> Vec<Value> {
    let mut command = Command::new(FFRFS);
    let outcome = run(command.args(["doctor", "--json", "--seconds", "2"]).arg(mount.point()));
    serde_json::from_slice(&outcome.stdout).expect("JSON")
}

/// The check whose name ends with `name`.
#[track_caller]
fn find<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    let is_it = |check: &&Value| check["check"].as_str().unwrap().ends_with(name);
    checks.iter().find(is_it).unwrap_or_else(|| panic!("no {name:?} in {checks:#?}"))
}

#[test]
fn the_doctor_names_the_store_that_readers_wait_for_and_a_cache_that_is_not_used() {
    for_each_transport(|transport| {
        let samples = even_samples(60, 110_000);
        let remote = Remote::with_samples(&samples);
        let mount = remote.mount_with(transport, &[&remote.s3("data.ffr")], &["cache=none"]);
        remote.store.rule(Rule::gets(Fault::Stall { ms: 100 }));
        let is_done = AtomicBool::new(false);
        let names_store = |checks: &[Value]| {
            find(checks, ": bottleneck")["found"].as_str().unwrap().starts_with("the store: ")
        };
        let checks = std::thread::scope(|scope| {
            for reader in 0..8 {
                let (mount, samples, is_done) = (&mount, &samples, &is_done);
                scope.spawn(move || {
                    for sample in (0..60).cycle().skip(7 * reader).step_by(7) {
                        if is_done.load(Ordering::Relaxed) {
                            return;
                        }
                        check(mount, samples, [sample]);
                        drop_cached(&fs::File::open(mount.path(name(sample))).unwrap());
                    }
                });
            }
            // On a busy host the CPU may be short for a while. No `wait_until`: if that panics, the
            // readers go on.
            let end = Instant::now() + Duration::from_secs(60);
            let mut checks = doctor(&mount);
            while !names_store(&checks) && Instant::now() < end {
                checks = doctor(&mount);
            }
            is_done.store(true, Ordering::Relaxed);
            checks
        });
        let bottleneck = find(&checks, ": bottleneck");
        assert!(names_store(&checks), "{bottleneck:#}");
        assert!(bottleneck["advice"].as_str().unwrap().contains("cache-dir="), "{bottleneck:#}");
        let store = find(&checks, ": store")["found"].as_str().unwrap();
        assert!(store.contains("GET/s") && store.contains("first byte p50"), "{store}");
        let cache = find(&checks, ": cache on disk");
        assert_eq!(cache["state"], "note");
        assert!(cache["found"].as_str().unwrap().contains("cache=none"), "{cache:#}");
    });
}

#[test]
fn a_cache_directory_that_cannot_be_used_is_named_with_the_reason() {
    for_each_transport(|transport| {
        let samples = even_samples(4, 10_000);
        let remote = Remote::with_samples(&samples);
        let file = remote.cache.path().join("file");
        fs::write(&file, "no directory").unwrap();
        let option = format!("cache-dir={}", file.display());
        let mount = remote.mount_with(transport, &[&remote.s3("data.ffr")], &[&option]);
        check(&mount, &samples, 0..4);
        let why = mount.stats()["remote"]["disk_cache"]["unused_because"].to_string();
        assert!(why.contains("file"), "{why}");
        let checks = doctor(&mount);
        let cache = find(&checks, ": cache on disk");
        assert_eq!(cache["state"], "note", "{cache:#}");
        let stats = run(Command::new(FFRFS).arg("stats").arg(mount.point())).text();
        assert!(stats.contains("cache on disk: none ("), "{stats}");
    });
}

#[test]
fn bytes_that_the_cache_gives_count_as_used() {
    for_each_transport(|transport| {
        let samples = even_samples(60, 110_000);
        let remote = Remote::with_samples(&samples);
        let mount = remote.data(transport, &[]);
        let warm = run(Command::new(FFRFS).arg("warmup").arg(mount.point()));
        warm.ok();
        forget_pages(&mount, 60);
        check(&mount, &samples, 0..60);
        let remote = &mount.stats()["remote"];
        let (fetched, used) = (remote["fetched_bytes"].as_u64(), remote["used_bytes"].as_u64());
        let (fetched, used) = (fetched.unwrap(), used.unwrap());
        assert!(used >= 60 * 110_000, "{remote:#}");
        assert!(fetched <= used + used / 10, "each byte is fetched once: {remote:#}");
    });
}

#[test]
fn every_metric_of_stores_is_in_the_manual_and_there() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/remote.md");
    let manual = fs::read_to_string(manual).unwrap();
    let named: Vec<_> = manual.split('`').filter(|word| word.starts_with("ffrfs_")).collect();
    for_each_transport(|transport| {
        let samples = even_samples(4, 10_000);
        let remote = Remote::with_samples(&samples);
        let socket = remote.cache.path().join("metrics");
        let mount = remote.data(transport, &[&format!("metrics=unix:{}", socket.display())]);
        check(&mount, &samples, 0..4);
        let page = ask(&socket, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let families: Vec<_> = families.filter_map(|line| line.split(' ').next()).collect();
        for name in &named {
            assert!(families.contains(name), "{name} is not in {families:?}");
        }
        for family in families {
            let is_of_stores =
                ["ffrfs_store_", "ffrfs_disk_cache_"].iter().any(|begin| family.starts_with(begin));
            assert!(!is_of_stores || named.contains(&family), "{family} is not in the manual");
        }
    });
}

#[test]
fn the_cache_lists_the_hit_rates_of_mounts_that_have_ended() {
    for_each_transport(|transport| {
        let samples = even_samples(60, 110_000);
        let remote = Remote::with_samples(&samples);
        let mount = remote.data(transport, &[]);
        for _ in 0..2 {
            check(&mount, &samples, 0..60);
            forget_pages(&mount, 60);
        }
        mount.unmount();
        let list = |args: &[&str]| {
            let mut command = Command::new(FFRFS);
            command.args(["cache", "ls"]).args(args).arg("--cache-dir").arg(remote.cache());
            run(&mut command).ok().text()
        };
        let mut object = Value::Null;
        wait_until("the daemon has ended", std::time::Duration::from_secs(30), || {
            let listed = list(&["--json", &remote.s3("data.ffr")]);
            object = serde_json::from_str::<Value>(&listed).unwrap()["objects"][0].clone();
            object["users"] == 0
        });
        let (hits, misses) = (object["hits"].as_u64().unwrap(), object["misses"].as_u64().unwrap());
        assert!(hits > 0 && misses > 0, "{object:#}");
        let rate = format!(" {}% ", hits * 100 / (hits + misses));
        assert!(list(&[]).contains(&rate), "{rate:?} is not in {}", list(&[]));
    });
}

#[test]
fn what_was_mounted_until_now_counts_as_used_now() {
    let samples = even_samples(4, 10_000);
    let remote = Remote::with_samples(&samples);
    for_each_transport(|transport| {
        let mount = remote.data(transport, &[]);
        check(&mount, &samples, 0..4);
        let entries = remote.cache().join("objects/entries");
        let is_meta =
            |entry: &fs::DirEntry| entry.path().extension().is_some_and(|end| end == "meta");
        let meta = fs::read_dir(entries).unwrap().flatten().find(is_meta).expect("an entry").path();
        let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(86_400);
        fs::File::options().write(true).open(&meta).unwrap().set_modified(long_ago).unwrap();
        mount.unmount();
        wait_until("it is noted", std::time::Duration::from_secs(30), || {
            let modified = fs::metadata(&meta).unwrap().modified().unwrap();
            modified.elapsed().unwrap_or_default().as_secs() < 3600
        });
    });
}

#[test]
fn a_container_in_a_store_is_benchmarked_with_mount_options() {
    if !have(Need::Fuse) {
        return;
    }
    let remote = Remote::with_samples(&even_samples(30, 20_000));
    let endpoint = format!("endpoint={}", remote.store.endpoint());
    let mut command = Command::new(FFRFS);
    command.args([
        "bench",
        &remote.s3("data.ffr"),
        "--rounds=1",
        "--seconds=60",
        "--mode=shuffled",
    ]);
    for option in [&*endpoint, "anonymous", "region=us-east-1", "cache=none"] {
        command.args(["-O", option]);
    }
    let rows = run(command.arg("--json")).ok().text();
    let rows: Value = serde_json::from_str(&rows).unwrap();
    assert_eq!(rows[0]["first"][0]["files"], 30, "{rows:#}");
    assert!(remote.sent() >= 600_000);
}
