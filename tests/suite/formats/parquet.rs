//! Parquet: columns of all kinds, in pages of all kinds, as pyarrow wrote them.

use super::write::{stored, zip};
use super::{file_in, tree};
use crate::common::{
    Mount, assert_errno, ffrfs, fixture, flip_byte, for_each_transport, run, temp_dir,
};
use crate::fixtures::check;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

const ALL: [&str; 6] = [
    "rows.parquet",
    "nulls.parquet",
    "plain.parquet",
    "checked.parquet",
    "split.parquet",
    "indexed.parquet",
];

#[test]
fn rows_are_served_as_pyarrow_reads_them() {
    ALL.iter().for_each(|name| check(name));
}

#[test]
fn nested_and_kept_files_are_the_same_files() {
    let directory = temp_dir();
    for name in ALL {
        let bytes = fs::read(fixture(name)).unwrap();
        let plain = file_in(&directory, name, &bytes);
        let outer = file_in(&directory, &format!("{name}.zip"), zip(&[stored(name, &bytes)]));
        let tar = directory.path().join(format!("{name}.tar.gz"));
        let mut pack = Command::new("tar");
        run(pack.arg("-czf").arg(&tar).arg("-C").arg(directory.path()).arg(name)).ok();
        for_each_transport(|transport| {
            let expected = tree(Mount::new(transport, &plain, &["index=none"]).point());
            assert!(expected.len() > 100);
            // The first mount makes a pass, the second one uses the kept index.
            for _ in 0..2 {
                let mount = Mount::new(transport, &plain, &[]);
                assert!(tree(mount.point()) == expected, "{name}");
                assert!(mount.bad().is_empty());
                for outer in [&outer, &tar] {
                    let mount = Mount::new(transport, outer, &["nested=1"]);
                    assert!(tree(&mount.path(name)) == expected, "{}", outer.display());
                }
            }
        });
    }
}

#[test]
fn what_is_extracted_and_converted_is_what_a_mount_shows() {
    for_each_transport(|transport| {
        for name in ["rows.parquet", "nulls.parquet"] {
            let directory = temp_dir();
            let source = fixture(name);
            let source = source.to_str().unwrap();
            let expected = tree(Mount::new(transport, source, &["index=none"]).point());
            let out = directory.path().join("out");
            ffrfs(&["extract", source, out.to_str().unwrap()]).ok();
            assert!(tree(&out) == expected, "{name}");
            let tar = directory.path().join("x.tar");
            ffrfs(&["convert", source, tar.to_str().unwrap()]).ok();
            assert!(tree(Mount::new(transport, &tar, &[]).point()) == expected, "{name}");
        }
        // Converted to a TFRecord, the rows are records of the same fields.
        let directory = temp_dir();
        let source = fixture("rows.parquet");
        let records = directory.path().join("x.tfrecord");
        ffrfs(&["convert", source.to_str().unwrap(), records.to_str().unwrap()]).ok();
        let mount = Mount::new(transport, &records, &["index=none"]);
        assert_eq!(fs::read_dir(mount.point()).unwrap().count(), 12);
    });
}

#[test]
fn shards_are_numbered_on_with_fanout() {
    let directory = temp_dir();
    for number in 0..3 {
        let shard = directory.path().join(format!("train-0000{number}-of-00003.parquet"));
        fs::copy(fixture("rows.parquet"), shard).unwrap();
    }
    for_each_transport(|transport| {
        let mount = Mount::new(transport, directory.path(), &["index=none"]);
        assert_eq!(fs::read_dir(mount.point()).unwrap().count(), 36);
        assert_eq!(mount.read("000026/label.txt").unwrap(), "köter".as_bytes());
        let images = Mount::new(transport, fixture("images.parquet"), &["index=none", "fanout=10"]);
        assert_eq!(images.read("001/000011/label.txt").unwrap(), "köter".as_bytes());
        assert!(images.read("000/000003/image.JPEG").unwrap().starts_with(b"\xff\xd8\xff"));
    });
}

