//! Expands sources to files: directories, globs, and lists such as `train-{000000..000146}.tar`.

use super::beside::{is_no_container, leave_out_copies};
use super::objects::{self, Objects};
use crate::failure::Failure;
use crate::format::{self, PartName};
use crate::io::mount::mounts;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// More files than this are a typing error.
const MAX_FILES: usize = 1_000_000;

/// The location of a container.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// In a local file.
    File(PathBuf),
    /// In a store.
    Object(objects::Place),
}

/// The containers, in order: sources as given, and by name those of a directory, a prefix or a glob.
pub(crate) fn expand(sources: &[PartName], objects: &Objects) -> Result<Vec<Place>, Failure> {
    let mut places = Vec::new();
    for source in sources {
        // A file of exactly this name takes precedence over the matches of a pattern.
        if let PartName::Path(path) = source
            && path.symlink_metadata().is_ok()
        {
            let mut paths = Vec::new();
            add(path, &mut paths)?;
            places.extend(paths.into_iter().map(Place::File));
            continue;
        }
        expand_lists(source.as_bytes(), objects, &mut places)?;
        if places.len() > MAX_FILES {
            return Err(too_many());
        }
    }
    Ok(places)
}

/// The local paths and patterns that sources stand for. Nothing is looked up.
pub(crate) fn local_paths(sources: &[PartName]) -> impl Iterator<Item = PathBuf> {
    sources.iter().filter(|source| source.as_path().is_some()).flat_map(|source| {
        // A file may be called so, too. What is wrong with a list is said when it is expanded.
        let listed = braces(source.as_bytes()).unwrap_or_default();
        let names = listed.into_iter().map(|text| PartName::from(OsString::from_vec(text)));
        let paths = names.filter_map(|name| name.as_path().map(Path::to_owned));
        paths.chain(source.as_path().map(Path::to_owned))
    })
}

/// Expands a source with brace lists; one list may name paths and URLs.
fn expand_lists(source: &[u8], objects: &Objects, places: &mut Vec<Place>) -> Result<(), Failure> {
    let start = first_list(source).map_or(source, |(before, ..)| before);
    let start = String::from_utf8_lossy(start);
    // Adjacent URLs are looked up together.
    let mut urls = Vec::new();
    let ask = |urls: &mut Vec<String>, places: &mut Vec<Place>| -> Result<(), Failure> {
        if !urls.is_empty() {
            let found = objects.expand(&std::mem::take(urls), &start)?;
            places.extend(found.into_iter().map(Place::Object));
        }
        Ok(())
    };
    for text in braces(source)? {
        match PartName::from(OsString::from_vec(text)) {
            PartName::Url(url) => urls.push(url),
            PartName::Path(path) => {
                ask(&mut urls, places)?;
                let mut paths = Vec::new();
                match path.to_str() {
                    Some(text) if text.contains(['*', '?', '[']) => matches_of(text, &mut paths)?,
                    _ => add(&path, &mut paths)?,
                }
                places.extend(paths.into_iter().map(Place::File));
            }
        }
    }
    ask(&mut urls, places)
}

fn too_many() -> Failure {
    Failure::usage(format!("more than {MAX_FILES} containers"))
}

/// Adds a container, or those in a directory.
fn add(path: &Path, paths: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if path.is_dir() {
        paths.extend(containers_in(path)?);
    } else {
        paths.push(path.to_owned());
    }
    if paths.len() > MAX_FILES {
        return Err(too_many());
    }
    Ok(())
}

fn matches_of(pattern: &str, paths: &mut Vec<PathBuf>) -> Result<(), Failure> {
    // What is no pattern is a name; whether there is such a file is seen when it is opened.
    let Ok(found) = glob::glob(pattern) else { return add(Path::new(pattern), paths) };
    let before = paths.len();
    for path in found {
        let path = path.map_err(|e| Failure::unreadable(pattern, e.into()))?;
        if !is_no_container(&path) {
            add(&path, paths)?;
        }
    }
    leave_out_copies(paths, PathBuf::clone);
    if paths.len() == before {
        let error = io::Error::new(io::ErrorKind::NotFound, "no file matches");
        return Err(Failure::unreadable(pattern, error));
    }
    Ok(())
}

/// Whether a directory is a dataset of one format, as its package writes it (LMDB, MDS), rather than one of files.
pub(crate) fn is_dataset(directory: &Path) -> bool {
    let is_marked = |format: &&&dyn format::Format| {
        format.directory_file().is_some_and(|name| directory.join(name).is_file())
    };
    let Some(format) = format::FORMATS.iter().find(is_marked) else { return false };
    let has_its_ending =
        |path: &PathBuf| PartName::from(path.as_path()).has_ending_within(format.extensions());
    containers_in(directory).is_ok_and(|found| found.iter().any(has_its_ending))
}

fn containers_in(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |e| Failure::unreadable(directory.display(), e);
    let (mut found, mut unread) = (Vec::new(), None);
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if format::has_known_extension(&path) && path.is_file() {
            found.push(path);
        } else if let Some(codec) = format::unread_codec(&path) {
            unread = Some((path, codec));
        }
    }
    if let Some((path, codec)) = unread.filter(|_| found.is_empty()) {
        let why = format!("{codec} is not read: decompress such files first");
        let error = io::Error::new(io::ErrorKind::Unsupported, why);
        return Err(Failure::unreadable(path.display(), error));
    }
    if found.is_empty() {
        if let Some(source) = mounted_on(directory) {
            let why = match Path::new(&source).is_file() {
                true => format!("{source} is mounted there: name that container instead"),
                false => {
                    "a dataset is mounted there: name its container, or unmount it first".into()
                }
            };
            return Err(unreadable(io::Error::new(io::ErrorKind::NotFound, why)));
        }
        let endings: Vec<_> =
            format::FORMATS.iter().flat_map(|format| format.extensions()).collect();
        let endings: Vec<_> = endings.iter().map(|ending| format!("*.{ending}")).collect();
        let why = format!(
            "the directory holds no container (ffrfs pack makes one of its files); known are {}",
            endings.join(", ")
        );
        return Err(unreadable(io::Error::new(io::ErrorKind::NotFound, why)));
    }
    leave_out_copies(&mut found, PathBuf::clone);
    found.sort();
    Ok(found)
}

/// The source of the dataset that is mounted on a directory.
fn mounted_on(directory: &Path) -> Option<String> {
    let mount = mounts::at(&mounts::resolve(directory).ok()?).ok()??;
    let is_ours = mount.fs_type == mounts::FS_TYPE;
    is_ours.then(|| mount.source.to_string_lossy().into_owned())
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

/// The text before the first list, the list's inside, and the text after it.
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

/// The items of a list; none if the text is not a list.
fn items(list: &[u8]) -> Vec<Vec<u8>> {
    if let Some(range) = std::str::from_utf8(list).ok().and_then(|text| text.split_once("..")) {
        return numbers(range.0, range.1).unwrap_or_default();
    }
    match list.contains(&b',') {
        true => list.split(|&byte| byte == b',').map(<[u8]>::to_vec).collect(),
        false => Vec::new(),
    }
}

/// Expands `first..last`, with leading zeros if one of them has some.
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
    // One more than allowed: the caller reports that there are too many.
    let count = count.min(MAX_FILES as u64 + 1);
    let number = |step| if first <= last { first + step } else { first - step };
    Some((0..=count).map(|step| format!("{:01$}", number(step), width).into_bytes()).collect())
}

/// The name of a container's directory, which is that of its file.
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
