//! tar archives that people's programs wrote, mounted.

use super::{Times, compare, file_in, found, paths, plant, plant_links_and_holes, run_in};
use crate::common::{FFRFS, Mount, Need, TempDir, for_each_transport, have, python, run, temp_dir};
use nix::unistd::{Whence, lseek};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// A directory with files of all kinds, and a directory for archives of it.
fn planted() -> (TempDir, TempDir) {
    let directory = temp_dir();
    plant(directory.path());
    plant_links_and_holes(directory.path());
    (directory, temp_dir())
}

#[test]
fn what_gnu_tar_packs_is_shown_with_modes_times_and_links() {
    if !have(Need::Program("tar")) {
        return;
    }
    let (directory, archives) = planted();
    let archive = archives.path().join("x.tar");
    let target = archive.to_str().unwrap();
    for (options, times) in [
        (&["--format=ustar"][..], Times::Seconds),
        (&["--format=gnu"], Times::Seconds),
        (&["--format=gnu", "--sparse"], Times::Seconds),
        (&["--format=posix"], Times::Nanoseconds),
        (&["--format=posix", "--sparse", "--sparse-version=0.0"], Times::Nanoseconds),
        (&["--format=posix", "--sparse", "--sparse-version=1.0"], Times::Nanoseconds),
    ] {
        run_in(directory.path(), "tar", &[options, &["-cf", target, "."]].concat());
        for_each_transport(|transport| {
            let mount = Mount::new(transport, &archive, &[]);
            compare(directory.path(), &mount, times);
            let ino = |name: &str| fs::metadata(mount.path(name)).unwrap().ino();
            assert_eq!(ino("a/plain"), ino("second name"), "two names of one file");
            assert_ne!(ino("a/plain"), ino("a/text.txt"));
        });
    }
}

/// The ranges of data in a file, as SEEK_DATA and SEEK_HOLE find them.
fn pieces(path: &Path) -> Vec<(i64, i64)> {
    let file = File::open(path).unwrap();
    let (mut all, mut at) = (Vec::new(), 0);
    while let Ok(start) = lseek(&file, at, Whence::SeekData) {
        at = lseek(&file, start, Whence::SeekHole).unwrap();
        all.push((start, at));
    }
    all
}

#[test]
fn holes_that_gnu_tar_found_are_holes() {
    if !have(Need::Program("tar")) {
        return;
    }
    let (directory, archives) = planted();
    let archive = archives.path().join("x.tar");
    let expected: Vec<_> = (0..30).map(|piece| (piece << 16, (piece << 16) + 4096)).collect();
    for options in [&["--format=gnu"][..], &["--format=posix", "--sparse-version=0.1"]] {
        let pack = [options, &["--sparse", "-cf", archive.to_str().unwrap(), "holes", "a"]];
        run_in(directory.path(), "tar", &pack.concat());
        for_each_transport(|transport| {
            let mount = Mount::new(transport, &archive, &[]);
            let holes = mount.path("holes");
            assert_eq!(pieces(&holes), expected);
            let stat = fs::metadata(&holes).unwrap();
            assert_eq!((stat.size(), stat.blocks()), (30 << 16, 30 * 8));
            let du = run(Command::new("du").args(["-B1"]).arg(&holes)).ok().text();
            assert_eq!(du.split('\t').next(), Some("122880"));
            run(Command::new("cmp").arg(&holes).arg(directory.path().join("holes"))).ok();
            // A copy that looks for holes finds them.
            let copy = mount.scratch().join("copy");
            run(Command::new("cp").arg("--sparse=auto").arg(&holes).arg(&copy)).ok();
            run(Command::new("cmp").arg(&holes).arg(&copy)).ok();
            // A file without holes is one piece.
            assert_eq!(pieces(&mount.path("a/plain")), [(0, 1234)]);
        });
    }
}

#[test]
fn what_bsdtar_packs_is_shown() {
    if !have(Need::Program("bsdtar")) {
        return;
    }
    let (directory, archives) = planted();
    let archive = archives.path().join("x.tar");
    for (format, times) in [("pax", Times::Nanoseconds), ("gnutar", Times::Seconds)] {
        let pack = ["--format", format, "-cf", archive.to_str().unwrap(), "."];
        run_in(directory.path(), "bsdtar", &pack);
        for_each_transport(|transport| {
            compare(directory.path(), &Mount::new(transport, &archive, &[]), times);
        });
    }
}

#[test]
fn what_pythons_tarfile_packs_is_shown() {
    if !have(Need::Program("python3")) {
        return;
    }
    const PACK: &str = "import sys, tarfile
directory, archive, format = sys.argv[1:]
with tarfile.open(archive, 'w', format=getattr(tarfile, format)) as tar: tar.add(directory, '.')";
    let (directory, archives) = planted();
    let archive = archives.path().join("x.tar");
    for format in ["GNU_FORMAT", "PAX_FORMAT", "USTAR_FORMAT"] {
        let args = [directory.path(), &archive, Path::new(format)];
        python(PACK, &args).ok();
        for_each_transport(|transport| {
            // Python keeps times as floating-point numbers.
            compare(directory.path(), &Mount::new(transport, &archive, &[]), Times::Seconds);
        });
    }
}

