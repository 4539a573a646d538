//! Decides for each byte that a reader waits for which source it comes from, and how many bytes around it are fetched. Imports
//! the cache, the engine and the flights.

use super::flights::{Begun, CHUNK_BYTES, Ending, Flights, Share, around, fail, split};
use super::keep::Keeper;
use super::replacing::{Replaced, ReplacingObject};
use super::waiting::Waiting;
use crate::format::Source;
use crate::io::Reading;
use crate::store::Cause;
use crate::store::cache::{BLOCK_BYTES, Claim, Entry, Fetching, Freed, Unchecked};
use crate::store::remote::client::{Client, Object};
use crate::store::remote::counters::add;
use crate::store::remote::engine::Permit;
use crate::store::remote::engine::{Engine, Get, Sink};
use crate::store::remote::error::StoreError;
use bytes::Bytes;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// The pause between two looks at a block that another daemon is fetching.
const ELSEWHERE_PAUSE: Duration = Duration::from_millis(2);

/// Requests for bytes whose fetch failed less than this ago fail with the same error. Unit tests may wait longer for a CPU.
const REMEMBERED: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });
const MOST_FAILURES: usize = 1000;

/// One version of an object: its client, its cache entry, and its fetches in flight.
pub(in crate::store::remote) struct Fetcher {
    pub(super) object: Object,
    pub(super) client: Arc<dyn Client>,
    pub(super) engine: Arc<Engine>,
    pub(super) entry: Option<Arc<Entry>>,
    /// The announced reads of the object, if it has an entry.
    pub(super) replacing: Option<ReplacingObject>,
    flights: Mutex<Flights>,
    /// Set once the version is known to be gone for good.
    gone: OnceLock<StoreError>,
    /// Ranges whose fetch has failed recently.
    failures: Mutex<Vec<(Range<u64>, Instant, StoreError)>>,
}

/// The sources of the bytes for one reader, apart from fetches in flight.
#[derive(Default)]
struct Sources {
    /// Present in the cache's file.
    present: Vec<Range<u64>>,
    /// In the cache's file since before the machine last booted.
    unchecked: Vec<(Range<u64>, Unchecked)>,
    /// Being fetched by other daemons.
    elsewhere: Vec<Range<u64>>,
    /// Blocks that this daemon fetches and caches, in order.
    claimed: Vec<Fetching>,
    /// Bytes that the cache has no room for.
    unkept: Vec<Range<u64>>,
}

/// A fetch that is about to start.
struct Start {
    begun: Begun,
    blocks: Vec<Fetching>,
}

