//! The client of a mount in use: reads and writes its control files.

use super::patience::{self, PATIENCE, Patient};
use super::settings::{self, Shown};
use crate::failure::{Exit, Failure, Reason};
use crate::io::MAX_ANNOUNCEMENT_BYTES;
use crate::io::mount::{mounts, unshared};
use crate::vfs::CONTROL_DIRECTORY;
use crate::vfs::report::{MountInfo, MountStats};
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a mount that has just answered may take for its next answer, even after the deadline.
const NEXT_ANSWER: Duration = Duration::from_secs(1);

/// A mount of ours. A question to it fails if its daemon does not answer in time.
pub(crate) struct Live {
    root: PathBuf,
    /// The only user who may look into the mount, if it is not shared, and that is another user.
    private_to: Option<u32>,
    patient: Patient,
}

/// A mount of the host that this user has made; for root, any mount.
pub(crate) struct Reached {
    /// The source, as the mount table shows it.
    pub(crate) source: String,
    /// The mount point.
    pub(crate) target: PathBuf,
    pub(crate) state: Answer,
}

/// How a mount answers.
pub(crate) enum Answer {
    /// The mount can be asked.
    Live(Live),
    /// Its daemon has ended.
    Dead,
    /// Its daemon does not answer in time.
    Stopped,
    /// The mount has no control directory.
    Silent,
    /// Its user has not shared the mount, and root cannot look into it as that user.
    Private,
    /// The mount was not asked: the system could not make a process for the question.
    Unasked(io::Error),
}

impl Reached {
    /// Begins to read `info.json` and `stats.json`; `None` for a mount that cannot be asked.
    fn ask_figures(&self) -> Option<[io::Result<patience::Asked<'_>>; 2]> {
        let Answer::Live(live) = &self.state else { return None };
        Some(["info.json", "stats.json"].map(|name| live.patient.ask_bytes(&live.path(name))))
    }
}

impl Live {
    /// The mounts that this user has made; for root, those of all users.
    ///
    /// # Errors
    /// The mount table cannot be read.
    pub(crate) fn reach_all() -> Result<Vec<Reached>, Failure> {
        let table = mounts::table().map_err(|e| Failure::new(Exit::Mount, e))?;
        let mut lives: Vec<(mounts::Mount, Live)> = Vec::new();
        for mount in table.into_iter().filter(|mount| mount.fs_type == mounts::FS_TYPE) {
            lives.retain(|(other, _)| other.target != mount.target);
            if let Ok(live) = Self::at(&mount.target) {
                lives.push((mount, live));
            }
        }
        // All mounts are asked before the first answer is waited for: several may be stopped.
        let asked: Vec<_> = lives.iter().map(|(_, live)| live.ask_owner()).collect();
        let deadline = Instant::now() + PATIENCE;
        let owners = asked.into_iter().map(|asked| asked.and_then(|asked| asked.owner(deadline)));
        let owners: Vec<_> = owners.collect();
        let user = nix::unistd::geteuid();
        let mut reached = Vec::new();
        for ((mount, live), owner) in lives.into_iter().zip(owners) {
            let is_own = || user.is_root() || mount.user == Some(user.as_raw());
            let state = match owner {
                Ok(owner) if user.is_root() || owner == user.as_raw() => Answer::Live(live),
                Ok(_) => continue,
                Err(e) if patience::is_unmade(&e) && is_own() => Answer::Unasked(e),
                Err(e) if mounts::is_dead(&e) => Answer::Dead,
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied && user.is_root() => {
                    Answer::Private
                }
                Err(e) => match e.kind() {
                    // The only user who may look into the mount may have killed the process that asked.
                    io::ErrorKind::TimedOut | io::ErrorKind::BrokenPipe => Answer::Stopped,
                    io::ErrorKind::NotADirectory if live.is_mounted() => Answer::Silent,
                    // A daemon of another version serves the mount, and does not have this file.
                    io::ErrorKind::NotFound if is_own() => Answer::Live(live),
                    _ => continue,
                },
            };
            let source = mount.source.to_string_lossy().into_owned();
            reached.push(Reached { source, target: mount.target, state });
        }
        Ok(reached)
    }

    /// `info.json` and `stats.json` of each of these mounts; `None` for a mount that does not give both.
    pub(crate) fn figures(mounts: &[Reached]) -> Vec<Option<(MountInfo, MountStats)>> {
        // All mounts are asked first, as in `reach_all`.
        let asked: Vec<_> = mounts.iter().map(Reached::ask_figures).collect();
        let deadline = Instant::now() + PATIENCE;
        let answered = asked.into_iter().map(|asked| {
            let [info, stats] = asked?;
            let info = info.and_then(|asked| asked.answer(deadline)).ok()?;
            // Another mount may have used up the time, and this one answers.
            let deadline = deadline.max(Instant::now() + NEXT_ANSWER);
            let stats = stats.and_then(|asked| asked.answer(deadline)).ok()?;
            Some((serde_json::from_slice(&info).ok()?, serde_json::from_slice(&stats).ok()?))
        });
        answered.collect()
    }

