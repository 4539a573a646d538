//! The one time that all of a large encoded sample is decoded: in bounded memory, its checksum taken,
//! checkpoints recorded. Where there are no checkpoints, the decoded bytes go to the spool.

use super::spool::Spool;
use super::{Checkpoints, Interval, MAX_INTERVAL_BYTES, MAX_STORED_BYTES, STEP_BYTES};
use crate::format::checksum::Hasher;
use crate::format::counted;
use crate::format::{Checkpoint, Checksum, DecodeError, Decoder, Fault};

/// The thread that decodes has other requests to serve: after this many bytes or steps it is their turn.
const TURN_BYTES: u64 = 16 << 20;
const TURN_STEPS: u32 = 10_000;

/// The decoding of all of a sample.
pub(in crate::vfs) struct FullDecode {
    decoder: Box<dyn Decoder>,
    out: Vec<u8>,
    /// The interval that is being decoded.
    from: Option<Checkpoint>,
    stored_start: u64,
    decoded_start: u64,
    crc32: crc32fast::Hasher,
    /// The checksum that the whole must match, and the hasher of the bytes so far.
    whole: Option<(Checksum, Hasher)>,
    intervals: Vec<Interval>,
    /// The bytes that were taken and given so far.
    stored: u64,
    decoded: u64,
    size: u64,
    interval_bytes: u64,
    is_ended: bool,
    /// The spool that the sample is decoded to, if it cannot be decoded from the middle.
    spool: Option<Spool>,
}

/// The reason why the decoding ends early.
pub(in crate::vfs) enum Stop {
    /// No checkpoint is near enough.
    NoCheckpoints,
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

impl From<DecodeError> for Stop {
    fn from(error: DecodeError) -> Self {
        Stop::Fault(error.into())
    }
}

impl FullDecode {
    pub(in crate::vfs) fn new(
        decoder: Box<dyn Decoder>,
        size: u64,
        interval_bytes: u64,
        spool: Option<Spool>,
        expected: Option<Checksum>,
    ) -> Self {
        Self {
            decoder,
            spool,
            out: vec![0; STEP_BYTES],
            from: None,
            stored_start: 0,
            decoded_start: 0,
            crc32: crc32fast::Hasher::new(),
            whole: expected.map(|expected| (expected, expected.hasher())),
            intervals: Vec::new(),
            stored: 0,
            decoded: 0,
            size,
            interval_bytes,
            is_ended: false,
        }
    }

    /// Whether decoded bytes are written to the spool: only where the thread may block.
    pub(in crate::vfs) fn is_spooled(&self) -> bool {
        self.spool.is_some()
    }

    /// Whether the encoding has ended, so that no more bytes are taken.
    pub(in crate::vfs) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Takes the next stored bytes, until other requests should have their turn; returns the number of bytes taken.
    pub(in crate::vfs) fn take(&mut self, bytes: &[u8], is_last: bool) -> Result<usize, Stop> {
        let (mut rest, mut steps, turn_end) = (bytes, 0, self.decoded + TURN_BYTES);
        while !self.is_ended {
            let is_turn_over = steps == TURN_STEPS || self.decoded >= turn_end;
            // The bytes that are left in the decoder are few: no further fetch would come for them.
            if is_turn_over && !rest.is_empty() {
                break;
            }
            let progress = self.decoder.decode(rest, &mut self.out, is_last)?;
            let given = self.out.get(..progress.given).ok_or("the decoder failed")?;
            rest = rest.get(progress.taken..).ok_or("the decoder failed")?;
            self.crc32.update(given);
            if let Some((_, whole)) = &mut self.whole {
                whole.update(given);
            }
            self.stored += progress.taken as u64;
            self.decoded += progress.given as u64;
            if self.decoded > self.size {
                let why = format!("more than the {} that it should be", counted(self.size, "byte"));
                return Err(Stop::from(why));
            }
            if let Some(spool) = &mut self.spool {
                spool.write(given).map_err(Stop::Fault)?;
            }
            self.is_ended = progress.is_end;
            self.see_interval()?;
            if progress.taken == 0 && progress.given == 0 && !self.is_ended {
                if rest.is_empty() {
                    break;
                }
                return Err(Stop::from("the decoder makes no progress"));
            }
            steps += 1;
        }
        Ok(bytes.len() - rest.len())
    }

    /// Ends an interval that is long enough, decoded or stored, where the next interval can begin.
    fn see_interval(&mut self) -> Result<(), Stop> {
        let length = self.decoded - self.decoded_start;
        let stored = self.stored.saturating_sub(self.stored_start);
        let is_spooled = self.spool.is_some();
        // Stored bytes that decode to no bytes must not make an interval as long as the sample.
        if stored > MAX_STORED_BYTES && !is_spooled {
            return Err(Stop::NoCheckpoints);
        }
        let is_stored_long = length > 0 && stored / 2 >= self.interval_bytes && !is_spooled;
        if length < self.interval_bytes && !is_stored_long {
            return Ok(());
        }
        if is_spooled {
            self.end_interval(None);
        } else if let Some(checkpoint) = self.decoder.checkpoint() {
            self.end_interval(Some(checkpoint));
        } else if length > MAX_INTERVAL_BYTES {
            return Err(Stop::NoCheckpoints);
        }
        Ok(())
    }

