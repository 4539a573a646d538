//! `ffrfs verify`: every bad sample is found and listed, with any number of threads; an interrupted run can
//! be resumed.

use super::common::{
    FFRFS, Need, Outcome, TempDir, container_in, ffrfs, fixture, flip_byte, have, noise, offsets,
    run, samples, temp_dir, wait_until, write_container,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn verify(source: &Path, args: &[&str]) -> Outcome {
    run(Command::new(FFRFS).arg("verify").arg(source).args(args))
}

/// The numbers in the lines that name bad samples.
fn bad_in(outcome: &Outcome) -> Vec<usize> {
    let number = |line: &str| line.split(": sample ").nth(1)?.split(' ').next()?.parse().ok();
    outcome.text().lines().map(|line| number(line).expect(line)).collect()
}

fn json(outcome: &Outcome) -> Value {
    serde_json::from_slice(&outcome.stdout).expect("JSON")
}

/// A container in which these samples are bad; also the samples before the damage.
fn damaged(directory: &TempDir, bad: &[usize]) -> (PathBuf, Vec<Vec<u8>>) {
    let mut all = samples(60, 9000);
    // Larger than the bytes that are read at a time.
    all[20] = noise(20, (9 << 20) + 5);
    let source = container_in(directory, &all);
    let offsets = offsets(&all);
    for &sample in bad {
        flip_byte(&source, offsets[sample] + all[sample].len() as u64 - 1);
    }
    (source, all)
}

#[test]
fn a_clean_container_is_exit_code_0_and_nothing_on_stdout() {
    let directory = temp_dir();
    let (source, all) = damaged(&directory, &[]);
    for jobs in ["-j1", "-j2", "-j4", "-j64"] {
        let outcome = verify(&source, &[jobs]).ok();
        assert!(outcome.stdout.is_empty());
        assert!(outcome.stderr.starts_with("60 samples checked"), "{}", outcome.stderr);
        assert!(outcome.stderr.ends_with("0 bad\n"), "{}", outcome.stderr);
        let report = json(&verify(&source, &[jobs, "--json"]).ok());
        let bytes: usize = all.iter().map(Vec::len).sum();
        assert_eq!((&report["complete"], &report["bytes"]), (&true.into(), &bytes.into()));
        assert_eq!((&report["first_sample"], &report["end_sample"]), (&0.into(), &60.into()));
        assert_eq!((&report["checked_to"], &report["bad"]), (&60.into(), &Value::Array(vec![])));
    }
    verify(&fixture("empty.ffr"), &[]).ok();
    verify(&fixture("no_header_checksum.ffr"), &[]).ok();
    verify(&fixture("packed_folder.ffr"), &[]).ok();
    verify(&fixture("parts"), &[]).ok();
}

#[test]
fn all_bad_samples_are_listed_in_order_whatever_the_number_of_threads() {
    let directory = temp_dir();
    let bad = [0, 7, 8, 20, 33, 59];
    let (source, all) = damaged(&directory, &bad);
    let resolved = source.canonicalize().unwrap();
    for jobs in ["-j1", "-j2", "-j4"] {
        let outcome = verify(&source, &[jobs]);
        assert_eq!((outcome.code, bad_in(&outcome)), (4, bad.to_vec()));
        assert!(outcome.stderr.ends_with("6 bad\n"), "{}", outcome.stderr);
        for (line, &sample) in outcome.text().lines().zip(&bad) {
            let (at, length) = (offsets(&all)[sample], all[sample].len());
            let start = format!(
                "{}: sample {sample} ({sample:06}) at byte {at}, {length} bytes: checksum mismatch: \
                 expected {:#010x}, found 0x",
                resolved.display(),
                crc32fast::hash(&all[sample]),
            );
            assert!(line.starts_with(&start), "{line}");
        }
    }
}

#[test]
fn bad_samples_decide_the_exit_code_though_nobody_reads_their_list() {
    let directory = temp_dir();
    let (source, _) = damaged(&directory, &[3, 58]);
    let list = directory.path().join("list");
    let digest = "0".repeat(64);
    fs::write(&list, format!("{digest}  000001\n{digest}  000002\n")).unwrap();
    let list = list.to_str().unwrap();
    for args in [&["verify"][..], &["sum", "--check", list]] {
        let mut command = Command::new(FFRFS);
        command.args(args).arg(&source);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(4), "{command:?}");
    }
}

