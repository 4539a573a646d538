//! When a read looks whether its container has changed.

use super::*;
use crate::format::ffrecord::FfRecord;
use crate::format::file::PlainFile;
use crate::format::{Container, Format, PartName, Source, Table};
use std::sync::OnceLock;

/// The state that tests and a source share.
#[derive(Default)]
struct Looks {
    /// The number of looks at the source.
    count: AtomicU64,
    /// The change that looks find from now on.
    change: OnceLock<Change>,
}

/// A source that counts how often it is looked at.
struct Counted {
    bytes: MemorySource,
    looks: Arc<Looks>,
}

impl Source for Counted {
    fn name(&self) -> &PartName {
        self.bytes.name()
    }

    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        self.bytes.read_exact_at(buf, offset_bytes)
    }

    fn check_unchanged(&self) -> io::Result<()> {
        self.looks.count.fetch_add(1, Ordering::Relaxed);
        match self.looks.change.get() {
            Some(change) => Err(io::Error::other(ReadError::Changed(*change))),
            None => Ok(()),
        }
    }

    fn table(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Box<dyn Table>> {
        self.bytes.table(offset_bytes, length_bytes)
    }
}

/// A mount of one container that counts looks.
fn mounted(
    stored: Vec<u8>,
    verify: Verify,
    open: impl FnOnce(Arc<dyn Source>) -> Box<dyn Container>,
) -> (World, Arc<Looks>) {
    let looks = Arc::new(Looks::default());
    let bytes = MemorySource::new("/part", stored.clone());
    let dataset = Dataset::new(vec![open(Arc::new(Counted { bytes, looks: Arc::clone(&looks) }))]);
    let names = Numbered::new(dataset.len(), None, Suffix::Fixed(String::new())).into();
    let part = Part::in_memory("/part", stored.clone(), SystemTime::UNIX_EPOCH);
    let store = Store::new(vec![Arc::new(part)]);
    let vfs = Vfs::new(dataset, names, store, options(verify, 64 << 20));
    (World { vfs, disk: vec![stored] }, looks)
}

/// A file of one sample, whose index cannot change.
fn plain(source: Arc<dyn Source>) -> Box<dyn Container> {
    Box::new(PlainFile::new(source, b"name".to_vec(), None))
}

fn ffrecord(source: Arc<dyn Source>) -> Box<dyn Container> {
    FfRecord.open(source, &OpenOptions::default()).unwrap()
}

/// The number of looks at the container while ten answers are made of a block in memory.
fn looks_for_ten_answers_from_memory((world, looks): (World, Arc<Looks>)) -> u64 {
    let step = match world.lead(0) {
        task if task.waits() => Step::Read(task),
        task => world.vfs.must_wait(task),
    };
    world.drive(step).unwrap();
    let before = looks.count.load(Ordering::Relaxed);
    for _ in 0..10 {
        let step = world.vfs.read(ino_of(0), 0, 100);
        assert!(matches!(step, Step::Done(_)), "it is in memory");
        assert_eq!(world.drive(step).unwrap().len(), 100);
    }
    looks.count.load(Ordering::Relaxed) - before
}

#[test]
fn bytes_in_memory_are_given_without_a_look_where_the_index_cannot_change() {
    for verify in [Verify::Always, Verify::Once, Verify::Off] {
        let mounted = mounted(noise(1, 4000), verify, plain);
        assert_eq!(looks_for_ten_answers_from_memory(mounted), 0);
    }
    // An FFRecord's index may be mapped: only a checksum proves that the bytes are the sample's.
    for (verify, looks) in [(Verify::Always, 0), (Verify::Off, 10)] {
        let mounted = mounted(pack(&[noise(1, 4000), noise(2, 4000)]), verify, ffrecord);
        assert_eq!(looks_for_ten_answers_from_memory(mounted), looks);
    }
}

#[test]
fn attributes_are_outdated_only_if_the_index_may_have_changed_with_the_file() {
    use Change::{Replaced, Rewritten, Truncated, Unlinked};
    let changes = [(Truncated, true), (Rewritten, true), (Replaced, true), (Unlinked, false)];
    for (change, rewrites) in changes {
        let one = noise(1, 4000);
        let indexed = mounted(pack(std::slice::from_ref(&one)), Verify::Always, ffrecord);
        let fixed = mounted(one, Verify::Always, plain);
        for ((world, looks), is_outdated) in [(indexed, rewrites), (fixed, false)] {
            world.vfs.getattr(ino_of(0)).unwrap();
            looks.change.set(change).unwrap();
            let outdated = world.vfs.check_containers().outdated_inodes;
            assert_eq!(outdated.contains(&ino_of(0)), is_outdated, "{change:?}");
            assert_eq!(world.vfs.getattr(ino_of(0)).unwrap_err(), Errno::EIO);
        }
    }
}
