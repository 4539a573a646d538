//! Mounting, unmounting, and ends of all kinds: nothing hangs, and nothing stays behind.

mod ending;
mod inherited;
mod limits;
mod stopped;

use crate::common::{
    FFRFS, Fusectl, Mount, Need, Outcome, Source, Stopped, TempDir, Tmpfs, Transport, clean_up,
    container_in, drop_cached, ffrfs, flip_byte, for_each_transport, have, in_own_namespace_with,
    is_mount_point, is_running, mount_command, mounts_at, noise, own_namespace, parent_of, run,
    samples, skip_forced, temp_dir, umount, unmount, unmount_soon, up_to_five_times, wait_for_end,
    wait_until, write_container,
};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, statfs};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time for events that are promised without a time, as the machine may be busy. A hang takes longer.
const IN_TIME: Duration = Duration::from_secs(20);

/// A few samples, one of them so large that it is read in many requests.
fn some() -> &'static [Vec<u8>] {
    static SOME: LazyLock<Vec<Vec<u8>>> =
        LazyLock::new(|| vec![noise(1, 1_000), noise(2, 9 << 20), noise(3, 100_000)]);
    &SOME
}

fn mount(transport: Transport) -> Mount {
    Mount::with_samples(transport, some(), &[])
}

/// A mount without a second daemon if the first one dies.
fn unsupervised(transport: Transport) -> Mount {
    Mount::with_samples(transport, some(), &["restarts=0"])
}

fn send(mount: &Mount, signal: Signal) {
    kill(Pid::from_raw(mount.pid()), signal).unwrap();
}

/// A daemon in the foreground, which ends when the value is dropped.
struct Foreground {
    child: Child,
    directory: TempDir,
}

impl Foreground {
    fn new(transport: Transport, options: &[&str]) -> Self {
        let directory = temp_dir();
        let container = container_in(&directory, some());
        let point = directory.path().join("mnt");
        fs::create_dir(&point).unwrap();
        let mut command = mount_command(transport, &[&container], &point, options);
        let child = command.arg("-f").stderr(Stdio::piped()).spawn().unwrap();
        let foreground = Self { child, directory };
        // Asks the daemon: a mount in the mount table may not be served yet.
        let served = || fs::metadata(foreground.point().join("000000")).is_ok();
        wait_until("it is mounted", IN_TIME, served);
        foreground
    }

    fn point(&self) -> std::path::PathBuf {
        self.directory.path().join("mnt")
    }

    /// The exit code, and the text on stderr.
    fn wait(&mut self) -> (i32, String) {
        wait_for_end(&mut self.child, IN_TIME)
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        clean_up(&self.point(), 0);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process that serves the mount at `point`.
fn pid_at(point: &Path) -> i32 {
    let text = fs::read(point.join(".ffrfs/info.json")).unwrap();
    let info: serde_json::Value = serde_json::from_slice(&text).unwrap();
    info["pid"].as_i64().unwrap() as i32
}

// ---- beginning -----------------------------------------------------------------------------------

#[test]
fn mount_returns_when_the_mount_works_and_leaves_a_daemon_that_holds_nothing_of_the_caller() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let (container, point) = (container_in(&directory, some()), directory.path().join("mnt"));
        fs::create_dir(&point).unwrap();
        let relative = ["data.ffr", "mnt"].map(Path::new);
        let mut command = mount_command(transport, &relative[..1], relative[1], &[]);
        // Runs to the end of the output: until the daemon, too, has closed both pipes.
        let outcome = run(command.current_dir(directory.path())).ok();
        let read = fs::read(point.join("000000"));
        let pid = pid_at(&point);
        let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).unwrap();
        let held = ["cwd", "fd/0", "fd/1", "fd/2"].map(link);
        let session = nix::unistd::getsid(Some(Pid::from_raw(pid)));
        clean_up(&point, pid);
        assert_eq!(read.unwrap(), some()[0]);
        assert_eq!((outcome.text().as_str(), outcome.stderr.as_str()), ("", ""));
        let null = Path::new("/dev/null");
        assert_eq!(held.each_ref().map(|path| path.as_path()), [Path::new("/"), null, null, null]);
        assert_eq!(session, Ok(Pid::from_raw(pid)));
        drop(container);
    });
}

#[test]
fn the_daemon_lets_go_of_whatever_files_its_caller_had_open() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let (container, point) = (container_in(&directory, some()), directory.path().join("mnt"));
        fs::create_dir(&point).unwrap();
        let lock = directory.path().join("lock");
        // As in `flock 9; ffrfs mount …; …`: the lock must not outlive the script.
        let mut inner = vec!["exec 9>\"$0\"; exec \"$@\"".into(), lock.clone().into_os_string()];
        let mount = mount_command(transport, &[&container], &point, &[]);
        inner.push(mount.get_program().to_owned());
        inner.extend(mount.get_args().map(|arg| arg.to_owned()));
        let outcome = run(Command::new("sh").arg("-c").args(inner));
        let pid = pid_at(&point);
        let held = fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        let held: Vec<_> = held.collect();
        clean_up(&point, pid);
        outcome.ok();
        assert!(!held.contains(&lock), "{held:?}");
    });
}

