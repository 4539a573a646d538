//! Sources that are URLs: expands them to objects, opens these, and finds the files beside them.
//!
//! Imports from [`crate::store`] and [`crate::format`], and from the parent directory only the names of sidecars and of
//! kept indexes, and `parallel.rs`.

mod expand;
mod neighbours;

pub(crate) use neighbours::Neighbours;

use crate::dataset::parallel;
use crate::failure::Failure;
use crate::store::Part;
use crate::store::remote::{
    Counters, Diagnosis, ErrorKind, Location, Object, RemoteOptions, StoreError, Stores,
};
use neighbours::Presence;
use std::sync::{Arc, OnceLock};

/// The stores of one dataset's URLs. They are set up at the first URL.
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

/// How much is known of an object.
#[derive(Debug, Clone)]
enum Asked {
    /// The object was not looked up.
    Not(Location),
    /// The listing gave its version.
    Listed(Object),
}

impl Objects {
    pub(crate) fn new(options: &RemoteOptions) -> Self {
        Self { options: options.clone(), stores: OnceLock::new() }
    }

    fn stores(&self) -> &Arc<Stores> {
        self.stores.get_or_init(|| Stores::new(self.options.clone()))
    }

    /// The counters of requests to stores, if there was a URL.
    pub(crate) fn counters(&self) -> Option<Arc<Counters>> {
        self.stores.get().map(|stores| Arc::clone(stores.counters()))
    }

    /// What the store of a URL reports of the credentials and the time.
    pub(crate) fn diagnose(&self, url: &str) -> Result<Diagnosis, Failure> {
        let location = Location::parse(url).transpose()?;
        let location =
            location.ok_or_else(|| Failure::usage(format!("{url}: this is not a URL")))?;
        Ok(self.stores().diagnose(&location)?)
    }

    /// The objects of these texts, in order; `start` is their common beginning.
    pub(crate) fn expand(&self, texts: &[String], start: &str) -> Result<Vec<Place>, Failure> {
        expand::expand(texts, start, &|prefix| self.stores().list(prefix))
    }

    /// Opens an object. Looks up its version, unless a listing gave it, and at the same time its sidecar if that is
    /// wanted, as each takes a round trip.
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
                let open = || self.stores().open(&location).map_err(|e| with_hint(e, &location));
                let (part, ()) = match has_sidecar {
                    true => parallel::both(open, &|| neighbours.begin_sidecar()),
                    false => (open(), ()),
                };
                Ok((part?, neighbours))
            }
            Asked::Listed(object) => {
                let neighbours = beside(object.location.clone());
                Ok((self.stores().part(object)?, neighbours))
            }
        }
    }
}

/// Users easily forget the slash at the end of a prefix.
fn with_hint(mut error: StoreError, location: &Location) -> StoreError {
    if error.kind == ErrorKind::NotFound && !location.file_name().contains('.') {
        error.message += "; for the containers below a prefix, add / at its end";
    }
    error
}
