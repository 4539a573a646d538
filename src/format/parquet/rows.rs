//! The files of each row of a row group: all its columns go forward together, with a page of each in memory.
//!
//! Imports columns, cells, fields, texts and units of this directory.

use super::super::Result;
use super::cells::{Cell, Look, State, damaged};
use super::column::{Column, Entry, Place};
use super::fields::{Field, FieldKind};
use super::footer::Group;
use super::schema::{Leaf, Meaning, Schema};
use super::texts::{Pages, Texts};
use super::units::SLOT_BYTES;
use crate::format::ending;

/// The bytes that all columns together read at once, and the fewest and the most bytes of one column.
const WINDOWS_BYTES: u64 = 64 << 20;
const MIN_WINDOW_BYTES: u64 = 4 << 10;
const MAX_WINDOW_BYTES: u64 = 1 << 20;

/// The content of a field in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Nothing,
    /// A value, with the type of a number.
    Value(Cell, Option<&'static str>),
    /// An array of numbers, with their type and their count.
    Numbers(Cell, &'static str, u64),
    Json(Cell),
    /// An empty directory.
    Empty,
}

/// A row group, and the state that all readers of its columns share.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) pages: &'a Pages<'a>,
    pub(super) schema: &'a Schema,
    pub(super) group: &'a Group,
    pub(super) number: u32,
    /// The number of row groups.
    pub(super) groups: u64,
    /// The address of the first slot.
    pub(super) slots: u64,
}

impl Context<'_> {
    /// The address of a slot of the group. The slots of a column stand side by side, one for each row group: a program that
    /// reads row by row goes from the end of one row group straight on to the next.
    fn slot(&self, number: usize) -> u64 {
        let before = (number as u64).saturating_mul(self.groups);
        let slot = before.saturating_add(self.number.into());
        self.slots.saturating_add(slot.saturating_mul(SLOT_BYTES))
    }
}

/// A field of a row group, as its rows are passed.
pub(super) struct Rows<'a> {
    context: Context<'a>,
    kind: FieldKind,
    values: Option<Column<'a>>,
    names: Option<Column<'a>>,
    descr: Option<&'static str>,
    /// The JSON of its rows, from the first row on that is shown as JSON.
    json: Option<Texts<'a>>,
    is_given_up: bool,
    row: u64,
}

/// Takes the content of a field in a row; a file of a list comes with its number.
pub(super) type Add<'a> = dyn FnMut(Option<u64>, Shown) -> Result<()> + 'a;

fn descr_of(leaf: &Leaf) -> Option<&'static str> {
    match leaf.meaning {
        Meaning::Number(descr, _) => Some(descr),
        Meaning::Decimal(_) | Meaning::Text | Meaning::Bytes => None,
    }
}

impl<'a> Rows<'a> {
    pub(super) fn new(context: Context<'a>, field: &Field, has_labels: bool) -> Self {
        let leaf = |number: usize| context.schema.leaves.get(number);
        let mut rows = Self {
            context,
            kind: field.kind,
            values: None,
            names: None,
            descr: None,
            json: None,
            is_given_up: false,
            row: 0,
        };
        match field.kind {
            FieldKind::Value { leaf: number, name }
            | FieldKind::Files { leaf: number, name, .. } => {
                let meaning = leaf(number).map(|leaf| leaf.meaning);
                rows.descr = leaf(number).and_then(descr_of);
                let look = match meaning {
                    Some(Meaning::Number(..)) if has_labels => Look::Label,
                    Some(Meaning::Number(..)) => Look::Number,
                    Some(Meaning::Text | Meaning::Decimal(_)) => Look::Magic { is_text: true },
                    _ => Look::Magic { is_text: false },
                };
                rows.values = column(context, number, look);
                rows.names = name.and_then(|name| column(context, name, Look::Path));
            }
            FieldKind::Numbers { leaf: number, .. } => {
                rows.descr = leaf(number).and_then(descr_of);
                rows.values = column(context, number, Look::Element);
            }
            FieldKind::Json { .. } => (),
        }
        rows
    }

    /// About the offset from which the next row is read.
    pub(super) fn at(&self) -> u64 {
        self.values.as_ref().map_or(0, Column::page_at)
    }

    /// Passes the content of the next row to `add`: files of a list with their numbers.
    ///
    /// # Errors
    /// The file cannot be read, a page's header is wrong, or `add` fails.
    pub(super) fn next(&mut self, add: &mut Add) -> Result<()> {
        match self.kind {
            FieldKind::Value { .. } => {
                let found = self.value()?;
                let cell = found.map_or_else(|| self.missing(), |entry| entry.cell);
                add(None, self.shown(cell))?;
            }
            FieldKind::Files { there, .. } => self.files(there, add)?,
            FieldKind::Numbers { leaf, there } => {
                let shown = self.numbers(leaf, there)?;
                add(None, shown)?;
            }
            FieldKind::Json { leaf } => {
                let shown = self.json(leaf)?;
                add(None, shown)?;
            }
        }
        self.row = self.row.saturating_add(1);
        Ok(())
    }

    /// The cell in place of a missing value.
    fn missing(&self) -> Cell {
        self.values.as_ref().map_or(damaged(0), Column::missing)
    }

    fn shown(&self, cell: Cell) -> Shown {
        match cell.state {
            State::Null => Shown::Nothing,
            State::There | State::Damaged => Shown::Value(cell, self.descr),
        }
    }

    /// Takes the next value; its ending is that of its path, if the path has one.
    fn value(&mut self) -> Result<Option<Entry>> {
        let Some(values) = &mut self.values else { return Ok(None) };
        let mut entry = values.take()?;
        if let Some(names) = &mut self.names {
            let name = names.take()?;
            let code = name.map_or(ending::NONE, |name| name.cell.ending);
            if let Some(entry) = entry.as_mut().filter(|_| code != ending::NONE) {
                entry.cell.ending = code;
            }
        }
        Ok(entry)
    }

