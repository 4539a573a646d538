//! Names in other character sets than UTF-8.

use crate::format::{Error, OpenOptions, Result};
use encoding_rs::Encoding;
use std::path::Path;

/// The character set of names that do not say theirs. None: they stay as they are, as on any Unix.
#[derive(Debug, Clone, Copy)]
pub(super) struct Charset(Option<&'static Encoding>);

impl Charset {
    pub(super) fn new(options: &OpenOptions, path: &Path) -> Result<Self> {
        let label = options.encoding.as_ref().filter(|label| !label.eq_ignore_ascii_case("raw"));
        let Some(label) = label else { return Ok(Self(None)) };
        match Encoding::for_label(label.as_bytes()) {
            Some(encoding) => Ok(Self(Some(encoding))),
            None => Err(Error::Malformed {
                path: path.to_owned(),
                format: super::NAME,
                offset_bytes: 0,
                expected: "a character set that is known".to_owned(),
                found: label.clone(),
                hint: "",
            }),
        }
    }

    /// A name in UTF-8, if its character set is known; one that is UTF-8 already stays.
    pub(super) fn decode(self, name: &[u8]) -> Vec<u8> {
        match self.0 {
            Some(encoding) if std::str::from_utf8(name).is_err() => {
                encoding.decode_without_bom_handling(name).0.into_owned().into_bytes()
            }
            _ => name.to_vec(),
        }
    }
}
