//! An open container of records.

use super::reason;
use super::row::{
    IS_FIRST, IS_OF_ALL, IS_RECORD, LIST_HEADER_BYTES, MAX_FIELDS, RecordFormat, Row, SCALAR, Shown,
};
use crate::format::ending;
use crate::format::name::{FieldNames, parts};
use crate::format::scanned::Index;
use crate::format::{
    Container, Content, Error, Fault, IndexChecksum, Member, Names, Node, Piece, Result, Sample,
    Source, npy,
};
use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, OnceLock};

/// An open container of records.
pub(in crate::format) struct RecordFile<F> {
    source: Arc<dyn Source>,
    index: Index<Row<F>>,
    /// If all records have the same files: the names of each file, by the code of its ending.
    fields: Vec<Vec<Vec<u8>>>,
    has_names: bool,
    /// The number of records, if all names had to be read to count them.
    records: OnceLock<u64>,
}

impl<F: RecordFormat> RecordFile<F> {
    pub(in crate::format) fn new(source: Arc<dyn Source>, index: Index<Row<F>>) -> Result<Self> {
        let stored = index.first_names(MAX_FIELDS as u64)?;
        let is_of_all = stored.first().is_some_and(|name| name.first() == Some(&IS_OF_ALL));
        let has_names = !stored.is_empty() && !is_of_all;
        let fields = if is_of_all { field_names::<F>(&stored) } else { Vec::new() };
        Ok(Self { source, index, fields, has_names, records: OnceLock::new() })
    }

    /// Makes the container of an index.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(in crate::format) fn boxed(
        source: Arc<dyn Source>,
        index: Index<Row<F>>,
    ) -> Result<Box<dyn Container>> {
        Ok(Box::new(Self::new(source, index)?))
    }

    fn malformed(&self, at: u64, expected: &str, found: String) -> Error {
        Error::Malformed {
            part: self.source.name().clone(),
            format: F::NAME,
            offset_bytes: at,
            expected: expected.to_owned(),
            found,
            hint: "",
        }
    }

    /// The header of an array whose elements are stored as they are.
    fn header(&self, row: &Row<F>) -> Result<Vec<u8>> {
        let text = self.index.header(row.number)?;
        let text = String::from_utf8_lossy(&text);
        let mut parts = text.split(',');
        let descr = parts.next().unwrap_or_default();
        let shape: Vec<u64> = parts.filter_map(|length| length.parse().ok()).collect();
        Ok(npy::header(descr, &shape))
    }

    fn count_records(&self) -> Result<u64> {
        if let Some(records) = self.records.get() {
            return Ok(*records);
        }
        let mut records = 0_u64;
        self.index.members(&mut |member| {
            let is_first = member.path.first().is_some_and(|flags| flags & IS_FIRST != 0);
            records = records.saturating_add(u64::from(is_first));
            Ok(())
        })?;
        Ok(*self.records.get_or_init(|| records))
    }
}

/// The names that the files of each record can have, by the code of their ending. A slash in a stored name leads into a
/// directory.
fn field_names<F: RecordFormat>(stored: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    let mut taken: HashMap<Vec<u8>, FieldNames> = HashMap::new();
    let mut names_of = |name: &[u8]| {
        let (name, ending) = split_ending::<F>(name);
        let only = [ending.unwrap_or("")];
        let endings = if ending.is_some() { &only[..] } else { &ending::ENDINGS[..] };
        let mut halves = name.rsplitn(2, |byte| *byte == b'/');
        let (last, above) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
        let mut directory = Vec::new();
        for part in parts(above) {
            directory.extend_from_slice(&part);
            directory.push(b'/');
        }
        let names = taken.entry(directory.clone()).or_default().take(last, endings);
        names.into_iter().map(|name| [&directory[..], &name].concat()).collect()
    };
    stored.iter().map(|name| names_of(name.get(1..).unwrap_or_default())).collect()
}

/// Splits a stored name into the name without its ending, and the ending if the name has one.
fn split_ending<F: RecordFormat>(name: &[u8]) -> (&[u8], Option<&str>) {
    let mark = name.iter().rposition(|byte| *byte == 0).filter(|_| F::ENDS_NAMES);
    let (stem, ending) = mark.and_then(|at| name.split_at_checked(at)).unwrap_or((name, &[]));
    let ending = ending.get(1..).and_then(|ending| std::str::from_utf8(ending).ok());
    (stem, ending.filter(|ending| !ending.is_empty()))
}

