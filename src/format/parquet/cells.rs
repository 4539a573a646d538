//! The place of each value of a page, without the value itself.
//!
//! Imports values of this directory, and endings of this room.

use super::values::Values;
use crate::format::counted;
use crate::format::ending;

/// The purpose for which a value is examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// The value is a number, of which only the place counts.
    Number,
    /// The value is read as the number of a label.
    Label,
    /// The value is an element of an array: only places count, one behind the other.
    Element,
    /// The value's ending, by magic; text has the ending of text if no magic matches.
    Magic { is_text: bool },
    /// The ending of the file that the value names.
    Path,
}

/// The place of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cell {
    pub(super) state: State,
    /// The code of the value's ending.
    pub(super) ending: u8,
    pub(super) length: u32,
    /// An offset in the file, or an address of decoded bytes behind it; of a damaged value the number of the reason.
    pub(super) address: u64,
    /// The value as the number of a label.
    pub(super) label: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    #[default]
    Null,
    There,
    /// The value cannot be read.
    Damaged,
}

/// The cell of a value that cannot be read, with the number of the reason that [`super::budget::Budget::fault`] gave; 0 if the
/// reason is not known.
pub(super) const fn damaged(reason: u32) -> Cell {
    Cell { state: State::Damaged, ending: 0, length: 1, address: reason as u64, label: -1 }
}

/// The most values of a page, or of a dictionary, that are listed one by one: a list of so many takes 100 MB.
const MAX_CELLS: usize = 1 << 22;

/// The values of a page that are not null.
#[derive(Debug)]
pub(super) enum Cells {
    /// The page cannot be read: the number of the reason.
    Damaged(u32),
    /// A cell for each value.
    Listed(Vec<Cell>),
    /// The number of each value in the dictionary.
    Numbers(Vec<u32>),
    /// Values of one length, one behind the other from an address on.
    Rows { address: u64, width: u32 },
}

impl Cells {
    /// Returns the cell of a value.
    pub(super) fn get(&self, number: usize, dictionary: &Self) -> Cell {
        let found = match self {
            Self::Damaged(reason) => return damaged(*reason),
            Self::Listed(cells) => cells.get(number).copied(),
            // A dictionary has no dictionary.
            Self::Numbers(numbers) => numbers
                .get(number)
                .map(|number| dictionary.get(*number as usize, &Self::Damaged(0))),
            Self::Rows { address, width } => {
                let behind = (number as u64).saturating_mul((*width).into());
                let address = address.saturating_add(behind);
                return Cell { state: State::There, length: *width, address, ..Cell::default() };
            }
        };
        found.unwrap_or(damaged(0))
    }

    /// Bytes of memory that the cells take.
    pub(super) fn held_bytes(&self) -> u64 {
        let bytes = match self {
            Self::Damaged(_) | Self::Rows { .. } => 0,
            Self::Listed(cells) => size_of_val(&cells[..]),
            Self::Numbers(numbers) => size_of_val(&numbers[..]),
        };
        bytes as u64
    }
}

/// Refuses to list too many values.
///
/// # Errors
/// The values would take too much memory; the text says why.
pub(super) fn room_for(count: usize) -> Result<(), String> {
    match count > MAX_CELLS {
        true => Err(format!("{} of its kind, more than {MAX_CELLS}", counted(count, "value"))),
        false => Ok(()),
    }
}

impl Look {
    /// Makes the cell of a value at an address.
    pub(super) fn cell(self, address: u64, value: &[u8]) -> Cell {
        let mut cell = Cell {
            state: State::There,
            length: u32::try_from(value.len()).unwrap_or(u32::MAX),
            address,
            ..Cell::default()
        };
        match self {
            Look::Number | Look::Element => (),
            Look::Label => {
                let mut number = [0; 8];
                number.iter_mut().zip(value).for_each(|(to, from)| *to = *from);
                cell.label = i64::from_le_bytes(number);
            }
            Look::Magic { is_text } => {
                let code = ending::code_of(value);
                let is_none = is_text && code == ending::BIN;
                cell.ending = if is_none { ending::code(".txt") } else { code };
            }
            Look::Path => cell.ending = ending::code_of_path(value),
        }
        cell
    }

    /// Makes the cells of values that are decoded to an address.
    ///
    /// # Errors
    /// There are too many values; the text says how many.
    pub(super) fn cells_of(self, values: &Values, address: u64) -> Result<Vec<Cell>, String> {
        room_for(values.len())?;
        let cell = |number| {
            let (start, _) = values.place(number).unwrap_or_default();
            self.cell(address.saturating_add(start.into()), values.get(number).unwrap_or_default())
        };
        Ok((0..values.len()).map(cell).collect())
    }
}
