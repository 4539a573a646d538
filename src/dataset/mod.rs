//! Opens the names on a command line as a dataset: expand, recognise, nest, kept indexes, checkpoints, sidecars,
//! digests, and the names of its samples. The daemon, the tools, the benches, the fuzz targets and the tests open
//! containers with [`open`], or with [`open_parts`] if they are not in files.
//!
//! Imports from [`crate::format`], [`crate::catalog`], [`crate::io`], [`crate::store`] and [`crate::vfs`]. Nothing here
//! uses a terminal: [`Watch`] gets the progress of long work.
//!
//! ```
//! use ffrfs::dataset::{self, Options, Unwatched, Watch};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), ffrfs::failure::Failure> {
//! let path = std::env::temp_dir().join("ffrfs-doc-open.zip");
//! std::fs::write(&path, b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0").unwrap();
//! let watch: Arc<dyn Watch> = Arc::new(Unwatched);
//! let opened = dataset::open(&[path.as_path().into()], &Options::default(), &watch)?;
//! assert_eq!((opened.dataset.len(), opened.store.len()), (0, 1));
//! # std::fs::remove_file(path).unwrap();
//! # Ok(())
//! # }
//! ```

mod ahead;
pub(crate) mod beside;
mod checkpoints;
pub(crate) mod checksums;
mod decoded;
pub mod digest;
pub(crate) mod expand;
pub(crate) mod hash;
mod index_head;
mod kept;
mod names;
mod nest;
mod nested_indexes;
#[cfg(feature = "remote")]
mod objects;
#[cfg(not(feature = "remote"))]
#[path = "objects_off.rs"]
mod objects;
mod open;
mod opening;
mod options;
mod parallel;
mod record_file;
mod selection;
mod suffixes;
pub(crate) mod warnings;

pub use checkpoints::KeptCheckpoints;
#[cfg(feature = "remote")]
pub(crate) use decoded::DecodedCopy;
pub use names::{Layout, NameOptions};
pub(crate) use open::{
    LEAST_OPEN_FILES, MANY_FILES, diagnose, exact, local_files, may_be_locked, parts, path_bytes,
    remote_wants_password,
};
pub use open::{Opened, open, open_parts, wants_password};
pub use options::{
    ChecksumOptions, IndexOptions, IndexPlace, Options, SidecarPlace, Unwatched, Watch, Work,
};
pub(crate) use parallel::{on_threads, start};
pub use selection::{NamePattern, Selection};
pub(crate) use selection::{from_root, not_found};
