//! FFRecord (`.ffr`), as HFAiLab/ffrecord 1.4 writes and reads it.
//!
//! ```text
//! u32 crc | i64 n | u32 crcs[n] | i64 offsets[n] | data …        little-endian, CRC-32 is zlib's
//! ```
//!
//! `crc` covers n, crcs and offsets; 0 means that an old writer left it out. Sample i is
//! `offsets[i] .. offsets[i+1]`, the last one ends at the end of the file.

pub mod pickle;
mod writer;

pub use writer::{PackedNames, WriteFfRecord, Writer, header_bytes};

use super::{
    Checksum, Container, Detected, Error, Format, IndexChecksum, Mismatch, Names, OpenOptions,
    Result, Sample, Source, Table,
};
use crate::format::reader::Reader;
use crate::format::{counted, one_or_many};
use std::sync::Arc;

const NAME: &str = "FFRecord";

/// The first bytes of a packed directory's last sample; a pickle of the tree follows.
pub const PACKED_DIRECTORY_MAGIC: &[u8] = b"piouhjgbr";

/// Bytes of `crc` and `n`.
const HEAD_BYTES: u64 = 12;
/// Bytes of one checksum and one offset.
const ENTRY_BYTES: u64 = 12;
/// Bytes of the index that are read at a time; a multiple of both element sizes.
const CHUNK_BYTES: usize = 1 << 20;
/// The most bytes of a packed directory's names, which must fit in memory: enough for some 30 million
/// names. Hostile names take a multiple of these bytes.
const MAX_NAMES_BYTES: u64 = 512 << 20;

/// The format FFRecord.
#[derive(Debug)]
pub struct FfRecord;

impl Format for FfRecord {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["ffr"]
    }

    /// There is no magic number: the header must be plausible and the first offset within the data.
    fn detect(&self, source: &dyn Source) -> Result<Detected> {
        if source.len() < HEAD_BYTES {
            return Ok(Detected::No);
        }
        let head = Head::read(source)?;
        let Some(first_byte) = head.data_start(source.len()) else { return Ok(Detected::No) };
        let yes_if = |is| if is { Detected::Yes } else { Detected::No };
        if head.samples == 0 {
            return Ok(yes_if(source.len() == HEAD_BYTES));
        }
        let mut first_offset = [0; 8];
        let at = first_byte.saturating_sub(head.samples.saturating_mul(8));
        reader(source).read("the first offset", &mut first_offset, at)?;
        let first_offset = u64::from_le_bytes(first_offset);
        Ok(yes_if((first_byte..=source.len()).contains(&first_offset)))
    }

    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
        Ok(Box::new(FfRecordFile::open(source, options)?))
    }
}

/// The first twelve bytes.
struct Head {
    crc: u32,
    samples: u64,
    samples_as_stored: i64,
}

impl Head {
    fn read(source: &dyn Source) -> Result<Self> {
        let mut crc = [0; 4];
        let mut samples = [0; 8];
        reader(source).read("the header", &mut crc, 0)?;
        reader(source).read("the header", &mut samples, 4)?;
        let samples_as_stored = i64::from_le_bytes(samples);
        Ok(Self {
            crc: u32::from_le_bytes(crc),
            samples: u64::try_from(samples_as_stored).unwrap_or(u64::MAX),
            samples_as_stored,
        })
    }

    /// `12 + 12 n`, if the file is that long.
    fn data_start(&self, file_bytes: u64) -> Option<u64> {
        let index_bytes = self.samples.checked_mul(ENTRY_BYTES)?;
        index_bytes.checked_add(HEAD_BYTES).filter(|&start| start <= file_bytes)
    }
}

/// Whether a container's header has a checksum; false also if it cannot be read any more.
pub(super) fn has_header_checksum(source: &dyn Source) -> bool {
    let mut crc = [0; 4];
    source.read_exact_at(&mut crc, 0).is_ok() && crc != [0; 4]
}

/// An open `.ffr` file. Its index stays where it is (mapped, for a large one): 12 bytes a sample.
pub(super) struct FfRecordFile {
    source: Arc<dyn Source>,
    samples: u64,
    data_bytes: u64,
    index: Box<dyn Table>,
    index_checksum: IndexChecksum,
    warnings: Vec<String>,
}

impl FfRecordFile {
    pub(super) fn open(source: Arc<dyn Source>, options: &OpenOptions) -> Result<Self> {
        let (head, data_start) = check_head(source.as_ref())?;
        let mut warnings = Vec::new();
        let index_checksum = if head.crc == 0 {
            warnings.push(format!(
                "{}: the header has no checksum (written by an old version); its structure and the \
                 samples are checked all the same",
                source.name()
            ));
            IndexChecksum::Absent
        } else {
            IndexChecksum::Ok
        };

        let first_offset = check_index(source.as_ref(), &head, data_start, options)?;
        let gap = first_offset.saturating_sub(data_start);
        if gap > 0 {
            warnings.push(format!(
                "{}: {} to no sample",
                source.name(),
                one_or_many(gap, "byte after the index belongs", "bytes after the index belong")
            ));
        }
        let index_bytes = data_start.saturating_sub(HEAD_BYTES);
        let index = source
            .table(HEAD_BYTES, index_bytes)
            .map_err(|e| reader(source.as_ref()).unreadable("the index", HEAD_BYTES, e))?;
        let data_bytes = source.len().saturating_sub(first_offset);
        Ok(Self { samples: head.samples, data_bytes, source, index, index_checksum, warnings })
    }

