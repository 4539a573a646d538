//! Plain HTTP servers that support ranges.

use super::answer::{self, ContentRange};
use super::credentials::Environment;
use super::credentials::Secrets;
use super::listing::Page;
use super::redirect::{Ask, Redirects};
use super::request::{headers_of, range_header};
use super::web::{Refused, Web, malformed, object_of};
use super::web_store::WebStore;
use crate::store::remote::{Body, ErrorKind, Location, Object, RemoteOptions, StoreError};
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
}

impl WebStore for Http {
    async fn identity(&self, location: &Location) -> Result<Option<String>, StoreError> {
        self.secrets.origin(location)
    }

    fn web(&self) -> &Web {
        self.servers.web()
    }

    /// Requests the first byte: HEAD would not show whether the server supports ranges, and signed URLs are signed for
    /// GET.
    async fn look_up(&self, location: &Location) -> Result<Object, StoreError> {
        match self.servers.get(&self.ask(location, &(0..1))?).await {
            Ok(answer) => first_byte(location, &answer.head()),
            // An empty file has no first byte.
            Err(Refused { headers, error, .. }) if error.status == Some(416) => {
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
        answer.body(object, &range)
    }

    async fn page(&self, prefix: &Location, _: Option<String>) -> Result<Page, StoreError> {
        let why = "HTTP servers do not list their files: name each file, or use braces";
        Err(StoreError::new(prefix.to_string(), ErrorKind::Refused, why))
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
            return Err(malformed(
                location,
                "the server ignores Range: it gives only whole files (download the file, or name another server)",
            ));
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
