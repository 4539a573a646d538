//! `memory=`: how much memory a mount may use, and how that memory is shared out.

use crate::io::memory::heap;
use crate::io::process::cgroup::total_bytes;

/// The default: this share of the host's memory, but at most this many bytes.
const DEFAULT_PERCENT: u64 = 5;
const DEFAULT_BYTES: u64 = 512 << 20;
/// Where address space is limited, a mount takes at most one part in this many of it: a mount that runs out of it refuses
/// reads, and threads, the heap and decoders need far more than the caches.
const ADDRESS_SPACE: u64 = 8;
/// One part in this many of the memory is for samples that are being fetched for a waiting reader.
const FETCHING: u64 = 8;
/// The most bytes for requests and their answers.
const MAX_REQUEST_BYTES: u64 = 128 << 20;

/// How much memory a mount may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// A number of bytes.
    Bytes(u64),
    /// A share of the host's memory.
    Percent(u64),
}

impl Limit {
    /// The limit in bytes; `None` is the default.
    pub(crate) fn bytes(limit: Option<Self>) -> u64 {
        let total = total_bytes();
        match limit {
            Some(Limit::Bytes(bytes)) => bytes,
            Some(Limit::Percent(percent)) => total / 100 * percent,
            None => default_bytes(total, heap::limit_bytes().ok().flatten()),
        }
    }
}

/// The bytes that a mount may take by default, of `total` bytes of memory and, if it is limited, of the address space.
fn default_bytes(total: u64, address_space: Option<u64>) -> u64 {
    let most = (total / 100 * DEFAULT_PERCENT).min(DEFAULT_BYTES);
    address_space.map_or(most, |limit| most.min(limit / ADDRESS_SPACE))
}

/// The part of a mount's memory for requests and their answers.
pub(crate) fn for_requests(memory: u64) -> u64 {
    (memory / 4).min(MAX_REQUEST_BYTES)
}

/// The part of a mount's memory for samples that are being fetched for a waiting reader.
pub(crate) fn for_fetching(memory: u64) -> u64 {
    memory / FETCHING
}

/// The part of a mount's memory for the caches, which hold bytes that were read and not requested yet.
pub(crate) fn for_cache(memory: u64) -> u64 {
    memory - for_requests(memory) - for_fetching(memory)
}

/// As [`for_cache`], where buffers for requests hold `requests` bytes until the unmount; the error is the least memory that
/// would do, if too little is left.
pub(crate) fn for_cache_beside(requests: u64, memory: u64) -> Result<u64, u64> {
    let rest = memory - for_fetching(memory);
    match rest.checked_sub(for_requests(memory).max(requests)) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err((requests + 1).div_ceil(FETCHING - 1).saturating_mul(FETCHING)),
    }
}

/// A size as [`size`] reads it, in the largest unit in which it is a whole number.
pub(crate) fn in_words(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let whole = |&&(shift, _): &&(u32, _)| bytes > 0 && bytes.trailing_zeros() >= shift;
    match units.iter().find(whole) {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Parses a limit: `64M`, `10%`.
pub(crate) fn limit(text: &str) -> Result<Limit, String> {
    let Some(percent) = text.strip_suffix('%') else { return size(text).map(Limit::Bytes) };
    match percent.parse() {
        Ok(percent) if (1..=100).contains(&percent) => Ok(Limit::Percent(percent)),
        _ => Err("not a share of the memory, from 1% to 100%".to_owned()),
    }
}

/// Parses a size: `4096`, `256M`, `1G`, `512MiB`: powers of 1024.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let wrong = || "not a size such as 268435456, 256M or 1G".to_owned();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let unit = text[digits.len()..].to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("256M"), Ok(256 << 20));
        assert_eq!(size("1g"), Ok(1 << 30));
        assert_eq!(size("3KiB"), Ok(3072));
        assert_eq!(size("0"), Ok(0));
        for wrong in ["", "M", "-1", "1X", "1.5G", "99999999999G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_size_in_words_is_read_as_the_same_size() {
        for (bytes, words) in
            [(0, "0"), (1, "1"), (1 << 30, "1G"), (3 << 20, "3M"), (1 << 44, "16T")]
        {
            assert_eq!(in_words(bytes), words);
            assert_eq!(size(words), Ok(bytes));
        }
        assert_eq!(size(&in_words(1_262_187_520)), Ok(1_262_187_520));
    }

    #[test]
    fn the_cache_gets_no_memory_that_buffers_for_requests_hold() {
        assert_eq!(for_cache_beside(0, 512 << 20), Ok(for_cache(512 << 20)));
        assert_eq!(for_cache_beside(128 << 20, 512 << 20), Ok(for_cache(512 << 20)));
        assert_eq!(for_cache_beside(32 << 20, 64 << 20), Ok(24 << 20));
        let least = for_cache_beside(32 << 20, 32 << 20).unwrap_err();
        assert!(for_cache_beside(32 << 20, least).is_ok(), "{least}");
        assert!(for_cache_beside(0, 0).is_err());
    }

    #[test]
    fn a_limit_is_a_size_or_a_share() {
        assert_eq!(limit("64M"), Ok(Limit::Bytes(64 << 20)));
        assert_eq!(limit("10%"), Ok(Limit::Percent(10)));
        for wrong in ["0%", "101%", "%", "-1%", "5 %", "x"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Limit::bytes(Some(Limit::Percent(100))), total_bytes() / 100 * 100);
        assert!(Limit::bytes(None) <= DEFAULT_BYTES);
    }

    #[test]
    fn the_default_is_a_small_part_of_the_memory_and_of_a_limited_address_space() {
        assert_eq!(default_bytes(100 << 30, None), DEFAULT_BYTES);
        assert_eq!(default_bytes(2000 << 20, None), 100 << 20);
        assert_eq!(default_bytes(100 << 30, Some(400 << 20)), 50 << 20);
        assert_eq!(default_bytes(100 << 20, Some(400 << 20)), 5 << 20);
    }

    #[test]
    fn the_parts_of_the_memory_are_no_more_than_the_whole() {
        for memory in [0, 1, 1 << 20, 512 << 20, 64 << 30] {
            let parts = for_requests(memory) + for_cache(memory) + for_fetching(memory);
            assert!(parts <= memory, "{memory}");
        }
    }
}
