//! System calls on a mount, for commands that must not wait for ever: they give up on a daemon that is stopped, or hangs.
//! Imports `io` and `failure`.

use crate::failure::{Exit, Failure};
use crate::io::mount::control_file;
use crate::io::mount::fuse_connection::{self, Activity, Process};
use crate::io::mount::mount_id::MountId;
use crate::io::mount::mounts;
use crate::io::process::workers::UPGRADE;
use crate::io::{Helper, announce};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a daemon may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// A system call on a mount.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Call {
    /// All bytes of a control file.
    Read = 1,
    /// The owner of a control file, as 4 bytes.
    Owner = 2,
    /// Gives bytes to a control file.
    Announce = 3,
    /// Whether the daemon answers at all.
    Ask = 4,
    /// Whether the daemon answers a process that may look into the mount; others are refused, so that the kernel does not
    /// answer itself.
    AskInside = 5,
}

/// Makes system calls on a mount in a child, which is left behind if they do not return. If this process has other threads
/// already, it makes the calls itself, without a child; if the system makes no process, the calls fail.
pub(crate) struct Patient(io::Result<Option<Helper>>);

/// A daemon does not answer.
#[derive(Debug, thiserror::Error)]
#[error("its daemon has not answered for {} s", PATIENCE.as_secs())]
struct Silent {
    /// The mount of the daemon, if it is not the mount that was asked, but one around it.
    root: Option<PathBuf>,
}

/// The system could not make the process that asks.
#[derive(Debug, thiserror::Error)]
#[error("no process can be made that asks its daemon (ulimit -u, pids.max of the cgroup): {0}")]
struct Unmade(String);

/// A question to which the answer has not been taken yet.
pub(crate) struct Asked<'a> {
    patient: &'a Patient,
    question: Vec<u8>,
}

impl Patient {
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self(Helper::start(serve))
    }

    /// For calls on this mount: if root is refused, its calls are made as the only user who may look into the mount.
    pub(crate) fn of(mount: &mounts::Mount) -> Self {
        Self(Helper::start_as(mount.seen_as(), serve, is_refused))
    }

    /// Whether the daemon of the mount on `root` answers at all. If this process may not look into the mount, the kernel itself
    /// answers.
    pub(crate) fn ask_daemon(&self, root: &Path) -> io::Result<()> {
        self.ask(Call::Ask, root, &[])?.answer(Instant::now() + PATIENCE).map(drop)
    }

    /// All bytes of a control file.
    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.ask_bytes(path)?.answer(Instant::now() + PATIENCE)
    }

    /// Begins to ask for all bytes of a control file.
    pub(crate) fn ask_bytes(&self, path: &Path) -> io::Result<Asked<'_>> {
        self.ask(Call::Read, path, &[])
    }

    /// Gives bytes to a control file.
    pub(crate) fn announce(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.ask(Call::Announce, path, bytes)?.answer(Instant::now() + PATIENCE).map(drop)
    }

    /// Begins to ask for the owner of a control file.
    pub(crate) fn ask_owner(&self, path: &Path) -> io::Result<Asked<'_>> {
        self.ask(Call::Owner, path, &[])
    }

    fn ask(&self, call: Call, path: &Path, bytes: &[u8]) -> io::Result<Asked<'_>> {
        let path = path.as_os_str().as_bytes();
        let length = (path.len() as u64).to_le_bytes();
        let question = [&[call as u8][..], &length, path, bytes].concat();
        if let Some(helper) = self.helper()? {
            helper.ask(&question).map_err(unasked)?;
        }
        Ok(Asked { patient: self, question })
    }

    fn helper(&self) -> io::Result<Option<&Helper>> {
        let unmade = |e: &io::Error| io::Error::other(Unmade(e.to_string()));
        self.0.as_ref().map(Option::as_ref).map_err(unmade)
    }
}

impl Asked<'_> {
    /// The owner that was asked for.
    pub(crate) fn owner(self, deadline: Instant) -> io::Result<u32> {
        let answer = self.answer(deadline)?;
        let bytes = answer.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// The bytes that were asked for. Answers are taken in the order of their questions.
    pub(crate) fn answer(self, deadline: Instant) -> io::Result<Vec<u8>> {
        let answer = match self.patient.helper()? {
            None => serve(&self.question),
            Some(helper) => helper.answer(deadline).map_err(unasked)?.ok_or_else(silent)?,
        };
        let (errno, bytes) = answer.split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
        match i32::from_le_bytes(*errno) {
            0 => Ok(bytes.to_vec()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, Silent { root: None })
}

/// The error for a child that has taken no question, or given no answer. The only user who may look into a mount can kill the
/// child that asks as that user: [`io::ErrorKind::BrokenPipe`].
fn unasked(error: io::Error) -> io::Error {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, UnexpectedEof};
    match error.kind() {
        TimedOut => silent(),
        BrokenPipe | ConnectionReset | UnexpectedEof => {
            io::Error::new(BrokenPipe, "the process that asked it was killed")
        }
        _ => error,
    }
}

/// Whether a mount was not asked because the system could not make a process for that.
pub(crate) fn is_unmade(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<Unmade>())
}