#[test]
fn json_gives_every_bad_sample_with_all_that_is_known() {
    let directory = temp_dir();
    let (source, all) = damaged(&directory, &[3, 58]);
    let outcome = verify(&source, &["--json", "-j2"]);
    assert_eq!(outcome.code, 4);
    let report = json(&outcome);
    let bad = report["bad"].as_array().unwrap();
    assert_eq!(bad.len(), 2);
    for (entry, sample) in bad.iter().zip([3, 58]) {
        let container = source.canonicalize().unwrap();
        assert_eq!(Path::new(entry["container"].as_str().unwrap()), container);
        assert_eq!((&entry["sample"], &entry["index"]), (&sample.into(), &sample.into()));
        assert_eq!(entry["path"], format!("{sample:06}"));
        assert_eq!(entry["offset"], offsets(&all)[sample]);
        assert_eq!(
            (&entry["length"], &entry["reason"]),
            (&all[sample].len().into(), &"checksum".into())
        );
        assert_eq!(entry["expected"], format!("{:#010x}", crc32fast::hash(&all[sample])));
        assert_ne!(entry["expected"], entry["found"]);
    }
}

#[test]
fn only_the_samples_that_were_asked_for_are_checked() {
    let directory = temp_dir();
    let (source, _) = damaged(&directory, &[10, 30, 59]);
    for (range, checked, bad) in [
        ("10", 1, &[10][..]),
        ("11", 1, &[]),
        ("10-10", 1, &[10]),
        ("0-29", 30, &[10]),
        ("11-29", 19, &[]),
        ("30-59", 30, &[30, 59]),
        ("11-", 49, &[30, 59]),
        ("59-", 1, &[59]),
        ("0-", 60, &[10, 30, 59]),
    ] {
        for jobs in ["-j1", "-j4"] {
            let outcome = verify(&source, &["--sample", range, jobs]);
            assert_eq!(
                (outcome.code, bad_in(&outcome)),
                (if bad.is_empty() { 0 } else { 4 }, bad.to_vec())
            );
            let samples = if checked == 1 { "sample" } else { "samples" };
            let said = format!("{checked} {samples} checked");
            assert!(outcome.stderr.starts_with(&said), "{range}: {}", outcome.stderr);
        }
    }
    for range in ["60", "60-", "0-60", "5-4", "-", "-5", "x", "", "1-2-3", "18446744073709551616"] {
        let outcome = verify(&source, &[&format!("--sample={range}")]);
        assert_eq!(outcome.code, 1, "{range:?}: {}", outcome.stderr);
        assert!(outcome.stdout.is_empty());
    }
    assert_eq!(verify(&fixture("empty.ffr"), &["--sample=0"]).code, 1);
}

#[test]
fn the_options_for_names_say_what_a_selection_means() {
    let basic = fixture("basic.ffr");
    let count = |args: &[&str]| json(&verify(&basic, args).ok())["samples"].as_u64().unwrap();
    assert_eq!(count(&["--json", "--fanout", "10", "--include", "001"]), 10);
    assert_eq!(count(&["--json", "--suffix", ".jpg", "--include", "*.jpg"]), 60);
    assert_eq!(count(&["--json", "--layout", "shards", "--include", "basic.ffr/00000?"]), 10);
    assert_eq!(count(&["--json", "--all"]), 60);
    let refused = verify(&basic, &["--suffix", "a/b"]);
    assert_eq!((refused.code, refused.stdout.is_empty()), (1, true), "{}", refused.stderr);
    // Bad samples have the names that the options give them.
    let directory = temp_dir();
    let (source, _) = damaged(&directory, &[33]);
    let said = verify(&source, &["--fanout", "10", "--suffix", ".bin"]);
    assert!(said.text().contains("sample 33 (003/000033.bin)"), "{}", said.text());
}

#[test]
fn samples_of_several_containers_are_numbered_on_and_named_by_their_tree() {
    let directory = temp_dir();
    let second = directory.path().join("second.ffr");
    let all = samples(10, 100);
    write_container(&second, &all);
    flip_byte(&second, offsets(&all)[4]);
    let args = ["verify".into(), fixture("basic.ffr"), second.clone(), "--json".into()];
    let bad = json(&ffrfs(&args))["bad"].clone();
    assert_eq!((&bad[0]["sample"], &bad[0]["index"]), (&64.into(), &4.into()));
    let second = second.canonicalize().unwrap();
    assert_eq!(Path::new(bad[0]["container"].as_str().unwrap()), second);

    let packed = directory.path().join("packed.ffr");
    fs::copy(fixture("packed_folder.ffr"), &packed).unwrap();
    let mut permissions = fs::metadata(&packed).unwrap().permissions();
    #[expect(clippy::permissions_set_readonly_false, reason = "a copy that only this test sees")]
    permissions.set_readonly(false);
    fs::set_permissions(&packed, permissions).unwrap();
    let listed = ffrfs(&["ls".into(), "-l".into(), packed.clone()]).ok().text();
    let first = listed.lines().find(|line| line.ends_with(" a.txt")).unwrap();
    let offset = first.split_whitespace().nth(1).unwrap().parse().unwrap();
    flip_byte(&packed, offset);
    let outcome = verify(&packed, &[]);
    assert!(outcome.text().contains("(a.txt)"), "{}", outcome.text());
    // When the names themselves are bad, bad samples are still listed.
    flip_byte(&packed, fs::metadata(&packed).unwrap().len() - 1);
    let outcome = verify(&packed, &[]);
    assert_eq!((outcome.code, bad_in(&outcome)), (4, vec![0, 6]), "{}", outcome.stderr);
}

