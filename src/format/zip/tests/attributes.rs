//! Names, modes, times, links.

use super::*;
use crate::format::codec::Codec;
use crate::format::codec::tests::streams;

fn attributes_of(member: Spec) -> Attributes {
    open(zip(&[member])).unwrap().attributes(0).unwrap()
}

#[test]
fn modes_come_from_unix_and_macos_and_from_the_read_only_bit_of_dos() {
    assert_eq!(attributes_of(unix("a", "x", 0o100_640)).mode, Some(0o640));
    assert_eq!(attributes_of(Spec { made_by: 19 << 8, ..unix("a", "x", 0o755) }).mode, Some(0o755));
    assert_eq!(attributes_of(Spec { external: 0x21, ..file("a", "x") }).mode, Some(0o444));
    assert_eq!(attributes_of(Spec { external: 0x20, ..file("a", "x") }).mode, None);
    // Attributes of another system are not used.
    assert_eq!(attributes_of(Spec { made_by: 7 << 8, ..unix("a", "x", 0o755) }).mode, None);
    let pkzip = Spec { made_by: 20, ..unix("a", "x", 0o100_600) };
    assert_eq!(attributes_of(pkzip).mode, Some(0o600));
}

#[test]
fn the_finest_time_counts() {
    let dos = Spec {
        dos_time: 20 << 25 | 2 << 21 | 29 << 16 | 12 << 11 | 30 << 5 | 29,
        ..file("a", "x")
    };
    assert_eq!(attributes_of(dos.clone()).modified, Some((951_827_458, 0)));
    let old = Spec { extra: field(0x5855, &[0, 0, 0, 0, 5, 0, 0, 0]), ..dos.clone() };
    assert_eq!(attributes_of(old.clone()).modified, Some((5, 0)));
    let stamp = field(0x5455, &[1, 0xff, 0xff, 0xff, 0xff]);
    let new = Spec { extra: [old.extra.clone(), stamp].concat(), ..dos.clone() };
    assert_eq!(attributes_of(new.clone()).modified, Some((-1, 0)));
    let units = (11_644_473_600u64 + 7) * 10_000_000 + 3;
    let times = [&[0; 4][..], &field(1, &units.to_le_bytes())].concat();
    let ntfs = Spec { extra: [new.extra, field(0x000a, &times)].concat(), ..dos };
    assert_eq!(attributes_of(ntfs).modified, Some((7, 300)));
    assert_eq!(attributes_of(file("a", "x")).modified, None);
}

#[test]
fn a_time_field_that_is_empty_or_cut_is_left_out_and_the_member_is_read() {
    let dos_time = 20 << 25 | 2 << 21 | 29 << 16 | 12 << 11 | 30 << 5 | 29;
    for value in [&b""[..], b"\x01", b"\x01\x02\x03\x04", b"\x06\x01\x02\x03\x04"] {
        let extra = field(0x5455, value);
        let member = Spec { dos_time, extra: extra.clone(), local_extra: extra, ..file("a", "x") };
        assert_eq!(attributes_of(member.clone()).modified, Some((951_827_458, 0)));
        assert_eq!(only(zip(&[member])), Some(b"x".to_vec()));
    }
}

#[test]
fn directories_are_members_without_bytes() {
    let members = [
        unix("d/", "", 0o040_750),
        unix("e", "", 0o040_700),
        Spec { external: 0x10, ..file("f", "") },
        unix("full", "content", 0o040_755),
        unix("lost/", "content", 0o040_755),
    ];
    let seen: Vec<_> = listed(zip(&members)).into_iter().map(|(_, seen)| seen).collect();
    let full = Seen::File(Some(b"content".to_vec()));
    assert_eq!(seen, [Seen::Directory, Seen::Directory, Seen::Directory, full, Seen::Directory]);
    let container = open(zip(&members)).unwrap();
    assert!(container.warnings()[0].contains("1 directory contains data"));
    let mut modes = Vec::new();
    let mut see = |member: Member| {
        modes.push(match member.node {
            Node::Directory(attributes) => attributes.mode,
            Node::Sample(_) => None,
        });
        Ok(())
    };
    container.members(&mut see).unwrap();
    assert_eq!(modes[..2], [Some(0o750), Some(0o700)]);
}

