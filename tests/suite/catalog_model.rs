//! Names in a mount against a model: trees from a file of names, numbers with every view, over one or more
//! containers; `ls -R` must list the same names.

use super::common::{
    FFRFS, Mount, Transport, for_each_transport, noise, run, temp_dir, write_container,
};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Paths of files and their bytes.
type Files = BTreeMap<Vec<u8>, Vec<u8>>;

/// Everything below a directory: files with their bytes, and directories.
fn walk(root: &Path) -> (Files, BTreeSet<Vec<u8>>) {
    let (mut files, mut directories) = (Files::new(), BTreeSet::new());
    let mut pending = vec![Vec::new()];
    while let Some(below) = pending.pop() {
        for entry in fs::read_dir(root.join(OsStr::from_bytes(&below))).unwrap() {
            let entry = entry.unwrap();
            let mut path = below.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&entry.file_name().into_vec());
            if entry.file_type().unwrap().is_dir() {
                assert!(directories.insert(path.clone()), "listed once");
                pending.push(path);
            } else {
                assert!(files.insert(path, fs::read(entry.path()).unwrap()).is_none());
            }
        }
    }
    (files, directories)
}

/// The directories on the way to files.
fn directories_of(files: &Files) -> BTreeSet<Vec<u8>> {
    let ends = |path: &[u8]| -> Vec<usize> {
        path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at).collect()
    };
    files.keys().flat_map(|path| ends(path).into_iter().map(|end| path[..end].to_vec())).collect()
}

/// Writes containers with these numbers of samples; returns their paths, and all samples.
fn containers(directory: &Path, parts: &[usize]) -> (Vec<PathBuf>, Vec<Vec<u8>>) {
    let mut all = Vec::new();
    let paths = parts.iter().enumerate().map(|(part, &count)| {
        let sample = |i: usize| noise((part * 1000 + i) as u64, (i * 37 + part) % 90);
        let samples: Vec<_> = (0..count).map(sample).collect();
        let path = directory.join(format!("{part}.ffr"));
        write_container(&path, &samples);
        all.extend(samples);
        path
    });
    (paths.collect(), all)
}

/// Mounts with these options, and compares with the model in every way.
fn compare(transport: Transport, sources: &[PathBuf], options: &[String], model: &Files) {
    let sources: Vec<_> = sources.iter().map(PathBuf::as_path).collect();
    let borrowed: Vec<_> = options.iter().map(String::as_str).collect();
    let mount = Mount::of(transport, &sources, &borrowed);
    // The paths are looked up before the listing tells the kernel of them.
    for (path, bytes) in model {
        assert_eq!(&mount.read(OsStr::from_bytes(path)).unwrap(), bytes);
        let mut other = path.clone();
        other.push(b'x');
        if !model.contains_key(&other)
            && !directories_of(model).contains(&other)
            && other.len() < 200
        {
            let error = fs::metadata(mount.path(OsStr::from_bytes(&other))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
    }
    let (files, directories) = walk(mount.point());
    assert!(&files == model, "{:?} {:?}", files.keys(), model.keys());
    assert_eq!(directories, directories_of(model));

    let flags = options.iter().map(|option| format!("--{option}"));
    let mut ls = Command::new(FFRFS);
    let listed = run(ls.arg("ls").arg("-R").args(flags).args(&sources)).ok().stdout;
    let mut lines: Vec<&[u8]> = listed.split(|&byte| byte == b'\n').collect();
    assert_eq!(lines.pop(), Some(&b""[..]));
    let slashed = directories.iter().map(|directory| [directory, &b"/"[..]].concat());
    let expected: BTreeSet<_> = files.into_keys().chain(slashed).collect();
    assert_eq!(lines.len(), expected.len());
    assert_eq!(lines.into_iter().map(<[u8]>::to_vec).collect::<BTreeSet<_>>(), expected);
}

fn any_parts() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![1 => Just(0usize), 4 => 1usize..25], 1..5)
}

/// Enough paths for every dataset; a name is never that of a directory, since it ends in `f`.
fn any_paths() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let bytes = vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0xff), Just(b' '), Just(b'-')], 1..4);
    let path =
        (vec(bytes.clone(), 0..4), vec(any::<u8>(), 0..6)).prop_map(|(directories, name)| {
            let mut names = directories;
            let is_plain = |byte: &u8| !matches!(byte, 0 | b'/' | b'\n' | b'\r');
            names.push(name.into_iter().filter(is_plain).chain([b'f']).collect());
            names.join(&b'/')
        });
    btree_set(path, 100..140).prop_map(|paths| paths.into_iter().collect::<Vec<_>>()).prop_shuffle()
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..Default::default() })
}

#[test]
fn any_file_of_names_is_shown_as_its_tree() {
    for_each_transport(|transport| {
        let tested = runner(8).run(&(any_parts(), any_paths()), |(parts, paths)| {
            let work = temp_dir();
            let (sources, samples) = containers(work.path(), &parts);
            let names = work.path().join("names");
            let lines: Vec<_> = paths.iter().take(samples.len()).cloned().collect();
            fs::write(&names, lines.join(&b'\n')).unwrap();
            let model = lines.into_iter().zip(samples).collect();
            compare(transport, &sources, &[format!("names={}", names.display())], &model);
            Ok(())
        });
        tested.unwrap();
    });
}

#[test]
fn any_view_of_numbers_is_shown_as_they_print() {
    let views = (
        any_parts(),
        proptest::option::of(1usize..30),
        prop_oneof![Just(""), Just(".jpg"), Just(".tar.gz"), Just(".")],
    );
    for_each_transport(|transport| {
        let tested = runner(8).run(&views, |(parts, fanout, suffix)| {
            let work = temp_dir();
            let (sources, samples) = containers(work.path(), &parts);
            let name = |i: usize| match fanout {
                Some(fanout) => format!("{:03}/{i:06}{suffix}", i / fanout),
                None => format!("{i:06}{suffix}"),
            };
            let model =
                samples.into_iter().enumerate().map(|(i, s)| (name(i).into_bytes(), s)).collect();
            let fanout = fanout.map(|fanout| format!("fanout={fanout}"));
            let options: Vec<_> = [format!("suffix={suffix}")].into_iter().chain(fanout).collect();
            compare(transport, &sources, &options, &model);
            Ok(())
        });
        tested.unwrap();
    });
}
