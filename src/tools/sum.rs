//! All bytes of samples through a hash: on several threads, in order, each checked by what its container or
//! a sidecar has.

use crate::catalog::{Catalog, Dataset, Located};
use crate::dataset::hash::Algorithm;
use crate::dataset::open::Opened;
use crate::failure::Failure;
use crate::format::checksum::Hasher;
use crate::format::{Checksum, ChecksumKind, Content, Sample};
use crate::io::Buffer;
use crate::tools::interrupt::Interrupt;
use crate::tools::read::read_waiting;
use crate::vfs::{Options, Verify, Vfs, inode_of_sample};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::VecDeque;
use std::io::IsTerminal;

/// How much is read at a time.
const CHUNK_BYTES: u64 = 1 << 20;
/// Neighbours are read by one thread, so that the kernel reads ahead of it: up to so many bytes or samples.
const BATCH_BYTES: u64 = 4 << 20;
const BATCH_SAMPLES: usize = 512;
/// So many batches a thread may be ahead of the one whose results come next.
const AHEAD: usize = 4;

/// The samples of containers.
pub(crate) struct Samples {
    vfs: Vfs,
    interrupt: Interrupt,
    progress: ProgressBar,
}

/// Bytes of a container that samples of a batch lie in.
pub(crate) struct Fetched {
    buffer: Buffer,
    part: usize,
    start: u64,
    length: u64,
}

/// Whether its file is what is stored, perhaps behind a header.
fn is_simple(at: &Sample) -> bool {
    let as_stored = matches!(at.content, Content::Stored | Content::Prefixed(_));
    as_stored && !at.damaged && at.length_bytes > 0
}

impl Drop for Samples {
    fn drop(&mut self) {
        self.progress.finish_and_clear();
    }
}

/// Samples for one thread, and where it puts what it finds.
type Batch<T> = (Vec<u64>, Sender<Vec<(u64, T)>>);

impl Samples {
    /// `is_quiet`: what comes of them goes to where progress would be shown.
    pub(crate) fn new(opened: Opened, catalog: Catalog, is_quiet: bool) -> Self {
        let bytes = opened.dataset.data_bytes();
        // Checked here, in the one pass that hashes: the engine would read what is large twice.
        let options = Options { verify: Verify::Off, ..Options::default() };
        let vfs = opened.into_vfs(catalog, options);
        let progress = if is_quiet { ProgressBar::hidden() } else { progress(bytes) };
        Self { vfs, interrupt: Interrupt::listen(), progress }
    }

    pub(crate) fn dataset(&self) -> &Dataset {
        self.vfs.dataset()
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        self.vfs.catalog()
    }

    /// Does `work` for each sample on `jobs` threads, and gives what comes of it to `take`, in order.
    pub(crate) fn in_order<T: Send>(
        &self,
        wanted: impl Iterator<Item = u64>,
        jobs: usize,
        work: &(dyn Fn(u64, &Fetched) -> T + Sync),
        take: &mut dyn FnMut(u64, T) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut wanted = wanted.peekable();
        std::thread::scope(|scope| {
            let (send, receive) = unbounded::<Batch<T>>();
            for _ in 0..jobs {
                let receive: Receiver<Batch<T>> = receive.clone();
                scope.spawn(move || {
                    let mut fetched =
                        Fetched { buffer: Buffer::empty(), part: 0, start: 0, length: 0 };
                    for (batch, done) in receive {
                        self.fetch(&batch, &mut fetched);
                        let each = batch.iter().map(|&sample| (sample, work(sample, &fetched)));
                        // Nobody listens any more if the rest is not wanted.
                        let _ = done.send(each.collect());
                    }
                });
            }
            let mut waiting = VecDeque::new();
            loop {
                while waiting.len() < AHEAD * jobs && wanted.peek().is_some() {
                    let (done, result) = bounded(1);
                    let _ = send.send((self.batch(&mut wanted)?, done));
                    waiting.push_back(result);
                }
                let Some(next) = waiting.pop_front() else { return Ok(()) };
                let done = next.recv().unwrap_or_default();
                if self.interrupt.requested() {
                    return Err(Failure::interrupted());
                }
                for (sample, result) in done {
                    take(sample, result)?;
                }
            }
        })
    }

