//! Character sets of stored names, where the archive does not name one.

use encoding_rs::Encoding;
use oem_cp::code_table::DECODING_TABLE_CP_MAP;
use std::borrow::Cow;

/// A character set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Charset {
    /// No character set: the stored bytes, whatever they are, even if the archive says that a name is UTF-8.
    Raw,
    /// A character set of the web.
    Web(&'static Encoding),
    /// A code page of DOS.
    Dos(u16),
}

impl Charset {
    /// The character set by the name that a user gives: `cp437`, `shift-jis`, `gbk`, `koi8-r` …; `raw` is [`Charset::Raw`].
    pub(super) fn named(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase();
        let page = ["cp", "ibm", "dos-", "oem"].iter().find_map(|prefix| name.strip_prefix(prefix));
        let page: Option<u16> = page.unwrap_or(&name).parse().ok();
        if name == "raw" {
            return Some(Charset::Raw);
        }
        if let Some(page) = page.filter(|page| DECODING_TABLE_CP_MAP.contains_key(page)) {
            return Some(Charset::Dos(page));
        }
        let label = match page {
            Some(932) => "shift_jis",
            Some(936) => "gbk",
            Some(949) => "euc-kr",
            Some(950) => "big5",
            Some(65001) => "utf-8",
            _ => &name,
        };
        Encoding::for_label(label.as_bytes()).map(Charset::Web)
    }

    /// The usual name of the character set.
    pub(super) fn name(self) -> String {
        match self {
            Charset::Raw => "raw".to_owned(),
            Charset::Web(encoding) => encoding.name().to_ascii_lowercase(),
            Charset::Dos(page) => format!("cp{page}"),
        }
    }

    /// Converts bytes to UTF-8; bytes that are invalid in this set stay as they are.
    pub(super) fn decode(self, bytes: &[u8]) -> Cow<'_, [u8]> {
        let text = match self {
            Charset::Raw => return bytes.into(),
            Charset::Web(encoding) => {
                let (text, had_errors) = encoding.decode_without_bom_handling(bytes);
                (!had_errors).then(|| text.into_owned())
            }
            Charset::Dos(page) => DECODING_TABLE_CP_MAP
                .get(&page)
                .and_then(|table| table.decode_string_checked(bytes)),
        };
        // A name that is invalid in this set stays as it is: no byte is lost, and the name differs from others.
        text.map_or(bytes.into(), |text| text.into_bytes().into())
    }
}

/// Whether [`super::OpenOptions::encoding`] can have this value.
#[must_use]
pub fn is_charset(name: &str) -> bool {
    Charset::named(name).is_some()
}
