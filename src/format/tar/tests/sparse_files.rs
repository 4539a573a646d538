//! The same file with holes in every dialect.

use super::writer::Block;
use super::*;

const SIZE: usize = 20_000;

/// Bytes 0..3, 10,000..10,600 and 19,999 are data.
fn pieces() -> Vec<(usize, Vec<u8>)> {
    vec![(0, b"abc".to_vec()), (10_000, vec![b'x'; 600]), (19_999, vec![b'z'])]
}

fn whole() -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    for (at, piece) in pieces() {
        bytes[at..at + piece.len()].copy_from_slice(&piece);
    }
    bytes
}

fn packed() -> Vec<u8> {
    pieces().into_iter().flat_map(|(_, piece)| piece).collect()
}

fn check(writer: &mut Writer) {
    let bytes = writer.file("next", b"n").end();
    assert_eq!(list(&bytes), [file("s", &whole()), file("next", b"n")]);
    let container = opened(&bytes).unwrap();
    assert_eq!(container.sample(0).unwrap().content, Content::Sparse(SIZE as u64));
    assert_eq!(container.data_bytes(), SIZE as u64 + 1);
    // Offsets within a piece, and within a hole.
    assert_eq!(container.piece(0, 10_100).unwrap().unwrap().at_bytes, 10_000);
    assert_eq!(container.piece(0, 3).unwrap().unwrap().at_bytes, 10_000);
    assert_eq!(container.piece(0, SIZE as u64).unwrap(), None);
    assert_eq!(container.piece(1, 0).unwrap(), None);
}

fn old_entry(at: usize, length: usize) -> Vec<u8> {
    format!("{at:011o}\0{length:011o}\0").into_bytes()
}

/// A header of type `S`: GNU's, or star's.
fn old_header(is_star: bool) -> Block {
    let mut block = Block::new(b'S', b"s", packed().len() as u64);
    block.gnu();
    let (mut at, size_at) = if is_star { (356, 452) } else { (386, 483) };
    block.set(size_at, format!("{SIZE:011o}\0").as_bytes());
    if is_star {
        block.set(257, b"ustar\x0000").set(508, b"tar\0");
    }
    for (place, piece) in pieces() {
        block.set(at, &old_entry(place, piece.len()));
        at += 24;
    }
    block
}

#[test]
fn old_gnu_maps_stand_in_the_header() {
    check(Writer::default().block(&old_header(false)).data(&packed()));
}

#[test]
fn star_maps_stand_elsewhere_in_the_header() {
    check(Writer::default().block(&old_header(true)).data(&packed()));
}

#[test]
fn old_gnu_maps_go_on_in_further_blocks() {
    let mut block = Block::new(b'S', b"s", 40);
    block.gnu().set(483, format!("{:011o}\0", 400).as_bytes()).set(482, b"\x01");
    let entries: Vec<_> = (0..40).map(|piece| old_entry(piece * 10, 1)).collect();
    block.set(386, &entries[..4].concat());
    let (mut second, mut third) = ([0; 512], [0; 512]);
    second[..21 * 24].copy_from_slice(&entries[4..25].concat());
    second[504] = 1;
    third[..15 * 24].copy_from_slice(&entries[25..].concat());
    let bytes = Writer::default().block(&block).data(&second).data(&third).data(&[b'x'; 40]).end();
    let mut expected = vec![0; 400];
    expected.iter_mut().step_by(10).for_each(|byte| *byte = b'x');
    assert_eq!(list(&bytes), [file("s", &expected)]);
}

#[test]
fn pax_0_0_maps_are_pairs_of_records() {
    let size = SIZE.to_string();
    let texts: Vec<_> = pieces()
        .iter()
        .flat_map(|(at, piece)| [("GNU.sparse.offset", *at), ("GNU.sparse.numbytes", piece.len())])
        .map(|(key, value)| (key, value.to_string()))
        .collect();
    let mut records = vec![("GNU.sparse.size", size.as_bytes()), ("GNU.sparse.numblocks", b"3")];
    records.extend(texts.iter().map(|(key, value)| (*key, value.as_bytes())));
    check(Writer::default().pax(b'x', &records).file("s", &packed()));
}

fn pax_0_1(map: &str) -> Writer {
    let size = SIZE.to_string();
    let records: [(&str, &[u8]); 4] = [
        ("GNU.sparse.size", size.as_bytes()),
        ("GNU.sparse.numblocks", b"3"),
        ("GNU.sparse.name", b"s"),
        ("GNU.sparse.map", map.as_bytes()),
    ];
    let mut writer = Writer::default();
    writer.pax(b'x', &records).file("GNUSparseFile.1/s", &packed());
    writer
}

#[test]
fn pax_0_1_maps_are_one_record() {
    check(&mut pax_0_1("0,3,10000,600,19999,1"));
}