    /// The next samples that are read by one thread; at least one.
    fn batch(
        &self,
        wanted: &mut std::iter::Peekable<impl Iterator<Item = u64>>,
    ) -> Result<Vec<u64>, Failure> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_SAMPLES
            && bytes < BATCH_BYTES
            && let Some(sample) = wanted.next()
        {
            let located = self.dataset().locate(sample)?;
            bytes += located.map_or(0, |located| located.sample.size_bytes());
            batch.push(sample);
        }
        Ok(batch)
    }

    /// Fetches the stored bytes of several samples at once, if they lie one behind the other. What does not, or
    /// cannot be read, is left to the engine, which reads sample by sample and tells what is wrong.
    fn fetch(&self, batch: &[u64], fetched: &mut Fetched) {
        fetched.length = 0;
        let located = batch.iter().filter_map(|&sample| self.dataset().locate(sample).ok()?);
        let simple: Vec<_> = located.filter(|located| is_simple(&located.sample)).collect();
        let [first, _, ..] = simple[..] else { return };
        let alike = simple.iter().filter(|located| located.part == first.part);
        let (mut range, mut bytes) = (first.sample.extent(), 0);
        for extent in alike.map(|located| located.sample.extent()) {
            range = range.start.min(extent.start)..range.end.max(extent.end);
            bytes += extent.end - extent.start;
        }
        let length = range.end - range.start;
        if length > 2 * BATCH_BYTES || bytes < length / 2 {
            return;
        }
        fetched.buffer.reserve(length as usize);
        let target = &mut fetched.buffer.as_mut_slice()[..length as usize];
        if self.vfs.store().part(first.part).read(target, range.start, length as usize).is_ok() {
            (fetched.part, fetched.start, fetched.length) = (first.part, range.start, length);
        }
    }

    /// The hash of what a sample's file shows; `None`: it is bad (which was logged), or the user wants an end.
    pub(crate) fn hash(
        &self,
        sample: u64,
        fetched: &Fetched,
        algorithm: Algorithm,
    ) -> Option<Vec<u8>> {
        let mut hash = algorithm.begin();
        self.read(sample, fetched, &mut |bytes, _| hash.update(bytes))?;
        Some(hash.finish())
    }

    /// The CRC-32 that a sidecar has of a sample.
    pub(crate) fn crc32(&self, sample: u64, fetched: &Fetched) -> Option<u32> {
        let located = self.dataset().locate(sample).ok().flatten()?;
        if let Content::Sparse(_) = located.sample.content {
            let stored = self.stored_checksum(&located, ChecksumKind::Crc32);
            return stored.map_err(|why| self.log(&located, &why)).ok()?.crc32();
        }
        let mut hasher = Hasher::new(ChecksumKind::Crc32);
        self.read(sample, fetched, &mut |bytes, prefix| hasher.update(&bytes[prefix..]))?;
        hasher.finish().crc32()
    }

    /// Reads all of a sample, and checks it if it has a checksum. `take` is also told how many of the bytes
    /// the view has put before those of the container.
    fn read(
        &self,
        sample: u64,
        fetched: &Fetched,
        take: &mut dyn FnMut(&[u8], usize),
    ) -> Option<()> {
        let located = match self.dataset().locate(sample) {
            Ok(located) => located?,
            Err(error) => {
                tracing::error!("{error}");
                return None;
            }
        };
        let at = located.sample;
        let mut hasher = at.checksum.map(Checksum::hasher);
        if let Some((prefix, stored)) = self.in_fetched(&located, fetched) {
            take(&prefix, prefix.len());
            take(stored, 0);
            if let Some(hasher) = &mut hasher {
                hasher.update(stored);
            }
            self.progress.inc(at.size_bytes());
            return self.end(&located, hasher);
        }
        let mut prefix = match at.content {
            Content::Prefixed(bytes) => u64::from(bytes),
            _ => 0,
        };
        let mut done = 0;
        // A damaged one is read too, to hear what it is.
        while done < at.size_bytes() || at.damaged {
            if self.interrupt.requested() {
                return None;
            }
            let ino = inode_of_sample(sample);
            let reply = read_waiting(&self.vfs, ino, done, CHUNK_BYTES);
            let Ok(bytes) = reply.bytes() else { return None };
            let ahead = prefix.min(bytes.len() as u64);
            take(bytes, ahead as usize);
            if let Some(hasher) = &mut hasher {
                hasher.update(&bytes[ahead as usize..]);
            }
            (done, prefix) = (done + bytes.len() as u64, prefix - ahead);
            self.progress.inc(bytes.len() as u64);
            self.vfs.finish(reply);
        }
        self.end(&located, hasher)
    }

    /// What the view puts before a sample, and its stored bytes, if they were fetched.
    fn in_fetched<'a>(
        &self,
        located: &Located,
        fetched: &'a Fetched,
    ) -> Option<(Vec<u8>, &'a [u8])> {
        let at = located.sample;
        if !is_simple(&at) || fetched.part != located.part {
            return None;
        }
        let extent = at.extent();
        let start = extent.start.checked_sub(fetched.start)?;
        let end = extent.end.checked_sub(fetched.start).filter(|&end| end <= fetched.length)?;
        let bytes = fetched.buffer.as_slice().get(start as usize..end as usize)?;
        let (lead, stored) = bytes.split_at_checked(at.lead_bytes as usize)?;
        let container = self.dataset().parts()[located.container].as_ref();
        if !lead.is_empty() && !container.check_lead(located.index, lead).ok()? {
            return None;
        }
        let Content::Prefixed(length) = at.content else { return Some((Vec::new(), stored)) };
        let prefix = container.prefix(located.index).ok()?;
        (prefix.len() as u64 == u64::from(length)).then_some((prefix, stored))
    }

    /// Compares what was read, and logs what is wrong.
    fn end(&self, located: &Located, found: Option<Hasher>) -> Option<()> {
        self.compare(located, found).map_err(|why| self.log(located, &why)).ok()
    }

    /// Compares with what the container or a sidecar has, if either does.
    fn compare(&self, located: &Located, shown: Option<Hasher>) -> Result<(), String> {
        let (Some(expected), Some(shown)) = (located.sample.checksum, shown) else { return Ok(()) };
        let found = match located.sample.content {
            Content::Sparse(_) => self.stored_checksum(located, expected.kind())?,
            _ => shown.finish(),
        };
        expected.compare(found).map_err(|mismatch| mismatch.to_string())
    }

    /// The checksum of what is stored of a file with holes.
    fn stored_checksum(&self, located: &Located, kind: ChecksumKind) -> Result<Checksum, String> {
        let (at, part) = (located.sample, self.vfs.store().part(located.part));
        let mut hasher = Hasher::new(kind);
        let mut buffer = vec![0; CHUNK_BYTES.min(at.length_bytes) as usize];
        let mut offset = at.offset_bytes;
        while offset < at.end_bytes() {
            if self.interrupt.requested() {
                return Err("interrupted".to_owned());
            }
            let length = (at.end_bytes() - offset).min(CHUNK_BYTES) as usize;
            let bytes = &mut buffer[..length];
            part.read(bytes, offset, length).map_err(|e| format!("cannot be read: {e}"))?;
            hasher.update(bytes);
            offset += length as u64;
        }
        Ok(hasher.finish())
    }

    fn log(&self, located: &Located, why: &str) {
        let container = self.vfs.store().part(located.part).name();
        let (sample, offset) = (located.index, located.sample.offset_bytes);
        tracing::error!("{container}: sample {sample} at byte {offset}: {why}");
    }
}

fn progress(bytes: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "{bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
