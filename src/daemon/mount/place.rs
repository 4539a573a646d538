//! Errors that say which mount they belong to: mount(8) mounts several at once, and mixes their messages.

use crate::daemon::patience;
use crate::failure::Failure;
use crate::format::PartName;
use crate::io::mount::mounts;
use std::io;
use std::path::{Component, Path, PathBuf};

/// An error that names the source and the mount point, each once; `name` is the name of the dataset.
pub(crate) fn name_in(
    failure: Failure,
    name: &str,
    sources: &[PartName],
    target: &Path,
) -> Failure {
    let names = names(sources, !is_of_silence(&failure));
    known_in(failure, name, &names, sources.len(), target)
}

/// The name of this many sources, of which `first` is the first.
pub(crate) fn name_of_all(first: String, sources: usize) -> String {
    match sources {
        0 | 1 => first,
        more => format!("{first} and {} more", more - 1),
    }
}

/// Whether a mount does not answer: a source in that mount must not be looked at once more.
pub(super) fn is_of_silence(failure: &Failure) -> bool {
    failure.to_string().contains("has not answered for")
}

/// The names of sources in messages; with the targets of their links, if the sources may be looked at.
pub(super) fn names(sources: &[PartName], looks: bool) -> Vec<String> {
    let looks = looks && patience::check(sources.iter().filter_map(PartName::as_path)).is_ok();
    sources.iter().flat_map(|source| names_of(source, looks)).collect()
}

/// As [`name_in`], with all names that the sources may have in messages.
pub(super) fn known_in(
    failure: Failure,
    name: &str,
    names: &[String],
    sources: usize,
    target: &Path,
) -> Failure {
    let said = failure.to_string();
    let typed = target.display().to_string();
    let target = shown(target, !is_of_silence(&failure)).display().to_string();
    let names: Vec<&str> = names.iter().map(String::as_str).chain([name]).collect();
    let has_source = names.iter().any(|name| names_whole(&said, name));
    match (has_source, names_whole(&said, &target)) {
        (true, true) => failure,
        // The message has the mount point already, which would be read twice.
        (false, true) if sources > 1 => failure.context(name),
        // If there are several sources, the message names the right one.
        (true, false) if sources > 1 => failure.context(target),
        _ => {
            // Without these words, a reader could take the mount point for the missing file.
            let is_of_system = failure.reason::<io::Error>().is_some_and(is_of_system);
            let of_source = names.iter().find_map(|name| behind(&said, name)).map(|rest| {
                if is_of_system { format!("the source: {rest}") } else { rest.to_owned() }
            });
            let rest = of_source
                .or_else(|| behind(&said, &target).map(str::to_owned))
                .or_else(|| names.iter().find_map(|name| of_it(&said, name)))
                .or_else(|| of_mount_point(&said, &target))
                .or_else(|| of_mount_point(&said, &typed));
            match rest {
                Some(rest) => failure.saying(&rest).context(format_args!("{name} on {target}")),
                None => failure.context(format_args!("{name} on {target}")),
            }
        }
    }
}

/// Whether an error is the system's, whose text does not name the file.
fn is_of_system(error: &io::Error) -> bool {
    error.raw_os_error().is_some()
}

/// The mount point as an absolute path; without `..`, if the path may be looked at.
fn shown(target: &Path, looks: bool) -> PathBuf {
    let absolute = || std::path::absolute(target).unwrap_or_else(|_| target.to_owned());
    let goes_up = target.components().any(|part| part == Component::ParentDir);
    if !looks || !goes_up {
        return absolute();
    }
    // The mount point itself may be missing.
    let missing = || Some(mounts::resolve(target.parent()?).ok()?.join(target.file_name()?));
    mounts::resolve(target).ok().or_else(missing).unwrap_or_else(absolute)
}

/// The text about the source in `SOURCE is …`, with `it` for the source.
fn of_it(said: &str, name: &str) -> Option<String> {
    let rest = said.strip_prefix(name).filter(|_| !name.is_empty())?;
    rest.strip_prefix(" is ").map(|rest| format!("it is {rest}"))
}

/// The text about a mount point in a message that begins with the mount point.
fn of_mount_point(said: &str, target: &str) -> Option<String> {
    ["cannot mount on", "mount point"].into_iter().find_map(|what| {
        let rest = said.strip_prefix(what)?.strip_prefix(' ')?.strip_prefix(target)?;
        let rest = rest.strip_prefix(": ")?;
        Some(format!("{}: {rest}", what.strip_suffix(" on").unwrap_or(what)))
    })
}

