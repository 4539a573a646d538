//! Has another program serve a mount in use: the program that is now at the path of the one that serves.

use super::live::Live;
use crate::failure::{Exit, Failure, say};
use crate::interrupt::Interrupt;
use crate::io::mount::fuse_connection::{self, Activity, Process};
use crate::io::mount::mounts;
use crate::io::process::workers::UPGRADE;
use crate::transport::support;
use crate::vfs::report::MountInfo;
use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// The name of the supervisor while it starts another program; `ps` shows it, too.
pub(crate) const BUSY: &CStr = c"ffrfs-upgrade";
/// The name of the supervisor once an upgrade has ended well; a digit follows, the number of the upgrade.
const DONE: &str = "ffrfs-upgraded";
/// How long a supervisor may take to begin, and may be stopped.
const BEGINNING: Duration = Duration::from_secs(5);
/// How long another program may take to serve. It may have to read all of a container, and the former program serves meanwhile.
const STARTING: Duration = Duration::from_secs(600);
/// How much longer a supervisor may take to end a program that does not serve in time.
const ENDING: Duration = Duration::from_secs(30);
/// The most processes that may serve one after the other while the supervisor is looked for.
const MAX_SERVERS: u32 = 20;
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// How long another program may take to serve. With the feature `test-hooks`, a variable says how
/// many seconds.
pub(crate) fn starting() -> Duration {
    #[cfg(feature = "test-hooks")]
    if let Some(seconds) = std::env::var("FFRFS_TEST_STARTING").ok().and_then(|it| it.parse().ok())
    {
        return Duration::from_secs(seconds);
    }
    STARTING
}

/// The name of a supervisor once the upgrade with this number has ended well.
pub(crate) fn done(number: u32) -> CString {
    named(DONE, number)
}

/// A name of a supervisor: a word and a digit, as the kernel cuts a name after 15 bytes.
fn named(word: &str, number: u32) -> CString {
    CString::new(format!("{word}{}", number % 10)).unwrap_or_default()
}

/// The reason why another program does not serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The program has ended by itself.
    Refused,
    /// There is no program that can be run.
    NoProgram,
    /// A signal has ended the program.
    Died,
    /// The program has taken too long.
    Late,
    /// There are too few processes, open files or memory for the program.
    Lacking,
}

impl Refusal {
    const ALL: [Self; 5] = [Self::Refused, Self::NoProgram, Self::Died, Self::Late, Self::Lacking];

    fn word(self) -> &'static str {
        match self {
            Self::Refused => "ffrfs-refused",
            Self::NoProgram => "ffrfs-noprog",
            Self::Died => "ffrfs-died",
            Self::Late => "ffrfs-late",
            Self::Lacking => "ffrfs-lacking",
        }
    }

    /// The name of a supervisor once the upgrade with this number has failed for this reason.
    pub(crate) fn name(self, number: u32) -> CString {
        named(self.word(), number)
    }

    fn explained(self) -> &'static str {
        match self {
            Self::Refused => "the other program does not go on with it",
            Self::NoProgram => {
                "what is installed now cannot be run as a program (is the file whole, and for this machine?)"
            }
            Self::Died => "the other program has crashed, or was killed (is its file whole?)",
            Self::Late => "the other program has not begun to serve in time, and was ended",
            Self::Lacking => {
                "there are too few processes, open files or memory for the other program beside the one that serves \
                 (the messages name the limit: ulimit -u, pids.max of the cgroup, ulimit -n or ulimit -v)"
            }
        }
    }
}

/// Asks the supervisor of the mount on `target` for an upgrade, and waits until the other program serves. Returns the
/// information that it gives of itself.
///
/// # Errors
/// No dataset is mounted there, the mount has no supervisor, or the other program cannot go on with it; then the mount is
/// served as before.
pub(crate) fn upgrade(target: &Path) -> Result<MountInfo, Failure> {
    let live = Live::at(target)?;
    let failed = |why: &str| Failure::new(Exit::Mount, format!("{}: {why}", live.root().display()));
    let mount = mounts::at(live.root()).ok().flatten();
    let device = mount.map(|mount| mount.device).unwrap_or_default();
    let (info, supervisor) = of_server(
        || live.info(),
        |info| info.pid,
        |pid| fuse_connection::supervisor(&device, pid),
    )?;
    if info.transport != "devfuse" {
        return Err(failed(
            "its requests come through io_uring, which no other process can take over: unmount it, and \
             mount it again (with transport=devfuse, to upgrade it without a pause)",
        ));
    }
    support::handover()
        .map_err(|obstacle| failed(&format!("{obstacle}: unmount it, and mount it again")))?;
    let supervisor = supervisor.filter(|supervisor| supervisor.blocks(UPGRADE)).ok_or_else(|| {
        failed(match info.restarts {
            0 => {
                "no supervisor holds this mount (--restarts 0, or a version before it was the default): for another \
                 program to serve it, unmount it, and mount it again"
            }
            _ => {
                "its supervisor has ended, and the daemon serves on without: for another program to serve it, unmount \
                 it, and mount it again"
            }
        })
    })?;
    let before = supervisor.name();
    // Before the upgrade begins: from then on Ctrl-C ends the wait, with a message.
    let interrupt = Interrupt::listen();
    supervisor.send(UPGRADE).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            failed("only root and the user who mounted it may do this")
        }
        _ => failed(&error.to_string()),
    })?;
    let why = match wait(&live, &supervisor, &before, &interrupt)? {
        Outcome::Served(info) => return Ok(*info),
        Outcome::Refused(refusal) => {
            format!("{}; the one before serves on", refusal.explained())
        }
        Outcome::Waits => "the other program has not begun to serve in time, and its supervisor does not end it; the \
                           one before serves on"
            .to_owned(),
        Outcome::Interrupted => {
            let pid = supervisor.pid;
            say(format_args!(
                "ffrfs: {}: interrupted; the upgrade goes on without this command, until the other program serves, or \
                 for {} s (to end it, kill -9 the youngest child of process {pid}; messages: {})",
                live.root().display(),
                starting().as_secs(),
                info.log
            ));
            return Err(Failure::interrupted());
        }
        Outcome::Stopped => format!(
            "its supervisor, process {}, does not start another program: it is stopped, or was killed",
            supervisor.pid
        ),
    };
    Err(failed(&format!("{why} (messages: {})", info.log)))
}

