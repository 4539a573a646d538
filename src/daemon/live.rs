//! The client of a mount in use: reads and writes its control files.

use super::settings::{self, Shown};
use crate::failure::{Exit, Failure, Reason};
use crate::io::{MAX_ANNOUNCEMENT_BYTES, announce, mounts};
use crate::vfs::CONTROL_DIRECTORY;
use crate::vfs::report::{MountInfo, MountStats};
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A mount of ours.
pub(crate) struct Live {
    root: PathBuf,
}

/// A mount of the host's that is the business of this user.
pub(crate) struct Reached {
    /// As the mount table shows it.
    pub(crate) source: String,
    /// The mount point.
    pub(crate) target: PathBuf,
    /// `None`: its daemon is dead, or it has no control directory.
    pub(crate) live: Option<Live>,
    pub(crate) is_dead: bool,
}

impl Live {
    /// The mounts that this user has made; for root, those of all users.
    ///
    /// # Errors
    /// The mount table cannot be read.
    pub(crate) fn reach_all() -> Result<Vec<Reached>, Failure> {
        let table = mounts::table().map_err(|e| Failure::new(Exit::Mount, e))?;
        let mut found: Vec<Reached> = Vec::new();
        for mount in table.into_iter().filter(|mount| mount.fs_type == mounts::FS_TYPE) {
            let (live, target) = (Self::at(&mount.target), mount.target);
            found.retain(|other| other.target != target);
            let Ok(live) = live else { continue };
            let user = nix::unistd::geteuid();
            // The owner of this file is who has mounted it.
            let settings = fs::metadata(live.path("settings"));
            let owner = settings.as_ref().map(std::os::unix::fs::MetadataExt::uid);
            let kind = settings.as_ref().err().and_then(io::Error::raw_os_error);
            let is_dead = matches!(kind, Some(libc::ENOTCONN | libc::ECONNABORTED));
            let is_meant = match owner {
                Ok(owner) => user.is_root() || owner == user.as_raw(),
                Err(_) => is_dead || kind == Some(libc::ENOENT),
            };
            if is_meant {
                let live = settings.is_ok().then_some(live);
                let source = mount.source.to_string_lossy().into_owned();
                found.push(Reached { source, target, live, is_dead });
            }
        }
        Ok(found)
    }

    /// The mount on `target`.
    ///
    /// # Errors
    /// No dataset is mounted there.
    pub(crate) fn at(target: &Path) -> Result<Self, Failure> {
        let failed = |e: Reason| Failure::new(Exit::Mount, e).context(target.display());
        let root = mounts::resolve(target).map_err(|e| failed(e.into()))?;
        match mounts::at(&root).map_err(|e| failed(e.into()))? {
            Some(mount) if mount.fs_type == mounts::FS_TYPE => Ok(Self { root }),
            _ => Err(failed(
                "no dataset of ffrfs is mounted there (ffrfs list shows where there is)".into(),
            )),
        }
    }

    /// All mounts of this host that can be reached.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn all() -> Result<Vec<Self>, Failure> {
        let table = mounts::table().map_err(|e| Failure::new(Exit::Mount, e))?;
        let mut targets: Vec<PathBuf> = Vec::new();
        for mount in table.into_iter().filter(|mount| mount.fs_type == mounts::FS_TYPE) {
            if !targets.contains(&mount.target) {
                targets.push(mount.target);
            }
        }
        // A mount that is dead, or hidden under another one, cannot be reached.
        let lives: Vec<_> = targets.iter().filter_map(|target| Self::at(target).ok()).collect();
        match lives.is_empty() {
            true => Err(Failure::new(Exit::Mount, "no dataset of ffrfs is mounted")),
            false => Ok(lives),
        }
    }

    /// Where it is mounted.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A control file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(CONTROL_DIRECTORY).join(name)
    }

    /// `info.json`.
    pub(crate) fn info(&self) -> Result<MountInfo, Failure> {
        self.json("info.json")
    }

    /// `stats.json`, as it is now.
    pub(crate) fn stats(&self) -> Result<MountStats, Failure> {
        self.json("stats.json")
    }

    /// `settings`, as they are now.
    pub(crate) fn settings(&self) -> Result<Shown, Failure> {
        self.json("settings")
    }

    /// Changes settings, all of them or none. Gives a line `NAME=VALUE (was VALUE)` for each that is now different.
    ///
    /// # Errors
    /// One of them cannot be changed, or its value is wrong; the mount belongs to another user.
    pub(crate) fn set(&self, settings: &[(String, String)]) -> Result<Vec<String>, Failure> {
        let before = self.settings()?;
        let lines: String =
            settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        if lines.len() > MAX_ANNOUNCEMENT_BYTES {
            return Err(Failure::usage("too many settings at once"));
        }
        let changed = announce(&self.open("settings")?, lines.as_bytes());
        let after = self.settings()?;
        match changed {
            Ok(()) => Ok(settings::differences(&before, &after)),
            Err(error) => {
                let why = after.refused.unwrap_or_else(|| error.to_string());
                Err(Failure::new(Exit::Usage, why).context(self.root.display()))
            }
        }
    }

    /// A control file, open for reading.
    pub(crate) fn open(&self, name: &str) -> Result<File, Failure> {
        let path = self.path(name);
        File::open(&path).map_err(|e| self.failed(&path, e))
    }

    /// Whether it is still there.
    pub(crate) fn is_mounted(&self) -> bool {
        let ours = |mount: mounts::Mount| mount.fs_type == mounts::FS_TYPE;
        mounts::at(&self.root).is_ok_and(|mount| mount.is_some_and(ours))
    }

    fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T, Failure> {
        let path = self.path(name);
        let text = fs::read(&path).map_err(|e| self.failed(&path, e))?;
        serde_json::from_slice(&text).map_err(|e| self.failed(&path, io::Error::other(e)))
    }

    pub(crate) fn failed(&self, path: &Path, error: io::Error) -> Failure {
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "; only root and the user who mounted it may do this"
            }
            io::ErrorKind::NotConnected => {
                "; its daemon is dead: run ffrfs umount, and mount it again"
            }
            io::ErrorKind::NotFound if !self.is_mounted() => "; it was unmounted",
            io::ErrorKind::NotFound => {
                "; it was mounted with --no-control, or by another version of ffrfs"
            }
            _ => "",
        };
        Failure::new(Exit::Mount, format!("{}: {error}{advice}", path.display()))
    }
}
