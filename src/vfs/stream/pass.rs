//! The pass over a large encoded sample: all of it is decoded in bounded memory, its checksum taken, and where
//! decoding can begin noted. Where that is nowhere, what is decoded goes to a file.

use super::spool::Spool;
use super::{Interval, MAX_INTERVAL_BYTES, STEP_BYTES, Stream};
use crate::format::{Decoder, Restart};
use crate::vfs::bad::Fault;

/// A pass over all of a sample.
pub(in crate::vfs) struct Pass {
    decoder: Box<dyn Decoder>,
    out: Vec<u8>,
    /// The interval that is being decoded.
    from: Option<Restart>,
    stored_start: u64,
    decoded_start: u64,
    crc32: crc32fast::Hasher,
    whole: crc32fast::Hasher,
    intervals: Vec<Interval>,
    /// How much was taken and given.
    stored: u64,
    decoded: u64,
    size: u64,
    interval_bytes: u64,
    is_ended: bool,
    /// Where it is decoded to, if it cannot be decoded from the middle.
    spool: Option<Spool>,
}

/// Why a pass ends before its time.
pub(super) enum Stop {
    /// There is no place to decode from near enough.
    NoRestarts,
    Fault(Fault),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Stop::Fault(Fault::Structure(why))
    }
}

impl From<&str> for Stop {
    fn from(why: &str) -> Self {
        Stop::from(why.to_owned())
    }
}

impl Pass {
    pub(super) fn new(
        decoder: Box<dyn Decoder>,
        size: u64,
        interval_bytes: u64,
        spool: Option<Spool>,
    ) -> Self {
        Self {
            decoder,
            spool,
            out: vec![0; STEP_BYTES],
            from: None,
            stored_start: 0,
            decoded_start: 0,
            crc32: crc32fast::Hasher::new(),
            whole: crc32fast::Hasher::new(),
            intervals: Vec::new(),
            stored: 0,
            decoded: 0,
            size,
            interval_bytes,
            is_ended: false,
        }
    }

    /// Whether there is nothing more to take.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Takes the next stored bytes.
    pub(super) fn take(&mut self, mut bytes: &[u8], is_last: bool) -> Result<(), Stop> {
        while !self.is_ended {
            let progress = self.decoder.decode(bytes, &mut self.out, is_last)?;
            let given = self.out.get(..progress.given).ok_or("the decoder failed")?;
            bytes = bytes.get(progress.taken..).ok_or("the decoder failed")?;
            self.crc32.update(given);
            self.whole.update(given);
            self.stored += progress.taken as u64;
            self.decoded += progress.given as u64;
            if self.decoded > self.size {
                let why = format!("more than the {} bytes that it should be", self.size);
                return Err(Stop::from(why));
            }
            if let Some(spool) = &mut self.spool {
                spool.write(given).map_err(Stop::Fault)?;
            }
            self.is_ended = progress.is_end;
            self.see_interval()?;
            if progress.taken == 0 && progress.given == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Ends an interval that is long enough where the next one can begin.
    fn see_interval(&mut self) -> Result<(), Stop> {
        let length = self.decoded - self.decoded_start;
        if length < self.interval_bytes {
            return Ok(());
        }
        if self.spool.is_some() {
            self.end_interval(None);
        } else if let Some(restart) = self.decoder.restart() {
            self.end_interval(Some(restart));
        } else if length > MAX_INTERVAL_BYTES {
            return Err(Stop::NoRestarts);
        }
        Ok(())
    }

    fn end_interval(&mut self, next: Option<Restart>) {
        let crc32 = std::mem::take(&mut self.crc32).finalize();
        let stored = next.as_ref().map_or(self.stored, |next| next.stored_bytes);
        self.intervals.push(Interval {
            from: std::mem::replace(&mut self.from, next),
            decoded: self.decoded_start..self.decoded,
            stored: self.stored_start..self.stored.max(stored),
            crc32,
        });
        (self.stored_start, self.decoded_start) = (stored, self.decoded);
    }

    pub(super) fn finish(mut self, expected: Option<u32>) -> Result<Stream, Fault> {
        if self.decoded != self.size {
            let found = self.decoded;
            return Err(Fault::Structure(format!("{found} bytes instead of {}", self.size)));
        }
        if self.decoded > self.decoded_start {
            self.end_interval(None);
        }
        let found = self.whole.finalize();
        if let Some(expected) = expected.filter(|&expected| expected != found) {
            return Err(Fault::Checksum { expected, found });
        }
        Ok(Stream::new(self.intervals, self.spool))
    }
}
