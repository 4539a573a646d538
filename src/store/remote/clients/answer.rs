//! Parses the responses of stores: headers, dates, XML.
//!
//! The input comes from a network: nothing here panics, and values that do not parse count as absent.

use quick_xml::Reader;
use quick_xml::events::Event;
use reqwest::header::{CONTENT_RANGE, DATE, ETAG, HeaderMap, LAST_MODIFIED, RETRY_AFTER};
use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A header as text.
pub(super) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim).filter(|value| !value.is_empty())
}

/// The strong ETag, in quotes. A weak one does not identify bytes.
pub(super) fn strong_etag(headers: &HeaderMap) -> Option<String> {
    quoted(header(headers, ETAG.as_str())?)
}

/// An ETag in quotes, which some listings leave out; `None` for a weak one, and for an empty one, which some servers send for all
/// objects.
pub(super) fn quoted(etag: &str) -> Option<String> {
    let etag = etag.trim();
    if etag.trim_matches('"').is_empty() || etag.starts_with("W/") {
        None
    } else if etag.len() >= 2 && etag.starts_with('"') && etag.ends_with('"') {
        Some(etag.to_owned())
    } else {
        Some(format!("\"{}\"", etag.trim_matches('"')))
    }
}

/// The object's modification time, to the second.
pub(super) fn last_modified(headers: &HeaderMap) -> Option<SystemTime> {
    httpdate::parse_http_date(header(headers, LAST_MODIFIED.as_str())?).ok()
}

/// The server's time.
pub(super) fn date(headers: &HeaderMap) -> Option<SystemTime> {
    httpdate::parse_http_date(header(headers, DATE.as_str())?).ok()
}

/// The pause that the server asks for, in seconds or until a date.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = header(headers, RETRY_AFTER.as_str())?;
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// The request's id at the store.
pub(super) fn request_id(headers: &HeaderMap) -> Option<String> {
    let names = [
        "x-amz-request-id",
        "x-ms-request-id",
        "x-guploader-uploadid",
        "x-goog-request-id",
        "x-request-id",
        "x-amz-cf-id",
    ];
    names.iter().find_map(|name| header(headers, name)).map(|id| shortened(id, 200))
}

/// `bytes 5-9/100`: the first and last byte, and the length. For a range past the end the header is `bytes */100`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentRange {
    /// The first and the last byte.
    pub(super) range: Option<(u64, u64)>,
    /// The object's length, if the server reports it.
    pub(super) total: Option<u64>,
}

pub(super) fn content_range(headers: &HeaderMap) -> Option<ContentRange> {
    parse_content_range(header(headers, CONTENT_RANGE.as_str())?)
}

pub(super) fn parse_content_range(value: &str) -> Option<ContentRange> {
    let (unit, rest) = value.trim().split_once(char::is_whitespace)?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let number = |text: &str| {
        let all_digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        all_digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    let (range, total) = rest.trim().split_once('/')?;
    let total = if total == "*" { None } else { Some(number(total)?) };
    let range = match range {
        "*" => None,
        range => {
            let (first, last) = range.split_once('-')?;
            let (first, last) = (number(first)?, number(last)?);
            let behind_end = total.is_some_and(|total| last >= total);
            if first > last || behind_end {
                return None;
            }
            Some((first, last))
        }
    };
    Some(ContentRange { range, total })
}

/// Parses a date in listings of S3 and GCS, `2024-05-06T07:08:09.123Z`, to the second, like `Last-Modified`.
pub(super) fn parse_timestamp(text: &str) -> Option<SystemTime> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, separator: char| -> Option<[u64; 3]> {
        let mut parts = text.split(separator).map(|part| part.parse().ok());
        let all = [parts.next()??, parts.next()??, parts.next()??];
        parts.next().is_none().then_some(all)
    };
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time.split('.').next()?, ':')?;
    let fits = (1970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !fits {
        return None;
    }
    // The year begins in March, so that a leap day is its last day.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    UNIX_EPOCH.checked_add(Duration::from_secs(((days * 24 + hour) * 60 + minute) * 60 + second))
}

/// The texts of an XML document: those in repeated elements, such as the objects of a listing, and the others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Texts {
    /// By name, the texts within each element of the requested name.
    pub(super) records: Vec<HashMap<String, String>>,
    /// By name, the texts outside of these elements.
    pub(super) others: HashMap<String, String>,
}

/// Parses an XML document. `None` if it is not XML, or is truncated.
pub(super) fn texts(xml: &str, record_name: &str) -> Option<Texts> {
    let mut reader = Reader::from_str(xml);
    let mut found = Texts::default();
    let mut record: Option<HashMap<String, String>> = None;
    let mut path: Vec<String> = Vec::new();
    let mut text = String::new();
    let mut elements = 0_usize;
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => {
                elements += 1;
                if path.len() > 32 {
                    return None;
                }
                let name = String::from_utf8_lossy(start.local_name().as_ref()).into_owned();
                if name == record_name {
                    record = Some(HashMap::new());
                }
                path.push(name);
                text.clear();
            }
            Event::Text(piece) => text.push_str(&piece.decode().ok()?),
            Event::CData(piece) => text.push_str(&piece.decode().ok()?),
            Event::GeneralRef(reference) => match reference.resolve_char_ref().ok()? {
                Some(character) => text.push(character),
                None => {
                    let name = reference.decode().ok()?;
                    text.push_str(quick_xml::escape::resolve_predefined_entity(&name)?);
                }
            },
            Event::End(_) => {
                let name = path.pop()?;
                if name == record_name {
                    found.records.extend(record.take());
                } else if !text.trim().is_empty() {
                    let place = record.as_mut().unwrap_or(&mut found.others);
                    place.insert(name, std::mem::take(&mut text));
                }
                text.clear();
            }
            Event::Eof => return (path.is_empty() && elements > 0).then_some(found),
            _ => {}
        }
    }
}

