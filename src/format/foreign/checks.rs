//! Checks for files of other formats that take more than marks in fixed places. Imports `marks`.

use super::marks::{DOWNLOAD, EXPORT, KEEP, Named, PROGRAM};
use crate::format::bytes::u32_at;
use crate::format::{Source, magic};

/// Recognises a program of Windows, whose header is where the header of DOS says.
pub(super) fn of_a_program(source: &dyn Source, head: &[u8]) -> Option<Named> {
    let at = u32_at(head, 60).filter(|_| head.starts_with(b"MZ"))?;
    (read(source, at.into(), &mut [0; 4]) == b"PE\0\0").then_some(PROGRAM)
}

/// Recognises IDX, the format of MNIST: bytes in a shape that takes the whole file.
pub(super) fn of_an_array(source: &dyn Source, head: &[u8]) -> Option<Named> {
    let (mark, lengths) = head.as_chunks::<4>().0.split_first()?;
    let [0, 0, 8, rank @ 1..=4] = *mark else { return None };
    let lengths = lengths.get(..usize::from(rank))?.iter().copied().map(u32::from_be_bytes);
    let bytes = lengths.map(u64::from).try_fold(1, u64::checked_mul)?;
    let header_bytes = u64::from(rank).saturating_mul(4).saturating_add(4);
    let is_whole = source.len().checked_sub(header_bytes) == Some(bytes);
    is_whole.then_some(("an IDX file", EXPORT))
}

/// Recognises an answer of a server in place of a file (a web page, an error message), and other XML.
pub(super) fn of_a_page(source: &dyn Source) -> Option<Named> {
    let mut head = [0; 256];
    let head = read(source, 0, &mut head);
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let head = head.to_ascii_lowercase();
    if [&b"<!doctype html"[..], b"<html"].iter().any(|mark| head.starts_with(mark)) {
        return Some(("a web page", DOWNLOAD));
    }
    let is_xml = head.starts_with(b"<?xml");
    let has_error = || {
        [&b"<error>"[..], b"<error "].iter().any(|mark| head.windows(7).any(|word| word == *mark))
    };
    match is_xml || head.starts_with(b"<error") {
        true if has_error() => Some(("an error message of a store", DOWNLOAD)),
        true if head.windows(5).any(|word| word == b"<html") => Some(("a web page", DOWNLOAD)),
        true => Some(("an XML document", KEEP)),
        false => None,
    }
}

/// Recognises a file that would be one sample of a dataset.
pub(super) fn of_a_sample(head: &[u8]) -> Option<Named> {
    let name = match magic::sniff(head)?.suffix {
        ".jpg" => "a JPEG image",
        ".png" => "a PNG image",
        ".gif" => "a GIF image",
        ".webp" => "a WebP image",
        ".tif" => "a TIFF image",
        ".jp2" => "a JPEG 2000 image",
        ".avif" => "an AVIF image",
        ".heic" => "a HEIC image",
        ".npy" => "a NumPy array",
        ".wav" | ".flac" | ".ogg" | ".mp3" => "an audio file",
        ".avi" | ".mp4" | ".mkv" => "a video",
        ".pdf" => "a PDF document",
        ".pkl" => "a Python pickle",
        _ => return None,
    };
    Some((name, KEEP))
}

/// The kind of a text, by its beginning.
pub(super) fn kind_of_text(head: &[u8]) -> &'static str {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let (first, second) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let after = head.get(1..).unwrap_or_default().trim_ascii_start().first();
    match head.first() {
        Some(b'{') if first.ends_with(b"}") && second.starts_with(b"{") => "a JSON lines file",
        Some(b'{') if matches!(after, Some(b'"' | b'}')) => "a JSON file",
        Some(b'[') if matches!(after, Some(b'"' | b'{' | b'[' | b']' | b'-' | b'0'..=b'9')) => {
            "a JSON file"
        }
        _ => {
            // A table has as many separators in its first line as in its second, which is whole only if a third begins.
            let has_rest = lines.next().is_some();
            let count = |line: &[u8], mark| line.iter().filter(|byte| **byte == mark).count();
            let is_table = |&mark: &u8| {
                let columns = count(first, mark);
                columns > 0 && has_rest && columns == count(second, mark)
            };
            match [b',', b'\t', b';'].iter().find(|mark| is_table(mark)) {
                Some(b'\t') => "a TSV file",
                Some(_) => "a CSV file",
                None => "a text file",
            }
        }
    }
}

/// Whether bytes are UTF-8, perhaps cut within the last letter, without control characters that texts do not have.
pub(super) fn is_text(bytes: &[u8]) -> bool {
    /// The fewest bytes of a text: fewer could be anything.
    const LEAST: usize = 4;
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            let whole = bytes.get(..error.valid_up_to()).unwrap_or_default();
            std::str::from_utf8(whole).unwrap_or_default()
        }
        Err(_) => return false,
    };
    let is_usual = |c: char| !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\u{c}');
    text.len() >= LEAST && text.chars().all(is_usual)
}

/// Reads the bytes at offset `at`, as many as the file has; empty if they cannot be read.
pub(super) fn read<'a>(source: &dyn Source, at: u64, into: &'a mut [u8]) -> &'a [u8] {
    let left = usize::try_from(source.len().saturating_sub(at)).unwrap_or(usize::MAX);
    let Some(into) = into.get_mut(..left.min(into.len())) else { return &[] };
    match source.read_exact_at(into, at) {
        Ok(()) => into,
        Err(_) => &[],
    }
}
