//! Reads of a span: at once, waiting, or through a ring in as many steps as the kernel makes of it. Nothing else
//! asks what a part is made of.

use crate::format::Source;
use crate::io::ring::Ring;
use crate::io::{Buffer, File, ReadError};
use crate::store::{Bytes, Part, Store};
use crate::vfs::Span;
use std::io;

/// Reads what the page cache holds or, if it `may_wait`, what the disk does.
///
/// # Errors
/// `Absent`, if it `may_wait`: [`Store::begin`] brings the bytes, and then this reads them. See [`ReadError`].
pub(super) fn fetch(store: &Store, span: &mut Span, may_wait: bool) -> Result<(), ReadError> {
    match store.part(span.part()).bytes() {
        Bytes::Local(file) => fetch_from(file, span, may_wait),
        Bytes::Remote(remote) => match remote.pin(&span.range()) {
            Some(_pin) => fetch_from(remote.file(), span, may_wait),
            None if may_wait => Err(ReadError::Absent),
            None => Err(ReadError::WouldBlock),
        },
        Bytes::Memory(memory) => {
            let (offset_bytes, target) = span.target(1);
            Ok(memory.read_exact_at(target, offset_bytes)?)
        }
    }
}

fn fetch_from(file: &File, span: &mut Span, may_wait: bool) -> Result<(), ReadError> {
    if !may_wait {
        let (offset_bytes, target) = span.target(1);
        return file.read_cached(target, offset_bytes);
    }
    let alignment_bytes = file.alignment_bytes();
    let (offset_bytes, mut buffer, length) = span.take_buffer(alignment_bytes);
    let target = &mut buffer.as_mut_slice()[..length];
    let fetched = file.read(target, offset_bytes, span.needed_bytes());
    span.put_buffer(buffer);
    fetched
}

/// As [`fetch`], by a thread that waits for whatever it takes.
pub(super) fn fetch_waiting(store: &Store, span: &mut Span) -> Result<(), ReadError> {
    match fetch(store, span, true) {
        Err(ReadError::Absent) => {
            let _pin = store.part(span.part()).wait(span.range())?;
            fetch(store, span, true)
        }
        fetched => fetched,
    }
}

/// What became of a read that [`submit`] was given.
pub(super) enum Submitted {
    /// It is in the ring.
    Reading,
    /// It needs no ring: the bytes are in the span.
    Done,
}

/// Reads through the ring as number `id`, from byte `done` of the span's target.
///
/// # Errors
/// `Absent`: [`Store::begin`] brings the bytes, and then this reads them. The file is not open any more, and
/// cannot be opened again.
pub(super) fn submit(
    ring: &mut Ring,
    id: usize,
    part: &Part,
    span: &mut Span,
    done: usize,
) -> Result<Submitted, ReadError> {
    let (file, pin) = match part.bytes() {
        Bytes::Local(file) => (file, None),
        Bytes::Remote(remote) => {
            let pin = remote.pin(&span.range()).ok_or(ReadError::Absent)?;
            (remote.file(), pin.into_held())
        }
        Bytes::Memory(memory) => {
            let (offset_bytes, target) = span.target(1);
            memory.read_exact_at(target, offset_bytes)?;
            return Ok(Submitted::Done);
        }
    };
    let held = file.hold()?.with(pin);
    let (offset_bytes, buffer, length) = span.take_buffer(file.alignment_bytes());
    ring.read(id, held, offset_bytes + done as u64, buffer, done..length);
    Ok(Submitted::Reading)
}

/// What is to be done after a read through the ring.
pub(super) enum Progress {
    /// All is there, or nothing will be.
    Ended(Result<(), ReadError>),
    /// [`submit`] again, from this byte.
    Partly(usize),
}

/// Takes back what [`submit`] has read.
pub(super) fn ended(
    part: &Part,
    span: &mut Span,
    done: usize,
    buffer: Buffer,
    result: io::Result<usize>,
) -> Progress {
    span.put_buffer(buffer);
    let end = |why: io::Error| Progress::Ended(part.check_unchanged().and(Err(why.into())));
    match result {
        Ok(0) => end(io::ErrorKind::UnexpectedEof.into()),
        Ok(bytes) if done + bytes < span.needed_bytes() => {
            // Past the page cache, what is left must begin at a multiple again.
            let there = done + bytes;
            let more = there - there % part.alignment_bytes() as usize;
            match more > done {
                true => Progress::Partly(more),
                false => end(io::Error::other("the file ends in the middle of a block")),
            }
        }
        Ok(_) => Progress::Ended(part.check_unchanged()),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Progress::Partly(done),
        Err(e) if part.file().is_some_and(|file| file.was_refused(&e)) => Progress::Partly(done),
        Err(e) => Progress::Ended(Err(e.into())),
    }
}
