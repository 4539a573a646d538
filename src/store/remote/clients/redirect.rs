//! Requests to servers that redirect, to a mirror or to a signed URL that expires.

use super::web::{Refused, Web, malformed};
use crate::store::remote::{ErrorKind, Location, StoreError};
use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{Method, Request, Response, Url};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// About as many redirections as browsers follow.
const MOST_REDIRECTIONS: usize = 10;
/// The maximum number of remembered targets, one per object.
const MOST_TARGETS: usize = 100_000;

/// A request for one URL.
pub(super) struct Ask<'a> {
    /// The object that messages name.
    pub(super) location: &'a Location,
    pub(super) url: Url,
    /// Headers for the server that finally responds.
    pub(super) headers: HeaderMap,
    /// Secret headers, for the server of `url` alone.
    pub(super) secrets: HeaderMap,
}

/// Connections, and the remembered targets of redirections.
pub(super) struct Redirects {
    web: Web,
    targets: Mutex<HashMap<String, Url>>,
}

impl Redirects {
    pub(super) fn new(web: Web) -> Self {
        Self { web, targets: Mutex::default() }
    }

    /// The connections.
    pub(super) fn web(&self) -> &Web {
        &self.web
    }

    fn targets(&self) -> MutexGuard<'_, HashMap<String, Url>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The response to GET, from the target that the last request for this URL was redirected to, while that works.
    pub(super) async fn get(&self, ask: &Ask<'_>) -> Result<Response, Refused> {
        let target = self.targets().get(ask.url.as_str()).cloned();
        if let Some(target) = target {
            match self.one(ask, &target).await {
                Ok(answer) if answer.status().is_success() => return Ok(answer),
                Err(refused) if !is_of_target(&refused.error) => return Err(refused),
                // The target has expired, or moved.
                _ => drop(self.targets().remove(ask.url.as_str())),
            }
        }
        let (url, answer) = self.follow(ask).await?;
        if url != ask.url {
            let mut targets = self.targets();
            if targets.len() >= MOST_TARGETS {
                targets.clear();
            }
            targets.insert(ask.url.as_str().to_owned(), url);
        }
        Ok(answer)
    }

    async fn follow(&self, ask: &Ask<'_>) -> Result<(Url, Response), Refused> {
        let mut url = ask.url.clone();
        for _ in 0..=MOST_REDIRECTIONS {
            let answer = self.one(ask, &url).await?;
            if answer.status().is_success() {
                return Ok((url, answer));
            }
            url = next(ask.location, &url, answer.headers())?;
        }
        Err(malformed(ask.location, "the server redirects too often").into())
    }

    async fn one(&self, ask: &Ask<'_>, url: &Url) -> Result<Response, Refused> {
        let mut request = Request::new(Method::GET, url.clone());
        *request.headers_mut() = ask.headers.clone();
        if url.origin() == ask.url.origin() {
            for (name, value) in &ask.secrets {
                request.headers_mut().insert(name.clone(), value.clone());
            }
        }
        self.web.try_send(ask.location, request).await
    }
}

/// Whether a refusal of the target may be mended by asking the redirecting server again.
fn is_of_target(error: &StoreError) -> bool {
    matches!(error.kind, ErrorKind::Denied | ErrorKind::NotFound | ErrorKind::Refused)
}

/// The target of a redirection.
pub(super) fn next(location: &Location, url: &Url, headers: &HeaderMap) -> Result<Url, StoreError> {
    let target = headers.get(LOCATION).and_then(|target| target.to_str().ok());
    let target = target.and_then(|target| url.join(target).ok());
    let target = target.filter(|target| matches!(target.scheme(), "http" | "https"));
    let target = target
        .ok_or_else(|| malformed(location, "the server redirects without a usable target"))?;
    if url.scheme() == "https" && target.scheme() == "http" {
        return Err(malformed(location, "the server redirects from https to http"));
    }
    Ok(target)
}
