//! The name of an object's version in the cache. Imports the types of remote objects.

use crate::store::remote::Object;
use std::fmt;

/// The length of the object's half of an entry's name, and of the version's half.
const NAME_BYTES: usize = 16;

/// The name of one version of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct EntryId([u8; 2 * NAME_BYTES]);

/// Parameters of signed URLs: they differ each time and do not identify the object.
const SIGNATURE: [&str; 22] = [
    "AWSAccessKeyId",
    "Signature",
    "Expires",
    "Key-Pair-Id",
    "Policy",
    "GoogleAccessId",
    "sig",
    "se",
    "st",
    "sp",
    "sv",
    "sr",
    "sip",
    "spr",
    "skoid",
    "sktid",
    "skt",
    "ske",
    "sks",
    "skv",
    "token",
    "access_token",
];

impl EntryId {
    pub(super) const BYTES: usize = 2 * NAME_BYTES;

    /// The name of an object's version. `origin` tells stores apart whose URLs are the same, such as two endpoints.
    pub(super) fn of(object: &Object, origin: &str) -> Self {
        let mut hash = blake3::Hasher::new();
        field(&mut hash, origin.as_bytes());
        field(&mut hash, object.location.to_string().as_bytes());
        for parameter in object.location.query.trim_start_matches('?').split('&') {
            let name = parameter.split('=').next().unwrap_or_default();
            let is_signature = SIGNATURE.contains(&name)
                || name.starts_with("X-Amz-") && name != "X-Amz-Version"
                || name.starts_with("X-Goog-");
            if !is_signature && !parameter.is_empty() {
                field(&mut hash, parameter.as_bytes());
            }
        }
        let mut id = [0; Self::BYTES];
        let (name, version) = id.split_at_mut(NAME_BYTES);
        name.copy_from_slice(&hash.finalize().as_bytes()[..NAME_BYTES]);
        let mut hash = blake3::Hasher::new();
        hash.update(&object.length_bytes.to_le_bytes());
        field(&mut hash, version_of(object).as_bytes());
        version.copy_from_slice(&hash.finalize().as_bytes()[..NAME_BYTES]);
        Self(id)
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let id = <[u8; Self::BYTES]>::try_from(bytes).ok()?;
        (id != [0; Self::BYTES]).then_some(Self(id))
    }

    /// Parses the name of one of the entry's files, without its extension.
    pub(super) fn from_stem(stem: &str) -> Option<Self> {
        let (object, version) = stem.split_once('-')?;
        let mut id = [0; Self::BYTES];
        for (bytes, text) in id.chunks_exact_mut(NAME_BYTES).zip([object, version]) {
            if text.len() != 2 * NAME_BYTES || !text.is_ascii() {
                return None;
            }
            for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
                *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
            }
        }
        Self::from_bytes(&id)
    }

    pub(super) fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// The half that all versions of an object share.
    pub(super) fn object(&self) -> &[u8] {
        &self.0[..NAME_BYTES]
    }
}

/// The stem of the names of the entry's files.
impl fmt::Display for EntryId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if at == NAME_BYTES { "-" } else { "" };
            write!(out, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// Hashes a field with its length, so that adjacent fields stay distinct.
fn field(hash: &mut blake3::Hasher, bytes: &[u8]) {
    hash.update(&(bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

/// The version: the ETag if there is one, as a listing has no version ids; else the version id or the time.
pub(super) fn version_of(object: &Object) -> String {
    match (&object.etag, &object.version_id, object.modified) {
        (Some(etag), _, _) => etag.clone(),
        (None, Some(id), _) => id.clone(),
        (None, None, Some(modified)) => {
            let since = modified.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            format!("modified {}.{:09}", since.as_secs(), since.subsec_nanos())
        }
        (None, None, None) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::cache::testing::object;

    #[test]
    fn a_name_is_read_back_and_differs_by_store_query_version_and_length() {
        let plain = object("s3://bucket/key", "\"1\"", 10);
        let id = EntryId::of(&plain, "");
        assert_eq!(EntryId::from_stem(&id.to_string()), Some(id));
        assert_eq!(id, EntryId::of(&plain.clone(), ""));
        let mut signed = plain.clone();
        signed.location.query = "?X-Amz-Signature=ab&X-Amz-Date=2".to_owned();
        assert_eq!(EntryId::of(&signed, ""), id);
        signed.location.query = "?part=2".to_owned();
        let others = [
            EntryId::of(&plain, "http://localhost:9000"),
            EntryId::of(&signed, ""),
            EntryId::of(&object("s3://bucket/key", "\"2\"", 10), ""),
            EntryId::of(&object("s3://bucket/key", "\"1\"", 11), ""),
            EntryId::of(&object("s3://bucket/key2", "\"1\"", 10), ""),
        ];
        for (at, other) in others.iter().enumerate() {
            assert!(*other != id && !others[..at].contains(other));
        }
        assert_eq!(others[2].object(), id.object());
        for wrong in ["", "-", "é-é", &id.to_string()[1..], &format!("{id}0")] {
            assert_eq!(EntryId::from_stem(wrong), None);
        }
    }
}
