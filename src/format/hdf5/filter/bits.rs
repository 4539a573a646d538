//! Bits, the highest of each byte first.

/// Reads numbers of any width.
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// Bits that were taken.
    at: usize,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn left(&self) -> usize {
        self.bytes.len().saturating_mul(8).saturating_sub(self.at)
    }

    /// The next 64 bits, zeros behind the last; 57 of them are right, wherever they begin.
    fn window(&self) -> u64 {
        let rest = self.bytes.get(self.at / 8..).unwrap_or_default();
        let bytes = match rest.first_chunk::<8>() {
            Some(bytes) => *bytes,
            None => {
                let mut bytes = [0; 8];
                bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                bytes
            }
        };
        u64::from_be_bytes(bytes) << (self.at % 8)
    }

    /// The next number, of up to 64 bits.
    pub(super) fn take(&mut self, count: u32) -> Result<u64, String> {
        if count > 32 {
            let high = self.take(count.saturating_sub(32))?;
            return Ok(high << 32 | self.take(32)?);
        }
        if count as usize > self.left() {
            return Err("its bits end early".to_owned());
        }
        let number = self.window().checked_shr(64_u32.saturating_sub(count)).unwrap_or(0);
        self.at = self.at.saturating_add(count as usize);
        Ok(number)
    }

    /// The number of zeros before the next one, which is taken as well.
    pub(super) fn zeros(&mut self) -> Result<u32, String> {
        let mut zeros = 0_u32;
        loop {
            let found = self.window().leading_zeros().min(57);
            let is_end = found < 57;
            zeros = zeros.saturating_add(found);
            self.at = self.at.saturating_add(found as usize);
            if self.left() == 0 {
                return Err("its bits end early".to_owned());
            }
            if is_end {
                self.at = self.at.saturating_add(1);
                return Ok(zeros);
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
