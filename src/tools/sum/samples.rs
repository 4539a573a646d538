//! Hashes all bytes of samples on several threads, with results in order; each sample is checked by the checksum in its
//! container or in a sidecar.

use crate::catalog::{Catalog, Dataset, Located};
use crate::dataset::Opened;
use crate::dataset::hash::{Algorithm, Hash};
use crate::failure::Failure;
use crate::format::{Checksum, ChecksumKind, Fault};
use crate::interrupt::Interrupt;
use crate::tools::reader::{
    OrderedWork, SampleChecker, SampleReader, Scratch, Span, Stop, in_order, next_span,
};
use indicatif::ProgressBar;

/// The number of spans by which a thread may be ahead of the results that come next.
const AHEAD: usize = 4;

/// The hashes of a sample, one for each algorithm; the fault of a bad sample.
pub(crate) type Hashes = Result<Vec<Vec<u8>>, Fault>;

/// Computes a result for each sample of a span.
type SpanWork<'a, T> = dyn Fn(&Span, &mut Scratch) -> Result<Vec<T>, Failure> + Sync + 'a;

/// The samples of open containers.
pub(crate) struct Samples {
    pub(crate) opened: Opened,
    pub(crate) catalog: Catalog,
    interrupt: Interrupt,
    progress: ProgressBar,
}

impl Drop for Samples {
    fn drop(&mut self) {
        self.progress.finish_and_clear();
    }
}

impl Samples {
    /// `progress` counts bytes.
    pub(crate) fn new(
        opened: Opened,
        catalog: Catalog,
        interrupt: Interrupt,
        progress: ProgressBar,
    ) -> Self {
        Self { opened, catalog, interrupt, progress }
    }

    pub(crate) fn dataset(&self) -> &Dataset {
        &self.opened.dataset
    }

    fn reader(&self) -> SampleReader<'_> {
        SampleReader::new(&self.opened, &self.interrupt)
    }

    /// Hashes the files of samples with the algorithms that `algorithms` chooses, and passes the hashes to `take`, in
    /// order.
    pub(crate) fn hash(
        &self,
        wanted: impl Iterator<Item = u64> + Send,
        threads: usize,
        algorithms: &(dyn Fn(u64) -> Vec<Algorithm> + Sync),
        take: &mut dyn FnMut(u64, Hashes) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let work = |span: &Span, scratch: &mut Scratch| self.hash_span(span, scratch, algorithms);
        self.in_order(wanted, threads, &work, take)
    }

    /// Computes the checksum `kind` of the samples' bytes in their containers, and passes it to `take`, in order.
    /// The fault of a bad sample.
    pub(crate) fn checksums(
        &self,
        wanted: impl Iterator<Item = u64> + Send,
        threads: usize,
        kind: ChecksumKind,
        take: &mut dyn FnMut(u64, Result<Option<Checksum>, Fault>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let checker = SampleChecker::new(self.reader(), Some(kind));
        let work = |span: &Span, scratch: &mut Scratch| {
            let checked = checker.check_span(&span.located, scratch)?;
            for located in &span.located {
                self.progress.inc(located.sample.size_bytes());
            }
            Ok(checked)
        };
        self.in_order(wanted, threads, &work, take)
    }

    /// Runs `work` for spans of samples on `threads` threads, and passes the result of each sample to `take`, in order.
    fn in_order<T: Send>(
        &self,
        wanted: impl Iterator<Item = u64> + Send,
        threads: usize,
        work: &SpanWork<T>,
        take: &mut dyn FnMut(u64, T) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut wanted = wanted.peekable();
        let mut next = || match next_span(self.dataset(), &mut wanted) {
            Ok(span) if span.samples.is_empty() => None,
            planned => Some(planned.map_err(Failure::from)),
        };
        let work = |planned: Result<Span, Failure>, scratch: &mut Scratch, messages: &_| {
            let done = planned.and_then(|span| {
                let results = work(&span, scratch)?;
                Ok(span.samples.into_iter().zip(results).collect::<Vec<_>>())
            });
            let goes_on = done.is_ok();
            crossbeam_channel::Sender::send(messages, done).is_ok() && goes_on
        };
        let how = OrderedWork { threads, ahead: AHEAD * threads, messages: 1, work: &work };
        in_order(&how, &self.interrupt, &mut next, |receiver| {
            for messages in receiver {
                let done = messages.recv().map_err(|_| Failure::interrupted())??;
                self.interrupt.check()?;
                for (sample, result) in done {
                    take(sample, result)?;
                }
            }
            self.interrupt.check()
        })?
    }

    /// Logs that a sample is bad; without its path if that is empty.
    pub(crate) fn log_bad(&self, sample: u64, path: &[u8], fault: &Fault) -> Result<(), Failure> {
        if let Some(located) = self.dataset().locate(sample)? {
            self.reader().log_bad(&located, path, fault);
        }
        Ok(())
    }

    fn hash_span(
        &self,
        span: &Span,
        scratch: &mut Scratch,
        algorithms: &dyn Fn(u64) -> Vec<Algorithm>,
    ) -> Result<Vec<Hashes>, Failure> {
        if let ([sample], [located]) = (&span.samples[..], &span.located[..]) {
            return Ok(vec![self.hash_one(located, scratch, &algorithms(*sample))?]);
        }
        let files = self.reader().read_span(&span.located, scratch)?;
        let each = span.samples.iter().zip(&span.located).zip(files);
        let each = each.map(|((sample, located), file)| {
            self.progress.inc(located.sample.size_bytes());
            let file = file?;
            let bytes = file.bytes.get(&scratch.buffer);
            let mut hashes: Vec<Hash> = algorithms(*sample).iter().map(|a| a.begin()).collect();
            hashes.iter_mut().for_each(|hash| hash.update(bytes));
            Ok(hashes.into_iter().map(Hash::finish).collect())
        });
        Ok(each.collect())
    }

    fn hash_one(
        &self,
        located: &Located,
        scratch: &mut Scratch,
        algorithms: &[Algorithm],
    ) -> Result<Hashes, Failure> {
        let mut hashes: Vec<Hash> = algorithms.iter().map(|a| a.begin()).collect();
        let read = self.reader().stream(located, scratch, &mut |chunk| {
            self.progress.inc(chunk.len());
            chunk.each_slice(|bytes| {
                hashes.iter_mut().for_each(|hash| hash.update(bytes));
                Ok(())
            })
        });
        match read {
            Ok(()) => Ok(Ok(hashes.into_iter().map(Hash::finish).collect())),
            Err(Stop::Failed(failure)) => Err(failure),
            Err(Stop::Bad(fault)) => Ok(Err(fault)),
        }
    }
}
