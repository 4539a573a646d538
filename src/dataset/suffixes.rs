//! `suffix=auto`: reads the first bytes of samples, and chooses suffixes by them.
//!
//! If samples differ, the first bytes of all of them are read when the names are made, so that lookups read nothing.
//! Several threads take batches of samples; samples of a batch that lie close together are read with one read. Each
//! sample takes one byte of memory.
//!
//! Imports `open.rs`, `options.rs` and `parallel.rs` of this directory.

use super::open::{Opened, exact, read_stored};
use super::options::Work;
use super::parallel;
use crate::catalog::{Dataset, Located, Suffix, Suffixes};
use crate::failure::{Exit, Failure};
use crate::format::{self, Container, Content, Sample, magic, shown};
use crate::store::{Profile, Store};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The number of samples that decide whether all are of one kind.
const LOOK_AT: u64 = 64;
/// The number of objects' samples that are read at a time.
const LOOKS_TOGETHER: usize = 16;
/// A larger sample is not decoded for its first bytes.
const LOOK_BYTES: u64 = 4 << 20;
/// The number of samples in a thread's batch.
const BATCH: usize = 4096;

impl Opened {
    /// The suffixes by the first bytes of samples: one for all if some samples, spread over the dataset, agree;
    /// otherwise one for each. With `allow_damaged`, a sample that cannot be read has no suffix.
    ///
    /// # Errors
    /// First bytes cannot be read, or the work was cancelled.
    pub(super) fn suffix_by_content(&self, allow_damaged: bool) -> Result<Suffix, Failure> {
        let kinds = self.look(&|_| true)?;
        let mut suffixes = kinds.iter().map(|kind| kind.map_or("", |k| k.suffix));
        let first = suffixes.next().unwrap_or("");
        if suffixes.all(|suffix| suffix == first) {
            return Ok(Suffix::Fixed(first.to_owned()));
        }
        Ok(Suffix::PerSample(Suffixes::new(self.suffix_codes(allow_damaged)?)))
    }

    /// The kinds of some of the samples that `is_shown` admits, spread over the dataset, by their first bytes.
    pub(crate) fn look(
        &self,
        is_shown: &dyn Fn(u64) -> bool,
    ) -> Result<Vec<Option<magic::Kind>>, Failure> {
        let samples = self.dataset.len();
        let looks = samples.min(LOOK_AT);
        // Evenly spread, without overflow for any number of samples.
        let place = |look| (u128::from(samples) * u128::from(look) / u128::from(looks)) as u64;
        // Reads of an object wait for its store.
        let threads = if self.store.has_objects() { LOOKS_TOGETHER } else { 1 };
        let places = (0..looks).map(place).filter(|sample| is_shown(*sample)).collect();
        let heads = parallel::map(places, threads, &|sample| {
            Ok(head(&self.dataset, &self.store, sample)?)
        })?;
        Ok(heads.iter().filter(|head| !head.is_empty()).map(|head| magic::sniff(head)).collect())
    }

    /// The codes of all samples, for [`Suffixes::new`].
    fn suffix_codes(&self, allow_damaged: bool) -> Result<Vec<u8>, Failure> {
        let samples = self.dataset.len();
        let length = usize::try_from(samples)
            .map_err(|_| Failure::new(Exit::Malformed, "more samples than memory can hold"))?;
        let mut codes = vec![0; length];
        let scan = Scan {
            opened: self,
            table: magic::suffixes(),
            allow_damaged,
            done: AtomicU64::new(0),
            failure: Mutex::new(None),
        };
        self.watch.begin(Work::Suffixes, samples);
        let batches = Mutex::new(codes.chunks_mut(BATCH).enumerate());
        let threads = self.store.profile().first_depth.min(length.div_ceil(BATCH));
        parallel::on_threads(threads, &|| {
            let next = || batches.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some((number, codes)) = next() {
                if !scan.take(number as u64 * BATCH as u64, codes) {
                    break;
                }
            }
        });
        self.watch.end();
        match scan.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(failure) => Err(failure),
            None => Ok(codes),
        }
    }
}

/// A pass over the first bytes of all samples.
struct Scan<'a> {
    opened: &'a Opened,
    table: Vec<&'static str>,
    allow_damaged: bool,
    done: AtomicU64,
    failure: Mutex<Option<Failure>>,
}

