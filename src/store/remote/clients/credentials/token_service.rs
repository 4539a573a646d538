//! Requests to the services that issue temporary credentials.

use crate::store::remote::clients::request::VALUE;
use crate::store::remote::clients::web::Web;
use crate::store::remote::{ErrorKind, Location, RemoteOptions, StoreError};
use percent_encoding::utf8_percent_encode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Url};
use std::time::Duration;

/// How long a response may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pauses before a request is sent again; the policy for requests to stores does not cover these.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];
/// The maximum length of a response, in bytes.
const MOST_BYTES: usize = 1 << 20;
/// The type of [`form`].
pub(super) const FORM: (HeaderName, &str) = (CONTENT_TYPE, "application/x-www-form-urlencoded");

/// Connections to services that issue credentials.
pub(super) struct TokenService {
    web: Web,
    location: Location,
}

impl TokenService {
    /// Connections for the credentials of the store at `location`.
    pub(super) fn new(location: &Location, options: &RemoteOptions) -> Result<Self, StoreError> {
        Ok(Self { web: Web::new(options)?, location: location.clone() })
    }

    /// The body of the response. `name` names the service in messages. Failures of the moment are retried.
    pub(super) async fn ask(&self, name: &str, request: &Request) -> Result<String, StoreError> {
        let mut pauses = PAUSES.iter();
        loop {
            let again = request.try_clone();
            let again = again.ok_or_else(|| refused(name, "the request cannot be repeated"))?;
            let answer = tokio::time::timeout(PATIENCE, self.once(again)).await;
            let answer = answer.unwrap_or_else(|_| {
                Err(StoreError::new(name, ErrorKind::TimedOut, "the service does not respond"))
            });
            match (answer, pauses.next()) {
                (Err(error), Some(pause)) if error.is_passing() => tokio::time::sleep(*pause).await,
                (answer, _) => return answer.map_err(|e| StoreError { url: name.to_owned(), ..e }),
            }
        }
    }

    async fn once(&self, request: Request) -> Result<String, StoreError> {
        let mut url = request.url().clone();
        url.set_query(None);
        let answer = self.web.send(&self.location, request).await.map_err(|error| {
            // The words for objects would mislead.
            match error.kind {
                ErrorKind::NotFound => {
                    StoreError { message: format!("{url} does not exist"), ..error }
                }
                _ => error,
            }
        })?;
        if !answer.status().is_success() {
            return Err(refused("", "the service redirects, which is not followed"));
        }
        Web::text(&self.location, answer, MOST_BYTES).await
    }
}

/// A request with a body, if `body` is not empty, to a service that messages call `name`.
pub(super) fn request(
    name: &str,
    (method, url): (Method, &str),
    headers: &[(HeaderName, &str)],
    body: String,
) -> Result<Request, StoreError> {
    let url = Url::parse(url).map_err(|e| refused(name, format!("`{url}` is no URL: {e}")))?;
    let mut request = Request::new(method, url);
    *request.headers_mut() = header_map(name, headers)?;
    if !body.is_empty() {
        *request.body_mut() = Some(body.into());
    }
    Ok(request)
}

/// Headers, whose values messages never show.
fn header_map(name: &str, headers: &[(HeaderName, &str)]) -> Result<HeaderMap, StoreError> {
    let pair = |(header, text): &(HeaderName, &str)| {
        let mut value = HeaderValue::from_str(text).map_err(|_| {
            refused(name, format!("the value for {header} has characters that no header can have"))
        })?;
        value.set_sensitive(true);
        Ok((header.clone(), value))
    };
    headers.iter().map(pair).collect()
}

/// The body of an HTML form.
pub(super) fn form(pairs: &[(&str, &str)]) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, VALUE).to_string();
    let pairs: Vec<_> = pairs.iter().map(|(n, v)| format!("{n}={}", encoded(v))).collect();
    pairs.join("&")
}

/// The error of a service that cannot be used as it is configured.
pub(super) fn refused(name: &str, why: impl Into<String>) -> StoreError {
    StoreError::new(name, ErrorKind::Denied, why)
}
