//! The message of a worker to its supervisor about the mount, and of the supervisor to the next worker, which may be of another
//! version.

use crate::daemon::metrics::{Address, Bound, FileId};
use crate::daemon::serve::Serving;
use crate::io::mount::mount_id::Made;
use crate::io::process::workers::{Message, Messages};
use crate::transport::{Granted, Handover, Target};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The state of a mount that another process has served before.
#[derive(Default)]
pub(super) struct Resumed<'a> {
    /// Is told when that mount is taken away.
    pub(super) supervisor: Option<&'a Messages>,
    /// Whether another process has served the mount before.
    pub(super) is_next: bool,
    /// `None` if the mount is made anew.
    pub(super) handover: Option<Handover>,
    /// That mount; its device number is empty if a process has taken it away to make it anew, and has not told of the new one.
    pub(super) made: Made,
    /// Tells other processes which mount this process belongs to.
    pub(super) _label: Option<OwnedFd>,
    /// A digest of the dataset that the mount showed.
    pub(super) digest: [u8; DIGEST_BYTES],
    /// The socket of its metrics.
    pub(super) metrics: Option<Bound>,
}

/// The length of a digest of the dataset that a mount shows.
pub(super) const DIGEST_BYTES: usize = 32;

/// Changes with the layout of a message: another version then does not understand the message, and does not go on with the
/// mount.
const VERSION: u8 = 1;
/// The message of a worker that is about to take the dead mount away.
const TAKES_AWAY: &[u8] = b"away";
/// A status is a line for people, which may be cut.
const MAX_STATUS_BYTES: usize = 1000;

/// The beginning of a message; six texts follow, each ended by a zero byte. Versions before this one do not send the last two,
/// the ID of the mount and the file of the metrics' socket, and pass over them.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    version: u8,
    /// 1 if another process can go on with the mount.
    has_granted: u8,
    /// How many descriptors of the connection come with the message.
    devices: [u8; 2],
    granted: Granted,
    digest: [u8; DIGEST_BYTES],
}

/// The known facts of a mount.
pub(super) struct Told {
    pub(super) digest: [u8; DIGEST_BYTES],
    /// `None` if no other process can go on with this mount: it can only be mounted anew.
    pub(super) handover: Option<Handover>,
    /// Without a device number if a process has taken the mount away, to make it anew.
    pub(super) made: Made,
    /// Tells its connection from a later one of the same number; `None` if the connection is not known.
    pub(super) connection: Option<u64>,
    /// Whether descriptors were lost on the way, because this process may not open so many files.
    is_cut: bool,
    /// Tells other processes which mount this process belongs to.
    pub(super) _label: Option<OwnedFd>,
    pub(super) status: String,
    /// `None` if the caller has mounted.
    pub(super) directory: Option<PathBuf>,
    /// The socket of the metrics.
    pub(super) metrics: Option<Bound>,
}

/// The parts of a message that are sent as they are.
struct Texts<'a> {
    made: &'a Made,
    status: &'a str,
    metrics: &'a str,
    directory: Option<&'a Path>,
    socket_file: Option<FileId>,
}

/// Tells the supervisor that the dead mount is taken away: should this process fail now, no user has unmounted it.
pub(super) fn tell_of_taking_away(messages: &Messages) -> io::Result<()> {
    messages.send(TAKES_AWAY, &[])
}

/// Whether a message says that the dead mount is taken away.
pub(super) fn takes_away(message: &Message) -> bool {
    message.bytes == TAKES_AWAY
}

/// Tells the supervisor of a mount.
pub(super) fn tell(messages: &Messages, serving: &Serving) -> io::Result<()> {
    let bound = serving.metrics.as_ref().map(|metrics| metrics.bound());
    let texts = Texts {
        made: serving.mounted.made(),
        status: &serving.status,
        metrics: bound.as_ref().map_or("", |(address, ..)| address),
        directory: serving.target.directory(),
        socket_file: bound.as_ref().and_then(|&(.., file)| file),
    };
    let (granted, mut descriptors) = match serving.mounted.handover() {
        Some((granted, devices)) => (Some(granted), devices),
        None => (None, Vec::new()),
    };
    let bytes = encode(serving.digest, granted, descriptors.len(), &texts);
    descriptors.extend(bound.as_ref().map(|&(_, socket, _)| socket));
    messages.send(&bytes, &descriptors)
}

