//! The record of requests: each with its range, status and bytes sent.

use super::lock;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RequestKind {
    Head,
    Get,
    List,
    Other,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Request {
    pub(crate) kind: RequestKind,
    /// `bucket/key`; of a listing, the bucket and the prefix.
    pub(crate) key: String,
    /// The bytes that were asked for; `None`: the whole object.
    pub(crate) range: Option<Range<u64>>,
    /// The status of the answer; 0 if there was none.
    pub(crate) status: u16,
    /// The bytes of the body that were sent.
    pub(crate) sent_bytes: u64,
    /// Whether the request suffered a fault (latency and bandwidth do not count).
    pub(crate) is_faulty: bool,
    /// The version that was asked for.
    pub(crate) version_id: Option<String>,
    pub(crate) if_match: Option<String>,
    pub(crate) authorization: Option<String>,
    /// The time of its arrival, since the store began to count.
    pub(crate) came_at: Duration,
}

/// Figures about requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    pub(crate) heads: u64,
    pub(crate) gets: u64,
    pub(crate) lists: u64,
    /// Bytes of objects that were sent.
    pub(crate) sent_bytes: u64,
    /// Requests that suffered a fault.
    pub(crate) faulty: u64,
    pub(crate) most_in_flight: usize,
}

/// A request that is under way, until it is dropped.
pub(super) struct Underway {
    entry: Arc<Entry>,
    in_flight: Arc<AtomicUsize>,
}

struct Entry {
    request: Mutex<Request>,
    sent_bytes: AtomicU64,
}

pub(super) struct Record {
    entries: Mutex<Vec<Arc<Entry>>>,
    since: Mutex<Instant>,
    in_flight: Arc<AtomicUsize>,
    most_in_flight: AtomicUsize,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            since: Mutex::new(Instant::now()),
            in_flight: Arc::default(),
            most_in_flight: AtomicUsize::new(0),
        }
    }
}

impl Record {
    /// Records a request that has come.
    pub(super) fn begin(&self, mut request: Request) -> Underway {
        request.came_at = lock(&self.since).elapsed();
        let entry = Arc::new(Entry { request: Mutex::new(request), sent_bytes: AtomicU64::new(0) });
        lock(&self.entries).push(Arc::clone(&entry));
        let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_in_flight.fetch_max(now, Ordering::Relaxed);
        Underway { entry, in_flight: Arc::clone(&self.in_flight) }
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        let read = |entry: &Arc<Entry>| {
            let sent_bytes = entry.sent_bytes.load(Ordering::Relaxed);
            Request { sent_bytes, ..lock(&entry.request).clone() }
        };
        lock(&self.entries).iter().map(read).collect()
    }

    pub(super) fn summary(&self) -> Summary {
        let requests = self.requests();
        let count = |kind| requests.iter().filter(|request| request.kind == kind).count() as u64;
        Summary {
            heads: count(RequestKind::Head),
            gets: count(RequestKind::Get),
            lists: count(RequestKind::List),
            sent_bytes: requests.iter().map(|request| request.sent_bytes).sum(),
            faulty: requests.iter().filter(|request| request.is_faulty).count() as u64,
            most_in_flight: self.most_in_flight.load(Ordering::Relaxed),
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn forget(&self) {
        lock(&self.entries).clear();
        *lock(&self.since) = Instant::now();
        self.most_in_flight.store(self.in_flight(), Ordering::Relaxed);
    }
}

impl Underway {
    pub(super) fn set_status(&self, status: u16) {
        lock(&self.entry.request).status = status;
    }

    pub(super) fn sent(&self, bytes: u64) {
        self.entry.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
