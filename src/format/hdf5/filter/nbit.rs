//! N-bit, as the HDF5 library has it (`H5Znbit.c`): of each element the bits that its type uses.
//!
//! ```text
//! values    u32 number of values | is stored as it is? | elements | type
//! type      1 | bytes | order: 0 little, 1 big endian | bits | lowest bit      a number
//!           2 | bytes | type                                                   an array
//!           3 | bytes | fields | for each: place | type                        a compound type
//!           4 | bytes                                                          anything else: all of its bytes
//! chunk     the bits of all elements, the highest of each number first
//! ```
//!
//! Imports the bits.

use super::bits::Bits;

/// The deepest nesting of types: no file has deeper ones.
const MAX_NESTING: u32 = 16;

/// A type, as the filter's values describe it.
#[derive(Debug, Clone)]
enum Type {
    Number { bytes: usize, is_big_endian: bool, bits: u32, lowest: u32 },
    Array { bytes: usize, of: Box<Type> },
    Compound { bytes: usize, fields: Vec<(usize, Type)> },
    Other { bytes: usize },
}

impl Type {
    /// Reads a type. Every type takes at least a bit of a chunk, so that the length of a chunk bounds the time.
    fn read(values: &mut impl Iterator<Item = u32>, left: u32) -> Result<Self, String> {
        let wrong = || "nbit of a type that is none".to_owned();
        let left = left.checked_sub(1).ok_or_else(wrong)?;
        let mut next = || values.next().ok_or_else(wrong);
        let (kind, bytes) = (next()?, next()? as usize);
        if bytes == 0 {
            return Err(wrong());
        }
        match kind {
            1 => {
                let (order, bits, lowest) = (next()?, next()?, next()?);
                let most = (bytes as u64).saturating_mul(8);
                let is_right = (1..=128).contains(&bits)
                    && u64::from(bits).saturating_add(lowest.into()) <= most
                    && bytes <= 16;
                let is_big_endian = order == 1;
                is_right
                    .then_some(Self::Number { bytes, is_big_endian, bits, lowest })
                    .ok_or_else(wrong)
            }
            2 => {
                let of = Self::read(values, left)?;
                let is_right = of.bytes() <= bytes && bytes.is_multiple_of(of.bytes());
                is_right.then_some(Self::Array { bytes, of: of.into() }).ok_or_else(wrong)
            }
            3 => {
                let (count, mut fields) = (next()?, Vec::new());
                for _ in 0..count.max(1) {
                    let place = values.next().ok_or_else(wrong)? as usize;
                    let of = Self::read(values, left)?;
                    if place.saturating_add(of.bytes()) > bytes {
                        return Err(wrong());
                    }
                    fields.push((place, of));
                }
                if fields
                    .split_last()
                    .is_some_and(|(_, before)| before.iter().any(|(_, of)| of.loses_its_place()))
                {
                    return Err("nbit of a field behind an array of arrays or of compounds, which HDF5's library packs by the values of another type".to_owned());
                }
                Ok(Self::Compound { bytes, fields })
            }
            4 => Ok(Self::Other { bytes }),
            _ => Err(wrong()),
        }
    }

    /// Whether the library goes on, behind this type, with the values of its parts.
    fn loses_its_place(&self) -> bool {
        match self {
            Self::Array { of, .. } => matches!(**of, Self::Array { .. } | Self::Compound { .. }),
            Self::Compound { fields, .. } => {
                fields.last().is_some_and(|(_, of)| of.loses_its_place())
            }
            Self::Number { .. } | Self::Other { .. } => false,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Number { bytes, .. }
            | Self::Array { bytes, .. }
            | Self::Compound { bytes, .. }
            | Self::Other { bytes } => *bytes,
        }
    }

