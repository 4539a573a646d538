//! The allocation table of an FFCV file: the number of bytes to which a sample's pointer leads.
//!
//! Each of the package's workers fills page after page, so the rows of a page stand together and in order.
//! A few bytes for such a run are kept; the rows stay where they are. If runs overlap, as in no file of the
//! package, each row is a run: 16 bytes for the 24 that it takes in the file.

use super::super::Table;
use super::super::reader::Reader;
use super::Result;
use crate::format::counted;
use std::io;

/// u64 sample, u64 ptr, u64 size.
pub(super) const ROW_BYTES: u64 = 24;
const CHUNK_ROWS: u64 = 1 << 15;
const WHAT: &str = "the allocation table";

/// The rows, to be found by their pointer.
pub(super) struct Rows {
    table: Box<dyn Table>,
    runs: Vec<Run>,
    /// The bytes that all rows together allocate.
    pub(super) allocated_bytes: u64,
}

/// Rows that stand together, in the order of their pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    /// The pointer of the first row.
    ptr: u64,
    first: u32,
    count: u32,
}

impl Rows {
    /// Reads all `count` rows at `at`.
    pub(super) fn read(reader: Reader<'_>, at: u64, count: u64, page_bytes: u64) -> Result<Self> {
        if u32::try_from(count).is_err() {
            let expected = format!("at most {}", counted(u32::MAX, "row"));
            return Err(reader.malformed(at, expected, count.to_string(), ""));
        }
        let table = reader.table(WHAT, at, count.saturating_mul(ROW_BYTES))?;
        let mut scan = Scan::new(Some(page_bytes));
        scan.all(reader, at, count)?;
        let mut rows = Self { table, runs: scan.runs, allocated_bytes: scan.allocated_bytes };
        rows.runs.sort_unstable();
        if rows.overlap().map_err(|e| reader.unreadable(WHAT, at, e))? {
            rows.runs = Vec::new();
            let mut scan = Scan::new(None);
            scan.all(reader, at, count)?;
            rows.runs = scan.runs;
            rows.runs.sort_unstable();
        }
        rows.runs.shrink_to_fit();
        Ok(rows)
    }

