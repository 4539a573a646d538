//! Scale-offset, as the HDF5 library has it (`H5Zscaleoffset.c`): integers as differences from the least one, in as few bits as
//! they need; floats as such integers, by a power of ten.
//!
//! ```text
//! values  u32 0 decimal scale, 2 integers | scale, or bits | elements | class: 0 integer, 1 float | bytes of an element
//!         signed? | order: 0 little, 1 big endian | has fill value? | fill value
//! chunk   u32 bits | u8 8 | u64 least | 8 × u8 | the differences, the highest bit first: all ones stand for the fill value
//! ```
//!
//! Imports the bits.

use super::bits::Bits;

const DECIMAL: u32 = 0;
const INTEGERS: u32 = 2;
const IS_FLOAT: u32 = 1;
const IS_BIG_ENDIAN: u32 = 1;
const HAS_FILL: u32 = 1;
const HEAD_BYTES: usize = 21;
/// The most bytes of the least value in the head.
const LEAST_BYTES: usize = 8;

/// The scheme that a filter's values describe.
struct Scheme {
    is_float: bool,
    /// Decimal places.
    scale: i32,
    bytes: usize,
    is_big_endian: bool,
    fill: Option<u64>,
}

impl Scheme {
    fn read(values: &[u32], length: usize) -> Result<Self, String> {
        let [kind, scale, count, class, bytes, _, order, has_fill, fill @ ..] = values else {
            return Err(format!("scaleoffset has {} values, not 20", values.len()));
        };
        let (scale, bytes) = (scale.cast_signed(), *bytes as usize);
        let is_float = *class == IS_FLOAT;
        let is_known = match (*kind, is_float) {
            (DECIMAL, true) => matches!(bytes, 4 | 8),
            (INTEGERS, false) => matches!(bytes, 1 | 2 | 4 | 8),
            _ => false,
        };
        let bits = (bytes as u64).saturating_mul(8);
        if !is_known || (!is_float && i64::from(scale) > bits.cast_signed()) {
            return Err(format!(
                "scaleoffset of kind {kind}, class {class}, {bytes} bytes, scale {scale}"
            ));
        }
        if bytes.checked_mul(*count as usize) != Some(length) {
            return Err(format!(
                "scaleoffset of {count} elements of {bytes} bytes, not of {length}"
            ));
        }
        let word = |at: usize| u64::from(fill.get(at).copied().unwrap_or(0));
        Ok(Self {
            is_float,
            scale,
            bytes,
            is_big_endian: *order == IS_BIG_ENDIAN,
            fill: (*has_fill == HAS_FILL).then(|| word(1) << 32 | word(0)),
        })
    }

    /// The bits of an element, by its difference from the least element of the chunk.
    fn element(&self, difference: u64, least: u64) -> u64 {
        match (self.is_float, self.bytes) {
            (false, _) => difference.wrapping_add(least),
            (true, 4) => {
                let scale = 10_f32.powf(self.scale as f32);
                let least = f32::from_bits(least as u32);
                ((difference as u32).cast_signed() as f32 / scale + least).to_bits().into()
            }
            (true, _) => {
                let scale = 10_f64.powf(self.scale.into());
                (difference.cast_signed() as f64 / scale + f64::from_bits(least)).to_bits()
            }
        }
    }

    /// Writes an element, whose bytes are the lowest of `element`.
    fn write(&self, element: u64, to: &mut [u8]) {
        to.iter_mut().zip(element.to_le_bytes()).for_each(|(to, byte)| *to = byte);
        if self.is_big_endian {
            to.reverse();
        }
    }
}

/// Whether a chunk is stored as it is: integers, in all of their bits.
pub(super) fn is_plain(values: &[u32]) -> bool {
    let [kind, bits, _, class, bytes, ..] = values else { return false };
    *kind == INTEGERS && *class != IS_FLOAT && bytes.checked_mul(8) == Some(*bits)
}

/// The number of bytes that a chunk decodes to; `None` if the values do not say it.
pub(super) fn length(values: &[u32]) -> Option<usize> {
    (*values.get(2)? as usize).checked_mul(*values.get(4)? as usize)
}

