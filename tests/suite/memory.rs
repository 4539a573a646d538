//! Large samples in bounded memory. The containers are sparse files: no disk is filled.

mod compressed;

use crate::common::{
    Mount, drop_cached, ffrfs, for_each_transport, noise, one_of, peak_memory_bytes, run, temp_dir,
    wait_until,
};
use ffrfs::format::ffrecord::header_bytes;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// A sample of zeros, with its number and the place at every multiple of [`STEP`] bytes.
struct Sparse {
    number: u64,
    length: u64,
}

const STEP: u64 = 1 << 20;
const MARK_BYTES: u64 = 16;

impl Sparse {
    fn mark(&self, place: u64) -> [u8; MARK_BYTES as usize] {
        (u128::from(self.number + 1) << 64 | u128::from(place)).to_le_bytes()
    }

    /// The places that hold a whole mark.
    fn places(&self) -> impl Iterator<Item = u64> {
        (0..self.length / STEP).map(|step| step * STEP)
    }

    /// The checksum, without a look at all the zeros.
    fn crc32(&self) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        let gap = zeros(STEP - MARK_BYTES);
        for place in self.places() {
            crc.update(&self.mark(place));
            crc.combine(&gap);
        }
        crc.combine(&zeros(self.length % STEP));
        crc.finalize()
    }

    /// The expected bytes `from..to`.
    fn bytes(&self, from: u64, to: u64) -> Vec<u8> {
        let mut bytes = vec![0; (to - from) as usize];
        for place in self.places().skip_while(|place| place + MARK_BYTES <= from) {
            if place >= to {
                break;
            }
            for (byte, at) in self.mark(place).into_iter().zip(place..) {
                if (from..to).contains(&at) {
                    bytes[(at - from) as usize] = byte;
                }
            }
        }
        bytes
    }
}

fn zeros(length: u64) -> crc32fast::Hasher {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&vec![0; length as usize]);
    crc
}

fn write_sparse(path: &Path, samples: &[Sparse]) {
    let file = File::create(path).unwrap();
    let mut index = (samples.len() as u64).to_le_bytes().to_vec();
    index.extend(samples.iter().flat_map(|sample| sample.crc32().to_le_bytes()));
    let mut offset = header_bytes(samples.len() as u64);
    for sample in samples {
        index.extend(offset.to_le_bytes());
        for place in sample.places() {
            file.write_all_at(&sample.mark(place), offset + place).unwrap();
        }
        offset += sample.length;
    }
    file.set_len(offset).unwrap();
    file.write_all_at(&crc32fast::hash(&index).to_le_bytes(), 0).unwrap();
    file.write_all_at(&index, 4).unwrap();
}

#[test]
fn sixty_four_readers_of_100_mb_samples_keep_the_daemon_within_its_cap_and_90_mb() {
    const CAP: u64 = 64 << 20;
    const LENGTH: u64 = 100_000_000;
    const PART: u64 = 4_000_000;
    let directory = temp_dir();
    let container = directory.path().join("data.ffr");
    let samples: Vec<_> = (0..8).map(|number| Sparse { number, length: LENGTH }).collect();
    write_sparse(&container, &samples);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &["cache_size=64M"]);
        std::thread::scope(|scope| {
            for reader in 0..64 {
                let (mount, samples) = (&mount, &samples);
                scope.spawn(move || {
                    let sample = &samples[reader % 8];
                    let file = File::open(mount.path(format!("{:06}", reader % 8))).unwrap();
                    let start = reader as u64 * 1_500_007;
                    for offset in [start, start + PART, LENGTH - PART, 0] {
                        let end = (offset + PART).min(LENGTH);
                        let mut bytes = vec![0; (end - offset) as usize];
                        file.read_exact_at(&mut bytes, offset).unwrap();
                        assert!(bytes == sample.bytes(offset, end), "{reader} at {offset}");
                    }
                });
            }
        });
        let (peak, limit) = (peak_memory_bytes(mount.pid()), CAP + 90_000_000);
        assert!(peak <= limit, "{} MB of {} MB", peak / 1_000_000, limit / 1_000_000);
        let stats = mount.stats();
        assert_eq!(stats["samples_verified"], 8, "one pass for all readers of a sample");
        assert!(stats["cache"]["bytes"].as_u64().unwrap() <= CAP, "{stats}");
    });
}

