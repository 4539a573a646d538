//! The request for a mount.

use super::place;
use crate::daemon::memory;
use crate::daemon::metrics::Address;
use crate::daemon::reload::Configured;
use crate::daemon::sandbox::Sandbox;
use crate::daemon::settings::LiveSettings;
use crate::dataset::{self, NameOptions};
use crate::failure::{Exit, Failure};
use crate::format::PartName;
use crate::io::mount::{made, mounts};
use crate::io::process::cgroup;
use crate::transport::{MountOptions, Readdirplus, Transport};
use crate::vfs::Options;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A mount to be made.
#[derive(Debug)]
pub(crate) struct MountRequest {
    /// Containers, or directories, globs or brace lists of them.
    pub(crate) sources: Vec<PartName>,
    /// A directory, or /dev/fd/N.
    pub(crate) target: PathBuf,
    /// Whether the directory is made if it is missing, and then removed after the mount.
    pub(crate) makes_target: bool,
    /// How containers are opened.
    pub(crate) open: dataset::Options,
    /// How samples are named.
    pub(crate) names: NameOptions,
    /// How the dataset is served.
    pub(crate) settings: MountSettings,
    /// The config file, if there is one.
    pub(crate) configured: Option<Configured>,
    /// The mount options of the command line, as `name` or `name=value`; `info.json` shows them.
    pub(crate) given: Vec<String>,
    /// The mount namespace to mount in (a file such as /proc/PID/ns/mnt), if not the caller's.
    pub(crate) namespace: Option<PathBuf>,
    /// Serve in this process instead of a daemon.
    pub(crate) foreground: bool,
    /// The names of the sources, once they were looked at.
    pub(crate) known: OnceLock<Known>,
}

/// The names of a mount's sources. Sources are looked at once, at the start: later they may hang.
#[derive(Debug)]
pub(crate) struct Known {
    /// The name of the dataset.
    name: String,
    /// The names of the sources in messages.
    names: Vec<String>,
}

/// How a dataset is served.
#[derive(Debug, Default)]
pub(crate) struct MountSettings {
    /// All users may access the mount.
    pub(crate) allow_other: bool,
    /// Root may access the mount, besides the user who mounts.
    pub(crate) allow_root: bool,
    /// Whether the kernel refuses all writes; by default it does.
    pub(crate) ro: Option<bool>,
    /// No user may write to .ffrfs/prefetch.
    pub(crate) control_ro: bool,
    /// The root has no control directory.
    pub(crate) no_control: bool,
    /// No program can be run from the mount.
    pub(crate) noexec: bool,
    /// The source that the mount table shows, if not the containers.
    pub(crate) fsname: Option<String>,
    /// Owner of all files, if not the user who mounts.
    pub(crate) uid: Option<u32>,
    /// Group of all files, if not that of the user who mounts.
    pub(crate) gid: Option<u32>,
    /// Permission bits that files are shown without.
    pub(crate) fmask: u16,
    /// Permission bits that directories are shown without.
    pub(crate) dmask: u16,
    /// Settings that can be changed while mounted.
    pub(crate) live: LiveSettings,
    /// Samples have extended attributes.
    pub(crate) xattrs: bool,
    /// Whether a listing brings attributes.
    pub(crate) readdirplus: Readdirplus,
    /// How requests come from the kernel.
    pub(crate) transport: Transport,
    /// How often in a minute another process goes on if the one that serves dies.
    pub(crate) restarts: u16,
    /// Whether the user has set `restarts`: unless it is 0, a mount is then refused if no other process could go on with it.
    pub(crate) insists_on_restarts: bool,
    /// Whether the daemon is confined.
    pub(crate) sandbox: Sandbox,
    /// Threads that serve requests, if not one a CPU.
    pub(crate) threads: Option<u16>,
    /// Where counters for Prometheus are served.
    pub(crate) metrics: Option<Address>,
    /// Where messages go, if not to journald or syslog.
    pub(crate) log_file: Option<PathBuf>,
}

