//! A record that is a `tf.Example` or a `tf.SequenceExample` → its files. Any other record has no files here.
//!
//! ```text
//! Example { Features 1 }    SequenceExample { Features context 1, FeatureLists 2 }
//! Features, FeatureLists { map<string, …> 1 }    FeatureList { repeated Feature 1 }
//! Feature { one of: BytesList 1, FloatList 2, Int64List 3 }    each list { repeated value 1 }, numbers packed or not
//! ```
//! Imports `wire`, and `records` of this room.

use super::TfRecord;
use super::wire::{Message, NoMessage, Value};
use crate::format::checksum::Hasher;
use crate::format::records::{Builder, Record, Row, Shown};
use crate::format::{ChecksumKind, ending, npy};
use std::collections::{HashMap, HashSet};

/// The fewest bytes of a container for each file, on average; a record with too many files is one file.
const BYTES_A_FILE: u64 = 8;
/// The most keys of a map in which a key stands twice; a record with more is one file.
const MAX_KEYS_BESIDE_ONE_TWICE: usize = 1 << 16;

/// Parses records.
pub(super) struct Parser<'a> {
    /// The offset of the record's data in the container.
    pub(super) at: u64,
    pub(super) builder: &'a mut Builder<TfRecord>,
    /// The files that were found.
    pub(super) record: &'a mut Record<TfRecord>,
    /// Memory to decode numbers in.
    pub(super) values: &'a mut Vec<u8>,
    /// The end of the record, up to which the container was read.
    pub(super) end: u64,
}

