//! Text in JSON, also bytes that should be text and are not UTF-8.
//!
//! Imports nothing.

/// Writes text, or the base64 of bytes that are not UTF-8, so that different bytes stay different.
pub(super) fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    match str::from_utf8(text) {
        // Writing to memory does not fail.
        Ok(text) => drop(serde_json::to_writer(out, text)),
        Err(_) => write_base64(out, text),
    }
}

/// The number of bytes that [`write_text`] writes.
pub(super) fn text_bytes(text: &[u8]) -> usize {
    let bytes = match str::from_utf8(text) {
        Ok(_) => {
            let more = |byte: &u8| match byte {
                b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1_usize,
                0..0x20 => 5,
                _ => 0,
            };
            text.iter().map(more).sum::<usize>().saturating_add(text.len())
        }
        Err(_) => text.len().div_ceil(3).saturating_mul(4),
    };
    bytes.saturating_add(2)
}

/// Writes bytes as their base64.
pub(super) fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    out.extend(base64(bytes));
    out.push(b'"');
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes as in RFC 4648, with padding.
fn base64(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for group in bytes.chunks(3) {
        let all = (0..3)
            .fold(0_u32, |all, place| all << 8 | u32::from(group.get(place).copied().unwrap_or(0)));
        for (place, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let digit = BASE64.get((all.wrapping_shr(shift) & 63) as usize);
            out.push(if place > group.len() { b'=' } else { digit.copied().unwrap_or(b'A') });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_text_is_known_before_it_is_written() {
        let all: Vec<u8> = (0..=127).collect();
        for text in
            [&all[..], "ä\u{2028}\"".as_bytes(), b"", b"\xff", b"\xff\xfe", b"\xffab", b"\xffabc"]
        {
            let mut out = Vec::new();
            write_text(&mut out, text);
            assert_eq!(text_bytes(text), out.len(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_base64() {
        for (bytes, text) in [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v")] {
            assert_eq!(base64(bytes), text.as_bytes());
        }
    }

    #[test]
    fn texts_that_differ_only_where_they_are_no_text_stay_different() {
        let written = |text: &[u8]| {
            let mut out = Vec::new();
            write_text(&mut out, text);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written("k\u{e4}se\n".as_bytes()), "\"käse\\n\"");
        assert_eq!(written(b"k\xe4se"), "\"a+RzZQ==\"");
        assert_eq!(written(b"k\xf6se"), "\"a/ZzZQ==\"");
    }
}
