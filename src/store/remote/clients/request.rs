//! The parts of requests to stores: encoded keys, and values of headers.

use super::web::malformed;
use crate::store::remote::{ErrorKind, Location, StoreError};
use object_store::client::HttpRequest;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Request, Url};
use std::ops::Range;

/// The characters to encode in a key, as S3's signatures require.
pub(super) const KEY: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
/// The characters to encode in a query.
pub(super) const VALUE: &AsciiSet = &KEY.add(b'/');

/// The value of the `Range` header.
pub(super) fn range_header(range: &Range<u64>) -> String {
    format!("bytes={}-{}", range.start, range.end.saturating_sub(1))
}

/// Makes a value of a header.
pub(super) fn value(location: &Location, text: &str) -> Result<HeaderValue, StoreError> {
    HeaderValue::from_str(text)
        .map_err(|_| malformed(location, "this value cannot be sent in a header"))
}

/// Makes the headers of a request.
pub(super) fn headers_of(
    location: &Location,
    pairs: &[(HeaderName, &str)],
) -> Result<HeaderMap, StoreError> {
    pairs.iter().map(|(name, text)| Ok((name.clone(), value(location, text)?))).collect()
}

/// A request that `object_store` has signed, as one of ours.
pub(super) fn signed(location: &Location, mut request: HttpRequest) -> Result<Request, StoreError> {
    let url = Url::parse(&request.uri().to_string())
        .map_err(|e| StoreError::new(location.to_string(), ErrorKind::Refused, e.to_string()))?;
    let mut signed = Request::new(request.method().clone(), url);
    *signed.headers_mut() = std::mem::take(request.headers_mut());
    *signed.body_mut() =
        request.body().as_bytes().filter(|b| !b.is_empty()).cloned().map(Into::into);
    Ok(signed)
}

/// The query for a page of a listing of S3 or GCS: the first page, or the one of the previous page's token.
pub(super) fn s3_list_query(prefix: &Location, token: Option<String>) -> String {
    let mut query = String::from("?");
    if let Some(token) = token {
        query += &format!("continuation-token={}&", utf8_percent_encode(&token, VALUE));
    }
    query + &format!("list-type=2&prefix={}", utf8_percent_encode(&prefix.key, VALUE))
}
