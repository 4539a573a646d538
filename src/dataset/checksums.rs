//! How containers are checked: sidecars, the requirement that each sample has a checksum, and a digest of all parts.

use super::beside::{SIDECAR, beside};
use super::objects::Neighbours;
use super::options::SidecarPlace;
use crate::failure::{Exit, Failure};
use crate::format::counted;
use crate::format::sidecar::{self, Key, Section};
use crate::format::{Container, Content, MemorySource, PartName, Sample, Source};
use crate::io::File;
use std::path::Path;
use std::sync::Arc;

/// The checksums of a container, and the name of their file.
pub(crate) type Found = (Arc<Section>, PartName);

/// The sidecar of an object: its name and bytes, if it has one.
pub(crate) type Fetched = Option<(PartName, Vec<u8>)>;

/// Where checksums outside of the containers come from.
pub(crate) enum Sidecars {
    None,
    Beside,
    File(PartName, Vec<Arc<Section>>),
}

impl SidecarPlace {
    /// Reads the sidecar that the user named.
    pub(super) fn read(&self) -> Result<Sidecars, Failure> {
        match self {
            SidecarPlace::Auto => Ok(Sidecars::Beside),
            SidecarPlace::None => Ok(Sidecars::None),
            SidecarPlace::File(file) => {
                let sections = read(file).map_err(|failure| failure.context("--checksums"))?;
                Ok(Sidecars::File(file.as_path().into(), sections))
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<Arc<Section>>, Failure> {
    let file = File::open(path).map_err(|e| Failure::unreadable(path.display(), e))?;
    sections(Arc::new(file))
}

fn sections(source: Arc<dyn Source>) -> Result<Vec<Arc<Section>>, Failure> {
    Ok(sidecar::read(&source)?.into_iter().map(Arc::new).collect())
}

impl Sidecars {
    /// The sidecar beside an object, if such sidecars are used.
    pub(crate) fn fetch(&self, neighbours: &Neighbours) -> Result<Fetched, Failure> {
        match self {
            Sidecars::Beside => neighbours.sidecar(),
            Sidecars::None | Sidecars::File(..) => Ok(None),
        }
    }

    /// The checksums of a container, whose samples lie in `data` (itself, or its decoded file); `fetched` is the
    /// sidecar of an object. `None` if there is no sidecar, or if the container needs none.
    pub(crate) fn find(
        &self,
        source: &dyn Source,
        data: &dyn Source,
        container: &dyn Container,
        fetched: Fetched,
    ) -> Result<Option<Found>, Failure> {
        let choose = |sections: &[_], file: &_| choose(source, data, container, sections, file);
        if let Some((name, bytes)) = fetched {
            let sections = sections(Arc::new(MemorySource::new(name.clone(), bytes)))?;
            return choose(&sections, &name).map(Some);
        }
        match self {
            Sidecars::None => Ok(None),
            Sidecars::Beside => {
                let Some(beside) = source.name().as_path().map(|path| beside(path, SIDECAR)) else {
                    return Ok(None);
                };
                match beside.symlink_metadata() {
                    Ok(_) => choose(&read(&beside)?, &beside.as_path().into()).map(Some),
                    Err(_) => Ok(None),
                }
            }
            Sidecars::File(file, sections) => match choose(sections, file) {
                Ok(found) => Ok(Some(found)),
                Err(_) if is_verifiable(container)? => Ok(None),
                Err(failure) => Err(failure),
            },
        }
    }
}

/// The section with the checksums of a container.
fn choose(
    source: &dyn Source,
    data: &dyn Source,
    container: &dyn Container,
    sections: &[Arc<Section>],
    file: &PartName,
) -> Result<Found, Failure> {
    let key = Key::of(source, container)?;
    let differs = |section: &Arc<Section>| section.key().differs(&key);
    for section in sections.iter().filter(|section| differs(section).is_none()) {
        if !section.is_of_another(data, container)? {
            return Ok((Arc::clone(section), file.clone()));
        }
    }
    let path = source.name();
    let why = match sections {
        [one] => format!("which {}", differs(one).unwrap_or("has other bytes in its samples")),
        all => {
            format!("which is not one of the {} that it covers", counted(all.len(), "container"))
        }
    };
    Err(Failure::new(
        Exit::Malformed,
        format!(
            "{file}: has no checksums of {path}, {why}: the container was changed since, or is another \
             one; if it is right, run ffrfs sum --sidecar {path}; --checksums none ignores the sidecar"
        ),
    ))
}

/// Whether each sample of a container has a checksum of its own.
fn is_verifiable(container: &dyn Container) -> Result<bool, Failure> {
    for index in 0..container.len() {
        if !has_checksum(container, index, &container.sample(index)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a sample has a checksum of its container or its encoding. Encodings of members have their own (AES); the
/// checksum of a stream does not cover a member, and may be missing.
pub(crate) fn has_checksum(container: &dyn Container, index: u64, sample: &Sample) -> bool {
    let is_encoded = matches!(sample.content, Content::Encoded(_));
    let has_failed = || container.fault(index).is_some_and(|fault| fault.mismatch().is_some());
    sample.checksum.is_some()
        || sample.damaged && has_failed()
        || is_encoded && container.checks_encoding(index)
        || container.checks_intervals(index)
}

/// What checks a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckedBy {
    /// A checksum in its container.
    Container,
    /// A sidecar.
    Sidecar,
    /// Nothing.
    Nothing,
}