/// A mount point that is removed after the mount.
#[derive(Debug)]
pub(super) struct MadePoint {
    pub(super) path: PathBuf,
    /// Whether it was made for this mount; else it was left from another mount.
    pub(super) is_new: bool,
}

/// How the program that mounts prints failures, and ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    /// Prints a failure of the daemon, before it ends.
    pub(crate) print: fn(&Failure),
    /// The exit code for a failure of the daemon.
    pub(crate) exit_code: fn(&Failure) -> u8,
    /// Ends the process at once.
    pub(crate) end: fn(Exit) -> !,
}

impl MountRequest {
    /// The dataset, as the mount table shows it: in one line.
    pub(super) fn name(&self) -> String {
        self.known().name.replace(['\n', '\0'], "?")
    }

    fn known(&self) -> &Known {
        self.known.get_or_init(|| {
            let given = self.settings.fsname.clone().filter(|name| !name.is_empty());
            let name = given.unwrap_or_else(|| name_of(&self.sources));
            Known { name, names: place::names(&self.sources, true) }
        })
    }

    /// An error with the source and the mount point in it.
    pub(crate) fn name_in(&self, failure: Failure) -> Failure {
        if self.known.get().is_none() && place::is_of_silence(&failure) {
            let names = place::names(&self.sources, false);
            let name = names.first().map_or("", String::as_str);
            return place::known_in(failure, name, &names, self.sources.len(), &self.target);
        }
        let Known { name, names } = self.known();
        place::known_in(failure, name, names, self.sources.len(), &self.target)
    }

    /// Makes the mount point, if it is to be made and is missing. A mount point that was left from a mount whose daemon was
    /// killed is taken over.
    pub(super) fn make_target(&self) -> Result<Option<MadePoint>, Failure> {
        let target = &self.target;
        if !self.makes_target {
            return Ok(None);
        }
        let user = nix::unistd::geteuid().as_raw();
        let made = std::path::absolute(target).and_then(|path| match made::make(&path) {
            Ok(()) => Ok(Some(MadePoint { path, is_new: true })),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && may_hide(&path)? => {
                Ok(made::is_made(&path, user).then_some(MadePoint { path, is_new: false }))
            }
            Err(e) => Err(e),
        });
        let hint = "; name another mount point: ffrfs mount SOURCE… MOUNTPOINT";
        made.map_err(|e| {
            Failure::new(Exit::Mount, format!("cannot make {}: {e}{hint}", target.display()))
        })
    }

    /// Makes all paths absolute: the daemon changes its working directory.
    pub(super) fn make_absolute(&mut self) -> Result<(), Failure> {
        let paths = [&mut self.settings.log_file, &mut self.open.indexes.spool];
        for path in paths.into_iter().flatten() {
            *path = std::path::absolute(&*path).map_err(|e| Failure::output(path.display(), e))?;
        }
        if let Some(address) = &mut self.settings.metrics {
            address.absolute().map_err(|e| Failure::output("metrics", e))?;
        }
        Ok(())
    }
}

/// Whether a mount whose user has named no mount point may cover this path: an empty directory, or a mount of ours, of which
/// more is said later.
fn may_hide(path: &Path) -> io::Result<bool> {
    if mounts::at(path)?.is_some_and(|mount| mount.fs_type == mounts::FS_TYPE) {
        return Ok(true);
    }
    if !path.is_dir() {
        return Ok(false);
    }
    match std::fs::read_dir(path)?.next() {
        None => Ok(true),
        Some(_) => Err(io::Error::other("it is there, and the mount would hide the files in it")),
    }
}

impl MountSettings {
    fn threads(&self) -> usize {
        self.threads.map_or(cpus(), usize::from)
    }

