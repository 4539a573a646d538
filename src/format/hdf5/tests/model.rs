//! Chunks of any shape, laid out in any order, against the array that was cut up.

use super::super::chunked::Chunked;
use super::super::dataset::{Dataset, Layout};
use super::super::datatype::{Datatype, Kind};
use super::super::table::{Chunk, grid};
use proptest::collection::vec;
use proptest::prelude::*;

/// Bytes in chunks that lie far apart, so that each is an interval of its own; only the chunks in `numbers` were written.
fn far_apart(shape: [u64; 2], chunk: [u64; 2], numbers: impl Iterator<Item = u64>) -> Chunked {
    let chunk = chunk.to_vec();
    let bytes = chunk.iter().product::<u64>() as u32;
    let table = numbers.map(|number| Chunk { number, at: number << 24, bytes, mask: 0 }).collect();
    let dataset = Dataset {
        shape: shape.to_vec(),
        most: shape.to_vec(),
        datatype: Datatype { bytes: 1, kind: Kind::Plain("|V1".to_owned()), is_unknown: None },
        layout: Layout::Contiguous(None, None),
        filters: Vec::new(),
        fill: Vec::new(),
    };
    Chunked::new(&dataset, chunk, table)
}

#[test]
fn all_of_an_array_decodes_each_chunk_once() {
    let chunked = far_apart([40, 40], [10, 10], 0..16);
    let (mut fetched, mut out) = (0, vec![0; 1600]);
    chunked
        .read(0, &mut out, &mut |range| {
            fetched += 1;
            Ok(vec![(range.start >> 24) as u8 + 1; (range.end - range.start) as usize])
        })
        .unwrap();
    assert_eq!(fetched, 16);
    for (at, byte) in out.iter().enumerate() {
        let (row, column) = (at / 40, at % 40);
        assert_eq!(usize::from(*byte), row / 10 * 4 + column / 10 + 1, "{row}, {column}");
    }
}

#[test]
fn half_a_billion_holes_are_not_all_passed_for_one_byte() {
    let chunked = far_apart([1, 1 << 29], [1, 1], std::iter::once((1 << 29) - 1));
    let run = chunked.run_at(0).unwrap();
    assert!(run.at < 10_000 && run.length == 1, "{run:?}");
    // This interval was never written.
    let mut out = [1];
    chunked.decode(run.decoded, &[0; 8], &mut out).unwrap();
    assert_eq!((run.decoded, out), (1, [0]));
}

/// An array, and its chunks in a file.
#[derive(Debug)]
struct Cut {
    shape: Vec<u64>,
    chunk: Vec<u64>,
    element: u64,
    fill: Vec<u8>,
    /// For each chunk: whether it was written, and the gap between it and the chunk before.
    places: Vec<(bool, u16)>,
}

fn cut() -> impl Strategy<Value = Cut> {
    let dimensions = vec((1_u64..9, 1_u64..6), 1..4);
    let places = vec((prop::bool::weighted(0.8), prop_oneof![Just(0_u16), any::<u16>()]), 1..20);
    (dimensions, 1_u64..4, any::<bool>(), places).prop_map(
        |(dimensions, element, has_fill, places)| {
            let (shape, chunk) = dimensions.into_iter().unzip();
            let fill = if has_fill { vec![0xee; element as usize] } else { Vec::new() };
            Cut { shape, chunk, element, fill, places }
        },
    )
}

impl Cut {
    fn dataset(&self) -> Dataset {
        Dataset {
            shape: self.shape.clone(),
            most: self.shape.clone(),
            datatype: Datatype {
                bytes: self.element as u32,
                kind: Kind::Plain("|V1".to_owned()),
                is_unknown: None,
            },
            layout: Layout::Contiguous(None, None),
            filters: Vec::new(),
            fill: self.fill.clone(),
        }
    }

    /// The array, the file, and the table of its chunks.
    fn lay_out(&self) -> (Vec<u8>, Vec<u8>, Vec<Chunk>) {
        let (grid, rank) = (grid(&self.shape, &self.chunk), self.shape.len());
        let count: u64 = self.shape.iter().product();
        let chunk_bytes = (self.chunk.iter().product::<u64>() * self.element) as usize;
        let (mut file, mut table) = (vec![0xaa; 8], Vec::new());
        for number in 0..grid.iter().product::<u64>() {
            let (is_there, gap) = self.places[number as usize % self.places.len()];
            if is_there {
                file.resize(file.len() + usize::from(gap), 0xaa);
                let (at, bytes) = (file.len() as u64, chunk_bytes as u32);
                table.push(Chunk { number, at, bytes, mask: 0 });
                file.resize(file.len() + chunk_bytes, 0xcc);
            }
        }
        let mut array = Vec::new();
        for element in 0..count {
            let (mut rest, mut place, mut number) = (element, 0, 0);
            let mut coordinates = vec![0; rank];
            for dimension in (0..rank).rev() {
                coordinates[dimension] = rest % self.shape[dimension];
                rest /= self.shape[dimension];
            }
            for (dimension, coordinate) in coordinates.into_iter().enumerate() {
                number = number * grid[dimension] + coordinate / self.chunk[dimension];
                place = place * self.chunk[dimension] + coordinate % self.chunk[dimension];
            }
            let value: Vec<u8> = (0..self.element).map(|byte| (element * 3 + byte) as u8).collect();
            match table.iter().find(|chunk| chunk.number == number) {
                Some(chunk) => {
                    let at = (chunk.at + place * self.element) as usize;
                    file[at..at + value.len()].copy_from_slice(&value);
                    array.extend(value);
                }
                None if self.fill.is_empty() => array.extend(vec![0; self.element as usize]),
                None => array.extend(&self.fill),
            }
        }
        (array, file, table)
    }
}

proptest! {
    #[test]
    fn any_range_of_a_dataset_in_chunks_is_that_of_the_array(
        cut in cut(),
        (start, length) in any::<(u16, u16)>(),
    ) {
        let (array, file, table) = cut.lay_out();
        let chunked = Chunked::new(&cut.dataset(), cut.chunk.clone(), table);
        prop_assert_eq!(chunked.bytes(), array.len() as u64);
        let start = usize::from(start) % array.len();
        let length = usize::from(length) % (array.len() - start + 1);
        for (start, length) in [(0, array.len()), (start, length)] {
            let mut out = vec![1; length];
            let read = chunked.read(start as u64, &mut out, &mut |range| {
                Ok(file[range.start as usize..range.end as usize].to_vec())
            });
            prop_assert_eq!(read, Ok(()));
            prop_assert_eq!(&out, &array[start..start + length]);
        }
        // Every interval is found by its number and by its bytes.
        let (count, decoded) = chunked.intervals();
        let mut end = 0;
        for number in 0..count {
            let interval = chunked.interval(number).unwrap();
            prop_assert_eq!(interval.decoded.start, end);
            prop_assert_eq!(chunked.interval_at(end), Some(interval.clone()));
            end = interval.decoded.end;
        }
        prop_assert_eq!(end, decoded);
        prop_assert_eq!(chunked.interval(count), None);
    }
}
