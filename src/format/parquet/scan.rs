//! Finds the files of all rows: a pass over the pages, row group by row group.
//!
//! Imports rows, units, fields and the footer; records of this room.

use super::super::reader::Reader;
use super::super::{Error, OpenOptions, Result, Source, View};
use super::budget::Budget;
use super::cells::{Cell, State, damaged};
use super::dictionaries::{Dictionaries, NO_DICTIONARY};
use super::fields::{self, Field};
use super::labels::labels;
use super::rows::{Context, Rows, Shown};
use super::schema::Schema;
use super::texts::Pages;
use super::units::{Kind, MAX_SLOTS, SLOT_BYTES, Unit, Units};
use super::{NAME, Parquet, footer};
use crate::format::counted;
use crate::format::ending;
use crate::format::one_line;
use crate::format::records::{Builder, Record, Row};
use crate::format::stream::{FREE_BYTES, MAX_RATIO};

/// The most values, nulls included, that are examined: a fixed number for every file, and a number for each byte of it.
const FREE_VALUES: u64 = 4 << 20;
const VALUES_A_BYTE: u64 = 16;
/// Bytes that names may take in every file, besides those for each byte of it.
const FREE_NAMES_OF: u64 = 64 << 20;

/// The most further passes over a file whose columns have more values than their rows.
const MAX_PASSES: u32 = 8;

/// The tables that are made from the footer: a kept index does not have them.
pub(super) struct Outline {
    pub(super) units: Units,
    pub(super) fields: Vec<Field>,
    /// The address of the first slot.
    pub(super) first: u64,
}

/// Reads the footer, and makes the schema and the fields of the columns from it.
pub(super) fn outline(reader: Reader<'_>) -> Result<Outline> {
    let footer = footer::read(reader)?;
    let refuse = |expected: &str, why| Err(reader.malformed(footer.at, expected, why, ""));
    let schema = match Schema::new(&footer.schema) {
        Ok(schema) => schema,
        Err(why) => return refuse("a schema that is a tree", why),
    };
    for (number, group) in footer.groups.iter().enumerate() {
        let both = group.chunks.iter().zip(&schema.leaves);
        for (column, (chunk, leaf)) in both.enumerate() {
            if chunk.physical != leaf.stored_type {
                let found = format!("type {} in row group {number}", chunk.physical);
                return refuse(&format!("type {} of column {column}", leaf.stored_type), found);
            }
            let (values, rows) = (chunk.values, group.rows);
            if values < rows || values > rows && leaf.repetition == 0 {
                let found = format!("{values} in row group {number}");
                let most = if leaf.repetition == 0 { "" } else { " or more" };
                let expected =
                    format!("{}{most} of column {column}, one a row", counted(rows, "value"));
                return refuse(&expected, found);
            }
        }
    }
    let fields = match fields::of(&schema) {
        Ok(fields) => fields,
        Err(why) => return refuse("paths of columns of up to 4000 bytes, and 64 MiB in all", why),
    };
    let slots = (footer.groups.len() as u64)
        .saturating_mul(slots_of(&schema))
        .saturating_add(fields.len() as u64);
    if slots > MAX_SLOTS {
        return refuse("fewer than 2²¹ chunks of columns", format!("{slots} with their JSON"));
    }
    let first = reader.len().checked_div(SLOT_BYTES).unwrap_or(0).saturating_add(1);
    let labels = labels(&schema, &fields, footer.hugging_face.as_deref());
    let units = Units { footer, schema, labels, ..Units::default() };
    Ok(Outline { units, fields, first: first.saturating_mul(SLOT_BYTES) })
}

/// Returns the number of slots of a row group.
fn slots_of(schema: &Schema) -> u64 {
    (schema.leaves.len() as u64).saturating_mul(2)
}

/// A field whose files are added.
struct Adding<'a> {
    /// The components of its path; the last one without the mark of an ending.
    parts: Vec<&'a [u8]>,
    last: &'a [u8],
    /// The row that all numbers of the field share, but for its offset and length.
    number: Option<Row<Parquet>>,
    /// The address and the length of each label's name.
    labels: Vec<(u64, u64)>,
}

impl Adding<'_> {
    /// The path of the column, for messages.
    fn path(&self) -> String {
        let parts = [&self.parts[..], &[self.last]].concat();
        one_line(parts.join(&b'/'))
    }
}