/// Whether this is the answer to a process that may not look into the mount.
fn is_refused(answer: &[u8]) -> bool {
    answer.starts_with(&libc::EACCES.to_le_bytes())
}

/// Makes the system call of a question: returns the error number, and the bytes that the call has given.
fn serve(question: &[u8]) -> Vec<u8> {
    let made = (|| {
        let (call, rest) = question.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (path, bytes) = rest.split_at_checked(length)?;
        Some(make(*call, Path::new(OsStr::from_bytes(path)), bytes))
    })();
    let made = made.unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::EINVAL)));
    let errno = |e: &io::Error| e.raw_os_error().unwrap_or(libc::EIO);
    let number = made.as_ref().err().map_or(0, errno);
    [&number.to_le_bytes()[..], &made.unwrap_or_default()].concat()
}

fn make(call: u8, path: &Path, bytes: &[u8]) -> io::Result<Vec<u8>> {
    match call {
        call if call == Call::Read as u8 => control_file::read(path),
        call if call == Call::Owner as u8 => Ok(control_file::owner(path)?.to_le_bytes().to_vec()),
        call if call == Call::Announce as u8 => {
            let announced = || announce(&control_file::open(path)?, bytes);
            control_file::opened_anew(announced).map(|()| Vec::new())
        }
        call if call == Call::AskInside as u8 => {
            // The kernel refuses this call to users who may not look into the mount, but not the next one.
            std::fs::metadata(path).and_then(|_| mounts::ask(path)).map(|()| Vec::new())
        }
        _ => mounts::ask(path).map(|()| Vec::new()),
    }
}

/// As [`mounts::state`], for a mount whose daemon may be stopped.
///
/// # Errors
/// As for [`mounts::state`]; or the daemon does not answer ([`io::ErrorKind::TimedOut`]).
pub(crate) fn state(target: &Path) -> io::Result<mounts::State> {
    state_within(target, PATIENCE)
}

/// As [`state`], with another time for the answer.
///
/// # Errors
/// As for [`state`].
pub(crate) fn state_within(target: &Path, patience: Duration) -> io::Result<mounts::State> {
    let mut ours = mounts::Ours::now()?;
    while let Some(met) = ours.met_by(target) {
        let mount = met.mount.clone();
        let asked = ask(&mount, patience);
        if met.rest.as_os_str().is_empty() {
            return mount.state(asked);
        }
        // The target lies in this mount, perhaps in another mount in it.
        asked?;
        ours.leave_out(&mount.target);
    }
    mounts::state(target)
}

/// Asks the daemon of a mount.
fn ask(mount: &mounts::Mount, patience: Duration) -> io::Result<()> {
    let (patient, is_private) = (Patient::of(mount), mount.seen_as().is_some());
    // Root would be answered by the kernel itself, also for a dead daemon.
    let call = if is_private { Call::AskInside } else { Call::Ask };
    let asked = patient.ask(call, &mount.target, &[])?.answer(Instant::now() + patience);
    asked.map(drop).or_else(|error| match error.kind() {
        // The user who may look into the mount does not reach it either: nothing is known of its daemon.
        io::ErrorKind::PermissionDenied if is_private => Ok(()),
        io::ErrorKind::TimedOut => {
            let root = Some(mount.target.clone());
            Err(io::Error::new(io::ErrorKind::TimedOut, Silent { root }))
        }
        _ => Err(error),
    })
}

/// As [`ask`], for a command that would wait for the answer for ever. Other errors are left to the command.
fn insist(mount: &mounts::Mount) -> Result<(), Failure> {
    match ask(mount, PATIENCE) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            Err(unanswered(&mount.target, &error))
        }
        _ => Ok(()),
    }
}

