mod kept;
mod member;

use super::*;
use crate::format::codec::tests::{streams, text};
use crate::format::{ChecksumKind, Content, Kind, MemorySource, open};

fn opened(name: &str, bytes: Vec<u8>) -> Result<Box<dyn Container>> {
    open(Arc::new(MemorySource::new(name, bytes)), &OpenOptions::default())
}

fn header(name: &str, size: u64, kind: u8) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..108].copy_from_slice(b"0000644\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"00000001750\0");
    block[148..156].fill(b' ');
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn tar(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, data) in files {
        out.extend(header(name, data.len() as u64, b'0'));
        out.extend(data);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

fn names(container: &dyn Container) -> Vec<String> {
    let mut names = Vec::new();
    container
        .members(&mut |member| {
            names.push(String::from_utf8_lossy(member.path).into_owned());
            Ok(())
        })
        .unwrap();
    names
}

/// The bytes of a sample, read as by an engine that decodes each sample by itself.
fn shown(container: &dyn Container, stored: &[u8], index: u64) -> Result<Vec<u8>> {
    let sample = container.sample(index)?;
    let mut out = vec![0; sample.size_bytes() as usize];
    let extent = &stored[sample.offset_bytes as usize..sample.end_bytes() as usize];
    if matches!(sample.content, Content::Encoded(_)) {
        container.decode(index, extent, &mut out)?;
    }
    Ok(out)
}

/// The bytes of a sample, read through the stream and its intervals.
fn shown_through_stream(container: &dyn Container, stored: &[u8], index: u64) -> Vec<u8> {
    let stream = container.stream().unwrap();
    let mut out = vec![0; container.sample(index).unwrap().size_bytes() as usize];
    let mut at = 0;
    while let Some(piece) = container.piece(index, at).unwrap() {
        for i in 0..piece.length_bytes {
            let interval = stream.interval(piece.offset_bytes + i).unwrap();
            if i > 0 && interval.decoded.start != piece.offset_bytes + i {
                continue;
            }
            let mut decoded = vec![0; (interval.decoded.end - interval.decoded.start) as usize];
            let bytes = &stored[interval.stored.start as usize..interval.stored.end as usize];
            stream.decode(interval.number, bytes, &mut decoded).unwrap();
            let to = &mut out[piece.at_bytes as usize..][..piece.length_bytes as usize];
            file::copy_common(&decoded, interval.decoded.start, to, piece.offset_bytes);
        }
        at = piece.at_bytes + piece.length_bytes;
    }
    out
}

const MOUNTABLE: [Codec; 5] = [Codec::Gzip, Codec::Bzip2, Codec::Xz, Codec::Zstd, Codec::Zlib];

#[test]
fn members_of_a_compressed_tar_are_ranges_of_its_stream() {
    let files: Vec<_> = [0, 1, 3000, 5_000_000, 511, 700_000]
        .iter()
        .enumerate()
        .map(|(i, length)| (format!("directory/{i}.txt"), text(*length)))
        .collect();
    for (codec, stored) in streams(&tar(&files)) {
        if !MOUNTABLE.contains(&codec) {
            continue;
        }
        let container = opened("data.bin", stored.clone()).unwrap();
        assert_eq!(container.len(), files.len() as u64, "{codec:?}");
        assert!(names(container.as_ref()).iter().eq(files.iter().map(|(name, _)| name)));
        for (i, (_, data)) in files.iter().enumerate() {
            let is_right = shown(container.as_ref(), &stored, i as u64).unwrap() == *data;
            assert!(is_right, "{codec:?} {i}");
        }
        let piece = container.piece(4, 0).unwrap().unwrap();
        assert_eq!(piece.length_bytes, 511);
        assert!(shown_through_stream(container.as_ref(), &stored, 4) == files[4].1);
        assert_eq!(container.attributes(2).unwrap().modified, Some((0o1750, 0)));
    }
}

#[test]
fn a_sparse_member_of_a_compressed_tar_has_holes_and_data() {
    // GNU's old way: the map stands in the header. 4096 bytes, with 512 at 1024 and 100 at 3000.
    let mut head = header("sparse", 1024, b'S');
    head[257..265].copy_from_slice(b"ustar  \0");
    let mut fields = vec![(386, 1024_u64), (398, 512), (410, 3000), (422, 100), (483, 4096)];
    for (at, value) in fields.drain(..) {
        head[at..at + 12].copy_from_slice(format!("{value:011o}\0").as_bytes());
    }
    head[124..136].copy_from_slice(b"00000001144\0");
    head[148..156].fill(b' ');
    let sum: u32 = head.iter().map(|b| u32::from(*b)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let data = text(612);
    let archive = [head, data.clone(), vec![0; 412 + 1024]].concat();
    let mut expected = vec![0; 4096];
    expected[1024..1536].copy_from_slice(&data[..512]);
    expected[3000..3100].copy_from_slice(&data[512..]);
    for (codec, stored) in streams(&archive).into_iter().filter(|(c, _)| MOUNTABLE.contains(c)) {
        let container = opened("sparse.tar.x", stored.clone()).unwrap();
        assert_eq!(container.sample(0).unwrap().content, Content::Encoded(4096), "{codec:?}");
        assert_eq!(shown(container.as_ref(), &stored, 0).unwrap(), expected);
        assert_eq!(shown_through_stream(container.as_ref(), &stored, 0), expected);
    }
}

#[test]
fn another_file_is_shown_alone_under_its_own_name() {
    let data = text(100_000);
    for (codec, stored) in streams(&data).into_iter().filter(|(c, _)| MOUNTABLE.contains(c)) {
        for name in ["x.json.gz", "x.json.bz2", "x.json.xz", "x.json.zst", "x"] {
            let container = opened(name, stored.clone()).unwrap();
            assert_eq!(container.len(), 1);
            let fits = match codec {
                Codec::Gzip => name.ends_with("gz"),
                Codec::Bzip2 => name.ends_with("bz2"),
                Codec::Xz => name.ends_with("xz"),
                Codec::Zlib => name.ends_with("zlib"),
                _ => name.ends_with("zst"),
            };
            let expected = if fits { "x.json".to_owned() } else { format!("{name}.out") };
            assert_eq!(names(container.as_ref()), [expected]);
            assert_eq!(shown(container.as_ref(), &stored, 0).unwrap(), data);
            assert_eq!(container.attributes(0).unwrap().kind, Kind::File);
        }
    }
}

#[test]
fn a_gzip_header_names_the_file_and_its_time() {
    let mut stored = vec![0x1f, 0x8b, 8, 2 | 4 | 8 | 16, 5, 0, 0, 0, 0, 3, 2, 0, 7, 7];
    stored.extend(b"a/caf\xe9.txt\0a comment\0");
    stored.extend(&crc32fast::hash(&stored).to_le_bytes()[..2]);
    stored.extend(miniz_oxide::deflate::compress_to_vec(b"abc", 6));
    stored.extend(crc32fast::hash(b"abc").to_le_bytes());
    stored.extend(3_u32.to_le_bytes());
    let container = opened("other.gz", stored.clone()).unwrap();
    assert_eq!(names(container.as_ref()), ["café.txt"]);
    assert_eq!(container.attributes(0).unwrap().modified, Some((5, 0)));
    assert_eq!(shown(container.as_ref(), &stored, 0).unwrap(), b"abc");
    stored[20] ^= 1;
    assert!(opened("other.gz", stored).is_err(), "the header's checksum is wrong");
}

#[test]
fn an_empty_stream_is_an_empty_file() {
    for (codec, stored) in streams(b"").into_iter().filter(|(c, _)| MOUNTABLE.contains(c)) {
        let container = opened("empty", stored.clone()).unwrap();
        assert_eq!(container.sample(0).unwrap().size_bytes(), 0, "{codec:?}");
        assert_eq!(shown(container.as_ref(), &stored, 0).unwrap(), b"");
    }
}

#[test]
fn a_truncated_or_flipped_file_is_refused_or_right() {
    let files = [("a".to_owned(), text(900)), ("b".to_owned(), text(40))];
    for (codec, stored) in streams(&tar(&files)) {
        // These frames of zstd have no checksum.
        if !MOUNTABLE.contains(&codec) || codec == Codec::Zstd {
            continue;
        }
        let zeros_behind = stored.iter().rev().take_while(|byte| **byte == 0).count();
        for cut in 0..stored.len() - zeros_behind {
            if let Ok(container) = opened("t", stored[..cut].to_vec()) {
                check_or_shorter(container.as_ref(), &stored[..cut], &files);
            }
        }
        for at in 0..stored.len() {
            let mut flipped = stored.clone();
            flipped[at] ^= 1 << (at % 8);
            if let Ok(container) = opened("t", flipped.clone()) {
                check_or_shorter(container.as_ref(), &flipped, &files);
            }
        }
    }
}

#[test]
fn an_archive_in_a_damaged_stream_is_refused_by_the_stream() {
    let files = [("a".to_owned(), text(900)), ("b".to_owned(), text(40))];
    // The bytes are stored as they are: those of the second header stay readable, with a wrong sum.
    let mut stored = miniz_oxide::deflate::compress_to_vec_zlib(&tar(&files), 0);
    stored[1536 + 130] ^= 1;
    for allow_damaged in [false, true] {
        let options = OpenOptions { allow_damaged, ..OpenOptions::default() };
        let said = open(Arc::new(MemorySource::new("t.tar.zz", stored.clone())), &options);
        let said = said.err().unwrap().to_string();
        assert!(said.contains("zlib stream does not match its checksum"), "{said}");
        assert!(!said.contains("--allow-damaged"), "it would not help: {said}");
    }
}

/// Checks samples. Joined streams may end at a joint, and bytes without a magic number are behind the end.
fn check_or_shorter(container: &dyn Container, stored: &[u8], files: &[(String, Vec<u8>)]) {
    for i in 0..container.len() {
        let sample = container.sample(i).unwrap();
        if sample.damaged {
            continue;
        }
        let shown = shown(container, stored, i).unwrap();
        let whole = files.iter().any(|(_, data)| *data == shown);
        let all = tar(files);
        assert!(whole || all.starts_with(&shown), "{} {i}", container.format());
    }
}

#[test]
fn of_a_cut_archive_the_members_before_the_cut_are_served_if_damage_is_allowed() {
    let options = OpenOptions { allow_damaged: true, ..OpenOptions::default() };
    let noise = |seed: u32| (0..400_000_u32).map(move |i| (i.wrapping_mul(seed) >> 7) as u8);
    let files = [("a".to_owned(), text(900)), ("b".to_owned(), noise(2_654_435_761).collect())];
    for (codec, stored) in streams(&tar(&files)) {
        if !MOUNTABLE.contains(&codec) {
            continue;
        }
        let mut most_whole = 0;
        // A block of zstd, 128 KiB, is decoded as a whole or not at all.
        for cut in (0..stored.len() - 1).step_by(stored.len() / 40) {
            let bytes = stored[..cut].to_vec();
            let Ok(container) =
                open(Arc::new(MemorySource::new("t.tar.x", bytes.clone())), &options)
            else {
                continue;
            };
            let mut whole = 0;
            for (index, (name, data)) in files.iter().enumerate().take(container.len() as usize) {
                if container.sample(index as u64).unwrap().damaged {
                    continue;
                }
                whole += 1;
                let shown = shown(container.as_ref(), &bytes, index as u64).unwrap();
                assert!(shown == *data, "{codec:?} cut at {cut}: {name} is not whole");
            }
            most_whole = most_whole.max(whole);
        }
        assert!(most_whole > 0, "{codec:?}: nothing was served");
    }
}

#[test]
fn empty_lists_of_a_tfrecord_in_a_stream_are_arrays_of_no_elements() {
    let crc = |bytes: &[u8]| ChecksumKind::MaskedCrc32c.of(bytes).value().to_le_bytes();
    // tf.Example: {"f": FloatList{}, "i": Int64List{}}
    let data = b"\x0a\x12\x0a\x07\x0a\x01f\x12\x02\x12\0\x0a\x07\x0a\x01i\x12\x02\x1a\0";
    let length = (data.len() as u64).to_le_bytes();
    let record = [&length[..], &crc(&length), data, &crc(data)].concat();
    for (codec, stored) in streams(&record).into_iter().filter(|(c, _)| MOUNTABLE.contains(c)) {
        let container = opened("x.tfrecord.x", stored).unwrap();
        assert_eq!(container.len(), 2, "{codec:?}");
        for index in 0..2 {
            let sample = container.sample(index).unwrap();
            let bytes = match sample.content {
                Content::Encoded(size) => {
                    let mut out = vec![0; size as usize];
                    container.decode_in_stream(index, &[], &mut out).unwrap();
                    out
                }
                _ => container.prefix(index).unwrap(),
            };
            assert_eq!((bytes.len(), sample.size_bytes()), (128, 128));
            assert!(sample.checksum.is_none_or(|checksum| checksum.check(&bytes).is_ok()));
        }
    }
}
