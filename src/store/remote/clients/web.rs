//! One HTTP request and its response: connections, TLS, the classes of refusals, and the check that a response has the
//! requested range. All clients except HDFS's are built on it.

use super::answer::{self, ContentRange};
use crate::format::counted;
use crate::store::remote::{Body, ErrorKind, Location, Object, RemoteOptions, StoreError};
use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt};
use object_store::client::{HttpClient, HttpConnector};
use object_store::{ClientOptions, RetryConfig};
use reqwest::header::{CONTENT_LENGTH, HeaderMap};
use reqwest::{Certificate, Client, ClientBuilder, Request, Response, StatusCode, Url};
use std::error::Error;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

/// The maximum that is read of a refusal's body, in bytes.
const COMPLAINT_BYTES: usize = 16 << 10;
/// How long to wait for a refusal's body.
const COMPLAINT_PATIENCE: Duration = Duration::from_secs(2);
/// The connect timeout, for stores and for services that provide credentials.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// A response that refuses the request.
pub(super) struct Refused {
    pub(super) headers: HeaderMap,
    pub(super) body: String,
    pub(super) error: StoreError,
}

/// The error of a request without a response.
impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self { headers: HeaderMap::new(), body: String::new(), error }
    }
}

/// Connections to servers.
#[derive(Debug, Clone)]
pub(super) struct Web {
    client: Client,
    /// By how many seconds the server's clock is ahead of ours, by its last response.
    clock: Arc<Mutex<Option<i64>>>,
}

impl Web {
    /// Connections that trust the system's certificates, and those that the options add.
    pub(super) fn new(options: &RemoteOptions) -> Result<Self, StoreError> {
        Self::trusting(true, options)
    }

    /// Connections to one server, which follow no redirections to others. Without TLS the system's certificates are not
    /// read, which would take 20 ms.
    pub(super) fn for_endpoint(
        endpoint: &str,
        options: &RemoteOptions,
    ) -> Result<Self, StoreError> {
        let has_proxy = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]
            .iter()
            .any(|name| std::env::var_os(name).is_some());
        Self::trusting(has_proxy || !endpoint.starts_with("http://"), options)
    }

    fn trusting(system: bool, options: &RemoteOptions) -> Result<Self, StoreError> {
        let client = build(system, &certificates(options)?, |builder| {
            // Many connections, as each has limited throughput; HTTP/2 would put all requests on one.
            let builder = builder.http1_only().pool_max_idle_per_host(options.max_in_flight.max(8));
            builder.connect_timeout(CONNECT_PATIENCE).tcp_nodelay(true)
        })?;
        Ok(Self { client, clock: Arc::default() })
    }

    /// Sends a request. Success and redirections are responses; all other statuses are errors.
    pub(super) async fn send(
        &self,
        location: &Location,
        request: Request,
    ) -> Result<Response, StoreError> {
        self.try_send(location, request).await.map_err(|refused| refused.error)
    }

    /// Like [`Self::send`], but the error has the headers and the body of the refusal.
    pub(super) async fn try_send(
        &self,
        location: &Location,
        request: Request,
    ) -> Result<Response, Refused> {
        let answer = self.client.execute(request).await.map_err(|e| failed(location, e))?;
        self.note_clock(answer.headers());
        let status = answer.status();
        if status.is_success() || status.is_redirection() {
            return Ok(answer);
        }
        let headers = answer.headers().clone();
        let body = complaint_of(answer).await;
        let error = refusal(location, status, &headers, &body);
        Err(Refused { headers, body, error })
    }

    fn note_clock(&self, headers: &HeaderMap) {
        let Some(theirs) = answer::date(headers) else { return };
        let ahead = match theirs.duration_since(SystemTime::now()) {
            Ok(ahead) => i64::try_from(ahead.as_secs()),
            Err(behind) => i64::try_from(behind.duration().as_secs()).map(|seconds| -seconds),
        };
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = ahead.ok();
    }

    /// See [`crate::store::remote::Client::clock_ahead_seconds`].
    pub(super) fn clock_ahead_seconds(&self) -> Option<i64> {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The whole body of a response of at most `limit` bytes, such as a listing.
    pub(super) async fn text(
        location: &Location,
        answer: Response,
        limit: usize,
    ) -> Result<String, StoreError> {
        let mut stream = answer.bytes_stream();
        let mut all = Vec::new();
        while let Some(piece) = stream.next().await {
            all.extend_from_slice(&piece.map_err(|e| failed(location, e))?);
            if all.len() > limit {
                return Err(malformed(location, "the answer is far too long"));
            }
        }
        String::from_utf8(all).map_err(|_| malformed(location, "the answer is not UTF-8"))
    }
}

