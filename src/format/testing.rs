//! Helpers that the tests of the formats share.

use super::{
    Container, Content, FORMATS, Kind, Member, MemorySource, Node, OpenOptions, PartName, Result,
    Source, Table,
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A file that notes its reads: offsets and lengths.
pub(super) struct Noted(MemorySource, Mutex<Vec<(u64, u64)>>);

impl Noted {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self(MemorySource::new("noted", bytes), Mutex::default())
    }

    /// The reads so far, in order.
    pub(super) fn reads(&self) -> Vec<(u64, u64)> {
        self.1.lock().unwrap().clone()
    }
}

impl Source for Noted {
    fn name(&self) -> &PartName {
        self.0.name()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        self.1.lock().unwrap().push((offset_bytes, buf.len() as u64));
        self.0.read_exact_at(buf, offset_bytes)
    }

    fn table(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Box<dyn Table>> {
        self.0.table(offset_bytes, length_bytes)
    }
}

pub(super) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn expected(name: &str) -> Value {
    let text = std::fs::read(fixture("expected.json")).unwrap();
    serde_json::from_slice::<Value>(&text).unwrap()[name].take()
}

/// Opens a fixture by its content.
pub(super) fn open_fixture(
    name: &str,
    options: &OpenOptions,
) -> (Vec<u8>, Result<Box<dyn Container>>) {
    let bytes = std::fs::read(fixture(name)).unwrap();
    (bytes.clone(), super::open(Arc::new(MemorySource::new(name, bytes)), options))
}

/// Opens bytes as one format, whatever they look like.
pub(super) fn open_as(
    format: &str,
    bytes: &[u8],
    options: &OpenOptions,
) -> Result<Box<dyn Container>> {
    let format = FORMATS.iter().find(|known| known.name() == format).unwrap();
    format.open(Arc::new(MemorySource::new("t", bytes.to_vec())), options)
}

/// The bytes that the file of a sample shows; `None` if the sample is damaged.
pub(super) fn shown(file: &[u8], container: &dyn Container, index: u64) -> Option<Vec<u8>> {
    let sample = container.sample(index).unwrap();
    assert_eq!(sample.checksum, None);
    if sample.damaged {
        assert!(sample.length_bytes > 0);
        return None;
    }
    let stored = &file[sample.offset_bytes as usize..sample.end_bytes() as usize];
    let mut bytes = match sample.content {
        Content::Stored => Vec::new(),
        Content::Prefixed(length) => {
            let prefix = container.prefix(index).unwrap();
            assert_eq!(prefix.len(), length as usize);
            prefix
        }
        // An encoded sample may claim any length without stored bytes.
        Content::Encoded(size) if size > 16 << 20 => return None,
        Content::Encoded(size) => {
            let mut bytes = vec![0; size as usize];
            return container.decode(index, stored, &mut bytes).ok().map(|()| bytes);
        }
        other => panic!("{other:?}"),
    };
    bytes.extend_from_slice(stored);
    assert_eq!(bytes.len() as u64, sample.size_bytes());
    Some(bytes)
}

/// All files of a container of records or of named members, by path.
pub(super) fn files(file: &[u8], container: &dyn Container) -> BTreeMap<String, Option<Vec<u8>>> {
    let fields = match container.names(container.len()).unwrap() {
        super::Names::Fields(fields) => fields,
        super::Names::None => 1,
        super::Names::Members => return members(file, container),
        super::Names::Records(_) => return numbered(members(file, container)),
        other => panic!("{other:?}"),
    };
    let mut all = BTreeMap::new();
    for index in 0..container.len() {
        let name = String::from_utf8(container.field_name(index).unwrap()).unwrap();
        let path = format!("{:06}/{name}", index / fields);
        assert!(all.insert(path, shown(file, container, index)).is_none(), "{name} twice");
    }
    all
}

/// Writes the numbers of records as a mount shows them.
fn numbered(files: BTreeMap<String, Option<Vec<u8>>>) -> BTreeMap<String, Option<Vec<u8>>> {
    let name = |path: String| match path.split_once('/') {
        Some((number, rest)) => format!("{:06}/{rest}", number.parse::<u64>().unwrap()),
        None => path,
    };
    files.into_iter().map(|(path, bytes)| (name(path), bytes)).collect()
}

/// All named members of a container, by path.
fn members(file: &[u8], container: &dyn Container) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut all = BTreeMap::new();
    let visit = &mut |member: Member<'_>| {
        let Node::Sample(index) = member.node else { return Ok(()) };
        assert!(index < container.len());
        if container.attributes(index).unwrap().kind == Kind::Symlink {
            return Ok(());
        }
        let path = String::from_utf8(member.path.to_vec()).unwrap();
        let twice = all.insert(path, shown(file, container, index));
        assert!(twice.is_none(), "{:?} twice", member.path.escape_ascii());
        Ok(())
    };
    container.members(visit).unwrap();
    all
}

