//! What all sub-commands share: opening containers.

use super::checksums::{CheckedBy, ChecksumArgs, has_checksum};
use super::digest;
use super::expand::expand;
use super::kept::{Found, IndexArgs, Unkept};
use super::nest::{MAX_LOOKS, Nest};
use crate::catalog::{Catalog, Dataset, Located, Place, Tree};
use crate::failure::{Exit, Failure};
use crate::format::{self, Content, OpenOptions, Secret, Source, View, magic};
use crate::io::{File, Pool, process};
use crate::store::{Part, Store};
use crate::vfs::{Options, Vfs};
use clap::{Args, ValueEnum};
use std::collections::{BTreeMap, HashSet};
use std::io::{IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A sample that is larger than this is not decoded for a look at its first bytes.
const LOOK_BYTES: u64 = 4 << 20;

/// Of more files than this not all are open at a time.
pub(crate) const MANY_FILES: usize = 512;
/// No password is longer.
const MAX_PASSWORD_BYTES: u64 = 64 << 10;

/// How containers are opened.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct OpenArgs {
    /// Serve a container whose damage is confined to some samples (those give an error)
    #[arg(long, alias = "allow_damaged")]
    pub(crate) allow_damaged: bool,
    /// The format, if the content must not tell it: a name as `info` prints it, or an ending such as zip
    #[arg(long, value_name = "NAME", value_parser = format_name)]
    pub(crate) format: Option<&'static str>,
    /// How samples with a type are shown
    #[arg(long, value_name = "HOW", default_value = "typed")]
    pub(crate) view: ViewChoice,
    /// Character set of names that do not say theirs, such as cp437, shift-jis or gbk [default: guessed]
    #[arg(long, value_name = "NAME")]
    pub(crate) encoding: Option<String>,
    /// The first line of this file is the password of encrypted members
    #[arg(long, alias = "password_file", value_name = "FILE", conflicts_with = "password_fd")]
    pub(crate) password_file: Option<PathBuf>,
    /// As --password-file, from an open descriptor
    #[arg(long, alias = "password_fd", value_name = "N")]
    pub(crate) password_fd: Option<u32>,
    /// What they say, once it was read.
    #[arg(skip)]
    secret: Option<Secret>,
    /// Show stored members that are containers themselves as folders; N: how deep
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u8).range(..=16))]
    pub(crate) nested: u8,
    #[command(flatten)]
    pub(crate) kept: IndexArgs,
    #[command(flatten)]
    pub(crate) checksums: ChecksumArgs,
}

/// How samples with a type are shown.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum ViewChoice {
    /// As files that programs know: .npy, .jpg, .ppm, .json, .txt
    #[default]
    Typed,
    /// The stored bytes
    Raw,
    /// As typed, and raw images as .npy too
    Npy,
}

