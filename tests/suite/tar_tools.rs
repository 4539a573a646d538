//! tar archives from the programs that people use: packed files are shown as they were.

use crate::common::{Need, have, noise, python, run, temp_dir};
use ffrfs::format::{self, Container, Content, Kind, MemorySource, Node, OpenOptions};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// The kind of a file, its permission bits, and its time of modification.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    what: What,
    mode: u32,
    seconds: i64,
    nanoseconds: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    Directory,
    File { bytes: Vec<u8>, links: u64 },
    Symlink(Vec<u8>),
}

/// Makes a directory with all files, directories and links that a tar archive can hold.
fn plant(root: &Path) {
    let long = root.join("n".repeat(120)).join("m".repeat(110));
    fs::create_dir_all(&long).unwrap();
    fs::create_dir(root.join("empty directory")).unwrap();
    fs::write(root.join("empty"), b"").unwrap();
    fs::write(root.join("plain ü"), noise(1, 1234)).unwrap();
    fs::write(long.join("deep"), noise(2, 512)).unwrap();
    fs::hard_link(root.join("plain ü"), root.join("second name")).unwrap();
    std::os::unix::fs::symlink("plain ü", root.join("link")).unwrap();
    std::os::unix::fs::symlink("t".repeat(150), root.join("long link")).unwrap();
    let file = fs::File::create(root.join("holes")).unwrap();
    // More pieces than stand in one header.
    for piece in 0..40u64 {
        file.write_all_at(&noise(piece, 4096), piece << 16).unwrap();
    }
    file.set_len((40 << 16) + 5).unwrap();
    for (name, mode, days) in [("empty", 0o4755, 1), ("plain ü", 0o600, -3), ("holes", 0o644, 9000)]
    {
        let path = root.join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let age = std::time::Duration::new(86400 * u64::from(i32::unsigned_abs(days)), 0);
        let epoch = std::time::UNIX_EPOCH;
        let time = if days < 0 { epoch - age } else { epoch + age };
        let time = time + std::time::Duration::from_nanos(123_456_789);
        fs::File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
    }
}

/// The files and directories below a directory.
fn planted(root: &Path) -> BTreeMap<Vec<u8>, Shown> {
    let mut all = BTreeMap::new();
    for entry in walkdir::WalkDir::new(root).min_depth(1) {
        let entry = entry.unwrap();
        let (path, meta) = (entry.path(), entry.metadata().unwrap());
        let what = if meta.is_dir() {
            What::Directory
        } else if meta.is_symlink() {
            What::Symlink(fs::read_link(path).unwrap().into_os_string().into_encoded_bytes())
        } else {
            What::File { bytes: fs::read(path).unwrap(), links: meta.nlink() }
        };
        let name = path.strip_prefix(root).unwrap().as_os_str().as_encoded_bytes().to_vec();
        let (seconds, nanoseconds) = (meta.mtime(), meta.mtime_nsec() as u32);
        all.insert(name, Shown { what, mode: meta.mode() & 0o7777, seconds, nanoseconds });
    }
    all
}

fn shown(archive: &Path) -> BTreeMap<Vec<u8>, Shown> {
    let stored = fs::read(archive).unwrap();
    let source = Arc::new(MemorySource::new(archive, stored.clone()));
    let container = format::open(source, &OpenOptions::default()).unwrap();
    assert_eq!(container.format(), "tar");
    assert!(container.warnings().is_empty(), "{:?}", container.warnings());
    let mut all = BTreeMap::new();
    container
        .members(&mut |member| {
            let (what, attributes) = match member.node {
                Node::Directory(attributes) => (What::Directory, attributes),
                Node::Sample(index) => {
                    (what(container.as_ref(), &stored, index), container.attributes(index)?)
                }
            };
            let path = member.path.strip_suffix(b"/").unwrap_or(member.path);
            let path = path.strip_prefix(b"./").unwrap_or(path);
            let (seconds, nanoseconds) = attributes.modified.unwrap();
            let mode = attributes.mode.unwrap().into();
            let shown = Shown { what, mode, seconds, nanoseconds };
            // The directory itself is `.`.
            if path != b"." {
                assert!(all.insert(path.to_vec(), shown).is_none(), "one name twice");
            }
            Ok(())
        })
        .unwrap();
    all
}

fn what(container: &dyn Container, stored: &[u8], index: u64) -> What {
    let (sample, attributes) =
        (container.sample(index).unwrap(), container.attributes(index).unwrap());
    if attributes.kind == Kind::Symlink {
        return What::Symlink(container.link_target(index).unwrap());
    }
    let links = attributes.links.into();
    assert!(!sample.damaged);
    let Content::Sparse(size) = sample.content else {
        let bytes = stored[sample.offset_bytes as usize..sample.end_bytes() as usize].to_vec();
        return What::File { bytes, links };
    };
    let mut bytes = vec![0; size as usize];
    let mut at = 0;
    while let Some(piece) = container.piece(index, at).unwrap() {
        at = piece.at_bytes + piece.length_bytes;
        bytes[piece.at_bytes as usize..at as usize]
            .copy_from_slice(&stored[piece.offset_bytes as usize..][..piece.length_bytes as usize]);
    }
    What::File { bytes, links }
}

