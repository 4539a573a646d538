//! Sources that are URLs: which objects they stand for, opened, and what lies beside them.
//!
//! Imports from [`crate::store`] and [`crate::format`]; of this directory's parent only the names of sidecars and
//! kept indexes.

mod expand;
mod neighbours;

pub(crate) use neighbours::Neighbours;

use crate::failure::Failure;
use crate::store::Part;
use crate::store::remote::{
    Counters, Diagnosis, ErrorKind, Location, Object, RemoteOptions, StoreError, Stores,
};
use neighbours::Presence;
use std::sync::{Arc, OnceLock};

/// The stores that the URLs of one dataset lead to. They are reached for at the first URL.
pub(crate) struct Objects {
    options: RemoteOptions,
    stores: OnceLock<Arc<Stores>>,
}

/// An object that a source stands for.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    object: Asked,
    index: Presence,
    sums: Presence,
}

/// What is known of an object.
#[derive(Debug, Clone)]
enum Asked {
    /// Its store has not been asked.
    Not(Location),
    /// A listing has its version.
    Listed(Object),
}

impl Objects {
    pub(crate) fn new(options: &RemoteOptions) -> Self {
        Self { options: options.clone(), stores: OnceLock::new() }
    }

    fn stores(&self) -> &Arc<Stores> {
        self.stores.get_or_init(|| Stores::new(self.options.clone()))
    }

    /// What is asked of the stores, if there was a URL.
    pub(crate) fn counters(&self) -> Option<Arc<Counters>> {
        self.stores.get().map(|stores| Arc::clone(stores.counters()))
    }

    /// What the store of a URL says of itself and of who asks.
    pub(crate) fn diagnose(&self, url: &str) -> Result<Diagnosis, Failure> {
        let location = Location::parse(url).transpose()?;
        let location = location.ok_or_else(|| Failure::usage(format!("{url}: this is no URL")))?;
        Ok(self.stores().diagnose(&location)?)
    }

    /// The objects that the texts stand for, in order; `start` is where all of them begin.
    pub(crate) fn expand(&self, texts: &[String], start: &str) -> Result<Vec<Place>, Failure> {
        expand::expand(texts, start, &|prefix| self.stores().list(prefix))
    }

    /// Opens an object: asks for its version, unless a listing has told it, and at the same time for its sidecar, if
    /// that is wanted: each takes a round trip.
    pub(crate) fn open(
        &self,
        place: Place,
        has_sidecar: bool,
    ) -> Result<(Part, Neighbours), Failure> {
        let Place { object, index, sums } = place;
        let beside = |location| Neighbours::new(Arc::clone(self.stores()), location, index, sums);
        match object {
            Asked::Not(location) => {
                let neighbours = beside(location.clone());
                let part = std::thread::scope(|scope| {
                    has_sidecar.then(|| scope.spawn(|| neighbours.begin_sidecar()));
                    self.stores().open(&location).map_err(|e| with_hint(e, &location))
                });
                Ok((part?, neighbours))
            }
            Asked::Listed(object) => {
                let neighbours = beside(object.location.clone());
                Ok((self.stores().part(object)?, neighbours))
            }
        }
    }
}

/// A prefix that was meant is easily written without its slash.
fn with_hint(mut error: StoreError, location: &Location) -> StoreError {
    if error.kind == ErrorKind::NotFound && !location.file_name().contains('.') {
        error.message += "; with / at its end it stands for the containers below it";
    }
    error
}
