//! The links of a group: in messages, in a fractal heap, or (old groups) in symbol tables.
//!
//! ```text
//! link           u8 1 | u8 flags | u8 kind? | u64 order? | u8 charset? | length of the name | name | target
//! link info      u8 0 | u8 flags | u64? | heap | B-tree by names
//! symbol table   B-tree | local heap: "HEAP" | u8 0 | 3 × u8 | bytes | free | address
//! node           "SNOD" | u8 1 | u8 | u16 symbols | symbols: name | header | u32 cache | u32 | 16 bytes
//! ```
//!
//! Imports the input, messages, trees and heaps.

use super::super::Result;
use super::heap::Heap;
use super::input::{Fields, Input};
use super::object::{LINK, LINK_INFO, Message, SYMBOL_TABLE};
use super::tree1::{self, Keys};
use super::tree2;

/// The type of records of links, by the hashes of their names.
const NAMES: u8 = 5;
/// The type of cache of a symbol that is a soft link.
const CACHED_SOFT_LINK: u32 = 2;

/// The target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// The address of an object.
    Hard(u64),
    /// A path in this file.
    Soft(Vec<u8>),
    /// The name of another file, and a path in it.
    External(String),
}

/// A name in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) name: Vec<u8>,
    pub(super) target: Target,
}

/// Whether an object with these messages is a group.
pub(super) fn is_group(messages: &[Message]) -> bool {
    messages.iter().any(|message| matches!(message.kind, SYMBOL_TABLE | LINK_INFO | LINK))
}

/// Reads all links of a group, in the order of their names.
pub(super) fn links(input: &Input<'_>, messages: &[Message]) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    for message in messages {
        let fields = &mut message.fields(input);
        match message.kind {
            LINK => links.extend(link(fields)?),
            LINK_INFO => dense(input, fields, &mut links)?,
            SYMBOL_TABLE => {
                let before = fields.clone();
                let (Some(tree), Some(heap)) = (fields.address()?, fields.address()?) else {
                    return Err(before.wrong("the addresses of a symbol table", "none".to_owned()));
                };
                symbols(input, tree, heap, &mut links)?;
            }
            _ => (),
        }
    }
    links.sort_by(|a, b| a.name.cmp(&b.name));
    links.dedup_by(|a, b| a.name == b.name);
    Ok(links)
}

/// Reads a link; `None` if it is of a kind that this program does not know.
fn link(fields: &mut Fields<'_>) -> Result<Option<Link>> {
    let before = fields.clone();
    let version = fields.u8()?;
    if version != 1 {
        return Err(before.wrong("a link of version 1", version.to_string()));
    }
    let flags = fields.u8()?;
    let kind = if flags & 0x08 != 0 { fields.u8()? } else { 0 };
    if flags & 0x04 != 0 {
        fields.u64()?;
    }
    if flags & 0x10 != 0 {
        fields.u8()?;
    }
    let length = fields.number(1_usize.wrapping_shl(u32::from(flags & 3)))?;
    let name = fields.take(usize::try_from(length).unwrap_or(usize::MAX))?.to_vec();
    let before = fields.clone();
    let target = match kind {
        0 => match fields.address()? {
            Some(address) => Target::Hard(address),
            None => return Err(before.wrong("the address of an object", "none".to_owned())),
        },
        1 => {
            let length = fields.u16()?;
            Target::Soft(fields.take(length.into())?.to_vec())
        }
        64 => {
            let length = usize::from(fields.u16()?);
            let value = fields.take(length)?;
            let mut parts = value.get(1..).unwrap_or_default().split(|byte| *byte == 0);
            let mut text =
                || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
            Target::External(format!("{}:{}", text(), text()))
        }
        _ => return Ok(None),
    };
    Ok(Some(Link { name, target }))
}

fn dense(input: &Input<'_>, fields: &mut Fields<'_>, links: &mut Vec<Link>) -> Result<()> {
    fields.u8()?;
    if fields.u8()? & 1 != 0 {
        fields.u64()?;
    }
    let (Some(heap), Some(tree)) = (fields.address()?, fields.address()?) else { return Ok(()) };
    let mut heap = Heap::open(input, heap)?;
    tree2::walk(input, tree, &[NAMES], &mut |record, _| {
        record.u32()?;
        let (at, id) = (record.at(), record.take(record.left())?);
        let (bytes, at) = heap.object(id, at)?;
        links.extend(link(&mut input.fields_at(&bytes, at))?);
        Ok(())
    })
}

fn symbols(input: &Input<'_>, tree: u64, heap: u64, links: &mut Vec<Link>) -> Result<()> {
    let (a, l) = (input.address_bytes as u64, input.length_bytes as u64);
    let length = l.saturating_mul(2).saturating_add(a).saturating_add(8);
    let head = input.block("a local heap", heap, length)?;
    let mut fields = input.fields(&head);
    fields.mark(b"HEAP", 0)?;
    fields.take(3)?;
    let size = fields.length()?;
    fields.length()?;
    let before = fields.clone();
    let Some(names) = fields.address()? else {
        return Err(before.wrong("the address of a heap's names", "none".to_owned()));
    };
    let names = input.block("the names of a group", names, size)?;
    let name_at = |offset: u64| -> Result<Vec<u8>> {
        let mut fields = input.fields(&names);
        fields.take(usize::try_from(offset).unwrap_or(usize::MAX))?;
        let (at, text) = (fields.at(), fields.text()?);
        // Many symbols may refer to one text.
        input.charge(at, text.len() as u64)?;
        Ok(text.to_vec())
    };
    let symbol_bytes = l.saturating_add(a).saturating_add(24);
    tree1::walk(input, tree, Keys::Group, &mut |_, node| {
        let head = input.block("a node of symbols", node, 8)?;
        let mut fields = input.fields(&head);
        fields.mark(b"SNOD", 1)?;
        fields.u8()?;
        let count = fields.u16()?;
        let length = symbol_bytes.saturating_mul(count.into());
        let block = input.block("a node of symbols", node.saturating_add(8), length)?;
        let mut fields = input.fields(&block);
        for _ in 0..count {
            let (name, before) = (fields.length()?, fields.clone());
            let (address, cache) = (fields.address()?, fields.u32()?);
            fields.u32()?;
            let soft = fields.u32()?;
            fields.take(12)?;
            let target = match (cache, address) {
                (CACHED_SOFT_LINK, _) => Target::Soft(name_at(soft.into())?),
                (_, Some(address)) => Target::Hard(address),
                _ => return Err(before.wrong("the address of an object", "none".to_owned())),
            };
            links.push(Link { name: name_at(name)?, target });
        }
        Ok(())
    })
}
