//! The service manager's copy of a mount: with it, the mount outlives even the death of its supervisor. The manager holds the
//! descriptors of the connection, so that the kernel keeps all requests, and the message that the supervisor was told of the
//! mount.

use super::ours;
use super::request::MountRequest;
use super::told::Told;
use crate::failure::Failure;
use crate::io::mount::mount_id::MountId;
use crate::io::mount::mounts;
use crate::io::process::descriptor_store;
use crate::io::process::workers::Message;
use crate::transport::Target;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The names of all kept descriptors begin with this.
const PREFIX: &str = "ffrfs-";
/// A file in memory: a line with the settings that readers see, a line that says whether the mount point was made for this
/// mount, and the message about the mount.
const TOLD: &str = "ffrfs-told";
/// The descriptors of the connection.
const CONNECTION: &str = "ffrfs-connection";
/// The socket of the metrics.
const METRICS: &str = "ffrfs-metrics";

/// How long the manager may take to receive descriptors; the supervisor does nothing else meanwhile.
const TAKING: Duration = Duration::from_secs(2);

/// The part of a mount's state that a supervisor gives to the service manager.
pub(super) struct Stored {
    settings: String,
    /// Whether the mount point was made for this mount.
    made: bool,
    /// The device number of the mount that is kept.
    device: Option<String>,
}

/// A mount without a process that serves it, since its supervisor has died.
pub(super) struct Found {
    pub(super) told: Told,
    /// Whether the mount point was made for this mount.
    pub(super) made: bool,
}

/// Whether the manager keeps descriptors for this service.
pub(super) fn is_possible() -> bool {
    descriptor_store::capacity() > 0
}

impl Stored {
    /// `found`: the mount that the manager keeps already.
    pub(super) fn new(request: &MountRequest, made: bool, found: Option<&Told>) -> Self {
        let device = found.map(|told| told.made.device.clone());
        Self { settings: seen(request), made, device }
    }

    /// Has the manager keep a mount in place of the one before, unless it is the same.
    pub(super) fn keep(&mut self, told: &Told) {
        if !is_possible() || self.device.as_deref() == Some(&told.made.device) {
            return;
        }
        if self.device.take().is_some() {
            forget();
        }
        let (bytes, descriptors) = told.message();
        let Some(handover) = &told.handover else { return };
        let (connection, metrics) = descriptors.split_at(handover.devices.len());
        let needed = descriptors.len() + 1;
        if needed > descriptor_store::capacity() {
            let why = format!("FileDescriptorStoreMax= is less than {needed}");
            return tracing::warn!("the mount will not outlive its supervisor: {why}");
        }
        let text = format!("{}\n{}\n", self.settings, u8::from(self.made));
        let text = [text.as_bytes(), &bytes].concat();
        let kept = descriptor_store::memory_file(TOLD, &text).and_then(|file| {
            descriptor_store::keep(CONNECTION, connection)?;
            if !metrics.is_empty() {
                descriptor_store::keep(METRICS, metrics)?;
            }
            descriptor_store::keep(TOLD, &[file.as_fd()])?;
            descriptor_store::wait_until_taken(TAKING)
        });
        match kept {
            Ok(is_taken) => {
                self.device = Some(told.made.device.clone());
                if !is_taken {
                    tracing::warn!(
                        "the service manager is slow: until it has taken the connection, the mount does not outlive its \
                         supervisor"
                    );
                }
            }
            Err(error) => {
                // A part of the descriptors is of no use.
                forget();
                tracing::warn!("the mount will not outlive its supervisor: {error}");
            }
        }
    }
}

/// Has the manager let go of the mount.
pub(super) fn forget() {
    for name in [TOLD, CONNECTION, METRICS] {
        let _ = descriptor_store::forget(name);
    }
}

