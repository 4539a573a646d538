//! safetensors and LMDB: values that have names, and the containers that the packages' own writers wrote.

use super::write::tar;
use super::{file_in, paths, refused, tree};
use crate::common::{FFRFS, Mount, fixture, for_each_transport, run, temp_dir};
use crate::fixtures::check;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs `ffrfs` without indexes, and returns its output.
#[track_caller]
fn tool(args: &[&str], paths: &[&Path]) -> String {
    let command = &mut Command::new(FFRFS);
    let outcome = run(command.args(args).args(["--index", "none"]).args(paths)).ok();
    format!("{}{}", outcome.text(), outcome.stderr)
}

#[test]
fn safetensors_is_served_as_the_package_reads_it() {
    check("tensors.safetensors");
    check("empty.safetensors");
}

#[test]
fn lmdb_is_served_as_the_package_reads_it() {
    check("data.mdb");
    check("empty.mdb");
}

#[test]
fn the_directory_of_a_database_is_its_data_and_its_lock_file_is_left_alone() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let data = fs::read(fixture("data.mdb")).unwrap();
        file_in(&directory, "data.mdb", &data);
        let lock = file_in(
            &directory,
            "lock.mdb",
            [&0xbeef_c0de_u32.to_le_bytes()[..], &[0; 8188]].concat(),
        );
        let expected = tree(Mount::new(transport, fixture("data.mdb"), &["index=none"]).point());
        let whole = format!("{}/*.mdb", directory.path().display());
        for source in [directory.path(), Path::new(&whole)] {
            let mount = Mount::new(transport, source, &["index=none"]);
            assert!(tree(mount.point()) == expected, "other names or bytes");
        }
        let said = refused(&lock, &[]).stderr;
        assert!(said.contains("is the lock file of an LMDB database"), "{said}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "nothing is written there");
    });
}

#[test]
fn a_kept_index_of_a_database_is_that_of_its_view() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let database = file_in(&directory, "x.lmdb", fs::read(fixture("data.mdb")).unwrap());
        let expected = tree(Mount::new(transport, &database, &["index=none"]).point());
        for _ in 0..2 {
            assert!(tree(Mount::new(transport, &database, &[]).point()) == expected);
            assert!(directory.path().join("x.lmdb.ffrfs-index").exists());
        }
        let raw = paths(&Mount::new(transport, &database, &["view=raw"]));
        assert!(raw.contains(&"binary".to_owned()), "{raw:?}");
        assert!(tree(Mount::new(transport, &database, &[]).point()) == expected);
    });
}

#[test]
fn tensors_and_databases_in_a_tar_are_directories_in_it() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let names = ["data.mdb", "tensors.safetensors"];
        let members = names.map(|name| (name, fs::read(fixture(name)).unwrap()));
        let members = members.each_ref().map(|(name, bytes)| (*name, &bytes[..]));
        let outer = file_in(&directory, "x.tar", tar(&members));
        let mount = Mount::new(transport, &outer, &["nested=1", "index=none"]);
        for name in names {
            let expected = tree(Mount::new(transport, fixture(name), &["index=none"]).point());
            assert!(tree(&mount.path(name)) == expected, "{name}: other names or bytes");
        }
    });
}

#[test]
fn what_has_no_checksums_is_not_called_right_and_a_sidecar_makes_it_verifiable() {
    for name in ["data.mdb", "tensors.safetensors"] {
        let directory = temp_dir();
        let container = file_in(&directory, name, fs::read(fixture(name)).unwrap());
        let said = tool(&["verify"], &[&container]);
        assert!(said.contains("not verifiable"), "{said}");
        tool(&["sum", "--sidecar"], &[&container]);
        let said = tool(&["verify"], &[&container]);
        assert!(!said.contains("not verifiable"), "{said}");
    }
}

#[test]
fn what_is_extracted_and_converted_is_what_a_mount_shows() {
    for_each_transport(|transport| {
        for name in ["data.mdb", "tensors.safetensors"] {
            let directory = temp_dir();
            let expected = tree(Mount::new(transport, fixture(name), &["index=none"]).point());
            let out = directory.path().join("out");
            tool(&["extract"], &[&fixture(name), &out]);
            assert!(tree(&out) == expected, "{name}");
            let zip = directory.path().join("x.zip");
            tool(&["convert"], &[&fixture(name), &zip]);
            assert!(tree(Mount::new(transport, &zip, &[]).point()) == expected, "{name}");
        }
    });
}
