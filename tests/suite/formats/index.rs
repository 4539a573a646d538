//! Kept indexes: where they lie, when they are used, and when they are made anew.

use super::write::{self, tar, through};
use super::{file_in, tree};
use crate::common::{
    Disk, FFRFS, Mount, Need, Outcome, TempDir, Transport, catches_sigint, flip_byte,
    for_each_transport, have, noise, run, temp_dir, unmount, wait_until,
};
use nix::mount::MsFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The messages that an index was written, and that an existing index was of no use.
const WRITTEN: &str = "index kept in";
const READ_AGAIN: &str = "the container is read again";

/// Names and bytes that tell one archive from another.
fn members(seed: u64) -> Vec<(String, Vec<u8>)> {
    (0..50).map(|i| (format!("d{}/{seed}-{i:03}", i % 7), noise(seed << 8 | i, 2000))).collect()
}

fn archive(seed: u64) -> Vec<u8> {
    let members = members(seed);
    tar(&members.iter().map(|(name, bytes)| (name.as_str(), &bytes[..])).collect::<Vec<_>>())
}

fn archive_in(directory: &TempDir) -> PathBuf {
    file_in(directory, "x.tar", archive(1))
}

#[track_caller]
fn shows(mount: &Mount, seed: u64) {
    assert!(tree(mount.point()) == members(seed).into_iter().collect(), "other names or bytes");
}

fn beside(container: &Path) -> PathBuf {
    let mut path = container.to_owned().into_os_string();
    path.push(".ffrfs-index");
    path.into()
}

/// The values that show that a file was neither changed nor replaced.
fn identity(path: &Path) -> (u64, i64, i64, u64) {
    let stat = fs::metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    (stat.ino(), stat.mtime(), stat.mtime_nsec(), stat.len())
}

fn files_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_second_mount_uses_the_index_that_the_first_one_left_beside_the_container() {
    for_each_transport(|transport| {
        for compressed in [false, true] {
            let directory = temp_dir();
            let bytes = archive(1);
            let source = match compressed {
                true => file_in(&directory, "x.tgz", through("gzip", &["-c"], &bytes)),
                false => file_in(&directory, "x.tar", bytes),
            };
            let first = Mount::new(transport, &source, &[]);
            shows(&first, 1);
            assert!(first.log().contains(WRITTEN), "{}", first.log());
            first.unmount();
            let name = source.file_name().unwrap().to_str().unwrap();
            assert_eq!(files_in(directory.path()), [name, &format!("{name}.ffrfs-index")]);
            let before = identity(&beside(&source));
            let second = Mount::new(transport, &source, &[]);
            shows(&second, 1);
            assert_eq!(identity(&beside(&source)), before);
            let log = second.log();
            assert!(!log.contains(WRITTEN) && !log.contains(READ_AGAIN), "{log}");
        }
    });
}

#[test]
fn a_mount_whose_names_come_from_a_file_keeps_the_index_too() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let source = archive_in(&directory);
        let names: String = (0..50).map(|number| format!("name {number}\n")).collect();
        let names = file_in(&directory, "names", names);
        let names = format!("names={}", names.display());
        let options = [names.as_str()];
        let first = Mount::new(transport, &source, &options);
        assert!(first.log().contains(WRITTEN), "{}", first.log());
        first.unmount();
        let second = Mount::new(transport, &source, &options);
        let [(_, one)] = &members(1)[..1] else { panic!("a member") };
        assert!(fs::read(second.point().join("name 0")).unwrap() == *one);
        let log = second.log();
        assert!(!log.contains(WRITTEN) && !log.contains(READ_AGAIN), "{log}");
        second.unmount();
        // The container's own names are not among those of the kept index, and are found.
        shows(&Mount::new(transport, &source, &[]), 1);
    });
}

/// Bytes that a process has read with system calls.
fn bytes_read(pid: i32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn a_mount_by_its_index_reads_little_of_the_container() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let files: Vec<_> = (0..3000).map(|i| (format!("{i}"), noise(i, 1500))).collect();
        let bytes = tar(&files.iter().map(|(n, b)| (n.as_str(), &b[..])).collect::<Vec<_>>());
        let source = file_in(&directory, "x.tar", &bytes);
        let read = || bytes_read(Mount::new(transport, &source, &[]).pid());
        let (first, second) = (read(), read());
        assert!(first > 1_000_000 && second < first / 4, "{first} bytes, then {second}");
    });
}

