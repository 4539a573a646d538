//! Bits, the highest of each byte first.

/// The error for bits that end within a number. It is small, as the result of every number has room for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EndsEarly;

impl From<EndsEarly> for String {
    fn from(_: EndsEarly) -> Self {
        "its bits end early".to_owned()
    }
}

/// Reads numbers of any width.
pub(super) struct Bits<'a> {
    /// The bytes that are not in the window.
    bytes: &'a [u8],
    /// The next bits, from the highest on. Bits behind the valid ones are those of the next bytes, or zeros.
    window: u64,
    /// The number of valid bits in the window.
    valid: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, window: 0, valid: 0 }
    }

    /// Makes at least 56 bits of the window valid, if so many are left.
    fn fill(&mut self) {
        if let Some(next) = self.bytes.first_chunk::<8>() {
            let whole = 63_u32.saturating_sub(self.valid) / 8;
            self.window |= u64::from_be_bytes(*next) >> self.valid;
            self.valid = self.valid.saturating_add(whole.saturating_mul(8));
            self.bytes = self.bytes.get(whole as usize..).unwrap_or_default();
            return;
        }
        while self.valid <= 56
            && let Some((next, rest)) = self.bytes.split_first()
        {
            self.window |= u64::from(*next) << 56_u32.saturating_sub(self.valid);
            self.valid = self.valid.saturating_add(8);
            self.bytes = rest;
        }
    }

    /// Passes `count` valid bits, 63 at most.
    fn skip(&mut self, count: u32) {
        self.window <<= count;
        self.valid = self.valid.saturating_sub(count);
    }

    /// Takes the next number, of `count` bits, 64 at most.
    #[inline]
    pub(super) fn take(&mut self, count: u32) -> Result<u64, EndsEarly> {
        if count > 32 {
            let high = self.take_short(count.saturating_sub(32))?;
            return Ok(high << 32 | self.take_short(32)?);
        }
        self.take_short(count)
    }

    /// Takes the next number, of `count` bits, 32 at most.
    #[inline]
    fn take_short(&mut self, count: u32) -> Result<u64, EndsEarly> {
        if count > self.valid {
            self.fill();
            if count > self.valid {
                return Err(EndsEarly);
            }
        }
        let number = self.window >> 1 >> 63_u32.saturating_sub(count);
        self.skip(count);
        Ok(number)
    }

    /// Takes zeros and the 1 behind them; returns the number of zeros.
    #[inline]
    pub(super) fn zeros(&mut self) -> Result<u32, EndsEarly> {
        let mut before = 0_u32;
        loop {
            let found = self.window.leading_zeros();
            if found < self.valid {
                self.skip(found);
                self.skip(1);
                return Ok(before.saturating_add(found));
            }
            before = before.saturating_add(self.valid);
            (self.window, self.valid) = (0, 0);
            self.fill();
            if self.valid == 0 {
                return Err(EndsEarly);
            }
        }
    }
}

/// Bits as text, for tests.
#[cfg(test)]
#[derive(Default)]
pub(super) struct Written(String);

#[cfg(test)]
impl Written {
    /// The lowest bits of a number.
    pub(super) fn put(&mut self, count: u32, number: u64) {
        self.0 += &format!("{number:064b}")[64 - count as usize..];
    }

    pub(super) fn zeros(&mut self, zeros: u32) {
        self.0 += &"0".repeat(zeros as usize);
        self.0 += "1";
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.0.len().div_ceil(8)];
        for (at, _) in self.0.bytes().enumerate().filter(|(_, bit)| *bit == b'1') {
            bytes[at / 8] |= 0x80 >> (at % 8);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{Bits, Written};
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_of_any_width_and_runs_of_zeros_are_those_that_were_written(
            parts in vec((0_u32..65, any::<u64>(), 0_u32..200), 0..30),
        ) {
            let mut written = Written::default();
            for (width, number, zeros) in &parts {
                written.put(*width, *number);
                written.zeros(*zeros);
            }
            let bytes = written.bytes();
            let mut read = Bits::new(&bytes);
            for (width, number, zeros) in &parts {
                let cut = u128::from(*number) & ((1 << width) - 1);
                prop_assert_eq!(read.take(*width).map(u128::from), Ok(cut));
                prop_assert_eq!(read.zeros(), Ok(*zeros));
            }
            prop_assert!(read.zeros().is_err() && read.take(8).is_err());
        }
    }
}
