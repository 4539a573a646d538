//! The names of samples, for lists of checksums.

use super::samples::Samples;
use crate::catalog::{Catalog, Node, ROOT};
use crate::failure::Failure;
use crate::format::Kind;

/// The names of files, by sample.
pub(crate) enum Names {
    /// Names that are computed.
    Computed(u64),
    /// For each name, its sample and the range of its path in `bytes`, sorted by sample; several names of a sample stay
    /// in listed order.
    Listed { places: Vec<(u64, u64, u32)>, bytes: Vec<u8> },
}

impl Names {
    /// Symbolic links are left out: their targets have names of their own, or lie outside of the mount.
    pub(crate) fn of(samples: &Samples) -> Result<Self, Failure> {
        let (dataset, catalog) = (samples.dataset(), &samples.catalog);
        if !matches!(catalog, Catalog::Tree(_)) {
            return Ok(Names::Computed(dataset.len()));
        }
        let (mut places, mut bytes) = (Vec::new(), Vec::new());
        let mut failure = None;
        catalog.walk(dataset, ROOT, &mut |path, node| {
            let Node::Sample(sample) = node else { return };
            match dataset.attributes(sample) {
                Ok(attributes) if attributes.kind == Kind::File => {
                    places.push((sample, bytes.len() as u64, path.len() as u32));
                    bytes.extend_from_slice(path);
                }
                Ok(_) => {}
                Err(error) => drop(failure.get_or_insert(error)),
            }
        })?;
        places.sort_by_key(|&(sample, ..)| sample);
        failure.map_or(Ok(Names::Listed { places, bytes }), |error| Err(error.into()))
    }

    /// The samples with names, in order.
    pub(crate) fn samples(&self) -> Box<dyn Iterator<Item = u64> + Send + '_> {
        match self {
            Names::Computed(samples) => Box::new(0..*samples),
            Names::Listed { places, .. } => {
                let same = places.chunk_by(|one, other| one.0 == other.0);
                Box::new(same.map(|names| names[0].0))
            }
        }
    }

    /// One name of a sample.
    pub(crate) fn path(&self, samples: &Samples, sample: u64) -> Result<Vec<u8>, Failure> {
        let mut found = Vec::new();
        self.paths(samples, sample, &mut |path| {
            found = path.to_vec();
            Ok(())
        })?;
        Ok(found)
    }

    /// All names of a sample.
    pub(crate) fn paths(
        &self,
        samples: &Samples,
        sample: u64,
        each: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self {
            Names::Computed(_) => {
                let paths = samples.catalog.paths(samples.dataset(), &[sample])?;
                paths.iter().try_for_each(|path| each(path))
            }
            Names::Listed { places, bytes } => {
                let first = places.partition_point(|place| place.0 < sample);
                let names = places[first..].iter().take_while(|place| place.0 == sample);
                names.copied().try_for_each(|(_, start, length)| {
                    let start = start as usize;
                    each(&bytes[start..start + length as usize])
                })
            }
        }
    }
}
