//! Databases that the reference package writes, databases that lie, and any entries against a model.

mod hostile;
mod writer;

use super::*;
use crate::format::View;
use crate::format::testing::{compare, files, open_as, truncate_and_flip};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::collections::BTreeMap;
use writer::{Under, write};

type Files = BTreeMap<String, Option<Vec<u8>>>;

fn open(bytes: &[u8], options: &OpenOptions) -> Box<dyn Container> {
    open_as(NAME, bytes, options).unwrap()
}

fn shown(bytes: &[u8]) -> Files {
    files(bytes, open(bytes, &OpenOptions::default()).as_ref())
}

fn entry<'a>(key: &str, under: Under<'a>) -> (Vec<u8>, Under<'a>) {
    (key.as_bytes().to_vec(), under)
}

fn expected(files: &[(&str, &[u8])]) -> Files {
    files.iter().map(|(path, value)| ((*path).to_owned(), Some(value.to_vec()))).collect()
}

#[test]
fn what_the_package_wrote_is_shown_as_it_reads_it() {
    compare("data.mdb");
    compare("empty.mdb");
}

#[test]
fn values_are_files_by_key_and_databases_and_several_values_are_directories() {
    let jpeg = [&b"\xff\xd8\xff\xe0"[..], &[7; 3000]].concat();
    let text = "long text\n".repeat(400).into_bytes();
    let few = [b"1".to_vec(), b"22".to_vec(), b"{}".to_vec()];
    let many: Vec<_> = (0..200).map(|number| format!("value {number:04}").into_bytes()).collect();
    let fixed: Vec<_> = (0..9_u32).map(|number| number.to_be_bytes().to_vec()).collect();
    let inner = [
        entry("one", Under::Value(b"1")),
        entry("two", Under::Value(&jpeg)),
        (vec![0, 1], Under::Value(b"\x01")),
    ];
    let file = write(
        1024,
        &[
            entry("a", Under::Value(b"[1]")),
            entry("b.jpg", Under::Value(&jpeg)),
            entry("c/d", Under::Value(&text)),
            entry("few", Under::Values(&few, false)),
            entry("fixed", Under::Values(&fixed, true)),
            entry("inner", Under::Entries(&inner)),
            entry("many", Under::Values(&many, false)),
            entry("nothing", Under::Entries(&[])),
        ],
    );
    let mut files = expected(&[
        ("a.json", b"[1]"),
        ("b.jpg", &jpeg),
        ("c/d.txt", &text),
        ("few/000000.txt", b"1"),
        ("few/000001.txt", b"22"),
        ("few/000002.json", b"{}"),
        ("inner/one.txt", b"1"),
        ("inner/two.jpg", &jpeg),
        ("inner/hex/0001.bin", b"\x01"),
    ]);
    for (number, value) in fixed.iter().enumerate() {
        files.insert(format!("fixed/{number:06}.bin"), Some(value.clone()));
    }
    for (number, value) in many.iter().enumerate() {
        files.insert(format!("many/{number:06}.txt"), Some(value.clone()));
    }
    assert_eq!(shown(&file), files);
    let container = open(&file, &OpenOptions::default());
    assert!(container.warnings().is_empty(), "{:?}", container.warnings());
    let bytes: usize = files.values().flatten().map(Vec::len).sum();
    assert_eq!(container.data_bytes(), bytes as u64);
}

#[test]
fn the_raw_view_adds_no_endings() {
    let file = write(512, &[entry("a", Under::Value(b"[1]")), entry("b", Under::Value(&[9; 900]))]);
    let options = OpenOptions { view: View::Raw, ..OpenOptions::default() };
    let shown = files(&file, open(&file, &options).as_ref());
    assert_eq!(shown.keys().collect::<Vec<_>>(), ["a", "b"]);
}

/// `pickle.dumps((b"\xff\xd8\xff", 7), 4)`, with `more` further bytes in its first item; and this item.
fn pickled(more: usize) -> (Vec<u8>, Vec<u8>) {
    let jpeg = [&b"\xff\xd8\xff"[..], &vec![5; more]].concat();
    let length = (jpeg.len() as u32).to_le_bytes();
    ([&b"\x80\x04B"[..], &length, &jpeg, b"K\x07\x86."].concat(), jpeg)
}

