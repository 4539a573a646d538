//! Nothing can be changed: every call that would change something gives EROFS, from the kernel, or with `rw`
//! from the daemon.

use crate::common::{
    Mount, Need, Transport, clean_up, drop_cached, fixture, for_each_transport, have,
    mount_command, mounts_at, python, run, temp_dir, wait_until,
};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Result, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

const FILE: &str = "train/cat/001.jpg";
const DIRECTORY: &str = "train/cat";

/// Runs a test on each transport, with the kernel as the refuser and with the daemon.
fn for_each_mount(test: impl Fn(&Mount, Refuser)) {
    for_each_transport(|transport| {
        test(&Mount::new(transport, fixture("packed_folder.ffr"), &["ro"]), Refuser::Kernel);
        test(&mount(transport), Refuser::Daemon);
    });
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refuser {
    Kernel,
    Daemon,
}

fn mount(transport: Transport) -> Mount {
    Mount::new(transport, fixture("packed_folder.ffr"), &["rw"])
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// As [`assert_erofs`]; but where the daemon refuses, users other than root may get a permission error first.
#[track_caller]
fn assert_refused<T: std::fmt::Debug>(refuser: Refuser, what: &str, result: Result<T>) {
    let errno = result.expect_err(what).raw_os_error();
    let early = [libc::EACCES, libc::EPERM].map(Some);
    let also = refuser == Refuser::Daemon && !is_root() && early.contains(&errno);
    assert!(errno == Some(libc::EROFS) || also, "{what}: {errno:?}");
}

#[track_caller]
fn assert_erofs<T: std::fmt::Debug>(what: &str, result: Result<T>) {
    let errno = result.expect_err(what).raw_os_error();
    assert_eq!(errno, Some(libc::EROFS), "{what}");
}

#[test]
fn opening_for_writing_gives_erofs_where_the_kernel_refuses() {
    for_each_transport(|transport| {
        for option in
            ["fsname=default", "ro", "control=ro", "rw,ro", "ro,control=rw", "rw,control=ro"]
        {
            let mount = Mount::new(transport, fixture("packed_folder.ffr"), &[option]);
            let open = |options: &mut OpenOptions, name: &str| options.open(mount.path(name));
            for name in [FILE, ".ffrfs/stats.json", ".ffrfs/prefetch"] {
                assert_erofs("O_WRONLY", open(File::options().write(true), name));
                assert_erofs("O_RDWR", open(File::options().read(true).write(true), name));
                assert_erofs("O_APPEND", open(File::options().append(true), name));
                assert_erofs("O_TRUNC", open(File::options().write(true).truncate(true), name));
            }
            for new in ["new", "train/new", ".ffrfs/new"] {
                assert_erofs("O_CREAT", open(File::options().write(true).create(true), new));
                assert_erofs("O_EXCL", open(File::options().write(true).create_new(true), new));
            }
            // Also when files were read before, so that the kernel need not ask.
            mount.read(FILE).unwrap();
            assert_erofs("O_RDWR", open(File::options().read(true).write(true), FILE));
            // The mode shows whether a file can be written in a mount with `rw`.
            let mode = fs::metadata(mount.path(".ffrfs/prefetch")).unwrap().mode() & 0o777;
            let expected = if option.ends_with("control=ro") { 0o444 } else { 0o666 };
            assert_eq!(mode, expected, "{option}");
            assert!(flags(&mount).contains(&"ro".to_owned()), "{option}");
        }
    });
}

fn flags(mount: &Mount) -> Vec<String> {
    mounts_at(mount.point())[0].2.split(',').map(str::to_owned).collect()
}

#[test]
fn with_rw_the_mount_can_be_written_as_far_as_the_kernel_knows() {
    for_each_transport(|transport| {
        for options in [["rw"], ["ro,rw"], ["control=rw"], ["control=ro,control=rw"]] {
            let mount = Mount::new(transport, fixture("packed_folder.ffr"), &options);
            assert!(flags(&mount).contains(&"rw".to_owned()), "{options:?}");
            let mode = fs::metadata(mount.path(".ffrfs/prefetch")).unwrap().mode() & 0o777;
            assert_eq!(mode, 0o666, "{options:?}");
        }
    });
}

#[test]
fn what_is_opened_for_writing_cannot_be_written_where_the_daemon_refuses() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let open = |options: &mut OpenOptions, name: &str| options.open(mount.path(name));
        let before = mount.read(FILE).unwrap();
        for name in [FILE, ".ffrfs/stats.json", ".ffrfs/bad"] {
            let truncating = open(File::options().write(true).truncate(true), name);
            assert_refused(Refuser::Daemon, "O_TRUNC", truncating);
            let opened = open(File::options().read(true).write(true), name);
            if !is_root() {
                assert_eq!(opened.unwrap_err().raw_os_error(), Some(libc::EACCES), "{name}");
                continue;
            }
            let file = opened.unwrap();
            assert_erofs("write", (&file).write(b"junk"));
            assert_erofs("pwrite", file.write_at(&[7; 9000], 100));
            assert_erofs("ftruncate", file.set_len(0));
            assert_erofs("ftruncate", file.set_len(1 << 20));
            let direct = File::options()
                .write(true)
                .custom_flags(libc::O_DIRECT)
                .open(mount.path(name))
                .unwrap();
            assert_erofs("O_DIRECT", direct.write_at(&[0; 4096], 0));
        }
        for new in ["new", "train/new", ".ffrfs/new"] {
            let created = open(File::options().write(true).create(true), new);
            assert_refused(Refuser::Daemon, "O_CREAT", created);
            let created = open(File::options().write(true).create_new(true), new);
            assert_refused(Refuser::Daemon, "O_EXCL", created);
        }
        assert_eq!(mount.read(FILE).unwrap(), before);
        assert_eq!(fs::metadata(mount.path(FILE)).unwrap().len(), before.len() as u64);
    });
}

