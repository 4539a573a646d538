//! Distributes entries to several outputs, and names the outputs.

use crate::failure::Failure;
use crate::format::{Grouping, NewMember, NewNode, WriteFormat};
use crate::tools::entries::{Entries, EntryKind};
use crate::tools::reader::bad_file;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The maximum number of outputs.
pub(crate) const MAX_SHARDS: u64 = 1_000_000;

/// The number of outputs, or their size.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cut {
    One,
    Count(NonZeroU64),
    Bytes(NonZeroU64),
}

/// Which files are a sample: by numbered directories if all files lie in such, else as in WebDataset.
pub(crate) fn grouping(entries: &dyn Entries, is_numbered: bool) -> Grouping {
    if is_numbered {
        return Grouping::Files;
    }
    let mut files = (0..entries.list().len())
        .filter(|item| entries.list()[*item].kind != EntryKind::Directory)
        .peekable();
    let is_empty = files.peek().is_none();
    let in_records = |item| Grouping::record_directory(&entries.path(item)).is_some();
    if !is_empty && files.all(in_records) { Grouping::Records } else { Grouping::Keys }
}

/// Cuts the items into ranges. Items that belong together stay together.
pub(crate) fn cut(
    entries: &dyn Entries,
    format: &dyn WriteFormat,
    grouping: Grouping,
    how: Cut,
) -> Result<Vec<Range<usize>>, Failure> {
    let count = entries.list().len();
    let units = match how {
        Cut::One => return Ok(std::iter::once(0..count).collect()),
        Cut::Count(_) | Cut::Bytes(_) => units(entries, format, grouping)?,
    };
    let starts = match how {
        Cut::Count(shards) => by_count(&units, shards.get(), count),
        _ => by_size(&units, how),
    };
    let ends = starts.iter().skip(1).copied().chain([count]);
    Ok(starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect())
}

/// Items that belong together: the first one, and their total bytes.
struct Unit {
    first: usize,
    bytes: u64,
}

fn units(
    entries: &dyn Entries,
    format: &dyn WriteFormat,
    grouping: Grouping,
) -> Result<Vec<Unit>, Failure> {
    let mut units: Vec<Unit> = Vec::new();
    let mut before: Option<Vec<u8>> = None;
    for (number, item) in entries.list().iter().enumerate() {
        let (path, metadata) = (entries.path(number), entries.metadata(number)?);
        let target = entries.link_target(number).map_err(|fault| bad_file(&path, &fault))?;
        let node = match item.kind {
            EntryKind::File | EntryKind::HardLink(_) => {
                NewNode::File { size_bytes: item.size_bytes, checksum: None }
            }
            EntryKind::Directory => NewNode::Directory,
            EntryKind::Symlink => NewNode::Symlink(&target),
        };
        let (mode, modified) = (metadata.mode, metadata.modified);
        let bytes = format.member_bytes(&NewMember { path: &path, node, mode, modified });
        let key = grouping.key(&path).to_vec();
        match units.last_mut().filter(|_| before.as_ref() == Some(&key)) {
            Some(unit) => unit.bytes = unit.bytes.saturating_add(bytes),
            None => units.push(Unit { first: number, bytes }),
        }
        before = Some(key);
    }
    Ok(units)
}

/// Exactly `shards` ranges of about the same size; some may be empty.
fn by_count(units: &[Unit], shards: u64, end: usize) -> Vec<usize> {
    let total: u128 = units.iter().map(|unit| u128::from(unit.bytes) + 1).sum();
    let (mut starts, mut next, mut sum) = (Vec::new(), 0, 0u128);
    for shard in 0..u128::from(shards) {
        let target = total * shard / u128::from(shards);
        while next < units.len() && sum < target {
            sum += u128::from(units[next].bytes) + 1;
            next += 1;
        }
        starts.push(units.get(next).map_or(end, |unit| unit.first));
    }
    starts
}

/// Ranges with as many units as fit; a unit that is too large gets a range of its own.
fn by_size(units: &[Unit], how: Cut) -> Vec<usize> {
    let limit = if let Cut::Bytes(bytes) = how { bytes.get() } else { u64::MAX };
    let (mut starts, mut sum) = (vec![0], 0u64);
    for unit in units {
        if sum > 0 && sum.saturating_add(unit.bytes) > limit {
            starts.push(unit.first);
            sum = 0;
        }
        sum = sum.saturating_add(unit.bytes);
    }
    starts
}

