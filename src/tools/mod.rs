//! Offline work on open datasets: read samples as a mount does, verify, sum, extract, convert.
//!
//! Imports from [`crate::dataset`] and the rooms below it.

pub(crate) mod bench;
pub(crate) mod checkpoints;
pub(crate) mod convert;
pub(crate) mod entries;
pub(crate) mod extract;
pub(crate) mod interrupt;

pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod read;
pub(crate) mod reader;
pub(crate) mod sum;
pub(crate) mod verify;
pub(crate) mod warmup;
