//! The cost of the code itself, without kernel and disk: opening an index, names, and the read path.
//! Whole mounts are measured by `scripts/bench-mount`.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use ffrfs::catalog::{Catalog, TreeBuilder};
use ffrfs::dataset::{self, NameOptions, Opened, Unwatched, Watch};
use ffrfs::format::ffrecord::Writer;
use ffrfs::format::{self, MemorySource, OpenOptions};
use ffrfs::store::Part;
use ffrfs::vfs::{CONTROL_DIRECTORY, Operation, Options, Phase, ReadRequest, Step, Verify, Vfs};
use std::hint::black_box;
use std::io::Cursor;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

fn container(samples: u64, bytes: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..bytes).map(|i| (i * 31) as u8).collect();
    let mut writer = Writer::new(Cursor::new(Vec::new()), samples).unwrap();
    for _ in 0..samples {
        writer.write_sample(&mut &data[..]).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn open(file: &[u8]) -> Opened {
    let part = Part::in_memory("bench.ffr", file.to_vec(), SystemTime::UNIX_EPOCH);
    let watch: Arc<dyn Watch> = Arc::new(Unwatched);
    dataset::open_parts(vec![part], &dataset::Options::default(), &watch).unwrap()
}

fn numbered(opened: &Opened) -> Catalog {
    opened.named(&NameOptions::default(), false).unwrap()
}

fn vfs(opened: Opened, catalog: Catalog, verify: Verify) -> Vfs {
    opened.into_vfs(catalog, Options { verify, ..Options::default() })
}

/// Reads a whole sample as a transport does, the "disk" being memory.
fn read(vfs: &Vfs, file: &[u8], ino: u64, length: u64) {
    let request = ReadRequest { ino, offset_bytes: 0, length_bytes: length };
    let reply = vfs.read_blocking(request, |span| {
        let (at, target) = span.target(1).unwrap();
        let at = at as usize;
        target.copy_from_slice(&file[at..at + target.len()]);
        Ok(())
    });
    assert_eq!(reply.bytes().unwrap().len() as u64, length);
    vfs.finish(reply);
}

fn reads(c: &mut Criterion) {
    for (name, bytes) in [("3 KB", 3_000), ("110 KB", 110_000), ("2 MB", 2_000_000)] {
        let file = container(4, bytes);
        let mut group = c.benchmark_group(format!("read a sample of {name}"));
        group.throughput(Throughput::Bytes(bytes as u64));
        for (how, verify) in [("verified", Verify::Always), ("not verified", Verify::Off)] {
            let opened = open(&file);
            let catalog = numbered(&opened);
            let vfs = vfs(opened, catalog, verify);
            group.bench_function(how, |b| b.iter(|| read(&vfs, &file, 2, bytes as u64)));
        }
        group.finish();
    }
}

fn names(c: &mut Criterion) {
    const SAMPLES: u64 = 1_000_000;
    let file = container(SAMPLES, 0);
    let path = |sample: u64| format!("class{:03}/{sample:07}.jpg", sample % 1000);
    let tree = || {
        let mut builder = TreeBuilder::default();
        (0..SAMPLES).for_each(|sample| builder.add(path(sample).as_bytes(), sample).unwrap());
        builder.build().unwrap()
    };
    c.bench_function("open an index of a million samples", |b| {
        let source = Arc::new(MemorySource::new("bench.ffr", file.clone()));
        b.iter_batched(
            || Arc::clone(&source),
            |source| format::open(source, &OpenOptions::default()).unwrap(),
            BatchSize::PerIteration,
        );
    });
    let flat = open(&file);
    let catalog = numbered(&flat);
    let numbered = vfs(flat, catalog, Verify::Always);
    let named = vfs(open(&file), tree().into(), Verify::Always);
    c.bench_function("look up a numbered name", |b| {
        b.iter(|| numbered.lookup(1, black_box(b"543210")).unwrap());
    });
    c.bench_function("look up a stored name among a thousand", |b| {
        b.iter(|| named.lookup(3, black_box(b"0543000.jpg")).unwrap());
    });
    for (name, vfs, directory) in [("numbered", &numbered, 1), ("stored", &named, 3)] {
        let mut group = c.benchmark_group("list 900 names");
        group.throughput(Throughput::Elements(900));
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut left = 900;
                vfs.readdir(directory, 2, &mut |entry| {
                    black_box(entry);
                    left -= 1;
                    left > 0
                })
            });
        });
        group.finish();
    }
}

/// The cost of tracing for a request, with tracing off and on.
fn tracing(c: &mut Criterion) {
    let opened = open(&container(4, 100));
    let catalog = numbered(&opened);
    let vfs = vfs(opened, catalog, Verify::Always);
    let directory = vfs.lookup(1, CONTROL_DIRECTORY.as_bytes()).unwrap().ino().unwrap();
    let switch_on = || {
        let page = vfs.lookup(directory, b"trace").unwrap().ino().unwrap();
        let Step::Done(reply) = vfs.read(page, 0, 1 << 30) else { unreachable!("it is in memory") };
        assert!(!reply.bytes().unwrap().is_empty());
    };
    let request = || {
        let traced = vfs.trace().begin(Operation::Read, black_box(2), 1, Instant::now());
        let mut traced = traced.range(0, 100);
        traced.enter(Phase::Disk);
        traced.enter(Phase::Verify);
        traced.enter(Phase::Reply);
        vfs.trace().end(traced, Ok(100));
    };
    let mut group = c.benchmark_group("trace a read");
    // Shorter than a reader of the page keeps tracing on.
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(1));
    group.bench_function("the clock alone", |b| b.iter(|| black_box(Instant::now())));
    group.bench_function("off", |b| b.iter(request));
    switch_on();
    group.bench_function("on", |b| b.iter(request));
    assert!(vfs.trace().is_on());
    group.finish();
}

criterion_group!(benches, reads, names, tracing);
criterion_main!(benches);
