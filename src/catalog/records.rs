//! Records as numbered directories, `000123/`, with a file for each field. Nothing is stored.

use super::numbered::{self, MAX_NAME_BYTES};
use super::{Dataset, Emit, Node, ROOT};
use crate::format::Result;

/// Numbered records with the same number of fields each, in directories of `fanout` records if given.
#[derive(Debug)]
pub struct Records {
    records: u64,
    fields: u64,
    width: usize,
    fanout: Option<u64>,
    fanout_width: usize,
}

impl Records {
    /// Names for `samples` samples, of which each `fields` are a record.
    ///
    /// # Panics
    /// `fanout` is 0.
    #[must_use]
    pub fn new(samples: u64, fields: u64, fanout: Option<u64>) -> Self {
        assert_ne!(fanout, Some(0), "a directory holds at least one record");
        let records = samples / fields.max(1);
        let last = records.saturating_sub(1);
        Self {
            records,
            fields,
            width: numbered::digits(last).max(6),
            fanout,
            fanout_width: numbered::digits(fanout.map_or(0, |f| last / f)).max(3),
        }
    }

    /// The number of samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.records * self.fields
    }

    /// The number of samples in a record.
    pub(super) fn fields(&self) -> u64 {
        self.fields
    }

    /// The number of directories of records.
    fn outer(&self) -> u64 {
        self.fanout.map_or(0, |fanout| self.records.div_ceil(fanout))
    }

    /// The number of directories: the root, directories of records, records.
    #[must_use]
    pub fn directories(&self) -> u64 {
        1 + self.outer() + self.records
    }

    /// The record that is shown as the directory, if it is one of a record.
    fn record(&self, directory: u64) -> Option<u64> {
        directory.checked_sub(1 + self.outer()).filter(|record| *record < self.records)
    }

    fn directory_of(&self, record: u64) -> u64 {
        1 + self.outer() + record
    }

    /// The records that lie directly in a directory: first, and one past the last.
    fn range(&self, directory: u64) -> (u64, u64) {
        match (self.fanout, directory) {
            (None, ROOT) => (0, self.records),
            (Some(fanout), outer) if outer != ROOT && outer <= self.outer() => {
                let first = (outer - 1) * fanout;
                (first, first.saturating_add(fanout).min(self.records))
            }
            _ => (0, 0),
        }
    }

    pub(super) fn parent(&self, directory: u64) -> Option<u64> {
        if directory <= self.outer() {
            return Some(ROOT);
        }
        let record = self.record(directory)?;
        Some(self.fanout.map_or(ROOT, |fanout| 1 + record / fanout))
    }

    pub(super) fn subdirectories(&self, directory: u64) -> u64 {
        match self.fanout {
            Some(_) if directory == ROOT => self.outer(),
            _ => {
                let (first, end) = self.range(directory);
                end - first
            }
        }
    }

    pub(super) fn lookup(
        &self,
        dataset: &Dataset,
        directory: u64,
        name: &[u8],
    ) -> Result<Option<Node>> {
        if let Some(record) = self.record(directory) {
            let first = record * self.fields;
            for sample in first..first + self.fields {
                if dataset.field_name(sample)? == name {
                    return Ok(Some(Node::Sample(sample)));
                }
            }
            return Ok(None);
        }
        if directory == ROOT && self.fanout.is_some() {
            let outer = numbered::parse(name, self.fanout_width).filter(|&n| n < self.outer());
            return Ok(outer.map(|outer| Node::Directory(1 + outer)));
        }
        let (first, end) = self.range(directory);
        let record = numbered::parse(name, self.width).filter(|n| (first..end).contains(n));
        Ok(record.map(|record| Node::Directory(self.directory_of(record))))
    }

    pub(super) fn list(
        &self,
        dataset: &Dataset,
        directory: u64,
        from: u64,
        emit: &mut Emit,
    ) -> Result<()> {
        if let Some(record) = self.record(directory) {
            for field in from..self.fields {
                let sample = record * self.fields + field;
                if !emit(&dataset.field_name(sample)?, Node::Sample(sample)) {
                    break;
                }
            }
            return Ok(());
        }
        let mut name = [0; MAX_NAME_BYTES];
        let (width, numbers, first_directory) = match self.fanout {
            Some(_) if directory == ROOT => (self.fanout_width, (0, self.outer()), 1),
            _ => (self.width, self.range(directory), self.directory_of(0)),
        };
        for number in numbers.0.saturating_add(from)..numbers.1 {
            numbered::write_number(&mut name[..width], number);
            if !emit(&name[..width], Node::Directory(first_directory + number)) {
                break;
            }
        }
        Ok(())
    }

    /// The path of a sample from the root.
    pub(super) fn path(&self, dataset: &Dataset, sample: u64) -> Result<Vec<u8>> {
        let mut path = self.directory_path(self.directory_of(sample / self.fields));
        path.push(b'/');
        path.extend(dataset.field_name(sample)?);
        Ok(path)
    }

    /// The path of a directory from the root; the root's path is empty.
    pub(super) fn directory_path(&self, directory: u64) -> Vec<u8> {
        let outer = |number| format!("{number:00$}", self.fanout_width);
        let path = match (self.record(directory), self.fanout) {
            (Some(record), Some(fanout)) => {
                format!("{}/{record:01$}", outer(record / fanout), self.width)
            }
            (Some(record), None) => format!("{record:00$}", self.width),
            (None, _) => directory.checked_sub(1).map_or(String::new(), outer),
        };
        path.into_bytes()
    }
}
