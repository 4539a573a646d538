//! `ffrfs warmup` on real mounts.

use crate::common::{
    Disk, FFRFS, Mount, NOTHING, Need, Outcome, Transport, ffrfs, fixture, for_each_transport,
    have, is_running, run, samples, temp_dir, undisturbed, unmount, wait_until,
};
use crate::restarts::{LIMIT, next_after};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

fn mount(transport: Transport) -> Mount {
    Mount::new(transport, fixture("packed_folder.ffr"), &[])
}

fn warmup(mount: &Mount, args: &[impl AsRef<OsStr>]) -> Outcome {
    run(Command::new(FFRFS).args(["warmup", "--background"]).arg(mount.point()).args(args))
}

fn announced(mount: &Mount) -> u64 {
    mount.stats()["prefetch"]["announced"].as_u64().expect("a number")
}

#[test]
fn warmup_announces_every_sample_and_makes_the_kernel_know_its_file() {
    for_each_transport(|transport| {
        let samples = samples(2500, 20);
        for options in [&[][..], &["fanout=100"], &["readdirplus=no"], &["control=rw"]] {
            undisturbed(|| {
                let mount = Mount::with_samples(transport, &samples, options);
                let outcome = warmup(&mount, NOTHING).ok();
                assert_eq!(outcome.stderr, "2500 samples are being fetched\n");
                assert_eq!(announced(&mount), 2500);
                let before = mount.requests();
                for sample in (0..2500).step_by(7) {
                    let directory = if options == ["fanout=100"] {
                        format!("{:03}/", sample / 100)
                    } else {
                        String::new()
                    };
                    fs::metadata(mount.path(format!("{directory}{sample:06}"))).unwrap();
                }
                let after = mount.requests();
                for kind in ["lookup", "getattr"] {
                    assert_eq!(before[kind], after[kind], "{options:?}");
                }
            });
        }
    });
}

#[test]
fn warmup_of_a_packed_folder_takes_the_files_in_it() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let files = walkdir::WalkDir::new(mount.point()).into_iter().filter_map(Result::ok);
        let files = files.filter(|entry| entry.file_type().is_file()).count() as u64;
        warmup(&mount, NOTHING).ok();
        assert_eq!(announced(&mount), files);
    });
}

#[test]
fn warmup_of_a_list_takes_numbers_and_paths_from_a_file_or_standard_input() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let list = mount.scratch().join("list");
        fs::write(&list, "train/cat/001.jpg\r\n0\n\n./train/cat/001.jpg\n/train/cat/001.jpg")
            .unwrap();
        warmup(&mount, &["-f", list.to_str().unwrap()]).ok();
        assert_eq!(announced(&mount), 4);
        let mut child = Command::new(FFRFS)
            .arg("warmup")
            .arg(mount.point())
            .args(["--background", "--list", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"1\ntrain/cat/001.jpg\n").unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(announced(&mount), 6);
    });
}

#[test]
fn a_bad_list_is_refused_by_line_and_nothing_is_announced() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let list = mount.scratch().join("list");
        let outside = format!("../{}", list.file_name().unwrap().to_str().unwrap());
        for (line, code, says) in [
            ("none.jpg", 2, "none.jpg"),
            ("train", 1, "is no sample"),
            ("999", 1, "no sample 999"),
            ("99999999999999999999999", 1, "no sample 999"),
            (&outside, 1, "is no sample"),
            (".ffrfs/bad", 1, "is no sample"),
        ] {
            fs::write(&list, format!("0\n{line}\n1\n")).unwrap();
            let outcome = warmup(&mount, &["-f", list.to_str().unwrap()]);
            assert_eq!(outcome.code, code, "{line}: {}", outcome.stderr);
            let place = format!("{}:2: ", list.display());
            assert!(outcome.stderr.contains(&place), "{line}: {}", outcome.stderr);
            assert!(outcome.stderr.contains(says), "{line}: {}", outcome.stderr);
        }
        assert_eq!(warmup(&mount, &["-f", "/nowhere/at/all"]).code, 2);
        assert_eq!(announced(&mount), 0);
    });
}

#[test]
fn what_is_no_mount_is_exit_code_5_as_for_umount() {
    let directory = temp_dir();
    let path = directory.path().to_str().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let in_file = file.join("x");
    for (place, why) in [
        (in_file.to_str().unwrap(), "Not a directory"),
        (path, "no dataset of ffrfs is mounted there (ffrfs list shows all that are)"),
        ("/nowhere/at/all", "no such directory (ffrfs list shows all mounts)"),
    ] {
        let outcome = ffrfs(&["warmup", place]);
        assert_eq!(outcome.code, 5, "{}", outcome.stderr);
        assert_eq!(outcome.stderr, format!("ffrfs: {place}: {why}\n"));
        assert_eq!(ffrfs(&["umount", place]).code, 5);
    }
    for_each_transport(|transport| {
        let mount = Mount::new(transport, fixture("packed_folder.ffr"), &["restarts=0"]);
        let inside = mount.path("train");
        assert_eq!(ffrfs(&["warmup", inside.to_str().unwrap()]).code, 5, "not its root");
        kill(Pid::from_raw(mount.pid()), Signal::SIGKILL).unwrap();
        mount.wait_for_end();
        let dead = warmup(&mount, NOTHING);
        assert_eq!(dead.code, 5, "{}", dead.stderr);
        assert!(dead.stderr.contains("its daemon is dead: run ffrfs umount"), "{}", dead.stderr);
    });
}

