//! Several containers as one list of samples, numbered on from one to the next.

use crate::format::sidecar::Section;
use crate::format::{Attributes, Checksum, Container, Error, Kind, PartName, Result, Sample};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One or more containers, in order.
pub struct Dataset {
    containers: Vec<Box<dyn Container>>,
    places: Vec<Place>,
    /// The number of each container's first sample, and behind the last the number of all samples.
    starts: Vec<u64>,
    /// By container: the checksums from a sidecar, and the sidecar's name.
    sums: Vec<Option<(Arc<Section>, PartName)>>,
    /// By container: the notes on it beside its own warnings.
    notes: BTreeMap<usize, Vec<String>>,
}

/// The place of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The part of the store.
    pub part: usize,
    /// The offset in the part where the container begins: not 0 if it is a member of another container.
    pub base_bytes: u64,
}

/// A sample of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// The container in the dataset.
    pub container: usize,
    /// The part of the store that the container lies in.
    pub part: usize,
    /// The sample's number in the container.
    pub index: u64,
    /// The sample's place in the part.
    pub sample: Sample,
}

impl Dataset {
    /// Joins containers in the given order, each of which is a part.
    #[must_use]
    pub fn new(containers: Vec<Box<dyn Container>>) -> Self {
        let places = (0..containers.len()).map(|part| Place { part, base_bytes: 0 });
        let places = places.collect();
        Self::nested(containers, places)
    }

    /// Joins containers in the given order, each of which lies where `places` says.
    ///
    /// # Panics
    /// There are more or fewer places than containers.
    #[must_use]
    pub fn nested(containers: Vec<Box<dyn Container>>, places: Vec<Place>) -> Self {
        assert_eq!(containers.len(), places.len(), "a place for each container");
        let mut starts = vec![0];
        let mut next: u64 = 0;
        for container in &containers {
            next = next.saturating_add(container.len());
            starts.push(next);
        }
        let sums = containers.iter().map(|_| None).collect();
        Self { containers, places, starts, sums, notes: BTreeMap::new() }
    }

    /// Sets notes on containers, by their numbers, beside the containers' own warnings.
    pub fn set_notes(&mut self, notes: BTreeMap<usize, Vec<String>>) {
        self.notes = notes;
    }

    /// The warnings that an admin should know of a container.
    #[must_use]
    pub fn warnings_of(&self, container: usize) -> Vec<String> {
        let own = self.containers[container].warnings().iter();
        own.chain(self.notes.get(&container).into_iter().flatten()).cloned().collect()
    }

    /// Sets the checksums of the first containers, and their sidecars, for samples without a checksum of their own.
    pub fn set_sums(&mut self, sums: impl IntoIterator<Item = Option<(Arc<Section>, PartName)>>) {
        self.sums.iter_mut().zip(sums).for_each(|(place, found)| *place = found);
    }

    /// The sidecar of a container, if its checksums were set.
    #[must_use]
    pub fn sums_of(&self, container: usize) -> Option<&PartName> {
        self.sums[container].as_ref().map(|(_, part)| part)
    }

    /// The number of samples.
    #[must_use]
    pub fn len(&self) -> u64 {
        *self.starts.last().unwrap_or(&0)
    }

    /// Whether there is no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of all samples together.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.containers.iter().fold(0, |sum, container| sum.saturating_add(container.data_bytes()))
    }

    /// The number of parts of the store that the containers lie in: the numbers of these parts are below it.
    #[must_use]
    pub fn part_count(&self) -> usize {
        self.places.iter().map(|place| place.part + 1).max().unwrap_or(0)
    }

    /// The offset where a container begins in its part.
    #[must_use]
    pub fn base_of(&self, container: usize) -> u64 {
        self.places[container].base_bytes
    }

    /// The part of the store that a container lies in.
    #[must_use]
    pub fn part_of(&self, container: usize) -> usize {
        self.places[container].part
    }

    /// The containers.
    #[must_use]
    pub fn containers(&self) -> &[Box<dyn Container>] {
        &self.containers
    }

    /// The number in the dataset of a container's sample.
    #[must_use]
    pub fn number(&self, container: usize, index: u64) -> u64 {
        self.start(container).saturating_add(index)
    }

    /// The number of a container's first sample.
    pub(super) fn start(&self, container: usize) -> u64 {
        self.starts.get(container).copied().unwrap_or_default()
    }

    /// The container that sample `index` lies in, and its number there.
    #[must_use]
    pub fn container_of(&self, index: u64) -> Option<(usize, u64)> {
        if index >= self.len() {
            return None;
        }
        let container = match self.containers.len() {
            1 => 0,
            _ => self.starts.partition_point(|&start| start <= index) - 1,
        };
        Some((container, index - self.starts[container]))
    }

    /// Finds where sample `index` lies. `Ok(None)` if there is no such sample.
    ///
    /// # Errors
    /// The container was changed so that its index cannot be read.
    pub fn locate(&self, index: u64) -> Result<Option<Located>> {
        let Some((container, index)) = self.container_of(index) else { return Ok(None) };
        let Place { part, base_bytes } = self.places[container];
        let mut sample = self.containers[container].sample(index)?;
        sample.offset_bytes = sample.offset_bytes.saturating_add(base_bytes);
        if let (Some((sums, sidecar)), None) = (&self.sums[container], sample.checksum) {
            let crc32 = sums.crc32(index).map_err(|source| Error::Unreadable {
                part: sidecar.clone(),
                what: "the checksum of a sample",
                offset_bytes: 0,
                source,
            })?;
            sample.checksum = crc32.map(Checksum::Crc32);
        }
        Ok(Some(Located { container, part, index, sample }))
    }

    /// The attributes of a sample.
    ///
    /// # Errors
    /// As [`Dataset::locate`].
    pub fn attributes(&self, index: u64) -> Result<Attributes> {
        match self.container_of(index) {
            Some((container, index)) => self.containers[container].attributes(index),
            None => Ok(Attributes::default()),
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As [`Dataset::locate`].
    pub fn link_target(&self, index: u64) -> Result<Vec<u8>> {
        match self.container_of(index) {
            Some((container, index)) => self.containers[container].link_target(index),
            None => Ok(Vec::new()),
        }
    }

    /// As [`Dataset::link_target`]; `None` for a sample that is no symbolic link.
    ///
    /// # Errors
    /// As [`Dataset::locate`].
    pub fn target_of_link(&self, index: u64) -> Result<Option<Vec<u8>>> {
        let is_link = self.attributes(index)?.kind == Kind::Symlink;
        is_link.then(|| self.link_target(index)).transpose()
    }

    /// The name of a field in its record's directory.
    ///
    /// # Errors
    /// As [`Dataset::locate`].
    pub(super) fn field_name(&self, index: u64) -> Result<Vec<u8>> {
        match self.container_of(index) {
            Some((container, index)) => self.containers[container].field_name(index),
            None => Ok(Vec::new()),
        }
    }
}
