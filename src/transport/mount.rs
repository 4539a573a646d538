//! Mounting and unmounting: directly where that is allowed, through fusermount3 where it is not.

use super::connection::{self, Device};
use super::decode;
use super::devfuse::{Channels, Shared};
use super::ending::Ending;
use super::handover::Handover;
use super::interrupts::{Interrupts, Lookout};
use super::invalidate::Invalidator;
use super::leaving::{Leaver, Leaving};
use super::negotiation::{Granted, Negotiation};
use super::ops::Ops;
use super::options::{MountOptions, Transport};
use super::prefetch::Prefetcher;
use super::reads;
use super::solo::Solo;
use super::uring::{self, Plan, Queues};
use super::watch::Watch;
use super::workers::Workers;
use crate::io::memory::heap;
use crate::io::mount::mount_id::{Made, MountId};
use crate::io::mount::{fusermount, mounts, passed_connection};
use crate::vfs::Vfs;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::unistd::{geteuid, getgid, getuid};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{fmt, io};

/// The size of the requests in which large samples are read.
const READ_AHEAD_KILOBYTES: u32 = 1024;

/// The largest single request.
const MAX_REQUEST_BYTES: u32 = 1 << 20;

/// The place where a dataset is shown.
#[derive(Debug)]
pub enum Target {
    /// On this directory, an absolute path: we mount there.
    Directory(PathBuf),
    /// Where the caller has mounted this connection, an open /dev/fuse. The caller will unmount it too.
    PassedConnection(OwnedFd),
}

impl Target {
    /// The directory on which we mount; `None` if the caller has mounted.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Target::Directory(directory) => Some(directory),
            Target::PassedConnection(_) => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Directory(directory) => directory.display().fmt(out),
            Target::PassedConnection(_) => out.write_str("the caller's connection"),
        }
    }
}

