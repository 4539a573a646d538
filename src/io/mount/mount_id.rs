//! The ID of a mount, which tells it from all others, also from those that are made after it: the kernel gives the device
//! number of a mount that was unmounted to the next one at once.

use crate::io::process::procfs;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;

/// System calls of Linux 6.8, the same on all machines that this program runs on.
const SYS_STATMOUNT: libc::c_long = 457;
const SYS_LISTMOUNT: libc::c_long = 458;
/// Lists all mounts of the namespace, if given as a mount.
const ROOT: u64 = u64::MAX;
/// `STATMOUNT_MNT_BASIC`: the numbers of a mount.
const NUMBERS: u64 = 2;
/// The places, in words of eight bytes, of the mask of given fields, and of the number that the kernel uses again.
const GIVEN: usize = 1;
const NUMBER: usize = 7;
/// The length of `struct statmount`, in words.
const WORDS: usize = 64;
/// How many mounts are listed at once.
const LISTED: usize = 128;

/// The beginning of a label's name, and the form in which /proc shows such a file.
const LABEL: &str = "ffrfs-mount:";
const SHOWN: &str = "/memfd:ffrfs-mount:";
const SHOWN_END: &str = " (deleted)";

/// A mount in some mount namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountId {
    /// The number in the mount table, which is used again after the mount has gone.
    number: u32,
    /// A number that is never used again; `None` before Linux 6.8, or where a filter of system calls forbids to ask.
    unique: Option<u64>,
}

impl MountId {
    /// The ID of the mount with this number in the mount table of this process.
    #[must_use]
    pub fn of(number: u32) -> Self {
        Self { number, unique: unique(number) }
    }

    /// Whether this may be the mount that the mount table shows with this number.
    #[must_use]
    pub fn may_be(&self, number: u32) -> bool {
        let differs = |found| self.unique.is_some_and(|own| own != found);
        self.number == number && !unique(number).is_some_and(differs)
    }

    /// Whether the mount is still there, in the mount namespace of this process. Sends no request to a daemon. A mount that
    /// cannot be looked up, as the mount table cannot be read, counts as there.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        match self.unique.map(number) {
            Some(Ok(_)) => true,
            Some(Err(Errno::NOENT)) => false,
            _ => is_in_table(self.number),
        }
    }

    /// A file whose name in /proc tells other processes that its holder belongs to this mount.
    ///
    /// # Errors
    /// There is no descriptor or no memory left.
    pub fn label(&self) -> io::Result<OwnedFd> {
        let name = format!("{LABEL}{self}");
        let made = memfd_create(&name, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL);
        // Linux before 6.3 does not know the second flag.
        Ok(made.or_else(|_| memfd_create(&name, MemfdFlags::CLOEXEC))?)
    }
}

/// The mounts whose labels a process holds, as far as this user may see them.
pub(super) fn labels(pid: u32) -> impl Iterator<Item = MountId> {
    let opened = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    opened.filter_map(|fd| {
        let file = fs::read_link(fd.path()).ok()?;
        file.to_str()?.strip_prefix(SHOWN)?.strip_suffix(SHOWN_END)?.parse().ok()
    })
}

/// The numbers of all processes that hold a label of this mount.
pub(super) fn holders(id: MountId) -> impl Iterator<Item = u32> {
    procfs::pids().filter(move |&pid| labels(pid).any(|label| label == id))
}

/// Whether the labels of a process name only mounts that have gone, and not this one: it may hold a connection that had the
/// same number. Mounts in another mount namespace than this process's cannot be known; a process without a label may be of any
/// mount.
pub(super) fn is_of_former(pid: u32, id: MountId) -> bool {
    let mut labels = labels(pid).peekable();
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    labels.peek().is_some()
        && namespace(&pid.to_string()) == namespace("self")
        && !labels.any(|label| label == id || label.is_mounted())
}

/// Whether a process is known to be of a mount that has gone from the mount namespace of this process.
pub(super) fn is_of_lost(pid: u32) -> bool {
    is_of_former(pid, MountId { number: u32::MAX, unique: None })
}

/// A mount that this program has made, as the mount table has shown it then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Made {
    /// The device number that its files show, as `MAJOR:MINOR`; empty if it is not known.
    pub device: String,
    /// `None` if the caller has mounted, or the ID is not known.
    pub id: Option<MountId>,
}

impl Made {
    /// Whether the mount with this device number now is this one, which may be mounted elsewhere as well.
    #[must_use]
    pub fn is_on(&self, device: &str) -> bool {
        self.device == device && self.id.is_none_or(|id| id.is_mounted())
    }
}

