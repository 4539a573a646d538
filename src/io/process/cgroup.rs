//! The limits of memory and CPU time that the cgroups of this process set (version 1, version 2, and both side by side), and
//! the memory of the machine.
//! Imports nothing of ours.

use std::fs;
use std::path::{Component, Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";

/// The host's memory where it cannot be read.
const ASSUMED_BYTES: u64 = 4 << 30;
/// Version 1 shows "no limit" as a number of whole pages near `i64::MAX`, which is more than this.
const NO_LIMIT_BYTES: u64 = 1 << 62;

/// The tightest limits of a cgroup and its ancestors; `None` where there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Memory, page cache included.
    pub memory_bytes: Option<u64>,
    /// CPU time, in CPUs.
    pub cpus: Option<f64>,
}

/// The limits of this process.
#[must_use]
pub fn limits() -> Limits {
    let cgroups = fs::read("/proc/self/cgroup").unwrap_or_default();
    limits_from(&String::from_utf8_lossy(&cgroups), |file| fs::read_to_string(file).ok())
}

/// The memory that this process may use: the machine's, or the part of it that its cgroup allows.
#[must_use]
pub fn total_bytes() -> u64 {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = in_meminfo(&info).unwrap_or(ASSUMED_BYTES);
    limits().memory_bytes.map_or(machine, |limit| limit.min(machine))
}

/// The bytes of the host's memory, from the text of /proc/meminfo.
#[must_use]
pub fn in_meminfo(info: &str) -> Option<u64> {
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The most processes and threads that the cgroups of this process allow; `None` if there is no limit.
#[must_use]
pub fn most_processes() -> Option<u64> {
    let cgroups = fs::read("/proc/self/cgroup").unwrap_or_default();
    let text = String::from_utf8_lossy(&cgroups);
    let limit = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let hierarchies: &[&str] = match controllers {
            "" => &["", "unified"],
            "pids" => &["pids"],
            _ => return None,
        };
        let places = hierarchies.iter().flat_map(|hierarchy| directories(hierarchy, path));
        let limits = places.filter_map(|at| fs::read_to_string(at.join("pids.max")).ok());
        limits.filter_map(|limit| limit.trim().parse().ok()).min()
    };
    text.lines().filter_map(limit).min()
}

/// The limits of the cgroups in the text of /proc/self/cgroup: `0::/path` for version 2, `4:memory:/path` for version 1.
fn limits_from(cgroups: &str, read: impl Fn(&Path) -> Option<String>) -> Limits {
    let mut limits = Limits::default();
    for line in cgroups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let has = |name| controllers.split(',').any(|controller| controller == name);
        let mut memory = |directory: &str, file: &str| {
            let found =
                directories(directory, path).into_iter().filter_map(|at| read(&at.join(file)));
            let bytes = found.filter_map(|text| memory_bytes(&text));
            limits.memory_bytes = bytes.chain(limits.memory_bytes).min();
        };
        if controllers.is_empty() {
            memory("", "memory.max");
            memory("unified", "memory.max");
        } else if has("memory") {
            memory("memory", "memory.limit_in_bytes");
        }
        let mut cpus = |directory: &str, quota: &dyn Fn(&Path) -> Option<f64>| {
            let found = directories(directory, path).into_iter().filter_map(|at| quota(&at));
            limits.cpus = found.chain(limits.cpus).reduce(f64::min);
        };
        if controllers.is_empty() {
            cpus("", &|at| cpu_max(&read(&at.join("cpu.max"))?));
            cpus("unified", &|at| cpu_max(&read(&at.join("cpu.max"))?));
        } else if has("cpu") {
            let quota = |at: &Path| {
                let quota = read(&at.join("cpu.cfs_quota_us"))?;
                let period = read(&at.join("cpu.cfs_period_us"))?;
                cpu_max(&format!("{} {}", quota.trim(), period.trim()))
            };
            cpus("cpu", &quota);
        }
    }
    limits
}

