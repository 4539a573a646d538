//! Several containers as one mount: how they are named, and how they are shown.

use super::write::{stored, tar, zip};
use super::{paths, tree};
use crate::common::{
    FFRFS, Mount, container_in, for_each_transport, noise, run, samples, temp_dir,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// WebDataset-like shards: `count` of them, each with `each` pairs of picture and label, numbered on.
fn shards(directory: &Path, count: usize, each: usize) -> Vec<PathBuf> {
    let write = |shard: usize| {
        let keys = shard * each..(shard + 1) * each;
        let files: Vec<(String, Vec<u8>)> = keys
            .flat_map(|key| {
                [
                    (format!("{key:06}.jpg"), noise(key as u64, 700 + key % 100)),
                    (format!("{key:06}.cls"), key.to_string().into_bytes()),
                ]
            })
            .collect();
        let members: Vec<_> = files.iter().map(|(name, b)| (name.as_str(), &b[..])).collect();
        let path = directory.join(format!("train-{shard:06}.tar"));
        fs::write(&path, tar(&members)).unwrap();
        path
    };
    (0..count).map(write).collect()
}

#[track_caller]
fn holds_keys(mount: &Mount, keys: std::ops::Range<usize>) {
    assert_eq!(mount.list("").len(), 2 * keys.len());
    for key in keys {
        assert!(mount.read(format!("{key:06}.jpg")).unwrap() == noise(key as u64, 700 + key % 100));
        assert_eq!(mount.read(format!("{key:06}.cls")).unwrap(), key.to_string().as_bytes());
    }
}

#[test]
fn shards_are_named_by_list_glob_directory_or_one_by_one() {
    let directory = temp_dir();
    let files = shards(directory.path(), 4, 5);
    fs::write(directory.path().join("readme.txt"), "no container").unwrap();
    for_each_transport(|transport| {
        let mount = |source: &str| Mount::new(transport, directory.path().join(source), &[]);
        holds_keys(&mount("train-*.tar"), 0..20);
        holds_keys(&mount("train-00000[12].tar"), 5..15);
        holds_keys(&mount("train-00000?.tar"), 0..20);
        holds_keys(&mount("train-{000000..000003}.tar"), 0..20);
        holds_keys(&mount("train-{000001..000002}.tar"), 5..15);
        holds_keys(&mount("{train-000000,train-000001}.tar"), 0..10);
        holds_keys(&mount(""), 0..20);
        let all: Vec<_> = files.iter().map(PathBuf::as_path).collect();
        holds_keys(&Mount::of(transport, &all, &[]), 0..20);
    });
}

#[test]
fn a_list_with_a_missing_shard_and_a_glob_without_files_are_refused_by_name() {
    let directory = temp_dir();
    shards(directory.path(), 2, 1);
    for (source, says) in
        [("train-{000000..000002}.tar", "train-000002.tar"), ("val-*.tar", "no file matches")]
    {
        let outcome = super::refused(&directory.path().join(source), &[]);
        assert_eq!(outcome.code, 2, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(says), "{}", outcome.stderr);
    }
}

#[test]
fn layout_shards_gives_each_container_a_directory() {
    let directory = temp_dir();
    let sub = directory.path().join("sub");
    fs::create_dir(&sub).unwrap();
    let files = shards(directory.path(), 2, 2);
    let numbered = samples(3, 900);
    let ffr = container_in(&directory, &numbered);
    let twin = sub.join("train-000000.tar");
    fs::write(&twin, tar(&[("only", b"one")])).unwrap();
    for_each_transport(|transport| {
        let sources = [&files[0], &files[1], &ffr, &twin].map(PathBuf::as_path);
        let mount = Mount::of(transport, &sources, &["layout=shards"]);
        let mut directories = mount.list("");
        directories.sort();
        assert_eq!(
            directories,
            ["data.ffr", "train-000000.tar", "train-000000.tar (1)", "train-000001.tar"]
        );
        assert_eq!(mount.read("train-000001.tar/000003.cls").unwrap(), b"3");
        assert_eq!(mount.read("train-000000.tar (1)/only").unwrap(), b"one");
        // Numbers begin anew in each directory.
        for (number, sample) in numbered.iter().enumerate() {
            assert!(mount.read(format!("data.ffr/{number:06}")).unwrap() == *sample);
        }
    });
}

#[test]
fn layout_merge_makes_one_tree_and_numbers_equal_names() {
    let directory = temp_dir();
    let write = |name: &str, bytes: Vec<u8>| {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let one = write("one.tar", tar(&[("d/x.txt", b"1"), ("a", b"a")]));
    let two = write("two.zip", zip(&[stored("d/x.txt", "2"), stored("d/b", "b")]));
    for_each_transport(|transport| {
        for options in [&[][..], &["layout=merge"]] {
            let mount = Mount::of(transport, &[&one, &two], options);
            assert_eq!(paths(&mount), ["a", "d/b", "d/x (1).txt", "d/x.txt"]);
            assert_eq!(mount.read("d/x.txt").unwrap(), b"1");
            assert_eq!(mount.read("d/x (1).txt").unwrap(), b"2");
        }
        let last = Mount::of(transport, &[&one, &two], &["dup=last"]);
        assert_eq!(last.read("d/x.txt").unwrap(), b"2");
        assert_eq!(paths(&last), ["a", "d/b", "d/x.txt"]);
    });
}

#[test]
fn two_hundred_shards_are_one_mount() {
    let directory = temp_dir();
    shards(directory.path(), 200, 2);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, directory.path().join("train-{000000..000199}.tar"), &[]);
        holds_keys(&mount, 0..400);
        assert_eq!(mount.info()["containers"].as_array().unwrap().len(), 200);
    });
}

