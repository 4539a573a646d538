//! Hard and symbolic links, packed: an archive has few links, or their members are small.

use super::record::{Class, Row};
use super::walk::walk;
use crate::format::{Error, Result, Table};
use std::collections::HashMap;
use std::io;

/// The most hard links that may lead from one to the next.
const MAX_HOPS: u32 = 64;

/// Rows that are another name of a sample.
#[derive(Debug, Default)]
pub(super) struct HardLinks {
    /// The row of each hard link and its sample, sorted by row.
    samples: Vec<(u64, u64)>,
    /// Each sample with hard links and the number of its names, sorted by sample.
    names: Vec<(u64, u32)>,
}

impl HardLinks {
    /// The sample that a row is another name of.
    pub(super) fn sample_at(&self, row: u64) -> Option<u64> {
        let found = self.samples.binary_search_by_key(&row, |(row, _)| *row).ok()?;
        self.samples.get(found).map(|(_, sample)| *sample)
    }

    /// The number of names that a sample has.
    pub(super) fn names_of(&self, sample: u64) -> u32 {
        let found = self.names.binary_search_by_key(&sample, |(sample, _)| *sample);
        found.ok().and_then(|found| self.names.get(found)).map_or(1, |(_, names)| *names)
    }

    pub(super) fn new(mut samples: Vec<(u64, u64)>) -> Self {
        samples.sort_unstable();
        let mut linked: Vec<u64> = samples.iter().map(|(_, sample)| *sample).collect();
        linked.sort_unstable();
        let mut names: Vec<(u64, u32)> = Vec::new();
        for sample in linked {
            match names.last_mut() {
                Some((last, count)) if *last == sample => *count = count.saturating_add(1),
                _ => names.push((sample, 2)),
            }
        }
        Self { samples, names }
    }
}

/// A row that says it is another name of a member.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) row: u64,
    pub(super) class: Class,
    pub(super) target: Vec<u8>,
}

/// The row that each candidate is another name of, in the order of the candidates. `None` if no member has the
/// target's name, if that member is of another kind, or if the links form a circle: the candidate then is a
/// member of its own.
pub(super) fn resolve(
    candidates: &[Candidate],
    table: &dyn Table,
    length_bytes: u64,
    unreadable: &dyn Fn(u64, io::Error) -> Error,
) -> Result<Vec<Option<u64>>> {
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let mut wanted: HashMap<&[u8], Option<(u64, Class)>> =
        candidates.iter().map(|candidate| (candidate.target.as_slice(), None)).collect();
    let see = &mut |at: u64, row: &Row| -> Result<bool> {
        if let Some(found) = wanted.get_mut(row.name) {
            found.get_or_insert((at, row.class()));
        }
        Ok(true)
    };
    walk(table, length_bytes, unreadable, see)?;
    let by_row: HashMap<u64, &Candidate> =
        candidates.iter().map(|candidate| (candidate.row, candidate)).collect();
    let follow = |first: &Candidate| {
        let mut candidate = first;
        for _ in 0..MAX_HOPS {
            let (row, class) = wanted.get(candidate.target.as_slice()).copied().flatten()?;
            if class != first.class {
                return None;
            }
            match by_row.get(&row) {
                Some(next) => candidate = next,
                None => return Some(row),
            }
        }
        None
    };
    Ok(candidates.iter().map(follow).collect())
}

/// The targets of symbolic links.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// Each sample and the end of its target in the arena, sorted by sample.
    ends: Vec<(u64, usize)>,
    arena: Vec<u8>,
}

impl Targets {
    /// Adds the target of a sample. Samples must come in their order.
    pub(super) fn push(&mut self, sample: u64, target: &[u8]) {
        self.arena.extend_from_slice(target);
        self.ends.push((sample, self.arena.len()));
    }

    pub(super) fn bytes(&self) -> usize {
        self.arena.len()
    }

    pub(super) fn get(&self, sample: u64) -> Option<&[u8]> {
        let found = self.ends.binary_search_by_key(&sample, |(sample, _)| *sample).ok()?;
        let (_, end) = *self.ends.get(found)?;
        let before = found.checked_sub(1).and_then(|before| self.ends.get(before));
        self.arena.get(before.map_or(0, |(_, end)| *end)..end)
    }
}
