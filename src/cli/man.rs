//! `ffrfs man`: the manual pages, generated from the clap definitions and the hand-written parts in `docs/man`.
//!
//! A hand-written part is `docs/man/NAME.roff`: its text before the first heading continues DESCRIPTION, the
//! rest comes behind EXIT STATUS. A sub-command without such a file has a page, too.

use super::{EXIT_CODES, helper, options};
use crate::failure::{Exit, Failure};
use clap::builder::StyledStr;
use clap::{Arg, Args, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Write the manual pages to a directory, as man(1) looks for them: man1/ffrfs.1, man8/mount.ffrfs.8 …
#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// The directory, which is created if it is missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// The page of the helper of mount(8), which is no sub-command.
const HELPER: &str = "mount.ffrfs";

/// The hand-written parts, for the pages that have one.
const BY_HAND: &[(&str, &str)] = &[
    ("ffrfs", include_str!("../../docs/man/ffrfs.roff")),
    ("ffrfs-cache", include_str!("../../docs/man/ffrfs-cache.roff")),
    ("ffrfs-cat", include_str!("../../docs/man/ffrfs-cat.roff")),
    ("ffrfs-doctor", include_str!("../../docs/man/ffrfs-doctor.roff")),
    ("ffrfs-index", include_str!("../../docs/man/ffrfs-index.roff")),
    ("ffrfs-info", include_str!("../../docs/man/ffrfs-info.roff")),
    ("ffrfs-ls", include_str!("../../docs/man/ffrfs-ls.roff")),
    ("ffrfs-mount", include_str!("../../docs/man/ffrfs-mount.roff")),
    ("ffrfs-pack", include_str!("../../docs/man/ffrfs-pack.roff")),
    ("ffrfs-set", include_str!("../../docs/man/ffrfs-set.roff")),
    ("ffrfs-stats", include_str!("../../docs/man/ffrfs-stats.roff")),
    ("ffrfs-top", include_str!("../../docs/man/ffrfs-top.roff")),
    ("ffrfs-trace", include_str!("../../docs/man/ffrfs-trace.roff")),
    ("ffrfs-umount", include_str!("../../docs/man/ffrfs-umount.roff")),
    ("ffrfs-verify", include_str!("../../docs/man/ffrfs-verify.roff")),
    ("ffrfs-warmup", include_str!("../../docs/man/ffrfs-warmup.roff")),
    (HELPER, include_str!("../../docs/man/mount.ffrfs.roff")),
];

/// Programs and devices that every page refers to.
const ELSEWHERE: &[(&str, &str)] = &[("fusermount3", "1"), ("fuse", "4"), ("mount", "8")];

pub(super) fn run(args: &ManArgs) -> Result<Exit, Failure> {
    let failed = |path: &Path, error| Failure::output(path.display(), error);
    fs::create_dir_all(&args.directory).map_err(|e| failed(&args.directory, e))?;
    for (name, text) in pages(&date()) {
        let (_, section) = name.rsplit_once('.').unwrap_or_default();
        let directory = args.directory.join(format!("man{section}"));
        fs::create_dir_all(&directory).map_err(|e| failed(&directory, e))?;
        let path = directory.join(name);
        fs::write(&path, text).map_err(|e| failed(&path, e))?;
    }
    Ok(Exit::Ok)
}

/// All pages: file names and texts.
fn pages(date: &str) -> Vec<(String, String)> {
    let mut program = super::Cli::command()
        .disable_help_subcommand(true)
        .subcommand_help_heading("COMMANDS")
        .subcommand_value_name("COMMAND");
    program.build();
    let visible = program.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let commands = [program.clone()].into_iter().chain(visible).map(short_usage);
    let commands: Vec<_> = commands.chain([helper()]).collect();
    let titles: Vec<_> = commands.iter().map(title).collect();
    let pages = commands.iter().zip(&titles).map(|(command, (name, section))| {
        let page = Page { command, name, section, date, all: &titles };
        (format!("{name}.{section}"), page.render())
    });
    pages.collect()
}

/// The command with the usage that --help shows, where clap_mangen would list all options.
fn short_usage(mut command: Command) -> Command {
    let usage = command.render_usage().to_string();
    command.override_usage(usage.trim_start_matches("Usage: ").to_owned())
}

/// mount.ffrfs, as if clap knew it.
fn helper() -> Command {
    Command::new(HELPER)
        .about("Mount dataset containers, for mount(8) and fstab(5)")
        .override_usage(
            "mount -t ffrfs [-o OPTION[,OPTION]...] SOURCE MOUNTPOINT\n\
             mount.ffrfs SOURCE MOUNTPOINT [-sfnvrw] [-N NAMESPACE] [-t TYPE] [-o OPTION[,OPTION]...]",
        )
        .disable_help_flag(true)
}

/// Name and section of a command's page.
fn title(command: &Command) -> (String, &'static str) {
    let name = command.get_display_name().unwrap_or(command.get_name());
    (name.to_owned(), if name == HELPER { "8" } else { "1" })
}

struct Page<'a> {
    command: &'a Command,
    name: &'a str,
    section: &'a str,
    date: &'a str,
    /// Names and sections of all pages.
    all: &'a [(String, &'static str)],
}

