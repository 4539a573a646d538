//! Members of containers: read in spans, decoded, checked.

use super::list::{Place, list};
use super::{
    About, Bytes, Chunk, Fault, Item, Origin, SPAN_BYTES, Scratch, Stop, Take, What, Whole,
};
use crate::catalog::{Catalog, Located, Node};
use crate::dataset::open;
use crate::dataset::open::Opened;
use crate::failure::Failure;
use crate::format::checksum::Hasher;
use crate::format::{Checksum, Container, Content, Kind};
use crate::io::Buffer;
use crate::store::Part;
use std::collections::HashMap;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// The most that is decoded at once, where an encoding cannot be undone step by step.
const MAX_DECODED_BYTES: u64 = 1 << 30;
/// Of a compressed stream so much is read by one thread: neighbours decode its ends twice.
const STREAM_SPAN_BYTES: u64 = 16 << 20;

/// Open containers, and the names that a mount would show.
pub(crate) struct Containers {
    opened: Opened,
    catalog: Catalog,
    items: Vec<Item>,
    places: Vec<Place>,
    names: Vec<u8>,
}

impl Containers {
    /// Lists what `is_wanted` says of the names of `catalog`.
    pub(crate) fn new(
        opened: Opened,
        catalog: Catalog,
        is_wanted: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Self, Failure> {
        let listed = list(&opened, &catalog, is_wanted)?;
        let mut this =
            Self { opened, catalog, items: Vec::new(), places: listed.places, names: listed.names };
        this.items = this.find_items()?;
        Ok(this)
    }

    pub(crate) fn is_numbered(&self) -> bool {
        matches!(&self.catalog, Catalog::Numbered(_))
    }

    fn find_items(&self) -> Result<Vec<Item>, Failure> {
        let mut first_names = HashMap::new();
        let mut items = Vec::with_capacity(self.places.len());
        for (number, place) in self.places.iter().enumerate() {
            let Node::Sample(sample) = place.node else {
                items.push(Item { what: What::Folder, size_bytes: 0 });
                continue;
            };
            let attributes = self.opened.dataset.attributes(sample)?;
            let located = self.locate(sample)?;
            let size_bytes = located.sample.size_bytes();
            let mut what = What::File;
            if attributes.kind == Kind::Symlink {
                what = What::Symlink;
            } else if attributes.links > 1 {
                let first = *first_names.entry(sample).or_insert(number);
                what = if first == number { What::File } else { What::HardLink(first) };
            }
            items.push(Item { what, size_bytes });
        }
        Ok(items)
    }

    fn locate(&self, sample: u64) -> Result<Located, Failure> {
        let located = self.opened.dataset.locate(sample)?;
        located.ok_or_else(|| Failure::usage(format!("there is no sample {sample}")))
    }

    fn located(&self, item: usize) -> Result<Located, Fault> {
        match self.places[item].node {
            Node::Sample(sample) => match self.opened.dataset.locate(sample) {
                Ok(Some(located)) => Ok(located),
                Ok(None) => Err(Fault::Damaged),
                Err(error) => Err(Fault::Structure(error.to_string())),
            },
            Node::Folder(_) => Err(Fault::Structure("a folder".to_owned())),
        }
    }

    fn container(&self, located: &Located) -> &dyn Container {
        self.opened.dataset.parts()[located.container].as_ref()
    }

    fn part(&self, located: &Located) -> &Part {
        self.opened.store.part(located.part)
    }

    /// What a mount shows of what has no time of its own: that of its container.
    fn modified(&self, part: usize) -> (i64, u32) {
        self.opened.store.parts().get(part).map_or((0, 0), |part| since_epoch(part.modified()))
    }
}

/// Seconds and nanoseconds since 1970; before it the nanoseconds count up all the same.
fn since_epoch(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (since.as_secs().cast_signed(), since.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let seconds = before.as_secs().cast_signed().saturating_neg();
            match before.subsec_nanos() {
                0 => (seconds, 0),
                nanos => (seconds - 1, 1_000_000_000 - nanos),
            }
        }
    }
}

impl Origin for Containers {
    fn items(&self) -> &[Item] {
        &self.items
    }

    fn has_records(&self) -> bool {
        matches!(&self.catalog, Catalog::Records(_))
    }

