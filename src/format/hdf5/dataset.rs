//! A dataset as an object's messages describe it: its shape, its type, the place of its elements, and their filters.
//!
//! Imports the input, messages and datatypes.

use super::super::{Error, Result};
use super::datatype::{Datatype, MAX_DIMENSIONS};
use super::filter::Filter;
use super::input::Fields;
use super::input::Input;
use super::object::{DATASPACE, DATATYPE, EXTERNAL, FILL, FILTERS, LAYOUT, Message, OLD_FILL};
use crate::format::counted;

/// A dimension that may grow without bound.
pub(super) const UNLIMITED: u64 = u64::MAX;

/// The code of a fill value that is never written.
const FILL_TIME_NEVER: u8 = 1;

/// Why a dataset cannot be shown.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The file is wrong.
    Malformed(Error),
    /// The file is right, but the dataset is of a kind that is not shown here.
    Unsupported(String),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal::Malformed(error)
    }
}

pub(super) fn unsupported<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Unsupported(why.into()))
}

/// A dataset as its header describes it.
#[derive(Clone)]
pub(super) struct Dataset {
    pub(super) shape: Vec<u64>,
    /// The length up to which each dimension may grow.
    pub(super) most: Vec<u64>,
    pub(super) datatype: Datatype,
    pub(super) layout: Layout,
    pub(super) filters: Vec<Filter>,
    /// The value of elements that were never written; empty for zeros.
    pub(super) fill: Vec<u8>,
}

/// The layout of a dataset's elements.
#[derive(Debug, Clone)]
pub(super) enum Layout {
    /// In the object's header: an offset in the file, and a length in bytes.
    InHeader(u64, u64),
    /// In one piece: its address (`None` if no element was written), and its length in bytes, if the layout says it.
    Contiguous(Option<u64>, Option<u64>),
    Chunked(ChunkLayout),
}

/// The shape of chunks, and the index by which they are found.
#[derive(Debug, Clone)]
pub(super) struct ChunkLayout {
    /// Elements in each dimension of a chunk.
    pub(super) chunk: Vec<u64>,
    /// Bytes of an element.
    pub(super) element: u64,
    pub(super) index: ChunkIndex,
    /// The address of the index, or of the chunks themselves.
    pub(super) address: Option<u64>,
    /// Whether chunks at the edges are left unfiltered.
    pub(super) edges_are_plain: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkIndex {
    Tree1,
    /// One chunk: its bytes and skipped filters, if it is filtered.
    Single(Option<(u64, u32)>),
    /// The chunks lie one after the other.
    Implicit,
    FixedArray,
    ExtensibleArray,
    Tree2,
}

impl Dataset {
    /// Whether an object with these messages is a dataset.
    pub(super) fn is_one(messages: &[Message]) -> bool {
        messages.iter().any(|message| message.kind == LAYOUT)
    }

    pub(super) fn read(input: &Input<'_>, messages: &[Message]) -> Result<Self, Refusal> {
        let find = |kind| messages.iter().find(|message| message.kind == kind);
        let at = messages.first().map_or(0, |message| message.at);
        let needed = |kind, what: &str| -> Result<Fields<'_>, Refusal> {
            match find(kind) {
                Some(message) if message.is_elsewhere => unsupported(
                    "parts of its header are in a table of shared messages that is not there or cannot be read",
                ),
                Some(message) => Ok(message.fields(input)),
                None => {
                    let error = input.reader.malformed(at, what, "a dataset without it", "");
                    Err(error.into())
                }
            }
        };
        let (shape, most) = dataspace(&mut needed(DATASPACE, "a dataset's shape")?)?;
        let datatype = Datatype::read(&mut needed(DATATYPE, "a dataset's type")?)?;
        if let Some(message) = find(EXTERNAL) {
            let _ = message;
            return unsupported("its data are in other files");
        }
        let layout = layout(&mut needed(LAYOUT, "a dataset's layout")?)?;
        let filters = match find(FILTERS) {
            Some(_) => Filter::read_all(&mut needed(FILTERS, "filters")?)?,
            None => Vec::new(),
        };
        let fill = match (find(FILL), find(OLD_FILL)) {
            (Some(_), _) => fill(&mut needed(FILL, "a fill value")?)?,
            (None, Some(_)) => old_fill(&mut needed(OLD_FILL, "a fill value")?)?,
            (None, None) => Vec::new(),
        };
        let is_fill = fill.len() == datatype.bytes as usize && fill.iter().any(|byte| *byte != 0);
        let fill = if is_fill { fill } else { Vec::new() };
        let dataset = Self { shape, most, datatype, layout, filters, fill };
        dataset.check(input, at)?;
        Ok(dataset)
    }

