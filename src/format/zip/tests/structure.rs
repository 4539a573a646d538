//! The places of structures: prefixes, comments, zip64, local headers.

use super::*;

fn two() -> Vec<Spec> {
    vec![file("a.txt", "first"), deflated("b/c.txt", "second ".repeat(40))]
}

fn content(members: &[Spec]) -> Vec<(Vec<u8>, Seen)> {
    members.iter().map(|m| (m.name.clone(), Seen::File(Some(m.data.clone())))).collect()
}

#[test]
fn stored_and_deflated_members_are_read() {
    let container = open(zip(&two())).unwrap();
    assert_eq!((container.len(), container.format()), (2, "zip"));
    assert_eq!(container.data_bytes(), 5 + 280);
    assert!(container.warnings().is_empty(), "{:?}", container.warnings());
    assert_eq!(listed(zip(&two())), content(&two()));
    assert!(container.sample(2).is_err());
}

#[test]
fn an_empty_archive_is_an_empty_directory() {
    assert_eq!(Zip.detect(&MemorySource::new("x", zip(&[]))).unwrap(), Detected::Yes);
    assert!(open(zip(&[])).unwrap().is_empty());
    let zip64 = Archive { zip64: true, ..Archive::default() };
    assert!(open(zip64.write(&[])).unwrap().is_empty());
}

#[test]
fn zip64_sizes_offsets_and_end_record_are_read() {
    let members: Vec<_> = two().into_iter().map(|m| Spec { zip64: true, ..m }).collect();
    assert_eq!(listed(zip(&members)), content(&members));
    let archive = Archive { zip64: true, ..Archive::default() };
    assert_eq!(listed(archive.write(&members)), content(&members));
}

/// Twenty bytes that begin like the locator of zip64's end record.
const LOOKS_LIKE_A_LOCATOR: &[u8; 20] = b"PK\x06\x07 is in this name";

#[test]
fn the_signature_of_a_zip64_locator_may_stand_in_the_last_row_by_chance() {
    let in_name = file(LOOKS_LIKE_A_LOCATOR, "x");
    let in_extra = Spec { extra: field(0xcafe, LOOKS_LIKE_A_LOCATOR), ..file("a", "x") };
    // The locator even points to a record with the right signature.
    let mut pointing = *LOOKS_LIKE_A_LOCATOR;
    pointing[8..16].copy_from_slice(&37u64.to_le_bytes());
    let fake = [&b"none"[..], b"PK\x06\x06", &[7; 60]].concat();
    let pointed = vec![file("abc", fake), Spec { extra: field(1, &pointing), ..file("b", "x") }];
    for members in [vec![in_name], vec![in_extra], pointed] {
        assert_eq!(listed(zip(&members)), content(&members));
    }
    let gap = Archive { gap: LOOKS_LIKE_A_LOCATOR.to_vec(), ..Archive::default() };
    assert_eq!(listed(gap.write(&two())), content(&two()));
}

#[test]
fn a_zip64_end_record_beside_an_end_record_that_needs_none_counts_if_they_agree() {
    let archive = Archive { zip64: true, ..Archive::default() };
    let mut bytes = archive.write(&two());
    let directory = bytes.windows(4).position(|mark| mark == b"PK\x01\x02").unwrap();
    let end = bytes.len() - 22;
    let length = (end - 20 - 56 - directory) as u32;
    bytes[end + 8..end + 12].copy_from_slice(&[2, 0, 2, 0]);
    bytes[end + 12..end + 16].copy_from_slice(&length.to_le_bytes());
    bytes[end + 16..end + 20].copy_from_slice(&(directory as u32).to_le_bytes());
    assert_eq!(listed(bytes.clone()), content(&two()));
    assert!(end::find(&MemorySource::new("x", bytes)).unwrap().is_zip64);
    // If the end record has no room for the true values, a missing zip64 record is damage.
    let mut bytes = archive.write(&two());
    let record = bytes.windows(4).position(|mark| mark == b"PK\x06\x06").unwrap();
    bytes[record] = b'x';
    assert!(refusal(bytes).contains("a zip64 end record where its locator says"));
}

#[test]
fn what_stands_before_and_behind_is_skipped_and_mentioned() {
    for (prefix, trailing) in
        [(&b"#!/bin/sh\nexit\n"[..], &b""[..]), (b"", b"\0\0\0"), (b"MZ", b"x")]
    {
        for zip64 in [false, true] {
            let (prefix, trailing) = (prefix.to_vec(), trailing.to_vec());
            let archive = Archive { prefix, trailing, zip64, ..Archive::default() };
            let bytes = archive.write(&two());
            assert_eq!(listed(bytes.clone()), content(&two()));
            let warnings = open(bytes).unwrap().warnings().join(" ");
            assert_eq!(warnings.contains("before the archive"), !archive.prefix.is_empty());
            assert_eq!(warnings.contains("after the archive"), !archive.trailing.is_empty());
        }
    }
}