#[test]
fn a_container_that_was_touched_or_replaced_is_read_again_with_a_line_in_the_log() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let source = archive_in(&directory);
        Mount::new(transport, &source, &[]).unmount();
        let change: [&dyn Fn(); 3] = [
            &|| {
                let file = File::options().append(true).open(&source).unwrap();
                file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
            },
            // The same size and time, other members.
            &|| {
                let time = fs::metadata(&source).unwrap().modified().unwrap();
                fs::write(&source, archive(2)).unwrap();
                let file = File::options().append(true).open(&source).unwrap();
                file.set_modified(time).unwrap();
            },
            &|| fs::write(&source, [archive(2), vec![0; 10_240]].concat()).unwrap(),
        ];
        for (number, change) in change.iter().enumerate() {
            let before = identity(&beside(&source));
            change();
            let mount = Mount::new(transport, &source, &[]);
            shows(&mount, if number == 0 { 1 } else { 2 });
            let log = mount.log();
            let lines = log.lines().filter(|line| line.contains(READ_AGAIN)).count();
            assert_eq!(lines, 1, "change {number}: {log}");
            assert!(log.contains(WRITTEN), "change {number}: {log}");
            assert_ne!(identity(&beside(&source)), before);
            mount.unmount();
            // The new index is used.
            let again = Mount::new(transport, &source, &[]);
            assert!(!again.log().contains(READ_AGAIN), "{}", again.log());
        }
    });
}

#[test]
fn a_damaged_index_is_made_anew_and_never_believed() {
    let directory = temp_dir();
    let source = archive_in(&directory);
    let index = beside(&source);
    run(Command::new(FFRFS).arg("index").arg(&source)).ok();
    let whole = fs::read(&index).unwrap();
    let length = whole.len() as u64;
    for_each_transport(|transport| {
        // A few places of each part; another test tries all of them without a mount.
        let flips = [0, 9, 20, 60, 90, length / 3, length / 2, length * 3 / 4, length - 2];
        let damages = flips.map(Some).into_iter().chain([None]);
        for flip in damages {
            fs::write(&index, &whole).unwrap();
            match flip {
                Some(at) => flip_byte(&index, at),
                None => {
                    File::options().write(true).open(&index).unwrap().set_len(length / 2).unwrap()
                }
            }
            let mount = Mount::new(transport, &source, &[]);
            shows(&mount, 1);
            assert!(mount.log().contains(READ_AGAIN), "{flip:?}: {}", mount.log());
            mount.unmount();
            assert!(fs::read(&index).unwrap() == whole, "{flip:?}: it is whole again");
        }
    });
}

#[test]
fn any_byte_of_an_index_may_be_flipped_and_ls_shows_the_right_names() {
    let directory = temp_dir();
    let source = file_in(&directory, "x.tar", tar(&[("a/b", b"bee"), ("c", b"sea")]));
    let index = beside(&source);
    run(Command::new(FFRFS).arg("index").arg(&source)).ok();
    let whole = fs::read(&index).unwrap();
    let list = || run(Command::new(FFRFS).args(["ls", "-R", "-l"]).arg(&source));
    let right = list().ok().text();
    assert!(right.contains("a/b") && right.contains('c'), "{right}");
    let step = (whole.len() / 60).max(1);
    for at in (0..whole.len()).step_by(step) {
        fs::write(&index, &whole).unwrap();
        flip_byte(&index, at as u64);
        assert_eq!(list().ok().text(), right, "byte {at} of {}", whole.len());
        fs::write(&index, &whole[..at]).unwrap();
        assert_eq!(list().ok().text(), right, "{at} bytes of {}", whole.len());
    }
}

/// A file system that was made read-only, with a container on it.
struct ReadOnly(TempDir);

impl ReadOnly {
    fn new() -> Self {
        let directory = temp_dir();
        let mount = |flags| {
            let none: Option<&str> = None;
            nix::mount::mount(Some("none"), directory.path(), Some("tmpfs"), flags, none).unwrap();
        };
        mount(MsFlags::empty());
        fs::write(directory.path().join("x.tar"), archive(1)).unwrap();
        mount(MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY);
        Self(directory)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), true);
    }
}

#[test]
fn where_the_directory_cannot_be_written_the_index_goes_to_the_users_cache() {
    if !have(Need::Root) {
        return;
    }
    for_each_transport(|transport| {
        let (disk, cache) = (ReadOnly::new(), temp_dir());
        let source = disk.0.path().join("x.tar");
        let mount = || {
            Mount::started(transport, &[&source], &[], |mut command| {
                command.env("XDG_CACHE_HOME", cache.path());
                command
            })
        };
        let first = mount();
        shows(&first, 1);
        first.unmount();
        let kept = files_in(&cache.path().join("ffrfs"));
        assert!(kept.len() == 1 && kept[0].starts_with("x.tar-"), "{kept:?}");
        assert_eq!(files_in(disk.0.path()), ["x.tar"]);
        let index = cache.path().join("ffrfs").join(&kept[0]);
        let before = identity(&index);
        let second = mount();
        shows(&second, 1);
        assert_eq!(identity(&index), before);
        assert!(!second.log().contains(WRITTEN), "{}", second.log());
    });
}

