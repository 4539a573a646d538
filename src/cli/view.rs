//! Options for the names that samples are shown under.

use super::open::OpenArgs;
use crate::catalog::{Catalog, Duplicates, Renamed};
use crate::daemon::patience;
use crate::dataset::Opened;
use crate::dataset::{self, NameOptions, NamePattern, Selection};
use crate::failure::{Failure, say};
use clap::builder::RangedI64ValueParser;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// The names that samples are shown under.
#[derive(Debug, Args, Clone, Default)]
#[command(next_help_heading = "Names")]
pub(super) struct ViewArgs {
    /// The ending of numbered names: `.jpg`, …, or `auto` to choose by the first bytes of samples
    #[arg(long, value_name = ".EXT|auto")]
    pub(super) suffix: Option<String>,
    /// Directories of N numbered samples or records each: 000/000123
    // Signed, so that a negative number is refused by the range, too.
    #[arg(long, value_name = "N", value_parser = RangedI64ValueParser::<u64>::new().range(1..))]
    pub(super) fanout: Option<u64>,
    /// Names from a file: line i is the relative path of sample i
    #[arg(long, value_name = "FILE", conflicts_with_all = ["suffix", "fanout"])]
    pub(super) names: Option<PathBuf>,
    /// Show numbers even if samples have stored names
    #[arg(long, conflicts_with = "names")]
    pub(super) flat: bool,
    /// How several members of one name are shown
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(super) dup: Dup,
    /// How several containers are shown
    #[arg(long, value_name = "HOW", default_value = "merge")]
    pub(super) layout: Layout,
    /// Also show what macOS and Windows leave beside people's own files: __MACOSX, ._*, .DS_Store, Thumbs.db
    #[arg(long)]
    pub(super) all: bool,
    #[command(flatten)]
    pub(super) selection: SelectionArgs,
}

/// Which names are shown.
#[derive(Debug, Args, Clone, Default)]
#[command(next_help_heading = "Names")]
pub(super) struct SelectionArgs {
    /// Show only what GLOB matches, or what lies in a directory that it matches (can be given several times)
    #[arg(long, value_name = "GLOB", value_parser = NamePattern::new)]
    pub(super) include: Vec<NamePattern>,
    /// Do not show what GLOB matches (can be given several times)
    #[arg(long, value_name = "GLOB", value_parser = NamePattern::new)]
    pub(super) exclude: Vec<NamePattern>,
    /// Show only the directory PATH, as the root; globs match paths below it
    #[arg(long, value_name = "PATH")]
    pub(super) subdir: Option<PathBuf>,
    /// Cut the first N names off each path
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(super) strip: usize,
}

impl SelectionArgs {
    /// The selection, without clap.
    pub(super) fn selection(&self) -> Selection {
        Selection {
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            below: self.subdir.clone(),
            strip: self.strip,
        }
    }
}

/// How several members of one name are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Dup {
    /// Of the members of one tar the last, as tar extracts them; of others all, as `number`
    #[default]
    Auto,
    /// The first is `x.jpg`, the others `x (1).jpg` …
    Number,
    /// Only the first
    First,
    /// Only the last
    Last,
    /// Not at all: they are an error
    Error,
}

/// How several containers are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Layout {
    /// As one tree; numbers go on from one container to the next
    #[default]
    Merge,
    /// A directory for each, named after its file
    Shards,
}

impl ViewArgs {
    /// Checks that the daemon answers, if the file of names lies in a mount of ffrfs. No thread may run yet.
    pub(super) fn check_answered(&self) -> Result<(), Failure> {
        patience::check(self.names.as_deref())
    }

    /// The options, without clap.
    pub(super) fn options(&self) -> NameOptions {
        NameOptions {
            suffix: self.suffix.clone(),
            fanout: self.fanout,
            names: self.names.clone(),
            flat: self.flat,
            duplicates: match self.dup {
                Dup::Auto => Duplicates::Auto,
                Dup::Number => Duplicates::Number,
                Dup::First => Duplicates::First,
                Dup::Last => Duplicates::Last,
                Dup::Error => Duplicates::Error,
            },
            layout: match self.layout {
                Layout::Merge => dataset::Layout::Merge,
                Layout::Shards => dataset::Layout::Shards,
            },
            all: self.all,
            selection: self.selection.selection(),
            // A mount sets this itself; tools show all names.
            without_control: true,
            are_unseen: false,
        }
    }

    /// Says how many files of the containers a command does not take because they are not shown, unless its user has
    /// selected some.
    pub(super) fn say_not_shown(&self, renamed: &Renamed) {
        if self.selection.selection().is_everything() {
            say_not_shown(renamed, "");
        }
    }
}

/// Says how many files of the containers are not shown; `more` follows.
pub(super) fn say_not_shown(renamed: &Renamed, more: &str) {
    if let Some(words) = renamed.not_shown() {
        say(format_args!("ffrfs: not all files in the containers are shown: {words}{more}"));
    }
}

impl Opened {
    /// The tree of names that the options ask for.
    pub(super) fn catalog(&self, args: &ViewArgs, open: &OpenArgs) -> Result<Catalog, Failure> {
        self.named(&args.options(), open.allow_damaged)
    }
}
