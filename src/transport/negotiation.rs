//! The flags that a mount asks the kernel for in INIT, and the kernel's grants. Imports `options` and `wire`.

use super::options::Readdirplus;
use super::wire::{InitIn, InitOut, init};
use crate::io::page_bytes;
use crate::io::ring::MOST_WRITTEN_BYTES;
use std::sync::atomic::{AtomicBool, Ordering};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// How many background requests, mostly read-ahead, the kernel may have in flight.
pub const MAX_BACKGROUND: u16 = 128;

/// The version of the protocol that we speak.
const MAJOR: u32 = 7;
const MINOR: u32 = 40;
/// The version of Linux 5.4, the oldest one whose messages are all laid out as ours.
const LEAST_MINOR: u32 = 31;

/// The wishes of a mount in INIT, and the kernel's grants.
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
    resend: AtomicBool,
}

/// The kernel's grants to a process, for the next one that serves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Granted {
    max_request_bytes: u32,
    no_open: u8,
    no_opendir: u8,
    padding: u16,
}

/// The kernel speaks another version.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unsupported {
    /// A later version: the kernel is told ours, and sends INIT again.
    TooNew(Box<InitOut>),
    /// A version that is too old.
    TooOld,
}

impl Negotiation {
    pub(super) fn new(max_request_bytes: u32, readdirplus: Readdirplus, wants_uring: bool) -> Self {
        Self { max_request_bytes, readdirplus, wants_uring, ..Self::default() }
    }

    /// The grants to the process that has served the mount before.
    pub(super) fn resumed(granted: Granted) -> Self {
        let Granted { max_request_bytes, no_open, no_opendir, .. } = granted;
        Self {
            max_request_bytes,
            no_open: AtomicBool::new(no_open != 0),
            no_opendir: AtomicBool::new(no_opendir != 0),
            resend: AtomicBool::new(true),
            ..Self::default()
        }
    }

    /// The grants for a process that is to serve after this one; `None` if no process can: the kernel must send again the
    /// requests that this one has taken, and knows nothing of requests in its rings.
    pub(super) fn granted(&self) -> Option<Granted> {
        let can_resume = self.resend.load(Ordering::Relaxed) && !self.uring();
        can_resume.then(|| Granted {
            max_request_bytes: self.max_request_bytes,
            no_open: self.no_open().into(),
            no_opendir: self.no_opendir().into(),
            padding: 0,
        })
    }

    /// The largest single request.
    pub(super) fn max_request_bytes(&self) -> u32 {
        self.max_request_bytes
    }

    /// Whether requests will come through io_uring.
    pub(super) fn uring(&self) -> bool {
        self.uring.load(Ordering::Relaxed)
    }

    /// Whether the kernel opens files without asking once OPEN was answered ENOSYS.
    pub(super) fn no_open(&self) -> bool {
        self.no_open.load(Ordering::Relaxed)
    }

    /// As [`Negotiation::no_open`], for directories.
    pub(super) fn no_opendir(&self) -> bool {
        self.no_opendir.load(Ordering::Relaxed)
    }

    /// The flags to ask for.
    fn wanted(&self) -> u64 {
        // READDIRPLUS without AUTO means: always.
        let listing = match self.readdirplus {
            Readdirplus::Auto => init::DO_READDIRPLUS | init::READDIRPLUS_AUTO,
            Readdirplus::Always => init::DO_READDIRPLUS,
            Readdirplus::Never => 0,
        };
        let uring = if self.wants_uring { init::OVER_IO_URING } else { 0 };
        let resend = if is_to_act_as_older() { 0 } else { init::HAS_RESEND };
        init::ASYNC_READ
            | init::BIG_WRITES
            | init::ASYNC_DIO
            | init::MAX_PAGES
            | init::PARALLEL_DIROPS
            | init::NO_OPEN_SUPPORT
            | init::NO_OPENDIR_SUPPORT
            | resend
            | listing
            | uring
    }

    /// The longest WRITE, with io_uring as short as its slots ask for.
    fn max_write(&self) -> u32 {
        let most = if self.uring() { MOST_WRITTEN_BYTES } else { u32::MAX };
        self.max_request_bytes.min(most)
    }

