//! BloscLZ, as c-blosc 1 and 2 write it: literals of up to 32 bytes, and copies of 3 bytes at least from up to 72 KiB before.
//!
//! Imports copies.

use super::copies;

/// The distance from which copies are far ones.
const FAR: usize = 8191;
const ENDS: &str = "BloscLZ ends early";

/// Decodes all of `input`; fills `out`.
pub(super) fn decode(input: &[u8], out: &mut [u8]) -> Result<(), String> {
    let (mut bytes, mut done, mut is_first) = (input.iter().copied(), 0_usize, true);
    while let Some(control) = bytes.next() {
        // The first control byte is one of literals.
        let control =
            usize::from(if std::mem::take(&mut is_first) { control & 31 } else { control });
        if control < 32 {
            let to = out.get_mut(done..).and_then(|rest| rest.get_mut(..=control));
            for to in to.ok_or("BloscLZ of too many bytes")? {
                *to = bytes.next().ok_or(ENDS)?;
            }
            done = done.saturating_add(control).saturating_add(1);
            continue;
        }
        let (length, back) = distance(control, &mut bytes)?;
        done = copies::copy(out, done, (back, length)).map_err(|why| format!("BloscLZ {why}"))?;
    }
    match done == out.len() {
        true => Ok(()),
        false => Err(format!("BloscLZ of {done} bytes, not {}", out.len())),
    }
}

/// Reads the number of bytes that are copied, and how far before they begin.
fn distance(
    control: usize,
    bytes: &mut impl Iterator<Item = u8>,
) -> Result<(usize, usize), String> {
    let mut next = || bytes.next().map(usize::from).ok_or(ENDS);
    let (mut length, high) = (control >> 5, (control & 31) << 8);
    if length == 7 {
        loop {
            let more = next()?;
            length = length.saturating_add(more);
            if more != 255 {
                break;
            }
        }
    }
    let low = next()?;
    let back = match (high, low) {
        (0x1f00, 255) => (next()? << 8 | next()?).saturating_add(FAR),
        _ => high | low,
    };
    Ok((length.saturating_add(2), back.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn literals_and_copies_are_decoded() {
        let mut out = [0; 10];
        // "abc", then 7 bytes from 3 before: they overlap. The highest bits of the first byte mean nothing.
        decode(b"\x22abc\xa0\x02", &mut out).unwrap();
        assert_eq!(&out, b"abcabcabca");
        // Longer ones: 7 + 255 + 1 + 2 bytes from 1 before.
        let mut out = vec![0; 266];
        decode(b"\x00x\xe0\xff\x01\x00", &mut out).unwrap();
        assert!(out.iter().all(|byte| *byte == b'x'));
        // Far: 8191 + 2 + 1 before.
        let mut plain: Vec<u8> = (0..8194_u32).map(|number| (number % 251) as u8).collect();
        let mut input: Vec<u8> =
            plain.chunks(32).flat_map(|run| [&[run.len() as u8 - 1], run].concat()).collect();
        input.extend(b"\x3f\xff\x00\x02");
        plain.extend_from_within(..3);
        let mut out = vec![0; plain.len()];
        decode(&input, &mut out).unwrap();
        assert!(out == plain);
    }

    #[test]
    fn what_is_no_blosclz_is_refused() {
        for bad in
            [&b"\x05abc"[..], b"\x00a\x40\x01", b"\x00a\x20", b"\x02abc", b"\x00a\xe0\xff", b""]
        {
            assert!(decode(bad, &mut [0; 2]).is_err(), "{bad:?}");
        }
    }
}
