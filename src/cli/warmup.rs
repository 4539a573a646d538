//! `ffrfs warmup`: a mount fetches samples before they are read.

use crate::daemon::patience;
use crate::failure::{Exit, Failure, say};
use crate::format::{counted, one_or_many};
use crate::interrupt::Interrupt;
use crate::tools::bench::{Unread, Words};
use crate::tools::progress;
use crate::tools::warmup::{Figures, List, Mounted, Warmup, warm_up};
use crate::vfs::CONTROL_DIRECTORY;
use clap::Args;
use indicatif::{HumanBytes, ProgressBar};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The words for encrypted samples.
const WORDS: Words =
    Words { one: "sample is", many: "samples are", option: "--password-file FILE" };

/// Have a mount fetch its samples before they are read
#[derive(Debug, Args)]
pub(super) struct WarmupArgs {
    /// Where the dataset is mounted
    #[arg(value_name = "MOUNTPOINT")]
    target: PathBuf,
    /// Only the samples in this file, in its order: a number or a path per line; - is standard input
    #[arg(short = 'f', long = "list", value_name = "LIST")]
    list: Option<PathBuf>,
    /// Return at once; the mount goes on fetching
    #[arg(long)]
    background: bool,
    /// Fetch nothing: drop what is announced and not read yet, and what warm-ups have not begun to fetch
    #[arg(long, conflicts_with_all = ["list", "background"])]
    drop: bool,
}

pub(super) fn run(args: &WarmupArgs) -> Result<Exit, Failure> {
    patience::check([&args.target].into_iter().chain(&args.list).map(PathBuf::as_path))?;
    let mount = Mounted::open(&args.target)?;
    if args.drop {
        mount.drop_announced()?;
        return Ok(Exit::Ok);
    }
    let list = args.list.as_deref().map(read_list).transpose()?;
    let mut progress = Progress::new(args.background);
    let interrupt = Interrupt::listen();
    let ended =
        warm_up(&mount, list.as_ref(), !args.background, &interrupt, &mut |all, before, now| {
            progress.show(all, before, now);
        });
    progress.bar.finish_and_clear();
    match ended? {
        Warmup::NotBegun => say(format_args!("interrupted; nothing was announced")),
        Warmup::Announcing(announced, all) => {
            say(format_args!(
                "interrupted; the fetching of {announced} of {} goes on",
                counted(all, "sample")
            ));
        }
        Warmup::Announced(announced, all) => {
            say(format_args!(
                "{} being fetched",
                one_or_many(announced, "sample is", "samples are")
            ));
            if announced < all {
                say_no_room(mount.root(), (all - announced) as u64);
            }
            return Ok(Exit::Ok);
        }
        Warmup::Fetching => say(format_args!("interrupted; the fetching goes on")),
        Warmup::Done { all, announced, before, end } => {
            return Ok(report(mount.root(), (all, announced), &before, &end));
        }
    }
    Ok(Exit::Interrupted)
}

/// Says how many samples were fetched, and why others were not.
fn report(root: &Path, (all, announced): (usize, usize), before: &Figures, end: &Figures) -> Exit {
    let (announced, unannounced) = (announced as u64, (all - announced) as u64);
    let waiting = end.prefetch.waiting;
    say_begun(announced.saturating_sub(waiting), before, end);
    if unannounced > 0 {
        say_no_room(root, unannounced + end.prefetch.waiting.min(announced));
    } else if waiting > 0 && end.prefetch.cache_is_full {
        say(format_args!(
            "{} no room in this node's cache; `ffrfs cache ls` shows what fills it, and `cache-max=` of the mount \
             gives it more",
            one_or_many(waiting, "other sample finds", "other samples find")
        ));
    } else if waiting > 0 {
        say(format_args!(
            "{} not fit into memory now (a quarter of it holds samples that nobody has read yet): they are fetched \
             as samples are read",
            one_or_many(waiting, "other sample does", "other samples do")
        ));
    }
    match end.prefetch.failed.saturating_sub(before.prefetch.failed) {
        0 => Exit::Ok,
        failed => {
            let unread = Unread::at(root);
            // Samples that a network did not give are not listed.
            if unread.are_all_encrypted() && failed <= unread.encrypted {
                for sentence in unread.sentences(&WORDS) {
                    say(format_args!("{sentence}"));
                }
                return Exit::Password;
            }
            let bad = root.join(CONTROL_DIRECTORY).join("bad");
            say(format_args!(
                "{} could not be fetched: see {}",
                counted(failed, "sample"),
                bad.display()
            ));
            Exit::Checksum
        }
    }
}

