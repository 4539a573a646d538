use super::*;
use std::io::Write;

pub(in crate::format) fn text(bytes: usize) -> Vec<u8> {
    let mut state = 12345_u32;
    let words = ["data ", "set ", "of ", "many ", "samples ", "and ", "numbers\n"];
    let mut out = Vec::new();
    while out.len() < bytes {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        match state >> 29 {
            7 => out.extend_from_slice(format!("{state}").as_bytes()),
            n => out.extend_from_slice(words[n as usize].as_bytes()),
        }
    }
    out.truncate(bytes);
    out
}

fn deflated(data: &[u8]) -> Vec<u8> {
    miniz_oxide::deflate::compress_to_vec(data, 6)
}

/// Deflate codes without repeats, as only the repeats of deflate64 differ.
fn deflated64(data: &[u8]) -> Vec<u8> {
    use miniz_oxide::deflate::core::{
        CompressorOxide, TDEFLFlush, compress_to_output, create_comp_flags_from_zip_params,
    };
    const HUFFMAN_ONLY: i32 = 2;
    let mut core = CompressorOxide::new(create_comp_flags_from_zip_params(6, -15, HUFFMAN_ONLY));
    let mut out = Vec::new();
    let to = |bytes: &[u8]| {
        out.extend_from_slice(bytes);
        true
    };
    compress_to_output(&mut core, data, TDEFLFlush::Finish, to);
    out
}

fn gzipped(data: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    out.extend(deflated(data));
    out.extend(crc32fast::hash(data).to_le_bytes());
    out.extend((data.len() as u32).to_le_bytes());
    out
}

fn bzipped(data: &[u8]) -> Vec<u8> {
    let mut to = ::bzip2::write::BzEncoder::new(Vec::new(), ::bzip2::Compression::new(1));
    to.write_all(data).unwrap();
    to.finish().unwrap()
}

fn xzipped(data: &[u8], block_bytes: u64) -> Vec<u8> {
    use liblzma::stream::{Check, MtStreamBuilder};
    let stream = MtStreamBuilder::new()
        .threads(1)
        .block_size(block_bytes)
        .preset(1)
        .check(Check::Crc64)
        .encoder()
        .unwrap();
    let mut to = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
    to.write_all(data).unwrap();
    to.finish().unwrap()
}

fn zstd_frames(data: &[u8], frame_bytes: usize) -> Vec<u8> {
    let frames = if data.is_empty() { vec![data] } else { data.chunks(frame_bytes).collect() };
    frames.into_iter().flat_map(|d| ::zstd::bulk::compress(d, 1).unwrap()).collect()
}

fn ppmd(data: &[u8]) -> Vec<u8> {
    let mut out = vec![0x5 | 0xf0, 0];
    let mut to =
        ppmd_rust::Ppmd8Encoder::new(&mut out, 6, 16 << 20, ppmd_rust::RestoreMethod::Restart)
            .unwrap();
    to.write_all(data).unwrap();
    to.finish(false).unwrap();
    out
}

fn zip_lzma(data: &[u8], has_end_marker: bool) -> Vec<u8> {
    use liblzma::stream::{Action, LzmaOptions, Stream};
    assert!(has_end_marker);
    let mut core = Stream::new_lzma_encoder(&LzmaOptions::new_preset(1).unwrap()).unwrap();
    let mut out = Vec::with_capacity(data.len() * 2 + 1000);
    core.process_vec(data, &mut out, Action::Finish).unwrap();
    let mut zip = vec![5, 0, 5, 0];
    zip.extend(&out[..5]);
    zip.extend(&out[13..]);
    zip
}

/// Streams of every codec that hold `data`.
pub(in crate::format) fn streams(data: &[u8]) -> Vec<(Codec, Vec<u8>)> {
    let (a, b) = data.split_at(data.len() / 3);
    vec![
        (Codec::Deflate, deflated(data)),
        (Codec::Deflate64, deflated64(data)),
        (Codec::Gzip, gzipped(data)),
        (Codec::Gzip, [gzipped(a), gzipped(b), vec![0; 100]].concat()),
        (Codec::Zlib, miniz_oxide::deflate::compress_to_vec_zlib(data, 6)),
        (Codec::Bzip2, bzipped(data)),
        (Codec::Bzip2, [bzipped(a), bzipped(b)].concat()),
        (Codec::Xz, xzipped(data, 70_000)),
        (Codec::Xz, [xzipped(a, 1 << 20), vec![0; 8], xzipped(b, 10_000)].concat()),
        (Codec::Zstd, zstd_frames(data, 50_000)),
        (Codec::Lzma, zip_lzma(data, true)),
        (Codec::Ppmd, ppmd(data)),
    ]
}

