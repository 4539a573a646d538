//! Values as JSON: numbers, dates, text, and bytes.
//!
//! Imports values, the schema, and JSON of this room.

use super::schema::{Meaning, Physical};
use super::values::days_of;
use crate::format::bytes::{u32_at, u64_at};
use crate::format::json::{write_base64, write_text};
use std::io::Write;

pub(super) fn write_value(
    out: &mut Vec<u8>,
    value: &[u8],
    meaning: Meaning,
    physical: Physical,
    is_utc: bool,
) {
    match meaning {
        Meaning::Text | Meaning::Decimal(_) => write_text(out, value),
        Meaning::Bytes if physical != Physical::Bytes => write_base64(out, value),
        Meaning::Bytes => write_text(out, value),
        Meaning::Number(descr, _) => write_number(out, value, descr, is_utc),
    }
}

fn write_number(out: &mut Vec<u8>, value: &[u8], descr: &str, is_utc: bool) {
    let unsigned = match value {
        [only] => u64::from(*only),
        [low, high] => u64::from(u16::from_le_bytes([*low, *high])),
        [_, _, _, _] => u32_at(value, 0).unwrap_or(0).into(),
        _ => u64_at(value, 0).unwrap_or(0),
    };
    // The sign is extended from the bits that the value has.
    let shift = 64_u32.saturating_sub((value.len().min(8) as u32).saturating_mul(8));
    let signed = unsigned.wrapping_shl(shift).cast_signed().wrapping_shr(shift);
    let _ = match descr {
        "|b1" => write!(out, "{}", unsigned != 0),
        "<f4" => write_short(out, f32::from_bits(unsigned as u32)),
        "<f2" => write_short(out, half(unsigned as u16)),
        "<f8" => {
            let number = f64::from_bits(unsigned);
            match special(number) {
                Some(name) => out.write_all(name),
                None => serde_json::to_writer(out, &number).map_err(Into::into),
            }
        }
        _ if descr.starts_with("<M8") => {
            out.push(b'"');
            match days_of(value) {
                Some((days, of_day)) => write_days(out, days, of_day, 9, is_utc),
                None => write_time(out, signed, descr, is_utc),
            }
            out.push(b'"');
            Ok(())
        }
        _ if descr.get(1..2) == Some("u") => write!(out, "{unsigned}"),
        _ => write!(out, "{signed}"),
    };
}

fn write_short(out: &mut Vec<u8>, number: f32) -> std::io::Result<()> {
    match special(number.into()) {
        Some(name) => out.write_all(name),
        None => serde_json::to_writer(out, &number).map_err(Into::into),
    }
}

/// The name that Python's `json` writes, and reads, for a number that JSON does not have.
fn special(number: f64) -> Option<&'static [u8]> {
    match number {
        _ if number.is_nan() => Some(b"NaN"),
        f64::INFINITY => Some(b"Infinity"),
        f64::NEG_INFINITY => Some(b"-Infinity"),
        _ => None,
    }
}

/// Converts a float of 16 bits.
fn half(bits: u16) -> f32 {
    let sign = if bits & 0x8000 != 0 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2_f32.powi(-24),
        31 if fraction > 0.0 => f32::NAN,
        31 => f32::INFINITY,
        exponent => (1.0 + fraction / 1024.0) * 2_f32.powi(exponent.saturating_sub(15)),
    }
}

/// Writes a time as in ISO 8601: `2024-02-29`, `2024-02-29T12:00:00.000001Z`.
fn write_time(out: &mut Vec<u8>, value: i64, descr: &str, is_utc: bool) {
    let (in_second, digits) = match descr {
        "<M8[D]" => return write_date(out, value),
        "<M8[ms]" => (1000_i64, 3),
        "<M8[us]" => (1_000_000, 6),
        _ => (1_000_000_000, 9),
    };
    let in_day = in_second.saturating_mul(86_400);
    write_days(out, value.div_euclid(in_day), value.rem_euclid(in_day), digits, is_utc);
}

