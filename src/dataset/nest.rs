//! Members that are containers themselves, opened in place: stored ones at their offset, compressed ones through the
//! interval index of their stream. They are opened with the dataset and not at their first use: their samples are
//! numbered on from those of the other containers, and a member that turns out to be no container is a file. What
//! decoding them told is kept, so that the next opening decodes nothing.

use super::nested_indexes::NestedIndexes;
use super::opening::{Together, Watched};
use super::options::{Options, Watch};
use super::parallel;
use crate::catalog::Place;
use crate::failure::Failure;
use crate::format::compressed::{
    Coding, LATELY_BYTES, MemberSource, RecentIntervals, open_kept_member, open_member,
};
use crate::format::{
    self, Container, Content, Kind, Node, OpenOptions, Sample, SliceSource, Source,
};
use crate::io::process::cgroup;
use crate::store::Part;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How often header bytes are read at most to find where a sample lies.
pub(crate) const MAX_LOOKS: u32 = 3;
/// More containers than this in one dataset are an attack or a mistake.
const MAX_CONTAINERS: usize = 100_000;
/// So many members of a container that stay files are named; the others are logged.
const MAX_NOTES: usize = 20;
/// After so many members the containers are counted.
const MEMBERS_TOGETHER: usize = 1024;

/// Containers, including those that are members of others.
pub(super) struct Nest {
    pub(super) containers: Vec<Box<dyn Container>>,
    pub(super) places: Vec<Place>,
    /// For each container, the one that contains it as a member, and the member's path.
    pub(super) inside: Vec<Option<(usize, Vec<u8>)>>,
    /// The samples that were opened: container, and number in it.
    pub(super) opened: Vec<(usize, u64)>,
    /// What is said of members that stay files, by the container that they lie in.
    pub(super) notes: BTreeMap<usize, Vec<String>>,
    /// For each container, the sample numbers that lead to it from the outermost one.
    numbers: Vec<Vec<u64>>,
    sources: Vec<Arc<dyn Source>>,
    /// The first member that the password does not open.
    refused: Option<Box<format::Error>>,
    /// Watches the decoding of members for their index.
    watch: Arc<dyn Watch>,
}

impl Nest {
    pub(super) fn new(watch: &Arc<dyn Watch>) -> Self {
        Self {
            containers: Vec::new(),
            places: Vec::new(),
            inside: Vec::new(),
            opened: Vec::new(),
            notes: BTreeMap::new(),
            numbers: Vec::new(),
            sources: Vec::new(),
            refused: None,
            watch: Arc::clone(watch),
        }
    }

    /// Adds a container that is no member of another one.
    pub(super) fn add(
        &mut self,
        container: Box<dyn Container>,
        source: Arc<dyn Source>,
        place: Place,
    ) {
        self.push(container, source, place);
        self.inside.push(None);
        self.numbers.push(Vec::new());
    }

    fn push(&mut self, container: Box<dyn Container>, source: Arc<dyn Source>, place: Place) {
        self.containers.push(container);
        self.sources.push(source);
        self.places.push(place);
    }

    /// Opens members, and members of those, as deep as the options say. A member that cannot be opened stays a file. A password
    /// that opens none of those that are encrypted is refused, as for the outermost ones.
    /// Returns what [`NestedIndexes::outcome`] does.
    pub(super) fn open_members(
        &mut self,
        parts: &[Arc<Part>],
        options: &Options,
    ) -> Result<(BTreeSet<PathBuf>, u64), Failure> {
        // `--format` names that of the outermost ones.
        let inner = OpenOptions { format: None, ..options.format.clone() };
        let indexes = NestedIndexes::new(parts, &options.indexes, &inner);
        let mut level = 0..self.containers.len();
        for _ in 0..options.nested {
            let mut members = Vec::new();
            for number in level {
                candidates(self.containers[number].as_ref(), number, &mut members)?;
            }
            level = self.containers.len()..self.containers.len();
            self.open_level(members, &inner, &indexes)?;
            level.end = self.containers.len();
        }
        self.note_unopened();
        match self.refused.take() {
            Some(refused) if !self.containers.iter().any(|opened| opened.has_password()) => {
                Err((*refused).into())
            }
            _ => Ok(indexes.outcome()),
        }
    }

    /// Notes what is said of a member that stays a file.
    fn note(&mut self, outer: usize, note: String) {
        let notes = self.notes.entry(outer).or_default();
        match notes.len() {
            0..MAX_NOTES => notes.push(note),
            MAX_NOTES => {
                tracing::info!("{note}");
                let name = self.sources[outer].name();
                notes.push(format!(
                    "{name}: more of its members are shown as files; the log of a mount names them"
                ));
            }
            _ => tracing::info!("{note}"),
        }
    }

