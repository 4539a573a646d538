//! The keys of cache entries and in-flight reads.

use std::hash::{Hash, Hasher};

/// The key of an entry or an in-flight read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::vfs) enum CacheKey {
    /// A sample, by number.
    Sample(u64),
    /// The turn to decode a large sample at once, which only one read has at a time. No entry has this key.
    DecodeTurn,
    /// A decoded interval of a sample.
    Interval {
        /// The id of the sample's [`Checkpoints`].
        checkpoints: u64,
        /// The interval's number, from 0.
        number: u32,
    },
    /// A decoded interval of a compressed container.
    ContainerInterval {
        /// The container's number, from 0.
        container: u32,
        /// The interval's number, from 0.
        number: u64,
    },
}

impl CacheKey {
    /// The stream of an interval, as the key of its first interval, and the interval's number.
    pub(in crate::vfs) fn in_stream(self) -> (Self, u64) {
        let number = match self {
            CacheKey::Interval { number, .. } => u64::from(number),
            CacheKey::ContainerInterval { number, .. } => number,
            CacheKey::Sample(_) | CacheKey::DecodeTurn => 0,
        };
        (self.interval(0), number)
    }

    /// The key of another interval of the same stream.
    pub(in crate::vfs) fn interval(self, number: u64) -> Self {
        match self {
            CacheKey::Interval { checkpoints, .. } => CacheKey::Interval {
                checkpoints,
                number: u32::try_from(number).unwrap_or(u32::MAX),
            },
            CacheKey::ContainerInterval { container, .. } => {
                CacheKey::ContainerInterval { container, number }
            }
            other => other,
        }
    }

    /// The key as one number: keys that are often in use together have different numbers.
    pub(super) fn spread(&self) -> u64 {
        match *self {
            CacheKey::Sample(sample) => sample,
            CacheKey::DecodeTurn => 1 << 61,
            CacheKey::Interval { checkpoints, number } => {
                (1 << 62) ^ (checkpoints << 24) ^ u64::from(number)
            }
            CacheKey::ContainerInterval { container, number } => {
                (1 << 63) ^ (u64::from(container) << 36) ^ number
            }
        }
    }
}

impl Hash for CacheKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.spread());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_a_stream_are_told_apart_and_name_their_stream() {
        for key in [
            CacheKey::Interval { checkpoints: 7, number: 3 },
            CacheKey::ContainerInterval { container: 7, number: 3 },
        ] {
            let (stream, number) = key.in_stream();
            assert_eq!((stream, number), (key.interval(0), 3));
            assert_eq!(stream.interval(number), key);
            assert!(stream != key && stream.interval(4) != key);
        }
    }
}
