//! Compares samples with a list of checksums, without a mount.

use super::line::parse;
use super::samples::Samples;
use crate::catalog::Node;
use crate::dataset::hash::Algorithm;
use crate::failure::Failure;
use crate::tools::encrypted::Encrypted;

/// A line of a list.
pub(crate) struct Line {
    hash: Vec<u8>,
    path: Vec<u8>,
    algorithm: Algorithm,
}

/// The result for a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Right,
    /// The sample has another checksum.
    Wrong,
    /// The sample is bad in its container.
    Bad,
    /// The sample is encrypted, and cannot be decrypted.
    Locked,
    /// The sample does not exist.
    Missing,
}

/// The number of lines by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) missing: u64,
    pub(crate) bad: u64,
    pub(crate) encrypted: Encrypted,
    /// Encrypted with another password, or damaged.
    pub(crate) other_password: u64,
    pub(crate) wrong: u64,
}

/// The lines of a list, and the number of lines without a checksum and path. Without `algorithm`, the length of the
/// checksum decides.
pub(crate) fn parse_list(text: &[u8], algorithm: Option<Algorithm>) -> (Vec<Line>, u64) {
    let (mut lines, mut wrong) = (Vec::new(), 0);
    for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let read = parse(line).and_then(|(hash, path)| {
            let algorithm = algorithm.or_else(|| Algorithm::of_length(hash.len()))?;
            (hash.len() == algorithm.length()).then_some(Line { hash, path, algorithm })
        });
        match read {
            Some(line) => lines.push(line),
            None => wrong += 1,
        }
    }
    (lines, wrong)
}

/// Takes the path of a line and its verdict.
type TakeVerdict<'a> = dyn FnMut(&[u8], Verdict) -> Result<(), Failure> + 'a;

/// Compares samples with the lines of a list, and passes the path and the verdict of each line to `tell`: first the
/// missing samples, then the others in the order of the containers.
pub(crate) fn check(
    samples: &Samples,
    lines: Vec<Line>,
    threads: usize,
    tell: &mut TakeVerdict,
) -> Result<Tally, Failure> {
    let (mut tally, mut found) = (Tally::default(), Vec::with_capacity(lines.len()));
    for line in lines {
        match samples.catalog.find(samples.dataset(), &line.path)? {
            Some(Node::Sample(sample)) => found.push((sample, line)),
            _ => {
                tally.missing += 1;
                tell(&line.path, Verdict::Missing)?;
            }
        }
    }
    found.sort_by_key(|(sample, _)| *sample);
    let by_sample: Vec<&[(u64, Line)]> = found.chunk_by(|one, other| one.0 == other.0).collect();
    let algorithms = |sample: u64| {
        let place = by_sample.partition_point(|lines| lines[0].0 < sample);
        by_sample[place].iter().map(|(_, line)| line.algorithm).collect()
    };
    let mut next = by_sample.iter();
    let wanted = by_sample.iter().map(|lines| lines[0].0);
    samples.hash(wanted, threads, &algorithms, &mut |sample, hashes| {
        for (number, (_, line)) in next.next().copied().unwrap_or_default().iter().enumerate() {
            let verdict = match &hashes {
                Err(fault) if tally.encrypted.count(fault) => Verdict::Locked,
                Err(fault) => {
                    // Once, also where a list has several lines for it.
                    if number == 0 {
                        samples.log_bad(sample, &line.path, fault)?;
                    }
                    tally.other_password += u64::from(fault.is_encrypted());
                    if fault.is_encrypted() { Verdict::Locked } else { Verdict::Bad }
                }
                Ok(hashes) if hashes.get(number) == Some(&line.hash) => Verdict::Right,
                Ok(_) => Verdict::Wrong,
            };
            tally.bad += u64::from(verdict == Verdict::Bad);
            tally.wrong += u64::from(verdict == Verdict::Wrong);
            tell(&line.path, verdict)?;
        }
        Ok(())
    })?;
    Ok(tally)
}
