//! Zip files that people's programs wrote, mounted, and names that they store in their own way.

use super::write::{self, deflated, stored};
use super::{Times, compare, file_in, found, paths, plant, run_in, tree};
use crate::common::{
    Mount, Need, Tmpfs, assert_errno, ffrfs, flip_byte, for_each_transport, have, noise, one_of,
    python, temp_dir,
};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

#[test]
fn what_info_zip_packs_is_shown_with_modes_times_and_links() {
    if !have(Need::Program("zip")) {
        return;
    }
    let (directory, archives) = (temp_dir(), temp_dir());
    plant(directory.path());
    for (number, options) in [&["-0"][..], &["-9"], &["-6", "-n", ".bin:.txt"]].iter().enumerate() {
        let archive = archives.path().join(format!("{number}.zip"));
        let pack = [*options, &["-q", "-r", "-y", archive.to_str().unwrap(), "."]];
        run_in(directory.path(), "zip", &pack.concat());
        for_each_transport(|transport| {
            compare(directory.path(), &Mount::new(transport, &archive, &[]), Times::Seconds);
        });
    }
}

#[test]
fn what_bsdtar_packs_as_zip_is_shown() {
    if !have(Need::Program("bsdtar")) {
        return;
    }
    let (directory, archives) = (temp_dir(), temp_dir());
    plant(directory.path());
    let archive = archives.path().join("x.zip");
    for compression in ["store", "deflate"] {
        let option = format!("zip:compression={compression}");
        let target = archive.to_str().unwrap();
        let pack = ["--format", "zip", "--options", &option, "-cf", target, "."];
        run_in(directory.path(), "bsdtar", &pack);
        for_each_transport(|transport| {
            compare(directory.path(), &Mount::new(transport, &archive, &[]), Times::Seconds);
        });
    }
}

#[test]
fn what_7z_packs_with_each_method_is_shown() {
    let Some(program) = one_of(&["7z", "7zz"]) else { return };
    let (directory, archives) = (temp_dir(), temp_dir());
    fs::create_dir_all(directory.path().join("sub/empty")).unwrap();
    fs::write(directory.path().join("sub/text ü.txt"), write::text(1, 200_000)).unwrap();
    fs::write(directory.path().join("noise"), noise(2, 100_000)).unwrap();
    fs::write(directory.path().join("nothing"), b"").unwrap();
    for method in ["Copy", "Deflate", "Deflate64", "BZip2", "LZMA", "PPMd"] {
        let archive = archives.path().join(format!("{method}.zip"));
        let option = format!("-mm={method}");
        run_in(
            directory.path(),
            program,
            &["a", "-tzip", "-y", &option, archive.to_str().unwrap(), "."],
        );
        for_each_transport(|transport| {
            compare(directory.path(), &Mount::new(transport, &archive, &[]), Times::Seconds);
        });
    }
}

const PYTHON_PACKS: &str = r#"
import os, sys, zipfile
source, target = sys.argv[1:]
methods = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
with zipfile.ZipFile(target, "w") as archive:
    paths = sorted(os.path.join(top, name) for top, _, names in os.walk(source) for name in names)
    for number, path in enumerate(paths):
        archive.write(path, os.path.relpath(path, source), methods[number % 4])
"#;

#[test]
fn what_pythons_zipfile_packs_with_mixed_methods_is_shown() {
    if !have(Need::Program("python3")) {
        return;
    }
    let (directory, archives) = (temp_dir(), temp_dir());
    let archive = archives.path().join("x.zip");
    for number in 0..24 {
        let sub = directory.path().join(format!("{}/ordner ü", number % 3));
        fs::create_dir_all(&sub).unwrap();
        let bytes = if number % 2 == 0 { noise(number, 5000) } else { write::text(number, 90_000) };
        let path = sub.join(format!("{number:03}.bin"));
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    }
    python(PYTHON_PACKS, &[directory.path(), &archive]).ok();
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &[]);
        super::same_content(directory.path(), mount.point());
        let files = found(mount.point(), Times::Seconds);
        let files: Vec<_> = files.iter().filter(|line| line.starts_with("f ")).collect();
        assert_eq!(files.len(), 24);
        assert!(files.iter().all(|line| line.starts_with("f 640 ")), "{files:?}");
    });
}

