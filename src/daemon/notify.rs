//! Notifies the service manager of the state of a mount, by the protocol of sd_notify(3); without one does nothing.

use crate::format::one_line;
use crate::io::process::descriptor_store::{self, SOCKET};
use sd_notify::{NotifyState, watchdog_enabled};
use std::io;
use std::io::ErrorKind::{ConnectionRefused, NotFound, WouldBlock};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Whether the service manager is not ours: a daemon has the environment of the process that has mounted, and is not the
/// service that the manager there waits for.
static IS_OF_ANOTHER: AtomicBool = AtomicBool::new(false);

/// Sends no notifications from now on: the service manager that the environment names is not ours.
pub(crate) fn tell_nothing() {
    IS_OF_ANOTHER.store(true, Ordering::Relaxed);
}

/// Notifies that the mount works. `systemctl status` shows `status`, in one line: after a line break, which names of sources
/// may hold, another assignment to the service manager would begin.
pub(crate) fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(&one_line(status))]);
}

/// Notifies that the config file is being read again; [`ready`] ends that.
pub(crate) fn reloading() {
    // The time lets systemd ignore a READY=1 that was sent before.
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        send(&[NotifyState::Reloading, now]);
    }
}

/// Notifies that the mount is being unmounted. A service manager that does not read its messages does not delay that.
pub(crate) fn stopping(status: &str) {
    report(notify_at_once(&[NotifyState::Stopping, NotifyState::Status(&one_line(status))]));
}

/// If the service manager has a watchdog, answers it for as long as the mount answers a statfs, which goes
/// through the kernel to the threads that serve the mount.
pub(crate) fn keep_alive(target: PathBuf) {
    let Some(timeout) = watchdog_enabled() else { return };
    let give = move || {
        loop {
            // After a lazy unmount another file system answers, which will do.
            let _ = nix::sys::statvfs::statvfs(&target);
            send(&[NotifyState::Watchdog]);
            thread::sleep(timeout / 2);
        }
    };
    let started = thread::Builder::new().name("ffrfs-watchdog".to_owned()).spawn(give);
    if let Err(error) = started {
        tracing::warn!(
            "cannot start the thread that answers the watchdog of the service manager: {error}"
        );
    }
}

/// How often the service manager's watchdog wants a notification from this process, if there is a watchdog.
pub(crate) fn watchdog() -> Option<Duration> {
    watchdog_enabled().map(|timeout| timeout / 2)
}

/// Notifies the watchdog that this process lives. Returns the time until the next notification, `pause` as a rule:
/// it is shorter if the message to the service manager, which is not waited for, could not be sent.
pub(crate) fn alive(pause: Duration) -> Duration {
    let sent = notify_at_once(&[NotifyState::Watchdog]);
    let is_there = |error: &io::Error| !matches!(error.kind(), NotFound | ConnectionRefused);
    let is_late = sent.as_ref().is_err_and(is_there);
    report(sent);
    if is_late { pause / 8 } else { pause }
}

/// Sends a notification, and waits until the service manager has room for it.
fn send(state: &[NotifyState]) {
    if !is_silent() {
        report(descriptor_store::notify(&lines(state)));
    }
}

/// Sends a notification if the service manager has room for it.
fn notify_at_once(state: &[NotifyState]) -> io::Result<()> {
    if is_silent() { Ok(()) } else { descriptor_store::notify_at_once(&lines(state)) }
}

fn lines(state: &[NotifyState]) -> String {
    state.iter().map(|line| format!("{line}\n")).collect()
}

fn is_silent() -> bool {
    IS_OF_ANOTHER.load(Ordering::Relaxed)
}

fn report(sent: io::Result<()>) {
    let Err(error) = sent else { return };
    let why = match error.kind() {
        WouldBlock => "it has not read the earlier messages".to_owned(),
        _ => error.to_string(),
    };
    tracing::warn!("cannot notify the service manager (${SOCKET}): {why}");
}
