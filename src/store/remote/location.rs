//! Where an object lies: its URL, taken apart.

use super::{ErrorKind, StoreError};
use crate::format::PartName;
use std::fmt;

/// The protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// `s3://bucket/key`.
    S3,
    /// `gs://bucket/key`.
    Gs,
    /// `az://container/key`, also `abfss://container@account.dfs.core.windows.net/key`.
    Azure,
    /// `http://host/path`.
    Http,
    /// `https://host/path`.
    Https,
    /// `hdfs://nameservice/path`, `hdfs://host:port/path` or `hdfs:///path`.
    Hdfs,
    /// `hf://datasets/ORG/NAME[@REV]/path`.
    HuggingFace,
}

/// Where an object lies, or the objects whose keys begin so.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// The protocol.
    pub scheme: Scheme,
    /// The bucket, container, host and port, or name service; may be empty for HDFS.
    pub authority: String,
    /// The key or path in it, decoded, without a slash in front.
    pub key: String,
    /// The query of an HTTP URL, such as that of a signed one, with its question mark; a secret.
    pub query: String,
}

impl Scheme {
    const ALL: [(&str, Scheme); 9] = [
        ("s3", Scheme::S3),
        ("gs", Scheme::Gs),
        ("az", Scheme::Azure),
        ("abfss", Scheme::Azure),
        ("abfs", Scheme::Azure),
        ("http", Scheme::Http),
        ("https", Scheme::Https),
        ("hdfs", Scheme::Hdfs),
        ("hf", Scheme::HuggingFace),
    ];
}

impl Location {
    /// Takes a URL apart. `None` if the text is no URL but a path; `file://` is a path, too, of the caller's.
    ///
    /// # Errors
    /// A URL of an unknown scheme, without a bucket or key, or with a password in it.
    pub fn parse(text: &str) -> Option<Result<Self, StoreError>> {
        let (scheme, rest) = text.split_once("://")?;
        let refused = |why: &str| Err(StoreError::new(text, ErrorKind::Refused, why));
        let found = Scheme::ALL.iter().find(|(name, _)| *name == scheme);
        let Some((_, scheme)) = found else {
            return Some(refused("the scheme is unknown: use s3, gs, az, http, https, hdfs or hf"));
        };
        let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
        Some(Ok(Self {
            scheme: *scheme,
            authority: authority.to_owned(),
            key: key.to_owned(),
            query: String::new(),
        }))
    }

    /// What messages and figures call it: without its query.
    #[must_use]
    pub fn name(&self) -> PartName {
        PartName::Url(self.to_string())
    }
}

impl fmt::Display for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = Scheme::ALL.iter().find(|(_, scheme)| *scheme == self.scheme);
        let scheme = scheme.map_or("", |(name, _)| name);
        write!(out, "{scheme}://{}/{}", self.authority, self.key)
    }
}
