//! `ffrfs extract`: files as a mount shows them, never outside of the directory, and never a part of one.

use super::common::{
    FFRFS, Loose, Mount, Need, Outcome, TempDir, Tmpfs, Transport, ffrfs, flip_byte, have, loose,
    mixed_directory, noise, offsets, python, run, temp_dir, wait_until, write_container,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

/// Runs `ffrfs extract` in a directory, with these words as arguments.
#[track_caller]
fn extract(work: &TempDir, args: &str) -> Outcome {
    run(Command::new(FFRFS).arg("extract").args(args.split(' ')).current_dir(work.path()))
}

fn names_in(directory: &Path) -> Vec<String> {
    let paths = loose(directory).into_keys();
    paths.map(|path| path.to_str().unwrap().to_owned()).collect()
}

/// A tar that Python writes: (name, kind, text or target) for each member.
fn tar_of(work: &TempDir, members: &str) {
    let script = format!(
        r#"
import io, sys, tarfile
with tarfile.open(sys.argv[1], "w") as tar:
    for name, kind, text in {members}:
        info = tarfile.TarInfo(name)
        info.type, info.mtime, info.mode = kind, 1, 0o644 if kind != tarfile.DIRTYPE else 0o755
        if kind == tarfile.REGTYPE:
            info.size = len(text)
        else:
            info.linkname = text
        tar.addfile(info, io.BytesIO(text.encode()))
"#
    );
    python(&script, &[work.path().join("in.tar")]).ok();
}

#[test]
fn what_a_mount_shows_is_what_is_extracted() {
    if !have(Need::Fuse) {
        return;
    }
    let work = temp_dir();
    mixed_directory(&work.path().join("in"));
    for ending in ["ffr", "zip", "tar"] {
        let container = work.path().join(format!("data.{ending}"));
        let source = work.path().join("in");
        ffrfs(&[OsStr::new("convert"), source.as_os_str(), container.as_os_str()]).ok();
        let out = format!("out-{ending}");
        extract(&work, &format!("data.{ending} {out}")).ok();
        let mount = Mount::new(Transport::DevFuse, &container, &[]);
        let (shown, found) = (loose(mount.point()), loose(&work.path().join(&out)));
        assert!(shown.keys().eq(found.keys()), "{ending}");
        for (path, shown) in &shown {
            let (same, found) = match (shown, &found[path]) {
                (
                    Loose::File { bytes, modified, .. },
                    found @ Loose::File { bytes: b, modified: m, .. },
                ) => (bytes == b && modified == m, found),
                (Loose::Symlink(to), found @ Loose::Symlink(t)) => (to == t, found),
                (Loose::Directory { .. }, found) => {
                    (matches!(found, Loose::Directory { .. }), found)
                }
                (_, found) => (false, found),
            };
            assert!(same, "{ending}: {}: {shown:.200?}, not {found:.200?}", path.display());
        }
    }
}

#[test]
fn only_what_is_asked_for_is_written() {
    let work = temp_dir();
    mixed_directory(&work.path().join("in"));
    run(Command::new(FFRFS).args(["convert", "in", "in.zip"]).current_dir(work.path())).ok();
    extract(&work, "in.zip one -p a/x.jpg").ok();
    assert_eq!(names_in(&work.path().join("one")), ["a", "a/x.jpg"]);
    extract(&work, "in.zip two --path a --path many/000?.bin -p **/*.txt").ok();
    let found = names_in(&work.path().join("two"));
    assert!(found.contains(&"a/empty".to_owned()) && found.contains(&"b/é日本 .txt".to_owned()));
    assert_eq!(found.iter().filter(|name| name.starts_with("many/")).count(), 10);
    let outcome = extract(&work, "in.zip three -p a/x.jpg -p nothing");
    assert!(outcome.code == 1 && outcome.stderr.contains("nothing: no such"), "{}", outcome.stderr);
    assert!(!work.path().join("three").exists());
}

#[test]
fn nothing_is_written_outside_of_the_directory() {
    let work = temp_dir();
    let outside = work.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let there = outside.to_str().unwrap();
    tar_of(
        &work,
        &format!(
            r#"[("link", tarfile.SYMTYPE, "{there}"), ("link/below", tarfile.REGTYPE, "evil"),
                ("../above", tarfile.REGTYPE, "evil"), ("{there}/absolute", tarfile.REGTYPE, "evil"),
                ("up", tarfile.SYMTYPE, ".."), ("up/outside/x", tarfile.REGTYPE, "evil"),
                ("file", tarfile.SYMTYPE, "{there}/new"), ("file", tarfile.REGTYPE, "evil"),
                ("hard", tarfile.LNKTYPE, "{there}/../in.tar"), ("good", tarfile.REGTYPE, "good")]"#
        ),
    );
    // The target of the hard link is not in the archive.
    let outcome = extract(&work, "in.tar out");
    assert_eq!(outcome.code, 4, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("hard: damaged"), "{}", outcome.stderr);
    assert_eq!(names_in(&outside), NO_NAMES);
    assert!(!work.path().join("above").exists());
    let out = work.path().join("out");
    assert_eq!(fs::read(out.join("good")).unwrap(), b"good");
    assert_eq!(fs::read(out.join("link/below")).unwrap(), b"evil");
    assert!(!out.join("link").is_symlink());

    // A link that another archive, or the user, has left there.
    for flags in ["", " --overwrite", " --resume"] {
        let again = work.path().join("again");
        fs::create_dir(&again).unwrap();
        symlink(&outside, again.join("link")).unwrap();
        symlink(outside.join("new"), again.join("good")).unwrap();
        let outcome = extract(&work, &format!("in.tar again -p link -p good{flags}"));
        assert_eq!(outcome.code, 6, "{flags}: {}", outcome.stderr);
        assert_eq!(names_in(&outside), NO_NAMES, "{flags}");
        fs::remove_dir_all(again).unwrap();
    }
    // The link itself is replaced, not its target.
    let again = work.path().join("again");
    fs::create_dir(&again).unwrap();
    symlink(outside.join("new"), again.join("good")).unwrap();
    extract(&work, "in.tar again -p good --overwrite").ok();
    assert!(again.join("good").is_file() && !again.join("good").is_symlink());
    assert_eq!(names_in(&outside), NO_NAMES);
}

