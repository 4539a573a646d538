//! The small notations of HTTP and S3: escapes, queries, ranges and times.

use std::fmt::Write;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// Undoes `%XX`.
pub(super) fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 16).ok()).filter(|_| byte == b'%') {
            Some(value) => {
                out.push(value);
                rest = &tail[2..];
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Writes `%XX` for all bytes that may not stand in a URL; slashes stay.
pub(super) fn encode(text: &str) -> String {
    let mut out = String::new();
    for &byte in text.as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            _ => write!(out, "%{byte:02X}").expect("write to a string"),
        }
    }
    out
}

/// The value of a field of a query; an empty one for a field without `=`.
pub(super) fn field(query: &str, name: &str) -> Option<String> {
    let fields = query.split('&').map(|field| field.split_once('=').unwrap_or((field, "")));
    let mut found = fields.filter(|(key, _)| decode(key) == name);
    found.next().map(|(_, value)| decode(&value.replace('+', " ")))
}

/// The bytes of an object that a `Range` header asks for; `None` if it asks for no byte of the object.
pub(super) fn range(header: &str, length_bytes: u64) -> Option<Range<u64>> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    let range = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) => first..last.saturating_add(1).min(length_bytes),
        (Ok(first), Err(_)) => first..length_bytes,
        (Err(_), Ok(suffix)) => length_bytes.saturating_sub(suffix)..length_bytes,
        (Err(_), Err(_)) => return None,
    };
    (range.start < range.end).then_some(range)
}

/// A time as in `Last-Modified`.
pub(super) fn http_time(time: SystemTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, (year, month, day), (hour, minute, second)) = civil(time);
    let (weekday, month) = (DAYS[days as usize % 7], MONTHS[month as usize - 1]);
    format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

/// A time as in listings of S3.
pub(super) fn iso_time(time: SystemTime) -> String {
    let (_, (year, month, day), (hour, minute, second)) = civil(time);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000Z")
}

/// Days since 1970, the date, and the time of the day.
fn civil(time: SystemTime) -> (u64, (u64, u64, u64), (u64, u64, u64)) {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, in eras of 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let leaps = day_of_era / 1460 + day_of_era / 146_096;
    let year_of_era = (day_of_era + day_of_era / 36_524 - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (days, (year, month, day), (rest / 3600, rest / 60 % 60, rest % 60))
}
