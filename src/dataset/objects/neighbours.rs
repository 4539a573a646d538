//! What lies beside an object: a sidecar with checksums, a kept index.

use crate::dataset::beside;
use crate::failure::Failure;
use crate::format::PartName;
use crate::store::remote::{Location, Stores};
use std::sync::Arc;

/// Whether something lies beside an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// A listing has it.
    Yes,
    /// A listing does not have it.
    No,
    /// Its store has not been asked.
    Unknown,
}

/// What lies beside an object.
pub(crate) struct Neighbours {
    stores: Arc<Stores>,
    object: Location,
    index: Presence,
    sums: Presence,
}

impl Neighbours {
    pub(super) fn new(
        stores: Arc<Stores>,
        object: Location,
        index: Presence,
        sums: Presence,
    ) -> Self {
        Self { stores, object, index, sums }
    }

    /// The sidecar, if there is one: its name and its bytes.
    pub(crate) fn sidecar(&self) -> Result<Option<(PartName, Vec<u8>)>, Failure> {
        self.get(beside::SIDECAR, self.sums)
    }

    /// The kept index, if there is one: its name and its bytes.
    pub(crate) fn index(&self) -> Result<Option<(PartName, Vec<u8>)>, Failure> {
        self.get(beside::INDEX, self.index)
    }

    fn get(
        &self,
        ending: &str,
        presence: Presence,
    ) -> Result<Option<(PartName, Vec<u8>)>, Failure> {
        // A signed URL is for one object.
        if presence == Presence::No || !self.object.query.is_empty() {
            return Ok(None);
        }
        let beside = neighbour(&self.object, ending);
        Ok(self.stores.small(&beside)?.map(|bytes| (beside.name(), bytes)))
    }
}

/// The location of what has the object's name and an ending of its own.
pub(super) fn neighbour(object: &Location, ending: &str) -> Location {
    object.with_suffix(&format!(".{ending}"))
}
