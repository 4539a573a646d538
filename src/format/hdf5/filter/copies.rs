//! Copies of bytes that were decoded before, as LZF and BloscLZ have them.

/// Writes so many bytes to `done`, from `back` bytes before; they may be what was just copied. Gives where they end.
///
/// # Errors
/// They begin before the first byte, or end behind the last one.
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