/// The names of `count` outputs: the number replaces `%06d` in the name, or precedes the extension.
pub(crate) fn shard_names(output: &Path, count: usize) -> Vec<PathBuf> {
    let name = output.file_name().unwrap_or_default();
    let (before, width, behind) = number_in(&name.to_string_lossy()).unwrap_or_else(|| {
        let stem = Path::new(name).file_stem().unwrap_or_default().to_string_lossy();
        let ending = Path::new(name).extension().map(|e| format!(".{}", e.to_string_lossy()));
        (format!("{stem}-"), 6, ending.unwrap_or_default())
    });
    (0..count).map(|n| output.with_file_name(format!("{before}{n:0width$}{behind}"))).collect()
}

/// Splits `train-%06d.tar` at the number.
fn number_in(name: &str) -> Option<(String, usize, String)> {
    let (before, rest) = name.split_once('%')?;
    let (digits, behind) = rest.split_once('d')?;
    let width = if digits.is_empty() { 0 } else { digits.parse().ok().filter(|w| *w <= 20)? };
    Some((before.to_owned(), width, behind.to_owned()))
}

/// Whether an output's name has a place for a number.
pub(crate) fn is_numbered(output: &Path) -> bool {
    number_in(&output.file_name().unwrap_or_default().to_string_lossy()).is_some()
}

/// All names in one word with a brace list, as `mount` accepts it.
pub(crate) fn summary(names: &[PathBuf]) -> String {
    let (Some(first), Some(last)) = (names.first(), names.last()) else { return String::new() };
    let (a, b) = (first.as_os_str().as_bytes(), last.as_os_str().as_bytes());
    if names.len() == 1 || a.len() != b.len() {
        return first.display().to_string();
    }
    let differs = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(0);
    let text = first.to_string_lossy();
    let is_digit = |at: &usize| a[*at].is_ascii_digit();
    let start = (0..differs).rev().take_while(is_digit).last().unwrap_or(differs);
    let end = (differs..a.len()).find(|at| !is_digit(at)).unwrap_or(a.len());
    let of = |bytes: &[u8]| String::from_utf8_lossy(&bytes[start..end]).into_owned();
    match (text.get(..start), text.get(end..)) {
        (Some(before), Some(behind)) => format!("{before}{{{}..{}}}{behind}", of(a), of(b)),
        _ => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_stands_before_the_first_dot_of_the_name() {
        for (path, key) in [
            ("a/b.c/x.jpg", "a/b.c/x"),
            ("x.seg.png", "x"),
            ("x", "x"),
            (".hidden.txt", ".hidden"),
            ("d/.x", "d/.x"),
        ] {
            assert_eq!(Grouping::Keys.key(path.as_bytes()), key.as_bytes(), "{path}");
        }
        for (path, key) in [
            ("000012/image/encoded.jpg", "000012"),
            ("000/000012/0/1.npy", "000/000012"),
            ("000012/000003/1.npy", "000012/000003"),
            ("a/000012/x", "a/000012/x"),
        ] {
            assert_eq!(Grouping::Records.key(path.as_bytes()), key.as_bytes(), "{path}");
        }
    }

    #[test]
    fn ranges_keep_units_whole_and_cover_all() {
        let units: Vec<_> = (0..10).map(|n| Unit { first: 3 * n, bytes: 100 }).collect();
        for shards in [1, 2, 3, 10, 25] {
            let starts = by_count(&units, shards, 30);
            assert_eq!((starts.len() as u64, starts[0]), (shards, 0));
            assert!(starts.is_sorted());
        }
        let limit = Cut::Bytes(NonZeroU64::new(250).unwrap());
        assert_eq!(by_size(&units, limit), [0, 6, 12, 18, 24]);
        let limit = Cut::Bytes(NonZeroU64::new(1).unwrap());
        assert_eq!(by_size(&units, limit).len(), 10);
    }

    #[test]
    fn numbers_stand_where_the_name_says_or_before_the_ending() {
        let names = |text: &str| -> Vec<_> {
            shard_names(Path::new(text), 2).iter().map(|p| p.display().to_string()).collect()
        };
        assert_eq!(names("d/out.tar"), ["d/out-000000.tar", "d/out-000001.tar"]);
        assert_eq!(names("d/t%03d-x.zip"), ["d/t000-x.zip", "d/t001-x.zip"]);
        assert_eq!(names("out"), ["out-000000", "out-000001"]);
        let many: Vec<_> = shard_names(Path::new("d/o.tar"), 147);
        assert_eq!(summary(&many), "d/o-{000000..000146}.tar");
    }
}