impl Fetcher {
    pub(in crate::store::remote) fn new(
        object: Object,
        client: Arc<dyn Client>,
        engine: Arc<Engine>,
        kept: Option<(Arc<Entry>, ReplacingObject)>,
    ) -> Arc<Self> {
        let (entry, replacing) = kept.unzip();
        Arc::new(Self {
            object,
            client,
            engine,
            entry,
            replacing,
            flights: Mutex::default(),
            gone: OnceLock::new(),
            failures: Mutex::default(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of a range that cannot be read: the version is gone, or a fetch of these bytes has just failed. Without this,
    /// a follower of the failed read, or the kernel's retry, would wait for as long again.
    pub(super) fn refused(&self, range: &Range<u64>) -> Option<StoreError> {
        if let Some(gone) = self.gone.get() {
            return Some(gone.clone());
        }
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.is_empty() {
            return None;
        }
        failures.retain(|(_, at, _)| at.elapsed() < REMEMBERED);
        let touches = |(failed, ..): &&(Range<u64>, Instant, StoreError)| {
            failed.start < range.end && range.start < failed.end
        };
        failures.iter().find(touches).map(|(.., error)| error.clone())
    }

    fn note_failure(&self, range: &Range<u64>, error: &StoreError) {
        if error.is_gone() {
            let _ = self.gone.set(error.clone());
        }
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < MOST_FAILURES {
            failures.push((range.clone(), Instant::now(), error.clone()));
        }
    }

    fn block_range(&self, block: u64) -> Range<u64> {
        let start = block * BLOCK_BYTES;
        start..(start + BLOCK_BYTES).min(self.object.length_bytes)
    }

    /// The range to fetch for `range`: whole chunks if more of them is likely to be read, otherwise the blocks around
    /// it; only `range` itself if the cache has no room.
    fn target(&self, range: &Range<u64>, is_bulk: bool) -> Range<u64> {
        let length = self.object.length_bytes;
        match &self.entry {
            Some(entry) if entry.has_room() => {
                let chunk = range.start / CHUNK_BYTES;
                match is_bulk || self.lock().announced.contains(&chunk) {
                    true => around(range, CHUNK_BYTES, length),
                    false => around(range, BLOCK_BYTES, length),
                }
            }
            _ => range.clone(),
        }
    }

    /// Brings `part` of a waiting reader's range. `is_bulk`: the bytes around it are likely to be read too.
    pub(super) async fn bring(
        self: Arc<Self>,
        waiting: Arc<Waiting>,
        part: Range<u64>,
        cause: Cause,
        is_bulk: bool,
    ) {
        let target = self.target(&part, is_bulk);
        let replaced = self.replace(&part, cause).await;
        let (sources, starts) = {
            let mut flights = self.lock();
            let mut sources = Sources::default();
            if let (Some(entry), Some(Replaced { blocks, mut freed, turn: _turn })) =
                (&self.entry, replaced)
            {
                for run in blocks.chunk_by(|block, next| block + 1 == *next) {
                    let run = run[0]..run[run.len() - 1] + 1;
                    self.claim_all(&flights, entry, run, Some(&mut freed), &mut sources.claimed);
                }
            } else if let (Some(entry), true) = (&self.entry, target != part || is_bulk) {
                // In order, so that one of several daemons gets the whole chunk.
                let blocks = target.start / BLOCK_BYTES..target.end.div_ceil(BLOCK_BYTES);
                self.claim_all(&flights, entry, blocks, None, &mut sources.claimed);
            }
            self.find_sources(&mut flights, &waiting, (&part, cause), &mut sources);
            let starts = self.starts(&mut flights, &waiting, (&part, cause), &mut sources);
            (sources, starts)
        };
        for start in starts {
            tokio::spawn(Arc::clone(&self).run(start, cause, None));
        }
        let Sources { present, unchecked, elsewhere, .. } = sources;
        for part in present {
            tokio::spawn(Arc::clone(&self).read_kept((Arc::clone(&waiting), part), cause));
        }
        for (part, unchecked) in unchecked {
            let (fetcher, waiting) = (Arc::clone(&self), Arc::clone(&waiting));
            tokio::spawn(async move {
                // A damaged block is claimed again.
                let _ = spawn_blocking(move || drop(unchecked.check())).await;
                fetcher.bring_later((waiting, part), cause);
            });
        }
        for part in elsewhere {
            add(&self.engine.counters.lock_joins, 1);
            tokio::spawn(Arc::clone(&self).wait_elsewhere((Arc::clone(&waiting), part), cause));
        }
    }

    /// Makes room in a full cache for the blocks around `part` that announced reads need more than others.
    async fn replace(&self, part: &Range<u64>, cause: Cause) -> Option<Replaced<'_>> {
        let (entry, replacing) = self.entry.as_ref().zip(self.replacing.as_ref())?;
        // A reader does not wait for an eviction: its sample is fetched alone.
        if cause != Cause::Prefetch || entry.has_room() {
            return None;
        }
        let blocks = |range: Range<u64>| range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
        let around = blocks(around(part, CHUNK_BYTES, self.object.length_bytes));
        let is_absent = |block| {
            let range = self.block_range(block);
            !self.lock().keeps(&range) && !entry.is_present(&range)
        };
        replacing.replace(blocks(part.clone()), around, is_absent).await
    }

    /// Finds a source for each block of `part` that is not claimed yet.
    fn find_sources(
        &self,
        flights: &mut Flights,
        waiting: &Arc<Waiting>,
        (part, cause): (&Range<u64>, Cause),
        sources: &mut Sources,
    ) {
        let ours: Vec<u64> = sources.claimed.iter().map(Fetching::block).collect();
        let is_urgent = cause.is_urgent();
        let has_room = self.entry.as_ref().is_some_and(|entry| entry.has_room());
        for piece in
            split(part.clone(), if self.entry.is_some() { BLOCK_BYTES } else { CHUNK_BYTES })
        {
            let block = piece.start / BLOCK_BYTES;
            if ours.contains(&block) {
                // The reader joins when the fetch begins.
            } else if let Some(entry) = &self.entry
                && entry.is_present(&piece)
            {
                sources.present.push(piece);
            } else if flights.join(waiting, &piece, is_urgent) {
                add(&self.engine.counters.joins, 1);
            } else if let (Some(entry), true) = (&self.entry, has_room) {
                match entry.claim(block) {
                    Claim::Fetch(fetching) => sources.claimed.push(fetching),
                    Claim::Present => sources.present.push(piece),
                    Claim::Elsewhere if flights.is_abandoned(waiting, &piece, entry) => {
                        sources.unkept.push(piece);
                    }
                    Claim::Elsewhere => sources.elsewhere.push(piece),
                    Claim::Unchecked(unchecked) => sources.unchecked.push((piece, unchecked)),
                    Claim::NoRoom => sources.unkept.push(piece),
                }
            } else {
                sources.unkept.push(piece);
            }
        }
        if self.entry.is_some() {
            add(&self.engine.counters.no_room, sources.unkept.len() as u64);
        }
    }

    /// Claims the blocks that are not being fetched, adjacent ones in one step if possible, so that no other daemon
    /// takes one from their middle. A daemon that holds the first block is assumed to fetch the others too.
    fn claim_all(
        &self,
        flights: &Flights,
        entry: &Arc<Entry>,
        blocks: Range<u64>,
        mut freed: Option<&mut Freed>,
        claimed: &mut Vec<Fetching>,
    ) {
        let is_wanted = |&block: &u64| {
            let range = self.block_range(block);
            !flights.keeps(&range) && !entry.is_present(&range)
        };
        let wanted: Vec<u64> = blocks.filter(is_wanted).collect();
        for run in wanted.chunk_by(|block, next| block + 1 == *next) {
            let (first, last) = (run[0], run[run.len() - 1]);
            let claims: Box<dyn Iterator<Item = Claim>> =
                match entry.claim_run(first..last + 1, freed.as_deref_mut()) {
                    Some(claims) => Box::new(claims.into_iter()),
                    None => Box::new(run.iter().map(|&block| entry.claim(block))),
                };
            for claim in claims {
                match claim {
                    Claim::Fetch(fetching) => claimed.push(fetching),
                    Claim::Elsewhere if claimed.is_empty() => return,
                    Claim::NoRoom => return,
                    _ => {}
                }
            }
        }
    }

    /// The fetches that begin now: of adjacent claimed blocks, and of ranges that are not cached.
    fn starts(
        &self,
        flights: &mut Flights,
        waiting: &Arc<Waiting>,
        (part, cause): (&Range<u64>, Cause),
        sources: &mut Sources,
    ) -> Vec<Start> {
        let is_urgent = cause.is_urgent();
        let mut starts = self.kept_starts(flights, is_urgent, std::mem::take(&mut sources.claimed));
        for start in &starts {
            let Range { start, end } = start.begun.range;
            for piece in split(start.max(part.start)..end.min(part.end), BLOCK_BYTES) {
                flights.join(waiting, &piece, is_urgent);
            }
        }
        let mut unkept: Vec<Range<u64>> = Vec::new();
        for piece in sources.unkept.drain(..) {
            match unkept.last_mut() {
                Some(last)
                    if last.end == piece.start && !piece.start.is_multiple_of(CHUNK_BYTES) =>
                {
                    last.end = piece.end;
                }
                _ => unkept.push(piece),
            }
        }
        for range in unkept {
            if waiting.is_fill() {
                waiting.fail(&StoreError::no_room(self.object.location.to_string()));
                break;
            }
            let begun = flights.begin(range.clone(), false, is_urgent);
            flights.join(waiting, &range, is_urgent);
            starts.push(Start { begun, blocks: Vec::new() });
        }
        starts
    }

    fn kept_starts(
        &self,
        flights: &mut Flights,
        is_urgent: bool,
        mut claimed: Vec<Fetching>,
    ) -> Vec<Start> {
        claimed.sort_unstable_by_key(Fetching::block);
        let mut runs: Vec<Vec<Fetching>> = Vec::new();
        for fetching in claimed {
            let start = fetching.range().start;
            match runs.last_mut() {
                Some(run)
                    if !start.is_multiple_of(CHUNK_BYTES)
                        && run.last().is_some_and(|last| last.range().end == start) =>
                {
                    run.push(fetching);
                }
                _ => runs.push(vec![fetching]),
            }
        }
        let start = |blocks: Vec<Fetching>| {
            let (first, last) = (blocks.first()?.range().start, blocks.last()?.range().end);
            Some(Start { begun: flights.begin(first..last, true, is_urgent), blocks })
        };
        runs.into_iter().filter_map(start).collect()
    }

    /// Fetches an announced chunk into the cache. Returns the permit if the chunk needs no fetch.
    pub(super) fn fill(self: &Arc<Self>, chunk: u64, permit: Permit) -> Option<Permit> {
        let Some(entry) = self.entry.as_ref().filter(|_| self.gone.get().is_none()) else {
            return Some(permit);
        };
        let starts = {
            let (mut flights, mut claimed) = (self.lock(), Vec::new());
            let range = chunk * CHUNK_BYTES..(chunk + 1) * CHUNK_BYTES;
            let blocks = range.start / BLOCK_BYTES
                ..range.end.min(self.object.length_bytes).div_ceil(BLOCK_BYTES);
            self.claim_all(&flights, entry, blocks, None, &mut claimed);
            self.kept_starts(&mut flights, false, claimed)
        };
        let mut permit = Some(permit);
        for start in starts {
            tokio::spawn(Arc::clone(self).run(start, Cause::Prefetch, permit.take()));
        }
        permit
    }

    /// Fetches one range.
    async fn run(self: Arc<Self>, start: Start, cause: Cause, permit: Option<Permit>) {
        let Start { begun, blocks } = start;
        let get = Get {
            client: &*self.client,
            object: &self.object,
            range: begun.range.clone(),
            is_urgent: &begun.is_urgent,
            cause,
        };
        let fetcher = Arc::clone(&self);
        let keeper = Keeper::new(blocks, move |block| fetcher.published(&block, cause));
        let (number, offset) = (begun.number, begun.range.start);
        let (flights, location) = (&self.flights, &self.object.location);
        let _ending = Ending { flights, number, location };
        let mut stream = Stream { fetcher: &self, number, offset, keeper };
        let fetched = self.engine.get(get, permit, &mut stream).await;
        stream.keeper.finish().await;
        let (shares, passed) = self.lock().end(number);
        match fetched {
            // A reader may have joined when no other one wanted the rest, which was not fetched then.
            Ok(()) => {
                let cause = begun.cause_now(cause);
                shares.into_iter().chain(passed).for_each(|share| self.bring_later(share, cause));
            }
            Err(error) => {
                self.note_failure(&begun.range, &error);
                fail(&shares, &error);
                fail(&passed, &error);
            }
        }
    }

    /// Serves the readers of a block that can now be read from the file. May block.
    fn published(self: &Arc<Self>, block: &Range<u64>, cause: Cause) {
        let shares = self.lock().published(block);
        for share in shares {
            if !self.read_now(&share) {
                self.bring_later(share, cause);
            }
        }
    }

    /// Serves a reader from the cache's file. Returns whether that worked.
    fn read_now(&self, (waiting, part): &Share) -> bool {
        let Some(entry) = &self.entry else { return false };
        if waiting.is_fill() {
            waiting.note_kept(part);
            return true;
        }
        let _reading = Reading::begin();
        if !entry.is_present(part) {
            return false;
        }
        let mut bytes = vec![0; (part.end - part.start) as usize];
        match entry.file().read_exact_at(&mut bytes, part.start) {
            Ok(()) => {
                waiting.offer(part, part.start, &Bytes::from(bytes));
                true
            }
            Err(error) => {
                tracing::warn!("{}: the cache cannot be read: {error}", self.object.location);
                entry.lose();
                false
            }
        }
    }

    async fn read_kept(self: Arc<Self>, share: Share, cause: Cause) {
        let fetcher = Arc::clone(&self);
        let read = spawn_blocking(move || match fetcher.read_now(&share) {
            true => None,
            false => Some(share),
        });
        if let Ok(Some(share)) = read.await {
            self.bring_later(share, cause);
        }
    }

    async fn wait_elsewhere(self: Arc<Self>, share: Share, cause: Cause) {
        let (waiting, part) = &share;
        let since = Instant::now();
        while let Some(entry) = &self.entry
            && waiting.is_waiting()
            && !entry.is_present(part)
            && entry.is_fetched_elsewhere(part.start / BLOCK_BYTES)
        {
            // That daemon may be stopped, and would hold the block until it goes on.
            if since.elapsed() >= self.engine.timeout && !waiting.is_fill() {
                self.lock().abandon(part);
                break;
            }
            sleep(ELSEWHERE_PAUSE).await;
        }
        self.bring_later(share, cause);
    }

    /// Finds a new source for a part whose source has failed, if its reader still waits.
    pub(super) fn bring_later(self: &Arc<Self>, (waiting, part): Share, cause: Cause) {
        if waiting.is_waiting() {
            tokio::spawn(boxed(Arc::clone(self).bring(waiting, part, cause, false)));
        }
    }
}

/// Boxes a future whose type would otherwise contain itself.
fn boxed(
    work: impl Future<Output = ()> + Send + 'static,
) -> futures_util::future::BoxFuture<'static, ()> {
    Box::pin(work)
}

/// Passes the bytes of a fetch to the readers that wait for them, and to the cache.
struct Stream<'a> {
    fetcher: &'a Arc<Fetcher>,
    number: u64,
    offset: u64,
    keeper: Keeper,
}

impl Sink for Stream<'_> {
    async fn push(&mut self, piece: Bytes) -> bool {
        let offset = self.offset;
        self.offset += piece.len() as u64;
        let (shares, is_needed) = self.fetcher.lock().arrived(self.number, offset, &piece);
        for (waiting, part) in &shares {
            waiting.offer(part, offset, &piece);
        }
        self.keeper.push(offset, piece).await;
        is_needed
    }
}
