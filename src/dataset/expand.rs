//! Which files sources stand for: directories, globs, and lists such as `train-{000000..000146}.tar`.

use super::kept;
use crate::failure::Failure;
use crate::format::{self, PartName, sidecar};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// More files than this are a slip of the finger.
const MAX_FILES: usize = 1_000_000;

/// The containers, in order: sources as they are given, what a directory or a glob holds by name.
pub(crate) fn expand(sources: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut paths = Vec::new();
    for source in sources {
        // A file of exactly this name goes before what a pattern matches.
        if source.symlink_metadata().is_ok() {
            add(source, &mut paths)?;
            continue;
        }
        for pattern in braces(source.as_os_str().as_bytes())? {
            let path = PathBuf::from(OsStr::from_bytes(&pattern));
            match path.to_str() {
                Some(text) if text.contains(['*', '?', '[']) => matches_of(text, &mut paths)?,
                _ => add(&path, &mut paths)?,
            }
        }
    }
    Ok(paths)
}

/// A container, or those in a directory.
fn add(path: &Path, paths: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if path.is_dir() {
        paths.extend(containers_in(path)?);
    } else {
        paths.push(path.to_owned());
    }
    if paths.len() > MAX_FILES {
        return Err(Failure::usage(format!("more than {MAX_FILES} containers")));
    }
    Ok(())
}

fn matches_of(pattern: &str, paths: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let found = glob::glob(pattern).map_err(|e| Failure::usage(format!("{pattern}: {e}")))?;
    let before = paths.len();
    for path in found {
        let path = path.map_err(|e| Failure::unreadable(pattern, e.into()))?;
        // An index or a sidecar is not a container.
        let is_ours = |ending: &OsStr| ending == kept::ENDING || ending == sidecar::ENDING;
        if !path.extension().is_some_and(is_ours) {
            add(&path, paths)?;
        }
    }
    if paths.len() == before {
        let error = io::Error::new(io::ErrorKind::NotFound, "no file matches");
        return Err(Failure::unreadable(pattern, error));
    }
    Ok(())
}

fn containers_in(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |e| Failure::unreadable(directory.display(), e);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if format::has_known_extension(&path) && path.is_file() {
            found.push(path);
        }
    }
    if found.is_empty() {
        let endings: Vec<_> =
            format::FORMATS.iter().flat_map(|format| format.extensions()).collect();
        let endings: Vec<_> = endings.iter().map(|ending| format!("*.{ending}")).collect();
        let why = format!("the directory holds no file of a known format ({})", endings.join(", "));
        return Err(unreadable(io::Error::new(io::ErrorKind::NotFound, why)));
    }
    found.sort();
    Ok(found)
}

/// `a{1..3}` and `a{x,y}` as a shell expands them; any number of lists, not one in another.
fn braces(pattern: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    let mut all = vec![Vec::new()];
    let mut rest = pattern;
    while let Some((before, list, behind)) = first_list(rest) {
        let items = items(list);
        if all.len().saturating_mul(items.len()) > MAX_FILES {
            let shown = OsStr::from_bytes(pattern).display();
            return Err(Failure::usage(format!("{shown}: more than {MAX_FILES} containers")));
        }
        let extend = |start: &Vec<u8>| {
            let items = items.iter();
            items.map(|item| [&start[..], before, item].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(extend).collect();
        rest = behind;
    }
    all.iter_mut().for_each(|path| path.extend_from_slice(rest));
    Ok(all)
}

/// What stands before the first list, its inside, and what stands behind it.
fn first_list(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let mut from = 0;
    loop {
        let open = from + text[from..].iter().position(|&byte| byte == b'{')?;
        let close = open + text[open..].iter().position(|&byte| byte == b'}')?;
        let inside = &text[open + 1..close];
        if !items(inside).is_empty() {
            return Some((&text[..open], inside, &text[close + 1..]));
        }
        from = open + 1;
    }
}

/// What a list stands for; nothing if it is none.
fn items(list: &[u8]) -> Vec<Vec<u8>> {
    if let Some(range) = std::str::from_utf8(list).ok().and_then(|text| text.split_once("..")) {
        return numbers(range.0, range.1).unwrap_or_default();
    }
    match list.contains(&b',') {
        true => list.split(|&byte| byte == b',').map(<[u8]>::to_vec).collect(),
        false => Vec::new(),
    }
}

/// `first..last`, with leading zeros if one of them has some.
fn numbers(first: &str, last: &str) -> Option<Vec<Vec<u8>>> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(first) || !is_number(last) {
        return None;
    }
    let is_padded = |text: &str| text.len() > 1 && text.starts_with('0');
    let padded = is_padded(first) || is_padded(last);
    let width = if padded { first.len().max(last.len()) } else { 1 };
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let count = first.abs_diff(last);
    // One more than is taken: the caller says that they are too many.
    let count = count.min(MAX_FILES as u64 + 1);
    let number = |step| if first <= last { first + step } else { first - step };
    Some((0..=count).map(|step| format!("{:01$}", number(step), width).into_bytes()).collect())
}

/// The name of a container's directory: that of its file.
pub(crate) fn directory_name(part: &PartName) -> Vec<u8> {
    part.file_name().as_os_str().as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Vec<String> {
        let paths = braces(text.as_bytes()).unwrap();
        paths.into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
    }

    #[test]
    fn lists_expand_as_in_a_shell() {
        assert_eq!(expanded("a.tar"), ["a.tar"]);
        assert_eq!(expanded("t-{008..010}.tar"), ["t-008.tar", "t-009.tar", "t-010.tar"]);
        assert_eq!(expanded("{a,b}{2..1}"), ["a2", "a1", "b2", "b1"]);
        assert_eq!(expanded("{9..11}"), ["9", "10", "11"]);
        assert_eq!(expanded("a{b}c{d,}e"), ["a{b}cde", "a{b}ce"]);
        assert_eq!(expanded("a{b"), ["a{b"]);
    }

    #[test]
    fn a_list_without_end_is_refused() {
        assert!(braces(b"{0..99999999999}").is_err());
        assert!(braces(b"{0..9999}{0..9999}").is_err());
    }
}
