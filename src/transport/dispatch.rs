//! Decodes requests, has `ops` answer them, and encodes the answers, for both transports: every operation that has an
//! answer, but READ. Imports `ops` and `wire`.

use super::ops::{self, Caller, Ops, Value};
use super::wire::{
    AttrOut, EntryOut, GetxattrIn, GetxattrOut, IoctlIn, IoctlOut, LseekIn, LseekOut, OpenIn,
    OpenOut, Out, ReadIn, SetattrIn, StatfsOut, WriteIn, WriteOut, ioctl, op,
};
use crate::io::ring::InHeader;
use crate::vfs::{Errno, FOREVER, Listed, Lookup, ReadRequest};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// One request, and the memory for its answer.
pub(super) trait Exchange {
    /// The header of every request.
    fn header(&self) -> InHeader;

    /// The operation's own header, and the bytes that come with it, such as a name.
    fn operation<T: FromBytes + IntoBytes>(&self) -> (T, &[u8]);

    /// The memory for the answer. The request may lie there: it is gone once the memory is written to.
    fn out(&mut self) -> &mut [u8];
}

/// Answers a request; returns the length of the answer, or the error.
pub(super) fn answer(
    ops: &Ops,
    caller: Caller,
    exchange: &mut impl Exchange,
) -> Result<usize, Errno> {
    let InHeader { opcode, nodeid: ino, .. } = exchange.header();
    match opcode {
        op::READDIR => readdir(ops, caller, exchange, ino),
        op::READDIRPLUS => readdirplus(ops, caller, exchange, ino),
        op::GETXATTR => {
            let (GetxattrIn { size, .. }, name) = exchange.operation();
            let value = ops.getxattr(caller, ino, until_zero(name), size);
            put_value(exchange, value)
        }
        op::WRITE => {
            let (WriteIn { offset, size, .. }, bytes) = exchange.operation();
            let bytes = bytes.get(..size as usize).ok_or(Errno::EINVAL)?;
            let written = ops.write(caller, ino, offset, bytes);
            put(exchange, written.map(|size| WriteOut { size, padding: 0 }))
        }
        op::IOCTL => {
            let (IoctlIn { cmd, in_size, flags, .. }, bytes) = exchange.operation();
            let bytes = bytes.get(..in_size as usize).ok_or(Errno::EINVAL)?;
            let taken = match flags & ioctl::UNRESTRICTED {
                0 => ops.ioctl(caller, ino, cmd, bytes),
                _ => Err(Errno::ENOSYS),
            };
            put(exchange, taken.map(|()| IoctlOut::default()))
        }
        op::GETATTR => {
            let attr = ops.getattr(caller, ino);
            put(exchange, attr.map(|attr| AttrOut::new(&attr, FOREVER)))
        }
        op::SETATTR => {
            let (SetattrIn { valid, .. }, _) = exchange.operation();
            let attr = ops.setattr(caller, ino, valid);
            put(exchange, attr.map(|attr| AttrOut::new(&attr, FOREVER)))
        }
        op::STATFS => {
            let totals = ops.statfs(caller, ino);
            put(exchange, Ok(StatfsOut::new(&totals)))
        }
        op::READLINK => put_value(exchange, ops.readlink(caller, ino).map(Value::Bytes)),
        op::OPEN => {
            let (OpenIn { flags, .. }, _) = exchange.operation();
            put_opened(exchange, ops.open(caller, ino, flags.cast_signed()))
        }
        op::OPENDIR => put_opened(exchange, ops.opendir(caller, ino)),
        op::LSEEK => {
            let (LseekIn { offset, whence, .. }, _) = exchange.operation();
            let found = ops.lseek(caller, ino, offset, whence.cast_signed());
            put(exchange, found.map(|offset| LseekOut { offset }))
        }
        op::FLUSH => ops.flush(caller, ino).map(|()| 0),
        op::FSYNC | op::FSYNCDIR | op::ACCESS | op::LISTXATTR => {
            Err(ops.not_needed(caller, opcode, ino))
        }
        // Open files have no state. DESTROY comes with some unmounts, before the connection ends.
        op::RELEASE | op::RELEASEDIR | op::DESTROY => Ok(0),
        _ => Err(ops.refuse(caller, opcode, ino)),
    }
}

/// Answers LOOKUP, and returns the inode of the sample that was found, too: it may be read next.
pub(super) fn lookup(
    ops: &Ops,
    caller: Caller,
    exchange: &mut impl Exchange,
) -> (Result<usize, Errno>, Option<u64>) {
    let parent = exchange.header().nodeid;
    let ((), name) = exchange.operation();
    let found = ops.lookup(caller, parent, until_zero(name));
    let entry = found.as_ref().map(|found| {
        let (attr, valid) = ops::entry(found);
        EntryOut::new(attr, valid)
    });
    let answer = put(exchange, entry.map_err(|errno| *errno));
    match found {
        Ok(Lookup::Found(attr)) => (answer, Some(attr.ino)),
        _ => (answer, None),
    }
}

/// The range that READ asks for, and whether the file was opened with O_DIRECT.
pub(super) fn read_request(exchange: &impl Exchange) -> (ReadRequest, bool) {
    let (ReadIn { offset, size, flags, .. }, _) = exchange.operation();
    let ino = exchange.header().nodeid;
    let read = ReadRequest { ino, offset_bytes: offset, length_bytes: u64::from(size) };
    (read, flags.cast_signed() & libc::O_DIRECT != 0)
}

/// The bytes before the first zero.
fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn put(
    exchange: &mut impl Exchange,
    structure: Result<impl IntoBytes + Immutable, Errno>,
) -> Result<usize, Errno> {
    let structure = structure?;
    let mut out = Out::new(exchange.out());
    out.structure(&structure);
    Ok(out.length())
}

fn put_opened(exchange: &mut impl Exchange, flags: Result<u32, Errno>) -> Result<usize, Errno> {
    put(exchange, flags.map(|open_flags| OpenOut { open_flags, ..OpenOut::default() }))
}

fn put_value(exchange: &mut impl Exchange, value: Result<Value, Errno>) -> Result<usize, Errno> {
    match value? {
        Value::Length(size) => put(exchange, Ok(GetxattrOut { size, padding: 0 })),
        Value::Bytes(bytes) => {
            let mut out = Out::new(exchange.out());
            out.bytes(&bytes);
            Ok(out.length())
        }
    }
}

fn readdir(
    ops: &Ops,
    caller: Caller,
    exchange: &mut impl Exchange,
    ino: u64,
) -> Result<usize, Errno> {
    let (ReadIn { offset: from, size, .. }, _) = exchange.operation();
    let mut out = Out::new(exchange.out());
    let emit = &mut |entry: Listed| out.entry(size as usize, &entry, None);
    ops.readdir(caller, ino, from, emit)?;
    Ok(out.length())
}

fn readdirplus(
    ops: &Ops,
    caller: Caller,
    exchange: &mut impl Exchange,
    ino: u64,
) -> Result<usize, Errno> {
    let (ReadIn { offset: from, size, .. }, _) = exchange.operation();
    let mut out = Out::new(exchange.out());
    ops.readdirplus(caller, ino, from, |entry, attr, valid| {
        out.entry(size as usize, entry, Some((attr, valid)))
    })?;
    Ok(out.length())
}
