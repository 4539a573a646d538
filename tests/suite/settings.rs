//! Settings that are changed while the dataset is mounted: `ffrfs set` and `.ffrfs/settings`.

use crate::common::{
    Mount, Outcome, Transport, assert_errno, ffrfs, for_each_transport, noise, offsets, run,
    wait_until,
};
use crate::user::{Sandbox, have_sandbox};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SETTINGS: &str = ".ffrfs/settings";

fn samples() -> Vec<Vec<u8>> {
    (0..400).map(|seed| noise(seed, 100_000)).collect()
}

fn mount(transport: Transport, options: &[&str]) -> Mount {
    Mount::with_samples(transport, &samples()[..8], options)
}

fn set(mount: &Mount, settings: &[&str]) -> Outcome {
    let point = mount.point().to_str().expect("UTF-8");
    ffrfs(&[&["set", point], settings].concat())
}

fn settings(mount: &Mount) -> Value {
    serde_json::from_slice(&mount.read(SETTINGS).expect("settings")).expect("JSON")
}

#[test]
fn what_changes_is_printed_and_holds() {
    for_each_transport(|transport| {
        let mount = mount(transport, &["memory=512M"]);
        let shown = set(&mount, &[]).ok().text();
        assert_eq!(shown, "verify=always\nmemory=512M\ncache_size=320M\nlog_level=info\n");
        let said = set(&mount, &["verify=once", "memory=1G", "log_level=debug"]).ok().text();
        assert_eq!(
            said,
            "verify=once (was always)\nmemory=1G (was 512M)\ncache_size=768M (was 320M)\n\
             log_level=debug (was info)\n"
        );
        assert_eq!(set(&mount, &["verify=once", "memory=1024M"]).ok().text(), "", "as it was");
        let cap = 768 << 20;
        let expected = json!({
            "verify": "once", "memory": 1 << 30, "cache_size": cap, "log_level": "debug",
        });
        assert_eq!(settings(&mount), expected);
        assert_eq!(mount.info()["verify"], "once");
        assert_eq!(mount.info()["cache_size_bytes"], cap);
        assert_eq!(mount.stats()["cache"]["capacity_bytes"], cap);
        // If both are given, the size of the cache does not follow from the memory.
        set(&mount, &["cache-size=5M", "memory=256M"]).ok();
        assert_eq!(set(&mount, &[]).text().lines().nth(2), Some("cache_size=5M"));
        // Printed lines can be given as arguments.
        let lines = set(&mount, &[]).text();
        assert_eq!(set(&mount, &lines.lines().collect::<Vec<_>>()).ok().text(), "");
    });
}

#[test]
fn nothing_changes_if_one_setting_is_wrong() {
    for_each_transport(|transport| {
        let mount = mount(transport, &[]);
        let before = settings(&mount);
        for (wrong, words) in [
            ("verify=sometimes", &["sometimes", "once"][..]),
            ("memory=1X", &["1X", "256M"]),
            ("memory=1K", &["memory=1K", "at least"]),
            ("cache_size=1G", &["cache_size=1G", "a part of memory, which is 512M"]),
            ("log_level=", &["log_level", "trace"]),
            ("transport=devfuse", &["transport", "mount again", "cache_size"]),
            ("allow-other=1", &["allow-other", "mount again"]),
            ("colour=red", &["colour", "not a setting", "verify"]),
            ("once", &["NAME=VALUE"]),
        ] {
            let outcome = set(&mount, &["verify=off", "log_level=trace", wrong]);
            assert_eq!(outcome.code, 1, "{wrong}: {}", outcome.stderr);
            for word in words {
                assert!(outcome.stderr.contains(word), "{wrong}: {word}: {}", outcome.stderr);
            }
            let mut after = settings(&mount);
            after.as_object_mut().unwrap().remove("refused");
            assert_eq!(after, before, "{wrong}");
        }
    });
}

#[test]
fn samples_are_checked_as_is_said_last() {
    for_each_transport(|transport| {
        let mount = mount(transport, &[]);
        let (expected, places) = (samples(), offsets(&samples()[..8]));
        set(&mount, &["verify=off"]).ok();
        (1..4).for_each(|sample| mount.flip_byte(places[sample] + 5));
        assert_ne!(mount.read("000001").expect("unchecked"), expected[1]);
        set(&mount, &["verify=once"]).ok();
        assert_errno(mount.read("000002"), libc::EIO);
        set(&mount, &["verify=always"]).ok();
        assert_errno(mount.read("000003"), libc::EIO);
        assert_eq!(mount.read("000004").unwrap(), expected[4]);
    });
}

fn resident_bytes(mount: &Mount) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", mount.pid())).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn less_memory_frees_memory_and_more_is_used() {
    for_each_transport(|transport| {
        let samples = samples();
        let mount = Mount::with_samples(transport, &samples, &["cache_size=64M", "rw"]);
        let held = || mount.stats()["cache"]["bytes"].as_u64().expect("a number");
        // Announces numbers: the kernel does not know these files, so the daemon keeps the samples that it fetches.
        let numbers: String = (0..400).map(|number| format!("{number}\n")).collect();
        let announce = || fs::write(mount.path(".ffrfs/prefetch"), &numbers);
        announce().unwrap();
        wait_until("much is held", Duration::from_secs(30), || held() > 28 << 20);
        let before = resident_bytes(&mount);
        set(&mount, &["cache_size=4M"]).ok();
        assert!(held() <= 4 << 20, "{}", held());
        let after = resident_bytes(&mount);
        assert!(before.saturating_sub(after) > 20 << 20, "{before} bytes, then {after}");
        for number in [0, 7, 399] {
            assert_eq!(mount.read(format!("{number:06}")).unwrap(), samples[number]);
        }
        set(&mount, &["cache_size=128M"]).ok();
        announce().unwrap();
        wait_until("more is held", Duration::from_secs(30), || held() > 28 << 20);
        assert_eq!(mount.read("000250").unwrap(), samples[250]);
    });
}

