//! Makes the client for a location.

use super::clients::{Azure, Environment, Gcs, Http, HuggingFace, S3};
#[cfg(feature = "hdfs")]
use super::hdfs;
use super::{Client, ErrorKind, Location, RemoteOptions, Scheme, StoreError};
use std::sync::Arc;

/// The client for the bucket, container or server of `location`. Makes no request; the client runs on the runtime that
/// polls it.
///
/// # Errors
/// The options or the environment are unusable, or this build has no client for the scheme.
pub fn connect(
    location: &Location,
    options: &RemoteOptions,
) -> Result<Arc<dyn Client>, StoreError> {
    check_endpoint(options)?;
    let environment = Environment::of_process();
    Ok(match location.scheme {
        Scheme::S3 => Arc::new(S3::new(location, options, &environment)?),
        Scheme::Gs => Arc::new(Gcs::new(location, options, &environment)?),
        Scheme::Azure => Arc::new(Azure::new(location, options, &environment)?),
        Scheme::HuggingFace => Arc::new(HuggingFace::new(location, options, &environment)?),
        Scheme::Http | Scheme::Https => Arc::new(Http::new(location, options, &environment)?),
        #[cfg(feature = "hdfs")]
        Scheme::Hdfs => {
            let credentials = environment.credentials(location, options);
            hdfs::connect(location, credentials.as_deref(), options.timeout)?
        }
        #[cfg(not(feature = "hdfs"))]
        Scheme::Hdfs => {
            let why = "this build has no client for such URLs";
            return Err(StoreError::new(location.to_string(), ErrorKind::Refused, why));
        }
    })
}

/// Secrets in an endpoint would show up in messages, as those in a URL would.
fn check_endpoint(options: &RemoteOptions) -> Result<(), StoreError> {
    match options.endpoint.as_deref().map(Location::parse) {
        Some(Some(Err(error))) => Err(error),
        Some(None) => {
            let why = "an endpoint begins with https:// or http://";
            Err(StoreError::new("endpoint", ErrorKind::Refused, why))
        }
        _ => Ok(()),
    }
}