    /// Asks for the owner of `settings`, who is the user that has made the mount.
    fn ask_owner(&self) -> io::Result<patience::Asked<'_>> {
        self.patient.ask_owner(&self.path("settings"))
    }

    /// The mount on `target`.
    ///
    /// # Errors
    /// No dataset is mounted there.
    pub(crate) fn at(target: &Path) -> Result<Self, Failure> {
        let failed = |e: Reason| Failure::new(Exit::Mount, e).context(target.display());
        let root = mounts::resolve(target).map_err(|e| failed(e.into()))?;
        match mounts::at(&root).map_err(|e| failed(e.into()))? {
            Some(mount) if mount.fs_type == mounts::FS_TYPE => {
                let private_to = unshared::other_user(&mount);
                Ok(Self { root, private_to, patient: Patient::of(&mount) })
            }
            _ => Err(failed(
                "no dataset of ffrfs is mounted there (ffrfs list shows all that are)".into(),
            )),
        }
    }

    /// All mounts of this host that can be reached.
    ///
    /// # Errors
    /// No mount can be reached.
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

    /// The mount point.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The path of a control file.
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

    /// Changes all of these settings, or none of them. Returns a line `NAME=VALUE (was VALUE)` for each setting that is now
    /// different.
    ///
    /// # Errors
    /// A setting cannot be changed, or its value is wrong; or the mount belongs to another user.
    pub(crate) fn set(&self, settings: &[(String, String)]) -> Result<Vec<String>, Failure> {
        let before = self.settings()?;
        let lines: String =
            settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        if lines.len() > MAX_ANNOUNCEMENT_BYTES {
            return Err(Failure::usage("too many settings at once"));
        }
        let changed = self.patient.announce(&self.path("settings"), lines.as_bytes());
        let after = self.settings()?;
        match changed {
            Ok(()) => Ok(settings::differences(&before, &after)),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(self.failed(&self.path("settings"), error))
            }
            Err(error) => {
                let why = after.refused.unwrap_or_else(|| error.to_string());
                Err(Failure::new(Exit::Usage, why).context(self.root.display()))
            }
        }
    }

    /// All bytes of a control file.
    pub(crate) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.patient.read(&self.path(name))
    }

    /// Whether the mount is still there.
    pub(crate) fn is_mounted(&self) -> bool {
        let ours = |mount: mounts::Mount| mount.fs_type == mounts::FS_TYPE;
        mounts::at(&self.root).is_ok_and(|mount| mount.is_some_and(ours))
    }

    fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T, Failure> {
        let path = self.path(name);
        let text = self.read(name).map_err(|e| self.failed(&path, e))?;
        serde_json::from_slice(&text).map_err(|_| {
            let why = "another version of ffrfs serves the mount, and this one does not know what it says; use that \
                       one, or unmount it, and mount it again";
            Failure::new(Exit::Mount, format!("{}: {why}", path.display()))
        })
    }

    pub(crate) fn failed(&self, path: &Path, error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::TimedOut {
            return patience::unanswered(&self.root, &error);
        }
        let root = self.root.display();
        let advice = match (error.kind(), self.private_to) {
            (io::ErrorKind::PermissionDenied, Some(user)) => {
                let why = private(user);
                return Failure::new(Exit::Mount, format!("{root}: {error}: {why}"));
            }
            (io::ErrorKind::PermissionDenied, None) => {
                "; only root and the user who mounted it may do this"
            }
            (io::ErrorKind::NotConnected, _) => {
                "; its daemon is dead: run ffrfs umount, and mount it again"
            }
            (io::ErrorKind::NotFound | io::ErrorKind::NotADirectory, _) if !self.is_mounted() => {
                return Failure::new(Exit::Mount, format!("{root}: it was unmounted"));
            }
            (io::ErrorKind::NotFound, _) => "; another version of ffrfs serves it",
            (io::ErrorKind::NotADirectory, _) => {
                let why = "mounted without its control directory (--no-control): it has no figures and no settings";
                return Failure::new(Exit::Mount, format!("{root}: {why}"));
            }
            _ => "",
        };
        Failure::new(Exit::Mount, format!("{}: {error}{advice}", path.display()))
    }
}

/// The reason why this process may not look into a mount that `user` has not shared, and the advice.
pub(super) fn private(user: u32) -> String {
    let not_shared = unshared::said_of(user);
    if nix::unistd::geteuid().is_root() {
        return format!(
            "{not_shared}; root can look into it only as that user, which is refused here (may that user enter the \
             directories above it?): sudo -u '#{user}' ffrfs ..."
        );
    }
    let who = if user == 0 { "root" } else { "that user and root" };
    format!("{not_shared}, and only {who} may look into it: sudo ffrfs ...")
}