/// A database, some of whose values are pickles, and the files that it is shown as.
fn pickles() -> (Vec<u8>, Files) {
    let ((short, small), (long, large)) = (pickled(1), pickled(3000));
    let array = b"\x80\x04cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85C\x01btR(K\x01K\x03\x85\
        cnumpy\ndtype\n(\x8c\x02u1\x89\x88tR(K\x03\x8c\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89C\x03abctb.";
    let text = "ÿØÿ\u{1}";
    let coded = [
        &b"\x80\x02c_codecs\nencode\nX\x07\0\0\0"[..],
        text.as_bytes(),
        b"X\x06\0\0\0latin1\x86R.",
    ];
    let coded = coded.concat();
    let several = [b"1".to_vec(), b"\x80\x04K\x05.".to_vec(), b"\x80\x04]K\x05a.".to_vec()];
    let file = write(
        1024,
        &[
            entry("array", Under::Value(array)),
            entry("coded", Under::Value(&coded)),
            entry("empty", Under::Value(b"\x80\x04}\x8c\x01x]s.")),
            entry("long", Under::Value(&long)),
            entry("none", Under::Value(b"\x80\x04N.")),
            entry("several", Under::Values(&several, false)),
            entry("short", Under::Value(&short)),
            entry("wrong", Under::Value(b"\x80\x04cos\nsystem\n.")),
        ],
    );
    let npy = [&crate::format::npy::header("|u1", &[3])[..], b"abc"].concat();
    let shown = expected(&[
        ("array.npy", &npy),
        ("coded.jpg", b"\xff\xd8\xff\x01"),
        ("long/0.jpg", &large),
        ("long/1.txt", b"7"),
        ("none.bin", b"\x80\x04N."),
        ("several/000000.txt", b"1"),
        ("several/000001.txt", b"5"),
        ("several/000002/0.txt", b"5"),
        ("short/0.jpg", &small),
        ("short/1.txt", b"7"),
        ("wrong.bin", b"\x80\x04cos\nsystem\n."),
    ]);
    (file, shown)
}

#[test]
fn values_that_are_pickles_are_the_files_that_they_hold_if_that_is_asked_for() {
    let (file, wanted) = pickles();
    let options = OpenOptions { pickles: true, ..OpenOptions::default() };
    let container = open(&file, &options);
    assert_eq!(files(&file, container.as_ref()), wanted);
    assert!(container.warnings().is_empty(), "{:?}", container.warnings());
    let bytes: usize = wanted.values().flatten().map(Vec::len).sum();
    assert_eq!(container.data_bytes(), bytes as u64);
    let mut directories = Vec::new();
    let visit = &mut |member: crate::format::Member<'_>| {
        if let crate::format::Node::Directory(_) = member.node {
            directories.push(String::from_utf8_lossy(member.path).into_owned());
        }
        Ok(())
    };
    container.members(visit).unwrap();
    assert_eq!(directories, ["empty/x"]);
    let mut kept = Vec::new();
    container.keep(&mut kept).unwrap();
    let source = |bytes: &[u8]| -> Arc<dyn Source> {
        Arc::new(crate::format::MemorySource::new("t", bytes.to_vec()))
    };
    let again = Lmdb.open_kept(source(&file), source(&kept)).unwrap().unwrap();
    assert_eq!(files(&file, again.as_ref()), wanted);
    // In the raw view, or without the option for pickles, pickles are values like others.
    let raw = OpenOptions { view: View::Raw, ..options };
    for (options, long) in [(raw, "long"), (OpenOptions::default(), "long.bin")] {
        let shown = files(&file, open(&file, &options).as_ref());
        assert_eq!((shown.len(), &shown[long]), (10, &Some(pickled(3000).0)));
    }
}

