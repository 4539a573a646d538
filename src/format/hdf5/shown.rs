//! How datasets are shown: arrays, rows, values, text.
//!
//! Imports all of this directory but the walk over groups.

use super::super::{Result, ending, npy};
use super::bands::Data;
use super::chunked::Chunked;
use super::dataset::{Dataset, Layout, Refusal, unsupported};
use super::datatype::{Datatype, Kind, MAX_DIMENSIONS, Padding};
use super::input::Input;
use super::notes::Notes;
use super::object::Message;
use super::padded;
use super::table;
use super::values::{
    Heaps, MAX_JSON_BYTES, Texts, Value, ending_at, far_text, fixed_values, json, too_much_json,
    trimmed,
};
use crate::format::counted;
use crate::format::{OpenOptions, View, quoted};

/// The most bytes of a dataset's elements that are read when a file is opened: text, and references to values.
const MAX_ELEMENT_BYTES: u64 = 256 << 20;
/// The most bytes of the elements of all datasets that are read when a file is opened, besides twice the file's length.
const MAX_ALL_ELEMENT_BYTES: u64 = 4 * MAX_ELEMENT_BYTES;
/// The most bytes of values that are read to recognise them, besides twice the file's length.
const FREE_LOOK_BYTES: u64 = 16 << 20;
/// The number of values that are shown as files in any file, and the bytes of the file for which there may be one more: a
/// value lies in a heap behind 16 bytes. Empty values take no bytes there, but memory here.
const FREE_VALUES: u64 = 1 << 20;
const VALUE_BYTES: u64 = 16;
/// Bytes of a band of elements that were never written.
const BAND_BYTES: u64 = 1 << 20;

/// The content of a dataset's samples.
#[derive(Debug)]
pub(super) enum Content {
    /// Ranges of the file, one behind the other, each shown behind a prefix.
    Plain {
        at: u64,
        bytes: u64,
        prefix: Box<[u8]>,
    },
    /// Ranges of a dataset in chunks, by its number among those of the file.
    Chunked {
        number: usize,
        bytes: u64,
        prefix: Box<[u8]>,
    },
    /// Values with places of their own; shown as arrays of elements of this type and size, if `item` is given.
    Values {
        values: Vec<Value>,
        item: Option<(Box<str>, u32)>,
    },
    Text(Box<[u8]>),
    /// Text of each row, which was decoded when the file was opened.
    Texts(Texts),
    /// Samples that cannot be read.
    Damaged {
        bytes: u64,
    },
}

/// A dataset's samples.
#[derive(Debug)]
pub(super) struct Shown {
    /// The number of the first sample.
    pub(super) first: u64,
    pub(super) count: u64,
    /// Whether the samples lie in a directory of their own.
    pub(super) is_directory: bool,
    /// The ending of each file, unless a value has its own.
    pub(super) ending: &'static str,
    pub(super) content: Content,
}

/// Collects the datasets of a file and their samples.
pub(super) struct Builder<'a> {
    input: &'a Input<'a>,
    options: &'a OpenOptions,
    heaps: Heaps<'a>,
    pub(super) shown: Vec<Shown>,
    pub(super) chunked: Vec<Chunked>,
    pub(super) notes: Notes,
    pub(super) samples: u64,
    pub(super) data_bytes: u64,
    json_left: usize,
    /// Bytes of elements that may still be read.
    elements_left: u64,
    /// Bytes of chunks that may still be decoded to read elements: a chunk may have far more bytes than its dataset.
    decoded_left: u64,
    /// Bytes of values that may still be read to recognise them.
    looks_left: u64,
    /// Rows that may still be shown as files.
    rows_left: u64,
    /// Values of variable length that may still be shown as files.
    values_left: u64,
}