const NO_NAMES: [String; 0] = [];

#[test]
fn special_bits_are_not_taken_from_a_container() {
    let work = temp_dir();
    let input = work.path().join("in");
    fs::create_dir(&input).unwrap();
    fs::write(input.join("program"), "x").unwrap();
    fs::set_permissions(input.join("program"), fs::Permissions::from_mode(0o4755)).unwrap();
    run(Command::new(FFRFS).args(["convert", "in", "in.tar"]).current_dir(work.path())).ok();
    let said = extract(&work, "in.tar out").ok().stderr;
    assert!(said.contains("1 file without its set-user-ID"), "{said}");
    let mode = fs::metadata(work.path().join("out/program")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn holes_stay_holes() {
    if !have(Need::Program("tar")) {
        return;
    }
    let work = temp_dir();
    let input = work.path().join("in");
    fs::create_dir(&input).unwrap();
    let sparse = fs::File::create(input.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &noise(1, 5000), 10 << 20).unwrap();
    let tar = |args: &[&str]| run(Command::new("tar").args(args).current_dir(work.path())).ok();
    tar(&["-cSf", "in.tar", "-C", "in", "sparse"]);
    tar(&["-cSzf", "in.tar.gz", "-C", "in", "sparse"]);
    for (source, out) in [("in.tar", "one"), ("in.tar.gz", "two")] {
        extract(&work, &format!("{source} {out}")).ok();
        let path = work.path().join(out).join("sparse");
        assert!(fs::read(&path).unwrap() == fs::read(input.join("sparse")).unwrap(), "{source}");
        let blocks = fs::metadata(&path).unwrap().blocks();
        assert!(blocks * 512 < 1 << 20, "{source}: {blocks} blocks");
    }
}

#[test]
fn a_sidecar_has_the_checksum_of_what_is_stored_of_a_file_with_holes() {
    if !have(Need::Program("tar")) {
        return;
    }
    let work = temp_dir();
    let input = work.path().join("in");
    fs::create_dir(&input).unwrap();
    let sparse = fs::File::create(input.join("sparse")).unwrap();
    sparse.set_len(10 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &noise(1, 5000), 5 << 20).unwrap();
    let mut tar = Command::new("tar");
    run(tar.args(["-cSf", "in.tar", "-C", "in", "sparse"]).current_dir(work.path())).ok();
    let source = work.path().join("in.tar");
    ffrfs(&["sum".as_ref(), "--sidecar".as_ref(), source.as_os_str()]).ok();
    extract(&work, "in.tar out").ok();
    let written = fs::read(work.path().join("out/sparse")).unwrap();
    assert!(written == fs::read(input.join("sparse")).unwrap());
    let cat = run(Command::new(FFRFS).args(["cat", "in.tar", "sparse"]).current_dir(work.path()));
    assert!(cat.ok().stdout == written);
    let mut convert = Command::new(FFRFS);
    run(convert.args(["convert", "in.tar", "out.zip"]).current_dir(work.path())).ok();
    extract(&work, "out.zip zip").ok();
    assert!(fs::read(work.path().join("zip/sparse")).unwrap() == written);
}

#[test]
fn what_is_there_is_refused_replaced_or_left() {
    let work = temp_dir();
    mixed_directory(&work.path().join("in"));
    run(Command::new(FFRFS).args(["convert", "in", "in.tar"]).current_dir(work.path())).ok();
    let out = work.path().join("out");
    extract(&work, "in.tar out").ok();
    let whole = loose(&out);
    fs::write(out.join("a/x.jpg"), "other").unwrap();
    fs::remove_file(out.join("a/x.json")).unwrap();
    for flags in ["", " --resume"] {
        let outcome = extract(&work, &format!("in.tar out{flags}"));
        assert_eq!(outcome.code, 6);
        assert!(outcome.stderr.contains("exists already"), "{}", outcome.stderr);
        assert!(!out.join("a/x.json").exists(), "nothing was written");
    }
    // A file that is whole is not written again: it keeps its inode.
    let before = fs::metadata(out.join("b/big")).unwrap().ino();
    extract(&work, "in.tar out --resume --overwrite").ok();
    assert!(loose(&out) == whole);
    assert_eq!(fs::metadata(out.join("b/big")).unwrap().ino(), before);
    extract(&work, "in.tar out --overwrite").ok();
    assert_ne!(fs::metadata(out.join("b/big")).unwrap().ino(), before);
    assert!(loose(&out) == whole);
    fs::remove_file(out.join("many/0007.bin")).unwrap();
    extract(&work, "in.tar out --resume").ok();
    assert!(loose(&out) == whole);
    // A link with another target is another link.
    fs::remove_file(out.join("absolute")).unwrap();
    symlink("elsewhere", out.join("absolute")).unwrap();
    let outcome = extract(&work, "in.tar out --resume");
    assert_eq!(outcome.code, 6);
    assert!(outcome.stderr.contains("absolute: exists already;"), "{}", outcome.stderr);
    extract(&work, "in.tar out --resume --overwrite").ok();
    assert!(loose(&out) == whole);
}

#[test]
fn files_whose_times_were_kept_coarsely_are_left_by_resume() {
    let work = temp_dir();
    let set = |name: &str, seconds, nanos| {
        let file = fs::File::options().append(true).open(work.path().join(name)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::new(seconds, nanos)).unwrap();
    };
    fs::create_dir(work.path().join("in")).unwrap();
    fs::write(work.path().join("in/a"), "a").unwrap();
    set("in/a", 1_700_000_001, 987_654_321);
    run(Command::new(FFRFS).args(["convert", "in", "in.tar"]).current_dir(work.path())).ok();
    extract(&work, "in.tar out").ok();
    let inode = || fs::metadata(work.path().join("out/a")).unwrap().ino();
    let before = inode();
    // Times as precise as those of NTFS, exFAT, ext3 and vfat.
    for (seconds, nanos) in [
        (1_700_000_001, 987_654_300),
        (1_700_000_001, 980_000_000),
        (1_700_000_001, 0),
        (1_700_000_000, 0),
    ] {
        set("out/a", seconds, nanos);
        extract(&work, "in.tar out --resume").ok();
        assert_eq!(inode(), before);
    }
    set("out/a", 1_700_000_002, 0);
    let outcome = extract(&work, "in.tar out --resume");
    assert!(outcome.code == 6 && outcome.stderr.contains("out/a: exists"), "{}", outcome.stderr);
}

#[test]
fn bad_samples_are_named_and_all_others_written() {
    let work = temp_dir();
    let samples: Vec<_> = (0..20).map(|n| noise(n, if n == 9 { 9 << 20 } else { 4000 })).collect();
    let path = work.path().join("in.ffr");
    write_container(&path, &samples);
    for bad in [3, 9] {
        flip_byte(&path, offsets(&samples)[bad] + 100);
    }
    let outcome = extract(&work, "in.ffr out");
    assert_eq!(outcome.code, 4, "{}", outcome.stderr);
    let lines: Vec<_> = outcome.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].contains("000003: checksum mismatch") && lines[1].contains("000009: checksum")
    );
    let found = loose(&work.path().join("out"));
    assert_eq!(found.len(), 18);
    for (path, file) in found {
        let number: usize = path.to_str().unwrap().parse().unwrap();
        let Loose::File { bytes, .. } = file else { panic!("{path:?}") };
        assert!(bytes == samples[number], "{number}");
    }
}