/// Writes a time: the days since 1970, and the time of the day in units of a second's last digit, of which `digits` stand
/// behind the point.
fn write_days(out: &mut Vec<u8>, days: i64, of_day: i64, digits: u32, is_utc: bool) {
    write_date(out, days);
    let in_second = 10_i64.saturating_pow(digits);
    let (second, behind) = (of_day.div_euclid(in_second), of_day.rem_euclid(in_second));
    let (hour, minute, second) =
        (second.div_euclid(3600), second.div_euclid(60).rem_euclid(60), second.rem_euclid(60));
    let (zone, digits) = (if is_utc { "Z" } else { "" }, digits as usize);
    let _ = write!(out, "T{hour:02}:{minute:02}:{second:02}.{behind:0digits$}{zone}");
}

fn write_date(out: &mut Vec<u8>, days: i64) {
    let (year, month, day) = date(days);
    let sign = if year < 0 { "-" } else { "" };
    let _ = write!(out, "{sign}{:04}-{month:02}-{day:02}", year.unsigned_abs());
}

/// Days since 1970 → year, month, day of the Gregorian calendar.
fn date(days: i64) -> (i64, i64, i64) {
    // Years that begin in March, in eras of 400.
    let days = days.saturating_add(719_468);
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let leap = (day / 1460).saturating_sub(day / 36_524).saturating_add(day / 146_096);
    let year = day.saturating_sub(leap) / 365;
    let before = year.saturating_mul(365).saturating_add(year / 4).saturating_sub(year / 100);
    let day = day.saturating_sub(before);
    let month = day.saturating_mul(5).saturating_add(2) / 153;
    let first = month.saturating_mul(153).saturating_add(2) / 5;
    let is_next = i64::from(month >= 10);
    let year = era.saturating_mul(400).saturating_add(year).saturating_add(is_next);
    let month = month.saturating_add(3).saturating_sub(is_next.saturating_mul(12));
    (year, month, day.saturating_sub(first).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(value: i64, descr: &str, is_utc: bool) -> String {
        let mut out = Vec::new();
        write_time(&mut out, value, descr, is_utc);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time(0, "<M8[D]", false), "1970-01-01");
        assert_eq!(time(19_782, "<M8[D]", false), "2024-02-29");
        assert_eq!(time(-1, "<M8[D]", false), "1969-12-31");
        assert_eq!(time(951_868_800_000, "<M8[ms]", true), "2000-03-01T00:00:00.000Z");
        assert_eq!(time(-1, "<M8[us]", false), "1969-12-31T23:59:59.999999");
        assert_eq!(time(-719_529, "<M8[D]", false), "-0001-12-31");
        assert_eq!(time(2_932_897, "<M8[D]", false), "10000-01-01");
    }

    #[test]
    fn times_of_96_bits_have_any_year() {
        let time = |of_day: i64, day: i64| {
            let day = (2_440_588 + day) as u32;
            let value = [&of_day.to_le_bytes()[..], &day.to_le_bytes()].concat();
            let mut out = Vec::new();
            write_number(&mut out, &value, "<M8[ns]", false);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(time(1, 2_932_896), "\"9999-12-31T00:00:00.000000001\"");
        assert_eq!(time(86_399_999_999_999, -719_162), "\"0001-01-01T23:59:59.999999999\"");
        assert_eq!(time(-1, 0), "\"1969-12-31T23:59:59.999999999\"");
        assert_eq!(time(0, 0), "\"1970-01-01T00:00:00.000000000\"");
    }

    #[test]
    fn numbers_that_json_does_not_have_are_named_as_python_names_them() {
        let mut out = Vec::new();
        write_number(&mut out, &f64::NAN.to_le_bytes(), "<f8", false);
        write_number(&mut out, &f32::NEG_INFINITY.to_le_bytes(), "<f4", false);
        write_number(&mut out, &0x7c00_u16.to_le_bytes(), "<f2", false);
        assert_eq!(out, b"NaN-InfinityInfinity");
    }

    #[test]
    fn short_floats_are_numbers() {
        for (bits, number) in
            [(0x3c00, 1.0), (0xc000, -2.0), (1, 5.960_464_5e-8), (0x7c00, f32::INFINITY)]
        {
            assert!((half(bits) - number).abs() < f32::EPSILON || half(bits) == number);
        }
        assert!(half(0x7e00).is_nan());
    }
}