#[test]
fn a_prefixed_archive_is_only_perhaps_one() {
    let archive = Archive { prefix: b"\x7fELF".to_vec(), ..Archive::default() };
    let detect = |bytes| Zip.detect(&MemorySource::new("x", bytes)).unwrap();
    assert_eq!(detect(archive.write(&two())), Detected::Perhaps);
    assert_eq!(detect(zip(&two())), Detected::Yes);
    assert_eq!(detect(vec![7; 4000]), Detected::No);
    assert_eq!(detect(Vec::new()), Detected::No);
    assert_eq!(detect(b"PK\x03\x04 and no end".to_vec()), Detected::Perhaps);
}

#[test]
fn a_gap_before_the_end_record_is_skipped() {
    let archive = Archive { gap: vec![1; 30], ..Archive::default() };
    assert_eq!(listed(archive.write(&two())), content(&two()));
}

#[test]
fn a_directory_that_alone_was_moved_is_found() {
    let mut bytes = zip(&two());
    let at = bytes.windows(4).position(|mark| mark == b"PK\x01\x02").unwrap();
    bytes.splice(at..at, [0; 30]);
    assert_eq!(listed(bytes), content(&two()));
}

#[test]
fn comments_may_be_long_and_hold_signatures() {
    let fake = [&b"PK\x05\x06"[..], &[0; 18]].concat();
    let nonsense =
        [&b"PK\x05\x06\0\0\0\0\x02\0\x02\0\x50\0\0\0\x10\0\0\0\0\0"[..], b"tail"].concat();
    for comment in [vec![b'c'; 65_535], fake.clone(), nonsense, [fake, vec![b'x'; 9]].concat()] {
        let archive = Archive { comment, ..Archive::default() };
        assert_eq!(listed(archive.write(&two())), content(&two()));
    }
}

#[test]
fn data_descriptors_do_not_matter() {
    let members: Vec<_> = two().into_iter().map(|m| Spec { descriptor: true, ..m }).collect();
    assert_eq!(listed(zip(&members)), content(&members));
}

#[test]
fn a_guess_of_where_data_begins_is_corrected_by_the_local_header() {
    let lengths = [0, 4, 28, 4, 9, 300, 0, 28];
    let members: Vec<_> = (0..64)
        .map(|i| {
            let local_extra = field(0xcafe, &vec![0; lengths[i % lengths.len()]]);
            Spec { local_extra, ..file(format!("{i}"), format!("data of {i}")) }
        })
        .collect();
    assert_eq!(listed(zip(&members)), content(&members));
}

#[test]
fn the_place_of_a_member_is_known_after_its_first_read() {
    let bytes = zip(&two());
    let container = open(bytes.clone()).unwrap();
    for index in 0..2 {
        assert!(read_sample(&bytes, container.as_ref(), index).is_some());
        assert_eq!(container.sample(index).unwrap().header_bytes, 0);
    }
}

#[test]
fn a_lead_never_reaches_into_the_directory() {
    let bytes = zip(&[
        Spec { local_extra: field(0xcafe, &[0; 2000]), ..file("a", "a") },
        Spec { local_extra: Vec::new(), ..file("b", "b") },
        Spec { local_extra: field(0xcafe, &[0; 2000]), ..file("c", "c") },
        file("d", "d"),
    ]);
    let container = open(bytes.clone()).unwrap();
    for index in 0..4 {
        let sample = container.sample(index).unwrap();
        assert!(sample.end_bytes() <= bytes.len() as u64 - 22 - 4 * 47);
        assert!(sample.header_bytes == 0 || sample.header_bytes >= 30);
    }
}

#[test]
fn a_local_header_of_another_member_is_an_error() {
    for wrong in [
        Spec { local_name: Some(b"other".to_vec()), ..file("a.txt", "x") },
        Spec { local_name: Some(b"longer than it".to_vec()), ..file("a.txt", "x") },
    ] {
        let members = vec![wrong, file("b", "whole")];
        let seen = listed(zip(&members));
        assert_eq!(seen[0].1, Seen::File(None));
        assert_eq!(seen[1].1, Seen::File(Some(b"whole".to_vec())));
    }
    let mut bytes = zip(&[file("a.txt", "x"), file("b", "whole")]);
    bytes[8] = 8;
    assert_eq!(listed(bytes)[0].1, Seen::File(None));
}