/// The reason why a dataset could not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The FUSE device does not exist or may not be used.
    #[error("/dev/fuse: {0}{1}")]
    Device(io::Error, &'static str),
    /// The system refuses to mount.
    #[error("cannot mount on {}: {error}{hint}", .target.display())]
    Refused {
        /// The mount point.
        target: PathBuf,
        /// The system's error.
        error: io::Error,
        /// Advice.
        hint: &'static str,
    },
    /// The connection that the caller has passed in cannot be used.
    #[error("the connection that was handed over: {0}{1}")]
    PassedConnection(io::Error, &'static str),
    /// The transport that was asked for cannot be used, and the number of the error if the system gave one.
    #[error("transport=uring: {0}")]
    Transport(String, Option<i32>),
    /// The action before the first request has failed.
    #[error("{0}")]
    Forbidden(String),
}

/// The reason why serving a mount has ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The connection to the kernel broke.
    #[error("the connection to the kernel: {0}")]
    Connection(#[from] io::Error),
    /// The ring of a queue broke. The kernel waits for the answers of this queue until the process ends, so
    /// nothing in the process may touch the mount any more.
    #[error("a queue of requests broke: {0}")]
    Queue(io::Error),
}

/// How long a process that leaves waits for the last answers; the kernel can send the requests to the next one.
const LAST_ANSWERS: Duration = Duration::from_secs(3);

/// A mount, with the threads that serve its requests.
pub struct Mounted {
    channels: Channels,
    queues: Option<Queues>,
    lookout: Lookout,
    leaver: Leaver,
    prefetcher: Option<Prefetcher>,
    watch: Option<Watch>,
    ending: Option<Ending>,
    made: Made,
    /// Tells other processes which mount this one belongs to.
    _label: Option<OwnedFd>,
    granted: Option<Granted>,
}

impl Mounted {
    /// Mounts `vfs` on `target`.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn new(vfs: Arc<Vfs>, target: &Target, options: MountOptions) -> Result<Self, MountError> {
        let plan = || uring::plan(options.request_bytes, reads::may_wait(&vfs));
        let plan = match options.transport {
            Transport::DevFuse => None,
            Transport::Uring => {
                Some(plan().map_err(|why| MountError::Transport(why.to_string(), None))?)
            }
            Transport::Auto => plan()
                .and_then(|plan| plan.check_room(options.threads).map(|()| plan))
                .inspect_err(|why| tracing::info!("requests come through /dev/fuse: {why}"))
                .ok(),
        };
        let mut attempt = Self::attempt(&vfs, target, &options, plan.as_ref());
        // INIT comes once for a connection, so that one that was passed in has no second attempt.
        if let (Err(MountError::Transport(why, _)), Transport::Auto, Target::Directory(_)) =
            (&attempt, options.transport, target)
        {
            tracing::info!("requests come through /dev/fuse: {why}");
            attempt = Self::attempt(&vfs, target, &options, None);
        }
        attempt
    }

    /// Goes on with the mount of another process. If it has died, its requests come with [`Handover::resend`].
    ///
    /// # Errors
    /// See [`MountError`]; the mount stays.
    pub fn resume(
        vfs: &Arc<Vfs>,
        target: &Target,
        options: &MountOptions,
        handover: Handover,
    ) -> Result<Self, MountError> {
        let devices = handover.devices.into_iter().map(|device| Arc::new(Device::new(device)));
        let negotiation = Arc::new(Negotiation::resumed(handover.granted));
        let connection =
            Connection { devices: devices.collect(), negotiation, made: handover.made };
        Self::serving(vfs, target, options, None, connection)
    }

    /// The state that the next process needs if this one dies; `None` if no other can go on with this mount.
    #[must_use]
    pub fn handover(&self) -> Option<(Granted, Vec<BorrowedFd<'_>>)> {
        let devices = self.channels.devices().iter().map(|device| device.as_fd());
        self.granted.map(|granted| (granted, devices.collect()))
    }

    /// As [`Handover::resend`], in the process that goes on.
    ///
    /// # Errors
    /// The mount has ended.
    pub fn resend(&self) -> io::Result<()> {
        let device = self.channels.devices().last().ok_or(io::ErrorKind::NotConnected)?;
        connection::resend(device.as_fd())
    }

    /// Has this process leave the mount to another one, which must serve by then.
    #[must_use]
    pub fn leaver(&self) -> Leaver {
        self.leaver.clone()
    }

    fn attempt(
        vfs: &Arc<Vfs>,
        target: &Target,
        options: &MountOptions,
        plan: Option<&Plan>,
    ) -> Result<Self, MountError> {
        let largest = plan.map_or(MAX_REQUEST_BYTES, |plan| plan.payload_bytes as u32);
        let negotiation = Arc::new(Negotiation::new(largest, options.readdirplus, plan.is_some()));
        let device = Device::new(connect(target, options)?);
        device.negotiate(&negotiation).map_err(|error| {
            undo_mount(target);
            refused(target, error)
        })?;
        let devices = device.for_threads(options.threads);
        let connection = Connection::new(target, devices, negotiation);
        mounts::raise_read_ahead(&connection.made.device, READ_AHEAD_KILOBYTES);
        let serving = Self::serving(vfs, target, options, plan, connection);
        serving.inspect_err(|error| match error {
            // This process may be forbidden to unmount.
            MountError::Forbidden(_) => {}
            _ => undo_mount(target),
        })
    }

    /// Serves a connection on which INIT was answered.
    fn serving(
        vfs: &Arc<Vfs>,
        target: &Target,
        options: &MountOptions,
        plan: Option<&Plan>,
        connection: Connection,
    ) -> Result<Self, MountError> {
        let Connection { devices, negotiation, made } = connection;
        let invalidator = Arc::new(Invalidator::default());
        let ops =
            Ops::new(Arc::clone(vfs), Arc::clone(&negotiation), Arc::clone(&invalidator), options);
        let failed = |error: io::Error| refused(target, error);
        let none = || failed(io::ErrorKind::NotConnected.into());
        let device = Arc::clone(devices.last().ok_or_else(none)?);
        invalidator.connect(Arc::clone(&device));
        let (interrupts, lookout) = Interrupts::start().map_err(failed)?;
        let leaver = Leaver(Arc::new(Leaving::default()));
        let shared = Arc::new(Shared {
            ops: Arc::new(ops),
            workers: Arc::new(Workers::new(options.workers)),
            interrupts,
            leaving: Arc::clone(&leaver.0),
            solo: Solo::new(options.threads),
            // The caller that has mounted the connection has told the kernel which users it admits.
            owner: (!options.allow_other && target.directory().is_some())
                .then(|| geteuid().as_raw()),
            is_open: OnceLock::new(),
        });
        let plan = plan.filter(|_| agreed(&negotiation, options.transport));
        let queues = queues(&shared, &device, plan, options.transport)?;
        match plan {
            Some(plan) => vfs.set_transport("uring", plan.memory_bytes()),
            None => vfs.set_transport("devfuse", 0),
        }
        let prefetcher =
            helper("nothing is fetched ahead", Prefetcher::start(vfs, Arc::clone(&device)));
        decode::start(vfs, options.threads);
        let watch = Watch::start(vfs, Arc::clone(&device));
        let watch = helper("changed containers are noticed by reads alone", watch);
        let ending = Ending::start(vfs.store(), device.as_fd());
        let ending = helper("an unmount waits for a store that hangs", ending).flatten();
        let (threads, largest) = (options.threads, negotiation.max_request_bytes());
        let channels = Channels::start(&shared, devices, threads, largest).map_err(failed)?;
        heap::check_room_to_read().map_err(failed)?;
        // A confined process may not make the label.
        let _label = made.id.and_then(|id| id.label().ok());
        options.before_requests.run().map_err(MountError::Forbidden)?;
        let _ = shared.is_open.set(());
        let granted = negotiation.granted();
        Ok(Self {
            channels,
            queues,
            lookout,
            leaver,
            prefetcher,
            watch,
            ending,
            made,
            _label,
            granted,
        })
    }

    /// The device number that the mount's files show, as `MAJOR:MINOR`.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.made.device
    }

    /// The mount, as the mount table has shown it when it was made.
    #[must_use]
    pub fn made(&self) -> &Made {
        &self.made
    }

    /// Waits until the dataset is unmounted, or was left to another process.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn serve(self) -> Result<(), ServeError> {
        let Self { channels, queues, prefetcher, watch, ending, lookout, leaver, .. } = self;
        if let Some(queues) = queues {
            queues.join().map_err(ServeError::Queue)?;
        }
        let served = channels.join();
        if leaver.has_left() {
            let start = Instant::now();
            while lookout.waiting() > 0 && start.elapsed() < LAST_ANSWERS {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if let Some(prefetcher) = prefetcher {
            prefetcher.stop();
        }
        if let Some(watch) = watch {
            watch.stop();
        }
        if let Some(ending) = ending {
            ending.stop();
        }
        Ok(served?)
    }
}

