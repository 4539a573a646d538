//! Encoded values → values as they are shown, one behind the other.
//!
//! Imports encodings, the schema, and pages.

use super::encoding;
use super::page::MAX_PAGE_BYTES;
use super::schema::{Change, Leaf, MAX_DECIMAL_BYTES, MAX_SCALE, Meaning, Physical};
use crate::format::bytes::{u32_at, u64_at};
use crate::format::counted;

const PLAIN: i32 = 0;
const PLAIN_DICTIONARY: i32 = 2;
const RLE: i32 = 3;
const DELTA_BINARY_PACKED: i32 = 5;
const DELTA_LENGTH_BYTE_ARRAY: i32 = 6;
const DELTA_BYTE_ARRAY: i32 = 7;
const RLE_DICTIONARY: i32 = 8;
const BYTE_STREAM_SPLIT: i32 = 9;

/// The Julian day of 1970-01-01.
const EPOCH_DAY: i64 = 2_440_588;
const DAY_NANOSECONDS: i64 = 86_400_000_000_000;
/// NumPy's NaT: a time that 64 bits of nanoseconds do not hold.
const NOT_A_TIME: i64 = i64::MIN;

/// Values, one behind the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Values {
    pub(super) bytes: Vec<u8>,
    /// Bytes of each value, if all have the same length.
    width: Option<u32>,
    /// The end of each value in `bytes`, if the lengths differ.
    ends: Vec<u32>,
}