#[test]
fn a_local_header_may_have_another_name_where_there_is_a_unicode_field() {
    // The field's CRC is that of some other name: the field is not used, but shows that the tool wrote two names.
    let extra = field(0x7075, &[&[1, 7, 7, 7, 7][..], "File ö.txt".as_bytes()].concat());
    let local_name = Some(b"File xx.txt".to_vec());
    let seen = listed(zip(&[Spec { local_name, extra, ..file(b"File \x94.txt", "read") }]));
    assert_eq!(seen, [("File ö.txt".into(), Seen::File(Some(b"read".to_vec())))]);
}

#[test]
fn every_method_is_decoded() {
    use std::io::{Read, Write};
    let data = noise(3000);
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
    bzip2.write_all(&data).unwrap();
    let mut xz = Vec::new();
    liblzma::read::XzEncoder::new(&data[..], 6).read_to_end(&mut xz).unwrap();
    // Without a match of 258 bytes, deflate and deflate64 are the same.
    let coded = [
        (8, deflate(&data)),
        (9, deflate(&data)),
        (12, bzip2.finish().unwrap()),
        (20, zstd::encode_all(&data[..], 3).unwrap()),
        (93, zstd::encode_all(&data[..], 3).unwrap()),
        (95, xz),
    ];
    for (method, stored) in coded {
        let member = |size| Spec { method, size, stored: Some(stored.clone()), ..file("a", &data) };
        assert_eq!(only(zip(&[member(None)])), Some(data.clone()), "method {method}");
        assert_eq!(only(zip(&[member(Some(2999))])), None, "method {method}");
        assert_eq!(only(zip(&[member(Some(3001))])), None, "method {method}");
    }
}

#[test]
fn a_deflated_member_is_decoded_step_by_step_a_stored_one_is_not() {
    let data = noise(3000);
    let container = open(zip(&[deflated("a", &data), file("b", &data)])).unwrap();
    let mut decoder = container.decoder(0, None).unwrap().unwrap();
    let (stored, mut out) = (deflate(&data), vec![0; 3000]);
    let (mut taken, mut given) = (0, 0);
    while given < out.len() {
        let end = (taken + 100).min(stored.len());
        let step =
            decoder.decode(&stored[taken..end], &mut out[given..], end == stored.len()).unwrap();
        taken += step.taken;
        given += step.given;
    }
    assert_eq!(out, data);
    assert!(container.decoder(1, None).unwrap().is_none());
}

/// Bytes of few values that hardly repeat.
fn noise(count: u32) -> Vec<u8> {
    (0..count).map(|i| b'a' + (i.wrapping_mul(2_654_435_761) >> 28) as u8).collect()
}

#[test]
fn a_split_archive_is_refused_with_that_reason() {
    let archive = Archive { disks: 1, ..Archive::default() };
    assert!(refusal(archive.write(&two())).contains("join the parts"));
    assert!(refusal(zip(&[Spec { disk: 3, ..file("a", "a") }])).contains("part 3"));
    assert!(refusal(b"PK\x07\x08PK\x03\x04 first part".to_vec()).contains("join the parts"));
}

#[test]
fn an_archive_without_its_end_is_refused() {
    let bytes = zip(&two());
    assert!(refusal(bytes[..bytes.len() - 1].to_vec()).contains("truncated"));
    assert!(open_with(bytes[..bytes.len() - 1].to_vec(), &damaged()).is_err());
}

#[test]
fn an_archive_without_its_beginning_is_refused() {
    let message = refusal(zip(&two())[3..].to_vec());
    assert!(message.contains("lacks its beginning"), "{message}");
}

#[test]
fn a_truncated_archive_does_not_turn_into_its_last_member() {
    let outer = zip(&[file("inner.zip", zip(&two())), file("z", "z")]);
    let cut = outer.windows(4).rposition(|mark| mark == b"PK\x03\x04").unwrap();
    assert!(refusal(outer[..cut].to_vec()).contains("whose last member is an archive"));
    let inner = open_with(outer[..cut].to_vec(), &damaged()).unwrap();
    assert_eq!(list(&outer[..cut], inner.as_ref()), content(&two()));
}

#[test]
fn counts_that_overflowed_sixteen_bits_are_right() {
    let members: Vec<_> = (0..65_538).map(|i| file(format!("{i}"), "")).collect();
    assert_eq!(open(zip(&members)).unwrap().len(), 65_538);
}

#[test]
fn names_that_stand_twice_are_two_samples() {
    let members = vec![file("a", "one"), file("a", "two")];
    assert_eq!(listed(zip(&members)), content(&members));
}