fn encode(
    digest: [u8; DIGEST_BYTES],
    granted: Option<Granted>,
    devices: usize,
    texts: &Texts<'_>,
) -> Vec<u8> {
    let head = Head {
        version: VERSION,
        has_granted: granted.is_some().into(),
        devices: (devices as u16).to_le_bytes(),
        granted: granted.unwrap_or_default(),
        digest,
    };
    let mut bytes = head.as_bytes().to_vec();
    let status = texts.status.as_bytes();
    let status = &status[..status.len().min(MAX_STATUS_BYTES)];
    let directory = texts.directory.map_or(&b""[..], |path| path.as_os_str().as_bytes());
    let id = texts.made.id.map_or(String::new(), |id| id.to_string());
    let file = texts.socket_file.map(|(device, inode)| format!("{device} {inode}"));
    let file = file.unwrap_or_default();
    let (device, metrics) = (texts.made.device.as_bytes(), texts.metrics.as_bytes());
    for text in [device, status, metrics, directory, id.as_bytes(), file.as_bytes()] {
        bytes.extend_from_slice(text);
        bytes.push(0);
    }
    bytes
}

impl Told {
    /// Reads a message; `None` if it is of another version.
    pub(super) fn hear(message: Message) -> Option<Self> {
        let Message { bytes, mut descriptors } = message;
        let (head, texts) = Head::read_from_prefix(&bytes).ok()?;
        if head.version != VERSION {
            return None;
        }
        let mut texts = texts.split(|&byte| byte == 0);
        let mut text = || Some(String::from_utf8_lossy(texts.next()?).into_owned());
        let (device, status, address) = (text()?, text()?, text()?);
        let directory = texts.next().filter(|path| !path.is_empty());
        let directory = directory.map(|path| PathBuf::from(OsStr::from_bytes(path)));
        let id = texts.next().and_then(|id| std::str::from_utf8(id).ok()?.parse().ok());
        let file = texts.next().and_then(socket_file);
        let made = Made { device, id };
        let devices = usize::from(u16::from_le_bytes(head.devices));
        let metrics = match address.is_empty() {
            true => None,
            false if descriptors.len() == devices + 1 => descriptors.pop(),
            false => None,
        };
        let metrics = metrics.map(|socket| Bound { address, socket, file });
        // With fewer descriptors, requests would be lost that were taken through the others.
        let is_whole = descriptors.len() == devices && devices > 0 && head.has_granted == 1;
        let is_cut = descriptors.len() < devices;
        let handover = is_whole.then(|| Handover {
            devices: descriptors,
            granted: head.granted,
            made: made.clone(),
        });
        let _label = made.id.and_then(|id| id.label().ok());
        let (digest, connection) = (head.digest, None);
        Some(Self {
            digest,
            handover,
            made,
            connection,
            is_cut,
            _label,
            status,
            directory,
            metrics,
        })
    }

    /// Takes lost descriptors from the message `before` about the same mount: the process that tells goes on with the same
    /// ones. Warns of the loss if there is no such message.
    pub(super) fn complete(&mut self, before: Option<Self>) {
        if !self.is_cut {
            return;
        }
        let same = before.filter(|before| before.made == self.made && before.handover.is_some());
        match same {
            Some(Self { handover, metrics, .. }) => {
                (self.handover, self.metrics) = (handover, metrics)
            }
            None => tracing::warn!(
                "the supervisor may open too few files (ulimit -n) to hold the connection: if the daemon dies, the dataset is \
                 mounted anew"
            ),
        }
    }

    /// Sends the message to another worker.
    pub(super) fn send(&self, messages: &Messages) -> io::Result<()> {
        let (bytes, descriptors) = self.message();
        messages.send(&bytes, &descriptors)
    }

