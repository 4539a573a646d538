//! Reading a span of a part: from the page cache at once, waiting for the disk, or through a ring, in as many steps as
//! the kernel's short reads make necessary. This file alone distinguishes the kinds of parts. Imports `io`,
//! `store` and the vfs's spans.

use crate::format::Source;
use crate::io::ring::Ring;
use crate::io::{Buffer, File, Kept, ReadError};
use crate::store::{Arrived, Bytes, Cause, Part, Pin, Store};
use crate::vfs::{Fetch, Span, Vfs};
use std::io;

/// A disk gives this many bytes within a fraction of a millisecond.
const SHORT_BYTES: u64 = 1 << 20;

/// Reads a span from the page cache or, if it `may_wait`, from the disk.
///
/// # Errors
/// See [`ReadError`]. After `Absent` (only if it `may_wait`) the caller has [`Store::begin`] fetch the bytes, and
/// calls again.
pub(super) fn fetch(store: &Store, span: &mut Span, may_wait: bool) -> Result<(), ReadError> {
    #[cfg(feature = "test-hooks")]
    super::provoked::panic_if_asked();
    match store.part(span.part()).bytes() {
        Bytes::Local(file) if file.may_hang() && !may_wait => Err(ReadError::WouldBlock),
        Bytes::Local(file) => fetch_from(file, span, may_wait),
        Bytes::Remote(remote) => {
            if let Some((file, _pin)) = remote.file().zip(remote.pin(&span.range())) {
                match fetch_from(file, span, may_wait) {
                    Ok(()) => {
                        remote.note_hit(span.needed_bytes() as u64);
                        return Ok(());
                    }
                    Err(ReadError::WouldBlock) => return Err(ReadError::WouldBlock),
                    Err(error) if !remote.lose(&error) => return Err(error),
                    Err(_) => {}
                }
            }
            Err(if may_wait { ReadError::Absent } else { ReadError::WouldBlock })
        }
        Bytes::Memory(memory) => {
            let (offset_bytes, target) = span.target(1)?;
            Ok(memory.read_exact_at(target, offset_bytes)?)
        }
    }
}

fn fetch_from(file: &File, span: &mut Span, may_wait: bool) -> Result<(), ReadError> {
    if !may_wait {
        let (offset_bytes, target) = span.target(1)?;
        return file.read_cached(target, offset_bytes);
    }
    let alignment_bytes = file.alignment_bytes();
    let (offset_bytes, mut buffer, length) = span.take_buffer(alignment_bytes)?;
    let target = &mut buffer.as_mut_slice()[..length];
    let fetched = file.read(target, offset_bytes, span.needed_bytes());
    span.put_buffer(buffer);
    fetched
}

/// Takes the result of [`Store::begin`]: bytes in memory go into the span, which is whole then; bytes in the part's file are to
/// be read while the pin is held.
///
/// # Errors
/// There is no memory for them.
pub(super) fn take(span: &mut Span, arrived: Arrived) -> Result<Option<Pin>, ReadError> {
    Ok(arrived.take(span.target(1)?.1))
}

/// Whether a read of the span, and a look at its file, may take for ever, as a file server or another FUSE file system
/// that does not answer: no thread that serves requests may do either.
pub(super) fn may_hang(store: &Store, span: &Span) -> bool {
    matches!(store.part(span.part()).bytes(), Bytes::Local(file) if file.may_hang())
}

/// Whether reading the span from a disk takes no longer than to wake a few threads, unless the disk is slow.
pub(super) fn is_short(store: &Store, span: &Span) -> bool {
    let range = span.range();
    range.end - range.start <= SHORT_BYTES
        && matches!(store.part(span.part()).bytes(), Bytes::Local(file) if !file.may_hang())
}

/// Whether many reads may wait for long: for a part for ever, as with [`may_hang`] and remote objects; or for one another, as
/// reads that need the same interval decoded.
pub(super) fn may_wait(vfs: &Vfs) -> bool {
    let is_far = vfs.store().parts().iter().any(|part| match part.bytes() {
        Bytes::Local(file) => file.may_hang(),
        Bytes::Remote(_) => true,
        Bytes::Memory(_) => false,
    });
    is_far || vfs.dataset().containers().iter().any(|container| container.has_intervals())
}