#[test]
fn times_of_dos_are_shown_as_utc() {
    if !have(Need::Program("python3")) {
        return;
    }
    const PACK: &str = "
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as archive:
    archive.writestr(zipfile.ZipInfo('x', (2001, 9, 9, 1, 46, 40)), b'x')";
    let directory = temp_dir();
    let archive = directory.path().join("x.zip");
    python(PACK, &[&archive]).ok();
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &[]);
        let modified = fs::metadata(mount.path("x")).unwrap().modified().unwrap();
        assert_eq!(modified, UNIX_EPOCH + Duration::from_secs(1_000_000_000));
    });
}

/// Three names that Python writes: cp437, Shift-JIS, and UTF-8 with its flag.
const NAMES: &str = r#"
import sys, zipfile
class Raw(zipfile.ZipInfo):
    # As programs wrote names before there was a flag for UTF-8.
    def _encodeFilenameFlags(self):
        return self.filename.encode(self.charset), 0
for charset, names in [("cp437", ["Müller/Grüße aus Köln.txt", "Müller/¥£.txt"]),
                       ("shift_jis", ["写真/東京の夜景.jpg", "写真/これは日本語の名前です.jpg"]),
                       ("utf8", ["日本/ü.txt", "emoji 🎉.bin"])]:
    with zipfile.ZipFile(f"{sys.argv[1]}/{charset}.zip", "w") as archive:
        for name in names:
            info = zipfile.ZipInfo(name)
            if charset != "utf8":
                info = Raw(name)
                info.charset = charset
            archive.writestr(info, name.encode())
"#;

#[test]
fn names_in_other_character_sets_are_shown_as_meant() {
    if !have(Need::Program("python3")) {
        return;
    }
    let directory = temp_dir();
    python(NAMES, &[directory.path()]).ok();
    let zip = |name: &str| directory.path().join(format!("{name}.zip"));
    for_each_transport(|transport| {
        for (name, option) in [
            ("cp437", &["encoding=cp437"][..]),
            ("shift_jis", &["encoding=shift-jis"]),
            ("shift_jis", &[]),
            ("utf8", &[]),
            ("utf8", &["encoding=cp437"]),
        ] {
            let mount = Mount::new(transport, zip(name), option);
            let all = tree(mount.point());
            assert_eq!(all.len(), 2);
            for (path, bytes) in all {
                assert_eq!(path, String::from_utf8(bytes).unwrap(), "{name} {option:?}");
            }
        }
        let raw = Mount::new(transport, zip("cp437"), &["encoding=raw"]);
        let names: Vec<_> =
            fs::read_dir(raw.point()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names[0].as_encoded_bytes(), b"M\x81ller");
    });
    let outcome = super::refused(&zip("cp437"), &["encoding=klingon"]);
    assert!(outcome.stderr.contains("klingon"), "{}", outcome.stderr);
}

#[test]
fn several_members_of_one_name_are_shown_as_dup_says() {
    let directory = temp_dir();
    let members = [
        stored("d/", ""),
        stored("d/x.txt", "one"),
        deflated("d/x.txt", "two two two two two two"),
        stored("d/", ""),
        stored("y", "y"),
        stored("d/x.txt", "three"),
    ];
    let archive = file_in(&directory, "x.zip", write::zip(&members));
    for_each_transport(|transport| {
        let shown = |option: &[&str]| tree(Mount::new(transport, &archive, option).point());
        let number = shown(&[]);
        let names: Vec<_> = number.keys().collect();
        assert_eq!(names, ["d/x (1).txt", "d/x (2).txt", "d/x.txt", "y"]);
        assert_eq!(number["d/x.txt"], b"one");
        assert_eq!(number["d/x (1).txt"], b"two two two two two two");
        assert_eq!(number, shown(&["dup=number"]));
        for (option, kept) in [("dup=first", &b"one"[..]), ("dup=last", b"three")] {
            let shown = shown(&[option]);
            assert_eq!(shown.keys().collect::<Vec<_>>(), ["d/x.txt", "y"], "{option}");
            assert_eq!(shown["d/x.txt"], kept, "{option}");
        }
    });
    let outcome = super::refused(&archive, &["dup=error"]);
    assert_eq!(outcome.code, 3, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("x.txt"), "{}", outcome.stderr);
}

