//! From a request to its answer.

use super::body::{Body, sending, whole};
use super::objects::Version;
use super::record::{Request, RequestKind, Underway};
use super::rules::{Etag, Plan};
use super::text::{decode, field, http_time, range};
use super::xml::{Ask, error};
use super::{Connection, Shared, control, lock};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT_RANGES, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG,
    HeaderName, IF_MATCH, LAST_MODIFIED, RANGE, RETRY_AFTER,
};
use hyper::http::response::Builder;
use hyper::{Method, Response};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The path at which users of the program steer the store: no bucket has this name.
const CONTROL: &str = "/-/";

/// A request that is being answered.
struct Asked {
    kind: RequestKind,
    key: String,
    query: String,
    range: Option<String>,
    if_match: Option<String>,
    id: String,
    plan: Plan,
}

/// Answers one request; an error closes the connection without an answer.
pub(super) async fn answer(
    shared: &Arc<Shared>,
    connection: Arc<Connection>,
    request: hyper::Request<Incoming>,
) -> io::Result<Response<Body>> {
    if request.uri().path().starts_with(CONTROL) {
        return Ok(control::answer(shared, request).await);
    }
    let (asked, underway) = begin(shared, &request);
    if !asked.plan.delay.is_zero() {
        tokio::time::sleep(asked.plan.delay).await;
    }
    if asked.plan.hangs {
        shared.hang().await;
    }
    let authorized = is_authorized(shared, &request);
    drop(request);
    let answer = match authorized {
        _ if asked.plan.status.is_some() => asked.faulty(),
        false => asked.error(403, "ExpiredToken", "The provided token has expired."),
        true => match asked.kind {
            RequestKind::List => Ok(asked.list(shared)),
            RequestKind::Head | RequestKind::Get => {
                return asked.object(shared, connection, underway);
            }
            RequestKind::Other => asked.error(405, "MethodNotAllowed", "This store is read-only."),
        },
    }?;
    underway.set_status(answer.status().as_u16());
    Ok(answer)
}

