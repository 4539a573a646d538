//! Writes small archives, byte by byte where no program would write them so.

use std::io::Write;
use std::process::{Command, Stdio};

const UNIX: u16 = 3 << 8;

/// A member of a zip file.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) name: Vec<u8>,
    pub(super) data: Vec<u8>,
    pub(super) method: u16,
    /// The bytes that stand in the file.
    pub(super) stored: Vec<u8>,
    pub(super) flags: u16,
    pub(super) extra: Vec<u8>,
    pub(super) crc32: u32,
}

/// A member stored as it is.
pub(super) fn stored(name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Member {
    let data = data.as_ref().to_vec();
    Member {
        name: name.as_ref().to_vec(),
        method: 0,
        stored: data.clone(),
        flags: 0,
        extra: Vec::new(),
        crc32: crc32fast::hash(&data),
        data,
    }
}

/// A deflated member.
pub(super) fn deflated(name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Member {
    let member = stored(name, data);
    Member { method: 8, stored: deflate(&member.data), ..member }
}

pub(super) fn deflate(data: &[u8]) -> Vec<u8> {
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let mut out = vec![0; compressor.deflate_compress_bound(data.len())];
    let length = compressor.deflate_compress(data, &mut out).unwrap();
    out.truncate(length);
    out
}

/// The fields that local header and central directory have in common.
fn common(member: &Member) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(member.flags.to_le_bytes());
    out.extend(member.method.to_le_bytes());
    out.extend([0, 0, 0x21, 0x50]);
    out.extend(member.crc32.to_le_bytes());
    out.extend((member.stored.len() as u32).to_le_bytes());
    out.extend((member.data.len() as u32).to_le_bytes());
    out.extend((member.name.len() as u16).to_le_bytes());
    out.extend((member.extra.len() as u16).to_le_bytes());
    out
}

/// A zip file, and the offsets of the members' stored bytes in it.
pub(super) fn zip_with_places(members: &[Member]) -> (Vec<u8>, Vec<u64>) {
    let (mut out, mut directory, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for member in members {
        let header = out.len() as u32;
        out.extend(b"PK\x03\x04\x14\0");
        out.extend(common(member));
        out.extend([&member.name[..], &member.extra].concat());
        places.push(out.len() as u64);
        out.extend(&member.stored);
        directory.extend(b"PK\x01\x02");
        directory.extend(UNIX.to_le_bytes());
        directory.extend([20, 0]);
        directory.extend(common(member));
        // No comment, first disk, no internal attributes; a plain file.
        directory.extend([0; 6]);
        directory.extend((0o100_644_u32 << 16).to_le_bytes());
        directory.extend(header.to_le_bytes());
        directory.extend([&member.name[..], &member.extra].concat());
    }
    let (at, count) = (out.len() as u32, members.len() as u16);
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([count.to_le_bytes(), count.to_le_bytes()].concat());
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(at.to_le_bytes());
    out.extend([0, 0]);
    (out, places)
}

/// A zip file.
pub(super) fn zip(members: &[Member]) -> Vec<u8> {
    zip_with_places(members).0
}

/// An archive in tar's ustar format: files with these names and bytes.
pub(super) fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, data) in members {
        out.extend(tar_header(name, data.len()));
        out.extend_from_slice(data);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.extend([0; 1024]);
    out
}

fn tar_header(name: &str, length: usize) -> [u8; 512] {
    let mut header = [0; 512];
    let mut put = |at: usize, text: &str| {
        header[at..at + text.len()].copy_from_slice(text.as_bytes());
    };
    put(0, name);
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{length:011o}\0"));
    put(136, "14000000000\0");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// The standard output of a program that gets these bytes as its standard input.
#[track_caller]
pub(super) fn through(program: &str, args: &[&str], bytes: &[u8]) -> Vec<u8> {
    let mut command = Command::new(program);
    let child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|e| panic!("{program} does not start: {e}"));
    let mut input = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(bytes).unwrap());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{program} failed");
        output.stdout
    })
}

/// Text that deflates well, and not to nothing: the same for the same `seed`.
pub(super) fn text(seed: u64, length: usize) -> Vec<u8> {
    const WORDS: [&str; 8] =
        ["sample ", "of ", "a ", "dataset, ", "line\n", "directory ", "x", "42 "];
    let mut out = Vec::with_capacity(length + 16);
    for byte in crate::common::noise(seed, length) {
        out.extend_from_slice(WORDS[usize::from(byte % 8)].as_bytes());
        if out.len() >= length {
            break;
        }
    }
    out.truncate(length);
    out
}
