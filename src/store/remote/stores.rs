//! All stores that a process reads from: their clients, and objects as parts. Imports the clients and the seam.

use super::client::{Client, Object};
use super::connect::connect;
use super::counters::Counters;
use super::error::{ErrorKind, StoreError};
use super::location::{Location, Scheme};
use super::object::{RemoteObject, fetch};
use super::options::RemoteOptions;
use super::runtime;
use crate::store::{Part, Profile, Version};
use futures_util::StreamExt;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// A kept index or a sidecar that is longer is not one.
const MAX_SMALL_BYTES: u64 = 4 << 30;

type Connect =
    dyn Fn(&Location, &RemoteOptions) -> Result<Arc<dyn Client>, StoreError> + Send + Sync;

/// The stores that a process reads from. Its methods may wait; none may be called on a thread of the runtime.
pub struct Stores {
    options: RemoteOptions,
    connect: Box<Connect>,
    /// A client for each bucket, server or name service.
    clients: Mutex<HashMap<(Scheme, String), Arc<dyn Client>>>,
    counters: Arc<Counters>,
}

impl Stores {
    /// No request is made before something is opened.
    #[must_use]
    pub fn new(options: RemoteOptions) -> Arc<Self> {
        Self::with(options, connect)
    }

    /// As [`Stores::new`], with another way to make clients.
    pub fn with(
        options: RemoteOptions,
        connect: impl Fn(&Location, &RemoteOptions) -> Result<Arc<dyn Client>, StoreError>
        + Send
        + Sync
        + 'static,
    ) -> Arc<Self> {
        let (connect, clients) = (Box::new(connect), Mutex::default());
        Arc::new(Self { options, connect, clients, counters: Arc::default() })
    }

    /// How stores are reached.
    #[must_use]
    pub fn options(&self) -> &RemoteOptions {
        &self.options
    }

    /// What was asked of all stores, and what they answered.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Opens the current version of an object, with one request.
    ///
    /// # Errors
    /// There is none, or the store cannot be reached.
    pub fn open(&self, location: &Location) -> Result<Part, StoreError> {
        let object = self.head(location)?;
        self.part(object)
    }

    /// The current version of an object, with one request.
    ///
    /// # Errors
    /// There is none, or the store cannot be reached.
    pub fn head(&self, location: &Location) -> Result<Object, StoreError> {
        let (client, asked) = (self.client(location)?, location.clone());
        wait_for(location, async move { client.head(&asked).await })?
    }

    /// A part of a version that is known, as from a listing, without a request.
    ///
    /// # Errors
    /// There is no client for its store.
    pub fn part(&self, object: Object) -> Result<Part, StoreError> {
        let client = self.client(&object.location)?;
        let name = object.location.name();
        let version = Version::Object { tag: tag(&object) };
        let modified = object.modified.unwrap_or(SystemTime::UNIX_EPOCH);
        let remote = Arc::new(RemoteObject::new(object, client, Arc::clone(&self.counters)));
        Ok(Part::remote(name, version, modified, Profile::OBJECT, remote))
    }

    /// The objects whose keys begin with that of `prefix`, in order.
    ///
    /// # Errors
    /// The store cannot be reached, or does not list.
    pub fn list(&self, prefix: &Location) -> Result<Vec<Object>, StoreError> {
        let (client, asked) = (self.client(prefix)?, prefix.clone());
        wait_for(prefix, async move {
            let mut objects = Vec::new();
            let mut listing = client.list(&asked);
            while let Some(object) = listing.next().await {
                objects.push(object?);
            }
            Ok(objects)
        })?
    }

    /// All bytes of a small object beside a container, such as a sidecar. `None` if there is no such object: stores that
    /// do not let their users list say "denied" of one that is missing.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn small(&self, location: &Location) -> Result<Option<Vec<u8>>, StoreError> {
        let client = self.client(location)?;
        let object = match self.head(location) {
            Ok(object) => object,
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Denied) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if object.length_bytes > MAX_SMALL_BYTES {
            let why = format!("{} bytes are too many for an index", object.length_bytes);
            return Err(StoreError::new(location.to_string(), ErrorKind::Refused, why));
        }
        if object.length_bytes == 0 {
            return Ok(Some(Vec::new()));
        }
        let fetched =
            wait_for(
                location,
                async move { fetch(&*client, &object, 0..object.length_bytes).await },
            )?;
        Ok(Some(fetched?.concat()))
    }

    /// The client for a location's store.
    fn client(&self, location: &Location) -> Result<Arc<dyn Client>, StoreError> {
        let key = (location.scheme, location.authority.clone());
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&key) {
            return Ok(Arc::clone(client));
        }
        let client = (self.connect)(location, &self.options)?;
        clients.insert(key, Arc::clone(&client));
        Ok(client)
    }
}

/// What tells this version of an object from others.
fn tag(object: &Object) -> String {
    let named = object.version_id.as_ref().or(object.etag.as_ref());
    named
        .cloned()
        .unwrap_or_else(|| format!("{} bytes, {:?}", object.length_bytes, object.modified))
}

fn wait_for<T: Send + 'static>(
    location: &Location,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, StoreError> {
    runtime::wait_for(work).map_err(|error| {
        StoreError::new(location.to_string(), ErrorKind::Unavailable, error.to_string())
    })
}