/// Members with names that no directory can hold, or that lead out of it.
const HOSTILE: &str = r#"
import io, sys, tarfile
names = ["../../outside", "/absolute", "a/../../up", "n" * 300 + ".jpg", "dir/" + "m" * 400,
         "back\\slash", "new\nline", "./dot/./x", "..", "a/b"]
with tarfile.open(sys.argv[1], "w", format=tarfile.PAX_FORMAT) as tar:
    for number, name in enumerate(names):
        info = tarfile.TarInfo(name)
        data = b"member %d" % number
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    # tarfile cuts names at a NUL; a pax record can hold one.
    info = tarfile.TarInfo("nul")
    info.pax_headers = {"path": "nul\0name"}
    info.size = 3
    tar.addfile(info, io.BytesIO(b"nul"))
"#;

#[test]
fn names_that_lead_out_are_shown_escaped_and_within() {
    if !have(Need::Program("python3")) {
        return;
    }
    let directory = temp_dir();
    let archive = directory.path().join("x.tar");
    python(HOSTILE, &[&archive]).ok();
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &[]);
        let before =
            run_in(mount.scratch(), "find", &[".", "-path", "./mnt", "-prune", "-o", "-print"]);
        let all = super::tree(mount.point());
        let bytes = |name: &str| {
            let bytes =
                all.get(name).unwrap_or_else(|| panic!("{name} is not in {:?}", all.keys()));
            String::from_utf8(bytes.clone()).unwrap()
        };
        assert_eq!(all.len(), 11, "{:?}", all.keys());
        assert_eq!(bytes("%2E%2E/%2E%2E/outside"), "member 0");
        assert_eq!(bytes("absolute"), "member 1");
        assert_eq!(bytes("a/%2E%2E/%2E%2E/up"), "member 2");
        assert_eq!(bytes("back\\slash"), "member 5");
        assert_eq!(bytes("new\nline"), "member 6");
        assert_eq!(bytes("dot/x"), "member 7");
        assert_eq!(bytes("a/b"), "member 9");
        assert_eq!(bytes("nul%00name"), "nul");
        let cut = |start: &str, ends: &str| {
            let name = all.keys().find(|name| name.starts_with(start)).expect(start);
            assert!(name.ends_with(ends), "{name}");
            assert_eq!(Path::new(name).file_name().unwrap().len(), 255);
            bytes(name)
        };
        assert_eq!(cut("nnn", ".jpg"), "member 3");
        assert_eq!(cut("dir/mmm", ""), "member 4");
        // `..` alone is a directory already: the file has a number.
        let dots = all.iter().find(|(_, bytes)| *bytes == b"member 8").unwrap().0;
        assert_eq!(dots, "%2E%2E (1)");
        let after =
            run_in(mount.scratch(), "find", &[".", "-path", "./mnt", "-prune", "-o", "-print"]);
        assert_eq!(before.text(), after.text());
        assert!(!Path::new("/absolute").exists());
    });
}

#[test]
fn several_members_of_one_name_are_shown_as_dup_says() {
    let directory = temp_dir();
    let members: [(&str, &[u8]); 4] =
        [("x.txt", b"one"), ("d/y", b"y"), ("x.txt", b"two!"), ("x.txt", b"three")];
    let archive = file_in(&directory, "x.tar", super::write::tar(&members));
    for_each_transport(|transport| {
        let shown = |option: &str| super::tree(Mount::new(transport, &archive, &[option]).point());
        let number = shown("dup=number");
        assert_eq!(number.keys().collect::<Vec<_>>(), ["d/y", "x (1).txt", "x (2).txt", "x.txt"]);
        assert_eq!((&number["x.txt"][..], &number["x (1).txt"][..]), (&b"one"[..], &b"two!"[..]));
        assert_eq!(number["x (2).txt"], b"three");
        for (option, kept) in [("dup=first", &b"one"[..]), ("dup=last", b"three")] {
            let shown = shown(option);
            assert_eq!(shown.keys().collect::<Vec<_>>(), ["d/y", "x.txt"]);
            assert_eq!(shown["x.txt"], kept, "{option}");
        }
    });
    let outcome = super::refused(&archive, &["dup=error"]);
    assert_eq!(outcome.code, 3, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("x.txt"), "{}", outcome.stderr);
}

#[test]
fn an_archive_without_members_is_an_empty_directory() {
    let directory = temp_dir();
    let archive = file_in(&directory, "x.tar", super::write::tar(&[]));
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &[]);
        assert!(paths(&mount).is_empty() && found(mount.point(), Times::Seconds).is_empty());
    });
}

