//! `ffrfs extract`: the files in containers as files of a folder, named as a mount shows them.

use super::view::ViewArgs;
use crate::daemon::logging;
use crate::dataset::open;
use crate::dataset::open::OpenArgs;
use crate::failure::{Exit, Failure, say};
use crate::io::beneath::Beneath;
use crate::tools::entries::ContainerEntries;
use crate::tools::extract::{Existing, Files};
use crate::tools::interrupt::Interrupt;
use crate::tools::progress;
use crate::tools::reader::thread_count;
use clap::Args;
use glob::{MatchOptions, Pattern};
use std::fs;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

const AFTER_HELP: &str = "\
A PATTERN is a path as `ffrfs ls -R` prints it, of a file or of a folder with all that is in it.
* and ? stand for anything within a name, ** for any folders: --path '**/*.jpg'.

Examples:
  ffrfs extract train.ffr out/
  ffrfs extract photos.zip out/ --path train/cat --path 'train/dog/*.jpg'
  ffrfs extract 'train-{000000..000146}.tar' out/ -j 8 --resume";

/// Write the files in containers to a folder
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
#[command(override_usage = "ffrfs extract [OPTIONS] <SOURCE>... <OUTDIR>")]
pub(super) struct ExtractArgs {
    /// ContainerEntries, or folders, globs or brace lists of them; last the folder to write to
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "OUTDIR"])]
    paths: Vec<PathBuf>,
    /// Only what has this name, or lies in it
    #[arg(short = 'p', long = "path", value_name = "PATTERN")]
    patterns: Vec<String>,
    /// Threads [default: as many as CPUs]
    #[arg(short = 'j', long, value_name = "N")]
    jobs: Option<NonZeroU16>,
    /// Replace files that are there
    #[arg(long)]
    overwrite: bool,
    /// Go on: leave files that are there with their size and time
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn run(args: &ExtractArgs) -> Result<Exit, Failure> {
    logging::to_stderr("warn");
    let Some((root, sources)) = args.paths.split_last() else {
        return Err(Failure::usage("where to? ffrfs extract SOURCE… OUTDIR"));
    };
    let interrupt = Interrupt::listen();
    let mut wanted = Wanted::new(&args.patterns)?;
    let mut open = args.open.clone();
    open.read_password(sources)?;
    let opened = open::open(sources, &open)?;
    let catalog = opened.catalog(&args.view, &args.open)?;
    let entries =
        ContainerEntries::new(opened, catalog, &interrupt, &mut |path| wanted.is_wanted(path))?;
    wanted.check_all_found()?;
    let failed = |e| Failure::output(root.display(), e);
    let was_there = root.exists();
    fs::create_dir_all(root).map_err(failed)?;
    let is_empty = fs::read_dir(root).map_err(failed)?.next().is_none();
    let files = Files {
        entries: &entries,
        root,
        folder: Beneath::open(root).map_err(failed)?,
        existing: Existing { overwrite: args.overwrite, resume: args.resume },
        interrupt: &interrupt,
        progress: progress::of_bytes(0),
    };
    let outcome = files.write(thread_count(args.jobs), is_empty).inspect_err(|_| {
        if !was_there {
            // Only if nothing is in it.
            let _ = fs::remove_dir(root);
        }
    })?;
    let exit = files.report(&outcome);
    if outcome.is_interrupted {
        say(format_args!("ffrfs: interrupted; go on with --resume"));
    }
    Ok(exit)
}

/// What the user wants of all the names.
struct Wanted {
    patterns: Vec<(Pattern, bool)>,
}

impl Wanted {
    fn new(patterns: &[String]) -> Result<Self, Failure> {
        let parse = |text: &String| {
            let text = text.trim_matches('/');
            let pattern = Pattern::new(text).map_err(|e| Failure::usage(format!("{text}: {e}")))?;
            Ok((pattern, false))
        };
        Ok(Self { patterns: patterns.iter().map(parse).collect::<Result<_, Failure>>()? })
    }

    fn is_wanted(&mut self, path: &[u8]) -> bool {
        let mut is_wanted = self.patterns.is_empty();
        for (pattern, is_found) in &mut self.patterns {
            if matches(pattern, path) {
                (is_wanted, *is_found) = (true, true);
            }
        }
        is_wanted
    }

    fn check_all_found(&self) -> Result<(), Failure> {
        match self.patterns.iter().find(|(_, is_found)| !is_found) {
            None => Ok(()),
            Some((pattern, _)) => Err(open::not_found(Path::new(pattern.as_str()))),
        }
    }
}

/// Whether it is this path, or a folder on its way is.
fn matches(pattern: &Pattern, path: &[u8]) -> bool {
    let options = MatchOptions { require_literal_separator: true, ..MatchOptions::new() };
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let mut parts = ends.chain([path.len()]).map(|end| &path[..end]);
    parts.any(|part| {
        pattern.as_str().as_bytes() == part
            || pattern.matches_with(&String::from_utf8_lossy(part), options)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_path_or_a_folder_above_it_and_stars_stay_within_a_name() {
        let is_match =
            |pattern, path: &str| matches(&Pattern::new(pattern).unwrap(), path.as_bytes());
        assert!(is_match("a/b", "a/b") && is_match("a", "a/b/c") && is_match("a/*", "a/b/c"));
        assert!(is_match("*.jpg", "x.jpg") && !is_match("*.jpg", "a/x.jpg"));
        assert!(is_match("**/*.jpg", "a/b/x.jpg") && is_match("**/*.jpg", "x.jpg"));
        assert!(!is_match("a/b", "a/bc") && !is_match("b", "a/b"));
    }
}
