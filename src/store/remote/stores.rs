//! All stores that a process reads from: their clients, and objects as parts. Imports the clients and the interface of
//! remote parts.

use super::client::{Client, Object};
use super::connect::connect;
use super::counters::{Counters, DiskCacheState};
use super::diagnosis::Diagnosis;
use super::engine::{Engine, Get, Joined};
use super::error::{ErrorKind, StoreError};
use super::location::{Location, Scheme};
use super::object::Fetcher;
use super::object::Fill;
use super::object::Opening;
use super::object::RemoteObject;
use super::object::Replacing;
use super::options::{CachePlace, RemoteOptions};
use super::runtime;
use crate::io::cache_directory;
use crate::store::cache::{Cache, Entry};
use crate::store::{Cause, Part, Profile, Version};
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

/// The most bytes of a kept index or a sidecar.
const MAX_SMALL_BYTES: u64 = 4 << 30;

type Connect =
    dyn Fn(&Location, &RemoteOptions) -> Result<Arc<dyn Client>, StoreError> + Send + Sync;

/// The stores that a process reads from. Methods may block; none may be called on a thread of the runtime.
pub struct Stores {
    options: RemoteOptions,
    connect: Box<Connect>,
    /// A client for each bucket, server or name service.
    clients: Mutex<HashMap<(Scheme, String), Arc<dyn Client>>>,
    engine: Arc<Engine>,
    fill: Arc<Fill>,
    opening: Arc<Opening>,
    replacing: Arc<Replacing>,
    cache: OnceLock<Option<Arc<Cache>>>,
}

