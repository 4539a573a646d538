//! An open HDF5 file.
//!
//! Imports shown datasets, chunks, names and headers of this directory.

use super::chunked::Chunked;
use super::object::{Extension, Headers};
use super::shown::{Builder, Content as Held, Shown};
use super::tree::{Entry, Name, ROOT, Tree};
use super::{NAME, input, superblock};
use crate::format::name::parts;
use crate::format::stream::{Interval, Intervals, Order};
use crate::format::{
    Attributes, Container, Content, Error, IndexChecksum, Kind, Member, Names, Node, OpenOptions,
    Piece, Result, Sample, Source, ending, npy,
};
use crate::format::{Fault, counted};
use std::sync::Arc;

/// An open file.
pub(super) struct Hdf5File {
    source: Arc<dyn Source>,
    names: Vec<Name>,
    shown: Vec<Shown>,
    chunks: Chunks,
    /// The numbers of the names of symbolic links, which stand behind all other samples.
    links: Vec<u32>,
    samples: u64,
    data_bytes: u64,
    warnings: Vec<String>,
}

/// The datasets in chunks of a file, whose intervals are numbered on from one dataset to the next.
struct Chunks(Vec<Chunked>);

impl Chunks {
    fn with(&self, is_before: impl Fn(&Chunked) -> bool) -> Option<&Chunked> {
        let behind = self.0.partition_point(is_before);
        self.0.get(behind.checked_sub(1)?)
    }
}

impl Intervals for Chunks {
    fn interval(&self, decoded_offset: u64) -> Option<Interval> {
        let chunked = self.with(|chunked| chunked.base <= decoded_offset)?;
        chunked.interval_at(decoded_offset.checked_sub(chunked.base)?)
    }

    fn nth(&self, number: u64) -> Option<Interval> {
        let chunked = self.with(|chunked| chunked.first <= number)?;
        chunked.interval(number.checked_sub(chunked.first)?)
    }

    fn order(&self, number: u64) -> Option<Order> {
        let chunked = self.with(|chunked| chunked.first <= number)?;
        chunked.order(number.checked_sub(chunked.first)?)
    }

    fn decode(&self, number: u64, stored: &[u8], out: &mut [u8]) -> Result<(), Fault> {
        let chunked =
            self.with(|chunked| chunked.first <= number).ok_or("there is no such chunk")?;
        let own = number.saturating_sub(chunked.first);
        let interval = chunked.interval(own).ok_or("there is no such chunk")?;
        let length = |range: &std::ops::Range<u64>| range.end.saturating_sub(range.start);
        if length(&interval.stored) != stored.len() as u64
            || length(&interval.decoded) != out.len() as u64
        {
            return Err(format!("chunk {own} has other lengths").into());
        }
        chunked.decode(own, stored, out)
    }
}

impl Hdf5File {
    pub(super) fn open(source: Arc<dyn Source>, options: &OpenOptions) -> Result<Self> {
        let reader = input::reader(source.as_ref());
        let Some(at) = superblock::find(reader, superblock::MAX_USER_BLOCK)? else {
            let found = format!("{} without one", counted(reader.len(), "byte"));
            return Err(reader.malformed(0, "HDF5's mark", found, ""));
        };
        let (input, heads) = superblock::read(reader, at, options.allow_damaged)?;
        let extension = heads.extension.map(|at| Extension::read(&input, at)).transpose();
        let (extension, damage) = match extension {
            Err(error @ Error::Malformed { .. }) if options.allow_damaged => {
                (Extension::default(), Some(error))
            }
            extension => (extension?.unwrap_or_default(), None),
        };
        if let Some(at) = extension.cache_image {
            // The bytes in the places of the image's structures are older, without a sign of it.
            let expected = "all of the file's structure in its place";
            let hint = ": HDF5's library puts it there when the file is opened to write";
            return Err(reader.malformed(at, expected, "some in an image of a cache", hint));
        }
        let headers = Headers::new(&input, extension);
        let mut build = Builder::new(&input, options);
        if let Some(error) = damage {
            let what = "the superblock's extension cannot be read";
            let text = "what it tells is not known, and the file may be shown as it was before";
            build.notes.add(|| format!("{what} ({error}): {text}"));
        }
        if heads.is_open {
            let text = "it is open for writing, or was not closed: what has not been written yet is not shown";
            build.notes.add(|| text.to_owned());
        }
        let tree = Tree::read(
            &input,
            (heads.root, headers),
            options.allow_damaged,
            &mut |name, messages| build.add(name, messages),
        )?;
        let Builder { shown, chunked, notes, samples, data_bytes, .. } = build;
        let Tree { names, notes: more } = tree;
        let links: Vec<u32> = (0..)
            .zip(&names)
            .filter(|(_, name)| matches!(name.entry, Entry::Link(_)))
            .map(|(number, _)| number)
            .collect();
        let part = source.name().clone();
        let warnings = notes.into_warnings(more, &part);
        let chunks = Chunks(chunked);
        Ok(Self { names, shown, chunks, links, samples, data_bytes, warnings, source })
    }