/// Compares a directory with its archive; `keeps` has the properties that the dialect can store.
fn check(directory: &Path, archive: &Path, keeps: Keeps) {
    let mut expected = planted(directory);
    for shown in expected.values_mut().filter(|_| !keeps.nanoseconds) {
        shown.nanoseconds = 0;
    }
    if !keeps.long_names {
        expected.retain(|name, _| name.len() < 90 && name != b"long link");
    }
    let found = shown(archive);
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, expected) in &expected {
        assert!(found[name] == *expected, "{}", String::from_utf8_lossy(name));
    }
}

#[derive(Clone, Copy)]
struct Keeps {
    nanoseconds: bool,
    long_names: bool,
}

const GNU: Keeps = Keeps { nanoseconds: false, long_names: true };
const PAX: Keeps = Keeps { nanoseconds: true, long_names: true };
const OLD: Keeps = Keeps { nanoseconds: false, long_names: false };

fn tar(program: &str, directory: &Path, archive: &Path, options: &[&str]) {
    let mut command = Command::new(program);
    run(command.args(options).arg("-cf").arg(archive).arg("-C").arg(directory).arg(".")).ok();
}

#[test]
fn every_format_of_gnu_tar_shows_what_was_packed() {
    if !have(Need::Program("tar")) {
        return;
    }
    let (directory, archives) = (temp_dir(), temp_dir());
    plant(directory.path());
    let archive = archives.path().join("x.tar");
    for (options, keeps) in [
        (&["--format=gnu"][..], GNU),
        (&["--format=oldgnu"], GNU),
        (&["--format=gnu", "--sparse"], GNU),
        (&["--format=posix"], PAX),
        (&["--format=posix", "--sparse", "--sparse-version=0.0"], PAX),
        (&["--format=posix", "--sparse", "--sparse-version=0.1"], PAX),
        (&["--format=posix", "--sparse", "--sparse-version=1.0"], PAX),
        (&["--format=gnu", "--incremental"], GNU),
        (&["--format=gnu", "--label=a label"], GNU),
    ] {
        tar("tar", directory.path(), &archive, options);
        check(directory.path(), &archive, keeps);
    }
    // These dialects have no room for long names, nor for times before 1970.
    for long in ["n".repeat(120), "long link".to_owned()] {
        let path = directory.path().join(long);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
    }
    let plain = fs::File::options().append(true).open(directory.path().join("plain ü")).unwrap();
    plain.set_modified(std::time::UNIX_EPOCH).unwrap();
    for format in ["--format=ustar", "--format=v7"] {
        tar("tar", directory.path(), &archive, &[format]);
        check(directory.path(), &archive, OLD);
    }
}

#[test]
fn what_gnu_tar_appends_and_joins_is_shown() {
    if !have(Need::Program("tar")) {
        return;
    }
    let (directory, archives) = (temp_dir(), temp_dir());
    let [one, two] = ["one", "two"].map(|name| {
        fs::write(directory.path().join(name), name).unwrap();
        let archive = archives.path().join(name);
        run(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(directory.path()).arg(name))
            .ok();
        archive
    });
    let joined = archives.path().join("joined.tar");
    fs::write(&joined, [fs::read(&one).unwrap(), fs::read(&two).unwrap()].concat()).unwrap();
    run(Command::new("tar").arg("-Af").arg(&one).arg(&two)).ok();
    for archive in [&joined, &one] {
        let shown = shown(archive);
        assert_eq!(shown.keys().collect::<Vec<_>>(), [b"one", b"two"]);
    }
}

#[test]
fn what_bsdtar_packs_is_shown() {
    if !have(Need::Program("bsdtar")) {
        return;
    }
    let (directory, archives) = (temp_dir(), temp_dir());
    plant(directory.path());
    // bsdtar writes a time of -0.25 as -1.75, and as 0 for GNU.
    let plain = fs::File::options().append(true).open(directory.path().join("plain ü")).unwrap();
    plain.set_modified(std::time::UNIX_EPOCH).unwrap();
    let archive = archives.path().join("x.tar");
    for (format, keeps) in [("pax", PAX), ("gnutar", GNU)] {
        tar("bsdtar", directory.path(), &archive, &["--format", format]);
        check(directory.path(), &archive, keeps);
    }
}

#[test]
fn what_pythons_tarfile_packs_is_shown() {
    if !have(Need::Program("python3")) {
        return;
    }
    let (directory, archives) = (temp_dir(), temp_dir());
    plant(directory.path());
    let archive = archives.path().join("x.tar");
    let code = "import sys, tarfile
directory, archive, format = sys.argv[1:]
with tarfile.open(archive, 'w', format=getattr(tarfile, format)) as tar: tar.add(directory, '.')";
    for format in ["GNU_FORMAT", "PAX_FORMAT"] {
        let paths = [directory.path(), &archive].map(Path::as_os_str);
        python(code, &[paths[0], paths[1], format.as_ref()]).ok();
        // Python has times as floating-point numbers, and whole seconds in GNU's format.
        let (expected, found) = (planted(directory.path()), shown(&archive));
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (name, expected) in &expected {
            let found = &found[name];
            assert!(found.what == expected.what, "{}", String::from_utf8_lossy(name));
            assert_eq!(found.mode, expected.mode);
            assert!((found.seconds - expected.seconds).abs() <= 1);
        }
    }
}
