//! One bad member is one bad file; a bad structure refuses the mount.

use super::write::{deflated, stored, tar, text, zip_with_places};
use super::{file_in, refused, tree};
use crate::common::{
    FFRFS, Held, Mount, TempDir, assert_errno, flip_byte, for_each_transport, noise, run, temp_dir,
};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A zip file of four members, one byte of the data of number `bad` flipped.
fn damaged_zip(directory: &TempDir, bad: usize) -> PathBuf {
    let members = [
        stored("sub/stored", noise(1, 50_000)),
        deflated("sub/deflated", text(2, 50_000)),
        stored("other", noise(3, 100)),
        deflated("last", text(4, 9000)),
    ];
    let (bytes, places) = zip_with_places(&members);
    let path = file_in(directory, &format!("bad{bad}.zip"), bytes);
    flip_byte(&path, places[bad] + members[bad].stored.len() as u64 / 2);
    path
}

const NAMES: [&str; 4] = ["sub/stored", "sub/deflated", "other", "last"];

fn content(number: usize) -> Vec<u8> {
    match number {
        0 => noise(1, 50_000),
        1 => text(2, 50_000),
        2 => noise(3, 100),
        _ => text(4, 9000),
    }
}

#[test]
fn a_flipped_byte_gives_eio_for_its_member_alone() {
    let directory = temp_dir();
    for (bad, bad_name) in NAMES.iter().enumerate() {
        let path = damaged_zip(&directory, bad);
        for_each_transport(|transport| {
            let mount = Mount::new(transport, &path, &[]);
            assert!(mount.bad().is_empty());
            for (number, name) in NAMES.iter().enumerate() {
                match number == bad {
                    true => assert_errno(mount.read(name), libc::EIO),
                    false => assert!(mount.read(name).unwrap() == content(number), "{name}"),
                }
            }
            // Also for a part of the member that is right in itself.
            let mut first = [0; 16];
            let file = File::open(mount.path(bad_name)).unwrap();
            let read = std::os::unix::fs::FileExt::read_at(&file, &mut first, 0);
            assert_errno(read, libc::EIO);
            let listed = mount.bad();
            assert_eq!(listed.len(), 1, "{listed:?}");
            assert_eq!(
                (listed[0][0].as_str(), listed[0][2].as_str()),
                (*bad_name, path.to_str().unwrap())
            );
            assert!(mount.log().contains("gives EIO"), "{}", mount.log());
        });
    }
}

#[test]
fn verify_names_the_member_and_ends_with_exit_code_4() {
    let directory = temp_dir();
    for (bad, name) in NAMES.iter().enumerate() {
        let path = damaged_zip(&directory, bad);
        let outcome = run(Command::new(FFRFS).arg("verify").arg(&path));
        assert_eq!(outcome.code, 4, "{}", outcome.stderr);
        let text = outcome.text();
        assert!(text.lines().count() == 1 && text.contains(&format!("({name})")), "{text}");
        assert!(outcome.stderr.contains("1 bad"), "{}", outcome.stderr);
        let report = run(Command::new(FFRFS).args(["verify", "--json"]).arg(&path));
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        assert_eq!(report["bad"].as_array().map(Vec::len), Some(1));
        assert_eq!(report["bad"][0]["path"], *name);
    }
}

/// An archive of three members, cut in the second one; and the offset of the cut.
fn cut_tar(directory: &TempDir) -> (PathBuf, usize) {
    let members = [("one", noise(1, 3000)), ("two", noise(2, 30_000)), ("three", noise(3, 300))];
    let bytes = tar(&members.each_ref().map(|(name, bytes)| (*name, &bytes[..])));
    let cut = 512 + 3072 + 512 + 20_000;
    (file_in(directory, "cut.tar", &bytes[..cut]), cut)
}

