//! `ffrfs convert`: files come back from any format as they were, other programs read the output, and a failure leaves no
//! output behind.

mod records;

use super::common::{
    FFRFS, Loose, Need, Outcome, TempDir, Tmpfs, ffrfs, flip_byte, have, loose, mixed_directory,
    noise, offsets, python, run, temp_dir, wait_until, write_container,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

type Files = BTreeMap<PathBuf, Loose>;

/// Runs `ffrfs convert` in a directory, with these words as arguments.
#[track_caller]
fn convert(work: &TempDir, args: &str) -> Outcome {
    let args = args.split(' ');
    run(Command::new(FFRFS).arg("convert").args(args).current_dir(work.path()))
}

fn names_in(directory: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> = fs::read_dir(directory).unwrap().map(name).collect();
    names.sort();
    names.into_iter().map(|name| name.into_string().unwrap()).collect()
}

fn mixed() -> (TempDir, Files) {
    let work = temp_dir();
    mixed_directory(&work.path().join("in"));
    let files = loose(&work.path().join("in"));
    (work, files)
}

/// All files but the links, as a format without permissions and times has them.
fn plain(files: &Files) -> Files {
    let is_kept = |file: &Loose| !matches!(file, Loose::Symlink(_));
    let kept = files.iter().filter(|(_, file)| is_kept(file));
    kept.map(|(path, file)| (path.clone(), file.clone().plain())).collect()
}

fn cut(files: &Files, nanos: i64) -> Files {
    files.iter().map(|(path, file)| (path.clone(), file.clone().cut(nanos))).collect()
}

#[track_caller]
fn assert_same(found: &Files, expected: &Files) {
    for path in found.keys().chain(expected.keys()) {
        let (found, expected) = (found.get(path), expected.get(path));
        assert!(found == expected, "{}: {found:.200?}, not {expected:.200?}", path.display());
    }
}

#[test]
fn a_directory_comes_back_from_each_format_with_all_that_this_can_hold() {
    let (work, files) = mixed();
    for (format, expected) in
        [("tar", files.clone()), ("zip", cut(&files, 100)), ("ffr", plain(&files))]
    {
        convert(&work, &format!("in out.{format}")).ok();
        assert_eq!(
            ffrfs(&[OsStr::new("verify"), work.path().join(format!("out.{format}")).as_os_str()])
                .code,
            0
        );
        convert(&work, &format!("out.{format} {format}/")).ok();
        let found = loose(&work.path().join(format));
        let found = if format == "ffr" { plain(&found) } else { found };
        assert_same(&found, &expected);
    }
}

#[test]
fn what_goes_from_format_to_format_is_the_same_in_the_end_to_the_byte() {
    let (work, _) = mixed();
    for (first, second) in [("zip", "tar"), ("tar", "zip"), ("ffr", "zip"), ("ffr", "tar")] {
        convert(&work, &format!("in zero.{first} --whole-seconds --force")).ok();
        // The place of an empty directory is not kept: from here on it has the place that it always gets.
        convert(&work, &format!("zero.{first} one.{first} --force")).ok();
        convert(&work, &format!("one.{first} two.{second} --force -j 1")).ok();
        convert(&work, &format!("two.{second} three.{first} --force -j 4")).ok();
        let bytes = |name: &str| fs::read(work.path().join(format!("{name}.{first}"))).unwrap();
        assert!(bytes("one") == bytes("three"), "{first} by way of {second}");
    }
}

#[test]
fn the_same_input_gives_the_same_bytes_whatever_the_threads() {
    let (work, _) = mixed();
    for format in ["tar", "zip", "ffr"] {
        convert(&work, &format!("in a.{format} -j 1")).ok();
        convert(&work, &format!("in b.{format} -j 7")).ok();
        let bytes = |name: &str| fs::read(work.path().join(format!("{name}.{format}"))).unwrap();
        assert!(bytes("a") == bytes("b"), "{format}");
    }
}

#[test]
fn what_a_format_cannot_hold_is_said_once_with_a_count() {
    let (work, _) = mixed();
    let said = convert(&work, "in out.ffr").ok().stderr;
    assert!(said.contains("3 symbolic links left out"), "{said}");
    assert!(said.contains("permissions not kept") && said.contains("times not kept"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let said = convert(&work, "in out.zip").ok().stderr;
    assert!(said.contains("times stored less precisely") && said.lines().count() == 1, "{said}");
    assert_eq!(convert(&work, "in out.tar").ok().stderr, "");
    // Links that are followed become files.
    fs::remove_file(work.path().join("in/absolute")).unwrap();
    fs::remove_file(work.path().join("in/long")).unwrap();
    let said = convert(&work, "-L in followed.ffr").ok().stderr;
    assert!(!said.contains("symbolic"), "{said}");
    let shown = ffrfs(&[
        OsStr::new("cat"),
        work.path().join("followed.ffr").as_os_str(),
        OsStr::new("b/link"),
    ]);
    assert_eq!(shown.ok().stdout, noise(1, 3000));
}

#[test]
fn archivers_and_python_read_what_is_written() {
    let programs = ["tar", "unzip", "zip", "bsdtar", "python3"];
    if !programs.into_iter().all(|program| have(Need::Program(program))) {
        return;
    }
    let (work, files) = mixed();
    convert(&work, "in out.tar").ok();
    convert(&work, "in out.zip").ok();
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        // For unzip, times in a zip beyond 2038 are local times.
        run(command.args(["-ec", script]).env("TZ", "UTC").current_dir(work.path())).ok();
    };
    shell("mkdir gnu bsd info && tar xf out.tar -C gnu && bsdtar xpf out.tar -C bsd");
    shell("zip -qT out.zip && unzip -qt out.zip && unzip -q out.zip -d info");
    assert_same(&loose(&work.path().join("gnu")), &files);
    assert_same(&loose(&work.path().join("bsd")), &files);
    assert_same(
        &cut(&loose(&work.path().join("info")), 1_000_000_000),
        &cut(&files, 1_000_000_000),
    );
    let script = r#"
import sys, os, tarfile, zipfile
os.chdir(sys.argv[1])
z, t = zipfile.ZipFile("out.zip"), tarfile.open("out.tar")
assert z.testzip() is None
names = {i.filename.rstrip("/"): i for i in z.infolist()}
assert set(names) == set(t.getnames()), set(names) ^ set(t.getnames())
for m in t:
    s = os.lstat("in/" + m.name)
    assert m.mode == s.st_mode & 0o7777 and (m.uid, m.gid) == (0, 0), m.name
    # Before Python 3.13 fractions are floats.
    assert abs(m.mtime - s.st_mtime) < 1e-3, m.name
    if m.isfile():
        data = open("in/" + m.name, "rb").read()
        assert t.extractfile(m).read() == data == z.read(names[m.name]), m.name
    assert names[m.name].external_attr >> 16 == s.st_mode, m.name
    assert names[m.name].compress_type == 0
"#;
    python(script, &[work.path()]).ok();
}

#[test]
fn numbered_samples_keep_their_numbers() {
    let work = temp_dir();
    let samples: Vec<_> = (0..30).map(|n| noise(n, 100 + n as usize)).collect();
    write_container(&work.path().join("in.ffr"), &samples);
    convert(&work, "in.ffr out.zip").ok();
    convert(&work, "in.ffr same.ffr").ok();
    convert(&work, "in.ffr jpg.tar --suffix .jpg").ok();
    let bytes = |name: &str| fs::read(work.path().join(name)).unwrap();
    assert!(bytes("in.ffr") == bytes("same.ffr"));
    let listed = |name: &str| {
        let outcome = ffrfs(&[OsStr::new("ls"), work.path().join(name).as_os_str()]).ok();
        outcome.text().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!((listed("out.zip")[29].as_str(), listed("out.zip").len()), ("000029", 30));
    assert_eq!(listed("jpg.tar")[7], "000007.jpg");
}

#[test]
fn shards_keep_the_files_of_a_key_together_and_are_one_dataset() {
    let work = temp_dir();
    let input = work.path().join("in");
    fs::create_dir(&input).unwrap();
    for sample in 0..50 {
        fs::write(input.join(format!("{sample:03}.jpg")), noise(sample, 5000)).unwrap();
        fs::write(input.join(format!("{sample:03}.seg.png")), noise(sample + 99, 3000)).unwrap();
        fs::write(input.join(format!("{sample:03}.json")), b"{}").unwrap();
    }
    let expected = plain(&loose(&input));
    for (number, args) in
        ["o.tar --shard-size 64K", "o.zip --shard-size 64K", "o-%06d.ffr --shards 7"]
            .iter()
            .enumerate()
    {
        let ending = args.split(' ').next().unwrap().rsplit('.').next().unwrap();
        let said = convert(&work, &format!("in {args}")).ok().stderr;
        let shards: Vec<_> =
            names_in(work.path()).into_iter().filter(|name| name.ends_with(ending)).collect();
        assert!(shards.len() >= 7 && shards[0] == format!("o-000000.{ending}"), "{shards:?}");
        let set = format!("o-{{000000..{:06}}}.{ending}", shards.len() - 1);
        assert!(said.contains(&set), "{said}");
        let mut seen = BTreeMap::new();
        for shard in &shards {
            let path = work.path().join(shard);
            assert!(number == 2 || fs::metadata(&path).unwrap().len() <= (64 << 10) + 20_000);
            let listed = ffrfs(&[OsStr::new("ls"), path.as_os_str()]).ok().text();
            for name in listed.lines() {
                let key = name.split('.').next().unwrap().to_owned();
                assert_eq!(seen.entry(key).or_insert(shard), &shard, "{name}");
            }
        }
        assert_eq!(seen.len(), 50);
        convert(&work, &format!("{set} back{number}/")).ok();
        assert_same(&plain(&loose(&work.path().join(format!("back{number}")))), &expected);
    }
}

#[test]
fn hard_links_are_links_in_a_tar_and_files_elsewhere() {
    let work = temp_dir();
    let input = work.path().join("in");
    fs::create_dir(&input).unwrap();
    fs::write(input.join("first"), "text").unwrap();
    fs::hard_link(input.join("first"), input.join("second")).unwrap();
    convert(&work, "in out.tar").ok();
    let said = convert(&work, "out.tar out.zip").ok().stderr;
    assert!(said.contains("1 hard link written as a file of its own"), "{said}");
    convert(&work, "out.tar linked/").ok();
    convert(&work, "out.zip separate/").ok();
    let links = |path: &str| fs::metadata(work.path().join(path)).unwrap().nlink();
    assert_eq!((links("linked/second"), links("separate/second")), (2, 1));
    assert_eq!(fs::read(work.path().join("separate/second")).unwrap(), b"text");
}

#[test]
fn a_bad_sample_is_named_and_nothing_is_written() {
    let work = temp_dir();
    let samples = [noise(1, 5000), noise(2, 9 << 20), noise(3, 5000)];
    let path = work.path().join("in.ffr");
    write_container(&path, &samples);
    for sample in [0, 1] {
        flip_byte(&path, offsets(&samples)[sample] + 1000);
        for out in ["out.zip", "out.tar", "out.ffr", "out/"] {
            let outcome = convert(&work, &format!("in.ffr {out}"));
            let said = &outcome.stderr;
            assert_eq!(outcome.code, 4, "{said}");
            assert!(said.contains(&format!("{sample:06}: checksum mismatch")), "{said}");
            assert_eq!(names_in(work.path()), ["in.ffr"], "{out}");
        }
        flip_byte(&path, offsets(&samples)[sample] + 1000);
    }
}

#[test]
fn what_is_there_is_replaced_only_with_force_and_directories_never() {
    let work = temp_dir();
    write_container(&work.path().join("in.ffr"), &[b"a"]);
    fs::write(work.path().join("out.zip"), "precious").unwrap();
    fs::create_dir(work.path().join("full")).unwrap();
    fs::write(work.path().join("full/file"), "precious").unwrap();
    let outcome = convert(&work, "in.ffr out.zip");
    assert!(outcome.code == 6 && outcome.stderr.contains("--force"), "{}", outcome.stderr);
    for args in ["in.ffr full", "in.ffr full/ --force", "in.ffr full --to zip --force"] {
        assert_eq!(convert(&work, args).code, 6, "{args}");
    }
    assert_eq!(fs::read(work.path().join("full/file")).unwrap(), b"precious");
    convert(&work, "in.ffr out.zip --force").ok();
    assert_ne!(fs::read(work.path().join("out.zip")).unwrap(), b"precious");
    // Also in place of the source itself.
    convert(&work, "in.ffr in.ffr --to zip --force").ok();
    assert_eq!(&fs::read(work.path().join("in.ffr")).unwrap()[..2], b"PK");
}

#[test]
fn wrong_usage_says_what_to_do() {
    let work = temp_dir();
    fs::create_dir(work.path().join("in")).unwrap();
    write_container(&work.path().join("a.ffr"), &[b"a"]);
    for (args, says) in [
        ("a.ffr out", "--to"),
        ("a.ffr out.rar", "--to"),
        ("a.ffr out-%06d.tar", "--shards N"),
        ("a.ffr in out.tar", "in/*"),
        ("in in/out.tar", "in the directory"),
        ("a.ffr out/ --shards 2", "directory is not cut"),
        ("a.ffr out.tar --shards 1000001", "more than 1000000"),
        ("a.ffr out.tar --to rar", "ffr, zip, tar, tfrecord"),
    ] {
        let outcome = convert(&work, args);
        assert_eq!(outcome.code, 1, "{args}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(says), "{args}: {}", outcome.stderr);
    }
    assert_eq!(names_in(work.path()), ["a.ffr", "in"]);
}

#[test]
fn a_full_disk_is_exit_code_6_and_leaves_nothing() {
    if !have(Need::Root) {
        return;
    }
    let work = temp_dir();
    write_container(&work.path().join("in.ffr"), &vec![noise(1, 300_000); 10]);
    let small = Tmpfs::new(work.path().join("small"), "1m");
    for out in ["out.zip", "out.tar", "out.ffr", "out/", "out.tar --shards 9"] {
        let outcome = convert(&work, &format!("in.ffr small/{out}"));
        assert_eq!(outcome.code, 6, "{out}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("No space left"), "{out}: {}", outcome.stderr);
        assert!(names_in(small.point()).is_empty(), "{out}");
    }
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let work = temp_dir();
    let input = work.path().join("in");
    fs::create_dir(&input).unwrap();
    for file in 0..24 {
        let sparse = File::create(input.join(format!("{file:02}"))).unwrap();
        sparse.set_len(if file == 0 { 512 << 20 } else { 24 << 20 }).unwrap();
    }
    let interrupted = |out: &str, signal: Signal| {
        let mut command = Command::new(FFRFS);
        command.args(["convert", "in", out]).current_dir(work.path());
        command.args(out.contains('%').then_some("--shards=3"));
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut has_ended = false;
        wait_until("it writes", Duration::from_secs(30), || {
            has_ended = child.try_wait().unwrap().is_some();
            let is_temporary = |name: &String| name.starts_with(".ffrfs-");
            let writes = |name: &String| {
                let path = work.path().join(name);
                fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some())
                    || fs::metadata(&path).is_ok_and(|metadata| metadata.len() > 1 << 20)
            };
            has_ended || names_in(work.path()).iter().filter(|name| is_temporary(name)).any(writes)
        });
        if !has_ended {
            kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        }
        Outcome::from(child.wait_with_output().unwrap())
    };
    for (out, signal) in [
        ("out.zip", Signal::SIGINT),
        ("out.ffr", Signal::SIGHUP),
        ("out-%02d.tar", Signal::SIGTERM),
        ("directory/", Signal::SIGINT),
    ] {
        let mut outcome = interrupted(out, signal);
        // This process may get no CPU until the command has ended.
        for _ in 0..5 {
            if outcome.code == 0 {
                names_in(work.path()).iter().filter(|name| *name != "in").for_each(|name| {
                    let path = work.path().join(name);
                    fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path)).unwrap();
                });
                outcome = interrupted(out, signal);
            }
        }
        assert_eq!(outcome.code, 130, "{}", outcome.stderr);
        assert!(outcome.stderr.contains("nothing was written"), "{}", outcome.stderr);
        assert_eq!(names_in(work.path()), ["in"], "{out}");
    }
}

#[test]
fn a_directory_that_cannot_be_replaced_is_refused_before_anything_is_written() {
    let work = temp_dir();
    write_container(&work.path().join("in.ffr"), &[noise(1, 1000)]);
    fs::create_dir(work.path().join("here")).unwrap();
    let refused = |out: &str| {
        let mut command = Command::new(FFRFS);
        command.args(["convert", "../in.ffr", out]).current_dir(work.path().join("here"));
        let outcome = run(&mut command);
        assert_eq!(outcome.code, 6, "{outcome:?}");
        assert!(outcome.stderr.contains("is not replaced"), "{outcome:?}");
    };
    fs::create_dir(work.path().join("here/sub")).unwrap();
    symlink("sub", work.path().join("here/link")).unwrap();
    for out in ["./", "sub/.", "link/"] {
        refused(out);
    }
    if have(Need::Root) {
        let mount = Tmpfs::new(work.path().join("mount"), "1m");
        refused("../mount/");
        assert!(names_in(mount.point()).is_empty());
    }
    convert(&work, "in.ffr here/sub/").ok();
}

#[test]
fn every_format_that_can_be_read_can_be_converted() {
    let work = temp_dir();
    let fixtures = super::common::fixture("");
    let known = |path: &Path| ffrfs(&[OsStr::new("verify"), path.as_os_str()]).code == 0;
    let files = walkdir::WalkDir::new(&fixtures).into_iter().flatten();
    let files: Vec<_> =
        files.map(walkdir::DirEntry::into_path).filter(|path| path.is_file()).collect();
    let mut converted = std::collections::BTreeSet::new();
    for (number, path) in files.iter().filter(|path| known(path)).enumerate() {
        let [out, directory] = [format!("{number}.tar"), format!("{number}/")];
        let to = |out: &str| {
            let mut command = Command::new(FFRFS);
            run(command.arg("convert").arg(path).arg(out).current_dir(work.path())).ok();
        };
        to(&out);
        to(&directory);
        convert(&work, &format!("{out} again{directory}")).ok();
        let again = loose(&work.path().join(format!("again{directory}")));
        assert_same(&plain(&again), &plain(&loose(&work.path().join(&directory))));
        converted.extend(path.extension().map(|ending| ending.to_string_lossy().into_owned()));
    }
    for ending in ["ffr", "syr", "beton"] {
        assert!(converted.contains(ending), "{converted:?}");
    }
}
