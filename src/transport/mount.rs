//! Mounting and unmounting: directly where that is allowed, through fusermount3 where it is not.

use super::devfuse::DevFuse;
use crate::io::{File, mounts};
use crate::vfs::Vfs;
use fuser::{Config, MountOption, Session, SessionACL};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::unistd::{getgid, getuid};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Large samples are read in requests of this size.
const READ_AHEAD_KILOBYTES: u32 = 1024;

/// What mount(8) users say.
#[derive(Debug, Clone, Default)]
pub struct MountOptions {
    /// What `findmnt` shows as source.
    pub source: String,
    /// Users other than the one who mounts may use it.
    pub allow_other: bool,
    /// Root may use it beside the one who mounts.
    pub allow_root: bool,
    /// No program can be run from it.
    pub noexec: bool,
    /// Threads that serve requests.
    pub threads: usize,
    /// Threads for reads that must wait.
    pub workers: usize,
}

/// Why a dataset could not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The FUSE device is not there or may not be used.
    #[error("/dev/fuse: {0}{1}")]
    Device(io::Error, &'static str),
    /// The system refuses.
    #[error("cannot mount on {}: {error}{hint}", .target.display())]
    Refused {
        /// The mount point.
        target: PathBuf,
        /// The system's word.
        error: io::Error,
        /// What to do.
        hint: &'static str,
    },
}

/// A mount whose requests are not served yet.
pub struct Mounted {
    session: Session<DevFuse>,
    target: PathBuf,
    options: MountOptions,
}

impl Mounted {
    /// Mounts `vfs`, whose parts are `files`, on `target` (an absolute path).
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn new(
        vfs: Arc<Vfs>,
        files: Vec<Arc<File>>,
        target: &Path,
        options: MountOptions,
    ) -> Result<Self, MountError> {
        let refused = |error: io::Error| {
            let hint = hint(&error);
            MountError::Refused { target: target.to_owned(), error, hint }
        };
        let new = || DevFuse::new(Arc::clone(&vfs), files.clone(), options.workers);
        let session = match mount_directly(target, &options)? {
            Some(device) => {
                let acl = acl(&options);
                Session::from_fd(new(), device, acl, config(&options)).inspect_err(|_| {
                    let _ = mounts::unmount(target, true);
                })
            }
            None => Session::new(new(), target, &config(&options)),
        };
        let session = session.map_err(refused)?;
        mounts::raise_read_ahead(target, READ_AHEAD_KILOBYTES);
        Ok(Self { session, target: target.to_owned(), options })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Serves requests until it is unmounted.
    ///
    /// # Errors
    /// The connection to the kernel broke.
    pub fn serve(self) -> io::Result<()> {
        tracing::debug!(threads = self.options.threads, "serving");
        self.session.run()
    }
}

fn acl(options: &MountOptions) -> SessionACL {
    match (options.allow_other, options.allow_root) {
        (true, _) => SessionACL::All,
        (false, true) => SessionACL::RootAndOwner,
        (false, false) => SessionACL::Owner,
    }
}

/// For fuser, which passes the mount options on to fusermount3.
fn config(options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.acl = acl(options);
    config.n_threads = Some(options.threads);
    config.clone_fd = true;
    // In a list of options a comma separates and a backslash escapes.
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    config.mount_options = vec![
        MountOption::FSName(source),
        MountOption::Subtype("ffrfs".to_owned()),
        MountOption::RO,
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoAtime,
        MountOption::DefaultPermissions,
    ];
    if options.noexec {
        config.mount_options.push(MountOption::NoExec);
    }
    config
}

/// mount(2), so that the type is `fuse.ffrfs` and the source may hold any byte; `None`: only a helper may.
fn mount_directly(target: &Path, options: &MountOptions) -> Result<Option<OwnedFd>, MountError> {
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    let device = match device {
        Ok(device) => OwnedFd::from(device),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(e) => {
            return Err(MountError::Device(e, "; is the fuse module loaded (modprobe fuse)?"));
        }
    };
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        getuid(),
        getgid(),
    );
    if options.allow_other || options.allow_root {
        data.push_str(",allow_other");
    }
    let mut flags =
        MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOATIME;
    flags.set(MsFlags::MS_NOEXEC, options.noexec);
    let source = Some(options.source.as_str());
    match mount(source, target, Some(mounts::FS_TYPE), flags, Some(data.as_str())) {
        Ok(()) => Ok(Some(device)),
        Err(Errno::EPERM) => Ok(None),
        Err(e) => {
            let error = io::Error::from(e);
            let hint = hint(&error);
            Err(MountError::Refused { target: target.to_owned(), error, hint })
        }
    }
}

fn hint(error: &io::Error) -> &'static str {
    let said = error.to_string();
    if said.contains("user_allow_other") {
        "; to share a mount, root adds a line `user_allow_other` to /etc/fuse.conf, or mounts it"
    } else if error.kind() == io::ErrorKind::NotFound {
        "; who is not root needs fusermount3 (Debian: apt-get install fuse3)"
    } else if said.contains("no write access") || error.kind() == io::ErrorKind::PermissionDenied {
        "; the mount point must be a folder that you may write to"
    } else {
        ""
    }
}