impl Scan<'_> {
    /// Finds the codes of the samples from `first` on; false if the pass is to end.
    fn take(&self, first: u64, codes: &mut [u8]) -> bool {
        let mut failure = self.failure();
        if failure.is_none() && self.opened.watch.is_cancelled() {
            *failure = Some(Failure::interrupted());
        }
        if failure.is_some() {
            return false;
        }
        drop(failure);
        if let Err(error) = self.fill(first, codes) {
            let cure = "suffix=auto needs the first bytes of every sample (suffix=.jpg needs none)";
            self.failure().get_or_insert(Failure::from(error).context(cure));
            return false;
        }
        let before = self.done.fetch_add(codes.len() as u64, Ordering::Relaxed);
        self.opened.watch.done(before + codes.len() as u64);
        true
    }

    fn failure(&self) -> std::sync::MutexGuard<'_, Option<Failure>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, first: u64, codes: &mut [u8]) -> format::Result<()> {
        let Opened { dataset, store, .. } = self.opened;
        let mut wanted = Vec::new();
        for (place, _) in codes.iter().enumerate() {
            match dataset.locate(first + place as u64) {
                Ok(Some(located)) => {
                    if let Some(length) = needed(&located.sample) {
                        let at = located.sample;
                        let range = at.extent().start..at.offset_bytes.saturating_add(length);
                        wanted.push(Wanted { place, located, range });
                    }
                }
                Ok(None) => {}
                Err(error) => self.unless_corrupt(error)?,
            }
        }
        wanted.sort_unstable_by_key(|wanted| (wanted.located.part, wanted.range.start));
        let mut rest = &wanted[..];
        while !rest.is_empty() {
            let (span, behind) = rest.split_at(span_length(rest, store.profile()));
            self.read(span, codes)?;
            rest = behind;
        }
        Ok(())
    }

    /// Reads the ranges of these samples with one read, or each with its own if that fails.
    fn read(&self, span: &[Wanted], codes: &mut [u8]) -> format::Result<()> {
        let Opened { dataset, store, .. } = self.opened;
        let start = span.first().map_or(0, |wanted| wanted.range.start);
        let end = span.iter().map(|wanted| wanted.range.end).max().unwrap_or(start);
        let part = span.first().map_or(0, |wanted| wanted.located.part);
        let bytes = read_stored(store.part(part), start, end - start).ok();
        for Wanted { place, located, range } in span {
            let here = (range.start - start) as usize..(range.end - start) as usize;
            let extent = bytes.as_ref().and_then(|bytes| bytes.get(here));
            let found = match extent {
                Some(extent) => head_in(dataset, located, extent),
                None => Ok(None),
            };
            let number = dataset.number(located.container, located.index);
            let found = found.and_then(|found| match found {
                Some(head) => Ok(head),
                None => head(dataset, store, number),
            });
            match found {
                Ok(head) => codes[*place] = self.code(&head),
                Err(error) => self.unless_corrupt(error)?,
            }
        }
        Ok(())
    }

    fn code(&self, head: &[u8]) -> u8 {
        let kind = magic::sniff(head);
        let number = kind.and_then(|kind| self.table.iter().position(|s| *s == kind.suffix));
        number.and_then(|number| u8::try_from(number + 1).ok()).unwrap_or(0)
    }

    /// Ignores corrupt samples, which get no suffix. A failed read is an error: it may succeed next time, and names
    /// must not depend on that.
    fn unless_corrupt(&self, error: format::Error) -> format::Result<()> {
        match error {
            format::Error::Unreadable { .. } if !self.allow_damaged => Err(error),
            _ => Ok(()),
        }
    }
}

/// The bytes to read of a sample.
struct Wanted {
    /// Its position in the batch.
    place: usize,
    located: Located,
    /// The range in its part: the header bytes, and the stored bytes that are needed.
    range: Range<u64>,
}

/// The number of samples, in the order of their offsets, that are read together.
fn span_length(wanted: &[Wanted], profile: &Profile) -> usize {
    let Some(first) = wanted.first() else { return 0 };
    let mut end = first.range.end;
    for (number, next) in wanted.iter().enumerate().skip(1) {
        let gap = next.range.start.saturating_sub(end);
        end = end.max(next.range.end);
        let length = end - first.range.start;
        let is_near = gap <= profile.merge_gap_bytes && length <= profile.max_merged_bytes;
        if next.located.part != first.located.part || !is_near {
            return number;
        }
    }
    wanted.len()
}

/// How many of a sample's stored bytes its first bytes need. `None` if they are not read.
fn needed(sample: &Sample) -> Option<u64> {
    match sample.content {
        _ if sample.damaged => None,
        Content::Stored | Content::Prefixed(_) => {
            Some(sample.length_bytes.min(magic::HEAD_BYTES as u64))
        }
        Content::Encoded(size) => {
            (size.max(sample.length_bytes) <= LOOK_BYTES).then_some(sample.length_bytes)
        }
        Content::Sparse(_) => None,
    }
}

/// The unchecked first bytes of a sample's file, for a guess. Empty if they are not read.
fn head(dataset: &Dataset, store: &Store, sample: u64) -> format::Result<Vec<u8>> {
    let Some(located) = dataset.locate(sample)? else { return Ok(Vec::new()) };
    if located.sample.damaged {
        return Ok(Vec::new());
    }
    let located = exact(dataset, store, &located)?;
    let at = located.sample;
    let Some(length) = needed(&at) else { return Ok(Vec::new()) };
    let stored = read_stored(store.part(located.part), at.offset_bytes, length)?;
    decode(dataset.containers()[located.container].as_ref(), &located, stored)
}

