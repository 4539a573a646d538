//! The structures of `linux/fuse.h` at the beginning of each request through a ring. Fields are called as there;
//! `tests/suite/wire.rs` compares sizes and offsets.
#![expect(missing_docs, reason = "linux/fuse.h documents the fields")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `struct fuse_in_header`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct InHeader {
    pub len: u32,
    pub opcode: u32,
    pub unique: u64,
    pub nodeid: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    pub total_extlen: u16,
    pub padding: u16,
}

/// `struct fuse_out_header`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct OutHeader {
    pub len: u32,
    pub error: i32,
    pub unique: u64,
}

/// `struct fuse_uring_ent_in_out`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct EntInOut {
    pub flags: u64,
    pub commit_id: u64,
    pub payload_sz: u32,
    pub padding: u32,
    pub reserved: u64,
}

/// `struct fuse_uring_req_header`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct ReqHeader {
    /// An [`InHeader`], and in the answer an [`OutHeader`].
    pub in_out: [u8; 128],
    /// The operation's own header.
    pub op_in: [u8; 128],
    pub ring_ent_in_out: EntInOut,
}

/// `struct fuse_uring_cmd_req`, which a command to the kernel carries.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct CmdReq {
    pub flags: u64,
    pub commit_id: u64,
    pub qid: u16,
    pub padding: [u8; 6],
}

impl ReqHeader {
    /// The header of the request.
    pub(super) fn in_header(&self) -> InHeader {
        prefix(&self.in_out)
    }

    /// Sets the length of the answer and its error: 0, or a negative error number.
    pub(super) fn answer(&mut self, payload_bytes: u32, error: i32) {
        let InHeader { unique, .. } = self.in_header();
        let len = size_of::<OutHeader>() as u32 + payload_bytes;
        let out = OutHeader { len, error, unique };
        self.in_out[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        self.ring_ent_in_out.payload_sz = payload_bytes;
    }
}

/// The structure at the beginning of a header.
#[must_use]
pub fn prefix<T: FromBytes + IntoBytes>(header: &[u8; 128]) -> T {
    const { assert!(size_of::<T>() <= 128, "a header has 128 bytes") };
    let mut structure = T::new_zeroed();
    structure.as_mut_bytes().copy_from_slice(&header[..size_of::<T>()]);
    structure
}
