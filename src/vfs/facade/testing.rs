//! Parts of the file system that the tests look at.

use super::*;
use crate::vfs::CacheFigures;

impl Vfs {
    pub(in crate::vfs) fn cache_figures(&self) -> CacheFigures {
        self.control.mount_stats().cache
    }

    pub(in crate::vfs) fn bad_list(&self) -> String {
        self.control.bad_list()
    }

    pub(in crate::vfs) fn control(&self) -> &Control {
        &self.control
    }

    pub(in crate::vfs) fn known_samples(&self) -> &Samples {
        &self.samples
    }

    pub(in crate::vfs) fn prefetch(&self) -> &Prefetch {
        &self.prefetch
    }
}
