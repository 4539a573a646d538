//! The prefetch thread: it asks the vfs which spans to fetch, reads many of them at a time, and has the samples that belong
//! into the kernel's page cache stored there.
//!
//! The kernel locks the page of a read request until the request is answered, and that answer may wait for the
//! prefetch thread. If this thread stored pages itself, it could wait for its own read; so a second thread
//! stores them, and no request ever waits for that one.

use super::connection::Device;
use super::reads::{self, Progress, Submitted};
use super::threads;
use crate::io::ring::{Event, Ring, Waker};
use crate::io::{Buffer, ReadError};
use crate::store::{Arrived, Cause, Profile};
use crate::vfs::{Delivery, Fetch, Vfs};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The pause between two checks for a last prefetch hint that has no newline, and for room.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause between two checks for room, after [`VAIN_CHECKS`] checks in vain.
const LONG_PAUSE: Duration = Duration::from_secs(1);
const VAIN_CHECKS: u32 = 20;
/// How long the end of a mount waits for reads that are under way.
const LAST_READS: Duration = Duration::from_secs(1);
/// After this many bytes, the depth is judged by their rate.
const JUDGED_BYTES: u64 = 32 << 20;

/// The prefetch thread, to wake and to stop it.
pub(super) struct Prefetcher {
    wake: Arc<dyn Fn() + Send + Sync>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Prefetcher {
    /// Starts to fetch the samples that `vfs` expects to be read.
    pub(super) fn start(vfs: &Arc<Vfs>, device: Arc<Device>) -> io::Result<Self> {
        let (report, reported) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stores = start_storing(vfs, device)
            .inspect_err(|error| {
                tracing::warn!("prefetched samples stay out of the kernel's page cache: {error}")
            })
            .ok();
        let work = Work { vfs: Arc::clone(vfs), stores };
        let stopped = Arc::clone(&stop);
        let run = move || {
            // The ring belongs to the thread that makes it.
            match Ring::for_reads(work.vfs.store().profile().max_depth) {
                Ok(ring) => {
                    let waker = ring.waker();
                    let _ =
                        report.send(Arc::new(move || waker.wake()) as Arc<dyn Fn() + Send + Sync>);
                    Worker::new(work, ring).run(&stopped);
                }
                Err(error) => {
                    tracing::info!("prefetch reads one span at a time: io_uring: {error}");
                    let (wake, woken) = mpsc::sync_channel(1);
                    // A full channel will wake the thread anyway.
                    let wake = move || {
                        let _ = wake.try_send(());
                    };
                    let _ = report.send(Arc::new(wake));
                    work.run(&woken, &stopped);
                }
            }
        };
        let thread = threads::spawn("ffrfs-ahead", run)?;
        let wake = reported.recv().map_err(io::Error::other)?;
        let look = Arc::clone(&wake);
        vfs.when_there_is_something_to_fetch(move || look());
        Ok(Self { wake, stop, thread })
    }

    /// Ends the thread once the reads that are under way have ended; a source that hangs is not waited for.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        (self.wake)();
        let start = Instant::now();
        while !self.thread.is_finished() && start.elapsed() < LAST_READS {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// How long to wait at most until the next check, after `vain` checks without an event; `None` to wait until woken.
fn longest_pause(vfs: &Vfs, has_lines: bool, vain: u32) -> Option<Duration> {
    let pause = if has_lines || vain < VAIN_CHECKS { PAUSE } else { LONG_PAUSE };
    (has_lines || vfs.lacks_room()).then_some(pause)
}

/// The source of the fetches, and the thread that stores their samples.
struct Work {
    vfs: Arc<Vfs>,
    /// The channel to the thread that stores; `None` if that thread could not be started.
    stores: Option<mpsc::Sender<Vec<Delivery>>>,
}

impl Work {
    /// Reads one span at a time, where there is no io_uring.
    fn run(&self, woken: &mpsc::Receiver<()>, stop: &AtomicBool) {
        let mut vain = 0_u32;
        while !stop.load(Ordering::Relaxed) {
            let has_lines = self.vfs.tick_announcements();
            while !stop.load(Ordering::Relaxed)
                && let Some(mut fetch) = self.vfs.next_fetch()
            {
                let store = self.vfs.store();
                let fetched = match fetch.is_fill() {
                    true => {
                        let (part, range) = (fetch.span().part(), fetch.span().range());
                        store.part(part).wait(range, Cause::Fill).map(drop)
                    }
                    false => reads::fetch_waiting(store, fetch.span(), Cause::Prefetch),
                };
                self.store(self.vfs.land(fetch, fetched));
                vain = 0;
            }
            let is_woken = match longest_pause(&self.vfs, has_lines, vain) {
                Some(pause) => woken.recv_timeout(pause).is_ok(),
                None => woken.recv().is_ok(),
            };
            vain = if is_woken { 0 } else { vain.saturating_add(1) };
        }
    }

    fn store(&self, stores: Vec<Delivery>) {
        if let (false, Some(thread)) = (stores.is_empty(), &self.stores) {
            // Fails only if the thread has panicked; then the kernel will request these samples.
            let _ = thread.send(stores);
        }
    }
}

/// Starts the thread that puts samples into the kernel's page cache. Samples that wait for it still count as
/// prefetched, so the memory for prefetch bounds them.
fn start_storing(vfs: &Arc<Vfs>, device: Arc<Device>) -> io::Result<mpsc::Sender<Vec<Delivery>>> {
    let (stores, to_store) = mpsc::channel::<Vec<Delivery>>();
    let vfs = Arc::clone(vfs);
    let run = move || {
        for store in to_store.into_iter().flatten() {
            if !vfs.may_store(&store) {
                continue;
            }
            let stored = device.store(store.ino(), store.bytes());
            if let Err(error) = &stored
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::debug!("inode {}: not stored: {error}", store.ino());
            }
            vfs.stored(store, stored.is_ok());
        }
    };
    threads::spawn("ffrfs-store", run)?;
    Ok(stores)
}

struct Worker {
    work: Work,
    ring: Ring,
    reads: Vec<Option<(Fetch, usize)>>,
    reading: usize,
    depth: Depth,
    arrivals: Arc<Arrivals>,
}

/// Reads of remote bytes that have arrived on this machine, or failed to.
struct Arrivals {
    reads: Mutex<Vec<(usize, Result<Arrived, ReadError>)>>,
    waker: Waker,
}

impl Worker {
    fn new(work: Work, ring: Ring) -> Self {
        let depth = Depth::new(work.vfs.store().profile());
        let reads = (0..depth.most).map(|_| None).collect();
        let arrivals = Arc::new(Arrivals { reads: Mutex::default(), waker: ring.waker() });
        Self { work, ring, reads, reading: 0, depth, arrivals }
    }

    fn run(mut self, stop: &AtomicBool) {
        let (mut events, mut vain) = (Vec::new(), 0_u32);
        while !stop.load(Ordering::Relaxed) {
            let has_lines = self.work.vfs.tick_announcements();
            let has_more = self.begin();
            let at_most = match has_more && self.reading == 0 {
                // A request had precedence: try again soon.
                true => Some(Duration::from_millis(1)),
                false => longest_pause(&self.work.vfs, has_lines, vain),
            };
            if let Err(error) = self.ring.wait(&mut events, at_most) {
                return tracing::error!("prefetch ends: {error}");
            }
            vain = if events.is_empty() && !has_more { vain.saturating_add(1) } else { 0 };
            let counts = self.ring.counts();
            self.work.vfs.stats().ring(counts.submits, counts.entries, counts.completions);
            for event in events.drain(..) {
                match event {
                    Event::Read(id, buffer, result) => self.read_ended(id, buffer, result),
                    Event::Woken => self.go_on_with_arrivals(),
                    Event::Request(_) | Event::Closed(_) => {}
                }
            }
        }
    }

    fn read_ended(&mut self, id: usize, buffer: Buffer, result: io::Result<usize>) {
        let Some((mut fetch, done)) = self.reads[id].take() else { return };
        let part = self.work.vfs.store().part(fetch.span().part());
        match reads::ended(part, fetch.span(), done, buffer, result) {
            Progress::Partly(done) => self.submit(id, fetch, done),
            Progress::Ended(fetched) => self.land(fetch, fetched),
        }
    }

    fn go_on_with_arrivals(&mut self) {
        let arrivals = self.arrivals.lock().drain(..).collect::<Vec<_>>();
        for (id, arrived) in arrivals {
            let Some((mut fetch, done)) = self.reads[id].take() else { continue };
            if fetch.is_fill() {
                self.land(fetch, arrived.map(drop));
                continue;
            }
            match arrived.and_then(|arrived| reads::take(fetch.span(), arrived)) {
                // The pin lasts until the read is in the ring, which holds one of its own.
                Ok(Some(_pin)) => self.submit(id, fetch, done),
                fetched => self.land(fetch, fetched.map(drop)),
            }
        }
    }

    /// Begins reads up to the depth. Tells whether the depth has stopped it, so that more may be left to begin.
    fn begin(&mut self) -> bool {
        loop {
            let depth =
                if self.work.vfs.is_waited_for() { self.depth.polite } else { self.depth.reads };
            if self.reading >= depth.min(self.depth.most) {
                return true;
            }
            let Some(mut fetch) = self.work.vfs.next_fetch() else { return false };
            let store = self.work.vfs.store();
            let fetched = match fetch.is_fill() {
                true if reads::is_cached(store, fetch.span()) => Ok(()),
                true => Err(ReadError::Absent),
                false => reads::fetch(store, fetch.span(), false),
            };
            match fetched {
                Err(error @ (ReadError::WouldBlock | ReadError::Absent)) => {
                    let free = self.reads.iter().position(Option::is_none).unwrap_or_default();
                    self.reading += 1;
                    match error {
                        ReadError::Absent => self.request_bytes(free, fetch, 0),
                        _ => self.submit(free, fetch, 0),
                    }
                }
                fetched => self.work.store(self.work.vfs.land(fetch, fetched)),
            }
        }
    }

    fn submit(&mut self, id: usize, mut fetch: Fetch, done: usize) {
        let part = self.work.vfs.store().part(fetch.span().part());
        match reads::submit(&mut self.ring, id, part, fetch.span(), done) {
            Ok(Submitted::Reading) => self.reads[id] = Some((fetch, done)),
            Err(ReadError::Absent) => self.request_bytes(id, fetch, done),
            ended => self.land(fetch, ended.map(|_| ())),
        }
    }

    /// Asks the store for bytes that are not on this machine. Other reads go on meanwhile.
    fn request_bytes(&mut self, id: usize, mut fetch: Fetch, done: usize) {
        let (part, range) = (fetch.span().part(), fetch.span().range());
        let cause = if fetch.is_fill() { Cause::Fill } else { Cause::Prefetch };
        self.reads[id] = Some((fetch, done));
        let arrivals = Arc::clone(&self.arrivals);
        self.work.vfs.store().begin(part, range, cause, move |arrived| {
            arrivals.lock().push((id, arrived));
            arrivals.waker.wake();
        });
    }

    fn land(&mut self, mut fetch: Fetch, fetched: Result<(), ReadError>) {
        self.reading -= 1;
        self.depth.landed(fetch.span().needed_bytes() as u64);
        let stores = self.work.vfs.land(fetch, fetched);
        self.work.store(stores);
    }
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, Vec<(usize, Result<Arrived, ReadError>)>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many reads are under way at a time. It grows as long as the device gets faster by it.
struct Depth {
    reads: usize,
    /// The bounds, from the store's profile.
    least: usize,
    most: usize,
    polite: usize,
    bytes: u64,
    since: Instant,
    /// Bytes per second with the previous depth.
    before: f64,
    grows: bool,
}

impl Depth {
    fn new(profile: &Profile) -> Self {
        let (reads, most, polite) = (profile.first_depth, profile.max_depth, profile.polite_depth);
        let since = Instant::now();
        Self { reads, least: reads, most, polite, bytes: 0, since, before: 0.0, grows: true }
    }

    fn landed(&mut self, bytes: u64) {
        self.bytes += bytes;
        if self.bytes < JUDGED_BYTES {
            return;
        }
        let rate = self.bytes as f64 / self.since.elapsed().as_secs_f64().max(1e-6);
        self.judge(rate);
        (self.bytes, self.since) = (0, Instant::now());
    }

    /// Goes on in the same direction if the last change has raised the rate, else turns.
    fn judge(&mut self, rate: f64) {
        if rate < self.before * 1.02 {
            self.grows = !self.grows;
        }
        self.before = rate;
        let next = if self.grows { self.reads * 2 } else { self.reads / 2 };
        self.reads = next.clamp(self.least, self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_grows_as_long_as_the_device_gains_by_it() {
        let mut depth = Depth::new(&Profile::DISK);
        for (rate, reads) in [(100.0, 16), (150.0, 32), (160.0, 64), (150.0, 32), (170.0, 16)] {
            depth.judge(rate);
            assert_eq!(depth.reads, reads, "at {rate}");
        }
        for _ in 0..10 {
            depth.judge(1.0);
            assert!((depth.least..=depth.most).contains(&depth.reads));
        }
    }
}