    /// Decodes an element to its bytes, which are zeros before.
    fn decode(&self, from: &mut Bits<'_>, to: &mut [u8]) -> Result<(), String> {
        match self {
            Self::Number { is_big_endian, bits, lowest, .. } => {
                let high = u128::from(from.take(bits.saturating_sub(64))?);
                let number = high << 64 | u128::from(from.take((*bits).min(64))?);
                let number = number.checked_shl(*lowest).unwrap_or(0);
                to.iter_mut().zip(number.to_le_bytes()).for_each(|(to, byte)| *to = byte);
                if *is_big_endian {
                    to.reverse();
                }
                Ok(())
            }
            Self::Array { of, .. } => {
                to.chunks_exact_mut(of.bytes()).try_for_each(|to| of.decode(from, to))
            }
            Self::Compound { fields, .. } => fields.iter().try_for_each(|(place, of)| {
                let end = place.saturating_add(of.bytes());
                to.get_mut(*place..end).map_or(Ok(()), |to| of.decode(from, to))
            }),
            Self::Other { .. } => {
                for to in to {
                    *to = from.take(8)? as u8;
                }
                Ok(())
            }
        }
    }
}

/// Whether a chunk is stored as it is, as its type uses all bits.
pub(super) fn is_plain(values: &[u32]) -> bool {
    values.get(1).is_some_and(|is_plain| *is_plain != 0)
}

/// The number of bytes that a chunk decodes to; `None` if the values do not say it.
pub(super) fn length(values: &[u32]) -> Option<usize> {
    (*values.get(2)? as usize).checked_mul(*values.get(4)? as usize)
}

/// Decodes a chunk; fills `out`.
pub(super) fn decode(values: &[u32], stored: &[u8], out: &mut [u8]) -> Result<(), String> {
    let [_, _, count, of @ ..] = values else {
        return Err(format!("nbit has {} values", values.len()));
    };
    let of = Type::read(&mut of.iter().copied(), MAX_NESTING)?;
    if of.bytes().checked_mul(*count as usize) != Some(out.len()) {
        return Err(format!(
            "nbit of {count} elements of {} bytes, not of {}",
            of.bytes(),
            out.len()
        ));
    }
    out.fill(0);
    let mut bits = Bits::new(stored);
    out.chunks_exact_mut(of.bytes()).try_for_each(|to| of.decode(&mut bits, to))
}

#[cfg(test)]
mod tests {
    use super::super::bits::Written;
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = Type> {
        (1_usize..17, any::<bool>(), any::<(u32, u32)>()).prop_map(
            |(bytes, is_big_endian, (bits, lowest))| {
                let most = bytes as u32 * 8;
                let bits = bits % most + 1;
                Type::Number { bytes, is_big_endian, bits, lowest: lowest % (most - bits + 1) }
            },
        )
    }

    fn any_type() -> impl Strategy<Value = Type> {
        let leaf = prop_oneof![number(), (1_usize..5).prop_map(|bytes| Type::Other { bytes })];
        leaf.prop_recursive(3, 20, 4, |of| {
            prop_oneof![
                (vec(of.clone(), 1..2), 1_usize..4).prop_map(|(mut of, count)| {
                    let of = Box::new(of.remove(0));
                    Type::Array { bytes: of.bytes() * count, of }
                }),
                (vec((0_usize..3, of), 1..4), 0_usize..3).prop_map(|(of, gap)| {
                    let (mut bytes, mut fields) = (0, Vec::new());
                    for (gap, of) in of {
                        bytes += gap;
                        let place = bytes;
                        bytes += of.bytes();
                        fields.push((place, of));
                    }
                    Type::Compound { bytes: bytes + gap, fields }
                }),
            ]
        })
    }

    fn values(of: &Type) -> Vec<u32> {
        let bytes = of.bytes() as u32;
        match of {
            Type::Number { is_big_endian, bits, lowest, .. } => {
                vec![1, bytes, u32::from(*is_big_endian), *bits, *lowest]
            }
            Type::Array { of, .. } => [vec![2, bytes], values(of)].concat(),
            Type::Compound { fields, .. } => {
                let all = fields
                    .iter()
                    .flat_map(|(place, of)| [vec![*place as u32], values(of)].concat());
                [vec![3, bytes, fields.len() as u32], all.collect()].concat()
            }
            Type::Other { .. } => vec![4, bytes],
        }
    }

