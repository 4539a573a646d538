//! The processes that serve a FUSE connection, and the kernel's control files for it. Nothing here waits for the daemon.
//! Imports `mount_id`, `procfs` and `workers`.

use super::mount_id::{self, MountId};
use crate::io::process::procfs::{self, pids};
use crate::io::process::workers::UPGRADE;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directory where the kernel shows its FUSE connections, once fusectl is mounted there.
pub const CONNECTIONS: &str = "/sys/fs/fuse/connections";
const DEVICE: &str = "/dev/fuse";
/// The beginning of the name that `ps` shows for this program.
const NAME: &str = "ffrfs";
/// The name that `ps` shows for a service manager.
const MANAGER: &str = "systemd";

/// A process, which keeps its identity though numbers are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// The number of the process.
    pub pid: u32,
    /// When the process was started, in ticks since the boot.
    started: u64,
}

/// The activity of a process, as far as other processes see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// The process runs, or sleeps.
    Runs,
    /// SIGSTOP, a debugger or a frozen cgroup keeps it from running.
    Stopped,
    /// The process has let go of all that it held.
    Ended,
}

impl Process {
    fn with_pid(pid: u32) -> Option<Self> {
        let (_, started) = stat(pid)?;
        Some(Self { pid, started })
    }

    /// Lets the process go on if it was stopped. Its activity shows whether this user may do so.
    pub fn go_on(&self) {
        if self.activity() == Activity::Stopped {
            let _ = kill(Pid::from_raw(self.pid.cast_signed()), Signal::SIGCONT);
        }
    }

    /// Sends the process a signal.
    ///
    /// # Errors
    /// The process has ended, or belongs to another user.
    pub fn send(&self, signal: Signal) -> io::Result<()> {
        Ok(kill(Pid::from_raw(self.pid.cast_signed()), signal)?)
    }

    /// Whether the process blocks this signal, which then does not end it.
    #[must_use]
    pub fn blocks(&self, signal: Signal) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        mask >> (signal as i32 - 1) & 1 == 1
    }

    /// The name that `ps` shows for the process.
    #[must_use]
    pub fn name(&self) -> String {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        name.trim_end().to_owned()
    }

    /// The activity of the process now.
    #[must_use]
    pub fn activity(&self) -> Activity {
        match stat(self.pid) {
            Some((state, started)) if started == self.started => match state {
                'Z' | 'X' => Activity::Ended,
                'T' | 't' => Activity::Stopped,
                _ => Activity::Runs,
            },
            _ => Activity::Ended,
        }
    }
}

/// The state letter of a process, and when it was started.
fn stat(pid: u32) -> Option<(char, u64)> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    // The name before these fields may hold any characters.
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// The process of this number, if the kernel does not show which connection it serves.
fn unseen(told: Option<u32>) -> Option<Process> {
    let told = told.filter(|&pid| connections(pid).any(|found| found.is_none()))?;
    Process::with_pid(told)
}

/// All processes of this program that hold the connection whose files show `device` (`MAJOR:MINOR`), and the processes that
/// watch one of them, as far as this user may see them. The mount `id` tells them from those of another mount that had the same
/// number before, or has it since this one has gone. `told` is the number that the daemon itself gives, for kernels that do not
/// show which connection a descriptor is of.
#[must_use]
pub fn servers(device: &str, id: MountId, told: Option<u32>) -> Vec<Process> {
    let Some((_, number)) = device.split_once(':') else { return Vec::new() };
    // Other programs may have got the descriptor from one of these processes, and are left alone.
    let holders = holders(number).filter(|holder| !mount_id::is_of_former(holder.pid, id));
    let mut servers: Vec<Process> = holders.filter(is_ours).collect();
    if servers.is_empty() {
        servers.extend(unseen(told));
    }
    let parents: Vec<_> = servers.iter().filter_map(|server| watcher(server.pid)).collect();
    servers.extend(parents);
    // Checked last: as long as the mount is there, no other mount gets its number.
    if !id.is_mounted() {
        return labelled(id);
    }
    servers.sort_unstable_by_key(|server| server.pid);
    servers.dedup();
    servers
}