#[test]
fn cat_gives_what_a_mount_gives() {
    if !have(Need::Program("tar")) {
        return;
    }
    let (directory, archives) = planted();
    let archive = archives.path().join("x.tar");
    run_in(directory.path(), "tar", &["--sparse", "-cf", archive.to_str().unwrap(), "."]);
    run(Command::new("gzip").arg("-k").arg(&archive)).ok();
    for source in [&archive, &archives.path().join("x.tar.gz")] {
        // "link" is a symbolic link.
        for name in ["holes", "a/text.txt", "second name", "a/deep/nothing", "ünï/日本.txt", "link"]
        {
            let cat = run(Command::new(FFRFS).arg("cat").arg(source).arg(name)).ok();
            assert!(cat.stdout == fs::read(directory.path().join(name)).unwrap(), "{name}");
        }
        run(Command::new(FFRFS).arg("verify").arg(source)).ok();
    }
}

#[test]
fn a_member_that_is_called_as_the_control_directory_does_not_take_its_place() {
    let directory = temp_dir();
    let members: [(&str, &[u8]); 2] = [(".ffrfs/info.json", b"not this"), ("x", b"x")];
    let archive = file_in(&directory, "x.tar", super::write::tar(&members));
    for_each_transport(|transport| {
        // The second mount uses the kept names.
        for _ in 0..2 {
            let mount = Mount::new(transport, &archive, &[]);
            assert_eq!(mount.info()["samples"], 2);
            assert_eq!(mount.list(""), ["x"]);
            assert!(mount.log().contains("control directory"), "{}", mount.log());
        }
        let flat = Mount::new(transport, &archive, &["flat"]);
        assert_eq!(flat.read("000000").unwrap(), b"not this");
    });
}

#[test]
fn options_of_names_that_mean_nothing_for_members_are_refused() {
    let directory = temp_dir();
    let archive = file_in(&directory, "x.tar", super::write::tar(&[("x", b"x")]));
    for option in ["suffix=.jpg", "fanout=10"] {
        // The second mount uses the kept names.
        for _ in 0..2 {
            let outcome = super::refused(&archive, &[option]);
            assert_eq!(outcome.code, 1, "{option}: {}", outcome.stderr);
            assert!(outcome.stderr.contains("flat"), "{}", outcome.stderr);
        }
    }
}

#[test]
fn cat_and_ls_follow_and_show_symbolic_links_within_the_dataset() {
    if !have(Need::Program("tar")) {
        return;
    }
    let (directory, archives) = (temp_dir(), temp_dir());
    fs::create_dir(directory.path().join("d")).unwrap();
    fs::write(directory.path().join("a"), b"content").unwrap();
    let links = [
        ("../a", "d/up"),
        ("d", "into"),
        ("/etc/hostname", "absolute"),
        ("../../a", "d/out"),
        ("round", "round"),
        ("nowhere", "dangling"),
    ];
    for (target, name) in links {
        std::os::unix::fs::symlink(target, directory.path().join(name)).unwrap();
    }
    let archive = archives.path().join("x.tar");
    run_in(directory.path(), "tar", &["-cf", archive.to_str().unwrap(), "."]);
    let cat = |name: &str| run(Command::new(FFRFS).arg("cat").args([&*archive, Path::new(name)]));
    for name in ["a", "d/up", "into/up", "./d/../a", "into/up/."] {
        assert_eq!(cat(name).ok().text(), "content", "{name}");
    }
    let refused = [
        ("absolute", 1, "leads to /etc/hostname, out of the dataset"),
        ("d/out", 1, "leads out of the dataset"),
        ("round", 1, "too many symbolic links"),
        ("dangling", 1, "leads to nowhere, which is not in the dataset"),
    ];
    for (name, code, why) in refused {
        let outcome = cat(name);
        assert!(outcome.code == code && outcome.stdout.is_empty(), "{name}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(why), "{}", outcome.stderr);
    }
    let ls = run(Command::new(FFRFS).args(["ls", "-l", "-R"]).arg(&archive)).ok().text();
    assert!(ls.contains(" d/up -> ../a\n") && !ls.contains(" a -> "), "{ls}");
    let json = run(Command::new(FFRFS).args(["ls", "--json"]).arg(&archive)).ok().text();
    assert!(json.contains("\"link_target\":\"nowhere\""), "{json}");
}

#[test]
fn links_that_cannot_be_read_are_listed_with_all_others() {
    if !have(Need::Program("zip")) {
        return;
    }
    let (directory, archives) = (temp_dir(), temp_dir());
    for name in ["a", "z"] {
        fs::write(directory.path().join(name), name).unwrap();
    }
    std::os::unix::fs::symlink("a", directory.path().join("link")).unwrap();
    let locked = archives.path().join("x.zip");
    run_in(directory.path(), "zip", &["-qyr", "-P", "secret", locked.to_str().unwrap(), "."]);
    for (format, lines) in
        [("-l", ["a\n", "link\n", "z\n"]), ("--json", ["\"a\"", "\"link\"", "\"z\""])]
    {
        let listed = run(Command::new(FFRFS).args(["ls", format]).arg(&locked)).ok().text();
        assert!(lines.iter().all(|line| listed.contains(line)), "{listed}");
    }
}