#[test]
fn the_mount_table_shows_source_type_and_flags() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let container = mount.container().canonicalize().unwrap().display().to_string();
        let [(source, kind, flags)] = &mounts_at(mount.point())[..] else { panic!("one mount") };
        assert_eq!((source, kind.as_str()), (&container, "fuse.ffrfs"));
        let flags: Vec<_> = flags.split(',').collect();
        for flag in ["ro", "nosuid", "nodev", "default_permissions"] {
            assert!(flags.contains(&flag), "{flag} is not in {flags:?}");
        }
        assert!(!flags.contains(&"noexec") && !flags.contains(&"allow_other"), "{flags:?}");
        let named = Mount::with_samples(transport, some(), &["fsname=my data", "noexec"]);
        let [(source, _, flags)] = &mounts_at(named.point())[..] else { panic!("one mount") };
        assert_eq!(source, "my data");
        assert!(flags.split(',').any(|flag| flag == "noexec"), "{flags}");
    });
}

#[test]
fn findmnt_shows_the_container_as_source() {
    if !have(Need::Program("findmnt")) {
        return;
    }
    for_each_transport(|transport| {
        let mount = mount(transport);
        let args = ["-n", "-r", "-o", "SOURCE,FSTYPE", "--mountpoint"];
        let said = run(Command::new("findmnt").args(args).arg(mount.point())).ok().text();
        let container = mount.container().canonicalize().unwrap();
        assert_eq!(said.trim(), format!("{} fuse.ffrfs", container.display()));
    });
}

#[test]
fn names_with_blanks_commas_backslashes_and_other_letters_work() {
    for_each_transport(|transport| {
        for name in
            ["a b", "a,b", "a\\b", "a\\,b\\", "ä ñ 数据", "a=b", "'\"$(x)`#", "tab\tx", "-x"]
        {
            let directory = temp_dir();
            let inside = directory.path().join(name);
            fs::create_dir(&inside).unwrap();
            let (container, point) = (inside.join(format!("{name}.ffr")), inside.join(name));
            write_container(&container, some());
            fs::create_dir(&point).unwrap();
            let mount = Mount::at(transport, &[&container], &[], directory, point);
            assert_eq!(mount.read("000000").unwrap(), some()[0], "{name}");
            let [(source, kind, _)] = &mounts_at(mount.point())[..] else { panic!("{name}") };
            let path = container.canonicalize().unwrap();
            assert_eq!((Path::new(source), kind.as_str()), (path.as_path(), "fuse.ffrfs"));
            umount(&[mount.point()]).ok();
            mount.wait_for_end();
        }
    });
}

#[test]
fn a_link_to_a_mount_point_is_followed() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let link = directory.path().join("link");
        fs::create_dir(directory.path().join("mnt")).unwrap();
        std::os::unix::fs::symlink("mnt", &link).unwrap();
        let container = container_in(&directory, some());
        let point = directory.path().join("mnt");
        run(&mut mount_command(transport, &[&container], &link, &[])).ok();
        let mounted = is_mount_point(&point);
        let outcome = umount(&[&link]);
        clean_up(&point, 0);
        assert!(mounted);
        outcome.ok();
    });
}

/// `ffrfs mount` must fail with exit code 5 and a message that contains `says`.
#[track_caller]
fn refuse(transport: Transport, source: &Path, point: &Path, says: &str) {
    let outcome = run(&mut mount_command(transport, &[source], point, &[]));
    assert_eq!(outcome.code, 5, "{}", outcome.stderr);
    assert!(outcome.stderr.contains(says), "{says:?} is not in: {}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
}

#[test]
fn a_mount_point_that_cannot_be_one_is_refused_with_exit_code_5() {
    let directory = temp_dir();
    let container = container_in(&directory, some());
    for_each_transport(|transport| {
        refuse(transport, &container, &directory.path().join("missing"), "missing");
        refuse(transport, &container, &container, "data.ffr");
    });
}

#[test]
fn mounting_twice_on_one_mount_point_is_refused() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        refuse(transport, &mount.container(), mount.point(), "already mounted there");
        assert_eq!(mounts_at(mount.point()).len(), 1);
        assert_eq!(mount.read("000000").unwrap(), some()[0]);
    });
}