fn certificates(options: &RemoteOptions) -> Result<Vec<Certificate>, StoreError> {
    let Some(path) = &options.ca else { return Ok(Vec::new()) };
    let wrong = |why: String| StoreError::new(path.display().to_string(), ErrorKind::Refused, why);
    let pem = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|e| wrong(e.to_string()))?;
    if certificates.is_empty() {
        return Err(wrong("no certificate in PEM is in this file".into()));
    }
    Ok(certificates)
}

fn build(
    trusts_system: bool,
    certificates: &[Certificate],
    configure: impl Fn(ClientBuilder) -> ClientBuilder,
) -> Result<Client, StoreError> {
    // Another part of the program may have installed the same provider first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        let name = concat!("ffrfs/", env!("CARGO_PKG_VERSION"));
        let builder =
            Client::builder().user_agent(name).redirect(reqwest::redirect::Policy::none());
        // One policy for all clients decides on retries.
        configure(builder.retry(reqwest::retry::never()))
    };
    // Without the system's certificates, servers without TLS and those with certificates from the options still work.
    let alone = || builder().tls_certs_only(certificates.iter().cloned()).build();
    let client = match trusts_system {
        true => {
            builder().tls_certs_merge(certificates.iter().cloned()).build().or_else(|_| alone())
        }
        false => alone(),
    };
    client.map_err(|e| StoreError::new("TLS", ErrorKind::Refused, chain(&e)))
}

/// How often requests for credentials are retried: the policy for requests to stores does not cover them.
pub(super) fn credential_retry() -> RetryConfig {
    let retry_timeout = Duration::from_secs(5);
    RetryConfig { max_retries: 2, retry_timeout, ..RetryConfig::default() }
}

/// The connections of `object_store` to services that provide credentials.
#[derive(Debug)]
pub(super) struct Connector {
    certificates: Vec<Certificate>,
}

impl Connector {
    pub(super) fn new(options: &RemoteOptions) -> Result<Self, StoreError> {
        Ok(Self { certificates: certificates(options)? })
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        use object_store::ClientConfigKey::ConnectTimeout;
        // One second for the metadata service, which many machines do not have.
        let is_short =
            options.get_config_value(&ConnectTimeout).is_some_and(|t| t.starts_with("1 "));
        let patience = if is_short { Duration::from_secs(1) } else { CONNECT_PATIENCE };
        let client = build(true, &self.certificates, |builder| {
            builder.connect_timeout(patience).timeout(3 * CONNECT_PATIENCE)
        });
        let client = client.map_err(|e| object_store::Error::Generic {
            store: "HTTP client",
            source: Box::new(e),
        })?;
        Ok(HttpClient::new(client))
    }
}

/// The error for a response that does not match the request.
pub(super) fn malformed(location: &Location, why: impl Into<String>) -> StoreError {
    StoreError::new(location.to_string(), ErrorKind::Malformed, why)
}

