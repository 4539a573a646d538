//! The cost of decoding: samples as archives hold them, and the intervals of large streams.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ffrfs::format::MemorySource;
use ffrfs::format::codec::{Codec, decode};
use ffrfs::format::stream::{INTERVAL_BYTES, StreamIndex};
use std::hint::black_box;
use std::io::Write;

/// Words in the order of a random generator, so that they compress like text.
fn text(bytes: usize) -> Vec<u8> {
    let words = ["image ", "label ", "of ", "the ", "training ", "sample ", "number\n"];
    let mut state = 1_u32;
    let mut out = Vec::with_capacity(bytes + 16);
    while out.len() < bytes {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        match state >> 29 {
            7 => out.extend_from_slice(format!("{state} ").as_bytes()),
            n => out.extend_from_slice(words[n as usize].as_bytes()),
        }
    }
    out.truncate(bytes);
    out
}

/// Bytes that no codec can shorten, as in JPEG files.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn encoded(codec: Codec, data: &[u8]) -> Vec<u8> {
    match codec {
        Codec::Deflate => miniz_oxide::deflate::compress_to_vec(data, 6),
        Codec::Zstd => zstd::bulk::compress(data, 3).unwrap(),
        Codec::Bzip2 => {
            let mut to = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
            to.write_all(data).unwrap();
            to.finish().unwrap()
        }
        Codec::Xz => {
            let mut to = liblzma::write::XzEncoder::new(Vec::new(), 6);
            to.write_all(data).unwrap();
            to.finish().unwrap()
        }
        other => unreachable!("{other:?} is not measured"),
    }
}

fn whole(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode 110 KB");
    for (kind, data) in [("text", text(110_000)), ("noise", noise(110_000))] {
        for codec in [Codec::Deflate, Codec::Zstd, Codec::Bzip2, Codec::Xz] {
            let stored = encoded(codec, &data);
            let mut out = vec![0; data.len()];
            group.throughput(Throughput::Bytes(data.len() as u64));
            group.bench_function(format!("{} {kind}", codec.name()), |b| {
                b.iter(|| decode(codec, black_box(&stored), &mut out).unwrap());
            });
        }
    }
    group.finish();
}

fn stream(c: &mut Criterion) {
    let data = text(32 << 20);
    let mut group = c.benchmark_group("stream");
    group.sample_size(10);
    for codec in [Codec::Deflate, Codec::Bzip2] {
        let stored = encoded(codec, &data);
        let source = MemorySource::new("bench", stored.clone());
        let build =
            || StreamIndex::build(&source, codec, INTERVAL_BYTES, &mut |_, _| Ok(())).unwrap();
        group.throughput(Throughput::Bytes(data.len() as u64));
        group.bench_function(format!("{}: first pass over 32 MiB", codec.name()), |b| {
            b.iter(|| black_box(build()));
        });
        let index = build();
        let interval = index.interval(data.len() as u64 / 2).unwrap();
        let bytes = &stored[interval.stored.start as usize..interval.stored.end as usize];
        let mut out = vec![0; (interval.decoded.end - interval.decoded.start) as usize];
        group.throughput(Throughput::Bytes(out.len() as u64));
        group.bench_function(format!("{}: one interval of 4 MiB", codec.name()), |b| {
            b.iter(|| index.decode(interval.number, black_box(bytes), &mut out).unwrap());
        });
    }
    group.finish();
}

criterion_group!(benches, whole, stream);
criterion_main!(benches);
