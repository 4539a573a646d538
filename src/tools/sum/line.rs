//! A line of a list of checksums, in the form of coreutils: `HASH  PATH`.

use crate::dataset::hash::from_hex;

/// Formats a line, with the escapes of coreutils. A file called `-` is not standard input.
pub(crate) fn format_line(digits: &str, path: &[u8]) -> Vec<u8> {
    let escapes = path.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\r'));
    let mut line = if escapes { b"\\".to_vec() } else { Vec::new() };
    line.extend_from_slice(digits.as_bytes());
    line.extend_from_slice(if path == b"-" { b"  ./" } else { b"  " });
    for &byte in path {
        match byte {
            b'\\' => line.extend_from_slice(b"\\\\"),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            byte => line.push(byte),
        }
    }
    line.push(b'\n');
    line
}

/// The hash and path of a line. `None` if the line has another form.
pub(crate) fn parse(line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (line, escapes) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let space = line.iter().position(|&byte| byte == b' ')?;
    let (digits, rest) = line.split_at(space);
    // The second character is the mode of the file: ` ` for text, `*` for binary.
    let path = rest.strip_prefix(b"  ").or_else(|| rest.strip_prefix(b" *"))?;
    let hash = from_hex(digits).filter(|hash| !hash.is_empty())?;
    let path = if escapes { unescape(path)? } else { path.to_vec() };
    (!path.is_empty()).then_some((hash, path))
}

fn unescape(path: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(path.len());
    let mut bytes = path.iter();
    while let Some(&byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            byte => byte,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_those_of_coreutils() {
        assert_eq!(format_line("00ff", b"a b"), b"00ff  a b\n");
        assert_eq!(format_line("00ff", b"a\nb\\c\rd"), b"\\00ff  a\\nb\\\\c\\rd\n");
        assert_eq!(format_line("00ff", b"-"), b"00ff  ./-\n");
        assert_eq!(parse(b"00ff *a"), Some((vec![0, 255], b"a".to_vec())));
        for wrong in [&b""[..], b"00ff", b"00ff a", b"00ff  ", b"0f0  a", b"\\00ff  a\\", b"  a"] {
            assert_eq!(parse(wrong), None, "{}", String::from_utf8_lossy(wrong));
        }
    }

    proptest! {
        #[test]
        fn any_path_is_read_as_it_was_written(
            path in prop::collection::vec(prop_oneof![Just(b'\\'), Just(b'\n'), 1_u8..], 1..20),
        ) {
            prop_assume!(path != b"-");
            let line = format_line("12345678", &path);
            let (newline, line) = line.split_last().unwrap();
            prop_assert!(*newline == b'\n' && !line.contains(&b'\n'));
            prop_assert_eq!(parse(line), Some((vec![0x12, 0x34, 0x56, 0x78], path)));
        }
    }
}