#[test]
fn a_full_disk_is_exit_code_6_and_leaves_no_half_file() {
    if !have(Need::Root) {
        return;
    }
    let work = temp_dir();
    let samples: Vec<_> = (0..10).map(|n| noise(n, 300_000)).collect();
    write_container(&work.path().join("in.ffr"), &samples);
    let small = Tmpfs::new(work.path().join("small"), "1m");
    let outcome = extract(&work, "in.ffr small/out");
    assert_eq!(outcome.code, 6, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("No space left"), "{}", outcome.stderr);
    for (path, file) in loose(&small.point().join("out")) {
        let number: usize = path.to_str().unwrap().parse().expect("no temporary file is left");
        assert!(matches!(file, Loose::File { bytes, .. } if bytes == samples[number]));
    }
}

/// `ffrfs extract` to `out`, which is interrupted as soon as it writes.
fn interrupted(work: &TempDir, out: &Path) -> Outcome {
    let mut command = Command::new(FFRFS);
    command.args(["extract", "in.ffr", "out", "-j", "2"]).current_dir(work.path());
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it writes", Duration::from_secs(30), || {
        fs::read_dir(out).is_ok_and(|entries| entries.count() > 5)
    });
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    Outcome::from(child.wait_with_output().unwrap())
}

#[test]
fn an_interrupt_leaves_whole_files_only_and_resume_goes_on() {
    let work = temp_dir();
    let samples: Vec<_> = (0..3000).map(|n| noise(n, 20_000)).collect();
    write_container(&work.path().join("in.ffr"), &samples);
    let out = work.path().join("out");
    let mut outcome = interrupted(&work, &out);
    // This process may get no CPU until the command has ended.
    for _ in 0..5 {
        if outcome.code == 0 {
            fs::remove_dir_all(&out).unwrap();
            outcome = interrupted(&work, &out);
        }
    }
    assert_eq!(outcome.code, 130, "it was quicker than the signal: {}", outcome.stderr);
    assert!(outcome.stderr.contains("--resume"), "{}", outcome.stderr);
    let check = |is_all: bool| {
        let found = loose(&out);
        assert!(found.len() == samples.len() || !is_all);
        for (path, file) in found {
            let number: usize = path.to_str().unwrap().parse().expect("no temporary file is left");
            assert!(matches!(file, Loose::File { bytes, .. } if bytes == samples[number]));
        }
    };
    check(false);
    extract(&work, "in.ffr out --resume").ok();
    check(true);
}

#[test]
fn compressed_archives_come_out_whole_with_any_number_of_threads() {
    if !have(Need::Program("tar")) {
        return;
    }
    let work = temp_dir();
    let input = work.path().join("in");
    mixed_directory(&input);
    fs::remove_file(input.join("long")).unwrap();
    let mut tar = Command::new("tar");
    run(tar.args(["--format=pax", "-czf", "in.tar.gz", "-C", "in", "."]).current_dir(work.path()))
        .ok();
    run(Command::new("zip").args(["-qry", "../in.zip", "."]).current_dir(&input)).ok();
    let expected: Vec<PathBuf> = loose(&input).into_keys().collect();
    for source in ["in.tar.gz", "in.zip"] {
        for jobs in [1, 5] {
            let out = format!("{source}-{jobs}");
            extract(&work, &format!("{source} {out} -j {jobs}")).ok();
            let found = loose(&work.path().join(out));
            assert!(found.keys().eq(expected.iter()), "{source}");
            for (path, file) in loose(&input) {
                if let (Loose::File { bytes, .. }, Loose::File { bytes: other, .. }) =
                    (file, &found[&path])
                {
                    assert!(bytes == *other, "{source}: {}", path.display());
                }
            }
        }
    }
}
