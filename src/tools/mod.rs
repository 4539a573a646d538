//! Offline work on datasets. Each sub-command that does not concern a mount is a tool, and `cli` prints its results.
//! Tools parse no options and print nothing; progress is a bar on a terminal (`progress`).
//!
//! One [`reader`] reads samples for `verify`, `sum`, `extract`, `convert`, `pack` and `cat`. Imports from
//! [`crate::dataset`] and the rooms below it.

pub(crate) mod bench;
pub(crate) mod checkpoints;
pub(crate) mod convert;
pub(crate) mod encrypted;
pub(crate) mod entries;
pub(crate) mod extract;
#[cfg(feature = "remote")]
pub(crate) mod fill;
pub(crate) mod info;
pub(crate) mod output;
pub(crate) mod pack;
pub(crate) mod progress;
pub(crate) mod read;
pub(crate) mod reader;
pub(crate) mod sum;
pub(crate) mod verify;
pub(crate) mod warmup;
