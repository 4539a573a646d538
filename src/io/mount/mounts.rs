//! The mount table of this process: finding mounts, telling dead ones, unmounting. Imports the connections.

use super::fuse_connection;
use glob::{MatchOptions, Pattern};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{getegid, geteuid};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The file system type that our mounts show.
pub const FS_TYPE: &str = "fuse.ffrfs";

/// The flags of each of our mounts.
pub const ALWAYS: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOATIME);

/// A line of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The number of the mount, used again once it has gone ([`MountId`](super::mount_id::MountId)).
    pub number: u32,
    /// The mount point.
    pub target: PathBuf,
    /// The file system type, such as `fuse.ffrfs`.
    pub fs_type: String,
    /// The source, as `findmnt` shows it.
    pub source: OsString,
    /// The device number that its files show, as `MAJOR:MINOR`.
    pub device: String,
    /// The user who has mounted it, if it is a FUSE file system.
    pub user: Option<u32>,
    /// The only user and group that may look into it, if it is a FUSE file system without `allow_other`: the kernel refuses
    /// root, too.
    pub private_to: Option<(u32, u32)>,
}

/// The state of a mount point.
#[derive(Debug, PartialEq, Eq)]
pub enum State {
    /// A directory on which a dataset can be mounted.
    Free,
    /// A mount of ours whose daemon answers.
    Mounted(Mount),
    /// A mount of ours whose daemon has ended.
    Dead(Mount),
}

impl Mount {
    /// The user and group that this process, being root, must become to look into the mount, if root is refused: in a user
    /// namespace, the mount table may give other numbers than those that are compared. `None` if no change is needed.
    #[must_use]
    pub fn seen_as(&self) -> Option<(u32, u32)> {
        let own = (0, getegid().as_raw());
        self.private_to.filter(|&private_to| geteuid().is_root() && private_to != own)
    }

    /// The state of a mount of ours, by the answer to [`ask`].
    ///
    /// # Errors
    /// The mount could not be asked.
    pub fn state(self, asked: io::Result<()>) -> io::Result<State> {
        match asked {
            Ok(()) => Ok(State::Mounted(self)),
            Err(e) if is_dead(&e) => Ok(State::Dead(self)),
            Err(e) => Err(e),
        }
    }
}

/// Sends a request to the daemon of a mount, and waits for its answer.
///
/// # Errors
/// The mount is dead ([`is_dead`]), or cannot be reached.
pub fn ask(target: &Path) -> io::Result<()> {
    Ok(nix::sys::statvfs::statvfs(target).map(drop)?)
}

/// Whether a system call on a mount has failed because its daemon has ended.
#[must_use]
pub fn is_dead(error: &io::Error) -> bool {
    // The last two mean that the daemon died while it had our request, or while its ring had it.
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED))
}

/// The mounts that this process sees, in the order in which they were mounted.
///
/// # Errors
/// /proc is not mounted.
pub fn table() -> io::Result<Vec<Mount>> {
    let text = fs::read("/proc/self/mountinfo")?;
    Ok(parse(&text).collect())
}

/// The numbers of the mounts that show a device, in the mount namespaces of all processes, as far as this user may see them.
#[must_use]
pub fn numbers_anywhere(device: &str) -> BTreeSet<u32> {
    let (mut seen, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes.map(|process| process.path()) {
        let Ok(namespace) = fs::read_link(process.join("ns/mnt")) else { continue };
        if seen.contains(&namespace) {
            continue;
        }
        let Ok(text) = fs::read(process.join("mountinfo")) else { continue };
        seen.insert(namespace);
        let found = parse(&text).filter(|mount| mount.device == device);
        numbers.extend(found.map(|mount| mount.number));
    }
    numbers
}

fn parse(table: &[u8]) -> impl Iterator<Item = Mount> {
    table.split(|&b| b == b'\n').filter_map(parse_line)
}

/// Parses `36 35 98:0 /root /target options … - type source options`, where blanks and backslashes are octal escapes.
/// Paths may hold any other byte.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&b| b == b' ');
    let number = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = String::from_utf8_lossy(fields.nth(1)?).into_owned();
    let target = unescape(fields.nth(1)?);
    let mut fields = fields.skip_while(|field| field != b"-").skip(1);
    let fs_type = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    let options = String::from_utf8_lossy(fields.next().unwrap_or_default());
    let id =
        |name: &str| options.split(',').find_map(|option| option.strip_prefix(name)?.parse().ok());
    let (user, group) = (id("user_id="), id("group_id="));
    let is_private = options.split(',').all(|option| option != "allow_other");
    let private_to = user.zip(group).filter(|_| is_private);
    Some(Mount { number, target: target.into(), fs_type, source, device, user, private_to })
}

fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        });
        match (byte, octal) {
            (b'\\', Some(value)) => {
                out.push(value);
                rest = &tail[3..];
            }
            _ => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

/// The topmost mount at exactly `target` (an absolute path), if any.
///
/// # Errors
/// /proc is not mounted.
pub fn at(target: &Path) -> io::Result<Option<Mount>> {
    Ok(table()?.into_iter().rev().find(|mount| mount.target == target))
}

/// The reason why a mount that [`is_covered`] cannot be unmounted.
pub const COVERED: &str = "another file system is mounted over it: unmount that first";

/// Whether one of these mounts is at exactly `target`, and another one on top of it.
#[must_use]
pub fn is_covered(target: &Path, is_meant: impl Fn(&Mount) -> bool) -> bool {
    let table = table().unwrap_or_default();
    let mut there = table.iter().rev().filter(|mount| mount.target == target);
    there.next().is_some_and(|top| !is_meant(top)) && there.any(is_meant)
}

/// The mounts in a mount, which go when it is detached.
///
/// # Errors
/// /proc is not mounted.
pub fn beneath(mount: &Mount) -> io::Result<Vec<Mount>> {
    let later = table()?.into_iter().skip_while(|other| other.number != mount.number).skip(1);
    let is_in =
        |other: &Mount| other.target != mount.target && other.target.starts_with(&mount.target);
    Ok(later.filter(is_in).collect())
}

/// The state of a mount point.
///
/// # Errors
/// The mount point does not exist, is not a directory, or cannot be examined.
pub fn state(target: &Path) -> io::Result<State> {
    let ours = at(target)?.filter(|mount| mount.fs_type == FS_TYPE);
    // The kernel caches the attributes of the root, also when the daemon is dead; statfs always asks the daemon.
    if let Some(mount) = ours {
        return mount.state(ask(target));
    }
    let metadata = std::fs::metadata(target)?;
    if metadata.is_dir() {
        Ok(State::Free)
    } else {
        Err(io::Error::from_raw_os_error(libc::ENOTDIR))
    }
}

/// The most symbolic links that the kernel follows in a path.
const MAX_LINKS: usize = 40;

/// The mounts of ours that can be reached, to find those that a path leads to. Its methods send no request to a mount.
pub struct Ours(Vec<Mount>);

/// A mount of ours that a path leads to.
pub struct Met<'a> {
    /// The mount.
    pub mount: &'a Mount,
    /// The path from its root on; empty if the path names the mount itself.
    pub rest: PathBuf,
}

impl Ours {
    /// The mounts that are there now.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn now() -> io::Result<Self> {
        let mut ours: Vec<Mount> = Vec::new();
        for mount in table()? {
            // A mount that comes later in the same place hides it.
            ours.retain(|other| other.target != mount.target);
            if mount.fs_type == FS_TYPE {
                ours.push(mount);
            }
        }
        Ok(Self(ours))
    }

    /// The mount on exactly `target`.
    #[must_use]
    pub fn at(&self, target: &Path) -> Option<&Mount> {
        self.0.iter().find(|mount| mount.target == target)
    }

    /// Leaves out the mount on `target`: mounts beneath it can be looked for, since its daemon answers.
    pub fn leave_out(&mut self, target: &Path) {
        self.0.retain(|mount| mount.target != target);
    }

    /// The first mount that a path leads to or into, followed as the kernel would.
    #[must_use]
    pub fn met_by(&self, path: &Path) -> Option<Met<'_>> {
        if self.0.is_empty() {
            return None;
        }
        let reversed =
            |path: &Path| -> Vec<OsString> { path.iter().rev().map(ToOwned::to_owned).collect() };
        let mut rest = reversed(&std::path::absolute(path).ok()?);
        let (mut at, mut links) = (PathBuf::new(), 0);
        while let Some(name) = rest.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            at.push(name);
            let is_left_again = rest.last().is_some_and(|next| next == "..");
            let found = self.at(&at).filter(|_| !is_left_again);
            if let Some(mount) = found {
                return Some(Met { mount, rest: rest.iter().rev().collect() });
            }
            if let Ok(link) = fs::read_link(&at) {
                links += 1;
                if links > MAX_LINKS {
                    return None;
                }
                at.pop();
                rest.extend(reversed(&link));
            }
        }
        None
    }

    /// The mounts in which a pattern, such as `/mnt/*/a.zip`, is looked up.
    pub fn met_by_pattern(&self, pattern: &Path) -> impl Iterator<Item = Met<'_>> {
        let absolute = std::path::absolute(pattern).unwrap_or_default();
        let options = MatchOptions { require_literal_separator: true, ..MatchOptions::new() };
        let parts = absolute.ancestors().filter_map(|part| Pattern::new(part.to_str()?).ok());
        let parts: Vec<Pattern> = parts.collect();
        let is_met = move |mount: &&Mount| {
            parts.iter().any(|part| part.matches_path_with(&mount.target, options))
        };
        self.0.iter().filter(is_met).map(|mount| Met { mount, rest: PathBuf::new() })
    }
}

