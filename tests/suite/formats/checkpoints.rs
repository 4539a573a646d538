//! Checkpoints of large members, kept from one mount to the next.

use super::file_in;
use super::write::{Member, deflated, stored, text, zip};
use crate::common::{
    FFRFS, Mount, Outcome, TempDir, Transport, assert_errno, drop_cached, flip_byte,
    for_each_transport, noise, peak_memory_bytes, run, temp_dir, wait_until,
};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// More bytes than are decoded at once with little memory, and than lie between two checkpoints.
const LARGE_BYTES: usize = 40 << 20;
const OPTIONS: &[&str] = &["memory=64M"];

struct Archive {
    directory: TempDir,
    path: PathBuf,
    members: [Vec<u8>; 2],
}

impl Archive {
    fn new() -> Self {
        let directory = temp_dir();
        let members = [text(31, LARGE_BYTES), text(32, LARGE_BYTES)];
        let bytes = zip(&[deflated("0", &members[0]), deflated("1", &members[1])]);
        Self { path: file_in(&directory, "x.zip", bytes), directory, members }
    }

    fn kept(&self) -> PathBuf {
        self.directory.path().join("x.zip.ffrfs-index")
    }

    fn kept_bytes(&self) -> u64 {
        fs::metadata(self.kept()).map_or(0, |metadata| metadata.len())
    }

    /// Reads 4 KB near the end of a member; returns the number of stored bytes that were fetched for it.
    #[track_caller]
    fn read(&self, mount: &Mount, member: usize) -> u64 {
        let before = fetched(mount);
        let file = File::open(mount.path(member.to_string())).unwrap();
        let place = LARGE_BYTES - 1_000_000;
        let mut bytes = vec![0; 4096];
        file.read_exact_at(&mut bytes, place as u64).unwrap();
        assert!(bytes == self.members[member][place..place + 4096], "member {member}");
        fetched(mount) - before
    }
}

fn fetched(mount: &Mount) -> u64 {
    mount.stats()["bytes_fetched"].as_u64().unwrap()
}

/// The least bytes that a pass over a member fetches.
fn pass_bytes(archive: &Path) -> u64 {
    fs::metadata(archive).unwrap().len() / 3
}

#[test]
fn a_large_member_is_passed_over_once_and_read_in_the_middle_by_later_mounts() {
    for_each_transport(|transport| {
        let archive = Archive::new();
        let whole = pass_bytes(&archive.path);
        let first = Mount::new(transport, &archive.path, OPTIONS);
        assert!(archive.read(&first, 0) > whole);
        wait_until("points kept", Duration::from_secs(20), || archive.kept_bytes() > 1000);
        drop(first);
        // Two mounts at once add the checkpoints that they find.
        let mounts = [(); 2].map(|()| Mount::new(transport, &archive.path, OPTIONS));
        assert!(archive.read(&mounts[0], 0) < whole / 2);
        assert!(archive.read(&mounts[1], 1) > whole);
        let kept = || mounts[1].log().contains("checkpoints of a member");
        wait_until("more points kept", Duration::from_secs(20), kept);
        assert!(archive.read(&mounts[0], 1) < whole / 2);
        assert!(archive.read(&mounts[1], 0) < whole / 2);
        let copy = file_in(&archive.directory, "copy", &archive.members[1]);
        run(Command::new("cmp").arg(mounts[0].path("1")).arg(copy)).ok();
        let names: Vec<_> = fs::read_dir(archive.directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| name.to_string_lossy().contains("ffrfs"))
            .collect();
        assert_eq!(names, ["x.zip.ffrfs-index"], "one file, and nothing half");
    });
}

/// Whether a process writes checkpoints.
fn writes_checkpoints(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let name = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("comm"));
    threads.flatten().any(|thread| name(thread).is_ok_and(|name| name.trim() == "ffrfs-index"))
}

#[test]
fn checkpoints_that_are_being_written_when_a_mount_ends_are_kept() {
    for_each_transport(|transport| {
        let archive = Archive::new();
        archive.read(&Mount::new(transport, &archive.path, OPTIONS), 0);
        let (before, kept) = (archive.kept_bytes(), File::open(archive.kept()).unwrap());
        // The threads of the metrics use the file system until the process ends.
        let metrics = format!("metrics=unix:{}", archive.directory.path().join("m").display());
        let mount = Mount::new(transport, &archive.path, &[OPTIONS, &[&metrics]].concat());
        kept.lock().unwrap();
        archive.read(&mount, 1);
        let is_writing = || writes_checkpoints(mount.pid());
        wait_until("the checkpoints are being written", Duration::from_secs(20), is_writing);
        let umount = Command::new(FFRFS).arg("umount").arg(mount.point()).spawn().unwrap();
        wait_until("the mount has gone", Duration::from_secs(20), || !mount.is_mounted());
        std::thread::sleep(Duration::from_millis(300));
        kept.unlock().unwrap();
        let outcome = Outcome::from(umount.wait_with_output().unwrap());
        assert_eq!(outcome.code, 0, "{}", mount.log());
        assert!(archive.kept_bytes() > before, "{}", mount.log());
    });
}