/// Whether the cache of this node holds all of a span.
pub(super) fn is_cached(store: &Store, span: &Span) -> bool {
    let bytes = store.part(span.part()).bytes();
    matches!(bytes, Bytes::Remote(remote) if remote.pin(&span.range()).is_some())
}

/// As [`fetch`], and waits for the disk and for the store, which fetches for this `cause`.
pub(super) fn fetch_waiting(store: &Store, span: &mut Span, cause: Cause) -> Result<(), ReadError> {
    loop {
        match fetch(store, span, true) {
            // Bytes that were present may be evicted before the next look.
            Err(ReadError::Absent) => {
                let arrived = store.part(span.part()).wait(span.range(), cause)?;
                let Some(_pin) = take(span, arrived)? else { return Ok(()) };
                match fetch(store, span, true) {
                    Err(ReadError::Absent) => {}
                    fetched => return fetched,
                }
            }
            fetched => return fetched,
        }
    }
}

/// Fetches a sample that was looked up, on a thread that may wait. The program's read follows at once: the page cache need
/// not be filled.
pub(super) fn fetch_looked_up(vfs: &Vfs, mut ahead: Fetch) {
    let fetched = fetch(vfs.store(), ahead.span(), true);
    vfs.land(ahead, fetched);
}

/// The way in which [`submit`] has begun a read.
pub(super) enum Submitted {
    /// The read is in the ring.
    Reading,
    /// The read is done: the bytes were in memory, and are in the span now.
    Done,
}

/// Reads through the ring as number `id`, from byte `done` of the span's target.
///
/// # Errors
/// The pool has closed the file, and it cannot be opened again. After `Absent` the caller has [`Store::begin`] fetch the
/// bytes, and calls again.
pub(super) fn submit(
    ring: &mut Ring,
    id: usize,
    part: &Part,
    span: &mut Span,
    done: usize,
) -> Result<Submitted, ReadError> {
    let (file, pin) = match part.bytes() {
        Bytes::Local(file) => (file, Kept::Nothing),
        Bytes::Remote(remote) => {
            let present = remote.file().zip(remote.pin(&span.range()));
            let (file, pin) = present.ok_or(ReadError::Absent)?;
            if done == 0 {
                remote.note_hit(span.needed_bytes() as u64);
            }
            (file, pin.into_held())
        }
        Bytes::Memory(memory) => {
            let (offset_bytes, target) = span.target(1)?;
            memory.read_exact_at(target, offset_bytes)?;
            return Ok(Submitted::Done);
        }
    };
    let held = match file.hold() {
        Err(error) if part.lose_file(&error) => return Err(ReadError::Absent),
        held => held?.with(pin),
    };
    let (offset_bytes, buffer, length) = span.take_buffer(file.alignment_bytes())?;
    ring.read(id, held, offset_bytes + done as u64, buffer, done..length);
    Ok(Submitted::Reading)
}

/// The state of a read through the ring.
pub(super) enum Progress {
    /// The read has ended: the span has all its bytes, or the read has failed.
    Ended(Result<(), ReadError>),
    /// The caller must call [`submit`] again, from this byte.
    Partly(usize),
}

/// Takes back the buffer of [`submit`], with the result of the read.
pub(super) fn ended(
    part: &Part,
    span: &mut Span,
    done: usize,
    buffer: Buffer,
    result: io::Result<usize>,
) -> Progress {
    span.put_buffer(buffer);
    match progress(part, span, done, result) {
        Progress::Ended(Err(error)) if part.lose_file(&error) => Progress::Partly(0),
        progress => progress,
    }
}

fn progress(part: &Part, span: &Span, done: usize, result: io::Result<usize>) -> Progress {
    let end = |why: io::Error| Progress::Ended(part.check_unchanged().and(Err(why.into())));
    match result {
        Ok(0) => end(io::ErrorKind::UnexpectedEof.into()),
        Ok(bytes) if done + bytes < span.needed_bytes() => {
            // Past the page cache, the rest must begin at a multiple again.
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