#[test]
fn sixty_four_readers_of_samples_that_are_kept_whole_stay_within_the_cap_and_90_mb() {
    const CAP: u64 = 32 << 20;
    const LENGTH: u64 = 3_000_000;
    let directory = temp_dir();
    let container = directory.path().join("data.ffr");
    let samples: Vec<_> = (0..128).map(|number| Sparse { number, length: LENGTH }).collect();
    write_sparse(&container, &samples);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &["cache_size=32M"]);
        read_parts(&mount, &samples, 8);
        let (peak, limit) = (peak_memory_bytes(mount.pid()), CAP + 90_000_000);
        assert!(peak <= limit, "{} MB of {} MB", peak / 1_000_000, limit / 1_000_000);
        let cache = &mount.stats()["cache"];
        assert!(cache["bytes"].as_u64() <= Some(CAP), "{cache}");
        assert!(cache["evictions"].as_u64() > Some(0), "{cache}");
    });
}

/// Starts 64 readers that each read a part of `steps` of 128 samples: the rest of each sample waits in the cache until it is
/// evicted.
fn read_parts(mount: &Mount, samples: &[Sparse], steps: u64) {
    std::thread::scope(|scope| {
        for reader in 0..64 {
            scope.spawn(move || {
                for step in 0..steps {
                    let sample = &samples[((reader * 2 + step * 17) % 128) as usize];
                    let path = mount.path(format!("{:06}", sample.number));
                    let offset = (reader * 300_007 + step * 1_000) % (sample.length - 5_000);
                    let mut bytes = vec![0; 5_000];
                    File::open(path).unwrap().read_exact_at(&mut bytes, offset).unwrap();
                    assert!(bytes == sample.bytes(offset, offset + 5_000), "at {offset}");
                }
            });
        }
    });
}

/// Makes reads go to the disk as long as `work` goes on: the container's pages are dropped again and again.
fn while_cold(container: &Path, work: impl FnOnce()) {
    let container = File::open(container).unwrap();
    let (working, is_working) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let pause = Duration::from_millis(5);
            while is_working.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                drop_cached(&container);
            }
        });
        work();
        drop(working);
    });
}

#[test]
fn sixty_four_readers_of_cold_samples_stay_within_the_memory_of_the_mount() {
    const MEMORY: u64 = 64 << 20;
    let directory = temp_dir();
    let container = directory.path().join("data.ffr");
    let samples: Vec<_> = (0..128).map(|number| Sparse { number, length: 3_000_000 }).collect();
    write_sparse(&container, &samples);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &["memory=64M"]);
        while_cold(&container, || read_parts(&mount, &samples, 20));
        // Besides the cache, a daemon takes some MB for itself, and each CPU may always have a sample read.
        let (peak, limit) =
            (peak_memory_bytes(mount.pid()), MEMORY + 12_000_000 + cpus * 4_000_000);
        assert!(
            peak <= limit,
            "{transport:?}: {} MB of {} MB",
            peak / 1_000_000,
            limit / 1_000_000
        );
    });
}

#[test]
fn readers_that_are_killed_while_they_wait_for_memory_leave_it_to_others() {
    let directory = temp_dir();
    let container = directory.path().join("data.ffr");
    let samples: Vec<_> = (0..128).map(|number| Sparse { number, length: 3_000_000 }).collect();
    write_sparse(&container, &samples);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &["memory=16M"]);
        while_cold(&container, || {
            let start = |number: usize| {
                let mut cat = Command::new("cat");
                cat.arg(mount.path(format!("{number:06}"))).stdout(Stdio::piped());
                cat.stderr(Stdio::null()).spawn().unwrap()
            };
            let readers = (0..64).map(start).collect::<Vec<_>>().into_iter().enumerate();
            let (mut killed, others): (Vec<_>, Vec<_>) =
                readers.partition(|(number, _)| number % 2 == 1);
            for (_, reader) in &mut killed {
                reader.kill().unwrap();
            }
            for (number, reader) in others {
                let bytes = reader.wait_with_output().unwrap().stdout;
                assert!(bytes == samples[number].bytes(0, samples[number].length), "{number}");
            }
            for (_, mut reader) in killed {
                reader.wait().unwrap();
            }
        });
    });
}

#[test]
fn a_sample_of_over_4_gib_is_read_beyond_4_gib() {
    const LENGTH: u64 = (4 << 30) + (10 << 20);
    let directory = temp_dir();
    let container = directory.path().join("data.ffr");
    let samples = [
        Sparse { number: 0, length: 3 },
        Sparse { number: 1, length: LENGTH },
        Sparse { number: 2, length: (1 << 20) + 5 },
    ];
    write_sparse(&container, &samples);
    let check = |mount: &Mount, offset: u64| {
        let mut bytes = vec![1; 100];
        let file = File::open(mount.path("000001")).unwrap();
        file.read_exact_at(&mut bytes, offset).unwrap();
        assert!(bytes == samples[1].bytes(offset, offset + 100), "at {offset}");
    };
    for_each_transport(|transport| {
        for verify in ["verify=off", "verify=always"] {
            let mount = Mount::new(transport, &container, &[verify]);
            assert_eq!(fs::metadata(mount.path("000001")).unwrap().len(), LENGTH);
            check(&mount, (4 << 30) + (5 << 20) - 10);
            check(&mount, (4 << 30) - 50);
            check(&mount, LENGTH - 100);
            check(&mount, 0);
            let last = &samples[2];
            assert!(mount.read("000002").unwrap() == last.bytes(0, last.length));
            assert!(peak_memory_bytes(mount.pid()) < 190_000_000);
        }
    });
}

