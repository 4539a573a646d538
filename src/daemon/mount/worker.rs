//! A process that serves a mount for a supervisor.

use super::limits;
use super::prepare::prepare;
use super::request::{Caller, MountRequest};
use super::stored;
use super::told::{self, Resumed, Told};
use crate::daemon::serve::{Service, Serving};
use crate::failure::{Exit, Failure};
use crate::io::process;
use crate::io::process::workers::{Messages, has_nobody};
use crate::store::remote::StoreError;
use crate::transport::Target;
use signal_hook::consts::SIGHUP;
use std::io;
use std::sync::Arc;

/// The exit code of a worker that could not go on with a mount, but might at another time.
pub(super) const TRY_AGAIN: u8 = 75;

/// The exit code of a worker that was serving, and could not go on.
pub(super) const BROKE: u8 = 76;

/// The exit code of a worker that could not open its source, since its store or file server does not answer for now.
pub(super) const AWAY: u8 = 77;

/// The exit code of a worker whose mount has gone from another mount namespace, where its supervisor cannot look.
pub(super) const GONE: u8 = 78;

/// The task of a worker.
pub(super) struct Work<'a> {
    pub(super) request: &'a MountRequest,
    pub(super) target: Target,
    /// `None` for the first worker.
    pub(super) told: Option<Told>,
    pub(super) is_daemon: bool,
    pub(super) caller: Caller,
}

/// Serves, and tells the supervisor of the mount. Returns the exit code.
///
/// # Errors
/// The mount broke.
pub(super) fn work(work: Work<'_>, messages: &Messages) -> Result<u8, Failure> {
    let Work { request, target, told, is_daemon, caller } = work;
    let supervisor = messages.supervisor().map_err(|e| Failure::new(Exit::Mount, e))?;
    let is_first = told.is_none();
    if !is_first {
        // The signal must not end this process before it is handled.
        let _ = signal_hook::flag::register(SIGHUP, Arc::default());
    }
    let resumed = told.map_or_else(Resumed::default, |told| told.resumed(messages));
    let prepared = prepare(request, target, resumed, caller.end).map(|service| Service {
        supervisor: Some(supervisor),
        // The manager keeps no mount of a daemon that has left the manager.
        is_kept: !is_daemon && stored::is_possible(),
        ..service
    });
    let serving = prepared.and_then(Service::start).and_then(|serving| {
        // For tests of a process that dies or hangs when it has mounted, and before it has told of the mount.
        #[cfg(feature = "test-hooks")]
        super::prepare::wait_for_test("FFRFS_TEST_BEFORE_TELLING");
        match told::tell(messages, &serving) {
            Ok(()) => Ok(serving),
            Err(error) if !is_first && has_nobody(&error) => {
                go_on_alone(&serving);
                Ok(serving)
            }
            Err(error) => {
                // No other process knows of the mount.
                if is_first {
                    serving.undo();
                }
                Err(match has_nobody(&error) {
                    true => Failure::new(Exit::Mount, "its supervisor has died"),
                    false => Failure::new(Exit::Mount, error),
                })
            }
        }
    });
    match serving.map_err(|failure| limits::explain(failure, request)) {
        Ok(serving) => {
            if is_daemon {
                process::leave_terminal();
            }
            if !is_first {
                let (pid, version) = (std::process::id(), env!("CARGO_PKG_VERSION"));
                tracing::info!("process {pid} of ffrfs {version} serves {} now", serving.target);
            }
            let served = serving.serve().map_err(|failure| request.name_in(failure));
            Ok(served.map_or_else(
                |failure| {
                    tracing::error!("{failure}");
                    BROKE
                },
                |exit| exit as u8,
            ))
        }
        Err(failure) => {
            let failure = request.name_in(failure);
            if is_first {
                (caller.print)(&failure);
                return Ok((caller.exit_code)(&failure));
            }
            tracing::error!("{failure}");
            if failure.exit == Exit::Ok && request.namespace.is_some() {
                return Ok(GONE);
            }
            Ok(may_pass(&failure).unwrap_or_else(|| (caller.exit_code)(&failure)))
        }
    }
}

/// Goes on without the supervisor, which has died since it started this process.
fn go_on_alone(serving: &Serving) {
    let target = &serving.target;
    tracing::warn!(
        "{target}: its supervisor has ended: nobody starts another process if this one dies"
    );
    // No other process asks the kernel for the requests that the process before this one had taken.
    if serving.mounted.handover().is_some()
        && let Err(error) = serving.mounted.resend()
    {
        tracing::debug!("{target}: {error}");
    }
}

/// The exit code for a failure that another process may not meet, as the missing resource may be there then.
fn may_pass(failure: &Failure) -> Option<u8> {
    const LACKING: [i32; 4] = [libc::ENOMEM, libc::EAGAIN, libc::EMFILE, libc::ENFILE];
    /// Errors of file servers and disks that are away.
    const UNREACHED: [i32; 14] = [
        libc::EIO,
        libc::ENXIO,
        libc::ENODEV,
        libc::ESTALE,
        libc::ENOTCONN,
        libc::ENOLINK,
        libc::ECOMM,
        libc::EHOSTDOWN,
        libc::EHOSTUNREACH,
        libc::ENETUNREACH,
        libc::ETIMEDOUT,
        libc::ECONNREFUSED,
        libc::ECONNRESET,
        libc::ECONNABORTED,
    ];
    let error = failure.reason::<io::Error>();
    let errno = error.and_then(io::Error::raw_os_error);
    if limits::errno(failure).is_some_and(|errno| LACKING.contains(&errno)) {
        return Some(TRY_AGAIN);
    }
    let is_away = match failure.exit {
        // A process that was asked to end leaves the mount to the supervisor, which has been asked, too, or starts another
        // worker.
        Exit::Ok | Exit::Interrupted => return Some(TRY_AGAIN),
        Exit::Unreachable => true,
        Exit::Unreadable => {
            errno.is_some_and(|errno| UNREACHED.contains(&errno))
                || error.and_then(StoreError::of).is_some_and(StoreError::is_passing)
        }
        _ => false,
    };
    is_away.then_some(AWAY)
}

/// Goes on with a mount as a program that a supervisor has started in place of its own; `None` in any other program. The
/// log must have been started.
///
/// # Errors
/// The message of the supervisor is not understood.
pub(super) fn inherited() -> Result<Option<(Messages, Told)>, Failure> {
    let failed = |error: io::Error| {
        Failure::new(Exit::Mount, error).context("what the supervisor of this mount has told")
    };
    let Some(messages) = Messages::inherited().map_err(failed)? else { return Ok(None) };
    process::set_name(c"ffrfs");
    let told = messages.receive().map_err(failed)?.and_then(Told::hear);
    let told = told.ok_or_else(|| {
        let why = "the supervisor is of another version: unmount the dataset, and mount it again";
        Failure::new(Exit::Mount, why)
    })?;
    Ok(Some((messages, told)))
}
