//! Containers in containers.

use super::write::{deflated, stored, tar, zip};
use super::{file_in, tree};
use crate::common::{
    FFRFS, Mount, Need, container_in, flip_byte, for_each_transport, have, noise, run, samples,
    temp_dir,
};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

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
        deflated("packed.zip", &packed),
    ];
    let outer = file_in(&directory, "outer.zip", zip(&members));
    let opened = expected(&[
        ("plain", b"plain"),
        ("sub/inner.zip/a/x", &large),
        ("sub/inner.zip/a/text", &text),
        ("inner.tar/b/y", &large),
        ("inner.tar/z", b"zed"),
        ("packed.zip/in", b"packed"),
    ]);
    let closed = expected(&[
        ("plain", b"plain"),
        ("sub/inner.zip", &inner_zip),
        ("inner.tar", &inner_tar),
        ("packed.zip", &packed),
    ]);
    for_each_transport(|transport| {
        // `format` names the format of the outermost container.
        let ways: [(&[&str], &Tree); 4] = [
            (&[], &closed),
            (&["nested=0"], &closed),
            (&["nested=1"], &opened),
            (&["nested=1", "format=zip"], &opened),
        ];
        for (options, expected) in ways {
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
fn containers_that_are_compressed_members_are_directories() {
    let directory = temp_dir();
    let large = super::write::text(5, 6 << 20);
    let small = super::write::text(6, 40_000);
    let image = noise(7, 300_000);
    let inner_tar = tar(&[("d/large", &large), ("image", &image), ("empty", b"")]);
    let of_ranges = zip(&[stored("image", &image), stored("large", &large), stored("empty", "")]);
    let encoded_twice = zip(&[deflated("large", &large), deflated("small", &small)]);
    let samples = samples(7, 3000);
    let ffr = fs::read(container_in(&directory, &samples)).unwrap();
    let members = [
        deflated("in.tar", &inner_tar),
        deflated("ranges.zip", &of_ranges),
        deflated("twice.zip", &encoded_twice),
        deflated("in.ffr", &ffr),
    ];
    let outer = file_in(&directory, "outer.zip", zip(&members));
    let mut expected = expected(&[
        ("in.tar/d/large", &large),
        ("in.tar/image", &image),
        ("in.tar/empty", b""),
        ("ranges.zip/image", &image),
        ("ranges.zip/large", &large),
        ("ranges.zip/empty", b""),
        ("twice.zip/large", &large),
        ("twice.zip/small", &small),
    ]);
    for (number, sample) in samples.iter().enumerate() {
        expected.insert(format!("in.ffr/{number:06}"), sample.clone());
    }
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &outer, &["nested=1"]);
        assert!(tree(mount.point()) == expected, "{:?}", tree(mount.point()).keys());
        assert!(mount.bad().is_empty());
    });
    for_each_transport(|transport| {
        // No file of this mount was read yet.
        let mount = Mount::new(transport, &outer, &["nested=1"]);
        read_in_the_middle(
            &mount,
            &["in.tar/d/large", "ranges.zip/large", "twice.zip/large"],
            &large,
        );
    });
    let verified = run(Command::new(FFRFS).args(["verify", "--nested=1"]).arg(&outer));
    assert_eq!(verified.code, 0, "{verified:?}");
    let out = directory.path().join("out");
    run(Command::new(FFRFS).args(["extract", "--nested=1"]).arg(&outer).arg(&out)).ok();
    assert!(fs::read(out.join("twice.zip/large")).unwrap() == large);
    assert!(fs::read(out.join("in.tar/image")).unwrap() == image);
}

/// Reads pieces of files that have the same content.
#[track_caller]
fn read_in_the_middle(mount: &Mount, names: &[&str], expected: &[u8]) {
    use std::os::unix::fs::FileExt;
    for name in names {
        let file = fs::File::open(mount.path(name)).unwrap();
        for offset in [5_000_001, 4_194_300, 5] {
            let mut bytes = [0; 1000];
            file.read_exact_at(&mut bytes, offset).unwrap();
            assert!(bytes[..] == expected[offset as usize..][..1000], "{name} at {offset}");
        }
    }
}

#[test]
fn containers_in_a_compressed_archive_are_directories() {
    if !have(Need::Program("gzip")) {
        return;
    }
    let directory = temp_dir();
    let large = super::write::text(8, 6 << 20);
    let inner_zip = zip(&[deflated("large", &large), stored("x", "x")]);
    let innermost = tar(&[("leaf", &large)]);
    let middle = tar(&[("innermost.tar", &innermost[..]), ("m", b"m")]);
    let archive =
        tar(&[("before", &noise(1, 5 << 20)), ("in.zip", &inner_zip), ("middle.tar", &middle)]);
    let packed = super::write::through("gzip", &["-c", "-1"], &archive);
    let outer = file_in(&directory, "outer.tar.gz", packed);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &outer, &["nested=2"]);
        assert!(mount.read("before").unwrap() == noise(1, 5 << 20));
        assert_eq!(mount.read("in.zip/x").unwrap(), b"x");
        assert_eq!(mount.read("middle.tar/m").unwrap(), b"m");
        for name in ["in.zip/large", "middle.tar/innermost.tar/leaf"] {
            assert!(mount.read(name).unwrap() == large, "{name}");
        }
        read_in_the_middle(&mount, &["middle.tar/innermost.tar/leaf"], &large);
    });
}

