//! The steps from the stored bytes of a sample to the bytes of its file, for all readers of samples: header bytes are
//! checked, encodings are decoded, and the prefix is made.
//!
//! Imports the traits and the faults of this room.

use super::{Container, Content, Fault, Sample};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Refuses a sample whose index entry shows that it cannot be read.
///
/// # Errors
/// The sample is damaged, or encrypted and cannot be decrypted: the reason, if the container knows it.
pub fn refuse_damaged(container: &dyn Container, index: u64, sample: &Sample) -> Result<(), Fault> {
    match sample.damaged {
        false => Ok(()),
        true => Err(container.fault(index).unwrap_or(Fault::Damaged)),
    }
}

/// Checks the header bytes of a sample. Returns false if the sample lies elsewhere, and its container now knows where.
///
/// # Errors
/// The header bytes are not those of this sample.
pub fn check_header(container: &dyn Container, index: u64, header: &[u8]) -> Result<bool, Fault> {
    if header.is_empty() {
        return Ok(true);
    }
    Ok(container.check_header(index, header)?)
}

/// The bytes that the file of a sample shows before the stored ones; empty unless it is [`Content::Prefixed`].
///
/// # Errors
/// The bytes cannot be made, or are not as many as the sample says.
pub fn prefix(container: &dyn Container, index: u64, sample: &Sample) -> Result<Vec<u8>, Fault> {
    let Content::Prefixed(length_bytes) = sample.content else { return Ok(Vec::new()) };
    let prefix = container.prefix(index)?;
    match prefix.len() as u64 == u64::from(length_bytes) {
        true => Ok(prefix),
        false => Err(Fault::Damaged),
    }
}

/// Decodes a sample with [`Content::Encoded`] from all of its stored bytes, and fills `out`, which is as long
/// as the sample says.
///
/// # Errors
/// The stored bytes are no encoding of `out.len()` bytes.
pub fn decode(
    container: &dyn Container,
    index: u64,
    stored: &[u8],
    out: &mut [u8],
) -> Result<(), Fault> {
    guarded(|| container.decode(index, stored, out))
}

/// Makes the file of a sample from its range of a decoded stream ([`Container::decode_in_stream`]), and fills `out`.
///
/// # Errors
/// The range is no encoding of `out.len()` bytes.
pub fn decode_in_stream(
    container: &dyn Container,
    index: u64,
    range: &[u8],
    out: &mut [u8],
) -> Result<(), Fault> {
    guarded(|| container.decode_in_stream(index, range, out))
}

fn guarded(decode: impl FnOnce() -> super::Result<()>) -> Result<(), Fault> {
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(decoded) => Ok(decoded?),
        // A bug of a decoder must not end the whole mount.
        Err(_) => Err(Fault::Structure("the decoder failed; please report this".to_owned())),
    }
}