#[test]
fn every_codec_decodes_what_its_encoder_wrote() {
    for length in [0, 1, 100, 5_000, 900_000] {
        let data = text(length);
        for (codec, stored) in streams(&data) {
            let mut out = vec![0; length];
            assert_eq!(decode(codec, &stored, &mut out), Ok(()), "{codec:?} {length}");
            assert!(out == data, "{codec:?} {length}");
        }
    }
}

/// Drives a decoder with small pieces; gives all bytes, and every checkpoint that it offered.
fn in_steps(
    codec: Codec,
    from: Option<&Checkpoint>,
    stored: &[u8],
    (piece, room): (usize, usize),
) -> Result<(Vec<u8>, Vec<Checkpoint>), String> {
    drive(decoder(codec, from)?.unwrap().as_mut(), from, stored, (piece, room))
}

/// As `in_steps`, with any decoder, which begins at `from`.
pub(in crate::format) fn drive(
    decoder: &mut dyn Decoder,
    from: Option<&Checkpoint>,
    stored: &[u8],
    (piece, room): (usize, usize),
) -> Result<(Vec<u8>, Vec<Checkpoint>), String> {
    let (mut out, mut checkpoints) = (Vec::new(), Vec::new());
    let mut buf = vec![0; room];
    let mut at = from.map_or(0, |r| r.stored_bytes as usize);
    let mut stuck = 0;
    loop {
        let input = &stored[at..stored.len().min(at + piece)];
        let step = decoder.decode(input, &mut buf, at + input.len() == stored.len())?;
        at += step.taken;
        out.extend_from_slice(&buf[..step.given]);
        if step.is_end {
            return Ok((out, checkpoints));
        }
        stuck = if step == Progress::default() { stuck + 1 } else { 0 };
        assert!(stuck < 3, "it is stuck at {at} of {}", stored.len());
        if let Some(checkpoint) = decoder.checkpoint() {
            assert_eq!(checkpoint.stored_bytes, at as u64);
            let before = from.map_or(0, |r| r.decoded_bytes);
            assert_eq!(checkpoint.decoded_bytes, before + out.len() as u64);
            checkpoints.push(checkpoint);
        }
        assert!(out.len() < 64 << 20);
    }
}

#[test]
fn every_checkpoint_leads_to_the_same_bytes() {
    let data = text(700_000);
    for (codec, stored) in streams(&data).into_iter().filter(|(c, _)| *c != Codec::Ppmd) {
        for chunks in [(1 << 20, 1 << 20), (1000, 70_001), (70_001, 999), (7, 640)] {
            let (whole, checkpoints) = in_steps(codec, None, &stored, chunks).unwrap();
            assert!(whole == data, "{codec:?}");
            let expected = match codec {
                Codec::Lzma | Codec::Deflate64 => 0..=0,
                _ => 2..=1000,
            };
            assert!(
                expected.contains(&checkpoints.len()),
                "{codec:?} {chunks:?} {}",
                checkpoints.len()
            );
            for (i, checkpoint) in checkpoints.iter().enumerate().step_by(checkpoints.len() / 4 + 1)
            {
                let (rest, _) = in_steps(codec, Some(checkpoint), &stored, (5000, 5000)).unwrap();
                assert!(rest == data[checkpoint.decoded_bytes as usize..], "{codec:?} {i}");
            }
        }
    }
}