    fn files(&mut self, there: u32, add: &mut Add) -> Result<()> {
        let Some(first) = self.value()? else {
            return add(None, Shown::Value(self.missing(), None));
        };
        if first.definition < there {
            let is_empty = first.definition.saturating_add(1) == there;
            let shown = if first.cell.state == State::Damaged {
                Shown::Value(first.cell, None)
            } else if is_empty {
                Shown::Empty
            } else {
                Shown::Nothing
            };
            let shown =
                if self.pass_absent(there)? { shown } else { Shown::Value(damaged(0), None) };
            return add(None, shown);
        }
        let (mut cell, mut number) = (first.cell, 0_u64);
        loop {
            add(Some(number), self.shown(cell))?;
            let next = self.values.as_mut().map(Column::peek).transpose()?.flatten();
            if next.is_none() && self.values.as_ref().is_some_and(Column::is_cut) {
                // Files may be missing: the next one is shown as damaged.
                return add(Some(number.saturating_add(1)), Shown::Value(self.missing(), None));
            }
            if next.is_none_or(|next| next.repetition == 0) {
                return Ok(());
            }
            let Some(entry) = self.value()? else { return Ok(()) };
            cell = entry.cell;
            number = number.saturating_add(1);
        }
    }

    /// Passes over further entries of an absent list: DuckDB writes a null array with an entry for each element.
    /// False if one of them has a value.
    fn pass_absent(&mut self, there: u32) -> Result<bool> {
        let mut is_absent = true;
        while let Some(values) = &mut self.values
            && values.peek()?.is_some_and(|next| next.repetition > 0)
        {
            let Some(entry) = self.value()? else { break };
            is_absent &= entry.definition < there;
        }
        Ok(is_absent)
    }

    fn numbers(&mut self, leaf: usize, there: u32) -> Result<Shown> {
        let descr = self.descr.unwrap_or("|u1");
        let broken = Shown::Numbers(self.missing(), descr, 0);
        let Some(first) = self.values.as_mut().map(Column::take).transpose()?.flatten() else {
            return Ok(Shown::Numbers(self.missing(), descr, 0));
        };
        if first.definition < there {
            let is_empty = first.definition.saturating_add(1) == there;
            let empty = Cell { state: State::There, ..Cell::default() };
            let shown = if is_empty { Shown::Numbers(empty, descr, 0) } else { Shown::Nothing };
            return Ok(if self.pass_absent(there)? { shown } else { broken });
        }
        let Some(values) = &mut self.values else { return Ok(broken) };
        let (mut count, mut has_nulls) = (1_u64, first.cell.state != State::There);
        let mut bytes = u64::from(first.cell.length);
        while values.peek()?.is_some_and(|next| next.repetition > 0) {
            let Some(next) = values.take()? else { break };
            count = count.saturating_add(1);
            bytes = bytes.saturating_add(next.cell.length.into());
            has_nulls |= next.cell.state != State::There;
        }
        if values.peek()?.is_none() && values.is_cut() {
            return Ok(Shown::Numbers(values.missing(), descr, 0));
        }
        if has_nulls {
            return self.json(leaf);
        }
        let length = u32::try_from(bytes).ok();
        Ok(match length {
            Some(length) => Shown::Numbers(Cell { length, ..first.cell }, descr, count),
            None => Shown::Numbers(damaged(0), descr, 0),
        })
    }

    /// Makes the JSON of the row that is passed.
    fn json(&mut self, leaf: usize) -> Result<Shown> {
        if self.json.is_none() && !self.is_given_up {
            let Context { pages, schema, group, number, .. } = self.context;
            let slot = self.context.slot(schema.leaves.len().saturating_add(leaf));
            self.json = Texts::new(pages, (schema, group), (leaf, number), slot);
        }
        let cell = self.json.as_mut().map(|texts| texts.cell(self.row)).transpose()?;
        let cell = cell.unwrap_or(damaged(0));
        Ok(if cell.state == State::Null { Shown::Nothing } else { Shown::Json(cell) })
    }
}

fn column<'a>(context: Context<'a>, number: usize, look: Look) -> Option<Column<'a>> {
    let leaf = context.schema.leaves.get(number)?;
    let chunk = *context.group.chunks.get(number)?;
    let place = Place {
        reader: context.pages.reader,
        leaf,
        column: u32::try_from(number).ok()?,
        group: context.number,
        chunk,
        slot: context.slot(number),
        window: WINDOWS_BYTES.checked_div(context.schema.leaves.len() as u64).unwrap_or(0),
    };
    let place = Place { window: place.window.clamp(MIN_WINDOW_BYTES, MAX_WINDOW_BYTES), ..place };
    Some(Column::new(place, context.pages.budget, look))
}

impl Rows<'_> {
    /// About the offset of values behind the last row, which belong to no row, if there are some.
    ///
    /// # Errors
    /// The file cannot be read, or a page's header is wrong.
    pub(super) fn left_over(&mut self) -> Result<Option<u64>> {
        for column in [&mut self.values, &mut self.names].into_iter().flatten() {
            if column.has_more()? {
                return Ok(Some(column.page_at()));
            }
        }
        self.json.as_mut().map_or(Ok(None), Texts::left_over)
    }

    /// Gives up the field in this row group: its further values cannot be read.
    pub(super) fn give_up(&mut self) {
        (self.values, self.names, self.json) = (None, None, None);
        self.is_given_up = true;
        self.row = self.row.saturating_add(1);
    }
}