#[test]
fn damaged_stale_and_cut_checkpoints_cost_a_pass_and_no_wrong_byte() {
    let archive = Archive::new();
    let whole = pass_bytes(&archive.path);
    let read_once = |says: &str, takes_a_pass: bool| {
        let mount = Mount::new(Transport::DevFuse, &archive.path, OPTIONS);
        let fetched = archive.read(&mount, 0);
        assert_eq!(fetched > whole / 2, takes_a_pass, "{says}: {fetched} of {whole} bytes");
    };
    read_once("nothing kept", true);
    read_once("kept", false);
    let length = archive.kept_bytes();
    // Bytes of the file's head, of the record's head, and of the checkpoints.
    for place in [3, 20, 80 + 10, length / 2, length - 1] {
        let kept = fs::read(archive.kept()).unwrap();
        flip_byte(&archive.kept(), place);
        read_once(&format!("byte {place} flipped"), true);
        read_once("kept anew", false);
        fs::write(archive.kept(), kept).unwrap();
    }
    let file = File::options().write(true).open(archive.kept()).unwrap();
    file.set_len(length - 7).unwrap();
    read_once("cut", true);
    read_once("kept behind what was whole", false);
    assert_eq!(archive.kept_bytes(), length, "what was cut is gone");
    // Another archive with the same name, and other members of the same size.
    let other = zip(&[deflated("0", &archive.members[0]), deflated("2", &archive.members[1])]);
    fs::write(&archive.path, other).unwrap();
    read_once("of another archive", true);
    read_once("of this one", false);
}

#[test]
fn checkpoints_are_neither_written_nor_read_where_the_user_does_not_want_it() {
    let archive = Archive::new();
    let whole = pass_bytes(&archive.path);
    let read = |option: &str| {
        let options = [OPTIONS, &[option]].concat();
        archive.read(&Mount::new(Transport::DevFuse, &archive.path, &options), 0)
    };
    assert!(read("index=none") > whole && read("index=memory") > whole);
    assert!(read("verify=off") > whole, "unchecked: not worth keeping");
    assert_eq!(archive.kept_bytes(), 0);
    let elsewhere = temp_dir();
    let option = format!("index_dir={}", elsewhere.path().display());
    assert!(read(&option) > whole);
    assert!(read(&option) < whole / 2);
    assert_eq!(archive.kept_bytes(), 0);
    assert!(read("index=auto") > whole);
    assert!(read("index=memory") < whole / 2 && read("verify=off") < whole / 2);
    assert!(read("index=none") > whole);
}

#[test]
fn checkpoints_are_built_ahead_by_index() {
    let archive = Archive::new();
    run(Command::new(FFRFS).arg("index").arg(&archive.path)).ok();
    let kept = archive.kept_bytes();
    assert!(kept > 1000);
    run(Command::new(FFRFS).arg("index").arg(&archive.path)).ok();
    assert_eq!(archive.kept_bytes(), kept, "what is there is not made again");
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive.path, OPTIONS);
        for member in [0, 1] {
            assert!(archive.read(&mount, member) < pass_bytes(&archive.path) / 2);
        }
    });
}

/// The length of one of many frames of zeros, which have few stored bytes.
const FRAME_BYTES: usize = 4 << 20;

#[test]
fn a_member_of_few_stored_bytes_that_decodes_to_much_takes_no_memory_for_it() {
    const FRAMES: usize = 40;
    let directory = temp_dir();
    // Enough members that blocks are worth while.
    let mut members: Vec<_> =
        (0..8000).map(|number| stored(number.to_string(), noise(number, 100))).collect();
    let frame = zstd::bulk::compress(&vec![0; FRAME_BYTES], 1).unwrap();
    let coded = frame.repeat(FRAMES);
    assert!(coded.len() < 30_000, "as small as what is read in blocks: {}", coded.len());
    let large = stored("large", vec![0; FRAMES * FRAME_BYTES]);
    members.insert(4000, Member { method: 93, stored: coded, ..large });
    let archive = file_in(&directory, "x.zip", zip(&members));
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, OPTIONS);
        let file = File::open(&archive).unwrap();
        file.sync_all().unwrap();
        drop_cached(&file);
        let large = File::open(mount.path("large")).unwrap();
        for (neighbour, at) in [("3999", 100_000_000), ("4001", 1_000_000), ("7000", 160_000_000)] {
            assert_eq!(mount.read(neighbour).unwrap().len(), 100);
            let mut bytes = [1; 100];
            large.read_exact_at(&mut bytes, at).unwrap();
            assert_eq!(bytes, [0; 100]);
        }
        let peak = peak_memory_bytes(mount.pid());
        assert!(peak < 110 << 20, "{} MiB", peak >> 20);
    });
}

#[test]
fn a_large_member_that_was_read_unchecked_is_checked_when_that_is_asked_for() {
    let directory = temp_dir();
    let text = text(9, 9 << 20);
    let wrong = Member { crc32: 1, ..deflated("x", &text) };
    let archive = file_in(&directory, "x.zip", zip(&[wrong]));
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &["verify=off"]);
        let file = File::open(mount.path("x")).unwrap();
        let mut bytes = [0; 100];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == text[..100]);
        // Each offset is one whose pages the kernel does not have yet.
        for (verify, at) in [("verify=once", 4 << 20), ("verify=always", 8 << 20)] {
            run(Command::new(FFRFS).arg("set").arg(mount.point()).arg(verify)).ok();
            assert_errno(file.read_exact_at(&mut bytes, at), libc::EIO);
        }
    });
}
