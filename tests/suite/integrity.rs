//! No wrong byte leaves: a sample is checked before its first byte is given out, or it gives EIO.

use crate::common::{
    Mount, Need, assert_errno, container_in, drop_cached, for_each_transport, have, noise, offsets,
    python, temp_dir,
};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Reads a part of a file with one call.
fn part(path: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let read = File::open(path)?.read_at(&mut bytes, offset)?;
    bytes.truncate(read);
    Ok(bytes)
}

#[track_caller]
fn assert_eio(result: io::Result<Vec<u8>>) {
    assert_errno(result.map(|bytes| bytes.len()), libc::EIO);
}

/// A size for each way in which a sample is read: at once, kept whole, and in a pass that is not kept.
const SIZES: [usize; 4] = [3_000, 200_000, 3 << 20, 9 << 20];

fn sizes() -> Vec<Vec<u8>> {
    SIZES.iter().enumerate().map(|(i, &size)| noise(i as u64, size)).collect()
}

#[test]
fn a_corrupt_sample_returns_eio_also_for_a_part_of_it_that_is_right() {
    let samples = sizes();
    let offsets = offsets(&samples);
    for_each_transport(|transport| {
        for (bad, &size) in SIZES.iter().enumerate() {
            let mount = Mount::with_samples(transport, &samples, &[]);
            mount.flip_byte(offsets[bad] + size as u64 - 1);
            let path = mount.path(format!("{bad:06}"));
            assert_eio(part(&path, size as u64 / 2, 10));
            assert_eio(part(&path, 0, 1));
            assert_eio(part(&path, size as u64 - 1, 1));
            assert_eio(fs::read(&path));
            for (other, sample) in samples.iter().enumerate().filter(|&(other, _)| other != bad) {
                assert!(mount.read(format!("{other:06}")).unwrap() == *sample, "{other}");
            }
            assert_eq!(mount.stats()["checksum_failures"], 1);
        }
    });
}

#[test]
fn a_corrupt_sample_is_listed_and_logged_once() {
    let samples = vec![noise(1, 5_000), noise(2, 6_000), noise(3, 7_000)];
    let offsets = offsets(&samples);
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples, &["suffix=.bin"]);
        assert_eq!(mount.bad().len(), 0);
        mount.flip_byte(offsets[1] + 3_000);
        for _ in 0..5 {
            assert_eio(mount.read("000001.bin"));
        }
        let mut wrong = samples[1].clone();
        wrong[3_000] ^= 0x55;
        let (expected, found) = (crc32fast::hash(&samples[1]), crc32fast::hash(&wrong));
        let container = mount.container().canonicalize().unwrap().display().to_string();
        let line = [
            "000001.bin".to_owned(),
            "checksum".to_owned(),
            container.clone(),
            "1".to_owned(),
            offsets[1].to_string(),
            "6000".to_owned(),
            format!("{expected:#010x}"),
            format!("{found:#010x}"),
        ];
        assert_eq!(mount.bad(), [line]);
        let log = mount.log();
        let lines: Vec<_> = log.lines().filter(|line| line.contains("checksum")).collect();
        assert_eq!(lines.len(), 1, "{log}");
        let at = ["sample 1:".to_owned(), format!("offset={}", offsets[1])];
        let sums = [format!("expected={expected:#010x}"), format!("found={found:#010x}")];
        for word in at.iter().chain(&sums).chain([&container]) {
            assert!(lines[0].contains(word.as_str()), "{word} is not in: {}", lines[0]);
        }
        // An error is never kept as content, nor does another read make the sample good.
        drop_cached(&File::open(mount.path("000001.bin")).unwrap());
        assert_eio(mount.read("000001.bin"));
        assert_eq!(mount.stats()["checksum_failures"], 1);
    });
}

#[test]
fn a_mapping_of_a_corrupt_sample_raises_sigbus_in_the_reader_and_the_daemon_lives() {
    if !have(Need::Python("mmap")) {
        return;
    }
    const MAP: &str = "
import mmap, sys
file = open(sys.argv[1], 'rb')
print(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)[5000])
";
    let samples = vec![noise(1, 50_000), noise(2, 50_000)];
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples, &[]);
        mount.flip_byte(offsets(&samples)[1]);
        let good = python(MAP, &[mount.path("000000")]).ok();
        assert_eq!(good.text().trim(), samples[0][5000].to_string());
        let bad = python(MAP, &[mount.path("000001")]);
        assert_eq!(bad.code, 128 + libc::SIGBUS, "{}", bad.stderr);
        assert!(mount.is_served());
        assert!(mount.read("000000").unwrap() == samples[0]);
        assert_eq!(mount.bad().len(), 1);
    });
}

