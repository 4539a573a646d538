//! B-trees of version 1: of groups, and of chunks.
//!
//! ```text
//! "TREE" | u8 type | u8 level | u16 entries | left | right | key | child | key | … | child | key
//! key of a group   length: a place in its heap
//! key of a chunk   u32 bytes | u32 filters that were left out | u64 first element × (dimensions + 1)
//! ```
//!
//! Imports the input.

use super::super::Result;
use super::input::{Fields, Input};
use std::collections::HashSet;

/// The most levels of a tree, whose nodes have at least two children each.
const MAX_LEVELS: u8 = 64;

/// The kind of a tree's keys.
#[derive(Clone, Copy)]
pub(super) enum Keys {
    Group,
    /// Chunks with this number of dimensions.
    Chunks(usize),
}

impl Keys {
    fn number(self) -> u8 {
        match self {
            Keys::Group => 0,
            Keys::Chunks(_) => 1,
        }
    }

    fn bytes(self, input: &Input<'_>) -> usize {
        match self {
            Keys::Group => input.length_bytes,
            Keys::Chunks(dimensions) => dimensions.saturating_add(2).saturating_mul(8),
        }
    }
}

/// Visits all children of the lowest level, in order: the key before each child, and the child's address.
pub(super) fn walk(
    input: &Input<'_>,
    root: u64,
    keys: Keys,
    visit: &mut dyn FnMut(&mut Fields<'_>, u64) -> Result<()>,
) -> Result<()> {
    let mut seen = HashSet::from([root]);
    let mut nodes = vec![(root, None)];
    let head_bytes = input.address_bytes.saturating_mul(2).saturating_add(8);
    let (key_bytes, address_bytes) = (keys.bytes(input), input.address_bytes);
    while let Some((address, wanted)) = nodes.pop() {
        let head = input.block("a node of a B-tree", address, head_bytes as u64)?;
        let mut fields = input.fields(&head);
        let before = fields.clone();
        let (mark, kind, level) = (fields.take(4)?, fields.u8()?, fields.u8()?);
        if mark != b"TREE"
            || kind != keys.number()
            || wanted.is_some_and(|wanted| wanted != level)
            || level > MAX_LEVELS
        {
            let expected = format!("a node of a B-tree of type {}", keys.number());
            let found =
                format!("{:?}, type {kind}, level {level}", mark.escape_ascii().to_string());
            return Err(before.wrong(&expected, found));
        }
        let entries = usize::from(fields.u16()?);
        let pairs = key_bytes.saturating_add(address_bytes).saturating_mul(entries);
        let start = address.saturating_add(head_bytes as u64);
        let block = input.block("a node of a B-tree", start, pairs as u64)?;
        let mut fields = input.fields(&block);
        let first = nodes.len();
        for _ in 0..entries {
            let (at, key) = (fields.at(), fields.take(key_bytes)?);
            let before = fields.clone();
            let Some(child) = fields.address()? else {
                return Err(before.wrong("the address of a child", "none".to_owned()));
            };
            if level == 0 {
                visit(&mut input.fields_at(key, at), child)?;
            } else if seen.insert(child) {
                nodes.push((child, level.checked_sub(1)));
            } else {
                return Err(before.wrong("each node once", format!("address {child} again")));
            }
        }
        if let Some(children) = nodes.get_mut(first..) {
            children.reverse();
        }
    }
    Ok(())
}
