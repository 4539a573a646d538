//! szip: the lossless data compression of CCSDS 121.0-B, with the layout of libaec's `sz_compat.c`.
//!
//! ```text
//! values  u32 options | samples of a block | bits of a sample | samples of a line
//! chunk   u32 bytes of it without szip | lines, one behind the other, the highest bit of each number first
//! line    blocks: ID of 3, 4 or 5 bits | reference, in the first | samples
//! ```
//! Samples of 32 and 64 bits are coded as samples of 8 bits, sorted by their place as by shuffle. A line whose last
//! block is not full is filled up. With the option of neighbours, samples are differences from the sample before, mapped
//! to numbers without a sign; the first one is the reference.
//!
//! | ID | samples |
//! | --- | --- |
//! | 0, then 0 | a run of blocks of zeros, by the zeros before a one: 5 blocks stand for the rest of 64, or of the line |
//! | 0, then 1 | pairs: the zeros before a one tell the sum of both and the second |
//! | k + 1 | the zeros before a one for each; then k lower bits for each |
//! | all ones | as they are, also the reference |
//!
//! Imports the bits, lengths and shuffle.

use super::bits::Bits;
use super::length;
use super::shuffle;
use crate::format::counted;

const OPTION_BIG_ENDIAN: u32 = 16;
const OPTION_NEIGHBOURS: u32 = 32;
/// The most blocks of a line that libaec takes.
const MAX_BLOCKS: u32 = 4096;
const MAX_BLOCK: u32 = 64;
/// The blocks of a segment: runs of zeros end with each segment.
const SEGMENT: usize = 64;
/// The run that stands for the rest of a segment.
const REST: usize = 5;
/// The bound of the sums of pairs, which are lower.
const MAX_PAIR: u32 = 13;
const LENGTH_BYTES: usize = 4;

struct Scheme {
    is_big_endian: bool,
    has_neighbours: bool,
    block: usize,
    /// Blocks in a line.
    blocks: usize,
    line: usize,
    /// The bits of a sample; 8 if its bytes are sorted.
    bits: u32,
    /// The bytes of a sample in the chunk.
    bytes: usize,
    /// Bytes of an element whose bytes are sorted.
    sorted: Option<usize>,
}

impl Scheme {
    fn read(values: &[u32]) -> Result<Self, String> {
        let [options, block, bits, line, ..] = values else {
            return Err(format!("szip has {} values, not 4", values.len()));
        };
        let blocks = line.div_ceil((*block).max(1));
        let is_right = (2..=MAX_BLOCK).contains(block)
            && block.is_multiple_of(2)
            && (1..=MAX_BLOCKS).contains(&blocks)
            && matches!(bits, 1..=24 | 32 | 64);
        if !is_right {
            return Err(format!(
                "szip with lines of {line}, blocks of {block}, samples of {bits} bits"
            ));
        }
        let (bits, sorted) = match bits {
            32 | 64 => (8, Some(*bits as usize / 8)),
            bits => (*bits, None),
        };
        Ok(Self {
            is_big_endian: options & OPTION_BIG_ENDIAN != 0,
            has_neighbours: options & OPTION_NEIGHBOURS != 0,
            block: *block as usize,
            blocks: blocks as usize,
            line: *line as usize,
            bits,
            bytes: bits.div_ceil(8).next_power_of_two() as usize,
            sorted,
        })
    }

    fn id_bits(&self) -> u32 {
        match self.bits {
            ..=8 => 3,
            9..=16 => 4,
            _ => 5,
        }
    }

    fn most(&self) -> u32 {
        u32::MAX.checked_shr(32_u32.saturating_sub(self.bits)).unwrap_or(0)
    }

