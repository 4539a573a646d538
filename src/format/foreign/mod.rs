//! Files that people try to mount and that no format here reads: recognised by their first bytes, refused with advice.
//! Imports `checks` and `marks`, and of this room `error` and `source`.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `marks` | the table of marks in fixed places, and the advice |
//! | `checks` | the checks that take more than marks: lengths, text, answers of servers |

mod checks;
mod marks;

#[cfg(test)]
mod tests;

use super::{Error, Source};
use checks::{is_text, kind_of_text, of_a_page, of_a_program, of_a_sample, of_an_array, read};
use marks::{COMBINED, LONGEST_MARK, Named, ROWS, Row};

const ZIP_AT_ITS_END: &str = "; --format zip mounts the zip archive at its end";
/// The text that is added to the finding in an error of a container, before its hint.
pub(super) const AND_A_ZIP: &str = ", and a zip archive at its end (--format zip mounts it)";

/// The first bytes of zip archives, and of programs that unpack the archive at their end.
const BEFORE_ZIP: [&[u8]; 4] = [b"PK", b"MZ", b"\x7fELF", b"#!"];

/// The error for a file that no format here reads, if its first bytes show its kind.
pub(super) fn refuse(source: &dyn Source) -> Option<Error> {
    let (kind, advice) = recognize(source)?;
    Some(Error::Foreign { part: source.name().clone(), kind, advice, hint: "" })
}

/// The error for a file that ends in a zip archive and begins as a file of another format, of which the archive is a
/// part by design or by chance.
pub(super) fn refuse_with_zip(source: &dyn Source) -> Option<Error> {
    let mut head = [0; 4];
    let head = read(source, 0, &mut head);
    if BEFORE_ZIP.iter().any(|mark| head.starts_with(mark)) {
        return None;
    }
    let (kind, advice) = recognize(source)?;
    let (part, hint) = (source.name().clone(), ZIP_AT_ITS_END);
    Some(Error::Foreign { part, kind, advice, hint })
}

fn recognize(source: &dyn Source) -> Option<Named> {
    let mut head = [0; 512];
    let head = read(source, 0, &mut head);
    let has = |&(at, mark, ..): &Row| match head.get(at..) {
        Some(rest) if rest.len() >= mark.len() => rest.starts_with(mark),
        _ => read(source, at as u64, &mut [0; LONGEST_MARK]).starts_with(mark),
    };
    let row = ROWS.iter().find(|row| has(row)).map(|&(_, _, name, advice)| (name, advice));
    let has_all = |marks: &[(usize, &[u8])]| {
        marks.iter().all(|&(at, mark)| head.get(at..).is_some_and(|rest| rest.starts_with(mark)))
    };
    let row = row.or_else(|| {
        let row = COMBINED.iter().find(|(marks, ..)| has_all(marks));
        row.map(|&(_, name, advice)| (name, advice))
    });
    let row = row.or_else(|| of_a_program(source, head)).or_else(|| of_an_array(source, head));
    let row = row.or_else(|| of_a_page(source));
    row.or_else(|| of_a_sample(head))
}

/// The error for an empty file; and for a file whose bytes and name no format knows, if it looks like text: its name
/// was mistaken for that of a container, or it is a list or a sample.
pub(super) fn refuse_text(source: &dyn Source) -> Option<Error> {
    let mut head = [0; 512];
    let head = read(source, 0, &mut head);
    let (kind, advice) = match head {
        [] if source.is_empty() => ("an empty file", "was it copied or downloaded to its end?"),
        _ if is_text(head) => {
            (kind_of_text(head), "name the container, or pack a directory of such files")
        }
        _ => return None,
    };
    Some(Error::Foreign { part: source.name().clone(), kind, advice, hint: "" })
}
