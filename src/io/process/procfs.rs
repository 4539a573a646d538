//! Facts of /proc about this process and others. Imports nothing of ours.

use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::Read;
use std::time::Duration;

/// The bit of `CAP_SYS_ADMIN` in a mask of capabilities.
const SYS_ADMIN_BIT: u32 = 21;

/// The numbers of all processes that this one sees.
pub fn pids() -> impl Iterator<Item = u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The processes that hold a lock of a whole file with this inode, of any file system, as far as this process sees them.
#[must_use]
pub fn lock_holders(inode: u64) -> Vec<u32> {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    locks.lines().filter_map(|line| lock_holder(line, inode)).collect()
}

/// The process in `1: FLOCK  ADVISORY  WRITE 4711 fe:00:12 0 EOF`. A process that waits for a lock has an arrow in place of the
/// first word.
fn lock_holder(line: &str, inode: u64) -> Option<u32> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let &[_, "FLOCK", _, _, pid, file, ..] = fields.as_slice() else { return None };
    let is_it = file.rsplit(':').next()?.parse() == Ok(inode);
    is_it.then(|| pid.parse().ok()).flatten()
}

/// The text of /proc/self/status, for [`status_field`] and [`may_administer`]; empty if it cannot be read.
#[must_use]
pub fn status() -> String {
    status_of("self").unwrap_or_default()
}

/// The value of a field in the text of /proc/self/status.
#[must_use]
pub fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
}

/// The bytes that a process has read from files so far, from memory or a disk; 0 if this process may not see that.
#[must_use]
pub fn read_bytes(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let field = |name| status_field(&text, name)?.parse::<u64>().ok();
    // A mapping is read from the disk alone.
    ["rchar", "read_bytes"].into_iter().filter_map(field).sum()
}

/// The CPU time that a process has taken so far; zero if it has ended.
#[must_use]
pub fn cpu_time(pid: i32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name may hold any characters, and ends with the last parenthesis.
    let behind_name = text.rsplit(')').next().unwrap_or_default();
    let ticks = behind_name.split_ascii_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    // The kernel shows times to user space in hundredths of a second, always.
    Duration::from_millis(ticks.saturating_mul(10))
}

/// Whether the mask `name` (`CapEff`, `CapBnd`) has CAP_SYS_ADMIN; `None` if there is no such mask.
#[must_use]
pub fn may_administer(status: &str, name: &str) -> Option<bool> {
    let mask = u64::from_str_radix(status_field(status, name)?, 16).ok()?;
    Some(mask >> SYS_ADMIN_BIT & 1 == 1)
}

/// Whether a thread has got a signal that will end its process, or is ending already. `None` if this cannot be known: the
/// thread is gone, or not visible to this process.
#[must_use]
pub fn is_dying(thread: u32) -> Option<bool> {
    if thread == 0 {
        return None;
    }
    status_of(thread).map(|status| says_dying(&status))
}

/// Whether a process is dying, or writes its memory to a file, or to a program, as its last act.
pub(super) fn is_ending(process: Pid) -> bool {
    let status = status_of(process).unwrap_or_default();
    says_dying(&status) || status_field(&status, "CoreDumping") == Some("1")
}

fn status_of(thread: impl std::fmt::Display) -> Option<String> {
    // With room for all of the text, since the file tells no size: it is read at once.
    let mut status = Vec::with_capacity(4096);
    File::open(format!("/proc/{thread}/status")).ok()?.read_to_end(&mut status).ok()?;
    Some(String::from_utf8_lossy(&status).into_owned())
}

/// Whether a dying process was killed by a signal, rather than ends by itself. `false` also if this process may not see that.
pub(super) fn is_killed(process: Pid) -> bool {
    let stat = std::fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
    says_killed(&String::from_utf8_lossy(&stat))
}

/// The place of the exit code as wait(2) gives it, among the fields behind the state. The field is 0 for a process that may not
/// trace the other one.
const EXIT_CODE: usize = 48;

fn says_killed(stat: &str) -> bool {
    // The name before the fields may hold any characters.
    let Some((_, fields)) = stat.rsplit_once(") ") else { return false };
    let mut fields = fields.split_whitespace();
    // In a stopped process, the field has the signal that stopped it.
    let is_stopped = matches!(fields.next(), Some("T" | "t"));
    let code = fields.nth(EXIT_CODE).and_then(|code| code.parse::<i32>().ok());
    !is_stopped && code.is_some_and(|code| code & 0x7f != 0)
}

/// Whether this process ignores a signal, as its parent has set it.
#[must_use]
pub fn ignores(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status_field(&status, "SigIgn").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    mask.unwrap_or(0) & (1 << (signal - 1)) != 0
}

/// Signals that end a process and write its memory to a file, unless it handles them: the kernel makes no SIGKILL of
/// these until the process takes them.
const DUMPING: [i32; 10] = [
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGSYS,
];

