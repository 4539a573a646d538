//! Sources → one open dataset.

use super::ahead::Ahead;
use super::checksums::{self, CheckedBy, Sidecars, has_checksum};
use super::expand::{Place, expand};
use super::kept::{Found, NotKept, Unkept};
use super::nest::{MAX_LOOKS, Nest};
use super::objects::Objects;
use super::opening::{Opening, Together, Unopened};
use super::options::{Options, SidecarPlace, Watch};
use super::warnings::warn_of;
use super::{digest, parallel};
use crate::catalog::{self, Catalog, Dataset, Located, Tree};
use crate::failure::{Exit, Failure};
use crate::format::{self, PartName, Source};
use crate::io::{File, Pool, process};
use crate::store::remote::{Counters, Diagnosis, RemoteOptions};
use crate::store::{Part, Store};
use crate::vfs::{self, Vfs};
use std::collections::{BTreeMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of files that are open at a time; a dataset with more opens and closes them.
pub(crate) const MANY_FILES: usize = 512;
/// Descriptors of a mount other than those of containers.
const OTHER_DESCRIPTORS: u64 = 48;
/// The maximum number of descriptors of an open container, while it is opened or read.
const A_FILE: u64 = 3;
/// With so many descriptors a mount works, however many files it has.
pub(crate) const LEAST_OPEN_FILES: u64 = OTHER_DESCRIPTORS + 2 * A_FILE;
/// The number of objects that are opened at a time.
const TOGETHER: usize = 32;
/// With more objects than this, each frees its bytes once it is open, although its names have yet to be read.
const FEW: usize = 16;

/// Open containers that form one dataset.
pub struct Opened {
    /// All parts; for a container that was decoded to disk, the decoded file.
    pub store: Store,
    /// The containers, including those that are members of others.
    pub dataset: Dataset,
    /// For each container, the one that contains it as a member, and the member's path.
    pub(crate) inside: Vec<Option<(usize, Vec<u8>)>>,
    /// Samples that were opened as containers of the dataset.
    pub(crate) opened: HashSet<u64>,
    /// The kept tree of names of a dataset with one container.
    pub(crate) tree: Mutex<Option<Tree>>,
    /// The index of that container, to be written once the names are known.
    pub(crate) unkept: Option<Unkept>,
    /// The directory in which samples without random access are decoded.
    pub(crate) spool: Option<PathBuf>,
    /// Indexes that were written.
    written: Mutex<Vec<PathBuf>>,
    /// The number of indexes that could not be written.
    unwritten: AtomicU64,
    /// The read-ahead of objects, in use until their names have been read.
    aheads: Vec<Arc<Ahead>>,
    /// The counters of requests to stores.
    pub(crate) counters: Option<Arc<Counters>>,
    /// Gets the progress of long work, and may cancel it.
    pub(super) watch: Arc<dyn Watch>,
}

/// Opens containers in the given order; a directory stands for the containers in it, by name, and globs and brace lists
/// for their matches.
///
/// # Errors
/// A source cannot be read, is not a usable container, or does not fit the options; or `watch` cancels.
pub fn open(
    sources: &[PartName],
    options: &Options,
    watch: &Arc<dyn Watch>,
) -> Result<Opened, Failure> {
    let objects = Objects::new(&options.remote);
    let has_sidecars = matches!(options.checksums.sidecars, SidecarPlace::Auto);
    let containers = unopened(sources, options, &objects, has_sidecars)?;
    let mut opened = open_containers(containers, options, watch)?;
    opened.counters = objects.counters();
    Ok(opened)
}

/// The parts that sources stand for; no container is opened.
///
/// # Errors
/// A source does not exist or cannot be read, or a pattern matches nothing.
pub(crate) fn parts(sources: &[PartName], options: &Options) -> Result<Vec<Arc<Part>>, Failure> {
    let unopened = unopened(sources, options, &Objects::new(&options.remote), false)?;
    Ok(unopened.into_iter().map(|unopened| unopened.part).collect())
}

/// What the store of a URL reports of the credentials and the time.
///
/// # Errors
/// There is no client for the URL, or its options are unusable.
pub(crate) fn diagnose(url: &str, options: &Options) -> Result<Diagnosis, Failure> {
    Objects::new(&options.remote).diagnose(url)
}

/// The local files that sources stand for; no request is made.
///
/// # Errors
/// A pattern matches nothing, or a directory cannot be read.
pub(crate) fn local_files(sources: &[PartName]) -> Result<Vec<PathBuf>, Failure> {
    let is_local = |name: &&PartName| !name.as_bytes().windows(3).any(|part| part == b"://");
    let local: Vec<_> = sources.iter().filter(is_local).cloned().collect();
    let places = expand(&local, &Objects::new(&RemoteOptions::default()))?;
    let file = |place| if let Place::File(path) = place { Some(path) } else { None };
    Ok(places.into_iter().filter_map(file).collect())
}

/// `has_sidecars`: the sidecars of objects will be needed.
fn unopened(
    sources: &[PartName],
    options: &Options,
    objects: &Objects,
    has_sidecars: bool,
) -> Result<Vec<Unopened>, Failure> {
    let many = many_files();
    let places = expand(sources, objects)?;
    let files = places.iter().filter(|place| matches!(place, Place::File(_))).count();
    let pool = (files > many).then(|| Pool::new(many));
    let open_file = |path: &Path| {
        let unreadable = |e| Failure::unreadable(path.display(), e);
        let mut file = with_io(File::open(path).map_err(unreadable)?, options)?;
        if let Some(pool) = &pool {
            file.share(pool).map_err(unreadable)?;
        }
        Ok(Unopened::from(Part::from(file)))
    };
    let threads = if files == places.len() { 1 } else { TOGETHER };
    parallel::map(places, threads, &|place| match place {
        Place::File(path) => open_file(&path),
        Place::Object(place) => {
            let (part, neighbours) = objects.open(place, has_sidecars)?;
            Ok(Unopened { part: Arc::new(part), neighbours: Some(neighbours) })
        }
    })
}

/// The first source that needs a password. Containers that must be scanned to find that out are not checked.
///
/// # Errors
/// A source does not exist, or a pattern matches nothing.
pub fn wants_password(sources: &[PartName], options: &Options) -> Result<Option<PathBuf>, Failure> {
    for path in local_files(sources)? {
        // Opening the dataset will report the error.
        let Ok(file) = File::open(&path) else { continue };
        if is_locked(Arc::new(file), options) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Like [`wants_password`] for sources in stores: the first single object that needs a password and whose name allows
/// encryption. Starts the threads of stores.
pub(crate) fn remote_wants_password(sources: &[PartName], options: &Options) -> Option<PartName> {
    let is_locked = |source: &PartName| {
        // Opening the dataset will report the error.
        let parts = parts(std::slice::from_ref(source), options).unwrap_or_default();
        parts.into_iter().any(|part| is_locked(part, options))
    };
    sources.iter().find(|source| may_be_locked(source) && is_locked(source)).cloned()
}

/// Whether a source is a single object of a format with passwords.
pub(crate) fn may_be_locked(source: &PartName) -> bool {
    let PartName::Url(url) = source else { return false };
    let name = url.split(['?', '#']).next().unwrap_or_default();
    !name.contains(['*', '{']) && name.to_ascii_lowercase().ends_with(".zip")
}

fn is_locked(source: Arc<dyn Source>, options: &Options) -> bool {
    let Ok(format) = format::recognize(source.as_ref(), &options.format) else { return false };
    !format.is_scanned()
        && format.open(source, &options.format).is_ok_and(|opened| opened.wants_password())
}

/// Sets the way in which the samples of a file are read.
fn with_io(mut file: File, options: &Options) -> Result<File, Failure> {
    if let Some(io) = options.io {
        file.set_io(io).map_err(|e| {
            if e.raw_os_error() == Some(libc::EMFILE) {
                return Failure::unreadable(file.name(), e);
            }
            let why = format!("io=direct: its file system cannot read past the page cache: {e}");
            Failure::unreadable(file.name(), std::io::Error::new(e.kind(), why))
        })?;
    }
    Ok(file)
}

/// Opens the containers in these parts, one in each: files, memory, or objects.
///
/// # Errors
/// See [`open`].
pub fn open_parts(
    parts: Vec<Part>,
    options: &Options,
    watch: &Arc<dyn Watch>,
) -> Result<Opened, Failure> {
    open_containers(parts.into_iter().map(Unopened::from).collect(), options, watch)
}

fn open_containers(
    containers: Vec<Unopened>,
    options: &Options,
    watch: &Arc<dyn Watch>,
) -> Result<Opened, Failure> {
    let is_single = containers.len() == 1;
    if !is_single && options.indexes.is_one_file() {
        return Err(Failure::usage(
            "--index FILE is for one container; --index-dir is for several",
        ));
    }
    let spool = options.indexes.spool()?;
    let sidecars = options.checksums.sidecars.read()?;
    let mut parts = Vec::new();
    let mut nest = Nest::new(watch);
    let (mut tree, mut later, mut written) = (None, None, Vec::new());
    let (mut sums, mut unwritten) = (Vec::new(), 0);
    if let Some(expected) = &options.checksums.digest {
        let parts: Vec<_> = containers.iter().map(|one| Arc::clone(&one.part)).collect();
        digest::check(&parts, expected, watch.as_ref())?;
    }
    let mut aheads = Vec::new();
    for one in open_each(containers, options, &sidecars, watch)? {
        let One { part, source, found, sums: found_sums, written: index, ahead } = one;
        sums.push(found_sums);
        aheads.extend(ahead);
        match index {
            Some(Ok(path)) => written.push(path),
            Some(Err(NotKept)) => unwritten += 1,
            None => {}
        }
        let Found { container, tree: kept, unkept, .. } = found;
        if is_single {
            (tree, later) = (kept, unkept);
        }
        let at = catalog::Place { part: parts.len(), base_bytes: 0 };
        nest.add(container, source, at);
        parts.push(part);
    }
    let (kept, failures) = nest.open_members(&parts, options)?;
    written.extend(kept);
    unwritten += failures;
    let Nest { containers, places, inside, opened, notes, .. } = nest;
    let mut dataset = Dataset::nested(containers, places);
    // Nested containers come after the others, and have no sidecars.
    dataset.set_sums(sums);
    dataset.set_notes(notes);
    warn_of(&dataset, &parts);
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
        unwritten: AtomicU64::new(unwritten),
        spool,
        aheads,
        counters: None,
        watch: Arc::clone(watch),
    };
    if options.checksums.require {
        opened.require_checksums()?;
    }
    Ok(opened)
}

/// An open container.
struct One {
    part: Arc<Part>,
    source: Arc<dyn Source>,
    found: Found,
    sums: Option<checksums::Found>,
    /// The outcome of writing its index.
    written: Option<Result<PathBuf, NotKept>>,
    ahead: Option<Arc<Ahead>>,
}

/// The number of files that may be open at a time.
fn many_files() -> usize {
    let may_open = process::raise_open_files_limit().saturating_sub(OTHER_DESCRIPTORS);
    MANY_FILES.min(usize::try_from(may_open / A_FILE).unwrap_or(MANY_FILES)).max(2)
}

/// Opens the containers: many objects at a time because each takes round trips, files on all CPUs.
fn open_each(
    containers: Vec<Unopened>,
    options: &Options,
    sidecars: &Sidecars,
    watch: &Arc<dyn Watch>,
) -> Result<Vec<One>, Failure> {
    let remote = containers.iter().filter(|one| one.is_remote()).count().min(TOGETHER);
    let together = parallel::readers().min(many_files()).min(containers.len()).max(remote);
    let (is_single, is_few) = (containers.len() == 1, containers.len() <= FEW);
    let open = |one, watch: &Arc<dyn Watch>| {
        let mut one = open_one(one, options, sidecars, (watch, together))?;
        if !is_few {
            one.ahead.take().iter().for_each(|ahead| ahead.end());
        }
        let unkept = one.found.unkept.take_if(|_| !is_single);
        let written = unkept.map(|unkept| unkept.write(one.found.container.as_ref(), None));
        Ok(One { written, ..one })
    };
    if is_single {
        return containers.into_iter().map(|one| open(one, watch)).collect();
    }
    let all = Together::new(watch, containers.iter().map(|one| one.part.len_bytes()).sum());
    let opened = parallel::map(containers, together, &|one| {
        all.one(one.part.len_bytes(), |share| open(one, share))
    });
    all.end();
    opened
}

/// Opens one container, `together` with others, and meanwhile fetches its sidecar.
fn open_one(
    one: Unopened,
    options: &Options,
    sidecars: &Sidecars,
    (watch, together): (&Arc<dyn Watch>, usize),
) -> Result<One, Failure> {
    let is_remote = one.is_remote();
    let Unopened { part: whole, neighbours } = one;
    let neighbours = neighbours.as_ref();
    let open = || {
        let ahead = is_remote.then(|| Ahead::new(Arc::clone(&whole), together));
        let opening = Opening { ahead: ahead.clone(), neighbours, remote: &options.remote };
        (options.indexes.open(&whole, &opening, &options.format, watch), ahead)
    };
    // Without a sidecar to fetch no thread is started, which would dominate the time for thousands of small shards.
    let ((found, ahead), fetched) = match neighbours.filter(|beside| beside.may_have_sidecar()) {
        Some(beside) => parallel::both(open, &|| sidecars.fetch(beside)),
        None => (open(), Ok(None)),
    };
    let mut found = found?;
    let (part, source) = match found.spooled.take() {
        Some(spooled) => {
            let part = Arc::new(Part::from(with_io(spooled, options)?));
            (Arc::clone(&part), part as Arc<dyn Source>)
        }
        None => {
            let ahead = ahead.clone().map(|ahead| ahead as Arc<dyn Source>);
            (Arc::clone(&whole), ahead.unwrap_or_else(|| Arc::clone(&whole) as Arc<dyn Source>))
        }
    };
    let sums =
        sidecars.find(whole.as_ref(), source.as_ref(), found.container.as_ref(), fetched?)?;
    Ok(One { part, source, found, sums, written: None, ahead })
}

impl Opened {
    /// The kept tree of names, if there is one; only the first call gets it.
    pub(crate) fn kept_tree(&self) -> Option<Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Writes the index of a dataset with one container, with its tree if the names are the stored ones.
    pub(crate) fn keep_index(&self, tree: Option<&Tree>) {
        let Some(unkept) = &self.unkept else { return };
        match unkept.write(self.dataset.containers()[0].as_ref(), tree) {
            Ok(path) => self.written.lock().unwrap_or_else(PoisonError::into_inner).push(path),
            Err(NotKept) => _ = self.unwritten.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The number of indexes that could not be written.
    pub(crate) fn unwritten_indexes(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }

    /// The indexes that were written.
    pub(crate) fn written_indexes(&self) -> Vec<PathBuf> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The total size of the indexes that were written.
    pub(crate) fn written_bytes(&self) -> u64 {
        let size = |path: PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        self.written_indexes().into_iter().map(size).sum()
    }

    /// What a sample is checked by.
    pub(crate) fn checked_by(&self, located: &Located) -> CheckedBy {
        let container = self.dataset.containers()[located.container].as_ref();
        let own = || container.sample(located.index);
        let has_own = || own().is_ok_and(|own| has_checksum(container, located.index, &own));
        match self.dataset.sums_of(located.container) {
            Some(_) if !has_own() => CheckedBy::Sidecar,
            None if !has_checksum(container, located.index, &located.sample) => CheckedBy::Nothing,
            _ => CheckedBy::Container,
        }
    }

    /// Refuses samples without a checksum, except those that are shown as directories.
    fn require_checksums(&self) -> Result<(), Failure> {
        let mut without: BTreeMap<&str, u64> = BTreeMap::new();
        let mut first = None;
        for (number, container) in self.dataset.containers().iter().enumerate() {
            if self.dataset.sums_of(number).is_some() {
                continue;
            }
            for index in 0..container.len() {
                let sample = self.dataset.number(number, index);
                let is_checked = has_checksum(container.as_ref(), index, &container.sample(index)?);
                if !is_checked && !self.opened.contains(&sample) {
                    *without.entry(container.format()).or_default() += 1;
                    first.get_or_insert(number);
                }
            }
        }
        let Some(first) = first else { return Ok(()) };
        let counts: Vec<_> =
            without.iter().map(|(format, samples)| format!("{samples} of {format}")).collect();
        let path = self.store.part(self.dataset.part_of(first)).name();
        let cure = match self.inside[first] {
            None => format!("write them once: ffrfs sum --sidecar {path}"),
            Some(_) => "a nested container can have no sidecar".to_owned(),
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
    #[must_use]
    pub fn into_vfs(self, catalog: Catalog, options: vfs::Options) -> Vfs {
        self.aheads.iter().for_each(|ahead| ahead.end());
        let vfs = Vfs::new(self.dataset, catalog, self.store, options);
        if let Some(directory) = self.spool {
            vfs.spool_to(directory);
        }
        vfs
    }
}

/// The exact place of a sample, if its header bytes must be read to know it.
pub(crate) fn exact(
    dataset: &Dataset,
    store: &Store,
    located: &Located,
) -> format::Result<Located> {
    let container = dataset.containers()[located.container].as_ref();
    let mut located = *located;
    // The header bytes may say that the sample lies elsewhere.
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

pub(super) fn read_stored(
    part: &Part,
    offset_bytes: u64,
    length_bytes: u64,
) -> format::Result<Vec<u8>> {
    let mut bytes = vec![0; length_bytes as usize];
    part.read_exact_at(&mut bytes, offset_bytes).map_err(|source| format::Error::Unreadable {
        part: part.name().clone(),
        what: "a sample",
        offset_bytes,
        source,
    })?;
    Ok(bytes)
}

/// A path from the command line in the form of a tree's names.
pub(crate) fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
