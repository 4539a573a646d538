//! Checksums: lists that other programs check, sidecars for formats that have none, containers that must be the named ones.

mod list;
mod named;
mod sidecar;

use super::write::tar;
use super::{file_in, refused, run_in, tree};
use crate::common::{
    FFRFS, Mount, Need, Outcome, TempDir, Transport, assert_errno, container_in, ffrfs, fixture,
    flip_byte, for_each_transport, have, noise, run, samples, temp_dir, write_container,
};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `ffrfs sum` of a source.
#[track_caller]
fn sum(source: &Path, args: &[&str]) -> Outcome {
    run(Command::new(FFRFS).arg("sum").args(args).arg(source))
}

/// Members of all the sizes that the engine tells apart, and the offset of each in a tar of them.
fn members() -> (Vec<(String, Vec<u8>)>, Vec<u64>) {
    let sizes = [10, 4096, 100_000, 3 << 20, 9 << 20, 0, 700];
    let member = |(number, &size): (usize, &usize)| {
        (format!("d/{number}.bin"), noise(number as u64 + 1, size))
    };
    let members: Vec<_> = sizes.iter().enumerate().map(member).collect();
    let mut next = 0;
    let place = |(_, bytes): &(String, Vec<u8>)| {
        let place = next + 512;
        next = place + bytes.len().next_multiple_of(512) as u64;
        place
    };
    let places = members.iter().map(place).collect();
    (members, places)
}

fn tar_of(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    tar(&members.iter().map(|(name, bytes)| (name.as_str(), &bytes[..])).collect::<Vec<_>>())
}

fn part(path: &Path, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let read = File::open(path)?.read_at(&mut bytes, offset)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// The place of a container's sidecar.
fn beside(container: &Path) -> PathBuf {
    let mut path = container.to_owned().into_os_string();
    path.push(".ffrsum");
    path.into()
}

#[track_caller]
fn assert_words(outcome: &Outcome, code: i32, words: &[&str]) {
    assert_eq!(outcome.code, code, "{}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    for word in words {
        assert!(outcome.stderr.contains(word), "{word}: {}", outcome.stderr);
    }
}