    /// Notes what is said of files that are compressed containers, and were neither opened nor refused.
    fn note_unopened(&mut self) {
        let opened: BTreeSet<usize> = self.opened.iter().map(|(container, _)| *container).collect();
        for (number, container) in self.containers.iter().enumerate() {
            if let Some(note) = container.unopened().filter(|_| !opened.contains(&number)) {
                self.notes.entry(number).or_insert_with(|| vec![note.to_owned()]);
            }
        }
    }

    fn open_level(
        &mut self,
        members: Vec<Member>,
        options: &OpenOptions,
        indexes: &NestedIndexes<'_>,
    ) -> Result<(), Failure> {
        let sample = |member: &Member| self.containers[member.container].sample(member.sample);
        let samples = members.iter().filter_map(|member| sample(member).ok());
        let together = Together::new(&self.watch, samples.map(|at| at.length_bytes).sum());
        // Members are opened in the order of their streams, so that each interval is decoded once.
        let recent = Arc::new(RecentIntervals::new(parallel::cpus() + 1, recent_bytes()));
        for some in members.chunks(MEMBERS_TOGETHER) {
            let opened = parallel::map(some.to_vec(), parallel::cpus(), &|member| {
                let opened = self.open(&member, options, (indexes, &together), &recent);
                if self.watch.is_cancelled() {
                    return Err(Failure::interrupted());
                }
                Ok(match opened {
                    Ok(opened) => opened.map(|opened| Ok((member, opened))),
                    Err(error) => Some(Err((member.container, Box::new(error)))),
                })
            })?;
            self.add_members(opened.into_iter().flatten())?;
        }
        recent.forget();
        together.end();
        Ok(())
    }

    fn add_members(
        &mut self,
        members: impl Iterator<Item = Result<(Member, Inner), (usize, Box<format::Error>)>>,
    ) -> Result<(), Failure> {
        for member in members {
            let (member, Inner { container, source, base_bytes }) = match member {
                Ok(opened) => opened,
                Err((outer, error)) => {
                    self.note(outer, format!("{error}: shown as a file"));
                    if matches!(*error, format::Error::WrongPassword { .. }) {
                        self.refused.get_or_insert(error);
                    }
                    continue;
                }
            };
            if self.containers.len() >= MAX_CONTAINERS {
                return Err(Failure::usage(format!(
                    "more than {MAX_CONTAINERS} containers: choose a smaller --nested"
                )));
            }
            let Member { container: outer, sample, path } = member;
            let place = Place { base_bytes, ..self.places[outer] };
            self.opened.push((outer, sample));
            self.numbers.push(self.numbers_to(outer, sample));
            self.push(container, source, place);
            self.inside.push(Some((outer, path)));
        }
        Ok(())
    }

    /// The sample numbers that lead from the outermost container to a member.
    fn numbers_to(&self, outer: usize, sample: u64) -> Vec<u64> {
        [&self.numbers[outer][..], &[sample]].concat()
    }

