//! The structures of requests and answers, compared with the kernel's header by a C program.

use crate::common::{one_of, run, skip, temp_dir};
use ffrfs::io::ring::{CmdReq, EntInOut, InHeader, OutHeader, ReqHeader};
use ffrfs::transport::wire::{
    Attr, AttrOut, BatchForgetIn, Dirent, Direntplus, EntryOut, ForgetIn, ForgetOne, GetxattrIn,
    GetxattrOut, InitIn, InitOut, InterruptIn, IoctlIn, IoctlOut, Kstatfs, LseekIn, LseekOut,
    NotifyInvalInodeOut, NotifyStoreOut, OpenIn, OpenOut, ReadIn, SetattrIn, StatfsOut, WriteIn,
    WriteOut,
};
use std::fs;
use std::mem::offset_of;
use std::process::Command;

/// A structure as Rust lays it out.
struct Layout {
    /// The structure's name in C.
    name: &'static str,
    bytes: usize,
    /// The name in C and the offset of each field.
    fields: &'static [(&'static str, usize)],
}

/// `C name: Rust name { fields }`; a field with another name in C is followed by that name.
macro_rules! layouts {
    ($($name:ident: $kind:ident { $($field:ident $(= $named:literal)?),+ })+) => {
        &[$(Layout {
            name: stringify!($name),
            bytes: size_of::<$kind>(),
            fields: &[$((layouts!(@name $field $($named)?), offset_of!($kind, $field))),+],
        }),+]
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $named:literal) => { $named };
}

const LAYOUTS: &[Layout] = layouts! {
    fuse_in_header: InHeader {
        len, opcode, unique, nodeid, uid, gid, pid, total_extlen, padding
    }
    fuse_out_header: OutHeader { len, error, unique }
    fuse_attr: Attr {
        ino, size, blocks, atime, mtime, ctime, atimensec, mtimensec, ctimensec, mode, nlink, uid,
        gid, rdev, blksize, flags
    }
    fuse_attr_out: AttrOut { attr_valid, attr_valid_nsec, dummy, attr }
    fuse_entry_out: EntryOut {
        nodeid, generation, entry_valid, attr_valid, entry_valid_nsec, attr_valid_nsec, attr
    }
    fuse_dirent: Dirent { ino, off, namelen, r#type = "type" }
    fuse_direntplus: Direntplus { entry_out, dirent }
    fuse_kstatfs: Kstatfs {
        blocks, bfree, bavail, files, ffree, bsize, namelen, frsize, padding, spare
    }
    fuse_statfs_out: StatfsOut { st }
    fuse_init_in: InitIn { major, minor, max_readahead, flags, flags2 }
    fuse_init_out: InitOut {
        major, minor, max_readahead, flags, max_background, congestion_threshold, max_write,
        time_gran, max_pages, map_alignment, flags2
    }
    fuse_forget_in: ForgetIn { nlookup }
    fuse_batch_forget_in: BatchForgetIn { count, dummy }
    fuse_forget_one: ForgetOne { nodeid, nlookup }
    fuse_interrupt_in: InterruptIn { unique }
    fuse_notify_store_out: NotifyStoreOut { nodeid, offset, size, padding }
    fuse_notify_inval_inode_out: NotifyInvalInodeOut { ino, off, len }
    fuse_open_in: OpenIn { flags, open_flags }
    fuse_open_out: OpenOut { fh, open_flags }
    fuse_setattr_in: SetattrIn {
        valid, padding, fh, size, lock_owner, atime, mtime, ctime, atimensec, mtimensec, ctimensec,
        mode, unused4, uid, gid, unused5
    }
    fuse_read_in: ReadIn { fh, offset, size, read_flags, lock_owner, flags, padding }
    fuse_write_in: WriteIn { fh, offset, size, write_flags, lock_owner, flags, padding }
    fuse_write_out: WriteOut { size, padding }
    fuse_getxattr_in: GetxattrIn { size, padding }
    fuse_getxattr_out: GetxattrOut { size, padding }
    fuse_ioctl_in: IoctlIn { fh, flags, cmd, arg, in_size, out_size }
    fuse_ioctl_out: IoctlOut { result, flags, in_iovs, out_iovs }
    fuse_lseek_in: LseekIn { fh, offset, whence, padding }
    fuse_lseek_out: LseekOut { offset }
};

/// Structures since Linux 6.14: older headers do not have them.
const RING_LAYOUTS: &[Layout] = layouts! {
    fuse_uring_ent_in_out: EntInOut { flags, commit_id, payload_sz, padding, reserved }
    fuse_uring_req_header: ReqHeader { in_out, op_in, ring_ent_in_out }
    fuse_uring_cmd_req: CmdReq { flags, commit_id, qid, padding }
};

/// The lines that the C program prints, one for each number: `what=number`.
fn lines(layouts: &[Layout]) -> Vec<String> {
    let of = |layout: &Layout| {
        let size = format!("{}={}", layout.name, layout.bytes);
        let fields = layout.fields.iter();
        let offsets = fields.map(|(field, offset)| format!("{}.{field}={offset}", layout.name));
        std::iter::once(size).chain(offsets).collect::<Vec<_>>()
    };
    layouts.iter().flat_map(of).collect()
}

/// A C program that prints the same lines from its header.
fn program(layouts: &[Layout]) -> String {
    let of = |layout: &Layout| {
        let name = layout.name;
        let size = format!("P(\"{name}\", sizeof(struct {name}))");
        let fields = layout.fields.iter();
        let offsets = fields
            .map(|(field, _)| format!("P(\"{name}.{field}\", offsetof(struct {name}, {field}))"));
        std::iter::once(size).chain(offsets).collect::<Vec<_>>()
    };
    let lines = layouts.iter().flat_map(of).collect::<Vec<_>>().join("\n");
    format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <linux/fuse.h>\n\
         #define P(what, number) printf(\"%s=%zu\\n\", what, (size_t) (number));\n\
         int main(void) {{\n{lines}\nreturn 0;\n}}\n"
    )
}

