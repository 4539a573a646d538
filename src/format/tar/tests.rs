//! Archives of every dialect, made by the tests' own writer.

mod dialects;
mod hostile;
mod kept;
mod model;
mod sparse_files;
mod writer;

use super::*;
use crate::format::{Attributes, Content, Kind, MemorySource, Node, open};
use writer::Writer;

/// The content that a member is shown with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shown {
    File(Vec<u8>),
    Symlink(Vec<u8>),
    Directory,
    /// Reading it fails.
    Damaged,
}

fn source(bytes: &[u8]) -> Arc<MemorySource> {
    Arc::new(MemorySource::new("test.tar", bytes.to_vec()))
}

fn opened(bytes: &[u8]) -> Result<Box<dyn Container>> {
    open(source(bytes), &OpenOptions::default())
}

fn salvaged(bytes: &[u8]) -> Result<Box<dyn Container>> {
    open(source(bytes), &OpenOptions { allow_damaged: true, ..OpenOptions::default() })
}

/// The text of the error with which an archive is refused.
fn refusal(bytes: &[u8]) -> String {
    opened(bytes).err().expect("it is refused").to_string()
}

/// The content of a file of `container`, whose bytes must lie within `stored`.
fn content(container: &dyn Container, stored: &[u8], index: u64) -> Shown {
    let sample = container.sample(index).unwrap();
    if container.attributes(index).unwrap().kind == Kind::Symlink {
        return Shown::Symlink(container.link_target(index).unwrap());
    }
    if sample.damaged {
        assert!(sample.length_bytes > 0, "nobody would ask for its bytes and get the error");
        return Shown::Damaged;
    }
    let whole = &stored[sample.offset_bytes as usize..sample.end_bytes() as usize];
    let Content::Sparse(size) = sample.content else { return Shown::File(whole.to_vec()) };
    let mut bytes = vec![0; size as usize];
    let mut at = 0;
    while let Some(piece) = container.piece(index, at).unwrap() {
        assert!(piece.length_bytes > 0 && piece.at_bytes >= at);
        assert!(piece.offset_bytes >= sample.offset_bytes);
        assert!(piece.offset_bytes + piece.length_bytes <= sample.end_bytes());
        at = piece.at_bytes + piece.length_bytes;
        let from = &stored[piece.offset_bytes as usize..][..piece.length_bytes as usize];
        bytes[piece.at_bytes as usize..at as usize].copy_from_slice(from);
    }
    Shown::File(bytes)
}

/// All names with their content, in order.
fn shown(container: &dyn Container, stored: &[u8]) -> Vec<(String, Shown)> {
    let mut all = Vec::new();
    container
        .members(&mut |member| {
            let what = match member.node {
                Node::Directory(_) => Shown::Directory,
                Node::Sample(index) => content(container, stored, index),
            };
            all.push((member.path.iter().map(|byte| char::from(*byte)).collect(), what));
            Ok(())
        })
        .unwrap();
    all
}

fn list(bytes: &[u8]) -> Vec<(String, Shown)> {
    shown(opened(bytes).unwrap().as_ref(), bytes)
}

fn file(name: &str, bytes: &[u8]) -> (String, Shown) {
    (name.to_owned(), Shown::File(bytes.to_vec()))
}

fn names(bytes: &[u8]) -> Vec<String> {
    list(bytes).into_iter().map(|(name, _)| name).collect()
}