#[test]
fn opening_for_writing_is_refused_as_long_as_the_kernel_asks() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let point = directory.path().join("mnt");
        fs::create_dir(&point).unwrap();
        let source = fixture("packed_folder.ffr");
        let mounted = run(&mut mount_command(transport, &[&source], &point, &["rw"]));
        // The kernel asks the daemon about the first file that is opened, and not from the second on.
        let first = File::options().write(true).open(point.join(FILE));
        let announced = File::options().write(true).open(point.join(".ffrfs/prefetch"));
        let announced = announced.and_then(|mut file| file.write(b"3\n"));
        let info = fs::read(point.join(".ffrfs/info.json")).unwrap_or_default();
        let info: serde_json::Value = serde_json::from_slice(&info).unwrap_or_default();
        clean_up(&point, info["pid"].as_i64().unwrap_or(0) as i32);
        mounted.ok();
        assert_refused(Refuser::Daemon, "O_WRONLY", first);
        assert_eq!(announced.unwrap(), 2);
    });
}

#[test]
fn a_refused_write_leaves_no_wrong_byte_in_the_page_cache() {
    if !have(Need::Root) {
        return;
    }
    for_each_transport(|transport| {
        let mount = mount(transport);
        let right = mount.read(FILE).unwrap();
        let file = File::options().read(true).write(true).open(mount.path(FILE)).unwrap();
        for (offset, bytes) in [(0, &[0xee; 5000][..]), (0, b"x"), (4090, b"across pages")] {
            // With the pages cached, and without.
            for cold in [false, true] {
                if cold {
                    drop_cached(&file);
                }
                assert_erofs("pwrite", file.write_at(bytes, offset));
                assert!(mount.read(FILE).unwrap() == right, "{} bytes at {offset}", bytes.len());
            }
        }
    });
}

#[test]
fn what_root_scribbles_through_a_mapping_goes_when_it_is_written_back() {
    if !have(Need::Root) || !have(Need::Python("mmap")) {
        return;
    }
    // msync does not fail with all kernels: a refused write is reported once, to the first process that asks.
    const SCRIBBLE: &str = "
import mmap, sys
file = open(sys.argv[1], 'r+b')
shared = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE)
shared[:] = b'!' * len(shared)
try:
    shared.flush()
except OSError:
    pass
";
    for_each_transport(|transport| {
        let mount = mount(transport);
        let right = mount.read(FILE).unwrap();
        for _ in 0..3 {
            python(SCRIBBLE, &[mount.path(FILE)]).ok();
            wait_until("the scribbled pages are gone", Duration::from_secs(30), || {
                mount.read(FILE).unwrap() == right
            });
        }
        let large = mount.list("").len();
        assert_eq!(large, 4, "and all the rest is there");
    });
}