/// A connection on which INIT was answered.
struct Connection {
    devices: Vec<Arc<Device>>,
    negotiation: Arc<Negotiation>,
    made: Made,
}

impl Connection {
    fn new(target: &Target, devices: Vec<Arc<Device>>, negotiation: Arc<Negotiation>) -> Self {
        let made = match target {
            Target::Directory(directory) => {
                let mount = mounts::at(directory).ok().flatten();
                mount.map(|it| Made { device: it.device, id: Some(MountId::of(it.number)) })
            }
            Target::PassedConnection(connection) => {
                passed_connection::device_number(connection).map(|device| Made { device, id: None })
            }
        };
        Self { devices, negotiation, made: made.unwrap_or_default() }
    }
}

/// The connection to the kernel: we mount, or the caller has passed it in.
fn connect(target: &Target, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let directory = match target {
        Target::Directory(directory) => directory,
        Target::PassedConnection(connection) => {
            return connection.try_clone().map_err(|e| MountError::PassedConnection(e, ""));
        }
    };
    match mount_directly(directory, options)? {
        Some(device) => Ok(device),
        None => {
            let mounted = fusermount::mount(directory, &helper_options(options));
            mounted.map_err(|e| refused(target, e))
        }
    }
}

/// Unmounts our own mount after a failure; a caller's mount stays.
fn undo_mount(target: &Target) {
    if let Some(directory) = target.directory() {
        let _ = mounts::unmount(directory, true);
    }
}

/// The queues of a plan that the kernel has agreed to.
///
/// # Errors
/// The queues cannot be registered, or the transport is io_uring and there is no plan: the mount cannot be used.
fn queues(
    shared: &Arc<Shared>,
    device: &Device,
    plan: Option<&Plan>,
    wanted: Transport,
) -> Result<Option<Queues>, MountError> {
    let started = match plan {
        Some(plan) => Queues::start(shared, device, plan)
            .map(Some)
            .map_err(|e| (format!("its queues cannot be registered: {e}"), e.raw_os_error())),
        None if wanted == Transport::Uring => Err(("the kernel did not agree to it".into(), None)),
        None => Ok(None),
    };
    started.map_err(|(why, errno)| {
        // Threads of queues that were registered end once the dataset is unmounted.
        let _ = shared.is_open.set(());
        MountError::Transport(why, errno)
    })
}

