//! Checksums that lie beside a container whose format has none.
//!
//! A sidecar is one section or more, one behind the other (so `cat` joins sidecars). A section belongs to one
//! container, which it identifies:
//!
//! ```text
//! "FFRFSUM1" | u32 CRC-32 of the head from here on | u32 CRC-32 of the rows
//! u64 bytes of the container | u64 samples | u64 rows | u64 bytes of the decoded stream
//! u32 CRC-32 of where samples lie | u32 CRC-32 of the decoded stream
//! 16 bytes name of the format
//! rows × u32 CRC-32 of a sample's bytes | zeros up to a multiple of 8              little-endian
//! ```
//!
//! [`super::Sample::checksum`] says which bytes a row is the CRC-32 of. The samples of a compressed stream need no
//! rows: each interval of the stream is checked whenever it is decoded, and the section has the CRC-32 of all intervals
//! together.

use super::reader::Reader;
use super::{Container, Content, Error, Result, Source, Table};
use crate::format::counted;
use std::io::{self, Write};
use std::sync::Arc;

/// The ending of a sidecar's name, behind the whole name of its container.
pub const ENDING: &str = "ffrsum";
const NAME: &str = "checksums";
/// The mark of a section; its last byte is the version.
const MAGIC: [u8; 8] = *b"FFRFSUM1";
const HEAD_BYTES: usize = 72;
const FORMAT_BYTES: usize = 16;
/// The number of samples at the beginning, and of samples all over the container, whose places the section covers.
const PLACES: u64 = 1024;
/// The number of samples that are compared to recognise another container of the same layout; samples of more than
/// `MAX_PROBE_BYTES` are passed over.
const PROBES: u64 = 8;
const MAX_PROBE_BYTES: u64 = 1 << 20;
/// Bytes of the rows that are checked at a time.
const STEP_BYTES: u64 = 1 << 20;

const CUT: &str = ": it was cut short or damaged; write it anew with `ffrfs sum --sidecar`";

/// The properties that distinguish a container from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    container_bytes: u64,
    samples: u64,
    stream_bytes: u64,
    places: u32,
    stream: u32,
    format: [u8; FORMAT_BYTES],
}

impl Key {
    /// The key of a container that lies in `source`.
    ///
    /// # Errors
    /// The container's index cannot be read.
    pub fn of(source: &dyn Source, container: &dyn Container) -> Result<Self> {
        let (stream, stream_bytes) = sealed(container);
        let mut format = [0; FORMAT_BYTES];
        format.iter_mut().zip(container.format().bytes()).for_each(|(to, from)| *to = from);
        Ok(Self {
            container_bytes: source.len(),
            samples: container.len(),
            stream_bytes,
            places: if stream_bytes > 0 { 0 } else { places(container)? },
            stream,
            format,
        })
    }

    /// The number of samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// How the container of the key `now` differs from that of the section; `None` if it does not.
    #[must_use]
    pub fn differs(&self, now: &Key) -> Option<&'static str> {
        match () {
            () if self.format != now.format => Some("is of another format"),
            () if self.container_bytes != now.container_bytes => Some("has another size"),
            () if self.samples != now.samples => Some("has another number of samples"),
            () if self.places != now.places => {
                Some("has samples in other places (checksums are for one --view)")
            }
            () if self != now => Some("is the compressed form of other bytes"),
            () => None,
        }
    }
}

/// The CRC-32 and the length of all bytes that a container's stream decodes to, combined from those of its intervals.
fn sealed(container: &dyn Container) -> (u32, u64) {
    let Some(stream) = container.stream() else { return (0, 0) };
    let mut whole = crc32fast::Hasher::new();
    for interval in (0..stream.len()).map_while(|number| stream.nth(number)) {
        let bytes = interval.decoded.end.saturating_sub(interval.decoded.start);
        whole.combine(&crc32fast::Hasher::new_with_initial_len(interval.crc32, bytes));
    }
    (whole.finalize(), stream.decoded_bytes())
}

/// The CRC-32 of the places of some samples: the first ones, and others all over the container.
fn places(container: &dyn Container) -> Result<u32> {
    let samples = container.len();
    let stride = samples.checked_div(PLACES).unwrap_or(1).max(1);
    let spread = (0..PLACES).map(|number| number.saturating_mul(stride));
    let mut crc = crc32fast::Hasher::new();
    for index in (0..PLACES).chain(spread).filter(|&index| index < samples) {
        let sample = container.sample(index)?;
        crc.update(&sample.offset_bytes.to_le_bytes());
        crc.update(&sample.length_bytes.to_le_bytes());
    }
    Ok(crc.finalize())
}

