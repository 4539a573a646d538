//! The hashes of shards' files, as the list beside them has them.
//!
//! ```text
//! {"shards": [{"raw_data": {"basename": "shard.00000.mds", "hashes": {"sha1": "…"}}, "zip_data": …}, …]}
//! ```

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::HashMap;
use std::fmt;

/// The name of the list.
pub const LIST_NAME: &str = "index.json";

/// Hashes of a file: hexadecimal digits, by their algorithm.
pub type FileHashes = HashMap<String, String>;

#[derive(Deserialize)]
struct List {
    shards: Hashed,
}

/// Hashes by the names of the files that have some. The entries of the list are not kept: an entry takes 50 times as much
/// memory as the fewest bytes that it may have.
#[derive(Default)]
struct Hashed(HashMap<String, FileHashes>);

#[derive(Deserialize)]
struct Shard {
    raw_data: Option<File>,
    /// The same file, compressed.
    zip_data: Option<File>,
}

#[derive(Deserialize)]
struct File {
    basename: String,
    #[serde(default)]
    hashes: FileHashes,
}

/// The hashes of the files that a list names; files without hashes are left out.
///
/// # Errors
/// The JSON is no such list.
pub fn listed_hashes(json: &[u8]) -> Result<HashMap<String, FileHashes>, String> {
    let list: List = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    Ok(list.shards.0)
}

impl<'de> Deserialize<'de> for Hashed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Self::default())
    }
}

impl<'de> Visitor<'de> for Hashed {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of shards")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Self, A::Error> {
        while let Some(Shard { raw_data, zip_data }) = list.next_element()? {
            for file in [raw_data, zip_data].into_iter().flatten() {
                if !file.hashes.is_empty() {
                    self.0.insert(file.basename, file.hashes);
                }
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_of_a_shard_may_have_hashes() {
        let json = br#"{"version": 2, "shards": [
            {"raw_data": {"basename": "a.mds", "bytes": 1, "hashes": {"sha1": "00"}},
             "zip_data": {"basename": "a.mds.zstd", "hashes": {"xxh64": "01"}}},
            {"raw_data": {"basename": "b.mds", "hashes": {}}, "zip_data": null}]}"#;
        let listed = listed_hashes(json).unwrap();
        assert_eq!(listed.len(), 2);
        assert_eq!(listed["a.mds"]["sha1"], "00");
        assert_eq!(listed["a.mds.zstd"]["xxh64"], "01");
        assert!(listed_hashes(b"[]").is_err());
        assert!(listed_hashes(b"{\"shards\": 3}").is_err());
    }
}
