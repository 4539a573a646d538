//! A process that stays outside of the confinement, to unmount: Landlock forbids that to all who are confined, and who is not
//! root must start fusermount3 for it. It has nothing but a socket to the daemon, and ends with it.

use crate::io::mounts;
use crate::io::{Helper, process};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an unmount may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is asked: at once, or when nobody uses it any more. The device of the mount follows.
const WHOLE: u8 = b'w';
const LAZY: u8 = b'l';

/// The process that unmounts.
pub(crate) struct Unmounter(Mutex<Helper>);

impl Unmounter {
    /// Starts the process, which can unmount what is on `target` and nothing else. `None` if there are threads already.
    pub(crate) fn start(target: &Path, namespace: Option<&Path>) -> Option<Self> {
        // It ends with the daemon: a signal to all processes of a service must leave it the time to unmount.
        let signals = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
        let before =
            signals.into_iter().collect::<SigSet>().thread_swap_mask(SigmaskHow::SIG_BLOCK);
        let mut place = Place { target: target.to_owned(), namespace: namespace.map(Into::into) };
        let mut is_new = true;
        let helper = Helper::start(move |question| {
            if std::mem::take(&mut is_new) {
                place.enter();
            }
            place.answer(question)
        });
        if let Ok(before) = before {
            let _ = before.thread_set_mask();
        }
        match helper {
            Ok(helper) => helper.map(|helper| Self(Mutex::new(helper))),
            Err(error) => {
                tracing::warn!("no process can be made that unmounts: {error}");
                None
            }
        }
    }

    /// As [`mounts::unmount`], if the mount there has this device number.
    pub(crate) fn unmount(&self, device: &str, lazy: bool) -> io::Result<()> {
        let helper = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut question = vec![if lazy { LAZY } else { WHOLE }];
        question.extend_from_slice(device.as_bytes());
        helper.ask(&question)?;
        let answer = helper.answer(Instant::now() + PATIENCE)?;
        let answer = answer.ok_or(io::ErrorKind::TimedOut)?;
        match answer.split_first_chunk() {
            Some((&errno, _)) if i32::from_le_bytes(errno) == 0 => Ok(()),
            Some((&errno, [])) => Err(io::Error::from_raw_os_error(i32::from_le_bytes(errno))),
            Some((_, why)) => Err(io::Error::other(String::from_utf8_lossy(why).into_owned())),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Detaches our mount on `target` after a failure.
    pub(crate) fn undo(&self, target: &Path) {
        if let Ok(Some(mount)) = mounts::at(target) {
            let _ = self.unmount(&mount.device, true);
        }
    }
}

/// What the process can do.
struct Place {
    target: PathBuf,
    namespace: Option<PathBuf>,
}

impl Place {
    fn enter(&mut self) {
        if let Some(namespace) = self.namespace.take() {
            let _ = process::enter_mount_namespace(&namespace);
        }
    }

    /// Unmounts; the answer is the error number or 0, and a message that has no number.
    fn answer(&self, question: &[u8]) -> Vec<u8> {
        match self.unmount(question) {
            Ok(()) => 0_i32.to_le_bytes().to_vec(),
            Err(error) => match error.raw_os_error() {
                Some(errno) => errno.to_le_bytes().to_vec(),
                None => [&libc::EPERM.to_le_bytes()[..], error.to_string().as_bytes()].concat(),
            },
        }
    }

    fn unmount(&self, question: &[u8]) -> io::Result<()> {
        let (&how, device) = question.split_first().ok_or(io::ErrorKind::InvalidData)?;
        let target = mounts::resolve(&self.target)?;
        match mounts::at(&target)? {
            Some(mount)
                if mount.fs_type == mounts::FS_TYPE && mount.device.as_bytes() == device =>
            {
                mounts::unmount(&target, how == LAZY)
            }
            _ => Ok(()),
        }
    }
}
