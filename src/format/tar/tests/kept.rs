//! The index as it is kept, and the scan as others drive it.

use super::*;

fn archive() -> Vec<u8> {
    let mut writer = Writer::default();
    writer.file("a", b"abc").link(b'1', "b", "a").member(b'5', "d/", b"").link(b'2', "s", "t");
    writer.pax(b'x', &[("GNU.sparse.size", b"9"), ("GNU.sparse.map", b"0,1,8,1")]).file("p", b"pq");
    writer.pax(b'x', &[("GNU.sparse.size", b"5"), ("GNU.sparse.map", b"4,1")]).file("q", b"q");
    writer.link(b'1', "gone", "nowhere").member(b'6', "pipe", b"").end()
}

fn index(bytes: &[u8]) -> Index {
    scan(source(bytes).as_ref(), &OpenOptions::default()).unwrap()
}

fn written(index: &Index) -> Vec<u8> {
    let mut out = Vec::new();
    index.write(&mut out).unwrap();
    out
}

#[test]
fn an_index_comes_back_as_it_was_written() {
    let bytes = archive();
    let (first, kept) = (index(&bytes), written(&index(&bytes)));
    let second = Index::read(source(&kept).as_ref()).unwrap();
    assert_eq!(written(&second), kept);
    let first = Archive::new(source(&bytes), first);
    let second = Archive::new(source(&bytes), second);
    assert_eq!(shown(&first, &bytes), shown(&second, &bytes));
    assert_eq!(first.warnings(), second.warnings());
    assert_eq!(first.warnings().len(), 2);
    assert_eq!((first.data_bytes(), first.len()), (second.data_bytes(), second.len()));
    for sample in 0..first.len() {
        assert_eq!(first.attributes(sample).unwrap(), second.attributes(sample).unwrap());
    }
    assert!(second.sample(second.len()).is_err());
}

#[test]
fn an_index_that_is_damaged_or_cut_or_of_another_version_is_refused() {
    let kept = written(&index(&archive()));
    for bit in 0..kept.len() * 8 {
        let mut wrong = kept.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(Index::read(source(&wrong).as_ref()).is_err(), "bit {bit}");
    }
    for length in 0..kept.len() {
        assert!(Index::read(source(&kept[..length]).as_ref()).is_err(), "cut at {length}");
    }
}

#[test]
fn a_member_takes_48_bytes_beside_its_name() {
    let mut writer = Writer::default();
    for number in 0..100 {
        writer.file(&format!("{number:03}"), b"x");
    }
    let empty = written(&index(&Writer::default().file("", b"").end())).len();
    assert_eq!(written(&index(&writer.end())).len() - empty, 100 * 51 - 48);
}

/// Drives a scan as a stream can: only forward. Gives the index and how many bytes were asked for.
fn streamed(bytes: &[u8], allow_damaged: bool) -> (Index, usize) {
    let options = OpenOptions { allow_damaged, ..OpenOptions::default() };
    let mut scan = Scan::new(&"stream".into(), &options).unwrap();
    let (mut end, mut asked) = (0, 0);
    while let Some((at, length)) = scan.want() {
        assert!(at >= end);
        end = at + length;
        let to = (end as usize).min(bytes.len());
        let given = bytes.get(at as usize..to).unwrap_or_default();
        asked += given.len();
        scan.take(given).unwrap();
    }
    (scan.finish(bytes.len() as u64).unwrap(), asked)
}

#[test]
fn a_scan_asks_only_forward_and_not_for_data() {
    let data = vec![7; 100_000];
    let bytes = Writer::default().file("a", &data).file("b", &data).end();
    let (index, asked) = streamed(&bytes, false);
    assert_eq!((index.len(), asked), (2, 2 * 512 + 1024));
}

#[test]
fn a_scan_does_not_go_back_behind_a_bad_extended_header() {
    let records = [&b"10 path=a\n"[..], &[b'x'; 1500]].concat();
    let mut writer = Writer::default();
    writer.file("a", b"").file("b", b"").member(b'x', "pax", &records);
    assert_eq!(streamed(&writer.file("c", b"").end(), true).0.len(), 3);
}
