//! The objects: in memory, mapped from files, or found below a directory.

use bytes::Bytes;
use memmap2::Mmap;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// One version of an object. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Version {
    pub(super) bytes: Bytes,
    pub(super) modified: SystemTime,
    /// With its quotes.
    pub(super) etag: String,
    pub(super) version_id: Option<String>,
}

/// The data of an object in a listing.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    pub(super) key: String,
    pub(super) length_bytes: u64,
    pub(super) modified: SystemTime,
    pub(super) etag: String,
}

pub(super) struct Objects {
    /// Versions by `bucket/key`; the last one is the current one.
    versions: BTreeMap<String, Vec<Version>>,
    keeps_versions: bool,
    /// The number of versions so far: no two have the same ETag.
    count: u64,
    root: Option<PathBuf>,
    /// Files below the root, by key and ETag.
    mapped: HashMap<(String, String), Bytes>,
}

impl Objects {
    pub(super) fn new(root: Option<&Path>) -> Self {
        Self {
            versions: BTreeMap::new(),
            keeps_versions: false,
            count: 0,
            root: root.map(Path::to_owned),
            mapped: HashMap::new(),
        }
    }

    pub(super) fn put(&mut self, key: &str, bytes: Bytes, modified: SystemTime) {
        self.count += 1;
        let etag = format!("\"{:08x}-{}\"", crc32fast::hash(key.as_bytes()), self.count);
        let version_id = self.keeps_versions.then(|| format!("version-{}", self.count));
        let versions = self.versions.entry(key.to_owned()).or_default();
        if !self.keeps_versions {
            versions.clear();
        }
        versions.push(Version { bytes, modified, etag, version_id });
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.versions.remove(key);
    }

    pub(super) fn keep_versions(&mut self) {
        self.keeps_versions = true;
    }

    /// The current version, or the version with this id.
    pub(super) fn get(&mut self, key: &str, version_id: Option<&str>) -> Option<Version> {
        let Some(versions) = self.versions.get(key) else { return self.below_root(key) };
        match version_id {
            Some(id) => versions.iter().find(|version| version.version_id.as_deref() == Some(id)),
            None => versions.last(),
        }
        .cloned()
    }

    fn below_root(&mut self, key: &str) -> Option<Version> {
        let path = self.root.as_ref()?.join(key);
        let is_below = !key.split('/').any(|name| matches!(name, ".." | "." | ""));
        let metadata = fs::metadata(&path).ok().filter(|found| is_below && found.is_file())?;
        let (etag, modified) = (file_etag(&metadata), metadata.modified().ok()?);
        let place = (key.to_owned(), etag.clone());
        if !self.mapped.contains_key(&place) {
            self.mapped.retain(|(other, _), _| other != key);
            self.mapped.insert(place.clone(), mapped(&path).ok()?.0);
        }
        let bytes = self.mapped.get(&place)?.clone();
        Some(Version { bytes, modified, etag, version_id: None })
    }

    /// All objects whose `bucket/key` begins with `prefix`, in order.
    pub(super) fn list(&self, prefix: &str) -> Vec<Listed> {
        let mut found = BTreeMap::new();
        if let Some(root) = &self.root {
            // If the bucket is a directory, only the files below the prefix's directory are visited.
            let start = prefix.rsplit_once('/').map_or("", |(directory, _)| directory);
            for entry in walkdir::WalkDir::new(root.join(start)).into_iter().flatten() {
                let key = entry.path().strip_prefix(root).ok().and_then(Path::to_str);
                let metadata = entry.metadata().ok().filter(fs::Metadata::is_file);
                let (Some(key), Some(metadata)) = (key, metadata) else { continue };
                found.insert(
                    key.to_owned(),
                    (metadata.len(), metadata.modified(), file_etag(&metadata)),
                );
            }
        }
        let files = found.into_iter().filter(|(key, _)| !self.versions.contains_key(key));
        let files = files.map(|(key, (length_bytes, modified, etag))| {
            let modified = modified.unwrap_or(UNIX_EPOCH);
            Listed { key, length_bytes, modified, etag }
        });
        let put = self.versions.iter().filter_map(|(key, versions)| {
            let Version { bytes, modified, etag, .. } = versions.last()?.clone();
            Some(Listed { key: key.clone(), length_bytes: bytes.len() as u64, modified, etag })
        });
        let mut all: Vec<_> = files.chain(put).filter(|o| o.key.starts_with(prefix)).collect();
        all.sort_by(|one, other| one.key.cmp(&other.key));
        all
    }
}

fn file_etag(metadata: &fs::Metadata) -> String {
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    format!("\"{:x}-{:x}\"", modified.unwrap_or_default().as_nanos(), metadata.len())
}

/// A file's bytes, which stay on disk, and its modification time.
pub(super) fn mapped(path: &Path) -> io::Result<(Bytes, SystemTime)> {
    let file = File::open(path)?;
    let modified = file.metadata()?.modified()?;
    if file.metadata()?.len() == 0 {
        return Ok((Bytes::new(), modified));
    }
    // SAFETY: callers that put a file into the store do not shorten it while the store runs; bytes that are written to it
    // meanwhile may be seen or not, as with any store of a file that is being written.
    let map = unsafe { Mmap::map(&file)? };
    Ok((Bytes::from_owner(map), modified))
}