/// Like [`head`], from the sample's header bytes and stored bytes in `extent`. `None` if the header says that the
/// sample lies elsewhere.
fn head_in(dataset: &Dataset, located: &Located, extent: &[u8]) -> format::Result<Option<Vec<u8>>> {
    let container = dataset.containers()[located.container].as_ref();
    let (header, stored) =
        extent.split_at((located.sample.header_bytes as usize).min(extent.len()));
    if !header.is_empty() {
        container.check_header(located.index, header)?;
        let number = dataset.number(located.container, located.index);
        let is_here = dataset.locate(number)?.is_some_and(|now| {
            (now.part, now.sample.offset_bytes) == (located.part, located.sample.offset_bytes)
                && now.sample.content == located.sample.content
                && now.sample.length_bytes == located.sample.length_bytes
        });
        if !is_here {
            return Ok(None);
        }
    }
    decode(container, located, stored.to_vec()).map(Some)
}

/// Decodes the first bytes of a file from its stored bytes.
fn decode(
    container: &dyn Container,
    located: &Located,
    stored: Vec<u8>,
) -> format::Result<Vec<u8>> {
    match located.sample.content {
        Content::Stored | Content::Sparse(_) => Ok(stored),
        Content::Prefixed(_) => {
            let mut head = container.prefix(located.index)?;
            head.extend(stored);
            Ok(head)
        }
        Content::Encoded(size) => {
            let mut out = vec![0; size as usize];
            let decoded = shown::decode(container, located.index, &stored, &mut out);
            Ok(decoded.map_or_else(|_| Vec::new(), |()| out))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog, Node, ROOT};
    use crate::dataset::{NameOptions, Options, Unwatched, Watch, open_parts};
    use crate::format::ffrecord::Writer;
    use crate::store::testing::{Faraway, Fate, LONG_PATIENCE};
    use std::io::Cursor;
    use std::sync::Arc;

    /// Samples that are JPEG images, PNG images, text, or empty, in turn.
    fn samples(count: usize) -> Vec<Vec<u8>> {
        let kinds: [&[u8]; 4] = [b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"text", b""];
        let sample = |number: usize| match kinds[number % 4] {
            b"" => Vec::new(),
            kind => [kind, &vec![7; number % 300]].concat(),
        };
        (0..count).map(sample).collect()
    }

    fn opened(
        samples: &[Vec<u8>],
        fates: impl FnOnce(&[u8]) -> Vec<(Range<u64>, Fate)>,
    ) -> (Opened, Arc<Faraway>) {
        let mut writer = Writer::new(Cursor::new(Vec::new()), samples.len() as u64).unwrap();
        for sample in samples {
            writer.write_sample(&mut &sample[..]).unwrap();
        }
        let bytes = writer.finish().unwrap().into_inner();
        let fates = fates(&bytes);
        let (part, store) = Faraway::part(LONG_PATIENCE, bytes, &fates);
        let watch: Arc<dyn Watch> = Arc::new(Unwatched);
        (open_parts(vec![part], &Options::default(), &watch).unwrap(), store)
    }

    fn auto() -> NameOptions {
        NameOptions { suffix: Some("auto".to_owned()), ..NameOptions::default() }
    }

    fn names(catalog: &Catalog, opened: &Opened) -> Vec<String> {
        let mut names = Vec::new();
        let list = &mut |name: &[u8], _| {
            names.push(String::from_utf8(name.to_vec()).unwrap());
            true
        };
        catalog.list(&opened.dataset, ROOT, 0, list).unwrap();
        names
    }

    fn expected(count: usize) -> Vec<String> {
        (0..count).map(|i| format!("{i:06}{}", [".jpg", ".png", "", ""][i % 4])).collect()
    }

    #[test]
    fn suffixes_that_differ_are_read_when_names_are_made_and_lookups_read_nothing() {
        let (opened, store) = opened(&samples(10_000), |_| Vec::new());
        let before = store.demands();
        let catalog = opened.named(&auto(), false).unwrap();
        // 64 samples take few reads, as adjacent ones are read together.
        let reads = store.demands() - before;
        assert!(reads < 100, "{reads} reads");
        store.evict();
        let before = store.demands();
        let expected = expected(10_000);
        for (number, name) in expected.iter().enumerate() {
            let found = catalog.lookup(&opened.dataset, ROOT, name.as_bytes()).unwrap();
            assert_eq!(found, Some(Node::Sample(number as u64)));
        }
        assert_eq!(names(&catalog, &opened), expected);
        assert_eq!(store.demands(), before, "a lookup or a listing has read");
    }

    #[test]
    fn first_bytes_that_cannot_be_read_are_an_error_or_with_allow_damaged_no_suffix() {
        let samples = samples(4000);
        let bad: usize = samples[..101].iter().map(Vec::len).sum();
        // A PNG image that is not among the samples that are looked at first.
        let fates = |bytes: &[u8]| {
            let data = (bytes.len() - samples.iter().map(Vec::len).sum::<usize>() + bad) as u64;
            vec![(data..data + 1, Fate::Refused)]
        };
        let (opened, _store) = opened(&samples, fates);
        let failure = opened.named(&auto(), false).unwrap_err();
        assert!(failure.to_string().contains("suffix=auto"), "{failure}");
        let catalog = opened.named(&auto(), true).unwrap();
        let mut expected = expected(4000);
        expected[101] = "000101".to_owned();
        assert_eq!(names(&catalog, &opened), expected);
    }
}