    /// The message to another worker, and the descriptors that go with it: the connection's, then the metrics'.
    pub(super) fn message(&self) -> (Vec<u8>, Vec<BorrowedFd<'_>>) {
        let texts = Texts {
            made: &self.made,
            status: &self.status,
            metrics: self.metrics.as_ref().map_or("", |bound| &bound.address),
            directory: self.directory.as_deref(),
            socket_file: self.metrics.as_ref().and_then(|bound| bound.file),
        };
        let granted = self.handover.as_ref().map(|handover| handover.granted);
        let devices = self.handover.iter().flat_map(|handover| &handover.devices);
        let mut descriptors: Vec<BorrowedFd<'_>> = devices.map(AsFd::as_fd).collect();
        let bytes = encode(self.digest, granted, descriptors.len(), &texts);
        descriptors.extend(self.metrics.as_ref().map(|bound| bound.socket.as_fd()));
        (bytes, descriptors)
    }

    /// The target of the mount, for a process that has not made it.
    ///
    /// # Errors
    /// There is no descriptor left, or the message had none.
    pub(super) fn target(&self) -> io::Result<Target> {
        if let Some(directory) = &self.directory {
            return Ok(Target::Directory(directory.clone()));
        }
        let devices = self.handover.iter().flat_map(|handover| &handover.devices);
        let device: Option<&OwnedFd> = devices.last();
        Ok(Target::PassedConnection(device.ok_or(io::ErrorKind::NotConnected)?.try_clone()?))
    }

    /// Whether a process has taken the mount away, to make it anew.
    pub(super) fn is_away(&self) -> bool {
        self.made.device.is_empty()
    }

    /// Removes the file of the metrics' socket, after the mount has ended without a process that does so. `address`: the
    /// address that the user has named. No other file is removed: a container may have taken over the process that told.
    pub(super) fn remove_socket(&self, address: Option<&Address>) {
        if let (Some(bound), Some(address)) = (&self.metrics, address) {
            bound.remove(address);
        }
    }

    pub(super) fn resumed(self, supervisor: &Messages) -> Resumed<'_> {
        let Self { handover, digest, metrics, made, _label, .. } = self;
        let (supervisor, is_next) = (Some(supervisor), true);
        Resumed { supervisor, is_next, handover, made, _label, digest, metrics }
    }
}

fn socket_file(text: &[u8]) -> Option<FileId> {
    let (device, inode) = std::str::from_utf8(text).ok()?.split_once(' ')?;
    Some((device.parse().ok()?, inode.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_heard_but_of_no_other_version() {
        let directory = Path::new("/mnt/a\nb");
        let made = Made { device: "0:51".to_owned(), id: "36.4711".parse().ok() };
        let texts = Texts {
            made: &made,
            status: "60 samples",
            metrics: "localhost:9100",
            directory: Some(directory),
            socket_file: Some((8, 4711)),
        };
        let socket = || OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let mut bytes = encode([7; DIGEST_BYTES], Some(Granted::default()), 2, &texts);
        let hear = |bytes: &[u8], descriptors: usize| {
            let descriptors = (0..descriptors).map(|_| socket()).collect();
            Told::hear(Message { bytes: bytes.to_vec(), descriptors })
        };
        let told = hear(&bytes, 3).unwrap();
        assert_eq!((told.digest, told.made), ([7; DIGEST_BYTES], made));
        assert_eq!(told.handover.unwrap().devices.len(), 2);
        let bound = told.metrics.unwrap();
        assert_eq!((bound.address.as_str(), bound.file), ("localhost:9100", Some((8, 4711))));
        assert_eq!(told.directory.as_deref(), Some(directory));
        // A program before this one sends neither ID nor file.
        let later = "36.4711\0".len() + "8 4711\0".len();
        let older = hear(&bytes[..bytes.len() - later], 3).unwrap();
        assert_eq!((older.made.device.as_str(), older.made.id), ("0:51", None));
        assert_eq!(older.metrics.unwrap().file, None);
        let mut cut = hear(&bytes, 1).unwrap();
        assert!(cut.handover.is_none() && cut.metrics.is_none());
        cut.complete(hear(&bytes, 3));
        assert!(cut.handover.is_some() && cut.metrics.is_some());
        assert!(hear(&bytes[..20], 3).is_none());
        bytes[0] = VERSION + 1;
        assert!(hear(&bytes, 3).is_none());
    }
}
