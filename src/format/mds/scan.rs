//! Finds the values of a shard, sample by sample, as a state machine: see [`Scanner`].

use super::columns::{self, Column, Shown};
use super::{HEAD_BYTES, Mds, json_range};
use crate::format::bytes::u32_at;
use crate::format::pickled;
use crate::format::records::{Full, Pass, Row};
use crate::format::scanned::Scanner;
use crate::format::{Container, OpenOptions, PartName, Result, Source, ending};
use crate::format::{counted, one_or_many};
use std::sync::Arc;

/// The most bytes of a shard's JSON.
const MAX_JSON_BYTES: u64 = 16 << 20;
/// The most samples of a shard: their offsets are in memory, and those of a compressed shard may be made of few bytes.
const MAX_SAMPLES: u64 = 1 << 26;
const TRUNCATED: &str =
    ": the shard is truncated (--allow-damaged serves the samples before its end)";

/// A pass over a shard.
pub(super) struct MdsScanner {
    pass: Pass<Mds>,
    state: State,
    columns: Vec<Column>,
    /// The offsets of all samples, and of the end of the last: 4 bytes each.
    offsets: Vec<u8>,
    /// The number of samples and values that are not where they should be.
    damaged: u64,
    shown: Shown,
}

enum State {
    /// The number of samples, and the first offset.
    Head,
    /// The other offsets, and the JSON.
    Columns { json_at: u64 },
    /// The sizes of a sample's values.
    Sizes(u64),
    /// The beginning of a value.
    Value(Sample),
}

/// A sample whose values are being looked at.
struct Sample {
    number: u64,
    /// The offset of the next value.
    at: u64,
    sizes: Vec<u64>,
    /// The number of values that were added.
    done: usize,
}

impl MdsScanner {
    /// Begins at the first byte. Errors call the shard `part`.
    pub(super) fn new(part: &PartName, options: &OpenOptions) -> Self {
        let pass = Pass::new(part, options, HEAD_BYTES);
        let shown = Shown { is_raw: !pass.is_typed, is_unpickled: pickled::is_asked(options) };
        let (columns, offsets) = (Vec::new(), Vec::new());
        Self { pass, state: State::Head, columns, offsets, damaged: 0, shown }
    }

    fn head(&mut self, bytes: &[u8]) -> Result<()> {
        let range = json_range(bytes).filter(|(json_at, samples_at)| {
            let (json, samples) = (samples_at.saturating_sub(*json_at), json_at / 4);
            json <= MAX_JSON_BYTES && samples <= MAX_SAMPLES.saturating_add(2)
        });
        let Some((json_at, samples_at)) = range else {
            let expected = "up to 2²⁶ samples, the offset of the first behind all offsets, and up to 16 MiB of JSON";
            let (count, first) = (u32_at(bytes, 0), u32_at(bytes, 4));
            let found = match count.zip(first) {
                Some((count, first)) => {
                    format!("{}, the first at byte {first}", counted(count, "sample"))
                }
                None => format!("a file of {}", counted(bytes.len(), "byte")),
            };
            return Err(self.pass.malformed(0, expected, found, ""));
        };
        self.offsets = bytes.get(4..8).unwrap_or_default().to_vec();
        self.pass.want = Some((8, samples_at.saturating_sub(8)));
        self.state = State::Columns { json_at };
        Ok(())
    }

    fn columns(&mut self, json_at: u64, bytes: &[u8]) -> Result<()> {
        let asked = self.pass.want.map_or(0, |(_, length)| length);
        if (bytes.len() as u64) < asked {
            let found = format!("the end of the file at byte {}", bytes.len().saturating_add(8));
            return Err(self.pass.malformed(
                8,
                "offsets and columns",
                found,
                ": the shard is truncated",
            ));
        }
        let json_at_here = usize::try_from(json_at.saturating_sub(8)).unwrap_or(usize::MAX);
        let (offsets, json) = bytes.split_at_checked(json_at_here).unwrap_or((bytes, &[]));
        self.offsets.extend_from_slice(offsets);
        let read = columns::read(json, self.shown);
        let (columns, unknown) =
            read.map_err(|why| self.pass.malformed(json_at, "the columns in JSON", why, ""))?;
        self.columns = columns;
        for text in unknown {
            self.pass.builder.warn(format!("{}: {text}: shown as it is stored", self.pass.part));
        }
        let mut before = 0;
        for number in 0..=self.samples() {
            let offset = self.offset(number);
            if offset < before {
                let expected = format!("an offset of {before} or more");
                let at = number.saturating_add(1).saturating_mul(4);
                return Err(self.pass.malformed(at, &expected, offset.to_string(), ""));
            }
            before = offset;
        }
        self.sample(0)
    }