impl Page<'_> {
    fn render(&self) -> String {
        let (description, sections) = self.by_hand();
        let after_help = after_help(self.command);
        let text = [
            &self.clap(|man, out| {
                man.render_title(out)?;
                man.render_name_section(out)?;
                man.render_synopsis_section(out)?;
                man.render_description_section(out)
            }),
            description,
            &if self.name == HELPER { mount_options() } else { options(self.command) },
            &if self.command.has_subcommands() {
                self.clap(Man::render_subcommands_section)
            } else {
                String::new()
            },
            &exit_status(if self.name == HELPER { helper::EXIT_CODES } else { EXIT_CODES }),
            sections,
            &after_help.concat(),
            &self.see_also(),
        ];
        // Each part begins with lines that make apostrophes straight; once is enough. A page is ASCII, as usual.
        let preamble = Roff::new().render();
        preamble.clone()
            + &text.concat().replace(&preamble, "").replace('…', "...").replace('`', "\\(ga")
    }

    fn clap(&self, part: impl Fn(&Man, &mut dyn std::io::Write) -> std::io::Result<()>) -> String {
        let man = Man::new(self.command.clone())
            .title(self.name.to_uppercase())
            .section(self.section)
            .date(self.date)
            .source(concat!("ffrfs ", env!("CARGO_PKG_VERSION")))
            .manual(if self.section == "8" { "System Administration" } else { "User Commands" });
        let mut out = Vec::new();
        part(&man, &mut out).expect("memory can be written");
        String::from_utf8_lossy(&out).into_owned()
    }

    /// The hand-written part, split at its first heading.
    fn by_hand(&self) -> (&'static str, &'static str) {
        let text = BY_HAND.iter().find(|(name, _)| *name == self.name).map_or("", |(_, text)| text);
        let heading = match text.starts_with(".SH ") {
            true => Some(0),
            false => text.find("\n.SH ").map(|newline| newline + 1),
        };
        text.split_at(heading.unwrap_or(text.len()))
    }

    fn see_also(&self) -> String {
        let ours = self.all.iter().map(|(name, section)| (name.as_str(), *section));
        let others = ours.chain(ELSEWHERE.iter().copied()).filter(|(name, _)| *name != self.name);
        let mut roff = Roff::new();
        roff.control("SH", ["SEE ALSO"]);
        let mut others = others.peekable();
        while let Some((name, section)) = others.next() {
            let comma = if others.peek().is_some() { "," } else { "" };
            roff.control("BR", [name, &format!("({section}){comma}")]);
        }
        roff.render()
    }
}

/// Arguments and options, as they stand on the command line.
fn options(command: &Command) -> String {
    let mut roff = Roff::new();
    roff.control("SH", ["OPTIONS"]);
    let (places, flags): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().partition(|arg| arg.is_positional());
    for arg in places.into_iter().chain(flags) {
        // Such as `--memory <SIZE>`, or `<SOURCE>...`
        let usage = arg.to_string();
        let (flag, value) = match arg.get_long() {
            Some(long) => usage.split_at(long.len() + 2),
            None if arg.is_positional() => ("", usage.as_str()),
            None => (usage.as_str(), ""),
        };
        let short = arg.get_short().filter(|_| arg.get_long().is_some());
        let short = short.map(|short| [bold(format!("-{short}")), roman(", ")]);
        let head = short.into_iter().flatten().chain([bold(flag), italic(value)]);
        describe(&mut roff, arg, head.collect());
    }
    roff.render()
}

/// The options of `ffrfs mount`, as they stand behind -o.
fn mount_options() -> String {
    let program = super::Cli::command();
    let mount = program.find_subcommand("mount").expect("there is ffrfs mount");
    let mut roff = Roff::new();
    roff.control("SH", ["OPTIONS"]);
    for arg in mount.get_arguments() {
        let Some(name) = arg.get_long().filter(|name| options::takes(name).is_some()) else {
            continue;
        };
        let mut head = vec![bold(name.replace('-', "_"))];
        if arg.get_action().takes_values() {
            head.extend([bold("="), italic(arg.get_value_names().unwrap_or_default().join(" "))]);
        }
        describe(&mut roff, arg, head);
    }
    roff.render()
}

