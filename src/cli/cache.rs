//! `ffrfs cache`: the remote objects and decoded copies in the cache directory, and which of them are kept.

use super::print::to_stdout;
use super::remote::RemoteArgs;
use crate::daemon::logging;
use crate::dataset::{self, DecodedCopy, Options};
use crate::failure::{Exit, Failure, say};
use crate::format::PartName;
use crate::format::counted;
use crate::interrupt::Interrupt;
use crate::io::cache_directory;
use crate::store::cache::{CachedObject, Contents};
use crate::store::remote::{CachePlace, RemoteOptions};
use crate::tools::fill::fill;
use crate::tools::progress;
use crate::vfs::report;
use clap::{Args, ValueEnum};
use indicatif::HumanBytes;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;

/// Show and manage the cache of remote objects and decoded copies
#[derive(Debug, Args)]
pub(super) struct CacheArgs {
    /// What to do
    #[arg(value_enum, value_name = "ACTION")]
    action: Action,
    /// Objects: a URL, the beginning of URLs up to a slash, or a pattern with `*`, `?` and `[]`
    #[arg(value_name = "URL")]
    urls: Vec<String>,
    /// With ls and verify: print one JSON object
    #[arg(long)]
    json: bool,
    /// All objects; with rm all that are not pinned, and decoded copies
    #[arg(long, conflicts_with = "urls")]
    all: bool,
    /// With rm: objects and decoded copies that no mount uses, except pinned ones
    #[arg(long, conflicts_with_all = ["urls", "all"])]
    unused: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Fetch objects, also with brace lists and globs as `ffrfs mount` takes them
    Add,
    /// List what is cached
    Ls,
    /// Remove objects that no mount has open
    Rm,
    /// Compare what is cached with its checksums
    Verify,
    /// Never evict these objects
    Pin,
    /// Let these objects be evicted again
    Unpin,
}

/// The object that `ls --json` prints.
#[derive(Serialize)]
struct List<'a> {
    objects: &'a [&'a CachedObject],
    /// The cached bytes of the objects.
    cached_bytes: u64,
    /// Copies of local compressed files that cannot be read in the middle.
    decoded: &'a [DecodedCopy],
}

/// The object that `verify --json` prints.
#[derive(Serialize)]
struct Verified {
    objects: usize,
    blocks: u64,
    damaged: u64,
}

pub(super) fn run(args: &CacheArgs) -> Result<Exit, Failure> {
    let remote = args.remote.options()?;
    let directory = match &remote.cache {
        CachePlace::Directory(directory) => Some(directory.clone()),
        CachePlace::User => cache_directory(),
        CachePlace::None => return Err(Failure::usage("there is no cache with --cache none")),
    };
    let no_home = || Failure::usage("there is no home directory: name the cache with --cache-dir");
    let directory = directory.ok_or_else(no_home)?;
    if args.action == Action::Add {
        return add(&args.urls, remote);
    }
    let failed = |error| Failure::unreadable(directory.display(), error);
    let contents = Contents::open(&directory).map_err(failed)?;
    let listed = contents.as_ref().map(Contents::list).transpose().map_err(failed)?;
    let listed = listed.unwrap_or_default();
    let chosen = args.choose(&listed)?;
    // Only its path names a copy, and no URL.
    let copies = if args.urls.is_empty() { DecodedCopy::list(&directory) } else { Vec::new() };
    match (args.action, &contents) {
        (Action::Add | Action::Ls, _) => print(args.json, &chosen, &copies),
        (Action::Rm, _) => {
            let removed = contents.map(|contents| contents.remove(&chosen).map_err(failed));
            let removed = removed.transpose()?.unwrap_or_default();
            Ok(say_removed(&removed, chosen.len(), copies, !args.urls.is_empty()))
        }
        (Action::Verify, Some(contents)) => verify(contents, &chosen, args.json),
        (Action::Pin | Action::Unpin, Some(contents)) => {
            for object in chosen {
                contents.set_pinned(object, args.action == Action::Pin).map_err(failed)?;
            }
            Ok(Exit::Ok)
        }
        (_, None) => print(args.json, &[], &[]),
    }
}

impl CacheArgs {
    /// The objects that the command line names; a name must be that of an object.
    fn choose<'a>(&self, listed: &'a [CachedObject]) -> Result<Vec<&'a CachedObject>, Failure> {
        let needs_choice = !matches!(self.action, Action::Ls | Action::Verify);
        if needs_choice && self.urls.is_empty() && !self.all && !self.unused {
            return Err(Failure::usage("name objects by their URLs, or all with --all"));
        }
        if self.unused && self.action != Action::Rm {
            return Err(Failure::usage("--unused goes with rm"));
        }
        if self.urls.is_empty() {
            let removes = self.action == Action::Rm;
            let is_left = |object: &CachedObject| {
                removes && (object.is_pinned || self.unused && object.users > 0)
            };
            return Ok(listed.iter().filter(|object| !is_left(object)).collect());
        }
        let mut chosen: Vec<&CachedObject> = Vec::new();
        for url in &self.urls {
            let before = chosen.len();
            for object in listed.iter().filter(|object| names(url, &object.url)) {
                if !chosen.iter().any(|other| std::ptr::eq(*other, object)) {
                    chosen.push(object);
                }
            }
            let is_known = || listed.iter().any(|object| names(url, &object.url));
            if chosen.len() == before && !is_known() {
                return Err(Failure::new(Exit::Unreadable, "nothing of it is cached").context(url));
            }
        }
        Ok(chosen)
    }
}

/// Whether the argument `named` means the object at `url`.
fn names(named: &str, url: &str) -> bool {
    named == url
        || named.ends_with('/') && url.starts_with(named)
        || glob::Pattern::new(named).is_ok_and(|pattern| pattern.matches(url))
}

