//! Archives that are wrong, or made to do harm.

use super::*;
use crate::format::testing::Noted;
use nix::sys::resource::{UsageWho, getrusage};

#[test]
fn members_that_share_bytes_are_refused() {
    let same = Spec { same_place_as: Some(0), ..file("b", "twice") };
    assert!(refusal(zip(&[file("a", "twice"), same])).contains("zip bomb"));
    // The stored bytes of the first member are the whole second member.
    let mut inner = zip(&[file("b", "x".repeat(50))]);
    inner.truncate(30 + 1 + 50);
    let mut bytes = zip(&[file("a", &inner), file("b", "x".repeat(50))]);
    let second = bytes.windows(4).rposition(|mark| mark == b"PK\x01\x02").unwrap();
    bytes[second + 42..second + 46].copy_from_slice(&31u32.to_le_bytes());
    assert!(refusal(bytes).contains("zip bomb"));
}

#[test]
fn members_in_another_order_than_their_rows_are_read() {
    let members = [file("a", "one"), file("b", "two"), file("c", "three")];
    let mut bytes = zip(&members);
    let rows = bytes.len() - 22 - 3 * 47;
    bytes[rows..rows + 2 * 47].rotate_left(47);
    let seen = listed(bytes);
    assert_eq!(seen[0], (b"b".to_vec(), Seen::File(Some(b"two".to_vec()))));
    assert_eq!(seen[1], (b"a".to_vec(), Seen::File(Some(b"one".to_vec()))));
}

#[test]
fn sizes_that_no_coding_can_reach_are_damaged() {
    let claims = |size| Spec { size: Some(size), ..deflated("a", "x".repeat(1000)) };
    for size in [1 << 20, u64::from(u32::MAX) - 1] {
        let container = open(zip(&[claims(size)])).unwrap();
        let sample = container.sample(0).unwrap();
        assert!(sample.damaged && sample.length_bytes > 0 && sample.size_bytes() == size);
        assert_eq!(container.data_bytes(), 0);
        assert!(container.warnings()[0].contains("1 member claims a size"));
    }
    let wide = Spec { zip64: true, ..claims(u64::MAX) };
    let sample = open(zip(&[wide])).unwrap().sample(0).unwrap();
    assert!(sample.damaged && sample.size_bytes() == i64::MAX as u64);
}

#[test]
fn the_most_that_deflate_can_reach_is_read() {
    let zeros = vec![0; 4 << 20];
    assert_eq!(only(zip(&[deflated("zeros", &zeros)])), Some(zeros));
}

#[test]
fn a_stored_member_with_two_sizes_is_damaged() {
    for size in [3, 5 + (1 << 32)] {
        let member = Spec { size: Some(size), zip64: true, ..file("a", "five!") };
        assert!(open(zip(&[member])).unwrap().sample(0).unwrap().damaged);
    }
}

#[test]
fn bytes_that_decode_to_more_or_fewer_than_declared_are_an_error() {
    for size in [10, 280 - 1, 280 + 1] {
        let member = Spec { size: Some(size), ..deflated("a", "second ".repeat(40)) };
        assert_eq!(only(zip(&[member])), None);
    }
}

#[test]
fn a_wrong_checksum_is_an_error_of_that_member_alone() {
    let members = [
        Spec { crc32: Some(1), ..file("a", "x") },
        Spec { crc32: Some(1), ..deflated("b", "x") },
        Spec { crc32: Some(1), ..file("empty", "") },
        file("c", "whole"),
    ];
    let seen: Vec<_> = listed(zip(&members)).into_iter().map(|(_, seen)| seen).collect();
    let whole = Seen::File(Some(b"whole".to_vec()));
    assert_eq!(seen, [Seen::File(None), Seen::File(None), Seen::File(None), whole]);
}

#[test]
fn a_member_with_an_unknown_method_is_damaged_and_others_are_served() {
    let bytes = zip(&[Spec { method: 77, ..file("a", "x") }, file("b", "y")]);
    let container = open(bytes.clone()).unwrap();
    assert!(container.sample(0).unwrap().damaged);
    assert_eq!(read_sample(&bytes, container.as_ref(), 1).unwrap(), b"y");
    assert!(container.warnings()[0].contains("unknown method"));
}

#[test]
fn a_member_outside_the_file_is_refused_or_with_leave_alone_damaged() {
    let mut bytes = zip(&[file("a", "x"), file("b", "y")]);
    let row = bytes.len() - 22 - 47;
    bytes[row + 42..row + 46].copy_from_slice(&1000u32.to_le_bytes());
    assert!(refusal(bytes.clone()).contains("--allow-damaged"));
    let container = open_with(bytes.clone(), &damaged()).unwrap();
    assert_eq!(read_sample(&bytes, container.as_ref(), 0).unwrap(), b"x");
    assert!(container.sample(1).unwrap().damaged);
}

#[test]
fn a_damaged_directory_is_refused_or_with_leave_served_as_far_as_it_goes() {
    let mut bytes = zip(&[file("a", "x"), file("b", "y")]);
    let row = bytes.len() - 22 - 47;
    bytes[row] = b'X';
    assert!(refusal(bytes.clone()).contains("1, and then other bytes"));
    let container = open_with(bytes.clone(), &damaged()).unwrap();
    assert_eq!(list(&bytes, container.as_ref()).len(), 1);
    assert!(container.warnings()[0].contains("expected 2 members"));
}

#[test]
fn a_count_beyond_the_file_reserves_no_memory() {
    let archive = Archive { zip64: true, ..Archive::default() };
    let mut bytes = archive.write(&[file("a", "x")]);
    let at = bytes.windows(4).position(|mark| mark == b"PK\x06\x06").unwrap();
    bytes[at + 24..at + 40].fill(0xff);
    assert!(refusal(bytes).contains("members in the central directory"));
}

#[test]
fn a_tail_full_of_signatures_is_refused_in_time() {
    let bytes = b"PK\x05\x06".repeat(40_000);
    let source = Arc::new(Noted::new(bytes));
    // The time of this thread on a CPU, as it may have to wait for one.
    let seconds = || getrusage(UsageWho::RUSAGE_THREAD).unwrap().user_time().tv_sec();
    let start = seconds();
    assert!(crate::format::open(Arc::clone(&source) as _, &OpenOptions::default()).is_err());
    assert!(seconds() - start < 5);
    let read_bytes: u64 = source.reads().iter().map(|(_, length)| length).sum();
    assert!(read_bytes < 4 * source.len(), "{read_bytes}");
}
