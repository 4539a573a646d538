//! Files that people try to mount and that no format here reads: named by their first bytes, with what to do.
//! Imports `bytes`, `error`, `magic` and `source`.

use super::bytes::u32_at;
use super::{Error, Source, magic};

/// What a file is instead of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Foreign {
    /// With its article, as in "is an ISO 9660 image".
    name: &'static str,
    /// What its owner can do.
    advice: &'static str,
}

const REPACK: &str = "unpack it, and pack the files with `ffrfs pack`, zip or tar";
const RECOMPRESS: &str = "decompress it, or compress it with xz or zstd";
const DOWNLOAD: &str = "the download has failed: look at its text";
const MOUNT: &str = "mount it with mount(8), or unpack it";
const ATTACH: &str = "attach it with qemu-nbd and mount that, or unpack it";
const AGE: &str = "decrypt it with age -d";
const GPG: &str = "decrypt it with gpg -d";
const KEEP: &str = "it is one sample: pack a directory of them with `ffrfs pack`, zip or tar";
const LOAD: &str = "it is no dataset: programs that run models load it as it is";
const EXPORT: &str = "write its samples to files, and pack them with `ffrfs pack`, zip or tar";

/// Where a mark stands, the mark, the file's name and the advice; as the formats' own specifications give them.
type Row = (usize, &'static [u8], &'static str, &'static str);

const ROWS: &[Row] = &[
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", REPACK),
    (0, b"Rar!\x1a\x07", "a RAR archive", REPACK),
    (0, b"MSCF\0\0\0\0", "a cabinet file", REPACK),
    (0, b"MSWIM\0\0\0", "a WIM image", REPACK),
    (0, b"!<arch>\n", "an ar archive", REPACK),
    (0, b"070701", "a cpio archive", REPACK),
    (0, b"070702", "a cpio archive", REPACK),
    (0, b"070707", "a cpio archive", REPACK),
    (0, b"\xc7\x71", "a cpio archive", REPACK),
    (0, b"\xed\xab\xee\xdb", "an RPM package", REPACK),
    (0, b"xar!", "a xar archive", REPACK),
    (0, b"\x04\x22\x4d\x18", "an lz4 file", "decompress it, or compress it with zstd"),
    (0, b"\x02\x21\x4c\x18", "an lz4 file", "decompress it, or compress it with zstd"),
    (0, b"LZIP\x01", "an lzip file", "decompress it, or compress it with zstd or xz"),
    (0, b"\x89LZO\0\r\n\x1a\n", "an lzop file", "decompress it, or compress it with zstd"),
    (0, b"\x1f\x9d", "a file of compress(1)", "decompress it, or compress it with zstd or gzip"),
    (0, b"age-encryption.org/", "a file encrypted with age", AGE),
    (0, b"-----BEGIN AGE ENCRYPTED FILE-----", "a file encrypted with age", AGE),
    (0, b"-----BEGIN PGP MESSAGE-----", "an OpenPGP message", GPG),
    // Of a password, as gpg writes it: AES-256 and AES-128.
    (0, b"\x8c\x0d\x04\x09\x03", "an OpenPGP message", GPG),
    (0, b"\x8c\x0d\x04\x07\x03", "an OpenPGP message", GPG),
    (0, b"Salted__", "a file encrypted with OpenSSL", "decrypt it with openssl enc -d"),
    (0, b"LUKS\xba\xbe", "a LUKS image", "open it with cryptsetup, and mount that"),
    (0, b"hsqs", "a squashfs image", MOUNT),
    (0, b"sqsh", "a squashfs image of a big-endian machine", REPACK),
    (0, b"DWARFS", "a dwarfs image", "mount it with dwarfs, or unpack it with dwarfsextract"),
    (1024, b"\xe2\xe1\xf5\xe0", "an erofs image", MOUNT),
    (1080, b"\x53\xef", "an ext2, ext3 or ext4 image", MOUNT),
    (0, b"XFSB", "an XFS image", MOUNT),
    (65_600, b"_BHRfS_M", "a btrfs image", MOUNT),
    (3, b"NTFS    ", "an NTFS image", MOUNT),
    (3, b"EXFAT   ", "an exFAT image", MOUNT),
    (0, b"QFI\xfb", "a qcow2 image", ATTACH),
    (0, b"KDMV", "a VMDK image", ATTACH),
    (64, b"\x7f\x10\xda\xbe", "a VDI image", ATTACH),
    (0, b"conectix", "a VHD image", ATTACH),
    (0, b"vhdxfile", "a VHDX image", ATTACH),
    (32_769, b"CD001", "an ISO 9660 image", MOUNT),
    (32_769, b"BEA01", "a UDF image", MOUNT),
    (0, b"ARROW1\0\0", "an Arrow file", EXPORT),
    (0, b"ORC", "ORC", EXPORT),
    (0, b"FEA1", "Feather of version 1", EXPORT),
    (0, b"Obj\x01", "Avro", EXPORT),
    (0, b"SEQ\x04", "a SequenceFile of Hadoop", EXPORT),
    (0, b"SEQ\x05", "a SequenceFile of Hadoop", EXPORT),
    (0, b"SEQ\x06", "a SequenceFile of Hadoop", EXPORT),
    (0, b"CDF\x01", "NetCDF of the classic form", EXPORT),
    (0, b"CDF\x02", "NetCDF of the classic form", EXPORT),
    (0, b"CDF\x05", "NetCDF of the classic form", EXPORT),
    (0, b"MATLAB 5.0 MAT-file", "a MATLAB file of version 5", EXPORT),
    (0, b"GGUF", "a model in GGUF", LOAD),
    (128, b"DICM", "a DICOM image", KEEP),
    (0, b"\0\0\0\x0cJXL \r\n\x87\n", "a JPEG XL image", KEEP),
    (0, b"\xde\xc0\xef\xbe", "the lock file of an LMDB database", "name its data.mdb"),
    (12, b"\xde\xc0\xef\xbe", "an LMDB database of a 32-bit machine", EXPORT),
    (16, b"\xbe\xef\xc0\xde", "an LMDB database of a big-endian machine", EXPORT),
    (0, b"SQLite format 3\0", "an SQLite database", EXPORT),
    (
        0,
        b"version https://git-lfs.github.com/",
        "a pointer of Git LFS and not the file itself",
        "git lfs pull fetches the file",
    ),
    (0, b"\x7fELF", PROGRAM.0, PROGRAM.1),
];

const PROGRAM: (&str, &str) = ("a program", "name the container");

/// Marks and their places, the file's name and the advice.
type Combined = (&'static [(usize, &'static [u8])], &'static str, &'static str);

