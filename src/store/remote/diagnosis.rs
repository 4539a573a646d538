//! The facts that `doctor` finds out about a store before any read. Imports the errors.

use super::StoreError;

/// A store's view of the credentials and of the time.
#[derive(Debug)]
pub struct Diagnosis {
    /// Where credentials come from, in words; `None` if requests are not signed.
    pub identity: Result<Option<String>, StoreError>,
    /// By how many seconds the store's clock is ahead of ours, to a second or two. `None` without a response, or if the
    /// response has no time.
    pub clock_ahead_seconds: Option<i64>,
}
