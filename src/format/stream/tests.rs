use super::*;
use crate::format::codec::Codec;
use crate::format::codec::tests::{streams, text};
use crate::format::{Checkpoint, Error, MemorySource, PartName, Result, Source, Table};
use std::io;

fn source(bytes: &[u8]) -> MemorySource {
    MemorySource::new("stream", bytes.to_vec())
}

fn build(bytes: &[u8], codec: Codec, interval_bytes: u64) -> Result<(StreamIndex, Vec<u8>)> {
    let mut all = Vec::new();
    let index = StreamIndex::build(&source(bytes), codec, interval_bytes, &mut |offset, given| {
        assert_eq!(offset, all.len() as u64);
        all.extend_from_slice(given);
        Ok(())
    })?;
    Ok((index, all))
}

fn decoded(index: &StreamIndex, number: u64, stream: &[u8]) -> Result<Vec<u8>, String> {
    let interval = index.nth(number).unwrap();
    let stored = &stream[interval.stored.start as usize..interval.stored.end as usize];
    let mut out = vec![0; (interval.decoded.end - interval.decoded.start) as usize];
    index.decode(number, stored, &mut out)?;
    Ok(out)
}

#[test]
fn intervals_decode_to_what_the_pass_gave() {
    for length in [0, 1, 3_000_000] {
        let data = text(length);
        for (codec, stream) in streams(&data).into_iter().filter(|(c, _)| *c != Codec::Ppmd) {
            let (index, all) = build(&stream, codec, 300_000)
                .unwrap_or_else(|e| panic!("{codec:?} {length}: {e}"));
            assert!(all == data);
            assert_eq!(index.decoded_bytes(), length as u64);
            let again = StreamIndex::read(&index.write()).unwrap();
            assert_eq!(again, index);
            let is_single = matches!(codec, Codec::Lzma | Codec::Deflate64);
            if length > 1 {
                assert_eq!(index.len() > 1, !is_single, "{codec:?}");
            }
            let mut joined = Vec::new();
            for number in 0..again.len() {
                let interval = again.nth(number).unwrap();
                assert_eq!(interval.decoded.start, joined.len() as u64);
                assert_eq!(again.interval(interval.decoded.start), Some(interval.clone()));
                assert_eq!(again.interval(interval.decoded.end - 1), Some(interval));
                joined.extend(decoded(&again, number, &stream).unwrap());
            }
            assert!(joined == data, "{codec:?}");
            assert_eq!(again.interval(length as u64), None);
        }
    }
}

#[test]
fn the_fast_way_decodes_every_interval_of_deflate() {
    let data = text(3_000_000);
    let mut alignments = std::collections::HashSet::new();
    for (codec, stream) in streams(&data) {
        if !matches!(codec, Codec::Deflate | Codec::Gzip | Codec::Zlib) {
            continue;
        }
        let (index, _) = build(&stream, codec, 1).unwrap();
        let mut quick = 0;
        for number in 0..index.len() {
            let interval = index.nth(number).unwrap();
            let from = index.state(number).filter(|_| number > 0).map(|state| Checkpoint {
                stored_bytes: interval.stored.start,
                decoded_bytes: interval.decoded.start,
                state: state.into_owned().into(),
            });
            alignments.extend(from.as_ref().filter(|f| f.state.len() > 1).map(
                |from| match codec {
                    Codec::Gzip => from.state[13],
                    Codec::Zlib => from.state[4],
                    _ => from.state[0],
                },
            ));
            let stored = &stream[interval.stored.start as usize..interval.stored.end as usize];
            let range = interval.decoded.start as usize..interval.decoded.end as usize;
            let mut out = vec![0; range.len()];
            let next = index.state(number + 1);
            let way = super::super::codec::quick_part(
                codec,
                from.as_ref(),
                next.as_deref(),
                stored,
                &mut out,
            );
            quick += u64::from(way.is_some() && out == data[range]);
        }
        assert!(quick + 1 >= index.len(), "{codec:?}: {quick} of {}", index.len());
    }
    assert_eq!(alignments.len(), 8, "every place of a block's first bit in its byte");
}

