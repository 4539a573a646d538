//! A process that stays outside of the confinement, to unmount: Landlock forbids that to confined processes, and users other
//! than root need fusermount3 for it. It has nothing but a socket to the daemon, and ends with the daemon.

use crate::io::mount::mount_id::Made;
use crate::io::mount::mounts;
use crate::io::{Helper, process};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an unmount may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The questions: to unmount at once, or when no program uses the mount any more, or to detach it if it is dead. The device
/// number of the mount follows, and behind a blank its ID.
const WHOLE: u8 = b'w';
const LAZY: u8 = b'l';
const DEAD: u8 = b'd';
/// The first question: to enter the mount namespace.
const ENTER: &[u8] = b"";

/// The process that unmounts.
pub(crate) struct Unmounter(Mutex<Helper>);

impl Unmounter {
    /// Starts the process, which can unmount the mount on `target` and nothing else. `None` if there are threads already, or
    /// after a warning.
    pub(crate) fn start(target: &Path, namespace: Option<&Path>) -> Option<Self> {
        // The process ends with the daemon: a signal to all processes of a service must leave it the time to unmount.
        let signals = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
        let before =
            signals.into_iter().collect::<SigSet>().thread_swap_mask(SigmaskHow::SIG_BLOCK);
        let (target, namespace) = (target.to_owned(), namespace.map(ToOwned::to_owned));
        let helper = Helper::start(move |question| {
            answer(match question {
                ENTER => namespace.as_deref().map_or(Ok(()), process::enter_mount_namespace),
                _ => unmount(&target, question),
            })
        });
        if let Ok(before) = before {
            let _ = before.thread_set_mask();
        }
        let started = helper.and_then(|helper| {
            let Some(helper) = helper else { return Ok(None) };
            let unmounter = Self(Mutex::new(helper));
            // At once: the process of the namespace may have ended when the mount ends.
            unmounter.ask(ENTER).map(|()| Some(unmounter))
        });
        started.unwrap_or_else(|error| {
            tracing::warn!("no process can be made that unmounts: {error}");
            None
        })
    }

    /// As [`mounts::unmount`], if this mount is still there.
    pub(crate) fn unmount(&self, made: &Made, lazy: bool) -> io::Result<()> {
        self.ask_of(made, if lazy { LAZY } else { WHOLE })
    }

    /// Detaches this mount if it is still there, dead.
    pub(crate) fn unmount_dead(&self, made: &Made) -> io::Result<()> {
        self.ask_of(made, DEAD)
    }

    fn ask_of(&self, made: &Made, how: u8) -> io::Result<()> {
        let mut question = vec![how];
        question.extend_from_slice(made.device.as_bytes());
        question.extend(made.id.map(|id| format!(" {id}")).unwrap_or_default().into_bytes());
        self.ask(&question)
    }

    fn ask(&self, question: &[u8]) -> io::Result<()> {
        let helper = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        helper.ask(question)?;
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
            let _ = self.unmount(&Made { device: mount.device, id: None }, true);
        }
    }
}

/// The answer of the process: the error number or 0, and the message of an error without a number.
fn answer(done: io::Result<()>) -> Vec<u8> {
    match done {
        Ok(()) => 0_i32.to_le_bytes().to_vec(),
        Err(error) => match error.raw_os_error() {
            Some(errno) => errno.to_le_bytes().to_vec(),
            None => [&libc::EPERM.to_le_bytes()[..], error.to_string().as_bytes()].concat(),
        },
    }
}

fn unmount(target: &Path, question: &[u8]) -> io::Result<()> {
    let (&how, made) = question.split_first().ok_or(io::ErrorKind::InvalidData)?;
    let made = str::from_utf8(made).map_err(io::Error::other)?;
    let (device, id) = made.split_once(' ').unwrap_or((made, ""));
    let made = Made { device: device.to_owned(), id: id.parse().ok() };
    let target = mounts::resolve(target)?;
    let there = mounts::at(&target)?;
    let is_ours =
        |mount: &mounts::Mount| mount.fs_type == mounts::FS_TYPE && made.is_on(&mount.device);
    match how {
        _ if !there.as_ref().is_some_and(is_ours) => Ok(()),
        DEAD => unmount_dead(&target),
        _ => mounts::unmount(&target, how == LAZY),
    }
}

/// Detaches the mount on `target` if it is dead. Another mount must not be asked: perhaps it does not answer.
pub(crate) fn unmount_dead(target: &Path) -> io::Result<()> {
    match mounts::state(target) {
        Ok(mounts::State::Dead(_)) => mounts::unmount(target, true),
        _ => Ok(()),
    }
}
