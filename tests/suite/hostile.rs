//! Containers that are damaged or made to do harm: refused, or EIO, or the right bytes; never a wrong byte, a
//! panic, a hang, or much memory. Every damage to a small file goes through the file system in this process,
//! some of it through the program and a mount.

mod program;
mod sealed;

use super::common::noise;
use ffrfs::dataset::{self, NameOptions, Opened, Unwatched, Watch};
use ffrfs::format::ffrecord::{PACKED_DIRECTORY_MAGIC, Writer, pickle};
use ffrfs::format::{Directory, Entry, OpenOptions};
use ffrfs::io::ReadError;
use ffrfs::store::Part;
use ffrfs::vfs::{Errno, FileKind, Options, ReadRequest, Verify, Vfs};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;
use std::time::SystemTime;

/// Paths, and the bytes or the error that a reader gets.
type Files = BTreeMap<String, Result<Vec<u8>, Errno>>;

/// The root's inode number.
const ROOT_INO: u64 = 1;

/// A container as bytes.
fn pack(samples: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = Writer::new(Cursor::new(Vec::new()), samples.len() as u64).unwrap();
    for sample in samples {
        writer.write_sample(&mut &sample[..]).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// A file with this header and these tables, right or wrong; if `crc` is `None`, its checksum is right.
fn raw(crc: Option<u32>, count: i64, crcs: &[u32], offsets: &[i64], data: &[u8]) -> Vec<u8> {
    let mut covered = count.to_le_bytes().to_vec();
    crcs.iter().for_each(|crc| covered.extend_from_slice(&crc.to_le_bytes()));
    offsets.iter().for_each(|offset| covered.extend_from_slice(&offset.to_le_bytes()));
    let crc = crc.unwrap_or_else(|| crc32fast::hash(&covered));
    [&crc.to_le_bytes()[..], &covered, data].concat()
}

/// Five samples: one empty, two alike.
fn small() -> Vec<Vec<u8>> {
    vec![b"alpha".to_vec(), Vec::new(), noise(1, 30), b"alpha".to_vec(), b"z".to_vec()]
}

/// Four samples and a tree over them.
fn small_tree() -> Vec<Vec<u8>> {
    let file = |name: &str, sample| (name.as_bytes().into(), Entry::File(sample));
    let inner = Directory { entries: vec![file("b", 2), file("c", 3)] };
    let directory = (b"d".as_slice().into(), Entry::Directory(inner));
    let root = Directory { entries: vec![file("a", 1), directory, file("e", 0)] };
    let mut stored = PACKED_DIRECTORY_MAGIC.to_vec();
    pickle::encode(&root, &mut stored).unwrap();
    let mut samples = small();
    samples[4] = stored;
    samples
}

/// The file as an old writer left it: without a checksum over the tables.
fn without_header_checksum(mut file: Vec<u8>) -> Vec<u8> {
    file[..4].fill(0);
    file
}

/// The files that a mount of these bytes would show; `None` if they are refused.
fn serve(bytes: &[u8], allow_damaged: bool, verify: Verify) -> Option<Files> {
    let format = OpenOptions { allow_damaged, ..OpenOptions::default() };
    show(open("hostile.ffr", bytes, format)?, bytes, allow_damaged, verify)
}

/// These bytes as a dataset; `None` if they are refused.
fn open(name: &str, bytes: &[u8], format: OpenOptions) -> Option<Opened> {
    let part = Part::in_memory(name, bytes.to_vec(), SystemTime::UNIX_EPOCH);
    let options = dataset::Options { format, ..dataset::Options::default() };
    let watch: Arc<dyn Watch> = Arc::new(Unwatched);
    dataset::open_parts(vec![part], &options, &watch).ok()
}

/// The files that a mount of this dataset would show.
fn show(opened: Opened, bytes: &[u8], allow_damaged: bool, verify: Verify) -> Option<Files> {
    let catalog = opened.named(&NameOptions::default(), allow_damaged).ok()?;
    // The cache is so small that some samples are kept whole and others are passed over.
    let options = Options { verify, cache_bytes: 100, ..Options::default() };
    let vfs = opened.into_vfs(catalog, options);
    let mut files = Files::new();
    let mut pending = vec![(ROOT_INO, String::new())];
    while let Some((directory, prefix)) = pending.pop() {
        let mut entries = Vec::new();
        let listed = vfs.readdir(directory, 2, &mut |entry| {
            let path = format!("{prefix}{}", String::from_utf8_lossy(entry.name));
            entries.push((path, entry.ino, entry.kind == FileKind::Directory));
            entries.len() < 1000
        });
        listed.unwrap();
        for (path, ino, is_directory) in entries {
            if is_directory {
                pending.push((ino, format!("{path}/")));
            } else {
                files.insert(path, read_file(&vfs, bytes, ino));
            }
        }
    }
    Some(files)
}

/// Reads from the middle, then the whole file piece by piece; right bytes must be right both times.
fn read_file(vfs: &Vfs, disk: &[u8], ino: u64) -> Result<Vec<u8>, Errno> {
    let size = vfs.getattr(ino)?.size;
    let middle = read(vfs, disk, ino, size / 2, 2);
    let mut all = Vec::new();
    while (all.len() as u64) < size {
        let piece = read(vfs, disk, ino, all.len() as u64, 7)?;
        assert!(!piece.is_empty(), "a file ends where its size says");
        all.extend_from_slice(&piece);
    }
    let start = (size / 2) as usize;
    assert_eq!(middle?, all[start..(start + 2).min(all.len())]);
    assert_eq!(read(vfs, disk, ino, size, 100)?, b"");
    Ok(all)
}

fn read(vfs: &Vfs, disk: &[u8], ino: u64, offset: u64, length: u64) -> Result<Vec<u8>, Errno> {
    let request = ReadRequest { ino, offset_bytes: offset, length_bytes: length };
    let reply = vfs.read_blocking(request, |span| {
        let (start, target) = span.target(1).unwrap();
        let start = usize::try_from(start).unwrap();
        let found = start.checked_add(target.len()).and_then(|end| disk.get(start..end));
        let bytes = found.ok_or_else(|| ReadError::Io(std::io::ErrorKind::UnexpectedEof.into()))?;
        target.copy_from_slice(bytes);
        Ok(())
    });
    let bytes = reply.bytes().map(<[u8]>::to_vec);
    vfs.finish(reply);
    bytes
}

/// The files that may be shown of a container: its tree, or numbers, each with the right bytes.
struct Model {
    file: Vec<u8>,
    views: [Files; 2],
}

impl Model {
    fn new(file: Vec<u8>, samples: &[Vec<u8>]) -> Self {
        let number = |(i, sample): (usize, &Vec<u8>)| (format!("{i:06}"), Ok(sample.clone()));
        let numbers = samples.iter().enumerate().map(number).collect();
        let view = serve(&file, false, Verify::Always).expect("a good container");
        assert!(view.values().all(Result::is_ok));
        Self { file, views: [view, numbers] }
    }

    /// Models of all four kinds: numbered and named, with and without a checksum over the tables.
    fn all() -> Vec<Self> {
        let mut models = Vec::new();
        for samples in [small(), small_tree()] {
            let file = pack(&samples);
            models.push(Self::new(file.clone(), &samples));
            models.push(Self::new(without_header_checksum(file), &samples));
        }
        models
    }

    /// Checks that a damaged copy is refused, or shows the names of the model with the right bytes or EIO. There may be
    /// fewer or more numbers only if nothing vouches for the count (no checksum, damage allowed).
    fn judge(&self, damaged: &[u8], what: &str) {
        for allow_damaged in [false, true] {
            let Some(files) = serve(damaged, allow_damaged, Verify::Always) else { continue };
            self.compare(&files, allow_damaged && damaged[..4] == [0; 4], what);
        }
    }

    fn compare(&self, files: &Files, may_miscount: bool, what: &str) {
        let same = self.views.iter().find(|view| view.keys().eq(files.keys()));
        let numbers = may_miscount.then_some(&self.views[1]);
        let view = same.or(numbers).unwrap_or_else(|| panic!("{what}: {:?}", files.keys()));
        for (path, bytes) in files {
            let right = *bytes == Err(Errno::EIO) || Some(bytes) == view.get(path);
            assert!(right, "{what}: {path}");
        }
    }
}

#[test]
fn every_truncation_is_refused_or_gives_eio_or_the_right_bytes() {
    for model in Model::all() {
        for length in 0..model.file.len() {
            model.judge(&model.file[..length], &format!("cut at {length}"));
        }
    }
}

#[test]
fn every_flipped_bit_is_refused_or_gives_eio_or_the_right_bytes() {
    for model in Model::all() {
        for bit in 0..model.file.len() * 8 {
            let mut damaged = model.file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            model.judge(&damaged, &format!("bit {bit}"));
        }
    }
}

#[test]
fn a_flipped_bit_in_a_sample_costs_that_sample_and_no_other() {
    let samples = small();
    let model = Model::new(pack(&samples), &samples);
    let mut end = model.file.len() - samples.iter().map(Vec::len).sum::<usize>();
    for (number, sample) in samples.iter().enumerate() {
        let start = end;
        end += sample.len();
        for bit in start * 8..end * 8 {
            let mut damaged = model.file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let files = serve(&damaged, false, Verify::Always).unwrap();
            for (place, (path, bytes)) in files.iter().enumerate() {
                let expected =
                    if place == number { &Err(Errno::EIO) } else { &model.views[1][path] };
                assert_eq!(bytes, expected, "bit {bit}: {path}");
            }
        }
    }
}

#[test]
fn every_run_of_zeros_is_refused_or_gives_eio_or_the_right_bytes() {
    // A file system leaves zeros in blocks that were never written.
    for model in Model::all() {
        for start in 0..model.file.len() {
            for length in [1, 4, 8, 12, 16, 40, 4096] {
                let mut damaged = model.file.clone();
                let end = (start + length).min(damaged.len());
                damaged[start..end].fill(0);
                model.judge(&damaged, &format!("zeros {start}..{end}"));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn bytes_changed_at_random_are_refused_or_give_eio_or_the_right_bytes(
        which in 0usize..4,
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        more in vec(any::<u8>(), 0..20),
    ) {
        let model = &Model::all()[which];
        let mut damaged = model.file.clone();
        for (index, byte) in changes {
            let at = index.index(damaged.len());
            damaged[at] = byte;
        }
        damaged.truncate(cut.map_or(damaged.len(), |index| index.index(damaged.len())));
        damaged.extend_from_slice(&more);
        model.judge(&damaged, "changed at random");
    }

    #[test]
    fn any_index_with_the_right_checksum_is_served_or_refused(
        crcs in vec(prop_oneof![Just(0), Just(crc32fast::hash(b"x")), any::<u32>()], 0..8),
        steps in vec(prop_oneof![4 => 0i64..9, 1 => Just(i64::MAX / 4), 1 => -3i64..0], 8),
        data in vec(any::<u8>(), 0..40),
        allow_damaged: bool,
        verify in prop_oneof![Just(Verify::Always), Just(Verify::Once), Just(Verify::Off)],
    ) {
        let count = crcs.len() as i64;
        let mut offset = 12 + 12 * count;
        let offsets: Vec<i64> = steps
            .iter()
            .take(crcs.len())
            .map(|step| {
                offset = offset.saturating_add(*step);
                offset
            })
            .collect();
        let file = raw(None, count, &crcs, &offsets, &data);
        for (path, bytes) in serve(&file, allow_damaged, verify).unwrap_or_default() {
            let Ok(bytes) = bytes else { continue };
            let number: usize = path.parse().unwrap();
            let start = offsets[number] as usize;
            let end = offsets.get(number + 1).map_or(file.len(), |next| *next as usize);
            prop_assert_eq!(&bytes, &file[start..end]);
            prop_assert!(verify == Verify::Off || crc32fast::hash(&bytes) == crcs[number]);
        }
    }

    #[test]
    fn any_stored_names_are_a_tree_or_numbers(
        pickled in prop_oneof![
            vec(any::<u8>(), 0..60),
            vec(prop::sample::select(b"}]()ulsdtR.h\0q\0K\x01\x8c\x01aI1\nS'a'\n\x80\x04\x95".to_vec()), 0..60),
        ],
    ) {
        let mut samples = small();
        samples[4] = [PACKED_DIRECTORY_MAGIC, &pickled].concat();
        let files = serve(&pack(&samples), false, Verify::Always).unwrap();
        for (path, bytes) in files {
            let bytes = bytes.unwrap();
            prop_assert!(samples.contains(&bytes), "{}", path);
        }
    }
}

#[test]
fn lengths_up_to_the_largest_offset_overflow_nothing() {
    let most = i64::MAX;
    for offsets in [
        [48, 48, most],
        [48, most - 1, most],
        [48, most, most],
        [most, most, most],
        [most - 2, most - 1, most],
        [48, 50, 1 << 62],
    ] {
        let file = raw(None, 3, &[crc32fast::hash(b"ab"), 0, 1], &offsets, b"abcdef");
        assert!(serve(&file, false, Verify::Always).is_none());
        let files = serve(&file, true, Verify::Always).unwrap();
        assert_eq!(files.len(), 3);
        let whole = offsets[1] == 50;
        assert_eq!(files["000000"].is_ok(), whole, "{offsets:?}");
        assert_eq!(files["000002"], Err(Errno::EIO), "{offsets:?}");
    }
}

#[test]
fn counts_beyond_the_file_are_refused_before_memory_is_reserved() {
    for count in [6, 1 << 20, 1 << 40, i64::MAX / 12, i64::MAX / 12 + 1, i64::MAX, -1, i64::MIN] {
        for crc in [None, Some(0)] {
            for allow_damaged in [false, true] {
                let file = raw(crc, count, &[0; 5], &[72; 5], b"data");
                assert!(serve(&file, allow_damaged, Verify::Always).is_none(), "{count}");
            }
        }
    }
}