/// All processes of this program that are known to be of a mount, whether they hold its connection or not.
#[must_use]
pub fn labelled(id: MountId) -> Vec<Process> {
    mount_id::holders(id).filter_map(Process::with_pid).filter(is_ours).collect()
}

/// Whether there is a process of this program whose mount has gone, and which holds no connection: it may be about to make that
/// mount anew.
#[must_use]
pub fn is_mount_due() -> bool {
    let lost = pids().filter(|&pid| mount_id::is_of_lost(pid) && connections(pid).next().is_none());
    lost.filter_map(Process::with_pid).any(|process| is_ours(&process))
}

fn is_ours(process: &Process) -> bool {
    process.name().starts_with(NAME)
}

/// The process that watches a daemon of this program, its parent. A supervisor of a mount that cannot be handed over holds
/// nothing of the mount.
#[must_use]
pub fn watcher(server: u32) -> Option<Process> {
    let parent = Process::with_pid(parent(server)?)?;
    (is_ours(&parent) && parent.blocks(UPGRADE)).then_some(parent)
}

/// Whether this process is one of this program, as far as this user may see that.
#[must_use]
pub fn is_daemon(pid: u32) -> bool {
    Process::with_pid(pid).is_some_and(|process| is_ours(&process))
}

/// The processes that are known to hold the connection of this number, and may serve it.
fn holders(number: &str) -> impl Iterator<Item = Process> {
    let holds = move |&pid: &u32| connections(pid).any(|found| found.as_deref() == Some(number));
    let holders = pids().filter(holds).filter_map(Process::with_pid);
    // A service manager keeps the connections of its services, and serves no mount.
    holders.filter(|holder| holder.name() != MANAGER)
}

/// Whether a process may hold the connection whose files show `device`, as far as the kernel tells which connections it holds.
#[must_use]
pub fn may_hold(pid: u32, device: &str) -> bool {
    let Some((_, number)) = device.split_once(':') else { return false };
    connections(pid).any(|found| found.is_none_or(|found| found == number))
}

/// Whether a process that was not killed is known to serve the connection of the mount `id`.
#[must_use]
pub fn is_served(device: &str, id: MountId) -> bool {
    let Some((_, number)) = device.split_once(':') else { return false };
    let lives = |pid: u32| procfs::is_dying(pid) == Some(false);
    holders(number).any(|holder| lives(holder.pid) && !mount_id::is_of_former(holder.pid, id))
}

/// Whether a living process may serve the connection of the mount `id`: also a process with a descriptor of /dev/fuse whose
/// connection the kernel does not tell, but not a process that was killed and cannot end.
#[must_use]
pub fn may_be_served(device: &str, id: MountId) -> bool {
    let Some((_, number)) = device.split_once(':') else { return true };
    let holds = |pid: u32| connections(pid).any(|found| found.is_none_or(|found| found == number));
    let manages = |pid: u32| Process::with_pid(pid).is_none_or(|found| found.name() == MANAGER);
    let lives = |pid: u32| procfs::is_dying(pid) == Some(false);
    pids().any(|pid| holds(pid) && !manages(pid) && lives(pid) && !mount_id::is_of_former(pid, id))
}

/// The process that watches the one that serves a connection, and starts another one if that dies: its parent, which holds the
/// connection, too. `None` if there is no such process, or this user may not see it.
#[must_use]
pub fn supervisor(device: &str, server: u32) -> Option<Process> {
    let number = device.split_once(':')?.1;
    let parent = parent(server)?;
    let holds = |found: Option<String>| found.is_none_or(|found| found == number);
    connections(parent).any(holds).then(|| Process::with_pid(parent)).flatten()
}

fn parent(pid: u32) -> Option<u32> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let (_, rest) = text.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

