//! A mount's config file: a line `NAME = VALUE` for each mount option, `source` and `mountpoint`.

use super::options::{self, Takes};
use crate::failure::Failure;
use clap::CommandFactory;
use clap::error::ErrorKind;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A file that is larger was named by mistake.
const MAX_BYTES: u64 = 1 << 20;

/// A container; there may be many.
const SOURCE: &str = "source";
/// Where they are mounted; there must be one.
const MOUNTPOINT: &str = "mountpoint";

/// What the lines of a config file say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Config(Vec<Setting>);

/// A line of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    line: usize,
    /// As the long flag is called.
    name: String,
    /// `None`: the flag takes none.
    value: Option<OsString>,
}

/// What is wrong, in which line.
pub(crate) type Wrong = (usize, String);

/// Puts the lines of FILE before each `--config FILE` of the sub-command `mount`: what follows it on the
/// command line goes before what the file says.
///
/// # Errors
/// No file is named, or it cannot be used.
pub(crate) fn expand(args: Vec<OsString>, takes: Takes) -> Result<Vec<OsString>, Failure> {
    if args.get(1).is_none_or(|command| command != "mount") {
        return Ok(args);
    }
    let mut out = Vec::with_capacity(args.len());
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let file = match arg.as_bytes().strip_prefix(b"--config") {
            Some(b"") => args.next().unwrap_or_default(),
            Some([b'=', file @ ..]) => OsStr::from_bytes(file).to_owned(),
            _ => {
                let is_end = arg == "--";
                out.push(arg);
                if is_end {
                    out.extend(args.by_ref());
                }
                continue;
            }
        };
        if file.is_empty() {
            return Err(Failure::usage("--config needs a file"));
        }
        out.extend(Config::read(Path::new(&file), takes)?.flags());
        out.extend(["--config".into(), file]);
    }
    Ok(out)
}

impl Config {
    /// Reads a file, whose options are those of `ffrfs mount`.
    ///
    /// # Errors
    /// It cannot be read, or a line of it is wrong: the error names it.
    pub(crate) fn read(path: &Path, takes: Takes) -> Result<Self, Failure> {
        let unreadable = |e| Failure::unreadable(path.display(), e);
        let mut text = Vec::new();
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(unreadable)?;
        let at = |(line, why)| Failure::usage(format!("{}:{line}: {why}", path.display()));
        if text.len() as u64 > MAX_BYTES {
            let why = format!("{}: larger than {MAX_BYTES} bytes: no config file", path.display());
            return Err(Failure::usage(why));
        }
        let config = parse(&text, takes).map_err(at)?;
        config.check_values().map_err(at)?;
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

    /// Where to mount.
    pub(crate) fn mountpoint(&self) -> PathBuf {
        self.values(MOUNTPOINT).next().flatten().map(PathBuf::from).unwrap_or_default()
    }

    /// The names that have another value in `other`, sorted.
    pub(crate) fn differing(&self, other: &Config) -> Vec<String> {
        let mut names: Vec<_> = self.0.iter().chain(&other.0).map(|s| s.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| !self.effective(name).eq(other.effective(name)));
        names
    }

    /// What counts of a name that takes a value.
    pub(crate) fn value(&self, name: &str) -> Option<OsString> {
        self.values(name).last().flatten().map(OsStr::to_owned)
    }

    /// Takes over what `other` says of a name.
    pub(crate) fn adopt(&mut self, name: &str, other: &Config) {
        self.0.retain(|setting| setting.name != name);
        self.0.extend(other.0.iter().filter(|setting| setting.name == name).cloned());
    }

    fn values(&self, name: &str) -> impl Iterator<Item = Option<&OsStr>> {
        let named = self.0.iter().filter(move |setting| setting.name == name);
        named.map(|setting| setting.value.as_deref())
    }

    /// What counts: all sources, and of everything else the last line.
    fn effective(&self, name: &str) -> impl Iterator<Item = Option<&OsStr>> {
        let skipped = if name == SOURCE { 0 } else { self.values(name).count().saturating_sub(1) };
        self.values(name).skip(skipped)
    }

    /// Has clap look at each line by itself: in the end it would not know which one it was.
    fn check_values(&self) -> Result<(), Wrong> {
        let command = super::Cli::command();
        let Some(mut command) = command.find_subcommand("mount").cloned() else { return Ok(()) };
        for setting in &self.0 {
            let Err(error) = command.try_get_matches_from_mut([OsString::new(), setting.flag()])
            else {
                continue;
            };
            if matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) {
                return Err((setting.line, in_one_line(&error)));
            }
        }
        Ok(())
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

/// What clap says before it goes on to usage and help.
fn in_one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").map_or(line.clone(), str::to_owned)
}

/// Reads the lines; their values are not looked at.
pub(crate) fn parse(text: &[u8], takes: Takes) -> Result<Config, Wrong> {
    let mut config = Config::default();
    for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let (number, line) = (number + 1, line.trim_ascii());
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let setting = parse_line(line, takes).map_err(|why| (number, why))?;
        let Some((name, value)) = setting else { continue };
        if name == MOUNTPOINT && config.values(MOUNTPOINT).next().is_some() {
            return Err((number, "there is a mountpoint already: a file for each mount".into()));
        }
        config.0.push(Setting { line: number, name, value });
    }
    Ok(config)
}

