//! Pages that point at themselves, trees that are too deep, and sizes that lie.

use super::super::page::HEAD_BYTES;
use super::writer::description;
use super::*;

const PAGE: usize = 512;

/// A database with `pages` behind the meta pages.
fn file(main: &[u8], pages: &[Vec<u8>]) -> Vec<u8> {
    let mut file = write(PAGE, &[]);
    file[MAIN_AT as usize..][..48].copy_from_slice(main);
    for page in pages {
        let mut page = page.clone();
        page.resize(PAGE, 0);
        file.extend_from_slice(&page);
    }
    file
}

/// A page of nodes: lengths or low numbers of pages, flags, keys, and data.
fn page(number: u64, flags: u16, nodes: &[(u32, u16, &[u8], &[u8])]) -> Vec<u8> {
    let mut page = number.to_le_bytes().to_vec();
    let lower = (HEAD_BYTES + 2 * nodes.len()) as u16;
    [0, flags, lower, 0].iter().for_each(|field| page.extend_from_slice(&field.to_le_bytes()));
    let mut at = usize::from(lower);
    let mut packed = Vec::new();
    for (length, flags, key, data) in nodes {
        page.extend_from_slice(&(at as u16).to_le_bytes());
        let before = packed.len();
        packed.extend_from_slice(&length.to_le_bytes());
        packed.extend_from_slice(&flags.to_le_bytes());
        packed.extend_from_slice(&(key.len() as u16).to_le_bytes());
        packed.extend_from_slice(key);
        packed.extend_from_slice(data);
        at += packed.len() - before;
    }
    page.extend(packed);
    page
}

fn refused(file: &[u8]) -> String {
    let opened = open_as(NAME, file, &OpenOptions::default());
    // If damage is allowed, opening comes to an end, too.
    let options = OpenOptions { allow_damaged: true, ..OpenOptions::default() };
    if let Ok(container) = open_as(NAME, file, &options) {
        crate::format::testing::look_at(file, container.as_ref());
    }
    opened.err().expect("refused").to_string()
}

#[test]
fn a_branch_that_points_at_itself_comes_to_an_end() {
    let main = description(0, 32, 1, 2);
    let both: Vec<(u32, u16, &[u8], &[u8])> = vec![(2, 0, b"", b""); 40];
    let said = refused(&file(&main, &[page(2, 1, &both)]));
    assert!(said.contains("pages point at themselves"), "{said}");
    let main = description(0, 3, 1, 2);
    let said = refused(&file(&main, &[page(2, 1, &[(2, 0, b"", b"")])]));
    assert!(said.contains("at byte 1034: expected the flags of a leaf, found 0x0001"), "{said}");
}

#[test]
fn a_tree_that_is_too_deep_or_of_other_levels_is_refused() {
    for depth in [0, 33, u16::MAX] {
        let said = refused(&file(&description(0, depth, 1, 2), &[page(2, 1, &[])]));
        assert!(said.contains("at byte 94: expected a tree of 1 to 32 levels"), "{said}");
    }
    let said = refused(&file(&description(0, 2, 0, 2), &[page(2, 2, &[])]));
    assert!(said.contains("expected the flags of a branch, found 0x0002"), "{said}");
}

#[test]
fn a_page_of_another_number_or_behind_the_end_is_refused() {
    let said = refused(&file(&description(0, 1, 0, 2), &[page(7, 2, &[])]));
    assert!(said.contains("at byte 1024: expected a page with its own number, found 7"), "{said}");
    for root in [3, 1 << 60, u64::MAX - 1] {
        let said = refused(&file(&description(0, 1, 0, root), &[page(2, 2, &[])]));
        assert!(said.contains("expected pages within the file of 1536 bytes"), "{said}");
        assert!(said.contains("the file is truncated"), "{said}");
    }
}

#[test]
fn many_databases_of_one_tree_are_refused() {
    let inner = description(0, 1, 1, 3);
    let nodes: Vec<(u32, u16, &[u8], &[u8])> = vec![(48, 2, b"n", &inner); 6];
    let leaf = page(3, 2, &[(1, 0, b"key", b"v")]);
    let said = refused(&file(&description(0, 1, 6, 2), &[page(2, 2, &nodes), leaf]));
    assert!(said.contains("or at the same pages"), "{said}");
}

#[test]
fn a_database_that_holds_itself_is_refused() {
    let itself = description(0, 1, 1, 2);
    let said = refused(&file(&itself, &[page(2, 2, &[(48, 2, b"n", &itself)])]));
    assert!(said.contains("expected a value, found a database in a database"), "{said}");
    // As the values of a key, the database has an end: the values are the keys of its page.
    let file = file(&itself, &[page(2, 2, &[(48, 6, b"n", &itself)])]);
    assert_eq!(shown(&file), expected(&[("n/000000.txt", b"n")]));
}