/// The absolute path of a mount point, also if its daemon is dead (which cannot be resolved itself) or stopped (which would not
/// answer). The rest of a path into a mount of ours stays as it is.
///
/// # Errors
/// The mount point's parent directory cannot be resolved.
pub fn resolve(target: &Path) -> io::Result<PathBuf> {
    if let Ok(ours) = Ours::now()
        && let Some(Met { mount, rest }) = ours.met_by(target)
        && !rest.iter().any(|name| name == "..")
    {
        // Not joined: with nothing behind it, it would end with a slash.
        return Ok(mount.target.iter().chain(&rest).collect());
    }
    match target.canonicalize() {
        Err(e) if e.raw_os_error() == Some(libc::ENOTCONN) => {
            let absolute = std::path::absolute(target)?;
            let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
                return Err(e);
            };
            Ok(parent.canonicalize()?.join(name))
        }
        other => other,
    }
}

/// Unmounts. With `lazy`, open files can be used until they are closed.
///
/// # Errors
/// The mount is busy, nothing is mounted, or the user may not unmount it. A refusal of fusermount3 has its message.
pub fn unmount(target: &Path, lazy: bool) -> io::Result<()> {
    let mut flags = MntFlags::UMOUNT_NOFOLLOW;
    flags.set(MntFlags::MNT_DETACH, lazy);
    match umount2(target, flags) {
        Ok(()) => Ok(()),
        Err(Errno::EPERM) => unmount_by_helper(target, lazy),
        Err(e) => Err(e.into()),
    }
}

/// Has all requests to a mount fail, also requests that wait.
pub fn abort(mount: &Mount) {
    if fuse_connection::abort(&mount.device).is_err() {
        // The kernel may say that the mount is busy, and has aborted it nevertheless.
        let _ = umount2(&mount.target, MntFlags::MNT_FORCE | MntFlags::UMOUNT_NOFOLLOW);
    }
}

/// Aborts the connection of a mount, so that all programs that wait for its daemon get an error, and detaches it.
///
/// # Errors
/// As for [`unmount`].
pub fn unmount_by_force(mount: &Mount) -> io::Result<()> {
    let flags = MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_FORCE | MntFlags::MNT_DETACH;
    match umount2(&mount.target, flags) {
        Err(Errno::EPERM) if mount.user.is_some_and(|user| user != geteuid().as_raw()) => {
            Err(Errno::EPERM.into())
        }
        Err(Errno::EPERM) => {
            fuse_connection::abort(&mount.device).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => io::Error::other(format!(
                    "the kernel's control files are not mounted, by which a user ends a connection; root may \
                     unmount it, or mount those: mount -t fusectl none {}",
                    fuse_connection::CONNECTIONS
                )),
                _ => error,
            })?;
            unmount_by_helper(&mount.target, true)
        }
        other => Ok(other?),
    }
}

/// Changes two flags of a mount of ours, which keeps the flags in [`ALWAYS`].
///
/// # Errors
/// This process may not change them.
pub fn set_flags(target: &Path, read_only: bool, noexec: bool) -> Result<(), Errno> {
    let mut flags = MsFlags::MS_REMOUNT | ALWAYS;
    flags.set(MsFlags::MS_RDONLY, read_only);
    flags.set(MsFlags::MS_NOEXEC, noexec);
    mount(None::<&str>, target, None::<&str>, flags, None::<&str>)
}

/// Raises the kernel's read-ahead in the files of the mount with the device number `device`, if this process may. The
/// FUSE protocol itself can only lower the default of 128 KiB. It sends no request to the mount, which may not
/// be served yet.
pub fn raise_read_ahead(device: &str, kilobytes: u32) {
    let knob = format!("/sys/class/bdi/{device}/read_ahead_kb");
    let _ = std::fs::write(knob, kilobytes.to_string());
}