#[test]
fn changing_names_gives_erofs() {
    for_each_mount(|mount, refuser| {
        let assert_erofs = |what: &str, result| assert_refused(refuser, what, result);
        let (file, directory, new) = (mount.path(FILE), mount.path(DIRECTORY), mount.path("new"));
        assert_erofs("unlink", fs::remove_file(&file));
        assert_erofs("unlink", fs::remove_file(mount.path(".ffrfs/bad")));
        assert_erofs("rmdir", fs::remove_dir(&directory));
        assert_erofs("rmdir", fs::remove_dir(mount.path("hollow")));
        assert_erofs("mkdir", fs::create_dir(&new));
        assert_erofs("rename", fs::rename(&file, &new));
        assert_erofs("rename", fs::rename(&directory, &new));
        assert_erofs("rename", fs::rename(&file, mount.path("a.txt")));
        assert_erofs("link", fs::hard_link(&file, &new));
        assert_erofs("symlink", std::os::unix::fs::symlink(&file, &new));
        let fifo = nix::unistd::mkfifo(&new, nix::sys::stat::Mode::S_IRWXU);
        assert_erofs("mkfifo", fifo.map_err(Into::into));
        assert!(file.exists() && directory.exists() && !new.exists());
    });
}

#[test]
fn changing_attributes_gives_erofs() {
    for_each_mount(|mount, refuser| {
        let assert_erofs = |what: &str, result| assert_refused(refuser, what, result);
        for name in [FILE, DIRECTORY, ".ffrfs/bad", ".ffrfs/prefetch"] {
            let path = mount.path(name);
            assert_erofs("chmod", fs::set_permissions(&path, Permissions::from_mode(0o600)));
            assert_erofs("chown", std::os::unix::fs::chown(&path, Some(1), Some(1)));
            assert_erofs("utimes", File::open(&path).unwrap().set_modified(SystemTime::now()));
        }
        let truncated = nix::unistd::truncate(&mount.path(FILE), 0);
        assert_erofs("truncate", truncated.map_err(Into::into));
        assert_eq!(mount.read(FILE).unwrap().len(), 5000);
    });
}

#[test]
fn changing_extended_attributes_gives_erofs() {
    if !have(Need::Python("os")) {
        return;
    }
    const CHANGE: &str = "
import errno, os, sys
for path in sys.argv[1:]:
    for change in (lambda: os.setxattr(path, 'user.other', b'1'), lambda: os.setxattr(path, 'user.ffrfs.index', b'1'),
                   lambda: os.removexattr(path, 'user.ffrfs.index'), lambda: os.utime(path)):
        try:
            change()
        except OSError as error:
            assert error.errno == errno.EROFS, error
        else:
            raise AssertionError(path)
";
    for_each_mount(|mount, refuser| {
        // Users who may not write get that error first.
        if refuser == Refuser::Kernel || is_root() {
            python(CHANGE, &[mount.path(FILE), mount.path(DIRECTORY)]).ok();
        }
    });
}

#[test]
fn access_for_writing_is_refused() {
    use nix::unistd::{AccessFlags, access};
    for_each_mount(|mount, refuser| {
        let can = |name: &str, how: AccessFlags| access(&mount.path(name), how);
        assert_eq!(can(FILE, AccessFlags::R_OK), Ok(()));
        assert_eq!(can(DIRECTORY, AccessFlags::R_OK | AccessFlags::X_OK), Ok(()));
        for name in [FILE, DIRECTORY] {
            match (refuser, is_root()) {
                (Refuser::Kernel, _) => {
                    assert_eq!(can(name, AccessFlags::W_OK), Err(nix::errno::Errno::EROFS));
                }
                (Refuser::Daemon, false) => {
                    assert_eq!(can(name, AccessFlags::W_OK), Err(nix::errno::Errno::EACCES));
                }
                // Permissions do not bind root.
                (Refuser::Daemon, true) => {}
            }
        }
        assert_eq!(can(FILE, AccessFlags::X_OK), Err(nix::errno::Errno::EACCES));
        assert_eq!(can("absent", AccessFlags::F_OK), Err(nix::errno::Errno::ENOENT));
    });
}

#[test]
fn a_mapping_for_writing_is_refused_and_a_private_one_works() {
    if !have(Need::Python("mmap")) {
        return;
    }
    const MAP: &str = "
import mmap, sys
file = open(sys.argv[1], 'rb')
try:
    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE)
except PermissionError:
    pass
else:
    raise AssertionError('mapped for writing')
own = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
own[0] = own[0] ^ 255
assert own[:] != file.read() and own[1:] == open(sys.argv[1], 'rb').read()[1:]
";
    for_each_mount(|mount, _| {
        python(MAP, &[mount.path(FILE)]).ok();
    });
}

#[test]
fn a_mount_is_not_disturbed_by_attempts_to_write() {
    for_each_mount(|mount, _| {
        let before = mount.read(FILE).unwrap();
        for _ in 0..50 {
            let _ = File::create(mount.path(FILE));
            let _ = fs::copy(Path::new("/proc/self/cmdline"), mount.path("new"));
        }
        assert_eq!(mount.read(FILE).unwrap(), before);
        assert_eq!(mount.list("").len(), 4);
    });
}