    fn path(&self, item: usize) -> Vec<u8> {
        self.names[self.places[item].path.clone()].to_vec()
    }

    fn about(&self, item: usize) -> Result<About, Failure> {
        let dataset = &self.opened.dataset;
        match self.places[item].node {
            Node::Folder(folder) => {
                let stored = self.catalog.attributes(folder).copied().unwrap_or_default();
                let modified = stored.modified.unwrap_or_else(|| self.modified(0));
                let (mode, has_time) = (stored.mode, stored.modified.is_some());
                Ok(About { mode, modified, has_time, ..About::default() })
            }
            Node::Sample(sample) => {
                let stored = dataset.attributes(sample)?;
                let located = self.locate(sample)?;
                let modified = stored.modified.unwrap_or_else(|| self.modified(located.part));
                let mut target = Vec::new();
                if stored.kind == Kind::Symlink {
                    target = dataset.link_target(sample)?;
                }
                let (mode, has_time) = (stored.mode, stored.modified.is_some());
                Ok(About { mode, modified, has_time, checksum: checksum(&located), target })
            }
        }
    }

    fn together(&self, items: &[usize]) -> usize {
        let Some(first) = items.first().and_then(|item| self.located(*item).ok()) else { return 1 };
        let is_stream = self.container(&first).stream().is_some();
        let (start, mut bytes) = (first.sample.extent().start, 0u64);
        let mut fits = |item: &usize| {
            let Ok(located) = self.located(*item) else { return false };
            let (at, extent) = (located.sample, located.sample.extent());
            bytes = bytes.saturating_add(at.size_bytes());
            let is_near = match is_stream {
                true => bytes <= STREAM_SPAN_BYTES,
                false => {
                    extent.start >= start
                        && extent.end.saturating_sub(start) <= SPAN_BYTES
                        && bytes <= 2 * SPAN_BYTES
                        && !matches!(at.content, Content::Sparse(_))
                }
            };
            is_near
                && at.size_bytes() <= SPAN_BYTES
                && !at.damaged
                && located.container == first.container
        };
        items.iter().take_while(|item| fits(item)).count().max(1)
    }

    fn read(&self, items: &[usize], scratch: &mut Scratch) -> Vec<Result<Whole, Fault>> {
        let found: Vec<_> = items.iter().map(|item| self.located(*item)).collect();
        let whole: Result<Vec<Located>, Fault> = found.into_iter().collect();
        match whole {
            Ok(located) if self.container(&located[0]).stream().is_none() => {
                self.read_span(items, &located, scratch)
            }
            _ => self.read_each(items, scratch),
        }
    }

    fn stream(&self, item: usize, scratch: &mut Scratch, take: &mut Take) -> Result<(), Stop> {
        let located = self.located(item)?;
        if located.sample.damaged {
            return Err(Fault::Damaged.into());
        }
        if self.container(&located).stream().is_some() {
            return self.stream_pieces(&located, scratch, take);
        }
        let located = open::exact(&self.opened.dataset, &self.opened.store, &located)
            .map_err(|error| Fault::Structure(error.to_string()))?;
        match located.sample.content {
            Content::Sparse(_) => self.stream_pieces(&located, scratch, take),
            Content::Encoded(_) => self.stream_encoded(&located, scratch, take),
            Content::Stored | Content::Prefixed(_) => {
                let prefix = self.prefix(&located)?;
                if !prefix.is_empty() {
                    take(Chunk::Data(&prefix))?;
                }
                let mut crc = Checking::of(located.sample.checksum);
                self.stored(&located, &mut scratch.buffer, &mut |bytes, _| {
                    crc.see(&Chunk::Data(bytes));
                    take(Chunk::Data(bytes)).map_err(Stop::Failed)
                })?;
                Ok(crc.compare()?)
            }
        }
    }
}

