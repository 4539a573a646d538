//! S3 and compatible stores: requests signed with the credentials of `object_store`, keys kept byte for byte.

use super::answer::{header, region_in};
use super::credentials::Environment;
use super::credentials::aws::{self, Settings};
use super::credentials::check_aws;
use super::listing::{self, Page};
use super::request::{KEY, VALUE, headers_of, range_header, s3_list_query, signed, value};
use super::web::{Web, checked_body, described, malformed};
use super::web_store::WebStore;
use crate::store::remote::{Body, ErrorKind, Location, Object, RemoteOptions, StoreError};
use object_store::aws::AwsAuthorizer;
use object_store::client::{HttpRequest, HttpRequestBody};
use percent_encoding::utf8_percent_encode;
use reqwest::header::{HeaderMap, IF_MATCH, RANGE};
use reqwest::{Method, Request, Response};
use std::ops::Range;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A bucket.
pub(in crate::store::remote) struct S3 {
    web: Web,
    settings: Settings,
    bucket: String,
    /// The bucket's region, updated when the store reports another one.
    region: RwLock<String>,
    /// Set if the credentials do not allow reading versions by id: then ETags pin versions.
    without_versions: AtomicBool,
}

impl S3 {
    pub(in crate::store::remote) fn new(
        location: &Location,
        options: &RemoteOptions,
        environment: &Environment,
    ) -> Result<Self, StoreError> {
        let settings = aws::settings(location, options, environment)?;
        Ok(Self {
            web: Web::for_endpoint(
                settings.endpoint.as_deref().unwrap_or_default(),
                &settings.web,
            )?,
            bucket: location.authority.clone(),
            region: RwLock::new(settings.region.clone()),
            settings,
            without_versions: AtomicBool::new(false),
        })
    }

    fn region(&self) -> String {
        self.region.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// The URL of a key in this region, with a query.
    fn url(&self, region: &str, key: &str, query: &str) -> String {
        let bucket = &self.bucket;
        let key = utf8_percent_encode(key, KEY);
        let endpoint = match &self.settings.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => {
                let china = if region.starts_with("cn-") { ".cn" } else { "" };
                format!("https://s3.{region}.amazonaws.com{china}")
            }
        };
        let endpoint = endpoint.trim_end_matches('/');
        match (self.settings.path_style, endpoint.split_once("://")) {
            (false, Some((scheme, host))) => format!("{scheme}://{bucket}.{host}/{key}{query}"),
            _ => format!("{endpoint}/{bucket}/{key}{query}"),
        }
    }

    async fn request(
        &self,
        location: &Location,
        query: &str,
        (method, headers): (Method, &HeaderMap),
    ) -> Result<Request, StoreError> {
        let refused = |why: String| StoreError::new(location.to_string(), ErrorKind::Refused, why);
        let region = self.region();
        let url = self.url(&region, &location.key, query);
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = method;
        *request.uri_mut() =
            url.parse().map_err(|_| refused("this key cannot be part of a URL".into()))?;
        *request.headers_mut() = headers.clone();
        if let Some(provider) = &self.settings.credentials {
            let credential = provider.get(location).await?;
            check_aws(location, &credential)?;
            AwsAuthorizer::new(&credential, "s3", &region)
                .with_request_payer(self.settings.requester_pays)
                .try_authorize(&mut request, None)
                .map_err(|e| refused(e.to_string()))?;
        }
        signed(location, request)
    }

