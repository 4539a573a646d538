//! Kept indexes of compressed containers in containers, so that the next mount decodes nothing.

use super::write::{deflated, stored, tar, text, through, zip, zip_with_places};
use super::{file_in, tree};
use crate::common::{
    FFRFS, Mount, Need, TempDir, Transport, assert_errno, container_in, flip_byte,
    for_each_transport, have, noise, run, samples, temp_dir,
};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

type Tree = BTreeMap<String, Vec<u8>>;

const STAYS_A_FILE: &str = "shown as a file";

/// A zip of compressed members that are containers; the tree that it shows two levels deep; and the members' offsets.
fn nested(large_bytes: usize) -> (Vec<u8>, Tree, Vec<u64>) {
    let (large, image) = (text(5, large_bytes), noise(7, 300_000));
    let inner_zip = zip(&[deflated("large", &large), stored("image", &image), stored("none", "")]);
    let ranges = zip(&[stored("image", &image), stored("large", &large)]);
    let inner_tar = tar(&[("d/large", &large), ("image", &image), ("ranges.zip", &ranges)]);
    let directory = temp_dir();
    let all = samples(7, 3000);
    let ffr = fs::read(container_in(&directory, &all)).unwrap();
    let mut members = vec![
        // The key of an index covers both ends of the container.
        stored("before", noise(1, 100_000)),
        deflated("in.tar", &inner_tar),
        deflated("in.zip", &inner_zip),
        deflated("ranges.zip", &ranges),
        deflated("in.ffr", &ffr),
    ];
    let mut shown = vec![
        ("before".to_owned(), noise(1, 100_000)),
        ("behind".to_owned(), noise(2, 100_000)),
        ("in.tar/d/large".to_owned(), large.clone()),
        ("in.tar/image".to_owned(), image.clone()),
        ("in.tar/ranges.zip/image".to_owned(), image.clone()),
        ("in.tar/ranges.zip/large".to_owned(), large.clone()),
        ("in.zip/large".to_owned(), large.clone()),
        ("in.zip/image".to_owned(), image.clone()),
        ("in.zip/none".to_owned(), Vec::new()),
        ("ranges.zip/image".to_owned(), image.clone()),
        ("ranges.zip/large".to_owned(), large.clone()),
    ];
    let numbered = all.iter().enumerate();
    shown.extend(numbered.map(|(number, bytes)| (format!("in.ffr/{number:06}"), bytes.clone())));
    if have(Need::Program("gzip")) {
        members.push(stored("in.tar.gz", through("gzip", &["-c", "-1"], &inner_tar)));
        shown.extend([
            ("in.tar.gz/d/large".to_owned(), large.clone()),
            ("in.tar.gz/image".to_owned(), image.clone()),
            ("in.tar.gz/ranges.zip/image".to_owned(), image),
            ("in.tar.gz/ranges.zip/large".to_owned(), large),
        ]);
    }
    members.push(stored("behind", noise(2, 100_000)));
    let (bytes, places) = zip_with_places(&members);
    (bytes, shown.into_iter().collect(), places)
}

fn kept_beside(container: &Path) -> PathBuf {
    let mut path = container.to_owned().into_os_string();
    path.push(".nested.ffrfs-index");
    path.into()
}

/// The names of all files below a directory; no file is read.
fn names_below(root: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => directories.push(path),
                false => names.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned()),
            }
        }
    }
    names.sort();
    names
}

#[track_caller]
fn shows(transport: Transport, source: &Path, expected: &Tree) -> Mount {
    let mount = Mount::new(transport, source, &["nested=2"]);
    let found = tree(mount.point());
    let differ = |name: &&String| found.get(*name) != expected.get(*name);
    let wrong: Vec<_> = found.keys().chain(expected.keys()).filter(differ).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(mount.bad().is_empty(), "{:?}", mount.bad());
    mount
}

