//! Any bytes as a container: opened or refused, listed and read through the file system's own code, and
//! never a byte given out of a sample that does not match its checksum.

#![no_main]

use ffrfs::dataset::{self, NameOptions, Unwatched, Watch};
use ffrfs::format::OpenOptions;
use ffrfs::io::ReadError;
use ffrfs::store::Part;
use ffrfs::vfs::{Attr, FileKind, Listed, Options, ReadRequest, Vfs};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use std::time::SystemTime;

/// The most files and directories that are looked at in one run.
const MAX_ENTRIES: usize = 64;

fuzz_target!(|input: &[u8]| {
    let Some((&mode, bytes)) = input.split_first() else { return };
    let part = Part::in_memory("fuzz.ffr", bytes.to_vec(), SystemTime::UNIX_EPOCH);
    let allow_damaged = mode & 1 != 0;
    let format = OpenOptions { allow_damaged, format: Some("FFRecord"), ..OpenOptions::default() };
    let options = dataset::Options { format, ..dataset::Options::default() };
    let watch: Arc<dyn Watch> = Arc::new(Unwatched);
    let Ok(opened) = dataset::open_parts(vec![part], &options, &watch) else { return };
    let numbers = NameOptions { flat: true, ..NameOptions::default() };
    let names = opened.named(&NameOptions::default(), allow_damaged);
    let catalog = names.or_else(|_| opened.named(&numbers, true)).expect("numbers");
    let cache_bytes = if mode & 2 != 0 { 0 } else { 1 << 20 };
    let options = Options { cache_bytes, ..Options::default() };
    let vfs = opened.into_vfs(catalog, options);
    visit(&vfs, bytes);
});

fn visit(vfs: &Vfs, bytes: &[u8]) {
    let mut directories = vec![1];
    let mut seen = 0;
    while let Some(directory) = directories.pop() {
        let mut inside = Vec::new();
        let _ = vfs.readdir(directory, 2, &mut |entry: Listed| {
            inside.push((entry.ino, entry.name.to_vec()));
            inside.len() < MAX_ENTRIES
        });
        for (ino, name) in inside {
            seen += 1;
            if seen > MAX_ENTRIES {
                return;
            }
            let _ = vfs.lookup(directory, &name);
            match vfs.getattr(ino) {
                Ok(Attr { kind: FileKind::Directory, .. }) => directories.push(ino),
                Ok(attr) => read(vfs, bytes, &attr),
                Err(_) => {}
            }
        }
    }
}

/// Reads a file in two ways; the result must be the stored bytes, and the sample must match the stored checksum.
fn read(vfs: &Vfs, bytes: &[u8], attr: &Attr) {
    let number = |name: &[u8]| -> u64 {
        let value = vfs.getxattr(attr.ino, name).expect("a sample has its attributes");
        std::str::from_utf8(&value).unwrap().parse().unwrap()
    };
    let start = number(b"user.ffrfs.offset");
    let crc = vfs.getxattr(attr.ino, b"user.ffrfs.crc32").expect("FFRecord has checksums");
    let crc = u32::from_str_radix(std::str::from_utf8(&crc).unwrap(), 16).unwrap();
    for (offset, length) in [(0, attr.size), (attr.size / 2, 7)] {
        let Some(given) = read_at(vfs, bytes, attr.ino, offset, length) else { continue };
        if given.is_empty() {
            continue;
        }
        let whole = &bytes[start as usize..(start + attr.size) as usize];
        assert_eq!(crc32(whole), crc, "a sample that does not match was given out");
        assert_eq!(given, whole[offset as usize..][..given.len()]);
    }
}

fn read_at(vfs: &Vfs, bytes: &[u8], ino: u64, offset: u64, length: u64) -> Option<Vec<u8>> {
    let request = ReadRequest { ino, offset_bytes: offset, length_bytes: length };
    let reply = vfs.read_blocking(request, |span| {
        let (at, target) = span.target(1)?;
        let at = at as usize;
        match bytes.get(at..at + target.len()) {
            Some(found) => Ok(target.copy_from_slice(found)),
            None => Err(ReadError::Io(std::io::ErrorKind::UnexpectedEof.into())),
        }
    });
    let given = reply.bytes().ok().map(<[u8]>::to_vec);
    vfs.finish(reply);
    given
}

fn crc32(bytes: &[u8]) -> u32 {
    // Bit by bit: an implementation that is independent of the tested one.
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}
