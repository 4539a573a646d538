//! Credentials that `object_store` or a profile provides and renews.

use super::web::chain;
use crate::store::remote::{ErrorKind, Location, StoreError};
use object_store::client::CredentialProvider;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Provides credentials of the type `T`.
pub(super) type Provider<T> = Arc<dyn CredentialProvider<Credential = T>>;

/// The credentials of a store.
pub(super) struct Credentials<T> {
    provider: Provider<T>,
    /// Where the credentials come from, in words.
    origin: String,
    /// Advice if there are none.
    advice: &'static str,
    /// Whether there were credentials before.
    were_there: AtomicBool,
}

impl<T> Credentials<T> {
    pub(super) fn new(provider: Provider<T>, origin: String, advice: &'static str) -> Self {
        Self { provider, origin, advice, were_there: AtomicBool::new(false) }
    }

    /// Where the credentials come from, in words.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The current credentials.
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
                // Credentials that worked once will most likely be renewed at the next attempt.
                let kind = match self.were_there.load(Relaxed) {
                    true => ErrorKind::Unavailable,
                    false => error.kind,
                };
                Err(StoreError { kind, ..error })
            }
        }
    }
}

/// The error for missing credentials.
pub(super) fn missing(
    location: &Location,
    advice: &str,
    error: &object_store::Error,
) -> StoreError {
    // "Generic S3 error" tells users nothing.
    let said = match error {
        object_store::Error::Generic { source, .. } => chain(&**source),
        other => chain(other),
    };
    let why = format!("no credentials: {said}. {advice}");
    StoreError::new(location.to_string(), ErrorKind::Denied, why)
}
