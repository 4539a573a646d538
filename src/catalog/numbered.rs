//! Samples named by their number: `000123`, `000123.jpg`, `000/000123`. Names parse, nothing is stored.

use super::{Dataset, Emit, Node, ROOT};
use crate::format::{Result, magic};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Longest name that a directory entry may have, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 255;

/// Numbered names, flat or in folders of `fanout` samples.
#[derive(Debug)]
pub struct Numbered {
    samples: u64,
    width: usize,
    fanout: Option<u64>,
    folder_width: usize,
    suffix: Suffix,
}

/// What stands behind the number.
pub enum Suffix {
    /// The same for all, possibly nothing.
    Fixed(String),
    /// By each sample's first bytes, read when the name is first needed and remembered in a byte each.
    PerSample(PerSample),
}

/// Suffixes that differ from sample to sample.
pub struct PerSample {
    suffixes: Vec<&'static str>,
    /// 0: not yet looked at; 1: none; k: `suffixes[k - 2]`.
    seen: Vec<AtomicU8>,
    read_head: Arc<ReadHead>,
}

/// Reads the first bytes of a sample (at most [`magic::HEAD_BYTES`]).
pub(super) type ReadHead = dyn Fn(&Dataset, u64) -> Result<Vec<u8>> + Send + Sync;

impl Numbered {
    /// Names for `samples` samples: at least six digits, folders of `fanout` if given.
    ///
    /// # Panics
    /// `fanout` is 0.
    #[must_use]
    pub fn new(samples: u64, fanout: Option<u64>, suffix: Suffix) -> Self {
        assert_ne!(fanout, Some(0), "a folder holds at least one sample");
        let last = samples.saturating_sub(1);
        Self {
            samples,
            width: digits(last).max(6),
            fanout,
            folder_width: digits(fanout.map_or(0, |f| last / f)).max(3),
            suffix,
        }
    }

    /// The number of samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Folders in all, the root included.
    #[must_use]
    pub fn folders(&self) -> u64 {
        self.fanout.map_or(0, |fanout| self.samples.div_ceil(fanout)) + 1
    }

    /// The samples in a folder: first, and one past the last.
    fn range(&self, folder: u64) -> (u64, u64) {
        match (self.fanout, folder) {
            (None, ROOT) => (0, self.samples),
            (None, _) | (Some(_), ROOT) => (0, 0),
            (Some(fanout), _) => {
                let first = (folder - 1).saturating_mul(fanout).min(self.samples);
                (first, first.saturating_add(fanout).min(self.samples))
            }
        }
    }

    pub(super) fn lookup(
        &self,
        dataset: &Dataset,
        folder: u64,
        name: &[u8],
    ) -> Result<Option<Node>> {
        if self.fanout.is_some() && folder == ROOT {
            let number = parse(name, self.folder_width);
            return Ok(number
                .filter(|&n| n < self.folders() - 1)
                .map(|number| Node::Folder(number + 1)));
        }
        let Some((number, suffix)) = name.split_at_checked(self.width) else { return Ok(None) };
        let (first, end) = self.range(folder);
        let Some(sample) = parse(number, self.width).filter(|n| (first..end).contains(n)) else {
            return Ok(None);
        };
        let same = self.suffix.of(dataset, sample)?.as_bytes() == suffix;
        Ok(same.then_some(Node::Sample(sample)))
    }

    pub(super) fn list(
        &self,
        dataset: &Dataset,
        folder: u64,
        from: u64,
        emit: &mut Emit,
    ) -> Result<()> {
        let mut name = [0; MAX_NAME_BYTES];
        if self.fanout.is_some() && folder == ROOT {
            for number in from..self.folders() - 1 {
                write_number(&mut name[..self.folder_width], number);
                if !emit(&name[..self.folder_width], Node::Folder(number + 1)) {
                    break;
                }
            }
            return Ok(());
        }
        let (first, end) = self.range(folder);
        for sample in first.saturating_add(from)..end {
            let suffix = self.suffix.of(dataset, sample)?.as_bytes();
            write_number(&mut name[..self.width], sample);
            let length = self.width + suffix.len();
            name[self.width..length].copy_from_slice(suffix);
            if !emit(&name[..length], Node::Sample(sample)) {
                break;
            }
        }
        Ok(())
    }

    /// The path of a folder from the root, whose own is empty.
    pub(super) fn folder_path(&self, folder: u64) -> Vec<u8> {
        let number = folder.checked_sub(1);
        number.map_or(Vec::new(), |n| format!("{n:00$}", self.folder_width).into_bytes())
    }

    /// The path of a sample from the root.
    pub(super) fn path(&self, dataset: &Dataset, sample: u64) -> Result<Vec<u8>> {
        let folder = self
            .fanout
            .map_or(String::new(), |fanout| format!("{:01$}/", sample / fanout, self.folder_width));
        let suffix = self.suffix.of(dataset, sample)?;
        Ok(format!("{folder}{sample:00$}{suffix}", self.width).into_bytes())
    }
}

impl Suffix {
    /// Suffixes by each sample's own first bytes, for `samples` samples.
    #[must_use]
    pub fn per_sample(samples: u64, read_head: Arc<ReadHead>) -> Self {
        let seen = (0..samples).map(|_| AtomicU8::new(0)).collect();
        Suffix::PerSample(PerSample { suffixes: magic::suffixes(), seen, read_head })
    }

    fn of(&self, dataset: &Dataset, sample: u64) -> Result<&str> {
        match self {
            Suffix::Fixed(suffix) => Ok(suffix),
            Suffix::PerSample(each) => each.of(dataset, sample),
        }
    }
}

impl PerSample {
    fn of(&self, dataset: &Dataset, sample: u64) -> Result<&str> {
        let Some(seen) = usize::try_from(sample).ok().and_then(|i| self.seen.get(i)) else {
            return Ok("");
        };
        let mut code = seen.load(Ordering::Relaxed);
        if code == 0 {
            let head = (self.read_head)(dataset, sample)?;
            let kind = magic::sniff(&head);
            let place = kind.and_then(|k| self.suffixes.iter().position(|s| *s == k.suffix));
            code = place.and_then(|p| u8::try_from(p + 2).ok()).unwrap_or(1);
            seen.store(code, Ordering::Relaxed);
        }
        Ok(usize::from(code).checked_sub(2).map_or("", |place| self.suffixes[place]))
    }
}

impl fmt::Debug for Suffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Suffix::Fixed(suffix) => write!(f, "Fixed({suffix:?})"),
            Suffix::PerSample(_) => f.write_str("PerSample"),
        }
    }
}

pub(super) fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Exactly `width` decimal digits.
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