impl Containers {
    /// Reads files that lie one behind the other with one read.
    fn read_span(
        &self,
        items: &[usize],
        located: &[Located],
        scratch: &mut Scratch,
    ) -> Vec<Result<Whole, Fault>> {
        let start = located[0].sample.extent().start;
        let end = located.iter().map(|l| l.sample.extent().end).max().unwrap_or(start);
        let length = (end - start) as usize;
        let more: u64 = located.iter().map(made_bytes).sum();
        scratch.buffer.reserve(length + more as usize);
        let target = &mut scratch.buffer.as_mut_slice()[..length];
        if self.part(&located[0]).read(target, start, length).is_err() {
            // One of them is to blame, the others may be fine.
            return self.read_each(items, scratch);
        }
        let mut results = Vec::with_capacity(items.len());
        let mut made = length;
        for located in located {
            let extent = located.sample.extent();
            let range = (extent.start - start) as usize..(extent.end - start) as usize;
            results.push(self.admit(located, range, &mut made, &mut scratch.buffer));
        }
        let mut other = Scratch::default();
        for (item, result) in items.iter().zip(&mut results) {
            if result.as_ref().is_ok_and(Option::is_none) {
                // Not with this buffer: the others lie in it.
                *result = self.read_one(*item, &mut other).map(Some);
            }
        }
        let all = results.into_iter().map(|result| result?.ok_or(Fault::Damaged));
        all.collect()
    }

