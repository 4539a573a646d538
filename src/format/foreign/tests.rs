//! Files of other formats, text and samples; files that begin as one of them and end in a zip.

use super::super::{MemorySource, OpenOptions};
use super::*;
use std::sync::Arc;

fn message(bytes: Vec<u8>) -> String {
    let source = MemorySource::new("/data/train.x", bytes);
    super::super::recognize(&source, &OpenOptions::default())
        .err()
        .expect("no format reads it")
        .to_string()
}

#[test]
fn a_foreign_file_is_named_with_what_to_do() {
    for &(at, mark, name, advice) in ROWS {
        let mut bytes = vec![0; at];
        bytes.extend_from_slice(mark);
        bytes.resize(80_000, 0);
        let said = message(bytes);
        let wanted = format!("/data/train.x is {name}, which ffrfs does not mount: {advice}");
        assert_eq!(said, wanted);
    }
}

/// An empty file of this name, and the directory and the end record of it.
fn zip() -> Vec<u8> {
    let mut out = b"PK\x03\x04\x14".to_vec();
    out.extend([0; 21]);
    out.extend(b"\x01\0\0\0a");
    out.extend(b"PK\x01\x02\x14\0\x14");
    out.extend([0; 21]);
    out.extend(b"\x01\0");
    out.extend([0; 16]);
    out.extend(b"a");
    out.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0\x2f\0\0\0\x1f\0\0\0\0\0");
    out
}

#[test]
fn a_file_of_another_format_that_ends_in_a_zip_is_refused_with_the_way_to_mount_that() {
    let zip = zip();
    for &(at, mark, name, _) in ROWS.iter().filter(|row| !BEFORE_ZIP.contains(&row.1)) {
        let mut bytes = vec![b'x'; at];
        bytes.extend_from_slice(mark);
        bytes.resize(80_000, b'x');
        bytes.extend_from_slice(&zip);
        let source = MemorySource::new("/data/a.x", bytes);
        let refused = super::super::recognize(&source, &OpenOptions::default());
        let said = refused.err().expect("another format").to_string();
        assert!(said.contains(name) && said.ends_with(ZIP_AT_ITS_END), "{said}");
        let meant = OpenOptions { format: Some("zip"), ..OpenOptions::default() };
        assert_eq!(super::super::recognize(&source, &meant).expect("a zip").name(), "zip");
    }
    // A program may have a file system's mark by chance.
    let program = [&b"MZ"[..], &[0; 1078], b"\x53\xef"].concat();
    for front in [&b""[..], b"\x7fELF", b"MZ", b"#!/bin/sh\n", &program] {
        let source = MemorySource::new("/data/a.x", [front, &zip].concat());
        let found = super::super::recognize(&source, &OpenOptions::default());
        assert_eq!(found.expect("a zip").name(), "zip", "{front:?}");
    }
}

#[test]
fn a_damaged_file_of_a_known_format_that_ends_in_a_zip_is_refused_with_the_way_to_mount_that() {
    for head in [&b"\x89HDF\r\n\x1a\n"[..], b"PAR1", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0"] {
        let bytes = [head, &[b'x'; 100], &zip()].concat();
        let source = Arc::new(MemorySource::new("/data/a.x", bytes));
        let refused = super::super::open(source, &OpenOptions::default());
        let said = refused.err().expect("it is damaged").to_string();
        assert!(said.contains(AND_A_ZIP), "{said}");
        // The format's own message about the file stays.
        assert!(
            head != b"PAR1" || said.ends_with(": the file is truncated, or was not finished"),
            "{said}"
        );
        let alone = Arc::new(MemorySource::new("/data/a.x", [head, &[b'x'; 100]].concat()));
        let refused = super::super::open(alone, &OpenOptions::default());
        let said = refused.err().expect("it is damaged").to_string();
        assert!(!said.contains("--format zip"), "{said}");
    }
}

#[test]
fn an_image_for_disks_and_discs_is_that_of_a_disc() {
    let mut bytes = vec![0; 80_000];
    bytes[512..520].copy_from_slice(b"EFI PART");
    assert!(message(bytes.clone()).contains("is a disk image with partitions (GPT), which"));
    bytes[32_769..32_774].copy_from_slice(b"CD001");
    assert!(message(bytes).contains("is an ISO 9660 image, which"));
}

/// The first sector of a file system whose name stands at offset `at`.
fn boot_sector(at: usize, name: &[u8]) -> Vec<u8> {
    let mut sector = b"\xeb\x3c\x90mkfs.fat".to_vec();
    sector.resize(at, 0);
    sector.extend_from_slice(name);
    sector.resize(510, 0);
    [&sector[..], b"\x55\xaa"].concat()
}

/// A program of DOS, which says that its new header is at byte 64, where `header` stands.
fn program(header: &[u8]) -> Vec<u8> {
    [&b"MZ"[..], &[0; 58], b"\x40\0\0\0", header].concat()
}