    /// Opens a member. `None`: it stays a file, and that is no error.
    fn open(
        &self,
        member: &Member,
        options: &OpenOptions,
        (indexes, together): (&NestedIndexes<'_>, &Arc<Together>),
        recent: &Arc<RecentIntervals>,
    ) -> format::Result<Option<Inner>> {
        let Some((found, base_bytes)) = self.place_of(member, recent)? else { return Ok(None) };
        let Place { part, .. } = self.places[member.container];
        // A member that was replaced in place has another length, as a rule.
        let length = match &found.coding {
            Coding::Range(_, range, _) => range.end.saturating_sub(range.start),
            _ => found.source.len(),
        };
        let mut numbers = self.numbers_to(member.container, member.sample);
        numbers.push(length);
        let source = Arc::clone(&found.source);
        if let Some(kept) = indexes.find(part, &numbers) {
            match open_kept_member(found.clone(), &kept, options) {
                Ok(Some(container)) => return Ok(Some(Inner { container, source, base_bytes })),
                Ok(None) => tracing::info!("{}: its kept index is of no use", found.name),
                // Not found out again by decoding all of it.
                Err(error @ format::Error::WrongPassword { .. }) => return Err(error),
                Err(error) => {
                    tracing::info!("{}: its kept index is of no use: {error}", found.name)
                }
            }
        }
        let read = match &found.coding {
            Coding::Range(..) => found,
            _ => {
                let watched = Watched::new(Arc::clone(&source), together.share());
                MemberSource { source: Arc::new(watched), ..found }
            }
        };
        let (container, kept) = open_member(read, options, indexes.keeps(part))?;
        if let Some(kept) = kept {
            indexes.keep(part, &numbers, &kept);
        }
        Ok(Some(Inner { container, source, base_bytes }))
    }

    /// Where a member lies, and where the source of that begins in the part. `None`: it cannot be a container.
    fn place_of(
        &self,
        member: &Member,
        recent: &Arc<RecentIntervals>,
    ) -> format::Result<Option<(MemberSource, u64)>> {
        let outer = &self.sources[member.container];
        let container = self.containers[member.container].as_ref();
        let at = located(container, outer.as_ref(), member.sample)?;
        if at.damaged {
            return Ok(None);
        }
        let name = outer.name().member(&member.path);
        let base_bytes = self.places[member.container].base_bytes;
        if let (Content::Encoded(size), Some(stream)) = (at.content, container.stream()) {
            let range = only_piece(container, member.sample, size)?;
            let (source, stream) = (Arc::clone(outer), Arc::clone(stream));
            let recent = (Arc::clone(recent), member.container);
            let member =
                |range| MemberSource { source, name, coding: Coding::Range(stream, range, recent) };
            return Ok(range.map(|range| (member(range), base_bytes)));
        }
        let coding = match (at.content, container.codec(member.sample)) {
            (Content::Stored, _) => Coding::Stored,
            (Content::Encoded(_), Some(codec)) => {
                Coding::Stream(codec, at.checksum, Arc::clone(recent))
            }
            _ => return Ok(None),
        };
        let whole = Arc::clone(outer);
        let slice = SliceSource::new(name.clone(), whole, at.offset_bytes, at.length_bytes);
        let found = MemberSource { source: Arc::new(slice), name, coding };
        Ok(Some((found, base_bytes.saturating_add(at.offset_bytes))))
    }
}

/// A member that may be a container.
#[derive(Clone)]
struct Member {
    /// The one that it lies in.
    container: usize,
    sample: u64,
    path: Vec<u8>,
}

/// A member that is a container.
struct Inner {
    container: Box<dyn Container>,
    /// Its stored bytes, or those of the stream that it lies in.
    source: Arc<dyn Source>,
    /// Where these begin in the part.
    base_bytes: u64,
}

/// How many bytes of decoded intervals each CPU may keep while members are opened.
fn recent_bytes() -> u64 {
    let limit = cgroup::total_bytes();
    LATELY_BYTES.min(limit / 16 / (parallel::cpus() as u64 + 1))
}

/// Where a member really lies.
fn located(container: &dyn Container, outer: &dyn Source, sample: u64) -> format::Result<Sample> {
    let mut at = container.sample(sample)?;
    // The header bytes may say that the sample lies elsewhere.
    for _ in 0..MAX_LOOKS {
        if at.header_bytes == 0 {
            break;
        }
        let mut header = vec![0; at.header_bytes as usize];
        let start = at.extent().start;
        outer.read_exact_at(&mut header, start).map_err(|source| format::Error::Unreadable {
            part: outer.name().clone(),
            what: "the header bytes of a member",
            offset_bytes: start,
            source,
        })?;
        container.check_header(sample, &header)?;
        at = container.sample(sample)?;
    }
    Ok(at)
}

/// The range of a file of `size` bytes in its container's decoded stream, if the file has no holes.
fn only_piece(
    container: &dyn Container,
    sample: u64,
    size: u64,
) -> format::Result<Option<Range<u64>>> {
    let piece = container.piece(sample, 0)?.filter(|piece| piece.at_bytes == 0);
    let whole = piece.filter(|piece| piece.length_bytes == size);
    Ok(whole.map(|piece| piece.offset_bytes..piece.offset_bytes.saturating_add(size)))
}

/// Adds the members of a container that have the name of a container.
fn candidates(
    container: &dyn Container,
    number: usize,
    members: &mut Vec<Member>,
) -> format::Result<()> {
    container.members(&mut |member| {
        if let Node::Sample(sample) = member.node
            && format::has_known_extension(Path::new(OsStr::from_bytes(member.path)))
            && container.attributes(sample)?.kind == Kind::File
        {
            let path = member.path.to_vec();
            members.push(Member { container: number, sample, path });
        }
        Ok(())
    })
}
