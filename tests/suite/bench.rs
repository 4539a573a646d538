//! `ffrfs bench`: it measures its targets, and unmounts what it has mounted itself.

use super::common::{
    FFRFS, Mount, Need, Transport, ffrfs, flip_byte, have, offsets, run, samples, temp_dir,
    write_container,
};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

const QUICK: [&str; 4] = ["--rounds=2", "--seconds=60", "-j2", "--batch=8"];

fn bench(targets: &[&Path], args: &[&str]) -> super::common::Outcome {
    run(Command::new(FFRFS).arg("bench").args(targets).args(QUICK).args(args))
}

#[test]
fn what_cannot_be_mounted_is_told_in_one_line_without_a_directory_that_nobody_has_chosen() {
    if !have(Need::Fuse) {
        return;
    }
    let outcome = bench(&[Path::new("nosuchthing")], &[]);
    assert_eq!(outcome.code, 2, "{}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("nosuchthing: No such file"), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("ffrfs-bench-"), "{}", outcome.stderr);
}

/// Checks that no mount of a benchmark is left.
fn assert_no_mount_is_left(container: &Path) {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let name = container.to_str().unwrap();
    let left: Vec<_> = table.lines().filter(|line| line.contains(name)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn containers_mounts_and_directories_are_measured_side_by_side() {
    if !have(Need::Fuse) {
        return;
    }
    let work = temp_dir();
    let samples = samples(60, 20_000);
    let total: usize = samples.iter().map(Vec::len).sum();
    let container = work.path().join("data.ffr");
    write_container(&container, &samples);
    let directory = work.path().join("loose");
    ffrfs(&[OsStr::new("extract"), container.as_os_str(), directory.as_os_str()]).ok();
    let mount = Mount::new(Transport::DevFuse, &container, &[]);
    let targets = [&*container, mount.point(), &directory];
    let svg = work.path().join("chart.svg");
    let outcome = bench(&targets, &["--json", "--svg", svg.to_str().unwrap()]).ok();
    let rows: Vec<Value> = serde_json::from_slice(&outcome.stdout).unwrap();
    // The container is mounted twice: without options, and with rw.
    assert_eq!(rows.len(), 4 * 3);
    for row in &rows {
        for (pass, count) in [("first", 2), ("later", 2)] {
            let figures = row[pass].as_array().unwrap();
            assert_eq!(figures.len(), count, "{row}");
            for figure in figures {
                assert_eq!(figure["files"], 60, "{row}");
                assert_eq!(figure["bytes"], total, "{row}");
                assert!(figure["seconds"].as_f64().unwrap() > 0.0 && figure["failed"] == 0);
            }
        }
    }
    let access: Vec<_> = rows.iter().map(|row| row["access"].as_str().unwrap()).collect();
    for how in ["mounted for this", "mounted for this with rw"] {
        assert_eq!(access.iter().filter(|access| **access == how).count(), 3, "{how}");
    }
    let chart = fs::read_to_string(&svg).unwrap();
    // Two bars for each row, behind the background and the legend.
    assert_eq!(chart.matches("<rect").count(), 3 + 2 * 12);
    let refused = bench(&targets, &["--svg", svg.to_str().unwrap()]);
    assert!(refused.code == 6 && refused.stderr.contains("--force"), "{}", refused.stderr);
    mount.unmount();
    assert_no_mount_is_left(&container);
}

#[test]
fn the_chart_is_well_formed_whatever_the_names_are() {
    if !have(Need::Program("python3")) {
        return;
    }
    let work = temp_dir();
    let directory = work.path().join("a<b>&\"c'\u{1}é");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("x"), "x").unwrap();
    let svg = work.path().join("chart.svg");
    bench(&[&directory], &["--svg", svg.to_str().unwrap()]).ok();
    let script = "import sys, xml.dom.minidom as m; m.parse(sys.argv[1])";
    super::common::python(script, &[&svg]).ok();
}

#[test]
fn the_table_has_a_line_for_each_pass_and_only_the_files_asked_for_are_read() {
    let work = temp_dir();
    for file in 0..30 {
        fs::write(work.path().join(file.to_string()), vec![0; 1000]).unwrap();
    }
    let outcome = bench(&[work.path()], &["--mode", "shuffled,loader", "--samples", "10"]).ok();
    let text = outcome.text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 4 + 1, "{text}");
    assert!(
        lines[0].contains("files/s") && lines[1].contains("shuffled") && lines[1].contains("first")
    );
    assert!(lines[4].contains("loader") && lines[4].contains("second"), "{text}");
    assert!(lines[5].contains("1000 bytes on average"), "{text}");
    let outcome = bench(&[work.path()], &["--samples=10", "--mode=sequential", "--json"]).ok();
    let rows: Value = serde_json::from_slice(&outcome.stdout).unwrap();
    assert_eq!(rows[0]["first"][0]["files"], 10);
}

#[test]
fn what_cannot_be_read_is_said() {
    if !have(Need::Fuse) {
        return;
    }
    let work = temp_dir();
    let samples = samples(20, 5000);
    let container = work.path().join("data.ffr");
    write_container(&container, &samples);
    let at = samples.iter().position(|sample| sample.len() > 100).unwrap();
    flip_byte(&container, offsets(&samples)[at] + 50);
    let outcome = bench(&[&container], &["--mode=sequential", "-Oro"]);
    assert_eq!(outcome.code, 4, "{}", outcome.stderr);
    // Two rounds of two passes.
    assert!(outcome.stderr.contains("4 reads failed"), "{}", outcome.stderr);
    let broken = work.path().join("broken.zip");
    fs::write(&broken, "PK\x03\x04nothing").unwrap();
    assert_eq!(bench(&[&broken], &[]).code, 3);
    assert_eq!(bench(&[&work.path().join("missing.zip")], &[]).code, 2);
    assert_no_mount_is_left(&container);
}

#[test]
fn passes_that_are_too_short_to_tell_are_warned_of() {
    let work = temp_dir();
    for file in 0..5 {
        fs::write(work.path().join(file.to_string()), "x").unwrap();
    }
    let bench = |target: &Path, args: &[&str]| {
        run(Command::new(FFRFS).arg("bench").arg(target).arg("--mode=sequential").args(args)).ok()
    };
    let outcome = bench(work.path(), &["--rounds=10"]);
    let said = outcome.stderr.trim();
    // A busy machine may take longer for some of the passes.
    let count = said.split_whitespace().nth(1).and_then(|word| word.parse::<u32>().ok());
    assert!(count.is_some_and(|count| (1..=20).contains(&count)), "{said}");
    let advice = "of 20 passes took less than 0.2 s: read more files, or do not trust the figures";
    assert!(said.ends_with(advice), "{said}");
    // More bytes than any machine reads in a second.
    let large = work.path().join("large");
    fs::create_dir(&large).unwrap();
    for file in 0..200 {
        let file = fs::File::create(large.join(file.to_string())).unwrap();
        file.set_len(256 << 20).unwrap();
    }
    let outcome = bench(&large, &["--rounds=1", "--epochs=1", "--seconds=1"]);
    assert_eq!(outcome.stderr, "");
}
