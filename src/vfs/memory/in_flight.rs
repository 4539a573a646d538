//! An in-flight read: one request, the leader, fetches; others that need the same bytes follow it without
//! holding a thread.

use super::sync::Mutex;
use std::sync::PoisonError;

type Follower = Box<dyn FnOnce() + Send>;

/// A read whose bytes are being fetched by its leader.
pub struct InFlightRead {
    /// `None` once the read has ended.
    followers: Mutex<Option<Vec<Follower>>>,
}

impl InFlightRead {
    pub(in crate::vfs) fn new() -> Self {
        Self { followers: Mutex::new(Some(Vec::new())) }
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

    /// Ends the read and calls all followers.
    pub(in crate::vfs) fn end(&self) {
        let waiting = self.followers.lock().unwrap_or_else(PoisonError::into_inner).take();
        for follower in waiting.into_iter().flatten() {
            follower();
        }
    }
}