#[test]
fn rows_that_are_read_in_order_by_one_and_by_several_are_the_right_bytes() {
    let expected = |row: u8| [&u32::from(row).to_le_bytes()[..], &[row; 99_996]].concat();
    let read = |mount: &Mount, rows: std::ops::Range<u8>| {
        for row in rows {
            let bytes = mount.read(format!("{row:06}/data.bin")).unwrap();
            assert!(bytes == expected(row), "row {row}");
            let number = mount.read(format!("{row:06}/number.npy")).unwrap();
            assert_eq!(number[number.len() - 8..], u64::from(row).to_le_bytes());
        }
    };
    for_each_transport(|transport| {
        let source = fixture("ordered.parquet");
        for options in [&["index=none"][..], &["index=none", "memory=8M"]] {
            read(&Mount::new(transport, &source, options), 0..240);
            let mount = Mount::new(transport, &source, options);
            std::thread::scope(|scope| {
                for first in [0, 0, 7, 30, 120] {
                    let mount = &mount;
                    scope.spawn(move || read(mount, first..240));
                }
            });
            assert!(mount.bad().is_empty());
        }
    });
}

#[test]
fn verify_counts_the_checksums_of_pages_and_a_sidecar_makes_the_rest_verifiable() {
    let checked = fixture("checked.parquet");
    let outcome = ffrfs(&["verify", "--index", "none", checked.to_str().unwrap()]);
    let said = format!("{}{}", outcome.text(), outcome.stderr);
    assert!(said.contains("not verifiable"), "JSON and labels have none: {said}");
    let directory = temp_dir();
    let path = directory.path().join("x.parquet");
    fs::copy(&checked, &path).unwrap();
    ffrfs(&["sum", "--sidecar", path.to_str().unwrap()]).ok();
    let outcome = ffrfs(&["verify", path.to_str().unwrap()]).ok();
    let said = format!("{}{}", outcome.text(), outcome.stderr);
    assert!(!said.contains("not verifiable") || said.contains("0 not"), "{said}");
}

#[test]
fn a_page_that_changes_behind_the_pass_fails_for_its_rows() {
    let directory = temp_dir();
    let path = directory.path().join("x.parquet");
    let bytes = fs::read(fixture("checked.parquet")).unwrap();
    // The float 11/8 is the last value of the floats' dictionary, and is stored as it is.
    let place = bytes.windows(2).position(|found| found == [0xb0, 0x3f]).unwrap() as u64;
    for_each_transport(|transport| {
        fs::copy(fixture("checked.parquet"), &path).unwrap();
        let mount = Mount::new(transport, &path, &["index=none"]);
        flip_byte(&path, place);
        assert_errno(mount.read("000001/f4.npy"), libc::EIO);
        assert!(mount.read("000001/image.JPEG").is_ok());
    });
}

#[test]
fn a_truncated_file_is_refused_with_the_byte() {
    let directory = temp_dir();
    let bytes = fs::read(fixture("rows.parquet")).unwrap();
    let cut = file_in(&directory, "cut.parquet", &bytes[..bytes.len() - 100]);
    let outcome = ffrfs(&["info", cut.to_str().unwrap()]);
    assert_eq!(outcome.code, 3);
    assert!(
        outcome.stderr.contains("byte") && outcome.stderr.contains("truncated"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn verify_compares_decoded_values_with_a_sidecar() {
    let directory = temp_dir();
    let mut bytes = fs::read(fixture("rows.parquet")).unwrap();
    let source = file_in(&directory, "rows.parquet", &bytes);
    ffrfs(&["sum".as_ref(), "--sidecar".as_ref(), source.as_os_str()]).ok();
    // A letter of a caption in a page without a checksum: the page can still be decompressed.
    bytes[454] ^= 0x55;
    fs::write(&source, &bytes).unwrap();
    let found = ffrfs(&["verify".as_ref(), source.as_os_str()]);
    assert_eq!(found.code, 4, "{}", found.stderr);
    let text = String::from_utf8(found.stdout).unwrap();
    assert!(text.contains("000003/caption.txt"), "{text}");
    for_each_transport(|transport| {
        for verify in ["verify=always", "verify=once"] {
            let mount =
                Mount::new(transport, &source, &[verify, "require_checksums", "index=none"]);
            for _ in 0..2 {
                let read = fs::read(mount.path("000003/caption.txt"));
                assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::EIO), "{verify}");
            }
            // Also if the first read is one of the end, not of the beginning.
            let file = fs::File::open(mount.path("000002/caption.txt")).unwrap();
            let size = file.metadata().unwrap().len();
            assert_eq!(file.read_at(&mut [0; 8], size - 3).unwrap(), 3);
            let bad = fs::read_to_string(mount.path(".ffrfs/bad")).unwrap();
            assert!(bad.contains("000003/caption.txt\tchecksum"), "{bad}");
        }
        let mount = Mount::new(transport, &source, &["verify=off", "index=none"]);
        fs::read(mount.path("000003/caption.txt")).unwrap();
    });
}
