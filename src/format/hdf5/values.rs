//! Values that do not lie with their dataset's elements but in global heaps; and text.
//!
//! ```text
//! element     u32 items | heap | u32 number in it
//! heap        "GCOL" | u8 1 | 3 × u8 | length | objects: u16 number | u16 references | u32 | length | bytes | pad to 8
//! ```
//!
//! Imports the input, datasets and datatypes, and endings and JSON of this room.

use super::super::json::{text_bytes, write_text};
use super::super::{Error, Result, ending, magic};
use super::dataset::{Refusal, unsupported};
use super::datatype::Padding;
use super::input::{Input, number};
use std::collections::HashMap;

/// Bytes that are read at a time to find a heap's objects.
const WINDOW_BYTES: u64 = 4096;
/// The length of the shortest heap that the library makes; shorter ones pass if they hold their own head.
const MIN_HEAP_BYTES: u64 = 4096;
/// The cost of a heap besides its bytes, as it takes memory; no heap of a file is shorter than this.
const HEAP_COST: u64 = 64;
/// The most bytes of a value without a magic number that is read to see whether it is text.
const MAX_TEXT_BYTES: u64 = 1 << 20;
/// The most bytes of text that are kept in memory: the JSON of a file, and fixed strings in chunks.
pub(super) const MAX_JSON_BYTES: usize = 128 << 20;

/// A value in the file: 16 bytes in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) at: u64,
    pub(super) bytes: u32,
    /// The code of its ending.
    pub(super) ending: u8,
    pub(super) is_damaged: bool,
}

type Objects = HashMap<u32, (u64, u64)>;

/// The global heaps of a file. Each is read once, also a heap that cannot be read, to which many values may refer.
pub(super) struct Heaps<'a> {
    input: &'a Input<'a>,
    /// The objects of each heap, by its address; `None` if the heap cannot be read.
    seen: HashMap<u64, Option<Objects>>,
}

impl<'a> Heaps<'a> {
    pub(super) fn new(input: &'a Input<'a>) -> Self {
        Self { input, seen: HashMap::new() }
    }

    /// Bytes of an element that refers to a value.
    pub(super) fn element_bytes(&self) -> usize {
        self.input.address_bytes.saturating_add(8)
    }

    /// The offset and the length of the value that an element refers to, with items of `item` bytes. `Ok(None)` if the
    /// value is not where it should be.
    pub(super) fn value(&mut self, element: &[u8], item: u32) -> Result<Option<(u64, u32)>> {
        let end = self.input.address_bytes.saturating_add(4);
        let items = number(element.get(..4).unwrap_or_default());
        let address = number(element.get(4..end).unwrap_or_default());
        let object = number(element.get(end..).unwrap_or_default());
        let Some(bytes) =
            items.checked_mul(item.into()).and_then(|bytes| u32::try_from(bytes).ok())
        else {
            return Ok(None);
        };
        if bytes == 0 {
            return Ok(Some((self.input.base, 0)));
        }
        let input = self.input;
        let Some(objects) = self.objects(address)? else {
            let at = input.base.saturating_add(address);
            return Err(input.reader.malformed(at, "a global heap", "one that cannot be read", ""));
        };
        let found = u32::try_from(object).ok().and_then(|object| objects.get(&object));
        Ok(found.filter(|(_, length)| u64::from(bytes) <= *length).map(|(at, _)| (*at, bytes)))
    }

    /// The objects of a heap. `Ok(None)` if an earlier call found that the heap cannot be read.
    fn objects(&mut self, address: u64) -> Result<Option<&Objects>> {
        if !self.seen.contains_key(&address) {
            // A heap outside the file is not remembered: it costs no read.
            let at = self.input.place("a global heap", address, self.head_bytes())?;
            self.input.charge(at, HEAP_COST)?;
            let objects = match self.read(address) {
                Err(error @ Error::Malformed { .. }) => {
                    self.seen.insert(address, None);
                    return Err(error);
                }
                objects => objects?,
            };
            self.seen.insert(address, Some(objects));
        }
        Ok(self.seen.get(&address).and_then(Option::as_ref))
    }