/// What is told by several marks together, all of them in the head.
const COMBINED: &[Combined] = &[
    // The mark of a message, its length below 64 KiB, and a table that begins near.
    (&[(0, b"\xff\xff\xff\xff"), (6, b"\0\0"), (9, b"\0\0\0")], "a stream of Arrow", EXPORT),
    (&[(0, b"BM"), (6, b"\0\0\0\0")], "a BMP image", KEEP),
    // The usual properties and a whole dictionary, with no length or one below 2^48 bytes.
    (&[(0, b"\x5d\0\0"), (5, &[0xff; 8])], "an lzma file", RECOMPRESS),
    (&[(0, b"\x5d\0\0"), (11, b"\0\0")], "an lzma file", RECOMPRESS),
    // A session key for an RSA key of 2048, 3072 and 4096 bits, and for one of Curve25519.
    (&[(0, b"\x85\x01\x0c\x03"), (12, b"\x01")], "an OpenPGP message", GPG),
    (&[(0, b"\x85\x01\x8c\x03"), (12, b"\x01")], "an OpenPGP message", GPG),
    (&[(0, b"\x85\x02\x0c\x03"), (12, b"\x01")], "an OpenPGP message", GPG),
    (&[(0, b"\x84\x5e\x03"), (11, b"\x12")], "an OpenPGP message", GPG),
    (&[(54, b"FAT12   "), (510, b"\x55\xaa")], "a FAT image", MOUNT),
    (&[(54, b"FAT16   "), (510, b"\x55\xaa")], "a FAT image", MOUNT),
    (&[(82, b"FAT32   "), (510, b"\x55\xaa")], "a FAT image", MOUNT),
    // The method stands between: `-lh5-`.
    (&[(2, b"-lh"), (6, b"-")], "an LZH archive", REPACK),
    // A header below 256 bytes, of the archive and not of a file in it.
    (&[(0, b"\x60\xea"), (3, b"\0"), (10, b"\x02")], "an ARJ archive", REPACK),
];

const ZIP_AT_ITS_END: &str = "; --format zip mounts the zip archive at its end";
/// Said of a container behind what was found in it, before what to do.
pub(super) const AND_A_ZIP: &str = ", and a zip archive at its end (--format zip mounts it)";

