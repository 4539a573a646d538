//! Requests to servers that redirect, to a mirror or to a signed URL that expires.

use super::web::{Refused, Web, checked_body, malformed};
use crate::store::remote::{Body, Location, Object, StoreError};
use futures_util::StreamExt;
use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{Method, Request, Response, StatusCode, Url};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most redirections that are followed: about as many as browsers follow.
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
    targets: Arc<Targets>,
}

/// The target of each URL that was redirected.
#[derive(Default)]
struct Targets(Mutex<HashMap<String, Target>>);

/// The URL that another one was redirected to.
#[derive(Clone, PartialEq, Eq)]
struct Target {
    url: Url,
    /// How often the target has answered since the redirection.
    answers: u64,
}

/// A request to a remembered target, which is forgotten if it does not answer: also if the request is given up because it
/// hangs. The target stays if it has answered another request meanwhile, such as the hedge of this one.
struct Trial {
    targets: Arc<Targets>,
    asked: Url,
    target: Target,
}

impl Trial {
    fn succeeded(&self) {
        let mut targets = self.targets.lock();
        let target = targets.get_mut(self.asked.as_str());
        if let Some(target) = target.filter(|target| target.url == self.target.url) {
            target.answers += 1;
        }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let mut targets = self.targets.lock();
        if targets.get(self.asked.as_str()) == Some(&self.target) {
            targets.remove(self.asked.as_str());
        }
    }
}

/// A response for a range.
pub(super) struct Answer {
    response: Response,
    /// The trial, if the response is of a remembered target.
    trial: Option<Trial>,
}

impl Answer {
    /// The response of a target that has answered by its headers alone.
    pub(super) fn head(self) -> Response {
        self.trial.iter().for_each(Trial::succeeded);
        self.response
    }

    /// The body, as [`checked_body`] gives it; a target has answered once its first byte has come.
    pub(super) fn body(self, object: &Object, range: &Range<u64>) -> Result<Body, StoreError> {
        let (body, mut trial) = (checked_body(object, range, self.response)?, self.trial);
        Ok(Box::pin(body.inspect(move |piece| {
            if piece.as_ref().is_ok_and(|piece| !piece.is_empty())
                && let Some(trial) = trial.take()
            {
                trial.succeeded();
            }
        })))
    }
}

impl Targets {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Target>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Redirects {
    pub(super) fn new(web: Web) -> Self {
        Self { web, targets: Arc::default() }
    }

    /// The connections.
    pub(super) fn web(&self) -> &Web {
        &self.web
    }

    fn remember(&self, asked: &Url, url: Url) {
        let mut targets = self.targets.lock();
        if targets.len() >= MOST_TARGETS {
            targets.clear();
        }
        targets.insert(asked.as_str().to_owned(), Target { url, answers: 0 });
    }

    fn trial(&self, asked: &Url) -> Option<Trial> {
        let target = self.targets.lock().get(asked.as_str()).cloned()?;
        Some(Trial { targets: Arc::clone(&self.targets), asked: asked.clone(), target })
    }

    /// The response to GET for a range, from the target that the last request for this URL was redirected to, while that works.
    pub(super) async fn get(&self, ask: &Ask<'_>) -> Result<Answer, Refused> {
        if let Some(trial) = self.trial(&ask.url) {
            let answer = self.one(ask, &trial.target.url).await;
            match answer {
                Ok(response) if response.status() == StatusCode::PARTIAL_CONTENT => {
                    return Ok(Answer { response, trial: Some(trial) });
                }
                // The request is sent again after a pause: to the server that redirects, unless this one asks for the pause.
                Err(refused) if refused.error.is_passing() => {
                    if refused.error.status == Some(429) {
                        trial.succeeded();
                    }
                    return Err(refused);
                }
                // The target has expired, or moved.
                _ => {}
            }
        }
        let (url, response) = self.follow(ask).await?;
        if url != ask.url {
            self.remember(&ask.url, url);
        }
        Ok(Answer { response, trial: None })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::remote::RemoteOptions;

    #[test]
    fn a_target_that_does_not_answer_is_forgotten_unless_it_answers_another_request_meanwhile() {
        let servers = Redirects::new(Web::new(&RemoteOptions::default()).expect("connections"));
        let url = |text| Url::parse(text).expect("a URL");
        let asked = url("http://a/x");
        servers.remember(&asked, url("http://b/y"));
        let slow = servers.trial(&asked).expect("a target");
        let fast = servers.trial(&asked).expect("the same target");
        fast.succeeded();
        drop(fast);
        drop(slow);
        let last = servers.trial(&asked);
        assert!(last.is_some());
        drop(last);
        assert!(servers.trial(&asked).is_none());
    }
}
