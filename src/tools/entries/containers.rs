//! The entries of containers, with the names that a mount shows, read by the offline reader.

use super::list::{Place, list};
use super::types::{Entries, Entry, EntryKind, EntryMetadata};
use crate::catalog::{Catalog, Located, Node};
use crate::dataset::Opened;
use crate::failure::Failure;
use crate::format::{Checksum, Content, Fault, Kind};
use crate::interrupt::Interrupt;
use crate::tools::reader::{SampleReader, Scratch, SpanPlan, Stop, TakeChunk, WholeFile};
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Open containers, and the names that a mount would show.
pub(crate) struct ContainerEntries {
    opened: Opened,
    catalog: Catalog,
    interrupt: Interrupt,
    entries: Vec<Entry>,
    places: Vec<Place>,
    names: Vec<u8>,
}

impl ContainerEntries {
    /// Lists the names in `catalog` that `is_wanted` accepts.
    pub(crate) fn new(
        opened: Opened,
        catalog: Catalog,
        interrupt: &Interrupt,
        is_wanted: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Self, Failure> {
        let listed = list(&opened, &catalog, is_wanted)?;
        let mut this = Self {
            opened,
            catalog,
            interrupt: interrupt.clone(),
            entries: Vec::new(),
            places: listed.places,
            names: listed.names,
        };
        this.entries = this.find_entries()?;
        Ok(this)
    }

    pub(crate) fn is_numbered(&self) -> bool {
        matches!(&self.catalog, Catalog::Numbered(_))
    }

    fn find_entries(&self) -> Result<Vec<Entry>, Failure> {
        let mut first_names = HashMap::new();
        let mut entries = Vec::with_capacity(self.places.len());
        for (number, place) in self.places.iter().enumerate() {
            let Node::Sample(sample) = place.node else {
                entries.push(Entry { kind: EntryKind::Directory, size_bytes: 0 });
                continue;
            };
            let attributes = self.opened.dataset.attributes(sample)?;
            let size_bytes = self.locate(sample)?.sample.size_bytes();
            let mut kind = EntryKind::File;
            if attributes.kind == Kind::Symlink {
                kind = EntryKind::Symlink;
            } else if attributes.links > 1 {
                let first = *first_names.entry(sample).or_insert(number);
                kind = if first == number { EntryKind::File } else { EntryKind::HardLink(first) };
            }
            entries.push(Entry { kind, size_bytes });
        }
        Ok(entries)
    }

    fn locate(&self, sample: u64) -> Result<Located, Failure> {
        let located = self.opened.dataset.locate(sample)?;
        located.ok_or_else(|| Failure::usage(format!("there is no sample {sample}")))
    }

    fn located(&self, entry: usize) -> Result<Located, Fault> {
        match self.places[entry].node {
            Node::Sample(sample) => self.opened.dataset.locate(sample)?.ok_or(Fault::Damaged),
            Node::Directory(_) => Err(Fault::Structure("a directory".to_owned())),
        }
    }

    fn reader(&self) -> SampleReader<'_> {
        SampleReader::new(&self.opened, &self.interrupt)
    }

    /// The time of an entry without one of its own: that of the container, as in a mount.
    fn modified(&self, part: usize) -> (i64, u32) {
        self.opened.store.parts().get(part).map_or((0, 0), |part| since_epoch(part.modified()))
    }
}

impl Entries for ContainerEntries {
    fn list(&self) -> &[Entry] {
        &self.entries
    }

    fn path(&self, entry: usize) -> Vec<u8> {
        self.names[self.places[entry].path.clone()].to_vec()
    }

    fn metadata(&self, entry: usize) -> Result<EntryMetadata, Failure> {
        let dataset = &self.opened.dataset;
        match self.places[entry].node {
            Node::Directory(directory) => {
                let stored = self.catalog.attributes(directory).copied().unwrap_or_default();
                let modified = stored.modified.unwrap_or_else(|| self.modified(0));
                let (mode, has_time) = (stored.mode, stored.modified.is_some());
                Ok(EntryMetadata { mode, modified, has_time, ..EntryMetadata::default() })
            }
            Node::Sample(sample) => {
                let stored = dataset.attributes(sample)?;
                let located = self.locate(sample)?;
                let modified = stored.modified.unwrap_or_else(|| self.modified(located.part));
                let (mode, has_time) = (stored.mode, stored.modified.is_some());
                Ok(EntryMetadata { mode, modified, has_time, checksum: file_checksum(&located) })
            }
        }
    }

    fn link_target(&self, entry: usize) -> Result<Vec<u8>, Fault> {
        match (self.entries[entry].kind, self.places[entry].node) {
            (EntryKind::Symlink, Node::Sample(sample)) => {
                Ok(self.opened.dataset.link_target(sample)?)
            }
            _ => Ok(Vec::new()),
        }
    }

    fn batch_len(&self, entries: &[usize]) -> usize {
        let mut plan = SpanPlan::new(&self.opened.dataset);
        let mut fits = |entry: &usize| self.located(*entry).is_ok_and(|at| plan.add(&at));
        entries.iter().take_while(|entry| fits(entry)).count().max(1)
    }

    fn read_batch(
        &self,
        entries: &[usize],
        scratch: &mut Scratch,
    ) -> Result<Vec<Result<WholeFile, Fault>>, Failure> {
        let located = entries.iter().map(|entry| self.located(*entry));
        match located.collect::<Result<Vec<Located>, Fault>>() {
            Ok(span) => self.reader().read_span(&span, scratch),
            // The container was changed after the batch was made.
            Err(fault) => Ok(entries.iter().map(|_| Err(fault.clone())).collect()),
        }
    }

    fn stream(
        &self,
        entry: usize,
        scratch: &mut Scratch,
        take: &mut TakeChunk,
    ) -> Result<(), Stop> {
        self.reader().stream(&self.located(entry)?, scratch, take)
    }
}

/// Seconds and nanoseconds since 1970; for earlier times the nanoseconds still count forward.
fn since_epoch(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (since.as_secs().cast_signed(), since.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let seconds = before.as_secs().cast_signed().saturating_neg();
            match before.subsec_nanos() {
                0 => (seconds, 0),
                nanos => (seconds - 1, 1_000_000_000 - nanos),
            }
        }
    }
}

/// The checksum of the shown file, if it is stored: stored checksums do not cover prefixes and holes.
fn file_checksum(located: &Located) -> Option<Checksum> {
    let is_of_file = !matches!(located.sample.content, Content::Prefixed(_) | Content::Sparse(_));
    located.sample.checksum.filter(|_| is_of_file && !located.sample.damaged)
}