/// The directories of a cgroup and its ancestors. In a container the path may be the host's, which does not exist here,
/// or begin with `..`: then the root counts, which is the container's own cgroup.
fn directories(hierarchy: &str, path: &str) -> Vec<PathBuf> {
    let root = Path::new(ROOT).join(hierarchy);
    let path = Path::new(path.trim_start_matches('/'));
    if path.components().any(|component| !matches!(component, Component::Normal(_))) {
        return vec![root];
    }
    path.ancestors().map(|part| root.join(part)).collect()
}

/// Parses `max` or a number of bytes.
fn memory_bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|&bytes| bytes < NO_LIMIT_BYTES)
}

/// Parses `max 100000` or `50000 100000`: microseconds of CPU time in each period, and the period.
fn cpu_max(text: &str) -> Option<f64> {
    let mut fields = text.split_whitespace().map(|field| field.parse::<u64>().ok());
    match (fields.next()??, fields.next()??) {
        (_, 0) => None,
        (quota, period) => Some(quota as f64 / period as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn limits_of(cgroups: &str, files: &[(&str, &str)]) -> Limits {
        let files: HashMap<_, _> =
            files.iter().map(|(path, text)| (Path::new(ROOT).join(path), *text)).collect();
        limits_from(cgroups, |path| files.get(path).map(|&text| text.to_owned()))
    }

    #[test]
    fn the_tightest_limit_on_the_way_up_counts() {
        let files = [
            ("a/b/memory.max", "max\n"),
            ("a/memory.max", "1048576\n"),
            ("memory.max", "2097152\n"),
            ("a/b/cpu.max", "150000 100000\n"),
            ("a/cpu.max", "max 100000\n"),
        ];
        let limits = limits_of("0::/a/b\n", &files);
        assert_eq!(limits, Limits { memory_bytes: Some(1 << 20), cpus: Some(1.5) });
    }

    #[test]
    fn version_1_has_a_hierarchy_for_each_controller() {
        let cgroups = "9:name=systemd:/\n4:memory:/box\n2:cpu,cpuacct:/box\n0::/\n";
        let files = [
            ("memory/box/memory.limit_in_bytes", "4096\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cpu/box/cpu.cfs_quota_us", "50000\n"),
            ("cpu/box/cpu.cfs_period_us", "100000\n"),
            ("cpu/cpu.cfs_quota_us", "-1\n"),
            ("cpu/cpu.cfs_period_us", "100000\n"),
        ];
        let limits = limits_of(cgroups, &files);
        assert_eq!(limits, Limits { memory_bytes: Some(4096), cpus: Some(0.5) });
    }

    #[test]
    fn for_a_path_that_does_not_exist_or_leads_out_the_root_counts() {
        let files = [("memory.max", "8192"), ("../memory.max", "1"), ("memory/x", "")];
        for path in ["/host/only", "/../../other", "/a/../..", "/.", ""] {
            let limits = limits_of(&format!("0::{path}"), &files);
            assert_eq!(limits.memory_bytes, Some(8192), "{path:?}");
        }
    }

    #[test]
    fn odd_contents_are_no_limits() {
        for odd in
            ["", "max", "-1", "9223372036854771712", "1e9", "1 0", "\0", "99999999999999999999"]
        {
            let files = [("memory.max", odd), ("cpu.max", odd)];
            assert_eq!(limits_of("0::/\n", &files), Limits::default(), "{odd:?}");
        }
        for odd in ["", ":", "0:", "x", "0::", "::::\n\n0"] {
            assert_eq!(limits_of(odd, &[]), Limits::default(), "{odd:?}");
        }
    }

    #[test]
    fn the_size_of_the_memory_is_read_from_meminfo() {
        assert_eq!(
            in_meminfo("MemTotal:       24684084 kB\nMemFree: 1 kB\n"),
            Some(25_276_502_016)
        );
        for odd in ["", "MemTotal:", "MemTotal: x kB", "MemTotal: 99999999999999999999 kB"] {
            assert_eq!(in_meminfo(odd), None, "{odd}");
        }
    }
}
