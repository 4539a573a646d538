//! LZF, as liblzf 3.6 writes it: literals of up to 32 bytes, and copies of 3 to 264 bytes from up to 8 KiB before.
//!
//! Imports copies.

use super::copies;
use crate::format::counted;

/// The number of bytes that `input` decodes to; `None` if it ends early.
pub(super) fn length(input: &[u8]) -> Option<usize> {
    let (mut rest, mut length) = (input, 0_usize);
    while let Some((control, behind)) = rest.split_first() {
        let control = usize::from(*control);
        let (taken, given) = match control {
            0..32 => (control.saturating_add(1), control.saturating_add(1)),
            0xe0.. => (2, usize::from(*behind.first()?).saturating_add(9)),
            _ => (1, (control >> 5).saturating_add(2)),
        };
        rest = behind.get(taken..)?;
        length = length.saturating_add(given);
    }
    Some(length)
}

/// Decodes all of `input`; fills `out`.
pub(super) fn decode(input: &[u8], out: &mut [u8]) -> Result<(), String> {
    let (mut at, mut done) = (0_usize, 0_usize);
    let next = |at: &mut usize| -> Result<usize, String> {
        let byte = input.get(*at).copied().ok_or("LZF ends early")?;
        *at = at.saturating_add(1);
        Ok(usize::from(byte))
    };
    while at < input.len() {
        let control = next(&mut at)?;
        if control < 32 {
            let length = control.saturating_add(1);
            let (from, to) = (at.saturating_add(length), done.saturating_add(length));
            let literal = input.get(at..from).ok_or("LZF ends within a literal")?;
            out.get_mut(done..to).ok_or("LZF of too many bytes")?.copy_from_slice(literal);
            (at, done) = (from, to);
            continue;
        }
        let mut length = control >> 5;
        if length == 7 {
            length = length.saturating_add(next(&mut at)?);
        }
        let length = length.saturating_add(2);
        let back = ((control & 31) << 8 | next(&mut at)?).saturating_add(1);
        done = copies::copy(out, done, (back, length)).map_err(|why| format!("LZF {why}"))?;
    }
    match done == out.len() {
        true => Ok(()),
        false => Err(format!("LZF of {}, not {}", counted(done, "byte"), out.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::{decode, length};

    #[test]
    fn literals_and_copies_are_decoded() {
        let mut out = [0; 10];
        // "abc", then 7 bytes from 3 before: they overlap.
        decode(b"\x02abc\xa0\x02", &mut out).unwrap();
        assert_eq!(&out, b"abcabcabca");
        // A long copy: 2 + 7 + 1.
        let mut out = [0; 11];
        decode(b"\x00x\xe0\x01\x00", &mut out).unwrap();
        assert_eq!(&out, b"xxxxxxxxxxx");
    }

    #[test]
    fn what_it_decodes_to_can_be_counted() {
        for (input, bytes) in [
            (&b""[..], Some(0)),
            (b"\x02abc\xa0\x02", Some(10)),
            (b"\x00x\xe0\x01\x00", Some(11)),
            (b"\x02ab", None),
            (b"\x00x\x20", None),
            (b"\x00x\xe0", None),
            (b"\x00x\xe0\x01", None),
        ] {
            assert_eq!(length(input), bytes, "{input:?}");
        }
    }

    #[test]
    fn what_is_no_lzf_is_refused() {
        for bad in [&b"\x05abc"[..], b"\x20\x00", b"\x00a\x20", b"\x02abc", b"\xe0", b"\x1f"] {
            assert!(decode(bad, &mut [0; 2]).is_err(), "{bad:?}");
        }
    }
}