/// Checks that all mounts of ours answer that paths lead to, or that patterns are looked up in, before system calls that would
/// wait for ever.
///
/// # Errors
/// A daemon does not answer.
pub(crate) fn check<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<(), Failure> {
    let Ok(mut ours) = mounts::Ours::now() else { return Ok(()) };
    for path in paths {
        // Outer mounts come first, as links can be read only in mounts that answer.
        let patterns = path.as_os_str().as_bytes().iter().any(|byte| b"*?[".contains(byte));
        let met = patterns.then(|| ours.met_by_pattern(path)).into_iter().flatten();
        let met = met.map(|met| (met.mount.target.clone(), met.mount.clone()));
        for (root, mount) in met.collect::<BTreeMap<_, _>>() {
            insist(&mount)?;
            ours.leave_out(&root);
        }
        while let Some(met) = ours.met_by(path) {
            let mount = met.mount.clone();
            insist(&mount)?;
            ours.leave_out(&mount.target);
        }
    }
    Ok(())
}

/// The failure of a command whose mount does not answer, with advice. `target` may lie in the mount.
pub(crate) fn unanswered(target: &Path, error: &io::Error) -> Failure {
    let silent = error.get_ref().and_then(|error| error.downcast_ref::<Silent>());
    let target = silent.and_then(|silent| silent.root.as_deref()).unwrap_or(target);
    let ours = mounts::Ours::now().ok();
    let mount =
        ours.as_ref().and_then(|ours| ours.at(target).or_else(|| Some(ours.met_by(target)?.mount)));
    let what = mount.map_or(String::new(), why_silent);
    let target = mount.map_or(target, |mount| &mount.target).display();
    let message = format!("{target}: {error}{what}; ffrfs umount --force {target} ends the mount");
    Failure::new(Exit::Mount, message)
}

/// The process of a mount that keeps it from answering, and advice.
pub(crate) fn why_silent(mount: &mounts::Mount) -> String {
    let id = MountId::of(mount.number);
    let servers = fuse_connection::servers(&mount.device, id, None);
    let is_stopped = |server: &&Process| server.activity() == Activity::Stopped;
    // A process that goes on alone would find the others stopped.
    let stopped: Vec<u32> = servers.iter().filter(is_stopped).map(|server| server.pid).collect();
    match stopped.as_slice() {
        [] => {
            // A supervisor holds the connection, and answers nothing itself.
            let serves = servers.iter().find(|server| !server.blocks(UPGRADE));
            let hangs = serves.or(servers.first()).map(|server| server.pid);
            hangs.map_or(String::new(), |pid| format!(": process {pid} hangs, its log may say why"))
        }
        [pid] => format!(": process {pid} is stopped: kill -CONT {pid} lets it go on"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(u32::to_string).collect();
            let (listed, all) = (first.join(", "), first.join(" "));
            format!(
                ": processes {listed} and {last} are stopped: kill -CONT {all} {last} lets them go on"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn calls_give_what_they_would_give_here() {
        // The tests run in threads, so that no child is made.
        let (patient, directory) = (Patient::new(), tempfile::tempdir().unwrap());
        let file = directory.path().join("x");
        fs::write(&file, "text").unwrap();
        let owner = patient.ask_owner(&file).unwrap().owner(Instant::now() + PATIENCE);
        let announced = patient.announce(&file, b"12345678");
        let missing = patient.read(&directory.path().join("missing"));
        for refused in [patient.read(&file).err(), owner.err(), announced.err(), missing.err()] {
            let kind = refused.unwrap().kind();
            assert_eq!(kind, io::ErrorKind::NotADirectory, "it is no control file");
        }
        assert!(matches!(state(directory.path()), Ok(mounts::State::Free)));
        assert_eq!(&serve(b"nonsense")[..4], libc::EINVAL.to_le_bytes());
    }

    #[test]
    fn where_no_process_can_be_made_nothing_is_asked() {
        let patient = Patient(Err(io::Error::from_raw_os_error(libc::EAGAIN)));
        let (root, deadline) = (Path::new("/"), Instant::now() + PATIENCE);
        let asked = patient.ask_owner(root).and_then(|asked| asked.owner(deadline));
        for error in [patient.ask_daemon(root).err(), patient.read(root).err(), asked.err()] {
            let error = error.unwrap();
            assert!(is_unmade(&error), "{error}");
            assert!(error.to_string().contains("no process can be made"), "{error}");
        }
    }

    #[test]
    fn a_process_that_was_killed_is_told_from_one_that_is_late() {
        let kind = |kind: io::ErrorKind| unasked(kind.into()).kind();
        for ended in [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset] {
            assert_eq!(kind(ended), io::ErrorKind::BrokenPipe);
        }
        assert_eq!(kind(io::ErrorKind::TimedOut), io::ErrorKind::TimedOut);
    }
}