    /// The approximate number of threads of a busy daemon and its supervisor.
    pub(super) fn most_threads(&self) -> usize {
        const OTHERS: usize = 8;
        3 * self.threads() + workers(false) + OTHERS + usize::from(self.restarts > 0)
    }

    /// The options of the vfs.
    pub(super) fn vfs(&self, has_objects: bool) -> Options {
        // The kernel can only open a mount to all users: permissions keep out all but the owner and root.
        let private = if self.allow_root { 0o077 } else { 0 };
        // With `ro` the kernel refuses to write, until `remount,rw`.
        let writable = if self.control_ro { 0o444 } else { 0o666 };
        Options {
            verify: self.live.verify(),
            cache_bytes: self.live.cache_bytes(),
            fetching_bytes: memory::for_fetching(self.live.memory_bytes()),
            kernel_bytes: cgroup::total_bytes() / 4,
            // Reads that only wait for a store hold no sample yet: to count them would make large samples seem
            // too large to be fetched once.
            concurrency: (self.threads() + workers(false)) as u64,
            threads: self.threads() as u64,
            workers: workers(has_objects) as u64,
            master: nix::unistd::getuid().as_raw(),
            uid: self.uid.filter(|_| !self.allow_root).unwrap_or(nix::unistd::getuid().as_raw()),
            gid: self.gid.unwrap_or(nix::unistd::getgid().as_raw()),
            file_mode: 0o444 & !self.fmask & !private,
            directory_mode: 0o555 & !self.dmask & !private,
            file_mask: 0o7777 & !self.fmask & !private,
            directory_mask: 0o7777 & !self.dmask & !private,
            prefetch_mode: writable & !self.fmask & !private,
            has_control: !self.no_control,
            ..Options::default()
        }
    }

    /// The options of the kernel and the transport.
    pub(super) fn mount(&self, source: String, has_objects: bool) -> MountOptions {
        MountOptions {
            source,
            request_bytes: memory::for_requests(self.live.memory_bytes()),
            allow_other: self.allow_other || self.allow_root,
            noexec: self.noexec,
            read_only: self.ro.unwrap_or(true) || self.control_ro,
            xattrs: self.xattrs,
            readdirplus: self.readdirplus,
            transport: self.transport,
            threads: self.threads(),
            workers: workers(has_objects),
            ..MountOptions::default()
        }
    }

    pub(super) fn warn_of_rw_without_control(&self) {
        if self.no_control && self.ro == Some(false) {
            tracing::warn!(
                "--rw (control=rw, -w) is of no use with --no-control: there is no .ffrfs to write to"
            );
        }
    }

    /// The program that mounted /dev/fd/N chose the options that the kernel takes at a mount.
    pub(super) fn warn_of_options_without_effect(&self) {
        for (given, option) in [
            (self.allow_other, "allow_other"),
            (self.allow_root, "allow_root"),
            (self.noexec, "noexec"),
            (self.fsname.is_some(), "fsname"),
        ] {
            if given {
                tracing::warn!(
                    "{option} has no effect: it is up to the program that mounted /dev/fd/N"
                );
            }
        }
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The most reads that wait for a store at a time: more than for a disk, since each waits longer.
const OBJECT_WORKERS: usize = 64;

/// Threads for reads that wait for storage: enough to keep the queue of a device filled.
fn workers(has_objects: bool) -> usize {
    if has_objects { OBJECT_WORKERS } else { (4 * cpus()).clamp(8, 32) }
}

/// The name of the dataset, which all users can read: of a URL without its query, which may be a signature.
fn name_of(sources: &[PartName]) -> String {
    let first = match sources.first() {
        Some(PartName::Path(path)) => path.canonicalize().unwrap_or_else(|_| path.clone()),
        Some(PartName::Url(url)) => url.split('?').next().unwrap_or_default().into(),
        None => PathBuf::new(),
    };
    place::name_of_all(first.to_string_lossy().into_owned(), sources.len())
}