#[test]
fn one_bad_shard_refuses_the_mount_and_is_named() {
    let directory = temp_dir();
    let files = shards(directory.path(), 3, 3);
    fs::write(&files[1], &fs::read(&files[1]).unwrap()[..1000]).unwrap();
    let outcome = super::refused(&directory.path().join("train-*.tar"), &[]);
    assert_eq!(outcome.code, 3, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("train-000001.tar"), "{}", outcome.stderr);
}

#[test]
fn of_several_bad_shards_the_first_in_order_is_named_although_all_are_read_at_the_same_time() {
    let directory = temp_dir();
    let large = shards(directory.path(), 1, 4000);
    let small = directory.path().join("train-000001.tar");
    let bytes = fs::read(&large[0]).unwrap();
    fs::write(&small, &bytes[..bytes.len() / 100]).unwrap();
    // The large shard is found to be bad last.
    fs::write(&large[0], &bytes[..bytes.len() - 2000]).unwrap();
    let outcome = super::refused(&directory.path().join("train-*.tar"), &[]);
    assert_eq!(outcome.code, 3, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("train-000000.tar"), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("train-000001.tar"), "{}", outcome.stderr);
}

#[test]
fn ls_cat_and_info_take_shards_too() {
    let directory = temp_dir();
    shards(directory.path(), 3, 2);
    let source = directory.path().join("train-*.tar");
    let ffrfs = |args: &[&str]| {
        let source = source.to_str().unwrap();
        let args = args.iter().map(|arg| if *arg == "SOURCE" { source } else { arg });
        run(Command::new(FFRFS).args(args)).ok()
    };
    let names = ffrfs(&["ls", "SOURCE"]).text();
    assert_eq!(names.lines().count(), 12, "{names}");
    assert_eq!(ffrfs(&["cat", "-s", "SOURCE", "000004.cls"]).stdout, b"4");
    assert!(ffrfs(&["info", "SOURCE"]).text().contains("train-000002.tar"));
    // The same tree as a mount's.
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &[]);
        assert_eq!(tree(mount.point()).len(), 12);
    });
}
