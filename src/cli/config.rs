//! `--config FILE`: the lines of a config file as flags of `ffrfs mount`.

use super::{options, wrong_usage};
use crate::daemon::config::{Config, OptionTable, Wrong};
use crate::daemon::patience;
use crate::failure::Failure;
use clap::CommandFactory;
use clap::error::ErrorKind;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The options of `ffrfs mount`.
pub(super) const OPTIONS: OptionTable = OptionTable {
    takes_value: options::takes,
    is_ignored: options::is_ignored,
    unknown,
    check_values,
};

/// Refuses an option by the name in its line.
fn unknown(written: &str) -> String {
    options::unknown(written, &written.replace('_', "-"))
}

/// Puts the lines of FILE before each `--config FILE` of the sub-command `mount`, so that later flags of the
/// command line override them.
///
/// # Errors
/// No file is named, or it cannot be used.
pub(super) fn expand(args: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
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
        out.extend(read(Path::new(&file))?.flags());
        out.extend(["--config".into(), file]);
    }
    Ok(out)
}

/// Reads a config file, which may lie in a mount whose daemon does not answer.
///
/// # Errors
/// As for [`Config::read`]; or that daemon does not answer.
pub(super) fn read(file: &Path) -> Result<Config, Failure> {
    patience::check([file])?;
    Config::read(file, OPTIONS)
}

/// Has clap parse each line by itself: for all lines together clap would not say which one is wrong.
fn check_values(config: &Config) -> Result<(), Wrong> {
    let command = super::Cli::command();
    let Some(mut command) = command.find_subcommand("mount").cloned() else { return Ok(()) };
    for (line, flag) in config.numbered_flags() {
        let Err(error) = command.try_get_matches_from_mut([OsString::new(), flag]) else {
            continue;
        };
        if matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) {
            return Err((line, wrong_usage::in_one_line(&error)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::config::parse;
    use proptest::prelude::*;

    fn flags(text: &str) -> Vec<String> {
        let config = parse(text.as_bytes(), OPTIONS).unwrap();
        config.flags().map(|flag| flag.into_string().unwrap()).collect()
    }

    fn refused(text: &str) -> (usize, String) {
        let checked = parse(text.as_bytes(), OPTIONS)
            .and_then(|config| check_values(&config).map(|()| config));
        checked.expect_err("it must be refused")
    }

    #[test]
    fn lines_become_the_long_flags_of_their_names() {
        let text = "# a comment\n\nsource = /data/a #1.ffr\n source=/data/b.ffr\r\n\
                    mountpoint = \"/mnt/my data \"\nallow_other\nallow-root = no\nro=yes\nro=no\n\
                    cache_size = 1G\nnofail\nx-systemd.automount = 1\n";
        let expected = [
            "--source=/data/a #1.ffr",
            "--source=/data/b.ffr",
            "--mountpoint=/mnt/my data ",
            "--allow-other",
            "--ro",
            "--rw",
            "--cache-size=1G",
        ];
        assert_eq!(flags(text), expected);
    }

    #[test]
    fn a_flag_that_a_later_line_switches_off_is_off() {
        assert_eq!(flags("allow-other\nmemory = 1G\nallow_other = no\n"), ["--memory=1G"]);
        assert_eq!(flags("allow-other = no\nallow-other = yes\n"), ["--allow-other"]);
    }

    #[test]
    fn an_error_names_its_line() {
        for (text, line, says) in [
            ("source = a\nfrobnicate = 1", 2, "unknown mount option `frobnicate`"),
            ("\n\n= 1", 3, "unknown mount option ``"),
            ("mountpoint", 1, "needs a value"),
            ("memory =", 1, "memory needs a value"),
            ("ro = perhaps", 1, "yes or no"),
            ("mountpoint = a\nmountpoint = b", 2, "second"),
            ("config = x", 1, "unknown"),
            ("ro\nauto_unmount = yes", 2, "mount option `auto_unmount`: nobody unmounts"),
            ("readonly", 1, "did you mean ro?"),
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
    fn the_example_is_valid_with_and_without_the_options_in_its_comments() {
        let example = include_str!("../../systemd/ffrfs.conf.example");
        // A space tells a remark from an option that is switched off.
        let switched_on = |line: &str| match line.strip_prefix('#') {
            Some(rest) if !rest.is_empty() && !rest.starts_with(' ') => rest.to_owned(),
            _ => line.to_owned(),
        };
        let all: Vec<_> = example.lines().map(switched_on).collect();
        assert_eq!(flags(example).len(), 3);
        let config = parse(all.join("\n").as_bytes(), OPTIONS).unwrap();
        check_values(&config).unwrap();
        assert!(config.flags().count() > 12);
    }

    #[test]
    fn differences_are_found_by_name_and_the_last_line_counts() {
        let of = |text: &str| parse(text.as_bytes(), OPTIONS).unwrap();
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
        let lists = ["include = *.jpg\ninclude = *.png", "include = *.gif\ninclude = *.png"];
        assert_eq!(of(lists[0]).differing(&of(lists[1])), ["include"], "all lines of it count");
    }

    proptest! {
        #[test]
        fn no_file_makes_the_parser_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&text, OPTIONS);
        }

        #[test]
        fn nothing_that_looks_like_lines_makes_the_check_panic(
            text in "((source|verify|memory|ro|fmask|uid|x-a|#) ?(=|) ?[\\PC]{0,9}\n){0,6}",
        ) {
            let _ = parse(text.as_bytes(), OPTIONS).map(|config| check_values(&config));
        }

        #[test]
        fn any_value_reaches_its_flag_as_it_is(value in "[^\\s\"\0][^\n\r\0\"]{0,20}[^\\s\"\0]") {
            let flags = flags(&format!("  suffix\t=  {value} \n"));
            prop_assert_eq!(flags, [format!("--suffix={value}")]);
        }
    }
}