#[test]
fn the_second_mount_decodes_no_member_for_its_names() {
    let (bytes, expected, places) = nested(6 << 20);
    for_each_transport(|transport| {
        let directory = temp_dir();
        let source = file_in(&directory, "outer.zip", &bytes);
        shows(transport, &source, &expected).unmount();
        assert!(kept_beside(&source).exists());
        let before = fs::read(kept_beside(&source)).unwrap();
        shows(transport, &source, &expected).unmount();
        assert!(fs::read(kept_beside(&source)).unwrap() == before, "nothing new was found");
        // A mount that decoded these members would find them damaged.
        for place in &places[1..places.len() - 1] {
            flip_byte(&source, place + 2000);
        }
        let mount = Mount::new(transport, &source, &["nested=2"]);
        let names = names_below(mount.point());
        assert!(!mount.log().contains(STAYS_A_FILE), "{}", mount.log());
        assert_eq!(names, expected.keys().cloned().collect::<Vec<_>>());
        let large = &expected["in.zip/large"];
        for name in
            ["in.tar/d/large", "in.tar/ranges.zip/large", "in.zip/large", "ranges.zip/large"]
        {
            assert_eq!(fs::metadata(mount.path(name)).unwrap().len(), large.len() as u64, "{name}");
        }
        // Bytes outside of the damaged intervals are right, and bytes inside are not served.
        let file = File::open(mount.path("in.tar/ranges.zip/large")).unwrap();
        let mut end = [0; 1000];
        file.read_exact_at(&mut end, large.len() as u64 - 1000).unwrap();
        assert!(end == large[large.len() - 1000..]);
        drop(file);
        assert_errno(mount.read("in.tar/d/large"), libc::EIO);
        mount.unmount();
        let none = Mount::new(transport, &source, &["nested=2", "index=none"]);
        assert!(none.log().contains(STAYS_A_FILE), "{}", none.log());
        assert!(fs::metadata(none.path("in.tar")).unwrap().is_file());
    });
}

#[test]
fn kept_indexes_of_another_version_or_damaged_ones_are_made_anew() {
    let (bytes, expected, _) = nested(200_000);
    let directory = temp_dir();
    let source = file_in(&directory, "outer.zip", &bytes);
    let transport = Transport::DevFuse;
    shows(transport, &source, &expected).unmount();
    let kept = kept_beside(&source);
    let whole = fs::read(&kept).unwrap();
    for at in [3, 30, 120, 200, whole.len() / 2, whole.len() - 10] {
        let mut wrong = whole.clone();
        wrong[at] ^= 0x40;
        fs::write(&kept, wrong).unwrap();
        shows(transport, &source, &expected).unmount();
        fs::write(&kept, &whole[..at]).unwrap();
        shows(transport, &source, &expected).unmount();
    }
    let other = zip(&[deflated("in.tar", tar(&[("other", b"other")]))]);
    fs::write(&source, other).unwrap();
    let expected = [("in.tar/other".to_owned(), b"other".to_vec())].into();
    shows(transport, &source, &expected).unmount();
    shows(transport, &source, &expected).unmount();
}

#[test]
fn indexes_of_nested_containers_lie_where_the_options_say() {
    let (bytes, expected, _) = nested(200_000);
    let (directory, elsewhere): (TempDir, TempDir) = (temp_dir(), temp_dir());
    let source = file_in(&directory, "outer.zip", &bytes);
    let names = |of: &TempDir| {
        let entries = fs::read_dir(of.path()).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.contains("nested"))
            .collect();
        names.sort();
        names
    };
    let mount = |option: &str| {
        let mount = Mount::new(Transport::DevFuse, &source, &["nested=2", option]);
        assert_eq!(names_below(mount.point()).len(), expected.len());
        mount.unmount();
    };
    mount("index=none");
    mount("index=memory");
    assert!(names(&directory).is_empty());
    mount(&format!("index_dir={}", elsewhere.path().display()));
    let [name] = &names(&elsewhere)[..] else { panic!("{:?}", names(&elsewhere)) };
    assert!(name.starts_with("outer.zip-") && name.ends_with(".nested.ffrfs-index"), "{name}");
    mount(&format!("index={}", elsewhere.path().join("mine").display()));
    assert_eq!(names(&elsewhere)[0], "mine.nested.ffrfs-index");
    assert!(names(&directory).is_empty());
    let listed = run(Command::new(FFRFS).args(["index", "--nested=2"]).arg(&source)).ok();
    assert!(listed.stderr.contains("outer.zip.nested.ffrfs-index"), "{listed:?}");
    // The kept index is not taken for a container.
    let all = Mount::new(Transport::DevFuse, directory.path(), &["nested=2"]);
    assert_eq!(names_below(all.point()).len(), expected.len());
}