    /// The answer to INIT; notes the grants.
    ///
    /// # Errors
    /// See [`Unsupported`].
    pub(super) fn negotiate(&self, asked: &InitIn) -> Result<InitOut, Unsupported> {
        let version = InitOut { major: MAJOR, minor: MINOR, ..InitOut::default() };
        if asked.major > MAJOR {
            return Err(Unsupported::TooNew(Box::new(version)));
        }
        if (asked.major, asked.minor) < (MAJOR, LEAST_MINOR) {
            return Err(Unsupported::TooOld);
        }
        let mut offered = u64::from(asked.flags);
        if offered & init::INIT_EXT != 0 {
            offered |= u64::from(asked.flags2) << 32;
        }
        let granted = offered & self.wanted();
        let lacking = self.wanted() & !offered;
        if lacking != 0 {
            tracing::debug!("the kernel lacks the INIT flags {lacking:#x}");
        }
        let note = |flag: &AtomicBool, bit| flag.store(granted & bit != 0, Ordering::Relaxed);
        note(&self.no_open, init::NO_OPEN_SUPPORT);
        note(&self.no_opendir, init::NO_OPENDIR_SUPPORT);
        note(&self.uring, init::OVER_IO_URING);
        note(&self.resend, init::HAS_RESEND);
        let flags = granted | (offered & init::INIT_EXT);
        let max_readahead = self.max_request_bytes.min(asked.max_readahead);
        let largest = self.max_request_bytes.max(max_readahead) as usize;
        Ok(InitOut {
            max_readahead,
            flags: flags as u32,
            flags2: (flags >> 32) as u32,
            max_background: MAX_BACKGROUND,
            congestion_threshold: MAX_BACKGROUND / 4 * 3,
            max_write: self.max_write(),
            time_gran: 1,
            max_pages: largest.div_ceil(page_bytes()) as u16,
            ..version
        })
    }
}

/// Whether to do without the feature of Linux 6.9 for mounts that outlive their daemon. With the feature `test-hooks`, a
/// variable says so, and older kernels can be tried and measured on any kernel.
fn is_to_act_as_older() -> bool {
    cfg!(feature = "test-hooks") && std::env::var_os("FFRFS_TEST_NO_RESEND").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_REQUEST_BYTES: u32 = 1 << 20;

    fn kernel(minor: u32, flags: u64) -> InitIn {
        let (flags, flags2) = (flags as u32, (flags >> 32) as u32);
        InitIn { major: 7, minor, max_readahead: 128 << 10, flags, flags2, ..InitIn::default() }
    }

    #[test]
    fn what_the_kernel_offers_and_we_want_is_granted() {
        let wants = Negotiation::new(MAX_REQUEST_BYTES, Readdirplus::Auto, true);
        let out = wants.negotiate(&kernel(45, u64::MAX)).unwrap();
        assert!(wants.uring() && wants.no_open() && wants.no_opendir());
        assert_eq!(out.flags2, ((init::OVER_IO_URING | init::HAS_RESEND) >> 32) as u32);
        assert_eq!(wants.granted(), None, "a ring cannot be taken over");
        assert_eq!((out.max_readahead, out.max_write), (128 << 10, MOST_WRITTEN_BYTES));
        assert_eq!(usize::from(out.max_pages) * page_bytes(), MAX_REQUEST_BYTES as usize);
        assert_eq!((out.max_background, out.congestion_threshold), (128, 96));
    }

    #[test]
    fn a_kernel_without_extended_flags_has_no_io_uring() {
        let wants = Negotiation::new(MAX_REQUEST_BYTES, Readdirplus::Always, true);
        let out = wants.negotiate(&kernel(31, !init::INIT_EXT)).unwrap();
        assert!(!wants.uring() && wants.no_open() && wants.granted().is_none());
        assert_eq!((out.flags2, out.max_write), (0, MAX_REQUEST_BYTES));
        assert_eq!(u64::from(out.flags) & init::READDIRPLUS_AUTO, 0);
        assert_ne!(u64::from(out.flags) & init::DO_READDIRPLUS, 0);
    }

    #[test]
    fn what_was_granted_is_known_to_the_process_that_serves_next() {
        let wants = Negotiation::new(MAX_REQUEST_BYTES, Readdirplus::Auto, false);
        let lacking = !init::NO_OPENDIR_SUPPORT;
        wants.negotiate(&kernel(45, lacking)).unwrap();
        let granted = wants.granted().unwrap();
        let next = Negotiation::resumed(Granted::read_from_bytes(granted.as_bytes()).unwrap());
        assert!(next.no_open() && !next.no_opendir() && !next.uring());
        assert_eq!((next.max_request_bytes(), next.granted()), (MAX_REQUEST_BYTES, Some(granted)));
    }

    #[test]
    fn other_versions_are_told_ours_or_refused() {
        let wants = Negotiation::new(MAX_REQUEST_BYTES, Readdirplus::Never, false);
        assert_eq!(wants.negotiate(&kernel(30, u64::MAX)), Err(Unsupported::TooOld));
        let newer = InitIn { major: 8, ..kernel(0, 0) };
        let Err(Unsupported::TooNew(told)) = wants.negotiate(&newer) else { panic!("refused") };
        assert_eq!((told.major, told.flags), (7, 0));
    }
}
