//! Members that are containers themselves, opened in place: stored ones at their offset, compressed ones through the
//! interval index of their stream.

use super::opening::{Together, Watched};
use super::options::Watch;
use super::parallel;
use crate::catalog::Place;
use crate::failure::Failure;
use crate::format::compressed::{open_encoded, open_range};
use crate::format::{
    self, Container, Content, Kind, Node, OpenOptions, Sample, SliceSource, Source,
};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// How often header bytes are read at most to find where a sample lies.
pub(crate) const MAX_LOOKS: u32 = 3;
/// More containers than this in one dataset are an attack or a mistake.
const MAX_CONTAINERS: usize = 100_000;
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
    sources: Vec<Arc<dyn Source>>,
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
            sources: Vec::new(),
            watch: Arc::clone(watch),
        }
    }

    pub(super) fn add(
        &mut self,
        container: Box<dyn Container>,
        source: Arc<dyn Source>,
        place: Place,
        inside: Option<(usize, Vec<u8>)>,
    ) {
        self.containers.push(container);
        self.sources.push(source);
        self.places.push(place);
        self.inside.push(inside);
    }

    /// Opens members, and members of those, `depth` levels deep. A member that cannot be opened stays a file.
    pub(super) fn open_members(&mut self, depth: u8, options: &OpenOptions) -> Result<(), Failure> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut level = 0..self.containers.len();
        for _ in 0..depth {
            let mut members = Vec::new();
            for number in level {
                candidates(self.containers[number].as_ref(), number, &mut members)?;
            }
            level = self.containers.len()..self.containers.len();
            let sample = |member: &Member| self.containers[member.container].sample(member.sample);
            let samples = members.iter().filter_map(|member| sample(member).ok());
            let together = Together::new(&self.watch, samples.map(|at| at.length_bytes).sum());
            for some in members.chunks(MEMBERS_TOGETHER) {
                let opened = parallel::map(some.to_vec(), threads, &|member| {
                    let opened = self.open(&member, options, &together.share());
                    if self.watch.is_cancelled() {
                        return Err(Failure::interrupted());
                    }
                    let opened = opened.inspect_err(|e| tracing::warn!("{e}: shown as a file"));
                    Ok(opened.ok().flatten().map(|opened| (member, opened)))
                })?;
                self.add_members(opened.into_iter().flatten())?;
            }
            together.end();
            level.end = self.containers.len();
        }
        Ok(())
    }

    fn add_members(
        &mut self,
        members: impl Iterator<Item = (Member, Inner)>,
    ) -> Result<(), Failure> {
        for (member, Inner { container, source, base_bytes }) in members {
            if self.containers.len() >= MAX_CONTAINERS {
                return Err(Failure::usage(format!(
                    "more than {MAX_CONTAINERS} containers: choose a smaller --nested"
                )));
            }
            let Member { container: outer, sample, path } = member;
            let place = Place { base_bytes, ..self.places[outer] };
            self.opened.push((outer, sample));
            self.add(container, source, place, Some((outer, path)));
        }
        Ok(())
    }

    /// Opens a member. `None`: it stays a file, and that is no error.
    fn open(
        &self,
        member: &Member,
        options: &OpenOptions,
        watch: &Arc<dyn Watch>,
    ) -> format::Result<Option<Inner>> {
        let outer = &self.sources[member.container];
        let container = self.containers[member.container].as_ref();
        let at = located(container, outer.as_ref(), member.sample)?;
        if at.damaged {
            return Ok(None);
        }
        let name = outer.name().member(&member.path);
        let base_bytes = self.places[member.container].base_bytes;
        if let (Content::Encoded(size), Some(stream)) = (at.content, container.stream()) {
            let Some(range) = only_piece(container, member.sample, size)? else { return Ok(None) };
            let (source, stream) = (Arc::clone(outer), Arc::clone(stream));
            let container = open_range(Arc::clone(&source), stream, range, name, options)?;
            return Ok(Some(Inner { container, source, base_bytes }));
        }
        let (whole, length_bytes) = (Arc::clone(outer), at.length_bytes);
        let source: Arc<dyn Source> =
            Arc::new(SliceSource::new(name, whole, at.offset_bytes, length_bytes));
        let watched = Arc::new(Watched::new(Arc::clone(&source), Arc::clone(watch)));
        let container = match (at.content, container.codec(member.sample)) {
            (Content::Stored, _) => format::open(watched, options)?,
            (Content::Encoded(_), Some(codec)) => {
                open_encoded(watched, codec, at.checksum, options)?
            }
            _ => return Ok(None),
        };
        let base_bytes = base_bytes.saturating_add(at.offset_bytes);
        Ok(Some(Inner { container, source, base_bytes }))
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
