//! `ffrfs convert`: entries of containers, or of a directory, as another container. The output appears under its
//! name only when it is whole.

use super::extract::report;
use super::open::{OpenArgs, check_all_answered, names, refuse_url};
use super::view::ViewArgs;
use crate::daemon::{logging, memory};
use crate::dataset::expand::is_dataset;
use crate::failure::{Exit, Failure, say};
use crate::format::{WRITERS, WriteFormat, writer_named};
use crate::interrupt::Interrupt;
use crate::tools::convert::{Conversion, Cut, MAX_SHARDS, is_numbered, shard_names, summary};
use crate::tools::entries::{ContainerEntries, DirectoryEntries, Entries};
use crate::tools::output;
use crate::tools::reader::thread_count;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::num::{NonZeroU16, NonZeroU64};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const AFTER_HELP: &str = "\
A directory as IN stands for the files in it; containers in a directory are given as \
'directory/*.tar'. A directory of LMDB (data.mdb) or MDS (index.json and shards) is the dataset \
that a mount shows of it. The ending of OUT says what is written: .ffr, .zip, .tar, .tfrecord, .mds, \
.syr, .beton, or OUT/ for a directory; else --to says it.

TFRecord, MDS, Syrah and FFCV hold samples with fields: the files in a numbered directory \
(000123/) are a sample, else those that differ only behind the first dot of their name. MDS is \
a directory with shards and their index.json.

Examples:
  ffrfs convert photos.zip photos.ffr
  ffrfs convert train.ffr train.tar --shard-size 1G   # train-000000.tar …
  ffrfs convert images/ images.zip
  ffrfs convert 'train-{000000..000146}.tar' train.ffr -j 4
  ffrfs convert train.beton train/ --view npy
  ffrfs convert train.tar train/ --to mds             # train/index.json …";

/// Write FFRecord, zip, tar, TFRecord, MDS, Syrah, FFCV or a directory from anything that can be read
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, override_usage = "ffrfs convert [OPTIONS] <IN>... <OUT>")]
pub(super) struct ConvertArgs {
    /// Containers, globs or brace lists of them, or one directory of files; then the output
    #[arg(required = true, value_name = "IN… OUT")]
    paths: Vec<PathBuf>,
    /// What to write: ffr, zip, tar, tfrecord, mds, syr, beton or directory [default: by the ending of OUT]
    #[arg(long, value_name = "FORMAT", ignore_case = true, value_parser = targets(), hide_possible_values = true)]
    to: Option<Target>,
    /// Write N outputs of about the same size, up to 1,000,000; `%06d` in OUT is the number, else it stands before the ending
    #[arg(long, value_name = "N", conflicts_with = "shard_size")]
    shards: Option<NonZeroU64>,
    /// Write outputs of at most BYTES each, such as 1G; files of one key (a.jpg, a.json) stay together
    #[arg(long, value_name = "BYTES", value_parser = shard_bytes)]
    shard_size: Option<NonZeroU64>,
    /// Threads that read [default: as many as CPUs]
    #[arg(short = 'j', long, value_name = "N")]
    jobs: Option<NonZeroU16>,
    /// Replace the output if it is there
    #[arg(long)]
    force: bool,
    /// Follow symbolic links in a directory, and store what they lead to
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Cut times to seconds; in a tar, finer ones take 1 KiB a file
    #[arg(long)]
    whole_seconds: bool,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    view: ViewArgs,
}

/// The kind of the output.
#[derive(Clone, Copy)]
enum Target {
    Directory,
    Container(&'static dyn WriteFormat),
}

impl std::fmt::Debug for Target {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Target::Directory => "directory",
            Target::Container(format) => format.name(),
        })
    }
}

/// The values of `--to`, so that shells can offer them.
fn targets() -> impl TypedValueParser<Value = Target> {
    let names = WRITERS.iter().flat_map(|format| {
        let name = format.name().to_lowercase();
        let is_ending = format.extensions().contains(&name.as_str());
        let name = (!is_ending).then(|| PossibleValue::new(name).hide(true));
        format.extensions().iter().map(|&ending| PossibleValue::new(ending)).chain(name)
    });
    // The value was called folder until 0.1.
    let directory = PossibleValue::new("directory").alias("folder");
    PossibleValuesParser::new(names.chain([directory])).try_map(|name| target_named(&name))
}

fn target_named(text: &str) -> Result<Target, String> {
    match text.to_ascii_lowercase().as_str() {
        "directory" | "folder" => Ok(Target::Directory),
        text => writer_named(text)
            .map(Target::Container)
            .ok_or_else(|| format!("there are {}", endings())),
    }
}

fn endings() -> String {
    let endings = WRITERS.iter().flat_map(|format| format.extensions());
    endings.copied().chain(["directory"]).collect::<Vec<_>>().join(", ")
}

fn shard_bytes(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::new(memory::size(text)?).ok_or_else(|| "a size above 0 is needed".to_owned())
}

pub(super) fn run(args: &ConvertArgs) -> Result<Exit, Failure> {
    logging::to_stderr("warn");
    let Some((output, sources @ [_, ..])) = args.paths.split_last() else {
        return Err(Failure::usage("the output is missing: ffrfs convert IN… OUT"));
    };
    refuse_url(output)?;
    check_all_answered(&args.paths)?;
    let interrupt = Interrupt::listen();
    let target = args.target(output)?;
    let converted = args.convert(sources, output, target, &interrupt);
    match converted {
        Err(failure) if failure.exit == Exit::Interrupted => Ok(Exit::Interrupted),
        converted => converted,
    }
    .inspect(|exit| {
        if *exit == Exit::Interrupted {
            say(format_args!("ffrfs: interrupted; nothing was written"));
        }
    })
}

