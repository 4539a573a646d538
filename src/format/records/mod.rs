//! The shared code of formats whose records are found by one pass (TFRecord, RecordIO, MDS …): a row for each file, the names
//! of the files of each record, the common parts of their passes, and the open container.
//!
//! A record is a directory of files, or one file. If all records have the same files, names are stored once
//! ([`Names::Fields`](crate::format::Names::Fields)); else each file's. Imports `scanned`, `npy`, `ending` and `name`.

mod builder;
mod file;
mod pass;
mod reason;
mod row;
#[cfg(test)]
pub(in crate::format) mod tests;

pub(in crate::format) use builder::{Builder, Full, Record};
pub(in crate::format) use file::RecordFile;
pub(in crate::format) use pass::{DAMAGED, Pass, TRUNCATED};
pub(in crate::format) use row::{RecordFormat, Row, Shown};
