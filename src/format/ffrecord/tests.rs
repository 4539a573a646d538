use super::*;
use crate::format::MemorySource;
use proptest::prelude::*;
use std::io::Cursor;

fn write(samples: &[&[u8]]) -> Vec<u8> {
    let mut writer = Writer::new(Cursor::new(Vec::new()), samples.len() as u64).unwrap();
    for sample in samples {
        writer.write_sample(&mut &sample[..]).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn open_with(bytes: Vec<u8>, options: &OpenOptions) -> Result<Box<dyn Container>> {
    crate::format::open(Arc::new(MemorySource::new("t.ffr", bytes)), options)
}

fn open(bytes: Vec<u8>) -> Result<Box<dyn Container>> {
    open_with(bytes, &OpenOptions::default())
}

fn refusal(bytes: Vec<u8>) -> String {
    open(bytes).err().expect("refused").to_string()
}

/// The bytes that a reader gets; `None` if it gets an error.
fn read_sample(file: &[u8], container: &dyn Container, index: u64) -> Option<Vec<u8>> {
    let sample = container.sample(index).ok()?;
    let start = usize::try_from(sample.offset_bytes).ok()?;
    let end = start.checked_add(usize::try_from(sample.length_bytes).ok()?)?;
    let bytes = file.get(start..end)?;
    (!sample.damaged && sample.checksum.unwrap().check(bytes).is_ok()).then(|| bytes.to_vec())
}

/// A file with these offsets and checksums, right or wrong; the header checksum is right if `crc` is `None`.
fn raw(crc: Option<u32>, samples: i64, crcs: &[u32], offsets: &[i64], data: &[u8]) -> Vec<u8> {
    let mut covered = samples.to_le_bytes().to_vec();
    crcs.iter().for_each(|c| covered.extend_from_slice(&c.to_le_bytes()));
    offsets.iter().for_each(|o| covered.extend_from_slice(&o.to_le_bytes()));
    let mut file = crc.unwrap_or_else(|| crc32fast::hash(&covered)).to_le_bytes().to_vec();
    file.extend_from_slice(&covered);
    file.extend_from_slice(data);
    file
}

#[test]
fn what_the_writer_writes_the_reader_reads() {
    let samples: [&[u8]; 4] = [b"one", b"", b"three", b"4"];
    let file = write(&samples);
    let container = open(file.clone()).unwrap();
    assert_eq!(container.len(), 4);
    assert_eq!(container.index_checksum(), IndexChecksum::Ok);
    for (index, sample) in samples.iter().enumerate() {
        let read = read_sample(&file, container.as_ref(), index as u64).unwrap();
        assert_eq!(&read, sample);
    }
    assert!(container.sample(4).is_err());
}

#[test]
fn an_empty_dataset_is_legal() {
    let file = write(&[]);
    assert_eq!(file.len(), 12);
    assert!(open(file).unwrap().is_empty());
}

#[test]
fn a_writer_that_is_given_fewer_samples_than_announced_refuses_to_finish() {
    let mut writer = Writer::new(Cursor::new(Vec::new()), 2).unwrap();
    writer.write_sample(&mut &b"x"[..]).unwrap();
    assert!(writer.finish().is_err());
}

#[test]
fn a_file_too_short_for_a_header_is_refused() {
    for length in 1..12 {
        assert!(refusal(vec![0; length]).contains("header of 12 bytes"));
    }
}

#[test]
fn a_negative_count_is_refused_at_its_byte() {
    let message = refusal(raw(None, -5, &[], &[], b""));
    assert!(message.contains("byte 4") && message.contains("-5"), "{message}");
}

#[test]
fn a_count_beyond_the_file_is_refused_without_reserving_memory() {
    for samples in [2, 1 << 40, i64::MAX] {
        let message = refusal(raw(None, samples, &[0], &[24], b""));
        assert!(message.contains("truncated"), "{message}");
    }
}

#[test]
fn a_header_of_zeros_with_data_behind_it_says_that_the_writer_died() {
    assert!(refusal(vec![0; 4096]).contains("the writer died"));
}

#[test]
fn tables_of_zeros_say_that_the_writer_died() {
    let message = refusal(raw(Some(0), 3, &[0; 3], &[0; 3], b"data"));
    assert!(message.contains("the writer died"), "{message}");
}

#[test]
fn a_header_without_a_checksum_is_served_with_a_warning() {
    let crc = crc32fast::hash(b"data");
    let container = open(raw(Some(0), 1, &[crc], &[24], b"data")).unwrap();
    assert_eq!(container.index_checksum(), IndexChecksum::Absent);
    assert_eq!(container.warnings().len(), 1);
}

#[test]
fn a_wrong_header_checksum_is_refused_with_both_values() {
    let message = refusal(raw(Some(0x1234), 1, &[0], &[24], b""));
    assert!(message.contains("expected 0x00001234, found 0x"), "{message}");
}

#[test]
fn offsets_that_decrease_are_refused_at_their_byte() {
    let message = refusal(raw(None, 2, &[0, 0], &[40, 36], b"12345678"));
    assert!(message.contains("byte 28") && message.contains("found 36"), "{message}");
}

#[test]
fn a_negative_offset_is_refused() {
    let message = refusal(raw(None, 2, &[0, 0], &[36, -1], b"12345678"));
    assert!(message.contains("found -1"), "{message}");
    let damaged = OpenOptions { allow_damaged: true, ..OpenOptions::default() };
    assert!(open_with(raw(None, 2, &[0, 0], &[36, -1], b""), &damaged).is_err());
}

#[test]
fn offsets_past_the_end_are_refused_unless_damage_is_allowed() {
    let crc = crc32fast::hash(b"whole");
    let file = raw(None, 3, &[crc, 7, 9], &[48, 53, 900], b"wholecut");
    let message = refusal(file.clone());
    assert!(message.contains("beyond the end") && message.contains("--allow-damaged"), "{message}");
    let container =
        open_with(file.clone(), &OpenOptions { allow_damaged: true, ..OpenOptions::default() })
            .unwrap();
    assert_eq!(read_sample(&file, container.as_ref(), 0).unwrap(), b"whole");
    let cut = container.sample(1).unwrap();
    assert!(cut.damaged && cut.length_bytes == 847);
    let gone = container.sample(2).unwrap();
    assert!(gone.damaged && gone.length_bytes == 1);
}

#[test]
fn a_gap_before_the_first_sample_is_accepted_with_a_warning() {
    let file = raw(None, 1, &[crc32fast::hash(b"x")], &[30], b"......x");
    let container = open(file.clone()).unwrap();
    assert!(container.warnings()[0].contains("6 bytes"));
    assert_eq!(read_sample(&file, container.as_ref(), 0).unwrap(), b"x");
}

#[test]
fn a_last_sample_cut_off_to_nothing_is_damaged_and_not_empty() {
    let mut file = write(&[b"first", b"last"]);
    file.truncate(file.len() - 4);
    let sample = open(file).unwrap().sample(1).unwrap();
    assert!(sample.damaged && sample.length_bytes > 0);
}

#[test]
fn an_index_of_many_chunks_is_checked_to_its_end() {
    let samples: Vec<Vec<u8>> = (0..300_000u32).map(|i| i.to_le_bytes()[..3].to_vec()).collect();
    let borrowed: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
    let file = write(&borrowed);
    let container = open(file.clone()).unwrap();
    for index in [0, 1, 131_071, 131_072, 299_999] {
        let read = read_sample(&file, container.as_ref(), index).unwrap();
        assert_eq!(read, samples[index as usize]);
    }
    for at in [11, 12, 1_200_011, 1_200_012, 3_600_011] {
        let mut bad = file.clone();
        bad[at] ^= 1;
        assert!(matches!(open(bad), Err(Error::Checksum { .. } | Error::Malformed { .. })));
    }
}

#[test]
fn every_truncation_is_refused_or_gives_identical_samples_or_an_error() {
    let samples: [&[u8]; 4] = [b"alpha", b"", b"gamma rays", b"d"];
    let file = write(&samples);
    for options in
        [OpenOptions::default(), OpenOptions { allow_damaged: true, ..OpenOptions::default() }]
    {
        for length in 0..file.len() {
            let cut = file[..length].to_vec();
            let Ok(container) = open_with(cut.clone(), &options) else { continue };
            assert_eq!(container.len(), 4);
            for (index, sample) in samples.iter().enumerate() {
                if let Some(read) = read_sample(&cut, container.as_ref(), index as u64) {
                    assert_eq!(&read, sample, "cut at {length}");
                }
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_refused_or_gives_identical_samples_or_an_error() {
    let samples: [&[u8]; 4] = [b"alpha", b"", b"gamma rays", b"d"];
    let file = write(&samples);
    for options in
        [OpenOptions::default(), OpenOptions { allow_damaged: true, ..OpenOptions::default() }]
    {
        for bit in 0..file.len() * 8 {
            let mut bad = file.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let Ok(container) = open_with(bad.clone(), &options) else { continue };
            for (index, sample) in samples.iter().enumerate() {
                if let Some(read) = read_sample(&bad, container.as_ref(), index as u64) {
                    assert_eq!(&read, sample, "bit {bit}");
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn any_samples_come_back_as_they_were_written(
        samples in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..40)
    ) {
        let borrowed: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
        let file = write(&borrowed);
        let container = open(file.clone()).unwrap();
        prop_assert_eq!(container.len(), samples.len() as u64);
        for (index, sample) in samples.iter().enumerate() {
            let read = read_sample(&file, container.as_ref(), index as u64);
            prop_assert_eq!(read.as_ref(), Some(sample));
        }
    }

    #[test]
    fn any_bytes_are_opened_or_refused_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        samples in 0i64..20,
        allow_damaged: bool,
    ) {
        let mut plausible = 0u32.to_le_bytes().to_vec();
        plausible.extend_from_slice(&samples.to_le_bytes());
        plausible.extend_from_slice(&bytes);
        for file in [bytes, plausible] {
            let Ok(container) = open_with(file, &OpenOptions { allow_damaged, ..OpenOptions::default() }) else { continue };
            for index in 0..container.len() {
                let _ = container.sample(index);
            }
            let _ = container.names(container.len());
        }
    }
}
