//! `ffrfs extract`: the files in containers as files of a directory, named as a mount shows them.

use super::open::{OpenArgs, check_all_answered, names, refuse_url};
use super::view::ViewArgs;
use crate::daemon::logging;
use crate::failure::{Exit, Failure, say};
use crate::format::one_or_many;
use crate::interrupt::Interrupt;
use crate::tools::encrypted::Encrypted;
use crate::tools::entries::{ContainerEntries, Entries};
use crate::tools::extract::{Existing, Extracted, PathPatterns, extract};
use crate::tools::reader::thread_count;
use clap::Args;
use std::num::NonZeroU16;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
A PATTERN is a path as `ffrfs ls -R` prints it, of a file or of a directory with all that is in it. \
* and ? stand for anything within a name, ** for any directories: --path '**/*.jpg'.

Examples:
  ffrfs extract train.ffr out/
  ffrfs extract photos.zip out/ --path train/cat --path 'train/dog/*.jpg'
  ffrfs extract 'train-{000000..000146}.tar' out/ -j 8 --resume";

/// Write the files in containers to a directory
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
#[command(override_usage = "ffrfs extract [OPTIONS] <SOURCE>... <OUTDIR>")]
pub(super) struct ExtractArgs {
    /// Containers, or directories, globs or brace lists of them; last the directory to write to
    #[arg(required = true, value_name = "SOURCE… OUTDIR")]
    paths: Vec<PathBuf>,
    /// Extract only what matches PATTERN, or lies below a match
    #[arg(short = 'p', long = "path", value_name = "PATTERN")]
    patterns: Vec<String>,
    /// Threads [default: as many as CPUs]
    #[arg(short = 'j', long, value_name = "N")]
    jobs: Option<NonZeroU16>,
    /// Replace files that exist already
    #[arg(long)]
    overwrite: bool,
    /// Continue an interrupted run: keep files that exist with the right size and time
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn run(args: &ExtractArgs) -> Result<Exit, Failure> {
    logging::to_stderr("warn");
    let Some((root, sources @ [_, ..])) = args.paths.split_last() else {
        let why = "the directory to write to is missing: ffrfs extract SOURCE… OUTDIR";
        return Err(Failure::usage(why));
    };
    refuse_url(root)?;
    check_all_answered(&args.paths)?;
    let sources = names(sources);
    let interrupt = Interrupt::listen();
    let mut wanted = PathPatterns::new(&args.patterns)?;
    let mut open = args.open.clone();
    args.view.check_answered()?;
    open.read_password(&sources)?;
    let opened = open.open(&sources)?;
    let catalog = opened.catalog(&args.view, &args.open)?;
    let renamed = catalog.renamed();
    let entries =
        ContainerEntries::new(opened, catalog, &interrupt, &mut |path| wanted.is_wanted(path))?;
    wanted.check_all_found(&renamed)?;
    let existing = Existing { overwrite: args.overwrite, resume: args.resume };
    let extracted = extract(&entries, root, existing, thread_count(args.jobs), &interrupt)?;
    report(&entries, &extracted);
    if extracted.is_interrupted {
        say(format_args!("ffrfs: interrupted; go on with --resume"));
    } else if args.patterns.is_empty() {
        args.view.say_not_shown(&renamed);
    }
    Ok(extracted.exit())
}

/// Says which files are bad, and how many were written without some of their bits or permissions.
pub(super) fn report(entries: &dyn Entries, extracted: &Extracted) {
    let mut encrypted = Encrypted::default();
    for (entry, fault) in &extracted.bad {
        if !encrypted.count(fault) {
            let path = entries.path(*entry);
            say(format_args!("ffrfs: {}: {fault}", String::from_utf8_lossy(&path)));
        }
    }
    for sentence in encrypted.sentences("file is", "files are") {
        say(format_args!("ffrfs: {sentence}"));
    }
    if extracted.special > 0 {
        say(format_args!(
            "ffrfs: {} set-user-ID, set-group-ID or sticky bit",
            one_or_many(extracted.special, "file without its", "files without their")
        ));
    }
    if extracted.unkept_modes > 0 {
        say(format_args!(
            "ffrfs: {} permissions: the file system does not keep them",
            one_or_many(
                extracted.unkept_modes,
                "file or directory without its",
                "files and directories without their"
            )
        ));
    }
}
