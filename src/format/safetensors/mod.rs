//! safetensors (`.safetensors`), as the package safetensors 0.7 writes and reads it.
//!
//! ```text
//! u64 n | JSON of n bytes | data        little-endian
//! ```
//!
//! The JSON names each tensor's type, shape and place in the data, which have no gaps and do not overlap. There is
//! no checksum. The descriptions are kept in memory: 72 bytes a tensor, its name, and 8 bytes a dimension.

mod header;
#[cfg(test)]
mod tests;

use super::reader::Reader;
use super::{
    Container, Content, Detected, Format, IndexChecksum, Member, Names, Node, OpenOptions, Result,
    Sample, Source, View, npy,
};
use crate::format::{counted, quoted};
use header::{Header, Tensor};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const NAME: &str = "safetensors";
/// Bytes of the header's length.
const LENGTH_BYTES: u64 = 8;
/// The longest header that the reference package reads.
const MAX_HEADER_BYTES: u64 = 100_000_000;
const METADATA_FILE: &[u8] = b"__metadata__.json";
const TRUNCATED: &str =
    ": the file is truncated (--allow-damaged serves the tensors that are whole)";
const ALLOW_DAMAGED: &str = " (--allow-damaged serves the tensors that lie within the data)";

/// The format safetensors.
#[derive(Debug)]
pub struct Safetensors;

impl Format for Safetensors {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["safetensors"]
    }

    /// Without a magic number, a length that fits and the beginning of the JSON tell the format.
    fn detect(&self, source: &dyn Source) -> Result<Detected> {
        let reader = Reader::new(source, NAME);
        if reader.len() < LENGTH_BYTES.saturating_add(2) {
            return Ok(Detected::No);
        }
        let length = u64::from_le_bytes(reader.bytes("the header's length", 0)?);
        let start: [u8; 2] = reader.bytes("the header", LENGTH_BYTES)?;
        let is_plausible = (2..=MAX_HEADER_BYTES).contains(&length)
            && matches!(start, [b'{', b'"' | b'}' | b' ' | b'\n' | b'\t' | b'\r']);
        let is_whole = length <= reader.len().saturating_sub(LENGTH_BYTES);
        Ok(match (is_plausible, is_whole) {
            (true, true) => Detected::Yes,
            (true, false) => Detected::Perhaps,
            (false, _) => Detected::No,
        })
    }

    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
        Ok(Box::new(SafetensorsFile::open(source, options)?))
    }
}

/// An open `.safetensors` file.
struct SafetensorsFile {
    source: Arc<dyn Source>,
    /// The range of the value of `__metadata__`: sample 0, if the header has one.
    metadata: Option<Range<u64>>,
    /// The tensors, in the order of their data.
    tensors: Vec<Stored>,
    /// The offset of the data.
    data_at: u64,
    view: View,
    data_bytes: u64,
    warnings: Vec<String>,
}

/// A tensor, and how it is shown.
struct Stored {
    tensor: Tensor,
    /// Bytes of the `.npy` header before it; 0 if the stored bytes are shown.
    prefix_bytes: u32,
    damaged: bool,
}

impl Stored {
    /// The ending of its file.
    fn ending(&self, view: View) -> &'static [u8] {
        match (view, self.prefix_bytes) {
            (View::Raw, _) => b"",
            (_, 0) => b".bin",
            _ => b".npy",
        }
    }

    fn prefix(&self) -> Vec<u8> {
        match (self.prefix_bytes, self.tensor.dtype.row()) {
            (1.., Some(row)) => npy::header(row.descr, &self.tensor.shape),
            _ => Vec::new(),
        }
    }
}

