//! Plain HTTP servers that know ranges.

use super::answer::{self, ContentRange};
use super::environment::Environment;
use super::http_secrets::Secrets;
use super::redirect::{Ask, Redirects};
use super::s3::headers_of;
use super::web::{Refused, Web, checked_body, malformed, object_of, range_header};
use crate::store::remote::{Body, Client, ErrorKind, Location, Object, RemoteOptions, StoreError};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_LENGTH, IF_MATCH, RANGE};
use reqwest::{Response, StatusCode, Url};
use std::ops::Range;

/// A server.
pub(in crate::store::remote) struct Http {
    servers: Redirects,
    secrets: Secrets,
}

impl Http {
    pub(in crate::store::remote) fn new(
        location: &Location,
        options: &RemoteOptions,
        environment: &Environment,
    ) -> Result<Self, StoreError> {
        let secrets = Secrets::new(location, options, environment);
        Ok(Self { servers: Redirects::new(Web::new(options)?), secrets })
    }

    fn ask<'a>(&self, location: &'a Location, range: &Range<u64>) -> Result<Ask<'a>, StoreError> {
        let url = format!("{location}{}", location.query);
        let url = Url::parse(&url).map_err(|e| {
            StoreError::new(location.to_string(), ErrorKind::Refused, e.to_string())
        })?;
        let pairs = [(RANGE, &*range_header(range)), (ACCEPT_ENCODING, "identity")];
        let headers = headers_of(location, &pairs)?;
        Ok(Ask { location, url, headers, secrets: self.secrets.headers(location)? })
    }

    /// HEAD would not say whether the server knows ranges, and a signed URL is signed for GET: so the first byte.
    async fn look_up(&self, location: &Location) -> Result<Object, StoreError> {
        match self.servers.get(&self.ask(location, &(0..1))?).await {
            Ok(answer) => first_byte(location, &answer),
            // An empty file has no first byte.
            Err(Refused { headers, error }) if error.status == Some(416) => {
                match answer::content_range(&headers) {
                    Some(ContentRange { total: Some(0), .. }) => {
                        Ok(object_of(location, &headers, 0))
                    }
                    _ => Err(error),
                }
            }
            Err(refused) => Err(refused.error),
        }
    }

    async fn read(&self, object: &Object, range: Range<u64>) -> Result<Body, StoreError> {
        let mut ask = self.ask(&object.location, &range)?;
        if let Some(etag) = &object.etag {
            ask.headers.extend(headers_of(&object.location, &[(IF_MATCH, etag)])?);
        }
        let answer = self.servers.get(&ask).await.map_err(|refused| refused.error)?;
        checked_body(object, &range, answer)
    }
}

fn first_byte(location: &Location, answer: &Response) -> Result<Object, StoreError> {
    let headers = answer.headers();
    let length = match (answer.status(), answer::content_range(headers)) {
        (StatusCode::PARTIAL_CONTENT, Some(ContentRange { range: Some((0, 0)), total })) => total,
        (StatusCode::OK, _) if answer::header(headers, CONTENT_LENGTH.as_str()) == Some("0") => {
            Some(0)
        }
        (StatusCode::OK, _) => {
            return Err(malformed(location, "the server ignores Range: it gives only whole files"));
        }
        _ => None,
    };
    let length = length.ok_or_else(|| malformed(location, "the server does not say the length"))?;
    let object = object_of(location, headers, length);
    if object.etag.is_none() && object.modified.is_none() {
        return Err(malformed(location, "the server gives neither ETag nor Last-Modified"));
    }
    Ok(object)
}

impl Client for Http {
    fn head<'a>(&'a self, location: &'a Location) -> BoxFuture<'a, Result<Object, StoreError>> {
        Box::pin(self.look_up(location))
    }

    fn get<'a>(
        &'a self,
        object: &'a Object,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Body, StoreError>> {
        Box::pin(self.read(object, range))
    }

    fn list<'a>(&'a self, prefix: &'a Location) -> BoxStream<'a, Result<Object, StoreError>> {
        let why = "HTTP servers do not list what they have: name each file, or use braces";
        let error = StoreError::new(prefix.to_string(), ErrorKind::Refused, why);
        stream::iter([Err(error)]).boxed()
    }
}
