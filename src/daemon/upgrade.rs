//! Has another program serve a mount in use: the one that is now where the program was that serves it.

use super::live::Live;
use crate::failure::{Exit, Failure};
use crate::io::fuse_connection::{self, Activity, Process};
use crate::io::mounts;
use crate::io::workers::UPGRADE;
use crate::transport::support;
use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// What the supervisor is called while it starts another program, which `ps` shows, too.
pub(crate) const BUSY: &CStr = c"ffrfs-upgrade";
/// What it is called after it has failed for the time with this number.
pub(crate) fn refused(times: u32) -> CString {
    CString::new(format!("ffrfs-refused{}", times % 100)).unwrap_or_default()
}
/// How long a supervisor may take to begin, and may be stopped.
const BEGINNING: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Asks the supervisor of the mount on `target` for it, and waits until the other program serves. Gives the number of its
/// process.
///
/// # Errors
/// No dataset is mounted there, it has no supervisor, or the other program cannot go on with it; it is served as before
/// then.
pub(crate) fn upgrade(target: &Path) -> Result<u32, Failure> {
    let live = Live::at(target)?;
    let failed = |why: &str| Failure::new(Exit::Mount, format!("{}: {why}", live.root().display()));
    let info = live.info()?;
    let mount = mounts::at(live.root()).ok().flatten();
    let device = mount.map(|mount| mount.device).unwrap_or_default();
    if info.transport != "devfuse" {
        return Err(failed(
            "its requests come through io_uring, which no other process can take over: unmount it, and \
             mount it again (with transport=devfuse, to upgrade it without a pause)",
        ));
    }
    support::handover()
        .map_err(|obstacle| failed(&format!("{obstacle}: unmount it, and mount it again")))?;
    let supervisor = fuse_connection::supervisor(&device, info.pid)
        .filter(|supervisor| supervisor.blocks(UPGRADE))
        .ok_or_else(|| {
            failed(
                "no supervisor holds this mount (--restarts 0, or a version before it was the default): for \
                 another program to serve it, unmount it, and mount it again",
            )
        })?;
    let before = Before { pid: info.pid, name: supervisor.name() };
    supervisor.send(UPGRADE).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            failed("only root and the user who mounted it may do this")
        }
        _ => failed(&error.to_string()),
    })?;
    let why = match wait(&live, &supervisor, &before)? {
        Outcome::Served(pid) => return Ok(pid),
        Outcome::Refused => "the other program does not go on with it, and the one before serves",
        Outcome::Stopped => "its supervisor does not start another program",
    };
    Err(failed(&format!("{why} (messages: {})", info.log)))
}

enum Outcome {
    /// By the process with this number.
    Served(u32),
    Refused,
    /// The supervisor does nothing, or has ended.
    Stopped,
}

/// How it was before the upgrade.
struct Before {
    /// The process that served.
    pid: u32,
    /// What the supervisor was called.
    name: String,
}

fn wait(live: &Live, supervisor: &Process, before: &Before) -> Result<Outcome, Failure> {
    let start = Instant::now();
    let mut has_begun = false;
    loop {
        let is_late = start.elapsed() > BEGINNING;
        // In this order: a program that serves has told so before the supervisor is done.
        let name = supervisor.name();
        let is_busy = name.as_bytes() == BUSY.to_bytes();
        has_begun |= is_busy || name != before.name;
        if !is_busy {
            // What was opened at one process cannot be read from another: it is tried again.
            match live.info() {
                Ok(info) if info.pid != before.pid => return Ok(Outcome::Served(info.pid)),
                Ok(_) if has_begun || supervisor.activity() == Activity::Ended => {
                    return Ok(Outcome::Refused);
                }
                Ok(_) if is_late => return Ok(Outcome::Stopped),
                Err(failure) if is_late => return Err(failure),
                Ok(_) | Err(_) => {}
            }
        } else if is_late && supervisor.activity() != Activity::Runs {
            return Ok(Outcome::Stopped);
        }
        std::thread::sleep(LOOK);
    }
}