#[test]
fn in_a_compressed_member_a_bad_sample_is_one_bad_file_and_a_damaged_stream_stays_a_file() {
    let directory = temp_dir();
    let mut inner = zip(&[stored("bad", noise(1, 3000)), stored("good", noise(2, 3000))]);
    let at = inner.windows(3000).position(|window| window == noise(1, 3000)).unwrap();
    inner[at + 1500] ^= 1;
    let mut twice = zip(&[deflated("bad", super::write::text(3, 9000)), stored("good", "good")]);
    twice[100] ^= 0x40;
    let text = super::write::text(4, 50_000);
    let whole = zip(&[stored("x", &text)]);
    let (outer, places) = super::write::zip_with_places(&[
        deflated("in.zip", &inner),
        deflated("twice.zip", &twice),
        deflated("torn.zip", &whole),
    ]);
    let path = file_in(&directory, "outer.zip", outer);
    flip_byte(&path, places[2] + 60);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &path, &["nested=1"]);
        crate::common::assert_errno(mount.read("in.zip/bad"), libc::EIO);
        assert!(mount.read("in.zip/good").unwrap() == noise(2, 3000));
        crate::common::assert_errno(mount.read("twice.zip/bad"), libc::EIO);
        assert_eq!(mount.read("twice.zip/good").unwrap(), b"good");
        let bad: Vec<_> = mount.bad().into_iter().map(|line| line[0].clone()).collect();
        assert_eq!(bad, ["in.zip/bad", "twice.zip/bad"]);
        // Its members are not served, and its own bytes do not match.
        assert!(fs::metadata(mount.path("torn.zip")).unwrap().is_file());
        crate::common::assert_errno(mount.read("torn.zip"), libc::EIO);
        let says = |line: &str| line.contains("torn.zip") && line.contains("shown as a file");
        assert!(mount.log().lines().any(says), "{}", mount.log());
    });
}

#[test]
fn a_small_file_that_takes_much_memory_is_read_where_there_is_so_much_and_is_never_bad() {
    let directory = temp_dir();
    let small = super::write::text(9, 2000);
    // Blocks without data, which the outer encoding makes small.
    let nothing = [0, 0, 0, 0xff, 0xff].repeat(8 << 20);
    let encoded = [nothing, super::write::deflate(&small)].concat();
    let large = super::write::Member { method: 8, stored: encoded, ..stored("large", &small) };
    let inner = zip(&[large, deflated("small", &small)]);
    let outer = file_in(&directory, "outer.zip", zip(&[deflated("in.zip", &inner)]));
    let alone = file_in(&directory, "in.zip", &inner);
    for_each_transport(|transport| {
        // Step by step, decoding takes little memory.
        let mount = Mount::new(transport, &alone, &["memory=16M"]);
        assert!(mount.read("large").unwrap() == small);
        drop(mount);
        let mount = Mount::new(transport, &outer, &["nested=1", "memory=16M"]);
        crate::common::assert_errno(mount.read("in.zip/large"), libc::EIO);
        assert!(mount.read("in.zip/small").unwrap() == small);
        assert!(mount.bad().is_empty());
        let says =
            |line: &str| line.contains("sample 1: not read") && line.contains("--cache-size 81M");
        assert!(mount.log().lines().any(says), "{}", mount.log());
        drop(mount);
        let mount = Mount::new(transport, &outer, &["nested=1", "memory=192M", "cache-size=81M"]);
        assert!(mount.read("in.zip/large").unwrap() == small);
    });
    let verified = run(Command::new(FFRFS).args(["verify", "--nested=1"]).arg(&outer));
    assert_eq!(verified.code, 0, "{verified:?}");
}

#[test]
fn arrays_of_a_compressed_member_are_read_in_the_middle_with_little_memory() {
    let directory = temp_dir();
    let data = super::write::text(10, 20 << 20);
    let header =
        format!(r#"{{"x":{{"dtype":"U8","shape":[{0}],"data_offsets":[0,{0}]}}}}"#, data.len());
    let length = (header.len() as u64).to_le_bytes();
    let tensors = [&length[..], header.as_bytes(), &data].concat();
    let outer = zip(&[deflated("in.safetensors", &tensors)]);
    let outer = file_in(&directory, "outer.zip", outer);
    let plain = file_in(&directory, "plain.safetensors", &tensors);
    let expected =
        Mount::new(crate::common::Transport::DevFuse, &plain, &[]).read("x.npy").unwrap();
    assert!(expected.ends_with(&data));
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &outer, &["nested=1", "memory=16M"]);
        read_in_the_middle(&mount, &["in.safetensors/x.npy"], &expected);
        assert!(mount.read("in.safetensors/x.npy").unwrap() == expected);
        assert!(mount.bad().is_empty());
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
    let info = info(&outer, "--nested=1");
    let says = |name: &str| {
        info.lines().any(|l| l.contains("warning:") && l.contains(name) && l.contains("as a file"))
    };
    assert!(says("bad.zip") && says("none.tar"), "{info}");
}

/// The output of `ffrfs info` for a container.
fn info(container: &std::path::Path, nested: &str) -> String {
    let info = run(Command::new(FFRFS).args(["info", nested]).arg(container)).ok();
    String::from_utf8(info.stdout).unwrap()
}

#[test]
fn a_compressed_container_is_named_where_it_is_one_file_and_only_there() {
    if !have(Need::Program("gzip")) {
        return;
    }
    let directory = temp_dir();
    let inner = zip(&[stored("x", "x")]);
    let packed = super::write::through("gzip", &["-c"], &inner);
    let path = file_in(&directory, "in.zip.gz", packed);
    let closed = info(&path, "--nested=0");
    assert!(closed.contains("it is compressed zip, shown as one file: --nested 1"), "{closed}");
    let opened = info(&path, "--nested=1");
    assert!(opened.contains("files:      1 (1 B in all)"), "{opened}");
    assert!(!opened.contains("warning"), "{opened}");
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &path, &["nested=1"]);
        assert_eq!(mount.read("in.zip/x").unwrap(), b"x");
        assert!(!mount.log().contains("shown as one file"), "{}", mount.log());
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