/// Bytes of all kinds of redundancy.
fn data() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
    use proptest::prelude::*;
    let run = prop_oneof![
        (any::<u8>(), 1..3000_usize).prop_map(|(byte, length)| vec![byte; length]),
        proptest::collection::vec(any::<u8>(), 0..3000),
        (1..8000_usize).prop_map(text),
    ];
    proptest::collection::vec(run, 0..6).prop_map(|runs| runs.concat())
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(15))]

    #[test]
    fn any_bytes_in_any_pieces_come_back(data in data(), piece in 1..5000_usize, room in 1..5000_usize) {
        for (codec, stored) in streams(&data) {
            let mut out = vec![0; data.len()];
            assert_eq!(decode(codec, &stored, &mut out), Ok(()), "{codec:?}");
            assert!(out == data, "{codec:?}");
            if codec == Codec::Ppmd {
                continue;
            }
            let (whole, checkpoints) = in_steps(codec, None, &stored, (piece, room)).unwrap();
            assert!(whole == data, "{codec:?}");
            for checkpoint in &checkpoints {
                let (rest, _) = in_steps(codec, Some(checkpoint), &stored, (room, piece)).unwrap();
                assert!(rest == data[checkpoint.decoded_bytes as usize..], "{codec:?}");
            }
        }
    }

    #[test]
    fn damaged_bytes_are_an_error_or_decode(
        data in data(), at: proptest::sample::Index, bit in 0..8_u32, room in 1..5000_usize,
    ) {
        for (codec, stored) in streams(&data) {
            let mut flipped = stored.clone();
            flipped[at.index(stored.len())] ^= 1 << bit;
            let cut = &stored[..at.index(stored.len())];
            for bytes in [&flipped[..], cut] {
                let mut out = vec![0; data.len()];
                let outcome = decode(codec, bytes, &mut out);
                let is_checked = !matches!(
                    codec, Codec::Deflate | Codec::Deflate64 | Codec::Lzma | Codec::Ppmd | Codec::Zstd
                );
                assert!(outcome.is_err() || !is_checked || out == data, "{codec:?}");
                if codec != Codec::Ppmd {
                    let _ = in_steps(codec, None, bytes, (700, room));
                }
            }
        }
    }

    #[test]
    fn foreign_checkpoints_are_an_error_or_decode(
        state in proptest::collection::vec(proptest::num::u8::ANY, 0..40),
    ) {
        for (codec, stored) in streams(&text(3000)) {
            let state = state.clone().into_boxed_slice();
            let from = Checkpoint { stored_bytes: 5, decoded_bytes: 9, state };
            if codec != Codec::Ppmd {
                let _ = in_steps(codec, Some(&from), &stored, (700, 700));
            }
        }
    }
}

#[test]
fn other_lengths_are_an_error_that_names_them() {
    let data = text(5000);
    for (codec, stored) in streams(&data) {
        // A PPMd stream does not mark its end.
        if codec != Codec::Ppmd {
            for length in [0, 4999, 5001] {
                let error = decode(codec, &stored, &mut vec![0; length]);
                assert!(error.is_err(), "{codec:?} {length}");
            }
        }
        for length in 0..stored.len().min(30) {
            assert!(decode(codec, &stored[..length], &mut [0; 5000]).is_err(), "{codec:?}");
        }
    }
}

#[test]
fn windows_over_the_limit_are_refused_by_name() {
    // A frame header with a window of 256 MiB, and one raw block.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0, 18 << 3, 9, 0, 0, b'x'];
    let error = in_steps(Codec::Zstd, None, &frame, (100, 100)).unwrap_err();
    assert!(error.contains("128 MiB"), "{error}");

    let mut lzma = zip_lzma(b"abc", true);
    lzma[5..9].copy_from_slice(&(1_u32 << 30).to_le_bytes());
    let error = in_steps(Codec::Lzma, None, &lzma, (100, 100)).unwrap_err();
    assert!(error.contains("128 MiB"), "{error}");
    let error = decode(Codec::Ppmd, &[0xf5, 0x0f, 0, 0, 0, 0, 0], &mut [0; 3]).unwrap_err();
    assert!(error.contains("128 MiB"), "{error}");
    // Decoded as a whole, three bytes need no such window.
    assert_eq!(decode(Codec::Lzma, &lzma, &mut [0; 3]), Ok(()));
}

#[test]
fn deflate64_has_long_matches_of_its_own() {
    // Fixed codes, the lowest bit first: "a", length 285 with 16 more bits (3 + 997), distance 1, the end.
    let code = |bits: u32, count: u32| (0..count).rev().map(move |i| bits >> i & 1);
    let extra = (0..16).map(|i| 997_u32 >> i & 1);
    let bits: Vec<u32> = [1, 1, 0]
        .into_iter()
        .chain(code(0x30 + u32::from(b'a'), 8))
        .chain(code(0b1100_0101, 8))
        .chain(extra)
        .chain(code(0, 5))
        .chain(code(0, 7))
        .collect();
    let stored: Vec<u8> = bits
        .chunks(8)
        .map(|b| b.iter().rev().fold(0, |byte, bit| byte << 1 | *bit as u8))
        .collect();
    let mut out = vec![0; 1001];
    assert_eq!(decode(Codec::Deflate64, &stored, &mut out), Ok(()));
    assert_eq!(out, [b'a'; 1001]);
}