#[test]
fn a_damaged_index_is_not_read() {
    let (codec, stream) = streams(&text(200_000)).swap_remove(2);
    let (index, _) = build(&stream, codec, 50_000).unwrap();
    let bytes = index.write();
    for at in (0..bytes.len()).step_by(1 + bytes.len() / 500) {
        assert_eq!(StreamIndex::read(&bytes[..at]), None);
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        assert_eq!(StreamIndex::read(&flipped), None);
    }
}

#[test]
fn a_changed_stream_is_never_decoded_to_other_bytes() {
    let data = text(400_000);
    for (codec, stream) in streams(&data).into_iter().filter(|(c, _)| *c != Codec::Ppmd) {
        let (index, _) = build(&stream, codec, 100_000).unwrap();
        for at in (0..stream.len()).step_by(stream.len() / 20) {
            let mut flipped = stream.clone();
            flipped[at] ^= 0x10;
            for number in 0..index.len() {
                let range = index.nth(number).unwrap().decoded;
                if let Ok(out) = decoded(&index, number, &flipped) {
                    assert!(out == data[range.start as usize..range.end as usize]);
                }
            }
        }
    }
}

#[test]
fn one_large_zstd_frame_is_refused_and_says_what_helps() {
    let frame = ::zstd::bulk::compress(&vec![7; 65 << 20], 1).unwrap();
    let error = build(&frame, Codec::Zstd, INTERVAL_BYTES).unwrap_err().to_string();
    assert!(error.contains("--spool") && error.contains("64 MiB"), "{error}");
}

#[test]
fn a_bomb_is_refused_before_it_is_decoded() {
    // Frames of 16 MiB from 500 bytes each.
    let frame = ::zstd::bulk::compress(&vec![0; 16 << 20], 1).unwrap();
    let bomb = frame.repeat(1000);
    assert!(bomb.len() < 2_000_000);
    let mut seen = 0;
    let error = StreamIndex::build(&source(&bomb), Codec::Zstd, 4 << 20, &mut |_, given| {
        seen += given.len() as u64;
        Ok(())
    });
    assert!(error.unwrap_err().to_string().contains("bomb"));
    assert!(seen < 2 << 30);
}

#[test]
fn a_callback_can_end_the_pass() {
    let (codec, stream) = streams(&text(900_000)).swap_remove(0);
    let mut calls = 0;
    let result = StreamIndex::build(&source(&stream), codec, 1000, &mut |_, _| {
        calls += 1;
        Err(Error::unknown(&source(b"")))
    });
    assert!(result.is_err());
    assert_eq!(calls, 1);
}

#[test]
fn the_states_of_a_kept_index_stay_in_its_file_and_decode_as_those_in_memory() {
    let data = text(300_000);
    for (codec, stream) in streams(&data) {
        let Ok((index, _)) = build(&stream, codec, 20_000) else { continue };
        let kept = [&b"before"[..], &index.write(), b"behind"].concat();
        let range = 6..kept.len() as u64 - 6;
        let source = MemorySource::new("x", kept.clone());
        let found = StreamIndex::read_kept(&source, range.clone()).unwrap().unwrap();
        assert!(found.states.is_empty() && found.write() == index.write());
        for number in 0..index.len() {
            let interval = found.nth(number).unwrap();
            let place = |range: &std::ops::Range<u64>| range.start as usize..range.end as usize;
            let mut out = vec![0; place(&interval.decoded).len()];
            found.decode(number, &stream[place(&interval.stored)], &mut out).unwrap();
            assert!(out == data[place(&interval.decoded)]);
        }
        for at in (range.start as usize..range.end as usize).step_by(97) {
            let mut damaged = kept.clone();
            damaged[at] ^= 0x10;
            let source = MemorySource::new("x", damaged);
            assert!(matches!(StreamIndex::read_kept(&source, range.clone()), Ok(None)), "{at}");
        }
    }
}