/// Compares the samples of a container with those that the reference package finds in it.
pub(super) fn compare(name: &str) {
    let expected = expected(name);
    let (file, container) = open_fixture(name, &OpenOptions::default());
    if let Some(outcome) = expected["mount"].as_str() {
        assert!(outcome.starts_with("refused"));
        let message = container.err().expect("refused").to_string();
        for word in [name, "byte", "expected", "found"] {
            assert!(message.contains(word), "{message}");
        }
        return;
    }
    let container = container.unwrap();
    let files = files(&file, container.as_ref());
    let expected = expected.as_object().unwrap();
    assert_eq!(files.keys().collect::<BTreeSet<_>>(), expected.keys().collect());
    let mut sum = 0;
    for (path, bytes) in &files {
        let entry = &expected[path];
        let Some(bytes) = bytes else {
            assert_eq!(entry["error"], "EIO", "{path}");
            continue;
        };
        let hash: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!((bytes.len() as u64, hash.as_str()), size_and_hash(entry), "{path}");
        sum += bytes.len() as u64;
    }
    assert_eq!(container.data_bytes(), sum);
}

fn size_and_hash(entry: &Value) -> (u64, &str) {
    (entry["size"].as_u64().unwrap(), entry["sha256"].as_str().unwrap())
}

/// Looks at all of a container that may be anything: samples lie within the file, names can be entries of
/// a directory and differ within a record.
pub(super) fn look_at(file: &[u8], container: &dyn Container) {
    let fields = match container.names(container.len()).unwrap() {
        super::Names::Fields(fields) => fields,
        super::Names::Members => return look_at_members(file, container),
        _ => 1,
    };
    // Every sample takes 8 bytes of metadata.
    assert!(container.len() <= file.len() as u64 / 8);
    let mut names = BTreeSet::new();
    for index in 0..container.len() {
        if index % fields == 0 {
            names.clear();
        }
        let name = container.field_name(index).unwrap();
        assert!((1..=255).contains(&name.len()) && !name.iter().any(|b| matches!(b, 0 | b'/')));
        assert!(name != b"." && name != b"..");
        assert!(names.insert(name));
        shown(file, container, index);
    }
    assert!(container.sample(container.len()).is_err());
    assert!(container.field_name(u64::MAX).is_err());
}

/// As `look_at`, for named members; two of them may have the same name.
fn look_at_members(file: &[u8], container: &dyn Container) {
    let visit = &mut |member: Member<'_>| {
        if let Node::Sample(index) = member.node {
            shown(file, container, index);
        }
        Ok(())
    };
    container.members(visit).unwrap();
    assert!(container.sample(container.len()).is_err());
}

/// Opens every truncation of a file, and the file with any one bit flipped.
pub(super) fn truncate_and_flip(format: &str, file: &[u8], options: &OpenOptions) {
    for length in 0..file.len() {
        if let Ok(container) = open_as(format, &file[..length], options) {
            look_at(&file[..length], container.as_ref());
        }
    }
    let mut bad = file.to_vec();
    for bit in 0..file.len() * 8 {
        bad[bit / 8] ^= 1 << (bit % 8);
        if let Ok(container) = open_as(format, &bad, options) {
            look_at(&bad, container.as_ref());
        }
        bad[bit / 8] ^= 1 << (bit % 8);
    }
}
