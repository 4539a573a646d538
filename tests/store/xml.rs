//! The XML of S3: errors and listings.

use super::objects::Listed;
use super::text::{decode, encode, field, iso_time};
use std::fmt::Write;

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The body of an error.
pub(super) fn error(code: &str, message: &str, key: &str, request_id: &str) -> String {
    let (message, key) = (escape(message), escape(key));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message>\
         <Resource>/{key}</Resource><RequestId>{request_id}</RequestId></Error>"
    )
}

/// The parameters of a listing.
pub(super) struct Ask {
    /// The name of the bucket.
    pub(super) bucket: String,
    pub(super) prefix: String,
    delimiter: Option<String>,
    /// The key after which the page begins.
    after: String,
    page: usize,
    is_encoded: bool,
    is_v2: bool,
}

impl Ask {
    /// Reads the parameters from the bucket and the query; a page has at most `page` objects.
    pub(super) fn new(bucket: &str, query: &str, page: usize) -> Self {
        let is_v2 = field(query, "list-type").as_deref() == Some("2");
        // A continuation token is the last key of the page before, escaped so that it is opaque.
        let token = field(query, "continuation-token").map(|token| decode(&token));
        let wanted = field(query, "max-keys").and_then(|keys| keys.parse().ok());
        Self {
            bucket: bucket.to_owned(),
            prefix: field(query, "prefix").unwrap_or_default(),
            delimiter: field(query, "delimiter").filter(|text| !text.is_empty()),
            after: token
                .or_else(|| field(query, "start-after"))
                .or_else(|| field(query, "marker"))
                .unwrap_or_default(),
            page: wanted.unwrap_or(page).min(page),
            is_encoded: field(query, "encoding-type").as_deref() == Some("url"),
            is_v2,
        }
    }

    /// One page of all objects with the prefix, whose keys begin with the bucket.
    pub(super) fn page(&self, objects: &[Listed]) -> String {
        let (mut contents, mut folders) = (String::new(), Vec::<&str>::new());
        let (mut count, mut last, mut is_cut) = (0, String::new(), false);
        for object in objects {
            let Some(key) = object.key.get(self.bucket.len() + 1..) else { continue };
            let folder = self.folder(key);
            let name = folder.unwrap_or(key);
            if name <= self.after.as_str() || folders.last() == Some(&name) {
                continue;
            }
            if count == self.page {
                is_cut = true;
                break;
            }
            count += 1;
            name.clone_into(&mut last);
            match folder {
                Some(folder) => folders.push(folder),
                None => self.entry(&mut contents, key, object),
            }
        }
        let mut out = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>{}</Name><Prefix>{}</Prefix>\
             <KeyCount>{count}</KeyCount><MaxKeys>{}</MaxKeys><IsTruncated>{is_cut}</IsTruncated>",
            escape(&self.bucket),
            self.shown(&self.prefix),
            self.page
        );
        if is_cut {
            let (tag, next) = match self.is_v2 {
                true => ("NextContinuationToken", encode(&last).replace('/', "%2F")),
                false => ("NextMarker", self.shown(&last)),
            };
            write!(out, "<{tag}>{next}</{tag}>").expect("write to a string");
        }
        out += &contents;
        for folder in folders {
            let folder = self.shown(folder);
            write!(out, "<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>")
                .expect("write to a string");
        }
        out + "</ListBucketResult>"
    }

    /// The folder that a key is listed under, if there is a delimiter behind the prefix.
    fn folder<'k>(&self, key: &'k str) -> Option<&'k str> {
        let delimiter = self.delimiter.as_deref()?;
        let rest = key.get(self.prefix.len()..)?;
        let end = rest.find(delimiter)? + delimiter.len();
        key.get(..self.prefix.len() + end)
    }

    fn entry(&self, out: &mut String, key: &str, object: &Listed) {
        let (etag, modified) = (escape(&object.etag), iso_time(object.modified));
        write!(
            out,
            "<Contents><Key>{}</Key><LastModified>{modified}</LastModified><ETag>{etag}</ETag>\
             <Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
            self.shown(key),
            object.length_bytes
        )
        .expect("write to a string");
    }

    fn shown(&self, key: &str) -> String {
        if self.is_encoded { encode(key) } else { escape(key) }
    }
}
