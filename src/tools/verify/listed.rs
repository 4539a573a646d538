//! Hashes of whole files that a list beside them has: `index.json` of MDS, whose shards have no checksums themselves.

use crate::dataset::hash::hex;
use crate::dataset::{Opened, digest};
use crate::failure::Failure;
use crate::format::{PartName, mds};
use crate::interrupt::Interrupt;
use crate::io::File;
use crate::tools::reader::for_each;
use md5::Md5;
use serde::Serialize;
use sha1::Sha1;
use sha2::digest::DynDigest;
use sha2::{Sha224, Sha256, Sha384, Sha512};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use twox_hash::{XxHash3_64, XxHash3_128, XxHash32, XxHash64};

/// A longer list is not read.
const MAX_LIST_BYTES: u64 = 256 << 20;

/// How files compare with the hashes that are listed of them.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ListedHashes {
    /// Files whose hashes are as listed.
    pub(crate) right: u64,
    pub(crate) wrong: Vec<WrongHash>,
    /// Hashes that nothing here computes, by their algorithm: how many.
    pub(crate) unchecked: BTreeMap<String, u64>,
    /// Samples without checksums in the files whose hashes are right.
    #[serde(skip)]
    pub(crate) samples: u64,
}

/// A file with another hash.
#[derive(Debug, Serialize)]
pub(crate) struct WrongHash {
    pub(crate) container: PartName,
    pub(crate) algorithm: String,
    pub(crate) expected: String,
    pub(crate) found: String,
}

/// A file whose hashes are listed.
struct Listed {
    name: PartName,
    path: PathBuf,
    hashes: mds::FileHashes,
    samples: u64,
}

/// Compares the shards of a dataset with the hashes that are listed of them, on `threads` threads.
///
/// # Errors
/// A shard cannot be read; or the user interrupts it.
pub(super) fn compare(
    opened: &Opened,
    threads: usize,
    interrupt: &Interrupt,
) -> Result<ListedHashes, Failure> {
    let files = Mutex::new(listed(opened));
    let outcome = Mutex::new(ListedHashes::default());
    let next = || Ok(files.lock().unwrap_or_else(PoisonError::into_inner).pop());
    for_each(threads, interrupt, &next, &|file: Listed, (): &mut ()| {
        let (wrong, checked, unchecked) = hash(&file, interrupt)?;
        let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
        for algorithm in unchecked {
            *outcome.unchecked.entry(algorithm).or_default() += 1;
        }
        if wrong.is_empty() && checked > 0 {
            outcome.right += 1;
            outcome.samples += file.samples;
        }
        outcome.wrong.extend(wrong);
        Ok(())
    })?;
    let mut outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome.wrong.sort_by(|a, b| (&a.container, &a.algorithm).cmp(&(&b.container, &b.algorithm)));
    Ok(outcome)
}

/// The shards of a dataset that have hashes in a list beside them.
fn listed(opened: &Opened) -> Vec<Listed> {
    let mut lists: HashMap<PathBuf, HashMap<String, mds::FileHashes>> = HashMap::new();
    let mut files = Vec::new();
    for (number, container) in opened.dataset.containers().iter().enumerate() {
        let name = opened.store.part(opened.dataset.part_of(number)).name();
        let Some(path) = name.as_path().filter(|_| opened.inside[number].is_none()) else {
            continue;
        };
        let Some(file) = path.file_name().and_then(|file| file.to_str()) else { continue };
        if !file.contains(".mds") {
            continue;
        }
        let list = path.with_file_name(mds::LIST_NAME);
        let hashes = lists.entry(list).or_insert_with_key(|list| read(list)).remove(file);
        if let Some(hashes) = hashes {
            let samples = match opened.dataset.sums_of(number) {
                Some(_) => 0,
                None => container.len(),
            };
            files.push(Listed { name: name.clone(), path: path.to_owned(), hashes, samples });
        }
    }
    files
}