    fn check(&self, input: &Input<'_>, at: u64) -> Result<()> {
        // Elements that were never written take no space: the file can be right.
        let may_lack = matches!(self.layout, Layout::Chunked(_) | Layout::Contiguous(None, _));
        if !may_lack && !self.is_countable() {
            let found =
                format!("{:?} of {} each", self.shape, counted(self.datatype.bytes, "byte"));
            return Err(input.reader.malformed(at, "fewer than 2⁶³ bytes of elements", found, ""));
        }
        if let Layout::Contiguous(Some(_), Some(bytes)) = self.layout
            && self.bytes().is_some_and(|all| all > bytes)
        {
            let expected = counted(self.bytes().unwrap_or(0), "byte");
            return Err(input.reader.malformed(at, expected, counted(bytes, "byte"), ""));
        }
        let Layout::Chunked(layout) = &self.layout else { return Ok(()) };
        if layout.element != u64::from(self.datatype.bytes) {
            let expected =
                format!("chunks of elements of {}", counted(self.datatype.bytes, "byte"));
            return Err(input.reader.malformed(at, expected, layout.element.to_string(), ""));
        }
        if self.filters.iter().any(|filter| filter.is_of_others(self.datatype.bytes)) {
            let expected = format!("shuffled elements of {}", counted(self.datatype.bytes, "byte"));
            return Err(input.reader.malformed(at, expected, "others", ""));
        }
        let is_right = layout.chunk.len() == self.shape.len()
            && !layout.chunk.is_empty()
            && layout.chunk.iter().all(|length| *length > 0);
        if !is_right {
            let expected = format!("chunks of {}", counted(self.shape.len(), "dimension"));
            return Err(input.reader.malformed(at, expected, format!("{:?}", layout.chunk), ""));
        }
        Ok(())
    }

    /// Whether all elements have fewer than 2⁶³ bytes.
    pub(super) fn is_countable(&self) -> bool {
        self.bytes().is_some_and(|bytes| i64::try_from(bytes).is_ok())
    }

    /// The bytes of all elements; `None` if a 64-bit number cannot hold them.
    pub(super) fn bytes(&self) -> Option<u64> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        let element = u64::from(self.datatype.bytes);
        self.shape.iter().try_fold(element, |all, length| all.checked_mul(*length))
    }

    /// The number of elements.
    pub(super) fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |all: u64, length| all.saturating_mul(*length))
    }
}

fn dataspace(fields: &mut Fields<'_>) -> Result<(Vec<u64>, Vec<u64>)> {
    let before = fields.clone();
    let (version, rank, flags) = (fields.u8()?, usize::from(fields.u8()?), fields.u8()?);
    if rank > MAX_DIMENSIONS {
        return Err(before.wrong("up to 64 dimensions", rank.to_string()));
    }
    let is_null = match version {
        1 => {
            fields.take(5)?;
            false
        }
        2 => fields.u8()? == 2,
        _ => return Err(before.wrong("a shape of version 1 or 2", version.to_string())),
    };
    if is_null {
        return Ok((vec![0], vec![0]));
    }
    let mut shape = Vec::new();
    for _ in 0..rank {
        shape.push(fields.length()?);
    }
    let mut most = shape.clone();
    if flags & 1 != 0 {
        let all =
            u64::MAX.wrapping_shr(64_u32.wrapping_sub((fields.input.length_bytes as u32) << 3));
        for length in &mut most {
            let stored = fields.length()?;
            *length = if stored == all { UNLIMITED } else { stored };
        }
    }
    Ok((shape, most))
}

fn fill(fields: &mut Fields<'_>) -> Result<Vec<u8>> {
    let before = fields.clone();
    // HDF5's library gives no values for elements that were not written if it never writes the fill value: h5py gives zeros.
    let (is_there, time) = match fields.u8()? {
        version @ (1 | 2) => {
            fields.take(1)?;
            let time = fields.u8()?;
            (fields.u8()? != 0 || version == 1, time)
        }
        3 => {
            let flags = fields.u8()?;
            (flags & 0x20 != 0, flags >> 2 & 3)
        }
        version => return Err(before.wrong("a fill value of version 1 to 3", version.to_string())),
    };
    let is_there = is_there && time != FILL_TIME_NEVER;
    if is_there && fields.left() > 0 { old_fill(fields) } else { Ok(Vec::new()) }
}