fn says_dying(status: &str) -> bool {
    // A loop device reads in a thread of the kernel, which has no memory of its own.
    if status_field(status, "Kthread") == Some("1") || status_field(status, "PPid") == Some("2") {
        return false;
    }
    let mask = |name| {
        let mask = status_field(status, name).and_then(|mask| u64::from_str_radix(mask, 16).ok());
        mask.unwrap_or(0)
    };
    let bit = |signal: i32| 1_u64 << (signal - 1);
    let dumping = DUMPING.iter().map(|&signal| bit(signal)).sum::<u64>();
    let kept = mask("SigBlk") | mask("SigIgn") | mask("SigCgt");
    let pending = mask("SigPnd");
    // A process that is ending has given up its memory first.
    pending & bit(libc::SIGKILL) != 0
        || (pending | mask("ShdPnd")) & dumping & !kept != 0
        || (!status.is_empty() && status_field(status, "VmSize").is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::wait::{Id, WaitPidFlag, waitid};

    #[test]
    fn a_thread_with_a_deadly_signal_is_dying_and_one_that_handles_its_signals_is_not() {
        let status = |pending: &str, shared: &str, caught: &str| {
            format!("VmSize:\t8 kB\nSigPnd:\t{pending}\nShdPnd:\t{shared}\nSigCgt:\t{caught}\n")
        };
        assert!(!says_dying(&status("0", "0", "0")) && !says_dying(""));
        assert!(says_dying(&status("0000000000000100", "0", "0")), "SIGKILL");
        assert!(!says_dying(&status("2000", "2000", "0")), "SIGALRM that is not yet taken");
        assert!(says_dying(&status("0", "4", "0")), "SIGQUIT");
        assert!(!says_dying(&status("0", "4", "4")), "SIGQUIT that is handled");
        assert!(says_dying("SigPnd:\t0\n"), "without memory");
        assert!(!says_dying("PPid:\t2\nKthread:\t1\nSigPnd:\t0\n"), "a thread of the kernel");
        assert!(!says_dying("PPid:\t2\nSigPnd:\t0\n"), "one of an older kernel");
        assert_eq!(is_dying(std::process::id()), Some(false));
        assert_eq!((is_dying(0), is_dying(u32::MAX)), (None, None));
    }

    #[test]
    fn who_holds_a_lock_is_told_from_who_waits_for_it() {
        let line = "3: FLOCK  ADVISORY  WRITE 4711 fe:00:12 0 EOF";
        assert_eq!((lock_holder(line, 12), lock_holder(line, 2)), (Some(4711), None));
        assert_eq!(lock_holder("3: -> FLOCK  ADVISORY  WRITE 4711 fe:00:12 0 EOF", 12), None);
        assert_eq!(lock_holder("4: POSIX  ADVISORY  WRITE 4711 fe:00:12 0 EOF", 12), None);
        assert_eq!(lock_holder("", 0), None);
    }

    #[test]
    fn a_process_that_was_killed_is_told_from_one_that_has_ended_by_itself() {
        for (script, is_killed_by_it) in
            [("kill -9 $$", true), ("ulimit -c 0; kill -6 $$", true), ("exit 9", false)]
        {
            let mut child = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
            let pid = Pid::from_raw(child.id().cast_signed());
            // Its numbers stay until it is waited for.
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            waitid(Id::Pid(pid), flags).unwrap();
            assert_eq!(is_dying(child.id()), Some(true), "{script}");
            assert_eq!(is_killed(pid), is_killed_by_it, "{script}");
            child.wait().unwrap();
            assert!(!is_killed(pid), "it is gone");
        }
        let stat =
            |state: &str, code: &str| format!("7 (a) S 1) {state} {} {code}", "0 ".repeat(48));
        assert!(says_killed(&stat("Z", "9")) && says_killed(&stat("D", "134")));
        assert!(!says_killed(&stat("T", "19")), "stopped");
        assert!(!says_killed(&stat("Z", "0")) && !says_killed(&stat("Z", "512")));
        for odd in ["", "7 (a", "7 (a) Z", "7 (a) Z 1 2 3", &stat("Z", "x")] {
            assert!(!says_killed(odd), "{odd:?}");
        }
    }

    #[test]
    fn rights_are_read_from_masks_and_from_nothing_else() {
        let status = "Name:\tx\nCapEff:\t0000000000000000\nCapBnd:\t00000000a82425fb\n";
        assert_eq!(may_administer(status, "CapEff"), Some(false));
        assert_eq!(may_administer(status, "CapBnd"), Some(true));
        assert_eq!(status_field(status, "Name"), Some("x"));
        for odd in ["", "CapEff", "CapEff:\n", "CapEff:\tzzz", "\0\0:\n:", "CapEffs:\t1"] {
            assert_eq!(may_administer(odd, "CapEff"), None, "{odd:?}");
        }
    }

    #[test]
    fn this_process_has_a_status() {
        assert!(may_administer(&status(), "CapEff").is_some());
    }
}
