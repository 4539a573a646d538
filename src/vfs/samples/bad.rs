//! Samples and parts that were found bad while the mount is in use: logged once, listed in `/.ffrfs/bad`.

use crate::catalog::Located;
use crate::format::{Fault, Mismatch, PartName};
use crate::io::{Change, ReadError};
use crate::vfs::bits::Bits;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The most bad samples that are listed; further ones are counted: a container full of junk must not fill the memory.
const MAX_LISTED: usize = 100_000;
/// The shortest time between two log messages about samples that are not read for lack of a resource.
const LACKING_EVERY: Duration = Duration::from_secs(60);

/// A bad sample.
#[derive(Debug, Clone)]
pub(in crate::vfs) struct Bad {
    pub(in crate::vfs) located: Located,
    pub(in crate::vfs) fault: Fault,
}

/// The result of [`BadList::all`].
pub(in crate::vfs) struct AllBad {
    /// Bad samples, in order.
    pub(in crate::vfs) samples: Vec<(u64, Bad)>,
    /// The number of requests that met a further bad sample.
    pub(in crate::vfs) unlisted: u64,
    /// Parts that cannot be used any more, and the reasons.
    pub(in crate::vfs) parts: Vec<(usize, String)>,
}

pub(in crate::vfs) struct BadList {
    /// Set before the first entry is added: while it is not set, a reader looks at no other field.
    any: AtomicBool,
    samples: RwLock<BTreeMap<u64, Bad>>,
    unlisted: Mutex<u64>,
    /// The time of the last log message that this machine lacks a resource.
    lacking: Mutex<Option<Instant>>,
    /// By part: why the part cannot be used any more.
    parts: Vec<OnceLock<String>>,
    /// By part: whether it is no longer the file or object that was mounted.
    changed: Bits,
    /// By part: whether its bytes may have changed, and its index with them.
    rewritten: Bits,
}

impl BadList {
    pub(in crate::vfs) fn new(parts: usize) -> Self {
        Self {
            any: AtomicBool::new(false),
            samples: RwLock::default(),
            unlisted: Mutex::new(0),
            lacking: Mutex::new(None),
            parts: (0..parts).map(|_| OnceLock::new()).collect(),
            changed: Bits::new(parts as u64),
            rewritten: Bits::new(parts as u64),
        }
    }

    /// Whether a read of this sample is known to fail.
    pub(in crate::vfs) fn is_hopeless(&self, sample: u64, part: usize) -> bool {
        self.any.load(Ordering::Acquire)
            && (self.parts[part].get().is_some()
                || self.read().get(&sample).is_some_and(|bad| bad.fault.is_permanent()))
    }