/// More than the place of any mark, and its length.
const LONGEST_MARK: usize = 40;

/// The error for a file that no format here reads, if its first bytes tell what it is.
pub(super) fn refuse(source: &dyn Source) -> Option<Error> {
    let Foreign { name, advice } = recognize(source)?;
    Some(Error::Foreign { part: source.name().clone(), kind: name, advice, hint: "" })
}

/// What zip archives begin with, and programs that unpack the archive at their end.
const BEFORE_ZIP: [&[u8]; 4] = [b"PK", b"MZ", b"\x7fELF", b"#!"];

/// The error for a file that ends in a zip archive and begins as one of another format, of which the archive is a part
/// by design or by chance.
pub(super) fn refuse_with_zip(source: &dyn Source) -> Option<Error> {
    let mut head = [0; 4];
    let head = read(source, 0, &mut head);
    if BEFORE_ZIP.iter().any(|mark| head.starts_with(mark)) {
        return None;
    }
    let Foreign { name, advice } = recognize(source)?;
    let (part, hint) = (source.name().clone(), ZIP_AT_ITS_END);
    Some(Error::Foreign { part, kind: name, advice, hint })
}

fn recognize(source: &dyn Source) -> Option<Foreign> {
    let mut head = [0; 512];
    let head = read(source, 0, &mut head);
    let has = |&(at, mark, ..): &Row| match head.get(at..) {
        Some(rest) if rest.len() >= mark.len() => rest.starts_with(mark),
        _ => read(source, at as u64, &mut [0; LONGEST_MARK]).starts_with(mark),
    };
    let row = ROWS.iter().find(|row| has(row)).map(|&(_, _, name, advice)| (name, advice));
    let has_all = |marks: &[(usize, &[u8])]| {
        marks.iter().all(|&(at, mark)| head.get(at..).is_some_and(|rest| rest.starts_with(mark)))
    };
    let row = row.or_else(|| {
        let row = COMBINED.iter().find(|(marks, ..)| has_all(marks));
        row.map(|&(_, name, advice)| (name, advice))
    });
    let row = row.or_else(|| of_a_program(source, head)).or_else(|| of_an_array(source, head));
    let row = row.or_else(|| of_a_page(source));
    row.map(|(name, advice)| Foreign { name, advice }).or_else(|| of_a_sample(head))
}

/// A program of Windows: its header is where that of DOS says.
fn of_a_program(source: &dyn Source, head: &[u8]) -> Option<(&'static str, &'static str)> {
    let at = u32_at(head, 60).filter(|_| head.starts_with(b"MZ"))?;
    (read(source, at.into(), &mut [0; 4]) == b"PE\0\0").then_some(PROGRAM)
}

/// IDX, as MNIST is: bytes in a shape that takes the whole file.
fn of_an_array(source: &dyn Source, head: &[u8]) -> Option<(&'static str, &'static str)> {
    let (mark, lengths) = head.as_chunks::<4>().0.split_first()?;
    let [0, 0, 8, rank @ 1..=4] = *mark else { return None };
    let lengths = lengths.get(..usize::from(rank))?.iter().copied().map(u32::from_be_bytes);
    let bytes = lengths.map(u64::from).try_fold(1, u64::checked_mul)?;
    let header_bytes = u64::from(rank).saturating_mul(4).saturating_add(4);
    let is_whole = source.len().checked_sub(header_bytes) == Some(bytes);
    is_whole.then_some(("an IDX file", EXPORT))
}

/// What servers answer in place of a file.
fn of_a_page(source: &dyn Source) -> Option<(&'static str, &'static str)> {
    let mut head = [0; 256];
    let head = read(source, 0, &mut head);
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let head = head.to_ascii_lowercase();
    if [&b"<!doctype html"[..], b"<html"].iter().any(|mark| head.starts_with(mark)) {
        return Some(("a web page", DOWNLOAD));
    }
    let is_xml = head.starts_with(b"<?xml");
    let has_error = || {
        [&b"<error>"[..], b"<error "].iter().any(|mark| head.windows(7).any(|word| word == *mark))
    };
    match is_xml || head.starts_with(b"<error") {
        true if has_error() => Some(("an error message of a store", DOWNLOAD)),
        true if head.windows(5).any(|word| word == b"<html") => Some(("a web page", DOWNLOAD)),
        true => Some(("an XML document", KEEP)),
        false => None,
    }
}

