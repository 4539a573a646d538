//! Checksums of samples: lists that other programs check, checks against such lists, and sidecars.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `samples` | the samples of containers through hashes, on several threads, in order |
//! | `names` | the names of samples, for lists |
//! | `line` | a line of a list |
//! | `check` | samples against a list |
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
