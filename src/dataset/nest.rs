//! Members that are containers themselves, opened in place.

use crate::catalog::Place;
use crate::failure::Failure;
use crate::format::{self, Container, Content, Kind, Node, OpenOptions, SliceSource, Source};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// What stands before a sample is looked at so often at most.
pub(crate) const MAX_LOOKS: u32 = 3;
/// More containers than this in one dataset are an attack, or a mistake.
const MAX_CONTAINERS: usize = 100_000;

/// Containers, and those that are members of them.
#[derive(Default)]
pub(crate) struct Nest {
    pub(crate) containers: Vec<Box<dyn Container>>,
    pub(crate) places: Vec<Place>,
    /// Per container: the one that it is a member of, and its path there.
    pub(crate) inside: Vec<Option<(usize, Vec<u8>)>>,
    /// Samples that were opened: container, and number there.
    pub(crate) opened: Vec<(usize, u64)>,
    sources: Vec<Arc<dyn Source>>,
}

impl Nest {
    pub(crate) fn add(
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

    /// Opens members, and members of those, `depth` deep. One that cannot be opened stays a file.
    pub(crate) fn open_members(&mut self, depth: u8, options: &OpenOptions) -> Result<(), Failure> {
        let mut level = 0..self.containers.len();
        for _ in 0..depth {
            for number in level.clone() {
                for (sample, path) in candidates(self.containers[number].as_ref())? {
                    if self.containers.len() >= MAX_CONTAINERS {
                        return Err(Failure::usage(format!(
                            "more than {MAX_CONTAINERS} containers: choose a smaller --nested"
                        )));
                    }
                    if let Err(error) = self.open_member(number, sample, &path, options) {
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
        // The first look may tell where to look.
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
        if at.damaged || at.content != Content::Stored {
            return Ok(());
        }
        let name = outer.name().member(path);
        let source: Arc<dyn Source> =
            Arc::new(SliceSource::new(name, Arc::clone(outer), at.offset_bytes, at.length_bytes));
        let inner = format::open(Arc::clone(&source), options)?;
        let Place { part, base_bytes } = self.places[number];
        let base_bytes = base_bytes.saturating_add(at.offset_bytes);
        self.opened.push((number, sample));
        self.add(inner, source, Place { part, base_bytes }, Some((number, path.to_vec())));
        Ok(())
    }
}

/// Members whose names say that they are containers.
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
