//! Object headers: the messages that describe a group, a dataset or a type.
//!
//! ```text
//! 1  u8 1 | u8 | u16 messages | u32 references | u32 bytes | 4 × u8 | messages: u16 type | u16 size | u8 flags | 3 × u8
//! 2  "OHDR" | u8 2 | u8 flags | times? | limits? | size of the messages | messages | u32 lookup3
//!    messages: u8 type | u16 size | u8 flags | u16 order?
//!    further ones: "OCHK" | messages | u32 lookup3
//! ```
//!
//! Imports the input, and the table of shared messages.

use super::super::{Error, Result};
use super::input::{Block, Fields, Input};
use super::shared::SharedMessages;
use std::collections::HashMap;

pub(super) const DATASPACE: u16 = 0x01;
pub(super) const LINK_INFO: u16 = 0x02;
pub(super) const DATATYPE: u16 = 0x03;
pub(super) const OLD_FILL: u16 = 0x04;
pub(super) const FILL: u16 = 0x05;
pub(super) const LINK: u16 = 0x06;
pub(super) const EXTERNAL: u16 = 0x07;
pub(super) const LAYOUT: u16 = 0x08;
pub(super) const FILTERS: u16 = 0x0b;
const CONTINUATION: u16 = 0x10;
pub(super) const SYMBOL_TABLE: u16 = 0x11;
const SHARED_TABLE: u16 = 0x0f;
const CACHE_IMAGE: u16 = 0x18;
const DRIVER: u16 = 0x14;
const KEPT: [u16; 13] = [
    DATASPACE,
    LINK_INFO,
    DATATYPE,
    OLD_FILL,
    FILL,
    LINK,
    EXTERNAL,
    LAYOUT,
    FILTERS,
    SYMBOL_TABLE,
    SHARED_TABLE,
    CACHE_IMAGE,
    DRIVER,
];
/// The flag of a message that stands elsewhere.
const IS_SHARED: u8 = 0x02;
const HEAD_1_BYTES: u64 = 16;
/// The longest head of version 2: mark, version, flags, times, limits, size.
const HEAD_2_BYTES: u64 = 34;

/// The most messages of an object that are kept: those of a group's links, up to 2¹⁶, and one of each other type.
const MAX_MESSAGES: usize = 1 << 17;

/// A message of an object.
#[derive(Clone)]
pub(super) struct Message {
    pub(super) kind: u16,
    /// The offset of its bytes in the file.
    pub(super) at: u64,
    pub(super) bytes: Vec<u8>,
    /// Whether the message stands elsewhere; once references are resolved, in a table of shared messages that is missing
    /// or cannot be read.
    pub(super) is_elsewhere: bool,
}

impl Message {
    pub(super) fn fields<'b>(&'b self, input: &'b Input<'b>) -> Fields<'b> {
        input.fields_at(&self.bytes, self.at)
    }
}

/// The superblock's extension, in which newer files describe themselves.
#[derive(Default)]
pub(super) struct Extension<'a> {
    /// The offset of the message about an image of the library's cache.
    pub(super) cache_image: Option<u64>,
    /// The name of the driver that wrote the file.
    pub(super) driver: Option<[u8; 8]>,
    shared: Option<SharedMessages<'a>>,
}

impl<'a> Extension<'a> {
    pub(super) fn read(input: &'a Input<'a>, address: u64) -> Result<Self> {
        let mut extension = Self::default();
        for message in raw(input, address)? {
            match message.kind {
                CACHE_IMAGE => extension.cache_image = Some(message.at),
                // The name stands behind a version.
                DRIVER => {
                    extension.driver =
                        message.bytes.get(1..).and_then(|name| name.first_chunk()).copied()
                }
                SHARED_TABLE => {
                    extension.shared = Some(SharedMessages::read(input, message.fields(input))?);
                }
                _ => (),
            }
        }
        Ok(extension)
    }
}

/// Reads the headers of objects.
pub(super) struct Headers<'a> {
    input: &'a Input<'a>,
    /// Messages that other objects refer to, by their object and their type: many datasets may have one type. `None` if
    /// the object has no such message, or cannot be read.
    shared: HashMap<(u64, u16), Option<Message>>,
    /// The file's table of shared messages.
    table: Option<SharedMessages<'a>>,
}

impl<'a> Headers<'a> {
    pub(super) fn new(input: &'a Input<'a>, extension: Extension<'a>) -> Self {
        Self { input, shared: HashMap::new(), table: extension.shared }
    }

    /// Reads the messages of an object's header that are used here.
    pub(super) fn messages(&mut self, address: u64) -> Result<Vec<Message>> {
        let mut found = raw(self.input, address)?;
        for message in &mut found {
            if message.is_elsewhere {
                self.resolve(message)?;
            }
        }
        Ok(found)
    }

    /// Puts a shared message in place of the reference to it.
    fn resolve(&mut self, message: &mut Message) -> Result<()> {
        let input = self.input;
        let Some(address) = place_of_shared(input, message)? else {
            return self.take_from_table(message);
        };
        let key = (address, message.kind);
        if !self.shared.contains_key(&key) {
            let there = match raw(input, address) {
                Err(error @ Error::Malformed { .. }) => {
                    self.shared.insert(key, None);
                    return Err(error);
                }
                there => there?.into_iter().find(|there| there.kind == message.kind),
            };
            self.shared.insert(key, there.filter(|there| !there.is_elsewhere));
        }
        let Some(Some(there)) = self.shared.get(&key) else {
            let expected = format!("an object with a message of type {}", message.kind);
            return Err(input.reader.malformed(message.at, expected, "one without", ""));
        };
        input.charge(there.at, there.bytes.len() as u64)?;
        *message = there.clone();
        Ok(())
    }
}