fn add(urls: &[String], remote: RemoteOptions) -> Result<Exit, Failure> {
    let sources: Vec<PartName> = urls.iter().map(|url| OsString::from(url).into()).collect();
    if sources.is_empty() || sources.iter().any(|source| source.as_path().is_some()) {
        return Err(Failure::usage("name objects by their URLs"));
    }
    logging::to_stderr("warn");
    let options = Options { remote, ..Options::default() };
    let parts = dataset::parts(&sources, &options)?;
    let bar = progress::of_bytes(parts.iter().map(|part| part.len_bytes()).sum());
    let filled = fill(&parts, &Interrupt::listen(), &|bytes| bar.inc(bytes));
    bar.finish_and_clear();
    let filled = filled?;
    let (objects, cached) = (counted(parts.len(), "object"), HumanBytes(filled.cached_bytes));
    say(format_args!("{objects}, {cached} cached"));
    if filled.refused_bytes == 0 {
        return Ok(Exit::Ok);
    }
    let why = format!("there is no room in the cache for {}", HumanBytes(filled.refused_bytes));
    Err(Failure::new(Exit::Output, why))
}

/// Says which of `wanted` objects were removed, and removes decoded copies that no mount uses.
fn say_removed(
    removed: &[&CachedObject],
    wanted: usize,
    mut copies: Vec<DecodedCopy>,
    is_named: bool,
) -> Exit {
    let freed: u64 = removed.iter().map(|object| object.cached_bytes).sum();
    say(format_args!("{} removed, {}", counted(removed.len(), "object"), HumanBytes(freed)));
    let left = wanted - removed.len();
    if left > 0 {
        say(format_args!("{} in use: unmount first", counted(left, "object")));
    }
    let all = copies.len();
    copies.retain(DecodedCopy::remove);
    if all > 0 {
        let freed: u64 = copies.iter().map(|copy| copy.bytes).sum();
        let gone = counted(copies.len(), "decoded copy");
        say(format_args!("{gone} removed, {}", HumanBytes(freed)));
    }
    if all > copies.len() {
        let left = counted(all - copies.len(), "decoded copy");
        say(format_args!("{left} in use: unmount first"));
    }
    if left > 0 && is_named { Exit::Output } else { Exit::Ok }
}

fn verify(contents: &Contents, objects: &[&CachedObject], json: bool) -> Result<Exit, Failure> {
    let mut total = Verified { objects: objects.len(), blocks: 0, damaged: 0 };
    let interrupt = Interrupt::listen();
    for object in objects {
        let checked = match contents.check(object, &mut |_| !interrupt.requested()) {
            Ok(checked) => checked,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return Err(Failure::interrupted());
            }
            // The object was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Failure::unreadable(&object.url, error)),
        };
        total.blocks += checked.blocks;
        total.damaged += checked.damaged;
        if checked.damaged > 0 {
            let damaged = counted(checked.damaged as usize, "damaged block");
            say(format_args!("{}: {damaged}, to be fetched again when needed", object.url));
        }
    }
    let text = match json {
        true => report::json(&total),
        false => format!(
            "{}, {} checked, {} damaged\n",
            counted(total.objects, "object"),
            counted((total.blocks + total.damaged) as usize, "block"),
            total.damaged
        )
        .into_bytes(),
    };
    to_stdout(&text)?;
    Ok(if total.damaged > 0 { Exit::Checksum } else { Exit::Ok })
}

fn print(json: bool, objects: &[&CachedObject], decoded: &[DecodedCopy]) -> Result<Exit, Failure> {
    let cached_bytes = objects.iter().map(|object| object.cached_bytes).sum();
    if json {
        to_stdout(&report::json(&List { objects, cached_bytes, decoded }))?;
        return Ok(Exit::Ok);
    }
    let mut text = format!(
        "{:>12} {:>12} {:>5} {:>5} {:>5} {:<6} {:<20} URL\n",
        "LENGTH", "CACHED", "%", "HITS", "USERS", "PINNED", "VERSION"
    );
    for object in objects {
        let percent = match object.length_bytes {
            0 => 100,
            length => (object.cached_bytes.saturating_mul(100) / length).min(100),
        };
        let _ = writeln!(
            text,
            "{:>12} {:>12} {percent:>4}% {:>5} {:>5} {:<6} {:<20} {}",
            HumanBytes(object.length_bytes).to_string(),
            HumanBytes(object.cached_bytes).to_string(),
            hit_rate(object),
            object.users,
            if object.is_pinned { "yes" } else { "-" },
            object.version,
            object.url
        );
    }
    let _ = writeln!(text, "{}, {}", counted(objects.len(), "object"), HumanBytes(cached_bytes));
    if !decoded.is_empty() {
        let _ = writeln!(text, "\n{:>12} {:<6} DECODED COPY", "SIZE", "IN USE");
    }
    for DecodedCopy { path, bytes, is_used } in decoded {
        let (size, used) = (HumanBytes(*bytes).to_string(), if *is_used { "yes" } else { "-" });
        let _ = writeln!(text, "{size:>12} {used:<6} {}", path.display());
    }
    to_stdout(text.as_bytes())?;
    Ok(Exit::Ok)
}

/// The share of reads that found their bytes, of all mounts that have ended.
fn hit_rate(object: &CachedObject) -> String {
    let (hits, misses) = (object.hits.unwrap_or(0), object.misses.unwrap_or(0));
    match hits.saturating_add(misses) {
        0 => "-".to_owned(),
        reads => format!("{}%", u128::from(hits) * 100 / u128::from(reads)),
    }
}
