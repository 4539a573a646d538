//! What `trace`, `doctor` and `stats` tell of requests to a store.

use super::*;
use crate::trace::{assert_phases_lie_in, event, page, phases};
use serde_json::Value;

fn is_get(event: &Value) -> bool {
    event["operation"] == "get"
}

#[test]
fn requests_to_the_store_are_traced_with_their_cause_range_and_phases() {
    for_each_transport(|transport| {
        let samples = even_samples(60, 110_000);
        let remote = Remote::with_samples(&samples);
        let mount = remote.mount_with(transport, &[&remote.s3("data.ffr")], &["cache=none"]);
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
        let mount = remote.mount_with(transport, &[&remote.s3("data.ffr")], &["cache=none"]);
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
        let tracer = Command::new(FFRFS)
            .args(["trace", "--seconds", "3", "--chrome"])
            .args([&*file, mount.point()])
            .spawn();
        let mut tracer = tracer.unwrap();
        let traced = || mount.info()["trace_readers"] == 1;
        wait_until("tracing begins", std::time::Duration::from_secs(30), traced);
        check(&mount, &samples, [41, 7]);
        assert!(tracer.wait().unwrap().success());
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
