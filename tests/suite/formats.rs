//! Containers of every format, mounted: programs read the files that programs have packed.

mod checkpoints;
mod combined;
mod compressed;
mod damage;
mod encrypted;
mod hdf5;
mod holes;
mod index;
mod keyed;
mod nested;
mod nested_kept;
mod parquet;
mod pickles;
mod records;
mod shards;
mod sums;
mod tars;
mod typed;
mod write;
mod zips;

use crate::common::{Mount, Outcome, TempDir, Transport, noise, run, temp_dir};
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

/// A directory as people have them: nested, an empty one, an empty file, links, modes, times.
fn plant(root: &Path) {
    for directory in ["a/deep/er", "empty directory", "ünï"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::write(root.join("a/plain"), noise(1, 1234)).unwrap();
    fs::write(root.join("a/text.txt"), write::text(2, 70_000)).unwrap();
    fs::write(root.join("a/deep/er/noise.bin"), noise(3, 300_000)).unwrap();
    fs::write(root.join("a/deep/nothing"), b"").unwrap();
    fs::write(root.join("ünï/日本.txt"), "こんにちは").unwrap();
    std::os::unix::fs::symlink("a/plain", root.join("link")).unwrap();
    std::os::unix::fs::symlink("../nowhere", root.join("a/dangling")).unwrap();
    let dated = [
        ("a/plain", 0o600, 1_000_000_001, 123_456_789),
        ("a/text.txt", 0o444, 1_234_567_890, 999_999_000),
        ("a/deep/er/noise.bin", 0o755, 1_600_000_000, 1),
        ("a/deep/nothing", 0o640, 86_400 * 4000, 0),
        ("ünï/日本.txt", 0o644, 1_700_000_001, 500_000_000),
        ("a/deep/er", 0o700, 1_500_000_000, 7),
        ("a/deep", 0o755, 1_500_000_001, 0),
        ("a", 0o750, 1_500_000_003, 0),
        ("empty directory", 0o711, 1_111_111_111, 0),
        ("ünï", 0o755, 1_222_222_223, 0),
    ];
    for (name, mode, seconds, nanoseconds) in dated {
        let path = root.join(name);
        let file = File::open(&path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::new(seconds, nanoseconds)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
}

/// A hard link and a file with holes, which only tar can pack.
fn plant_links_and_holes(root: &Path) {
    fs::hard_link(root.join("a/plain"), root.join("second name")).unwrap();
    let holes = File::create(root.join("holes")).unwrap();
    for piece in 0..30_u64 {
        holes.write_all_at(&noise(piece, 4096), piece << 16).unwrap();
    }
    holes.set_len(30 << 16).unwrap();
    holes.set_modified(UNIX_EPOCH + Duration::new(1_000_000_000, 25)).unwrap();
}

/// The precision of the times in an archive.
#[derive(Clone, Copy, PartialEq)]
enum Times {
    Nanoseconds,
    Seconds,
}

/// The output of `find` for everything in a directory: type, permissions, time, link target and path; for files also the
/// size and the number of names.
fn found(directory: &Path, times: Times) -> Vec<String> {
    let find = |args: &[&str]| {
        let mut command = Command::new("find");
        let text = run(command.arg(directory).args(["-mindepth", "1"]).args(args)).ok().text();
        text.split_terminator('\0').map(str::to_owned).collect::<Vec<_>>()
    };
    let mut all = find(&["-printf", "%y %m %T@ %l %P\\0"]);
    if times == Times::Seconds {
        all = all.iter().map(|line| without_fraction(line)).collect();
    }
    all.extend(find(&["-type", "f", "-printf", "%s bytes, %n names: %P\\0"]));
    all.sort();
    all
}

/// `f 644 17.500 …` as `f 644 17 …`.
fn without_fraction(line: &str) -> String {
    let mut fields: Vec<_> = line.splitn(4, ' ').collect();
    fields[2] = fields[2].split('.').next().unwrap();
    fields.join(" ")
}

/// Compares a directory with a mount of an archive of it, as programs see both.
#[track_caller]
fn compare(directory: &Path, mount: &Mount, times: Times) {
    assert_eq!(found(mount.point(), times), found(directory, times));
    same_content(directory, mount.point());
}

/// Checks that `diff` finds no difference between two directories; links are not followed.
#[track_caller]
fn same_content(one: &Path, other: &Path) {
    let outcome = run(Command::new("diff").args(["-r", "--no-dereference"]).arg(one).arg(other));
    assert_eq!((outcome.code, outcome.text().as_str()), (0, ""), "{}", outcome.stderr);
}

/// Runs a program in a directory.
#[track_caller]
fn run_in(directory: &Path, program: &str, args: &[&str]) -> Outcome {
    run(Command::new(program).args(args).current_dir(directory)).ok()
}

/// Writes a file into a directory.
fn file_in(directory: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// Every file below a directory, by path, and its bytes.
pub(crate) fn tree(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = walkdir::WalkDir::new(directory).into_iter().map(Result::unwrap);
    let files = files.filter(|entry| entry.file_type().is_file());
    let name = |path: &Path| path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
    files.map(|entry| (name(entry.path()), fs::read(entry.path()).unwrap())).collect()
}

/// The paths of all files in a mount, sorted.
fn paths(mount: &Mount) -> Vec<String> {
    tree(mount.point()).into_keys().collect()
}

/// Checks that `ffrfs mount` refuses a source, and returns its outcome.
#[track_caller]
fn refused(source: &Path, options: &[&str]) -> Outcome {
    let point = temp_dir();
    let transport = Transport::DevFuse;
    let mut command = crate::common::mount_command(transport, &[source], point.path(), options);
    let outcome = run(&mut command);
    if outcome.code == 0 {
        crate::common::clean_up(point.path(), 0);
    }
    assert_ne!(outcome.code, 0, "it was mounted");
    assert!(!crate::common::is_mount_point(point.path()));
    outcome
}
