//! HDF5: groups, datasets of all layouts, rows, links, and checksums, of files that h5py wrote.

use super::write::{tar, through};
use super::{file_in, tree};
use crate::common::{FFRFS, Mount, fixture, for_each_transport, run, temp_dir};
use crate::fixtures::check;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs `ffrfs`, and returns its output.
#[track_caller]
fn tool(args: &[&str], paths: &[&Path]) -> String {
    let outcome = run(Command::new(FFRFS).args(args).args(paths)).ok();
    format!("{}{}", outcome.text(), outcome.stderr)
}

/// The data of a `.npy` file, without its header.
fn data(file: &[u8]) -> &[u8] {
    let length = usize::from(u16::from_le_bytes([file[8], file[9]]));
    &file[10 + length..]
}

#[test]
fn files_of_old_and_new_libraries_are_served_as_h5py_reads_them() {
    check("earliest.h5");
    check("v110.h5");
    check("latest.h5");
    check("padded-earliest.h5");
    check("padded-latest.h5");
    check("packed.h5");
    check("plugins.h5");
}

#[test]
fn the_rows_of_a_dataset_are_arrays_that_together_are_the_dataset() {
    for_each_transport(|transport| {
        for (name, least) in [
            ("earliest.h5", 30),
            ("latest.h5", 30),
            ("padded-latest.h5", 15),
            ("packed.h5", 25),
            ("plugins.h5", 18),
        ] {
            let whole = tree(Mount::new(transport, fixture(name), &[]).point());
            let rows = tree(Mount::new(transport, fixture(name), &["rows"]).point());
            let mut compared = 0;
            for (path, array) in whole.iter().filter(|(path, _)| path.ends_with(".npy")) {
                let directory = path.strip_suffix(".npy").unwrap();
                let parts: Vec<u8> = rows
                    .iter()
                    .filter(|(row, _)| {
                        row.strip_prefix(directory).is_some_and(|r| r.starts_with('/'))
                    })
                    .flat_map(|(_, row)| data(row).to_vec())
                    .collect();
                if rows.contains_key(path) {
                    continue;
                }
                compared += 1;
                assert!(parts == data(array), "{name}: {path}");
            }
            assert!(compared > least, "{name}: {compared} datasets");
            let text = rows.get("text/many/000001.txt");
            assert!(text.is_none_or(|text| text == b"\"b\""));
            assert_eq!(text.is_some(), name.ends_with("est.h5") && !name.starts_with("padded"));
        }
    });
}

#[test]
fn what_is_kept_of_a_file_in_another_is_used_only_with_the_same_options() {
    let file = fs::read(fixture("tiny-earliest.h5")).unwrap();
    let packed = through("gzip", &["-c"], &tar(&[("a.h5", &file)]));
    for_each_transport(|transport| {
        let directory = temp_dir();
        let source = file_in(&directory, "x.tgz", &packed);
        for options in
            [&["nested=1"][..], &["nested=1", "rows"], &["nested=1"], &["nested=1", "rows"]]
        {
            let direct = Mount::new(transport, fixture("tiny-earliest.h5"), &options[1..]);
            let expected = tree(direct.point());
            let nested = Mount::new(transport, &source, options);
            assert!(tree(&nested.point().join("a.h5")) == expected, "{options:?}");
        }
    });
}