    /// Adds a warning about the file.
    pub(super) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    fn u32_at(&self, offset_bytes: u64) -> Result<u32> {
        let mut bytes = [0; 4];
        self.get(offset_bytes, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn u64_at(&self, offset_bytes: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.get(offset_bytes, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn get(&self, offset_bytes: u64, out: &mut [u8]) -> Result<()> {
        self.index.copy_to(offset_bytes, out).map_err(|e| {
            let at = offset_bytes.saturating_add(HEAD_BYTES);
            reader(self.source.as_ref()).unreadable("the index", at, e)
        })
    }

    fn malformed(&self, at: u64, expected: &str, found: String) -> Error {
        reader(self.source.as_ref()).malformed(at, expected, found, "")
    }
}

impl Container for FfRecordFile {
    fn format(&self) -> &'static str {
        NAME
    }

    fn len(&self) -> u64 {
        self.samples
    }

    fn sample(&self, index: u64) -> Result<Sample> {
        if index >= self.samples {
            let expected = format!("a sample number below {}", self.samples);
            return Err(self.malformed(HEAD_BYTES, &expected, index.to_string()));
        }
        let crc32 = self.u32_at(index.saturating_mul(4))?;
        let offset_at = index.saturating_mul(8).saturating_add(self.samples.saturating_mul(4));
        let offset_bytes = self.u64_at(offset_at)?;
        let file_end = self.source.len();
        let next = index.saturating_add(1);
        let end = if next == self.samples {
            file_end.max(offset_bytes)
        } else {
            self.u64_at(offset_at.saturating_add(8))?
        };
        // The offsets were in order when the file was opened: another program is writing to it.
        let Some(length) = end.checked_sub(offset_bytes) else {
            let found = format!("{end}, before {offset_bytes}");
            return Err(self.malformed(
                offset_at.saturating_add(HEAD_BYTES),
                "offsets in order (was the file rewritten?)",
                found,
            ));
        };
        // A file cut off where its last sample begins leaves that sample without a byte but with a CRC.
        let damaged = end > file_end || offset_bytes > file_end || (length == 0 && crc32 != 0);
        Ok(Sample {
            offset_bytes,
            length_bytes: if damaged { length.max(1) } else { length },
            checksum: Some(Checksum::Crc32(crc32)),
            damaged,
            ..Sample::default()
        })
    }

    fn check_unchanged(&self) -> std::io::Result<()> {
        self.source.check_unchanged()
    }

    fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    fn names(&self, samples: u64) -> Result<Names> {
        let Some(last) = self.samples.checked_sub(1) else { return Ok(Names::None) };
        let sample = self.sample(last)?;
        let magic_bytes = PACKED_DIRECTORY_MAGIC.len();
        if sample.damaged || sample.length_bytes <= magic_bytes as u64 {
            return Ok(Names::None);
        }
        let mut magic = vec![0; magic_bytes];
        reader(self.source.as_ref()).read("the last sample", &mut magic, sample.offset_bytes)?;
        if magic != PACKED_DIRECTORY_MAGIC {
            return Ok(Names::None);
        }
        if sample.length_bytes > MAX_NAMES_BYTES {
            return Ok(Names::Refused(format!("its {} bytes are too many", sample.length_bytes)));
        }
        let bytes = self.read_checked(last, &sample)?;
        let stored = bytes.get(magic_bytes..).unwrap_or_default();
        match pickle::decode(stored, samples) {
            Ok(directory) => Ok(Names::Tree(directory)),
            Err(why) => Ok(Names::Refused(why.to_string())),
        }
    }

    fn index_checksum(&self) -> IndexChecksum {
        self.index_checksum
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl FfRecordFile {
    /// Reads and verifies a sample that the container itself needs.
    fn read_checked(&self, index: u64, sample: &Sample) -> Result<Vec<u8>> {
        let source = self.source.as_ref();
        let length = usize::try_from(sample.length_bytes).map_err(|_| {
            self.malformed(sample.offset_bytes, "a sample that fits in memory", String::new())
        })?;
        let mut bytes = vec![0; length];
        reader(source).read("the packed directory's names", &mut bytes, sample.offset_bytes)?;
        match sample.checksum.map_or(Ok(()), |checksum| checksum.check(&bytes)) {
            Err(Mismatch { expected, found }) => Err(Error::Checksum {
                part: source.name().clone(),
                what: format!("sample {index}, which holds the packed directory's names"),
                offset_bytes: sample.offset_bytes,
                expected: expected.value(),
                found: found.value(),
                hint: "; --flat serves the other samples by number",
            }),
            Ok(()) => Ok(bytes),
        }
    }
}

/// Checks the first twelve bytes; also returns the offset from which on data may lie.
fn check_head(source: &dyn Source) -> Result<(Head, u64)> {
    let file_bytes = source.len();
    if file_bytes < HEAD_BYTES {
        let found = format!("a file of {}", counted(file_bytes, "byte"));
        return Err(reader(source).malformed(file_bytes, "a header of 12 bytes", found, ""));
    }
    let head = Head::read(source)?;
    if head.samples_as_stored < 0 {
        let found = head.samples_as_stored.to_string();
        return Err(reader(source).malformed(4, "a number of samples", found, ""));
    }
    if head.crc == 0 && head.samples == 0 && file_bytes > HEAD_BYTES {
        let found = format!(
            "zeros, and {} after them",
            counted(file_bytes.saturating_sub(HEAD_BYTES), "byte")
        );
        let hint = ": the writer died before it finished; write the file again";
        return Err(reader(source).malformed(0, "a header", found, hint));
    }
    let Some(data_start) = head.data_start(file_bytes) else {
        let found = format!("a file of {}", counted(file_bytes, "byte"));
        let expected = format!("an index of {}, 12 bytes each", counted(head.samples, "sample"));
        let hint = ": the file is truncated, or is not an FFRecord file";
        return Err(reader(source).malformed(4, &expected, found, hint));
    };
    Ok((head, data_start))
}

/// Reads the whole index once, in order, to check its checksum and every offset. Returns the first offset.
fn check_index(
    source: &dyn Source,
    head: &Head,
    data_start: u64,
    options: &OpenOptions,
) -> Result<u64> {
    let offsets_start = HEAD_BYTES.saturating_add(head.samples.saturating_mul(4));
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head.samples_as_stored.to_le_bytes());
    let mut walk = OffsetWalk { at: offsets_start, previous: data_start, wrong: None, first: None };
    let mut buf = vec![0; CHUNK_BYTES.min(usize::try_from(data_start).unwrap_or(CHUNK_BYTES))];
    for (start, end) in [(HEAD_BYTES, offsets_start), (offsets_start, data_start)] {
        let mut at = start;
        while at < end {
            let left = end.saturating_sub(at);
            let take = usize::try_from(left).unwrap_or(CHUNK_BYTES).min(buf.len());
            // The rest is a multiple of the element size, and so is a full chunk.
            let take = if left > take as u64 { take & !7 } else { take };
            let Some(chunk) = buf.get_mut(..take) else { break };
            reader(source).read("the index", chunk, at)?;
            crc.update(chunk);
            if start == offsets_start {
                walk.check(chunk, source.len(), options);
            }
            at = at.saturating_add(take as u64);
        }
    }
    let found = crc.finalize();
    let all_zero = walk.first == Some(0) && walk.previous == 0;
    if head.crc != 0 && found != head.crc {
        return Err(Error::Checksum {
            part: source.name().clone(),
            what: format!(
                "the header ({}, {})",
                counted(head.samples, "sample"),
                counted(data_start, "byte")
            ),
            offset_bytes: 0,
            expected: head.crc,
            found,
            hint: "; the index cannot be trusted: fetch or write the file again",
        });
    }
    match walk.wrong {
        None => Ok(walk.first.unwrap_or(source.len())),
        Some((at, expected, found)) => {
            let past_end = found.is_positive() && found.unsigned_abs() > source.len();
            let hint = match (all_zero, past_end) {
                (true, _) => ": the writer died before it finished; write the file again",
                (_, true) => {
                    ": offsets beyond the end of the file: it is truncated \
                     (--allow-damaged serves the samples that are whole)"
                }
                _ => "",
            };
            Err(reader(source).malformed(at, &expected, found.to_string(), hint))
        }
    }
}

/// The state of the check over all offsets.
struct OffsetWalk {
    /// The place of the next offset in the file.
    at: u64,
    previous: u64,
    first: Option<u64>,
    /// The first offset that is wrong: its place, the expected offset, and the offset that was found.
    wrong: Option<(u64, String, i64)>,
}

impl OffsetWalk {
    fn check(&mut self, chunk: &[u8], file_bytes: u64, options: &OpenOptions) {
        let limit = if options.allow_damaged { i64::MAX as u64 } else { file_bytes };
        for stored in chunk.as_chunks::<8>().0 {
            let offset = u64::from_le_bytes(*stored);
            // A negative offset is a very large unsigned one.
            if (offset < self.previous || offset > limit) && self.wrong.is_none() {
                let expected = format!("an offset of {} to {limit}", self.previous);
                self.wrong = Some((self.at, expected, offset.cast_signed()));
            }
            self.first.get_or_insert(offset);
            self.previous = offset;
            self.at = self.at.saturating_add(8);
        }
    }
}

fn reader(source: &dyn Source) -> Reader<'_> {
    Reader::new(source, NAME)
}

#[cfg(test)]
mod tests;
