//! Writes a `.ffr` file sample by sample; only the index is held in memory.

use super::ENTRY_BYTES;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// How much of a sample is copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// Where the first sample of a container of `samples` samples lies, in bytes.
#[must_use]
pub fn header_bytes(samples: u64) -> u64 {
    samples.saturating_mul(ENTRY_BYTES).saturating_add(super::HEAD_BYTES)
}

/// A container that is being written. Until [`Writer::finish`] it is not a valid one.
pub struct Writer<W: Write + Seek> {
    out: W,
    samples: u64,
    crcs: Vec<u8>,
    offsets: Vec<u8>,
    position: u64,
    buffer: Vec<u8>,
}

impl<W: Write + Seek> Writer<W> {
    /// Begins a container of exactly `samples` samples at the start of `out`.
    ///
    /// # Errors
    /// `out` cannot be positioned, or `samples` is more than the format can count.
    pub fn new(mut out: W, samples: u64) -> io::Result<Self> {
        let position = header_bytes(samples);
        if i64::try_from(position).is_err() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many samples"));
        }
        out.seek(SeekFrom::Start(position))?;
        let buffer = vec![0; COPY_BYTES];
        Ok(Self { out, samples, crcs: Vec::new(), offsets: Vec::new(), position, buffer })
    }

    /// Appends a sample: all that `data` gives. Returns its length in bytes.
    ///
    /// # Errors
    /// Reading or writing failed; or more samples than announced.
    pub fn write_sample(&mut self, data: &mut impl Read) -> io::Result<u64> {
        if self.written() >= self.samples {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "more samples than announced"));
        }
        let start = self.position;
        let mut crc = crc32fast::Hasher::new();
        loop {
            let read = match data.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            let chunk = self.buffer.get(..read).unwrap_or_default();
            crc.update(chunk);
            self.out.write_all(chunk)?;
            self.position = self.position.saturating_add(read as u64);
        }
        self.crcs.extend_from_slice(&crc.finalize().to_le_bytes());
        self.offsets.extend_from_slice(&start.to_le_bytes());
        Ok(self.position.saturating_sub(start))
    }

    fn written(&self) -> u64 {
        (self.crcs.len() / 4) as u64
    }

    /// Writes the index and gives the output back, positioned anywhere.
    ///
    /// # Errors
    /// Writing failed; or fewer samples than announced.
    pub fn finish(mut self) -> io::Result<W> {
        if self.written() != self.samples {
            let message = format!("{} samples announced, {} written", self.samples, self.written());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let count = self.samples.to_le_bytes();
        let mut crc = crc32fast::Hasher::new();
        for part in [&count[..], &self.crcs, &self.offsets] {
            crc.update(part);
        }
        self.out.seek(SeekFrom::Start(0))?;
        for part in [&crc.finalize().to_le_bytes()[..], &count, &self.crcs, &self.offsets] {
            self.out.write_all(part)?;
        }
        self.out.flush()?;
        Ok(self.out)
    }
}
