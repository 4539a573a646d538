//! The files beside an object: a sidecar with checksums, a kept index.

use crate::dataset::beside;
use crate::failure::Failure;
use crate::format::PartName;
use crate::store::remote::{Location, Stores};
use std::sync::{Arc, Mutex, PoisonError};

/// Whether there is a certain file beside an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// The listing has it.
    Yes,
    /// The listing does not have it.
    No,
    /// It was not looked up.
    Unknown,
}

/// The files beside an object.
pub(crate) struct Neighbours {
    stores: Arc<Stores>,
    object: Location,
    index: Presence,
    sums: Presence,
    /// The result of an early request for the sidecar.
    sidecar: Mutex<Option<Beside>>,
}

/// The name and bytes of a file beside an object, if there is one.
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

    /// Requests the sidecar, before it is known whether the object exists.
    pub(super) fn begin_sidecar(&self) {
        let found = self.get(beside::SIDECAR, self.sums);
        *self.sidecar.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }

    /// Whether finding or reading the sidecar takes a request.
    pub(crate) fn may_have_sidecar(&self) -> bool {
        self.may_have(self.sums)
    }

    /// The name and bytes of the sidecar, if there is one.
    pub(crate) fn sidecar(&self) -> Beside {
        let asked = self.sidecar.lock().unwrap_or_else(PoisonError::into_inner).take();
        asked.unwrap_or_else(|| self.get(beside::SIDECAR, self.sums))
    }

    /// The name and bytes of the kept index, if there is one.
    pub(crate) fn index(&self) -> Beside {
        self.get(beside::INDEX, self.index)
    }

    /// Whether a request for such a file makes sense. A signed URL is valid for one object only.
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

/// The location of the file beside an object with this extension.
pub(super) fn neighbour(object: &Location, ending: &str) -> Location {
    object.with_suffix(&format!(".{ending}"))
}
