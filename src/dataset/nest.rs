//! Members that are containers themselves, opened in place: stored ones at their offset, compressed ones through the
//! interval index of their stream.

use super::opening::Watched;
use super::options::Watch;
use crate::catalog::Place;
use crate::failure::Failure;
use crate::format::compressed::{open_encoded, open_range};
use crate::format::{self, Container, Content, Kind, Node, OpenOptions, SliceSource, Source};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// How often header bytes are read at most to find where a sample lies.
pub(crate) const MAX_LOOKS: u32 = 3;
/// More containers than this in one dataset are an attack or a mistake.
const MAX_CONTAINERS: usize = 100_000;

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
        let mut level = 0..self.containers.len();
        for _ in 0..depth {
            for number in level.clone() {
                for (sample, path) in candidates(self.containers[number].as_ref())? {
                    if self.containers.len() >= MAX_CONTAINERS {
                        return Err(Failure::usage(format!(
                            "more than {MAX_CONTAINERS} containers: choose a smaller --nested"
                        )));
                    }
                    let opened = self.open_member(number, sample, &path, options);
                    if self.watch.is_cancelled() {
                        return Err(Failure::interrupted());
                    }
                    if let Err(error) = opened {
                        tracing::warn!("{error}: shown as a file");
                    }
                }
            }
            level = level.end..self.containers.len();
        }
        Ok(())
    }

    fn open_member(
        &mut self,
        number: usize,
        sample: u64,
        path: &[u8],
        options: &OpenOptions,
    ) -> format::Result<()> {
        let (container, outer) = (self.containers[number].as_ref(), &self.sources[number]);
        let mut at = container.sample(sample)?;
        // The header bytes may say that the sample lies elsewhere.
        for _ in 0..MAX_LOOKS {
            if at.header_bytes == 0 {
                break;
            }
            let mut header = vec![0; at.header_bytes as usize];
            let start = at.extent().start;
            outer.read_exact_at(&mut header, start).map_err(|source| {
                format::Error::Unreadable {
                    part: outer.name().clone(),
                    what: "the header bytes of a member",
                    offset_bytes: start,
                    source,
                }
            })?;
            container.check_header(sample, &header)?;
            at = container.sample(sample)?;
        }
        if at.damaged {
            return Ok(());
        }
        let name = outer.name().member(path);
        let place = self.places[number];
        let stored = || -> Arc<dyn Source> {
            let outer = Arc::clone(outer);
            Arc::new(SliceSource::new(name.clone(), outer, at.offset_bytes, at.length_bytes))
        };
        let base_bytes = place.base_bytes.saturating_add(at.offset_bytes);
        let (inner, source, base_bytes) = match (at.content, container.stream()) {
            (Content::Stored, _) => {
                let source = stored();
                (format::open(Arc::clone(&source), options)?, source, base_bytes)
            }
            (Content::Encoded(size), Some(stream)) => {
                let Some(range) = only_piece(container, sample, size)? else { return Ok(()) };
                let (outer, stream) = (Arc::clone(outer), Arc::clone(stream));
                let inner = open_range(Arc::clone(&outer), stream, range, name, options)?;
                (inner, outer, place.base_bytes)
            }
            (Content::Encoded(_), None) => {
                let Some(codec) = container.codec(sample) else { return Ok(()) };
                let source: Arc<dyn Source> =
                    Arc::new(Watched::new(stored(), Arc::clone(&self.watch)));
                let inner = open_encoded(Arc::clone(&source), codec, at.checksum, options);
                self.watch.end();
                (inner?, source, base_bytes)
            }
            _ => return Ok(()),
        };
        self.opened.push((number, sample));
        let place = Place { base_bytes, ..place };
        self.add(inner, source, place, Some((number, path.to_vec())));
        Ok(())
    }
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

/// Members with the name of a container.
fn candidates(container: &dyn Container) -> format::Result<Vec<(u64, Vec<u8>)>> {
    let mut found = Vec::new();
    container.members(&mut |member| {
        if let Node::Sample(sample) = member.node
            && format::has_known_extension(Path::new(OsStr::from_bytes(member.path)))
            && container.attributes(sample)?.kind == Kind::File
        {
            found.push((sample, member.path.to_vec()));
        }
        Ok(())
    })?;
    Ok(found)
}