/// The mount that the manager has kept for this process; `None` if it has kept no mount.
///
/// # Errors
/// This process cannot go on with the mount; it is unmounted then, and the manager lets go of it.
pub(super) fn find(request: &MountRequest) -> Result<Option<Found>, Failure> {
    let kept = descriptor_store::inherited(PREFIX);
    let found = match kept {
        Ok(kept) if kept.is_empty() => return Ok(None),
        Ok(kept) => read(kept),
        Err(error) => Err(error),
    };
    let refused = match found {
        Ok((found, settings)) => match obstacle(request, &found.told, &settings) {
            None => return Ok(Some(found)),
            Some(why) => {
                found.told.remove_socket(request.settings.metrics.as_ref());
                unmount(found.told);
                why.to_owned()
            }
        },
        Err(error) => error.to_string(),
    };
    forget();
    // Until the manager has let go of the metrics' socket, the address cannot be bound anew.
    let _ = descriptor_store::wait_until_taken(TAKING);
    let why = "the mount that the service manager has kept";
    Err(Failure::usage(refused).context(why))
}

fn read(kept: Vec<(String, OwnedFd)>) -> io::Result<(Found, String)> {
    let (mut descriptors, mut metrics, mut text) = (Vec::new(), None, None);
    for (name, descriptor) in kept {
        match name.as_str() {
            CONNECTION => descriptors.push(descriptor),
            METRICS => metrics = Some(descriptor),
            TOLD => text = Some(descriptor_store::read_memory_file(descriptor)?),
            _ => {}
        }
    }
    let text = text.ok_or(io::ErrorKind::NotFound)?;
    let mut parts = text.splitn(3, |&byte| byte == b'\n');
    let mut part = || parts.next().ok_or(io::ErrorKind::InvalidData);
    let (settings, made, bytes) = (part()?, part()? == b"1", part()?.to_vec());
    let settings = String::from_utf8_lossy(settings).into_owned();
    descriptors.extend(metrics);
    let told = Told::hear(Message { bytes, descriptors });
    let mut told = told.ok_or_else(|| io::Error::other("another version of ffrfs has left it"))?;
    identify(&mut told);
    Ok((Found { told, made }, settings))
}

/// Updates the ID of a mount: this process may be in another mount namespace than the one before it, where the same mount has
/// another ID. As long as its connection lives, no other mount has its device number.
fn identify(told: &mut Told) {
    let there = told.directory.as_deref().and_then(|directory| mounts::at(directory).ok()?);
    let lives = told.handover.as_ref().is_some_and(|handover| !handover.has_ended());
    if let Some(mount) = there.filter(|mount| lives && mount.device == told.made.device) {
        let id = MountId::of(mount.number);
        (told.made.id, told._label) = (Some(id), id.label().ok());
        if let Some(handover) = &mut told.handover {
            handover.made = told.made.clone();
        }
    }
}

/// The reason why this process cannot go on with the mount.
fn obstacle(request: &MountRequest, told: &Told, settings: &str) -> Option<&'static str> {
    let is_there = |directory| mounts::resolve(&request.target).is_ok_and(|it| it == directory);
    match &told.directory {
        _ if request.settings.restarts == 0 => Some("it is served without restarts now"),
        Some(directory) if !is_there(directory.clone()) => Some("it has another mount point"),
        None => Some("it has another mount point"),
        _ if told.handover.is_none() => Some("not all descriptors of its connection are there"),
        _ if seen(request) != settings => Some("its settings have changed"),
        Some(directory) => {
            let there = mounts::at(directory).ok().flatten();
            let is_ours = there.is_some_and(|mount| told.made.is_on(&mount.device));
            let is_covered = || ours::is_covered(&Target::Directory(directory.clone()), &told.made);
            (!is_ours && !is_covered()).then_some("it was unmounted")
        }
    }
}

fn unmount(told: Told) {
    let Told { made, directory, .. } = told;
    if let Some(directory) = directory
        && let Err(error) = ours::unmount(&Target::Directory(directory.clone()), &made)
    {
        tracing::warn!("{}: cannot unmount: {error}", directory.display());
    }
}

/// The settings that decide what readers see, and that the kernel was told.
fn seen(request: &MountRequest) -> String {
    let settings = &request.settings;
    let kernel = (settings.allow_other, settings.allow_root, settings.ro, settings.noexec);
    let modes = (settings.uid, settings.gid, settings.fmask, settings.dmask);
    let shown = (settings.control_ro, settings.no_control, settings.xattrs);
    format!("{:?} {:?} {kernel:?} {modes:?} {shown:?}", request.sources, request.names)
}
