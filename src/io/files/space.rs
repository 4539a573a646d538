//! The space and the kind of a file system. Imports nothing of ours.

use nix::sys::statfs::fstatfs;
use std::fs::File;
use std::io;
use std::path::Path;

/// The space of a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// The whole space.
    pub total_bytes: u64,
    /// The space that a user other than root may still fill.
    pub available_bytes: u64,
}

/// The space of the file system that holds `path`.
///
/// # Errors
/// The path does not exist, or the file system does not answer.
pub fn space(path: &Path) -> io::Result<Space> {
    let found = nix::sys::statvfs::statvfs(path)?;
    let block_bytes = found.fragment_size();
    Ok(Space {
        total_bytes: found.blocks().saturating_mul(block_bytes),
        available_bytes: found.blocks_available().saturating_mul(block_bytes),
    })
}

/// File systems whose files another program or machine gives, by the magic numbers of statfs(2).
const ELSEWHERE: [u32; 15] = [
    0x6573_5546, // FUSE, virtiofs
    0x6969,      // NFS
    0x517b,      // SMB
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2
    0x00c3_6400, // Ceph
    0x5346_414f, // OpenAFS
    0x6b41_4653, // AFS
    0x7375_7245, // Coda
    0x0102_1997, // 9P
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x1983_0326, // BeeGFS
    0x0116_1970, // GFS2
    0x7461_636f, // OCFS2
];

/// Whether another program or machine gives the bytes of a file, so that a call on it may take for ever.
pub(super) fn is_elsewhere(file: &File) -> bool {
    // The kernel's type differs by architecture; the numbers have 32 bits.
    fstatfs(file).is_ok_and(|found| ELSEWHERE.contains(&(found.filesystem_type().0 as u32)))
}
