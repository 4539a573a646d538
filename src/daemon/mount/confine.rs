//! The daemon is confined before it serves: to the files, ports, system calls and capabilities that it needs from then on.

use super::request::MountRequest;
use super::rules::rules;
use crate::daemon::sandbox::{Sandbox, Unmounter};
use crate::failure::{Exit, Failure};
use crate::io::confine::{self, Cage, Measure, Outcome};
use crate::transport::{BeforeRequests, Target};
use crate::vfs::Vfs;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The measures of confinement that hold, in words, once they are known: `info.json` shows them.
pub(super) type Shown = Arc<OnceLock<String>>;

/// If the daemon is to be confined and holds a password, hides the memory of this process and of the processes that it forks:
/// the password would be in the supervisor's and in the unmounter's memory, too.
pub(super) fn hide_password(request: &MountRequest) {
    if request.settings.sandbox != Sandbox::No && request.open.format.password.is_some() {
        confine::hide_memory();
    }
}

/// Prepares the confinement of this process. Nothing is confined yet. `unmounter` is the process outside; if confining fails,
/// it unmounts, unless this process goes on with the mount of another process (`is_resumed`).
///
/// # Errors
/// The confinement must be whole, and this host cannot make it so.
pub(super) fn confinement(
    request: &MountRequest,
    vfs: &Vfs,
    target: &Target,
    unmounter: Option<Arc<Unmounter>>,
    shown: &Shown,
    is_resumed: bool,
) -> Result<BeforeRequests, Failure> {
    let sandbox = request.settings.sandbox;
    if sandbox == Sandbox::No {
        let _ = shown.set("off".to_owned());
        return Ok(BeforeRequests::default());
    }
    if unmounter.is_none() && target.directory().is_some() {
        let outcome = Outcome {
            held: Vec::new(),
            missing: vec![(Measure::Files, "no process could be made to unmount".to_owned())],
        };
        refuse(sandbox, &outcome.missing)?;
        tell(&outcome, shown);
        return Ok(BeforeRequests::default());
    }
    let cage = Cage::new(&rules(request, vfs, target));
    refuse(sandbox, cage.missing())?;
    let (cage, shown) = (Mutex::new(Some(cage)), Arc::clone(shown));
    let target = target.directory().map(ToOwned::to_owned);
    Ok(BeforeRequests::new(move || {
        let cage = cage.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(cage) = cage else { return Ok(()) };
        let outcome = cage.enter();
        tell(&outcome, &shown);
        refuse(sandbox, &outcome.missing).map_err(|failure| {
            // This process cannot unmount any more. It must not end a mount that another process has made.
            if let (false, Some(unmounter), Some(target)) = (is_resumed, &unmounter, &target) {
                unmounter.undo(target);
            }
            failure.to_string()
        })
    }))
}

fn refuse(sandbox: Sandbox, missing: &[(Measure, String)]) -> Result<(), Failure> {
    match missing.first() {
        Some((measure, why)) if sandbox == Sandbox::Strict => {
            let hint = "--sandbox auto takes what there is";
            let why = format!("--sandbox strict: {measure}: {why}; {hint}");
            Err(Failure::new(Exit::Mount, why))
        }
        _ => Ok(()),
    }
}

fn tell(outcome: &Outcome, shown: &Shown) {
    tracing::info!("confined: {outcome}");
    let _ = shown.set(outcome.to_string());
}