#[test]
fn samples_that_are_not_all_there_are_bad() {
    let cut = fixture("truncated_data.ffr");
    assert_eq!(verify(&cut, &[]).code, 3);
    let outcome = verify(&cut, &["--allow-damaged", "-j2"]);
    assert_eq!((outcome.code, bad_in(&outcome)), (4, (45..60).collect()));
    assert!(outcome.text().lines().all(|line| line.contains("damaged")), "{}", outcome.text());
    let report = json(&verify(&cut, &["--allow-damaged", "--json"]));
    assert_eq!(report["bad"][0]["reason"], "damaged");
}

// ---- long runs -----------------------------------------------------------------------------------

const LARGE_SAMPLES: usize = 48;
const LARGE_BYTES: u64 = 16 << 20;

/// 768 MiB of zeros that take no room; the second and the last but one sample are bad.
fn large(directory: &TempDir) -> PathBuf {
    let path = directory.path().join("large.ffr");
    let sizes = vec![LARGE_BYTES; LARGE_SAMPLES];
    let crc = {
        let mut crc = crc32fast::Hasher::new();
        let chunk = vec![0; 1 << 20];
        (0..LARGE_BYTES >> 20).for_each(|_| crc.update(&chunk));
        crc.finalize()
    };
    let count = LARGE_SAMPLES as u64;
    let mut covered = count.to_le_bytes().to_vec();
    (0..count).for_each(|_| covered.extend_from_slice(&crc.to_le_bytes()));
    let mut offset = ffrfs::format::ffrecord::header_bytes(count);
    for size in &sizes {
        covered.extend_from_slice(&offset.to_le_bytes());
        offset += size;
    }
    let file = File::create(&path).unwrap();
    file.write_all_at(&crc32fast::hash(&covered).to_le_bytes(), 0).unwrap();
    file.write_all_at(&covered, 4).unwrap();
    file.set_len(offset).unwrap();
    flip_byte(&path, offset - LARGE_BYTES - 1);
    flip_byte(&path, offset - (count - 1) * LARGE_BYTES);
    path
}

/// Begins to verify, and stops the process when it has checked some samples, but not yet half of them.
fn begin(source: &Path, args: &[&str]) -> Child {
    let half = LARGE_SAMPLES as u64 / 2 * LARGE_BYTES;
    for _ in 0..10 {
        let mut command = Command::new(FFRFS);
        command.arg("verify").arg(source).args(args).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("it reads", Duration::from_secs(20), || bytes_read(&child) > 4 * LARGE_BYTES);
        send(&child, Signal::SIGSTOP);
        if bytes_read(&child) < half {
            return child;
        }
        // The machine is busy: this process was too slow.
        child.kill().unwrap();
        child.wait().unwrap();
    }
    panic!("it is never stopped in time");
}

/// The bytes that a process has read; `u64::MAX` if it has ended.
fn bytes_read(child: &Child) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap_or_default();
    let read = text.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok());
    read.unwrap_or(u64::MAX)
}

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

fn end(child: Child) -> Outcome {
    send(&child, Signal::SIGCONT);
    child.wait_with_output().unwrap().into()
}

#[test]
fn an_interrupted_run_says_how_to_go_on_and_the_rest_is_found() {
    let directory = temp_dir();
    let source = large(&directory);
    for (jobs, signal) in [("-j1", Signal::SIGINT), ("-j4", Signal::SIGTERM)] {
        let child = begin(&source, &[jobs]);
        send(&child, signal);
        let first = end(child);
        assert_eq!(first.code, 130, "{}", first.stderr);
        let hint = first.stderr.split("go on with ").nth(1).expect("how to go on").trim_end();
        let next: usize = hint["--sample ".len()..].trim_end_matches('-').parse().unwrap();
        assert!(next < LARGE_SAMPLES - 4, "{hint}");
        let args: Vec<_> = hint.split(' ').chain([jobs]).collect();
        let rest = verify(&source, &args);
        // One of several threads may still have been at the second sample.
        let found: BTreeSet<_> = bad_in(&first).into_iter().chain(bad_in(&rest)).collect();
        assert_eq!((rest.code, found), (4, [1, LARGE_SAMPLES - 2].into()));
        if jobs == "-j1" {
            assert_eq!(bad_in(&first), [1], "what was found so far is listed");
            assert_eq!(bad_in(&rest), [LARGE_SAMPLES - 2], "nothing is checked twice");
        }
        let checked = format!("{} samples checked", LARGE_SAMPLES - next);
        assert!(rest.stderr.starts_with(&checked), "{}", rest.stderr);
    }
}

