//! Collects the members of an archive; at the end hard links find their targets.

use super::row::{IS_DAMAGED, IS_SPARSE, IS_SYMLINK, Index, Row};
use crate::format::one_or_many;
use crate::format::scanned::{self, TooMany};
use crate::format::{Attributes, Content, PartName, Piece, Sample};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// The index of an archive as it grows.
#[derive(Debug, Default)]
pub(super) struct Builder {
    index: scanned::Builder<Row>,
    /// Targets of hard links, in the order of their names: lengths, and the text.
    link_lengths: Vec<u32>,
    link_targets: Vec<u8>,
}

impl Builder {
    /// Adds a warning about the archive.
    pub(super) fn warn(&mut self, text: String) {
        self.index.warn(text);
    }

    pub(super) fn name_count(&self) -> usize {
        self.index.name_count()
    }

    pub(super) fn piece_count(&self) -> usize {
        self.index.piece_count()
    }

    /// Adds a file; returns its number. `pieces`: those of a sparse file, each with its offset in the file, its length,
    /// and its offset behind the sample's first byte.
    pub(super) fn file(
        &mut self,
        path: &[u8],
        attributes: &Attributes,
        sample: &Sample,
        pieces: &[(u64, u64, u64)],
    ) -> Result<u64, TooMany> {
        let mut row = Row::new(attributes);
        row.offset = sample.offset_bytes;
        row.length = sample.length_bytes;
        if sample.damaged {
            row.set(IS_DAMAGED);
        }
        if let Content::Sparse(size) = sample.content {
            row.set(IS_SPARSE);
            let pieces = pieces.iter().map(|&(at_bytes, length_bytes, behind)| Piece {
                at_bytes,
                length_bytes,
                offset_bytes: sample.offset_bytes.saturating_add(behind),
            });
            row.sparse = self.index.pieced(size, pieces)?;
        }
        let number = self.index.sample(&row, sample.size_bytes());
        self.index.name(path, number)?;
        Ok(number)
    }

    pub(super) fn symlink(
        &mut self,
        path: &[u8],
        attributes: &Attributes,
        target: &[u8],
    ) -> Result<(), TooMany> {
        let mut row = Row::new(attributes);
        row.set(IS_SYMLINK);
        (row.offset, row.length) = self.index.target(target);
        let number = self.index.sample(&row, 0);
        self.index.name(path, number)
    }

    pub(super) fn directory(
        &mut self,
        path: &[u8],
        attributes: &Attributes,
    ) -> Result<(), TooMany> {
        self.index.directory(path, attributes)
    }

    /// Adds a hard link.
    pub(super) fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), TooMany> {
        self.link_lengths.push(u32::try_from(target.len()).map_err(|_| TooMany)?);
        self.link_targets.extend_from_slice(target);
        self.index.open_name(path)
    }

    /// Marks a sample as damaged: its member turned out to be cut off.
    pub(super) fn mark_damaged(&mut self, sample: u64) {
        self.index.change(sample, |row| row.set(IS_DAMAGED));
    }

    /// Gives every hard link its sample: that of the last earlier member with the target's name, else of the last later
    /// one. A target that is not in the archive makes the link a damaged file.
    fn resolve_links(&mut self) -> Result<(), TooMany> {
        if self.link_lengths.is_empty() {
            return Ok(());
        }
        let mut missing: u64 = 0;
        let mut samples = Vec::with_capacity(self.link_lengths.len());
        for found in self.find_targets() {
            samples.push(match found {
                Some(sample) => {
                    self.index.change(sample, |row| row.links = row.links.saturating_add(1));
                    sample
                }
                None => {
                    missing = missing.saturating_add(1);
                    let mut row = Row::new(&Attributes::default());
                    row.set(IS_DAMAGED);
                    self.index.sample(&row, 0)
                }
            });
        }
        self.index.set_samples(samples.into_iter())?;
        if missing > 0 {
            self.warn(format!(
                "{} to a member that is not in the archive: reading fails",
                one_or_many(missing, "hard link leads", "hard links lead")
            ));
        }
        Ok(())
    }

    /// The samples of all hard links, in order.
    fn find_targets(&self) -> Vec<Option<u64>> {
        let links: Vec<&[u8]> = self.link_texts().collect();
        let mut wanted: HashMap<Path, Option<u64>> =
            links.iter().map(|target| (Path(target), None)).collect();
        let mut found = Vec::with_capacity(links.len());
        let mut targets = links.iter();
        for (path, sample) in self.index.sample_names() {
            let sample = sample.or_else(|| {
                let target = targets.next();
                let sample = target.and_then(|target| wanted.get(&Path(target)).copied().flatten());
                found.push(sample);
                sample
            });
            if let (Some(_), Some(known)) = (sample, wanted.get_mut(&Path(path))) {
                *known = sample;
            }
        }
        let later = |target: &&[u8]| wanted.get(&Path(target)).copied().flatten();
        found.iter().zip(&links).map(|(found, target)| found.or_else(|| later(target))).collect()
    }

    /// The targets of all hard links.
    fn link_texts(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.link_targets.as_slice();
        self.link_lengths.iter().map(move |length| {
            let (first, behind) = rest.split_at_checked(*length as usize).unwrap_or((rest, &[]));
            rest = behind;
            first
        })
    }

    pub(super) fn finish(mut self, part: PartName) -> Result<Index, TooMany> {
        self.resolve_links()?;
        Ok(self.index.finish(part))
    }
}

/// A path whose empty parts and `.` do not count, so that `./a` is `a`.
struct Path<'a>(&'a [u8]);

impl Path<'_> {
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."))
    }
}

impl Hash for Path<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().for_each(|part| part.hash(state));
    }
}

impl PartialEq for Path<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.parts().eq(other.parts())
    }
}

impl Eq for Path<'_> {}
