//! Figures of a dataset: the sizes of its samples, and how many can be checked.

use crate::dataset::Opened;
use crate::dataset::checksums::CheckedBy;
use crate::format;
use serde::Serialize;

/// How many samples are checked by a checksum of which kind of file.
#[derive(Debug, Serialize, Clone, Copy, Default)]
pub(crate) struct CheckedCounts {
    /// By a checksum that their container has.
    pub(crate) container: u64,
    /// By a sidecar.
    pub(crate) sidecar: u64,
    /// Samples without a checksum.
    pub(crate) nothing: u64,
}

/// The sizes of samples in bytes, and how many samples are empty or damaged.
#[derive(Debug, Serialize, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) min: u64,
    pub(crate) mean: u64,
    pub(crate) max: u64,
    pub(crate) empty: u64,
    pub(crate) damaged: u64,
}

/// The sizes of all samples, and how many can be checked.
pub(crate) fn sizes(opened: &Opened) -> format::Result<(Option<Sizes>, CheckedCounts)> {
    let samples = opened.dataset.len();
    let mut sizes = Sizes { min: u64::MAX, mean: 0, max: 0, empty: 0, damaged: 0 };
    let (mut sum, mut checked) = (0u128, CheckedCounts::default());
    for sample in 0..samples {
        let Some(located) = opened.dataset.locate(sample)? else { break };
        *match opened.checked_by(&located) {
            CheckedBy::Container => &mut checked.container,
            CheckedBy::Sidecar => &mut checked.sidecar,
            CheckedBy::Nothing => &mut checked.nothing,
        } += 1;
        if located.sample.damaged {
            sizes.damaged += 1;
            continue;
        }
        let bytes = located.sample.size_bytes();
        sizes.min = sizes.min.min(bytes);
        sizes.max = sizes.max.max(bytes);
        sizes.empty += u64::from(bytes == 0);
        sum += u128::from(bytes);
    }
    let whole = samples - sizes.damaged;
    sizes.mean = u64::try_from(sum / u128::from(whole.max(1))).unwrap_or(u64::MAX);
    Ok(((whole > 0).then_some(sizes), checked))
}