#[test]
fn what_is_told_by_more_than_one_mark_is_named() {
    let stream = b"\xff\xff\xff\xff\x78\0\0\0\x10\0\0\0\0\0\x0a\0\x0c\0";
    let lzma = b"\x5d\0\0\x80\0\xff\xff\xff\xff\xff\xff\xff\xff\0\x30";
    let sized = b"\x5d\0\0\0\x01\x10\x27\0\0\0\0\0\0\0\x30";
    for (bytes, name) in [
        (&stream[..], "a stream of Arrow"),
        (lzma, "an lzma file"),
        (sized, "an lzma file"),
        (b"BM\x36\x10\0\0\0\0\0\0\x36\0\0\0", "a BMP image"),
        (b"\x85\x01\x0c\x0312345678\x01\x08\0", "an OpenPGP message"),
        (b"\x85\x01\x8c\x0312345678\x01\x0b\xff", "an OpenPGP message"),
        (b"\x85\x02\x0c\x0312345678\x01\x10\0", "an OpenPGP message"),
        (b"\x84\x5e\x0312345678\x12\x01\x07", "an OpenPGP message"),
        (&boot_sector(54, b"FAT12   "), "a FAT image"),
        (&boot_sector(54, b"FAT16   "), "a FAT image"),
        (&boot_sector(82, b"FAT32   "), "a FAT image"),
        (b"\x20\x10-lh5-\0\0", "an LZH archive"),
        (b"\x60\xea\x2a\0\x1e\x0b\x01\0\x10\0\x02\0", "an ARJ archive"),
        (b"\0\0\x08\x01\0\0\0\x05abcde", "an IDX file"),
        (b"\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x02abcd", "an IDX file"),
        (&program(b"PE\0\0"), "a program"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "a HEIC image"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0", "a HEIC image"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", "a HEIC image"),
        (b"\0\0\0\x1cftypmif1\0\0\0\0mif1avifmiaf", "an AVIF image"),
        (b"\0\0\0\x14ftypmif1\0\0\0\0mif1avif", "a HEIC image"),
        (b"\0\0\0\x20ftypavis\0\0\0\0", "an AVIF image"),
        (b"\0\0\0\x20ftypisom\0\0\0\0", "a video"),
        (b"\n<!DOCTYPE HTML PUBLIC", "a web page"),
        (b"<html lang=en>", "a web page"),
        (
            b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>NoSuchKey",
            "an error message of a store",
        ),
        (b"<Error><Code>AccessDenied", "an error message of a store"),
        (b"<?xml version=\"1.0\"?><annotation>", "an XML document"),
    ] {
        let said = message(bytes.to_vec());
        assert!(said.contains(&format!("is {name}, which ffrfs does not mount")), "{said}");
    }
}

#[test]
fn text_and_empty_files_are_named_if_their_names_are_no_containers() {
    let cut = ["größe,".repeat(73).as_bytes(), "größ".as_bytes()].concat();
    let texts: [(&[u8], &str); 11] = [
        (b"images/1.jpg\r\n", "a text file"),
        (&cut, "a text file"),
        (b"one, two\nand so on\n", "a text file"),
        (b"[section]\nkey = 1, 2\n", "a text file"),
        (b"a,b\n1,2\n", "a CSV file"),
        (b"path;label\r\n1.jpg;7\r\n", "a CSV file"),
        (b"a\tb\n1\t2\n", "a TSV file"),
        (b"{\"a\": [1]}", "a JSON file"),
        (b" [\n  {\"a\": 1},\n  {\"a\": 2}\n]", "a JSON file"),
        (b"{\"a\": 1, \"b\": 2}\n", "a JSON file"),
        (b"{\"a\": 1}\n{\"a\": 2}\n", "a JSON lines file"),
    ];
    for (text, kind) in texts {
        let said = message(text.to_vec());
        assert!(said.contains(&format!("is {kind}, which")), "{said}");
    }
    assert!(message(Vec::new()).contains("is an empty file, which"));
    // Whatever the file's name, or the format that is asked for.
    let zip = Some("zip");
    for (name, format) in [("a.zip", None), ("a.tar.gz", None), ("a.gz", None), ("a", zip)] {
        let source = Arc::new(MemorySource::new(name, Vec::new()));
        let options = OpenOptions { format, ..OpenOptions::default() };
        let said = super::super::open(source, &options).err().expect("no container").to_string();
        assert!(said.starts_with(&format!("{name} is an empty file, which")), "{said}");
    }
    // If the file has a container's name, the reader of that format has the best message.
    let source = Arc::new(MemorySource::new("/data/a.zip", b"no container".to_vec()));
    let refused = super::super::open(source, &OpenOptions::default());
    let said = refused.err().expect("no zip").to_string();
    assert!(said.contains("not a usable zip container"), "{said}");
}

#[test]
fn samples_are_named_too() {
    let png = b"\x89PNG\r\n\x1a\n0123456789".to_vec();
    assert!(message(png).contains("is a PNG image, which ffrfs does not mount: it is one"));
}

#[test]
fn other_bytes_are_of_no_known_format() {
    let others: [&[u8]; 11] = [
        b"7z",
        &[1; 100],
        &[0; 33_000],
        b"text\xff\n\n\n",
        // Each of these lacks a mark, or a byte.
        b"\x85\x01\x0c\x0312345678\x02\x08\0",
        &boot_sector(54, b"FAT16"),
        b"\x60\xea\x2a\0\x1e\x0b\x01\0\x10\0\x01\0",
        b"\0\0\x08\x01\0\0\0\x06abcde",
        b"\0\0\x08\x05\0\0\0\x06abcdef",
        b"\0\0\x08\x04\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        &program(b"NE\0\0"),
    ];
    for bytes in others.map(<[u8]>::to_vec) {
        let said = message(bytes);
        assert!(said.contains("of no known format"), "{said}");
    }
}