#[test]
fn nodes_that_lie_on_each_other_do_not_multiply() {
    let mut leaf = page(2, 2, &[(100, 0, &[b'k'; 100], &[1; 100])]);
    leaf.resize(PAGE, 0);
    let place = [leaf[16], leaf[17]];
    leaf.copy_within(18..PAGE - 80, 98);
    let at = (u16::from_le_bytes(place) + 80).to_le_bytes();
    (0..41).for_each(|number| leaf[16 + 2 * number..18 + 2 * number].copy_from_slice(&at));
    leaf[12..14].copy_from_slice(&98_u16.to_le_bytes());
    let said = refused(&file(&description(0, 1, 41, 2), &[leaf]));
    assert!(said.contains("expected nodes that do not overlap"), "{said}");
}

#[test]
fn nodes_and_lengths_beyond_their_page_are_refused() {
    let long = page(2, 2, &[(4000, 0, b"k", b"v")]);
    let said = refused(&file(&description(0, 1, 1, 2), &[long]));
    assert!(
        said.contains("at byte 1042: expected a node within the page, found the end"),
        "{said}"
    );
    let mut places = page(2, 2, &[]);
    places[12..14].copy_from_slice(&60_000_u16.to_le_bytes());
    let said = refused(&file(&description(0, 1, 1, 2), &[places]));
    assert!(said.contains("expected the end of the places within the page, found 60000"), "{said}");
    let description_of_3 = page(2, 2, &[(3, 2, b"k", b"abc")]);
    let said = refused(&file(&description(0, 1, 1, 2), &[description_of_3]));
    assert!(said.contains("expected a database of 48 bytes, found 3 bytes"), "{said}");
}

#[test]
fn a_value_behind_the_end_is_refused_and_alone_damaged_if_that_is_allowed() {
    let far = 9_u64.to_le_bytes();
    let nodes: [(u32, u16, &[u8], &[u8]); 2] = [(600, 1, b"far", &far), (1, 0, b"here", b"1")];
    let file = file(&description(0, 1, 2, 2), &[page(2, 2, &nodes)]);
    let said = refused(&file);
    assert!(said.contains("expected a value within the file of 1536 bytes"), "{said}");
    assert!(said.contains("found 600 bytes from page 9 on: the file is truncated"), "{said}");
    let options = OpenOptions { allow_damaged: true, ..OpenOptions::default() };
    let container = open(&file, &options);
    let shown = files(&file, container.as_ref());
    assert_eq!(shown["far.bin"], None);
    assert_eq!(shown["here.txt"].as_deref(), Some(&b"1"[..]));
    assert!(container.warnings()[0].contains("1 value is not where"));
}

#[test]
fn a_value_whose_pages_are_others_is_damaged_alone() {
    let far = 3_u64.to_le_bytes();
    let nodes: [(u32, u16, &[u8], &[u8]); 2] = [(300, 1, b"far", &far), (1, 0, b"here", b"1")];
    let leaf = page(2, 2, &nodes);
    let whole = [&3_u64.to_le_bytes()[..], &[0, 0, 4, 0, 1, 0, 0, 0], &[7; 300]].concat();
    let main = description(0, 1, 2, 2);
    let good = file(&main, &[leaf.clone(), whole.clone()]);
    assert_eq!(shown(&good)["far.bin"].as_deref(), Some(&[7; 300][..]));
    for (at, value) in [(0, 4), (10, 2), (12, 0)] {
        let mut other = whole.clone();
        other[at] = value;
        let bad = file(&main, &[leaf.clone(), other]);
        let shown = shown(&bad);
        assert_eq!((shown["far.bin"].as_ref(), shown["here.txt"].is_some()), (None, true));
    }
}

#[test]
fn a_number_of_entries_that_is_not_found_is_refused() {
    let leaf = page(2, 2, &[(1, 0, b"k", b"v")]);
    let said = refused(&file(&description(0, 1, 2, 2), &[leaf]));
    assert!(said.contains("at byte 120: expected a tree of 2 entries, found 1 entry"), "{said}");
}

#[test]
fn long_names_of_databases_do_not_multiply() {
    // Each of many keys would stand behind the name of its database, which is as long as a name can be.
    let name = [b'n'; 240];
    let values: Vec<_> =
        (0..20_000_u32).map(|number| (number.to_be_bytes().to_vec(), number)).collect();
    let entries: Vec<_> = values.iter().map(|(key, _)| (key.clone(), Under::Value(b""))).collect();
    let file = write(65_536, &[(name.to_vec(), Under::Entries(&entries))]);
    let error = open_as(NAME, &file, &OpenOptions::default()).err().map(|error| error.to_string());
    let paths = 20_000 * (240 + 1 + 4 + 8 + 4);
    let is_refused = paths > file.len() * 16 + (1 << 20);
    assert_eq!(error.is_some(), is_refused, "{error:?}");
}