#[test]
fn the_user_says_where_an_index_lies_or_that_there_is_none() {
    for_each_transport(|transport| {
        let (directory, elsewhere) = (temp_dir(), temp_dir());
        let source = archive_in(&directory);
        for option in ["index=none", "index=memory"] {
            for _ in 0..2 {
                let mount = Mount::new(transport, &source, &[option]);
                shows(&mount, 1);
                assert!(!mount.log().contains(WRITTEN), "{}", mount.log());
            }
        }
        assert_eq!(files_in(directory.path()), ["x.tar"]);
        let file = elsewhere.path().join("my index");
        let option = format!("index={}", file.display());
        shows(&Mount::new(transport, &source, &[&option]), 1);
        let before = identity(&file);
        let by_directory = format!("index_dir={}", elsewhere.path().display());
        shows(&Mount::new(transport, &source, &[&option]), 1);
        assert_eq!(identity(&file), before);
        shows(&Mount::new(transport, &source, &[&by_directory]), 1);
        assert_eq!(files_in(directory.path()), ["x.tar"]);
        let kept = files_in(elsewhere.path());
        assert!(kept.len() == 2 && kept[1].starts_with("x.tar-"), "{kept:?}");
        // `none` does not look at an existing index, `memory` does.
        Mount::new(transport, &source, &[]).unmount();
        flip_byte(&beside(&source), 3);
        let none = Mount::new(transport, &source, &["index=none"]);
        assert!(!none.log().contains(READ_AGAIN), "{}", none.log());
        let memory = Mount::new(transport, &source, &["index=memory"]);
        assert!(memory.log().contains(READ_AGAIN), "{}", memory.log());
        shows(&memory, 1);
    });
}

#[test]
fn an_index_serves_every_view_of_its_container() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let inner = super::write::zip(&[super::write::stored("x", "x")]);
        let members: [(&str, &[u8]); 3] = [("in.zip", &inner), ("a", b"1"), ("a", b"2")];
        let source = file_in(&directory, "x.tar", tar(&members));
        let names = |options: &[&str]| super::paths(&Mount::new(transport, &source, options));
        // Whatever index the first mount keeps, each mount shows the names that its options ask for.
        let views: [(&[&str], &[&str]); 5] = [
            (&["nested=1"], &["a", "in.zip/x"]),
            (&[], &["a", "in.zip"]),
            (&["dup=number"], &["a", "a (1)", "in.zip"]),
            (&["flat"], &["000000", "000001", "000002"]),
            (&["layout=shards"], &["x.tar/a", "x.tar/in.zip"]),
        ];
        for first in 0..views.len() {
            let _ = fs::remove_file(beside(&source));
            for number in 0..views.len() {
                let (options, expected) = views[(first + number) % views.len()];
                assert_eq!(names(options), expected, "{options:?}, first {first}");
            }
        }
    });
}

#[test]
fn a_file_that_is_no_index_is_not_replaced_by_one() {
    let directory = temp_dir();
    let source = archive_in(&directory);
    let (bytes, precious) = (fs::read(&source).unwrap(), file_in(&directory, "precious", "work"));
    let index =
        |at: &Path| run(Command::new(FFRFS).arg("index").arg("--index").args([at, &source]));
    for path in [&source, &precious] {
        let Outcome { code, stderr: said, .. } = index(path);
        assert!(said.contains("is not an index") && said.contains("0 indexes written"), "{said}");
        assert_eq!(code, 6, "{said}");
    }
    assert!(fs::read(&source).unwrap() == bytes);
    assert_eq!(fs::read(&precious).unwrap(), b"work");
    // An empty file, as mktemp makes it, is replaced; so is an index of another container.
    let empty = file_in(&directory, "empty", "");
    assert!(index(&empty).ok().stderr.contains("1 index written"));
    fs::write(&source, archive(2)).unwrap();
    assert!(index(&empty).ok().stderr.contains("1 index written"));
}

#[test]
fn one_file_cannot_be_the_index_of_several_containers() {
    let directory = temp_dir();
    let sources =
        [file_in(&directory, "x.tar", archive(1)), file_in(&directory, "y.tar", archive(2))];
    let mut command = Command::new(FFRFS);
    let outcome =
        run(command.args(["index", "--index"]).arg(directory.path().join("i")).args(&sources));
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("--index-dir"), "{}", outcome.stderr);
    assert_eq!(files_in(directory.path()), ["x.tar", "y.tar"]);
}