#[test]
fn a_directory_keeps_its_name_and_a_file_of_the_same_name_has_a_number() {
    let directory = temp_dir();
    let file_first = [stored("x", "file"), stored("x", "2"), stored("x/y", "in it")];
    let directory_first = [stored("x/y", "in it"), stored("x", "file"), stored("x", "2")];
    for members in [file_first, directory_first] {
        let archive = file_in(&directory, "x.zip", write::zip(&members));
        for_each_transport(|transport| {
            for (option, files) in [
                ("dup=number", &[&b"file"[..], b"2"][..]),
                ("dup=first", &[b"file"]),
                ("dup=last", &[b"2"]),
            ] {
                let mut all = tree(Mount::new(transport, &archive, &[option]).point());
                assert_eq!(all.remove("x/y").unwrap(), b"in it");
                assert_eq!(all.into_values().collect::<Vec<_>>(), files, "{option}");
            }
            let names = paths(&Mount::new(transport, &archive, &["dup=last"]));
            assert_eq!(names, ["x (1)", "x/y"]);
        });
    }
}

#[test]
fn names_that_lead_out_are_shown_escaped_and_within() {
    let directory = temp_dir();
    let long = format!("{}.jpg", "n".repeat(300));
    let members = [
        stored("../../outside", "0"),
        deflated("/absolute-zip-member", "1"),
        stored("a/../../up", "2"),
        stored("nul\0name", "3"),
        stored(&long, "4"),
        stored("..\\back", "5"),
        stored("a//b/./c", "6"),
        stored("..", "7"),
        stored("", "8"),
    ];
    let archive = file_in(&directory, "x.zip", write::zip(&members));
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &[]);
        let all = tree(mount.point());
        assert_eq!(all.len(), members.len(), "{:?}", all.keys());
        let by_bytes = |bytes: &[u8]| all.iter().find(|(_, b)| *b == bytes).unwrap().0.as_str();
        assert_eq!(by_bytes(b"0"), "%2E%2E/%2E%2E/outside");
        assert_eq!(by_bytes(b"1"), "absolute-zip-member");
        assert_eq!(by_bytes(b"2"), "a/%2E%2E/%2E%2E/up");
        assert_eq!(by_bytes(b"3"), "nul%00name");
        assert_eq!(by_bytes(b"5"), "..\\back");
        assert_eq!(by_bytes(b"6"), "a/b/c");
        assert_eq!(by_bytes(b"7"), "%2E%2E (1)");
        assert_eq!(by_bytes(b"8"), "%");
        let cut = by_bytes(b"4");
        assert!(cut.len() == 255 && cut.starts_with("nnn") && cut.ends_with(".jpg"), "{cut}");
        assert!(!mount.scratch().parent().unwrap().join("outside").exists());
        assert!(!Path::new("/absolute-zip-member").exists());
    });
}

#[test]
fn an_archive_without_members_is_an_empty_directory() {
    let directory = temp_dir();
    let archive = file_in(&directory, "x.zip", write::zip(&[]));
    assert_eq!(fs::metadata(&archive).unwrap().len(), 22);
    for_each_transport(|transport| {
        assert!(paths(&Mount::new(transport, &archive, &[])).is_empty());
    });
}

#[test]
fn stored_members_are_mapped_and_read_in_any_order() {
    use std::os::unix::fs::FileExt;
    let directory = temp_dir();
    let data = noise(9, 700_000);
    let members = [stored("first", noise(1, 999)), stored("large", &data), deflated("last", &data)];
    let archive = file_in(&directory, "x.zip", write::zip(&members));
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &[]);
        for name in ["large", "last"] {
            let file = File::open(mount.path(name)).unwrap();
            for offset in [699_000, 350_001, 4095, 0_usize] {
                let mut bytes = vec![0; 1000];
                file.read_exact_at(&mut bytes, offset as u64).unwrap();
                assert!(bytes == data[offset..offset + 1000], "{name} at {offset}");
            }
        }
    });
}

/// A zip file with a member in one frame of zstd, which can be decoded only from its start, between two small members.
fn one_frame(data: &[u8]) -> Vec<u8> {
    let large = write::Member {
        method: 93,
        stored: zstd::bulk::compress(data, 1).unwrap(),
        ..stored("large", data)
    };
    write::zip(&[stored("a", "first"), large, stored("z", "last")])
}

