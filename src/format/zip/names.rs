//! In what character set the names are that do not say so.
//!
//! Names with the UTF-8 flag or a valid Unicode field, and names that are valid UTF-8 anyway, are taken as they
//! are. For the others one character set is guessed from all of them together, unless the user names one.

use super::super::charset::Charset;
use super::record::{EXTRA_UNICODE_PATH, Row, field};
use crate::format::bytes::u32_at;
use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::WINDOWS_1252;
use std::borrow::Cow;

/// More do not tell more.
const GUESS_FROM_BYTES: usize = 1 << 20;
/// The code page of the first PCs, which the format's definition names.
const CP437: u16 = 437;

impl Charset {
    /// A member's name, with slashes between the names of its path.
    pub(super) fn name_of<'a>(self, row: &Row<'a>) -> Cow<'a, [u8]> {
        let name = self.stored_name_of(row);
        if self == Charset::Raw || !row.has_backslashes() {
            return name;
        }
        let slash = |byte: &u8| if *byte == b'\\' { b'/' } else { *byte };
        name.iter().map(slash).collect::<Vec<_>>().into()
    }

    fn stored_name_of<'a>(self, row: &Row<'a>) -> Cow<'a, [u8]> {
        if self == Charset::Raw || (row.name.is_ascii() && row.extra.is_empty()) {
            return row.name.into();
        }
        if let Some(unicode) = unicode_path(row) {
            return unicode.into();
        }
        if is_known(row) { row.name.into() } else { self.decode(row.name) }
    }
}

/// Whether it needs no character set.
fn is_known(row: &Row) -> bool {
    row.name.is_ascii() || row.head.is_utf8() || std::str::from_utf8(row.name).is_ok()
}

/// Info-ZIP's Unicode field, if it belongs to this name: it holds the name's CRC, lest a tool renamed the
/// member and left the field.
pub(super) fn unicode_path<'a>(row: &Row<'a>) -> Option<&'a [u8]> {
    let stored = field(row.extra, EXTRA_UNICODE_PATH)?;
    let (&version, rest) = stored.split_first()?;
    let name = rest.get(4..)?;
    let is_right = version == 1
        && u32_at(rest, 0) == Some(crc32fast::hash(row.name))
        && std::str::from_utf8(name).is_ok();
    is_right.then_some(name)
}

/// Guesses a character set from many names.
pub(super) struct Guess {
    detector: EncodingDetector,
    /// Bytes above ASCII, to tell two sets of Western Europe apart.
    counts: [u32; 128],
    left: usize,
    is_fed: bool,
}

impl Guess {
    pub(super) fn new() -> Self {
        Self {
            detector: EncodingDetector::new(Iso2022JpDetection::Deny),
            counts: [0; 128],
            left: GUESS_FROM_BYTES,
            is_fed: false,
        }
    }

    pub(super) fn see(&mut self, row: &Row) {
        if is_known(row) || unicode_path(row).is_some() {
            return;
        }
        self.is_fed = true;
        let Some(left) = self.left.checked_sub(row.name.len()) else { return };
        self.left = left;
        self.detector.feed(row.name, false);
        self.detector.feed(b"\n", false);
        for byte in row.name.iter().filter(|byte| !byte.is_ascii()) {
            if let Some(count) = self.counts.get_mut(usize::from(byte & 0x7f)) {
                *count = count.saturating_add(1);
            }
        }
    }

    /// `None`: no name needs one.
    pub(super) fn charset(mut self) -> Option<Charset> {
        if !self.is_fed {
            return None;
        }
        self.detector.feed(b"", true);
        let found = self.detector.guess(None, Utf8Detection::Deny);
        // What it says when nothing else fits; the format's definition says another.
        let is_dos = found == WINDOWS_1252
            && self.letters(Charset::Dos(CP437)) >= self.letters(Charset::Web(found));
        Some(if is_dos { Charset::Dos(CP437) } else { Charset::Web(found) })
    }

    /// How many of the bytes above ASCII are letters in this set: names are made of letters.
    fn letters(&self, charset: Charset) -> u64 {
        let is_letter = |byte: u8| {
            let decoded = charset.decode(&[byte]).into_owned();
            String::from_utf8(decoded).is_ok_and(|text| text.chars().all(char::is_alphabetic))
        };
        let bytes = (0x80..=0xff).zip(&self.counts);
        bytes.filter(|(byte, _)| is_letter(*byte)).map(|(_, &count)| u64::from(count)).sum()
    }
}
