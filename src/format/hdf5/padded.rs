//! Text of a fixed length within elements: what stands behind its end is no part of it. HDF5's library gives NULs there, as
//! NumPy has them, whatever C or Fortran left; so does this.
//!
//! Imports datatypes, and how text ends.

use super::datatype::{Datatype, Kind, Padding};
use super::values::trimmed;

/// An element with more texts stays as it is stored.
const MAX_TEXTS: usize = 1 << 12;

/// A text within an element: where it begins, its bytes, and how it ends.
type Text = (usize, usize, Padding);

/// The texts within an element that may be followed by something else than NULs.
#[derive(Debug, Clone, Default)]
pub(super) struct Texts(Vec<Text>);

impl Texts {
    pub(super) fn of(datatype: &Datatype) -> Self {
        let mut texts = Vec::new();
        match find(datatype, 0, &mut texts) {
            Some(()) => Self(texts),
            None => Self::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts NULs behind the texts of elements of so many bytes.
    pub(super) fn trim(&self, elements: &mut [u8], element_bytes: u64) {
        if self.is_empty() {
            return;
        }
        let element_bytes = usize::try_from(element_bytes).unwrap_or(usize::MAX).max(1);
        for element in elements.chunks_exact_mut(element_bytes) {
            for (at, bytes, padding) in &self.0 {
                let place = element.get_mut(*at..).and_then(|rest| rest.get_mut(..*bytes));
                let Some(text) = place else { continue };
                let length = trimmed(text, *padding).len();
                text.iter_mut().skip(length).for_each(|byte| *byte = 0);
            }
        }
    }
}

/// `None`: there are too many, or fields that share bytes.
fn find(datatype: &Datatype, at: usize, texts: &mut Vec<Text>) -> Option<()> {
    if texts.len() > MAX_TEXTS {
        return None;
    }
    match &datatype.kind {
        Kind::Text(Padding::Nulls) | Kind::Plain(_) | Kind::Sequence(_) | Kind::FarText => (),
        Kind::Text(padding) => texts.push((at, datatype.bytes as usize, *padding)),
        Kind::Compound(_) if datatype.is_opaque() => return None,
        Kind::Compound(members) => {
            for (_, offset, of) in members {
                find(of, at.checked_add(*offset as usize)?, texts)?;
            }
        }
        Kind::Array(_, of) => {
            let before = texts.len();
            let items = datatype.bytes.checked_div(of.bytes).unwrap_or(0);
            for number in 0..items {
                let behind = number.checked_mul(of.bytes)?;
                find(of, at.checked_add(behind as usize)?, texts)?;
                if texts.len() == before {
                    break;
                }
            }
        }
    }
    Some(())
}