/// The number of page faults of a process so far that needed no disk.
fn faults(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(7).unwrap().parse().unwrap()
}

#[test]
fn members_of_a_zip_are_read_into_memory_that_was_used_before() {
    let directory = temp_dir();
    let (files, zip) = (directory.path().join("files"), directory.path().join("x.zip"));
    fs::create_dir(&files).unwrap();
    let members: Vec<_> = (0..300).map(|number| noise(number, 100_000)).collect();
    for (number, member) in members.iter().enumerate() {
        fs::write(files.join(number.to_string()), member).unwrap();
    }
    ffrfs(&["convert".as_ref(), files.as_os_str(), zip.as_os_str()]).ok();
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &zip, &[]);
        let read = |turn: usize| {
            // An order that the mount does not foresee.
            let number = turn * 101 % members.len();
            assert!(mount.read(number.to_string()).unwrap() == members[number]);
        };
        (0..100).for_each(read);
        let before = faults(mount.pid());
        (100..300).for_each(read);
        let faults = faults(mount.pid()) - before;
        // New memory takes 25 page faults for each member.
        assert!(faults < 200 * 5, "{transport:?}: {faults}");
    });
}

#[test]
fn nobody_hangs_when_the_daemon_gets_no_more_memory() {
    if one_of(&["prlimit"]).is_none() {
        return;
    }
    let samples: Vec<_> = (0..64).map(|number| noise(number, 700_000)).collect();
    for_each_transport(|transport| {
        for spare_kib in [0, 1024] {
            let mount = Mount::with_samples(transport, &samples, &[]);
            let status = fs::read_to_string(format!("/proc/{}/status", mount.pid())).unwrap();
            let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
            let size: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
            let limit = (size + spare_kib) << 10;
            let pid = mount.pid().to_string();
            run(Command::new("prlimit").args(["--pid", &pid, &format!("--as={limit}")])).ok();
            let mut readers: Vec<_> = (0..16)
                .map(|reader| {
                    let mut cat = Command::new("cat");
                    cat.args((0..4).map(|turn| mount.path(format!("{:06}", reader * 4 + turn))));
                    cat.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
                })
                .collect();
            let all = readers
                .drain(..)
                .map(|reader| std::thread::spawn(move || reader.wait_with_output().unwrap()));
            let all: Vec<_> = all.collect();
            wait_until("all readers end", Duration::from_secs(60), || {
                all.iter().all(std::thread::JoinHandle::is_finished)
            });
            for (reader, ended) in all.into_iter().enumerate() {
                let ended = ended.join().unwrap();
                let expected = samples[reader * 4..reader * 4 + 4].concat();
                assert!(!ended.status.success() || ended.stdout == expected, "reader {reader}");
            }
        }
    });
}

#[test]
fn a_daemon_with_little_address_space_lives_on_with_fewer_threads_and_buffers() {
    let samples: Vec<_> = (0..20).map(|number| noise(number, 200_000)).collect();
    for_each_transport(|transport| {
        // Begins with the least memory with which mounting succeeds.
        let mut mounted = 0;
        let mut kibibytes = 60_000;
        while mounted < 12 {
            kibibytes += 10_000;
            let limited = |command: Command| {
                let mut limited = Command::new("sh");
                limited.args(["-c", &format!("ulimit -v {kibibytes} && exec \"$0\" \"$@\"")]);
                limited.arg(command.get_program()).args(command.get_args());
                limited
            };
            let options = ["restarts=0"];
            let mount = match Mount::attempt_with_samples(transport, &samples, &options, limited) {
                Ok(mount) => mount,
                Err(outcome) => {
                    assert!(kibibytes < 4_000_000, "{transport:?}: {}", outcome.stderr);
                    continue;
                }
            };
            mounted += 1;
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        for (number, sample) in samples.iter().enumerate() {
                            // Without memory for a buffer a read fails.
                            let read = mount.read(format!("{number:06}"));
                            assert!(read.is_err() || read.is_ok_and(|bytes| bytes == *sample));
                        }
                    });
                }
            });
            assert!(mount.is_served(), "{transport:?}, {kibibytes} KiB: {}", mount.log());
        }
    });
}
