//! What all sub-commands share: opening containers, and choosing the names that are shown.

use super::{Exit, Failure};
use crate::catalog::{
    Catalog, Dataset, Duplicates, Numbered, ROOT, Records, StoredNames, Suffix, TreeBuilder,
};
use crate::format::{self, OpenOptions, Source, magic};
use crate::io::{File, process};
use crate::vfs::{CONTROL_FOLDER, Options, Part, Vfs};
use clap::Args;
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many samples `suffix=auto` and `info` look at.
const LOOK_AT: u64 = 64;

/// How damaged containers are met.
#[derive(Debug, Args, Clone, Default)]
pub(super) struct OpenArgs {
    /// Serve a container whose damage is confined to some samples (those give an error)
    #[arg(long, alias = "allow_damaged")]
    pub(super) allow_damaged: bool,
}

/// The names that samples are shown under.
#[derive(Debug, Args, Clone, Default)]
pub(super) struct ViewArgs {
    /// What stands behind the number: `.jpg`, …, or `auto` for what the first bytes look like
    #[arg(long, value_name = ".EXT|auto")]
    pub(super) suffix: Option<String>,
    /// Folders of N numbered samples each: 000/000123
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) fanout: Option<u64>,
    /// Names from a file: line i is the relative path of sample i
    #[arg(long, value_name = "FILE", conflicts_with_all = ["suffix", "fanout"])]
    pub(super) names: Option<PathBuf>,
    /// Numbers also for a packed folder, whose samples have names
    #[arg(long, conflicts_with = "names")]
    pub(super) flat: bool,
}

/// Open containers as one dataset.
pub(super) struct Opened {
    pub(super) files: Vec<Arc<File>>,
    pub(super) dataset: Dataset,
    pub(super) parts: Vec<Part>,
}

/// Opens containers in the given order; a folder stands for the containers in it, by name.
pub(super) fn open(sources: &[PathBuf], args: &OpenArgs) -> Result<Opened, Failure> {
    open_with(sources, args, Ok)
}

/// As [`open`], each file prepared before it is used.
pub(super) fn open_with(
    sources: &[PathBuf],
    args: &OpenArgs,
    prepare: impl Fn(File) -> Result<File, Failure>,
) -> Result<Opened, Failure> {
    process::raise_open_files_limit();
    let options = OpenOptions { allow_damaged: args.allow_damaged, ..OpenOptions::default() };
    let mut files = Vec::new();
    let mut containers = Vec::new();
    for path in expand(sources)? {
        let file = File::open(&path).map_err(|e| Failure::unreadable(path.display(), e))?;
        let file = Arc::new(prepare(file)?);
        let source = Arc::clone(&file) as Arc<dyn Source>;
        containers.push(format::open(source, &options)?);
        files.push(file);
    }
    let part = |file: &Arc<File>| Part {
        path: file.path().to_owned(),
        modified: file.modified(),
        size_bytes: file.len(),
    };
    let parts = files.iter().map(part).collect();
    let dataset = Dataset::new(containers);
    for warning in dataset.parts().iter().flat_map(|part| part.warnings()) {
        tracing::warn!("{warning}");
    }
    Ok(Opened { files, dataset, parts })
}

fn expand(sources: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut paths = Vec::new();
    for source in sources {
        if source.is_dir() {
            paths.extend(containers_in(source)?);
        } else {
            paths.push(source.clone());
        }
    }
    Ok(paths)
}

fn containers_in(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |e| Failure::unreadable(folder.display(), e);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if format::has_known_extension(&path) && path.is_file() {
            found.push(path);
        }
    }
    if found.is_empty() {
        let error = std::io::Error::new(
            std::io::ErrorKind::NotFound,
            "the folder holds no file of a known format (*.ffr)",
        );
        return Err(unreadable(error));
    }
    found.sort();
    Ok(found)
}

impl Opened {
    /// The tree of names that `args` ask for.
    pub(super) fn catalog(&self, args: &ViewArgs, open: &OpenArgs) -> Result<Catalog, Failure> {
        if let Some(names) = &args.names {
            let catalog = self.named_by(names)?;
            self.check_reserved(&catalog, true)?;
            return Ok(catalog);
        }
        if !args.flat {
            match self.dataset.stored_names(Duplicates::default()) {
                Ok(StoredNames::Tree(tree)) if args.suffix.is_none() && args.fanout.is_none() => {
                    let catalog = tree.into();
                    self.check_reserved(&catalog, false)?;
                    return Ok(catalog);
                }
                Ok(StoredNames::Tree(_)) => {
                    return Err(Failure::usage(
                        "the samples have names of their own; --suffix and --fanout are for \
                         numbered ones (--flat shows numbers)",
                    ));
                }
                Ok(StoredNames::Fields(fields)) => {
                    if args.suffix.is_some() {
                        return Err(Failure::usage(
                            "each record is a folder of fields, which have endings of their own; \
                             --suffix is for numbered samples",
                        ));
                    }
                    return Ok(Records::new(self.dataset.len(), fields, args.fanout).into());
                }
                Ok(StoredNames::None) => {}
                Ok(StoredNames::Unused(why)) => {
                    tracing::warn!(
                        "the last sample looks like stored names, which are not used: {why}"
                    );
                }
                Err(error) if open.allow_damaged => {
                    tracing::warn!("{error}: samples are numbered");
                }
                Err(error) => return Err(error.into()),
            }
        }
        let suffix = self.suffix(args.suffix.as_deref())?;
        Ok(Numbered::new(self.dataset.len(), args.fanout, suffix).into())
    }

