//! Containers in object stores and behind HTTP, as their users see them: read from `tests/store`, a store that behaves as
//! a test wants. Matters of policy are asserted by counts of requests and bytes, not by time.

mod answers;
mod cache;
mod changes;
mod crashes;
mod credentials;
mod faults;
mod formats;
mod hanging;
mod listing;
mod policy;
mod real_servers;
mod rotten;
mod store;
mod watching;

use crate::common::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The bucket of all tests.
const BUCKET: &str = "bucket";

/// The option by which no request is sent again because the store has got no CPU for long.
const PATIENT: &str = "timeout=60";

/// The options by which each request is sent once.
const ONCE: [&str; 2] = ["hedge=no", PATIENT];

/// A store, and a cache directory that all mounts of it share.
struct Remote {
    store: Store,
    cache: TempDir,
}

impl Remote {
    fn new() -> Self {
        Self { store: Store::new(), cache: temp_dir_in_memory() }
    }

    /// A store that holds these samples as `s3://bucket/data.ffr`.
    fn with_samples(samples: &[impl AsRef<[u8]>]) -> Self {
        let remote = Self::new();
        remote.put_samples(samples);
        remote
    }

    /// Puts these samples as `s3://bucket/data.ffr`, and returns the length of the object.
    fn put_samples(&self, samples: &[impl AsRef<[u8]>]) -> u64 {
        let path = container_in(&self.cache, samples);
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(path).unwrap();
        let length = bytes.len() as u64;
        self.store.put("bucket/data.ffr", bytes);
        length
    }

    /// `s3://bucket/KEY`.
    fn s3(&self, key: &str) -> String {
        format!("s3://{BUCKET}/{key}")
    }

    /// The same object by plain HTTP.
    fn http(&self, key: &str) -> String {
        self.store.http(&format!("{BUCKET}/{key}"))
    }

    /// The directory of the cache.
    fn cache(&self) -> PathBuf {
        self.cache.path().join("cache")
    }

    /// Mounts URLs with the shared cache.
    #[track_caller]
    fn mount(&self, transport: Transport, urls: &[&str], options: &[&str]) -> Mount {
        let cache = format!("cache-dir={}", self.cache().display());
        self.mount_with(transport, urls, &[&[&*cache], options].concat())
    }

    /// Mounts URLs with only these options and those that lead to the store.
    #[track_caller]
    fn mount_with(&self, transport: Transport, urls: &[&str], options: &[&str]) -> Mount {
        let endpoint = format!("endpoint={}", self.store.endpoint());
        let mut all = options.to_vec();
        if urls.iter().any(|url| url.starts_with("s3:")) {
            all.extend([&*endpoint, "region=us-east-1", "anonymous"]);
        }
        let urls: Vec<_> = urls.iter().map(Path::new).collect();
        Mount::of(transport, &urls, &all)
    }

    /// Mounts `s3://bucket/data.ffr`.
    #[track_caller]
    fn data(&self, transport: Transport, options: &[&str]) -> Mount {
        self.mount(transport, &[&self.s3("data.ffr")], options)
    }

    /// Bytes of objects that were sent since the store began to count.
    fn sent(&self) -> u64 {
        self.store.summary().sent_bytes
    }
}

/// The name of a sample.
fn name(sample: usize) -> String {
    format!("{sample:06}")
}

/// Reads samples in this order and compares every byte.
#[track_caller]
fn check(mount: &Mount, samples: &[Vec<u8>], order: impl IntoIterator<Item = usize>) {
    for sample in order {
        let read = mount.read(name(sample)).unwrap_or_else(|e| panic!("sample {sample}: {e}"));
        assert!(read == samples[sample], "sample {sample}: {} other bytes", read.len());
    }
}

/// Numbers below `count`, each once, in an order that is independent of the samples' places.
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<_> = (0..count).collect();
    let draws = noise(seed, count * 8);
    order.sort_by_key(|sample| draws[sample * 8..sample * 8 + 8].to_vec());
    order
}

/// Announces these samples, by their numbers, and waits for none of them.
#[track_caller]
fn announce(mount: &Mount, order: &[usize]) {
    let list = mount.scratch().join("order");
    fs::write(&list, order.iter().map(|sample| format!("{sample}\n")).collect::<String>()).unwrap();
    run(Command::new(FFRFS)
        .args(["warmup", "--background"])
        .arg(mount.point())
        .arg("--list")
        .arg(list))
    .ok();
}

/// Makes the kernel forget all samples of a mount.
fn forget_pages(mount: &Mount, count: usize) {
    for sample in 0..count {
        drop_cached(&fs::File::open(mount.path(name(sample))).unwrap());
    }
}

/// `count` samples of `bytes` bytes.
fn even_samples(count: usize, bytes: usize) -> Vec<Vec<u8>> {
    let pool = noise(7, bytes + count * 8);
    (0..count).map(|sample| pool[sample * 8..sample * 8 + bytes].to_vec()).collect()
}