impl<'a> Builder<'a> {
    pub(super) fn new(input: &'a Input<'a>, options: &'a OpenOptions) -> Self {
        let length = input.reader.len();
        let twice = length.saturating_mul(2);
        Self {
            input,
            options,
            heaps: Heaps::new(input),
            shown: Vec::new(),
            chunked: Vec::new(),
            notes: Notes::default(),
            samples: 0,
            data_bytes: 0,
            json_left: MAX_JSON_BYTES,
            elements_left: twice.saturating_add(MAX_ALL_ELEMENT_BYTES),
            decoded_left: input.most_decoded(),
            looks_left: twice.saturating_add(FREE_LOOK_BYTES),
            rows_left: length,
            values_left: (length / VALUE_BYTES).saturating_add(FREE_VALUES),
        }
    }

    /// Adds the dataset with the path `name`; returns its number, if it is shown.
    pub(super) fn add(&mut self, name: &[u8], messages: &[Message]) -> Result<Option<u32>> {
        let shown = match Dataset::read(self.input, messages) {
            Ok(dataset) => {
                let added = self.dataset(name, &dataset);
                added.map(|()| self.note_type(name, &dataset))
            }
            Err(refusal) => Err(refusal),
        };
        match shown {
            Ok(()) => (),
            Err(Refusal::Malformed(error)) if !self.options.allow_damaged => return Err(error),
            Err(Refusal::Malformed(error)) => {
                self.notes.add(|| format!("{} is left out: {error}", quoted(name)));
                return Ok(None);
            }
            Err(Refusal::Unsupported(why)) => {
                self.notes.add(|| format!("{} is left out: {why}", quoted(name)));
                return Ok(None);
            }
        }
        Ok(u32::try_from(self.shown.len()).ok().and_then(|count| count.checked_sub(1)))
    }

