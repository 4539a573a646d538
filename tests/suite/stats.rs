//! `ffrfs stats`: the table, JSON, and lines every so often.

use crate::common::{
    FFRFS, Mount, Need, Transport, container_in, ffrfs, for_each_transport, have, noise,
    own_namespace, samples, temp_dir, wait_until,
};
use indicatif::{HumanBytes, HumanCount};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

fn mount(transport: Transport) -> Mount {
    let samples: Vec<_> = (0..20).map(|seed| noise(seed, 50_000)).collect();
    let mount = Mount::with_samples(transport, &samples, &[]);
    (0..20).for_each(|sample| drop(mount.read(format!("{sample:06}")).unwrap()));
    // A read may be counted just after it is answered.
    let is_counted = || mount.stats()["bytes_served"].as_u64() >= Some(20 * 50_000);
    wait_until("all reads are counted", LIMIT, is_counted);
    mount
}

#[test]
fn a_mount_point_that_is_no_text_hides_no_mount() {
    // Programs of other tests read the table of mounts as text.
    if !have(Need::Root) {
        return;
    }
    own_namespace();
    for_each_transport(|transport| {
        let directory = temp_dir();
        let container = container_in(&directory, &samples(3, 1_000));
        let point = directory.path().join(OsStr::from_bytes(b"m\xff"));
        fs::create_dir(&point).unwrap();
        let mount = Mount::at(transport, &[&container], &[], directory, point);
        let shown = mount.point().to_string_lossy();
        let all: Value = serde_json::from_str(&ffrfs(&["list", "--json"]).ok().text()).unwrap();
        assert!(all.as_array().unwrap().iter().any(|row| row["mountpoint"] == *shown), "{all}");
        let args = ["stats".as_ref(), "--json".as_ref(), mount.point().as_os_str()];
        let one: Value = serde_json::from_str(&ffrfs(&args).ok().text()).unwrap();
        assert_eq!(one["mountpoint"], *shown);
        mount.unmount();
    });
}

#[test]
fn the_table_tells_what_the_mount_has_done() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let counted = || {
            let stats = mount.stats();
            ["bytes_served", "samples_verified"].map(|name| stats[name].as_u64().unwrap())
        };
        let (mut figures, mut text) = ([0; 2], String::new());
        // Samples may be fetched ahead after the last read.
        wait_until("all is counted", LIMIT, || {
            figures = counted();
            text = ffrfs(&["stats".as_ref(), mount.point().as_os_str()]).ok().text();
            figures == counted()
        });
        let [served, verified] = figures;
        assert!(served > 0 && verified > 0, "{text}");
        let row = |name: &str| {
            let found = text.lines().find(|line| line.starts_with(name));
            found.unwrap_or_else(|| panic!("no {name:?} in: {text}"))
        };
        assert!(row("dataset").contains("20 samples"), "{text}");
        // Not always the figures of one read of each sample: some may be read ahead, or read once more.
        assert_eq!(row("served"), format!("{:<15}{}", "served", HumanBytes(served)), "{text}");
        assert!(row("transport").contains(mount.info()["transport"].as_str().unwrap()), "{text}");
        assert!(row("bad").ends_with("none"), "{text}");
        let says = format!("{:<15}{} sample", "verified", HumanCount(verified));
        assert!(row("verified").starts_with(&says), "{text}");
        assert!(row("lookup").contains("≤"), "{text}");
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= 110, "{longest}: {text}");
    });
}

#[test]
fn json_is_one_object_with_what_the_control_files_say() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let args = ["stats".as_ref(), "--json".as_ref(), mount.point().as_os_str()];
        let mut report = Value::Null;
        // Samples may be fetched ahead after the last read.
        wait_until("both say the same", LIMIT, || {
            report = serde_json::from_slice(&ffrfs(&args).ok().stdout).unwrap();
            let stats = mount.stats();
            let mut names =
                ["bytes_served", "bytes_fetched", "cache", "blocks", "bad_samples"].iter();
            names.all(|name| !stats[name].is_null() && report["stats"][name] == stats[name])
        });
        assert_eq!(report["info"], mount.info());
        assert_eq!(report["mountpoint"].as_str(), mount.point().to_str());
    });
}

#[test]
fn watching_tells_what_was_done_since_the_line_before() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let mut child = Command::new(FFRFS)
            .args(["stats", "--watch", "0.3", "--json"])
            .arg(mount.point())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let lines: Vec<Value> =
            lines.take(2).map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines {
            assert_eq!(line["stats"]["bytes_served"], 0, "nobody reads now");
            let seconds = line["stats"]["uptime_seconds"].as_f64().unwrap();
            assert!((0.25..20.0).contains(&seconds), "{seconds}");
        }
    });
}

#[test]
fn watching_ends_when_the_mount_is_unmounted_and_says_only_that() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let point = mount.point().to_owned();
        let mut command = Command::new(FFRFS);
        command.args(["stats", "--watch", "0.3", "--json"]).arg(&point);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Stays open until the end: else the lines would have no reader.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        mount.unmount();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(5), "{said}");
        assert_eq!(said, format!("ffrfs: {}: it was unmounted\n", point.display()));
    });
}

#[test]
fn what_is_no_mount_is_said() {
    let outcome = ffrfs(&["stats", "/proc"]);
    assert_eq!(outcome.code, 5);
    assert!(
        outcome.stderr.contains("/proc") && outcome.stderr.contains("no dataset"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn all_mounts_are_listed_with_their_source_and_what_they_have_done() {
    // A list opens all mounts for a moment, so that those of other tests could not be unmounted.
    own_namespace();
    for_each_transport(|transport| {
        let mount = mount(transport);
        let point = mount.point().to_str().unwrap().to_owned();
        for command in ["list", "stats"] {
            let text = ffrfs(&[command]).ok().text();
            assert!(text.starts_with("SOURCE") && text.contains("MOUNT POINT"), "{text}");
            let line = text.lines().find(|line| line.contains(&point)).expect("its line");
            assert!(line.contains("data.ffr"), "{line}");
            let json = ffrfs(&[command, "--json"]).ok();
            let all: Value = serde_json::from_slice(&json.stdout).unwrap();
            let ours = all.as_array().unwrap().iter().find(|one| one["mountpoint"] == point);
            let ours = ours.expect("its object");
            assert_eq!((&ours["state"], &ours["bad_samples"]), (&"serving".into(), &0.into()));
            assert!(ours["requests"].as_u64().unwrap() >= 20, "{ours}");
            assert_eq!(ours["transport"], mount.info()["transport"]);
        }
    });
    assert_eq!(ffrfs(&["stats", "--watch", "1"]).code, 1);
}

#[test]
fn the_list_says_of_a_mount_that_its_container_has_changed() {
    own_namespace();
    for_each_transport(|transport| {
        let line = |mount: &Mount| {
            let (text, point) = (ffrfs(&["list"]).ok().text(), mount.point().to_str().unwrap());
            text.lines().find(|line| line.contains(point)).expect("its line").to_owned()
        };
        let directory = temp_dir();
        let source = container_in(&directory, &samples(20, 5000));
        let mount = Mount::new(transport, &source, &[]);
        fs::write(&source, vec![1; 200_000]).unwrap();
        let point = mount.path("000001");
        wait_until("it is noticed", LIMIT, || fs::read(&point).is_err());
        assert!(line(&mount).ends_with("1 container"), "{}", line(&mount));
    });
}