fn old_fill(fields: &mut Fields<'_>) -> Result<Vec<u8>> {
    let length = fields.u32()?;
    // -1: the fill value is undefined.
    if length == u32::MAX {
        return Ok(Vec::new());
    }
    Ok(fields.take(length as usize)?.to_vec())
}

fn layout(fields: &mut Fields<'_>) -> Result<Layout, Refusal> {
    let before = fields.clone();
    match fields.u8()? {
        1 | 2 => Ok(old_layout(fields)?),
        version @ 3..=5 => {
            let before = fields.clone();
            match fields.u8()? {
                0 => {
                    let length = fields.u16()?;
                    Ok(Layout::InHeader(fields.at(), length.min(fields.left() as u16).into()))
                }
                1 => Ok(Layout::Contiguous(fields.address()?, Some(fields.length()?))),
                2 if version == 3 => {
                    let rank = usize::from(fields.u8()?);
                    Ok(Layout::Chunked(old_chunks(fields, rank)?))
                }
                2 => Ok(Layout::Chunked(new_chunks(fields)?)),
                3 => unsupported("it is virtual: its data are in other datasets"),
                class => Err(before.wrong("a layout of class 0 to 3", class.to_string()).into()),
            }
        }
        version => Err(before.wrong("a layout of version 1 to 5", version.to_string()).into()),
    }
}

/// Reads the chunks of layouts of versions 1 to 3, which a B-tree of version 1 lists.
fn old_chunks(fields: &mut Fields<'_>, rank: usize) -> Result<ChunkLayout> {
    let address = fields.address()?;
    let (chunk, element) = chunk_shape(fields, rank, 4)?;
    let index = ChunkIndex::Tree1;
    Ok(ChunkLayout { chunk, element, index, address, edges_are_plain: false })
}

/// Reads a layout of version 1 or 2.
fn old_layout(fields: &mut Fields<'_>) -> Result<Layout> {
    let (rank, before) = (usize::from(fields.u8()?), fields.clone());
    let class = fields.u8()?;
    fields.take(5)?;
    match class {
        0 => {
            fields.take(rank.saturating_mul(4))?;
            let length = fields.u32()?;
            Ok(Layout::InHeader(fields.at(), u64::from(length).min(fields.left() as u64)))
        }
        1 => Ok(Layout::Contiguous(fields.address()?, None)),
        2 => Ok(Layout::Chunked(old_chunks(fields, rank)?)),
        _ => Err(before.wrong("a layout of class 0 to 2", class.to_string())),
    }
}

/// Reads the lengths of a chunk, and the length of an element behind them.
fn chunk_shape(
    fields: &mut Fields<'_>,
    rank: usize,
    length_bytes: usize,
) -> Result<(Vec<u64>, u64)> {
    let mut chunk = Vec::new();
    for _ in 0..rank {
        chunk.push(fields.number(length_bytes)?);
    }
    let element = chunk.pop().unwrap_or(0);
    Ok((chunk, element))
}

/// Reads the chunks of layouts of versions 4 and 5.
fn new_chunks(fields: &mut Fields<'_>) -> Result<ChunkLayout> {
    let (flags, rank, length_bytes) = (fields.u8()?, fields.u8()?, fields.u8()?);
    let (chunk, element) = chunk_shape(fields, rank.into(), length_bytes.into())?;
    let before = fields.clone();
    let index = match fields.u8()? {
        1 if flags & 2 != 0 => ChunkIndex::Single(Some((fields.length()?, fields.u32()?))),
        1 => ChunkIndex::Single(None),
        2 => ChunkIndex::Implicit,
        3 => {
            fields.take(1)?;
            ChunkIndex::FixedArray
        }
        4 => {
            fields.take(5)?;
            ChunkIndex::ExtensibleArray
        }
        5 => {
            fields.take(6)?;
            ChunkIndex::Tree2
        }
        kind => return Err(before.wrong("an index of chunks of type 1 to 5", kind.to_string())),
    };
    let (address, edges_are_plain) = (fields.address()?, flags & 1 != 0);
    Ok(ChunkLayout { chunk, element, index, address, edges_are_plain })
}
