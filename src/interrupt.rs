//! Ctrl-C during long work: noticed between two steps, so that nothing is left half done.
//!
//! Used by the rooms above [`crate::vfs`]; imports only [`crate::failure`], beside which it stands, and `io`.

use crate::failure::Failure;
use crate::io::process::procfs;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};

/// Whether the user wants the work to end.
#[derive(Clone, Default)]
pub(crate) struct Interrupt {
    is_requested: Arc<AtomicBool>,
    /// Whether a signal has come. Set after the handler that ends the process at a second signal has looked at it.
    has_come: Arc<AtomicBool>,
}

/// The one listener of the process: each further handler would make the next one dearer.
static LISTENS: OnceLock<Interrupt> = OnceLock::new();
/// The handlers of [`LISTENS`].
static HANDLERS: Mutex<Vec<SigId>> = Mutex::new(Vec::new());

impl Interrupt {
    /// Begins to listen to SIGINT, SIGTERM and, unless it is ignored (nohup), SIGHUP; a second signal ends the process at once.
    pub(crate) fn listen() -> Self {
        static HANGUP: Once = Once::new();
        let this = Self::while_opening();
        HANGUP.call_once(|| {
            if !procfs::ignores(SIGHUP) {
                this.listen_to(SIGHUP);
            }
        });
        this
    }

    /// As [`Interrupt::listen`], without SIGHUP, which means something else to a mount.
    pub(crate) fn while_opening() -> Self {
        let listen = || {
            let this = Self::default();
            [SIGINT, SIGTERM].into_iter().for_each(|signal| this.listen_to(signal));
            this
        };
        LISTENS.get_or_init(listen).clone()
    }

    fn listen_to(&self, signal: i32) {
        // The order matters: a signal is noted from the first registration on, and the first signal finds `has_come` unset.
        let (is_requested, has_come) = (&self.is_requested, &self.has_come);
        let notes = signal_hook::flag::register(signal, Arc::clone(is_requested));
        let ends = signal_hook::flag::register_conditional_default(signal, Arc::clone(has_come));
        let remembers = signal_hook::flag::register(signal, Arc::clone(has_come));
        let mut handlers = HANDLERS.lock().unwrap_or_else(PoisonError::into_inner);
        handlers.extend([notes, ends, remembers].into_iter().flatten());
    }

    /// Ends the listening of this process: other listeners, which are there already, take the signals from now on.
    ///
    /// # Errors
    /// A signal has come before.
    pub(crate) fn leave_to_others() -> Result<(), Failure> {
        let mut handlers = HANDLERS.lock().unwrap_or_else(PoisonError::into_inner);
        // The handler that notes a signal goes last.
        for handler in handlers.drain(..).rev() {
            signal_hook::low_level::unregister(handler);
        }
        LISTENS.get().map_or(Ok(()), Self::check)
    }

    pub(crate) fn requested(&self) -> bool {
        self.is_requested.load(Ordering::Relaxed)
    }

    /// As [`Interrupt::requested`], as a failure.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.requested() {
            true => Err(Failure::interrupted()),
            false => Ok(()),
        }
    }
}
