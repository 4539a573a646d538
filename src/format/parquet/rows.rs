//! The files of each row of a row group: all columns of it go forward together, a page of each in memory.
//!
//! Imports columns, fields, JSON and units of this directory.

use super::super::Result;
use super::super::reader::Reader;
use super::column::{Budget, Cell, Column, DAMAGED, Entry, Look, Place, State};
use super::fields::{Field, FieldKind};
use super::footer::Group;
use super::json;
use super::schema::{Leaf, Meaning, Schema};
use super::units::{Kind, NO_DICTIONARY, Unit};
use crate::format::ending;

/// What of a field a row has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Nothing,
    /// A value; of a number, its type.
    Value(Cell, Option<&'static str>),
    /// So many numbers of a type.
    Numbers(Cell, &'static str, u64),
    Json(Cell),
    /// Nothing lies in the directory.
    Empty,
}

/// A row group, and what all that is read of it shares.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) schema: &'a Schema,
    pub(super) group: &'a Group,
    pub(super) number: u32,
    pub(super) budget: &'a Budget,
    /// The address of the first slot of the group, and how far slots are apart.
    pub(super) slots: u64,
}

/// A field of a row group, as its rows are passed.
pub(super) struct Rows<'a> {
    context: Context<'a>,
    kind: FieldKind,
    values: Option<Column<'a>>,
    names: Option<Column<'a>>,
    descr: Option<&'static str>,
    /// Where the JSON of each row is.
    json: Option<Vec<Cell>>,
    row: u64,
}

