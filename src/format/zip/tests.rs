mod attributes;
mod hostile;
mod locked;
mod model;
mod structure;
mod writer;

use super::*;
use crate::format::MemorySource;
use writer::*;

fn open_with(bytes: Vec<u8>, options: &OpenOptions) -> Result<Box<dyn Container>> {
    crate::format::open(Arc::new(MemorySource::new("t.zip", bytes)), options)
}

fn open(bytes: Vec<u8>) -> Result<Box<dyn Container>> {
    open_with(bytes, &OpenOptions::default())
}

fn refusal(bytes: Vec<u8>) -> String {
    open(bytes).err().expect("refused").to_string()
}

fn damaged() -> OpenOptions {
    OpenOptions { allow_damaged: true, ..OpenOptions::default() }
}

/// A member as a reader finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Directory,
    Link(Vec<u8>),
    /// The bytes of a file; `None` if reading it fails.
    File(Option<Vec<u8>>),
}

/// The bytes of a sample that a reader gets; `None` if it gets an error.
fn read_sample(file: &[u8], container: &dyn Container, index: u64) -> Option<Vec<u8>> {
    let mut sample = container.sample(index).ok()?;
    let mut elsewhere = None;
    for _ in 0..3 {
        if sample.damaged {
            return None;
        }
        if sample.size_bytes() == 0 {
            return Some(Vec::new());
        }
        if sample.header_bytes == 0 {
            break;
        }
        let at = usize::try_from(sample.offset_bytes).ok()?;
        let header = file.get(at - sample.header_bytes as usize..at)?;
        let is_here = container.check_header(index, header).ok()?;
        if !is_here {
            elsewhere = Some(header);
        } else if let Some(header) = elsewhere {
            // As from another thread that looked at the old place, before this thread found the new one.
            assert!(!container.check_header(index, header).ok()?);
        }
        let again = container.sample(index).ok()?;
        assert!(!is_here || again.offset_bytes == sample.offset_bytes);
        sample = again;
    }
    assert_eq!(sample.header_bytes, 0, "the second look knows where the data is");
    let start = usize::try_from(sample.offset_bytes).ok()?;
    let stored = file.get(start..start.checked_add(usize::try_from(sample.length_bytes).ok()?)?)?;
    let bytes = match sample.content {
        Content::Stored => stored.to_vec(),
        Content::Encoded(size) => {
            let mut out = vec![0; usize::try_from(size).ok().filter(|&size| size < 1 << 28)?];
            container.decode(index, stored, &mut out).ok()?;
            out
        }
        _ => panic!("zip has no such content"),
    };
    sample.checksum.is_none_or(|checksum| checksum.check(&bytes).is_ok()).then_some(bytes)
}

/// Every name, and the member behind it.
fn list(file: &[u8], container: &dyn Container) -> Vec<(Vec<u8>, Seen)> {
    let mut all = Vec::new();
    container
        .members(&mut |member| {
            let seen = match member.node {
                Node::Directory(_) => Seen::Directory,
                Node::Sample(index) => match container.attributes(index)?.kind {
                    Kind::Symlink => {
                        container.link_target(index).map_or(Seen::File(None), Seen::Link)
                    }
                    Kind::File => Seen::File(read_sample(file, container, index)),
                },
            };
            all.push((member.path.to_vec(), seen));
            Ok(())
        })
        .unwrap();
    all
}

fn listed(file: Vec<u8>) -> Vec<(Vec<u8>, Seen)> {
    let container = open(file.clone()).unwrap();
    list(&file, container.as_ref())
}

/// The only member's bytes.
fn only(file: Vec<u8>) -> Option<Vec<u8>> {
    match listed(file).as_slice() {
        [(_, Seen::File(bytes))] => bytes.clone(),
        other => panic!("one file, not {other:?}"),
    }
}

fn names_with(bytes: Vec<u8>, encoding: Option<&str>) -> Vec<String> {
    let options = OpenOptions { encoding: encoding.map(str::to_owned), ..OpenOptions::default() };
    let container = open_with(bytes, &options).unwrap();
    let mut all = Vec::new();
    container
        .members(&mut |member| {
            all.push(String::from_utf8_lossy(member.path).into_owned());
            Ok(())
        })
        .unwrap();
    all
}
