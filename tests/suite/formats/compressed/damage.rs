//! Compressed archives that are damaged or cut: whole members are right, the others give EIO.

use super::super::refused;
use super::*;
use crate::common::{assert_errno, flip_byte};

#[test]
fn damage_that_an_index_does_not_know_of_gives_eio_where_it_is() {
    if !have(Need::Program("gzip")) {
        return;
    }
    let directory = temp_dir();
    let parts = [1, 2, 3].map(|seed| noise(seed, 9 << 20));
    let members = [("one", &parts[0][..]), ("two", &parts[1]), ("three", &parts[2])];
    let source =
        file_in(&directory, "x.tgz", through("gzip", &["-c", "-1"], &write::tar(&members)));
    run(Command::new(crate::common::FFRFS).arg("index").arg(&source)).ok();
    let middle = fs::metadata(&source).unwrap().len() / 2;
    flip_byte(&source, middle);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &[]);
        assert!(mount.read("one").unwrap() == parts[0]);
        assert_errno(mount.read("two"), libc::EIO);
        assert!(mount.read("three").unwrap() == parts[2]);
        assert_eq!(mount.bad()[0][0], "two");
    });
}

#[test]
fn damaged_streams_are_refused_with_the_byte() {
    let directory = temp_dir();
    let tar = write::tar(&[("a", &noise(1, 50_000)), ("b", &noise(2, 50_000))]);
    for (program, options, ending) in PROGRAMS {
        if !have(Need::Program(program)) {
            continue;
        }
        let packed = through(program, options, &tar);
        let cut = &packed[..packed.len() / 2];
        let source = file_in(&directory, &format!("cut.tar.{ending}"), cut);
        let outcome = refused(&source, &[]);
        assert!(matches!(outcome.code, 3 | 4), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("at byte"), "{ending}: {}", outcome.stderr);
    }
}

#[test]
fn of_a_truncated_compressed_archive_what_is_whole_is_served_on_demand() {
    if !have(Need::Program("gzip")) {
        return;
    }
    let directory = temp_dir();
    let parts = [41, 42, 43].map(|seed| noise(seed, 9 << 20));
    let members = [("one", &parts[0][..]), ("two", &parts[1]), ("three", &parts[2])];
    let bytes = through("gzip", &["-c", "-1"], &write::tar(&members));
    let source = file_in(&directory, "x.tgz", &bytes[..bytes.len() / 2]);
    let outcome = refused(&source, &[]);
    assert_eq!(outcome.code, 3);
    for says in ["x.tgz", "truncated", "--allow-damaged"] {
        assert!(outcome.stderr.contains(says), "{says:?} is not in {}", outcome.stderr);
    }
    for_each_transport(|transport| {
        // The second mount uses the kept index.
        for _ in 0..2 {
            let mount = Mount::new(transport, &source, &["allow_damaged"]);
            assert!(mount.read("one").unwrap() == parts[0]);
            assert_errno(mount.read("two"), libc::EIO);
            let log = mount.log();
            assert!(log.contains("the stream is cut: from byte"), "{log}");
            assert!(!log.contains("after the end of the stream"), "{log}");
        }
    });
    let text = file_in(&directory, "x.txt.gz", &through("gzip", &["-c"], b"one file")[..20]);
    let outcome = refused(&text, &["allow_damaged"]);
    assert!(
        outcome.code == 3 && outcome.stderr.contains("nothing in it is complete"),
        "{outcome:?}"
    );
}