/// A thread that a mount can do without; the log says what the mount `lacks` then.
fn helper<T>(lacks: &str, started: io::Result<T>) -> Option<T> {
    started.inspect_err(|error| tracing::warn!("{lacks}: {error}")).ok()
}

/// Whether the kernel has agreed to io_uring; if not, and any transport will do, the log says so.
fn agreed(negotiation: &Negotiation, wanted: Transport) -> bool {
    let agreed = negotiation.uring();
    if !agreed && wanted == Transport::Auto {
        tracing::info!("requests come through /dev/fuse: the kernel did not agree to io_uring");
    }
    agreed
}

/// The options for fusermount3: a comma separates them, and a backslash escapes.
fn helper_options(options: &MountOptions) -> String {
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut list =
        format!("fsname={source},subtype=ffrfs,nosuid,nodev,noatime,default_permissions");
    for (wanted, option) in [
        (options.read_only, ",ro"),
        (options.allow_other, ",allow_other"),
        (options.noexec, ",noexec"),
    ] {
        if wanted {
            list.push_str(option);
        }
    }
    list
}

/// Mounts with mount(2), so that the type is `fuse.ffrfs` and the source may hold any character. `None` if only the helper
/// may mount.
fn mount_directly(target: &Path, options: &MountOptions) -> Result<Option<OwnedFd>, MountError> {
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    let device = match device {
        Ok(device) => OwnedFd::from(device),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(e) => {
            let hint = match e.raw_os_error() {
                // The module may well be loaded; the limit is named elsewhere.
                Some(libc::EMFILE | libc::ENFILE) => "",
                _ => "; is the fuse module loaded (modprobe fuse)?",
            };
            return Err(MountError::Device(e, hint));
        }
    };
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        getuid(),
        getgid(),
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let mut flags = mounts::ALWAYS;
    flags.set(MsFlags::MS_RDONLY, options.read_only);
    flags.set(MsFlags::MS_NOEXEC, options.noexec);
    let source = Some(options.source.as_str());
    match mount(source, target, Some(mounts::FS_TYPE), flags, Some(data.as_str())) {
        Ok(()) => Ok(Some(device)),
        Err(Errno::EPERM) => Ok(None),
        Err(e) => Err(refused_on(target, e.into())),
    }
}

fn refused(target: &Target, error: io::Error) -> MountError {
    match target {
        Target::Directory(directory) => refused_on(directory, error),
        Target::PassedConnection(_) => {
            let unmounted = error.raw_os_error() == Some(libc::EPERM);
            let hint = if unmounted { "; the caller must mount it first" } else { "" };
            MountError::PassedConnection(error, hint)
        }
    }
}

fn refused_on(directory: &Path, error: io::Error) -> MountError {
    let hint = hint(&error);
    MountError::Refused { target: directory.to_owned(), error, hint }
}

fn hint(error: &io::Error) -> &'static str {
    let said = error.to_string();
    if said.contains("user_allow_other") {
        "; to share a mount, root adds a line `user_allow_other` to /etc/fuse.conf, or mounts it"
    } else if getuid().is_root() && !said.contains("/dev/fuse") && is_forbidden(error) {
        "; root needs CAP_SYS_ADMIN for it, which is missing here (containers: --cap-add SYS_ADMIN)"
    } else if error.kind() == io::ErrorKind::NotFound {
        "; who is not root needs fusermount3 (Debian: apt-get install fuse3)"
    } else if said.contains("/dev/fuse") {
        "; root must let you open /dev/fuse (Debian: chmod 666 /dev/fuse)"
    } else if said.contains("could not determine username") {
        "; fusermount3 mounts only for users that /etc/passwd has: add this one, or mount as root"
    } else if said.contains("mount failed") {
        "; `ffrfs doctor` says what this user lacks"
    } else if said.contains("no write access") || error.kind() == io::ErrorKind::PermissionDenied {
        "; the mount point must be a directory that you may write to"
    } else {
        ""
    }
}

/// Whether the kernel forbids mounting to this process, and fusermount3 is not installed or may not mount either.
fn is_forbidden(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.to_string().contains(Errno::EPERM.desc())
}