/// The names of a source in messages, each once.
fn names_of(source: &PartName, looks: bool) -> Vec<String> {
    let mut names = vec![source.to_string()];
    let paths = source.as_path().into_iter().flat_map(|path| {
        let resolved = looks.then(|| path.canonicalize().ok()).flatten();
        [std::path::absolute(path).ok(), resolved].into_iter().flatten()
    });
    names.extend(paths.map(|path| path.display().to_string()));
    names.dedup();
    names
}

/// The text of a message behind `name: `.
fn behind<'a>(said: &'a str, name: &str) -> Option<&'a str> {
    said.strip_prefix(name)?.strip_prefix(": ").filter(|_| !name.is_empty())
}

/// Whether a message has this name as a whole, and not only as the beginning or the end of another path. A relative name
/// may be any word: it counts where a message begins with it.
fn names_whole(said: &str, name: &str) -> bool {
    if behind(said, name).is_some()
        || said.strip_prefix(name).is_some_and(|s| s.starts_with(" on "))
    {
        return true;
    }
    let is_absolute = name.starts_with('/') || name.contains("://");
    is_absolute
        && said.match_indices(name).any(|(at, _)| {
            let (before, after) = (&said[..at], &said[at + name.len()..]);
            let begins =
                before.is_empty() || before.ends_with([' ', '\n', '(', '`', '\'', '"', '=']);
            let after = after.trim_start_matches([':', ';', ',', '.', ')', '`', '\'', '"', '?']);
            begins && (after.is_empty() || after.starts_with(char::is_whitespace))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(said: &str, source: &str, target: &str) -> String {
        let source = PartName::Path(PathBuf::from(source));
        name_in(Failure::usage(said), "/d/train.zip", &[source], Path::new(target)).to_string()
    }

    #[test]
    fn an_error_names_the_source_and_the_mount_point_once_each() {
        for (said, source, target, wanted) in [
            // The mount point is the source without its ending.
            ("/d/train.zip: torn", "train.zip", "/d/train", "/d/train.zip on /d/train: torn"),
            ("/d/train.zip: torn", "/d/train.zip", "/d/train", "/d/train.zip on /d/train: torn"),
            ("train.zip: torn", "train.zip", "/d/train", "/d/train.zip on /d/train: torn"),
            ("torn", "train.zip", "/mnt", "/d/train.zip on /mnt: torn"),
            ("/mnt: busy", "train.zip", "/mnt", "/d/train.zip on /mnt: busy"),
            ("/mnt/x: busy", "train.zip", "/mnt", "/d/train.zip on /mnt: /mnt/x: busy"),
            (
                "/mnt: /d/train.zip is mounted there",
                "/d/train.zip",
                "/mnt",
                "/mnt: /d/train.zip is mounted there",
            ),
            ("/d/train.zip on /mnt: torn", "train.zip", "/mnt", "/d/train.zip on /mnt: torn"),
            (
                "/d/train.zip is a 7z archive",
                "train.zip",
                "/mnt",
                "/d/train.zip on /mnt: it is a 7z archive",
            ),
            (
                "cannot mount on /mnt: busy",
                "train.zip",
                "/mnt",
                "/d/train.zip on /mnt: cannot mount: busy",
            ),
            (
                "mount point /mnt: no such directory",
                "train.zip",
                "/mnt",
                "/d/train.zip on /mnt: mount point: no such directory",
            ),
            // As other messages name it.
            ("/proc: busy", "train.zip", "/proc/../proc", "/d/train.zip on /proc: busy"),
            (
                "mount point /proc/../nosuch: missing",
                "train.zip",
                "/proc/../nosuch",
                "/d/train.zip on /nosuch: mount point: missing",
            ),
            ("/e/d/train.zip: no", "x", "/d/train", "/d/train.zip on /d/train: /e/d/train.zip: no"),
        ] {
            assert_eq!(named(said, source, target), wanted, "{said}");
        }
    }

    #[test]
    fn of_several_sources_a_message_names_the_one_that_is_meant() {
        let sources = ["/d/a.zip", "/d/b.zip"].map(|path| PartName::Path(path.into()));
        let named = |said: &str| {
            let failure = Failure::usage(said);
            name_in(failure, "/d/a.zip and 1 more", &sources, Path::new("/d/a")).to_string()
        };
        assert_eq!(named("/d/b.zip: torn"), "/d/a: /d/b.zip: torn");
        assert_eq!(named("/d/a: busy"), "/d/a.zip and 1 more: /d/a: busy");
        assert_eq!(named("/d/a: /d/b.zip: torn"), "/d/a: /d/b.zip: torn");
        // Or none, if it is about all of them.
        assert_eq!(named("no memory"), "/d/a.zip and 1 more on /d/a: no memory");
        let missing = named("mount point /d/a: missing");
        assert_eq!(missing, "/d/a.zip and 1 more: mount point /d/a: missing");
    }
}