#[test]
fn of_two_mounts_on_one_mount_point_at_the_same_time_one_is_refused() {
    let directory = temp_dir();
    let container = container_in(&directory, some());
    let point = directory.path().join("mnt");
    fs::create_dir(&point).unwrap();
    for_each_transport(|transport| {
        for _ in 0..5 {
            let start = || {
                let mut mount = mount_command(transport, &[&container], &point, &[]);
                mount.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
            };
            let ends = [start(), start()].map(|child| child.wait_with_output().unwrap());
            let refused: Vec<_> = ends.iter().filter(|end| !end.status.success()).collect();
            assert!(refused.len() == 1 && mounts_at(&point).len() == 1, "{ends:?}");
            let said = String::from_utf8_lossy(&refused[0].stderr);
            assert!(said.contains("already mounted there"), "{said}");
            clean_up(&point, 0);
        }
    });
}

#[test]
fn one_container_can_be_mounted_in_several_places() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let container = container_in(&directory, some());
        let first = Mount::new(transport, &container, &[]);
        let second = Mount::new(transport, &container, &["suffix=.bin"]);
        assert!(first.read("000001").unwrap() == some()[1]);
        assert!(second.read("000001.bin").unwrap() == some()[1]);
        first.unmount();
        assert_eq!(second.read("000002.bin").unwrap(), some()[2]);
    });
}

#[test]
fn a_directory_that_holds_something_can_be_mounted_on_and_shows_it_again_afterwards() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let point = directory.path().join("mnt");
        fs::create_dir(&point).unwrap();
        fs::write(point.join("something"), "else").unwrap();
        let container = container_in(&directory, some());
        let mount = Mount::at(transport, &[&container], &[], directory, point);
        assert!(!mount.path("something").exists());
        unmount_soon(mount.point());
        mount.wait_for_end();
        assert!(mount.path("something").exists());
    });
}

#[test]
fn a_container_alone_is_mounted_beside_where_the_user_is_and_the_directory_goes_with_the_mount() {
    if !have(Need::Fuse) {
        return;
    }
    own_namespace();
    let directory = temp_dir();
    write_container(&directory.path().join("train.ffr"), &samples(3, 100));
    let ffrfs = |args: &[&str]| run(Command::new(FFRFS).args(args).current_dir(directory.path()));
    let point = directory.path().join("train");
    let _cleaned_up = CleanedUp(&point);
    let is_gone = || !point.exists();
    let mounted = ffrfs(&["mount", "train.ffr"]).ok();
    assert!(mounted.stderr.contains("mounted on") && mounted.stderr.contains("/train"));
    assert_eq!(fs::read_dir(&point).unwrap().count(), 3);
    umount(&[&point]).ok();
    wait_until("the directory is removed", Duration::from_secs(20), is_gone);
    // A directory that was there stays, and one that was made goes if there is no mount.
    fs::create_dir(&point).unwrap();
    ffrfs(&["mount", "train.ffr"]).ok();
    umount(&[&point]).ok();
    assert!(point.exists());
    fs::remove_dir(&point).unwrap();
    fs::write(directory.path().join("bad.zip"), "no zip").unwrap();
    assert_eq!(ffrfs(&["mount", "bad.zip"]).code, 3);
    assert!(!directory.path().join("bad").exists());
    assert_eq!(ffrfs(&["mount", "."]).code, 1);
    let missing = ffrfs(&["mount", "nosuch.zip"]);
    let said = "ffrfs: nosuch.zip: No such file or directory\n";
    assert_eq!((missing.code, missing.stderr.as_str()), (2, said));
    // Files that lie in the directory are not hidden.
    fs::create_dir(&point).unwrap();
    let there = ffrfs(&["mount", "train.ffr"]);
    assert!(there.ok().stderr.contains("mounted on"), "an empty directory");
    assert_eq!(ffrfs(&["mount", "train.ffr"]).code, 5, "mounted already");
    umount(&[&point]).ok();
    fs::write(point.join("mine"), "mine").unwrap();
    let hidden = ffrfs(&["mount", "train.ffr"]);
    assert_eq!(hidden.code, 5, "{}", hidden.stderr);
    assert!(hidden.stderr.contains("would hide the files in it"), "{}", hidden.stderr);
    assert_eq!(fs::read(point.join("mine")).unwrap(), b"mine");
}

/// The mount point of a test that mounts by commands: a mount that a failing test leaves there is unmounted.
struct CleanedUp<'a>(&'a Path);

impl Drop for CleanedUp<'_> {
    fn drop(&mut self) {
        clean_up(self.0, 0);
    }
}

/// Whether a mount point can be marked as made for a mount; if not, the running test says so. The test goes on in a mount
/// namespace of its own, where a test beside it cannot keep the mount busy.
fn can_note(directory: &TempDir) -> bool {
    if !have(Need::Fuse) {
        return false;
    }
    own_namespace();
    let flags = rustix::fs::XattrFlags::empty();
    let noted = rustix::fs::setxattr(directory.path(), "user.ffrfs.probe", b"", flags);
    let kind = statfs(directory.path()).unwrap().filesystem_type();
    if noted.is_err() || kind == OVERLAYFS_SUPER_MAGIC {
        skip_forced("temporary files have no attributes, or numbers that may change (overlayfs)");
        return false;
    }
    true
}

