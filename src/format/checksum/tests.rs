//! Checksums against a model that takes one bit at a time, and against published values.

use super::*;
use crate::format::Sample;
use proptest::collection::vec;
use proptest::prelude::*;

/// A reflected CRC of 32 bits, bit by bit.
fn bitwise(polynomial: u32, bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 };
        }
    }
    !crc
}

fn model(kind: ChecksumKind, bytes: &[u8]) -> u32 {
    let crc32c = || bitwise(0x82f6_3b78, bytes);
    match kind {
        ChecksumKind::Crc32 => bitwise(0xedb8_8320, bytes),
        ChecksumKind::Crc32c => crc32c(),
        // The mask of tensorflow's crc32c.h, computed in twice the width.
        ChecksumKind::MaskedCrc32c => {
            let twice = u64::from(crc32c()) * ((1 << 32) + 1);
            ((twice >> 15) + 0xa282_ead8) as u32
        }
    }
}

#[test]
fn checksums_are_those_of_the_standards() {
    let of = |kind: ChecksumKind| kind.of(b"123456789");
    assert_eq!(of(ChecksumKind::Crc32), Checksum::Crc32(0xcbf4_3926));
    assert_eq!(of(ChecksumKind::Crc32c), Checksum::Crc32c(0xe306_9283));
    // RFC 3720, B.4: 32 bytes of zeros.
    assert_eq!(ChecksumKind::Crc32c.of(&[0; 32]), Checksum::Crc32c(0x8a91_36aa));
    // The length 9 as the header of a TFRecord holds it.
    let header = 9_u64.to_le_bytes();
    let masked = ChecksumKind::MaskedCrc32c.of(&header).value();
    assert_eq!(unmask(masked), super::crc32c(&header));
}

#[test]
fn a_checksum_is_shown_with_its_name_and_its_value_in_hexadecimal() {
    assert_eq!(Checksum::Crc32(0xabc).to_string(), "CRC-32 0x00000abc");
    assert_eq!(Checksum::MaskedCrc32c(1).to_string(), "masked CRC-32C 0x00000001");
    assert_eq!(format!("{:08x}", Checksum::Crc32c(0xabc)), "00000abc");
    let wrong = Checksum::Crc32(1).check(b"").unwrap_err().to_string();
    assert_eq!(wrong, "checksum mismatch: expected 0x00000001, found 0x00000000");
}

#[test]
fn a_checksum_by_another_algorithm_is_another_one() {
    assert!(Checksum::Crc32(7).compare(Checksum::Crc32c(7)).is_err());
    assert_eq!(Checksum::Crc32c(7).crc32(), None);
    assert_eq!(ChecksumKind::with_code(0), None);
}

#[test]
fn a_typed_checksum_makes_samples_no_larger() {
    assert_eq!(size_of::<Option<Checksum>>(), size_of::<Option<u32>>());
    assert!(size_of::<Sample>() <= 56, "{} bytes", size_of::<Sample>());
}

proptest! {
    #[test]
    fn whole_pieces_and_combined_parts_agree_with_the_model(
        bytes in vec(any::<u8>(), 0..700),
        cuts in vec(0_usize..700, 0..6),
        flip in 0_usize..5600,
    ) {
        for kind in ChecksumKind::ALL {
            let expected = kind.with_value(model(kind, &bytes));
            prop_assert_eq!(kind.of(&bytes), expected);
            prop_assert_eq!(expected.check(&bytes), Ok(()));
            let (mut pieces, mut combined) = (Hasher::new(kind), expected.hasher());
            let mut cuts: Vec<_> = cuts.iter().map(|&cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            for pair in cuts.windows(2) {
                let piece = &bytes[pair[0]..pair[1]];
                pieces.update(piece);
                let mut part = Hasher::new(kind);
                part.update(piece);
                combined.combine(&part);
            }
            prop_assert_eq!(pieces.finish(), expected);
            prop_assert_eq!(combined.finish(), expected);
            let mut wrong = bytes.clone();
            if let Some(byte) = wrong.get_mut(flip / 8) {
                *byte ^= 1 << (flip % 8);
                let found = kind.of(&wrong);
                prop_assert_eq!(expected.check(&wrong), Err(Mismatch { expected, found }));
            }
            prop_assert_eq!(ChecksumKind::with_code(kind.code()), Some(kind));
        }
    }

    #[test]
    fn unmasking_undoes_masking(crc in any::<u32>()) {
        prop_assert_eq!(unmask(mask(crc)), crc);
    }
}
