//! What `doctor` asks of a store before anything is read. Imports the errors.

use super::StoreError;

/// What a store says of itself and of who asks.
#[derive(Debug)]
pub struct Diagnosis {
    /// Where credentials come from, in words; `None` if requests have none.
    pub identity: Result<Option<String>, StoreError>,
    /// By how many seconds the store's clock is ahead of ours, to a second or two. `None`: there was no answer, or none
    /// that says the time.
    pub clock_ahead_seconds: Option<i64>,
}
