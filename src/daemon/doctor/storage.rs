//! Checks of a container, its file system and its disk.

use super::check::{Check, number, text};
use crate::dataset::{self, Options};
use crate::failure::Failure;
use crate::format::{self, counted};
use crate::io::files::probe::{self, Direct};
use crate::io::mount::mounts::{self, Mount};
use crate::tools::progress::Terminal;
use indicatif::HumanCount;
use nix::sys::stat::{major, minor};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

pub(crate) fn checks(name: &str, path: &Path) -> Vec<Check> {
    let opened = match dataset::open(&[path.into()], &Options::default(), &Terminal::watch()) {
        Ok(opened) => opened,
        Err(failure) => return vec![Check::problem(name, failure.to_string(), advice(&failure))],
    };
    let samples = HumanCount(opened.dataset.len());
    let mut checks = vec![Check::ok(name, counted(samples, "sample"))];
    let first = opened.store.parts().first();
    let Some(path) = first.and_then(|part| part.name().as_path()) else { return checks };
    let device = fs::metadata(path).map_or(0, |metadata| metadata.dev());
    let table = mounts::table().unwrap_or_default();
    let mount = mount_of(device, path, &table);
    checks.push(Check::ok(
        format!("{name}: file system"),
        mount.map_or("unknown", |mount| mount.fs_type.as_str()),
    ));
    checks.push(direct(name, probe::direct(path)));
    checks.push(block_device(name, directory_of_device(device, mount)));
    checks
}

/// The advice for a container that cannot be opened, where the error itself has no advice.
fn advice(failure: &Failure) -> &'static str {
    use format::Error::{Checksum, Malformed, Undecodable};
    match failure.reason::<format::Error>() {
        Some(Malformed { format: "dataset", .. }) => {
            "docs/formats.md lists the formats that are read"
        }
        Some(Malformed { .. } | Checksum { .. } | Undecodable { .. }) => {
            "ffrfs verify lists the damage; --allow-damaged mounts the samples that are intact"
        }
        _ => "",
    }
}

/// The mount with this device number, or else the innermost mount above `path`: files on btrfs and overlayfs have other device
/// numbers than their mounts.
fn mount_of<'a>(device: u64, path: &Path, table: &'a [Mount]) -> Option<&'a Mount> {
    let number = format!("{}:{}", major(device), minor(device));
    let by_number = table.iter().rev().find(|mount| mount.device == number);
    let inside = table.iter().rev().filter(|mount| path.starts_with(&mount.target));
    by_number.or_else(|| inside.max_by_key(|mount| mount.target.as_os_str().len()))
}

fn direct(name: &str, outcome: io::Result<Direct>) -> Check {
    let check = format!("{name}: O_DIRECT");
    match outcome {
        Ok(Direct::Works { memory_bytes, offset_bytes }) => Check::ok(
            check,
            format!(
                "works; memory aligned to {}, offsets to {offset_bytes}",
                counted(memory_bytes, "byte")
            ),
        ),
        Ok(Direct::Refused) => Check::note(
            check,
            "its file system does not support it: reads go through the page cache",
            "on ext4, xfs or btrfs a sample is cached once instead of twice",
        ),
        Err(e) => Check::note(check, format!("cannot be tested: {e}"), ""),
    }
}

/// The directory `queue` in which /sys describes the disk of a partition, a disk, or a file system's source.
fn directory_of_device(device: u64, mount: Option<&Mount>) -> Option<PathBuf> {
    let of_source = || fs::metadata(&mount?.source).ok().map(|metadata| metadata.rdev());
    let directory = |device: u64| {
        let directory = format!("/sys/dev/block/{}:{}", major(device), minor(device));
        let directory = fs::canonicalize(directory).ok()?;
        [directory.join("queue"), directory.parent()?.join("queue")]
            .into_iter()
            .find(|q| q.is_dir())
    };
    directory(device).or_else(|| directory(of_source()?))
}

/// The directory in which /sys describes the disk of a file.
pub(crate) fn disk_of(path: &Path) -> Option<PathBuf> {
    let device = fs::metadata(path).ok()?.dev();
    let table = mounts::table().unwrap_or_default();
    let queue = directory_of_device(device, mount_of(device, path, &table))?;
    queue.parent().map(Path::to_owned)
}

fn block_device(name: &str, queue: Option<PathBuf>) -> Check {
    let check = format!("{name}: block device");
    let Some(queue) = queue else {
        return Check::note(check, "not found in /sys", "");
    };
    let disk = queue.parent().and_then(Path::file_name).unwrap_or_default();
    describe(check, &disk.to_string_lossy(), |file| text(queue.join(file)))
}

fn describe(check: String, disk: &str, read: impl Fn(&str) -> Option<String>) -> Check {
    let show = |file| number(read(file).as_deref()).map_or("?".to_owned(), |n| n.to_string());
    let found = format!(
        "{disk}: read_ahead_kb {}, nr_requests {}, rotational {}",
        show("read_ahead_kb"),
        show("nr_requests"),
        show("rotational")
    );
    if number(read("rotational").as_deref()) == Some(1) {
        Check::note(check, found, "a rotating disk: random reads are slow")
    } else {
        Check::ok(check, found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    fn mount(target: &str, fs_type: &str, device: &str) -> Mount {
        Mount {
            number: 0,
            target: target.into(),
            fs_type: fs_type.to_owned(),
            source: "none".into(),
            device: device.to_owned(),
            user: None,
            private_to: None,
        }
    }

    #[test]
    fn a_file_system_is_found_by_number_or_by_the_longest_path() {
        let table = [
            mount("/", "ext4", "8:1"),
            mount("/data", "btrfs", "0:40"),
            mount("/data2", "xfs", "8:2"),
        ];
        let found = |device, path| {
            mount_of(device, Path::new(path), &table).map(|mount| mount.fs_type.as_str())
        };
        assert_eq!(found(nix::sys::stat::makedev(8, 2), "/bind/x.ffr"), Some("xfs"));
        assert_eq!(found(nix::sys::stat::makedev(0, 99), "/data/x.ffr"), Some("btrfs"));
        assert_eq!(found(nix::sys::stat::makedev(0, 99), "/data3/x.ffr"), Some("ext4"));
        assert_eq!(mount_of(0, Path::new("/x"), &[]), None);
    }

    #[test]
    fn a_disk_with_missing_or_odd_figures_is_described() {
        let check = describe("c".to_owned(), "vda", |_| None);
        assert_eq!(check.found, "vda: read_ahead_kb ?, nr_requests ?, rotational ?");
        let check = describe("c".to_owned(), "vda", |_| Some("\x1b[0m\n-1".to_owned()));
        assert_eq!(check.found, "vda: read_ahead_kb ?, nr_requests ?, rotational ?");
        let check = describe("c".to_owned(), "sda", |_| Some("1\n".to_owned()));
        assert_eq!(check.state, State::Note);
        assert!(block_device("c", None).found.contains("not found"));
    }

    #[test]
    fn direct_reads_are_reported_with_their_alignment() {
        let works = direct("c", Ok(Direct::Works { memory_bytes: 4, offset_bytes: 512 }));
        assert_eq!(works.state, State::Ok);
        assert!(works.found.contains("to 4 bytes, offsets to 512"), "{}", works.found);
        assert_eq!(direct("c", Ok(Direct::Refused)).state, State::Note);
        assert_eq!(direct("c", Err(io::Error::from_raw_os_error(libc::EIO))).state, State::Note);
    }
}
