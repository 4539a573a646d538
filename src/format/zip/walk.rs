//! The rows of the central directory, one after the other.

use super::record::{Head, Row};
use crate::format::{Error, Result, Table};
use std::io;

/// The bytes of the directory that are read at a time; a row is far shorter.
const CHUNK_BYTES: usize = 1 << 20;

/// The end of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Walked {
    pub(super) rows: u64,
    /// The offset behind the last row.
    pub(super) end_bytes: u64,
    /// Whether a row that is cut begins at `end_bytes`.
    pub(super) is_cut: bool,
}

/// Visits every row with its offset in the directory, up to the first bytes that are no row, or until `visit`
/// returns false.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn walk(
    table: &dyn Table,
    length_bytes: u64,
    unreadable: &dyn Fn(u64, io::Error) -> Error,
    visit: &mut dyn FnMut(u64, &Row) -> Result<bool>,
) -> Result<Walked> {
    let chunk = usize::try_from(length_bytes).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
    let mut buffer = vec![0; chunk];
    let mut walked = Walked { rows: 0, end_bytes: 0, is_cut: false };
    while walked.end_bytes < length_bytes {
        let left = length_bytes.saturating_sub(walked.end_bytes);
        let take = usize::try_from(left).unwrap_or(chunk).min(chunk);
        let Some(mut rest) = buffer.get_mut(..take) else { break };
        table.copy_to(walked.end_bytes, rest).map_err(|e| unreadable(walked.end_bytes, e))?;
        let is_last = take as u64 == left;
        let before = walked.end_bytes;
        loop {
            let Some(head) = Head::parse(rest) else {
                walked.is_cut = is_last && rest.starts_with(super::record::CENTRAL_MARK);
                break;
            };
            let row_bytes = head.row_bytes();
            let Some((bytes, behind)) = std::mem::take(&mut rest).split_at_mut_checked(row_bytes)
            else {
                walked.is_cut = is_last;
                break;
            };
            rest = behind;
            let Some(row) = Row::parse(bytes) else { break };
            if !visit(walked.end_bytes, &row)? {
                return Ok(walked);
            }
            walked.rows = walked.rows.saturating_add(1);
            walked.end_bytes = walked.end_bytes.saturating_add(row_bytes as u64);
        }
        // No row was found, though the buffer holds as many bytes as the longest row has.
        if walked.end_bytes == before || is_last {
            break;
        }
    }
    Ok(walked)
}
