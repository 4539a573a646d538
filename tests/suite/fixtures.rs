//! The containers that the reference package wrote, mounted and compared with the contents that the package lists.

use crate::common::{Mount, Outcome, ffrfs, fixture, for_each_transport, temp_dir};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The expected files below a mount point: path, size and hash (`None` if the file is damaged).
struct Expected {
    files: Vec<(PathBuf, u64, Option<String>)>,
    /// Directories without entries.
    empty_directories: Vec<PathBuf>,
}

fn expectations() -> Map<String, Value> {
    let text = fs::read(fixture("expected.json")).expect("expected.json");
    serde_json::from_slice(&text).expect("expected.json is JSON")
}

fn expected(container: &str) -> Expected {
    let all = expectations();
    let entries = all[container].as_object().expect("what is in the container");
    let mut expected = Expected { files: Vec::new(), empty_directories: Vec::new() };
    for (path, entry) in entries {
        if entry["dir"] == true {
            expected.empty_directories.push(path.trim_end_matches('/').into());
            continue;
        }
        let size = entry["size"].as_u64().expect("a size");
        assert!(entry["error"].is_null() || entry["error"] == "EIO", "{entry}");
        let hash = entry["sha256"].as_str().map(str::to_owned);
        expected.files.push((path.into(), size, hash));
    }
    expected
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A way to read a file.
type Read = fn(&Path, u64) -> io::Result<Vec<u8>>;

fn whole(path: &Path, _: u64) -> io::Result<Vec<u8>> {
    fs::read(path)
}

fn last_half_first(path: &Path, size: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = vec![0; usize::try_from(size).expect("a small file")];
    let middle = size / 2;
    let (first, last) = bytes.split_at_mut(middle as usize);
    file.read_exact_at(last, middle)?;
    file.read_exact_at(first, 0)?;
    Ok(bytes)
}

#[track_caller]
fn compare_files(mount: &Mount, expected: &Expected, read: Read, start: usize) {
    let count = expected.files.len();
    for place in 0..count {
        let (name, size, hash) = &expected.files[(start + place) % count];
        let path = mount.path(name);
        assert_eq!(fs::metadata(&path).expect("stat").len(), *size, "{}", path.display());
        match (read(&path, *size), hash) {
            (Ok(bytes), Some(hash)) => {
                assert_eq!(sha256(&bytes), *hash, "{}", path.display());
            }
            (Err(e), None) => assert_eq!(e.raw_os_error(), Some(libc::EIO), "{}", path.display()),
            (read, _) => panic!("{}: {read:?}", path.display()),
        }
    }
}

/// Every path below a directory: files, and directories without entries.
fn walk(directory: &Path, files: &mut Vec<PathBuf>, empty_directories: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("list") {
        let path = entry.expect("entry").path();
        if !path.is_dir() {
            files.push(path);
        } else if fs::read_dir(&path).expect("list").next().is_none() {
            empty_directories.push(path);
        } else {
            walk(&path, files, empty_directories);
        }
    }
}

#[track_caller]
fn compare_names(mount: &Mount, expected: &Expected) {
    let (mut files, mut empty_directories) = (Vec::new(), Vec::new());
    walk(mount.point(), &mut files, &mut empty_directories);
    let sorted = |mut paths: Vec<PathBuf>| {
        paths.sort();
        paths
    };
    let inside = |name: &PathBuf| mount.path(name);
    let wanted = expected.files.iter().map(|(name, ..)| inside(name)).collect();
    assert_eq!(sorted(files), sorted(wanted));
    assert_eq!(
        sorted(empty_directories),
        sorted(expected.empty_directories.iter().map(inside).collect())
    );
}

/// The option with which no index is written beside a fixture.
const NO_INDEX: [&str; 1] = ["index=none"];

/// Compares a mount of a fixture with the expected files, whole and in parts, from one thread and many.
pub(crate) fn check(container: &str) {
    let expected = expected(container);
    for_each_transport(|transport| {
        // Each way of reading has its own mount, as bytes that were read once come from the page cache.
        for read in [whole as Read, last_half_first] {
            let mount = Mount::new(transport, fixture(container), &NO_INDEX);
            compare_names(&mount, &expected);
            compare_files(&mount, &expected, read, 0);
        }
        for read in [whole as Read, last_half_first] {
            let mount = Mount::new(transport, fixture(container), &NO_INDEX);
            std::thread::scope(|scope| {
                for reader in 0..32 {
                    let (mount, expected) = (&mount, &expected);
                    scope.spawn(move || compare_files(mount, expected, read, reader * 7));
                }
            });
        }
    });
}

#[test]
fn every_fixture_has_a_test_here() {
    let mut names: Vec<_> = expectations().keys().cloned().collect();
    names.sort();
    let mut tested = [
        "bad_header.ffr",
        "bad_sample.ffr",
        "basic.ffr",
        "empty.ffr",
        "no_header_checksum.ffr",
        "packed_folder.ffr",
        "parts",
        "pickled.ffr",
        "truncated_data.ffr",
        "truncated_index.ffr",
    ]
    .to_vec();
    // In `formats::typed`.
    tested.extend([
        "bad_magic.syr",
        "features.syr",
        "jpg.beton",
        "mixed.syr",
        "negative_offset.syr",
        "proportion.beton",
        "raw.beton",
        "truncated.syr",
    ]);
    // In `formats::keyed`.
    tested.extend(["data.mdb", "empty.mdb", "empty.safetensors", "tensors.safetensors"]);
    // In `formats::hdf5`.
    tested.extend(["earliest.h5", "latest.h5", "short-lengths.h5", "v110.h5"]);
    tested.extend(["padded-earliest.h5", "padded-latest.h5", "packed.h5", "plugins.h5"]);
    // In `formats::parquet`.
    tested.extend(["checked.parquet", "indexed.parquet", "nulls.parquet", "plain.parquet"]);
    tested.extend(["rows.parquet", "split.parquet"]);
    // In `formats::records`.
    tested.extend(["alike.tfrecord", "mds", "mixed.tfrecord", "steps.tfrecord"]);
    tested.sort_unstable();
    assert_eq!(names, tested);
}

#[test]
fn a_plain_container_is_served_as_the_reference_package_reads_it() {
    check("basic.ffr");
}

#[test]
fn one_bad_sample_gives_eio_and_all_others_are_served() {
    check("bad_sample.ffr");
}

#[test]
fn a_dataset_without_samples_is_an_empty_directory() {
    check("empty.ffr");
}

#[test]
fn a_container_without_header_checksum_is_served_with_a_warning() {
    check("no_header_checksum.ffr");
    for_each_transport(|transport| {
        let mount = Mount::new(transport, fixture("no_header_checksum.ffr"), &[]);
        let info = mount.info();
        let container = &info["containers"][0];
        assert_eq!(container["index_checksum"], "absent");
        assert_eq!(container["warnings"].as_array().map(Vec::len), Some(1));
        assert!(mount.log().contains("checksum"), "{}", mount.log());
    });
}

#[test]
fn a_packed_folder_is_shown_as_its_tree() {
    check("packed_folder.ffr");
}

#[test]
fn a_directory_of_parts_is_one_dataset() {
    check("parts");
}

#[test]
fn files_named_one_by_one_are_numbered_on_in_the_given_order() {
    let parts = ["PART_00000.ffr", "PART_00001.ffr", "PART_00002.ffr"];
    let parts = parts.map(|name| fixture("parts").join(name));
    let expected = expected("parts");
    for_each_transport(|transport| {
        let in_order = Mount::of(transport, &parts.each_ref().map(PathBuf::as_path), &[]);
        compare_names(&in_order, &expected);
        compare_files(&in_order, &expected, whole, 0);
        let last_first = Mount::of(transport, &[&parts[2], &parts[0], &parts[1]], &[]);
        let first_of_last: usize = {
            let info = in_order.info();
            let samples =
                |part: usize| info["containers"][part]["samples"].as_u64().expect("count");
            (samples(0) + samples(1)) as usize
        };
        let moved = last_first.read("000000").expect("the first sample");
        assert_eq!(moved, in_order.read(format!("{first_of_last:06}")).expect("the same one"));
        assert_eq!(last_first.list("").len(), in_order.list("").len());
    });
}

#[test]
fn pickled_samples_are_served_as_they_are() {
    check("pickled.ffr");
}

#[test]
fn a_container_cut_in_its_data_serves_what_is_whole_if_that_is_asked_for() {
    let expected = expected("basic.ffr");
    for_each_transport(|transport| {
        let options = ["allow_damaged"];
        let mount = Mount::new(transport, fixture("truncated_data.ffr"), &options);
        assert_eq!(mount.list("").len(), expected.files.len());
        let (mut good, mut bad) = (0, 0);
        for (name, size, hash) in &expected.files {
            match mount.read(name) {
                Ok(bytes) => {
                    assert_eq!(bytes.len() as u64, *size, "{}", name.display());
                    assert_eq!(Some(sha256(&bytes)), *hash, "{}", name.display());
                    good += 1;
                }
                Err(e) => {
                    assert_eq!(e.raw_os_error(), Some(libc::EIO), "{}", name.display());
                    bad += 1;
                }
            }
        }
        assert!(good > 10 && bad > 10, "{good} good, {bad} bad");
        assert_eq!(mount.bad().len(), bad);
    });
}

/// Checks that `ffrfs mount` fails, and names the file and the byte.
pub(crate) fn refuse(container: &str, exit: i32, says: &[&str]) {
    let directory = temp_dir();
    let source = fixture(container);
    let args = [Path::new("mount"), &source, directory.path()];
    let Outcome { code, stderr, .. } = ffrfs(&args);
    assert_eq!(code, exit, "{stderr}");
    for word in says.iter().copied().chain([container, "byte"]) {
        assert!(stderr.contains(word), "{word:?} is not in: {stderr}");
    }
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(!crate::common::is_mount_point(directory.path()));
}

#[test]
fn a_header_that_fails_its_checksum_is_refused_with_exit_code_4() {
    refuse("bad_header.ffr", 4, &["checksum", "expected", "found"]);
}

#[test]
fn a_container_cut_in_its_data_is_refused_with_exit_code_3() {
    refuse("truncated_data.ffr", 3, &["expected", "found", "allow-damaged"]);
}

#[test]
fn a_container_cut_in_its_index_is_refused_with_exit_code_3() {
    refuse("truncated_index.ffr", 3, &["expected", "found"]);
}

#[test]
fn one_bad_file_of_several_refuses_the_mount_and_is_named() {
    let directory = temp_dir();
    let (good, bad) = (fixture("basic.ffr"), fixture("bad_header.ffr"));
    let outcome = ffrfs(&[Path::new("mount"), &good, &bad, directory.path()]);
    assert_eq!(outcome.code, 4, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("bad_header.ffr"), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("basic.ffr"), "{}", outcome.stderr);
}

#[test]
fn a_missing_source_is_refused_with_exit_code_2() {
    let directory = temp_dir();
    let missing = directory.path().join("missing.ffr");
    let outcome = ffrfs(&[Path::new("mount"), &missing, directory.path()]);
    assert_eq!(outcome.code, 2, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("missing.ffr"), "{}", outcome.stderr);
}
