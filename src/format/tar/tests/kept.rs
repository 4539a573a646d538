//! The kept index, and the scan as other code drives it.

use super::*;
use crate::format::Format;

fn archive() -> Vec<u8> {
    let mut writer = Writer::default();
    writer.file("a", b"abc").link(b'1', "b", "a").member(b'5', "d/", b"").link(b'2', "s", "t");
    writer.pax(b'x', &[("GNU.sparse.size", b"9"), ("GNU.sparse.map", b"0,1,8,1")]).file("p", b"pq");
    writer.pax(b'x', &[("GNU.sparse.size", b"5"), ("GNU.sparse.map", b"4,1")]).file("q", b"q");
    writer.link(b'1', "gone", "nowhere").member(b'6', "pipe", b"").end()
}

fn kept(container: &dyn Container) -> Vec<u8> {
    let mut out = Vec::new();
    container.keep(&mut out).unwrap();
    out
}

#[test]
fn an_index_comes_back_as_it_was_written() {
    let bytes = archive();
    let first = opened(&bytes).unwrap();
    let index = kept(first.as_ref());
    let second = Tar.open_kept(source(&bytes), source(&index)).unwrap().unwrap();
    assert_eq!(kept(second.as_ref()), index);
    assert_eq!(shown(first.as_ref(), &bytes), shown(second.as_ref(), &bytes));
    assert_eq!(first.warnings(), second.warnings());
    assert_eq!(first.warnings().len(), 2);
    assert_eq!((first.data_bytes(), first.len()), (second.data_bytes(), second.len()));
    for sample in 0..first.len() {
        assert_eq!(first.attributes(sample).unwrap(), second.attributes(sample).unwrap());
    }
    assert!(second.sample(second.len()).is_err());
}

#[test]
fn the_index_of_an_earlier_version_is_told_from_a_damaged_one() {
    // A kept index from the time before all scanned formats shared one.
    let old = [&b"ffrfstar"[..], &1_u32.to_le_bytes(), &[0; 200]].concat();
    assert!(Tar.open_kept(source(b""), source(&old)).unwrap().is_none());
}

#[test]
fn a_member_takes_48_bytes_beside_its_name() {
    let mut writer = Writer::default();
    for number in 0..100 {
        writer.file(&format!("{number:03}"), b"x");
    }
    let one = kept(opened(&Writer::default().file("", b"").end()).unwrap().as_ref()).len();
    assert_eq!(kept(opened(&writer.end()).unwrap().as_ref()).len() - one, 100 * 51 - 48);
}

/// Drives a scan as a stream can: only forward. Returns the container and the number of bytes that were asked for.
fn streamed(bytes: &[u8], allow_damaged: bool) -> (Box<dyn Container>, usize) {
    let options = OpenOptions { allow_damaged, ..OpenOptions::default() };
    let part = PartName::from("stream");
    let mut scanner = Tar.scan_stream(&part, &bytes[..512], &options).unwrap().unwrap();
    let (mut end, mut asked) = (0, 0);
    while let Some((at, length)) = scanner.want() {
        assert!(at >= end);
        end = at + length;
        let to = (end as usize).min(bytes.len());
        let given = bytes.get(at as usize..to).unwrap_or_default();
        asked += given.len();
        scanner.take(given).unwrap();
    }
    (scanner.finish(source(bytes)).unwrap(), asked)
}

#[test]
fn a_scan_asks_only_forward_and_not_for_data() {
    let data = vec![7; 100_000];
    let bytes = Writer::default().file("a", &data).file("b", &data).end();
    let (container, asked) = streamed(&bytes, false);
    assert_eq!((container.len(), asked), (2, 2 * 512 + 1024));
}

#[test]
fn a_scan_does_not_go_back_behind_a_bad_extended_header() {
    let records = [&b"10 path=a\n"[..], &[b'x'; 1500]].concat();
    let mut writer = Writer::default();
    writer.file("a", b"").file("b", b"").member(b'x', "pax", &records);
    assert_eq!(streamed(&writer.file("c", b"").end(), true).0.len(), 3);
}

#[test]
fn a_stream_is_an_archive_by_its_first_header_or_if_it_is_zeros_by_its_name() {
    let found = |path: &str, first: &[u8]| {
        let scanner = Tar.scan_stream(&PartName::from(path), first, &OpenOptions::default());
        scanner.unwrap().is_some()
    };
    assert!(found("x.gz", &archive()[..512]));
    assert!(!found("x.tar.gz", &archive()[..511]));
    assert!(found("x.tar.gz", &[0; 512]) && found("x.tzst", &[0; 512]));
    assert!(!found("x.gz", &[0; 512]) && !found("x.tar.gz", &[1; 512]));
}