impl Stores {
    /// Makes no request; the first opening does.
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
        let engine = Arc::new(Engine::new(&options, Arc::default()));
        Arc::new(Self {
            options,
            connect: Box::new(connect),
            clients: Mutex::default(),
            fill: Fill::new(Arc::clone(&engine.flow)),
            engine,
            opening: Arc::default(),
            replacing: Arc::default(),
            cache: OnceLock::new(),
        })
    }

    /// The options of all stores.
    #[must_use]
    pub fn options(&self) -> &RemoteOptions {
        &self.options
    }

    /// Counts of requests to all stores.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.engine.counters
    }

    /// The cache of fetched bytes; `None` if there is no cache, or if it cannot be used.
    pub fn cache(&self) -> Option<&Arc<Cache>> {
        let opened = self.cache.get_or_init(|| {
            let opened = self.open_cache();
            let tells = opened.clone();
            self.counters().cache.set(move || match &tells {
                Ok(cache) => DiskCacheState {
                    directory: Some(cache.place().display().to_string()),
                    unused_because: cache.refusal(),
                    evictions: cache.figures().evicted,
                    evicted_blocks: cache.figures().replaced,
                },
                Err(why) => DiskCacheState {
                    unused_because: Some(why.clone()),
                    ..DiskCacheState::default()
                },
            });
            opened.ok()
        });
        opened.as_ref()
    }

    /// Opens the cache, or returns the reason why there is no cache.
    fn open_cache(&self) -> Result<Arc<Cache>, String> {
        let directory = match &self.options.cache {
            CachePlace::None => return Err("cache=none".to_owned()),
            CachePlace::Directory(directory) => Some(directory.clone()),
            CachePlace::User => cache_directory(),
        };
        let opened = match directory {
            None => Err("no cache directory is known: use cache-dir=".to_owned()),
            Some(place) => Cache::open(&place, self.options.cache_max)
                .map_err(|error| format!("{}: {error}", place.display())),
        };
        opened.inspect_err(|why| tracing::warn!("nothing is cached: {why}"))
    }

    fn entry(&self, object: &Object) -> Option<Arc<Entry>> {
        let origin = self.options.endpoint.as_deref().unwrap_or_default();
        let entry = self.cache()?.entry(object, origin);
        let warn = |error: &_| tracing::warn!("{} is not cached: {error}", object.location);
        entry.inspect_err(warn).ok()
    }

    /// Opens the current version of an object, with one request.
    ///
    /// # Errors
    /// There is no such object, or the store cannot be reached.
    pub fn open(&self, location: &Location) -> Result<Part, StoreError> {
        let object = self.head(location)?;
        self.part(object)
    }

    /// The current version of an object, with one request.
    ///
    /// # Errors
    /// There is no such object, or the store cannot be reached.
    pub fn head(&self, location: &Location) -> Result<Object, StoreError> {
        let (client, asked) = (self.client(location)?, location.clone());
        let engine = Arc::clone(&self.engine);
        wait_for(location, async move { engine.head(&*client, &asked).await })?
    }

    /// The credentials and the time as the store of a location reports them, with one request.
    ///
    /// # Errors
    /// This build has no client for the location, or its options are unusable.
    pub fn diagnose(&self, location: &Location) -> Result<Diagnosis, StoreError> {
        let (client, asked) = (self.client(location)?, location.clone());
        let timeout = self.options.timeout;
        wait_for(location, async move {
            let late = || {
                let why = "no credentials arrived in time";
                StoreError::new(asked.to_string(), ErrorKind::TimedOut, why)
            };
            let identity = tokio::time::timeout(timeout, client.identity(&asked)).await;
            // The result does not matter: any response has a date.
            let _ = tokio::time::timeout(timeout, client.head(&asked)).await;
            let clock_ahead_seconds = client.clock_ahead_seconds();
            Diagnosis { identity: identity.unwrap_or_else(|_| Err(late())), clock_ahead_seconds }
        })
    }

    /// A part for a version that is known, for example from a listing; makes no request.
    ///
    /// # Errors
    /// This build has no client for the store, or its options are unusable.
    pub fn part(&self, object: Object) -> Result<Part, StoreError> {
        let client = self.client(&object.location)?;
        let name = object.location.name();
        let version = Version::Object { tag: tag(&object) };
        let modified = object.modified.unwrap_or(SystemTime::UNIX_EPOCH);
        let entry = self.entry(&object);
        let profile = if entry.is_some() { Profile::CACHED } else { Profile::OBJECT };
        let kept = entry.map(|entry| {
            let replacing = self.replacing.object(&entry);
            (entry, replacing)
        });
        let fetcher = Fetcher::new(object, client, Arc::clone(&self.engine), kept);
        let (fill, opening) = (Arc::clone(&self.fill), Arc::clone(&self.opening));
        let remote = Arc::new(RemoteObject::new(fetcher, fill, opening));
        Ok(Part::remote(name, version, modified, profile, remote))
    }

    /// The objects whose keys begin with that of `prefix`, in order.
    ///
    /// # Errors
    /// The store cannot be reached, or does not list.
    pub fn list(&self, prefix: &Location) -> Result<Vec<Object>, StoreError> {
        let (client, asked) = (self.client(prefix)?, prefix.clone());
        let engine = Arc::clone(&self.engine);
        wait_for(prefix, async move { engine.list(&*client, &asked).await })?
    }

    /// All bytes of a small object beside a container, such as a sidecar. `None` if there is no such object: stores
    /// that do not allow listing answer "denied" for a missing object.
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
        let (engine, length_bytes) = (Arc::clone(&self.engine), object.length_bytes);
        let fetched = wait_for(location, async move {
            let mut bytes = Joined::default();
            let get = Get {
                client: &*client,
                object: &object,
                range: 0..object.length_bytes,
                is_urgent: &Arc::new(AtomicBool::new(true)),
                cause: Cause::Open,
            };
            engine.get(get, None, &mut bytes).await.map(|()| bytes)
        })?;
        let missing = || {
            let why = format!("no memory for an index of {} bytes", length_bytes);
            StoreError::new(location.to_string(), ErrorKind::Refused, why)
        };
        fetched?.into_bytes().map(Some).ok_or_else(missing)
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

/// The name of this version of the object.
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