    /// Decodes the blocks of a line, until there are `wanted` samples.
    fn line(
        &self,
        from: &mut Bits<'_>,
        wanted: usize,
        samples: &mut Vec<u32>,
    ) -> Result<(), String> {
        samples.clear();
        let raw = u64::MAX.checked_shr(64_u32.saturating_sub(self.id_bits())).unwrap_or(0);
        while samples.len() < wanted {
            let id = from.take(self.id_bits())?;
            if id == raw {
                for _ in 0..self.block {
                    samples.push(from.take(self.bits)? as u32);
                }
                continue;
            }
            let is_pairs = id == 0 && from.take(1)? == 1;
            let has_reference = self.has_neighbours && samples.is_empty();
            if has_reference {
                samples.push(from.take(self.bits)? as u32);
            }
            let left = self.block.saturating_sub(has_reference.into());
            match id.checked_sub(1) {
                Some(low) => self.split(from, low as u32, left, samples)?,
                None if is_pairs => self.pairs(from, left, samples)?,
                None => self.zeros(from, has_reference, samples)?,
            }
        }
        if self.has_neighbours {
            self.undo_differences(samples);
        }
        Ok(())
    }

    fn split(
        &self,
        from: &mut Bits<'_>,
        low: u32,
        count: usize,
        samples: &mut Vec<u32>,
    ) -> Result<(), String> {
        let first = samples.len();
        for _ in 0..count {
            let high = u64::from(from.zeros()?) << low;
            if high > self.most().into() {
                return Err(format!("szip has a sample of {high}"));
            }
            samples.push(high as u32);
        }
        for sample in samples.iter_mut().skip(first) {
            *sample |= from.take(low)? as u32;
        }
        Ok(())
    }

    fn pairs(
        &self,
        from: &mut Bits<'_>,
        count: usize,
        samples: &mut Vec<u32>,
    ) -> Result<(), String> {
        let end = samples.len().saturating_add(count);
        // Where a reference takes the place of a pair's first sample, the pair stands for the second one alone.
        let mut has_first = count.is_multiple_of(2);
        while samples.len() < end {
            // Pairs are counted by their sums: 0 + 0; 1 + 0, 0 + 1; 2 + 0, 1 + 1, 0 + 2 …
            let (mut second, mut sum) = (from.zeros()?, 0_u32);
            while second > sum && sum < MAX_PAIR {
                sum = sum.saturating_add(1);
                second = second.saturating_sub(sum);
            }
            let first = sum.checked_sub(second).filter(|_| sum < MAX_PAIR);
            let first = first.ok_or("szip has a pair that is none")?;
            if has_first {
                samples.push(first);
            }
            samples.push(second);
            has_first = true;
        }
        Ok(())
    }

    fn zeros(
        &self,
        from: &mut Bits<'_>,
        has_reference: bool,
        samples: &mut Vec<u32>,
    ) -> Result<(), String> {
        let before = samples.len().checked_div(self.block).unwrap_or(0);
        let left = self.blocks.saturating_sub(before);
        let blocks = match (from.zeros()? as usize).saturating_add(1) {
            REST => left.min(SEGMENT.saturating_sub(before % SEGMENT)),
            run if run > REST => run.saturating_sub(1),
            run => run,
        };
        if blocks > left {
            return Err(format!("szip has {blocks} blocks of zeros where a line has {left} left"));
        }
        let count = blocks.saturating_mul(self.block).saturating_sub(has_reference.into());
        samples.resize(samples.len().saturating_add(count), 0);
        Ok(())
    }

    /// Puts samples in the place of their differences.
    fn undo_differences(&self, samples: &mut [u32]) {
        let most = self.most();
        let Some((reference, differences)) = samples.split_first_mut() else { return };
        let mut last = *reference;
        for sample in differences {
            // Differences of either sign alternate as long as both are possible.
            let mapped = *sample;
            let mask = if last > most / 2 { most } else { 0 };
            let difference = (mapped >> 1) ^ (mapped & 1).wrapping_neg();
            last = match mapped.div_ceil(2) <= mask ^ last {
                true => last.wrapping_add(difference),
                false => mask ^ mapped,
            };
            *sample = last;
        }
    }

    fn write(&self, sample: u32, to: &mut [u8]) {
        // Usual sizes have code of their own: a loop over so few bytes takes longer than the rest of the decoder.
        match to {
            [byte] => *byte = sample as u8,
            [first, second] if self.is_big_endian => {
                [*first, *second] = (sample as u16).to_be_bytes();
            }
            [first, second] => [*first, *second] = (sample as u16).to_le_bytes(),
            _ => {
                to.iter_mut().zip(sample.to_le_bytes()).for_each(|(to, byte)| *to = byte);
                if self.is_big_endian {
                    to.reverse();
                }
            }
        }
    }
}