#[test]
fn links_are_symbolic_links_to_what_they_stand_for() {
    for_each_transport(|transport| {
        for name in ["links-earliest.h5", "links-latest.h5"] {
            let mount = Mount::new(transport, fixture(name), &[]);
            // Of several names of an object, the first one counts: `again` of the group, `hard` of the dataset.
            let values = fs::read(mount.path("hard.npy")).unwrap();
            assert_eq!(data(&values), [0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0]);
            for (link, target) in [
                ("group", "again"),
                ("again/values.npy", "../hard.npy"),
                ("again/up", ".."),
                ("again/soft.npy", "../hard.npy"),
                ("again/inner/deep.npy", "../../hard.npy"),
                ("again/inner/relative.npy", "../../hard.npy"),
                ("to_group", "again/inner"),
            ] {
                let found =
                    fs::read_link(mount.path(link)).unwrap_or_else(|e| panic!("{link}: {e}"));
                let found = found.to_str().unwrap().trim_end_matches('/').to_owned();
                assert_eq!(found, target, "{link}");
            }
            let up = mount.path("group/up/again/up/group/values.npy");
            assert_eq!(fs::read(up).unwrap(), values);
            for gone in ["nowhere", "circle", "outside"] {
                assert!(fs::symlink_metadata(mount.path(gone)).is_err(), "{gone}");
            }
            let said = tool(&["info"], &[&fixture(name)]);
            for note in ["which is not followed", "is a link to nothing"] {
                assert!(said.contains(note), "{note}: {said}");
            }
        }
    });
}

#[test]
fn chunks_beyond_a_hundred_thousand_of_a_dataset_that_grows_are_served_and_extracted() {
    let stored = fs::read(fixture("pages.h5.zz")).unwrap();
    let file = miniz_oxide::inflate::decompress_to_vec_zlib(&stored).unwrap();
    let directory = temp_dir();
    let source = file_in(&directory, "pages.h5", file);
    for_each_transport(|transport| {
        let shown = tree(Mount::new(transport, &source, &[]).point());
        for name in ["bare.npy", "filtered.npy"] {
            let there: Vec<_> =
                (0..).zip(data(&shown[name])).filter(|(_, value)| **value > 0).collect();
            assert_eq!(there.len(), 16, "{name}");
            assert!(there.iter().all(|(at, value)| at % 251 + 1 == i32::from(**value)), "{name}");
        }
        let out = directory.path().join(format!("{transport:?}"));
        tool(&["extract"], &[&source, &out]);
        assert!(tree(&out) == shown);
    });
}

#[test]
fn a_dataset_that_is_read_in_order_whole_or_by_rows_is_the_right_bytes() {
    let source = fixture("ordered.h5");
    let is_row = |bytes: &[u8], row: u8| bytes.len() == 100_000 && bytes.iter().all(|b| *b == row);
    for_each_transport(|transport| {
        let whole = Mount::new(transport, &source, &[]);
        let mut file = whole.read("rows.npy").unwrap();
        let rows = file.split_off(file.len() - 24_000_000);
        assert!((0..240).zip(rows.chunks(100_000)).all(|(row, bytes)| is_row(bytes, row)));
        let mount = Mount::new(transport, &source, &["rows"]);
        std::thread::scope(|scope| {
            for first in [0, 0, 3, 100] {
                let mount = &mount;
                scope.spawn(move || {
                    for row in first..240 {
                        let bytes = mount.read(format!("rows/{row:06}.npy")).unwrap();
                        assert!(is_row(&bytes[bytes.len() - 100_000..], row), "row {row}");
                    }
                });
            }
        });
        assert!(mount.bad().is_empty() && whole.bad().is_empty());
    });
}

#[test]
fn verify_counts_the_fletcher32_of_chunks_and_finds_the_chunk_that_is_wrong() {
    let directory = temp_dir();
    let tiny = fs::read(fixture("tiny-latest.h5")).unwrap();
    let good = file_in(&directory, "good.h5", &tiny);
    let outcome = run(Command::new(FFRFS).arg("verify").arg(&good));
    let said = format!("{}{}", outcome.text(), outcome.stderr);
    assert!(said.contains('2') && said.contains("not"), "{said}");
    // The first deflate stream is a chunk's.
    let place = tiny.windows(2).position(|bytes| bytes == [0x78, 0x5e]).unwrap();
    let mut bad = tiny.clone();
    bad[place + 4] ^= 1;
    let bad = file_in(&directory, "bad.h5", &bad);
    let outcome = run(Command::new(FFRFS).arg("verify").arg(&bad));
    let said = format!("{}{}", outcome.text(), outcome.stderr);
    assert_eq!(outcome.code, 4);
    assert!(said.contains("chunk 0 at byte 2048: fletcher32: checksum mismatch"), "{said}");
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &bad, &[]);
        let error = fs::read(mount.path("g/c.npy")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        assert!(fs::read(mount.path("p.npy")).is_ok(), "the other dataset is good");
        let listed = mount.bad();
        assert_eq!(
            (listed.len(), &listed[0][0][..], &listed[0][1][..]),
            (1, "g/c.npy", "checksum")
        );
        assert_eq!(mount.stats()["checksum_failures"], 1);
    });
}