/// Ends the daemon of the mount on this directory; the mount stays.
fn kill_daemon(point: &Path) {
    let info: serde_json::Value =
        serde_json::from_slice(&fs::read(point.join(".ffrfs/info.json")).unwrap()).unwrap();
    let pid = i32::try_from(info["pid"].as_i64().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    wait_until("the daemon has ended", IN_TIME, || !is_running(pid));
}

#[test]
fn a_mount_point_that_was_made_for_a_mount_goes_with_it_though_its_daemon_was_killed() {
    let directory = temp_dir();
    if !can_note(&directory) {
        return;
    }
    let source = directory.path().join("train.ffr");
    write_container(&source, &samples(3, 100));
    let ffrfs = |args: &[&str]| run(Command::new(FFRFS).args(args).current_dir(directory.path()));
    let point = directory.path().join("train");
    let _cleaned_up = CleanedUp(&point);
    let killed = || {
        ffrfs(&["mount", "train.ffr", "-o", "restarts=0"]).ok();
        kill_daemon(&point);
    };
    killed();
    umount(&[&point]).ok();
    assert!(!point.exists());
    // The next mount there removes the dead one, and cannot see that the directory was made.
    killed();
    ffrfs(&["mount", "train.ffr"]).ok();
    umount(&[&point]).ok();
    assert!(!point.exists());
    // umount(8) leaves the directory, and the next mount there takes it over, but not a mount that fails.
    killed();
    unmount(&point, true).unwrap();
    let whole = fs::read(&source).unwrap();
    fs::write(&source, "no container").unwrap();
    assert_ne!(ffrfs(&["mount", "train.ffr"]).code, 0);
    assert!(point.exists());
    fs::write(&source, whole).unwrap();
    ffrfs(&["mount", "train.ffr"]).ok();
    umount(&[&point]).ok();
    wait_until("the directory is removed", IN_TIME, || !point.exists());
    // Files that were put there meanwhile stay.
    killed();
    unmount(&point, true).unwrap();
    fs::write(point.join("mine"), "mine").unwrap();
    let refused = ffrfs(&["mount", "train.ffr"]);
    assert!(refused.code == 5 && point.join("mine").exists(), "{}", refused.stderr);
}

#[test]
fn a_mount_point_that_others_may_write_or_that_is_named_stays_though_it_was_made() {
    let directory = temp_dir();
    if !can_note(&directory) {
        return;
    }
    write_container(&directory.path().join("train.ffr"), &samples(3, 100));
    let ffrfs = |args: &[&str]| run(Command::new(FFRFS).args(args).current_dir(directory.path()));
    let (point, keep) = (directory.path().join("train"), directory.path().join("keep"));
    let _cleaned_up = (CleanedUp(&point), CleanedUp(&keep));
    let left = || {
        ffrfs(&["mount", "train.ffr", "-o", "restarts=0"]).ok();
        kill_daemon(&point);
        unmount(&point, true).unwrap();
        assert!(point.exists());
    };
    left();
    fs::rename(&point, &keep).unwrap();
    ffrfs(&["mount", "train.ffr", "keep", "-o", "restarts=0"]).ok();
    kill_daemon(&keep);
    umount(&[&keep]).ok();
    assert!(keep.exists(), "its user has named it");
    // Any user who may write the directory may also have marked it as made.
    left();
    fs::set_permissions(&point, fs::Permissions::from_mode(0o777)).unwrap();
    ffrfs(&["mount", "train.ffr", "-o", "restarts=0"]).ok();
    kill_daemon(&point);
    umount(&[&point]).ok();
    assert!(point.exists());
}

#[test]
fn a_mount_point_that_somebody_else_has_locked_is_not_waited_for() {
    let directory = temp_dir();
    let container = container_in(&directory, some());
    let (point, log) = (directory.path().join("mnt"), directory.path().join("log"));
    fs::create_dir(&point).unwrap();
    for_each_transport(|transport| {
        let locked = File::open(&point).unwrap();
        let locked = Flock::lock(locked, FlockArg::LockExclusive).unwrap();
        let mut mount = mount_command(transport, &[&container], &point, &["restarts=0"]);
        run(mount.arg("--log-file").arg(&log)).ok();
        let said = fs::read_to_string(&log).unwrap();
        let says = format!("is locked by process {}, which mounts nothing", std::process::id());
        assert!(said.contains(&says), "{said}");
        drop(locked);
        umount(&[point.as_path()]).ok();
        fs::remove_file(&log).unwrap();
    });
}