impl ConvertArgs {
    fn target(&self, output: &Path) -> Result<Target, Failure> {
        if let Some(target) = self.to {
            return Ok(target);
        }
        if output.as_os_str().as_bytes().ends_with(b"/") || output.is_dir() {
            return Ok(Target::Directory);
        }
        let ending = output.extension().unwrap_or_default().to_string_lossy();
        writer_named(&ending).map(Target::Container).ok_or_else(|| {
            let output = output.display();
            Failure::usage(format!(
                "{output}: the ending of its name is not one of {}: --to FORMAT says what to write (OUT/: a directory)",
                endings()
            ))
        })
    }

    fn convert(
        &self,
        sources: &[PathBuf],
        output: &Path,
        target: Target,
        interrupt: &Interrupt,
    ) -> Result<Exit, Failure> {
        if let [directory] = sources
            && directory.is_dir()
            && !is_dataset(directory)
        {
            output::check_outside(directory, output, "converted")?;
            let selection = self.view.selection.selection();
            if selection.below.is_some() || selection.strip > 0 {
                let why =
                    "--subdir and --strip are for containers; name the directory that is meant";
                return Err(Failure::usage(format!("{}: {why}", directory.display())));
            }
            let is_wanted = |path: &[u8]| selection.wants(path);
            let walked =
                DirectoryEntries::walk(directory, self.dereference, interrupt, &is_wanted)?;
            let Some(tree) = walked else { return Ok(Exit::Interrupted) };
            return self.write(&tree, false, output, target, interrupt);
        }
        if let Some(directory) =
            sources.iter().find(|source| source.is_dir() && !is_dataset(source))
        {
            return Err(Failure::usage(format!(
                "{}: a directory stands for its files, and alone; containers in it are given with their ending, \
                 such as '{0}/*.tar'",
                directory.display()
            )));
        }
        let mut open = self.open.clone();
        let sources = names(sources);
        self.view.check_answered()?;
        open.read_password(&sources)?;
        let opened = open.open(&sources)?;
        let catalog = opened.catalog(&self.view, &self.open)?;
        let renamed = catalog.renamed();
        let entries = ContainerEntries::new(opened, catalog, interrupt, &mut |_| true)?;
        let is_plain = self.view.suffix.is_none() && self.view.fanout.is_none();
        let is_numbered = entries.is_numbered() && is_plain;
        let exit = self.write(&entries, is_numbered, output, target, interrupt)?;
        if exit == Exit::Ok {
            self.view.say_not_shown(&renamed);
        }
        Ok(exit)
    }

    fn write(
        &self,
        entries: &dyn Entries,
        is_numbered: bool,
        output: &Path,
        target: Target,
        interrupt: &Interrupt,
    ) -> Result<Exit, Failure> {
        let conversion = Conversion {
            output,
            is_numbered,
            whole_seconds: self.whole_seconds,
            force: self.force,
            threads: thread_count(self.jobs),
            interrupt,
        };
        let format = match target {
            Target::Directory => return self.to_directory(entries, &conversion),
            Target::Container(format) => format,
        };
        let cut = self.cut(output)?;
        let (losses, names) = conversion.to_containers(entries, format, cut)?;
        if let Some(line) = losses.summary() {
            say(format_args!("ffrfs: {} ({}): {line}", output.display(), format.name()));
        }
        if !matches!(cut, Cut::One) {
            say(format_args!("{}", summary(&names)));
            warn_of_older(output, names.len());
        }
        Ok(Exit::Ok)
    }

    fn cut(&self, output: &Path) -> Result<Cut, Failure> {
        match (self.shards, self.shard_size) {
            (Some(count), _) if count.get() > MAX_SHARDS => {
                let why = format!("--shards: {count} is more than {MAX_SHARDS}");
                Err(Failure::usage(why))
            }
            (Some(count), _) => Ok(Cut::Count(count)),
            (None, Some(bytes)) => Ok(Cut::Bytes(bytes)),
            (None, None) if is_numbered(output) => {
                let why = "the name stands for several outputs: say how many with --shards N or --shard-size BYTES";
                Err(Failure::usage(format!("{}: {why}", output.display())))
            }
            (None, None) => Ok(Cut::One),
        }
    }

    fn to_directory(
        &self,
        entries: &dyn Entries,
        conversion: &Conversion,
    ) -> Result<Exit, Failure> {
        if self.shards.is_some() || self.shard_size.is_some() {
            return Err(Failure::usage("a directory is not cut: --shards is for containers"));
        }
        let extracted = conversion.to_directory(entries)?;
        report(entries, &extracted);
        let exit = extracted.exit();
        if !matches!(exit, Exit::Ok | Exit::Interrupted) {
            say(format_args!("ffrfs: nothing was written (`ffrfs extract` writes what is whole)"));
        }
        Ok(exit)
    }
}

/// Warns of outputs of an earlier and larger set, which would be taken for some of this one.
fn warn_of_older(output: &Path, count: usize) {
    let names = shard_names(output, count + 1);
    if let Some(next) = names.last().filter(|next| next.exists()) {
        say(format_args!(
            "ffrfs: {}: exists from an earlier run, and does not belong to these outputs",
            next.display()
        ));
    }
}