impl SafetensorsFile {
    fn open(source: Arc<dyn Source>, options: &OpenOptions) -> Result<Self> {
        let reader = Reader::new(source.as_ref(), NAME);
        let (text, data_at) = read_header(reader)?;
        let Header { metadata, mut tensors } = header::read(reader, &text, LENGTH_BYTES)?;
        drop(text);
        tensors.sort_unstable_by_key(|tensor| (tensor.data, tensor.described_at));
        let mut file = Self {
            metadata,
            tensors: Vec::with_capacity(tensors.len()),
            data_at,
            view: options.view,
            data_bytes: 0,
            warnings: Vec::new(),
            source: Arc::clone(&source),
        };
        file.data_bytes = file.metadata.as_ref().map_or(0, length_of);
        let data_bytes = reader.len().saturating_sub(data_at);
        let mut end = 0;
        for tensor in tensors {
            let damaged = match check(reader, &tensor, end, data_bytes) {
                Err(error) if !options.allow_damaged => return Err(error),
                Err(error) => {
                    file.warn(error.to_string());
                    tensor.data.0 > tensor.data.1 || tensor.data.1 > data_bytes
                }
                Ok(()) => false,
            };
            end = end.max(tensor.data.1);
            file.add(tensor, damaged);
        }
        file.check_end(reader, end, data_bytes, options)?;
        file.note_types();
        Ok(file)
    }

    fn add(&mut self, tensor: Tensor, damaged: bool) {
        let size = tensor.data.1.saturating_sub(tensor.data.0);
        let row = tensor.dtype.row().filter(|row| !row.descr.is_empty());
        let is_array = self.view != View::Raw && tensor.bytes() == Some(size);
        let prefix = row.filter(|_| is_array).map(|row| npy::header(row.descr, &tensor.shape));
        let prefix_bytes = prefix.map_or(0, |prefix| u32::try_from(prefix.len()).unwrap_or(0));
        if !damaged {
            let shown = size.saturating_add(prefix_bytes.into());
            self.data_bytes = self.data_bytes.saturating_add(shown);
        }
        self.tensors.push(Stored { tensor, prefix_bytes, damaged });
    }

    /// Checks that the data end with the file.
    fn check_end(
        &mut self,
        reader: Reader<'_>,
        end: u64,
        data_bytes: u64,
        options: &OpenOptions,
    ) -> Result<()> {
        let behind = data_bytes.saturating_sub(end);
        if behind == 0 {
            return Ok(());
        }
        let at = self.data_at.saturating_add(end);
        let found = format!("{} of no tensor", counted(behind, "byte"));
        let error = reader.malformed(at, "the end of the file", found, ALLOW_DAMAGED);
        if !options.allow_damaged {
            return Err(error);
        }
        self.warn(error.to_string());
        Ok(())
    }

    /// Warns of tensors that are not shown as arrays.
    fn note_types(&mut self) {
        if self.view == View::Raw {
            return;
        }
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for stored in &self.tensors {
            let name = match stored.tensor.dtype.row() {
                Some(row) if !row.descr.is_empty() => continue,
                Some(row) => row.name,
                None => "an unknown type",
            };
            let count = counts.entry(name).or_default();
            *count = count.saturating_add(1);
        }
        for (name, count) in counts {
            let path = self.source.name();
            let text = format!(
                "{path}: {} of {name}, which NumPy does not have: shown as stored (.bin)",
                counted(count, "tensor")
            );
            self.warn(text);
        }
    }

    fn warn(&mut self, text: String) {
        const MAX_WARNINGS: usize = 16;
        match self.warnings.len() {
            0..MAX_WARNINGS => self.warnings.push(text),
            MAX_WARNINGS => {
                self.warnings.push(format!("{}: and more warnings", self.source.name()));
            }
            _ => {}
        }
    }

    /// The number of samples before the tensors.
    fn first_tensor(&self) -> u64 {
        u64::from(self.metadata.is_some())
    }

    /// A tensor by its number as a sample; `None` for the metadata, and if there is no such sample.
    fn tensor(&self, index: u64) -> Option<&Stored> {
        let place = index.checked_sub(self.first_tensor())?;
        self.tensors.get(usize::try_from(place).ok()?)
    }
}

/// Reads the header, and returns it with the offset of the data.
fn read_header(reader: Reader<'_>) -> Result<(Vec<u8>, u64)> {
    let file_bytes = reader.len();
    if file_bytes < LENGTH_BYTES {
        let found = format!("a file of {}", counted(file_bytes, "byte"));
        return Err(reader.malformed(file_bytes, "the length of a header", found, ""));
    }
    let length = u64::from_le_bytes(reader.bytes("the header's length", 0)?);
    let left = file_bytes.saturating_sub(LENGTH_BYTES);
    if length > MAX_HEADER_BYTES || length > left {
        let most = left.min(MAX_HEADER_BYTES);
        let hint = if length <= MAX_HEADER_BYTES { ": the file is truncated" } else { "" };
        let expected = format!("a header of up to {most} bytes");
        return Err(reader.malformed(0, expected, counted(length, "byte"), hint));
    }
    let mut text = vec![0; usize::try_from(length).unwrap_or(0)];
    reader.read("the header", &mut text, LENGTH_BYTES)?;
    Ok((text, LENGTH_BYTES.saturating_add(length)))
}