/// The checksums of one container.
pub struct Section {
    key: Key,
    /// `None` if the samples are checked as parts of a stream.
    rows: Option<Box<dyn Table>>,
}

impl Section {
    /// The key of the section's container.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The CRC-32 that sample `index` must match; `None` if the sample is part of a stream that is checked.
    ///
    /// # Errors
    /// The sidecar cannot be read any more.
    pub fn crc32(&self, index: u64) -> io::Result<Option<u32>> {
        let Some(rows) = &self.rows else { return Ok(None) };
        let mut row = [0; 4];
        rows.copy_to(index.saturating_mul(4), &mut row)?;
        Ok(Some(u32::from_le_bytes(row)))
    }
}

impl Section {
    /// Whether the section seems to belong to another container: of several samples from all over `container`, whose
    /// bytes lie in `source`, at least two are compared and none matches.
    ///
    /// # Errors
    /// As [`Container::sample`]. Samples that cannot be read are passed over: their readers get the error.
    pub fn is_of_another(&self, source: &dyn Source, container: &dyn Container) -> Result<bool> {
        let last = container.len().saturating_sub(1);
        let (mut others, mut before) = (0_u32, None);
        for probe in 0..PROBES {
            let index = u128::from(last).saturating_mul(u128::from(probe));
            let index = index.checked_div(u128::from(PROBES.saturating_sub(1))).unwrap_or(0) as u64;
            if before.replace(index) == Some(index) || index >= container.len() {
                continue;
            }
            match self.matches(index, source, container)? {
                Some(true) => return Ok(false),
                Some(false) => others = others.saturating_add(1),
                None => {}
            }
        }
        Ok(others > 1)
    }

    /// Whether a sample matches its row; `None` if the sample cannot be compared.
    fn matches(
        &self,
        index: u64,
        source: &dyn Source,
        container: &dyn Container,
    ) -> Result<Option<bool>> {
        let sample = container.sample(index)?;
        let is_short = (1..=MAX_PROBE_BYTES).contains(&sample.length_bytes);
        let as_stored = !matches!(sample.content, Content::Encoded(_)) && sample.header_bytes == 0;
        if !is_short || !as_stored || sample.damaged || sample.checksum.is_some() {
            return Ok(None);
        }
        let mut bytes = vec![0; sample.length_bytes as usize];
        let Ok(()) = source.read_exact_at(&mut bytes, sample.offset_bytes) else { return Ok(None) };
        let expected = self.crc32(index).ok().flatten();
        Ok(expected.map(|expected| expected == crc32fast::hash(&bytes)))
    }
}

/// Reads a sidecar, whose sections must all match their checksums.
///
/// # Errors
/// The file cannot be read, is no sidecar, or is damaged.
pub fn read(source: &Arc<dyn Source>) -> Result<Vec<Section>> {
    let reader = Reader::new(source.as_ref(), NAME);
    let mut sections = Vec::new();
    let mut at = 0;
    while at < reader.len() || sections.is_empty() {
        let (section, end) = section_at(&reader, source.as_ref(), at)?;
        sections.push(section);
        at = end;
    }
    Ok(sections)
}

/// Reads the section that begins at byte `at`; returns it and the offset of its end.
fn section_at(reader: &Reader, source: &dyn Source, at: u64) -> Result<(Section, u64)> {
    let left = reader.len().saturating_sub(at);
    if left < HEAD_BYTES as u64 {
        let found = counted(left, "byte");
        return Err(reader.malformed(at, format!("a header of {HEAD_BYTES} bytes"), found, CUT));
    }
    let head: [u8; HEAD_BYTES] = reader.bytes("a head", at)?;
    let ([magic, of_head], rest) = split(&head);
    if magic != u64::from_le_bytes(MAGIC) {
        let found = format!("{:?}", String::from_utf8_lossy(&magic.to_le_bytes()));
        let expected = format!("{:?}", String::from_utf8_lossy(&MAGIC));
        let hint = ": not a sidecar, or one of another version; write it anew with \
                    `ffrfs sum --sidecar`";
        return Err(reader.malformed(at, expected, found, hint));
    }
    let (expected, of_rows) = halves(of_head);
    let found = crc32fast::hash(head.get(12..).unwrap_or_default());
    if expected != found {
        return Err(mismatch(source, "its head", at, expected, found));
    }
    let [container_bytes, samples, rows, stream_bytes, other] = rest;
    let (places, stream) = halves(other);
    let mut format = [0; FORMAT_BYTES];
    let name = head.get(HEAD_BYTES.saturating_sub(FORMAT_BYTES)..).unwrap_or_default();
    format.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    let key = Key { container_bytes, samples, stream_bytes, places, stream, format };
    let rows_at = at.saturating_add(HEAD_BYTES as u64);
    let end = rows.checked_mul(4).and_then(|bytes| bytes.checked_next_multiple_of(8));
    let end = end.and_then(|bytes| rows_at.checked_add(bytes)).filter(|&end| end <= reader.len());
    let Some(end) = end.filter(|_| rows == if stream_bytes > 0 { 0 } else { samples }) else {
        let found =
            format!("{} after the header", counted(reader.len().saturating_sub(rows_at), "byte"));
        let expected = format!("{} for {}", counted(rows, "row"), counted(samples, "sample"));
        return Err(reader.malformed(rows_at, expected, found, CUT));
    };
    let table = reader.table("the rows", rows_at, end.saturating_sub(rows_at))?;
    check_rows(reader, source, table.as_ref(), (rows_at, rows.saturating_mul(4), end), of_rows)?;
    let rows = (stream_bytes == 0).then_some(table);
    Ok((Section { key, rows }, end))
}

