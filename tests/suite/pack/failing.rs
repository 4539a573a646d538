//! Inputs and outputs that `pack` refuses; and nothing is left where it fails or is interrupted.

use super::super::common::{FFRFS, Need, Outcome, Tmpfs, have, temp_dir, wait_until};
use super::{Tree, directory_of, names_in, pack};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Checks the exit code, and that stderr contains all of `says`.
#[track_caller]
fn refused(outcome: &Outcome, code: i32, says: &[&str]) {
    assert_eq!(outcome.code, code, "{}", outcome.stderr);
    for part in says {
        assert!(outcome.stderr.contains(part), "{part:?} is not in: {}", outcome.stderr);
    }
}

#[test]
fn an_output_that_is_there_is_refused_without_force_and_replaced_with_it() {
    let work = temp_dir();
    let input = directory_of(&work, &["a"]);
    let out = work.path().join("out.ffr");
    fs::write(&out, "precious").unwrap();
    refused(&pack(&input, &out, &[]), 6, &["out.ffr", "exists already", "--force"]);
    assert_eq!(fs::read(&out).unwrap(), b"precious");
    pack(&input, &out, &["--force"]).ok();
    assert_eq!(Tree::of_containers(std::slice::from_ref(&out)).files.len(), 1);

    let parts = work.path().join("parts");
    pack(&input, &parts, &["--parts=5"]).ok();
    refused(&pack(&input, &parts, &["--parts=2"]), 6, &["parts", "exists already"]);
    assert_eq!(names_in(&parts).len(), 5);
    pack(&input, &parts, &["--parts=2", "--force"]).ok();
    assert_eq!(names_in(&parts).len(), 2);
    assert_eq!(names_in(work.path()), ["in", "out.ffr", "parts"]);
}

#[test]
fn force_never_removes_what_pack_did_not_write() {
    let work = temp_dir();
    let input = directory_of(&work, &["a"]);
    let parts = work.path().join("parts");
    pack(&input, &parts, &["--parts=2"]).ok();
    fs::write(parts.join("notes.txt"), "precious").unwrap();
    let before: Vec<_> =
        names_in(&parts).iter().map(|n| fs::read(parts.join(n)).unwrap()).collect();
    refused(&pack(&input, &parts, &["--parts=3", "--force"]), 6, &["parts"]);
    assert_eq!(names_in(&parts), ["PART_00000.ffr", "PART_00001.ffr", "notes.txt"]);
    let after: Vec<_> = names_in(&parts).iter().map(|n| fs::read(parts.join(n)).unwrap()).collect();
    assert_eq!(before, after);

    // A directory where a file is to be, and a file where a directory is to be.
    refused(&pack(&input, &parts, &["--force"]), 6, &["parts"]);
    let file = work.path().join("file");
    fs::write(&file, "precious").unwrap();
    refused(&pack(&input, &file, &["--parts=2", "--force"]), 6, &["file"]);
    assert_eq!(fs::read(&file).unwrap(), b"precious");

    // An output that is neither: a pipe.
    let pipe = work.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    refused(&pack(&input, &pipe, &["--force"]), 6, &["pipe"]);
    assert!(!pipe.metadata().unwrap().is_file());
    assert_eq!(names_in(work.path()), ["file", "in", "parts", "pipe"]);
}

#[test]
fn a_directory_of_parts_is_not_replaced_by_itself() {
    let work = temp_dir();
    let input = directory_of(&work, &["a", "b", "c"]);
    let parts = work.path().join("parts");
    pack(&input, &parts, &["--parts=3"]).ok();
    let outcome = pack(&parts, &parts, &["--parts=2", "--force"]);
    assert!(outcome.code != 0, "it would pack what it is about to replace");
    assert_eq!(names_in(&parts).len(), 3);
}

#[test]
fn an_output_within_the_packed_folder_is_refused() {
    let work = temp_dir();
    let input = directory_of(&work, &["a", "d/b"]);
    std::os::unix::fs::symlink(input.join("d"), work.path().join("way in")).unwrap();
    for out in ["in/out.ffr", "in/d/out.ffr", "in/d/../out.ffr", "way in/out.ffr", "in/./d/out.ffr"]
    {
        for args in [&[][..], &["--parts=2"], &["--force"]] {
            let outcome = pack(&input, &work.path().join(out), args);
            refused(&outcome, 1, &["out.ffr", "in the directory that is packed"]);
        }
    }
    assert_eq!(
        (names_in(&input), names_in(&input.join("d"))),
        (vec!["a".into(), "d".into()], vec!["b".into()])
    );
    // An output beside the input, with a name that begins alike.
    pack(&input, &work.path().join("in.ffr"), &[]).ok();
    refused(&pack(&input, &work.path().join("nowhere/out.ffr"), &[]), 6, &["nowhere"]);
}

