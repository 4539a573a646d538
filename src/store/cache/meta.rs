//! A description of an entry for users: the URL and version of its object. Imports nothing of ours.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::time::{SystemTime, UNIX_EPOCH};

/// The most bytes that are read of the file: more than any URL that a store takes.
const MOST_BYTES: u64 = 64 << 10;

/// The `meta` file of an entry, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meta {
    /// The URL without the query, which may hold secrets.
    pub(super) url: String,
    /// The store's name of the version.
    pub(super) version: String,
    pub(super) length_bytes: u64,
    /// When the entry was made: seconds since 1970.
    pub(super) made: u64,
}

impl Meta {
    pub(super) fn new(url: String, version: String, length_bytes: u64) -> Self {
        Self { url, version, length_bytes, made: seconds(SystemTime::now()) }
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// # Errors
    /// The file cannot be read, or is no valid description.
    pub(super) fn read(file: File) -> io::Result<Self> {
        let mut text = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut text)?;
        Self::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Parses a `meta` file. Rejects control characters, which would reach a terminal.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let meta: Self = serde_json::from_slice(text).ok()?;
        let is_plain = |text: &str| !text.chars().any(char::is_control);
        (is_plain(&meta.url) && is_plain(&meta.version)).then_some(meta)
    }
}

/// Seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