fn check_rows(
    reader: &Reader,
    source: &dyn Source,
    table: &dyn Table,
    (rows_at, row_bytes, end): (u64, u64, u64),
    expected: u32,
) -> Result<()> {
    let unreadable = |e| reader.unreadable("the rows", rows_at, e);
    let mut crc = crc32fast::Hasher::new();
    let mut buffer = vec![0; STEP_BYTES.min(row_bytes) as usize];
    let mut done = 0;
    while done < row_bytes {
        let step = row_bytes.saturating_sub(done).min(STEP_BYTES);
        let bytes = buffer.get_mut(..step as usize).unwrap_or_default();
        table.copy_to(done, bytes).map_err(unreadable)?;
        crc.update(bytes);
        done = done.saturating_add(step);
    }
    let found = crc.finalize();
    if found != expected {
        return Err(mismatch(source, "its rows", rows_at, expected, found));
    }
    let mut behind = vec![0; end.saturating_sub(rows_at).saturating_sub(row_bytes) as usize];
    table.copy_to(row_bytes, &mut behind).map_err(unreadable)?;
    match behind.iter().all(|&byte| byte == 0) {
        true => Ok(()),
        false => {
            let at = rows_at.saturating_add(row_bytes);
            Err(reader.malformed(at, "zeros after the rows", format!("{behind:x?}"), CUT))
        }
    }
}

/// Writes a section.
///
/// # Errors
/// Errors of `out`.
pub fn write(out: &mut dyn Write, key: &Key, rows: &[u32]) -> io::Result<()> {
    let rows = if key.stream_bytes > 0 { &[] } else { rows };
    let mut of_rows = crc32fast::Hasher::new();
    rows.iter().for_each(|row| of_rows.update(&row.to_le_bytes()));
    let mut rest = of_rows.finalize().to_le_bytes().to_vec();
    for value in [key.container_bytes, key.samples, rows.len() as u64, key.stream_bytes] {
        rest.extend(value.to_le_bytes());
    }
    for value in [key.places, key.stream] {
        rest.extend(value.to_le_bytes());
    }
    rest.extend(key.format);
    out.write_all(&MAGIC)?;
    out.write_all(&crc32fast::hash(&rest).to_le_bytes())?;
    out.write_all(&rest)?;
    for row in rows {
        out.write_all(&row.to_le_bytes())?;
    }
    // Sections begin at multiples of 8.
    if rows.len() % 2 == 1 { out.write_all(&[0; 4]) } else { Ok(()) }
}

/// Splits a head into numbers: the mark and both checksums of the section, and the others, without the format's name.
fn split(head: &[u8; HEAD_BYTES]) -> ([u64; 2], [u64; 5]) {
    let mut numbers = head.as_chunks::<8>().0.iter().map(|&bytes| u64::from_le_bytes(bytes));
    let mut next = || numbers.next().unwrap_or_default();
    ([next(), next()], [next(), next(), next(), next(), next()])
}

fn halves(number: u64) -> (u32, u32) {
    (number as u32, (number >> 32) as u32)
}

fn mismatch(source: &dyn Source, what: &str, at: u64, expected: u32, found: u32) -> Error {
    Error::Checksum {
        part: source.name().clone(),
        what: what.to_owned(),
        offset_bytes: at,
        expected,
        found,
        hint: CUT,
    }
}

#[cfg(test)]
mod tests;
