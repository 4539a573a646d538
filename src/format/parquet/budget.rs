//! The state that the scans of all columns share: bounds of time and memory, and the units and faults that were found.
//!
//! Imports pages, units and JSON of this directory.

use super::dictionaries::NO_DICTIONARY;
use super::json::JsonPart;
use super::page::Header;
use super::units::Unit;
use crate::format::{Fault, counted};
use std::cell::{Cell as Shared, RefCell};

/// The most bytes that the columns of a row group hold at once for the values of their pages: levels, numbers, places.
pub(super) const MAX_HELD_BYTES: u64 = 512 << 20;

/// The state that the scans of all columns share.
pub(super) struct Budget {
    /// Values that may still be examined, nulls included.
    pub(super) values: Shared<u64>,
    /// Bytes that may still be decoded.
    pub(super) bytes: Shared<u64>,
    /// Bytes of page indexes that may still be read.
    indexes: Shared<u64>,
    /// Bytes that may still be held.
    memory: Shared<u64>,
    pub(super) units: RefCell<Vec<Unit>>,
    pub(super) dictionaries: RefCell<Vec<Vec<u8>>>,
    pub(super) parts: RefCell<Vec<JsonPart>>,
    /// Messages about pages that cannot be read.
    pub(super) notes: RefCell<Vec<String>>,
    /// The faults of values that cannot be read, with the offsets of their pages.
    pub(super) faults: RefCell<Vec<(u64, Fault)>>,
}

impl Budget {
    /// Makes the budget of a file of `length` bytes.
    pub(super) fn new(length: u64, values: u64, bytes: u64) -> Self {
        Self {
            indexes: length.into(),
            values: values.into(),
            bytes: bytes.into(),
            memory: MAX_HELD_BYTES.into(),
            units: RefCell::default(),
            dictionaries: RefCell::default(),
            parts: RefCell::default(),
            notes: RefCell::default(),
            faults: RefCell::default(),
        }
    }

    /// Takes a page's values and bytes from those that may still be decoded.
    ///
    /// # Errors
    /// Its header asks for more than the length of the file allows; the text says of which.
    pub(super) fn take(&self, header: &Header) -> Result<(), String> {
        let values = self.values.get().checked_sub(header.values.into());
        let bytes = self.bytes.get().checked_sub(header.stored.max(header.decoded).into());
        self.values.set(values.ok_or("there are too many values for the length of the file")?);
        self.bytes.set(bytes.ok_or(TOO_LONG)?);
        Ok(())
    }

    /// Takes the length of a text from the bytes that may still be decoded.
    ///
    /// # Errors
    /// As [`Budget::take`].
    pub(super) fn take_text(&self, length: usize) -> Result<(), String> {
        let left = self.bytes.get().checked_sub(length as u64);
        self.bytes.set(left.ok_or(TOO_LONG)?);
        Ok(())
    }

    /// Takes the length of a page index from the bytes that may still be read: all indexes lie in the file, side by side. False
    /// if they do not.
    pub(super) fn take_index(&self, length: u64) -> bool {
        let left = self.indexes.get().checked_sub(length);
        self.indexes.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Returns the right to hold `bytes` bytes for the values of a page, which ends with the [`Held`].
    ///
    /// # Errors
    /// All columns together would hold too much; the text says how much the page takes.
    pub(super) fn hold(&self, bytes: u64) -> Result<Held<'_>, String> {
        let left = self.memory.get().checked_sub(bytes);
        let left = left.ok_or_else(|| {
            format!(
                "its values take {} of memory, with all columns over 512 MiB",
                counted(bytes, "byte")
            )
        })?;
        self.memory.set(left);
        Ok(Held { budget: self, bytes })
    }

    /// Keeps the stored page of a dictionary for which no [`Held`] is counted, and which takes memory to the end of the pass.
    /// `None` if less than half of all memory would be left.
    pub(super) fn keep_for_good(&self, page: Vec<u8>) -> Option<u32> {
        let left = self.memory.get().checked_sub(page.len() as u64);
        let left = left.filter(|left| *left >= MAX_HELD_BYTES / 2)?;
        self.memory.set(left);
        Some(self.keep_dictionary(page))
    }

    /// Notes that the bytes from `at` on cannot be read, and returns the number of the reason.
    pub(super) fn fault(&self, at: u64, fault: Fault) -> u32 {
        self.notes.borrow_mut().push(fault.to_string());
        let mut faults = self.faults.borrow_mut();
        faults.push((at, fault));
        u32::try_from(faults.len()).unwrap_or(0)
    }

    /// Keeps the stored page of a dictionary, and returns its number.
    pub(super) fn keep_dictionary(&self, page: Vec<u8>) -> u32 {
        let mut kept = self.dictionaries.borrow_mut();
        kept.push(page);
        u32::try_from(kept.len().saturating_sub(1)).unwrap_or(NO_DICTIONARY)
    }
}

const TOO_LONG: &str = "it would be more than a thousand times as long as the file";

/// The right to hold bytes.
pub(super) struct Held<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.budget.memory.set(self.budget.memory.get().saturating_add(self.bytes));
    }
}
