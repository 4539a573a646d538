//! What a mount asks of the kernel in INIT, and what the kernel grants. Imports `options`.

use super::options::Readdirplus;
use fuser::{InitFlags, KernelConfig};
use std::sync::atomic::{AtomicBool, Ordering};

/// How many background requests, mostly read-ahead, the kernel may have in flight.
pub const MAX_BACKGROUND: u16 = 128;

/// What is asked of the kernel in INIT, and what it has granted.
#[derive(Default)]
pub(super) struct Negotiation {
    /// The largest single request.
    max_request_bytes: u32,
    readdirplus: Readdirplus,
    /// Whether to ask for io_uring.
    wants_uring: bool,
    uring: AtomicBool,
    no_open: AtomicBool,
    no_opendir: AtomicBool,
}

impl Negotiation {
    pub(super) fn new(max_request_bytes: u32, readdirplus: Readdirplus, wants_uring: bool) -> Self {
        Self { max_request_bytes, readdirplus, wants_uring, ..Self::default() }
    }

    /// Whether requests will come through io_uring.
    pub(super) fn uring(&self) -> bool {
        self.uring.load(Ordering::Relaxed)
    }

    /// Whether the kernel opens files without asking once OPEN was answered ENOSYS.
    pub(super) fn no_open(&self) -> bool {
        self.no_open.load(Ordering::Relaxed)
    }

    /// As [`Negotiation::no_open`], of directories.
    pub(super) fn no_opendir(&self) -> bool {
        self.no_opendir.load(Ordering::Relaxed)
    }

    /// Asks, and notes what is granted.
    pub(super) fn negotiate(&self, config: &mut KernelConfig) {
        let mut has = |flag| config.add_capabilities(flag).is_ok();
        let granted = |flag: &AtomicBool, value| flag.store(value, Ordering::Relaxed);
        granted(&self.no_open, has(InitFlags::FUSE_NO_OPEN_SUPPORT));
        granted(&self.no_opendir, has(InitFlags::FUSE_NO_OPENDIR_SUPPORT));
        granted(&self.uring, self.wants_uring && has(InitFlags::FUSE_OVER_IO_URING));
        for flag in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_MAX_PAGES,
            InitFlags::FUSE_PARALLEL_DIROPS,
            // Without FUSE_READDIRPLUS_AUTO it means: always.
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
        ] {
            let unwanted = match flag {
                InitFlags::FUSE_DO_READDIRPLUS => self.readdirplus == Readdirplus::Never,
                InitFlags::FUSE_READDIRPLUS_AUTO => self.readdirplus != Readdirplus::Auto,
                _ => false,
            };
            if !unwanted && !has(flag) {
                tracing::debug!("the kernel lacks {flag:?}");
            }
        }
        // Each setter answers with the nearest value that the kernel takes.
        let _ = config.set_max_write(self.max_request_bytes);
        if let Err(most) = config.set_max_readahead(self.max_request_bytes) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(MAX_BACKGROUND);
    }
}
