//! What lies beside an object: a sidecar with checksums, a kept index.

use crate::dataset::beside;
use crate::failure::Failure;
use crate::format::PartName;
use crate::store::remote::{Location, Stores};
use std::sync::{Arc, Mutex, PoisonError};

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
    /// What was asked for already.
    sidecar: Mutex<Option<Beside>>,
}

/// A neighbour, if there is one: its name and its bytes.
type Beside = Result<Option<(PartName, Vec<u8>)>, Failure>;

impl Neighbours {
    pub(super) fn new(
        stores: Arc<Stores>,
        object: Location,
        index: Presence,
        sums: Presence,
    ) -> Self {
        Self { stores, object, index, sums, sidecar: Mutex::default() }
    }

    /// Asks for the sidecar, before it is known whether there is the object.
    pub(super) fn begin_sidecar(&self) {
        let found = self.get(beside::SIDECAR, self.sums);
        *self.sidecar.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }

    /// Whether it takes a request to tell if there is a sidecar, or to read it.
    pub(crate) fn may_have_sidecar(&self) -> bool {
        self.may_have(self.sums)
    }

    /// The sidecar, if there is one: its name and its bytes.
    pub(crate) fn sidecar(&self) -> Beside {
        let asked = self.sidecar.lock().unwrap_or_else(PoisonError::into_inner).take();
        asked.unwrap_or_else(|| self.get(beside::SIDECAR, self.sums))
    }

    /// The kept index, if there is one: its name and its bytes.
    pub(crate) fn index(&self) -> Beside {
        self.get(beside::INDEX, self.index)
    }

    /// A signed URL is for one object.
    fn may_have(&self, presence: Presence) -> bool {
        presence != Presence::No && self.object.query.is_empty()
    }

    fn get(&self, ending: &str, presence: Presence) -> Beside {
        if !self.may_have(presence) {
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
