//! Objects in object stores, HDFS and behind HTTP: their URLs, the clients that read them, and how a client is
//! configured. A client makes one attempt at one request; when to try again, how much to ask for and what to keep is
//! decided above it, once for all clients.

#[cfg(feature = "remote")]
mod client;
#[cfg(feature = "remote")]
mod connect;
mod error;
mod location;
mod options;

#[cfg(feature = "remote")]
pub use client::{Body, Client, Object};
#[cfg(feature = "remote")]
pub use connect::connect;
pub use error::{ErrorKind, StoreError};
pub use location::{Location, Scheme};
pub use options::{CacheMax, CachePlace, RemoteOptions};
