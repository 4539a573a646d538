//! Sidecars: the damage that they find, and the containers and options that they refuse.

use super::super::write::{deflated, stored, text, through, zip};
use super::*;
use crate::common::{Disk, drop_cached, wait_until};
use std::time::Duration;

fn sealed_tar(directory: &TempDir) -> PathBuf {
    let source = file_in(directory, "x.tar", tar_of(&members().0));
    let outcome = sum(&source, &["--sidecar"]).ok();
    assert!(outcome.stderr.trim_end().ends_with("x.tar.ffrsum"), "{}", outcome.stderr);
    source
}

#[test]
fn every_sample_of_a_sealed_tar_is_read_as_it_is() {
    let directory = temp_dir();
    let source = sealed_tar(&directory);
    let (members, _) = members();
    for_each_transport(|transport| {
        for options in [&["io=buffered"][..], &["cache_size=1M"], &["verify=once"], &["memory=64M"]]
        {
            drop_cached(&File::open(&source).unwrap());
            let mount = Mount::new(transport, &source, &[options, &["require_checksums"]].concat());
            for (name, bytes) in &members {
                for offset in (0..bytes.len()).step_by((bytes.len() / 7).max(1)).rev() {
                    let end = (offset + 5000).min(bytes.len());
                    let read = part(&mount.path(name), offset as u64, 5000).unwrap();
                    assert!(read == bytes[offset..end], "{name} at {offset}");
                }
                assert!(mount.read(name).unwrap() == *bytes, "{name}");
            }
            assert_eq!(mount.bad().len(), 0);
            let verified = mount.stats()["samples_verified"].as_u64().unwrap();
            assert!(verified >= members.len() as u64 - 1, "{verified}");
        }
    });
}

#[test]
fn a_flipped_byte_gives_eio_for_its_sample_alone_however_it_is_read() {
    let directory = temp_dir();
    let source = sealed_tar(&directory);
    let (members, places) = members();
    for (bad, (name, bytes)) in members.iter().enumerate().filter(|(_, m)| !m.1.is_empty()) {
        let flipped = places[bad] + bytes.len() as u64 - 1;
        flip_byte(&source, flipped);
        for_each_transport(|transport| {
            for options in [&[][..], &["cache_size=1M"], &["verify=once"], &["io=buffered"]] {
                drop_cached(&File::open(&source).unwrap());
                let mount = Mount::new(transport, &source, options);
                // A part of the sample that is right in itself, and the whole sample.
                assert_errno(part(&mount.path(name), 0, 5), libc::EIO);
                assert_errno(mount.read(name), libc::EIO);
                for (other, bytes) in members.iter().filter(|(other, _)| other != name) {
                    assert!(mount.read(other).unwrap() == *bytes, "{other}");
                }
                let listed = mount.bad();
                assert_eq!(listed.len(), 1, "{listed:?}");
                assert_eq!((&*listed[0][0], &*listed[0][1]), (name.as_str(), "checksum"));
            }
            let careless = Mount::new(transport, &source, &["verify=off"]);
            assert_eq!(careless.read(name).unwrap().len(), bytes.len());
        });
        flip_byte(&source, flipped);
    }
}

#[test]
fn all_tools_find_a_flipped_byte() {
    let directory = temp_dir();
    let source = sealed_tar(&directory);
    let (members, places) = members();
    let on = |command: &str, more: &[&str]| {
        run(Command::new(FFRFS).arg(command).arg(&source).args(more))
    };
    assert!(on("verify", &[]).ok().stderr.starts_with("7 samples checked"));
    for bad in [1, 4] {
        flip_byte(&source, places[bad] + 77);
        let name = members[bad].0.as_str();
        let verify = on("verify", &[]);
        assert_eq!(verify.code, 4);
        assert!(verify.text().contains(&format!("sample {bad} ({name})")), "{}", verify.text());
        assert_eq!(on("cat", &[name]).code, 4);
        assert_eq!(on("cat", &["d/0.bin"]).ok().stdout, members[0].1);
        assert_eq!(sum(&source, &[]).code, 4);
        // Without the sidecar no damage is found.
        assert_eq!(sum(&source, &["--checksums", "none"]).code, 0);
        assert_eq!(on("verify", &["--checksums", "none"]).code, 0);
        flip_byte(&source, places[bad] + 77);
    }
}

