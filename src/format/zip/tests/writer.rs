//! Writes zip files, also wrong ones.

use std::io::Write;

/// A member, with every field that a writer can decide.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub(super) name: Vec<u8>,
    /// The name in the local header, if it is another one.
    pub(super) local_name: Option<Vec<u8>>,
    pub(super) data: Vec<u8>,
    pub(super) method: u16,
    /// The stored bytes, if they are not those that the method gives.
    pub(super) stored: Option<Vec<u8>>,
    pub(super) flags: u16,
    pub(super) made_by: u16,
    pub(super) external: u32,
    pub(super) dos_time: u32,
    pub(super) extra: Vec<u8>,
    pub(super) local_extra: Vec<u8>,
    pub(super) crc32: Option<u32>,
    pub(super) size: Option<u64>,
    /// Whether sizes and offset stand in the zip64 field.
    pub(super) zip64: bool,
    /// Whether sizes and CRC stand behind the data.
    pub(super) descriptor: bool,
    /// The number of bytes between this member and the next.
    pub(super) gap: usize,
    pub(super) disk: u16,
    /// The member whose local header the row points to.
    pub(super) same_place_as: Option<usize>,
}

pub(super) const UNIX: u16 = 3 << 8;

/// A stored member.
pub(super) fn file(name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Spec {
    Spec {
        name: name.as_ref().to_vec(),
        local_name: None,
        data: data.as_ref().to_vec(),
        method: 0,
        stored: None,
        flags: 0,
        made_by: 20,
        external: 0,
        dos_time: 0,
        extra: Vec::new(),
        local_extra: Vec::new(),
        crc32: None,
        size: None,
        zip64: false,
        descriptor: false,
        gap: 0,
        disk: 0,
        same_place_as: None,
    }
}

/// A deflated member.
pub(super) fn deflated(name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Spec {
    Spec { method: 8, ..file(name, data) }
}

/// A member with a Unix mode, type included.
pub(super) fn unix(name: impl AsRef<[u8]>, data: impl AsRef<[u8]>, mode: u32) -> Spec {
    Spec { made_by: UNIX, external: mode << 16, ..file(name, data) }
}

/// An extra field.
pub(super) fn field(id: u16, value: &[u8]) -> Vec<u8> {
    [&id.to_le_bytes()[..], &(value.len() as u16).to_le_bytes(), value].concat()
}

/// PKWARE's field for Unix with a link's target.
pub(super) fn pkware(target: &[u8]) -> Vec<u8> {
    field(0x000d, &[&[0; 12][..], target].concat())
}

pub(super) fn deflate(data: &[u8]) -> Vec<u8> {
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let mut out = vec![0; compressor.deflate_compress_bound(data.len())];
    let length = compressor.deflate_compress(data, &mut out).unwrap();
    out.truncate(length);
    out
}

/// An archive that is being written.
#[derive(Debug, Clone, Default)]
pub(super) struct Archive {
    pub(super) comment: Vec<u8>,
    /// Whether zip64's end record is written.
    pub(super) zip64: bool,
    /// Bytes in front of all others; offsets do not count them.
    pub(super) prefix: Vec<u8>,
    /// Bytes between the directory and the end record.
    pub(super) gap: Vec<u8>,
    pub(super) trailing: Vec<u8>,
    pub(super) disks: u16,
}

impl Archive {
    pub(super) fn write(&self, members: &[Spec]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut offsets = Vec::new();
        for member in members {
            offsets.push(out.len() as u64);
            local(&mut out, member);
        }
        let at = out.len() as u64;
        for (number, member) in members.iter().enumerate() {
            row(&mut out, member, offsets[member.same_place_as.unwrap_or(number)]);
        }
        let length = out.len() as u64 - at;
        out.write_all(&self.gap).unwrap();
        self.end(&mut out, members.len() as u64, at, length);
        [&self.prefix[..], &out, &self.trailing].concat()
    }

    fn end(&self, out: &mut Vec<u8>, count: u64, at: u64, length: u64) {
        let (mut short, mut sizes) = (count as u16, [length as u32, at as u32]);
        if self.zip64 {
            let record_at = out.len() as u64;
            out.extend(b"PK\x06\x06");
            out.extend(44u64.to_le_bytes());
            out.extend([45, 0, 45, 0]);
            out.extend([0; 8]);
            for value in [count, count, length, at] {
                out.extend(value.to_le_bytes());
            }
            out.extend(b"PK\x06\x07\0\0\0\0");
            out.extend(record_at.to_le_bytes());
            out.extend(1u32.to_le_bytes());
            (short, sizes) = (u16::MAX, [u32::MAX; 2]);
        }
        out.extend(b"PK\x05\x06");
        out.extend(self.disks.to_le_bytes());
        out.extend(self.disks.to_le_bytes());
        out.extend(short.to_le_bytes());
        out.extend(short.to_le_bytes());
        sizes.iter().for_each(|size| out.extend(size.to_le_bytes()));
        out.extend((self.comment.len() as u16).to_le_bytes());
        out.extend(&self.comment);
    }
}

pub(super) fn zip(members: &[Spec]) -> Vec<u8> {
    Archive::default().write(members)
}

fn stored(member: &Spec) -> Vec<u8> {
    match (&member.stored, member.method) {
        (Some(stored), _) => stored.clone(),
        (None, 8) => deflate(&member.data),
        _ => member.data.clone(),
    }
}

fn sums(member: &Spec) -> (u32, u64, u64) {
    let crc32 = member.crc32.unwrap_or_else(|| crc32fast::hash(&member.data));
    (crc32, stored(member).len() as u64, member.size.unwrap_or(member.data.len() as u64))
}

fn narrow(value: u64, zip64: bool) -> [u8; 4] {
    if zip64 { [0xff; 4] } else { (value as u32).to_le_bytes() }
}

fn local(out: &mut Vec<u8>, member: &Spec) {
    let (crc32, length, size) = sums(member);
    let flags = member.flags | u16::from(member.descriptor) << 3;
    out.extend(b"PK\x03\x04\x14\0");
    out.extend(flags.to_le_bytes());
    out.extend(member.method.to_le_bytes());
    out.extend(member.dos_time.to_le_bytes());
    if member.descriptor {
        out.extend([0; 12]);
    } else {
        out.extend(crc32.to_le_bytes());
        out.extend(narrow(length, false));
        out.extend(narrow(size, false));
    }
    let name = member.local_name.as_ref().unwrap_or(&member.name);
    out.extend((name.len() as u16).to_le_bytes());
    out.extend((member.local_extra.len() as u16).to_le_bytes());
    out.extend(name);
    out.extend(&member.local_extra);
    out.extend(stored(member));
    if member.descriptor {
        out.extend(b"PK\x07\x08");
        out.extend(crc32.to_le_bytes());
        out.extend(narrow(length, false));
        out.extend(narrow(size, false));
    }
    out.extend(vec![0xaa; member.gap]);
}

fn row(out: &mut Vec<u8>, member: &Spec, offset: u64) {
    let (crc32, length, size) = sums(member);
    let flags = member.flags | u16::from(member.descriptor) << 3;
    let mut extra = member.extra.clone();
    if member.zip64 {
        let values: Vec<u8> = [size, length, offset].iter().flat_map(|v| v.to_le_bytes()).collect();
        extra.extend(field(1, &values));
    }
    out.extend(b"PK\x01\x02");
    out.extend(member.made_by.to_le_bytes());
    out.extend([20, 0]);
    out.extend(flags.to_le_bytes());
    out.extend(member.method.to_le_bytes());
    out.extend(member.dos_time.to_le_bytes());
    out.extend(crc32.to_le_bytes());
    out.extend(narrow(length, member.zip64));
    out.extend(narrow(size, member.zip64));
    out.extend((member.name.len() as u16).to_le_bytes());
    out.extend((extra.len() as u16).to_le_bytes());
    out.extend([0, 0]);
    out.extend(member.disk.to_le_bytes());
    out.extend([0, 0]);
    out.extend(member.external.to_le_bytes());
    out.extend(narrow(offset, member.zip64));
    out.extend(&member.name);
    out.extend(extra);
}