impl Values {
    fn fixed(bytes: Vec<u8>, width: u32) -> Self {
        Self { bytes, width: Some(width), ends: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        match self.width {
            Some(width) => self.bytes.len().checked_div(width as usize).unwrap_or(0),
            None => self.ends.len(),
        }
    }

    /// The start of a value in `bytes`, and its length.
    pub(super) fn place(&self, number: usize) -> Option<(u32, u32)> {
        if let Some(width) = self.width {
            let start = u32::try_from(number).ok()?.checked_mul(width)?;
            return Some((start, width));
        }
        let end = *self.ends.get(number)?;
        let before = number.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        let start = before.unwrap_or(0);
        Some((start, end.saturating_sub(start)))
    }

    /// Bytes of memory that the values take.
    pub(super) fn held_bytes(&self) -> u64 {
        self.bytes.len().saturating_add(size_of_val(&self.ends[..])) as u64
    }

    pub(super) fn get(&self, number: usize) -> Option<&[u8]> {
        let (start, length) = self.place(number)?;
        self.bytes.get(start as usize..)?.get(..length as usize)
    }

    fn push(&mut self, value: &[u8]) -> Result<(), String> {
        self.bytes.extend_from_slice(value);
        let end = u32::try_from(self.bytes.len()).ok().filter(|end| *end <= MAX_PAGE_BYTES);
        self.ends.push(end.ok_or("values of more than 256 MiB")?);
        Ok(())
    }
}

/// Whether values of this encoding are numbers of values in a dictionary.
pub(super) fn is_dictionary(encoding: i32) -> bool {
    matches!(encoding, PLAIN_DICTIONARY | RLE_DICTIONARY)
}

pub(super) fn is_plain(encoding: i32) -> bool {
    encoding == PLAIN
}

/// Decodes the numbers of values in a dictionary: `u8 width | runs`.
pub(super) fn numbers(bytes: &[u8], count: usize) -> Result<Vec<u32>, String> {
    match bytes.split_first() {
        Some((width, rest)) => encoding::runs(rest, (*width).into(), count),
        None if count == 0 => Ok(Vec::new()),
        None => Err("numbers of a dictionary without their width".to_owned()),
    }
}

/// Visits PLAIN values of variable length: the start of each, behind its stored length, and its length.
///
/// # Errors
/// The values end early, or `each` fails.
pub(super) fn plain_places(
    bytes: &[u8],
    count: usize,
    mut each: impl FnMut(u32, u32) -> Result<(), String>,
) -> Result<(), String> {
    let mut at = 0_usize;
    for _ in 0..count {
        let length = u32_at(bytes, at).ok_or("its values end early")?;
        let start = at.saturating_add(4);
        at = start.saturating_add(length as usize);
        if at > bytes.len() {
            return Err("a value that is longer than its page".to_owned());
        }
        each(u32::try_from(start).unwrap_or(u32::MAX), length)?;
    }
    Ok(())
}

/// Decodes `count` values of a page to the values that are shown.
///
/// # Errors
/// The bytes are not such values; the text says why.
pub(super) fn decode(
    leaf: &Leaf,
    encoding: i32,
    bytes: &[u8],
    count: usize,
    dictionary: Option<&Values>,
) -> Result<Values, String> {
    if count == 0 {
        return Ok(Values::default());
    }
    if is_dictionary(encoding) {
        let dictionary = dictionary.ok_or("there is no dictionary")?;
        let numbers = numbers(bytes, count)?;
        return looked_up(&numbers, dictionary);
    }
    let width = match leaf.physical {
        Physical::Boolean => 1,
        Physical::Fixed(width) => width,
        Physical::Bytes => 0,
    };
    let all = u64::from(width).saturating_mul(count as u64);
    if all > MAX_PAGE_BYTES.into() {
        return Err("values of more than 256 MiB".to_owned());
    }
    let all = usize::try_from(all).unwrap_or(0);
    let mut rest = bytes;
    let stored = match (encoding, leaf.physical) {
        (PLAIN, Physical::Boolean) => Values::fixed(encoding::booleans(bytes, count)?, 1),
        (RLE, Physical::Boolean) => {
            let (runs, _) = encoding::prefixed(bytes)?;
            let found = encoding::runs(runs, 1, count)?;
            Values::fixed(found.into_iter().map(|value| value as u8).collect(), 1)
        }
        (PLAIN, Physical::Fixed(width)) => {
            let found = bytes.get(..all).ok_or("its values end early")?;
            Values::fixed(found.to_vec(), width)
        }
        (BYTE_STREAM_SPLIT, Physical::Fixed(width)) => {
            Values::fixed(encoding::joined(bytes, width as usize, count)?, width)
        }
        (DELTA_BINARY_PACKED, Physical::Fixed(width @ (4 | 8))) => {
            let found = encoding::differences(&mut rest, count)?;
            let each = |value: &i64| value.to_le_bytes().into_iter().take(width as usize);
            Values::fixed(found.iter().flat_map(each).collect(), width)
        }
        (PLAIN, Physical::Bytes) => {
            let mut values = Values::default();
            plain_places(bytes, count, |start, length| {
                let value = bytes.get(start as usize..).and_then(|b| b.get(..length as usize));
                values.push(value.unwrap_or_default())
            })?;
            values
        }
        (DELTA_LENGTH_BYTE_ARRAY, Physical::Bytes) => {
            let lengths = encoding::lengths(&mut rest, count)?;
            let mut values = Values::default();
            for length in lengths {
                let taken = rest.split_at_checked(length as usize).ok_or("its values end early")?;
                values.push(taken.0)?;
                rest = taken.1;
            }
            values
        }
        (DELTA_BYTE_ARRAY, _) => fronts(rest, count, leaf.physical)?,
        (encoding, _) => return Err(format!("encoding {encoding} of its values")),
    };
    shown(leaf, stored)
}

/// Looks up values of a dictionary by their numbers.
fn looked_up(numbers: &[u32], dictionary: &Values) -> Result<Values, String> {
    let mut values = Values { width: dictionary.width, ..Values::default() };
    for number in numbers {
        let value = dictionary.get(*number as usize).ok_or("a number beyond its dictionary")?;
        if values.bytes.len().saturating_add(value.len()) > MAX_PAGE_BYTES as usize {
            return Err("values of more than 256 MiB".to_owned());
        }
        match dictionary.width {
            Some(_) => values.bytes.extend_from_slice(value),
            None => values.push(value)?,
        }
    }
    Ok(values)
}

/// Decodes DELTA_BYTE_ARRAY: each value begins with bytes of the value before it.
fn fronts(bytes: &[u8], count: usize, physical: Physical) -> Result<Values, String> {
    let mut rest = bytes;
    let fronts = encoding::lengths(&mut rest, count)?;
    let lengths = encoding::lengths(&mut rest, count)?;
    let mut values = Values::default();
    let mut last = 0_usize..0_usize;
    for (front, length) in fronts.into_iter().zip(lengths) {
        let (end, rest_end) =
            rest.split_at_checked(length as usize).ok_or("its values end early")?;
        let start = values.bytes.len();
        let same = last.start..last.start.saturating_add(front as usize);
        if same.end > last.end {
            return Err("a value that begins as a longer one before it".to_owned());
        }
        if start.saturating_add(same.len()).saturating_add(end.len()) > MAX_PAGE_BYTES as usize {
            return Err("values of more than 256 MiB".to_owned());
        }
        values.bytes.extend_from_within(same);
        values.push(end)?;
        last = start..values.bytes.len();
        rest = rest_end;
    }
    let Physical::Fixed(width) = physical else { return Ok(values) };
    match (0..count).all(|number| values.place(number).is_some_and(|(_, found)| found == width)) {
        true => Ok(Values::fixed(values.bytes, width)),
        false => Err(format!("a value that has not {}", counted(width, "byte"))),
    }
}

/// Converts stored values to the values that are shown.
fn shown(leaf: &Leaf, stored: Values) -> Result<Values, String> {
    match leaf.meaning {
        Meaning::Number(_, change) => Ok(changed(stored, change)),
        Meaning::Text | Meaning::Bytes => Ok(stored),
        Meaning::Decimal(scale) => {
            let mut out = Values::default();
            for number in 0..stored.len() {
                let value = stored.get(number).unwrap_or_default();
                out.push(decimal(value, scale, leaf.stored_type)?.as_bytes())?;
            }
            Ok(out)
        }
    }
}

fn changed(stored: Values, change: Change) -> Values {
    let width = stored.width.unwrap_or(1) as usize;
    let each = stored.bytes.chunks_exact(width.max(1));
    match change {
        Change::Nothing => stored,
        Change::Narrow(bytes) => {
            let narrow = each.flat_map(|value| value.get(..bytes as usize).unwrap_or_default());
            Values::fixed(narrow.copied().collect(), bytes)
        }
        Change::Widen => {
            let wide = |value| i64::from(u32_at(value, 0).unwrap_or(0).cast_signed());
            Values::fixed(each.flat_map(|value| wide(value).to_le_bytes()).collect(), 8)
        }
        Change::Days => {
            let nanoseconds = |value| {
                let (days, of_day) = days_of(value).unwrap_or((0, 0));
                // 64 bits do not hold the beginning of the first day, but times at its end.
                let since = i128::from(days).saturating_mul(DAY_NANOSECONDS.into());
                i64::try_from(since.saturating_add(of_day.into())).unwrap_or(NOT_A_TIME)
            };
            Values::fixed(each.flat_map(|value| nanoseconds(value).to_le_bytes()).collect(), 8)
        }
    }
}

/// The days since 1970 of a time of 96 bits, and nanoseconds of a day. `None` if the value is shorter.
pub(super) fn days_of(value: &[u8]) -> Option<(i64, i64)> {
    let (of_day, day) = (u64_at(value, 0)?.cast_signed(), u32_at(value, 8)?.cast_signed());
    let days = i64::from(day).saturating_sub(EPOCH_DAY);
    let more = of_day.div_euclid(DAY_NANOSECONDS);
    Some((days.saturating_add(more), of_day.rem_euclid(DAY_NANOSECONDS)))
}

/// A decimal as text: integers are little-endian, bytes big-endian.
fn decimal(mut value: &[u8], scale: i32, stored_type: i32) -> Result<String, String> {
    let is_big_endian = matches!(stored_type, 6 | 7);
    // Leading bytes that only repeat the sign are left out.
    while is_big_endian
        && value.len() > MAX_DECIMAL_BYTES as usize
        && let [sign @ (0 | 0xff), rest @ ..] = value
        && rest.first().is_some_and(|next| (next ^ sign) & 0x80 == 0)
    {
        value = rest;
    }
    if value.len() > MAX_DECIMAL_BYTES as usize {
        return Err(format!("a decimal of {}", counted(value.len(), "byte")));
    }
    if value.is_empty() {
        return Ok(String::new());
    }
    let mut bytes = value.to_vec();
    if is_big_endian {
        bytes.reverse();
    }
    let is_negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
    let scale = usize::try_from(scale.clamp(0, MAX_SCALE)).unwrap_or(0);
    let width = scale.saturating_add(1);
    let digits = format!("{:0>width$}", digits(&bytes, is_negative));
    let (whole, behind) = digits.split_at(digits.len().saturating_sub(scale));
    let sign = if is_negative { "-" } else { "" };
    let point = if behind.is_empty() { "" } else { "." };
    Ok(format!("{sign}{whole}{point}{behind}"))
}

/// The digits of a little-endian number in two's complement, without its sign.
fn digits(bytes: &[u8], is_negative: bool) -> String {
    let fill = if is_negative { u32::MAX } else { 0 };
    if bytes.len() <= 16 {
        let mut all = [(fill & 0xff) as u8; 16];
        all.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        return i128::from_le_bytes(all).unsigned_abs().to_string();
    }
    let (mut words, mut carry) = (Vec::new(), is_negative);
    for four in bytes.chunks(4) {
        let word = (0..4).rev().fold(0, |word, place| {
            let byte = four.get(place).map_or(fill & 0xff, |byte| u32::from(*byte));
            word << 8 | byte
        });
        // A negative number is inverted, and one is added.
        let (word, is_over) = (word ^ fill).overflowing_add(carry.into());
        carry = is_over;
        words.push(word);
    }
    let mut groups = Vec::new();
    while let Some(last) = words.last() {
        if *last == 0 {
            words.pop();
            continue;
        }
        let mut rest = 0_u64;
        for word in words.iter_mut().rev() {
            let all = rest << 32 | u64::from(*word);
            *word = (all / 1_000_000_000) as u32;
            rest = all % 1_000_000_000;
        }
        groups.push(rest);
    }
    let mut groups = groups.iter().rev();
    let first = groups.next().map_or_else(|| "0".to_owned(), u64::to_string);
    groups.fold(first, |digits, group| format!("{digits}{group:09}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_digits_with_a_point() {
        let decimal = |value: &[u8], scale, kind| super::decimal(value, scale, kind).unwrap();
        assert_eq!(decimal(&(-12_345_i32).to_le_bytes(), 2, 1), "-123.45");
        assert_eq!(decimal(&5_i64.to_le_bytes(), 3, 2), "0.005");
        assert_eq!(decimal(&[0xff, 0x38], 0, 7), "-200");
        assert_eq!(decimal(&[1, 0], 1, 6), "25.6");
        assert_eq!(decimal(&[], 1, 6), "");
    }

    #[test]
    fn times_of_96_bits_that_64_bits_of_nanoseconds_do_not_hold_are_no_other_times() {
        let shown = |of_day: i64, day: i64| {
            let day = (EPOCH_DAY + day) as u32;
            let stored = [&of_day.to_le_bytes()[..], &day.to_le_bytes()].concat();
            let shown = changed(Values::fixed(stored, 12), Change::Days);
            i64::from_le_bytes(shown.bytes.try_into().unwrap())
        };
        assert_eq!(shown(5, 1), DAY_NANOSECONDS + 5);
        assert_eq!(shown(0, -1), -DAY_NANOSECONDS);
        // The first and the last time that 64 bits hold, which have a part of their day.
        let (first, last) = (763_145_224_193, 85_636_854_775_807);
        assert_eq!(shown(first, -106_752), i64::MIN + 1);
        assert_eq!(shown(first - 2, -106_752), NOT_A_TIME);
        assert_eq!(shown(last, 106_751), i64::MAX);
        assert_eq!(shown(last + 1, 106_751), NOT_A_TIME);
        // Year 9999, and year 1.
        for day in [2_932_896, -719_162, i64::from(u32::MAX) - EPOCH_DAY] {
            let held = day * 86_400 / 1_000_000_000 == 0;
            assert_eq!(shown(0, day) == NOT_A_TIME, !held, "{day}");
        }
    }

    #[test]
    fn a_decimal_of_many_bytes_is_read_if_they_repeat_the_sign_and_else_refused() {
        let long = |sign: u8, last: u8| [&[sign; 200][..], &[last]].concat();
        assert_eq!(decimal(&long(0, 0xc8), 1, 6).unwrap(), "20.0");
        assert_eq!(decimal(&long(0xff, 0x38), 1, 6).unwrap(), "-20.0");
        assert_eq!(decimal(&[1; 129], 0, 6).unwrap_err(), "a decimal of 129 bytes");
        let unlike = [&[0][..], &[0xff; 128]].concat();
        assert!(decimal(&unlike, 0, 6).is_err());
    }

    /// 2²⁵⁵, as Python has it.
    const HALF: &str =
        "57896044618658097711785492504343953926634992332820282019728792003956564819968";

    #[test]
    fn decimals_have_all_digits_of_256_bits_and_more() {
        let decimal = |value: &[u8], scale| super::decimal(value, scale, 7).unwrap();
        let first = |byte: u8, others: u8| [&[byte][..], &[others; 31]].concat();
        assert_eq!(decimal(&first(0x80, 0), 0), format!("-{HALF}"));
        assert_eq!(decimal(&first(0x80, 0), 70), format!("-{}.{}", &HALF[..7], &HALF[7..]));
        assert_eq!(decimal(&first(0x7f, 0xff), 0), format!("{}7", &HALF[..HALF.len() - 1]));
        assert_eq!(decimal(&first(0xff, 0xff), 76), format!("-0.{:076}", 1));
        assert_eq!(decimal(&[0; 32], 2), "0.00");
        assert_eq!(decimal(&[&[0xff][..], &[0; 4]].concat(), 0), "-4294967296");
        assert_eq!(decimal(&[&[0][..], &[0xff; 16]].concat(), 0), u128::MAX.to_string());
    }

    #[test]
    fn values_that_begin_alike_are_put_together() {
        // "axis", "axle", "babble", "babyhood": the example of the specification.
        let lengths = |values: &[i64]| {
            let mut out = vec![0x80, 1, 4, values.len() as u8];
            out.push((values[0] << 1) as u8);
            out.extend([0, 8, 8, 8, 8]);
            // Differences from 0 up, of 8 bits: those of these tests never fall.
            let mut packed: Vec<u8> = values.windows(2).map(|p| (p[1] - p[0]) as u8).collect();
            packed.resize(32, 0);
            out.extend(packed);
            out
        };
        let bytes = [lengths(&[0, 2]), lengths(&[4, 4]), b"axisleXX".to_vec()].concat();
        let found = fronts(&bytes, 2, Physical::Bytes).unwrap();
        assert_eq!((found.get(0).unwrap(), found.get(1).unwrap()), (&b"axis"[..], &b"axleXX"[..]));
    }
}
