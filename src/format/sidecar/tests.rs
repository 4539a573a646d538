//! Sidecars written, read and damaged, beside a model that keeps its rows in a list.

use super::*;
use crate::format::{IndexChecksum, MemorySource, Names, Sample};
use proptest::prelude::*;

/// A container of samples of these sizes, one behind the other.
struct Model(Vec<u64>);

impl Container for Model {
    fn format(&self) -> &'static str {
        "Model"
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn sample(&self, index: u64) -> Result<Sample> {
        let index = index as usize;
        let offset_bytes = self.0[..index].iter().sum();
        Ok(Sample { offset_bytes, length_bytes: self.0[index], ..Sample::default() })
    }

    fn check_unchanged(&self) -> io::Result<()> {
        Ok(())
    }

    fn data_bytes(&self) -> u64 {
        self.0.iter().sum()
    }

    fn names(&self, _samples: u64) -> Result<Names> {
        Ok(Names::None)
    }

    fn index_checksum(&self) -> IndexChecksum {
        IndexChecksum::None
    }

    fn warnings(&self) -> &[String] {
        &[]
    }
}

fn source(bytes: &[u8]) -> Arc<dyn Source> {
    Arc::new(MemorySource::new("t", bytes.to_vec()))
}

fn key(container: &[u8], sizes: &[u64]) -> Key {
    Key::of(source(container).as_ref(), &Model(sizes.to_vec())).unwrap()
}

fn written(sections: &[(Key, Vec<u32>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, rows) in sections {
        write(&mut out, key, rows).unwrap();
    }
    out
}

/// Sections of three samples and of none: an odd number of rows, and a head alone.
fn two_sections() -> Vec<u8> {
    written(&[
        (key(b"0123456789", &[3, 0, 7]), vec![0x1234_5678, 0, 0xffff_ffff]),
        (key(b"", &[]), vec![]),
    ])
}

#[test]
fn what_was_written_is_read_and_each_container_knows_its_section() {
    let sections = read(&source(&two_sections())).unwrap();
    assert_eq!(sections.len(), 2);
    assert_eq!(sections[0].key().differs(&key(b"0123456789", &[3, 0, 7])), None);
    assert_eq!(sections[1].key().differs(&key(b"", &[])), None);
    let rows: Vec<_> = (0..3).map(|row| sections[0].crc32(row).unwrap().unwrap()).collect();
    assert_eq!(rows, [0x1234_5678, 0, 0xffff_ffff]);
    // Three rows and one that fills them up: there is no fifth row.
    assert!(sections[0].crc32(4).is_err() && sections[1].crc32(0).is_err());
}

#[test]
fn another_container_is_told_by_what_differs() {
    let is = key(b"0123456789", &[3, 0, 7]);
    for (other, word) in [
        (key(b"01234567890", &[3, 0, 7]), "size"),
        (key(b"0123456789", &[3, 0, 7, 0]), "number of samples"),
        (key(b"0123456789", &[4, 0, 6]), "--view"),
    ] {
        assert!(is.differs(&other).unwrap().contains(word), "{word}");
    }
}

#[test]
fn one_sample_that_is_damaged_is_no_other_container_but_all_are() {
    let bytes: Vec<u8> = (0..200).collect();
    for samples in [2, 3, 20] {
        let sizes = vec![200 / samples as u64; samples];
        let model = Model(sizes.clone());
        let rows: Vec<_> = bytes.chunks(200 / samples).map(crc32fast::hash).take(samples).collect();
        let sections = read(&source(&written(&[(key(&bytes, &sizes), rows)]))).unwrap();
        let is_of_another =
            |bytes: &[u8]| sections[0].is_of_another(source(bytes).as_ref(), &model).unwrap();
        assert!(!is_of_another(&bytes));
        let mut damaged = bytes.clone();
        damaged[0] ^= 1;
        assert!(!is_of_another(&damaged), "{samples} samples");
        assert!(is_of_another(&[77; 200]), "{samples} samples");
    }
    // A single sample does not show whether it is of another container.
    let sections = read(&source(&written(&[(key(b"abc", &[3]), vec![1])]))).unwrap();
    assert!(!sections[0].is_of_another(source(b"abc").as_ref(), &Model(vec![3])).unwrap());
}

#[test]
fn every_truncation_is_refused_but_that_between_two_sections() {
    let bytes = two_sections();
    let between = HEAD_BYTES + 16;
    assert_eq!(bytes.len(), between + HEAD_BYTES);
    for length in (0..bytes.len()).filter(|&length| length != between) {
        assert!(read(&source(&bytes[..length])).is_err(), "{length} bytes");
    }
    // Then a container has no checksums, and is refused where it is opened.
    assert_eq!(read(&source(&bytes[..between])).unwrap().len(), 1);
}

#[test]
fn every_flipped_bit_is_refused() {
    let mut bytes = two_sections();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&source(&bytes)).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(read(&source(&bytes)).is_ok());
    bytes.push(0);
    assert!(read(&source(&bytes)).is_err(), "a byte too many");
}

#[test]
fn more_rows_than_there_can_be_are_refused_without_memory_for_them() {
    let mut bytes = two_sections();
    for rows in [u64::MAX, u64::MAX / 4, 1 << 40, 4] {
        bytes[32..40].copy_from_slice(&rows.to_le_bytes());
        let crc32 = crc32fast::hash(&bytes[12..HEAD_BYTES]);
        bytes[8..12].copy_from_slice(&crc32.to_le_bytes());
        let error = read(&source(&bytes)).err().unwrap().to_string();
        assert!(error.contains("rows for 3 samples"), "{error}");
    }
}

proptest! {
    #[test]
    fn any_rows_of_any_containers_are_found_again(
        all in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..50), 1..5),
    ) {
        let sections: Vec<_> = all
            .iter()
            .enumerate()
            .map(|(number, rows)| {
                let sizes: Vec<_> = rows.iter().map(|&row| u64::from(row)).collect();
                (key(&[number as u8], &sizes), rows.clone())
            })
            .collect();
        let found = read(&source(&written(&sections))).unwrap();
        prop_assert_eq!(found.len(), sections.len());
        for (found, (key, rows)) in found.iter().zip(&sections) {
            prop_assert_eq!(found.key(), key);
            for (index, row) in rows.iter().enumerate() {
                prop_assert_eq!(found.crc32(index as u64).unwrap(), Some(*row));
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        sealed in any::<bool>(),
    ) {
        if sealed && bytes.len() >= HEAD_BYTES {
            bytes[..8].copy_from_slice(&MAGIC);
            let crc32 = crc32fast::hash(&bytes[12..HEAD_BYTES]);
            bytes[8..12].copy_from_slice(&crc32.to_le_bytes());
        }
        let _ = read(&source(&bytes));
    }
}
