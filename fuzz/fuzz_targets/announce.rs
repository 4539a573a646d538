//! Any bytes, cut anywhere, written to the control file that takes announcements: they are taken or refused, and
//! as many samples are announced wherever the bytes are cut.

#![no_main]

use ffrfs::dataset::{self, NameOptions, Unwatched, Watch};
use ffrfs::format::ffrecord::Writer;
use ffrfs::store::Part;
use ffrfs::vfs::{CONTROL_DIRECTORY, Errno, Lookup, Options, Vfs};
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

const SAMPLES: u64 = 10;

static CONTAINER: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bytes = Cursor::new(Vec::new());
    let mut writer = Writer::new(&mut bytes, SAMPLES).expect("begin");
    for _ in 0..SAMPLES {
        writer.write_sample(&mut &b"x"[..]).expect("write");
    }
    writer.finish().expect("finish");
    bytes.into_inner()
});

fuzz_target!(|input: &[u8]| {
    // The first two bytes give the cuts: the size of the first piece, and that of the others.
    let [first, step, bytes @ ..] = input else { return };
    let mut first = usize::from(*first).min(bytes.len());
    if bytes.contains(&0) {
        // The first piece shows that the bytes are binary numbers.
        first = first.next_multiple_of(8).clamp(8, bytes.len().max(8)).min(bytes.len());
    }
    let (head, tail) = bytes.split_at(first);
    let pieces = std::iter::once(head).chain(tail.chunks(usize::from(*step).max(1)));
    if let (Ok(whole), Ok(cut)) = (announced([bytes]), announced(pieces))
        && (!bytes.contains(&0) || head.contains(&0))
    {
        assert_eq!(whole, cut);
    }
});

/// The number of samples that these writes announce.
fn announced<'a>(writes: impl IntoIterator<Item = &'a [u8]>) -> Result<u64, Errno> {
    let vfs = mounted();
    let Ok(Lookup::Found(directory)) = vfs.lookup(1, CONTROL_DIRECTORY.as_bytes()) else { panic!() };
    let Ok(Lookup::Passing(file)) = vfs.lookup(directory.ino, b"prefetch") else { panic!() };
    let outcome = writes.into_iter().try_for_each(|write| vfs.write(file.ino, 0, write));
    vfs.forget(file.ino, 1);
    let figures = vfs.prefetch_figures();
    outcome.map(|()| figures.announced)
}

fn mounted() -> Vfs {
    let part = Part::in_memory("fuzz.ffr", CONTAINER.clone(), SystemTime::UNIX_EPOCH);
    let watch: Arc<dyn Watch> = Arc::new(Unwatched);
    let opened = dataset::open_parts(vec![part], &dataset::Options::default(), &watch);
    let opened = opened.expect("a container");
    let names = opened.named(&NameOptions::default(), false).expect("numbers");
    opened.into_vfs(names, Options::default())
}