    /// Whether a run reaches into the next one.
    fn overlap(&self) -> io::Result<bool> {
        for (run, next) in self.runs.iter().zip(self.runs.iter().skip(1)) {
            let (last, _) = self.row(run.first.saturating_add(run.count.saturating_sub(1)))?;
            if last >= next.ptr {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The number of bytes to which `ptr` leads. `None` if no bytes were allocated there. Of several rows with one pointer, the
    /// last one in the table's order counts, or in a run the largest.
    pub(super) fn size(&self, ptr: u64) -> io::Result<Option<u64>> {
        let place = self.runs.partition_point(|run| run.ptr <= ptr);
        let Some(run) = place.checked_sub(1).and_then(|place| self.runs.get(place)) else {
            return Ok(None);
        };
        // The last row whose pointer is not beyond `ptr`: the first row always is such a row.
        let (mut low, mut high) = (0, run.count);
        while high.saturating_sub(low) > 1 {
            let middle = low.midpoint(high);
            let (found, _) = self.row(run.first.saturating_add(middle))?;
            if found <= ptr { low = middle } else { high = middle }
        }
        let (found, size) = self.row(run.first.saturating_add(low))?;
        Ok((found == ptr && size > 0).then_some(size))
    }

    fn row(&self, number: u32) -> io::Result<(u64, u64)> {
        let mut bytes = [0; 16];
        let at = u64::from(number).saturating_mul(ROW_BYTES).saturating_add(8);
        self.table.copy_to(at, &mut bytes)?;
        let [ptr, size] = numbers(bytes);
        Ok((ptr, size))
    }
}

fn numbers<const N: usize, const M: usize>(bytes: [u8; N]) -> [u64; M] {
    let mut numbers = [0; M];
    for (number, stored) in numbers.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *number = u64::from_le_bytes(*stored);
    }
    numbers
}

/// One pass over the rows.
struct Scan {
    /// The size of a page; `None` if each row is a run.
    page_bytes: Option<u64>,
    runs: Vec<Run>,
    /// The last row, if it belongs to the last run.
    last: Option<(u64, u64)>,
    allocated_bytes: u64,
}

impl Scan {
    fn new(page_bytes: Option<u64>) -> Self {
        Self { page_bytes, runs: Vec::new(), last: None, allocated_bytes: 0 }
    }

    fn all(&mut self, reader: Reader<'_>, at: u64, count: u64) -> Result<()> {
        let rows = count.min(CHUNK_ROWS);
        let mut buf = vec![0; usize::try_from(rows.saturating_mul(ROW_BYTES)).unwrap_or_default()];
        let mut number = 0u64;
        while number < count {
            let rows = count.saturating_sub(number).min(CHUNK_ROWS).saturating_mul(ROW_BYTES);
            let Some(chunk) = buf.get_mut(..usize::try_from(rows).unwrap_or_default()) else {
                break;
            };
            let chunk_at = at.saturating_add(number.saturating_mul(ROW_BYTES));
            reader.read(WHAT, chunk, chunk_at)?;
            for row in chunk.as_chunks::<{ ROW_BYTES as usize }>().0 {
                let [_, ptr, size] = numbers(*row);
                self.row(u32::try_from(number).unwrap_or(u32::MAX), ptr, size);
                number = number.saturating_add(1);
            }
        }
        Ok(())
    }

    fn row(&mut self, number: u32, ptr: u64, size: u64) {
        self.allocated_bytes = self.allocated_bytes.saturating_add(size);
        if let (Some(last), Some(run), Some(page_bytes)) =
            (self.last, self.runs.last_mut(), self.page_bytes)
            && (ptr, size) >= last
            && ptr.checked_div(page_bytes) == run.ptr.checked_div(page_bytes)
        {
            run.count = run.count.saturating_add(1);
            self.last = Some((ptr, size));
            return;
        }
        self.last = None;
        // No reader looks for a row of size 0, and it may have the pointer of another row.
        if size > 0 {
            self.runs.push(Run { ptr, first: number, count: 1 });
            self.last = Some((ptr, size));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::MemorySource;
    use proptest::prelude::*;

    fn rows(table: &[(u64, u64)], page_bytes: u64) -> Rows {
        let bytes: Vec<u8> = table
            .iter()
            .flat_map(|(ptr, size)| [7, *ptr, *size])
            .flat_map(u64::to_le_bytes)
            .collect();
        let source = MemorySource::new("t", bytes);
        Rows::read(Reader::new(&source, "t"), 0, table.len() as u64, page_bytes).unwrap()
    }

    #[test]
    fn the_pages_of_several_workers_are_a_run_each() {
        let table =
            [(0, 5), (5, 3), (128, 0), (200, 1), (64, 9), (73, 0), (73, 2), (256, 4), (128, 72)];
        let rows = rows(&table, 64);
        assert_eq!(rows.runs.len(), 5);
        for (ptr, size) in table.into_iter().filter(|(_, size)| *size > 0) {
            assert_eq!(rows.size(ptr).unwrap(), Some(size));
        }
        for ptr in [1, 7, 8, 74, 201, 255, 257, u64::MAX] {
            assert_eq!(rows.size(ptr).unwrap(), None);
        }
        assert_eq!(rows.allocated_bytes, 96);
    }

    #[test]
    fn very_many_rows_of_one_pointer_are_looked_up_quickly() {
        let table = vec![(64, 8); 100_000];
        let rows = rows(&table, 64);
        assert_eq!(rows.runs.len(), 1);
        for _ in 0..100_000 {
            assert_eq!(rows.size(64).unwrap(), Some(8));
        }
    }

    proptest! {
        #[test]
        fn rows_in_any_order_are_found(
            table in proptest::collection::vec((0u64..300, 0u64..4), 0..60),
            shift in 0u32..7,
        ) {
            let rows = rows(&table, 1 << shift);
            for ptr in 0..310 {
                let sizes: Vec<_> =
                    table.iter().filter(|row| row.0 == ptr && row.1 > 0).map(|row| row.1).collect();
                match rows.size(ptr).unwrap() {
                    Some(size) => prop_assert!(sizes.contains(&size)),
                    None => prop_assert!(sizes.is_empty()),
                }
            }
        }
    }
}