/// The numbers of the connections that a process has open; `None` for a connection whose number the kernel does not show.
fn connections(pid: u32) -> impl Iterator<Item = Option<String>> {
    let opened = fs::read_dir(format!("/proc/{pid}/fd"));
    // A daemon with a password shows its descriptors to root alone.
    let hides = opened.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied);
    let descriptors = opened.into_iter().flatten().flatten();
    let of_fuse = descriptors
        .filter(|fd| fs::read_link(fd.path()).is_ok_and(|file| file == Path::new(DEVICE)));
    let hidden = hides.then_some(None).into_iter();
    hidden.chain(of_fuse.filter_map(move |fd| {
        let info = format!("/proc/{pid}/fdinfo/{}", fd.file_name().display());
        let text = match fs::read_to_string(info) {
            // It was closed meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
            text => text.unwrap_or_default(),
        };
        let number = text.lines().find_map(|line| line.strip_prefix("fuse_connection:"));
        Some(number.map(|number| number.trim().to_owned()))
    }))
}

/// The directory of the kernel's control files for a connection; `None` where the control files are not mounted.
#[must_use]
pub fn directory(device: &str) -> Option<PathBuf> {
    let (_, number) = device.split_once(':')?;
    let directory = Path::new(CONNECTIONS).join(number.parse::<u64>().ok()?.to_string());
    directory.is_dir().then_some(directory)
}

/// The identity that tells a connection from a later one with the same number; `None` where the control files are not mounted.
#[must_use]
pub fn identity(device: &str) -> Option<u64> {
    fs::metadata(directory(device)?).ok().map(|directory| directory.ino())
}

/// Ends a connection by force: all programs that wait for its daemon get an error.
///
/// # Errors
/// The control files are not mounted, or the connection belongs to another user.
pub fn abort(device: &str) -> io::Result<()> {
    let directory = directory(device).ok_or(io::ErrorKind::NotFound)?;
    fs::write(directory.join("abort"), "1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::mount::mounts;
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_process_is_known_by_its_start_as_well() {
        let this = Process::with_pid(std::process::id()).unwrap();
        assert_eq!(this.activity(), Activity::Runs);
        let other = Process { started: this.started + 1, ..this };
        assert_eq!(other.activity(), Activity::Ended);
        let id = MountId::of(u32::MAX);
        assert!(servers("0:999999", id, None).is_empty() && servers("none", id, None).is_empty());
        assert!(labelled(id).is_empty());
        assert_eq!(supervisor("0:999999", this.pid), None);
        assert!(!is_served("0:999999", id) && !is_served("none", id));
        assert!(!may_hold(this.pid, "0:999999") && !may_hold(this.pid, "none"));
        assert!(!this.blocks(Signal::SIGUSR2) && !this.name().is_empty());
    }

    #[test]
    fn who_serves_the_next_mount_of_a_number_is_none_of_the_one_that_has_gone() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let Ok(connection) = File::options().read(true).write(true).open(DEVICE) else { return };
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", connection.as_raw_fd());
        let (kind, flags) = (Some("fuse"), MsFlags::empty());
        mount(kind, directory.path(), kind, flags, Some(&*options)).unwrap();
        let found = mounts::at(directory.path()).unwrap().unwrap();
        let (id, this) = (MountId::of(found.number), std::process::id());
        let serves = || servers(&found.device, id, None).iter().any(|server| server.pid == this);
        // Another test may hold a label of a mount that has gone: this process is of this mount as well.
        let label = id.label().unwrap();
        let served = serves();
        drop(label);
        umount2(directory.path(), MntFlags::MNT_DETACH).unwrap();
        // Older kernels do not show which connection a descriptor is of.
        let is_shown = connections(this).any(|shown| shown.is_some());
        assert_eq!(served, is_shown);
        // The number is this process's still, as if it had been given to another mount of it.
        assert!(!serves());
    }
}
