//! Reads of a span: at once, waiting, or through a ring in as many steps as the kernel makes of it.

use crate::io::ring::Ring;
use crate::io::{Buffer, File, ReadError};
use crate::vfs::Span;
use std::io;
use std::sync::Arc;

/// Reads what the page cache holds or, if it `may_wait`, what the disk does.
pub(super) fn fetch(files: &[Arc<File>], span: &mut Span, may_wait: bool) -> Result<(), ReadError> {
    let file = &files[span.part()];
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

/// Reads through the ring as number `id`, from byte `done` of the span's target.
///
/// # Errors
/// The file is not open any more, and cannot be opened again.
pub(super) fn submit(
    ring: &mut Ring,
    id: usize,
    file: &File,
    span: &mut Span,
    done: usize,
) -> Result<(), ReadError> {
    let held = file.hold()?;
    let (offset_bytes, buffer, length) = span.take_buffer(file.alignment_bytes());
    ring.read(id, held, offset_bytes + done as u64, buffer, done..length);
    Ok(())
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
    file: &File,
    span: &mut Span,
    done: usize,
    buffer: Buffer,
    result: io::Result<usize>,
) -> Progress {
    span.put_buffer(buffer);
    match result {
        Ok(0) => Progress::Ended(
            file.check_unchanged().and(Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())),
        ),
        Ok(bytes) if done + bytes < span.needed_bytes() => {
            // Past the page cache, what is left must begin at a multiple again.
            let there = done + bytes;
            let more = there - there % file.alignment_bytes() as usize;
            if more > done {
                return Progress::Partly(more);
            }
            let error = io::Error::other("the file ends in the middle of a block");
            Progress::Ended(file.check_unchanged().and(Err(error.into())))
        }
        Ok(_) => Progress::Ended(file.check_unchanged()),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Progress::Partly(done),
        Err(e) if file.was_refused(&e) => Progress::Partly(done),
        Err(e) => Progress::Ended(Err(e.into())),
    }
}