/// The pass over a file.
struct Scan<'a> {
    reader: Reader<'a>,
    is_typed: bool,
    budget: &'a Budget,
    builder: Builder<Parquet>,
    record: Record<Parquet>,
    /// The builder's numbers of the budget's reasons, in the order of the budget.
    reasons: Vec<u32>,
}

/// A column of a row group with values behind those of its rows, and about where they lie.
struct LeftOver {
    group: u32,
    field: usize,
    at: u64,
}

/// Reads a file: finds its values, and makes the files of its rows.
pub(super) fn scan(
    source: &dyn Source,
    options: &OpenOptions,
) -> Result<(Units, Builder<Parquet>)> {
    let reader = Reader::new(source, NAME);
    let Outline { mut units, fields, first } = outline(reader)?;
    let values = reader.len().saturating_mul(VALUES_A_BYTE).saturating_add(FREE_VALUES);
    let all = units.footer.rows.saturating_mul(fields.len() as u64);
    if all > values {
        let found =
            format!("{} of {}", counted(units.footer.rows, "row"), counted(fields.len(), "column"));
        let expected = format!("fewer than {}", counted(values, "value"));
        return Err(reader.malformed(units.footer.at, expected, found, ""));
    }
    let pass = Pass { reader, units: &units, fields: &fields, first, options };
    let (mut given_up, mut passes) = (Vec::new(), 0);
    let (budget, builder) = loop {
        let (budget, builder, left_over) = pass.run(&given_up)?;
        let Some(LeftOver { group, at, .. }) = left_over.first() else { break (budget, builder) };
        if passes == MAX_PASSES {
            let expected = "no more values in a row group than its rows have";
            return Err(reader.malformed(*at, expected, format!("some in row group {group}"), ""));
        }
        passes = passes.saturating_add(1);
        // In such a column, no entry is sure to belong to its row. Only the list of these columns is kept of this pass. Columns
        // that the bounds had cut short may be read further in the next pass.
        given_up.extend(left_over);
        given_up.sort_by_key(|one| (one.group, one.field));
    };
    units.dictionaries = Dictionaries::new(budget.dictionaries.into_inner());
    units.parts = budget.parts.into_inner();
    units.set(budget.units.into_inner());
    Ok((units, builder))
}

/// The input of a pass.
struct Pass<'a> {
    reader: Reader<'a>,
    units: &'a Units,
    fields: &'a [Field],
    /// The address of the first slot.
    first: u64,
    options: &'a OpenOptions,
}

impl Pass<'_> {
    /// Goes through all rows, without reading the columns that were given up.
    fn run(&self, mut given_up: &[LeftOver]) -> Result<(Budget, Builder<Parquet>, Vec<LeftOver>)> {
        let Self { reader, units, fields, first, options } = *self;
        // A file may have two leaves, `bytes` and `path`: the values of both count.
        let values = reader.len().saturating_mul(VALUES_A_BYTE).saturating_add(FREE_VALUES);
        let bytes = reader.len().saturating_mul(MAX_RATIO).saturating_add(FREE_BYTES);
        let budget = Budget::new(reader.len(), values.saturating_mul(2), bytes);
        let pages = Pages { reader, budget: &budget };
        let mut scan = Scan {
            reader,
            is_typed: options.view != View::Raw,
            budget: &budget,
            builder: Builder::default(),
            record: Record::default(),
            reasons: Vec::new(),
        };
        let mut adding = self.adding(&budget);
        let (mut row, mut left_over) = (0_u64, Vec::new());
        for (number, group) in (0_u32..).zip(&units.footer.groups) {
            let (schema, groups) = (&units.schema, units.footer.groups.len() as u64);
            let context = Context { pages: &pages, schema, group, number, groups, slots: first };
            let mut rows: Vec<_> = fields
                .iter()
                .zip(&adding)
                .map(|(field, adding)| Rows::new(context, field, !adding.labels.is_empty()))
                .collect();
            // `given_up` is in the order of the row groups.
            while let Some((one, behind)) =
                given_up.split_first().filter(|(one, _)| one.group == number)
            {
                given_up = behind;
                if let Some(rows) = rows.get_mut(one.field) {
                    rows.give_up();
                }
                let column = adding.get(one.field).map(Adding::path).unwrap_or_default();
                let (part, rows, at) = (reader.part(), counted(group.rows, "row"), one.at);
                scan.builder.warn(format!(
                    "{part}: row group {number}: column {column} has values behind those of its {rows}, in or behind \
                     the page at byte {at}: none of its values in this row group can be read"
                ));
            }
            for _ in 0..group.rows {
                scan.row(&mut rows, &mut adding, row, options.allow_damaged)?;
                if !budget.notes.borrow().is_empty() {
                    scan.warn(row);
                }
                row = row.saturating_add(1);
            }
            for (field, rows) in rows.iter_mut().enumerate() {
                let found = match rows.left_over() {
                    // A page follows, and its header is wrong.
                    Err(Error::Malformed { offset_bytes, .. }) if options.allow_damaged => {
                        Some(offset_bytes)
                    }
                    found => found?,
                };
                left_over.extend(found.map(|at| LeftOver { group: number, field, at }));
            }
        }
        let builder = scan.builder;
        drop(adding);
        Ok((budget, builder, left_over))
    }

    fn adding<'b>(&'b self, budget: &Budget) -> Vec<Adding<'b>> {
        let units = self.units;
        let labels_at = (units.footer.groups.len() as u64)
            .saturating_mul(slots_of(&units.schema))
            .saturating_mul(SLOT_BYTES)
            .saturating_add(self.first);
        let all = self.fields.iter().zip(&units.labels).enumerate();
        all.map(|(number, (field, names))| {
            let number = number as u64;
            let slot = number.saturating_mul(SLOT_BYTES).saturating_add(labels_at);
            adding_of(field, names, slot, number, budget)
        })
        .collect()
    }
}

