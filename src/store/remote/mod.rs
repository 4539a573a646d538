//! Objects in object stores, HDFS and behind HTTP: their URLs, the clients that read them, and how a client is
//! configured. A client makes one attempt at one request; when to try again, how much to ask for and what to keep is
//! decided above it, once for all clients.

#[cfg(feature = "remote")]
mod client;
#[cfg(feature = "remote")]
mod connect;
#[cfg_attr(not(feature = "remote"), allow(dead_code))]
mod counters;
mod error;
#[cfg(feature = "hdfs")]
mod hdfs;
mod location;
#[cfg(feature = "remote")]
mod object;
mod options;
#[cfg(feature = "remote")]
mod runtime;
#[cfg(feature = "remote")]
mod stores;

#[cfg(feature = "remote")]
pub use client::{Body, Client, Object};
#[cfg(feature = "remote")]
pub use connect::connect;
pub use counters::{Counters, RemoteFigures, TIME_CLASSES, TimeFigures, Times};
pub use error::{ErrorKind, StoreError};
pub use location::{Location, Scheme};
pub use options::{CacheMax, CachePlace, RemoteOptions};
#[cfg(feature = "remote")]
pub use stores::Stores;