/// The answer of the process that serves, and the result of `find` for the number of that process. If `find` has no result, the
/// process may have ended since it answered, as another upgrade was under way: then the mount is asked again.
fn of_server<Info, Found>(
    ask: impl Fn() -> Result<Info, Failure>,
    pid: impl Fn(&Info) -> u32,
    find: impl Fn(u32) -> Option<Found>,
) -> Result<(Info, Option<Found>), Failure> {
    let mut info = ask()?;
    for _ in 0..MAX_SERVERS {
        let found = find(pid(&info));
        if found.is_some() {
            return Ok((info, found));
        }
        let former = std::mem::replace(&mut info, ask()?);
        if pid(&info) == pid(&former) {
            break;
        }
    }
    Ok((info, None))
}

enum Outcome {
    /// The other program serves, and has this information.
    Served(Box<MountInfo>),
    Refused(Refusal),
    /// The other program neither serves nor ends.
    Waits,
    /// The supervisor does nothing, or has ended.
    Stopped,
    /// The user has pressed Ctrl-C.
    Interrupted,
}

impl Outcome {
    /// The result that the name of a supervisor shows; `None` for a name that no upgrade gives.
    fn told(name: &str) -> Option<Result<(), Refusal>> {
        let word = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let refusal = || Refusal::ALL.into_iter().find(|refusal| refusal.word() == word);
        if word == DONE { Some(Ok(())) } else { refusal().map(Err) }
    }
}

/// Waits for the end of the upgrade; before it, the supervisor was called `before`.
fn wait(
    live: &Live,
    supervisor: &Process,
    before: &str,
    interrupt: &Interrupt,
) -> Result<Outcome, Failure> {
    let start = Instant::now();
    let mut has_begun = false;
    loop {
        let is_late = start.elapsed() > BEGINNING;
        let name = supervisor.name();
        let is_busy = name.as_bytes() == BUSY.to_bytes();
        has_begun |= is_busy || name != before;
        let told = Outcome::told(&name).filter(|_| has_begun);
        match told {
            Some(Err(refusal)) => return Ok(Outcome::Refused(refusal)),
            // A file that was opened at one process cannot be read from another: the file is opened again.
            Some(Ok(())) => match live.info() {
                Ok(info) => return Ok(Outcome::Served(Box::new(info))),
                Err(failure) if is_late => return Err(failure),
                Err(_) => {}
            },
            None if supervisor.activity() == Activity::Ended => return Ok(Outcome::Stopped),
            None if is_late && (!is_busy || supervisor.activity() == Activity::Stopped) => {
                return Ok(Outcome::Stopped);
            }
            None if start.elapsed() > starting() + ENDING => return Ok(Outcome::Waits),
            None => {}
        }
        if interrupt.requested() {
            return Ok(Outcome::Interrupted);
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks a mount that these processes serve, one after the other, of which only `living` is still there.
    fn asked(pids: &[u32], living: u32) -> (u32, Option<u32>) {
        let left = std::cell::RefCell::new(pids.iter().copied());
        let ask = || Ok(left.borrow_mut().next().unwrap());
        of_server(ask, |pid| *pid, |pid| (pid == living).then_some(pid)).unwrap()
    }

    #[test]
    fn a_mount_is_asked_again_if_the_process_that_answered_has_ended_since() {
        assert_eq!(asked(&[7], 7), (7, Some(7)));
        assert_eq!(asked(&[7, 8], 8), (8, Some(8)));
        assert_eq!(asked(&[7, 8, 9], 9), (9, Some(9)));
        assert_eq!(asked(&[7, 7], 8), (7, None), "nobody watches it");
        assert_eq!(asked(&[7, 8, 8], 9), (8, None));
        let endless: Vec<u32> = (0..=MAX_SERVERS).collect();
        assert_eq!(asked(&endless, u32::MAX), (MAX_SERVERS, None), "it lies");
    }

    #[test]
    fn the_name_of_a_supervisor_tells_how_an_upgrade_has_ended() {
        let told = |name: &CStr| Outcome::told(name.to_str().unwrap());
        for refusal in Refusal::ALL {
            let name = refusal.name(7);
            assert!(name.count_bytes() <= 15, "{name:?}");
            assert_eq!(told(&name), Some(Err(refusal)));
        }
        assert_eq!(told(&done(123)), Some(Ok(())));
        assert!(done(0).count_bytes() <= 15 && done(1) != done(2));
        assert_eq!((told(BUSY), told(c"ffrfs")), (None, None));
    }
}
