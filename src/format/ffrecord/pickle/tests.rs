#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

mod round_trip;
mod written;

use nix::sys::resource::{UsageWho, getrusage};
use std::io;

use super::{Directory, Entry, MAX_DEPTH, Reason, decode, encode};

const ANY: u64 = u64::MAX;

fn file(name: &[u8], index: u64) -> (Box<[u8]>, Entry) {
    (name.into(), Entry::File(index))
}

fn directory(name: &[u8], entries: Vec<(Box<[u8]>, Entry)>) -> (Box<[u8]>, Entry) {
    (name.into(), Entry::Directory(Directory { entries }))
}

fn encoded(tree: &Directory) -> Vec<u8> {
    let mut out = Vec::new();
    encode(tree, &mut out).unwrap();
    out
}

fn refused(pickle: &[u8], samples: u64) -> (u64, Reason) {
    match decode(pickle, samples) {
        Ok(tree) => panic!("{} gave {tree:?}", pickle.escape_ascii()),
        Err(error) => (error.offset, error.reason),
    }
}

fn assert_refused(pickle: &[u8], offset: u64, reason: Reason) {
    assert_eq!(refused(pickle, 10), (offset, reason), "{}", pickle.escape_ascii());
}

fn accepted(pickle: &[u8]) -> Vec<(Box<[u8]>, Entry)> {
    decode(pickle, 1 << 62).unwrap_or_else(|why| panic!("{}: {why}", pickle.escape_ascii())).entries
}

/// Checks the promises of the decoder about every tree: its depth, and names that are valid, sorted and unique.
fn check(directory: &Directory, level: u16) {
    assert!(level <= MAX_DEPTH);
    let mut names: Vec<_> = directory.entries.iter().map(|(name, _)| name).collect();
    names.sort();
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]));
    for (name, entry) in &directory.entries {
        assert_eq!(super::check_name(name), Ok(()));
        if let Entry::Directory(child) = entry {
            check(child, level + 1);
        }
    }
}

/// The name of one file, as the opcodes in `key` push it.
fn name_of(key: &[u8]) -> Vec<u8> {
    let pickle = [b"}", key, b"K\x00s."].concat();
    accepted(&pickle)[0].0.to_vec()
}

fn name_refused(key: &[u8], reason: Reason) {
    assert_refused(&[b"}", key, b"K\x00s."].concat(), 1, reason);
}

/// The index of one file, as the opcodes in `value` push it.
fn index_of(value: &[u8]) -> u64 {
    match accepted(&[b"}X\x01\x00\x00\x00a", value, b"s."].concat())[..] {
        [(_, Entry::File(index))] => index,
        ref other => panic!("{other:?}"),
    }
}

fn index_refused(value: &[u8], reason: Reason) {
    assert_refused(&[b"}X\x01\x00\x00\x00a", value, b"s."].concat(), 7, reason);
}

#[test]
fn every_protocol_of_cpython_2_and_3_decodes_to_the_same_tree() {
    let tree = Directory {
        entries: vec![
            file(b"a", 0),
            directory("b\\\né€".as_bytes(), vec![file(b"c", 300)]),
            directory(b"e", vec![]),
            directory(b"one", vec![file(b"x", 70000), file(b"c", 1 << 40)]),
        ],
    };
    for (writer, pickle) in written::WRITTEN {
        assert_eq!(decode(pickle, (1 << 40) + 1).as_ref(), Ok(&tree), "{writer}");
        let why = refused(pickle, 1 << 40).1;
        assert_eq!(why, Reason::Index { index: 1 << 40, samples: 1 << 40 }, "{writer}");
    }
}

#[test]
fn an_empty_dict_of_any_kind_is_an_empty_directory() {
    for pickle in [
        &b"}."[..],
        b"(d.",
        b"ccollections\nOrderedDict\n)R.",
        b"ccollections\nOrderedDict\n(tR.",
        b"ccollections\nOrderedDict\n]\x85R.",
        b"c__builtin__\ndict\n)R.",
        b"cbuiltins\ndict\n)R.",
        b"\x80\x05\x95\x01\x00\x00\x00\x00\x00\x00\x00}.",
    ] {
        assert_eq!(accepted(pickle), vec![], "{}", pickle.escape_ascii());
    }
}