    /// Sends a request, and again if the store reports that the bucket is in another region.
    async fn send(
        &self,
        location: &Location,
        query: &str,
        (method, headers): (Method, &HeaderMap),
    ) -> Result<Response, StoreError> {
        let request = self.request(location, query, (method.clone(), headers)).await?;
        let tried = self.region();
        let (answer, region, error) = match self.web.try_send(location, request).await {
            Ok(answer) if answer.status().is_success() => return Ok(answer),
            Ok(answer) => (answer.headers().clone(), None, None),
            // The header is missing where the signature was made for another region.
            Err(refused) => (refused.headers, region_in(&refused.body), Some(refused.error)),
        };
        let region = header(&answer, "x-amz-bucket-region").or(region.as_deref()).unwrap_or(&tried);
        let is_name = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if region != tried && is_name(region) {
            *self.region.write().unwrap_or_else(std::sync::PoisonError::into_inner) = region.into();
            let request = self.request(location, query, (method, headers)).await?;
            let answer = self.web.send(location, request).await?;
            if answer.status().is_success() {
                return Ok(answer);
            }
        }
        Err(error.unwrap_or_else(|| {
            let why = "the bucket is in another region: set its region or endpoint";
            StoreError::new(location.to_string(), ErrorKind::Refused, why)
        }))
    }
}

impl WebStore for S3 {
    async fn identity(&self, location: &Location) -> Result<Option<String>, StoreError> {
        let Some(credentials) = &self.settings.credentials else { return Ok(None) };
        let credential = credentials.get(location).await?;
        // A key's id is no secret; this much of it tells it from others.
        let id: String = credential.key_id.chars().take(8).collect();
        Ok(Some(format!("{}, key {id}…", credentials.origin())))
    }

    fn web(&self) -> &Web {
        &self.web
    }

    async fn look_up(&self, location: &Location) -> Result<Object, StoreError> {
        let none = HeaderMap::new();
        let answer = match self.send(location, "", (Method::HEAD, &none)).await {
            // An error response to HEAD has no body with the reason.
            Err(error) if matches!(error.status, Some(400 | 401 | 403)) => {
                let first = headers_of(location, &[(RANGE, "bytes=0-0")])?;
                let tried = self.region();
                match self.send(location, "", (Method::GET, &first)).await {
                    Err(said) if said.status == error.status => return Err(said),
                    // That body has named the bucket's region.
                    Ok(_) if self.region() != tried => {
                        self.send(location, "", (Method::HEAD, &none)).await?
                    }
                    _ => return Err(error),
                }
            }
            answer => answer?,
        };
        let mut object = described(location, answer.headers())?;
        let version = header(answer.headers(), "x-amz-version-id").filter(|id| *id != "null");
        object.version_id = version.map(str::to_owned);
        if object.version_id.is_none() && object.etag.is_none() && object.modified.is_none() {
            return Err(malformed(location, "the store gives neither version nor ETag nor date"));
        }
        Ok(object)
    }

    async fn read(&self, object: &Object, range: Range<u64>) -> Result<Body, StoreError> {
        let location = &object.location;
        let mut headers = headers_of(location, &[(RANGE, &range_header(&range))])?;
        if let Some(etag) = &object.etag {
            headers.insert(IF_MATCH, value(location, etag)?);
        }
        let by_name = object.version_id.as_ref().filter(|_| !self.without_versions.load(Relaxed));
        if let Some(id) = by_name {
            let query = format!("?versionId={}", utf8_percent_encode(id, VALUE));
            match self.send(location, &query, (Method::GET, &headers)).await {
                // GetObjectVersion is a separate permission. The ETag pins the version, too.
                Err(error) if error.status == Some(403) && object.etag.is_some() => {
                    let Ok(answer) = self.send(location, "", (Method::GET, &headers)).await else {
                        return Err(error);
                    };
                    self.without_versions.store(true, Relaxed);
                    return checked_body(object, &range, answer);
                }
                answer => return checked_body(object, &range, answer?),
            }
        }
        let answer = self.send(location, "", (Method::GET, &headers)).await?;
        checked_body(object, &range, answer)
    }

    async fn page(&self, prefix: &Location, token: Option<String>) -> Result<Page, StoreError> {
        let bucket = Location { key: String::new(), ..prefix.clone() };
        let query = s3_list_query(prefix, token);
        let answer = self.send(&bucket, &query, (Method::GET, &HeaderMap::new())).await;
        let answer = answer.map_err(|e| StoreError { url: prefix.to_string(), ..e })?;
        let xml = Web::text(prefix, answer, listing::PAGE_BYTES).await?;
        listing::s3_page(prefix, &xml)
    }
}