#[test]
fn devices_and_pipes_are_counted_not_shown_but_what_came_from_a_pipe_is() {
    let members = [
        unix("block", "", 0o060_600),
        unix("char", "", 0o020_600),
        unix("socket", "", 0o140_600),
        Spec { extra: field(0x000d, &[0; 12]), ..unix("fifo", "", 0o010_600) },
        unix("-", "content", 0o010_600),
        unix("empty", "", 0o010_600),
    ];
    let container = open(zip(&members)).unwrap();
    assert!(container.warnings()[0].contains("4 members are no file"));
    let seen = listed(zip(&members));
    let from_pipe = Seen::File(Some(b"content".to_vec()));
    assert_eq!(seen[0], (b"-".to_vec(), from_pipe));
    assert_eq!(seen[1], (b"empty".to_vec(), Seen::File(Some(Vec::new()))));
    assert_eq!(seen.len(), 2);
}

#[test]
fn symbolic_links_lead_where_their_content_or_pkwares_field_says() {
    let link = |name, target: &str| Spec { method: 8, ..unix(name, target, 0o120_777) };
    let members = [
        link("deflated", "where/to"),
        unix("stored", "up", 0o120_777),
        Spec { extra: pkware(b"pk"), ..unix("pkware", "", 0o120_777) },
        unix("too long", vec![b'x'; 4096], 0o120_777),
        Spec { crc32: Some(1), ..link("bad", "elsewhere") },
        Spec { method: 200, ..link("unknown", "elsewhere") },
    ];
    let seen: Vec<_> = listed(zip(&members)).into_iter().map(|(_, seen)| seen).collect();
    let to = |target: &str| Seen::Link(target.into());
    assert_eq!(seen[..3], [to("where/to"), to("up"), to("pk")]);
    assert_eq!(seen[3..], [Seen::File(None), Seen::File(None), Seen::File(None)]);
    let warnings = open(zip(&members)).unwrap().warnings().join("\n");
    assert!(warnings.contains("3 symbolic links cannot be read"), "{warnings}");
}

#[test]
fn only_so_many_links_are_read_whose_coding_takes_a_large_model_each() {
    let (_, coded) = streams(b"where/to").into_iter().find(|(c, _)| *c == Codec::Ppmd).unwrap();
    let link = |number: u32| {
        let link = unix(number.to_string(), "where/to", 0o120_777);
        Spec { method: 98, stored: Some(coded.clone()), ..link }
    };
    let links: Vec<_> = (0..70).map(link).collect();
    let warnings = open(zip(&links)).unwrap().warnings().join("\n");
    assert!(warnings.contains("6 symbolic links cannot be read"), "{warnings}");
}

fn hard(name: &str, target: &str) -> Spec {
    let link = unix(name, "", 0o100_644);
    Spec { external: link.external | 0x800, extra: pkware(target.as_bytes()), ..link }
}

#[test]
fn hard_links_are_further_names_of_a_sample() {
    let members = [hard("before", "real"), unix("real", "x", 0o100_644), hard("after", "before")];
    let container = open(zip(&members)).unwrap();
    assert_eq!((container.len(), container.attributes(0).unwrap().links), (1, 3));
    assert!(container.warnings().is_empty());
    for (_, seen) in listed(zip(&members)) {
        assert_eq!(seen, Seen::File(Some(b"x".to_vec())));
    }
}

#[test]
fn hard_links_that_lead_nowhere_or_around_or_to_a_directory_are_empty_files() {
    let members = [
        hard("nowhere", "gone"),
        hard("self", "self"),
        hard("one", "two"),
        hard("two", "one"),
        unix("d", "", 0o040_755),
        hard("kind", "d"),
    ];
    let container = open(zip(&members)).unwrap();
    assert_eq!(container.len(), 5);
    assert!(container.warnings()[0].contains("5 hard links lead to no member"));
    for (name, seen) in listed(zip(&members)) {
        let expected = if name == b"d" { Seen::Directory } else { Seen::File(Some(Vec::new())) };
        assert_eq!(seen, expected);
    }
}