#[test]
fn index_builds_ahead_and_says_what_it_wrote() {
    let directory = temp_dir();
    let source = archive_in(&directory);
    let index = |sources: &[&Path]| run(Command::new(FFRFS).arg("index").args(sources)).ok().stderr;
    let said = index(&[&source]);
    let path = beside(&source.canonicalize().unwrap());
    assert!(said.contains(&path.display().to_string()), "{said}");
    assert!(said.contains("50 samples, 1 index written"), "{said}");
    let before = identity(&path);
    let said = index(&[&source]);
    assert!(said.contains("50 samples, 0 indexes written"), "{said}");
    let other = file_in(&directory, "y.tar", archive(2));
    let said = index(&[&source, &other]);
    assert!(said.contains("100 samples, 1 index written"), "{said}");
    assert!(said.contains("y.tar.ffrfs-index"), "{said}");
    assert_eq!(identity(&path), before);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &[]);
        shows(&mount, 1);
        assert!(!mount.log().contains(WRITTEN), "{}", mount.log());
    });
}

/// If no index can be written, the messages name the reason alone.
#[test]
fn index_that_can_write_no_index_ends_with_exit_code_6() {
    let directory = temp_dir();
    let source = archive_in(&directory);
    let (nowhere, taken) = (directory.path().join("missing"), directory.path().join("taken"));
    fs::write(&taken, "text").unwrap();
    let large = write::deflated("large", write::text(1, 9 << 20));
    let zip = file_in(&directory, "x.zip", write::zip(&[large]));
    for (source, option, place, says) in [
        (&source, "--index-dir", &nowhere, "1 index could not be written"),
        (&source, "--index", &taken, "1 index could not be written"),
        (&zip, "--index-dir", &nowhere, "checkpoints of 1 member could not be written"),
    ] {
        let args = ["index".as_ref(), source.as_os_str(), option.as_ref(), place.as_os_str()];
        let outcome = run(Command::new(FFRFS).args(args));
        assert_eq!(outcome.code, 6, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(says), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("0 indexes written"), "{}", outcome.stderr);
        // The words of a library, and the name of a file that is gone.
        for none in ["at path", ".ffrfs-index-"] {
            assert!(!outcome.stderr.contains(none), "{}", outcome.stderr);
        }
    }
}

#[test]
fn ctrl_c_while_an_index_is_built_leaves_no_file_behind() {
    if !have(Need::Fuse) {
        return;
    }
    // A disk so slow that the signal always comes in time.
    let members: Vec<_> = (0..20_000).map(|i| (format!("{i}"), [7; 600])).collect();
    let bytes = tar(&members.iter().map(|(n, b)| (n.as_str(), &b[..])).collect::<Vec<_>>());
    let disk = Disk::showing(|path| fs::write(path, &bytes).unwrap());
    disk.slow_down(Duration::from_millis(500));
    let indexes = temp_dir();
    let mut command = Command::new(FFRFS);
    command.args(["index", "--index-dir"]).arg(indexes.path()).arg(disk.container());
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let long = Duration::from_secs(60);
    wait_until("it listens", long, || catches_sigint(child.id()));
    wait_until("it reads", long, || disk.waiting() > 0);
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted: no index was written"), "{said}");
    assert_eq!(files_in(indexes.path()), Vec::<String>::new());
    assert_eq!(files_in(disk.real().parent().unwrap()), ["data.ffr", "disk"]);
    // The index can be built once the command is not interrupted.
    disk.slow_down(Duration::ZERO);
    run(&mut command).ok();
    assert_eq!(files_in(indexes.path()).len(), 1);
}

#[test]
fn mounts_that_index_at_the_same_time_all_show_the_right_bytes_and_leave_one_index() {
    for_each_transport(|transport: Transport| {
        let directory = temp_dir();
        let source = archive_in(&directory);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| shows(&Mount::new(transport, &source, &[]), 1));
            }
        });
        assert_eq!(files_in(directory.path()), ["x.tar", "x.tar.ffrfs-index"]);
        let mount = Mount::new(transport, &source, &[]);
        shows(&mount, 1);
        assert!(!mount.log().contains(READ_AGAIN), "{}", mount.log());
    });
}

#[test]
fn a_mount_outlives_the_index_that_it_was_made_from() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let source = archive_in(&directory);
        Mount::new(transport, &source, &[]).unmount();
        let mount = Mount::new(transport, &source, &[]);
        fs::remove_file(beside(&source)).unwrap();
        shows(&mount, 1);
    });
}