/// The number of bytes that a chunk decodes to; `None` if the chunk ends early.
pub(super) fn length(stored: &[u8]) -> Option<usize> {
    stored.first_chunk().map(|length| u32::from_le_bytes(*length) as usize)
}

/// Decodes a chunk; fills `out`.
pub(super) fn decode(values: &[u32], stored: &[u8], out: &mut [u8]) -> Result<(), String> {
    let scheme = Scheme::read(values)?;
    length::check("szip", length(stored), out.len())?;
    let element = scheme.sorted.unwrap_or(scheme.bytes);
    if !out.len().is_multiple_of(element) {
        // The library loses the bytes behind the last whole sample.
        let bytes = counted(out.len(), "byte");
        return Err(format!("szip of {bytes}, in samples of {element}"));
    }
    let mut bits = Bits::new(stored.get(LENGTH_BYTES..).unwrap_or_default());
    let mut samples = Vec::new();
    for line in out.chunks_mut(scheme.line.saturating_mul(scheme.bytes)) {
        let wanted = line.len().checked_div(scheme.bytes).unwrap_or(0);
        scheme.line(&mut bits, wanted, &mut samples)?;
        for (to, sample) in line.chunks_exact_mut(scheme.bytes).zip(&samples) {
            scheme.write(*sample, to);
        }
    }
    if let Some(element) = scheme.sorted {
        let unsorted = shuffle::undo(out, element);
        out.copy_from_slice(&unsorted);
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

    /// Differences as the standard maps them.
    fn mapped(samples: &[u64], most: u64) -> Vec<u64> {
        let pairs = samples.iter().zip(&samples[1..]);
        pairs
            .map(|(last, next)| {
                let (below, above) = (*last, most - last);
                let (both, far) = (below.min(above), last.abs_diff(*next));
                match (far <= both, next >= last) {
                    (true, true) => 2 * far,
                    (true, false) => 2 * far - 1,
                    (false, _) => both + far,
                }
            })
            .collect()
    }

    /// A line in blocks, each in the way that `ways` names if it can be stored so.
    fn encode(
        scheme: &Scheme,
        line: &[u64],
        ways: &mut impl Iterator<Item = u32>,
        written: &mut Written,
    ) {
        let mut line = line.to_vec();
        line.resize(line.len().next_multiple_of(scheme.block), *line.last().unwrap());
        let has_reference = scheme.has_neighbours;
        let coded = match has_reference {
            true => [vec![line[0]], mapped(&line, scheme.most().into())].concat(),
            false => line.clone(),
        };
        let mut at = 0;
        while at < coded.len() {
            let block = &coded[at..at + scheme.block];
            let reference = (has_reference && at == 0).then(|| block[0]);
            let samples = &block[usize::from(reference.is_some())..];
            let raw = (1 << scheme.id_bits()) - 1;
            let begin = |written: &mut Written, id: u64, more: Option<u64>| {
                written.put(scheme.id_bits(), id);
                more.into_iter().for_each(|bit| written.put(1, bit));
                reference.into_iter().for_each(|reference| written.put(scheme.bits, reference));
            };
            at += scheme.block;
            match ways.next().unwrap() {
                way if samples.iter().all(|sample| *sample == 0) && way > 0 => {
                    begin(written, 0, Some(0));
                    // As many blocks of zeros as there are in a segment.
                    let before = (at - scheme.block) / scheme.block;
                    let rest = (SEGMENT - before % SEGMENT).min(scheme.blocks - before);
                    let more = coded[at..].chunks(scheme.block).take(rest - 1);
                    let more =
                        more.take_while(|block| block.iter().all(|sample| *sample == 0)).count();
                    let run = if way % 2 == 0 { more + 1 } else { 1 };
                    at += (run - 1) * scheme.block;
                    let is_rest = run == rest && (run >= REST || way % 3 == 0);
                    written.zeros(match is_rest {
                        true => REST as u32 - 1,
                        false if run >= REST => run as u32,
                        false => run as u32 - 1,
                    });
                }
                way if way % 4 == 1 && samples.iter().all(|sample| *sample < 6) => {
                    begin(written, 0, Some(1));
                    let all = if samples.len() % 2 == 1 {
                        [&[0], samples].concat()
                    } else {
                        samples.to_vec()
                    };
                    for pair in all.chunks(2) {
                        let sum = pair[0] + pair[1];
                        written.zeros((sum * (sum + 1) / 2 + pair[1]) as u32);
                    }
                }
                way if way % 4 > 1 => {
                    let low = (way % (raw as u32 - 1))
                        .max(scheme.bits.saturating_sub(7))
                        .min(raw as u32 - 2);
                    begin(written, u64::from(low) + 1, None);
                    samples.iter().for_each(|sample| written.zeros((sample >> low) as u32));
                    samples.iter().for_each(|sample| written.put(low, *sample));
                }
                _ => {
                    written.put(scheme.id_bits(), raw);
                    block.iter().for_each(|sample| written.put(scheme.bits, *sample));
                }
            }
        }
    }

    #[test]
    fn bytes_behind_the_last_whole_sample_are_refused_as_the_library_loses_them() {
        for (bits, element) in [(12, 2), (24, 4), (32, 4), (64, 8)] {
            let stored = [&21_u32.to_le_bytes()[..], &[0xff; 99]].concat();
            let said = decode(&[0, 8, bits, 8], &stored, &mut [0; 21]).unwrap_err();
            assert_eq!(said, format!("szip of 21 bytes, in samples of {element}"));
        }
    }

    fn samples() -> impl Strategy<Value = Vec<u64>> {
        let part = prop_oneof![
            vec(any::<u64>(), 1..40),
            (any::<u64>(), 1_usize..500).prop_map(|(sample, count)| vec![sample; count]),
            vec(0_u64..4, 1..60),
        ];
        vec(part, 1..8).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn samples_of_any_width_are_those_that_were_encoded(
            (options, bits) in (select(&[0_u32, 16, 32, 48][..]), select(&[1_u32, 5, 8, 12, 16, 17, 24, 32, 64][..])),
            (half, line) in (1_u32..17, 1_u32..300),
            samples in samples(), ways in vec(any::<u32>(), 1..20),
        ) {
            let values = [options, half * 2, bits, line];
            let scheme = Scheme::read(&values).unwrap();
            let samples: Vec<u64> = samples.iter().map(|sample| sample & u64::from(scheme.most())).collect();
            let count = samples.len() / scheme.sorted.unwrap_or(1) * scheme.sorted.unwrap_or(1);
            let (samples, mut ways) = (&samples[..count], ways.into_iter().cycle());
            let (mut written, mut expected) = (Written::default(), vec![0; count * scheme.bytes]);
            samples.chunks(line as usize).for_each(|line| encode(&scheme, line, &mut ways, &mut written));
            let places = expected.chunks_exact_mut(scheme.bytes).zip(samples);
            places.for_each(|(to, sample)| scheme.write(*sample as u32, to));
            if let Some(element) = scheme.sorted {
                expected = shuffle::undo(&expected, element);
            }
            let stored = [&(expected.len() as u32).to_le_bytes(), &written.bytes()[..]].concat();
            let mut out = vec![1; expected.len()];
            prop_assert_eq!(decode(&values, &stored, &mut out), Ok(()));
            prop_assert!(out == expected);
            prop_assert_eq!(length(&stored), Some(out.len()));
        }

        #[test]
        fn nothing_panics_and_no_more_is_made_than_a_line(
            (options, half, bits, line) in (any::<u32>(), 0_u32..40, 0_u32..70, any::<u16>()),
            (stored, zeros) in (vec(any::<u8>(), 0..60), 0_usize..2000),
            length in 0_u32..4000,
        ) {
            let stored = [&length.to_le_bytes()[..], &stored, &vec![0; zeros], &[0xff]].concat();
            let _ = decode(&[options, half * 2, bits, line.into()], &stored, &mut vec![0; length as usize]);
        }
    }
}