/// Writes an entry of a list of options: help, default, values.
fn describe(roff: &mut Roff, arg: &Arg, head: Vec<Inline>) {
    if arg.is_hide_set() {
        return;
    }
    let help = arg.get_long_help().or(arg.get_help()).map(StyledStr::to_string);
    roff.control("TP", []).text(head).text([roman(help.unwrap_or_default())]);
    if !arg.get_action().takes_values() {
        return;
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|it| it.to_string_lossy()).collect();
    if !defaults.is_empty() && !arg.is_hide_default_value_set() {
        roff.text([roman(format!("[default: {}]", defaults.join(",")))]);
    }
    let values = arg.get_possible_values();
    let values: Vec<_> = values.iter().filter(|value| !value.is_hide_set()).collect();
    if values.is_empty() {
        return;
    }
    roff.control("RS", []);
    for value in values {
        let help = value.get_help().map(|help| format!(": {help}")).unwrap_or_default();
        roff.control("IP", ["\\(bu", "2"]).text([bold(value.get_name()), roman(help)]);
    }
    roff.control("RE", []);
}

/// The exit codes that --help lists.
fn exit_status(codes: &str) -> String {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for line in codes.lines().skip(1) {
        let (code, meaning) = line.trim().split_once(' ').unwrap_or((line, ""));
        roff.control("TP", []).text([bold(code)]).text([roman(meaning.trim())]);
    }
    roff.render()
}

/// The kind of a line in the text behind a command's help.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Line {
    Blank,
    Examples,
    Code,
    Text,
}

impl Line {
    fn of(line: &str) -> Self {
        match line {
            "" => Line::Blank,
            "Examples:" => Line::Examples,
            _ if line.starts_with(' ') => Line::Code,
            _ => Line::Text,
        }
    }
}

/// The text behind a command's help, as sections: NOTES and EXAMPLES.
fn after_help(command: &Command) -> [String; 2] {
    let text = command.get_after_long_help().or(command.get_after_help());
    let text = text.map(StyledStr::to_string).unwrap_or_default().replace(EXIT_CODES, "");
    let (mut notes, mut examples) = (Roff::new(), Roff::new());
    let mut is_example = false;
    let lines: Vec<_> = text.lines().collect();
    for lines in lines.chunk_by(|a, b| Line::of(a) == Line::of(b)) {
        let line = Line::of(lines[0]);
        is_example = line == Line::Examples || (is_example && line != Line::Text);
        let section = if is_example { &mut examples } else { &mut notes };
        if matches!(line, Line::Blank | Line::Examples) {
            continue;
        }
        if *section != Roff::new() {
            section.control("PP", []);
        }
        if line == Line::Text {
            section.text([roman(lines.join("\n"))]);
            continue;
        }
        section.control("EX", []);
        for line in lines {
            section.text([roman(line.trim_start())]);
        }
        section.control("EE", []);
    }
    [("NOTES", notes), ("EXAMPLES", examples)].map(|(heading, body)| match body == Roff::new() {
        true => String::new(),
        false => Roff::new().control("SH", [heading]).render() + &body.render(),
    })
}

/// Today, or for builds that can be repeated the day of `SOURCE_DATE_EPOCH`.
fn date() -> String {
    let fixed = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| seconds.parse().ok());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    civil(fixed.unwrap_or_else(now) / 86400)
}

/// The date, in the Gregorian calendar, of a day counted from 1970-01-01.
fn civil(day: u64) -> String {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut left) = (1970 + day / 146_097 * 400, day % 146_097);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        for (day, date) in [(0, "1970-01-01"), (11_016, "2000-02-29"), (11_017, "2000-03-01")] {
            assert_eq!(civil(day), date);
        }
        assert_eq!(civil(20_453), "2025-12-31");
        assert_eq!(civil(157_054), "2400-01-01");
    }

    #[test]
    fn all_that_is_written_by_hand_is_on_a_page() {
        let pages = pages("2000-01-01");
        for (name, text) in BY_HAND {
            let last = text.lines().last().unwrap();
            let page = pages.iter().find(|(page, _)| page.rsplit_once('.').unwrap().0 == *name);
            assert!(page.is_some_and(|(_, page)| page.contains(last)), "{name}");
        }
        let files = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/man")).unwrap();
        assert_eq!(files.count(), BY_HAND.len());
    }

    #[test]
    fn no_page_has_a_section_twice() {
        for (name, page) in pages("2000-01-01") {
            let mut headings: Vec<_> =
                page.lines().filter(|line| line.starts_with(".SH")).collect();
            let count = headings.len();
            headings.sort_unstable();
            headings.dedup();
            assert_eq!(headings.len(), count, "{name}");
        }
    }
}