/// The message in the body of an error response, as one line: code and message of XML or JSON, or the text itself.
pub(super) fn complaint(body: &str) -> String {
    let (mut code, mut message) = (None, None);
    if let Some(mut texts) = texts(body, "") {
        code = texts.others.remove("Code");
        message = texts.others.remove("Message").or_else(|| texts.others.remove("title"));
    } else if let Ok(json) = serde_json::from_str::<serde_json::Value>(body) {
        let error = json.get("error").unwrap_or(&json);
        let text = |name: &str| error.get(name).and_then(|v| v.as_str()).map(str::to_owned);
        code = text("code").or_else(|| text("status"));
        message = error.as_str().map(str::to_owned).or_else(|| text("message"));
        message = message.or_else(|| text("error_description"));
    } else if !body.trim_start().starts_with('<') {
        message = Some(body.to_owned());
    }
    let said: Vec<String> = [code, message].into_iter().flatten().collect();
    shortened(&said.join(": "), 400)
}

/// The region that a refusal of S3 names.
pub(super) fn region_in(body: &str) -> Option<String> {
    texts(body, "")?.others.remove("Region").map(|region| region.trim().to_owned())
}

/// The text in one line without control characters, and cut to a length.
pub(super) fn shortened(text: &str, characters: usize) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut clean = words.chars().filter(|c| !c.is_control());
    let mut short: String = clean.by_ref().take(characters).collect();
    if clean.next().is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().expect("a header"));
        headers
    }

    #[test]
    fn a_content_range_says_what_it_holds() {
        let range = |text| parse_content_range(text);
        let some = |range, total| Some(ContentRange { range, total });
        assert_eq!(range("bytes 5-9/100"), some(Some((5, 9)), Some(100)));
        assert_eq!(range("bytes 5-9/*"), some(Some((5, 9)), None));
        assert_eq!(range("bytes */0"), some(None, Some(0)));
        for wrong in [
            "",
            "bytes",
            "bytes 5-9",
            "bytes 9-5/100",
            "bytes 5-100/100",
            "items 5-9/100",
            "bytes +5-9/100",
        ] {
            assert_eq!(range(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_server_asks_to_wait_for_seconds_or_until_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").expect("a date");
        let wait = |value| retry_after(&headers("retry-after", value), now);
        assert_eq!(wait("7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:50:00 GMT"), Some(Duration::from_secs(23)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(wait("soon"), None);
    }

    #[test]
    fn a_weak_etag_is_no_version_and_quotes_are_added() {
        let etag = |value| strong_etag(&headers("etag", value));
        assert_eq!(etag("\"a\"").as_deref(), Some("\"a\""));
        assert_eq!(etag("0x8D").as_deref(), Some("\"0x8D\""));
        assert_eq!(etag("W/\"a\""), None);
        assert_eq!(etag("\"\""), None);
    }

    #[test]
    fn timestamps_of_lists_are_those_of_headers() {
        for (stamp, header) in [
            ("1994-11-06T08:49:37.999Z", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("2024-02-29T00:00:00Z", "Thu, 29 Feb 2024 00:00:00 GMT"),
            ("1970-01-01T00:00:00.000Z", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("2100-03-01T23:59:59Z", "Mon, 01 Mar 2100 23:59:59 GMT"),
        ] {
            assert_eq!(parse_timestamp(stamp), httpdate::parse_http_date(header).ok(), "{stamp}");
        }
        assert_eq!(parse_timestamp("2024-13-01T00:00:00Z"), None);
    }

    #[test]
    fn a_list_is_taken_apart_with_its_entities() {
        let xml = "<?xml version=\"1.0\"?><r:List xmlns:r='x'><Token>a&amp;b</Token>\
            <Contents><Key>x&lt;&#65;\n</Key><Owner><ID>7</ID></Owner></Contents><Contents/></r:List>";
        let texts = texts(xml, "Contents").expect("XML");
        assert_eq!(texts.records.len(), 1);
        assert_eq!(texts.records[0]["Key"], "x<A\n");
        assert_eq!(texts.records[0]["ID"], "7");
        assert_eq!(texts.others["Token"], "a&b");
        assert_eq!(super::texts("<a><b>", ""), None);
        assert_eq!(super::texts("no XML", ""), None);
    }

    #[test]
    fn what_a_store_says_is_found_in_its_body() {
        let xml = "<Error><Code>NoSuchKey</Code><Message>No\n such key.</Message></Error>";
        assert_eq!(complaint(xml), "NoSuchKey: No such key.");
        assert_eq!(complaint("{\"error\":{\"status\":\"X\",\"message\":\"why\"}}"), "X: why");
        assert_eq!(complaint("{\"error\":\"why\"}"), "why");
        assert_eq!(complaint("plain\x1b[31m words"), "plain[31m words");
        assert_eq!(complaint("<!doctype html><p>x"), "");
    }

    proptest! {
        #[test]
        fn no_answer_makes_the_parsers_panic(text in "\\PC{0,60}", numbers in "[0-9TZ:.*/ -]{0,30}") {
            complaint(&text);
            texts(&format!("<List><Contents>{text}</Contents></List>"), "Contents");
            parse_timestamp(&numbers);
            parse_content_range(&format!("bytes {numbers}"));
            quoted(&text);
        }
    }
}