#[test]
fn a_truncated_pickle_is_refused_at_every_byte() {
    for (writer, pickle) in written::WRITTEN {
        for len in 0..pickle.len() {
            assert!(decode(&pickle[..len], ANY).is_err(), "{writer}, {len} bytes");
        }
    }
}

#[test]
fn a_flipped_bit_never_panics() {
    for (_, pickle) in written::WRITTEN {
        let mut flipped = pickle.to_vec();
        for bit in 0..flipped.len() * 8 {
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(tree) = decode(&flipped, ANY) {
                check(&tree, 1);
            }
            flipped[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn names_decode_from_every_string_opcode() {
    let ed = b"\xed\xb3\xbf\xed\xb2\x80a";
    assert_eq!(name_of(&[b"X\x07\x00\x00\x00", &ed[..]].concat()), b"\xff\x80a");
    assert_eq!(name_of(&[b"\x8c\x07", &ed[..]].concat()), b"\xff\x80a");
    assert_eq!(name_of(&[b"\x8d\x07\0\0\0\0\0\0\0", &ed[..]].concat()), b"\xff\x80a");
    assert_eq!(name_of(b"V\\udcff\\udc80a\n"), b"\xff\x80a");
    assert_eq!(name_of(b"V\\u005c\\u000a\xe9\\u20ac\\U0001F600\n"), "\\\né€😀".as_bytes());
    assert_eq!(name_of(b"U\x02\xff\x80"), b"\xff\x80");
    assert_eq!(name_of(b"T\x02\x00\x00\x00\xff\x80"), b"\xff\x80");
    assert_eq!(name_of(b"S'a\\'\"\\\\\\n\\r\\t\\xff'\n"), b"a'\"\\\n\r\t\xff");
    assert_eq!(name_of(b"S\"it's\"\n"), b"it's");
}

#[test]
fn a_name_that_no_file_can_have_is_refused() {
    for (name, why) in [
        ("", "is empty"),
        (".", "is . or .."),
        ("..", "is . or .."),
        ("a/b", "has a slash"),
        ("/", "has a slash"),
        ("a\0b", "has a NUL byte"),
    ] {
        let len = name.len() as u8;
        name_refused(&[b"\x8c", &[len][..], name.as_bytes()].concat(), Reason::Name(why));
        name_refused(&[b"U", &[len][..], name.as_bytes()].concat(), Reason::Name(why));
        name_refused(&[b"V", name.as_bytes(), b"\n"].concat(), Reason::Name(why));
    }
    name_refused(b"V\\u0000\n", Reason::Name("has a NUL byte"));
    name_refused(b"V\\udc2f\n", Reason::Malformed("character"));
    name_refused(b"S'\\x00'\n", Reason::Name("has a NUL byte"));
}

#[test]
fn a_name_of_255_bytes_is_accepted_and_of_256_refused() {
    let of = |unit: &str, count: usize| [b"V", unit.repeat(count).as_bytes(), b"\n"].concat();
    let too_long = Reason::Name("has over 255 bytes");
    for (unit, bytes) in [("a", 1), ("\\udcff", 1), ("\\U0000dcff", 1), ("\\u20ac", 3)] {
        assert_eq!(name_of(&of(unit, 255 / bytes)).len(), 255);
        name_refused(&of(unit, 255 / bytes + 1), too_long.clone());
    }
    let surrogates = |count: u16| {
        let len = u32::from(count * 3).to_le_bytes();
        [b"X", &len[..], &b"\xed\xb3\xbf".repeat(count.into())].concat()
    };
    assert_eq!(name_of(&surrogates(255)), [0xff; 255]);
    name_refused(&surrogates(256), too_long);
}

#[test]
fn malformed_text_is_refused() {
    for text in [&b"\xff"[..], b"\xed\xa0\x80", b"\xed\xb1\xbf", b"\xed\xb4\x80", b"a\xed\xb2"] {
        let key = [b"\x8c", &[text.len() as u8][..], text].concat();
        name_refused(&key, Reason::Malformed("UTF-8"));
    }
    for line in ["\\", "\\u", "\\u12", "\\u12g4", "\\u+123", "\\U0001F60", "\\x41", "\\\\u0041"] {
        name_refused(format!("V{line}\n").as_bytes(), Reason::Malformed("escape"));
    }
    for line in ["\\ud800", "\\udc7f", "\\udd00", "\\ud83d\\ude00", "\\U00110000"] {
        name_refused(format!("V{line}\n").as_bytes(), Reason::Malformed("character"));
    }
    for line in ["", "'", "a", "'a\"", "'a'b'", "'\\'", "'\\x4'", "'\\x+1'", "'\\0'", "'a' "] {
        name_refused(format!("S{line}\n").as_bytes(), Reason::Malformed("string"));
    }
}

#[test]
fn indices_decode_from_every_integer_opcode() {
    assert_eq!(index_of(b"I0\n"), 0);
    assert_eq!(index_of(b"I1099511627776\n"), 1 << 40);
    assert_eq!(index_of(b"L7L\n"), 7);
    assert_eq!(index_of(b"L7\n"), 7);
    assert_eq!(index_of(b"K\xff"), 255);
    assert_eq!(index_of(b"M\xff\xfe"), 0xfeff);
    assert_eq!(index_of(b"J\xff\xff\xff\x7f"), 0x7fff_ffff);
    assert_eq!(index_of(b"\x8a\x00"), 0);
    assert_eq!(index_of(b"\x8a\x05\xff\xff\xff\xff\x00"), 0xffff_ffff);
    assert_eq!(index_of(b"\x8b\x02\x00\x00\x00\xff\x7f"), 0x7fff);
    assert_eq!(index_of(b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x3f"), (1 << 62) - 1);
}

#[test]
fn an_integer_that_is_no_index_is_refused() {
    let integers: [&[u8]; 15] = [
        b"I00\n",
        b"I01\n",
        b"I007\n",
        b"I-1\n",
        b"I+1\n",
        b"I 1\n",
        b"I1L\n",
        b"I\n",
        b"I18446744073709551616\n",
        b"LL\n",
        b"L-1L\n",
        b"J\xff\xff\xff\xff",
        b"\x8a\x01\xff",
        b"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80",
        b"\x8b\x09\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00",
    ];
    for value in integers {
        index_refused(value, Reason::Integer);
    }
    index_refused(b"\x88", Reason::Opcode(0x88));
    index_refused(b"K\x0a", Reason::Index { index: 10, samples: 10 });
    assert_eq!(refused(b"}\x8c\x01aK\x00s.", 0).1, Reason::Index { index: 0, samples: 0 });
    assert_eq!(index_of(b"K\x09"), 9);
}

#[test]
fn an_index_used_twice_is_refused() {
    assert_refused(b"}(\x8c\x01aK\x05\x8c\x01bK\x05u.", 10, Reason::IndexTwice(5));
    assert_refused(b"}(\x8c\x01a}\x8c\x01xK\x00s\x8c\x01bI0\nu.", 15, Reason::IndexTwice(0));
    let mut tree = Directory::default();
    for index in 0..1000 {
        tree.entries.push(file(index.to_string().as_bytes(), index));
    }
    assert_eq!(decode(&encoded(&tree), 1000).as_ref(), Ok(&tree));
    tree.entries[3].1 = Entry::File(700);
    assert_eq!(refused(&encoded(&tree), 1000).1, Reason::IndexTwice(700));
}

#[test]
fn a_name_twice_in_a_directory_is_refused() {
    assert_refused(b"}(\x8c\x01aK\x00\x8c\x01aK\x01u.", 13, Reason::NameTwice("a".into()));
    // Also if the name comes in another batch, or in another encoding.
    assert_refused(b"}\x8c\x01\nK\x00sV\\u000a\nK\x01s.", 18, Reason::NameTwice("\\x0a".into()));
    assert_refused(b"}U\x02\xc3\xa9K\x00sV\xe9\nK\x01s.", 14, Reason::NameTwice("é".into()));
    let in_child = b"}\x8c\x01d}(\x8c\x01aK\x00\x8c\x01bK\x02\x8c\x01aK\x01us.";
    assert_refused(in_child, 22, Reason::NameTwice("a".into()));
    assert_eq!(accepted(b"}(\x8c\x01aK\x00\x8c\x01d}\x8c\x01aK\x01su.").len(), 2);
}

#[test]
fn another_class_or_function_is_refused_by_name() {
    let global = |text: &str| Reason::Global(text.into());
    assert_refused(b"cos\nsystem\n(S'ls'\ntR.", 0, global("os.system"));
    assert_refused(b"\x8c\x02os\x8c\x06system\x93.", 12, global("os.system"));
    assert_refused(b"ccollections\ndefaultdict\n)R.", 0, global("collections.defaultdict"));
    assert_refused(b"c__builtin__\neval\n.", 0, global("__builtin__.eval"));
    assert_refused(b"c\x1b[\n\n)R.", 0, global("\\x1b[."));
    let long = [b"c", &b"x".repeat(1000)[..], b"\n\n"].concat();
    assert_refused(&long, 0, global(&format!("{}.", "x".repeat(80))));
}

#[test]
fn opcodes_that_no_tree_needs_are_refused() {
    for opcode in 0..=255_u8 {
        let known = b"(.IJKML\x8a\x8bSTUVX\x8c\x8dc\x93R}dsu]lae)t\x85pqrghj\x94\x80\x95";
        if !known.contains(&opcode) {
            assert_refused(&[b'}', opcode], 1, Reason::Opcode(opcode));
        }
    }
}

#[test]
fn values_in_the_wrong_place_are_refused() {
    for pickle in [
        &b"s."[..],
        b"u.",
        b"d.",
        b"(s.",
        b"}s.",
        b"}K\x00s.",
        b"}(K\x00K\x01u.",
        b"}(\x8c\x01au.",
        b"}\x8c\x01a\x8c\x01bs.",
        b"}}}s.",
        b"}]}s.",
        b"}(\x8c\x01aK\x00s.",
        b"](\x8c\x01aK\x00u.",
        b"}\x8c\x01a]s.",
        b"}\x8c\x01a)s.",
        b"(\x8c\x01ad.",
        b"]]a.",
        b"]\x8c\x01a\x8c\x01be.",
        b"]](\x8c\x01aK\x00K\x01ea.",
        b"]](\x8c\x01aK\x00e(\x8c\x01bK\x01e.",
        b"]K\x00a.",
        b"ccollections\nOrderedDict\n}R.",
        b"ccollections\nOrderedDict\n]R.",
        b"ccollections\nOrderedDict\n]\x8c\x01aa\x85R.",
        b"ccollections\nOrderedDict\n](\x8c\x01aK\x00e\x85R.",
        b"ccollections\nOrderedDict\n(]]tR.",
        b")}R.",
        b"}K\x01R.",
        b"K\x01\x93.",
        b"\x8c\x01aK\x01\x93.",
        b"(.",
        b"}(.",
        b"}}.",
        b"\x8c\x01a}.",
        b".",
        b"\x94.",
        b"}(\x94.",
        b"}\x8c\x01aK\x00s\x94.",
        b"}\x94\x94.",
    ] {
        assert_eq!(refused(pickle, 10).1, Reason::Shape, "{}", pickle.escape_ascii());
    }
}

#[test]
fn a_top_level_that_is_no_dict_is_refused() {
    for pickle in [&b"K\x00."[..], b"\x8c\x01a.", b"].", b").", b"ccollections\nOrderedDict\n."] {
        assert_eq!(refused(pickle, 10).1, Reason::NotDirectory);
    }
}

#[test]
fn bytes_after_stop_are_refused() {
    assert_refused(b"}.}.", 1, Reason::Trailing(2));
    assert_refused(b"\x80\x02}.\n", 3, Reason::Trailing(1));
}

#[test]
fn unknown_protocols_and_frames_past_the_end_are_refused() {
    assert_refused(b"\x80\x06}.", 0, Reason::Protocol(6));
    assert_refused(b"}\x80\x02.", 1, Reason::Protocol(2));
    assert_refused(b"\x95\x03\0\0\0\0\0\0\0}.", 0, Reason::Truncated);
    assert_refused(b"\x95\xff\xff\xff\xff\xff\xff\xff\xff}.", 0, Reason::Truncated);
    // A frame may begin between an object and its memo entry.
    assert_eq!(accepted(b"}\x95\x02\0\0\0\0\0\0\0\x94."), vec![]);
}

#[test]
fn lengths_past_the_end_are_refused() {
    for string in [&b"X\xff\xff\xff\xff"[..], b"T\xff\xff\xff\xff", b"\x8b\xff\xff\xff\xff"] {
        assert_refused(string, 0, Reason::Truncated);
    }
    assert_refused(b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc", 0, Reason::Truncated);
}

#[test]
fn a_dict_in_two_places_is_refused() {
    assert_refused(b"}(\x8c\x01a}q\x01\x8c\x01bh\x01u.", 11, Reason::Shared);
    assert_refused(b"}q\x00\x8c\x01ah\x00s.", 6, Reason::Shared);
    // The start of a tree that would have 2^n directories.
    assert_refused(b"}q\x00(\x8c\x01a}q\x01\x8c\x01bh\x01u.", 13, Reason::Shared);
    let list = b"ccollections\nOrderedDict\n]q\x00(h\x00";
    assert_refused(list, 29, Reason::Shared);
}

#[test]
fn the_memo_takes_any_entry_and_gives_names_and_classes() {
    for (put, get) in [
        (&b"r\x00\x28\x6b\xee"[..], &b"j\x00\x28\x6b\xee"[..]),
        (b"q\xff", b"h\xff"),
        (b"p18446744073709551615\n", b"g18446744073709551615\n"),
        (b"\x94", b"h\x00"),
    ] {
        let pickle = [b"}(\x8c\x01a", put, b"K\x00\x8c\x01d}", get, b"K\x01su."].concat();
        let expected = vec![file(b"a", 0), directory(b"d", vec![file(b"a", 1)])];
        assert_eq!(accepted(&pickle), expected);
    }
    assert_refused(b"}\x8c\x01aq\x05h\x04", 6, Reason::Memo(4));
    assert_refused(b"}h\x00", 1, Reason::Memo(0));
    assert_refused(b"}p-1\n", 1, Reason::Integer);
}

#[test]
fn names_repeated_through_the_memo_cannot_outgrow_the_pickle() {
    let mut pickle = b"}X\xff\x00\x00\x00".to_vec();
    pickle.extend_from_slice(&[b'x'; 255]);
    pickle.extend_from_slice(b"q\x00");
    pickle.extend_from_slice(&b"h\x00".repeat(1 << 20));
    assert_eq!(refused(&pickle, 10).1, Reason::Expansion);
}

#[test]
fn as_many_levels_as_allowed_decode_and_one_more_is_refused() {
    let nested = |levels: usize| [b"}\x8c\x01d".repeat(levels - 1), b"}".to_vec()].concat();
    let pickle = |levels: usize| {
        let end = [b"s".repeat(levels - 1), b".".to_vec()].concat();
        [nested(levels), end].concat()
    };
    let levels = usize::from(MAX_DEPTH);
    let tree = decode(&pickle(levels), ANY).unwrap();
    assert_eq!(decode(&encoded(&tree), ANY).as_ref(), Ok(&tree));
    assert_eq!(refused(&pickle(levels + 1), ANY).1, Reason::TooDeep);

    let mut deeper = Directory { entries: vec![(Box::from(*b"d"), Entry::Directory(tree))] };
    let error = encode(&deeper, &mut io::sink()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    deeper.entries.clear();
}

#[test]
fn a_million_levels_are_refused_quickly() {
    const LEVELS: usize = 1_000_000;
    // The CPU time of this thread alone, as the machine may have other work.
    let cpu_seconds = || {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
        (usage.user_time() + usage.system_time()).tv_sec()
    };
    let before = cpu_seconds();
    let with_marks = b"}(\x8c\x01d".repeat(LEVELS);
    assert_eq!(refused(&with_marks, ANY).1, Reason::TooDeep);
    let setitem = [b"}\x8c\x01d".repeat(LEVELS), b"}".to_vec(), b"s".repeat(LEVELS)].concat();
    assert_eq!(refused(&setitem, ANY).1, Reason::TooDeep);
    let pairs = b"]]\x8c\x01da".repeat(LEVELS);
    assert_eq!(refused(&pairs, ANY).1, Reason::Truncated);
    for opcode in [b'(', b'}', b']', b')', 0x85] {
        refused(&[opcode].repeat(LEVELS), ANY);
    }
    // A debug build takes seconds, a quadratic decoder hours.
    assert!(cpu_seconds() - before < 20);
}

#[test]
fn an_error_prints_as_one_line() {
    let error = decode(b"}\x8c\x01aK\x07s.", 7).unwrap_err();
    assert_eq!(error.to_string(), "byte 4 of the pickle: index 7, but there are 7 data samples");
    let error = decode(b"cos\nsys\ttem\n", 7).unwrap_err().to_string();
    assert_eq!(
        error,
        "byte 0 of the pickle: os.sys\\ttem is neither dict nor collections.OrderedDict"
    );
}