#[test]
fn warmup_ends_where_nobody_reads_what_is_announced_already_until_that_is_dropped() {
    for_each_transport(|transport| {
        let samples = samples(900, 60_000);
        let mount = Mount::with_samples(transport, &samples, &["rw", "memory=16M"]);
        let mut file = File::options().append(true).open(mount.path(".ffrfs/prefetch")).unwrap();
        let numbers: Vec<u8> = (0..512_u64).flat_map(u64::to_le_bytes).collect();
        let refused = (0..4000).find_map(|_| file.write_all(&numbers).err()).expect("it is full");
        assert_eq!(refused.kind(), ErrorKind::StorageFull);
        let says = "0 samples are being fetched\nthe 900 other samples do not fit: ";
        let outcome = warmup(&mount, NOTHING).ok();
        assert!(outcome.stderr.starts_with(says), "{}", outcome.stderr);
        ffrfs(&["warmup", "--drop", mount.point().to_str().unwrap()]).ok();
        assert_eq!(mount.stats()["prefetch"]["waiting"], 0);
        assert_eq!(warmup(&mount, NOTHING).ok().stderr, "900 samples are being fetched\n");
    });
}

#[test]
fn a_warmup_is_no_success_if_another_daemon_takes_over_from_the_one_that_fetches() {
    for_each_transport(|transport| {
        let list: String = (0..60).map(|sample| format!("{sample}\n")).collect();
        for args in [&[][..], &["--list", "list"]] {
            let disk = Disk::new(&samples(60, 60_000));
            let mount = Mount::new(transport, disk.container(), &["restarts=5"]);
            fs::write(mount.scratch().join("list"), &list).unwrap();
            disk.slow_down(Duration::from_secs(60));
            let mut command = Command::new(FFRFS);
            command.current_dir(mount.scratch()).arg("warmup").arg(mount.point()).args(args);
            let warmup = command.stderr(Stdio::piped()).spawn().unwrap();
            wait_until("a read waits for the disk", LIMIT, || disk.waiting() > 0);
            disk.slow_down(Duration::ZERO);
            let first = mount.pid();
            kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
            next_after(&mount, first);
            let ended = warmup.wait_with_output().unwrap();
            let says = String::from_utf8(ended.stderr).unwrap();
            assert_eq!(ended.status.code(), Some(5), "{says}");
            let why = format!("process {first}, has died or was upgraded");
            assert!(says.contains(&why) && says.contains("run the warm-up again"), "{says}");
        }
    });
}

#[test]
fn a_warmup_ends_when_the_mount_is_detached_and_says_that_it_is_gone() {
    for_each_transport(|transport| {
        let disk = Disk::new(&samples(60, 60_000));
        let mount = Mount::new(transport, disk.container(), &[]);
        disk.slow_down(Duration::from_secs(60));
        let mut command = Command::new(FFRFS);
        let warmup = command.arg("warmup").arg(mount.point()).stderr(Stdio::piped()).spawn();
        let warmup = warmup.unwrap();
        wait_until("a read waits for the disk", LIMIT, || disk.waiting() > 0);
        unmount(mount.point(), true).unwrap();
        let ended = warmup.wait_with_output().unwrap();
        disk.slow_down(Duration::ZERO);
        mount.wait_for_end();
        let says = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(5), "{says}");
        let gone = format!("ffrfs: {}: the mount is gone\n", mount.point().display());
        assert!(says.ends_with(&gone), "{says}");
    });
}

#[test]
fn ctrl_c_ends_the_waiting_unless_it_is_over_already() {
    if !have(Need::Fuse) {
        return;
    }
    for_each_transport(|transport| {
        let mount = mount(transport);
        let mut child = Command::new(FFRFS)
            .arg("warmup")
            .arg(mount.point())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        wait_until("it has begun", LIMIT, || announced(&mount) > 0 || !is_running(pid));
        let _ = kill(Pid::from_raw(pid), Signal::SIGINT);
        let code = child.wait().unwrap().code();
        assert!(matches!(code, Some(0 | 130)), "{code:?}");
        assert!(announced(&mount) > 0);
        assert!(mount.is_served());
    });
}

#[test]
fn a_warmup_says_how_many_samples_are_fetched_only_when_they_are_read() {
    for_each_transport(|transport| {
        let mount = Mount::new(transport, fixture("ordered.parquet"), &["index=none"]);
        let says = ffrfs(&["warmup".as_ref(), mount.point()]).ok().stderr;
        let prefetch = &mount.stats()["prefetch"];
        let skipped = prefetch["skipped"].as_u64().expect("a number");
        assert!(skipped > 0 && prefetch["announced"] == skipped, "{prefetch}");
        let when_read = format!("{skipped} samples are not fetched ahead (");
        for line in ["0 samples warmed up, ", &when_read] {
            assert!(says.lines().any(|said| said.starts_with(line)), "{says}");
        }
        let control = String::from_utf8(mount.read(".ffrfs/prefetch").unwrap()).unwrap();
        let skipped = format!("when they are read, or not shown: {skipped}");
        assert!(control.contains(&skipped), "{control}");
    });
}