fn format_name(text: &str) -> Result<&'static str, String> {
    let is_meant = |format: &&&dyn format::Format| {
        let names = format.extensions().iter().chain(std::iter::once(&"")).copied();
        format.name().eq_ignore_ascii_case(text)
            || names.filter(|name| !name.is_empty()).any(|name| name.eq_ignore_ascii_case(text))
    };
    format::FORMATS.iter().find(is_meant).map(|format| format.name()).ok_or_else(|| {
        let names: Vec<_> = format::FORMATS.iter().map(|format| format.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

impl OpenArgs {
    pub(crate) fn options(&self) -> Result<OpenOptions, Failure> {
        Ok(OpenOptions {
            allow_damaged: self.allow_damaged,
            format: self.format,
            view: match self.view {
                ViewChoice::Typed => View::Typed,
                ViewChoice::Raw => View::Raw,
                ViewChoice::Npy => View::Npy,
            },
            encoding: self.encoding.clone(),
            password: self.secret.clone().map_or_else(|| self.password(), |s| Ok(Some(s)))?,
        })
    }

    /// Reads the password now: a daemon has neither the caller's descriptors nor its folder and terminal.
    pub(crate) fn read_password(&mut self, sources: &[PathBuf]) -> Result<(), Failure> {
        self.secret = self.password()?;
        if self.secret.is_none() && std::io::stdin().is_terminal() {
            self.secret = self.ask_password(sources)?;
        }
        Ok(())
    }

    /// Asks on the terminal, if a source cannot be read without a password.
    fn ask_password(&self, sources: &[PathBuf]) -> Result<Option<Secret>, Failure> {
        let options = self.options()?;
        for path in expand(sources)? {
            // What is wrong with it is said where it is opened for good.
            let Ok(file) = File::open(&path) else { continue };
            let source: Arc<dyn Source> = Arc::new(file);
            let Ok(format) = format::recognize(source.as_ref(), &options) else { continue };
            if format.is_scanned() {
                continue;
            }
            let wants = format.open(source, &options).is_ok_and(|opened| opened.wants_password());
            if wants {
                let question = format!("Password for {} (none: Enter): ", path.display());
                let answer = rpassword::prompt_password(question);
                let answer = answer.map_err(|e| Failure::unreadable("the terminal", e))?;
                return Ok((!answer.is_empty()).then(|| Secret::new(answer.as_bytes())));
            }
        }
        Ok(None)
    }

    /// The first line of what the user says; never on the command line, where everybody sees it.
    fn password(&self) -> Result<Option<Secret>, Failure> {
        let (name, mut file) = match (&self.password_file, self.password_fd) {
            (Some(path), _) => {
                let file = std::fs::File::open(path);
                let name = path.display().to_string();
                (name, file.map_err(|e| Failure::unreadable(path.display(), e))?)
            }
            (None, Some(number)) => {
                let name = format!("/dev/fd/{number}");
                let file = std::fs::File::open(&name).map_err(|e| Failure::unreadable(&name, e))?;
                (name, file)
            }
            (None, None) => return Ok(None),
        };
        let mut text = Vec::new();
        let read = file.by_ref().take(MAX_PASSWORD_BYTES).read_to_end(&mut text);
        read.map_err(|e| Failure::unreadable(&name, e))?;
        let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Err(Failure::usage(format!("{name}: the first line is empty: no password")));
        }
        Ok(Some(Secret::new(line)))
    }
}

/// Open containers as one dataset.
pub(crate) struct Opened {
    pub(crate) store: Store,
    pub(crate) dataset: Dataset,
    /// Per container: the one that it is a member of, and its path there.
    pub(crate) inside: Vec<Option<(usize, Vec<u8>)>>,
    /// Samples that are containers of the dataset, too.
    pub(crate) opened: HashSet<u64>,
    /// The kept tree of a dataset of one container.
    pub(crate) tree: Mutex<Option<Tree>>,
    /// The index to keep of it once its names are there.
    pub(crate) unkept: Option<Unkept>,
    /// Where samples are decoded to that cannot be read in the middle.
    pub(crate) spool: Option<PathBuf>,
    /// Indexes that were written.
    written: Mutex<Vec<PathBuf>>,
}

/// Opens containers in the given order; a folder stands for the containers in it, by name.
pub(crate) fn open(sources: &[PathBuf], args: &OpenArgs) -> Result<Opened, Failure> {
    open_with(sources, args, Ok)
}

/// As [`open`], each file prepared before it is used.
pub(crate) fn open_with(
    sources: &[PathBuf],
    args: &OpenArgs,
    prepare: impl Fn(File) -> Result<File, Failure>,
) -> Result<Opened, Failure> {
    process::raise_open_files_limit();
    let options = args.options()?;
    let mut parts = Vec::new();
    let mut nest = Nest::default();
    let (mut tree, mut later, mut written) = (None, None, Vec::new());
    let paths = expand(sources)?;
    let is_single = paths.len() == 1;
    let pool = (paths.len() > MANY_FILES).then(|| Pool::new(MANY_FILES));
    if !is_single && args.kept.is_one_file() {
        return Err(Failure::usage(
            "--index FILE is for one container; --index-dir is for several",
        ));
    }
    let spool = args.kept.spool()?;
    let sidecars = args.checksums.sidecars()?;
    let mut sums = Vec::new();
    let open_file = |path: &PathBuf| {
        let unreadable = |e| Failure::unreadable(path.display(), e);
        let mut file = prepare(File::open(path).map_err(unreadable)?)?;
        if let Some(pool) = &pool {
            file.share(pool).map_err(unreadable)?;
        }
        Ok(Arc::new(Part::from(file)))
    };
    let containers = paths.iter().map(open_file).collect::<Result<Vec<_>, Failure>>()?;
    if let Some(expected) = &args.checksums.digest {
        digest::check(&containers, expected)?;
    }
    for whole in containers {
        let Found { container, tree: kept, unkept, spooled } = args.kept.open(&whole, &options)?;
        let part = match spooled {
            Some(spooled) => Arc::new(Part::from(prepare(spooled)?)),
            None => Arc::clone(&whole),
        };
        sums.push(sidecars.find(whole.as_ref(), part.as_ref(), container.as_ref())?);
        let source = Arc::clone(&part) as Arc<dyn Source>;
        if is_single {
            (tree, later) = (kept, unkept);
        } else if let Some(unkept) = unkept {
            written.extend(unkept.write(container.as_ref(), None));
        }
        nest.add(container, source, Place { file: parts.len(), base_bytes: 0 }, None);
        parts.push(part);
    }
    nest.open_members(args.nested, &options)?;
    let Nest { containers, places, inside, opened, .. } = nest;
    let mut dataset = Dataset::nested(containers, places);
    // Members that are containers stand behind the files.
    for (container, sums) in sums.into_iter().enumerate() {
        if let Some((section, path)) = sums {
            dataset.set_sums(container, section, path.into());
        }
    }
    for warning in dataset.parts().iter().flat_map(|part| part.warnings()) {
        tracing::warn!("{warning}");
    }
    let opened = opened.into_iter().map(|(container, sample)| dataset.number(container, sample));
    let opened = opened.collect();
    let (tree, written) = (Mutex::new(tree), Mutex::new(written));
    let opened = Opened {
        store: Store::new(parts),
        dataset,
        inside,
        opened,
        tree,
        unkept: later,
        written,
        spool,
    };
    if args.checksums.require_checksums {
        opened.require_checksums()?;
    }
    Ok(opened)
}

impl Opened {
    /// The kept tree of names, if there is one; it is given once.
    pub(crate) fn kept_tree(&self) -> Option<Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps the index of a dataset of one container, with its names if they are as stored.
    pub(crate) fn keep_index(&self, tree: Option<&Tree>) {
        let Some(unkept) = &self.unkept else { return };
        let path = unkept.write(self.dataset.parts()[0].as_ref(), tree);
        self.written.lock().unwrap_or_else(PoisonError::into_inner).extend(path);
    }

    /// The indexes that were written.
    pub(crate) fn written_indexes(&self) -> Vec<PathBuf> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How large they are together.
    pub(crate) fn written_bytes(&self) -> u64 {
        let size = |path: PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        self.written_indexes().into_iter().map(size).sum()
    }

    /// What a sample is checked by.
    pub(crate) fn checked_by(&self, located: &Located) -> CheckedBy {
        let container = self.dataset.parts()[located.container].as_ref();
        let has_own =
            || container.sample(located.index).is_ok_and(|own| has_checksum(container, &own));
        match self.dataset.sums_of(located.container) {
            Some(_) if !has_own() => CheckedBy::Sidecar,
            None if !has_checksum(container, &located.sample) => CheckedBy::Nothing,
            _ => CheckedBy::Container,
        }
    }

    /// Refuses samples that cannot be checked. Those that are shown as folders are none.
    fn require_checksums(&self) -> Result<(), Failure> {
        let mut without: BTreeMap<&str, u64> = BTreeMap::new();
        let mut first = None;
        for (number, container) in self.dataset.parts().iter().enumerate() {
            if self.dataset.sums_of(number).is_some() {
                continue;
            }
            for index in 0..container.len() {
                let sample = self.dataset.number(number, index);
                let is_checked = has_checksum(container.as_ref(), &container.sample(index)?);
                if !is_checked && !self.opened.contains(&sample) {
                    *without.entry(container.format()).or_default() += 1;
                    first.get_or_insert(number);
                }
            }
        }
        let Some(first) = first else { return Ok(()) };
        let counts: Vec<_> =
            without.iter().map(|(format, samples)| format!("{samples} of {format}")).collect();
        let path = self.store.part(self.dataset.file_of(first)).name();
        let cure = match self.inside[first] {
            None => format!("write them once: ffrfs sum --sidecar {path}"),
            Some(_) => "what lies in a container that is a member can have none".to_owned(),
        };
        Err(Failure::new(
            Exit::Malformed,
            format!(
                "{path}: --require-checksums: samples have no checksum ({}): {cure}",
                counts.join(", ")
            ),
        ))
    }

    /// The file system that a mount would show.
    pub(crate) fn into_vfs(self, catalog: Catalog, options: Options) -> Vfs {
        let vfs = Vfs::new(self.dataset, catalog, self.store, options);
        if let Some(folder) = self.spool {
            vfs.spool_to(folder);
        }
        vfs
    }
}

/// The first bytes of a sample's file, unchecked: good for a guess.
pub(crate) fn head(dataset: &Dataset, store: &Store, sample: u64) -> format::Result<Vec<u8>> {
    let Some(located) = dataset.locate(sample)? else { return Ok(Vec::new()) };
    if located.sample.damaged {
        return Ok(Vec::new());
    }
    let container = dataset.parts()[located.container].as_ref();
    let located = exact(dataset, store, &located)?;
    let at = located.sample;
    let wanted = magic::HEAD_BYTES as u64;
    let read = |length| read_stored(store.part(located.part), at.offset_bytes, length);
    match at.content {
        Content::Stored => read(at.length_bytes.min(wanted)),
        Content::Prefixed(_) => {
            let mut head = container.prefix(located.index)?;
            head.extend(read(at.length_bytes.min(wanted))?);
            Ok(head)
        }
        Content::Encoded(size) if size.max(at.length_bytes) <= LOOK_BYTES => {
            let mut out = vec![0; size as usize];
            let decoded = container.decode(located.index, &read(at.length_bytes)?, &mut out);
            Ok(decoded.map_or_else(|_| Vec::new(), |()| out))
        }
        Content::Encoded(_) | Content::Sparse(_) => Ok(Vec::new()),
    }
}

/// Where a sample really lies, if only what stands before it tells.
pub(crate) fn exact(
    dataset: &Dataset,
    store: &Store,
    located: &Located,
) -> format::Result<Located> {
    let container = dataset.parts()[located.container].as_ref();
    let mut located = *located;
    // The first look may tell where to look.
    for _ in 0..MAX_LOOKS {
        let at = located.sample;
        if at.header_bytes == 0 {
            break;
        }
        let start = at.extent().start;
        let header = read_stored(store.part(located.part), start, u64::from(at.header_bytes))?;
        container.check_header(located.index, &header)?;
        let number = dataset.number(located.container, located.index);
        located = dataset.locate(number)?.unwrap_or(located);
    }
    Ok(located)
}

fn read_stored(part: &Part, offset_bytes: u64, length_bytes: u64) -> format::Result<Vec<u8>> {
    let mut bytes = vec![0; length_bytes as usize];
    part.read_exact_at(&mut bytes, offset_bytes).map_err(|source| format::Error::Unreadable {
        part: part.name().clone(),
        what: "a sample",
        offset_bytes,
        source,
    })?;
    Ok(bytes)
}

/// A path from the command line as the names of a tree are stored.
pub(crate) fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Finds a file by its path, for a command that names it.
pub(crate) fn not_found(path: &Path) -> Failure {
    Failure::new(Exit::Usage, format!("{}: no such sample or folder", path.display()))
}