#[test]
fn verify_always_finds_what_went_wrong_since_the_first_read() {
    let samples = sizes();
    let offsets = offsets(&samples);
    for_each_transport(|transport| {
        // The mount has no cache of its own, so that bytes come from storage again.
        let mount = Mount::with_samples(transport, &samples, &["verify=always", "cache_size=0"]);
        for (number, sample) in samples.iter().enumerate() {
            let path = mount.path(format!("{number:06}"));
            assert!(fs::read(&path).unwrap() == *sample, "{number}");
            drop_cached(&File::open(&path).unwrap());
            assert!(fs::read(&path).unwrap() == *sample, "{number}");
            drop_cached(&File::open(&path).unwrap());
            mount.flip_byte(offsets[number] + 1_000);
            assert_eio(part(&path, 0, 2_000));
        }
        assert_eq!(mount.bad().len(), samples.len());
    });
}

#[test]
fn verify_once_checks_the_first_time_only() {
    let samples = sizes();
    let offsets = offsets(&samples);
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples, &["verify=once", "cache_size=0"]);
        for (number, sample) in samples.iter().enumerate() {
            let path = mount.path(format!("{number:06}"));
            assert!(fs::read(&path).unwrap() == *sample, "{number}");
            drop_cached(&File::open(&path).unwrap());
            assert!(fs::read(&path).unwrap() == *sample, "{number}");
        }
        let stats = mount.stats();
        assert_eq!(stats["samples_verified"], samples.len() as u64);
        let other = Mount::with_samples(transport, &samples, &["verify=once", "cache_size=0"]);
        for (number, offset) in offsets[..samples.len()].iter().enumerate() {
            other.flip_byte(offset + 1_000);
            assert_eio(part(&other.path(format!("{number:06}")), 2_000, 10));
        }
    });
}

#[test]
fn verify_off_gives_the_bytes_as_they_are() {
    let samples = sizes();
    let offsets = offsets(&samples);
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples, &["verify=off"]);
        for (number, sample) in samples.iter().enumerate() {
            mount.flip_byte(offsets[number] + 1_000);
            let mut expected = sample.clone();
            expected[1_000] ^= 0x55;
            assert!(mount.read(format!("{number:06}")).unwrap() == expected, "{number}");
        }
        assert_eq!(mount.bad().len(), 0);
        assert_eq!(mount.stats()["samples_verified"], 0);
        assert_eq!(mount.info()["verify"], "off");
    });
}

/// Offsets and lengths all over a sample, each page more or less once.
fn all_over(size: usize) -> impl Iterator<Item = (usize, usize)> {
    let place = move |i: usize| i.wrapping_mul(7_368_787) % size;
    (0..400).map(move |i| (place(i), 1 + place(i * 31) % 20_000))
}

#[test]
fn a_sample_larger_than_the_cache_is_read_in_order_and_at_random() {
    let sample = noise(5, 40 << 20);
    let samples = [&sample[..], b"another one"];
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples, &["cache_size=1M"]);
        assert!(mount.read("000000").unwrap() == sample);
        assert!(mount.stats()["cache"]["bytes"].as_u64().unwrap() <= 1 << 20);
        let mount = Mount::with_samples(transport, &samples, &["cache_size=1M"]);
        let path = mount.path("000000");
        for (offset, length) in all_over(sample.len()) {
            let end = (offset + length).min(sample.len());
            let read = part(&path, offset as u64, length).unwrap();
            assert!(read == sample[offset..end], "{length} bytes at {offset}");
        }
        assert_eq!(mount.stats()["samples_verified"], 1, "one pass is enough for all of them");
    });
}

#[test]
fn a_large_sample_that_goes_wrong_after_its_first_read_gives_eio() {
    let sample = noise(6, 40 << 20);
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &[&sample], &["cache_size=1M"]);
        let path = mount.path("000000");
        assert!(part(&path, 0, 100).unwrap() == sample[..100]);
        mount.flip_byte(offsets(&[&sample])[0] + (20 << 20));
        // Bytes away from the damage are served until the damage has been seen.
        assert!(part(&path, 30 << 20, 100).unwrap() == sample[30 << 20..][..100]);
        assert_eio(part(&path, (20 << 20) - 50, 100));
        assert_eio(part(&path, 10 << 20, 100));
        assert_eq!(mount.bad().len(), 1);
    });
}