    fn push(&mut self, count: u64, size: u64, shown: (bool, &'static str), content: Content) {
        let (is_directory, ending) = shown;
        self.shown.push(Shown { first: self.samples, count, is_directory, ending, content });
        self.samples = self.samples.saturating_add(count);
        self.data_bytes = self.data_bytes.saturating_add(size);
    }

    /// Notes that the dataset just added is shown as bytes, if NumPy has no type for it and it can be read.
    fn note_type(&mut self, name: &[u8], dataset: &Dataset) {
        let is_damaged = |shown: &Shown| matches!(shown.content, Content::Damaged { .. });
        let is_shown = self.options.view != View::Raw && !self.shown.last().is_none_or(is_damaged);
        let Some(what) = dataset.datatype.unknown().filter(|_| is_shown) else { return };
        let shown = "for which NumPy has no type: they are shown as bytes (|V)";
        self.notes.add(|| format!("{} has {what}, {shown}", quoted(name)));
    }

    fn dataset(&mut self, name: &[u8], dataset: &Dataset) -> Result<(), Refusal> {
        match &dataset.datatype.kind {
            Kind::Text(padding) => return self.texts(name, dataset, Some(*padding)),
            Kind::FarText => return self.texts(name, dataset, None),
            Kind::Sequence(of) => return self.sequences(dataset, of),
            _ => (),
        }
        let Some((descr, inner)) = dataset.datatype.descr() else {
            return unsupported("values of variable length lie within its elements");
        };
        if dataset.shape.len().saturating_add(inner.len()) > MAX_DIMENSIONS {
            return unsupported("it has more than 64 dimensions");
        }
        self.numbers(name, dataset, &descr, &inner)
    }

    /// Adds arrays: one file, or one for each row.
    fn numbers(
        &mut self,
        name: &[u8],
        dataset: &Dataset,
        descr: &str,
        inner: &[u64],
    ) -> Result<(), Refusal> {
        let all = dataset.bytes().unwrap_or(0);
        let rows = dataset.shape.first().copied().filter(|rows| self.take_rows(*rows));
        let bytes = match rows {
            Some(rows) => all.checked_div(rows).unwrap_or(0),
            None => all,
        };
        let outer = dataset.shape.get(usize::from(rows.is_some())..).unwrap_or_default();
        let (prefix, ending) = match self.options.view {
            View::Raw => (Box::default(), ""),
            _ => (npy::literal_header(descr, &[outer, inner].concat()).into_boxed_slice(), ".npy"),
        };
        let count = rows.unwrap_or(1);
        let size = bytes.saturating_add(prefix.len() as u64).saturating_mul(count);
        let shown = (rows.is_some(), ending);
        let data = self.data(dataset);
        match data.and_then(|data| data.without_padding(dataset, self.options.view)) {
            Ok(Data::At(at)) => {
                self.push(count, size, shown, Content::Plain { at, bytes, prefix });
            }
            Ok(Data::Chunked(chunked)) => {
                let number = self.chunks(*chunked);
                self.push(count, size, shown, Content::Chunked { number, bytes, prefix });
            }
            Err(Refusal::Unsupported(why)) => self.damaged(name, (count, bytes), shown, &why),
            Err(Refusal::Malformed(error)) if self.options.allow_damaged => {
                self.damaged(name, (count, bytes), shown, &error.to_string());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether a dataset is shown by its rows: an entry of a directory takes memory, so rows that could not all be stored
    /// have no entries.
    fn take_rows(&mut self, rows: u64) -> bool {
        let left = self.rows_left.checked_sub(rows).filter(|_| self.options.rows);
        self.rows_left = left.unwrap_or(self.rows_left);
        left.is_some()
    }

    fn damaged(
        &mut self,
        name: &[u8],
        (count, bytes): (u64, u64),
        shown: (bool, &'static str),
        why: &str,
    ) {
        self.notes.add(|| format!("{} cannot be read: {why}", quoted(name)));
        self.push(count, 0, shown, Content::Damaged { bytes });
    }

    /// Takes a dataset in chunks; returns its number among them.
    fn chunks(&mut self, mut chunked: Chunked) -> usize {
        if let Some(last) = self.chunked.last() {
            let (intervals, decoded) = last.intervals();
            chunked.first = last.first.saturating_add(intervals);
            chunked.base = last.base.saturating_add(decoded);
        }
        self.chunked.push(chunked);
        self.chunked.len().saturating_sub(1)
    }

    /// Finds the place of a dataset's elements.
    fn data(&self, dataset: &Dataset) -> Result<Data, Refusal> {
        if !dataset.is_countable() {
            return unsupported("it has 2⁶³ bytes of elements or more");
        }
        let all = dataset.bytes().unwrap_or(0);
        let chunked = match &dataset.layout {
            Layout::InHeader(at, length) if *length >= all => return Ok(Data::At(*at)),
            Layout::InHeader(at, length) => {
                let found = counted(length, "byte");
                let expected = format!("a compact dataset of {}", counted(all, "byte"));
                return Err(self.input.reader.malformed(*at, expected, found, "").into());
            }
            Layout::Contiguous(Some(address), _) => {
                return Ok(Data::At(self.input.place("a dataset", *address, all)?));
            }
            _ if all == 0 => return Ok(Data::At(self.input.base)),
            Layout::Contiguous(None, _) => {
                let mut chunk = dataset.shape.clone();
                let rows = chunk.first().copied().unwrap_or(1);
                let row = all.checked_div(rows).unwrap_or(0).max(1);
                let band = BAND_BYTES.checked_div(row).unwrap_or(0).clamp(1, rows);
                match chunk.first_mut() {
                    Some(first) => *first = band,
                    None => chunk.push(1),
                }
                if row > table::MAX_CHUNK_BYTES && !dataset.fill.is_empty() {
                    return unsupported("a row of fill values is too long");
                }
                Chunked::new(dataset, chunk, Vec::new())
            }
            Layout::Chunked(layout) => {
                if let Some(missing) = dataset.filters.iter().find_map(|filter| filter.missing()) {
                    return unsupported(format!("it needs {missing}"));
                }
                let damaged = self.options.allow_damaged;
                let table = table::read(self.input, dataset, layout, damaged)?;
                Chunked::new(dataset, layout.chunk.clone(), table)
            }
        };
        if chunked.bytes().max(chunked.made_bytes()) > self.input.most_decoded() {
            return unsupported("it would be more than a thousand times as long as the file");
        }
        Ok(Data::Chunked(Box::new(chunked)))
    }

    /// Reads all elements of a dataset of text or references, and finds their offset if they lie in the file as they are.
    fn elements(&mut self, dataset: &Dataset) -> Result<(Vec<u8>, Option<u64>), Refusal> {
        let all = dataset.bytes().unwrap_or(u64::MAX);
        if all > MAX_ELEMENT_BYTES {
            return unsupported(format!(
                "it has more than {} of text, or of references to values",
                counted(MAX_ELEMENT_BYTES, "byte")
            ));
        }
        let Some(left) = self.elements_left.checked_sub(all) else {
            return unsupported("the file has too much text, or too many references to values");
        };
        self.elements_left = left;
        let data = self.data(dataset)?;
        let mut out = vec![0; usize::try_from(all).unwrap_or(0)];
        match data {
            Data::At(at) => {
                self.input.reader.read("elements", &mut out, at)?;
                Ok((out, Some(at)))
            }
            Data::Chunked(chunked) => {
                let Some(left) = self.decoded_left.checked_sub(chunked.made_bytes()) else {
                    return unsupported(
                        "the chunks of the file's texts and references decode to too much",
                    );
                };
                self.decoded_left = left;
                let read = chunked.read(0, &mut out, &mut |range| {
                    let length = range.end.saturating_sub(range.start);
                    let mut stored = vec![0; usize::try_from(length).unwrap_or(0)];
                    let read = self.input.reader.read("a chunk", &mut stored, range.start);
                    read.map(|()| stored).map_err(|error| error.to_string())
                });
                read.or_else(|fault| unsupported(fault.to_string()))?;
                Ok((out, None))
            }
        }
    }

    /// Adds text: one file, one for each row, or JSON of all.
    fn texts(
        &mut self,
        name: &[u8],
        dataset: &Dataset,
        padding: Option<Padding>,
    ) -> Result<(), Refusal> {
        let (elements, place) = match self.elements(dataset) {
            Ok(elements) => elements,
            Err(Refusal::Unsupported(why)) => {
                let ending = if dataset.shape.is_empty() { ".txt" } else { ".json" };
                self.damaged(name, (1, 1), (false, ending), &why);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let size = dataset.datatype.bytes as usize;
        let is_directory = match dataset.shape[..] {
            [rows] => self.take_rows(rows),
            _ => false,
        };
        if is_directory || dataset.shape.is_empty() {
            let files = self.text_files(&elements, size, padding, place)?;
            if let Some((count, bytes, content)) = files {
                self.push(count, bytes, (is_directory, ".txt"), content);
                return Ok(());
            }
        }
        let most = self.json_left;
        let mut text = |number: u64| -> Result<Vec<u8>, Refusal> {
            let start = usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(size);
            let element = elements.get(start..start.saturating_add(size)).unwrap_or_default();
            match padding {
                Some(padding) => Ok(trimmed(element, padding).to_vec()),
                None => far_text(self.input, &mut self.heaps, element, most),
            }
        };
        if dataset.shape.is_empty() {
            let text = text(0)?;
            self.push(1, text.len() as u64, (false, ".txt"), Content::Text(text.into()));
            return Ok(());
        }
        match json(&dataset.shape, dataset.elements(), self.json_left, &mut text) {
            Ok(Some(text)) => {
                self.json_left = self.json_left.saturating_sub(text.len());
                self.push(1, text.len() as u64, (false, ".json"), Content::Text(text.into()));
            }
            Ok(None) => {
                // Half of the room remains, so that many such datasets take no longer than two, and a short one behind
                // them is shown.
                self.json_left >>= 1;
                self.damaged(name, (1, 1), (false, ".json"), &too_much_json());
            }
            Err(Refusal::Unsupported(why)) => self.damaged(name, (1, 1), (false, ".json"), &why),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Makes a file of each text: returns their number, their bytes and their content. `None` if there is too much text.
    fn text_files(
        &mut self,
        elements: &[u8],
        size: usize,
        padding: Option<Padding>,
        place: Option<u64>,
    ) -> Result<Option<(u64, u64, Content)>, Refusal> {
        let values = match (padding, place) {
            (None, _) => self.far_values(elements, 1, Some(".txt"))?,
            (Some(padding), Some(at)) => fixed_values(elements, size, (at, padding)),
            (Some(padding), None) => return Ok(self.decoded_texts(elements, size, padding)),
        };
        let bytes = values.iter().map(|value| u64::from(value.bytes)).sum();
        Ok(Some((values.len() as u64, bytes, Content::Values { values, item: None })))
    }

    /// Makes files of fixed strings in chunks, which do not lie in the file as they are.
    fn decoded_texts(
        &mut self,
        elements: &[u8],
        size: usize,
        padding: Padding,
    ) -> Option<(u64, u64, Content)> {
        let texts = Texts::of(elements, size, padding)?;
        self.json_left = self.json_left.checked_sub(texts.bytes())?;
        let (count, bytes) = (texts.count(), texts.bytes() as u64);
        Some((count, bytes, Content::Texts(texts)))
    }

    /// Adds values of variable length: a directory of them.
    fn sequences(&mut self, dataset: &Dataset, of: &Datatype) -> Result<(), Refusal> {
        let Some((descr, _)) = of.descr().filter(|(_, inner)| inner.is_empty()) else {
            return unsupported("values of variable length lie within its values");
        };
        if dataset.shape.len() > 1 {
            return unsupported("values of variable length in more than one dimension");
        }
        if self.options.view != View::Raw && !padded::Texts::of(of).is_empty() {
            return unsupported(
                "text that may be padded lies within its values of variable length (--view raw shows it)",
            );
        }
        let count = if dataset.bytes() == Some(0) { 0 } else { dataset.elements() };
        let Some(left) = self.values_left.checked_sub(count) else {
            return unsupported(format!("it has {} for so short a file", counted(count, "value")));
        };
        self.values_left = left;
        let (elements, _) = self.elements(dataset)?;
        let is_bytes = descr == "'|u1'";
        let values = self.far_values(&elements, of.bytes, (!is_bytes).then_some(".npy"))?;
        let item = (!is_bytes).then(|| (Box::from(&descr[..]), of.bytes));
        let header = if is_bytes { 0 } else { npy::literal_header(&descr, &[0]).len() as u64 };
        let bytes = values
            .iter()
            .filter(|value| !value.is_damaged)
            .map(|value| header.saturating_add(value.bytes.into()))
            .sum();
        let count = values.len() as u64;
        let is_directory = !dataset.shape.is_empty();
        self.push(count, bytes, (is_directory, ""), Content::Values { values, item });
        Ok(())
    }

    fn far_values(
        &mut self,
        elements: &[u8],
        item: u32,
        ending: Option<&'static str>,
    ) -> Result<Vec<Value>, Refusal> {
        let each = self.heaps.element_bytes();
        let mut values = Vec::new();
        for element in elements.chunks_exact(each) {
            let value = match self.heaps.value(element, item) {
                Ok(Some((at, bytes))) => {
                    let ending = match ending {
                        Some(ending) => ending::code(ending),
                        None => ending_at(self.input, at, bytes, &mut self.looks_left)?,
                    };
                    Value { at, bytes, ending, is_damaged: false }
                }
                // Only this value is wrong: the others can be read.
                Ok(None) | Err(super::super::Error::Malformed { .. }) => {
                    let ending = ending::code(ending.unwrap_or(".bin"));
                    Value { at: self.input.base, bytes: 1, ending, is_damaged: true }
                }
                Err(error) => return Err(error.into()),
            };
            values.push(value);
        }
        Ok(values)
    }
}
