//! All ways to read, by one reader and by many, with little memory and much: every byte is compared.

use super::{Data, assert_at_rest, have_direct, middling, name, sample, small};
use crate::common::{Mount, Need, drop_cached, for_each_transport, have, python};
use std::fs::File;
use std::os::unix::fs::FileExt;

const READERS: [usize; 4] = [1, 4, 16, 64];
const MEMORY: [&[&str]; 4] = [&[], &["memory=4M"], &["cache_size=0"], &["cache_size=1M"]];

/// Samples of all sizes, mixed.
fn mixed() -> Vec<&'static [u8]> {
    let mut samples = small(900);
    samples.splice(300..300, middling(30));
    samples.insert(500, sample(3, 6_000_000));
    samples.push(sample(5, 6_100_000));
    samples.push(&[]);
    samples
}

#[derive(Debug, Clone, Copy)]
enum Way {
    InOrder,
    Backwards,
    Strided,
    Random,
    InParts,
}

const WAYS: [Way; 5] = [Way::InOrder, Way::Backwards, Way::Strided, Way::Random, Way::InParts];

fn read(data: &Data, mount: &Mount, way: Way, readers: usize) {
    let mut order = data.in_order();
    match way {
        Way::InOrder => data.read(mount, readers, &order),
        Way::Backwards => {
            order.reverse();
            data.read(mount, readers, &order);
        }
        Way::Random => data.read(mount, readers, &data.shuffled(readers as u64)),
        Way::Strided => std::thread::scope(|scope| {
            for rank in 0..readers {
                let mine = order.iter().skip(rank).step_by(readers);
                scope.spawn(move || mine.for_each(|&number| data.read_one(mount, number)));
            }
        }),
        Way::InParts => std::thread::scope(|scope| {
            for reader in 0..readers {
                let mine = data.shuffled(reader as u64).into_iter().take(2000 / readers + 5);
                scope.spawn(move || mine.for_each(|number| read_parts(data, mount, number)));
            }
        }),
    }
    // The next reads must ask the daemon again.
    for number in order {
        drop_cached(&File::open(mount.path(name(number))).unwrap());
    }
}

/// Reads at odd offsets, also across the end.
fn read_parts(data: &Data, mount: &Mount, number: usize) {
    let file = File::open(mount.path(name(number))).unwrap();
    let expected = data.samples[number];
    for (permille, length) in [(617, 1), (931, 5003), (3, 777), (500, 131_075), (999, 4097)] {
        let start = (expected.len() * permille / 1000) | 1;
        let end = (start + length).min(expected.len()).max(start);
        let mut bytes = vec![0; length];
        let mut done = 0;
        loop {
            match file.read_at(&mut bytes[done..], (start + done) as u64).unwrap() {
                0 => break,
                n => done += n,
            }
        }
        let expected = expected.get(start..end).unwrap_or_default();
        assert!(bytes[..done] == *expected, "sample {number} at {start}");
    }
}

/// Reads in all ways, each with another number of readers for each amount of memory.
fn read_in_all_ways(io: &str, containers: usize) {
    let data = Data::new(mixed(), containers);
    for_each_transport(|transport| {
        for (round, memory) in MEMORY.iter().enumerate() {
            let options: Vec<&str> = memory.iter().copied().chain([io]).collect();
            let mount = data.mount(transport, &options);
            for (number, way) in WAYS.into_iter().enumerate() {
                read(&data, &mount, way, READERS[(number + round) % READERS.len()]);
            }
            assert_at_rest(&mount);
            mount.unmount();
        }
    });
}

#[test]
fn past_the_page_cache_every_byte_is_right_for_all_who_read() {
    if have_direct() {
        read_in_all_ways("io=direct", 3);
    }
}

#[test]
fn through_the_page_cache_every_byte_is_right_for_all_who_read() {
    read_in_all_ways("io=buffered", 1);
}

#[test]
fn by_default_every_byte_is_right_for_all_who_read() {
    read_in_all_ways("io=auto", 2);
}

/// Maps or reads every 64th file of a mount in each of 64 processes, and prints checksums in order of the files.
const IN_PROCESSES: &str = r"
import mmap, os, sys, zlib
point, how, files = sys.argv[1], sys.argv[2], int(sys.argv[3])
def checksum(number):
    with open(f'{point}/{number:06}', 'rb') as file:
        if how == 'map' and os.fstat(file.fileno()).st_size:
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                return zlib.crc32(mapped)
        return zlib.crc32(file.read())
pipes = []
for rank in range(64):
    reading, writing = os.pipe()
    if os.fork() == 0:
        text = ''.join(f'{n} {checksum(n)}\n' for n in range(rank, files, 64))
        with os.fdopen(writing, 'w') as out:
            out.write(text)
        os._exit(0)
    os.close(writing)
    pipes.append(reading)
lines = [line.split() for pipe in pipes for line in os.fdopen(pipe)]
for _, crc in sorted((int(n), crc) for n, crc in lines):
    print(crc)
";

#[test]
fn sixty_four_processes_that_read_or_map_get_every_byte_right() {
    if !have(Need::Program("python3")) {
        return;
    }
    let data = Data::new(mixed(), 2);
    let expected: Vec<String> =
        data.samples.iter().map(|sample| crc32fast::hash(sample).to_string()).collect();
    for_each_transport(|transport| {
        for options in [&[][..], &["memory=4M"], &["io=buffered", "cache_size=1M"]] {
            for how in ["map", "read"] {
                let mount = data.mount(transport, options);
                let (point, count) = (mount.point().to_str().unwrap(), expected.len().to_string());
                let said = python(IN_PROCESSES, &[point, how, &count]).ok().text();
                assert!(said.lines().eq(&expected), "{how}, {options:?}");
                assert_at_rest(&mount);
            }
        }
    });
}