    fn named_by(&self, path: &Path) -> Result<Catalog, Failure> {
        let text = std::fs::read(path).map_err(|e| Failure::unreadable(path.display(), e))?;
        let lines = text.strip_suffix(b"\n").unwrap_or(&text);
        let mut builder = TreeBuilder::default();
        let mut count = 0;
        for (number, line) in lines.split(|&b| b == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if text.is_empty() {
                break;
            }
            builder.add(line, number as u64).map_err(|why| {
                Failure::usage(format!("{}, line {}: {why}", path.display(), number + 1))
            })?;
            count += 1;
        }
        if count != self.dataset.len() {
            return Err(Failure::usage(format!(
                "{}: {count} names for {} samples; it takes one a line for each",
                path.display(),
                self.dataset.len()
            )));
        }
        let tree = builder.build().map_err(|why| match first_clash(lines) {
            Some((line, name)) => Failure::usage(format!(
                "{}, line {line}: {:?} is named twice, or as file and folder",
                path.display(),
                String::from_utf8_lossy(name)
            )),
            None => Failure::usage(format!("{}: {why}", path.display())),
        })?;
        Ok(tree.into())
    }

    /// The control folder has one name in every mount.
    fn check_reserved(&self, catalog: &Catalog, is_refused: bool) -> Result<(), Failure> {
        let reserved = CONTROL_FOLDER.as_bytes();
        if catalog.lookup(&self.dataset, ROOT, reserved)?.is_none() {
            return Ok(());
        }
        let message = format!("{CONTROL_FOLDER} in the root is the mount's control folder");
        if is_refused {
            return Err(Failure::usage(format!("{message}: choose another name")));
        }
        tracing::warn!("{message}: the sample of that name is not shown (--flat shows it)");
        Ok(())
    }

    fn suffix(&self, wanted: Option<&str>) -> Result<Suffix, Failure> {
        match wanted {
            None => Ok(Suffix::Fixed(String::new())),
            Some("auto") => {
                let kinds = self.look()?;
                let mut suffixes = kinds.iter().map(|kind| kind.map_or("", |k| k.suffix));
                let first = suffixes.next().unwrap_or("");
                if suffixes.all(|suffix| suffix == first) {
                    return Ok(Suffix::Fixed(first.to_owned()));
                }
                let files = self.files.clone();
                let read = move |dataset: &Dataset, sample| head(dataset, &files, sample);
                Ok(Suffix::per_sample(self.dataset.len(), Arc::new(read)))
            }
            Some(suffix) => {
                if suffix.len() > 64 || suffix.contains(['/', '\0']) {
                    return Err(Failure::usage(format!("{suffix:?} cannot end a file name")));
                }
                let dot = if suffix.is_empty() || suffix.starts_with('.') { "" } else { "." };
                Ok(Suffix::Fixed(format!("{dot}{suffix}")))
            }
        }
    }

    /// What a few samples, spread over the dataset, look like.
    pub(super) fn look(&self) -> Result<Vec<Option<magic::Kind>>, Failure> {
        let samples = self.dataset.len();
        let looks = samples.min(LOOK_AT);
        let mut kinds = Vec::new();
        for look in 0..looks {
            // Evenly, without overflow for any number of samples.
            let sample = (u128::from(samples) * u128::from(look) / u128::from(looks)) as u64;
            let head = head(&self.dataset, &self.files, sample)?;
            if !head.is_empty() {
                kinds.push(magic::sniff(&head));
            }
        }
        Ok(kinds)
    }

    /// The file system that a mount would show.
    pub(super) fn into_vfs(self, catalog: Catalog, options: Options) -> (Vfs, Vec<Arc<File>>) {
        (Vfs::new(self.dataset, catalog, self.parts, options), self.files)
    }
}

/// The first line (from 1) whose path, or a folder on its way, is named before as something else.
fn first_clash(lines: &[u8]) -> Option<(usize, &[u8])> {
    let (mut files, mut folders) = (HashSet::new(), HashSet::new());
    for (number, line) in lines.split(|&b| b == b'\n').enumerate() {
        let path = line.strip_suffix(b"\r").unwrap_or(line);
        let mut above =
            path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| &path[..at]);
        let clash = above.any(|folder| {
            folders.insert(folder);
            files.contains(folder)
        });
        if clash || folders.contains(path) || !files.insert(path) {
            return Some((number + 1, path));
        }
    }
    None
}

/// The first bytes of a sample, unchecked: good for a guess.
fn head(dataset: &Dataset, files: &[Arc<File>], sample: u64) -> format::Result<Vec<u8>> {
    let Some(located) = dataset.locate(sample)? else { return Ok(Vec::new()) };
    let length = located.sample.length_bytes.min(magic::HEAD_BYTES as u64);
    let mut head = vec![0; length as usize];
    if located.sample.damaged {
        return Ok(Vec::new());
    }
    let file = &files[located.part];
    let offset_bytes = located.sample.offset_bytes;
    file.read_exact_at(&mut head, offset_bytes).map_err(|source| format::Error::Unreadable {
        path: file.path().to_owned(),
        what: "the first bytes of a sample",
        offset_bytes,
        source,
    })?;
    Ok(head)
}

/// A path from the command line as the names of a tree are stored.
pub(super) fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Finds a file by its path, for a command that names it.
pub(super) fn not_found(path: &Path) -> Failure {
    Failure::new(Exit::Usage, anyhow::anyhow!("{}: no such sample or folder", path.display()))
}
