//! What a service manager hears of a mount, by the protocol of sd_notify(3). Without one nothing is said.

use sd_notify::{NotifyState, notify, watchdog_enabled};
use std::path::PathBuf;
use std::thread;

/// The mount works; `status` is what `systemctl status` shows.
pub(crate) fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The config file is being read again; [`ready`] ends that.
pub(crate) fn reloading() {
    // systemd takes a READY=1 that was sent before for none: the time tells.
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        send(&[NotifyState::Reloading, now]);
    }
}

/// It is being unmounted.
pub(crate) fn stopping(status: &str) {
    send(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// If the service manager wants signs of life, gives them as long as the mount answers: each is a question
/// that goes through the kernel to the threads that serve it.
pub(crate) fn keep_alive(target: PathBuf) {
    let Some(timeout) = watchdog_enabled() else { return };
    let give = move || {
        loop {
            // Detached with files still open, something else is there: also an answer.
            let _ = nix::sys::statvfs::statvfs(&target);
            send(&[NotifyState::Watchdog]);
            thread::sleep(timeout / 2);
        }
    };
    let started = thread::Builder::new().name("ffrfs-watchdog".to_owned()).spawn(give);
    if let Err(error) = started {
        tracing::warn!("no signs of life for the service manager: {error}");
    }
}

fn send(state: &[NotifyState]) {
    if let Err(error) = notify(state) {
        tracing::warn!("the service manager does not listen ($NOTIFY_SOCKET): {error}");
    }
}