fn pax_1_0(map: &str) -> Writer {
    let size = SIZE.to_string();
    let records: [(&str, &[u8]); 4] = [
        ("GNU.sparse.major", b"1"),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.name", b"s"),
        ("GNU.sparse.realsize", size.as_bytes()),
    ];
    let mut data = map.as_bytes().to_vec();
    data.resize(data.len().next_multiple_of(512), 0);
    data.extend(packed());
    let mut writer = Writer::default();
    writer.pax(b'x', &records).file("GNUSparseFile.1/s", &data);
    writer
}

#[test]
fn pax_1_0_maps_stand_before_the_data_and_may_have_remarks() {
    check(&mut pax_1_0("3\n0\n3\n10000\n600\n19999\n1\n"));
    let remarks = format!("#!gnu-sparse-format\n{}", "# a remark\n".repeat(60));
    check(&mut pax_1_0(&format!("{remarks}3\n0\n3\n10000\n600\n19999\n1\n")));
}

#[test]
fn a_size_record_holds_for_map_and_data_of_pax_1_0() {
    let size = (512 + packed().len()).to_string();
    let records: [(&str, &[u8]); 4] = [
        ("size", size.as_bytes()),
        ("GNU.sparse.major", b"1"),
        ("GNU.sparse.name", b"s"),
        ("GNU.sparse.realsize", b"20000"),
    ];
    let mut writer = Writer::default();
    writer.pax(b'x', &records).block(Block::new(b'0', b"GNUSparseFile/s", 4).ustar());
    check(writer.data(b"3\n0\n3\n10000\n600\n19999\n1\n").data(&packed()));
}

#[test]
fn solaris_stores_the_holes_too() {
    let mut writer = Writer::default();
    let turns = b" 0 3 10000 10600 19999 20000";
    check(writer.pax(b'x', &[("SUN.holesdata", turns)]).file("s", &whole()));
    // A list that cannot be right is ignored, and the file is shown.
    let mut writer = Writer::default();
    let bytes = writer.pax(b'x', &[("SUN.holesdata", b" 0 3 x")]).file("s", &whole()).end();
    assert_eq!(list(&bytes), [file("s", &whole())]);
}

#[test]
fn a_file_of_one_hole_has_no_piece() {
    let mut writer = pax_0_1("20000,0");
    assert_eq!(list(&writer.end()), [file("s", &vec![0; SIZE])]);
}

#[test]
fn a_map_that_cannot_be_right_damages_that_member_alone() {
    for map in [
        "0,3,2,600",
        "10000,600,0,3",
        "0,30000",
        "0,3,x,1",
        "0,3,1",
        "0,9999",
        "0,18446744073709551615",
    ] {
        let bytes = pax_0_1(map).file("next", b"n").end();
        assert_eq!(list(&bytes), [("s".to_owned(), Shown::Damaged), file("next", b"n")], "{map}");
    }
    for map in ["x\n", "3\n0\n3\n", "99999999999999999999\n", "2\n0\n3\n2\n1\n"] {
        let bytes = pax_1_0(map).file("next", b"n").end();
        assert_eq!(list(&bytes), [("s".to_owned(), Shown::Damaged), file("next", b"n")], "{map}");
    }
}

#[test]
fn a_map_without_end_damages_that_member_alone() {
    let map = vec!["0,0"; (1 << 20) + 1].join(",");
    let bytes = pax_0_1(&map).file("next", b"n").end();
    assert_eq!(list(&bytes), [("s".to_owned(), Shown::Damaged), file("next", b"n")]);
    let bytes = pax_0_1(&map[4..]).file("next", b"n").end();
    assert_eq!(list(&bytes), [file("s", &[0; SIZE]), file("next", b"n")]);
}

#[test]
fn a_file_larger_than_a_file_system_can_have_cannot_be_read() {
    let records: [(&str, &[u8]); 2] =
        [("GNU.sparse.size", b"9223372036854775808"), ("GNU.sparse.map", b"0,1")];
    let bytes = Writer::default().pax(b'x', &records).file("s", b"x").end();
    assert_eq!(list(&bytes), [("s".to_owned(), Shown::Damaged)]);
}

#[test]
fn pieces_of_a_byte_each_do_not_take_memory_without_end() {
    let map: Vec<_> = (0..70_000).map(|at| format!("{},1", at * 2)).collect();
    let map = map.join(",");
    let records: [(&str, &[u8]); 2] =
        [("GNU.sparse.size", b"200000"), ("GNU.sparse.map", map.as_bytes())];
    let bytes = Writer::default().pax(b'x', &records).file("s", &[1; 70_000]).end();
    assert_eq!(list(&bytes), [("s".to_owned(), Shown::Damaged)]);
}