#[test]
fn an_interrupted_run_keeps_the_end_of_its_range_and_says_so_in_json() {
    let directory = temp_dir();
    let source = large(&directory);
    let child = begin(&source, &["--sample", "2-40", "-j2"]);
    send(&child, Signal::SIGINT);
    let outcome = end(child);
    assert_eq!((outcome.code, bad_in(&outcome)), (130, vec![]));
    assert!(outcome.stderr.trim_end().ends_with("-40"), "{}", outcome.stderr);

    let child = begin(&source, &["--json", "-j1"]);
    send(&child, Signal::SIGINT);
    let outcome = end(child);
    let report = json(&outcome);
    assert_eq!((outcome.code, &report["complete"]), (130, &false.into()));
    let checked_to = report["checked_to"].as_u64().unwrap() as usize;
    assert!((2..LARGE_SAMPLES).contains(&checked_to));
    assert_eq!(report["bad"].as_array().unwrap().len(), 1);
}

#[test]
fn samples_that_cannot_be_read_any_more_are_exit_code_2() {
    let directory = temp_dir();
    let source = large(&directory);
    let child = begin(&source, &["--sample", "2-45", "-j1"]);
    let half = fs::metadata(&source).unwrap().len() / 2;
    File::options().write(true).open(&source).unwrap().set_len(half).unwrap();
    let outcome = end(child);
    assert_eq!(outcome.code, 2, "{}", outcome.stderr);
    assert!(bad_in(&outcome).ends_with(&[44, 45]));
    for line in outcome.text().lines() {
        assert!(line.contains("cannot be read") && line.contains("truncated"), "{line}");
    }
}

// ---- the progress bar ----------------------------------------------------------------------------

#[test]
fn there_is_a_progress_bar_on_a_terminal_and_nowhere_else() {
    let directory = temp_dir();
    let (source, _) = damaged(&directory, &[5]);
    let outcome = verify(&source, &[]);
    assert!(!outcome.stderr.contains(['\r', '\x1b']), "{:?}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 1);
    if !have(Need::Program("script")) {
        return;
    }
    let stdout = directory.path().join("stdout");
    let quote = |path: &Path| format!("'{}'", path.display());
    let command =
        format!("{} verify {} > {}", quote(Path::new(FFRFS)), quote(&source), quote(&stdout));
    let mut script = Command::new("script");
    let args = ["-q", "-e", "-c", &command, "/dev/null"].map(OsStr::new);
    let terminal = run(script.args(args).env("TERM", "xterm").env("COLUMNS", "100"));
    let (shown, written) = (terminal.text(), fs::read_to_string(&stdout).unwrap());
    assert!(shown.contains("/60 samples") && shown.contains("\x1b["), "{shown:?}");
    assert!(!shown.contains(", ,"), "no gap: {shown:?}");
    assert!(shown.trim_end().ends_with("1 bad"), "the bar is wiped away: {shown:?}");
    assert_eq!((terminal.code, written.lines().count()), (4, 1), "{shown:?}");
    assert!(!written.contains('\x1b'));
}

#[test]
fn samples_that_hold_the_names_of_a_packed_directory_are_told_apart_from_files() {
    let directory = temp_dir();
    let [input, packed] = ["photos", "packed"].map(|name| directory.path().join(name));
    fs::create_dir(&input).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(input.join(name), name).unwrap();
    }
    let pack = |parts: &str| {
        let mut pack = Command::new(FFRFS);
        run(pack.arg("pack").args([&input, &packed]).args(["--force", parts])).ok();
    };
    for parts in ["--parts=1", "--parts=2"] {
        pack(parts);
        let said = verify(&packed, &[]).ok().stderr;
        let names = "4 samples checked (1 of them holds the names of the others), ";
        assert!(said.starts_with(names), "{parts}: {said}");
        // The files without the sample of names.
        let said = verify(&packed, &["--sample=0-2"]).ok().stderr;
        assert!(said.starts_with("3 samples checked, "), "{parts}: {said}");
    }
}
