//! A mount's config file: a line `NAME = VALUE` for each mount option, `source` and `mountpoint`.
//!
//! The caller says which options exist, and which values they take ([`OptionTable`]).

use crate::failure::Failure;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A file that is larger was named by mistake.
const MAX_BYTES: u64 = 1 << 20;

/// The name of a line with a container; a file may have many such lines.
const SOURCE: &str = "source";
/// The name of the line with the mount point; a file has one such line.
const MOUNTPOINT: &str = "mountpoint";
/// The names of which all lines count; of the others the last line does.
const LISTS: [&str; 3] = [SOURCE, "include", "exclude"];

/// The options that a config file may have, as the command line declares them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OptionTable {
    /// Whether an option of this name (with -) exists, and whether it takes a value.
    pub(crate) takes_value: fn(&str) -> Option<bool>,
    /// Whether an option (`NAME` or `NAME=VALUE`) is accepted without any effect.
    pub(crate) is_ignored: fn(&str) -> bool,
    /// The refusal of an option of this name, which does not exist.
    pub(crate) unknown: fn(&str) -> String,
    /// Refuses the first line whose value is wrong.
    pub(crate) check_values: fn(&Config) -> Result<(), Wrong>,
}

/// The lines of a config file that have an effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Config(Vec<Setting>);

/// A line of a config file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    line: usize,
    /// The name of the long flag.
    name: String,
    /// `None` if the flag takes no value.
    value: Option<OsString>,
}

/// The number of a line, from 1, and the reason why the line is refused.
pub(crate) type Wrong = (usize, String);

impl Config {
    /// Reads a file, whose options are those of `ffrfs mount`.
    ///
    /// # Errors
    /// The file cannot be read, or one of its lines is wrong: the error names the line.
    pub(crate) fn read(path: &Path, options: OptionTable) -> Result<Self, Failure> {
        let unreadable = |e| Failure::unreadable(path.display(), e);
        let mut text = Vec::new();
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(unreadable)?;
        let at = |(line, why)| Failure::usage(format!("{}:{line}: {why}", path.display()));
        if text.len() as u64 > MAX_BYTES {
            let why =
                format!("{}: larger than {MAX_BYTES} bytes, so not a config file", path.display());
            return Err(Failure::usage(why));
        }
        let config = parse(&text, options).map_err(at)?;
        (options.check_values)(&config).map_err(at)?;
        for name in [SOURCE, MOUNTPOINT] {
            if config.values(name).next().is_none() {
                let why = format!("{}: a line `{name} = …` is missing", path.display());
                return Err(Failure::usage(why));
            }
        }
        Ok(config)
    }

    /// The lines as long flags.
    pub(crate) fn flags(&self) -> impl Iterator<Item = OsString> {
        self.0.iter().map(Setting::flag)
    }

    /// As [`Config::flags`], with the numbers of the lines.
    pub(crate) fn numbered_flags(&self) -> impl Iterator<Item = (usize, OsString)> {
        self.0.iter().map(|setting| (setting.line, setting.flag()))
    }

    /// The mount point.
    pub(crate) fn mountpoint(&self) -> PathBuf {
        self.values(MOUNTPOINT).next().flatten().map(PathBuf::from).unwrap_or_default()
    }

    /// The names whose values differ in `other`, sorted.
    pub(crate) fn differing(&self, other: &Config) -> Vec<String> {
        let mut names: Vec<_> = self.0.iter().chain(&other.0).map(|s| s.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| !self.effective(name).eq(other.effective(name)));
        names
    }

    /// The value of a name in effect: the value of its last line.
    pub(crate) fn value(&self, name: &str) -> Option<OsString> {
        self.values(name).last().flatten().map(OsStr::to_owned)
    }

    /// Takes over the lines of `other` for a name.
    pub(crate) fn adopt(&mut self, name: &str, other: &Config) {
        self.0.retain(|setting| setting.name != name);
        self.0.extend(other.0.iter().filter(|setting| setting.name == name).cloned());
    }

    fn values(&self, name: &str) -> impl Iterator<Item = Option<&OsStr>> {
        let named = self.0.iter().filter(move |setting| setting.name == name);
        named.map(|setting| setting.value.as_deref())
    }

    /// The values in effect: all lines of a list, and the last line of every other name.
    fn effective(&self, name: &str) -> impl Iterator<Item = Option<&OsStr>> {
        let count = self.values(name).count();
        let skipped = if LISTS.contains(&name) { 0 } else { count.saturating_sub(1) };
        self.values(name).skip(skipped)
    }
}

impl Setting {
    fn flag(&self) -> OsString {
        let mut flag = format!("--{}", self.name).into_bytes();
        if let Some(value) = &self.value {
            flag.push(b'=');
            flag.extend_from_slice(value.as_bytes());
        }
        OsString::from_vec(flag)
    }
}

/// Parses the lines; their values are not checked.
pub(crate) fn parse(text: &[u8], options: OptionTable) -> Result<Config, Wrong> {
    let mut config = Config::default();
    for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let (number, line) = (number + 1, line.trim_ascii());
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        match parse_line(line, options).map_err(|why| (number, why))? {
            Line::Ignored => {}
            Line::Off(name) => config.0.retain(|setting| setting.name != name),
            Line::On(name, _)
                if name == MOUNTPOINT && config.values(MOUNTPOINT).next().is_some() =>
            {
                let why = "a second mountpoint: a config file describes one mount";
                return Err((number, why.into()));
            }
            Line::On(name, value) => config.0.push(Setting { line: number, name, value }),
        }
    }
    Ok(config)
}

/// A line of a config file that is no comment.
enum Line {
    /// The option has no effect.
    Ignored,
    /// A name and its value; `None` if the flag takes no value.
    On(String, Option<OsString>),
    /// The name of a flag that is switched off.
    Off(String),
}

/// Parses a line; its value is not checked.
fn parse_line(line: &[u8], options: OptionTable) -> Result<Line, String> {
    let (name, value) = match line.iter().position(|&byte| byte == b'=') {
        Some(at) => (&line[..at], Some(unquoted(line[at + 1..].trim_ascii()))),
        None => (line, None),
    };
    let written = String::from_utf8_lossy(name.trim_ascii());
    if line.contains(&0) {
        return Err("contains a zero byte".to_owned());
    }
    if (options.is_ignored)(&written) {
        return Ok(Line::Ignored);
    }
    let name = written.replace('_', "-");
    let takes_value = match name.as_str() {
        SOURCE | MOUNTPOINT => Some(true),
        _ => (options.takes_value)(&name),
    };
    match (takes_value, value) {
        (None, _) => Err((options.unknown)(&written)),
        (Some(true), None | Some(b"")) => Err(format!("{written} needs a value: {written} = …")),
        (Some(true), Some(value)) => Ok(Line::On(name, Some(OsStr::from_bytes(value).to_owned()))),
        (Some(false), None | Some(b"yes" | b"true" | b"on" | b"1")) => Ok(Line::On(name, None)),
        (Some(false), Some(b"no" | b"false" | b"off" | b"0")) => Ok(match opposite(&name) {
            Some(opposite) => Line::On(opposite.to_owned(), None),
            None => Line::Off(name),
        }),
        (Some(false), Some(_)) => Err(format!("{written} must be yes or no")),
    }
}

/// The flag that says the opposite of a flag that may be on by default.
fn opposite(name: &str) -> Option<&'static str> {
    match name {
        "ro" => Some("rw"),
        "rw" => Some("ro"),
        _ => None,
    }
}

/// Quotes keep blanks at the ends of a value.
fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value)
}