/// The error for a file whose bytes no format knows and whose name is no format's either, if it is empty or looks like
/// text: then its name was mistaken for that of a container, or it is a list or a sample.
pub(super) fn refuse_text(source: &dyn Source) -> Option<Error> {
    let mut head = [0; 512];
    let head = read(source, 0, &mut head);
    let (kind, advice) = match head {
        [] if source.is_empty() => ("an empty file", "was it copied or downloaded to its end?"),
        _ if is_text(head) => {
            (kind_of_text(head), "name the container, or pack a directory of such files")
        }
        _ => return None,
    };
    Some(Error::Foreign { part: source.name().clone(), kind, advice, hint: "" })
}

/// What a text looks like by its beginning.
fn kind_of_text(head: &[u8]) -> &'static str {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let (first, second) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let after = head.get(1..).unwrap_or_default().trim_ascii_start().first();
    match head.first() {
        Some(b'{') if first.ends_with(b"}") && second.starts_with(b"{") => "a JSON lines file",
        Some(b'{') if matches!(after, Some(b'"' | b'}')) => "a JSON file",
        Some(b'[') if matches!(after, Some(b'"' | b'{' | b'[' | b']' | b'-' | b'0'..=b'9')) => {
            "a JSON file"
        }
        _ => {
            // As many separators in both of the first lines; the second may be cut.
            let has_rest = lines.next().is_some();
            let count = |line: &[u8], mark| line.iter().filter(|byte| **byte == mark).count();
            let is_table = |&mark: &u8| {
                let columns = count(first, mark);
                columns > 0 && has_rest && columns == count(second, mark)
            };
            match [b',', b'\t', b';'].iter().find(|mark| is_table(mark)) {
                Some(b'\t') => "a TSV file",
                Some(_) => "a CSV file",
                None => "a text file",
            }
        }
    }
}

/// Whether bytes are UTF-8, cut at most in its last letter, without control characters that texts do not have.
fn is_text(bytes: &[u8]) -> bool {
    /// Fewer bytes could be anything.
    const LEAST: usize = 4;
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            let whole = bytes.get(..error.valid_up_to()).unwrap_or_default();
            std::str::from_utf8(whole).unwrap_or_default()
        }
        Err(_) => return false,
    };
    let is_usual = |c: char| !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\u{c}');
    text.len() >= LEAST && text.chars().all(is_usual)
}

/// A file that would be one sample of a dataset.
fn of_a_sample(head: &[u8]) -> Option<Foreign> {
    let name = match magic::sniff(head)?.suffix {
        ".jpg" => "a JPEG image",
        ".png" => "a PNG image",
        ".gif" => "a GIF image",
        ".webp" => "a WebP image",
        ".tif" => "a TIFF image",
        ".jp2" => "a JPEG 2000 image",
        ".avif" => "an AVIF image",
        ".heic" => "a HEIC image",
        ".npy" => "a NumPy array",
        ".wav" | ".flac" | ".ogg" | ".mp3" => "an audio file",
        ".avi" | ".mp4" | ".mkv" => "a video",
        ".pdf" => "a PDF document",
        ".pkl" => "a Python pickle",
        _ => return None,
    };
    Some(Foreign { name, advice: KEEP })
}

/// The bytes at a place, as many as there are; none if they cannot be read.
fn read<'a>(source: &dyn Source, at: u64, into: &'a mut [u8]) -> &'a [u8] {
    let left = usize::try_from(source.len().saturating_sub(at)).unwrap_or(usize::MAX);
    let Some(into) = into.get_mut(..left.min(into.len())) else { return &[] };
    match source.read_exact_at(into, at) {
        Ok(()) => into,
        Err(_) => &[],
    }
}

#[cfg(test)]
mod tests {
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
            // What the format itself says of it stays.
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

    /// The first sector of a file system that has this name at this place.
    fn boot_sector(at: usize, name: &[u8]) -> Vec<u8> {
        let mut sector = b"\xeb\x3c\x90mkfs.fat".to_vec();
        sector.resize(at, 0);
        sector.extend_from_slice(name);
        sector.resize(510, 0);
        [&sector[..], b"\x55\xaa"].concat()
    }

    /// A program of DOS, and what it names at byte 64.
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
        // Of a container's name its own reader says best what is wrong.
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
            // Each lacks a mark, or a byte.
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
}