    /// The dataset of a sample, and the sample's number in it; `None` if the sample is a link, or does not exist.
    fn held(&self, index: u64) -> Option<(&Shown, u64)> {
        if index >= self.samples {
            return None;
        }
        let behind = self.shown.partition_point(|shown| shown.first <= index);
        // Datasets without samples stand before the dataset of the sample.
        let shown = self.shown.get(..behind)?.iter().rev().find(|shown| shown.count > 0)?;
        Some((shown, index.saturating_sub(shown.first)))
    }

    /// The dataset in chunks that a sample belongs to, the place of the sample's first byte, its length, and its prefix.
    fn in_chunks(&self, index: u64) -> Option<(&Chunked, u64, u64, &[u8])> {
        let (shown, number) = self.held(index)?;
        let Held::Chunked { number: which, bytes, prefix } = &shown.content else { return None };
        Some((self.chunks.0.get(*which)?, number.saturating_mul(*bytes), *bytes, prefix))
    }

    fn value_prefix(&self, index: u64) -> Option<Vec<u8>> {
        let (shown, number) = self.held(index)?;
        let Held::Values { values, item: Some((descr, item)) } = &shown.content else {
            return None;
        };
        let value = values.get(usize::try_from(number).ok()?)?;
        let count = u64::from(value.bytes.checked_div(*item).unwrap_or(0));
        Some(npy::literal_header(descr, &[count]))
    }

    /// The path of a name as it is shown.
    fn path(&self, number: u32) -> Vec<u8> {
        let mut path = self.tree_path(number);
        if let Some(Entry::Dataset(dataset)) = self.entry(number) {
            path.extend_from_slice(self.ending(dataset).as_bytes());
        }
        path
    }

    /// The path of a link as it is shown: with the ending of the link's target, so that even a name such as `.` can be
    /// shown.
    fn link_path(&self, number: u32, target: u32) -> Vec<u8> {
        let mut path = self.tree_path(number);
        if let Some(Entry::Dataset(dataset)) = self.entry(target) {
            path.extend_from_slice(self.ending(dataset).as_bytes());
        }
        path
    }

    fn tree_path(&self, number: u32) -> Vec<u8> {
        let (mut parts, mut at) = (Vec::new(), number);
        while at != ROOT {
            let Some(name) = self.names.get(at as usize) else { break };
            parts.push(&name.name[..]);
            at = name.parent;
        }
        parts.reverse();
        parts.join(&b'/')
    }

    fn entry(&self, number: u32) -> Option<Entry> {
        self.names.get(number as usize).map(|name| name.entry)
    }

    /// The ending of a dataset that is one file.
    fn ending(&self, dataset: u32) -> &'static str {
        match self.shown.get(dataset as usize) {
            Some(shown) if shown.is_directory => "",
            Some(shown) => match &shown.content {
                Held::Values { values, .. } => {
                    values.first().map_or("", |value| ending::named(value.ending))
                }
                _ => shown.ending,
            },
            None => "",
        }
    }

    fn visit_dataset(
        &self,
        path: Vec<u8>,
        dataset: u32,
        visit: &mut dyn FnMut(Member) -> Result<()>,
    ) -> Result<()> {
        let Some(shown) = self.shown.get(dataset as usize) else { return Ok(()) };
        if !shown.is_directory {
            let path = [&path, self.ending(dataset).as_bytes()].concat();
            return visit(Member { path: &path, node: Node::Sample(shown.first) });
        }
        visit(Member { path: &path, node: Node::Directory(Attributes::default()) })?;
        let width = shown.count.saturating_sub(1).max(1).ilog10().saturating_add(1).max(6) as usize;
        let mut row = path;
        row.push(b'/');
        let start = row.len();
        for number in 0..shown.count {
            let ending = match &shown.content {
                Held::Values { values, .. } => usize::try_from(number)
                    .ok()
                    .and_then(|number| values.get(number))
                    .map_or("", |value| ending::named(value.ending)),
                _ => shown.ending,
            };
            row.truncate(start);
            row.extend_from_slice(format!("{number:0width$}{ending}").as_bytes());
            let sample = shown.first.saturating_add(number);
            visit(Member { path: &row, node: Node::Sample(sample) })?;
        }
        Ok(())
    }
}

