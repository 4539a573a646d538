//! Statistics of a dataset: the sizes of its samples, and how many have checksums.

use crate::catalog::{Catalog, Dataset, Node, ROOT};
use crate::dataset::Opened;
use crate::dataset::checksums::CheckedBy;
use crate::format::shown::refuse_damaged;
use crate::format::{self, Container, Names};
use crate::tools::encrypted::Encrypted;
use serde::Serialize;

/// The number of samples by the place of their checksum.
#[derive(Debug, Serialize, Clone, Copy, Default)]
pub(crate) struct CheckedCounts {
    /// Samples with a checksum in their container.
    pub(crate) container: u64,
    /// Samples with a checksum in a sidecar.
    pub(crate) sidecar: u64,
    /// Samples without a checksum.
    pub(crate) nothing: u64,
    /// Encrypted samples that cannot be decrypted.
    pub(crate) locked: u64,
}

/// The sizes of samples in bytes, and the numbers of empty and damaged samples.
#[derive(Debug, Serialize, Clone, Copy, Default)]
pub(crate) struct Sizes {
    pub(crate) min: u64,
    pub(crate) mean: u64,
    pub(crate) max: u64,
    pub(crate) empty: u64,
    pub(crate) damaged: u64,
    /// Those of them whose bytes did not match a checksum when the container was indexed.
    pub(crate) mismatched: u64,
    #[serde(flatten)]
    pub(crate) encrypted: Encrypted,
}

/// The samples of a dataset that its names show as files.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Their number.
    pub(crate) count: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// The samples, one per container, that hold the names of the others and are no files.
    pub(crate) indexes: Vec<u64>,
    /// Their bytes, one per container.
    pub(crate) index_bytes: Vec<u64>,
    /// Bytes of samples that are encrypted and cannot be decrypted, one per container.
    pub(crate) locked_bytes: Vec<u64>,
    /// By container: the number of its records that are files or directories by a name of their own.
    pub(crate) records: Vec<u64>,
    /// The sizes of all files that are not damaged.
    pub(crate) sizes: Option<Sizes>,
    pub(crate) checked: CheckedCounts,
    pub(crate) shown: Shown,
}

/// By sample, whether it has a name; `None` where all have one.
#[derive(Debug, Default)]
pub(crate) struct Shown(Option<Vec<bool>>);

impl Shown {
    pub(crate) fn has(&self, sample: u64) -> bool {
        let place = usize::try_from(sample).ok();
        self.0.as_ref().is_none_or(|all| place.is_some_and(|at| all.get(at) == Some(&true)))
    }
}

/// Whether the last sample of a container is the index of a packed directory: the names of that container's samples, or,
/// in the last container, of all.
pub(crate) fn has_index(dataset: &Dataset, container: usize) -> bool {
    let Some(named) = dataset.containers().get(container) else { return false };
    let holds_names =
        |samples: u64| matches!(named.names(samples.saturating_sub(1)), Ok(Names::Tree(_)));
    let is_last = container + 1 == dataset.containers().len();
    holds_names(named.len()) || (is_last && holds_names(dataset.len()))
}

/// For each container, its last sample if that holds the names of a packed directory; and the number of its records.
fn indexes_and_records(opened: &Opened, catalog: &Catalog) -> (Vec<u64>, Vec<u64>) {
    let dataset = &opened.dataset;
    if !matches!(catalog, Catalog::Tree(_)) {
        return vec![(0, 0); dataset.containers().len()].into_iter().unzip();
    }
    let of_container = |(number, container): (usize, &dyn Container)| {
        if has_index(dataset, number) {
            return (1, 0);
        }
        match container.names(container.len().saturating_sub(1)) {
            Ok(Names::Records(records)) => (0, records),
            Ok(Names::Fields(fields)) => (0, container.len() / fields.max(1)),
            _ => (0, 0),
        }
    };
    let containers = dataset.containers().iter().map(AsRef::as_ref).enumerate();
    containers.map(of_container).unzip()
}

/// Which samples are shown, where `indexes` of them hold names.
fn shown(opened: &Opened, catalog: &Catalog, indexes: u64) -> format::Result<Shown> {
    let renamed = catalog.renamed();
    let all_have_names = catalog.samples() + indexes == opened.dataset.len();
    if all_have_names && renamed.hidden + renamed.left_out == 0 {
        return Ok(Shown(None));
    }
    let mut shown = Vec::new();
    shown.resize(usize::try_from(opened.dataset.len()).unwrap_or(usize::MAX), false);
    catalog.walk(&opened.dataset, ROOT, &mut |_, node| {
        if let Node::Sample(sample) = node
            && let Some(place) = usize::try_from(sample).ok().and_then(|at| shown.get_mut(at))
        {
            *place = true;
        }
    })?;
    Ok(Shown(Some(shown)))
}

/// Counts the files of a dataset, their sizes, and how many can be checked.
pub(crate) fn files(opened: &Opened, catalog: &Catalog) -> format::Result<Files> {
    let samples = opened.dataset.len();
    let (indexes, records) = indexes_and_records(opened, catalog);
    let shown = shown(opened, catalog, indexes.iter().sum())?;
    let mut sizes = Sizes { min: u64::MAX, ..Sizes::default() };
    let (mut sum, mut checked) = (0u128, CheckedCounts::default());
    let (mut count, mut index_bytes) = (0, vec![0; indexes.len()]);
    let mut locked_bytes = vec![0; indexes.len()];
    for sample in 0..samples {
        let Some((container, index)) = opened.dataset.container_of(sample) else { break };
        let Some(located) = opened.dataset.locate(sample)? else { break };
        if index >= opened.dataset.containers()[container].len() - indexes[container] {
            index_bytes[container] += located.sample.size_bytes();
            continue;
        }
        // It is shown as a directory, or not at all.
        if opened.opened.contains(&sample) || !shown.has(sample) {
            continue;
        }
        count += 1;
        let number = container;
        let container = &opened.dataset.containers()[container];
        let fault = refuse_damaged(container.as_ref(), index, &located.sample).err();
        let is_locked = fault.as_ref().is_some_and(|fault| sizes.encrypted.count(fault));
        // Nothing is checked of what cannot be decrypted.
        *match opened.checked_by(&located) {
            _ if is_locked => &mut checked.locked,
            CheckedBy::Container => &mut checked.container,
            CheckedBy::Sidecar => &mut checked.sidecar,
            CheckedBy::Nothing => &mut checked.nothing,
        } += 1;
        match &fault {
            Some(_) if is_locked => locked_bytes[number] += located.sample.size_bytes(),
            Some(fault) => {
                sizes.mismatched += u64::from(fault.mismatch().is_some());
                sizes.damaged += 1;
                continue;
            }
            None => {}
        }
        let bytes = located.sample.size_bytes();
        sizes.min = sizes.min.min(bytes);
        sizes.max = sizes.max.max(bytes);
        sizes.empty += u64::from(bytes == 0);
        sum += u128::from(bytes);
    }
    if sizes.min > sizes.max {
        sizes.min = 0;
    }
    let whole = count - sizes.damaged;
    sizes.mean = u64::try_from(sum / u128::from(whole.max(1))).unwrap_or(u64::MAX);
    let bytes = u64::try_from(sum).unwrap_or(u64::MAX);
    let sizes = (count > 0).then_some(sizes);
    Ok(Files { count, bytes, indexes, index_bytes, locked_bytes, records, sizes, checked, shown })
}