    /// Whether the sample is listed.
    pub(in crate::vfs) fn contains(&self, sample: u64) -> bool {
        self.any.load(Ordering::Acquire) && self.read().contains_key(&sample)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<u64, Bad>> {
        self.samples.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists and logs a bad sample, the first time, and tells whether this is the first time. A sample that is not bad, but
    /// could not be read for lack of a resource, is logged now and then. A sample for which the list has no room always counts
    /// as new.
    pub(in crate::vfs) fn add(&self, sample: u64, container: &PartName, bad: Bad) -> bool {
        if let Fault::Lacking(what) = &bad.fault {
            let mut said = self.lacking.lock().unwrap_or_else(PoisonError::into_inner);
            if said.is_none_or(|at| at.elapsed() >= LACKING_EVERY) {
                *said = Some(Instant::now());
                tracing::error!(%container, sample, "{container}: sample {sample}: not read: {what}");
            }
            return false;
        }
        self.any.store(true, Ordering::Release);
        let mut samples = self.samples.write().unwrap_or_else(PoisonError::into_inner);
        let listed = samples.get(&sample).map(|listed| listed.fault.is_permanent());
        // A permanent fault, such as a mismatch, takes the place of an error that may pass.
        if listed.is_some_and(|is_final| is_final || !bad.fault.is_permanent()) {
            return false;
        }
        if listed.is_none() && samples.len() >= MAX_LISTED {
            *self.unlisted.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            return true;
        }
        log(sample, container, &bad);
        samples.insert(sample, bad);
        true
    }

    /// Marks a whole part as bad, and logs the reason, the first time.
    pub(in crate::vfs) fn add_part(&self, part: usize, name: &PartName, what: String) {
        self.add_part_with(part, name, what, "EIO");
    }

    fn add_part_with(&self, part: usize, name: &PartName, what: String, errno: &str) {
        self.any.store(true, Ordering::Release);
        if self.parts[part].set(what.clone()).is_ok() {
            tracing::error!(container = %name, "{name}: {what}: its samples give {errno}");
        }
    }

    /// As [`BadList::add_part`], for a part that is no longer the file that was mounted.
    pub(in crate::vfs) fn add_changed(&self, part: usize, name: &PartName, change: Change) {
        if !change.spares_content() {
            self.rewritten.set(part as u64);
        }
        self.set_changed(part);
        self.add_part(part, name, ReadError::Changed(change).to_string());
    }

    /// Marks a part as changed, before it is listed: once it is listed, no attributes of its samples are given out.
    fn set_changed(&self, part: usize) {
        self.changed.set(part as u64);
        self.any.store(true, Ordering::Release);
    }

    /// As [`BadList::add_changed`], for an object: ESTALE instead of EIO, since a later mount has the new version.
    pub(in crate::vfs) fn add_stale(&self, part: usize, container: &PartName, what: String) {
        self.set_changed(part);
        self.add_part_with(part, container, what, "ESTALE");
    }

    /// Whether a part is known to be another file than the one that was mounted.
    pub(in crate::vfs) fn has_changed(&self, part: usize) -> bool {
        self.any.load(Ordering::Acquire) && self.changed.get(part as u64)
    }

    /// Whether the index of a changed part may have changed with it.
    pub(in crate::vfs) fn was_rewritten(&self, part: usize) -> bool {
        self.has_changed(part) && self.rewritten.get(part as u64)
    }

    /// The numbers of listed samples and of listed parts.
    pub(in crate::vfs) fn counts(&self) -> (u64, u64) {
        let parts = self.parts.iter().filter(|what| what.get().is_some()).count();
        (self.read().len() as u64, parts as u64)
    }

    /// All bad samples and parts, for the control file.
    pub(in crate::vfs) fn all(&self) -> AllBad {
        let samples = self.read().iter().map(|(&sample, bad)| (sample, bad.clone())).collect();
        let unlisted = *self.unlisted.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = self.parts.iter().enumerate();
        let parts = parts.filter_map(|(part, what)| Some((part, what.get()?.clone()))).collect();
        AllBad { samples, unlisted, parts }
    }
}

/// Logs a bad sample: in words for people, and as fields for `journalctl`.
fn log(sample: u64, container: &PartName, bad: &Bad) {
    let offset = bad.located.sample.offset_bytes;
    match &bad.fault {
        Fault::Checksum(Mismatch { expected, found }) => tracing::error!(
            %container, sample, offset,
            expected = format_args!("{expected:#010x}"),
            found = format_args!("{found:#010x}"),
            "{container}: sample {sample}: checksum mismatch: it gives EIO"
        ),
        Fault::PartChecksum { what, expected, found } => tracing::error!(
            %container, sample, offset,
            expected = format_args!("{expected:#010x}"),
            found = format_args!("{found:#010x}"),
            "{container}: sample {sample}: {what}: checksum mismatch: it gives EIO"
        ),
        Fault::Damaged => tracing::error!(
            %container, sample, offset, "{container}: sample {sample}: damaged: it gives EIO"
        ),
        Fault::Locked => tracing::error!(
            %container, sample, offset, "{container}: sample {sample}: encrypted: it gives EIO"
        ),
        Fault::OtherPassword => tracing::error!(
            %container, sample, offset,
            "{container}: sample {sample}: wrong password: encrypted with another one, or damaged: it gives EIO"
        ),
        Fault::Encryption(how) => tracing::error!(
            %container, sample, offset,
            "{container}: sample {sample}: encrypted in a way that ffrfs does not read ({how}): it gives EIO"
        ),
        Fault::Structure(what) => tracing::error!(
            %container, sample, offset, "{container}: sample {sample}: {what}: it gives EIO"
        ),
        Fault::Unreadable(error) | Fault::Lacking(error) => tracing::error!(
            %container, sample, offset, "{container}: sample {sample}: cannot be read: {error}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Checksum, Sample};

    #[test]
    fn a_sample_that_two_requests_find_bad_is_new_for_one_of_them() {
        let list = BadList::new(1);
        let name = PartName::from(std::path::Path::new("x.ffr"));
        let found = |fault: Fault| {
            let located = Located { container: 0, part: 0, index: 7, sample: Sample::default() };
            list.add(7, &name, Bad { located, fault })
        };
        let mismatch = Checksum::Crc32(1).compare(Checksum::Crc32(2)).unwrap_err();
        assert!(!found(Fault::Lacking("memory".to_owned())));
        assert!(found(Fault::Unreadable("it is busy".to_owned())));
        assert!(!found(Fault::Unreadable("it is busy".to_owned())));
        // It takes the place of an error that passed.
        assert!(found(mismatch.into()));
        assert!(!found(mismatch.into()));
        assert!(!found(Fault::Unreadable("it is busy".to_owned())));
        assert_eq!(list.counts(), (1, 0));
    }
}
