//! An in-flight read: one request, the leader, fetches; others that need the same bytes follow it without
//! holding a thread.

use super::cached::Cached;
use super::sync::Mutex;
use std::sync::{OnceLock, PoisonError};

type Follower = Box<dyn FnOnce() + Send>;

/// A read whose bytes are being fetched by its leader. A follower that goes on later, on another thread, holds the read until
/// then: the value that the read brought stays in memory for so long.
pub struct InFlightRead {
    /// `None` once the read has ended.
    followers: Mutex<Option<Vec<Follower>>>,
    /// The value that the read brought, if another read followed it.
    brought: OnceLock<Cached>,
}

impl InFlightRead {
    pub(in crate::vfs) fn new() -> Self {
        Self { followers: Mutex::new(Some(Vec::new())), brought: OnceLock::new() }
    }

    /// Calls `follower` when the read has ended, on the thread that ended it; at once if it has already.
    pub fn when_ended(&self, follower: impl FnOnce() + Send + 'static) {
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        match followers.as_mut() {
            Some(waiting) => waiting.push(Box::new(follower)),
            None => {
                drop(followers);
                follower();
            }
        }
    }

    /// Leaves the value that the read brought to its followers; before the read ends.
    pub(super) fn leave(&self, brought: Cached) {
        let is_first = self.brought.set(brought).is_ok();
        debug_assert!(is_first, "a read ends once");
    }

    /// The value that the read left to its followers.
    pub(super) fn left(&self) -> Option<Cached> {
        self.brought.get().cloned()
    }

    /// Ends the read and calls all followers.
    pub(in crate::vfs) fn end(&self) {
        let waiting = self.followers.lock().unwrap_or_else(PoisonError::into_inner).take();
        for follower in waiting.into_iter().flatten() {
            follower();
        }
    }
}
