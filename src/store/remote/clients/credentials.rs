//! Credentials that `object_store` or a profile gives out, and renews.

use super::web::chain;
use crate::store::remote::{ErrorKind, Location, StoreError};
use object_store::client::CredentialProvider;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Gives out credentials of the kind `T`.
pub(super) type Provider<T> = Arc<dyn CredentialProvider<Credential = T>>;

/// The credentials of a store.
pub(super) struct Credentials<T> {
    provider: Provider<T>,
    /// Where they are found, in words.
    origin: String,
    /// What to do if there are none.
    advice: &'static str,
    /// Whether there were some before.
    were_there: AtomicBool,
}

impl<T> Credentials<T> {
    pub(super) fn new(provider: Provider<T>, origin: String, advice: &'static str) -> Self {
        Self { provider, origin, advice, were_there: AtomicBool::new(false) }
    }

    /// Where they are found, in words.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The credentials of now.
    pub(super) async fn get(&self, location: &Location) -> Result<Arc<T>, StoreError> {
        match self.provider.get_credential().await {
            Ok(credential) => {
                if !self.were_there.load(Relaxed) {
                    self.were_there.store(true, Relaxed);
                }
                Ok(credential)
            }
            Err(error) => {
                let error = missing(location, self.advice, &error);
                // What once worked is renewed at the next attempt, most likely.
                let kind = match self.were_there.load(Relaxed) {
                    true => ErrorKind::Unavailable,
                    false => error.kind,
                };
                Err(StoreError { kind, ..error })
            }
        }
    }
}

/// Credentials that do not come.
pub(super) fn missing(
    location: &Location,
    advice: &str,
    error: &object_store::Error,
) -> StoreError {
    // "Generic S3 error" says nothing to those who read it.
    let said = match error {
        object_store::Error::Generic { source, .. } => chain(&**source),
        other => chain(other),
    };
    let why = format!("no credentials: {said}. {advice}");
    StoreError::new(location.to_string(), ErrorKind::Denied, why)
}
