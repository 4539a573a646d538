//! Collects what a scan finds into an [`Index`]; at the end hard links find their targets.

use super::index::{
    FOLDER_BIT, IS_DAMAGED, IS_SPARSE, IS_SYMLINK, Index, NAME_BYTES, Row, SAMPLE_BYTES, u32_at,
};
use crate::format::{Attributes, Content, PartName, Sample};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// What stands in a name's node until its target is known.
const LINK: u32 = FOLDER_BIT - 1;

/// So many tell what is going on.
const MAX_WARNINGS: usize = 32;

/// The arrays of an index as they grow.
#[derive(Debug, Default)]
pub(super) struct Builder {
    samples: Vec<u8>,
    names: Vec<u8>,
    paths: Vec<u8>,
    targets: Vec<u8>,
    sparse: Vec<u8>,
    pieces: Vec<u8>,
    folders: Vec<u8>,
    warnings: Vec<String>,
    /// Those that are not kept.
    more_warnings: u64,
    /// Targets of hard links, in the order of their names: lengths, and the text.
    link_lengths: Vec<u32>,
    link_targets: Vec<u8>,
    data_bytes: u64,
}

/// There are more members than can be numbered.
#[derive(Debug)]
pub(super) struct TooMany;

impl Builder {
    /// Samples so far.
    fn sample_count(&self) -> usize {
        self.samples.len() / SAMPLE_BYTES
    }