#[test]
fn a_chain_of_hard_links_has_an_end() {
    let links = (0..200).map(|i| hard(&format!("{}", i + 1), &format!("{i}")));
    let members: Vec<_> = std::iter::once(unix("0", "x", 0o100_644)).chain(links).collect();
    let seen = listed(zip(&members));
    assert_eq!(seen[64].1, Seen::File(Some(b"x".to_vec())));
    assert_eq!(seen[200].1, Seen::File(Some(Vec::new())));
}

#[test]
fn names_are_in_the_set_that_all_of_them_together_suggest() {
    let stored = |names: &[&[u8]]| zip(&names.iter().map(|n| file(n, "")).collect::<Vec<_>>());
    let cases: &[(&'static encoding_rs::Encoding, &[&str])] = &[
        (encoding_rs::SHIFT_JIS, &["新しいテキスト文書.txt", "写真/東京タワー.jpg", "データ.csv"]),
        (encoding_rs::GBK, &["新建文本文档.txt", "训练数据/图像.jpg", "说明.txt"]),
        (encoding_rs::KOI8_R, &["Привет.txt", "документы/снимок.jpg", "данные.csv"]),
        (encoding_rs::EUC_KR, &["안녕하세요.txt", "사진/서울.jpg", "자료.csv"]),
    ];
    for (encoding, names) in cases {
        let bytes: Vec<_> = names.iter().map(|name| encoding.encode(name).0).collect();
        let bytes: Vec<&[u8]> = bytes.iter().map(AsRef::as_ref).collect();
        assert_eq!(names_with(stored(&bytes), None), *names, "{}", encoding.name());
        assert_eq!(names_with(stored(&bytes), Some(encoding.name())), *names);
    }
    // The same letters, as DOS and as Windows wrote them.
    assert_eq!(names_with(stored(&[b"\x81bung \x84hnlich.txt"]), None), ["übung ähnlich.txt"]);
    assert_eq!(names_with(stored(&[b"\xdcbung \xe4hnlich.txt"]), None), ["Übung ähnlich.txt"]);
    let warnings = open(stored(&[b"\x81bung \x84hnlich.txt"])).unwrap().warnings().join("");
    assert!(warnings.contains("cp437"), "{warnings}");
}

#[test]
fn a_weak_guess_gives_way_to_cp437() {
    let names: &[(&[u8], &str)] = &[
        (b"fran\x87ais", "français"),
        (b"cr\x82ation/l'\x82t\x82s.txt", "création/l'étés.txt"),
        (b"No\x89l.txt", "Noël.txt"),
        (b"gar\x87on.txt", "garçon.txt"),
        (b"ma\xa4ana.txt", "mañana.txt"),
    ];
    for (stored, shown) in names {
        assert_eq!(names_with(zip(&[file(stored, "")]), None), [*shown]);
    }
    let all: Vec<_> = names.iter().map(|(stored, _)| file(stored, "")).collect();
    let shown: Vec<_> = names.iter().map(|(_, shown)| *shown).collect();
    assert_eq!(names_with(zip(&all), None), shown);
    // Bytes that are control characters in windows-1252, in which these names would have more letters.
    let high: Vec<Vec<u8>> =
        (8..16_u8).map(|row| (0..16).map(|i| 16 * row + i).collect()).collect();
    let all: Vec<_> = high.iter().map(|name| file(name, "")).collect();
    let shown = names_with(zip(&all), None);
    assert_eq!(shown[..2], ["ÇüéâäàåçêëèïîìÄÅ", "ÉæÆôöòûùÿÖÜ¢£¥₧ƒ"]);
    // One odd byte does not decide for all names: 0x81 is a control character in windows-1252.
    let mut latin = vec![b"Gr\xf6\xdfe M\xfcller 00".to_vec(), b"odd \x81".to_vec()];
    latin.extend(
        (1..40_u8)
            .map(|i| [&b"Gr\xf6\xdfe M\xfcller "[..], &[b'0' + i / 10, b'0' + i % 10]].concat()),
    );
    let all: Vec<_> = latin.iter().map(|name| file(name, "")).collect();
    assert_eq!(names_with(zip(&all), None)[..1], ["Größe Müller 00"]);
    // Short names that are nevertheless Japanese.
    let shift_jis = [&b"\x90}1.png"[..], b"\x93\xfa\x96{.txt"].map(|name| file(name, ""));
    assert_eq!(names_with(zip(&shift_jis), None), ["図1.png", "日本.txt"]);
}

#[test]
fn names_that_say_what_they_are_need_no_guess() {
    let utf8 = Spec { flags: 1 << 11, ..file("grün", "") };
    let plain = file("straße", "");
    let unicode = |crc: u32, name: &str| {
        let value = [&[1][..], &crc.to_le_bytes(), name.as_bytes()].concat();
        Spec { extra: field(0x7075, &value), ..file(b"xx\x94", "") }
    };
    let right = unicode(crc32fast::hash(b"xx\x94"), "schön");
    let stale = unicode(7, "old");
    let bytes = zip(&[utf8, plain, right, stale]);
    assert_eq!(names_with(bytes.clone(), None), ["grün", "straße", "schön", "xxö"]);
    assert_eq!(names_with(bytes.clone(), Some("cp850"))[2..], ["schön", "xxö"]);
    let container =
        open_with(bytes, &OpenOptions { encoding: Some("raw".into()), ..OpenOptions::default() });
    let mut last = Vec::new();
    let mut see = |member: Member| {
        last = member.path.to_vec();
        Ok(())
    };
    container.unwrap().members(&mut see).unwrap();
    assert_eq!(last, b"xx\x94");
}

#[test]
fn character_sets_have_their_usual_names_and_others_are_refused() {
    for name in
        ["cp437", "IBM866", "437", "cp932", "Shift_JIS", "shift-jis", "gbk", "koi8-r", "raw"]
    {
        assert!(Charset::named(name).is_some(), "{name}");
    }
    let options = OpenOptions { encoding: Some("klingon".into()), ..OpenOptions::default() };
    let message = open_with(zip(&[file("a", "")]), &options).err().unwrap().to_string();
    assert!(message.contains("klingon"), "{message}");
}

#[test]
fn backslashes_on_unix_and_ways_out_stay_as_they_are_stored() {
    let names = ["a\\b", "../up", "/abs", "./here", "a//b", "", "nul\0"];
    let members: Vec<_> =
        names.iter().map(|name| Spec { made_by: UNIX, ..file(name, "x") }).collect();
    assert_eq!(names_with(zip(&members), None), names);
}

#[test]
fn backslashes_of_systems_that_write_them_are_slashes_but_not_those_within_a_letter() {
    let member = |host: u16, name: &[u8], data| Spec { made_by: host << 8, ..file(name, data) };
    let bytes = zip(&[
        member(0, b"a\\b", "x"),
        member(10, b"a\\c\\d", "x"),
        member(14, b"e\\", ""),
        // In Shift-JIS these two bytes are one letter, whose second byte is a backslash's.
        member(0, b"\x83\\\\1", "x"),
        member(11, b"f\\g", "x"),
        member(12, b"a\\b", "x"),
    ]);
    let shown = ["a/b", "a/c/d", "e/", "\u{30bd}/1", "f/g", "a\\b"];
    assert_eq!(names_with(bytes.clone(), Some("shift-jis")), shown);
    let container = open(bytes).unwrap();
    assert_eq!(container.len(), 5, "one is a directory");
    assert!(
        container.warnings().iter().any(|warning| warning.contains("5 names have backslashes"))
    );
}