/// Takes what is shown of a row: of a file of a list, with its number.
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

    /// The byte that what is shown of the next row is read from, about.
    pub(super) fn at(&self) -> u64 {
        self.values.as_ref().map_or(0, Column::page_at)
    }

    /// Passes what the next row has to `add`: files of a list with their number.
    ///
    /// # Errors
    /// The file cannot be read, a page's header is wrong, or `add` fails.
    pub(super) fn next(&mut self, add: &mut Add) -> Result<()> {
        match self.kind {
            FieldKind::Value { .. } => {
                let cell = self.value()?.map_or(DAMAGED, |entry| entry.cell);
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

    fn shown(&self, cell: Cell) -> Shown {
        match cell.state {
            State::Null => Shown::Nothing,
            State::There | State::Damaged => Shown::Value(cell, self.descr),
        }
    }

    /// The next value; the ending is that of its path, if that has one.
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
            return add(None, Shown::Value(DAMAGED, None));
        };
        if first.definition < there {
            let is_empty = first.definition.saturating_add(1) == there;
            let shown = if first.cell.state == State::Damaged {
                Shown::Value(DAMAGED, None)
            } else if is_empty {
                Shown::Empty
            } else {
                Shown::Nothing
            };
            return add(None, shown);
        }
        let (mut cell, mut number) = (first.cell, 0_u64);
        loop {
            add(Some(number), self.shown(cell))?;
            let next = self.values.as_mut().map(Column::peek).transpose()?.flatten();
            if next.is_none() && self.values.as_ref().is_some_and(Column::is_cut) {
                // Files may be missing: the one that would follow tells so.
                return add(Some(number.saturating_add(1)), Shown::Value(DAMAGED, None));
            }
            if next.is_none_or(|next| next.repetition == 0) {
                return Ok(());
            }
            let Some(entry) = self.value()? else { return Ok(()) };
            cell = entry.cell;
            number = number.saturating_add(1);
        }
    }

    fn numbers(&mut self, leaf: usize, there: u32) -> Result<Shown> {
        let descr = self.descr.unwrap_or("|u1");
        let Some(values) = &mut self.values else {
            return Ok(Shown::Numbers(DAMAGED, descr, 0));
        };
        let Some(first) = values.take()? else {
            return Ok(Shown::Numbers(DAMAGED, descr, 0));
        };
        if first.definition < there {
            let is_empty = first.definition.saturating_add(1) == there;
            let empty = Cell { state: State::There, ..Cell::default() };
            return Ok(if is_empty { Shown::Numbers(empty, descr, 0) } else { Shown::Nothing });
        }
        let (mut count, mut has_nulls) = (1_u64, first.cell.state != State::There);
        let mut bytes = u64::from(first.cell.length);
        while values.peek()?.is_some_and(|next| next.repetition > 0) {
            let Some(next) = values.take()? else { break };
            count = count.saturating_add(1);
            bytes = bytes.saturating_add(next.cell.length.into());
            has_nulls |= next.cell.state != State::There;
        }
        if values.peek()?.is_none() && values.is_cut() {
            return Ok(Shown::Numbers(DAMAGED, descr, 0));
        }
        if has_nulls {
            return self.json(leaf);
        }
        let length = u32::try_from(bytes).ok();
        Ok(match length {
            Some(length) => Shown::Numbers(Cell { length, ..first.cell }, descr, count),
            None => Shown::Numbers(DAMAGED, descr, 0),
        })
    }

    /// The JSON of the row that is passed; all of the row group's is made when the first is wanted.
    fn json(&mut self, leaf: usize) -> Result<Shown> {
        if self.json.is_none() {
            self.json = Some(self.make_json(leaf)?);
        }
        let texts = self.json.as_deref().unwrap_or_default();
        let row = usize::try_from(self.row).unwrap_or(usize::MAX);
        let cell = texts.get(row).copied().unwrap_or(DAMAGED);
        Ok(if cell.state == State::Null { Shown::Nothing } else { Shown::Json(cell) })
    }

    fn make_json(&self, leaf: usize) -> Result<Vec<Cell>> {
        let Context { reader, schema, group, number, budget, slots } = self.context;
        let node = json::find(&schema.columns, leaf);
        let range = node.and_then(|node| json::stored_range(node, group));
        let Some(range) = range else {
            let why = "lists and structures that lie in more than 256 MiB of a row group";
            budget.notes.borrow_mut().push(format!("row group {number}: {why}"));
            return Ok(Vec::new());
        };
        let length = range.end.saturating_sub(range.start);
        let mut stored = vec![0; usize::try_from(length).unwrap_or(0)];
        reader.read("a column", &mut stored, range.start)?;
        let source = json::Source { schema, group, at: range.start };
        let made = source.texts(leaf, &stored).and_then(|(text, ends)| {
            let left = budget.bytes.get().checked_sub(text.len() as u64);
            let left = left.ok_or("it would be more than a thousand times as long as the file")?;
            budget.bytes.set(left);
            Ok((text, ends))
        });
        let (text, ends) = match made {
            Ok(made) => made,
            Err(why) => {
                let at = range.start;
                budget.notes.borrow_mut().push(format!("the column at byte {at}: {why}"));
                return Ok(Vec::new());
            }
        };
        let columns = schema.leaves.len() as u64;
        let slot = slots.saturating_add(
            columns.saturating_add(leaf as u64).saturating_mul(super::units::SLOT_BYTES),
        );
        if !text.is_empty() {
            budget.units.borrow_mut().push(Unit {
                decoded: slot,
                decoded_bytes: u32::try_from(text.len()).unwrap_or(u32::MAX),
                stored: range.start,
                stored_bytes: u32::try_from(length).unwrap_or(u32::MAX),
                kind: Kind::Json,
                has_checksum: false,
                column: u32::try_from(leaf).unwrap_or(u32::MAX),
                group: number,
                dictionary: NO_DICTIONARY,
            });
        }
        let mut start = 0_u32;
        let cell = |end: u32| {
            let at = std::mem::replace(&mut start, end);
            let value = text.get(at as usize..end as usize).unwrap_or_default();
            let state = if value == b"null" { State::Null } else { State::There };
            let address = slot.saturating_add(at.into());
            Cell { state, length: end.saturating_sub(at), address, ..Cell::default() }
        };
        Ok(ends.into_iter().map(cell).collect())
    }
}

fn column<'a>(context: Context<'a>, number: usize, look: Look) -> Option<Column<'a>> {
    let leaf = context.schema.leaves.get(number)?;
    let chunk = *context.group.chunks.get(number)?;
    let slot = (number as u64).saturating_mul(super::units::SLOT_BYTES);
    let place = Place {
        reader: context.reader,
        leaf,
        column: u32::try_from(number).ok()?,
        group: context.number,
        chunk,
        slot: context.slots.saturating_add(slot),
    };
    Some(Column::new(place, context.budget, look))
}

impl Rows<'_> {
    /// What follows cannot be read.
    pub(super) fn give_up(&mut self) {
        (self.values, self.names) = (None, None);
        self.json = Some(Vec::new());
        self.row = self.row.saturating_add(1);
    }
}