fn begin(shared: &Shared, request: &hyper::Request<Incoming>) -> (Asked, Underway) {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let header = |name: HeaderName| {
        request.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let path = decode(request.uri().path());
    let query = request.uri().query().unwrap_or_default().to_owned();
    let mut key = path.trim_start_matches('/').to_owned();
    let is_bucket = !key.trim_end_matches('/').contains('/');
    let lists = is_bucket && (field(&query, "prefix").is_some() || key.len() == path.len() - 1);
    let kind = match *request.method() {
        Method::HEAD => RequestKind::Head,
        Method::GET if lists && shared.is_listing(&key, &query) => RequestKind::List,
        Method::GET => RequestKind::Get,
        _ => RequestKind::Other,
    };
    if kind == RequestKind::List {
        key = format!(
            "{}/{}",
            key.trim_end_matches('/'),
            field(&query, "prefix").unwrap_or_default()
        );
    }
    let plan = shared.rules.plan(kind, &key);
    let (range_header, if_match) = (header(RANGE), header(IF_MATCH));
    let underway = shared.record.begin(Request {
        kind,
        key: key.clone(),
        range: range_header.as_deref().and_then(|text| range(text, u64::MAX)),
        status: 0,
        sent_bytes: 0,
        is_faulty: plan.is_faulty,
        version_id: field(&query, "versionId"),
        if_match: if_match.clone(),
        authorization: header(AUTHORIZATION),
        came_at: Duration::ZERO,
    });
    let id = format!("TEST{:012X}", COUNT.fetch_add(1, Ordering::Relaxed));
    (Asked { kind, key, query, range: range_header, if_match, id, plan }, underway)
}

fn is_authorized(shared: &Shared, request: &hyper::Request<Incoming>) -> bool {
    let wanted = lock(&shared.token);
    let Some(wanted) = wanted.as_deref() else { return true };
    let names = ["authorization", "x-amz-security-token"];
    let values = names.iter().filter_map(|name| request.headers().get(*name)?.to_str().ok());
    values.into_iter().any(|value| value.contains(wanted))
}

impl Shared {
    /// Whether a GET of a bucket's path lists the bucket; an object with the same key comes first.
    fn is_listing(&self, key: &str, query: &str) -> bool {
        field(query, "list-type").is_some() || lock(&self.objects).get(key, None).is_none()
    }
}

impl Asked {
    fn builder(&self, status: u16) -> Builder {
        let builder = Response::builder()
            .status(status)
            .header("x-amz-request-id", &self.id)
            .header("x-amz-id-2", "loopback");
        match self.plan.clock_ahead {
            // The server adds the right date.
            Duration::ZERO => builder,
            ahead => builder.header(DATE, http_time(SystemTime::now() + ahead)),
        }
    }

    fn error(&self, status: u16, code: &str, message: &str) -> io::Result<Response<Body>> {
        let text = error(code, message, &self.key, &self.id);
        let builder = self.builder(status).header(CONTENT_TYPE, "application/xml");
        built(builder, if self.kind == RequestKind::Head { whole("") } else { whole(text) })
    }

    /// The error that a rule asks for.
    fn faulty(&self) -> io::Result<Response<Body>> {
        let (status, retry_after) = self.plan.status.unwrap_or((500, None));
        let (code, message) = match status {
            503 => ("SlowDown", "Please reduce your request rate."),
            429 => ("TooManyRequests", "Please reduce your request rate."),
            401 | 403 => ("AccessDenied", "Access Denied"),
            404 => ("NoSuchKey", "The specified key does not exist."),
            412 => ("PreconditionFailed", "At least one of the preconditions did not hold."),
            _ => ("InternalError", "We encountered an internal error. Please try again."),
        };
        let mut answer = self.error(status, code, message)?;
        if let Some(seconds) = retry_after {
            answer.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        Ok(answer)
    }

    fn list(&self, shared: &Shared) -> Response<Body> {
        let bucket = self.key.split('/').next().unwrap_or_default();
        if field(&self.query, "location").is_some() {
            let text = "<LocationConstraint xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"/>";
            return built(self.builder(200), whole(text)).expect("a constant answer");
        }
        let ask = Ask::new(bucket, &self.query, shared.page.load(Ordering::Relaxed));
        let objects = lock(&shared.objects).list(&format!("{}/{}", ask.bucket, ask.prefix));
        let builder = self.builder(200).header(CONTENT_TYPE, "application/xml");
        built(builder, whole(ask.page(&objects))).expect("a listing")
    }

    fn object(
        &self,
        shared: &Arc<Shared>,
        connection: Arc<Connection>,
        underway: Underway,
    ) -> io::Result<Response<Body>> {
        let version_id = field(&self.query, "versionId");
        let found = lock(&shared.objects).get(&self.key, version_id.as_deref());
        let refused = |answer: io::Result<Response<Body>>| {
            let answer = answer?;
            underway.set_status(answer.status().as_u16());
            Ok(answer)
        };
        let Some(version) = found else {
            if self.kind == RequestKind::Head && !self.key.trim_end_matches('/').contains('/') {
                return refused(built(self.builder(200), whole(""))); // of a bucket
            }
            return refused(self.error(404, "NoSuchKey", "The specified key does not exist."));
        };
        if !self.matches(&version) {
            let message = "At least one of the preconditions you specified did not hold.";
            return refused(self.error(412, "PreconditionFailed", message));
        }
        let total = version.bytes.len() as u64;
        let wanted = self.range.as_deref().filter(|_| !self.plan.whole);
        let (status, bytes) = match wanted.map(|header| range(header, total)) {
            None => (200, 0..total),
            Some(Some(range)) => (206, self.bent(range, total)),
            Some(None) => {
                let message = "The requested range is not satisfiable";
                return refused(self.error(416, "InvalidRange", message));
            }
        };
        let builder = self.described(self.builder(status), &version, status == 206, &bytes);
        underway.set_status(status);
        if self.kind == RequestKind::Head {
            return built(builder, whole(""));
        }
        let bytes = version.bytes.slice(bytes.start as usize..bytes.end as usize);
        built(builder, sending(bytes, self.plan.clone(), underway, Arc::clone(shared), connection))
    }

    fn matches(&self, version: &Version) -> bool {
        let Some(wanted) = self.if_match.as_deref().filter(|_| !self.plan.ignores_conditions)
        else {
            return true;
        };
        let mut wanted = wanted.split(',').map(str::trim);
        wanted.any(|tag| tag == "*" || tag.trim_matches('"') == version.etag.trim_matches('"'))
    }

    /// The range that is sent instead of the range that was asked for.
    fn bent(&self, range: Range<u64>, total: u64) -> Range<u64> {
        let shift = u64::from(self.plan.shifted);
        let start = (range.start + shift).min(total - 1);
        let end = (range.end + shift).min(total).saturating_sub(self.plan.missing);
        start..end.max(start + 1).min(total)
    }

    fn described(
        &self,
        mut builder: Builder,
        version: &Version,
        is_range: bool,
        bytes: &Range<u64>,
    ) -> Builder {
        builder = builder
            .header(ACCEPT_RANGES, "bytes")
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(LAST_MODIFIED, http_time(version.modified))
            .header(CONTENT_LENGTH, bytes.end - bytes.start);
        if is_range {
            let total = version.bytes.len() as u64 + u64::from(self.plan.wrong_total);
            let text = format!("bytes {}-{}/{total}", bytes.start, bytes.end - 1);
            builder = builder.header(CONTENT_RANGE, text);
        }
        if let Some(id) = &version.version_id {
            builder = builder.header("x-amz-version-id", id);
        }
        match self.plan.etag {
            Etag::Strong => builder.header(ETAG, &version.etag),
            Etag::Weak => builder.header(ETAG, format!("W/{}", version.etag)),
            Etag::Absent => builder,
        }
    }
}

fn built(builder: Builder, body: Body) -> io::Result<Response<Body>> {
    builder.body(body).map_err(io::Error::other)
}
