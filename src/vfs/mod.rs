//! The meaning of each call on the mount. The room makes no system calls, so that a simulated disk can drive it.
//!
//! Imports from [`crate::format`], [`crate::catalog`], [`crate::store`] and (for buffers) [`crate::io`]. All
//! metadata is resident, so each call but `read` is an ordinary function; `read` is the step machine of
//! [`Step`], which every driver takes through its steps with [`drive`].
//!
//! [`Vfs`] is a facade over modules that own their fields. A module uses only those that stand before it in this
//! table. (`samples/check` makes the type `memory/verified`, and `memory/cache` holds the checkpoints of samples: types
//! without a state of the module that they stand in.)
//!
//! | module | content |
//! | --- | --- |
//! | `samples` | the dataset, its store, the bad and the verified samples, changed containers, buffers, counters |
//! | `memory` | the budget, blocks, the sample cache, in-flight reads |
//! | `namespace` | names and attributes |
//! | `prefetch` | announcements, patterns, samples fetched ahead, the inodes and the samples that the kernel was given |
//! | `reader` | the step machine, checkpoints and the spool, intervals that are decoded ahead |
//! | `control` | `/.ffrfs`: reports, settings, announcements as they are written, traces |

mod bits;
mod checkpoints;
mod control;
mod drive;
mod errno;
mod facade;
mod figures;
mod inode;
mod memory;
mod namespace;
mod options;
mod prefetch;
mod reader;
pub mod report;
mod samples;
mod span;
mod stats;
mod trace;

pub use checkpoints::{CheckpointKey, CheckpointStore};
pub use control::{AHEAD, Settings, TraceEvent, TraceHead, TracePhase, TraceStore, Tuning};
pub use drive::{Driver, ReadRequest, begin, drive};
pub use errno::Errno;
pub use facade::Vfs;
pub use inode::{CONTROL_DIRECTORY, inode_of_sample, sample_of_inode};
pub use memory::blocks::BlockFigures;
pub use memory::cache::CacheFigures;
pub use memory::in_flight::InFlightRead;
pub use memory::verified::Verified;
pub use namespace::{Attr, FileKind, Listed, Lookup, Totals, XATTR_PREFIX};
pub use options::{FOREVER, Options, Verify};
pub use prefetch::{Delivery, Fetch, PrefetchFigures};
pub use reader::{Ahead, DecodeAhead, Reply, Step, Task};
pub use samples::ContainersChecked;
pub use span::Span;
pub use stats::{Histogram, Operation, RingFigures, Snapshot, Stage, Stats};
pub use trace::{Phase, TRACED_FOR, Trace, Traced};

#[cfg(test)]
mod tests;