#[test]
fn the_newer_valid_meta_page_counts() {
    let good = write(512, &[entry("a", Under::Value(b"1"))]);
    let at_transaction = META_BYTES - 8;
    let mut newer = good.clone();
    newer.copy_within(0..512, 512);
    newer[at_transaction] = 1;
    newer[MAIN_AT as usize..][..48].fill(0xff);
    assert_eq!(shown(&newer), shown(&good), "the second page is the newer one");
    let mut torn = good.clone();
    torn.copy_within(0..512, 512);
    torn[..64].fill(0);
    assert_eq!(shown(&torn), shown(&good), "the first page is not valid");
    let mut neither = torn;
    neither[512..600].fill(0);
    let error = open_as(NAME, &neither, &OpenOptions::default()).err().unwrap().to_string();
    assert!(error.contains("at byte 16: expected LMDB's 0xbeefc0de, found 0x00000000"), "{error}");
}

#[test]
fn an_index_is_kept_and_found_again() {
    let file = write(512, &[entry("a", Under::Value(b"1")), entry("b", Under::Value(&[1; 2000]))]);
    let container = open(&file, &OpenOptions::default());
    let mut kept = Vec::new();
    container.keep(&mut kept).unwrap();
    let source = |bytes: &[u8]| -> Arc<dyn Source> {
        Arc::new(crate::format::MemorySource::new("t", bytes.to_vec()))
    };
    let again = Lmdb.open_kept(source(&file), source(&kept)).unwrap().unwrap();
    assert_eq!(files(&file, again.as_ref()), files(&file, container.as_ref()));
}

#[test]
fn nothing_that_is_cut_or_flipped_panics() {
    let values: Vec<_> = (0..30_u8).map(|number| vec![number; 9]).collect();
    let inner = [entry("x", Under::Value(b"y"))];
    let file = write(
        256,
        &[
            entry("a", Under::Value(&[3; 300])),
            entry("b", Under::Entries(&inner)),
            entry("c", Under::Values(&values, false)),
            entry("d", Under::Values(&values[..4], true)),
        ],
    );
    for allow_damaged in [false, true] {
        let options = OpenOptions { allow_damaged, ..OpenOptions::default() };
        truncate_and_flip(NAME, &file, &options);
    }
    let options = OpenOptions { pickles: true, allow_damaged: true, ..OpenOptions::default() };
    truncate_and_flip(NAME, &pickles().0, &options);
}

proptest! {
    #[test]
    fn any_entries_are_shown_as_the_model_has_them(
        entries in btree_map("[a-z]{1,20}", (vec(any::<u8>(), 0..700), 0..4_usize), 0..60),
        page_shift in 8..13_u32,
    ) {
        let heads: [&[u8]; 4] = [b"\xff\xd8\xff", b"\x01", b"\x89PNG\r\n\x1a\n", b"GIF8"];
        let values: BTreeMap<String, (Vec<u8>, usize)> = entries
            .into_iter()
            .map(|(key, (value, kind))| (key, ([heads[kind], &value].concat(), kind)))
            .collect();
        let under: Vec<_> = values
            .iter()
            .map(|(key, (value, _))| entry(key, Under::Value(value)))
            .collect();
        let file = write(1 << page_shift, &under);
        let model: Files = values
            .iter()
            .map(|(key, (value, kind))| {
                let ending = [".jpg", ".bin", ".png", ".gif"][*kind];
                (format!("{key}{ending}"), Some(value.clone()))
            })
            .collect();
        prop_assert_eq!(shown(&file), model);
    }

    #[test]
    fn any_pages_behind_a_meta_page_are_refused_or_can_be_looked_at(
        pages in vec(vec(any::<u8>(), 256), 1..6),
        depth in 0..40_u16,
        root in 0..8_u64,
    ) {
        let mut file = write(256, &[]);
        let main = writer::description(0, depth, 1, root);
        file[MAIN_AT as usize..][..48].copy_from_slice(&main);
        for (number, mut page) in (2_u64..).zip(pages) {
            page[..8].copy_from_slice(&number.to_le_bytes());
            let (flags, lower) = (page[10] & 3, page[12] & 63 | 16);
            page[8..16].copy_from_slice(&[0, 0, flags, 0, lower, 0, 0, 0]);
            file.extend_from_slice(&page);
        }
        for allow_damaged in [false, true] {
            let options = OpenOptions { allow_damaged, ..OpenOptions::default() };
            if let Ok(container) = open_as(NAME, &file, &options) {
                crate::format::testing::look_at(&file, container.as_ref());
            }
        }
    }
}