#[test]
fn an_announced_sample_that_is_bad_is_found_before_it_is_asked_for() {
    let directory = temp_dir();
    let source = sealed_tar(&directory);
    flip_byte(&source, members().1[2] + 9);
    for_each_transport(|transport| {
        drop_cached(&File::open(&source).unwrap());
        let mount = Mount::new(transport, &source, &["rw"]);
        fs::write(mount.path(".ffrfs/prefetch"), "d/1.bin\nd/2.bin\nd/6.bin\n").unwrap();
        wait_until("all three are dealt with", Duration::from_secs(30), || {
            let prefetch = &mount.stats()["prefetch"];
            // Samples that have come are counted before they are compared.
            prefetch["done"] == 3 && prefetch["in_flight"] == 0
        });
        assert_eq!(mount.bad().len(), 1, "{:?}", mount.bad());
        assert_eq!(mount.bad()[0][0], "d/2.bin");
        assert_errno(mount.read("d/2.bin"), libc::EIO);
        assert!(mount.read("d/6.bin").unwrap() == members().0[6].1);
    });
}

#[test]
fn what_changes_under_a_mount_is_found_too() {
    let directory = temp_dir();
    let source = sealed_tar(&directory);
    let places = members().1;
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &["cache_size=1M"]);
        assert_eq!(part(&mount.path("d/4.bin"), 5 << 20, 9).unwrap().len(), 9);
        for bad in [0, 3, 4] {
            mount.flip_byte_in(&source, places[bad] + 3);
            assert_errno(part(&mount.path(format!("d/{bad}.bin")), 0, 5), libc::EIO);
            mount.flip_byte_in(&source, places[bad] + 3);
        }
        assert_eq!(mount.bad().len(), 3);
    });
}

#[test]
fn the_disk_may_fail_and_then_work_again() {
    let disk = Disk::showing(|path| {
        let at = path.with_extension("tar");
        fs::write(&at, tar_of(&members().0)).unwrap();
        sum(&at, &["--sidecar"]).ok();
        fs::rename(&at, path).unwrap();
        fs::rename(beside(&at), path.with_extension("sums")).unwrap();
    });
    let sums = format!("checksums={}", disk.real().with_extension("sums").display());
    let (members, places) = members();
    for_each_transport(|transport| {
        let mount = Mount::new(transport, disk.container(), &[&sums, "index=none"]);
        disk.break_range(places[4] + 100..places[4] + 200);
        assert_errno(mount.read("d/4.bin"), libc::EIO);
        disk.break_range(0..0);
        assert!(mount.read("d/4.bin").unwrap() == members[4].1);
    });
}

#[test]
fn typed_samples_are_checked_by_their_stored_bytes() {
    for name in ["features.syr", "mixed.syr", "jpg.beton", "raw.beton"] {
        let directory = temp_dir();
        let source = file_in(&directory, name, fs::read(fixture(name)).unwrap());
        sum(&source, &["--sidecar"]).ok();
        let listed = ffrfs(&[OsStr::new("ls"), "-lR".as_ref(), source.as_ref()]).ok().text();
        // A sample that is not damaged and has bytes: size, offset, checksum, name.
        let mut lines = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let fields = lines.rfind(|f| f[0] != "-" && f[2] != "damaged" && f[0] != "0");
        let fields = fields.expect("a sample");
        let (offset, path) = (fields[1].parse::<u64>().unwrap(), fields[3]);
        for_each_transport(|transport| {
            let plain = Mount::new(transport, &source, &["checksums=none"]);
            let mount = Mount::new(transport, &source, &["require_checksums"]);
            assert!(tree(mount.point()) == tree(plain.point()), "{name}");
            assert_eq!(mount.bad().len(), 0);
            plain.unmount();
            flip_byte(&source, offset);
            drop_cached(&File::open(mount.path(path)).unwrap());
            let again = Mount::new(transport, &source, &["require_checksums"]);
            assert_errno(again.read(path), libc::EIO);
            assert_errno(part(&again.path(path), 0, 3), libc::EIO);
            assert_eq!(again.bad().len(), 1);
            flip_byte(&source, offset);
        });
    }
}