impl<F: RecordFormat> Container for RecordFile<F> {
    fn format(&self) -> &'static str {
        F::NAME
    }

    fn len(&self) -> u64 {
        self.index.len()
    }

    fn sample(&self, index: u64) -> Result<Sample> {
        let row = self.index.sample(index)?;
        let list_bytes = |element: u64| {
            let count = if row.number == SCALAR { 1 } else { u64::from(row.number) };
            LIST_HEADER_BYTES.saturating_add(element.saturating_mul(count))
        };
        let content = match row.shown {
            Shown::Stored => Content::Stored,
            Shown::Array => Content::Prefixed(row.header_bytes()),
            Shown::Integers => Content::Encoded(list_bytes(8)),
            Shown::Floats => Content::Encoded(list_bytes(4)),
            Shown::Pieced => Content::Sparse(self.index.pieced_bytes(row.number.into())?),
            Shown::Headed => match self.index.header_bytes(row.number)? {
                0 => Content::Stored,
                bytes => Content::Prefixed(bytes.into()),
            },
            Shown::Coded => Content::Encoded(self.index.decoded_bytes(row.number)?),
        };
        let is_cut = row.offset.saturating_add(row.length) > self.source.len();
        let damaged = row.is_damaged || is_cut;
        Ok(Sample {
            offset_bytes: row.offset,
            length_bytes: if damaged { row.length.max(1) } else { row.length },
            header_bytes: 0,
            checksum: row.checksum,
            damaged,
            content,
            scratch_bytes: 0,
        })
    }

    fn fault(&self, index: u64) -> Option<Fault> {
        let row = self.index.sample(index).ok().filter(|row| row.is_damaged)?;
        reason::unpack(&self.index.header(reason::place(row.reason)?).ok()?)
    }

    fn check_unchanged(&self) -> std::io::Result<()> {
        self.source.check_unchanged()
    }

    fn index_is_fixed(&self) -> bool {
        true
    }

    fn data_bytes(&self) -> u64 {
        self.index.data_bytes()
    }

    fn prefix(&self, index: u64) -> Result<Vec<u8>> {
        let row = self.index.sample(index)?;
        match row.shown {
            Shown::Array => self.header(&row),
            Shown::Headed => self.index.header(row.number),
            _ => Ok(Vec::new()),
        }
    }

    fn decode(&self, index: u64, stored: &[u8], out: &mut [u8]) -> Result<()> {
        let row = self.index.sample(index)?;
        let header = match row.shown {
            Shown::Coded => Some(self.index.header(row.number)?),
            _ => row.elements().map(|(header, _)| header),
        };
        let decoded = header.and_then(|header| {
            let (head, values) = out.split_at_mut_checked(header.len())?;
            head.copy_from_slice(&header);
            F::decode(row.shown, stored, values).then_some(())
        });
        decoded.ok_or_else(|| {
            let found = "other bytes than when it was indexed".to_owned();
            self.malformed(row.offset, "the elements of a list", found)
        })
    }

    fn piece(&self, index: u64, offset_bytes: u64) -> Result<Option<Piece>> {
        let row = self.index.sample(index)?;
        match row.shown {
            Shown::Pieced => self.index.piece(row.number.into(), offset_bytes),
            _ => Ok(None),
        }
    }

    /// Whether files are in pieces: these count as sparse, although no holes lie between the pieces.
    fn has_holes(&self) -> bool {
        self.index.has_pieces()
    }

    fn field_name(&self, index: u64) -> Result<Vec<u8>> {
        let row = self.index.sample(index)?;
        let place = usize::try_from(index).unwrap_or(usize::MAX);
        let field = place.checked_rem(self.fields.len()).and_then(|field| self.fields.get(field));
        // A name that was stored with its ending is the only one.
        let name = field.and_then(|names| match &names[..] {
            [only] => Some(only),
            names => names.get(usize::from(row.ending_code())),
        });
        Ok(name.cloned().unwrap_or_default())
    }

    fn members(&self, visit: &mut dyn FnMut(Member) -> Result<()>) -> Result<()> {
        if !self.has_names {
            return Ok(());
        }
        let (mut behind, mut path) = (0_u64, Vec::new());
        self.index.members(&mut |member| {
            let Some((&flags, name)) = member.path.split_first() else { return Ok(()) };
            behind = behind.saturating_add(u64::from(flags & IS_FIRST != 0));
            path.clear();
            // Writing to memory does not fail.
            let _ = write!(path, "{}", behind.saturating_sub(1));
            if flags & IS_RECORD == 0 {
                path.push(b'/');
                let (stem, ending) = split_ending::<F>(name);
                path.extend_from_slice(stem);
                if let Node::Sample(sample) = member.node {
                    let code = self.index.sample(sample)?.ending_code();
                    let ending = ending.unwrap_or(ending::named(code));
                    path.extend_from_slice(ending.as_bytes());
                }
            }
            visit(Member { path: &path, node: member.node })
        })
    }

    fn keep(&self, out: &mut dyn std::io::Write) -> std::io::Result<()> {
        self.index.write(out)
    }

    fn names(&self, _samples: u64) -> Result<Names> {
        Ok(match self.fields.len() as u64 {
            0 if self.has_names => Names::Records(self.count_records()?),
            0 => Names::None,
            fields => Names::Fields(fields),
        })
    }

    fn index_checksum(&self) -> IndexChecksum {
        F::index_checksum(self.source.as_ref())
    }

    fn warnings(&self) -> &[String] {
        self.index.warnings()
    }
}