impl Parser<'_> {
    /// Adds the files of a record; false if it is not an example, or an example without features.
    pub(super) fn parse(&mut self, data: &[u8]) -> bool {
        self.record.clear();
        let is_example = self.example(Message::new(data)).is_ok() && !self.record.is_empty();
        if !is_example {
            self.record.clear();
        }
        is_example
    }

    fn example(&mut self, message: Message) -> Result<(), NoMessage> {
        let mut fields = message;
        let mut is_sequence = false;
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1 | 2, Value::Bytes(_)) => is_sequence |= number == 2,
                _ => return Err(NoMessage),
            }
        }
        let above: &[&[u8]] = if is_sequence { &[b"context"] } else { &[] };
        self.map(message, 1, &mut |parser, key, feature| {
            parser.feature(feature, &[above, &[key]].concat())
        })?;
        self.map(message, 2, &mut Self::list)
    }

    /// Adds the steps of a sequence.
    fn list(&mut self, key: &[u8], mut list: Message) -> Result<(), NoMessage> {
        let mut number = 0_u64;
        while let Some(feature) = field_1(&mut list)? {
            let step = format!("{number:06}");
            self.feature(feature, &[b"sequence", key, step.as_bytes()])?;
            number = number.saturating_add(1);
        }
        if number == 0 {
            self.check_room()?;
            self.record.directory(&[b"sequence", key]);
        }
        Ok(())
    }

    /// Visits the entries of a map, which is the field `field` of a record, or several such fields. Of several entries with one
    /// key the last one counts, as in protocol buffers.
    fn map<'a>(
        &mut self,
        record: Message<'a>,
        field: u64,
        visit: &mut Visit<'_, 'a, Self>,
    ) -> Result<(), NoMessage> {
        let before = self.record.mark();
        let (mut entries, mut keys) = (Entries::new(record, field), Keys::default());
        while let Some((key, value)) = entries.next()? {
            if !keys.insert(key) {
                // No writer has such a map: its entries are read again.
                self.record.cut(&before);
                return self.last_ones(record, field, visit);
            }
            visit(self, key, value)?;
        }
        Ok(())
    }

    /// As `map`, for a record in which a key stands twice.
    fn last_ones<'a>(
        &mut self,
        record: Message<'a>,
        field: u64,
        visit: &mut Visit<'_, 'a, Self>,
    ) -> Result<(), NoMessage> {
        let (mut entries, mut last) = (Entries::new(record, field), HashMap::new());
        while let Some((key, _)) = entries.next()? {
            last.insert(key, entries.count);
            if last.len() > MAX_KEYS_BESIDE_ONE_TWICE {
                return Err(NoMessage);
            }
        }
        let mut entries = Entries::new(record, field);
        while let Some((key, value)) = entries.next()? {
            if last.get(key) == Some(&entries.count) {
                visit(self, key, value)?;
            }
        }
        Ok(())
    }

    fn feature(&mut self, feature: Message, name: &[&[u8]]) -> Result<(), NoMessage> {
        self.check_room()?;
        match List::of(feature)? {
            Some((1, list)) => self.bytes(list, name),
            Some((2, list)) => self.floats(list, name),
            Some((_, list)) => self.integers(list, name),
            // A feature of no kind has no values.
            None => {
                self.record.directory(name);
                Ok(())
            }
        }
    }

    fn bytes(&mut self, list: List, name: &[&[u8]]) -> Result<(), NoMessage> {
        let mut count = 0_u64;
        list.each_part(&mut |mut values| {
            while field_1(&mut values)?.is_some() {
                count = count.saturating_add(1);
            }
            Ok(())
        })?;
        let mut number = 0_u64;
        list.each_part(&mut |mut values| {
            while let Some(value) = field_1(&mut values)? {
                self.check_room()?;
                let (at, length) = (self.place(value), value.bytes.len() as u64);
                let mut row = Row::stored(at, length, ending::code_of(value.bytes));
                row.checksum = Some(ChecksumKind::Crc32c.of(value.bytes));
                match count {
                    1 => self.record.file(name, row),
                    _ => self.record.file(&[name, &[number.to_string().as_bytes()]].concat(), row),
                }
                number = number.saturating_add(1);
            }
            Ok(())
        })?;
        if count == 0 {
            self.record.directory(name);
        }
        Ok(())
    }

    fn floats(&mut self, list: List, name: &[&[u8]]) -> Result<(), NoMessage> {
        self.values.clear();
        // Floats that are packed in one run are served in place.
        let mut run = list.message;
        let is_run = !list.is_in_parts
            && match run.next()? {
                None => true,
                Some((1, Value::Bytes(packed))) if run.bytes.is_empty() => {
                    run = packed;
                    packed.bytes.len().is_multiple_of(4)
                }
                _ => false,
            };
        if is_run {
            return self.array(run, name, "<f4", 4);
        }
        list.each_part(&mut |part| decode_floats(part, self.values))?;
        self.encoded(list.message, name, Shown::Floats, 4)
    }

    fn integers(&mut self, list: List, name: &[&[u8]]) -> Result<(), NoMessage> {
        self.values.clear();
        list.each_part(&mut |part| decode_integers(part, self.values))?;
        match self.values.is_empty() {
            true => self.array(Message { bytes: &[], ..list.message }, name, "<i8", 8),
            false => self.encoded(list.message, name, Shown::Integers, 8),
        }
    }

    /// Adds a list whose elements are stored as they are.
    fn array(
        &mut self,
        stored: Message,
        name: &[&[u8]],
        descr: &str,
        element_bytes: u64,
    ) -> Result<(), NoMessage> {
        let length = stored.bytes.len() as u64;
        let count = length.checked_div(element_bytes).ok_or(NoMessage)?;
        let place = (self.place(stored), length);
        let mut row = self.builder.array(place, descr, &[count]).ok_or(NoMessage)?;
        row.checksum = Some(ChecksumKind::Crc32c.of(stored.bytes));
        self.record.file(name, row);
        Ok(())
    }

    /// Adds a list whose elements, which were decoded, are stored in another form.
    fn encoded(
        &mut self,
        list: Message,
        name: &[&[u8]],
        shown: Shown,
        element_bytes: usize,
    ) -> Result<(), NoMessage> {
        let count = self.values.len().checked_div(element_bytes).ok_or(NoMessage)?;
        let number = u32::try_from(count).map_err(|_| NoMessage)?;
        let row = Row::encoded(self.place(list), list.bytes.len() as u64, shown, number);
        let descr = if shown == Shown::Floats { "<f4" } else { "<i8" };
        let mut hasher = Hasher::new(ChecksumKind::Crc32c);
        hasher.update(&npy::header(descr, &[number.into()]));
        hasher.update(self.values);
        self.record.file(name, Row { checksum: Some(hasher.finish()), ..row });
        Ok(())
    }

    /// Checks that the container is large enough for its files so far.
    fn check_room(&self) -> Result<(), NoMessage> {
        self.builder.room(self.record, self.end / BYTES_A_FILE, self.end).map_err(|_| NoMessage)
    }

    fn place(&self, message: Message) -> u64 {
        self.at.saturating_add(message.at as u64)
    }
}

