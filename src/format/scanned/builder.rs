//! The tables of an index as they grow.

use super::index::Index;
use super::row::{DIRECTORY_BIT, Fields, NO_SAMPLE, NameRow, Packed, PiecedRow, SampleRow, Stamp};
use crate::format::counted;
use crate::format::{Attributes, PartName, Piece};
use std::marker::PhantomData;

/// The most warnings that are kept; further ones are only counted.
const MAX_WARNINGS: usize = 32;

/// The error that there are more members than can be numbered, or that a path is too long.
#[derive(Debug)]
pub(in crate::format) struct TooMany;

/// Collects the samples and names that a scan finds into an [`Index`].
#[derive(Debug)]
pub(in crate::format) struct Builder<R> {
    samples: Vec<u8>,
    names: Vec<u8>,
    paths: Vec<u8>,
    directories: Vec<u8>,
    targets: Vec<u8>,
    pieced: Vec<u8>,
    pieces: Vec<u8>,
    warnings: Vec<String>,
    more_warnings: u64,
    data_bytes: u64,
    row: PhantomData<fn() -> R>,
}

impl<R> Default for Builder<R> {
    fn default() -> Self {
        Self {
            samples: Vec::new(),
            names: Vec::new(),
            paths: Vec::new(),
            directories: Vec::new(),
            targets: Vec::new(),
            pieced: Vec::new(),
            pieces: Vec::new(),
            warnings: Vec::new(),
            more_warnings: 0,
            data_bytes: 0,
            row: PhantomData,
        }
    }
}