#[test]
fn members_that_cannot_be_read_in_the_middle_are_decoded_to_the_directory_that_spool_names() {
    let (directory, spool) = (temp_dir(), temp_dir());
    let data = [write::text(4, 100_000), vec![0; 66 << 20], noise(5, 300_001)].concat();
    let archive = file_in(&directory, "x.zip", one_frame(&data));
    let option = format!("spool={}", spool.path().display());
    for_each_transport(|transport| {
        let without = Mount::new(transport, &archive, &[]);
        assert_errno(without.read("large"), libc::EIO);
        assert!(
            without.bad()[0].iter().any(|field| field.contains("--spool")),
            "{:?}",
            without.bad()
        );
        assert_eq!(without.read("z").unwrap(), b"last");

        let mount = Mount::new(transport, &archive, &[&option]);
        let file = File::open(mount.path("large")).unwrap();
        let mut bytes = [0; 5000];
        for at in [data.len() - 5000, 98_000, 40 << 20] {
            file.read_exact_at(&mut bytes, at as u64).unwrap();
            assert!(bytes == data[at..at + 5000], "{at}");
        }
        assert!(mount.read("large").unwrap() == data);
        assert_eq!(mount.bad(), Vec::<Vec<String>>::new());
        // The spool has no name, and goes with the mount.
        assert_eq!(fs::read_dir(spool.path()).unwrap().count(), 0);
    });
    let missing = format!("spool={}", directory.path().join("missing").display());
    let outcome = super::refused(&archive, &[&missing]);
    assert!(outcome.code == 6 && outcome.stderr.contains("missing"), "{}", outcome.stderr);
}

#[test]
fn a_spooled_member_with_a_wrong_byte_gives_no_byte_at_all() {
    let (directory, spool) = (temp_dir(), temp_dir());
    let data = [vec![0; 66 << 20], noise(5, 300_001)].concat();
    let archive = file_in(&directory, "x.zip", one_frame(&data));
    // A byte in the noise, which zstd cannot make smaller.
    let length = fs::metadata(&archive).unwrap().len();
    flip_byte(&archive, length - 100_000);
    let option = format!("spool={}", spool.path().display());
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &[&option]);
        let file = File::open(mount.path("large")).unwrap();
        assert_errno(file.read_at(&mut [0; 100], 0), libc::EIO);
        assert_eq!(mount.bad().len(), 1);
    });
}

#[test]
fn a_full_spool_is_an_error_that_says_so_and_can_be_tried_again() {
    if !have(Need::Root) {
        return;
    }
    let directory = temp_dir();
    let data = vec![0; 66 << 20];
    let archive = file_in(&directory, "x.zip", one_frame(&data));
    for_each_transport(|transport| {
        let disk = temp_dir();
        let spool = Tmpfs::new(disk.path().join("spool"), "20m");
        let option = format!("spool={}", spool.point().display());
        let mount = Mount::new(transport, &archive, &[&option]);
        assert_errno(mount.read("large"), libc::EIO);
        let log = mount.log();
        assert!(log.contains("--spool") && log.contains("No space left"), "{log}");
        spool.resize("100m");
        assert!(mount.read("large").unwrap() == data);
    });
}

#[test]
fn a_warmup_fetches_members_behind_local_headers_of_different_lengths() {
    // Members padded as in PyTorch's archives: none is where the header before it makes a reader expect it.
    let members: Vec<_> = (0..80_usize)
        .map(|number| {
            let padding = number * 37 % 64;
            let length = (padding as u16).to_le_bytes();
            let extra = [&b"FB"[..], &length, &vec![b'Z'; padding]].concat();
            let member = stored(format!("{number:02}"), noise(number as u64, 20_000));
            write::Member { extra, ..member }
        })
        .collect();
    let directory = temp_dir();
    let archive = file_in(&directory, "x.zip", write::zip(&members));
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &[]);
        let says = ffrfs(&["warmup".as_ref(), mount.point()]).ok().stderr;
        let prefetch = &mount.stats()["prefetch"];
        assert!(says.lines().any(|line| line.starts_with("80 samples warmed up")), "{says}");
        assert_eq!((&prefetch["done"], &prefetch["failed"]), (&80.into(), &0.into()), "{prefetch}");
        for (number, member) in members.iter().enumerate() {
            assert!(mount.read(format!("{number:02}")).unwrap() == member.data, "{number}");
        }
        assert!(mount.bad().is_empty());
    });
}