/// Bytes with zeros between them, which take no memory.
struct Sparse {
    name: PartName,
    pieces: Vec<(u64, Vec<u8>)>,
    length: u64,
}

impl Source for Sparse {
    fn name(&self) -> &PartName {
        &self.name
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        buf.fill(0);
        for (at, piece) in &self.pieces {
            for (place, byte) in (*at..).zip(piece) {
                let place = place.checked_sub(offset_bytes).and_then(|at| buf.get_mut(at as usize));
                place.into_iter().for_each(|place| *place = *byte);
            }
        }
        Ok(())
    }

    fn table(&self, _: u64, _: u64) -> io::Result<Box<dyn Table>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Frames of zstd; after each, a skippable frame of that many zeros.
fn frames_and_holes(frames: &[(&str, u32)]) -> Sparse {
    let (mut pieces, mut length) = (Vec::new(), 0);
    for (content, hole) in frames {
        let mut piece = ::zstd::bulk::compress(content.as_bytes(), 1).unwrap();
        piece.extend_from_slice(&0x184D_2A50_u32.to_le_bytes());
        piece.extend_from_slice(&hole.to_le_bytes());
        let end = length + piece.len() as u64;
        pieces.push((length, piece));
        length = end + u64::from(*hole);
    }
    Sparse { name: "holes.zst".into(), pieces, length }
}

#[test]
fn bytes_that_decode_to_nothing_make_no_interval_that_is_too_long_to_be_read_at_once() {
    const LONG: u32 = MAX_STORED_BYTES as u32;
    let build = |source: &Sparse| {
        let mut all = Vec::new();
        let take = &mut |_: u64, given: &[u8]| {
            all.extend_from_slice(given);
            Ok(())
        };
        let index = StreamIndex::build(source, Codec::Zstd, INTERVAL_BYTES, take);
        (index, all)
    };
    for frames in [
        &[("", LONG), ("one", 0), ("two", 0)][..],
        &[("one", LONG), ("two", 0)],
        &[("one", 0), ("two", LONG)],
        &[("one", 0), ("two", LONG / 2), ("", LONG / 2)],
    ] {
        let source = frames_and_holes(frames);
        let error = build(&source).0.unwrap_err();
        assert!(matches!(error, Error::NoCheckpoints { .. }), "{error}");
        let mut all = Vec::new();
        StreamIndex::decode_all(&source, Codec::Zstd, &mut |_, given| {
            all.extend_from_slice(given);
            Ok(())
        })
        .unwrap();
        assert_eq!(all, b"onetwo", "{frames:?}");
    }
    // Shorter holes only end intervals early.
    let source = frames_and_holes(&[("frame", LONG / 5)].repeat(12));
    let (index, all) = build(&source);
    let index = index.unwrap();
    assert_eq!(all, b"frame".repeat(12));
    assert_eq!(index.len(), 12);
    for number in 0..index.len() {
        let stored = index.nth(number).unwrap().stored;
        assert!(stored.end - stored.start <= MAX_STORED_BYTES, "{stored:?}");
    }
    assert_eq!(StreamIndex::read(&index.write()), Some(index));
}

#[test]
fn a_kept_index_with_an_interval_that_is_too_long_to_be_read_at_once_is_not_read() {
    let (codec, stream) = streams(&text(1000)).swap_remove(0);
    let (mut index, _) = build(&stream, codec, 1000).unwrap();
    for (stored_bytes, is_read) in [(MAX_STORED_BYTES, true), (MAX_STORED_BYTES + 1, false)] {
        index.stored_bytes = stored_bytes;
        assert_eq!(StreamIndex::read(&index.write()).is_some(), is_read);
    }
}
