//! Listings of objects, page by page.

use super::answer::{self, Texts};
use super::web::malformed;
use crate::store::remote::{Location, Object, StoreError};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use std::collections::HashMap;

/// The maximum length of a page: 5,000 keys of 1 KiB, each byte of which may be an XML entity.
pub(super) const PAGE_BYTES: usize = 64 << 20;

/// Objects, and the token for the next page.
pub(super) struct Page {
    pub(super) objects: Vec<Object>,
    pub(super) next: Option<String>,
}

/// The objects of each page; the first call of `page` gets no token.
pub(super) fn pages<'a>(
    prefix: &'a Location,
    page: impl Fn(Option<String>) -> BoxFuture<'a, Result<Page, StoreError>> + Send + 'a,
) -> BoxStream<'a, Result<Vec<Object>, StoreError>> {
    let pages = stream::try_unfold(Some(None), move |token: Option<Option<String>>| {
        let asked = token.clone().flatten();
        let next = token.map(&page);
        async move {
            let Some(next) = next else { return Ok(None) };
            let Page { objects, next } = next.await?;
            if next.is_some() && next == asked {
                return Err(malformed(
                    prefix,
                    "the list never ends: its next page is the same one",
                ));
            }
            Ok::<_, StoreError>(Some((objects, next.map(Some))))
        }
    });
    pages.boxed()
}

fn page_texts(prefix: &Location, xml: &str, record: &str) -> Result<Texts, StoreError> {
    answer::texts(xml, record).ok_or_else(|| malformed(prefix, "the list of objects is not XML"))
}

/// A page of S3 or GCS.
pub(super) fn s3_page(prefix: &Location, xml: &str) -> Result<Page, StoreError> {
    let mut texts = page_texts(prefix, xml, "Contents")?;
    let is_truncated = texts.others.get("IsTruncated").is_some_and(|text| text == "true");
    let next = texts.others.remove("NextContinuationToken");
    if is_truncated && next.is_none() {
        return Err(malformed(prefix, "the list ends early, without a token for its next page"));
    }
    let objects = texts.records.iter_mut().map(|record| {
        let key = record.remove("Key");
        let generation = record.remove("Generation");
        let modified = record.get("LastModified").and_then(|date| answer::parse_timestamp(date));
        let object = listed(prefix, (key, record.get("Size")), record.get("ETag"))?;
        Ok(Object { modified, version_id: generation, ..object })
    });
    let objects = objects.collect::<Result<_, _>>()?;
    Ok(Page { objects, next: next.filter(|_| is_truncated) })
}

/// A page of Azure.
pub(super) fn azure_page(prefix: &Location, xml: &str) -> Result<Page, StoreError> {
    let mut texts = page_texts(prefix, xml, "Blob")?;
    let next = texts.others.remove("NextMarker");
    // A hierarchical namespace lists directories, too.
    let is_file = |record: &&mut HashMap<String, String>| {
        record.get("ResourceType").is_none_or(|kind| kind != "directory")
    };
    let objects = texts.records.iter_mut().filter(is_file).map(|record| {
        let key = record.remove("Name");
        let modified = record.get("Last-Modified");
        let modified = modified.and_then(|date| httpdate::parse_http_date(date).ok());
        let object = listed(prefix, (key, record.get("Content-Length")), record.get("Etag"))?;
        Ok(Object { modified, ..object })
    });
    Ok(Page { objects: objects.collect::<Result<_, _>>()?, next })
}

fn listed(
    prefix: &Location,
    (key, length): (Option<String>, Option<&String>),
    etag: Option<&String>,
) -> Result<Object, StoreError> {
    let key = key.ok_or_else(|| malformed(prefix, "an object in the list has no key"))?;
    if !key.starts_with(&prefix.key) {
        return Err(malformed(prefix, "the list has objects without the requested prefix"));
    }
    let length_bytes = length.and_then(|length| length.parse().ok());
    let length_bytes =
        length_bytes.ok_or_else(|| malformed(prefix, "an object in the list has no length"))?;
    Ok(Object {
        location: Location { key, ..prefix.clone() },
        length_bytes,
        modified: None,
        version_id: None,
        etag: etag.and_then(|etag| answer::quoted(etag)),
    })
}
