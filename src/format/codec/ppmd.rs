//! PPMd version I revision 1, zip's method 98 (APPNOTE 5.10): order − 1 in 4 bits, MiB of memory − 1 in 8 bits, and in 4
//! bits the method that restores a model whose memory is used up, little-endian; then the coded bytes.

use super::{ENDS_EARLY, MAX_WINDOW_BYTES};
use ppmd_rust::{Ppmd8Decoder, RestoreMethod};
use std::io::Read;

/// Decodes all of `input`. All memory that the input claims is taken, as it is filled with zeros first: so there is a
/// limit.
pub(super) fn decode(input: &[u8], out: &mut [u8]) -> Result<(), String> {
    let Some((head, coded)) = input.split_first_chunk() else { return Err(ENDS_EARLY.to_owned()) };
    let head = u16::from_le_bytes(*head);
    let order = u32::from(head & 0xf).saturating_add(1);
    let memory_bytes = u32::from(head >> 4 & 0xff).saturating_add(1) << 20;
    if u64::from(memory_bytes) > MAX_WINDOW_BYTES {
        let limit = MAX_WINDOW_BYTES >> 20;
        return Err(format!("the PPMd stream needs a model of more than {limit} MiB"));
    }
    let restore = match head >> 12 {
        0 => RestoreMethod::Restart,
        1 => RestoreMethod::CutOff,
        other => return Err(format!("PPMd's method {other} to restore its model is unknown")),
    };
    let mut core = Ppmd8Decoder::new(coded, order, memory_bytes, restore)
        .map_err(|e| format!("the PPMd stream cannot be decoded: {e}"))?;
    core.read_exact(out).map_err(|e| format!("the PPMd stream cannot be decoded: {e}"))
}