    fn samples(&self) -> u64 {
        (self.offsets.len() as u64 / 4).saturating_sub(1)
    }

    fn offset(&self, number: u64) -> u64 {
        let at = usize::try_from(number.saturating_mul(4)).unwrap_or(usize::MAX);
        u32_at(&self.offsets, at).map_or(0, u64::from)
    }

    /// Goes on with the sizes of a sample.
    fn sample(&mut self, mut number: u64) -> Result<()> {
        // A byte at least: if it is in the file, the offsets do not lie.
        let length = self.sizes_bytes().max(1);
        while number < self.samples() {
            let (at, end) = (self.offset(number), self.offset(number.saturating_add(1)));
            if end > at {
                // The range ends before the next sample, which is asked for after this one: a pass never goes back.
                self.pass.want = Some((at, length.min(end.saturating_sub(at))));
                self.state = State::Sizes(number);
                return Ok(());
            }
            if let Some(next) = self.sizes(number, &[])? {
                self.state = State::Value(next);
                return Ok(());
            }
            number = number.saturating_add(1);
        }
        self.pass.want = None;
        Ok(())
    }

    /// The bytes of the sizes that stand before a sample's values.
    fn sizes_bytes(&self) -> u64 {
        let varying = self.columns.iter().filter(|column| column.size.is_none()).count();
        (varying as u64).saturating_mul(4)
    }

    /// Takes the sizes of a sample's values; adds the sample, or returns it if there is a value to look at.
    fn sizes(&mut self, number: u64, bytes: &[u8]) -> Result<Option<Sample>> {
        let sizes_bytes = self.sizes_bytes();
        let bytes = usize::try_from(sizes_bytes).ok().and_then(|length| bytes.get(..length));
        let mut stored = bytes
            .unwrap_or_default()
            .chunks_exact(4)
            .map(|size| u32_at(size, 0).map_or(0, u64::from));
        let sizes: Vec<u64> = self
            .columns
            .iter()
            .map(|column| column.size.or_else(|| stored.next()).unwrap_or(u64::MAX))
            .collect();
        let at = self.offset(number).saturating_add(sizes_bytes);
        let end = sizes.iter().try_fold(at, |at, size| at.checked_add(*size));
        self.pass.record.clear();
        if end != Some(self.offset(number.saturating_add(1))) {
            self.add_damaged(number)?;
            return Ok(None);
        }
        self.values(Sample { number, at, sizes, done: 0 }, None)
    }

    /// Adds the values of a sample up to one that must be looked at; `head` is the beginning of the next value.
    fn values(&mut self, mut sample: Sample, mut head: Option<&[u8]>) -> Result<Option<Sample>> {
        while let Some((column, &size)) =
            self.columns.get(sample.done).zip(sample.sizes.get(sample.done))
        {
            let look = column.look_bytes(size);
            if look > 0 && head.is_none() {
                self.pass.want = Some((sample.at, look));
                return Ok(Some(sample));
            }
            let place = (sample.at, size);
            let head = head.take().unwrap_or_default();
            if !unpickled(&mut self.pass, column, (head, sample.at)) {
                let row = column.row(place, head, &mut self.pass.builder);
                let row = row.unwrap_or_else(|| {
                    self.damaged = self.damaged.saturating_add(1);
                    damaged(place)
                });
                self.pass.record.file(&[&column.name], row);
            }
            sample.at = sample.at.saturating_add(size);
            sample.done = sample.done.saturating_add(1);
        }
        self.add(sample.number)?;
        Ok(None)
    }

    /// Adds a sample whose sizes do not add up to its length: none of its values can be found.
    fn add_damaged(&mut self, number: u64) -> Result<()> {
        self.damaged = self.damaged.saturating_add(1);
        let (at, end) = (self.offset(number), self.offset(number.saturating_add(1)));
        for column in &self.columns {
            self.pass.record.file(&[&column.name], damaged((at, end.saturating_sub(at))));
        }
        self.add(number)
    }

