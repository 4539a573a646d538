//! Tar archives with a sidecar: whatever bit is flipped, only original bytes are given out.

use super::{Files, show};
use crate::common::{noise, run, temp_dir};
use ffrfs::dataset::Opened;
use ffrfs::format::sidecar::{Key, Section, read, write};
use ffrfs::format::{Content, MemorySource, OpenOptions, Source};
use ffrfs::vfs::{Errno, Verify};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;

/// An archive of a few small files, two of which have holes.
fn archive() -> Vec<u8> {
    let directory = temp_dir();
    let root = directory.path().join("root");
    fs::create_dir_all(root.join("d")).unwrap();
    fs::write(root.join("d/a"), noise(1, 700)).unwrap();
    fs::write(root.join("d/b"), b"b").unwrap();
    fs::write(root.join("empty"), b"").unwrap();
    for (name, pieces) in [("one hole", 1), ("holes", 2)] {
        let file = File::create(root.join(name)).unwrap();
        (0..pieces).for_each(|n| file.write_all_at(&noise(n, 500), 4096 + n * 8192).unwrap());
        file.set_len(4096 + pieces * 8192).unwrap();
    }
    let mut tar = Command::new("tar");
    run(tar.current_dir(&root).args(["--sort=name", "-b1", "-cSf", "../x.tar", "."])).ok();
    fs::read(directory.path().join("x.tar")).unwrap()
}

fn open(bytes: &[u8]) -> Option<(Key, Opened)> {
    let source: Arc<dyn Source> = Arc::new(MemorySource::new("x.tar", bytes.to_vec()));
    let opened = super::open("x.tar", bytes, OpenOptions::default())?;
    let key = Key::of(source.as_ref(), opened.dataset.containers()[0].as_ref()).ok()?;
    Some((key, opened))
}

fn sidecar(bytes: &[u8]) -> Arc<Section> {
    let (key, opened) = open(bytes).expect("a good archive");
    let dataset = opened.dataset;
    let row = |sample| {
        let at = dataset.locate(sample).unwrap().unwrap().sample;
        crc32fast::hash(&bytes[at.offset_bytes as usize..at.end_bytes() as usize])
    };
    let rows: Vec<_> = (0..dataset.len()).map(row).collect();
    let sparse = |sample: &u64| {
        let at = dataset.locate(*sample).unwrap().unwrap().sample;
        matches!(at.content, Content::Sparse(_)) && at.length_bytes > 0
    };
    assert_eq!((0..dataset.len()).filter(sparse).count(), 2, "two have holes");
    let mut out = Vec::new();
    write(&mut out, &key, &rows).unwrap();
    let source: Arc<dyn Source> = Arc::new(MemorySource::new("x.ffrsum", out));
    Arc::new(read(&source).unwrap().remove(0))
}

/// The files that a mount with this sidecar shows; `None` if the archive is refused.
fn served(bytes: &[u8], section: &Arc<Section>, verify: Verify) -> Option<Files> {
    let (key, mut opened) = open(bytes)?;
    if section.key().differs(&key).is_some() {
        return None;
    }
    opened.dataset.set_sums([Some((Arc::clone(section), "x.ffrsum".into()))]);
    show(opened, bytes, false, verify)
}

#[test]
fn a_flipped_byte_of_a_sealed_archive_is_refused_or_eio_or_changes_no_bytes() {
    let mut bytes = archive();
    let section = sidecar(&bytes);
    let whole = served(&bytes, &section, Verify::Always).expect("a good archive");
    assert_eq!(whole.len(), 5);
    assert!(whole.values().all(Result::is_ok));
    let (mut refused, mut bad) = (0, 0);
    // An odd step, so that all places in a block have their turn.
    for at in (0..bytes.len()).step_by(151) {
        bytes[at] ^= 1 << (at % 8);
        let verify = if at % 2 == 0 { Verify::Always } else { Verify::Once };
        match served(&bytes, &section, verify) {
            None => refused += 1,
            Some(files) => {
                let found = files.values().zip(whole.values());
                assert_eq!(files.len(), whole.len(), "byte {at}");
                for (found, expected) in found {
                    match found {
                        Ok(_) => assert!(found == expected, "byte {at}"),
                        Err(errno) => assert_eq!(*errno, Errno::EIO, "byte {at}"),
                    }
                }
                bad += usize::from(files.values().any(Result::is_err));
            }
        }
        bytes[at] ^= 1 << (at % 8);
    }
    assert!(refused > 8 && bad > 8, "{refused} refused, {bad} bad");
}