#[test]
fn structures_of_requests_and_answers_are_laid_out_as_the_kernel_has_them() {
    let Some(compiler) = one_of(&["cc", "gcc", "clang"]) else { return };
    let directory = temp_dir();
    let (source, binary) = (directory.path().join("layout.c"), directory.path().join("layout"));
    let includes = |text: &str| {
        fs::write(&source, text).unwrap();
        run(Command::new(compiler).arg(&source).arg("-o").arg(&binary)).code == 0
    };
    if !includes("#include <linux/fuse.h>\nint main(void) { return 0; }\n") {
        return skip("needs linux/fuse.h (Debian: linux-libc-dev)");
    }
    let has_rings = includes(
        "#include <linux/fuse.h>\nint main(void) { return FUSE_IO_URING_CMD_REGISTER - 1; }\n",
    );
    for (layouts, has) in [(LAYOUTS, true), (RING_LAYOUTS, has_rings)] {
        if has {
            assert!(includes(&program(layouts)), "a structure or field is called otherwise");
            let printed = run(&mut Command::new(&binary)).ok().text();
            assert_eq!(lines(layouts), printed.lines().collect::<Vec<_>>());
        }
    }
}

/// Layouts that an older header cannot confirm, as Linux 6.14's header has them.
#[test]
fn structures_of_requests_through_a_ring_are_laid_out_as_linux_6_14_has_them() {
    let expected = [
        "fuse_uring_ent_in_out=32",
        "fuse_uring_ent_in_out.flags=0",
        "fuse_uring_ent_in_out.commit_id=8",
        "fuse_uring_ent_in_out.payload_sz=16",
        "fuse_uring_ent_in_out.padding=20",
        "fuse_uring_ent_in_out.reserved=24",
        "fuse_uring_req_header=288",
        "fuse_uring_req_header.in_out=0",
        "fuse_uring_req_header.op_in=128",
        "fuse_uring_req_header.ring_ent_in_out=256",
        "fuse_uring_cmd_req=24",
        "fuse_uring_cmd_req.flags=0",
        "fuse_uring_cmd_req.commit_id=8",
        "fuse_uring_cmd_req.qid=16",
        "fuse_uring_cmd_req.padding=18",
    ];
    assert_eq!(lines(RING_LAYOUTS), expected);
}