    /// Checks a file whose whole extent lies in the buffer; what must be made from that is put behind `made`.
    /// `None`: it lies elsewhere.
    fn admit(
        &self,
        located: &Located,
        extent: Range<usize>,
        made: &mut usize,
        buffer: &mut Buffer,
    ) -> Result<Option<Whole>, Fault> {
        let (at, container) = (located.sample, self.container(located));
        if at.damaged {
            return Err(Fault::Damaged);
        }
        let stored = extent.start + at.lead_bytes as usize..extent.end;
        if at.lead_bytes > 0 {
            let lead = &buffer.as_slice()[extent.start..stored.start];
            match container.check_lead(located.index, lead) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => return Err(Fault::Structure(error.to_string())),
            }
        }
        let out = *made..*made + made_bytes(located) as usize;
        let (read, free) = buffer.as_mut_slice().split_at_mut(*made);
        let (read, free) = (&read[stored.clone()], &mut free[..out.len()]);
        match at.content {
            Content::Stored | Content::Sparse(_) => {
                check(at.checksum, read)?;
                return Ok(Some(Whole { bytes: Bytes::At(stored), checksum: at.checksum }));
            }
            Content::Prefixed(_) => {
                check(at.checksum, read)?;
                let prefix = self.prefix(located)?;
                let (before, behind) = free.split_at_mut(prefix.len());
                before.copy_from_slice(&prefix);
                behind.copy_from_slice(read);
            }
            Content::Encoded(_) => {
                let decoded = container.decode(located.index, read, free);
                decoded.map_err(|error| Fault::Structure(error.to_string()))?;
                check(at.checksum, free)?;
            }
        }
        *made = out.end;
        let bytes = Bytes::At(out);
        Ok(Some(Whole { bytes, checksum: checksum(located) }))
    }

    fn read_each(&self, items: &[usize], scratch: &mut Scratch) -> Vec<Result<Whole, Fault>> {
        items.iter().map(|item| self.read_one(*item, scratch)).collect()
    }

    fn read_one(&self, item: usize, scratch: &mut Scratch) -> Result<Whole, Fault> {
        let mut bytes = Vec::new();
        let read = self.stream(item, scratch, &mut |chunk| {
            match chunk {
                Chunk::Data(data) => bytes.extend_from_slice(data),
                Chunk::Hole(length) => bytes.resize(bytes.len() + length as usize, 0),
            }
            Ok(())
        });
        match read {
            Ok(()) => Ok(Whole { bytes: Bytes::Own(bytes), checksum: None }),
            Err(Stop::Bad(fault)) => Err(fault),
            Err(Stop::Failed(failure)) => Err(Fault::Unreadable(failure.to_string())),
        }
    }

    fn prefix(&self, located: &Located) -> Result<Vec<u8>, Fault> {
        let Content::Prefixed(bytes) = located.sample.content else { return Ok(Vec::new()) };
        match self.container(located).prefix(located.index) {
            Ok(prefix) if prefix.len() as u64 == u64::from(bytes) => Ok(prefix),
            Ok(_) => Err(Fault::Damaged),
            Err(error) => Err(Fault::Structure(error.to_string())),
        }
    }

    /// Reads the stored bytes of a file piece by piece; says of each whether it is the last.
    fn stored(
        &self,
        located: &Located,
        buffer: &mut Buffer,
        take: &mut Stored,
    ) -> Result<(), Stop> {
        let at = located.sample;
        let mut done = 0;
        buffer.reserve(SPAN_BYTES as usize);
        while done < at.length_bytes {
            let length = (at.length_bytes - done).min(SPAN_BYTES) as usize;
            let target = &mut buffer.as_mut_slice()[..length];
            self.fetch(located, target, at.offset_bytes + done)?;
            done += length as u64;
            take(target, done == at.length_bytes)?;
        }
        Ok(())
    }

    fn fetch(&self, located: &Located, target: &mut [u8], offset_bytes: u64) -> Result<(), Fault> {
        let length = target.len();
        let read = self.part(located).read(target, offset_bytes, length);
        read.map_err(|error| Fault::Unreadable(error.to_string()))
    }

    /// Decodes a file step by step, or at once if its encoding or its size says so.
    fn stream_encoded(
        &self,
        located: &Located,
        scratch: &mut Scratch,
        take: &mut Take,
    ) -> Result<(), Stop> {
        let (at, container) = (located.sample, self.container(located));
        let decoder = container
            .decoder(located.index, None)
            .map_err(|error| Fault::Structure(error.to_string()))?;
        let Some(mut decoder) = decoder.filter(|_| at.size_bytes() > SPAN_BYTES) else {
            return self.decode_whole(located, scratch, take);
        };
        let (mut crc, mut given) = (Checking::of(at.checksum), 0);
        let mut out = vec![0; SPAN_BYTES as usize];
        self.stored(located, &mut scratch.buffer, &mut |mut bytes, is_last| {
            loop {
                let step = decoder.decode(bytes, &mut out, is_last).map_err(Fault::Structure)?;
                let decoded = &out[..step.given];
                crc.see(&Chunk::Data(decoded));
                given += step.given as u64;
                bytes = &bytes[step.taken..];
                if given > at.size_bytes() {
                    return Err(Fault::Structure("more bytes than it should be".into()).into());
                }
                if !decoded.is_empty() {
                    take(Chunk::Data(decoded))?;
                }
                if step.is_end || (step.given < out.len() && bytes.is_empty()) {
                    return Ok(());
                }
                if step.given == 0 && step.taken == 0 {
                    return Err(Fault::Structure("the encoding ends early".into()).into());
                }
            }
        })?;
        if given < at.size_bytes() {
            let error = format!("{given} bytes instead of {}", at.size_bytes());
            return Err(Fault::Structure(error).into());
        }
        Ok(crc.compare()?)
    }

    fn decode_whole(
        &self,
        located: &Located,
        scratch: &mut Scratch,
        take: &mut Take,
    ) -> Result<(), Stop> {
        let at = located.sample;
        if at.size_bytes().max(at.length_bytes) > MAX_DECODED_BYTES {
            let error = format!("more than {MAX_DECODED_BYTES} bytes to decode at once");
            return Err(Fault::Structure(error).into());
        }
        let mut stored = vec![0; at.length_bytes as usize];
        self.fetch(located, &mut stored, at.offset_bytes)?;
        scratch.buffer.reserve(at.size_bytes() as usize);
        let out = &mut scratch.buffer.as_mut_slice()[..at.size_bytes() as usize];
        let decoded = self.container(located).decode(located.index, &stored, out);
        decoded.map_err(|error| Fault::Structure(error.to_string()))?;
        check(at.checksum, out)?;
        Ok(take(Chunk::Data(out))?)
    }

    /// Reads a file that is pieces of its container, or of the stream that this is.
    fn stream_pieces(
        &self,
        located: &Located,
        scratch: &mut Scratch,
        take: &mut Take,
    ) -> Result<(), Stop> {
        let (size, container) = (located.sample.size_bytes(), self.container(located));
        let mut crc = Checking::of(located.sample.checksum);
        let take: &mut Take = &mut |chunk| {
            crc.see(&chunk);
            take(chunk)
        };
        let mut at = 0;
        while at < size {
            let piece = container.piece(located.index, at);
            let piece = piece.map_err(|error| Fault::Structure(error.to_string()))?;
            let Some(piece) = piece.filter(|piece| piece.at_bytes < size) else {
                take(Chunk::Hole(size - at))?;
                break;
            };
            if piece.at_bytes > at {
                take(Chunk::Hole(piece.at_bytes - at))?;
                at = piece.at_bytes;
            }
            let end = (piece.at_bytes + piece.length_bytes).min(size);
            while at < end {
                let place = piece.offset_bytes + (at - piece.at_bytes);
                let length = (end - at).min(SPAN_BYTES);
                at += match container.stream() {
                    Some(_) => self.decoded(located, place, length, scratch, take)?,
                    None => {
                        let base = self.opened.dataset.base_of(located.container);
                        scratch.buffer.reserve(length as usize);
                        let target = &mut scratch.buffer.as_mut_slice()[..length as usize];
                        self.fetch(located, target, base + place)?;
                        take(Chunk::Data(target))?;
                        length
                    }
                };
            }
        }
        Ok(crc.compare()?)
    }

    /// Gives bytes of the decoded stream from `place` on, up to `length` of them, and says how many.
    fn decoded(
        &self,
        located: &Located,
        place: u64,
        length: u64,
        scratch: &mut Scratch,
        take: &mut Take,
    ) -> Result<u64, Stop> {
        let number = located.container;
        let interval = self.container(located).stream().and_then(|index| index.interval(place));
        let interval = interval.ok_or(Fault::Damaged)?;
        let there = |kept: &&(usize, u64, Vec<u8>)| (kept.0, kept.1) == (number, interval.number);
        if scratch.interval.as_ref().filter(there).is_none() {
            let mut stored = vec![0; (interval.stored.end - interval.stored.start) as usize];
            let base = self.opened.dataset.base_of(number);
            self.fetch(located, &mut stored, base + interval.stored.start)?;
            let mut out = scratch.interval.take().map_or_else(Vec::new, |kept| kept.2);
            out.resize((interval.decoded.end - interval.decoded.start) as usize, 0);
            let index = self.container(located).stream().ok_or(Fault::Damaged)?;
            index.decode(interval.number, &stored, &mut out).map_err(Fault::Structure)?;
            scratch.interval = Some((number, interval.number, out));
        }
        let Some((_, _, bytes)) = &scratch.interval else { return Err(Fault::Damaged.into()) };
        let from = (place - interval.decoded.start) as usize;
        let to = bytes.len().min(from + length as usize);
        take(Chunk::Data(&bytes[from..to]))?;
        Ok((to - from) as u64)
    }
}

