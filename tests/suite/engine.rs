//! The read engine on real mounts: every byte is right for all readers and ways of reading, and few bytes are read in vain.

mod ahead;
mod announced;
mod bytes;

use crate::common::{
    Mount, TempDir, Transport, drop_cached, noise, skip_forced, temp_dir, wait_until,
    write_container,
};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

static NOISE: LazyLock<Vec<u8>> = LazyLock::new(|| noise(7, 16 << 20));

/// The bytes of sample `number`, which no other sample has.
fn sample(number: usize, length: usize) -> &'static [u8] {
    let start = number * 4099 % (NOISE.len() - length);
    &NOISE[start..start + length]
}

/// Samples of 1 to 9 KB.
fn small(count: usize) -> Vec<&'static [u8]> {
    (0..count).map(|i| sample(i, 1000 + i * 7919 % 8001)).collect()
}

/// Samples of 110 KB.
fn middling(count: usize) -> Vec<&'static [u8]> {
    (0..count).map(|i| sample(i, 110_000 + i % 7)).collect()
}

/// Samples in containers on disk, which can be mounted again and again.
struct Data {
    directory: TempDir,
    samples: Vec<&'static [u8]>,
}

impl Data {
    /// Writes the samples into this many containers, about as many into each.
    fn new(samples: Vec<&'static [u8]>, containers: usize) -> Self {
        let directory = temp_dir();
        for (part, samples) in samples.chunks(samples.len().div_ceil(containers)).enumerate() {
            write_container(&directory.path().join(format!("{part}.ffr")), samples);
        }
        let data = Self { directory, samples };
        data.cool();
        data
    }

    fn containers(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.directory.path()).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Makes the page cache forget the containers.
    fn cool(&self) {
        for path in self.containers() {
            let file = File::options().read(true).write(true).open(path).unwrap();
            file.sync_all().unwrap();
            drop_cached(&file);
        }
    }

    /// Mounts the containers, with none of their bytes in the page cache.
    fn mount(&self, transport: Transport, options: &[&str]) -> Mount {
        self.cool();
        Mount::new(transport, self.directory.path(), options)
    }

    fn bytes(&self) -> u64 {
        self.samples.iter().map(|sample| sample.len() as u64).sum()
    }

    /// Reads whole samples with `readers` threads, of which each free one reads the next of `order`, and compares them.
    fn read(&self, mount: &Mount, readers: usize, order: &[usize]) {
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..readers {
                scope.spawn(|| {
                    while let Some(&number) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                        self.read_one(mount, number);
                    }
                });
            }
        });
    }

    fn read_one(&self, mount: &Mount, number: usize) {
        let bytes = mount.read(name(number)).unwrap_or_else(|e| panic!("{number}: {e}"));
        assert!(bytes == self.samples[number], "sample {number} is wrong");
    }

    fn in_order(&self) -> Vec<usize> {
        (0..self.samples.len()).collect()
    }

    fn shuffled(&self, seed: u64) -> Vec<usize> {
        let mut order = self.in_order();
        let keys = noise(seed, order.len() * 8);
        order.sort_by_key(|&i| &keys[i * 8..][..8]);
        order
    }
}

fn name(number: usize) -> String {
    format!("{number:06}")
}

/// Whether the file system of temporary files reads past the page cache. If not, says so.
fn have_direct() -> bool {
    let directory = temp_dir();
    let path = directory.path().join("probe");
    std::fs::write(&path, [0; 4096]).unwrap();
    let opens = opens_directly(&path);
    if !opens {
        skip_forced("the file system of temporary files has no O_DIRECT");
    }
    opens
}

fn opens_directly(path: &Path) -> bool {
    File::options().read(true).custom_flags(libc::O_DIRECT).open(path).is_ok()
}

/// A number in stats.json, by a path such as `prefetch.used`.
fn figure(mount: &Mount, path: &str) -> u64 {
    let stats = mount.stats();
    let found = path.split('.').fold(&stats, |value, key| &value[key]);
    found.as_u64().unwrap_or_else(|| panic!("{path} in {stats}"))
}

/// Checks that nothing is under way after all readers have gone, and that memory is within its cap.
#[track_caller]
fn assert_at_rest(mount: &Mount) {
    let idle = || figure(mount, "prefetch.in_flight") == 0;
    wait_until("nothing is being fetched", Duration::from_secs(30), idle);
    let stats = mount.stats();
    let cache = &stats["cache"];
    assert!(cache["bytes"].as_u64() <= cache["capacity_bytes"].as_u64(), "{cache}");
    assert!(mount.bad().is_empty() && mount.is_served());
}