#[test]
fn samples_of_every_size_class_are_right_for_concurrent_readers_at_all_offsets() {
    let sizes = [
        4_095,
        4_096,
        4_097,
        (128 << 10) - 1,
        128 << 10,
        (128 << 10) + 1,
        700_000,
        1 << 20,
        (1 << 20) + 1,
        (4 << 20) - 1,
        4 << 20,
        (4 << 20) + 1,
    ];
    let samples: Vec<_> = sizes.iter().map(|&size| noise(size as u64, size)).collect();
    for_each_transport(|transport| {
        for options in [&[][..], &["cache_size=2M"], &["cache_size=0"], &["threads=1"]] {
            let mount = Mount::with_samples(transport, &samples, options);
            std::thread::scope(|scope| {
                for reader in 0..8 {
                    let (mount, samples) = (&mount, &samples);
                    scope.spawn(move || read_all_over(mount, samples, reader));
                }
            });
            assert_eq!(mount.bad().len(), 0);
            let cache = &mount.stats()["cache"];
            assert!(cache["bytes"].as_u64() <= cache["capacity_bytes"].as_u64(), "{cache}");
        }
    });
}

fn read_all_over(mount: &Mount, samples: &[Vec<u8>], reader: usize) {
    for place in 0..samples.len() {
        let number = (place + reader * 5) % samples.len();
        let (path, sample) = (mount.path(format!("{number:06}")), &samples[number]);
        for (offset, length) in all_over(sample.len()).skip(reader * 40).take(40) {
            let end = (offset + length).min(sample.len());
            let read = part(&path, offset as u64, length).unwrap();
            assert!(read == sample[offset..end], "{length} bytes of {number} at {offset}");
        }
        if reader.is_multiple_of(2) {
            assert!(fs::read(&path).unwrap() == *sample, "{number}");
        }
    }
}

#[test]
fn many_readers_of_one_corrupt_sample_all_get_eio() {
    let samples = [noise(1, 3 << 20), noise(2, 9 << 20)];
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples, &[]);
        for (number, sample) in samples.iter().enumerate() {
            mount.flip_byte(offsets(&samples)[number] + 77);
            std::thread::scope(|scope| {
                for reader in 0..16 {
                    let path = mount.path(format!("{number:06}"));
                    let offset = sample.len() as u64 / 16 * reader;
                    scope.spawn(move || assert_eio(part(&path, offset, 10)));
                }
            });
        }
        assert_eq!(mount.bad().len(), 2);
    });
}

#[test]
fn empty_samples_are_empty_files() {
    let samples = [&b""[..], b"x", b"", b""];
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples, &[]);
        for (number, sample) in samples.iter().enumerate() {
            assert_eq!(mount.read(format!("{number:06}")).unwrap(), *sample);
        }
        assert_eq!(mount.bad().len(), 0);
    });
}

#[test]
fn a_last_sample_cut_to_nothing_is_an_error_and_not_an_empty_file() {
    let samples = [noise(1, 1_000), noise(2, 1_000)];
    let directory = temp_dir();
    let container = container_in(&directory, &samples);
    File::options().write(true).open(&container).unwrap().set_len(offsets(&samples)[1]).unwrap();
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &["allow_damaged"]);
        assert_eq!(mount.read("000000").unwrap(), samples[0]);
        assert!(fs::metadata(mount.path("000001")).unwrap().len() > 0);
        assert_eio(mount.read("000001"));
        assert_eq!(mount.bad()[0][..2], ["000001", "damaged"]);
    });
}

#[test]
fn a_last_sample_that_was_cut_is_an_error() {
    let samples = [noise(1, 1_000), noise(2, 1_000)];
    let directory = temp_dir();
    let container = container_in(&directory, &samples);
    let end = offsets(&samples)[2];
    File::options().write(true).open(&container).unwrap().set_len(end - 1).unwrap();
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &[]);
        assert_eq!(mount.read("000000").unwrap(), samples[0]);
        assert_eio(mount.read("000001"));
        assert_eq!(mount.bad()[0][..2], ["000001", "checksum"]);
    });
}
