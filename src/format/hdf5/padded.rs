//! Text of a fixed length within elements. The bytes behind its end are no part of it: HDF5's library gives NULs there,
//! as NumPy has them, whatever C or Fortran left; so does this module.
//!
//! Imports datatypes, and how text ends.

use super::datatype::{Datatype, Kind, Padding};
use super::values::trimmed;

/// The texts within an element that may be followed by other bytes than NULs.
#[derive(Debug, Clone, Default)]
pub(super) struct Texts(Vec<Part>);

#[derive(Debug, Clone)]
enum Part {
    /// A text: its offset, its length in bytes, and its padding.
    Text(usize, usize, Padding),
    /// An array: the parts of its first element, the number of its elements, and the bytes of each.
    Array(Vec<Part>, usize, usize),
}

impl Texts {
    /// Finds the texts of a type; the time depends on the length of the type's message, not of its elements.
    pub(super) fn of(datatype: &Datatype) -> Self {
        let mut parts = Vec::new();
        find(datatype, 0, &mut parts);
        Self(parts)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts NULs behind the texts of elements of `element_bytes` bytes.
    pub(super) fn trim(&self, elements: &mut [u8], element_bytes: u64) {
        if self.is_empty() {
            return;
        }
        let element_bytes = usize::try_from(element_bytes).unwrap_or(usize::MAX).max(1);
        for element in elements.chunks_exact_mut(element_bytes) {
            trim(&self.0, 0, element);
        }
    }
}

/// Puts NULs behind the texts of parts that lie `behind` bytes further on. No two texts share a byte.
fn trim(parts: &[Part], behind: usize, element: &mut [u8]) {
    for part in parts {
        match part {
            Part::Text(at, bytes, padding) => {
                let at = at.saturating_add(behind);
                let place = element.get_mut(at..).and_then(|rest| rest.get_mut(..*bytes));
                let Some(text) = place else { continue };
                let length = trimmed(text, *padding).len();
                text.iter_mut().skip(length).for_each(|byte| *byte = 0);
            }
            Part::Array(of, count, bytes) => {
                for number in 0..*count {
                    trim(of, number.saturating_mul(*bytes).saturating_add(behind), element);
                }
            }
        }
    }
}

fn find(datatype: &Datatype, at: usize, parts: &mut Vec<Part>) {
    match &datatype.kind {
        Kind::Text(Padding::Nulls) | Kind::Plain(_) | Kind::Sequence(_) | Kind::FarText => (),
        Kind::Text(padding) => parts.push(Part::Text(at, datatype.bytes as usize, *padding)),
        // An opaque type is shown as bytes.
        Kind::Compound(_) if datatype.is_opaque() => (),
        Kind::Compound(members) => {
            for (_, offset, of) in members {
                find(of, at.saturating_add(*offset as usize), parts);
            }
        }
        Kind::Array(_, of) => {
            let mut first = Vec::new();
            find(of, at, &mut first);
            if !first.is_empty() {
                let count = datatype.bytes.checked_div(of.bytes).unwrap_or(0);
                parts.push(Part::Array(first, count as usize, of.bytes as usize));
            }
        }
    }
}