/// Says how many of the samples that wait no more were fetched, and why others were not, unless they failed.
fn say_begun(begun: u64, before: &Figures, end: &Figures) {
    let bytes = HumanBytes(end.bytes_fetched.saturating_sub(before.bytes_fetched));
    let (before, end) = (&before.prefetch, &end.prefetch);
    let failed = end.failed.saturating_sub(before.failed);
    let skipped = end.skipped.saturating_sub(before.skipped);
    // Samples that others have announced are counted, too.
    let done = end.done.saturating_sub(before.done).min(begun);
    let warm = done.saturating_sub(failed + skipped);
    say(format_args!("{} warmed up, {bytes} read", counted(warm, "sample")));
    if skipped > 0 {
        say(format_args!(
            "{} not fetched ahead (compressed, with holes or too large for the memory: fetched when read; or not \
             shown by this mount)",
            one_or_many(skipped, "sample is", "samples are")
        ));
    }
    if done < begun {
        let dropped = one_or_many(begun - done, "other sample was", "other samples were");
        say(format_args!(
            "{dropped} dropped (ffrfs warmup --drop, a new order, or reads that do not follow the order)"
        ));
    }
}

/// Says that the mount takes no more announcements.
fn say_no_room(root: &Path, samples: u64) {
    say(format_args!(
        "the {} not fit: nobody reads what is announced already; `ffrfs warmup --drop {}` drops that",
        one_or_many(samples, "other sample does", "other samples do"),
        root.display()
    ));
}

/// The bar on a terminal.
struct Progress {
    bar: ProgressBar,
    start: Instant,
}

impl Progress {
    fn new(is_hidden: bool) -> Self {
        let bar = match is_hidden {
            true => ProgressBar::hidden(),
            false => progress::of_samples_with_message(0),
        };
        Self { bar, start: Instant::now() }
    }

    fn show(&mut self, all: usize, before: &Figures, now: &Figures) {
        let bytes = now.bytes_fetched.saturating_sub(before.bytes_fetched);
        let rate = (bytes as f64 / self.start.elapsed().as_secs_f64().max(0.001)) as u64;
        self.bar.set_length(all as u64);
        self.bar.set_position(now.prefetch.done.saturating_sub(before.prefetch.done));
        self.bar.set_message(format!("{}, {}/s", HumanBytes(bytes), HumanBytes(rate)));
    }
}

fn read_list(path: &Path) -> Result<List, Failure> {
    let (name, text) = if path == Path::new("-") {
        let mut text = Vec::new();
        let read = io::stdin().read_to_end(&mut text);
        ("standard input".to_owned(), read.map(|_| text))
    } else {
        (path.display().to_string(), fs::read(path))
    };
    match text {
        Ok(text) => Ok(List { name, text }),
        Err(e) => Err(Failure::unreadable(name, e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_failed_meanwhile_make_exit_code_4_and_skipped_ones_do_not() {
        let figures = |failed, skipped| {
            let mut figures = Figures::default();
            (figures.prefetch.failed, figures.prefetch.skipped) = (failed, skipped);
            figures
        };
        let before = figures(3, 3);
        let exit = |end| report(Path::new("/mnt"), (10, 10), &before, &end);
        assert_eq!((exit(figures(3, 9)), exit(figures(4, 3))), (Exit::Ok, Exit::Checksum));
    }
}
