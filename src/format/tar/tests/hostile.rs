//! Archives that are damaged, cut off, or lie.

use super::writer::Block;
use super::*;
use crate::format::Format;

fn small() -> Vec<u8> {
    let mut writer = Writer::default();
    writer.file("a", b"first").long(b'L', &[b'n'; 120]).file("x", &[b'y'; 600]);
    writer.pax(b'x', &[("path", b"p"), ("GNU.sparse.size", b"9"), ("GNU.sparse.map", b"0,1,8,1")]);
    writer.file("x", b"pq").link(b'1', "h", "a").member(b'5', "d/", b"").link(b'2', "s", "a").end()
}

#[test]
fn an_archive_cut_off_anywhere_is_refused_or_has_only_whole_members() {
    let whole = small();
    let members = list(&whole);
    for length in 0..whole.len() {
        let bytes = &whole[..length];
        match opened(bytes) {
            Ok(container) => {
                let shown = shown(container.as_ref(), bytes);
                assert!(members.starts_with(&shown), "cut at {length}");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        if let Ok(container) = salvaged(bytes) {
            for (name, what) in shown(container.as_ref(), bytes) {
                let is_whole = members.contains(&(name.clone(), what.clone()));
                assert!(is_whole || what == Shown::Damaged, "{name:?} cut at {length}");
            }
        }
    }
}

#[test]
fn a_truncated_archive_is_refused_with_the_byte_and_salvaged_up_to_there() {
    let whole = Writer::default().file("a", b"abc").file("b", &[1; 2000]).end();
    let cut = &whole[..2500];
    let text = refusal(cut);
    assert!(text.contains("at byte 2500") && text.contains("truncated"), "{text}");
    let container = salvaged(cut).unwrap();
    let shown = shown(container.as_ref(), cut);
    assert_eq!(shown, [file("a", b"abc"), ("b".to_owned(), Shown::Damaged)]);
    // No second warning says that the archive may have been cut off between two members.
    let warnings = container.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("truncated at byte 2500"), "{warnings:?}");
}

#[test]
fn a_broken_header_is_refused_with_the_byte_and_salvage_goes_on_behind_it() {
    let mut bytes = Writer::default().file("a", b"a").file("b", b"b").file("c", b"c").end();
    bytes[1030] ^= 1;
    let text = refusal(&bytes);
    assert!(text.contains("at byte 1024: expected a header with the right checksum"), "{text}");
    let container = salvaged(&bytes).unwrap();
    assert_eq!(shown(container.as_ref(), &bytes), [file("a", b"a"), file("c", b"c")]);
    assert!(container.warnings().iter().any(|text| text.contains("from 1024 to 2048")));
}

#[test]
fn an_archive_that_is_damaged_everywhere_says_so_only_so_often() {
    let mut bytes = Writer::default().file("f", b"").0.clone();
    for _ in 0..200 {
        bytes.extend([b'x'; 512]);
        bytes.extend(Writer::default().file("f", b"").0.clone());
    }
    let container = salvaged(&bytes).unwrap();
    assert_eq!(container.len(), 201);
    assert_eq!(container.warnings().len(), 33);
}

#[test]
fn any_bit_may_be_wrong() {
    let whole = small();
    // All bits of the first header and of the extended headers' values, one bit of each byte elsewhere.
    let all = |byte: &usize| *byte < 512 || (2048..2560).contains(byte);
    let bits = |byte: usize| if all(&byte) { 0..8 } else { byte % 8..byte % 8 + 1 };
    for bit in (0..whole.len()).flat_map(|byte| bits(byte).map(move |bit| byte * 8 + bit)) {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        for container in [opened(&bytes), salvaged(&bytes)].into_iter().flatten() {
            shown(container.as_ref(), &bytes);
        }
    }
}

#[test]
fn claimed_sizes_take_no_memory() {
    for (kind, size) in [(b'0', 0o77_777_777_777), (b'L', 0o77_777_777_777), (b'x', 15 << 20)] {
        let bytes =
            Writer::default().file("a", b"").block(Block::new(kind, b"f", size).ustar()).end();
        assert!(refusal(&bytes).contains("at byte"));
        assert_eq!(salvaged(&bytes).unwrap().attributes(0).unwrap().links, 1);
    }
    let mut block = Block::new(b'0', b"f", 0);
    for size in [
        b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let bytes = Writer::default().block(block.gnu().set(124, size)).end();
        assert!(opened(&bytes).is_err());
    }
}

#[test]
fn an_extended_header_over_the_limit_is_refused_with_the_limit() {
    let bytes = Writer::default().block(Block::new(b'x', b"f", 17 << 20).ustar()).end();
    assert!(refusal(&bytes).contains("at most 16777216 bytes"));
}

#[test]
fn a_large_extended_header_with_an_unknown_record_is_read() {
    let bytes =
        Writer::default().pax(b'x', &[("unknown", &vec![b'+'; 8_000_000])]).file("f", b"f").end();
    assert_eq!(list(&bytes), [file("f", b"f")]);
}

#[test]
fn a_path_over_the_limit_is_refused_with_the_limit() {
    let path = vec![b'a'; 65_536];
    let bytes = Writer::default().pax(b'x', &[("path", &path)]).file("f", b"f").end();
    assert!(refusal(&bytes).contains("a path of at most 65535 bytes"));
}

#[test]
fn bad_records_are_refused_where_they_stand() {
    let bytes = Writer::default().member(b'x', "p", b"10 path=a\nbad").file("f", b"").end();
    assert!(refusal(&bytes).contains("at byte 522: expected records of an extended header"));
    let bytes = Writer::default()
        .member(b'x', "p", b"30 size=-19769411113659727436\n")
        .file("f", b"")
        .end();
    assert!(opened(&bytes).is_err());
}

#[test]
fn extended_headers_without_a_member_are_refused() {
    let bytes = Writer::default().file("a", b"").pax(b'x', &[("path", b"p")]).0.clone();
    assert!(refusal(&bytes).contains("expected the header of a member"));
}

#[test]
fn a_block_whose_checksum_is_not_written_is_no_header() {
    // The signed bytes of this block add up to 0.
    let mut block = [0u8; 512];
    block[0] = 0x80;
    block[1] = 0x80;
    assert_eq!(Tar.detect(source(&block).as_ref()).unwrap(), Detected::No);
    assert!(refusal(&block).contains("at byte 0: expected a header with the right checksum"));
}

#[test]
fn many_extended_headers_and_names_cost_linear_time() {
    let mut writer = Writer::default();
    for _ in 0..5000 {
        writer.pax(b'x', &[("path", b"p")]).long(b'L', b"long").pax(b'g', &[("mtime", b"1")]);
    }
    assert_eq!(names(&writer.file("x", b"").end()), ["p"]);
}
