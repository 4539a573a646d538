//! The targets of the benchmark: a private mount of containers, or an existing directory.
//!
//! Imports `row.rs`.

use super::row::Unread;
use crate::failure::{Exit, Failure, say};
use crate::interrupt::Interrupt;
use crate::io::mount::mounts;
use std::fs::File;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use walkdir::WalkDir;

/// A container, a mount or a directory.
pub(super) struct Target {
    path: PathBuf,
    access: Access,
}

/// How a target is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// A directory, as it is.
    Directory,
    /// A container, mounted with the options that the user gave.
    Mounted,
    /// As `Mounted`, but writable: the kernel then forgets the attributes of a file after each read.
    Writable,
}

/// Mount options that decide whether the kernel regards the mount as read-only.
const WRITABLE: [&str; 3] = ["ro", "rw", "control"];

/// A target, ready to be read.
pub(super) enum Opened<'a> {
    Directory(&'a Path),
    Mount(Private),
}

/// A private mount, which is unmounted when the value is dropped.
pub(super) struct Private {
    point: PathBuf,
    _directory: TempDir,
}

impl Target {
    /// The targets of a path: a directory itself; a container mounted with these options and also with `rw`, unless the
    /// options choose one of the two.
    pub(super) fn all_of(path: &Path, options: &[String]) -> Vec<Self> {
        let names = options.iter().flat_map(|options| options.split(','));
        let mut names = names.filter_map(|option| option.split('=').next());
        let accesses: &[Access] = match path.is_dir() {
            true => &[Access::Directory],
            false if names.any(|name| WRITABLE.contains(&name)) => &[Access::Mounted],
            false => &[Access::Mounted, Access::Writable],
        };
        accesses.iter().map(|&access| Self { path: path.to_owned(), access }).collect()
    }

    pub(super) fn name(&self) -> String {
        let path = self.path.display();
        if self.access == Access::Writable { format!("{path} (rw)") } else { path.to_string() }
    }

    pub(super) fn access(&self) -> &'static str {
        match self.access {
            Access::Directory => "as it is",
            Access::Mounted => "mounted for this",
            Access::Writable => "mounted for this with rw",
        }
    }

    /// Mounts containers.
    pub(super) fn open(&self, options: &[String]) -> Result<Opened<'_>, Failure> {
        if self.access == Access::Directory {
            return Ok(Opened::Directory(&self.path));
        }
        let failed = |e| Failure::output("a temporary directory", e);
        let directory =
            tempfile::Builder::new().prefix("ffrfs-bench-").tempdir().map_err(failed)?;
        let point = directory.path().join("mnt");
        std::fs::create_dir(&point).map_err(failed)?;
        let program = std::env::current_exe().map_err(|e| Failure::new(Exit::Mount, e))?;
        let mut command = Command::new(program);
        command.arg("mount");
        for option in options {
            command.args(["-o", option]);
        }
        if self.access == Access::Writable {
            command.args(["-o", "rw"]);
        }
        command.arg("--").arg(&self.path).arg(&point);
        // A file, as a daemon may keep the end of a pipe.
        let said = directory.path().join("said");
        let stderr = File::create(&said).map_err(failed)?;
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).status();
        let status = status.map_err(|e| Failure::new(Exit::Mount, e))?;
        let mut said = Self::said(&std::fs::read(&said).unwrap_or_default(), &point);
        let why = if status.success() { None } else { said.pop() };
        for line in said {
            say(format_args!("ffrfs: {line}"));
        }
        let mount = Private { point, _directory: directory };
        match status.code() {
            Some(0) => Ok(Opened::Mount(mount)),
            code => {
                let exit = match code {
                    Some(1) => Exit::Usage,
                    Some(2) => Exit::Unreadable,
                    Some(3) => Exit::Malformed,
                    Some(4) => Exit::Checksum,
                    Some(7) => Exit::Denied,
                    Some(8) => Exit::Unreachable,
                    Some(9) => Exit::Password,
                    _ => Exit::Mount,
                };
                let why =
                    why.unwrap_or_else(|| format!("{}: it cannot be mounted", self.path.display()));
                Err(Failure::new(exit, why))
            }
        }
    }

    /// The lines that a mount has printed, without its mount point, which nobody has chosen.
    fn said(text: &[u8], point: &Path) -> Vec<String> {
        let place = format!(" on {}", point.display());
        let text = String::from_utf8_lossy(text).replace(&format!("{place}: the source"), "");
        let text = text.replace(&place, "");
        let lines = text.lines().map(|line| line.strip_prefix("ffrfs: ").unwrap_or(line));
        lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }
}

impl Opened<'_> {
    pub(super) fn path(&self) -> &Path {
        match self {
            Opened::Directory(path) => path,
            Opened::Mount(mount) => &mount.point,
        }
    }

    /// The files that a mount could not read; of what shows no such list, none.
    pub(super) fn unread(&self) -> Unread {
        Unread::at(self.path())
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // A program that has just listed all mounts may keep the mount busy for a moment.
        for _ in 0..50 {
            if !is_mounted(&self.point) || mounts::unmount(&self.point, false).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = mounts::unmount(&self.point, true);
    }
}

fn is_mounted(point: &Path) -> bool {
    mounts::at(point).ok().flatten().is_some()
}

/// The files below a directory in listed order, or `limit` of them, evenly spread, if there are more.
pub(super) fn files(
    root: &Path,
    limit: Option<NonZeroU64>,
    interrupt: &Interrupt,
) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for entry in WalkDir::new(root).sort_by_file_name() {
        let entry = entry.map_err(|e| Failure::unreadable(root.display(), e.into()))?;
        if entry.file_type().is_file() {
            files.push(entry.into_path());
        }
        if interrupt.requested() {
            break;
        }
    }
    if files.is_empty() && !interrupt.requested() {
        return Err(Failure::usage(format!("{}: there is no file in it", root.display())));
    }
    let (count, limit) = (files.len(), limit.map_or(u64::MAX, NonZeroU64::get));
    if (count as u64) <= limit {
        return Ok(files);
    }
    let spread = (0..limit).map(|n| (u128::from(n) * count as u128 / u128::from(limit)) as usize);
    Ok(spread.map(|at| std::mem::take(&mut files[at])).collect())
}

/// Drops the page cache of the machine.
pub(super) fn drop_caches() -> Result<(), Failure> {
    nix::unistd::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").map_err(|e| {
        Failure::new(Exit::Usage, e).context("--cold: caches cannot be dropped (only root may)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_mounted_as_it_comes_and_with_rw_unless_options_choose() {
        let names = |path: &str, options: &[&str]| {
            let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
            let all = Target::all_of(Path::new(path), &options);
            all.iter().map(Target::name).collect::<Vec<_>>()
        };
        assert_eq!(names("a.zip", &[]), ["a.zip", "a.zip (rw)"]);
        assert_eq!(names("a.zip", &["memory=1G,verify=off"]), ["a.zip", "a.zip (rw)"]);
        for option in ["rw", "memory=1G,ro", "control=rw"] {
            assert_eq!(names("a.zip", &[option]), ["a.zip"], "{option}");
        }
        assert_eq!(names("/", &[]), ["/"]);
    }
}
