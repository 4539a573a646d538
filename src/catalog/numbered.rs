//! Samples named by their number: `000123`, `000123.jpg`, `000/000123`. Names are parsed and not stored, but for a
//! byte for each sample where suffixes differ.

use super::{Emit, Node, ROOT};
use crate::format::magic;

/// Longest name that a directory entry may have, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 255;

/// Numbered names, flat or in directories of `fanout` samples.
#[derive(Debug)]
pub struct Numbered {
    samples: u64,
    width: usize,
    fanout: Option<u64>,
    directory_width: usize,
    suffix: Suffix,
}

/// The suffix behind the number.
#[derive(Debug)]
pub enum Suffix {
    /// The same suffix for all samples, possibly an empty one.
    Fixed(String),
    /// A suffix by each sample's first bytes.
    PerSample(Suffixes),
}

/// Suffixes that differ from sample to sample, in a byte each.
pub struct Suffixes {
    table: Vec<&'static str>,
    /// Per sample: 0 for no suffix, k for `table[k - 1]`.
    codes: Vec<u8>,
}

impl Numbered {
    /// Names for `samples` samples: at least six digits, directories of `fanout` if given.
    ///
    /// # Panics
    /// `fanout` is 0.
    #[must_use]
    pub fn new(samples: u64, fanout: Option<u64>, suffix: Suffix) -> Self {
        assert_ne!(fanout, Some(0), "a directory holds at least one sample");
        let last = samples.saturating_sub(1);
        Self {
            samples,
            width: digits(last).max(6),
            fanout,
            directory_width: digits(fanout.map_or(0, |f| last / f)).max(3),
            suffix,
        }
    }

    /// The number of samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The number of directories, the root included.
    #[must_use]
    pub fn directories(&self) -> u64 {
        self.fanout.map_or(0, |fanout| self.samples.div_ceil(fanout)) + 1
    }

    /// The samples in a directory: first, and one past the last.
    fn range(&self, directory: u64) -> (u64, u64) {
        match (self.fanout, directory) {
            (None, ROOT) => (0, self.samples),
            (None, _) | (Some(_), ROOT) => (0, 0),
            (Some(fanout), _) => {
                let first = (directory - 1).saturating_mul(fanout).min(self.samples);
                (first, first.saturating_add(fanout).min(self.samples))
            }
        }
    }

    pub(super) fn lookup(&self, directory: u64, name: &[u8]) -> Option<Node> {
        if self.fanout.is_some() && directory == ROOT {
            let number = parse(name, self.directory_width)?;
            return (number < self.directories() - 1).then_some(Node::Directory(number + 1));
        }
        let (number, suffix) = name.split_at_checked(self.width)?;
        let (first, end) = self.range(directory);
        let sample = parse(number, self.width).filter(|n| (first..end).contains(n))?;
        (self.suffix.of(sample).as_bytes() == suffix).then_some(Node::Sample(sample))
    }

    pub(super) fn list(&self, directory: u64, from: u64, emit: &mut Emit) {
        let mut name = [0; MAX_NAME_BYTES];
        if self.fanout.is_some() && directory == ROOT {
            for number in from..self.directories() - 1 {
                write_number(&mut name[..self.directory_width], number);
                if !emit(&name[..self.directory_width], Node::Directory(number + 1)) {
                    break;
                }
            }
            return;
        }
        let (first, end) = self.range(directory);
        for sample in first.saturating_add(from)..end {
            let suffix = self.suffix.of(sample).as_bytes();
            write_number(&mut name[..self.width], sample);
            let length = self.width + suffix.len();
            name[self.width..length].copy_from_slice(suffix);
            if !emit(&name[..length], Node::Sample(sample)) {
                break;
            }
        }
    }

    /// The path of a directory from the root; the root's path is empty.
    pub(super) fn directory_path(&self, directory: u64) -> Vec<u8> {
        let number = directory.checked_sub(1);
        number.map_or(Vec::new(), |n| format!("{n:00$}", self.directory_width).into_bytes())
    }

    /// The path of a sample from the root.
    pub(super) fn path(&self, sample: u64) -> Vec<u8> {
        let directory = self.fanout.map_or(String::new(), |fanout| {
            format!("{:01$}/", sample / fanout, self.directory_width)
        });
        let suffix = self.suffix.of(sample);
        format!("{directory}{sample:00$}{suffix}", self.width).into_bytes()
    }
}

impl Suffix {
    fn of(&self, sample: u64) -> &str {
        match self {
            Suffix::Fixed(suffix) => suffix,
            Suffix::PerSample(suffixes) => suffixes.of(sample),
        }
    }
}

impl Suffixes {
    /// The suffixes of all samples, each by its code: 0 for none, k for number k - 1 of [`magic::suffixes`].
    #[must_use]
    pub fn new(codes: Vec<u8>) -> Self {
        Self { table: magic::suffixes(), codes }
    }

    fn of(&self, sample: u64) -> &'static str {
        let code = usize::try_from(sample).ok().and_then(|sample| self.codes.get(sample));
        let place = code.and_then(|code| usize::from(*code).checked_sub(1));
        place.and_then(|place| self.table.get(place)).copied().unwrap_or("")
    }
}

impl std::fmt::Debug for Suffixes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Suffixes of {} samples", self.codes.len())
    }
}

pub(super) fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Parses a number of exactly `width` decimal digits.
pub(super) fn parse(name: &[u8], width: usize) -> Option<u64> {
    if name.len() != width {
        return None;
    }
    name.iter().try_fold(0u64, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|d| *d < 10)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Fills `out` with the last `out.len()` decimal digits of `number`.
pub(super) fn write_number(out: &mut [u8], mut number: u64) {
    for place in out.iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
}