#[test]
fn checksums_are_for_the_view_that_they_were_made_of() {
    let directory = temp_dir();
    let source = file_in(&directory, "x.beton", fs::read(fixture("raw.beton")).unwrap());
    sum(&source, &["--sidecar"]).ok();
    let raw = run(Command::new(FFRFS).arg("verify").arg(&source).args(["--view", "raw"]));
    let npy = run(Command::new(FFRFS).arg("verify").arg(&source).args(["--view", "npy"]));
    // The same bytes behind another header.
    assert!(npy.ok().stderr.contains(" 0 bad"));
    // One of the fields is JSON, which the raw view shows with the byte behind it.
    assert_words(&raw, 3, &["samples in other places", "--view", "ffrfs sum --sidecar"]);
}

#[test]
fn files_with_holes_are_checked_by_what_is_stored_of_them() {
    let directory = temp_dir();
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    let holes = File::create(root.join("holes")).unwrap();
    for piece in 0..40_u64 {
        holes.write_all_at(&noise(piece, 100_000), piece << 19).unwrap();
    }
    holes.set_len((40 << 19) + 12_345).unwrap();
    let small = File::create(root.join("small")).unwrap();
    small.write_all_at(b"data", 70_000).unwrap();
    small.set_len(200_000).unwrap();
    File::create(root.join("empty")).unwrap().set_len(1 << 20).unwrap();
    run_in(&root, "tar", &["-cSf", "../x.tar", "."]);
    let source = directory.path().join("x.tar");
    sum(&source, &["--sidecar"]).ok();
    let stored = fs::read(&source).unwrap();
    let find = |bytes: &[u8]| {
        stored.windows(bytes.len()).position(|window| window == bytes).unwrap() as u64
    };
    let (in_holes, in_small) = (find(&noise(20, 100_000)[50_000..50_016]), find(b"data"));
    for_each_transport(|transport| {
        for options in [&[][..], &["verify=once"], &["cache_size=0"]] {
            let mount = Mount::new(transport, &source, options);
            assert!(tree(mount.point()) == tree(&root));
            for offset in (0..40 << 19).step_by(333_333) {
                let expected = part(&root.join("holes"), offset, 70_000).unwrap();
                assert!(
                    part(&mount.path("holes"), offset, 70_000).unwrap() == expected,
                    "{offset}"
                );
            }
            assert_eq!(mount.stats()["io_errors"], 0);
        }
        for (name, offset) in [("holes", in_holes), ("small", in_small)] {
            let mount = Mount::new(transport, &source, &[]);
            // A mount whose sample was checked before it changes.
            let late = Mount::new(transport, &source, &[]);
            assert!(late.read(name).unwrap() == fs::read(root.join(name)).unwrap());
            flip_byte(&source, offset);
            assert_errno(part(&mount.path(name), 1, 10), libc::EIO);
            assert_eq!(mount.bad()[0][..2], [name, "checksum"]);
            drop_cached(&File::open(late.path(name)).unwrap());
            assert_errno(late.read(name), libc::EIO);
            let verify = run(Command::new(FFRFS).arg("verify").arg(&source));
            assert_eq!(verify.code, 4, "{}", verify.stderr);
            assert_eq!(sum(&source, &[]).code, 4);
            flip_byte(&source, offset);
        }
    });
    assert_eq!(sum(&source, &[]).ok().text().lines().count(), 3);
}

#[test]
fn a_compressed_tar_is_sealed_by_what_it_decodes_to() {
    let members: Vec<_> = (0..40).map(|i| (format!("{i}"), noise(i, 20_000))).collect();
    for (name, program, args) in
        [("x.tar.gz", "gzip", &["-c"][..]), ("x.tar.zst", "zstd", &["-c", "-q", "--no-check"])]
    {
        let directory = temp_dir();
        let source = file_in(&directory, name, through(program, args, &tar_of(&members)));
        assert_eq!(refused(&source, &["require_checksums"]).code, 3);
        sum(&source, &["--sidecar"]).ok();
        assert_eq!(fs::metadata(beside(&source)).unwrap().len(), 72, "a head and no rows");
        for_each_transport(|transport| {
            let mount = Mount::new(transport, &source, &["require_checksums", "index=none"]);
            assert!(tree(mount.point()) == members.iter().cloned().collect());
            mount.unmount();
            let mount = Mount::new(transport, &source, &["require_checksums", "index=none"]);
            // A byte of noise, which is stored as it is: only a checksum shows the change.
            flip_byte(&source, 400_000);
            assert_errno(mount.read("19").map(|bytes| bytes.len()), libc::EIO);
            let again = refused(&source, &["require_checksums", "index=none"]);
            match program {
                // gzip has a checksum of its own.
                "gzip" => assert!([3, 4].contains(&again.code), "{}", again.stderr),
                _ => assert_words(&again, 3, &["other bytes", "x.tar.zst.ffrsum"]),
            }
            if program == "zstd" {
                Mount::new(transport, &source, &["checksums=none", "index=none"]).unmount();
            }
            flip_byte(&source, 400_000);
        });
    }
}

