//! Objects in object stores, HDFS and behind HTTP: their URLs, the clients that read them, and the configuration of
//! clients. A client makes one attempt at one request; the code above the clients decides once for all of them on
//! retries, on the length of requests and on caching.

#[cfg(feature = "remote")]
mod client;
#[cfg(feature = "remote")]
mod clients;
#[cfg(feature = "remote")]
mod connect;
#[cfg_attr(not(feature = "remote"), allow(dead_code))]
mod counters;
mod diagnosis;
#[cfg(feature = "remote")]
mod engine;
mod error;
#[cfg(feature = "hdfs")]
mod hdfs;
mod location;
#[cfg(feature = "remote")]
mod needs;
#[cfg(feature = "remote")]
mod object;
mod options;
#[cfg_attr(not(feature = "remote"), allow(dead_code))]
mod requests;
#[cfg(feature = "remote")]
mod runtime;
#[cfg(feature = "remote")]
mod stores;
#[cfg(all(test, feature = "remote"))]
pub(crate) mod testing;
#[cfg(all(test, feature = "remote"))]
mod tests;

#[cfg(feature = "remote")]
pub use client::{Body, Client, Object};
#[cfg(feature = "remote")]
pub use connect::connect;
pub use counters::{Counters, DiskCacheState, RemoteFigures, TIME_CLASSES, TimeFigures, Times};
pub use diagnosis::Diagnosis;
pub use error::{ErrorKind, StoreError};
pub use location::{Location, Scheme};
#[cfg(feature = "remote")]
pub use needs::{Needs, needs, run_programs_outside};
pub use options::{CacheMax, CachePlace, RemoteOptions};
pub use requests::{Observer, Request, RequestKind, Steps};
#[cfg(feature = "remote")]
pub use stores::Stores;