/// Decodes a chunk; fills `out`.
pub(super) fn decode(values: &[u32], stored: &[u8], out: &mut [u8]) -> Result<(), String> {
    let scheme = Scheme::read(values, out.len())?;
    let short = || format!("scaleoffset of {} bytes, which are not enough", stored.len());
    let (head, differences) = stored.split_at_checked(HEAD_BYTES).ok_or_else(short)?;
    let mut head = head.iter().copied();
    let mut number = |bytes: usize| {
        head.by_ref()
            .take(bytes)
            .enumerate()
            .fold(0, |sum, (at, byte)| sum | u64::from(byte) << at.saturating_mul(8))
    };
    let (bits, least_bytes) = (number(4), number(1) as usize);
    let least = number(least_bytes.min(LEAST_BYTES));
    let whole = scheme.bytes.saturating_mul(8) as u64;
    if bits > whole {
        return Err(format!("scaleoffset of {bits} bits, in elements of {whole}"));
    }
    let last = 1_u64.checked_shl(bits as u32).map_or(u64::MAX, |next| next.wrapping_sub(1));
    let mut differences = Bits::new(differences);
    for to in out.chunks_exact_mut(scheme.bytes) {
        if bits == whole {
            // The least value was not subtracted: these are the bytes of elements in little endian.
            let mut bytes = [0; 8];
            for byte in bytes.iter_mut().take(scheme.bytes) {
                *byte = differences.take(8)? as u8;
            }
            scheme.write(u64::from_le_bytes(bytes), to);
            continue;
        }
        let difference = differences.take(bits as u32)?;
        let element = match scheme.fill {
            Some(fill) if difference == last => fill,
            _ => scheme.element(difference, least),
        };
        scheme.write(element, to);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::bits::Written;
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    fn head(bits: u32, least: u64) -> Vec<u8> {
        [&bits.to_le_bytes()[..], &[8], &least.to_le_bytes(), &[0; 8]].concat()
    }

    proptest! {
        #[test]
        fn integers_are_the_least_one_and_their_differences(
            (bytes, bits, is_big) in (select(&[1_usize, 2, 4, 8][..]), 0_u32..65, any::<bool>()),
            (least, fill) in (any::<u64>(), prop::option::of(any::<u64>())),
            differences in vec(prop_oneof![any::<u64>(), Just(u64::MAX)], 1..40),
        ) {
            let bits = bits % (bytes as u32 * 8);
            let (last, mut written) = ((1_u64 << bits) - 1, Written::default());
            let mut expected: Vec<u8> = Vec::new();
            for difference in &differences {
                let difference = difference & last;
                written.put(bits, difference);
                let element = match fill {
                    Some(fill) if difference == last => fill,
                    _ => least.wrapping_add(difference),
                };
                let start = expected.len();
                expected.extend(&element.to_le_bytes()[..bytes]);
                if is_big {
                    expected[start..].reverse();
                }
            }
            let (low, high) = (fill.unwrap_or(0) as u32, (fill.unwrap_or(0) >> 32) as u32);
            let count = differences.len() as u32;
            let (is_big, has_fill) = (is_big.into(), fill.is_some().into());
            let values = [2, 0, count, 0, bytes as u32, 0, is_big, has_fill, low, high];
            let stored = [head(bits, least), written.bytes()].concat();
            let mut out = vec![1; expected.len()];
            prop_assert_eq!(decode(&values, &stored, &mut out), Ok(()));
            prop_assert_eq!(&out, &expected);
            prop_assert_eq!(length(&values), Some(out.len()));
            // One that ends early, or is of another length, is refused.
            prop_assert!(bits == 0 || decode(&values, &stored[..stored.len() - 1], &mut out).is_err());
            prop_assert!(decode(&values, &stored, &mut out[1..]).is_err());
        }

        #[test]
        fn nothing_panics(values in vec(0_u32..20, 0..12), stored in vec(any::<u8>(), 0..60), length in 0_usize..80) {
            let _ = decode(&values, &stored, &mut vec![0; length]);
        }
    }

    #[test]
    fn floats_are_integers_by_a_power_of_ten() {
        let values = |bytes| [0, 2, 3, 1, bytes, 0, 0, 1, 7, 0];
        let mut written = Written::default();
        [25, 3, 0].iter().for_each(|number| written.put(5, *number));
        written.put(5, 31);
        let decoded = |bytes: u32, least: u64| {
            let mut out = vec![0; bytes as usize * 3];
            decode(&values(bytes), &[head(5, least), written.bytes()].concat(), &mut out).unwrap();
            out
        };
        let expected = [1.75_f64, 1.53, 1.5].map(|value| value.to_le_bytes()).concat();
        assert_eq!(decoded(8, 1.5_f64.to_bits()), expected);
        let expected = [1.75_f32, 1.53, 1.5].map(|value| value.to_le_bytes()).concat();
        assert_eq!(decoded(4, 1.5_f32.to_bits().into()), expected);
    }
}
