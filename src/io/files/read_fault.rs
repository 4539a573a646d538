//! The fault of a sample whose read has failed. Imports faults of `format`.

use super::file::ReadError;
use crate::format::Fault;

impl ReadError {
    /// The reason why the sample cannot be given out.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            ReadError::Io(error) => Fault::of_io(error),
            other => Fault::Unreadable(other.to_string()),
        }
    }
}