/// What a list says; nothing if there is none.
fn read(list: &Path) -> HashMap<String, mds::FileHashes> {
    let bytes = match std::fs::metadata(list) {
        Ok(metadata) if metadata.is_file() && metadata.len() <= MAX_LIST_BYTES => {
            std::fs::read(list).map_err(|error| error.to_string())
        }
        Ok(_) => Err("it is no file of up to 256 MiB".to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return HashMap::new(),
        Err(error) => Err(error.to_string()),
    };
    bytes.and_then(|bytes| mds::listed_hashes(&bytes)).unwrap_or_else(|why| {
        tracing::warn!("{}: its hashes are not used: {why}", list.display());
        HashMap::new()
    })
}

/// Hashes a file: which of its hashes are wrong, how many were compared, and the algorithms of the others.
fn hash(
    file: &Listed,
    interrupt: &Interrupt,
) -> Result<(Vec<WrongHash>, usize, Vec<String>), Failure> {
    let (mut hashes, mut unchecked) = (Vec::new(), Vec::new());
    for (algorithm, expected) in &file.hashes {
        match Hash::begin(algorithm) {
            Some(hash) => hashes.push((algorithm, expected, hash)),
            None => unchecked.push(algorithm.clone()),
        }
    }
    if hashes.is_empty() {
        return Ok((Vec::new(), 0, unchecked));
    }
    let source = File::open(&file.path).map_err(|e| Failure::unreadable(&file.name, e))?;
    digest::pass(&source, &|| interrupt.requested(), &mut |bytes| {
        hashes.iter_mut().for_each(|(.., hash)| hash.update(bytes));
    })?;
    let checked = hashes.len();
    let compared = hashes.into_iter().map(|(algorithm, expected, hash)| WrongHash {
        container: file.name.clone(),
        algorithm: algorithm.clone(),
        expected: expected.to_lowercase(),
        found: hash.finish(),
    });
    Ok((compared.filter(|hash| hash.found != hash.expected).collect(), checked, unchecked))
}

/// A hash that is being computed, called as in Python's `hashlib` and `xxhash`.
enum Hash {
    Digest(Box<dyn DynDigest>),
    Xxh32(Box<XxHash32>),
    Xxh64(Box<XxHash64>),
    Xxh3(Box<XxHash3_64>),
    Xxh128(Box<XxHash3_128>),
}

impl Hash {
    fn begin(algorithm: &str) -> Option<Self> {
        Some(match algorithm {
            "md5" => Hash::Digest(Box::new(Md5::default())),
            "sha1" => Hash::Digest(Box::new(Sha1::default())),
            "sha224" => Hash::Digest(Box::new(Sha224::default())),
            "sha256" => Hash::Digest(Box::new(Sha256::default())),
            "sha384" => Hash::Digest(Box::new(Sha384::default())),
            "sha512" => Hash::Digest(Box::new(Sha512::default())),
            "xxh32" => Hash::Xxh32(Box::new(XxHash32::with_seed(0))),
            "xxh64" => Hash::Xxh64(Box::new(XxHash64::with_seed(0))),
            "xxh3_64" => Hash::Xxh3(Box::new(XxHash3_64::new())),
            "xxh128" | "xxh3_128" => Hash::Xxh128(Box::new(XxHash3_128::new())),
            _ => return None,
        })
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hash::Digest(hash) => hash.update(bytes),
            Hash::Xxh32(hash) => hash.write(bytes),
            Hash::Xxh64(hash) => hash.write(bytes),
            Hash::Xxh3(hash) => hash.write(bytes),
            Hash::Xxh128(hash) => hash.write(bytes),
        }
    }

    /// Its hexadecimal digits.
    fn finish(self) -> String {
        match self {
            Hash::Digest(hash) => hex(&hash.finalize()),
            Hash::Xxh32(hash) => format!("{:08x}", hash.finish_32()),
            Hash::Xxh64(hash) => format!("{:016x}", hash.finish()),
            Hash::Xxh3(hash) => format!("{:016x}", hash.finish()),
            Hash::Xxh128(hash) => format!("{:032x}", hash.finish_128()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Python's `hashlib` and `xxhash` give them.
    #[test]
    fn hashes_are_those_of_python() {
        for (algorithm, digits) in [
            ("md5", "900150983cd24fb0d6963f7d28e17f72"),
            ("sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            ("sha224", "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7"),
            ("xxh32", "32d153ff"),
            ("xxh64", "44bc2cf5ad770999"),
            ("xxh3_64", "78af5f94892f3950"),
            ("xxh128", "06b05ab6733a618578af5f94892f3950"),
        ] {
            let mut hash = Hash::begin(algorithm).unwrap();
            hash.update(b"a");
            hash.update(b"bc");
            assert_eq!(hash.finish(), digits, "{algorithm}");
        }
        assert!(Hash::begin("blake2b").is_none());
    }
}