/// Unmounts by fusermount3, which is set-user-id, for users other than root.
fn unmount_by_helper(target: &Path, lazy: bool) -> io::Result<()> {
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(target).stdin(Stdio::null());
    let output = command.output().map_err(|e| {
        io::Error::new(
            e.kind(),
            format!("this user is not root, and fusermount3 does not start: {e}"),
        )
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let kind = if said.contains("busy") {
        io::ErrorKind::ResourceBusy
    } else {
        io::ErrorKind::PermissionDenied
    };
    Err(io::Error::new(kind, said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_mount_table_gives_target_type_and_source() {
        let line =
            b"98 29 0:51 / /mnt/my\\040data ro,nosuid - fuse.ffrfs /data/a\\134b.ffr ro,user_id=0,group_id=5";
        let mount = parse_line(line).unwrap();
        assert_eq!(mount.target, Path::new("/mnt/my data"));
        assert_eq!(mount.fs_type, "fuse.ffrfs");
        assert_eq!((mount.number, mount.device.as_str(), mount.user), (98, "0:51", Some(0)));
        assert_eq!(mount.source, "/data/a\\b.ffr");
        assert_eq!(mount.private_to, Some((0, 5)));
        let shared = [&line[..], b",allow_other"].concat();
        assert_eq!(parse_line(&shared).unwrap().private_to, None);
    }

    #[test]
    fn optional_fields_before_the_dash_are_skipped() {
        let line = b"98 29 0:51 / /mnt rw shared:1 master:2 - ext4 /dev/vda rw";
        assert_eq!(parse_line(line).unwrap().fs_type, "ext4");
        assert_eq!(parse_line(b"98 29 0:51 / /mnt rw"), None);
        assert_eq!(parse_line(b""), None);
    }

    #[test]
    fn this_process_sees_its_root_mount() {
        assert!(at(Path::new("/")).unwrap().is_some());
        assert_eq!(state(Path::new("/proc/self/mountinfo")).unwrap_err().raw_os_error(), Some(20));
    }

    fn ours(targets: &[&Path]) -> Ours {
        let mount = |target: &&Path| Mount {
            number: 0,
            target: target.to_path_buf(),
            fs_type: FS_TYPE.to_owned(),
            source: OsString::new(),
            device: "0:51".to_owned(),
            user: None,
            private_to: None,
        };
        Ours(targets.iter().map(mount).collect())
    }

    #[test]
    fn a_path_is_followed_to_the_first_mount_of_ours_and_no_further() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/mnt/in")).unwrap();
        std::os::unix::fs::symlink("a/mnt", root.join("link")).unwrap();
        std::os::unix::fs::symlink(root.join("link/in"), root.join("a/chain")).unwrap();
        std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
        let point = root.join("a/mnt");
        let ours = ours(&[&point]);
        let met = |path: &str| {
            let met = ours.met_by(&root.join(path))?;
            assert_eq!(met.mount.target, point);
            Some(met.rest.display().to_string())
        };
        assert_eq!(met("a/mnt").as_deref(), Some(""));
        assert_eq!(met("a/../a/./mnt/").as_deref(), Some(""));
        assert_eq!(met("link").as_deref(), Some(""));
        assert_eq!(met("link/x/y.zip").as_deref(), Some("x/y.zip"));
        assert_eq!(met("a/chain/z").as_deref(), Some("in/z"));
        for other in ["a", "a/mnt2", "a/mnt/..", "link/../b", "loop", "loop/mnt", "missing/mnt"] {
            assert_eq!(met(other), None, "{other}");
        }
        assert!(super::tests::ours(&[]).met_by(&point).is_none());
    }

    #[test]
    fn a_pattern_meets_the_mounts_that_it_is_looked_up_in() {
        let ours = ours(&[Path::new("/mnt/ds"), Path::new("/mnt/x/deep")]);
        let met = |pattern: &str| ours.met_by_pattern(Path::new(pattern)).count();
        for (pattern, count) in [
            ("/mnt/*", 1),
            ("/mnt/d?/a.zip", 1),
            ("/mnt/*/*", 2),
            ("/mnt/**/a.zip", 2),
            ("/mnt/*.zip", 0),
            ("/mnt/e*/a.zip", 0),
            ("/other/*", 0),
        ] {
            assert_eq!(met(pattern), count, "{pattern}");
        }
    }
}
