//! Checksums of samples: lists that other programs check, comparison with such lists, and sidecars.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `samples` | hashes the samples of containers on several threads, with results in order |
//! | `names` | the names of samples, for lists |
//! | `line` | a line of a list |
//! | `check` | compares samples with a list |
//! | `sidecar` | checksums beside containers whose format has no checksums |

mod check;
mod line;
mod names;
mod samples;
mod sidecar;

pub(crate) use check::{Tally, Verdict, check, parse_list};
pub(crate) use line::format_line;
pub(crate) use names::Names;
pub(crate) use samples::Samples;
pub(crate) use sidecar::{may_replace, write_sidecars};