/// Takes stored bytes, and whether they are the last.
type Stored<'a> = dyn FnMut(&[u8], bool) -> Result<(), Stop> + 'a;

/// The checksum of a file that has one, counted as its pieces come.
struct Checking(Option<(Checksum, Hasher)>);

impl Checking {
    fn of(expected: Option<Checksum>) -> Self {
        Self(expected.map(|expected| (expected, expected.hasher())))
    }

    fn see(&mut self, chunk: &Chunk) {
        static ZEROS: [u8; 65536] = [0; 65536];
        let Some((_, crc)) = &mut self.0 else { return };
        match *chunk {
            Chunk::Data(bytes) => crc.update(bytes),
            Chunk::Hole(mut left) => {
                while left > 0 {
                    let length = left.min(ZEROS.len() as u64);
                    crc.update(&ZEROS[..length as usize]);
                    left -= length;
                }
            }
        }
    }

    fn compare(self) -> Result<(), Fault> {
        self.0.map_or(Ok(()), |(expected, crc)| {
            expected.compare(crc.finish()).map_err(Fault::Checksum)
        })
    }
}

/// What of a file is made from its stored bytes, and not these themselves.
fn made_bytes(located: &Located) -> u64 {
    match located.sample.content {
        Content::Stored | Content::Sparse(_) => 0,
        Content::Prefixed(_) | Content::Encoded(_) => located.sample.size_bytes(),
    }
}

/// The checksum of the file that is shown, if it is stored.
fn checksum(located: &Located) -> Option<Checksum> {
    let is_of_file = !matches!(located.sample.content, Content::Prefixed(_));
    located.sample.checksum.filter(|_| is_of_file && !located.sample.damaged)
}

fn check(expected: Option<Checksum>, bytes: &[u8]) -> Result<(), Fault> {
    expected.map_or(Ok(()), |expected| expected.check(bytes).map_err(Fault::Checksum))
}
