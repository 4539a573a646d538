//! The check of all samples of a container that lies in a compressed stream, at its opening.

use crate::format::{Container, Content, Error, Result, Sample, Source};
use std::collections::BTreeSet;

/// The most reads of a header: the first one may tell that the header is longer.
const MAX_HEADER_READS: u32 = 3;
/// Bytes that are hashed at a time.
const PIECE_BYTES: usize = 256 << 10;

/// The result of examining each sample of a container at its opening.
pub(super) struct Examined {
    /// Whether all samples are ranges of the container.
    pub(super) has_ranges: bool,
    /// Samples that are not whole.
    pub(super) bad: BTreeSet<u64>,
}

impl Examined {
    /// The result for a container that the checks of its stream cover: all samples are ranges, and good.
    pub(super) fn all_good() -> Self {
        Self { has_ranges: true, bad: BTreeSet::new() }
    }

    /// Checks the header of each sample, and the checksums of ranges, in the order of their places. Later reads of ranges
    /// check only that the stream is unchanged. Headers are read from `headers`, and all other bytes from `data`, which
    /// holds the same bytes.
    pub(super) fn of(
        container: &dyn Container,
        headers: &dyn Source,
        data: &dyn Source,
    ) -> Result<Self> {
        let (mut examined, places) = Self::unchecked(container)?;
        for (_, index) in places {
            let is_whole = check_header(container, index, headers)?
                && (!examined.has_ranges || matches_checksum(&container.sample(index)?, data)?);
            if !is_whole {
                examined.bad.insert(index);
            }
        }
        Ok(examined)
    }

    /// The result of an earlier opening of the same bytes: the headers say once more where samples lie, and `bad` has the
    /// samples that are not whole.
    pub(super) fn again(
        container: &dyn Container,
        source: &dyn Source,
        bad: BTreeSet<u64>,
    ) -> Result<Self> {
        let (examined, places) = Self::unchecked(container)?;
        for (_, index) in places {
            check_header(container, index, source)?;
        }
        Ok(Self { bad, ..examined })
    }

    /// Whether all samples are ranges; and the beginning and number of each that is not known to be damaged, in that order.
    fn unchecked(container: &dyn Container) -> Result<(Self, Vec<(u64, u64)>)> {
        let mut examined = Self::all_good();
        let mut places = Vec::new();
        for index in 0..container.len() {
            let at = container.sample(index)?;
            examined.has_ranges &= is_range(at.content);
            if !at.damaged {
                places.push((at.extent().start, index));
            }
        }
        places.sort_unstable();
        Ok((examined, places))
    }
}

/// Whether the header of a sample is right.
fn check_header(container: &dyn Container, index: u64, source: &dyn Source) -> Result<bool> {
    for _ in 0..MAX_HEADER_READS {
        let at = container.sample(index)?;
        if at.header_bytes == 0 {
            return Ok(true);
        }
        let mut header = vec![0; usize::try_from(at.header_bytes).unwrap_or(0)];
        read(source, &mut header, at.extent().start)?;
        if container.check_header(index, &header).is_err() {
            return Ok(false);
        }
    }
    Ok(container.sample(index)?.header_bytes == 0)
}

/// Whether the file of a sample is a range of its container, or several, behind a prefix if it has one.
pub(super) fn is_range(content: Content) -> bool {
    matches!(content, Content::Stored | Content::Sparse(_) | Content::Prefixed(_))
}

/// Whether a sample that is one range matches its checksum, if it has one.
pub(super) fn matches_checksum(at: &Sample, source: &dyn Source) -> Result<bool> {
    let (Some(expected), Content::Stored | Content::Prefixed(_)) = (at.checksum, at.content) else {
        return Ok(true);
    };
    let mut hasher = expected.hasher();
    let mut place = at.offset_bytes;
    let mut piece = vec![0; PIECE_BYTES];
    while place < at.end_bytes() {
        let left = at.end_bytes().saturating_sub(place);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let bytes = piece.get_mut(..length).unwrap_or_default();
        read(source, bytes, place)?;
        hasher.update(bytes);
        place = place.saturating_add(length as u64);
    }
    Ok(expected.compare(hasher.finish()).is_ok())
}

fn read(source: &dyn Source, bytes: &mut [u8], offset_bytes: u64) -> Result<()> {
    source.read_exact_at(bytes, offset_bytes).map_err(|e| Error::Unreadable {
        part: source.name().clone(),
        what: "a member of the member",
        offset_bytes,
        source: e,
    })
}