#[test]
fn input_that_cannot_be_read_is_exit_code_2_and_leaves_nothing() {
    for (to, name) in [
        ("nowhere", "in/d/dangling"),
        ("..", "in/d/loop"),
        ("self", "in/self"),
        // A regular file whose first byte cannot be read.
        ("/proc/self/mem", "in/unreadable"),
    ] {
        for args in [&[][..], &["--parts=2"]] {
            let work = temp_dir();
            let input = directory_of(&work, &["a", "d/b"]);
            std::os::unix::fs::symlink(to, work.path().join(name)).unwrap();
            refused(&pack(&input, &work.path().join("out"), args), 2, &[name]);
            assert_eq!(names_in(work.path()), ["in"]);
        }
    }
    let work = temp_dir();
    refused(&pack(&work.path().join("nowhere"), &work.path().join("out"), &[]), 2, &["nowhere"]);
}

#[test]
fn directories_too_deep_are_refused() {
    let work = temp_dir();
    let deep: PathBuf = std::iter::repeat_n("d", 300).collect();
    fs::create_dir_all(work.path().join("in").join(deep)).unwrap();
    let outcome = pack(&work.path().join("in"), &work.path().join("out.ffr"), &[]);
    refused(&outcome, 2, &["too deep"]);
    assert_eq!(names_in(work.path()), ["in"]);
}

#[test]
fn a_full_disk_is_exit_code_6_and_leaves_nothing() {
    if !have(Need::Root) {
        return;
    }
    let work = temp_dir();
    let input = directory_of(&work, &["a"]);
    fs::write(input.join("large"), vec![1; 3 << 20]).unwrap();
    let small = Tmpfs::new(work.path().join("small"), "1m");
    for (args, out) in [(&[][..], "out.ffr"), (&["--flat"], "out.ffr"), (&["--parts=2"], "out")] {
        let outcome = pack(&input, &small.point().join(out), args);
        refused(&outcome, 6, &[out, "No space left"]);
        assert!(names_in(small.point()).is_empty(), "{args:?}");
    }
    fs::remove_file(input.join("large")).unwrap();
    pack(&input, &small.point().join("out.ffr"), &[]).ok();
}

/// Begins to pack, and waits until more than 1 MiB of the output is written under another name.
fn begin(input: &Path, out: &Path, args: &[&str]) -> Child {
    let mut command = Command::new(FFRFS);
    command.arg("pack").arg(input).arg(out).args(args);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let parent = out.parent().unwrap();
    wait_until("it writes", Duration::from_secs(20), || {
        let writes = |name: &std::ffi::OsString| {
            let path = parent.join(name);
            let hidden = name.to_string_lossy().starts_with('.');
            let is_large = |path: &Path| fs::metadata(path).is_ok_and(|m| m.len() > 1 << 20);
            let within = fs::read_dir(&path).into_iter().flatten().flatten();
            hidden
                && (path.is_file() && is_large(&path)
                    || within.map(|e| e.path()).any(|p| is_large(&p)))
        };
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was interrupted");
        names_in(parent).iter().any(writes)
    });
    child
}

fn sparse(path: &Path, bytes: u64) {
    File::create(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn an_interrupt_leaves_nothing_behind_also_within_a_large_file() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        for (files, args) in [(1, &[][..]), (1, &["--parts=2"]), (64, &[]), (64, &["--parts=2"])] {
            let work = temp_dir();
            let input = directory_of(&work, &[]);
            for file in 0..files {
                sparse(&input.join(format!("{file:02}")), (4 << 30) / files);
            }
            let out = work.path().join("out");
            let child = begin(&input, &out, args);
            assert!(!out.exists(), "it has its name only when it is complete");
            let start = Instant::now();
            kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
            let outcome = Outcome::from(child.wait_with_output().unwrap());
            let took = start.elapsed();
            assert_eq!(outcome.code, 130, "{}", outcome.stderr);
            assert!(outcome.stderr.contains("interrupted"), "{}", outcome.stderr);
            assert!(took < Duration::from_secs(20), "{files} files: it took {took:?}");
            assert_eq!(names_in(work.path()), ["in"]);
        }
    }
}

#[test]
fn an_interrupted_replacement_leaves_what_was_there() {
    let work = temp_dir();
    let input = directory_of(&work, &["a"]);
    let (file, parts) = (work.path().join("out.ffr"), work.path().join("parts"));
    pack(&input, &file, &[]).ok();
    pack(&input, &parts, &["--parts=2"]).ok();
    let before = fs::read(&file).unwrap();
    sparse(&input.join("large"), 4 << 30);
    for (out, args) in [(&file, &["--force"][..]), (&parts, &["--force", "--parts=3"])] {
        let child = begin(&input, out, args);
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
        assert_eq!(Outcome::from(child.wait_with_output().unwrap()).code, 130);
    }
    assert_eq!(fs::read(&file).unwrap(), before);
    assert_eq!(names_in(&parts).len(), 2);
    assert_eq!(names_in(work.path()), ["in", "out.ffr", "parts"]);
}