async fn complaint_of(answer: Response) -> String {
    let mut body = Vec::new();
    let mut stream = answer.bytes_stream();
    let read = async {
        while let Some(Ok(piece)) = stream.next().await {
            let room = COMPLAINT_BYTES - body.len();
            body.extend_from_slice(&piece[..piece.len().min(room)]);
            if body.len() == COMPLAINT_BYTES {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(COMPLAINT_PATIENCE, read).await;
    String::from_utf8_lossy(&body).into_owned()
}

/// The class of a status, with the store's message.
pub(super) fn refusal(
    location: &Location,
    status: StatusCode,
    headers: &HeaderMap,
    body: &str,
) -> StoreError {
    let mut said = answer::complaint(body);
    let elsewhere = ["x-ms-error-code", "x-error-message"];
    let elsewhere = elsewhere.iter().find_map(|name| answer::header(headers, name));
    if let (true, Some(words)) = (said.is_empty(), elsewhere) {
        said = answer::shortened(words, 200);
    }
    let expired = ["ExpiredToken", "InvalidToken", "TokenRefreshRequired", "RequestExpired"];
    let kind = match status.as_u16() {
        400 if expired.iter().any(|code| said.starts_with(code)) => ErrorKind::Denied,
        401 | 403 | 407 => ErrorKind::Denied,
        404 | 410 => ErrorKind::NotFound,
        408 => ErrorKind::Unavailable,
        412 | 416 => ErrorKind::Changed,
        429 | 503 => ErrorKind::Throttled,
        500..=599 => ErrorKind::Unavailable,
        _ => ErrorKind::Refused,
    };
    if said.is_empty() && kind == ErrorKind::NotFound {
        // An error response to HEAD has no body with the reason.
        said = "there is no such object, or no such bucket".to_owned();
    }
    if said.is_empty() {
        said = status.canonical_reason().unwrap_or("the server refuses").to_owned();
    }
    if said.starts_with("RequestTimeTooSkewed") {
        said.push_str("; set the clock of this machine");
    }
    StoreError {
        status: Some(status.as_u16()),
        request_id: answer::request_id(headers),
        retry_after: answer::retry_after(headers, SystemTime::now()),
        ..StoreError::new(location.to_string(), kind, said)
    }
}

/// The error for a request without a response, or with a body that ended early.
fn failed(location: &Location, error: reqwest::Error) -> StoreError {
    let server = error.url().and_then(server_of);
    let error = error.without_url();
    let kind = if error.is_builder() || is_certificate(&error) {
        ErrorKind::Refused
    } else if error.is_timeout() {
        ErrorKind::TimedOut
    } else if error.is_connect() {
        ErrorKind::Unavailable
    } else {
        ErrorKind::Broken
    };
    let mut message = match (error.is_connect(), server) {
        (true, Some(server)) => format!("no connection to {server}: {}", deepest(&error)),
        (false, Some(server)) => format!("{server}: {}", chain(&error)),
        (_, None) => chain(&error),
    };
    if is_certificate(&error) {
        message.push_str("; the option `ca` names a file of certificates to trust");
    }
    StoreError::new(location.to_string(), kind, message)
}

/// The server of a URL, which may differ from the object's because of an endpoint or a redirection.
fn server_of(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// The message of the innermost error of a chain.
fn deepest(error: &dyn Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    answer::shortened(&inner.to_string(), 400)
}

/// The messages of all errors of a chain.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !said.contains(&more) {
            said = format!("{said}: {more}");
        }
        source = error.source();
    }
    answer::shortened(&said, 400)
}

fn is_certificate(error: &reqwest::Error) -> bool {
    let mut source = error.source();
    while let Some(error) = source {
        // An I/O error hides its inner error, which may be another I/O error.
        let mut inner = error;
        while let Some(next) = inner.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            inner = next;
        }
        if let Some(rustls::Error::InvalidCertificate(_)) = inner.downcast_ref() {
            return true;
        }
        source = error.source();
    }
    false
}

/// The object, as described by a response to HEAD.
pub(super) fn described(location: &Location, headers: &HeaderMap) -> Result<Object, StoreError> {
    let length = answer::header(headers, CONTENT_LENGTH.as_str()).and_then(|l| l.parse().ok());
    let length = length.ok_or_else(|| malformed(location, "the server does not say the length"))?;
    Ok(object_of(location, headers, length))
}

pub(super) fn object_of(location: &Location, headers: &HeaderMap, length_bytes: u64) -> Object {
    Object {
        location: location.clone(),
        length_bytes,
        modified: answer::last_modified(headers),
        version_id: None,
        etag: answer::strong_etag(headers),
    }
}

