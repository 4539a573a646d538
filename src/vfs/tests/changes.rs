//! When a read looks whether its container has changed.

use super::*;
use crate::format::ffrecord::FfRecord;
use crate::format::file::PlainFile;
use crate::format::{Container, Format, PartName, Source, Table};

/// A source that counts how often it is looked at.
struct Counted {
    bytes: MemorySource,
    looks: Arc<AtomicU64>,
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
        self.looks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn table(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Box<dyn Table>> {
        self.bytes.table(offset_bytes, length_bytes)
    }
}

/// How often the container is looked at while ten answers are made of a block in memory.
fn looks_for_ten_answers_from_memory(
    stored: Vec<u8>,
    verify: Verify,
    open: impl FnOnce(Arc<dyn Source>) -> Box<dyn Container>,
) -> u64 {
    let looks = Arc::new(AtomicU64::new(0));
    let bytes = MemorySource::new("/part", stored.clone());
    let dataset = Dataset::new(vec![open(Arc::new(Counted { bytes, looks: Arc::clone(&looks) }))]);
    let names = Numbered::new(dataset.len(), None, Suffix::Fixed(String::new())).into();
    let part = Part::in_memory("/part", stored.clone(), SystemTime::UNIX_EPOCH);
    let store = Store::new(vec![Arc::new(part)]);
    let vfs = Vfs::new(dataset, names, store, options(verify, 64 << 20));
    let world = World { vfs, disk: vec![stored] };
    let step = match world.lead(0) {
        task if task.waits() => Step::Read(task),
        task => world.vfs.must_wait(task),
    };
    world.drive(step).unwrap();
    let before = looks.load(Ordering::Relaxed);
    for _ in 0..10 {
        let step = world.vfs.read(ino_of(0), 0, 100);
        assert!(matches!(step, Step::Done(_)), "it is in memory");
        assert_eq!(world.drive(step).unwrap().len(), 100);
    }
    looks.load(Ordering::Relaxed) - before
}

#[test]
fn bytes_in_memory_are_given_without_a_look_where_the_index_cannot_change() {
    let plain = |source| Box::new(PlainFile::new(source, b"name".to_vec())) as Box<dyn Container>;
    for verify in [Verify::Always, Verify::Once, Verify::Off] {
        assert_eq!(looks_for_ten_answers_from_memory(noise(1, 4000), verify, plain), 0);
    }
    // Its index may be mapped: only a checksum proves that the bytes are the sample's.
    for (verify, looks) in [(Verify::Always, 0), (Verify::Off, 10)] {
        let open = |source| FfRecord.open(source, &OpenOptions::default()).unwrap();
        let stored = pack(&[noise(1, 4000), noise(2, 4000)]);
        assert_eq!(looks_for_ten_answers_from_memory(stored, verify, open), looks);
    }
}