/// A feature's list.
#[derive(Clone, Copy)]
struct List<'a> {
    message: Message<'a>,
    /// Whether the message is several fields, each a part of the list.
    is_in_parts: bool,
}

impl<'a> List<'a> {
    /// The list that a feature has, and its field's number. A list of another kind replaces the list before it; a list of
    /// the same kind continues it, as protocol buffers merge messages.
    fn of(feature: Message<'a>) -> Result<Option<(u64, Self)>, NoMessage> {
        let (mut fields, mut found) = (feature, None::<(u64, Self, Message<'a>)>);
        loop {
            let here = fields;
            let (number, list) = match fields.next()? {
                Some((number @ 1..=3, Value::Bytes(list))) => (number, list),
                Some(_) => return Err(NoMessage),
                None => return Ok(found.map(|(number, list, _)| (number, list))),
            };
            found = Some(match found {
                Some((kind, _, first)) if kind == number => {
                    let length = fields.at.saturating_sub(first.at);
                    let bytes = first.bytes.get(..length).ok_or(NoMessage)?;
                    let message = Message { bytes, at: first.at };
                    (number, List { message, is_in_parts: true }, first)
                }
                _ => (number, List { message: list, is_in_parts: false }, here),
            });
        }
    }

    /// Visits the parts in order.
    fn each_part(
        &self,
        visit: &mut dyn FnMut(Message<'a>) -> Result<(), NoMessage>,
    ) -> Result<(), NoMessage> {
        if !self.is_in_parts {
            return visit(self.message);
        }
        let mut fields = self.message;
        while let Some((_, value)) = fields.next()? {
            let Value::Bytes(part) = value else { return Err(NoMessage) };
            visit(part)?;
        }
        Ok(())
    }
}

/// Takes an entry of a map: its key, and its value.
type Visit<'v, 'a, P> = dyn FnMut(&mut P, &[u8], Message<'a>) -> Result<(), NoMessage> + 'v;

/// The entries of a map, which is one field of a record, or several.
struct Entries<'a> {
    fields: Message<'a>,
    field: u64,
    map: Message<'a>,
    /// The number of entries that were returned.
    count: u64,
}

impl<'a> Entries<'a> {
    fn new(record: Message<'a>, field: u64) -> Self {
        Self { fields: record, field, map: Message::new(&[]), count: 0 }
    }

    fn next(&mut self) -> Result<Option<(&'a [u8], Message<'a>)>, NoMessage> {
        loop {
            if let Some(found) = entry(&mut self.map)? {
                self.count = self.count.saturating_add(1);
                return Ok(Some(found));
            }
            match self.fields.next()? {
                Some((number, Value::Bytes(map))) if number == self.field => self.map = map,
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }
}

/// The most keys that are compared one by one, without memory of their own: most records have no more.
const FEW_KEYS: usize = 16;

/// The keys of a map that were met.
#[derive(Default)]
struct Keys<'a> {
    few: [&'a [u8]; FEW_KEYS],
    count: usize,
    many: HashSet<&'a [u8]>,
}

impl<'a> Keys<'a> {
    /// Inserts a key; false if it was met before.
    fn insert(&mut self, key: &'a [u8]) -> bool {
        if self.few.iter().take(self.count).any(|known| *known == key) {
            return false;
        }
        match self.few.get_mut(self.count) {
            Some(place) => {
                *place = key;
                self.count = self.count.saturating_add(1);
                true
            }
            None => self.many.insert(key),
        }
    }
}

/// The next entry of a map: its key, which is text, and its value.
fn entry<'a>(map: &mut Message<'a>) -> Result<Option<(&'a [u8], Message<'a>)>, NoMessage> {
    let Some(mut entry) = field_1(map)? else { return Ok(None) };
    // A missing key or value is empty.
    let (mut key, mut found) = (&[][..], None);
    while let Some((number, value)) = entry.next()? {
        match (number, value) {
            (1, Value::Bytes(text)) => key = text.bytes,
            // Two values would have to be merged, and no writer has them.
            (2, Value::Bytes(message)) if found.is_none() => found = Some(message),
            _ => return Err(NoMessage),
        }
    }
    let found = found.unwrap_or(Message { bytes: &[], at: entry.at });
    let is_text = std::str::from_utf8(key).is_ok() && !key.contains(&0);
    is_text.then_some(Some((key, found))).ok_or(NoMessage)
}

/// The next value of a message that has field 1 alone.
fn field_1<'a>(message: &mut Message<'a>) -> Result<Option<Message<'a>>, NoMessage> {
    match message.next()? {
        Some((1, Value::Bytes(value))) => Ok(Some(value)),
        Some(_) => Err(NoMessage),
        None => Ok(None),
    }
}

/// The most bytes of decoded integers of a list, which take up to eight times their stored bytes; a record with a longer list
/// is one file.
const MAX_INTEGER_BYTES: usize = 64 << 20;

/// Appends the integers of a list, 8 bytes each.
fn decode_integers(mut list: Message, values: &mut Vec<u8>) -> Result<(), NoMessage> {
    while let Some((number, value)) = list.next()? {
        match (number, value) {
            (1, Value::Varint(number)) => values.extend_from_slice(&number.to_le_bytes()),
            (1, Value::Bytes(mut packed)) => {
                while !packed.bytes.is_empty() && values.len() <= MAX_INTEGER_BYTES {
                    values.extend_from_slice(&packed.varint()?.to_le_bytes());
                }
            }
            _ => return Err(NoMessage),
        }
        if values.len() > MAX_INTEGER_BYTES {
            return Err(NoMessage);
        }
    }
    Ok(())
}

/// Appends the floats of a list, 4 bytes each.
fn decode_floats(mut list: Message, values: &mut Vec<u8>) -> Result<(), NoMessage> {
    while let Some((number, value)) = list.next()? {
        match (number, value) {
            (1, Value::Fixed32(bytes)) => values.extend_from_slice(&bytes),
            (1, Value::Bytes(packed)) if packed.bytes.len().is_multiple_of(4) => {
                values.extend_from_slice(packed.bytes);
            }
            _ => return Err(NoMessage),
        }
    }
    Ok(())
}

/// Fills `values` with the elements of a stored list; false if the list does not have as many.
pub(super) fn decode(shown: Shown, stored: &[u8], values: &mut [u8]) -> bool {
    let mut found = Vec::with_capacity(values.len());
    let list = Message::new(stored);
    // Elements are field 1; parts of a list are fields of other numbers.
    let mut first = list;
    let is_in_parts = !matches!(first.next(), Ok(None | Some((1, _))));
    let decoded = List { message: list, is_in_parts }.each_part(&mut |part| match shown {
        Shown::Integers => decode_integers(part, &mut found),
        Shown::Floats => decode_floats(part, &mut found),
        _ => Err(NoMessage),
    });
    let is_whole = decoded.is_ok() && found.len() == values.len();
    if is_whole {
        values.copy_from_slice(&found);
    }
    is_whole
}