impl<R: SampleRow> Builder<R> {
    /// Adds a warning; behind [`MAX_WARNINGS`], as for a container that is damaged everywhere, only counts it.
    pub(in crate::format) fn warn(&mut self, text: String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(text);
        } else {
            self.more_warnings = self.more_warnings.saturating_add(1);
        }
    }

    /// Adds a sample whose file has `size_bytes`; returns its number.
    pub(in crate::format) fn sample(&mut self, row: &R, size_bytes: u64) -> u64 {
        let number = count::<R>(&self.samples) as u64;
        row.pack(&mut self.samples);
        self.data_bytes = self.data_bytes.saturating_add(size_bytes);
        number
    }

    /// Changes the row of a sample that was added.
    pub(in crate::format) fn change(&mut self, number: u64, change: impl FnOnce(&mut R)) {
        let start = usize::try_from(number).ok().and_then(|number| number.checked_mul(R::BYTES));
        let rest = start.and_then(|start| self.samples.get_mut(start..));
        let Some(stored) = rest.and_then(|rest| rest.get_mut(..R::BYTES)) else { return };
        let mut row = R::unpack(&mut Fields(stored));
        change(&mut row);
        let mut packed = Vec::with_capacity(R::BYTES);
        row.pack(&mut packed);
        stored.copy_from_slice(&packed);
    }

    /// Adds the name of a sample.
    pub(in crate::format) fn name(&mut self, path: &[u8], sample: u64) -> Result<(), TooMany> {
        self.add_name(path, node_of(sample)?)
    }

    /// Adds an open name: [`Builder::set_samples`] will give it a sample.
    pub(in crate::format) fn open_name(&mut self, path: &[u8]) -> Result<(), TooMany> {
        self.add_name(path, NO_SAMPLE)
    }

    /// Adds a directory.
    pub(in crate::format) fn directory(
        &mut self,
        path: &[u8],
        attributes: &Attributes,
    ) -> Result<(), TooMany> {
        let number = u32::try_from(count::<Stamp>(&self.directories)).map_err(|_| TooMany)?;
        if number & DIRECTORY_BIT != 0 {
            return Err(TooMany);
        }
        Stamp::new(attributes).pack(&mut self.directories);
        self.add_name(path, DIRECTORY_BIT | number)
    }

    fn add_name(&mut self, path: &[u8], node: u32) -> Result<(), TooMany> {
        let path_bytes = u32::try_from(path.len()).map_err(|_| TooMany)?;
        NameRow { path_bytes, node }.pack(&mut self.names);
        self.paths.extend_from_slice(path);
        Ok(())
    }

    /// Adds the target of a symbolic link; returns the offset and length by which [`Index::target`] finds it.
    pub(in crate::format) fn target(&mut self, target: &[u8]) -> (u64, u64) {
        let at = self.targets.len() as u64;
        self.targets.extend_from_slice(target);
        (at, target.len() as u64)
    }

    /// Adds a file in pieces, which are in order and not empty; returns the number by which [`Index::piece`] finds it.
    pub(in crate::format) fn pieced(
        &mut self,
        size_bytes: u64,
        pieces: impl Iterator<Item = Piece>,
    ) -> Result<u32, TooMany> {
        let number = u32::try_from(count::<PiecedRow>(&self.pieced)).map_err(|_| TooMany)?;
        let first_piece = self.piece_count() as u64;
        PiecedRow { size_bytes, first_piece }.pack(&mut self.pieced);
        pieces.for_each(|piece| piece.pack(&mut self.pieces));
        Ok(number)
    }

    /// The number of pieces so far.
    pub(in crate::format) fn piece_count(&self) -> usize {
        count::<Piece>(&self.pieces)
    }

    /// The number of names so far.
    pub(in crate::format) fn name_count(&self) -> usize {
        count::<NameRow>(&self.names)
    }

    /// All names of samples in order, with the number of the sample; `None` for an open name.
    pub(in crate::format) fn sample_names(&self) -> impl Iterator<Item = (&[u8], Option<u64>)> {
        let mut rest = self.paths.as_slice();
        let rows = self.names.chunks_exact(NameRow::BYTES);
        let names = rows.map(move |row| {
            let row = NameRow::unpack(&mut Fields(row));
            let length = row.path_bytes as usize;
            let (path, behind) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            rest = behind;
            (path, row.node)
        });
        let of_samples = names.filter(|(_, node)| node & DIRECTORY_BIT == 0);
        of_samples.map(|(path, node)| (path, (node != NO_SAMPLE).then_some(node.into())))
    }

    /// Gives the open names their samples, in order.
    pub(in crate::format) fn set_samples(
        &mut self,
        samples: impl Iterator<Item = u64>,
    ) -> Result<(), TooMany> {
        let rows = self.names.chunks_exact_mut(NameRow::BYTES);
        let mut open = rows.filter_map(|row| {
            let found = NameRow::unpack(&mut Fields(row));
            (found.node == NO_SAMPLE).then_some((row, found.path_bytes))
        });
        for sample in samples {
            let node = node_of(sample)?;
            let Some((row, path_bytes)) = open.next() else { return Ok(()) };
            let mut packed = Vec::with_capacity(NameRow::BYTES);
            NameRow { path_bytes, node }.pack(&mut packed);
            row.copy_from_slice(&packed);
        }
        Ok(())
    }

    /// The index; errors call the container `part`.
    pub(in crate::format) fn finish(mut self, part: PartName) -> Index<R> {
        if self.more_warnings > 0 {
            self.warnings.push(format!("{part}: {}", counted(self.more_warnings, "more warning")));
        }
        // Each warning is a line.
        let warnings: Vec<_> = self.warnings.iter().map(|text| text.replace('\n', " ")).collect();
        let tables = [
            self.samples,
            self.names,
            self.paths,
            self.directories,
            self.targets,
            self.pieced,
            self.pieces,
            warnings.join("\n").into_bytes(),
        ];
        Index::from_tables(part, tables, self.data_bytes)
    }
}

/// The node of a sample's name.
fn node_of(sample: u64) -> Result<u32, TooMany> {
    u32::try_from(sample).ok().filter(|&node| node < NO_SAMPLE).ok_or(TooMany)
}

fn count<P: Packed>(rows: &[u8]) -> usize {
    rows.len().checked_div(P::BYTES).unwrap_or(0)
}
