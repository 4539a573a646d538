//! Ctrl-C during long work: noticed between two steps, so that nothing is left half done.
//!
//! Used by the rooms above [`crate::vfs`]; imports only [`crate::failure`], beside which it stands.

use crate::failure::Failure;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Whether the user wants the work to end.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Begins to listen to SIGINT and SIGTERM; a second one ends the process at once.
    pub(crate) fn listen() -> Self {
        // Once: each further handler would make the next one dearer.
        static LISTENS: OnceLock<Interrupt> = OnceLock::new();
        let listen = || {
            let flag = Arc::new(AtomicBool::new(false));
            for signal in [SIGINT, SIGTERM] {
                // In this order: the first signal finds the flag unset.
                let _ = signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag));
                let _ = signal_hook::flag::register(signal, Arc::clone(&flag));
            }
            Self(flag)
        };
        LISTENS.get_or_init(listen).clone()
    }

    pub(crate) fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// As [`Interrupt::requested`], as a failure.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.requested() {
            true => Err(Failure::interrupted()),
            false => Ok(()),
        }
    }
}