    /// Writes an element of random numbers, and gives its bytes.
    fn element(
        of: &Type,
        random: &mut impl Iterator<Item = u64>,
        written: &mut Written,
    ) -> Vec<u8> {
        match of {
            Type::Number { bytes, is_big_endian, bits, lowest } => {
                let mut random = || u128::from(random.next().unwrap());
                let number = (random() << 64 | random()) & (u128::MAX >> (128 - bits));
                written.put(bits.saturating_sub(64), (number >> 64) as u64);
                written.put(*bits.min(&64), number as u64);
                let mut stored = (number << lowest).to_le_bytes()[..*bytes].to_vec();
                if *is_big_endian {
                    stored.reverse();
                }
                stored
            }
            Type::Array { bytes, of } => {
                (0..bytes / of.bytes()).flat_map(|_| element(of, random, written)).collect()
            }
            Type::Compound { bytes, fields } => {
                let mut stored = vec![0; *bytes];
                for (place, of) in fields {
                    stored[*place..][..of.bytes()].copy_from_slice(&element(of, random, written));
                }
                stored
            }
            Type::Other { bytes } => {
                let random: Vec<u8> = random.take(*bytes).map(|number| number as u8).collect();
                random.iter().for_each(|byte| written.put(8, (*byte).into()));
                random
            }
        }
    }

    /// Whether a field stands behind an array of arrays or of compounds.
    fn is_lost(of: &Type) -> bool {
        match of {
            Type::Array { of, .. } => is_lost(of),
            Type::Compound { fields, .. } => {
                let last = fields.len() - 1;
                fields.iter().any(|(_, of)| is_lost(of))
                    || fields[..last].iter().any(|(_, of)| of.loses_its_place())
            }
            _ => false,
        }
    }

    #[test]
    fn a_field_that_the_library_packs_wrongly_is_refused() {
        let number = [1, 4, 0, 20, 0];
        let arrays = [&[2, 16, 2, 8][..], &number].concat();
        let values = |fields: &[(u32, &[u32])]| {
            let fields: Vec<u32> =
                fields.iter().flat_map(|(place, of)| [&[*place], *of].concat()).collect();
            [&[0, 0, 1, 3, 20, 2][..], &fields].concat()
        };
        let said =
            decode(&values(&[(0, &arrays), (16, &number)]), &[0; 20], &mut [0; 20]).unwrap_err();
        assert!(said.contains("behind an array of arrays"), "{said}");
        assert_eq!(decode(&values(&[(0, &number), (4, &arrays)]), &[0; 20], &mut [0; 20]), Ok(()));
    }

    proptest! {
        #[test]
        fn elements_of_any_type_are_those_whose_bits_were_written(
            of in any_type(), count in 1_u32..6, random in vec(any::<u64>(), 1..20),
        ) {
            prop_assume!(!is_lost(&of));
            let (mut written, mut random) = (Written::default(), random.into_iter().cycle());
            let expected: Vec<u8> = (0..count).flat_map(|_| element(&of, &mut random, &mut written)).collect();
            let values = [vec![0, 0, count], values(&of)].concat();
            let (stored, mut out) = (written.bytes(), vec![1; expected.len()]);
            prop_assert_eq!(decode(&values, &stored, &mut out), Ok(()));
            prop_assert_eq!(&out, &expected);
            prop_assert_eq!(length(&values), Some(out.len()));
            prop_assert!(decode(&values, &stored[..stored.len() - 1], &mut out).is_err());
        }

        #[test]
        fn nothing_panics(values in vec(0_u32..9, 0..20), stored in vec(any::<u8>(), 0..40), length in 0_usize..60) {
            let _ = decode(&values, &stored, &mut vec![0; length]);
        }
    }
}
