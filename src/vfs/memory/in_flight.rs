//! An in-flight read: one request, the leader, fetches; others that need the same bytes follow it without
//! holding a thread.

use super::cached::Cached;
use super::sync::Mutex;
use std::sync::{OnceLock, PoisonError};

type Follower = Box<dyn FnOnce() + Send>;

/// A read whose bytes are being fetched by its leader. Who follows it and goes on later, on another thread, holds it until
/// then: what it brought stays in memory for so long.
pub struct InFlightRead {
    /// `None` once the read has ended.
    followers: Mutex<Option<Vec<Follower>>>,
    /// What it brought, if anybody followed it.
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

    /// Leaves to its followers what it brought; before it ends.
    pub(super) fn leave(&self, brought: Cached) {
        let is_first = self.brought.set(brought).is_ok();
        debug_assert!(is_first, "a read ends once");
    }

    /// What it left to its followers.
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