/// Prepares a field whose files are to be added; its labels are decoded at `slot`.
fn adding_of<'a>(
    field: &'a Field,
    names: &[Vec<u8>],
    slot: u64,
    number: u64,
    budget: &Budget,
) -> Adding<'a> {
    let (last, above) =
        field.path.split_last().map_or((&[][..], &[][..]), |(last, above)| (&last[..], above));
    let mut at = slot;
    let mut labels = Vec::new();
    for name in names {
        labels.push((at, name.len() as u64));
        at = at.saturating_add(name.len() as u64);
    }
    if at > slot {
        budget.units.borrow_mut().push(Unit {
            decoded: slot,
            decoded_bytes: u32::try_from(at.saturating_sub(slot)).unwrap_or(u32::MAX),
            stored: 0,
            stored_bytes: footer::MARK.len() as u32,
            kind: Kind::Labels,
            has_checksum: false,
            is_indexed: false,
            column: u32::try_from(number).unwrap_or(u32::MAX),
            group: 0,
            dictionary: NO_DICTIONARY,
        });
    }
    Adding { parts: above.iter().map(Vec::as_slice).collect(), last, number: None, labels }
}

impl<'a> Scan<'a> {
    /// Adds a row.
    fn row(
        &mut self,
        rows: &mut [Rows],
        adding: &mut [Adding],
        number: u64,
        allow_damaged: bool,
    ) -> Result<()> {
        self.record.clear();
        for (rows, adding) in rows.iter_mut().zip(adding) {
            let at = rows.at();
            // A row may be a list of more files than there is room for.
            let passed = rows.next(&mut |place, shown| {
                self.add(adding, place, shown);
                self.room(at, number)
            });
            match passed {
                Ok(()) => (),
                Err(Error::Malformed { part, format, offset_bytes, expected, found, hint }) => {
                    let column = one_line(adding.last);
                    let expected = format!("{expected} (column {column}, row {number})");
                    let error =
                        Error::Malformed { part, format, offset_bytes, expected, found, hint };
                    if !allow_damaged {
                        return Err(error);
                    }
                    self.builder.warn(error.to_string());
                    rows.give_up();
                    self.add(adding, None, Shown::Value(damaged(0), None));
                }
                Err(error) => return Err(error),
            }
        }
        if self.record.is_empty() {
            // A row of nulls: an empty directory.
            self.record.directory(&[b""]);
        }
        let at = rows.first().map_or(0, Rows::at);
        self.room(at, number)?;
        let added = self.builder.add(&self.record);
        added.map_err(|_| self.full(at, format!("2³¹ at row {number}")))
    }

    /// Refuses a row of more files than there is room for. `at` is about the offset of the row.
    fn room(&self, at: u64, number: u64) -> Result<()> {
        let length = self.reader.len();
        let most = length.saturating_mul(VALUES_A_BYTE).saturating_add(FREE_VALUES);
        let names = length.saturating_mul(VALUES_A_BYTE).saturating_add(FREE_NAMES_OF);
        let room = self.builder.room(&self.record, most, names);
        room.map_err(|full| self.full(at, format!("too many {full:?} at row {number}")))
    }