    /// Bytes of the head of a heap, and of the head of an object in it.
    fn head_bytes(&self) -> u64 {
        (self.input.length_bytes as u64).saturating_add(8).next_multiple_of(8)
    }

    /// Reads the objects of a heap: the offset of each in the file, and its length.
    fn read(&self, address: u64) -> Result<Objects> {
        let input = self.input;
        let head_bytes = self.head_bytes();
        let head = input.block("a global heap", address, head_bytes)?;
        let mut fields = input.fields(&head);
        fields.mark(b"GCOL", 1)?;
        fields.take(3)?;
        let before = fields.clone();
        let length = fields.length()?;
        if length < MIN_HEAP_BYTES.min(head_bytes) {
            return Err(before.wrong("the length of a global heap", length.to_string()));
        }
        input.place("a global heap", address, length)?;
        let end = address.saturating_add(length);
        let mut objects = Objects::new();
        let mut at = address.saturating_add(head_bytes);
        while at.saturating_add(head_bytes) <= end {
            let window = input.block(
                "objects of a global heap",
                at,
                end.saturating_sub(at).min(WINDOW_BYTES),
            )?;
            let start = at;
            while let Some(place) = at.checked_sub(start)
                && place.saturating_add(head_bytes) <= window.bytes.len() as u64
            {
                let place = usize::try_from(place).unwrap_or(usize::MAX);
                let bytes = window.bytes.get(place..).unwrap_or_default();
                let mut fields = input.fields_at(bytes, window.at.saturating_add(place as u64));
                let object = fields.u16()?;
                fields.take(6)?;
                let length = fields.length()?;
                let data = at.saturating_add(head_bytes);
                // Free space ends a heap.
                if object == 0 {
                    return Ok(objects);
                }
                if length > end.saturating_sub(data) {
                    let found = length.to_string();
                    return Err(fields.wrong("an object within its global heap", found));
                }
                objects.insert(object.into(), (input.base.saturating_add(data), length));
                at = data.saturating_add(length.div_ceil(8).saturating_mul(8));
            }
        }
        Ok(objects)
    }
}

/// The code of the ending of a value in the file. The bytes that are read for it are taken from `left`; once that is used
/// up, values are not looked at.
pub(super) fn ending_at(input: &Input<'_>, at: u64, bytes: u32, left: &mut u64) -> Result<u8> {
    let mut take = |bytes: usize| {
        let rest = left.checked_sub(bytes as u64);
        *left = rest.unwrap_or(0);
        rest.is_some()
    };
    let mut head = vec![0; (bytes as usize).min(magic::HEAD_BYTES)];
    if !take(head.len()) {
        return Ok(ending::BIN);
    }
    input.reader.read("a value", &mut head, at)?;
    if let Some(code) = ending::code_of_head(&head, bytes.into()) {
        return Ok(code);
    }
    if u64::from(bytes) > MAX_TEXT_BYTES || !take(bytes as usize) {
        return Ok(ending::BIN);
    }
    let mut value = vec![0; bytes as usize];
    input.reader.read("a value", &mut value, at)?;
    Ok(ending::code_of(&value))
}

/// A fixed string without its padding.
pub(super) fn trimmed(text: &[u8], padding: Padding) -> &[u8] {
    let last =
        |fill: u8| text.iter().rposition(|byte| *byte != fill).map_or(0, |at| at.saturating_add(1));
    let length = match padding {
        Padding::Terminated => text.iter().position(|byte| *byte == 0).unwrap_or(text.len()),
        Padding::Nulls => last(0),
        Padding::Spaces => last(b' '),
    };
    text.get(..length).unwrap_or(text)
}