#[test]
fn what_decodes_to_nothing_is_sealed_too() {
    let directory = temp_dir();
    for (name, bytes) in [("x.gz", vec![]), ("x.tgz", tar(&[])), ("x.tar", tar(&[]))] {
        let source = file_in(
            &directory,
            name,
            match name {
                "x.tar" => bytes,
                _ => through("gzip", &["-c"], &bytes),
            },
        );
        sum(&source, &["--sidecar"]).ok();
        for_each_transport(|transport| {
            let mount = Mount::new(transport, &source, &["require_checksums"]);
            assert!(tree(mount.point()).values().all(Vec::is_empty));
        });
    }
}

#[test]
fn a_sidecar_of_another_container_or_of_one_that_was_changed_is_refused() {
    let directory = temp_dir();
    let source = sealed_tar(&directory);
    let other = file_in(&directory, "y.tar", tar(&[("a", b"1")]));
    let x_sums = format!("checksums={}", beside(&source).display());
    assert_words(&refused(&other, &[&x_sums]), 3, &["x.tar.ffrsum", "y.tar", "another size"]);

    let mut longer = tar_of(&members().0);
    longer.extend([0; 512]);
    fs::write(&source, &longer).unwrap();
    let words = ["x.tar.ffrsum", "has another size", "changed since", "ffrfs sum --sidecar"];
    assert_words(&refused(&source, &[]), 3, &words);
    // The same names and sizes, but samples with other bytes.
    let others = members().0.into_iter().map(|(name, bytes)| (name, noise(99, bytes.len())));
    let other = tar_of(&others.collect::<Vec<_>>());
    fs::write(&source, &other).unwrap();
    assert_words(&refused(&source, &[]), 3, &["x.tar", "other bytes in its samples"]);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &["checksums=none"]);
        assert_eq!(mount.read("d/0.bin").unwrap().len(), 10);
    });
    // A sidecar of the container as it is now.
    sum(&source, &["--sidecar"]).ok();
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &["require_checksums"]);
        assert_eq!(mount.read("d/0.bin").unwrap(), &other[512..522]);
    });
}

#[test]
fn a_damaged_sidecar_is_refused() {
    let directory = temp_dir();
    let source = sealed_tar(&directory);
    let whole = fs::read(beside(&source)).unwrap();
    for (length, at, code) in [(0, 0, 3), (50, 0, 3), (whole.len() - 8, 0, 3), (whole.len(), 80, 4)]
    {
        let mut bytes = whole[..length].to_vec();
        if let Some(byte) = bytes.get_mut(at).filter(|_| at > 0) {
            *byte ^= 4;
        }
        fs::write(beside(&source), &bytes).unwrap();
        assert_words(&refused(&source, &[]), code, &["x.tar.ffrsum", "ffrfs sum --sidecar"]);
    }
    fs::remove_file(beside(&source)).unwrap();
    let named = format!("checksums={}", beside(&source).display());
    assert_words(&refused(&source, &[&named]), 2, &["x.tar.ffrsum", "No such file"]);
}

