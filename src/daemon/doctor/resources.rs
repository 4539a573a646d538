//! Memory and CPUs.

use super::check::{Check, mebibytes, number, text};
use crate::io::process::cgroup::{self, Limits};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// For how many nanoseconds at most a CPU of a virtual machine polls before the hypervisor takes it (cpuidle's governor
/// haltpoll).
const HALT_POLL: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
/// The kernel's own default.
const WANTED_HALT_POLL: u64 = 200_000;

pub(super) fn checks() -> Vec<Check> {
    let limits = cgroup::limits();
    let cpus = |what: &str| text(format!("/sys/devices/system/cpu/{what}"));
    let mine = sched_getaffinity(Pid::from_raw(0)).ok().map(|set| {
        (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).count() as u64
    });
    let mut checks = vec![
        memory_of(text("/proc/meminfo").as_deref(), &limits),
        processors(cpus("possible").as_deref(), cpus("online").as_deref(), mine),
        quota(limits.cpus, mine),
    ];
    let governor = cpus("cpuidle/current_governor");
    checks.extend(idle(governor.as_deref(), text(HALT_POLL).as_deref()));
    checks
}

fn memory_of(meminfo: Option<&str>, limits: &Limits) -> Check {
    let ram = meminfo.and_then(cgroup::in_meminfo);
    let (Some(ram), Some(limit)) = (ram, limits.memory_bytes) else {
        let limit = limits.memory_bytes.map_or("none".to_owned(), mebibytes);
        let ram = ram.map_or("cannot be read".to_owned(), mebibytes);
        return Check::ok("memory", format!("{ram}; limit of the cgroup: {limit}"));
    };
    let found = format!("{}; limit of the cgroup: {}", mebibytes(ram), mebibytes(limit));
    if limit < ram {
        Check::note(
            "memory",
            found,
            "the page cache of files that are read through a mount counts against it",
        )
    } else {
        Check::ok("memory", found)
    }
}

fn processors(possible: Option<&str>, online: Option<&str>, mine: Option<u64>) -> Check {
    let show = |count: Option<u64>| count.map_or("unknown".to_owned(), |count| count.to_string());
    let (possible, online) = (possible.and_then(count), online.and_then(count));
    let found = format!(
        "possible: {}, online: {}, for this process: {}",
        show(possible),
        show(online),
        show(mine)
    );
    if mine.is_some() && mine < online {
        let advice = "a mount can use only those; taskset or the cpuset of the cgroup limits it";
        Check::note("CPUs", found, advice)
    } else {
        Check::ok("CPUs", found)
    }
}

fn quota(cpus: Option<f64>, mine: Option<u64>) -> Check {
    match cpus {
        None => Check::ok("CPU quota", "none"),
        Some(cpus) if mine.is_some_and(|mine| cpus >= mine as f64) => {
            Check::ok("CPU quota", format!("{cpus:.2} CPUs"))
        }
        Some(cpus) => Check::note(
            "CPU quota",
            format!("{cpus:.2} CPUs"),
            "the cgroup throttles a mount that needs more; raise its cpu.max",
        ),
    }
}

/// Checks how long an idle CPU polls, where the governor haltpoll decides: waking it through the hypervisor takes tens of
/// microseconds, for each request of a program that reads alone.
fn idle(governor: Option<&str>, halt_poll: Option<&str>) -> Option<Check> {
    let name = "idle CPUs";
    let nanos = number(halt_poll.filter(|_| governor == Some("haltpoll")))?;
    Some(match nanos {
        0 => Check::note(
            name,
            "the hypervisor takes them at once (guest_halt_poll_ns=0), and each request has to wake one",
            format!("for programs that read alone, as root: echo {WANTED_HALT_POLL} > {HALT_POLL}"),
        ),
        nanos => Check::ok(
            name,
            format!("they poll for up to {} µs (guest_halt_poll_ns={nanos})", nanos / 1000),
        ),
    })
}

/// How many numbers a list such as `0-3,8` has.
fn count(list: &str) -> Option<u64> {
    list.trim().split(',').try_fold(0_u64, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!(count("0-3,8\n"), Some(5));
        assert_eq!(count("7"), Some(1));
        for odd in ["", "-", "3-1", "0-", "0,,1", "a", "0-18446744073709551615", "-1"] {
            assert_eq!(count(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn a_tight_cgroup_is_noted() {
        let limits = |bytes| Limits { memory_bytes: bytes, cpus: None };
        let info = Some("MemFree: 1 kB\nMemTotal:       2048 kB\n");
        assert_eq!(memory_of(info, &limits(None)).found, "2 MiB; limit of the cgroup: none");
        assert_eq!(memory_of(info, &limits(Some(1 << 20))).state, State::Note);
        assert_eq!(memory_of(info, &limits(Some(4 << 20))).state, State::Ok);
        for odd in [None, Some(""), Some("MemTotal: lots kB"), Some("MemTotal:"), Some("\0")] {
            let found = memory_of(odd, &limits(Some(1 << 20))).found;
            assert_eq!(found, "cannot be read; limit of the cgroup: 1 MiB");
        }
    }

    #[test]
    fn fewer_cpus_than_are_online_are_noted() {
        assert_eq!(processors(Some("0-3"), Some("0-1"), Some(2)).state, State::Ok);
        assert_eq!(processors(Some("0-3"), Some("0-3"), Some(1)).state, State::Note);
        assert_eq!(processors(None, Some("junk"), Some(1)).state, State::Ok);
        assert_eq!(quota(None, Some(2)).state, State::Ok);
        assert_eq!(quota(Some(2.0), Some(2)).state, State::Ok);
        assert_eq!(quota(Some(0.5), Some(2)).state, State::Note);
        assert_eq!(quota(Some(0.5), None).found, "0.50 CPUs");
    }

    #[test]
    fn a_virtual_machine_whose_cpus_are_halted_at_once_is_noted() {
        let halted = idle(Some("haltpoll"), Some("0\n")).unwrap();
        assert_eq!(halted.state, State::Note);
        assert!(halted.advice.contains("echo 200000 > /sys/module/haltpoll/"), "{}", halted.advice);
        let polling = idle(Some("haltpoll"), Some("200000\n")).unwrap();
        assert_eq!((polling.state, polling.advice.as_str()), (State::Ok, ""));
        assert!(polling.found.contains("200 µs"), "{}", polling.found);
        // The parameter is there whatever governor is in use.
        for (governor, halt_poll) in [
            (Some("menu"), Some("0")),
            (None, Some("0")),
            (Some("haltpoll"), None),
            (Some("haltpoll"), Some("many")),
        ] {
            assert_eq!(idle(governor, halt_poll), None, "{governor:?} {halt_poll:?}");
        }
    }
}
