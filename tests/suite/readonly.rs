//! Nothing can be changed: every call that would gives EROFS.

use crate::common::{Mount, Need, Transport, fixture, for_each_transport, have, python};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Result;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

const FILE: &str = "train/cat/001.jpg";
const FOLDER: &str = "train/cat";

fn mount(transport: Transport) -> Mount {
    Mount::new(transport, fixture("packed_folder.ffr"), &[])
}

#[track_caller]
fn assert_erofs<T: std::fmt::Debug>(what: &str, result: Result<T>) {
    let errno = result.expect_err(what).raw_os_error();
    assert_eq!(errno, Some(libc::EROFS), "{what}");
}

#[test]
fn opening_for_writing_gives_erofs() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let open = |options: &mut OpenOptions, name: &str| options.open(mount.path(name));
        for name in [FILE, ".ffrfs/stats.json"] {
            assert_erofs("O_WRONLY", open(File::options().write(true), name));
            assert_erofs("O_RDWR", open(File::options().read(true).write(true), name));
            assert_erofs("O_APPEND", open(File::options().append(true), name));
            assert_erofs("O_TRUNC", open(File::options().write(true).truncate(true), name));
        }
        for new in ["new", "train/new", ".ffrfs/new"] {
            assert_erofs("O_CREAT", open(File::options().write(true).create(true), new));
            assert_erofs("O_EXCL", open(File::options().write(true).create_new(true), new));
        }
        // Also when files were read before, and without asking.
        mount.read(FILE).unwrap();
        assert_erofs("O_RDWR", open(File::options().read(true).write(true), FILE));
    });
}

#[test]
fn changing_names_gives_erofs() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let (file, folder, new) = (mount.path(FILE), mount.path(FOLDER), mount.path("new"));
        assert_erofs("unlink", fs::remove_file(&file));
        assert_erofs("unlink", fs::remove_file(mount.path(".ffrfs/bad")));
        assert_erofs("rmdir", fs::remove_dir(&folder));
        assert_erofs("rmdir", fs::remove_dir(mount.path("hollow")));
        assert_erofs("mkdir", fs::create_dir(&new));
        assert_erofs("rename", fs::rename(&file, &new));
        assert_erofs("rename", fs::rename(&folder, &new));
        assert_erofs("rename", fs::rename(&file, mount.path("a.txt")));
        assert_erofs("link", fs::hard_link(&file, &new));
        assert_erofs("symlink", std::os::unix::fs::symlink(&file, &new));
        let fifo = nix::unistd::mkfifo(&new, nix::sys::stat::Mode::S_IRWXU);
        assert_erofs("mkfifo", fifo.map_err(Into::into));
        assert!(file.exists() && folder.exists() && !new.exists());
    });
}

#[test]
fn changing_attributes_gives_erofs() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        for name in [FILE, FOLDER] {
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
    for_each_transport(|transport| {
        let mount = mount(transport);
        python(CHANGE, &[mount.path(FILE), mount.path(FOLDER)]).ok();
    });
}

#[test]
fn access_for_writing_is_refused() {
    use nix::unistd::{AccessFlags, access};
    for_each_transport(|transport| {
        let mount = mount(transport);
        let can = |name: &str, how: AccessFlags| access(&mount.path(name), how);
        assert_eq!(can(FILE, AccessFlags::R_OK), Ok(()));
        assert_eq!(can(FOLDER, AccessFlags::R_OK | AccessFlags::X_OK), Ok(()));
        for name in [FILE, FOLDER] {
            assert_eq!(can(name, AccessFlags::W_OK), Err(nix::errno::Errno::EROFS));
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
    for_each_transport(|transport| {
        let mount = mount(transport);
        python(MAP, &[mount.path(FILE)]).ok();
    });
}

#[test]
fn a_mount_is_not_disturbed_by_attempts_to_write() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let before = mount.read(FILE).unwrap();
        for _ in 0..50 {
            let _ = File::create(mount.path(FILE));
            let _ = fs::copy(Path::new("/proc/self/cmdline"), mount.path("new"));
        }
        assert_eq!(mount.read(FILE).unwrap(), before);
        assert_eq!(mount.list("").len(), 4);
    });
}
