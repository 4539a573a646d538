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
        (Codec::Deflate64, deflated(data)),
        (Codec::Gzip, gzipped(data)),
        (Codec::Gzip, [gzipped(a), gzipped(b), vec![0; 100]].concat()),
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

/// Drives a decoder with small pieces; gives all bytes, and every restart point that it offered.
fn in_steps(
    codec: Codec,
    from: Option<&Restart>,
    stored: &[u8],
    (piece, room): (usize, usize),
) -> Result<(Vec<u8>, Vec<Restart>), String> {
    let mut decoder = decoder(codec, from)?.unwrap();
    let (mut out, mut restarts) = (Vec::new(), Vec::new());
    let mut buf = vec![0; room];
    let mut at = from.map_or(0, |r| r.stored_bytes as usize);
    let mut stuck = 0;
    loop {
        let input = &stored[at..stored.len().min(at + piece)];
        let step = decoder.decode(input, &mut buf, at + input.len() == stored.len())?;
        at += step.taken;
        out.extend_from_slice(&buf[..step.given]);
        if step.is_end {
            return Ok((out, restarts));
        }
        stuck = if step == Progress::default() { stuck + 1 } else { 0 };
        assert!(stuck < 3, "{codec:?} is stuck at {at} of {}", stored.len());
        if let Some(restart) = decoder.restart() {
            assert_eq!(restart.stored_bytes, at as u64);
            let before = from.map_or(0, |r| r.decoded_bytes);
            assert_eq!(restart.decoded_bytes, before + out.len() as u64);
            restarts.push(restart);
        }
        assert!(out.len() < 64 << 20);
    }
}

#[test]
fn every_restart_point_leads_to_the_same_bytes() {
    let data = text(700_000);
    for (codec, stored) in streams(&data).into_iter().filter(|(c, _)| *c != Codec::Ppmd) {
        for chunks in [(1 << 20, 1 << 20), (1000, 70_001), (70_001, 999), (1, 64)] {
            let (whole, restarts) = in_steps(codec, None, &stored, chunks).unwrap();
            assert!(whole == data, "{codec:?}");
            let expected = match codec {
                Codec::Lzma | Codec::Deflate64 => 0..=0,
                _ => 2..=1000,
            };
            assert!(expected.contains(&restarts.len()), "{codec:?} {chunks:?} {}", restarts.len());
            for (i, restart) in restarts.iter().enumerate().step_by(restarts.len() / 4 + 1) {
                let (rest, _) = in_steps(codec, Some(restart), &stored, (5000, 5000)).unwrap();
                assert!(rest == data[restart.decoded_bytes as usize..], "{codec:?} {i}");
            }
        }
    }
}
