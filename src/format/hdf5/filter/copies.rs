//! Copies of bytes that were decoded before, as LZF and BloscLZ have them.

/// Copies `length` bytes to offset `done` from `back` bytes before; some may be bytes that were just copied. Returns the
/// offset of their end.
///
/// # Errors
/// The bytes begin before the first byte of `out`, or end behind its last one.
pub(super) fn copy(
    out: &mut [u8],
    done: usize,
    (back, length): (usize, usize),
) -> Result<usize, &'static str> {
    let from = done.checked_sub(back).ok_or("copies from before its beginning")?;
    let to = done.saturating_add(length);
    let range = out.get_mut(from..to).ok_or("has too many bytes")?;
    let mut copied = 0;
    while copied < length {
        let place = back.saturating_add(copied);
        let step = length.saturating_sub(copied).min(place);
        range.copy_within(..step, place);
        copied = copied.saturating_add(step);
    }
    Ok(to)
}