/// The body of a response, checked to be this range of this version of the object.
pub(super) fn checked_body(
    object: &Object,
    range: &Range<u64>,
    answer: Response,
) -> Result<Body, StoreError> {
    check_version(object, answer.headers())
        .and_then(|()| check_range(object, range, &answer))
        .map_err(|mut error| {
            error.status = Some(answer.status().as_u16());
            error.request_id = answer::request_id(answer.headers());
            error
        })?;
    let location = object.location.clone();
    Ok(Box::pin(Exactly { inner: answer.bytes_stream(), left: range.end - range.start, location }))
}

/// Checks that a response is of the version that was opened.
pub(super) fn check_version(object: &Object, headers: &HeaderMap) -> Result<(), StoreError> {
    let changed = |why: &str| StoreError::new(object.location.to_string(), ErrorKind::Changed, why);
    match (&object.etag, answer::strong_etag(headers)) {
        (Some(pinned), Some(etag)) if *pinned == etag => Ok(()),
        (Some(_), Some(_)) => Err(changed("the object has changed: it has another ETag")),
        // A version that the request named needs no further check.
        (Some(_), None) if object.version_id.is_some() => Ok(()),
        (Some(_), None) => Err(changed("the answer has no ETag: it may be of another version")),
        (None, _) if object.version_id.is_some() => Ok(()),
        (None, _) => match (object.modified, answer::last_modified(headers)) {
            (Some(pinned), Some(modified)) if pinned != modified => {
                Err(changed("the object has changed: it was modified since"))
            }
            (Some(_), None) => Err(changed("the answer has no date: it may be of another version")),
            _ => Ok(()),
        },
    }
}

fn check_range(object: &Object, range: &Range<u64>, answer: &Response) -> Result<(), StoreError> {
    let location = &object.location;
    if answer.status() != StatusCode::PARTIAL_CONTENT {
        return Err(malformed(
            location,
            "the server ignores Range: it gives the whole object (download the file, or name another server)",
        ));
    }
    let found = answer::content_range(answer.headers());
    let Some(ContentRange { range: Some((first, last)), total }) = found else {
        return Err(malformed(location, "the answer does not say which range it is"));
    };
    if (first, last) != (range.start, range.end.saturating_sub(1)) {
        let why = format!("the server gives bytes {first} to {last} instead of {range:?}");
        return Err(malformed(location, why));
    }
    match total {
        Some(total) if total == object.length_bytes => {}
        Some(total) => {
            let why = format!("the object has changed: it has {} now", counted(total, "byte"));
            return Err(StoreError::new(location.to_string(), ErrorKind::Changed, why));
        }
        None => return Err(malformed(location, "the answer does not say how long the object is")),
    }
    let length = answer::header(answer.headers(), CONTENT_LENGTH.as_str());
    if length.is_some_and(|length| length.parse() != Ok(range.end - range.start)) {
        return Err(malformed(location, "the answer is not as long as its range"));
    }
    Ok(())
}

/// A body of exactly the length of its range: a shorter or longer one ends with an error.
struct Exactly<S> {
    inner: S,
    left: u64,
    location: Location,
}

impl<S> Stream for Exactly<S>
where
    S: Stream<Item = Result<Bytes, reqwest::Error>> + Unpin,
{
    type Item = Result<Bytes, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let piece = std::task::ready!(self.inner.poll_next_unpin(context));
        let end = |location: &Location, kind, why: &str| {
            Poll::Ready(Some(Err(StoreError::new(location.to_string(), kind, why))))
        };
        match piece {
            Some(Ok(piece)) if piece.len() as u64 <= self.left => {
                self.left -= piece.len() as u64;
                Poll::Ready(Some(Ok(piece)))
            }
            Some(Ok(_)) => {
                self.left = 0;
                end(&self.location, ErrorKind::Malformed, "the answer is longer than its range")
            }
            Some(Err(error)) => {
                self.left = 0;
                Poll::Ready(Some(Err(failed(&self.location, error))))
            }
            None => {
                self.left = 0;
                end(&self.location, ErrorKind::Broken, "the body ended early")
            }
        }
    }
}