/// The flag that a line stands for; `None` if it means nothing here, or says no.
fn parse_line(line: &[u8], takes: Takes) -> Result<Option<(String, Option<OsString>)>, String> {
    let (name, value) = match line.iter().position(|&byte| byte == b'=') {
        Some(at) => (&line[..at], Some(unquoted(line[at + 1..].trim_ascii()))),
        None => (line, None),
    };
    let written = String::from_utf8_lossy(name.trim_ascii());
    if line.contains(&0) {
        return Err("a zero byte".to_owned());
    }
    if options::is_ignored(&written) {
        return Ok(None);
    }
    let name = written.replace('_', "-");
    let takes_value = match name.as_str() {
        SOURCE | MOUNTPOINT => Some(true),
        _ => takes(&name),
    };
    match (takes_value, value) {
        (None, _) => Err(format!("unknown option `{written}` (ffrfs mount --help lists them)")),
        (Some(true), None | Some(b"")) => Err(format!("{written} needs a value: {written} = …")),
        (Some(true), Some(value)) => Ok(Some((name, Some(OsStr::from_bytes(value).to_owned())))),
        (Some(false), None | Some(b"yes" | b"true" | b"on" | b"1")) => Ok(Some((name, None))),
        (Some(false), Some(b"no" | b"false" | b"off" | b"0")) => Ok(None),
        (Some(false), Some(_)) => Err(format!("{written} is yes or no")),
    }
}

/// Quotes keep blanks at the ends of a value.
fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flags(text: &str) -> Vec<String> {
        let config = parse(text.as_bytes(), options::takes).unwrap();
        config.flags().map(|flag| flag.into_string().unwrap()).collect()
    }

    fn refused(text: &str) -> (usize, String) {
        let checked = parse(text.as_bytes(), options::takes)
            .and_then(|config| config.check_values().map(|()| config));
        checked.expect_err("it must be refused")
    }

    #[test]
    fn lines_become_the_long_flags_of_their_names() {
        let text = "# a comment\n\nsource = /data/a #1.ffr\n source=/data/b.ffr\r\n\
                    mountpoint = \"/mnt/my data \"\nallow_other\nallow-root = no\nro=yes\n\
                    cache_size = 1G\nnofail\nx-systemd.automount = 1\n";
        let expected = [
            "--source=/data/a #1.ffr",
            "--source=/data/b.ffr",
            "--mountpoint=/mnt/my data ",
            "--allow-other",
            "--ro",
            "--cache-size=1G",
        ];
        assert_eq!(flags(text), expected);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, line, says) in [
            ("source = a\nfrobnicate = 1", 2, "unknown option `frobnicate`"),
            ("\n\n= 1", 3, "unknown option ``"),
            ("mountpoint", 1, "needs a value"),
            ("memory =", 1, "memory needs a value"),
            ("ro = perhaps", 1, "yes or no"),
            ("mountpoint = a\nmountpoint = b", 2, "already"),
            ("config = x", 1, "unknown"),
            ("foreground", 1, "unknown"),
            ("ro\nverify = sometimes", 2, "always, once, off"),
            ("# x\nfmask = 9", 2, "octal"),
            ("suffix = a\0b", 1, "zero byte"),
        ] {
            let (found, said) = refused(text);
            assert_eq!(found, line, "{text:?}: {said}");
            assert!(said.contains(says) && !said.contains('\n'), "{text:?}: {said}");
        }
    }

    #[test]
    fn the_example_holds_with_and_without_what_it_has_in_comments() {
        let example = include_str!("../../systemd/ffrfs.conf.example");
        // A space tells a remark from an option that is switched off.
        let switched_on = |line: &str| match line.strip_prefix('#') {
            Some(rest) if !rest.is_empty() && !rest.starts_with(' ') => rest.to_owned(),
            _ => line.to_owned(),
        };
        let all: Vec<_> = example.lines().map(switched_on).collect();
        assert_eq!(flags(example).len(), 3);
        let config = parse(all.join("\n").as_bytes(), options::takes).unwrap();
        config.check_values().unwrap();
        assert!(config.flags().count() > 12);
    }

    #[test]
    fn what_differs_is_told_by_name_and_the_last_line_counts() {
        let of = |text: &str| parse(text.as_bytes(), options::takes).unwrap();
        let before = of("source = a\nsource = b\nverify = off\nverify = once\nro\nmemory = 1G");
        let after = of("verify = once\nsource = b\nsource = a\nmemory = 2G\nlog-level = debug");
        assert_eq!(before.differing(&after), ["log-level", "memory", "ro", "source"]);
        assert_eq!(after.value("memory"), Some("2G".into()));
        assert_eq!((before.value("ro"), after.value("ro")), (None, None));
        let mut adopted = before.clone();
        for name in ["memory", "ro", "source"] {
            adopted.adopt(name, &after);
        }
        assert_eq!(adopted.differing(&after), ["log-level"]);
    }

    proptest! {
        #[test]
        fn no_file_makes_the_parser_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&text, options::takes);
        }

        #[test]
        fn nothing_that_looks_like_lines_makes_the_check_panic(
            text in "((source|verify|memory|ro|fmask|uid|x-a|#) ?(=|) ?[\\PC]{0,9}\n){0,6}",
        ) {
            let _ = parse(text.as_bytes(), options::takes).map(|config| config.check_values());
        }

        #[test]
        fn any_value_reaches_its_flag_as_it_is(value in "[^\\s\"\0][^\n\r\0\"]{0,20}[^\\s\"\0]") {
            let flags = flags(&format!("  suffix\t=  {value} \n"));
            prop_assert_eq!(flags, [format!("--suffix={value}")]);
        }
    }
}