#[test]
fn shards_have_a_sidecar_each_or_one_for_all() {
    let directory = temp_dir();
    let shards = directory.path().join("shards");
    fs::create_dir(&shards).unwrap();
    let place = |number: u64| shards.join(format!("t-{number}.tar"));
    for number in 0..4 {
        let members: Vec<_> =
            (0..5).map(|i| (format!("{number}-{i}"), noise(number * 10 + i, 3000))).collect();
        fs::write(place(number), tar_of(&members)).unwrap();
    }
    // A container that needs no sidecar, and gets none.
    write_container(&shards.join("z.ffr"), &samples(3, 100));
    let all = directory.path().join("all.ffrsum");
    let written = sum(&shards, &["--sidecar", "-o", all.to_str().unwrap()]).ok();
    assert!(written.stderr.contains("z.ffr: every sample has a checksum"), "{}", written.stderr);
    let named = format!("checksums={}", all.display());
    flip_byte(&place(2), 600);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &shards, &[&named, "require_checksums", "layout=shards"]);
        assert_errno(mount.read("t-2.tar/2-0"), libc::EIO);
        assert_eq!(mount.read("t-3.tar/3-4").unwrap(), noise(34, 3000));
        assert_eq!(mount.read("z.ffr/000001").unwrap(), samples(3, 100)[1]);
        let info = mount.info();
        assert_eq!(info["containers"][1]["checksums"], all.to_str().unwrap());
        assert_eq!(info["containers"][4]["checksums"], serde_json::Value::Null);
    });
    flip_byte(&place(2), 600);

    // One container is not among those that the sidecar covers.
    fs::write(place(9), tar_of(&members().0)).unwrap();
    assert_words(&refused(&shards, &[&named]), 3, &["t-9.tar", "not one of the 4"]);
    // Joined sidecars are a sidecar.
    sum(&place(9), &["--sidecar"]).ok();
    let joined = [fs::read(beside(&place(9))).unwrap(), fs::read(&all).unwrap()].concat();
    fs::write(&all, joined).unwrap();
    sum(&shards, &["--sidecar"]).ok();
    let sidecars = (0..10).filter(|&number| beside(&place(number)).exists()).count();
    assert_eq!((sidecars, beside(&shards.join("z.ffr")).exists()), (5, false));
    for_each_transport(|transport| {
        let glob = shards.join("t-?.tar*");
        for (source, how) in [(&shards, &*named), (&shards, "checksums=auto"), (&glob, &named)] {
            let mount = Mount::new(transport, source, &[how, "require_checksums"]);
            assert!(mount.read("d/4.bin").unwrap() == members().0[4].1);
        }
    });
}

#[test]
fn nothing_is_sealed_that_is_bad_or_has_checksums_or_was_named_by_mistake() {
    let directory = temp_dir();
    let (bytes, name) = (samples(3, 1000), directory.path().join("precious"));
    let ffr = container_in(&directory, &bytes);
    assert_words(&sum(&ffr, &["--sidecar"]), 0, &["every sample has a checksum already"]);
    assert!(!beside(&ffr).exists());
    let zipped =
        file_in(&directory, "x.zip", zip(&[stored("a", b"b"), deflated("c", text(1, 999))]));
    sum(&zipped, &["--sidecar"]).ok();
    assert!(!beside(&zipped).exists());

    let source = file_in(&directory, "x.tar", tar_of(&members().0));
    fs::write(&name, "precious").unwrap();
    let outcome = sum(&source, &["--sidecar", "-o", name.to_str().unwrap()]);
    assert_words(&outcome, 6, &["precious", "name another file"]);
    assert_eq!(fs::read_to_string(&name).unwrap(), "precious");
    let outcome = sum(&source, &["--sidecar", "--nested", "1"]);
    assert_words(&outcome, 1, &["--nested"]);

    // The archive is cut in its last member but one.
    let cut = &tar_of(&members().0)[..5 << 20];
    let cut = file_in(&directory, "cut.tar", cut);
    let outcome = sum(&cut, &["--sidecar", "--allow-damaged"]);
    assert_eq!(outcome.code, 4, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("bad samples: no sidecar was written"), "{}", outcome.stderr);
    assert!(!beside(&cut).exists());
}

#[test]
fn info_and_ls_and_attributes_show_the_checksums() {
    let directory = temp_dir();
    let source = sealed_tar(&directory);
    let crc = format!("{:08x}", crc32fast::hash(&members().0[1].1));
    let ls = ffrfs(&[OsStr::new("ls"), "-lR".as_ref(), source.as_ref()]).ok().text();
    assert!(ls.lines().any(|l| l.contains(&crc) && l.ends_with("d/1.bin")), "{ls}");
    let info = ffrfs(&[OsStr::new("info"), source.as_ref()]).ok().text();
    assert!(info.contains("checksums:  7 files are checked by a sidecar"), "{info}");
    assert!(info.contains("x.tar.ffrsum"), "{info}");
    let json = ffrfs(&[OsStr::new("info"), "--json".as_ref(), source.as_ref()]).ok();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["checked_by"]["sidecar"], &json["not_verifiable"]), (&7.into(), &0.into()));
}
