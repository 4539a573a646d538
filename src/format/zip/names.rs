//! The character set of names that do not state it.
//!
//! Names with the UTF-8 flag or a valid Unicode field, and names that are valid UTF-8 anyway, are taken as they
//! are. For the others one character set is guessed from all of them together, unless the user names one; cp437 if
//! the guess is weak.

use super::super::charset::Charset;
use super::record::{EXTRA_UNICODE_PATH, Row, field};
use crate::format::bytes::u32_at;
use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use std::borrow::Cow;

/// The most bytes of names that the detector gets: it learns nothing from more.
const GUESS_FROM_BYTES: usize = 1 << 20;
/// The bytes of names that are decoded to see whether the guess makes sense.
const JUDGED_BYTES: usize = 1 << 16;
/// Letters of Latin scripts come before this one.
const AFTER_LATIN: char = '\u{250}';
/// The letters of all other scripts begin with this one.
const OTHER_SCRIPTS: char = '\u{370}';
/// Latin letters as wide as an ideograph: a sign of a wrong guess rather than of a script.
const FULL_WIDTH_LATIN: std::ops::RangeInclusive<char> = '\u{ff01}'..='\u{ff5e}';
/// The code page of the first PCs, which the format's definition names.
const CP437: u16 = 437;
/// The least number of letters above ASCII for each control character, as the guessed set decodes the names.
const MIN_LETTERS_A_CONTROL: usize = 20;

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

/// Whether the name needs no character set.
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
    /// The first names, each with a newline behind it.
    names: Vec<u8>,
    left: usize,
    is_fed: bool,
}

impl Guess {
    pub(super) fn new() -> Self {
        Self {
            detector: EncodingDetector::new(Iso2022JpDetection::Deny),
            counts: [0; 128],
            names: Vec::new(),
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
        if self.names.len().saturating_add(row.name.len()) < JUDGED_BYTES {
            self.names.extend_from_slice(row.name);
            self.names.push(b'\n');
        }
        for byte in row.name.iter().filter(|byte| !byte.is_ascii()) {
            if let Some(count) = self.counts.get_mut(usize::from(byte & 0x7f)) {
                *count = count.saturating_add(1);
            }
        }
    }

    /// The character set of the names; `None` if no name needs one.
    pub(super) fn charset(mut self) -> Option<Charset> {
        if !self.is_fed {
            return None;
        }
        self.detector.feed(b"", true);
        let found = self.detector.guess(None, Utf8Detection::Deny);
        let (names, _) = found.decode_without_bom_handling(&self.names);
        let is_control = |letter: &char| ('\u{80}'..'\u{a0}').contains(letter);
        let controls = names.chars().filter(is_control).count();
        let is_other = |letter: &char| !letter.is_ascii() && letter.is_alphabetic();
        let others = names.chars().filter(is_other).count();
        let is_right = if controls.saturating_mul(MIN_LETTERS_A_CONTROL) > others {
            // Names have no control characters of that kind: such bytes stand for no letter in the guessed set.
            false
        } else if names.chars().any(is_of_other_script) {
            is_plausible(&names)
        } else {
            self.letters(Charset::Web(found)) > self.letters(Charset::Dos(CP437))
        };
        // After a weak guess, the set is the one that the format's definition names.
        Some(if is_right { Charset::Web(found) } else { Charset::Dos(CP437) })
    }

    /// The number of bytes above ASCII that are Latin letters in this set: names are made of letters.
    fn letters(&self, charset: Charset) -> u64 {
        let is_latin = |letter: char| letter.is_alphabetic() && letter < AFTER_LATIN;
        let is_letter = |byte: u8| {
            let decoded = charset.decode(&[byte]).into_owned();
            String::from_utf8(decoded).is_ok_and(|text| text.chars().all(is_latin))
        };
        let bytes = (0x80..=0xff).zip(&self.counts);
        bytes.filter(|(byte, _)| is_letter(*byte)).map(|(_, &count)| u64::from(count)).sum()
    }
}

/// A letter of Greek, Cyrillic, Japanese and so on.
fn is_of_other_script(letter: char) -> bool {
    letter >= OTHER_SCRIPTS && letter.is_alphabetic() && !FULL_WIDTH_LATIN.contains(&letter)
}

/// Whether letters of another script stand together, as in its words. An accented letter of a Latin word that was
/// decoded wrongly stands alone between ASCII letters (and may have taken the next letter with it).
fn is_plausible(names: &str) -> bool {
    let (mut together, mut alone) = (0_u64, 0_u64);
    let (mut run, mut before) = (0_u64, '\n');
    for letter in names.chars() {
        if is_of_other_script(letter) {
            run = run.saturating_add(1);
            continue;
        }
        let touches_ascii = before.is_ascii_alphabetic() || letter.is_ascii_alphabetic();
        if run == 1 && touches_ascii {
            alone = alone.saturating_add(1);
        } else {
            together = together.saturating_add(run);
        }
        (run, before) = (0, letter);
    }
    together > alone
}
