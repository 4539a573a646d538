//! Lists of checksums as coreutils write and read them: `HASH  PATH`, a line each.

use crate::catalog::{Catalog, Node, ROOT};
use crate::dataset::hash::from_hex;
use crate::failure::Failure;
use crate::format::Kind;
use crate::tools::sum::Samples;
use crate::vfs::CONTROL_FOLDER;

/// The names of files, by sample.
pub(super) enum Names {
    /// They are computed.
    Computed(u64),
    /// Sample, and where its path lies in the bytes; by sample, those of one sample in listed order.
    Listed { places: Vec<(u64, u64, u32)>, bytes: Vec<u8> },
}

impl Names {
    /// Symbolic links are left out: what they lead to is there by its own name, or is not in the mount.
    pub(super) fn of(samples: &Samples) -> Result<Self, Failure> {
        let (dataset, catalog) = (samples.dataset(), samples.catalog());
        if !matches!(catalog, Catalog::Tree(_)) {
            return Ok(Names::Computed(dataset.len()));
        }
        let (mut places, mut bytes) = (Vec::new(), Vec::new());
        let hidden = [CONTROL_FOLDER.as_bytes(), b"/"].concat();
        let mut failure = None;
        catalog.walk(dataset, ROOT, &mut |path, node| {
            let Node::Sample(sample) = node else { return };
            if path == CONTROL_FOLDER.as_bytes() || path.starts_with(&hidden) {
                return;
            }
            match dataset.attributes(sample) {
                Ok(attributes) if attributes.kind == Kind::File => {
                    places.push((sample, bytes.len() as u64, path.len() as u32));
                    bytes.extend_from_slice(path);
                }
                Ok(_) => {}
                Err(error) => drop(failure.get_or_insert(error)),
            }
        })?;
        places.sort_by_key(|&(sample, ..)| sample);
        failure.map_or(Ok(Names::Listed { places, bytes }), |error| Err(error.into()))
    }

    /// The samples that have names, in order.
    pub(super) fn samples(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        match self {
            Names::Computed(samples) => Box::new(0..*samples),
            Names::Listed { places, .. } => {
                let same = places.chunk_by(|one, other| one.0 == other.0);
                Box::new(same.map(|names| names[0].0))
            }
        }
    }

    /// All names of a sample.
    pub(super) fn paths(
        &self,
        samples: &Samples,
        sample: u64,
        each: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self {
            Names::Computed(_) => {
                let paths = samples.catalog().paths(samples.dataset(), &[sample])?;
                paths.iter().try_for_each(|path| each(path))
            }
            Names::Listed { places, bytes } => {
                let first = places.partition_point(|place| place.0 < sample);
                let names = places[first..].iter().take_while(|place| place.0 == sample);
                names.copied().try_for_each(|(_, start, length)| {
                    let start = start as usize;
                    each(&bytes[start..start + length as usize])
                })
            }
        }
    }
}

/// A line, escaped as coreutils do. A file called `-` is not standard input.
pub(super) fn line(digits: &str, path: &[u8]) -> Vec<u8> {
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

/// Hash and path of a line. `None`: it is no such line.
pub(super) fn parse(line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (line, escapes) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let space = line.iter().position(|&byte| byte == b' ')?;
    let (digits, rest) = line.split_at(space);
    // The second character says how the file was read: ` ` as text, `*` as it is.
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
        assert_eq!(line("00ff", b"a b"), b"00ff  a b\n");
        assert_eq!(line("00ff", b"a\nb\\c\rd"), b"\\00ff  a\\nb\\\\c\\rd\n");
        assert_eq!(line("00ff", b"-"), b"00ff  ./-\n");
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
            let line = line("12345678", &path);
            let (newline, line) = line.split_last().unwrap();
            prop_assert!(*newline == b'\n' && !line.contains(&b'\n'));
            prop_assert_eq!(parse(line), Some((vec![0x12, 0x34, 0x56, 0x78], path)));
        }
    }
}
