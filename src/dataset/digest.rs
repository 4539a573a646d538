//! The SHA-256 of whole containers, so that no other containers can be substituted.

use super::ahead;
use super::options::{Watch, Work};
use super::parallel;
use crate::failure::{Exit, Failure};
use crate::format::Source;
use crate::format::counted;
use crate::store::Part;
use indicatif::HumanBytes;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const PREFIX: &str = "sha256:";
const STEP_BYTES: usize = 1 << 20;

/// Parses `sha256:` and 64 digits.
///
/// # Errors
/// The text has another form.
pub fn parse(text: &str) -> Result<[u8; 32], String> {
    let wrong = || "sha256: and 64 hexadecimal digits are needed".to_owned();
    let digits = text.strip_prefix(PREFIX).ok_or_else(wrong)?;
    super::hash::from_hex(digits.as_bytes())
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(wrong)
}

/// The digest as text, in the form that [`parse`] reads.
#[must_use]
pub fn show(digest: &[u8; 32]) -> String {
    format!("{PREFIX}{}", super::hash::hex(digest))
}

/// Refuses containers with another digest.
pub(super) fn check(
    parts: &[Arc<Part>],
    expected: &[u8; 32],
    watch: &dyn Watch,
) -> Result<(), Failure> {
    let start = Instant::now();
    let found = of(parts, watch)?;
    if found != *expected {
        let which = match parts {
            [one] => one.name().to_string(),
            parts => counted(parts.len(), "container"),
        };
        let (expected, found) = (show(expected), show(&found));
        let error = format!(
            "{which}: the digest differs from --digest: expected {expected}, found {found}"
        );
        return Err(Failure::new(Exit::Checksum, error));
    }
    let bytes = parts.iter().map(|part| part.len_bytes()).sum();
    let seconds = start.elapsed().as_secs_f64();
    tracing::info!("digest as expected: {} read in {seconds:.1} s", HumanBytes(bytes));
    Ok(())
}

/// The digest of containers: the SHA-256 of a single one; for several, the SHA-256 of the list of theirs in
/// hexadecimal, one per line: `sha256sum A B | cut -c1-64 | sha256sum`.
///
/// # Errors
/// A part cannot be read, or was changed meanwhile; or `watch` cancels.
pub fn of(parts: &[Arc<Part>], watch: &dyn Watch) -> Result<[u8; 32], Failure> {
    let work = Hashing { done_bytes: AtomicU64::new(0), watch };
    watch.begin(Work::Digest, parts.iter().map(|part| part.len_bytes()).sum());
    let cpus = parallel::cpus().min(parts.len());
    let digests = parallel::map(parts.iter().collect(), cpus, &|part| work.one(part, cpus));
    watch.end();
    let digests = digests?;
    if let [one] = digests[..] {
        return Ok(one);
    }
    let list: String = digests.iter().map(|digest| super::hash::hex(digest) + "\n").collect();
    Ok(Sha256::digest(list).into())
}

/// Gives all bytes of a source, from the first to the last.
///
/// # Errors
/// It cannot be read; or `is_cancelled`.
pub(crate) fn pass(
    source: &dyn Source,
    is_cancelled: &dyn Fn() -> bool,
    take: &mut dyn FnMut(&[u8]),
) -> Result<(), Failure> {
    let (mut at, mut buffer) = (0, vec![0; STEP_BYTES]);
    while at < source.len() {
        if is_cancelled() {
            return Err(Failure::interrupted());
        }
        let length = (source.len() - at).min(STEP_BYTES as u64) as usize;
        let step = &mut buffer[..length];
        source.read_exact_at(step, at).map_err(|e| Failure::unreadable(source.name(), e))?;
        take(step);
        at += length as u64;
    }
    Ok(())
}

struct Hashing<'a> {
    done_bytes: AtomicU64,
    watch: &'a dyn Watch,
}

impl Hashing<'_> {
    fn one(&self, part: &Arc<Part>, together: usize) -> Result<[u8; 32], Failure> {
        let mut hash = Sha256::new();
        let source = ahead::pass(part, together);
        pass(source.as_ref(), &|| self.watch.is_cancelled(), &mut |step| {
            hash.update(step);
            let before = self.done_bytes.fetch_add(step.len() as u64, Ordering::Relaxed);
            self.watch.done(before + step.len() as u64);
        })?;
        let changed = |e| Failure::unreadable(part.name(), std::io::Error::other(e));
        part.check_unchanged().map_err(changed)?;
        Ok(hash.finalize().into())
    }
}