/// The values of fixed strings that begin at byte `at` of the file.
pub(super) fn fixed_values(
    elements: &[u8],
    size: usize,
    (at, padding): (u64, Padding),
) -> Vec<Value> {
    let each = elements.chunks_exact(size.max(1)).zip(0_u64..);
    each.map(|(element, number)| Value {
        at: at.saturating_add(number.saturating_mul(size as u64)),
        bytes: u32::try_from(trimmed(element, padding).len()).unwrap_or(u32::MAX),
        ending: ending::code(".txt"),
        is_damaged: false,
    })
    .collect()
}

/// Texts one behind the other.
#[derive(Debug, Default)]
pub(super) struct Texts {
    text: Vec<u8>,
    ends: Vec<u32>,
}

impl Texts {
    /// The texts of fixed strings of `size` bytes. `None` if they have 4 GiB or more.
    pub(super) fn of(elements: &[u8], size: usize, padding: Padding) -> Option<Self> {
        let mut texts = Texts::default();
        for element in elements.chunks_exact(size.max(1)) {
            texts.text.extend_from_slice(trimmed(element, padding));
            texts.ends.push(u32::try_from(texts.text.len()).ok()?);
        }
        Some(texts)
    }

    pub(super) fn count(&self) -> u64 {
        self.ends.len() as u64
    }

    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    pub(super) fn get(&self, number: u64) -> &[u8] {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let end = self.ends.get(number).map_or(0, |end| *end as usize);
        let before = number.checked_sub(1).and_then(|before| self.ends.get(before));
        self.text.get(before.map_or(0, |start| *start as usize)..end).unwrap_or_default()
    }
}

/// JSON of an array of this shape, as lists of lists: of `count` texts, which `text` gives by their number. `None` if the
/// JSON has more than `most` bytes.
pub(super) fn json<E>(
    shape: &[u64],
    count: u64,
    most: usize,
    text: &mut dyn FnMut(u64) -> Result<Vec<u8>, E>,
) -> Result<Option<Vec<u8>>, E> {
    let mut out = Vec::new();
    // Each list of a dimension without elements is empty.
    let empty = shape.iter().position(|length| *length == 0);
    let shape = shape.get(..empty.unwrap_or(shape.len())).unwrap_or_default();
    // The numbers of elements after which a list of each level ends.
    let mut steps = Vec::new();
    let mut step = 1_u64;
    for length in shape.iter().rev() {
        step = step.saturating_mul(*length);
        steps.push(step);
    }
    let count = if empty.is_some() { step } else { count };
    for number in 0..count {
        let is_at = |at: u64| move |step: &&u64| at.is_multiple_of(**step);
        if number > 0 {
            out.push(b',');
        }
        out.extend(steps.iter().filter(is_at(number)).map(|_| b'['));
        let text = if empty.is_none() { text(number)? } else { Vec::new() };
        if out.len().saturating_add(text_bytes(&text)) > most {
            return Ok(None);
        }
        match empty {
            Some(_) => out.extend_from_slice(b"[]"),
            None => write_text(&mut out, &text),
        }
        out.extend(steps.iter().filter(is_at(number.saturating_add(1))).map(|_| b']'));
    }
    Ok(Some(out))
}

pub(super) fn too_much_json() -> String {
    format!("the JSON of a file has {} MiB at most", MAX_JSON_BYTES >> 20)
}

/// Reads the text of up to `most` bytes that an element refers to.
pub(super) fn far_text(
    input: &Input<'_>,
    heaps: &mut Heaps<'_>,
    element: &[u8],
    most: usize,
) -> Result<Vec<u8>, Refusal> {
    let Some((at, bytes)) = heaps.value(element, 1)? else {
        return unsupported("a text is not where it should be");
    };
    if bytes as usize > most {
        return unsupported(too_much_json());
    }
    let mut text = vec![0; bytes as usize];
    input.reader.read("a text", &mut text, at)?;
    Ok(text)
}
