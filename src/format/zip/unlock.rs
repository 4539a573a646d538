//! Encrypted members step by step: decrypted bytes are decoded at once, in bounded memory.
//!
//! A checkpoint holds the state of the cipher, and behind it that of the codec:
//! ```text
//! 12 bytes of keys (PKWARE) or salt and verifier (AES) | state of the codec
//! ```

use super::crypto::{Cipher, Lock};
use super::method::Method;
use crate::format::{Checkpoint, DecodeError, Decoder, Progress, Secret, codec};

/// The most bytes that are decrypted at a time.
const CHUNK_BYTES: usize = 16 << 10;
const MIN_CHUNK_BYTES: usize = 64;
const CUT: &str = "the stored bytes end early";
const FOREIGN: &str = "this is not a checkpoint of this member";

/// An encrypted member.
#[derive(Debug, Clone)]
pub(super) struct Locked {
    pub(super) lock: Lock,
    pub(super) password: Secret,
    /// The check bytes of [`Lock::accepts`].
    pub(super) check: [u8; 2],
    pub(super) method: Method,
    /// The stored bytes, with those that the encryption adds.
    pub(super) stored_bytes: u64,
}

/// Decrypts and decodes a member.
pub(super) struct Unlock {
    member: Locked,
    /// The bytes before the data that were taken so far.
    head: Vec<u8>,
    /// The data, once all bytes before it were taken.
    data: Option<Data>,
    /// The bytes behind the data that were taken so far.
    tail: Vec<u8>,
    /// Stored bytes taken, decoded bytes given.
    place: (u64, u64),
}

/// The encrypted data of a member.
struct Data {
    cipher: Cipher,
    /// `None` if the data is not compressed.
    decoder: Option<Box<dyn Decoder>>,
    /// The encrypted bytes that were not taken yet.
    left: u64,
    /// Whether the codec has met the end of its stream.
    is_decoded: bool,
    /// The bytes that are decrypted next: those that the codec does not take are decrypted again.
    chunk_bytes: usize,
    plain: Vec<u8>,
}

impl Unlock {
    /// Begins with the member, or at a checkpoint. `None` if the method can be decoded only whole.
    pub(super) fn new(member: Locked, from: Option<&Checkpoint>) -> Result<Option<Self>, String> {
        let mut unlock = Self {
            head: Vec::new(),
            data: None,
            tail: Vec::new(),
            place: from.map_or((0, 0), |from| (from.stored_bytes, from.decoded_bytes)),
            member,
        };
        let is_possible = match from {
            None => decoder(unlock.member.method, None)?.is_some(),
            Some(from) => unlock.resume(from)?.is_some(),
        };
        Ok(is_possible.then_some(unlock))
    }

    fn resume(&mut self, from: &Checkpoint) -> Result<Option<()>, String> {
        let Locked { lock, ref password, method, .. } = self.member;
        let (cipher, state) = from.state.split_at_checked(lock.state_bytes()).ok_or(FOREIGN)?;
        let head_bytes = lock.head_bytes() as u64;
        let inner = Checkpoint {
            stored_bytes: from.stored_bytes.checked_sub(head_bytes).ok_or(FOREIGN)?,
            decoded_bytes: from.decoded_bytes,
            state: state.into(),
        };
        let left = self.data_bytes()?.checked_sub(inner.stored_bytes).ok_or(FOREIGN)?;
        let Some(decoder) = decoder(method, Some(&inner))? else { return Ok(None) };
        let cipher = Cipher::resume(lock, password, cipher, inner.stored_bytes).ok_or(FOREIGN)?;
        self.data = Some(Data::new(cipher, decoder, left));
        Ok(Some(()))
    }

    fn data_bytes(&self) -> Result<u64, &'static str> {
        self.member.stored_bytes.checked_sub(self.member.lock.added_bytes()).ok_or(CUT)
    }

    /// Takes the bytes before the data; returns how many there were in `input`.
    fn take_head(&mut self, input: &[u8]) -> Result<usize, DecodeError> {
        let Locked { lock, ref password, check, method, .. } = self.member;
        let wanted = lock.head_bytes().saturating_sub(self.head.len());
        let head = input.get(..wanted.min(input.len())).unwrap_or_default();
        self.head.extend_from_slice(head);
        if head.len() == wanted {
            let cipher = Cipher::new(lock, password, &self.head, check)?;
            let decoder = decoder(method, None)?.ok_or(FOREIGN)?;
            self.data = Some(Data::new(cipher, decoder, self.data_bytes()?));
        }
        Ok(head.len())
    }
}

/// The decoder of a method; `None` if the method decodes only whole members, `Some(None)` if the data is not compressed.
#[allow(clippy::option_option)]
fn decoder(
    method: Method,
    from: Option<&Checkpoint>,
) -> Result<Option<Option<Box<dyn Decoder>>>, String> {
    match method {
        Method::Stored => Ok(Some(None)),
        Method::Coded(codec) => Ok(codec::decoder(codec, from)?.map(Some)),
    }
}

impl Data {
    fn new(cipher: Cipher, decoder: Option<Box<dyn Decoder>>, left: u64) -> Self {
        let (is_decoded, chunk_bytes, plain) = (false, CHUNK_BYTES, Vec::new());
        Self { cipher, decoder, left, is_decoded, chunk_bytes, plain }
    }

    fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<Progress, DecodeError> {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let chunk = input.get(..self.chunk_bytes.min(left).min(input.len())).unwrap_or_default();
        self.cipher.decrypt(chunk, &mut self.plain)?;
        let step = match &mut self.decoder {
            Some(decoder) => decoder.decode(&self.plain, output, chunk.len() == left)?,
            None => copy(&self.plain, output, left),
        };
        if left == 0 && step == Progress::default() && !output.is_empty() {
            return Err(CUT.into());
        }
        let taken = chunk.get(..step.taken).ok_or("the decoder failed")?;
        self.cipher.pass(taken);
        self.left = self.left.saturating_sub(taken.len() as u64);
        // A codec that stops after each few bytes must not have all of a chunk decrypted for them.
        self.chunk_bytes = taken.len().saturating_mul(2).clamp(MIN_CHUNK_BYTES, CHUNK_BYTES);
        self.is_decoded = step.is_end;
        Ok(step)
    }

    /// Takes the data that the codec leaves over, then the bytes behind the data.
    fn finish(&mut self, input: &[u8], tail: &mut Vec<u8>) -> Result<Progress, String> {
        if !self.cipher.has_tail() {
            return Ok(Progress { is_end: true, ..Progress::default() });
        }
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let (rest, behind) = input.split_at_checked(left).unwrap_or((input, &[]));
        self.cipher.pass(rest);
        self.left = self.left.saturating_sub(rest.len() as u64);
        let wanted = Lock::TAIL_BYTES.saturating_sub(tail.len());
        let behind = behind.get(..wanted.min(behind.len())).unwrap_or_default();
        tail.extend_from_slice(behind);
        let is_end = tail.len() == Lock::TAIL_BYTES;
        if is_end {
            self.cipher.check(tail)?;
        }
        Ok(Progress { taken: rest.len().saturating_add(behind.len()), given: 0, is_end })
    }

    fn checkpoint(&self) -> Option<Checkpoint> {
        match &self.decoder {
            _ if self.is_decoded => None,
            Some(decoder) => decoder.checkpoint(),
            None => Some(Checkpoint { stored_bytes: 0, decoded_bytes: 0, state: Box::default() }),
        }
    }
}

/// Copies bytes, as a decoder of `left` stored bytes would decode them.
fn copy(input: &[u8], output: &mut [u8], left: usize) -> Progress {
    let length = input.len().min(output.len());
    if let (Some(from), Some(to)) = (input.get(..length), output.get_mut(..length)) {
        to.copy_from_slice(from);
    }
    Progress { taken: length, given: length, is_end: length == left }
}

impl Decoder for Unlock {
    fn decode(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        is_last: bool,
    ) -> Result<Progress, DecodeError> {
        let mut done = Progress::default();
        if self.data.is_none() {
            done.taken = self.take_head(input)?;
        }
        if let Some(data) = &mut self.data {
            if !data.is_decoded {
                let step = data.decode(input.get(done.taken..).unwrap_or_default(), output)?;
                done.taken = done.taken.saturating_add(step.taken);
                done.given = step.given;
            }
            if data.is_decoded {
                let rest = input.get(done.taken..).unwrap_or_default();
                let step = data.finish(rest, &mut self.tail)?;
                done.taken = done.taken.saturating_add(step.taken);
                done.is_end = step.is_end;
            }
        }
        if is_last && input.is_empty() && !output.is_empty() && done == Progress::default() {
            return Err(CUT.into());
        }
        self.place.0 = self.place.0.saturating_add(done.taken as u64);
        self.place.1 = self.place.1.saturating_add(done.given as u64);
        Ok(done)
    }

    fn checkpoint(&self) -> Option<Checkpoint> {
        let data = self.data.as_ref()?;
        let inner = data.checkpoint()?;
        let (stored_bytes, decoded_bytes) = self.place;
        let state = [data.cipher.state(), inner.state.into()].concat().into();
        Some(Checkpoint { stored_bytes, decoded_bytes, state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stops after every byte, as a codec does where a block of no bytes ends.
    struct Halting;

    impl Decoder for Halting {
        fn decode(&mut self, input: &[u8], _: &mut [u8], _: bool) -> Result<Progress, DecodeError> {
            Ok(Progress { taken: input.len().min(1), ..Progress::default() })
        }

        fn checkpoint(&self) -> Option<Checkpoint> {
            None
        }
    }

    #[test]
    fn a_codec_that_stops_after_every_byte_does_not_have_everything_decrypted_for_each() {
        let stored = vec![7; 100_000];
        let lock = Lock::ZipCrypto;
        let cipher = Cipher::resume(lock, &Secret::new(b"x"), &[1; 12], 0).unwrap();
        let mut data = Data::new(cipher, Some(Box::new(Halting)), stored.len() as u64);
        let (mut taken, mut decrypted) = (0, 0);
        while taken < stored.len() {
            taken += data.decode(&stored[taken..], &mut [0; 100]).unwrap().taken;
            decrypted += data.plain.len();
        }
        assert!(decrypted < 2 * MIN_CHUNK_BYTES * stored.len(), "{decrypted} bytes");
    }
}