#[test]
fn the_log_follows_its_level() {
    for_each_transport(|transport| {
        let mount = mount(transport, &["log_level=warn"]);
        set(&mount, &["memory=300M"]).ok();
        assert_eq!(mount.log(), "");
        set(&mount, &["log_level=info"]).ok();
        assert!(mount.log().contains("log_level=info (was warn)"), "{}", mount.log());
    });
}

#[test]
fn the_shell_and_programs_write_settings_and_read_why_not() {
    for_each_transport(|transport| {
        let mount = mount(transport, &["rw"]);
        let shell = |script: &str| {
            run(Command::new("sh").arg("-c").arg(script).current_dir(mount.point())).code
        };
        assert_eq!(shell("echo verify=once > .ffrfs/settings"), 0);
        assert_eq!(shell("printf 'memory=1G\\n\\n cache_size = 7M' >> .ffrfs/settings"), 0);
        assert_eq!(settings(&mount)["verify"], "once");
        assert_eq!(settings(&mount)["cache_size"], 7 << 20);
        assert_ne!(shell("echo cache_size=lots > .ffrfs/settings"), 0);
        let refused = settings(&mount)["refused"].to_string();
        assert!(refused.contains("lots"), "{refused}");
        let mut file = File::options().write(true).open(mount.path(SETTINGS)).unwrap();
        for wrong in [&b"verify"[..], b"verify=\xff", b"a=b=c", &[0; 4096], &[b'x'; 1 << 20]] {
            assert_errno(file.write(wrong), libc::EINVAL);
        }
        file.write_all(b"verify=always").unwrap();
        assert_eq!(settings(&mount)["verify"], "always");
        assert_eq!(settings(&mount)["refused"], Value::Null);
    });
}

#[test]
fn a_read_only_mount_takes_settings_too() {
    for_each_transport(|transport| {
        let mount = mount(transport, &["ro"]);
        assert_errno(fs::write(mount.path(SETTINGS), "verify=off"), libc::EROFS);
        assert_eq!(set(&mount, &["verify=off"]).ok().text(), "verify=off (was always)\n");
    });
}

#[test]
fn what_is_no_mount_of_ours_is_said() {
    for place in ["/proc", "/", "/nonexistent"] {
        let outcome = ffrfs(&["set", place, "verify=off"]);
        assert_eq!(outcome.code, 5, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(place), "{}", outcome.stderr);
    }
    assert!(Path::new("/proc/self/status").exists());
}

#[test]
fn nobody_but_who_mounted_and_root_changes_settings() {
    if !have_sandbox() {
        return;
    }
    for_each_transport(|transport| {
        // Whatever the options say of owners and modes: 65533 is `other`.
        for more in ["allow_other", "allow_other,uid=65533", "allow_other,uid=65533,fmask=0"] {
            let sandbox = Sandbox::new("user_allow_other\n");
            let options = [transport.option().unwrap_or("defaults"), more].join(",");
            let outcome = sandbox.run(&format!(
                "attack() {{
                     other cat mnt/000001 | cmp - expected || return 10
                     other cat mnt/.ffrfs/settings && return 11
                     other sh -c 'echo verify=off >mnt/.ffrfs/settings' && return 12
                     other sh -c 'echo verify=off >>mnt/.ffrfs/settings' && return 13
                     other ./ffrfs set mnt && return 14
                     other ./ffrfs set mnt verify=off && return 15
                     other chmod 666 mnt/.ffrfs/settings && return 16
                     other unshare -Ur ./ffrfs set mnt verify=off && return 17
                     return 0
                 }}
                 somebody ./ffrfs mount data.ffr mnt -o {options} || exit 1
                 attack || exit $?
                 somebody ./ffrfs set mnt verify=once | grep -qx 'verify=once (was always)' || exit 2
                 ./ffrfs set mnt verify=off | grep -qx 'verify=off (was once)' || exit 3
                 somebody ./ffrfs umount -z mnt || exit 4
                 ./ffrfs mount data.ffr mnt -o {options} || exit 5
                 attack || exit $?
                 somebody ./ffrfs set mnt verify=off && exit 6
                 ./ffrfs set mnt | grep -qx verify=always || exit 7
                 umount -l mnt
                 code=0"
            ));
            assert_eq!(outcome.code, 0, "{more}: {}", outcome.stderr);
        }
    });
}

#[test]
fn a_mount_that_requires_checksums_cannot_be_told_to_check_nothing() {
    let mount = Mount::with_samples(Transport::DevFuse, &[b"x"], &["require_checksums"]);
    let outcome = ffrfs(&["set", mount.point().to_str().unwrap(), "verify=off"]);
    assert_ne!(outcome.code, 0);
    assert!(outcome.stderr.contains("require_checksums"), "{}", outcome.stderr);
    ffrfs(&["set", mount.point().to_str().unwrap(), "verify=once"]).ok();
}