impl fmt::Display for MountId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unique {
            Some(unique) => write!(out, "{}.{unique}", self.number),
            None => write!(out, "{}", self.number),
        }
    }
}

impl FromStr for MountId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, unique) = match text.split_once('.') {
            Some((number, unique)) => (number, Some(unique.parse()?)),
            None => (text, None),
        };
        Ok(Self { number: number.parse()?, unique })
    }
}

fn is_in_table(number: u32) -> bool {
    let Ok(table) = fs::read("/proc/self/mountinfo") else { return true };
    let wanted = number.to_string();
    table.split(|&byte| byte == b'\n').any(|line| {
        line.split(|&byte| byte == b' ').next().is_some_and(|first| first == wanted.as_bytes())
    })
}

/// The number that is never used again, of the mount with the number `wanted` in the mount table.
fn unique(wanted: u32) -> Option<u64> {
    let (mut listed, mut last) = ([0; LISTED], 0);
    loop {
        let found = list(last, &mut listed).ok().filter(|found| !found.is_empty())?;
        last = *found.last()?;
        if let Some(&unique) = found.iter().find(|&&unique| number(unique) == Ok(wanted)) {
            return Some(unique);
        }
    }
}

/// The question of both calls: `struct mnt_id_req`, in its first version.
#[repr(C)]
struct Question {
    size: u32,
    spare: u32,
    mount: u64,
    parameter: u64,
}

impl Question {
    fn new(mount: u64, parameter: u64) -> Self {
        Self { size: size_of::<Self>() as u32, spare: 0, mount, parameter }
    }
}

/// The mounts of this namespace behind the one with the number `last`.
fn list(last: u64, listed: &mut [u64; LISTED]) -> Result<&[u64], Errno> {
    let question = Question::new(ROOT, last);
    // SAFETY: the kernel reads `question`, which states its own length, and writes at most as many numbers as `listed` has room
    // for; both live longer than the call.
    let count = unsafe {
        libc::syscall(SYS_LISTMOUNT, &raw const question, listed.as_mut_ptr(), listed.len(), 0)
    };
    let count = usize::try_from(count).map_err(|_| last_error())?;
    Ok(listed.get(..count).unwrap_or_default())
}

/// The number that the mount table shows for a mount of this namespace.
fn number(unique: u64) -> Result<u32, Errno> {
    let (question, mut told) = (Question::new(unique, NUMBERS), [0_u64; WORDS]);
    // SAFETY: the kernel reads `question`, which states its own length, and writes at most as many bytes as `told` has; both
    // live longer than the call.
    let done = unsafe {
        let (to, bytes) = (told.as_mut_ptr(), size_of_val(&told));
        libc::syscall(SYS_STATMOUNT, &raw const question, to, bytes, 0)
    };
    if done != 0 {
        return Err(last_error());
    }
    if told[GIVEN] & NUMBERS == 0 {
        return Err(Errno::NOSYS);
    }
    // The first half of the word.
    let bytes = told[NUMBER].to_ne_bytes();
    Ok(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::NOSYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the first mount in the table.
    fn first() -> u32 {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.split(' ').next().unwrap().parse().unwrap()
    }

    #[test]
    fn a_mount_is_there_and_one_of_the_same_number_that_was_there_before_is_not() {
        let there = MountId::of(first());
        assert!(there.is_mounted() && there.may_be(first()) && !there.may_be(first() + 1));
        let without = MountId { unique: None, ..there };
        assert!(without.is_mounted() && without.may_be(first()));
        let never = MountId::of(u32::MAX);
        assert!(never.unique.is_none() && !never.is_mounted());
        if let Some(unique) = there.unique {
            assert_eq!(number(unique), Ok(there.number));
            let before = MountId { unique: Some(u64::MAX - 1), ..there };
            assert!(!before.is_mounted() && !before.may_be(first()));
        }
    }

    #[test]
    fn a_label_tells_of_which_mount_a_process_is() {
        let this = std::process::id();
        let ids = ["36", "4294967295.18446744073709551615"].map(|text| text.parse().unwrap());
        for id in ids {
            let label: MountId = id;
            let held = label.label().unwrap();
            assert!(labels(this).any(|found| found == label), "{label}");
            assert!(holders(label).any(|pid| pid == this));
            drop(held);
            assert!(!labels(this).any(|found| found == label));
        }
        for odd in ["", ".", "1.", ".1", "x", "-1", "1.2.3"] {
            assert!(odd.parse::<MountId>().is_err(), "{odd}");
        }
    }
}
