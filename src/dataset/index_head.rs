//! The head of a kept index's file: which container it is of, and the options with which that was opened.

use super::beside::INDEX;
use crate::format::{OpenOptions, PartName, Source, View};
use crate::store::{Part, Version};
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::time::UNIX_EPOCH;

const MAGIC: [u8; 8] = *b"FFRFSIX1";
/// Magic, CRC-32 of the rest, key, format, lengths of the two parts.
pub(crate) const HEAD_BYTES: usize = 8 + 4 + KEY_BYTES + NAME_BYTES + 16;
pub(crate) const KEY_BYTES: usize = 36;
const NAME_BYTES: usize = 16;
/// The fields of a key: the container's length, the fields after its version, and the kind of version.
const LENGTH: Range<usize> = 0..8;
const BEHIND_VERSION: Range<usize> = 20..32;
const KIND: Range<usize> = 32..36;
const OF_FILE: u32 = 0;
const OF_OBJECT: u32 = 1;
/// How much of a container's beginning and end the key covers.
const SAMPLE_BYTES: u64 = 64 << 10;

/// Whether an index may replace this file. Another file must not be lost if a user names it by mistake, such as the
/// container itself.
pub(crate) fn may_replace(path: &Path) -> io::Result<bool> {
    if path.extension().is_some_and(|ending| ending == INDEX) {
        return Ok(true);
    }
    // To open a pipe waits.
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Ok(false);
    }
    let mut found = [0; MAGIC.len()];
    match std::fs::File::open(path) {
        Ok(mut file) if file.metadata()?.len() > 0 => {
            Ok(file.read_exact(&mut found).is_ok() && found == MAGIC)
        }
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(true),
    }
}

pub(crate) fn head(
    key: &[u8; KEY_BYTES],
    format: &str,
    container_bytes: u64,
    tree_bytes: u64,
) -> [u8; HEAD_BYTES] {
    let mut rest = key.to_vec();
    let mut name = format.as_bytes().to_vec();
    name.resize(NAME_BYTES, 0);
    rest.extend(name);
    rest.extend(container_bytes.to_le_bytes());
    rest.extend(tree_bytes.to_le_bytes());
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&crc32fast::hash(&rest).to_le_bytes());
    head[12..].copy_from_slice(&rest);
    head
}

/// Another number whenever a container is shown as other files than by the builds before.
const SHOWN: u32 = 2;

/// The key of a container's version and of the options with which it is opened.
pub(crate) fn key(
    part: &Part,
    source: &dyn Source,
    options: &OpenOptions,
) -> io::Result<[u8; KEY_BYTES]> {
    let size = part.len_bytes();
    let sample = |at: u64| -> io::Result<u32> {
        let mut bytes = vec![0; SAMPLE_BYTES.min(size) as usize];
        source.read_exact_at(&mut bytes, at)?;
        Ok(crc32fast::hash(&bytes))
    };
    let (version, extra, kind) = version(part);
    let OpenOptions { allow_damaged, encoding, view, rows, pickles, .. } = options;
    let program = env!("CARGO_PKG_VERSION");
    let mut opened = format!("{program} {SHOWN} {allow_damaged} {encoding:?}");
    if *view != View::default() {
        opened.push_str(&format!(" {view:?}"));
    }
    for (is_set, name) in [(*rows, " rows"), (*pickles, " pickles")] {
        if is_set {
            opened.push_str(name);
        }
    }
    let mut key = Vec::with_capacity(KEY_BYTES);
    key.extend(size.to_le_bytes());
    key.extend(version.to_le_bytes());
    let head = sample(0)?;
    let tail = sample(size.saturating_sub(SAMPLE_BYTES))?;
    for value in [extra, head, tail, crc32fast::hash(opened.as_bytes()), kind] {
        key.extend(value.to_le_bytes());
    }
    let mut out = [0; KEY_BYTES];
    out.copy_from_slice(&key);
    Ok(out)
}

/// The version of a part in 12 bytes (the modification time of a file, or the hash of a store's version name), and its
/// kind.
fn version(part: &Part) -> (i64, u32, u32) {
    if let Version::Object { tag } = part.version() {
        let digest = Sha256::digest(tag);
        let number =
            |at: usize| u64::from_le_bytes(digest[at..at + 8].try_into().unwrap_or([0; 8]));
        return (number(0).cast_signed(), number(8) as u32, OF_OBJECT);
    }
    match part.modified().duration_since(UNIX_EPOCH) {
        Ok(since) => (since.as_secs().cast_signed(), since.subsec_nanos(), OF_FILE),
        Err(before) => {
            let before = before.duration();
            (-before.as_secs().cast_signed(), before.subsec_nanos(), OF_FILE)
        }
    }
}

/// The index beside an object, rewritten for the object's key. It is accepted if it was made of this version, or of a
/// local file with the same length, both ends and opening options, whatever its modification time.
pub(super) fn adopted(
    name: &PartName,
    mut index: Vec<u8>,
    key: &[u8; KEY_BYTES],
) -> Option<Vec<u8>> {
    let stale = |why: &str| tracing::info!("{name}: {why}: the container is read again");
    let Some((head, _)) = index.split_first_chunk_mut::<HEAD_BYTES>() else {
        stale("not an index");
        return None;
    };
    let found = &head[12..12 + KEY_BYTES];
    let is_same = |range: Range<usize>| found[range.clone()] == key[range];
    let is_of_file = found[KIND] == OF_FILE.to_le_bytes();
    if head[..8] != MAGIC || head[8..12] != crc32fast::hash(&head[12..]).to_le_bytes() {
        stale("not an index");
        return None;
    }
    if found != key && !(is_of_file && is_same(LENGTH) && is_same(BEHIND_VERSION)) {
        stale("of another object, or of another version of it");
        return None;
    }
    head[12..12 + KEY_BYTES].copy_from_slice(key);
    let digest = crc32fast::hash(&head[12..]);
    head[8..12].copy_from_slice(&digest.to_le_bytes());
    Some(index)
}