    fn end_interval(&mut self, next: Option<Checkpoint>) {
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

    /// Returns the checkpoints. If `must_check`, the whole must match its checksum, if it has one.
    pub(in crate::vfs) fn finish(mut self, must_check: bool) -> Result<Checkpoints, Fault> {
        if self.decoded != self.size {
            let found = self.decoded;
            return Err(Fault::Structure(format!(
                "{} instead of {}",
                counted(found, "byte"),
                self.size
            )));
        }
        // Otherwise the end of the encoding (such as an HMAC) has not been seen.
        if !self.is_ended {
            return Err(Fault::Structure("the encoding does not come to its end".to_owned()));
        }
        if self.decoded > self.decoded_start {
            self.end_interval(None);
        }
        if let Some((expected, whole)) = self.whole.filter(|_| must_check) {
            expected.compare(whole.finish()).map_err(Fault::Checksum)?;
        }
        Ok(Checkpoints::new(self.intervals, self.spool))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::codec::{Codec, decoder};
    use crate::format::{ChecksumKind, Progress};

    fn full_decode(bytes: &[u8]) -> FullDecode {
        let decoder = decoder(Codec::Zstd, None).unwrap().unwrap();
        let expected = ChecksumKind::Crc32.of(bytes);
        FullDecode::new(decoder, bytes.len() as u64, 1 << 20, None, Some(expected))
    }

    fn frames(count: usize, frame: &[u8]) -> Vec<u8> {
        zstd::bulk::compress(frame, 1).unwrap().repeat(count)
    }

    /// How many turns it took, and what came of it.
    fn run(mut decode: FullDecode, stored: &[u8]) -> (usize, Result<Checkpoints, Fault>) {
        let (mut rest, mut turns) = (stored, 0);
        while !rest.is_empty() && !decode.is_ended() {
            match decode.take(rest, true) {
                Ok(taken) => rest = &rest[taken..],
                Err(_) => panic!("it cannot be decoded"),
            }
            turns += 1;
        }
        (turns, decode.finish(true))
    }

    #[test]
    fn decoding_much_or_in_very_many_steps_lets_others_have_their_turn() {
        let large = vec![0; 50 << 20];
        let (turns, checkpoints) = run(full_decode(&large), &frames(50, &large[..1 << 20]));
        assert!(checkpoints.is_ok() && (3..=5).contains(&turns), "{turns} turns");
        let empty = [frames(50_000, b""), frames(1, b"end")].concat();
        let (turns, checkpoints) = run(full_decode(b"end"), &empty);
        assert!(checkpoints.is_ok() && turns >= 5, "{turns} turns");
    }

    /// Decodes frames, each with a skippable one of so many zeros behind it.
    fn decode_with_holes(frames: &[(&[u8], u64)]) -> Result<Checkpoints, Stop> {
        let all: Vec<u8> = frames.iter().flat_map(|(frame, _)| frame.to_vec()).collect();
        let mut decode = full_decode(&all);
        let mut take = |mut bytes: &[u8]| {
            while !bytes.is_empty() {
                bytes = &bytes[decode.take(bytes, false)?..];
            }
            Ok::<_, Stop>(())
        };
        let zeros = vec![0; 1 << 20];
        for (frame, hole) in frames {
            take(&zstd::bulk::compress(frame, 1).unwrap())?;
            take(&[0x184D_2A50_u32.to_le_bytes(), (*hole as u32).to_le_bytes()].concat())?;
            let mut left = *hole;
            while left > 0 {
                let piece = left.min(zeros.len() as u64);
                take(&zeros[..piece as usize])?;
                left -= piece;
            }
        }
        decode.take(&[], true)?;
        decode.finish(true).map_err(Stop::Fault)
    }

    #[test]
    fn bytes_that_decode_to_nothing_make_no_interval_that_is_too_long_to_be_read_at_once() {
        for hole in [(&b"one"[..], MAX_STORED_BYTES), (&[7; 2 << 20], MAX_STORED_BYTES)] {
            let decoded = decode_with_holes(&[hole, (b"two", 0)]);
            assert!(matches!(decoded, Err(Stop::NoCheckpoints)));
        }
        let frames = [(&b"frame"[..], MAX_STORED_BYTES / 5)].repeat(12);
        let Ok(checkpoints) = decode_with_holes(&frames) else { panic!("it cannot be decoded") };
        assert_eq!(checkpoints.intervals.len(), 12);
        for Interval { stored, .. } in &checkpoints.intervals {
            assert!(stored.end - stored.start <= MAX_STORED_BYTES, "{stored:?}");
        }
    }

    /// Gives all bytes, and never says that this was the end.
    struct Endless(usize);

    impl Decoder for Endless {
        fn decode(
            &mut self,
            input: &[u8],
            out: &mut [u8],
            _: bool,
        ) -> Result<Progress, DecodeError> {
            let given = self.0.min(out.len());
            self.0 -= given;
            Ok(Progress { taken: input.len(), given, is_end: false })
        }

        fn checkpoint(&self) -> Option<Checkpoint> {
            None
        }
    }

    #[test]
    fn an_encoding_that_does_not_come_to_its_end_is_refused_though_all_bytes_are_there() {
        let mut decode = FullDecode::new(Box::new(Endless(0)), 0, 1 << 20, None, None);
        assert_eq!(decode.take(b"stored", true).ok(), Some(6));
        assert!(matches!(decode.finish(true), Err(Fault::Structure(_))));
    }
}