    fn full(&self, at: u64, found: String) -> Error {
        self.reader.malformed(at, "as many files as its length allows", found, "")
    }

    /// Warns of pages that cannot be read.
    fn warn(&mut self, row: u64) {
        let part = self.reader.part();
        for note in self.budget.notes.take() {
            self.builder
                .warn(format!("{part}: from row {row} on: {note}: its rows cannot be read"));
        }
    }

    /// Makes the row of a cell.
    fn row_of(&mut self, cell: Cell, ending: u8) -> Row<Parquet> {
        if cell.state != State::Damaged {
            return Row::stored(cell.address, cell.length.into(), ending);
        }
        let (at, reason) = self.reason(cell.address);
        let mut row = Row::stored(at, cell.length.into(), ending);
        (row.is_damaged, row.reason) = (true, reason);
        row
    }

    /// Returns the offset of a page that cannot be read, and the builder's number of the budget's reason `number`.
    fn reason(&mut self, number: u64) -> (u64, u32) {
        let place = number.checked_sub(1).and_then(|place| usize::try_from(place).ok());
        let Some(place) = place else { return (0, 0) };
        let faults = self.budget.faults.borrow();
        for (_, fault) in faults.iter().take(place.saturating_add(1)).skip(self.reasons.len()) {
            self.reasons.push(self.builder.reason(fault));
        }
        let at = faults.get(place).map_or(0, |(at, _)| *at);
        (at, self.reasons.get(place).copied().unwrap_or(0))
    }

    /// Adds the files that a row has of a field.
    fn add(&mut self, adding: &mut Adding, place: Option<u64>, shown: Shown) {
        match shown {
            Shown::Nothing => (),
            Shown::Empty => {
                let parts = [&adding.parts[..], &[adding.last]].concat();
                self.record.directory(&parts);
            }
            Shown::Json(cell) => {
                let code = ending::code(".json");
                let row = self.row_of(cell, code);
                self.file(adding, None, row, ending::named(code));
            }
            Shown::Value(cell, Some(descr)) => {
                let row = self.number(adding, cell, descr);
                self.file(adding, place, row, ".npy");
                let label = usize::try_from(cell.label).ok();
                let label = label.filter(|_| self.is_typed && cell.state == State::There);
                if let Some(&(at, length)) = label.and_then(|label| adding.labels.get(label)) {
                    let row = Row::stored(at, length, ending::NONE);
                    self.name(adding, place, row, ".txt");
                }
            }
            Shown::Value(cell, None) => {
                let code = if cell.state == State::Damaged { ending::BIN } else { cell.ending };
                let row = self.row_of(cell, code);
                self.file(adding, place, row, "");
            }
            Shown::Numbers(cell, descr, count) => {
                let plain = self.row_of(cell, ending::NONE);
                let place = (plain.offset, plain.length);
                let array = self.builder.array(place, descr, &[count]).filter(|_| self.is_typed);
                let row = match array {
                    Some(array) if !plain.is_damaged => array,
                    _ => plain,
                };
                self.file(adding, None, row, ".npy");
            }
        }
    }

    /// Makes the row of a number.
    fn number(&mut self, adding: &mut Adding, cell: Cell, descr: &str) -> Row<Parquet> {
        let plain = self.row_of(cell, ending::NONE);
        if !self.is_typed || plain.is_damaged {
            return plain;
        }
        if adding.number.is_none() {
            adding.number = self.builder.array((0, 0), descr, &[]);
        }
        let (offset, length) = (plain.offset, plain.length);
        adding.number.map_or(plain, |row| Row { offset, length, ..row })
    }

    /// Adds a file with `ending`, or with that of its row if `ending` is empty. In the raw view, files have no ending.
    fn file(&mut self, adding: &Adding, place: Option<u64>, row: Row<Parquet>, ending: &str) {
        match self.is_typed {
            true => self.name(adding, place, row, ending),
            false => self.name(adding, place, Row { ending: ending::NONE, ..row }, ""),
        }
    }

    fn name(&mut self, adding: &Adding, place: Option<u64>, row: Row<Parquet>, ending: &str) {
        let mark = |name: &[u8]| [name, b"\0", ending.as_bytes()].concat();
        let mut parts = adding.parts.clone();
        let name;
        match place {
            None => {
                name = mark(adding.last);
                parts.push(&name);
            }
            Some(place) => {
                name = mark(place.to_string().as_bytes());
                parts.extend([adding.last, &name]);
            }
        }
        self.record.file(&parts, row);
    }
}
