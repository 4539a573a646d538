//! The hashes of `sum`, and their hexadecimal form.

use crate::format::ChecksumKind;
use crate::format::checksum::Hasher;
use sha2::{Digest, Sha256, Sha512};

/// The hash in each line of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// For `sha256sum --check`
    Sha256,
    /// For `sha512sum --check`
    Sha512,
    /// For `b3sum --check`
    Blake3,
    /// As in zip, gzip and FFRecord; finds damage, not tampering
    Crc32,
    /// Castagnoli, as object stores keep it; finds damage, not tampering
    Crc32c,
}

impl Algorithm {
    /// The algorithm whose hashes have this length, for users who name none.
    pub(crate) fn of_length(bytes: usize) -> Option<Self> {
        match bytes {
            4 => Some(Algorithm::Crc32),
            32 => Some(Algorithm::Sha256),
            64 => Some(Algorithm::Sha512),
            _ => None,
        }
    }

    pub(crate) fn length(self) -> usize {
        match self {
            Algorithm::Sha256 | Algorithm::Blake3 => 32,
            Algorithm::Sha512 => 64,
            Algorithm::Crc32 | Algorithm::Crc32c => 4,
        }
    }

    pub(crate) fn begin(self) -> Hash {
        match self {
            Algorithm::Sha256 => Hash::Sha256(Sha256::new()),
            Algorithm::Sha512 => Hash::Sha512(Sha512::new()),
            Algorithm::Blake3 => Hash::Blake3(Box::new(blake3::Hasher::new())),
            Algorithm::Crc32 => Hash::Checksum(Hasher::new(ChecksumKind::Crc32)),
            Algorithm::Crc32c => Hash::Checksum(Hasher::new(ChecksumKind::Crc32c)),
        }
    }
}

/// A hash that is being computed.
pub(crate) enum Hash {
    Sha256(Sha256),
    Sha512(Sha512),
    Blake3(Box<blake3::Hasher>),
    Checksum(Hasher),
}

impl Hash {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Hash::Sha256(hash) => hash.update(bytes),
            Hash::Sha512(hash) => hash.update(bytes),
            Hash::Blake3(hash) => drop(hash.update(bytes)),
            Hash::Checksum(hash) => hash.update(bytes),
        }
    }

    /// The hash, in the order in which its digits are printed.
    pub(crate) fn finish(self) -> Vec<u8> {
        match self {
            Hash::Sha256(hash) => hash.finalize().to_vec(),
            Hash::Sha512(hash) => hash.finalize().to_vec(),
            Hash::Blake3(hash) => hash.finalize().as_bytes().to_vec(),
            Hash::Checksum(hash) => hash.finish().value().to_be_bytes().to_vec(),
        }
    }
}

/// Formats each byte as two digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Parses pairs of digits, in either case. `None` for other characters or an odd number.
pub(crate) fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(value(*high)? << 4 | value(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_standards() {
        for (algorithm, digits) in [
            (Algorithm::Crc32, "cbf43926"),
            (Algorithm::Crc32c, "e3069283"),
            (Algorithm::Sha256, "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
        ] {
            let mut hash = algorithm.begin();
            hash.update(b"1234");
            hash.update(b"56789");
            let found = hash.finish();
            assert_eq!((hex(&found).as_str(), found.len()), (digits, algorithm.length()));
            assert_eq!(from_hex(digits.to_uppercase().as_bytes()), Some(found));
        }
        let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(hex(&Algorithm::Blake3.begin().finish()), empty);
        assert_eq!(Algorithm::Sha512.begin().finish().len(), Algorithm::Sha512.length());
        assert_eq!((from_hex(b"abc"), from_hex(b"0g")), (None, None));
    }
}