impl Headers<'_> {
    /// Puts a message of the file's table in place of its ID.
    fn take_from_table(&mut self, message: &mut Message) -> Result<()> {
        let Some(table) = &mut self.table else { return Ok(()) };
        // The ID stands behind a version and a kind.
        let (id, at) = (message.bytes.get(2..).unwrap_or_default(), message.at.saturating_add(2));
        if let Some((bytes, at)) = table.get(message.kind, id, at)? {
            *message = Message { kind: message.kind, at, bytes, is_elsewhere: false };
        }
        Ok(())
    }
}

/// The address of the object that has a shared message; `None` if the file's table of shared messages has it.
fn place_of_shared(input: &Input<'_>, message: &Message) -> Result<Option<u64>> {
    let mut fields = input.fields_at(&message.bytes, message.at);
    let (version, kind) = (fields.u8()?, fields.u8()?);
    if version == 1 {
        fields.take(6)?;
        // The place of the name in a heap, which libraries do not look at.
        fields.length()?;
    }
    if version == 3 && kind == 1 {
        return Ok(None);
    }
    let before = fields.clone();
    match fields.address()? {
        None => Err(before.wrong("the address of a shared message", "none".to_owned())),
        address => Ok(address),
    }
}

fn raw(input: &Input<'_>, address: u64) -> Result<Vec<Message>> {
    let left = input.reader.len().saturating_sub(input.base).saturating_sub(address);
    let head = input.block("an object header", address, left.clamp(HEAD_1_BYTES, HEAD_2_BYTES))?;
    match head.bytes.starts_with(b"OHDR") {
        true => version_2(input, address, &head),
        false => version_1(input, address, &head),
    }
}

fn version_1(input: &Input<'_>, address: u64, head: &Block) -> Result<Vec<Message>> {
    let mut fields = input.fields(head);
    let before = fields.clone();
    let version = fields.u8()?;
    if version != 1 {
        return Err(before.wrong("an object header of version 1 or 2", version.to_string()));
    }
    fields.take(7)?;
    let size = fields.u32()?;
    let mut blocks = vec![(address.saturating_add(HEAD_1_BYTES), u64::from(size))];
    let mut found = Vec::new();
    while let Some((address, length)) = blocks.pop() {
        let block = input.block("messages of an object", address, length)?;
        let mut fields = input.fields(&block);
        while fields.left() >= 8 {
            let (kind, size, flags) = (fields.u16()?, fields.u16()?, fields.u8()?);
            fields.take(3)?;
            take(&mut fields, (kind, size, flags), &mut found, &mut blocks)?;
        }
    }
    Ok(found)
}

fn version_2(input: &Input<'_>, address: u64, head: &Block) -> Result<Vec<Message>> {
    let mut fields = input.fields(head);
    fields.mark(b"OHDR", 2)?;
    let flags = fields.u8()?;
    if flags & 0x20 != 0 {
        fields.take(16)?;
    }
    if flags & 0x10 != 0 {
        fields.take(4)?;
    }
    let size = fields.number(1_usize.wrapping_shl(u32::from(flags & 3)))?;
    let head_bytes = fields.taken();
    let has_order = flags & 0x04 != 0;
    let whole = size.saturating_add(head_bytes as u64).saturating_add(4);
    let mut blocks = vec![(address, whole)];
    let mut found = Vec::new();
    let mut skip = head_bytes;
    while let Some((address, length)) = blocks.pop() {
        let block = input.block("messages of an object", address, length)?;
        input.check("messages of an object", &block)?;
        let mut fields = input.fields(&block);
        if skip == 4 && !block.bytes.starts_with(b"OCHK") {
            return Err(fields.wrong("\"OCHK\"", "other bytes".to_owned()));
        }
        fields.take(skip)?;
        skip = 4;
        // The checksum ends the block, perhaps behind a gap.
        let least = if has_order { 10 } else { 8 };
        while fields.left() >= least {
            let (kind, size, flags) = (u16::from(fields.u8()?), fields.u16()?, fields.u8()?);
            if has_order {
                fields.take(2)?;
            }
            take(&mut fields, (kind, size, flags), &mut found, &mut blocks)?;
        }
    }
    Ok(found)
}

/// Takes the next message.
fn take(
    fields: &mut Fields<'_>,
    (kind, size, flags): (u16, u16, u8),
    found: &mut Vec<Message>,
    blocks: &mut Vec<(u64, u64)>,
) -> Result<()> {
    let mut inner = fields.clone();
    let at = fields.at();
    let bytes = fields.take(size.into())?;
    if kind == CONTINUATION {
        if let Some(address) = inner.address()? {
            blocks.push((address, inner.length()?));
        }
    } else if KEPT.contains(&kind) {
        if found.len() >= MAX_MESSAGES {
            return Err(fields.wrong("an object of up to 2¹⁷ messages", "more".to_owned()));
        }
        let is_elsewhere = flags & IS_SHARED != 0;
        found.push(Message { kind, at, bytes: bytes.to_vec(), is_elsewhere });
    }
    Ok(())
}
