//! The table of messages that many objects share, which lie in fractal heaps.
//!
//! ```text
//! "SMTB" | indexes | u32 lookup3
//! index    u8 0 | u8 kind | u16 types of messages | u32 | 3 × u16 | address of the index | heap
//! ```
//!
//! An object's message has the ID in the heap. Imports the input and heaps.

use super::super::Result;
use super::heap::Heap;
use super::input::{Fields, Input};

/// Bytes of an index, without its addresses.
const INDEX_BYTES: u64 = 14;

/// The messages that many objects share.
pub(super) struct SharedMessages<'a> {
    input: &'a Input<'a>,
    indexes: Vec<Index<'a>>,
}

/// The index of messages of some types.
struct Index<'a> {
    /// A bit for each type.
    types: u16,
    heap_at: Option<u64>,
    /// Opened once it is needed.
    heap: Option<Heap<'a>>,
}

impl<'a> SharedMessages<'a> {
    /// Reads the table that a message of the file's extension describes: by its version, its address, and the number of
    /// its indexes.
    pub(super) fn read(input: &'a Input<'a>, mut message: Fields<'_>) -> Result<Self> {
        const WHAT: &str = "the table of shared messages";
        message.u8()?;
        let (address, count) = (message.address()?, message.u8()?);
        let mut indexes = Vec::new();
        let Some(address) = address.filter(|_| count > 0) else {
            return Ok(Self { input, indexes });
        };
        let each = (input.address_bytes as u64).saturating_mul(2).saturating_add(INDEX_BYTES);
        let length = each.saturating_mul(count.into()).saturating_add(8);
        let block = input.block(WHAT, address, length)?;
        input.check(WHAT, &block)?;
        let mut fields = input.fields(&block);
        fields.mark(b"SMTB", 0)?;
        for number in 0..count {
            // The version of the first index was taken with the mark.
            fields.take(usize::from(number > 0))?;
            fields.u8()?;
            let types = fields.u16()?;
            fields.take(10)?;
            fields.address()?;
            indexes.push(Index { types, heap_at: fields.address()?, heap: None });
        }
        Ok(Self { input, indexes })
    }

    /// A message of a type, and its offset in the file. `None` if the table has no messages of this type.
    pub(super) fn get(
        &mut self,
        kind: u16,
        id: &[u8],
        id_at: u64,
    ) -> Result<Option<(Vec<u8>, u64)>> {
        let is_of = |index: &&mut Index<'_>| {
            index.types.checked_shr(kind.into()).is_some_and(|types| types & 1 == 1)
        };
        let Some(index) = self.indexes.iter_mut().find(is_of) else { return Ok(None) };
        let Some(heap_at) = index.heap_at else { return Ok(None) };
        if index.heap.is_none() {
            index.heap = Some(Heap::open(self.input, heap_at)?);
        }
        index.heap.as_mut().map(|heap| heap.object(id, id_at)).transpose()
    }
}