#[test]
fn what_is_extracted_converted_nested_and_summed_is_what_a_mount_shows() {
    for_each_transport(|transport| {
        for name in ["earliest.h5", "latest.h5", "packed.h5", "plugins.h5"] {
            let directory = temp_dir();
            let expected = tree(Mount::new(transport, fixture(name), &[]).point());
            let out = directory.path().join("out");
            tool(&["extract"], &[&fixture(name), &out]);
            assert!(tree(&out) == expected, "{name}");
            let zip = directory.path().join("x.zip");
            tool(&["convert"], &[&fixture(name), &zip]);
            assert!(tree(Mount::new(transport, &zip, &[]).point()) == expected, "{name}");
            // In a tar, stored and compressed.
            let copy = file_in(&directory, "in.h5", fs::read(fixture(name)).unwrap());
            let tar = directory.path().join("x.tar");
            for flags in ["-cf", "-czf"] {
                let mut tar_command = Command::new("tar");
                run(tar_command.arg(flags).arg(&tar).arg("-C").arg(directory.path()).arg("in.h5"))
                    .ok();
                let options = ["nested=1", "index=none"];
                let nested = tree(Mount::new(transport, &tar, &options).path("in.h5").as_path());
                assert!(nested == expected, "{name} {flags}");
            }
            tool(&["sum", "--sidecar"], &[&copy]);
            let said = tool(&["verify"], &[&copy]);
            assert!(!said.contains("not verifiable") || said.contains("0 not"), "{said}");
            // Decoded values are compared with the sidecar before a byte of them is given out.
            let checked = Mount::new(transport, &copy, &["require_checksums", "index=none"]);
            assert!(tree(checked.point()) == expected, "{name}");
            assert_eq!(fs::read_to_string(checked.path(".ffrfs/bad")).unwrap(), "");
        }
    });
}

#[test]
fn a_large_value_of_many_holes_matches_the_sidecar_that_was_made_of_it() {
    let directory = temp_dir();
    let copy = file_in(&directory, "holes.h5", fs::read(fixture("holes.h5")).unwrap());
    let unchecked = directory.path().join("out");
    tool(&["extract"], &[&copy, &unchecked]);
    let expected = fs::read(unchecked.join("holes.npy")).unwrap();
    tool(&["sum", "--sidecar"], &[&copy]);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &copy, &["require_checksums", "index=none"]);
        assert!(fs::read(mount.path("holes.npy")).unwrap() == expected);
        assert_eq!(fs::read_to_string(mount.path(".ffrfs/bad")).unwrap(), "");
    });
}

#[test]
fn shards_are_numbered_on_and_a_truncated_file_is_refused() {
    let directory = temp_dir();
    let tiny = fs::read(fixture("tiny-earliest.h5")).unwrap();
    for number in 0..3 {
        file_in(&directory, &format!("shard-{number:02}.h5"), &tiny);
    }
    for_each_transport(|transport| {
        let glob = format!("{}/shard-*.h5", directory.path().display());
        let mount = Mount::new(transport, Path::new(&glob), &["layout=shards"]);
        assert_eq!(tree(mount.point()).len(), 9);
    });
    let cut = file_in(&directory, "cut.h5", &tiny[..tiny.len() - 100]);
    let said = super::refused(&cut, &[]).stderr;
    assert!(
        said.contains("truncated") && said.contains("cut.h5") && said.contains("byte"),
        "{said}"
    );
    let whole =
        tree(Mount::new(crate::common::Transport::DevFuse, &cut, &["allow_damaged"]).point());
    assert!(!whole.is_empty());
}