    /// Says something of the archive; an archive that is damaged everywhere says it only so often.
    pub(super) fn warn(&mut self, text: String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(text);
        } else {
            self.more_warnings = self.more_warnings.saturating_add(1);
        }
    }

    pub(super) fn name_count(&self) -> usize {
        self.names.len() / NAME_BYTES
    }

    pub(super) fn piece_count(&self) -> usize {
        self.pieces.len() / 24
    }

    fn name(&mut self, path: &[u8], node: u32) -> Result<(), TooMany> {
        let length = u32::try_from(path.len()).map_err(|_| TooMany)?;
        self.names.extend_from_slice(&length.to_le_bytes());
        self.names.extend_from_slice(&node.to_le_bytes());
        self.paths.extend_from_slice(path);
        Ok(())
    }

    fn row(&mut self, row: &Row) -> Result<u32, TooMany> {
        let number = self.sample_count();
        let number = u32::try_from(number).ok().filter(|number| *number < LINK).ok_or(TooMany)?;
        row.pack(&mut self.samples);
        Ok(number)
    }

    /// Adds a file; gives its number. `pieces`: of a sparse one, with their place behind its first byte.
    pub(super) fn file(
        &mut self,
        path: &[u8],
        meta: &Attributes,
        sample: &Sample,
        pieces: &[(u64, u64, u64)],
    ) -> Result<u32, TooMany> {
        let mut row = Row::new(meta);
        row.offset = sample.offset_bytes;
        row.length = sample.length_bytes;
        if sample.damaged {
            row.flags |= IS_DAMAGED;
        }
        if let Content::Sparse(size) = sample.content {
            row.flags |= IS_SPARSE;
            row.sparse = u32::try_from(self.sparse.len() / 16).map_err(|_| TooMany)?;
            self.sparse.extend_from_slice(&size.to_le_bytes());
            self.sparse.extend_from_slice(&(self.piece_count() as u64).to_le_bytes());
            for (at, length, behind) in pieces {
                let stored = sample.offset_bytes.saturating_add(*behind);
                for word in [*at, *length, stored] {
                    self.pieces.extend_from_slice(&word.to_le_bytes());
                }
            }
        }
        self.data_bytes = self.data_bytes.saturating_add(sample.size_bytes());
        let number = self.row(&row)?;
        self.name(path, number)?;
        Ok(number)
    }

    pub(super) fn symlink(
        &mut self,
        path: &[u8],
        meta: &Attributes,
        target: &[u8],
    ) -> Result<(), TooMany> {
        let mut row = Row::new(meta);
        row.flags |= IS_SYMLINK;
        row.offset = self.targets.len() as u64;
        row.length = target.len() as u64;
        self.targets.extend_from_slice(target);
        let number = self.row(&row)?;
        self.name(path, number)
    }

    pub(super) fn folder(&mut self, path: &[u8], meta: &Attributes) -> Result<(), TooMany> {
        let number = u32::try_from(self.folders.len() / 16).map_err(|_| TooMany)?;
        if number & FOLDER_BIT != 0 {
            return Err(TooMany);
        }
        Row::new(meta).pack_folder(&mut self.folders);
        self.name(path, FOLDER_BIT | number)
    }

    pub(super) fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), TooMany> {
        self.link_lengths.push(u32::try_from(target.len()).map_err(|_| TooMany)?);
        self.link_targets.extend_from_slice(target);
        self.name(path, LINK)
    }

    /// A member turned out to be cut off.
    pub(super) fn mark_damaged(&mut self, sample: u32) {
        self.change(sample, |row| row.flags |= IS_DAMAGED);
    }

    fn change(&mut self, sample: u32, change: impl FnOnce(&mut Row)) {
        let (rows, _) = self.samples.as_chunks_mut::<SAMPLE_BYTES>();
        let Some(stored) = rows.get_mut(sample as usize) else { return };
        let mut row = Row::unpack(stored);
        change(&mut row);
        let mut packed = Vec::with_capacity(SAMPLE_BYTES);
        row.pack(&mut packed);
        stored.copy_from_slice(&packed);
    }

    /// Gives every hard link its sample: that of the last earlier member of the name, else of a later one.
    /// A target that is not in the archive makes the link a damaged file.
    fn resolve_links(&mut self) -> Result<(), TooMany> {
        if self.link_lengths.is_empty() {
            return Ok(());
        }
        let found = self.find_targets();
        let mut missing: u64 = 0;
        let mut found = found.into_iter();
        for at in 0..self.name_count() {
            if self.node(at) != LINK {
                continue;
            }
            let node = match found.next().flatten() {
                Some(sample) => {
                    self.change(sample, |row| row.links = row.links.saturating_add(1));
                    sample
                }
                None => {
                    missing = missing.saturating_add(1);
                    let row = Row { flags: IS_DAMAGED, ..Row::new(&Attributes::default()) };
                    self.row(&row)?
                }
            };
            let (rows, _) = self.names.as_chunks_mut::<NAME_BYTES>();
            if let Some((_, stored)) = rows.get_mut(at).and_then(|row| row.split_at_mut_checked(4))
            {
                stored.copy_from_slice(&node.to_le_bytes());
            }
        }
        if missing > 0 {
            self.warn(format!(
                "{missing} hard links lead to members that are not in the archive: reading them fails"
            ));
        }
        Ok(())
    }

    fn node(&self, name: usize) -> u32 {
        let (rows, _) = self.names.as_chunks::<NAME_BYTES>();
        rows.get(name).map_or(FOLDER_BIT, |row| u32_at(row, 4))
    }

    /// The samples of all hard links, in order.
    fn find_targets(&self) -> Vec<Option<u32>> {
        let links: Vec<&[u8]> =
            cut(&self.link_targets, self.link_lengths.iter().copied()).collect();
        let mut wanted: HashMap<Path, Option<u32>> =
            links.iter().map(|target| (Path(target), None)).collect();
        let mut found = Vec::with_capacity(links.len());
        let (rows, _) = self.names.as_chunks::<NAME_BYTES>();
        let mut targets = links.iter();
        for (row, path) in rows.iter().zip(cut(&self.paths, rows.iter().map(|row| u32_at(row, 0))))
        {
            let sample = match u32_at(row, 4) {
                LINK => {
                    let target = targets.next();
                    let sample =
                        target.and_then(|target| wanted.get(&Path(target)).copied().flatten());
                    found.push(sample);
                    sample
                }
                folder if folder & FOLDER_BIT != 0 => None,
                sample => Some(sample),
            };
            if let (Some(_), Some(known)) = (sample, wanted.get_mut(&Path(path))) {
                *known = sample;
            }
        }
        let later = |target: &&[u8]| wanted.get(&Path(target)).copied().flatten();
        found.iter().zip(&links).map(|(found, target)| found.or_else(|| later(target))).collect()
    }

    pub(super) fn finish(mut self, part: PartName) -> Result<Index, TooMany> {
        self.resolve_links()?;
        if self.more_warnings > 0 {
            self.warnings.push(format!("{part}: {} more such", self.more_warnings));
        }
        // A line each.
        let warnings: Vec<_> = self.warnings.iter().map(|text| text.replace('\n', " ")).collect();
        let parts = [
            self.samples,
            self.names,
            self.paths,
            self.targets,
            self.sparse,
            self.pieces,
            self.folders,
            warnings.join("\n").into_bytes(),
        ];
        Ok(Index::from_parts(part, parts, self.data_bytes))
    }
}

/// Texts that stand one after the other.
fn cut(text: &[u8], lengths: impl Iterator<Item = u32>) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    lengths.map(move |length| {
        let (first, behind) = rest.split_at_checked(length as usize).unwrap_or((rest, &[]));
        rest = behind;
        first
    })
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
