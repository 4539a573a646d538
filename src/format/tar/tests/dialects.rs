//! The fields of each dialect, and the files that are shown where readers differ.

use super::writer::Block;
use super::*;
use crate::format::Format;

fn attributes(bytes: &[u8], index: u64) -> Attributes {
    opened(bytes).unwrap().attributes(index).unwrap()
}

#[test]
fn v7_members_are_shown_and_a_name_with_a_slash_is_a_directory() {
    let mut writer = Writer::default();
    // Old writers gave directories a size without data.
    writer.block(&Block::new(0, b"d/", 1)).block(&Block::new(0, b"d/f", 3)).data(b"abc");
    writer
        .block(Block::new(0, b"odd", 2).set(100, b"   644 \0").set(124, b"          2 "))
        .data(b"hi");
    let bytes = writer.end();
    assert_eq!(
        list(&bytes),
        [("d/".to_owned(), Shown::Directory), file("d/f", b"abc"), file("odd", b"hi")]
    );
    assert_eq!(attributes(&bytes, 1).mode, Some(0o644));
}

#[test]
fn a_ustar_prefix_stands_before_the_name_and_may_fill_its_field() {
    let (prefix, name) = ([b'p'; 155], [b'n'; 100]);
    let mut writer = Writer::default();
    writer.block(Block::new(b'0', &name, 0).ustar().set(345, &prefix));
    let path = [&prefix[..], b"/", &name].concat();
    assert_eq!(names(&writer.end()), [String::from_utf8(path).unwrap()]);
}

#[test]
fn gnu_times_in_the_place_of_the_prefix_are_no_prefix() {
    let mut writer = Writer::default();
    writer.block(Block::new(b'0', b"f", 0).gnu().set(345, b"13000000000\0"));
    assert_eq!(names(&writer.end()), ["f"]);
}

#[test]
fn a_star_prefix_ends_before_its_times() {
    let mut writer = Writer::default();
    let mut block = Block::new(b'0', b"f", 0);
    block.ustar().set(345, b"dir").set(476, b"13000000000 13000000000 ").set(508, b"tar\0");
    writer.block(&block);
    assert_eq!(names(&writer.end()), ["dir/f"]);
}

#[test]
fn gnu_long_names_and_targets_hold_for_the_next_member_and_the_last_one_counts() {
    let (long, target) = ("n/".repeat(150), "t".repeat(300));
    let mut writer = Writer::default();
    writer.long(b'L', b"not this one").long(b'L', long.as_bytes()).long(b'K', target.as_bytes());
    writer.link(b'2', "short", "short").file("next", b"x");
    assert_eq!(
        list(&writer.end()),
        [(long, Shown::Symlink(target.into_bytes())), file("next", b"x")]
    );
}

#[test]
fn pax_records_override_the_header() {
    let mut writer = Writer::default();
    writer.pax(b'x', &[("path", "ü/é".as_bytes()), ("size", b"4"), ("mtime", b"-1.25")]);
    writer.block(Block::new(b'0', b"short", 0).ustar()).data(b"data");
    writer.pax(b'X', &[("linkpath", b"far")]).link(b'2', "link", "near");
    let bytes = writer.end();
    let container = opened(&bytes).unwrap();
    let shown = shown(container.as_ref(), &bytes);
    assert_eq!(shown[0].1, Shown::File(b"data".to_vec()));
    assert_eq!(shown[1], ("link".to_owned(), Shown::Symlink(b"far".to_vec())));
    assert_eq!(attributes(&bytes, 0).modified, Some((-2, 750_000_000)));
}

#[test]
fn global_records_hold_until_a_local_one_says_otherwise() {
    let mut writer = Writer::default();
    writer.pax(b'g', &[("mtime", b"77"), ("path", b"one name for all")]).file("a", b"");
    writer
        .pax(b'x', &[("mtime", b"88")])
        .file("b", b"")
        .pax(b'x', &[("mtime", b"")])
        .file("c", b"");
    let bytes = writer.end();
    let seconds = |index| attributes(&bytes, index).modified.unwrap().0;
    assert_eq!((seconds(0), seconds(1), seconds(2)), (77, 88, 1));
    assert_eq!(names(&bytes), ["a", "b", "c"]);
}

#[test]
fn a_global_header_alone_is_an_empty_archive() {
    assert_eq!(names(&Writer::default().pax(b'g', &[("comment", b"x")]).end()), [""; 0]);
}