    /// Adds a sample; all bytes before it were seen.
    fn add(&mut self, number: u64) -> Result<()> {
        let seen = self.offset(number);
        let room = self.pass.builder.room(&self.pass.record, seen, seen);
        room.map_err(|full| {
            let columns = self.columns.len();
            let names: usize = self.columns.iter().map(|column| column.name.len()).sum();
            let (expected, found) = match full {
                Full::Files => {
                    ("as many bytes in the samples as they have values", counted(columns, "value"))
                }
                Full::Names => (
                    "names of columns that are at most 4 times as long as the samples",
                    format!(
                        "{} whose names have {}",
                        counted(columns, "column"),
                        counted(names, "byte")
                    ),
                ),
            };
            self.pass.malformed(seen, expected, format!("sample {number} of {found}"), "")
        })?;
        self.pass.add(seen)
    }

    /// Handles the end of the file before a sample that was asked for: all samples that follow are missing, too.
    fn cut(&mut self, number: u64, at: u64, found: usize) -> Result<()> {
        self.pass.want = None;
        let expected = format!("sample {number}");
        if !self.pass.allow_damaged {
            let found = format!("the end of the file at byte {}", at.saturating_add(found as u64));
            return Err(self.pass.malformed(at, &expected, found, TRUNCATED));
        }
        for number in number..self.samples() {
            self.pass.record.clear();
            self.add_damaged(number)?;
        }
        Ok(())
    }
}

/// Adds the files of a pickle, `value` with its offset; false if the value stays one file.
fn unpickled(pass: &mut Pass<Mds>, column: &Column, value: (&[u8], u64)) -> bool {
    let files = match column.is_pickle() {
        true => pickled::take_apart(value.0),
        false => None,
    };
    let Some(files) = files else { return false };
    let before = pass.record.mark();
    let (build, record) = (&mut pass.builder, &mut pass.record);
    let added = pickled::add(value, &files, &column.name, None, build, record);
    // Half of the room for names is left to the columns that follow: without room the shard would be refused.
    let (most, seen) = (value.1 / pickled::BYTES_A_FILE, value.1 / 2);
    if added.is_some() && build.room(record, most, seen).is_ok() {
        return true;
    }
    record.cut(&before);
    false
}

/// The row of a value that cannot be read.
fn damaged((at, length): (u64, u64)) -> Row<Mds> {
    let mut row = Row::stored(at, length.max(1), ending::BIN);
    row.is_damaged = true;
    row
}

impl Scanner for MdsScanner {
    fn want(&self) -> Option<(u64, u64)> {
        self.pass.want
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        let Some((at, length)) = self.pass.want else { return Ok(()) };
        let is_cut = (bytes.len() as u64) < length;
        let (number, next) = match std::mem::replace(&mut self.state, State::Head) {
            State::Head => return self.head(bytes),
            State::Columns { json_at } => return self.columns(json_at, bytes),
            State::Sizes(number) if is_cut => return self.cut(number, at, bytes.len()),
            State::Value(sample) if is_cut => return self.cut(sample.number, at, bytes.len()),
            State::Sizes(number) => (number, self.sizes(number, bytes)?),
            State::Value(sample) => (sample.number, self.values(sample, Some(bytes))?),
        };
        match next {
            Some(sample) => {
                self.state = State::Value(sample);
                Ok(())
            }
            None => self.sample(number.saturating_add(1)),
        }
    }

    fn finish(mut self: Box<Self>, source: Arc<dyn Source>) -> Result<Box<dyn Container>> {
        let end = self.offset(self.samples());
        if end > source.len() && !self.pass.allow_damaged {
            let found = format!("a file of {}", counted(source.len(), "byte"));
            return Err(self.pass.malformed(source.len(), &counted(end, "byte"), found, TRUNCATED));
        }
        let behind = source.len().saturating_sub(end);
        if behind > 0 {
            self.pass.builder.warn(format!(
                "{}: {} behind the last sample",
                self.pass.part,
                counted(behind, "byte")
            ));
        }
        if self.damaged > 0 {
            let (part, count) = (&self.pass.part, self.damaged);
            self.pass.builder.warn(format!(
                "{part}: {} not what the sizes say: reading fails",
                one_or_many(count, "sample or value is", "samples or values are")
            ));
        }
        self.pass.finish(source)
    }
}
