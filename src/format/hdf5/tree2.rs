//! B-trees of version 2: records of one length, in leaves and between their children.
//!
//! ```text
//! "BTHD" | u8 0 | u8 type | u32 bytes of a node | u16 bytes of a record | u16 depth | u8 | u8 | root | u16 records
//!         length: all records | u32 lookup3
//! "BTLF" | u8 0 | u8 type | records | u32 lookup3
//! "BTIN" | u8 0 | u8 type | records | children: address, records, all records below (but of leaves) | u32 lookup3
//! ```
//!
//! Imports the input.

use super::super::Result;
use super::input::{Fields, Input, bytes_for};
use crate::format::counted;
use std::collections::HashSet;

/// Bytes of the mark, version, type and checksum of a node.
const OVERHEAD_BYTES: u64 = 10;
const MAX_DEPTH: u16 = 64;

/// The layout of nodes of a level; that of leaves is the first.
struct Level {
    /// Bytes of the number of all records below a node of this level.
    total_bytes: usize,
    max_total: u64,
}

/// Visits all records: in order within a node, and node by node.
pub(super) fn walk(
    input: &Input<'_>,
    address: u64,
    kinds: &[u8],
    visit: &mut dyn FnMut(&mut Fields<'_>, usize) -> Result<()>,
) -> Result<()> {
    let Head { node_bytes, record_bytes, depth, root, records } = head(input, address, kinds)?;
    let Some(root) = root else { return Ok(()) };
    let max_leaf = node_bytes.saturating_sub(OVERHEAD_BYTES).checked_div(record_bytes).unwrap_or(0);
    let count_bytes = bytes_for(max_leaf);
    let levels = levels(input, (node_bytes, record_bytes, count_bytes), max_leaf, depth);
    let mut seen = HashSet::from([root]);
    let mut nodes = vec![(root, u64::from(records), usize::from(depth))];
    while let Some((address, records, level)) = nodes.pop() {
        let below = level.checked_sub(1).and_then(|below| levels.get(below));
        let child_bytes = below.map_or(0, |below| {
            input.address_bytes.saturating_add(count_bytes).saturating_add(below.total_bytes)
        }) as u64;
        let children = if below.is_some() { records.saturating_add(1) } else { 0 };
        let used = records
            .saturating_mul(record_bytes)
            .saturating_add(children.saturating_mul(child_bytes))
            .saturating_add(OVERHEAD_BYTES);
        if used > node_bytes {
            let expected = format!("records that fit in a node of {}", counted(node_bytes, "byte"));
            let at = input.base.saturating_add(address);
            return Err(input.reader.malformed(at, expected, records.to_string(), ""));
        }
        let block = input.block("a node of a B-tree", address, used)?;
        input.check("a node of a B-tree", &block)?;
        let mut fields = input.fields(&block);
        fields.mark(if below.is_some() { b"BTIN" } else { b"BTLF" }, 0)?;
        fields.u8()?;
        for _ in 0..records {
            let (at, record) = (fields.at(), fields.take(record_bytes as usize)?);
            visit(&mut input.fields_at(record, at), record_bytes as usize)?;
        }
        for _ in 0..children {
            let before = fields.clone();
            let (child, records) = (fields.address()?, fields.number(count_bytes)?);
            fields.take(below.map_or(0, |below| below.total_bytes))?;
            match child.filter(|child| seen.insert(*child)) {
                Some(child) => nodes.push((child, records, level.saturating_sub(1))),
                None => {
                    return Err(before.wrong("a child that is no other's", format!("{child:?}")));
                }
            }
        }
    }
    Ok(())
}

/// The head of a tree.
struct Head {
    node_bytes: u64,
    record_bytes: u64,
    depth: u16,
    /// The address of the root; `None` if the tree has no records.
    root: Option<u64>,
    /// The number of records in the root itself.
    records: u16,
}

fn head(input: &Input<'_>, address: u64, kinds: &[u8]) -> Result<Head> {
    let length = 22_usize.saturating_add(input.address_bytes).saturating_add(input.length_bytes);
    let head = input.block("the head of a B-tree", address, length as u64)?;
    input.check("the head of a B-tree", &head)?;
    let mut fields = input.fields(&head);
    fields.mark(b"BTHD", 0)?;
    let before = fields.clone();
    let kind = fields.u8()?;
    if !kinds.contains(&kind) {
        return Err(before.wrong(&format!("a B-tree of type {kinds:?}"), kind.to_string()));
    }
    let (node_bytes, record_bytes) = (u64::from(fields.u32()?), u64::from(fields.u16()?));
    let depth = fields.u16()?;
    fields.take(2)?;
    let (root, records) = (fields.address()?, fields.u16()?);
    if node_bytes <= OVERHEAD_BYTES || record_bytes == 0 || depth > MAX_DEPTH {
        let found = format!(
            "nodes of {}, records of {record_bytes}, depth {depth}",
            counted(node_bytes, "byte")
        );
        return Err(before.wrong("nodes that have room for records", found));
    }
    Ok(Head { node_bytes, record_bytes, depth, root, records })
}

fn levels(
    input: &Input<'_>,
    (node_bytes, record_bytes, count_bytes): (u64, u64, usize),
    max_leaf: u64,
    depth: u16,
) -> Vec<Level> {
    // The number of all records of a leaf is that of its own, which is not stored twice.
    let mut levels = vec![Level { total_bytes: 0, max_total: max_leaf }];
    for _ in 0..depth {
        let Some(below) = levels.last() else { break };
        let pointer =
            input.address_bytes.saturating_add(count_bytes).saturating_add(below.total_bytes);
        let room = node_bytes.saturating_sub(OVERHEAD_BYTES).saturating_sub(pointer as u64);
        let each = record_bytes.saturating_add(pointer as u64);
        let most = room.checked_div(each).unwrap_or(0);
        let max_total = most.saturating_add(1).saturating_mul(below.max_total).saturating_add(most);
        levels.push(Level { total_bytes: bytes_for(max_total), max_total });
    }
    levels
}