/// A sample that cannot be read.
fn damaged(bytes: u64, file_bytes: u64) -> Sample {
    let length_bytes = bytes.clamp(1, file_bytes.max(1));
    Sample { length_bytes, damaged: true, ..Sample::default() }
}

/// The content of a file that has a prefix of `prefix` bytes before the stored ones.
fn behind(prefix: usize) -> Content {
    match u32::try_from(prefix) {
        Ok(0) => Content::Stored,
        Ok(bytes) => Content::Prefixed(bytes),
        Err(_) => Content::Prefixed(u32::MAX),
    }
}

impl Container for Hdf5File {
    fn format(&self) -> &'static str {
        NAME
    }

    fn len(&self) -> u64 {
        self.samples.saturating_add(self.links.len() as u64)
    }

    fn sample(&self, index: u64) -> Result<Sample> {
        let file_bytes = self.source.len();
        let Some((shown, number)) = self.held(index) else {
            if index < self.len() {
                return Ok(Sample::default());
            }
            let expected = format!("a sample number below {}", self.len());
            let reader = input::reader(self.source.as_ref());
            return Err(reader.malformed(0, expected, index.to_string(), ""));
        };
        Ok(match &shown.content {
            Held::Plain { at, bytes, prefix } => Sample {
                offset_bytes: at.saturating_add(number.saturating_mul(*bytes)),
                length_bytes: *bytes,
                content: behind(prefix.len()),
                ..Sample::default()
            },
            Held::Chunked { number: which, bytes, prefix } => {
                let start = number.saturating_mul(*bytes);
                let range = start..start.saturating_add(*bytes);
                let chunked = self.chunks.0.get(*which).filter(|_| *bytes > 0);
                let stored = chunked.map_or(0..0, |chunked| chunked.stored(range));
                Sample {
                    offset_bytes: stored.start,
                    length_bytes: stored.end.saturating_sub(stored.start),
                    content: Content::Encoded(bytes.saturating_add(prefix.len() as u64)),
                    ..Sample::default()
                }
            }
            Held::Values { values, item } => {
                let value = usize::try_from(number).ok().and_then(|number| values.get(number));
                match value.filter(|value| !value.is_damaged) {
                    None => damaged(1, file_bytes),
                    Some(value) => Sample {
                        offset_bytes: value.at,
                        length_bytes: value.bytes.into(),
                        content: match item {
                            Some(_) => behind(self.value_prefix(index).unwrap_or_default().len()),
                            None => Content::Stored,
                        },
                        ..Sample::default()
                    },
                }
            }
            Held::Text(text) => Sample { content: behind(text.len()), ..Sample::default() },
            Held::Texts(texts) => {
                Sample { content: behind(texts.get(number).len()), ..Sample::default() }
            }
            Held::Damaged { bytes } => damaged(*bytes, file_bytes),
        })
    }

    fn check_unchanged(&self) -> std::io::Result<()> {
        self.source.check_unchanged()
    }

    fn index_is_fixed(&self) -> bool {
        true
    }

    fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    fn prefix(&self, index: u64) -> Result<Vec<u8>> {
        let Some((shown, number)) = self.held(index) else { return Ok(Vec::new()) };
        Ok(match &shown.content {
            Held::Plain { prefix, .. } | Held::Chunked { prefix, .. } => prefix.to_vec(),
            Held::Text(text) => text.to_vec(),
            Held::Texts(texts) => texts.get(number).to_vec(),
            Held::Values { .. } => self.value_prefix(index).unwrap_or_default(),
            Held::Damaged { .. } => Vec::new(),
        })
    }

    fn decode(&self, index: u64, stored: &[u8], out: &mut [u8]) -> Result<()> {
        let Some((chunked, start, length, prefix)) = self.in_chunks(index) else { return Ok(()) };
        let first = chunked.stored(start..start.saturating_add(length)).start;
        let (head, rest) = out.split_at_mut_checked(prefix.len()).unwrap_or_default();
        head.copy_from_slice(prefix.get(..head.len()).unwrap_or_default());
        let read = chunked.read(start, rest, &mut |range| {
            let place = |at: u64| usize::try_from(at.checked_sub(first)?).ok();
            let range = place(range.start).zip(place(range.end));
            let bytes = range.and_then(|(start, end)| stored.get(start..end));
            // The range of an interval without stored bytes lies outside of `stored`.
            Ok(bytes.unwrap_or_default().to_vec())
        });
        let reader = input::reader(self.source.as_ref());
        read.map_err(|fault| reader.faulty(first, "chunks of a dataset", fault))
    }

    fn has_intervals(&self) -> bool {
        !self.chunks.0.is_empty()
    }

    fn intervals(&self, index: u64) -> Option<&dyn Intervals> {
        self.in_chunks(index)?;
        Some(&self.chunks)
    }

    fn checks_intervals(&self, index: u64) -> bool {
        self.in_chunks(index).is_some_and(|(chunked, ..)| chunked.is_checked())
    }

    fn content_in_stream(&self, index: u64) -> Result<Content> {
        Ok(self.in_chunks(index).map_or(Content::Stored, |(.., prefix)| behind(prefix.len())))
    }

    fn piece(&self, index: u64, offset_bytes: u64) -> Result<Option<Piece>> {
        let Some((chunked, start, length, prefix)) = self.in_chunks(index) else { return Ok(None) };
        let prefix = prefix.len() as u64;
        let from = start.saturating_add(offset_bytes.saturating_sub(prefix));
        let end = start.saturating_add(length);
        let run = chunked.run_at(from).filter(|run| run.at < end && length > 0);
        Ok(run.map(|run| Piece {
            at_bytes: prefix.saturating_add(run.at.saturating_sub(start)),
            length_bytes: run.length.min(end.saturating_sub(run.at)),
            offset_bytes: run.decoded,
        }))
    }

    fn attributes(&self, index: u64) -> Result<Attributes> {
        let kind = if index >= self.samples { Kind::Symlink } else { Kind::File };
        Ok(Attributes { kind, ..Attributes::default() })
    }

    fn link_target(&self, index: u64) -> Result<Vec<u8>> {
        let place = index.checked_sub(self.samples).and_then(|place| usize::try_from(place).ok());
        let Some(number) = place.and_then(|place| self.links.get(place)) else {
            return Ok(Vec::new());
        };
        let Some(Entry::Link(target)) = self.entry(*number) else { return Ok(Vec::new()) };
        Ok(relative(&self.link_path(*number, target), &self.path(target)))
    }

    fn members(&self, visit: &mut dyn FnMut(Member) -> Result<()>) -> Result<()> {
        let mut link = self.samples;
        for (number, name) in (0..).zip(&self.names).skip(1) {
            match name.entry {
                Entry::Gone => (),
                Entry::Group => {
                    let path = self.tree_path(number);
                    visit(Member { path: &path, node: Node::Directory(Attributes::default()) })?;
                }
                Entry::Dataset(dataset) => {
                    self.visit_dataset(self.tree_path(number), dataset, visit)?;
                }
                Entry::Link(target) => {
                    let path = self.link_path(number, target);
                    visit(Member { path: &path, node: Node::Sample(link) })?;
                    link = link.saturating_add(1);
                }
            }
        }
        Ok(())
    }

    fn names(&self, _samples: u64) -> Result<Names> {
        Ok(Names::Members)
    }

    fn index_checksum(&self) -> IndexChecksum {
        IndexChecksum::None
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// The text of a link: from the directory of its stored path to another stored path, as the mount shows both.
pub(super) fn relative(link: &[u8], target: &[u8]) -> Vec<u8> {
    let mut path = b"../".repeat(parts(link).count().saturating_sub(1));
    path.extend_from_slice(&parts(target).collect::<Vec<_>>().join(&b'/'));
    if path.is_empty() { b".".to_vec() } else { path }
}
