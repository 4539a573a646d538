//! One fetch for many: who asks for a sample that is being fetched waits for it, without holding a thread.

use std::sync::{Mutex, PoisonError};

type Waiter = Box<dyn FnOnce() + Send>;

/// A fetch that is under way.
#[derive(Default)]
pub struct Flight {
    /// `None` once it has landed.
    waiters: Mutex<Option<Vec<Waiter>>>,
}

impl Flight {
    pub(super) fn new() -> Self {
        Self { waiters: Mutex::new(Some(Vec::new())) }
    }

    /// Calls `waiter` when the fetch has landed, on the thread that landed it; at once if it has already.
    pub fn when_landed(&self, waiter: impl FnOnce() + Send + 'static) {
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        match waiters.as_mut() {
            Some(waiting) => waiting.push(Box::new(waiter)),
            None => {
                drop(waiters);
                waiter();
            }
        }
    }

    pub(super) fn land(&self) {
        let waiting = self.waiters.lock().unwrap_or_else(PoisonError::into_inner).take();
        for waiter in waiting.into_iter().flatten() {
            waiter();
        }
    }
}