#[test]
fn sizes_and_times_in_base_256_are_read() {
    let mut writer = Writer::default();
    let mut block = Block::new(b'0', b"f", 0);
    block.gnu().set(124, b"\x80\0\0\0\0\0\0\0\0\0\0\x03");
    block.set(136, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe");
    let bytes = writer.block(&block).data(b"abc").end();
    assert_eq!(list(&bytes), [file("f", b"abc")]);
    assert_eq!(attributes(&bytes, 0).modified, Some((-2, 0)));
}

#[test]
fn a_hard_link_is_a_further_name_of_its_target() {
    let mut writer = Writer::default();
    writer.file("a", b"old").file("./d//a", b"abc").link(b'1', "b", "d/a").link(b'1', "c", "b");
    let bytes = writer.link(b'2', "s", "x").link(b'1', "t", "/s").file("a", b"new").end();
    let container = opened(&bytes).unwrap();
    assert_eq!(container.len(), 4);
    assert_eq!(attributes(&bytes, 1).links, 3);
    let shown = list(&bytes);
    assert_eq!(shown[3], file("c", b"abc"));
    assert_eq!(shown[5], ("t".to_owned(), Shown::Symlink(b"x".to_vec())));
}

#[test]
fn a_hard_link_leads_to_the_last_member_of_the_name_before_it_else_to_a_later_one() {
    let mut writer = Writer::default();
    writer
        .link(b'1', "early", "a")
        .file("a", b"1")
        .file("a", b"2")
        .link(b'1', "l", "a")
        .file("a", b"3");
    let shown = list(&writer.end());
    assert_eq!(shown[3], file("l", b"2"));
    assert_eq!(shown[0], file("early", b"3"));
}

#[test]
fn a_hard_link_to_nothing_is_there_and_cannot_be_read() {
    let mut writer = Writer::default();
    let bytes = writer.link(b'1', "l", "gone").link(b'1', "self", "self").file("f", b"x").end();
    let shown = list(&bytes);
    assert_eq!((&shown[0].1, &shown[1].1), (&Shown::Damaged, &Shown::Damaged));
    assert_eq!(shown[2], file("f", b"x"));
    assert!(opened(&bytes).unwrap().warnings()[0].contains("2 hard links"));
}

#[test]
fn a_hard_link_has_data_of_its_own_where_pax_says_so() {
    let mut writer = Writer::default();
    let mut link = Block::new(b'1', b"l", 3);
    writer.file("f", b"abc").pax(b'x', &[("mtime", b"1")]);
    writer.block(link.ustar().set(157, b"f")).data(b"abc").file("g", b"");
    let bytes = writer.end();
    assert_eq!(list(&bytes), [file("f", b"abc"), file("l", b"abc"), file("g", b"")]);
    assert_eq!(opened(&bytes).unwrap().len(), 3);
}

#[test]
fn the_size_of_a_hard_link_means_data_only_where_no_header_follows() {
    for is_v7 in [true, false] {
        let mut link = Block::new(b'1', b"l", 3);
        link.set(157, b"f");
        if !is_v7 {
            link.ustar();
        }
        let bytes = Writer::default().file("f", b"abc").block(&link).file("g", b"g").end();
        assert_eq!(list(&bytes), [file("f", b"abc"), file("l", b"abc"), file("g", b"g")]);
        let bytes = Writer::default().file("f", b"abc").block(&link).0.clone();
        assert_eq!(list(&bytes), [file("f", b"abc"), file("l", b"abc")]);
    }
    let mut link = Block::new(b'1', b"l", 3);
    let mut writer = Writer::default();
    writer.file("f", b"").block(link.ustar().set(157, b"f")).data(b"abc").file("g", b"g");
    assert_eq!(list(&writer.end())[1], file("l", b"abc"));
}

#[test]
fn directories_keep_their_mode_and_time_and_incremental_dumps_are_directories() {
    let mut writer = Writer::default();
    let mut directory = Block::new(b'5', b"d/", 0);
    writer.block(directory.ustar().set(100, b"0042755\0"));
    writer.block(Block::new(b'D', b"dump/", 6).gnu()).data(b"Yf\0\0ab").file("f", b"x");
    let bytes = writer.end();
    assert_eq!(names(&bytes), ["d/", "dump/", "f"]);
    let mut found = None;
    let container = opened(&bytes).unwrap();
    container
        .members(&mut |member| {
            if let Node::Directory(attributes) = member.node {
                found.get_or_insert(attributes);
            }
            Ok(())
        })
        .unwrap();
    let found = found.unwrap();
    assert_eq!((found.mode, found.modified), (Some(0o2755), Some((1, 0))));
}

#[test]
fn devices_and_pipes_are_counted_labels_and_access_lists_are_passed_over() {
    let mut writer = Writer::default();
    for kind in *b"346" {
        writer.member(kind, "special", b"");
    }
    writer.member(b'V', "label", b"").member(b'A', "f", b"access").member(b'N', "n", b"names");
    let bytes = writer.file("f", b"x").end();
    assert_eq!(list(&bytes), [file("f", b"x")]);
    assert!(opened(&bytes).unwrap().warnings()[0].contains("3 devices and pipes"));
}

#[test]
fn contiguous_and_unknown_members_are_files() {
    let bytes = Writer::default().member(b'7', "c", b"c").member(b'Z', "z", b"z").end();
    assert_eq!(list(&bytes), [file("c", b"c"), file("z", b"z")]);
}

#[test]
fn a_volume_that_goes_on_from_another_is_refused_unless_damage_is_allowed() {
    let mut block = Block::new(b'M', b"f", 3);
    let bytes = Writer::default().block(block.gnu()).data(b"abc").file("g", b"g").end();
    assert!(refusal(&bytes).contains("at byte 0: expected a whole archive"));
    let container = salvaged(&bytes).unwrap();
    let shown = shown(container.as_ref(), &bytes);
    assert_eq!(shown, [("f".to_owned(), Shown::Damaged), file("g", b"g")]);
}

#[test]
fn archives_that_stand_one_behind_the_other_are_one() {
    let mut bytes = Writer::default().file("a", b"a").end();
    bytes.resize(10240, 0);
    bytes.extend(Writer::default().file("b", b"b").end());
    assert_eq!(list(&bytes), [file("a", b"a"), file("b", b"b")]);
}

#[test]
fn zeros_alone_are_an_empty_archive_and_other_bytes_behind_them_are_none() {
    assert_eq!(names(&[0; 10240]), [""; 0]);
    assert_eq!(names(&[0; 1024]), [""; 0]);
    let mut other = vec![0; 10240];
    other[9000] = 1;
    assert_eq!(Tar.detect(source(&other).as_ref()).unwrap(), Detected::No);
    assert!(refusal(&other).contains("at byte 8704: expected a header with the right checksum"));
    assert_eq!(Tar.detect(source(&[0; 512]).as_ref()).unwrap(), Detected::No);
    let named = |name| Tar.detect(&MemorySource::new(name, vec![0; 1024])).unwrap();
    assert_eq!(named("member"), Detected::Perhaps);
    assert_eq!(named("x.TAR"), Detected::Perhaps);
    assert_eq!(named("x.ffr"), Detected::No);
}

#[test]
fn what_follows_the_end_is_passed_over_with_a_warning() {
    let mut bytes = Writer::default().file("a", b"a").end();
    bytes.extend([b'x'; 700]);
    assert_eq!(list(&bytes), [file("a", b"a")]);
    assert!(opened(&bytes).unwrap().warnings()[0].contains("byte 2048"));
}

#[test]
fn an_archive_without_its_end_mark_is_whole_with_a_warning() {
    let bytes = Writer::default().file("a", b"a").0.clone();
    assert_eq!(list(&bytes), [file("a", b"a")]);
    assert!(opened(&bytes).unwrap().warnings()[0].contains("no end mark"));
    // The last block need not be filled up either.
    assert_eq!(list(&bytes[..513]), [file("a", b"a")]);
}

#[test]
fn names_are_decoded_where_the_character_set_is_given_but_not_those_of_pax() {
    let mut writer = Writer::default();
    writer.block(Block::new(b'0', b"\xd0\xd2\xc9", 0).ustar());
    writer.pax(b'x', &[("path", "при".as_bytes())]).file("x", b"");
    writer.pax(b'x', &[("hdrcharset", b"BINARY"), ("path", b"\xd0\xd2\xc9")]).file("x", b"");
    let bytes = writer.end();
    assert_eq!(names(&bytes)[0], "ÐÒÉ");
    let options = OpenOptions { encoding: Some("koi8-r".to_owned()), ..OpenOptions::default() };
    let container = open(source(&bytes), &options).unwrap();
    container
        .members(&mut |member| {
            assert_eq!(member.path, "при".as_bytes());
            Ok(())
        })
        .unwrap();
    let options = OpenOptions { encoding: Some("klingon".to_owned()), ..OpenOptions::default() };
    assert!(open(source(&bytes), &options).is_err());
}

#[test]
fn names_that_no_directory_can_hold_come_as_they_are() {
    let mut writer = Writer::default();
    writer
        .file("/abs", b"")
        .file("../up", b"")
        .file("", b"")
        .pax(b'x', &[("path", b"a\0b")])
        .file("x", b"");
    assert_eq!(names(&writer.end()), ["/abs", "../up", "", "a\0b"]);
}
