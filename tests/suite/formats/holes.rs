//! Compressed streams with long runs of bytes that decode to nothing: the file is long, its content is not.

use super::compressed::has_room;
use super::write::{tar, text};
use crate::common::{
    FFRFS, Mount, TempDir, for_each_transport, peak_memory_bytes, run, skip, temp_dir,
};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// More bytes than a command or a mount may take.
const HOLE_BYTES: u32 = 1 << 30;

/// A tar in two frames of zstd, with a skippable frame between them, of zeros that take no room on the disk.
fn tar_with_hole(directory: &TempDir, tar: &[u8]) -> PathBuf {
    let path = directory.path().join("x.tar.zst");
    let mut file = File::create(&path).unwrap();
    let (first, second) = tar.split_at(tar.len() / 2);
    let skippable = [0x184D_2A50_u32.to_le_bytes(), HOLE_BYTES.to_le_bytes()].concat();
    for piece in [zstd::bulk::compress(first, 1).unwrap(), skippable] {
        file.write_all(&piece).unwrap();
    }
    file.seek(SeekFrom::Current(HOLE_BYTES.into())).unwrap();
    file.write_all(&zstd::bulk::compress(second, 1).unwrap()).unwrap();
    path
}

/// Runs `ffrfs` with less address space than the hole is long.
fn limited(args: &[&str], source: &Path) -> String {
    let script = "ulimit -v 900000 && exec \"$0\" \"$@\"";
    run(Command::new("sh").args(["-c", script, FFRFS]).args(args).arg(source)).ok().text()
}

#[test]
fn bytes_of_a_stream_that_decode_to_nothing_take_no_memory() {
    let (directory, cache) = (temp_dir(), temp_dir());
    // Room for this many bytes is asked for, though few are written.
    if !has_room(cache.path(), 2 << 30) {
        skip("needs 2 GiB beside the 5 % of the file system that stay free");
        return;
    }
    let files = [("a", text(1, 200_000)), ("b", text(2, 300_000))];
    let tar = tar(&files.each_ref().map(|(name, bytes)| (*name, &bytes[..])));
    let source = tar_with_hole(&directory, &tar);
    let place = cache.path().to_str().unwrap();
    assert_eq!(limited(&["ls", "--cache-dir", place], &source), "a\nb\n");
    limited(&["verify", "--cache-dir", place], &source);
    let sums = limited(&["sum", "--cache-dir", place], &source);
    assert_eq!(sums.lines().count(), 2, "{sums}");
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &[&format!("cache_dir={place}")]);
        for (name, bytes) in &files {
            assert!(mount.read(name).unwrap() == *bytes);
        }
        assert!(mount.bad().is_empty());
        let peak = peak_memory_bytes(mount.pid());
        assert!(peak < 200 << 20, "{} MiB", peak >> 20);
    });
    fs::remove_file(source).unwrap();
}