#[test]
fn a_truncated_tar_is_refused_with_the_byte_where_it_breaks_off() {
    let directory = temp_dir();
    let (path, cut) = cut_tar(&directory);
    let outcome = refused(&path, &[]);
    assert_eq!(outcome.code, 3, "{}", outcome.stderr);
    for says in ["cut.tar", "at byte", "expected", "found", "allow-damaged"] {
        assert!(outcome.stderr.contains(says), "{says:?} is not in {}", outcome.stderr);
    }
    // The member's data begin at 4096; the file ends at the cut.
    let places = ["3584", "4096", &cut.to_string()];
    assert!(
        places.iter().any(|place| outcome.stderr.contains(&format!("byte {place}:"))),
        "{}",
        outcome.stderr
    );
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
}

#[test]
fn a_truncated_tar_serves_what_is_whole_if_that_is_asked_for() {
    let directory = temp_dir();
    let (path, _) = cut_tar(&directory);
    for_each_transport(|transport| {
        // The second mount uses the kept index.
        for _ in 0..2 {
            let mount = Mount::new(transport, &path, &["allow_damaged"]);
            let mut names = mount.list("");
            names.sort();
            assert_eq!(names, ["one", "two"]);
            assert!(mount.read("one").unwrap() == noise(1, 3000));
            assert_errno(mount.read("two"), libc::EIO);
            assert_eq!(mount.bad()[0][0], "two");
        }
    });
    // Damage that was allowed once is not allowed for ever.
    assert_eq!(refused(&path, &[]).code, 3);
}

#[test]
fn a_truncated_zip_is_refused_always() {
    let directory = temp_dir();
    let (bytes, _) = zip_with_places(&[stored("a", noise(1, 5000)), stored("b", "b")]);
    for cut in [bytes.len() - 1, bytes.len() - 30, 3000] {
        let path = file_in(&directory, "cut.zip", &bytes[..cut]);
        for options in [&[][..], &["allow_damaged"]] {
            let outcome = refused(&path, options);
            assert_eq!(outcome.code, 3, "{cut}: {}", outcome.stderr);
            assert!(outcome.stderr.contains("cut.zip"), "{}", outcome.stderr);
        }
    }
}

/// Containers of one file called `known` and one called `later`, of each format with members.
fn containers(directory: &Path, seed: u64) -> Vec<PathBuf> {
    let (known, later) = (noise(seed, 5000), text(seed, 40_000));
    let zip = zip_with_places(&[stored("known", &known), deflated("later", &later)]).0;
    let tar = tar(&[("known", &known), ("later", &later)]);
    let gz = super::write::through("gzip", &["-c"], &tar);
    let write = |(name, bytes): (&str, Vec<u8>)| {
        let path = directory.join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    [("x.zip", zip), ("x.tar", tar), ("x.tgz", gz)].map(write).to_vec()
}

#[test]
fn a_container_that_is_replaced_while_it_is_mounted_gives_eio() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let other = temp_dir();
        let others = containers(other.path(), 2);
        for (path, new) in containers(directory.path(), 1).iter().zip(&others) {
            let mount = Mount::new(transport, path, &[]);
            assert!(mount.read("known").unwrap() == noise(1, 5000));
            let held = Held::new(&mount.path("known"));
            let moved = directory.path().join("new");
            fs::copy(new, &moved).unwrap();
            fs::rename(&moved, path).unwrap();
            mount.wait_until_change_is_noticed("later");
            assert_errno(mount.read("later"), libc::EIO);
            // The kernel keeps the bytes that it has.
            assert!(mount.read("known").unwrap() == noise(1, 5000));
            assert!(mount.is_served());
            assert!(
                mount.bad().iter().any(|line| line[1].contains("replaced")),
                "{:?}",
                mount.bad()
            );
            drop(held);
            mount.unmount();
            let again = Mount::new(transport, path, &[]);
            let all = tree(again.point());
            assert!(all["known"] == noise(2, 5000) && all["later"] == text(2, 40_000));
        }
    });
}

#[test]
fn a_container_that_is_truncated_while_it_is_mounted_gives_eio() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        for path in containers(directory.path(), 1) {
            let mount = Mount::new(transport, &path, &[]);
            File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
            assert_errno(mount.read("later"), libc::EIO);
            assert!(mount.is_served(), "{}", mount.log());
        }
    });
}
