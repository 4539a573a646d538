//! From a location to the client that reads it.

use super::clients::{Environment, Http, S3};
#[cfg(feature = "hdfs")]
use super::hdfs;
use super::{Client, ErrorKind, Location, RemoteOptions, Scheme, StoreError};
use std::sync::Arc;

/// The client for the bucket, container or server of `location`. Makes no request; the client runs on whichever
/// runtime polls it.
///
/// # Errors
/// The options or the environment are unusable, or this build has no client for the scheme.
pub fn connect(
    location: &Location,
    options: &RemoteOptions,
) -> Result<Arc<dyn Client>, StoreError> {
    let environment = Environment::of_process();
    Ok(match location.scheme {
        Scheme::S3 => Arc::new(S3::new(location, options, &environment)?),
        Scheme::Http | Scheme::Https => Arc::new(Http::new(location, options, &environment)?),
        #[cfg(feature = "hdfs")]
        Scheme::Hdfs => hdfs::connect(location, options)?,
        _ => {
            let why = "this build cannot read from there";
            return Err(StoreError::new(location.to_string(), ErrorKind::Refused, why));
        }
    })
}
