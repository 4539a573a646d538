//! Containers in containers.

use super::write::{deflated, stored, tar, zip};
use super::{file_in, tree};
use crate::common::{
    Mount, Need, container_in, flip_byte, for_each_transport, have, noise, samples, temp_dir,
};
use std::collections::BTreeMap;
use std::fs;

type Tree = BTreeMap<String, Vec<u8>>;

fn expected(files: &[(&str, &[u8])]) -> Tree {
    files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect()
}

#[test]
fn zip_and_tar_in_zip_are_directories_of_their_names() {
    let directory = temp_dir();
    let large = noise(1, 200_000);
    let text = super::write::text(2, 30_000);
    let inner_zip = zip(&[stored("a/x", &large), deflated("a/text", &text)]);
    let inner_tar = tar(&[("b/y", &large), ("z", b"zed")]);
    let packed = zip(&[stored("in", "packed")]);
    let members = [
        stored("plain", "plain"),
        stored("sub/inner.zip", &inner_zip),
        stored("inner.tar", &inner_tar),
        // Not served in place: it stays a file.
        deflated("packed.zip", &packed),
    ];
    let outer = file_in(&directory, "outer.zip", zip(&members));
    let opened = expected(&[
        ("plain", b"plain"),
        ("sub/inner.zip/a/x", &large),
        ("sub/inner.zip/a/text", &text),
        ("inner.tar/b/y", &large),
        ("inner.tar/z", b"zed"),
        ("packed.zip", &packed),
    ]);
    let closed = expected(&[
        ("plain", b"plain"),
        ("sub/inner.zip", &inner_zip),
        ("inner.tar", &inner_tar),
        ("packed.zip", &packed),
    ]);
    for_each_transport(|transport| {
        for (options, expected) in
            [(&[][..], &closed), (&["nested=0"], &closed), (&["nested=1"], &opened)]
        {
            let mount = Mount::new(transport, &outer, options);
            assert!(tree(mount.point()) == *expected, "{options:?}");
            assert!(mount.bad().is_empty());
        }
    });
}

#[test]
fn samples_in_a_tar_are_numbered_in_a_directory() {
    let directory = temp_dir();
    let samples = samples(12, 5000);
    let ffr = fs::read(container_in(&directory, &samples)).unwrap();
    let outer = file_in(&directory, "outer.tar", tar(&[("before", b"1"), ("d/in.ffr", &ffr)]));
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &outer, &["nested=1"]);
        assert_eq!(mount.read("before").unwrap(), b"1");
        assert_eq!(mount.list("d/in.ffr").len(), samples.len());
        for (number, sample) in samples.iter().enumerate() {
            assert!(mount.read(format!("d/in.ffr/{number:06}")).unwrap() == *sample, "{number}");
        }
    });
}

#[test]
fn compressed_containers_within_are_read_in_the_middle() {
    use std::os::unix::fs::FileExt;
    if !have(Need::Program("gzip")) {
        return;
    }
    let directory = temp_dir();
    let large = super::write::text(3, 9 << 20);
    let gzip = |bytes: &[u8]| super::write::through("gzip", &["-c", "-1"], bytes);
    let inner = zip(&[
        stored("in.tar.gz", gzip(&tar(&[("small", b"s"), ("d/large", &large)]))),
        stored("log.gz", gzip(&large)),
        stored("in.zip", zip(&[deflated("large", &large)])),
    ]);
    let outer =
        file_in(&directory, "outer.tar", tar(&[("before", &noise(1, 999)), ("z.zip", &inner)]));
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &outer, &["nested=2"]);
        for name in ["z.zip/in.tar.gz/d/large", "z.zip/log.gz/log", "z.zip/in.zip/large"] {
            let file = fs::File::open(mount.path(name)).unwrap();
            for offset in [8_000_001, 4_194_300, 5] {
                let mut bytes = [0; 1000];
                file.read_exact_at(&mut bytes, offset).unwrap();
                assert!(bytes[..] == large[offset as usize..][..1000], "{name} at {offset}");
            }
            assert!(mount.read(name).unwrap() == large, "{name}");
        }
        assert_eq!(mount.read("z.zip/in.tar.gz/small").unwrap(), b"s");
    });
}

#[test]
fn containers_are_opened_so_many_one_in_another() {
    let directory = temp_dir();
    let innermost = tar(&[("leaf", b"leaf")]);
    let middle = zip(&[stored("innermost.tar", &innermost), stored("m", "m")]);
    let outer = file_in(&directory, "outer.tar", tar(&[("middle.zip", &middle), ("o", b"o")]));
    let one =
        expected(&[("middle.zip/innermost.tar", &innermost), ("middle.zip/m", b"m"), ("o", b"o")]);
    let two = expected(&[
        ("middle.zip/innermost.tar/leaf", b"leaf"),
        ("middle.zip/m", b"m"),
        ("o", b"o"),
    ]);
    for_each_transport(|transport| {
        for (option, expected) in [("nested=1", &one), ("nested=2", &two), ("nested=9", &two)] {
            assert!(
                tree(Mount::new(transport, &outer, &[option]).point()) == *expected,
                "{option}"
            );
        }
    });
}

#[test]
fn a_nested_container_that_is_damaged_stays_a_file_and_is_logged() {
    let directory = temp_dir();
    let good = zip(&[stored("x", "x")]);
    let bad = &good[..good.len() - 10];
    let members = [stored("good.zip", &good), stored("bad.zip", bad), stored("none.tar", "text")];
    let outer = file_in(&directory, "outer.zip", zip(&members));
    let expected = expected(&[("good.zip/x", b"x"), ("bad.zip", bad), ("none.tar", b"text")]);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &outer, &["nested=1"]);
        assert!(tree(mount.point()) == expected, "{:?}", tree(mount.point()).keys());
        let log = mount.log();
        for name in ["bad.zip", "none.tar"] {
            let says = |line: &str| line.contains(name) && line.contains("shown as a file");
            assert!(log.lines().any(says), "{name}: {log}");
        }
    });
}

#[test]
fn a_bad_sample_within_is_one_bad_file() {
    let directory = temp_dir();
    let inner = zip(&[stored("bad", noise(1, 3000)), stored("good", noise(2, 3000))]);
    let (outer, places) = super::write::zip_with_places(&[stored("in.zip", &inner)]);
    let at = inner.windows(3000).position(|window| window == noise(1, 3000)).unwrap();
    let path = file_in(&directory, "outer.zip", outer);
    flip_byte(&path, places[0] + at as u64 + 1500);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &path, &["nested=1"]);
        crate::common::assert_errno(mount.read("in.zip/bad"), libc::EIO);
        assert!(mount.read("in.zip/good").unwrap() == noise(2, 3000));
        let bad = mount.bad();
        assert_eq!((bad.len(), bad[0][0].as_str()), (1, "in.zip/bad"), "{bad:?}");
    });
}