/// Checks a tensor as the reference package does: its data begin at `end`, where those before it end, lie in the
/// file, and are as many as its type and shape ask for.
fn check(reader: Reader<'_>, tensor: &Tensor, end: u64, data_bytes: u64) -> Result<()> {
    let (first, last) = tensor.data;
    let (at, name) = (tensor.described_at, || quoted(tensor.name.as_bytes()));
    if last > data_bytes || first > last {
        let expected = format!("{} within the {} of data", name(), counted(data_bytes, "byte"));
        let hint = if first > last { ALLOW_DAMAGED } else { TRUNCATED };
        return Err(reader.malformed(at, expected, format!("{first} to {last}"), hint));
    }
    if first != end {
        let expected = format!("the data of {} to begin at {end}", name());
        return Err(reader.malformed(at, expected, first.to_string(), ALLOW_DAMAGED));
    }
    let size = last.saturating_sub(first);
    if tensor.dtype.row().is_some() && tensor.bytes() != Some(size) {
        let bytes = tensor.bytes().map_or("whole".to_owned(), |bytes| bytes.to_string());
        let expected =
            format!("{} of {}, as its type and shape ask for", counted(bytes, "byte"), name());
        return Err(reader.malformed(at, expected, counted(size, "byte"), ALLOW_DAMAGED));
    }
    Ok(())
}

fn length_of(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

impl Container for SafetensorsFile {
    fn format(&self) -> &'static str {
        NAME
    }

    fn len(&self) -> u64 {
        self.first_tensor().saturating_add(self.tensors.len() as u64)
    }

    fn sample(&self, index: u64) -> Result<Sample> {
        if let (Some(range), 0) = (&self.metadata, index) {
            let (offset_bytes, length_bytes) = (range.start, length_of(range));
            return Ok(Sample { offset_bytes, length_bytes, ..Sample::default() });
        }
        let Some(stored) = self.tensor(index) else {
            let reader = Reader::new(self.source.as_ref(), NAME);
            let expected = format!("a sample number below {}", self.len());
            return Err(reader.malformed(0, expected, index.to_string(), ""));
        };
        let (first, last) = stored.tensor.data;
        let offset_bytes = self.data_at.saturating_add(first);
        let length_bytes = last.saturating_sub(first);
        if stored.damaged {
            let length_bytes = length_bytes.clamp(1, self.source.len().max(1));
            return Ok(Sample { offset_bytes, length_bytes, damaged: true, ..Sample::default() });
        }
        let content = match stored.prefix_bytes {
            0 => Content::Stored,
            bytes => Content::Prefixed(bytes),
        };
        Ok(Sample { offset_bytes, length_bytes, content, ..Sample::default() })
    }

    fn check_unchanged(&self) -> std::io::Result<()> {
        self.source.check_unchanged()
    }

    fn index_is_fixed(&self) -> bool {
        true
    }

    fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    fn prefix(&self, index: u64) -> Result<Vec<u8>> {
        Ok(self.tensor(index).map(Stored::prefix).unwrap_or_default())
    }

    fn members(&self, visit: &mut dyn FnMut(Member) -> Result<()>) -> Result<()> {
        if self.metadata.is_some() {
            visit(Member { path: METADATA_FILE, node: Node::Sample(0) })?;
        }
        for (stored, number) in self.tensors.iter().zip(self.first_tensor()..) {
            let path = [stored.tensor.name.as_bytes(), stored.ending(self.view)].concat();
            visit(Member { path: &path, node: Node::Sample(number) })?;
        }
        Ok(())
    }

    fn names(&self, _samples: u64) -> Result<Names> {
        Ok(Names::Members)
    }

    fn index_checksum(&self) -> IndexChecksum {
        IndexChecksum::None
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
