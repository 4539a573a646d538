//! Descriptions of requests to stores, reported to an observer when they end. Imports the errors and the causes of
//! fetches.

use super::error::StoreError;
use crate::store::Cause;
use std::ops::Range;
use std::sync::{OnceLock, Weak};
use std::time::Instant;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// A range of an object.
    Get,
    /// The attributes of an object.
    Head,
    /// The names of objects.
    List,
}

impl RequestKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Get, Self::Head, Self::List];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Head => "head",
            Self::List => "list",
        }
    }
}

/// The times of the steps of one attempt at a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps {
    /// The request began to wait for its turn.
    pub asked: Instant,
    /// The request was sent.
    pub sent: Option<Instant>,
    /// The request was sent a second time, because the response took long.
    pub hedged: Option<Instant>,
    /// Whether the second request got the first response.
    pub hedge_won: bool,
    /// The first byte of the response came.
    pub first_byte: Option<Instant>,
    /// The response was complete, or failed.
    pub ended: Option<Instant>,
}

impl Steps {
    pub(super) fn new() -> Self {
        let asked = Instant::now();
        Self { asked, sent: None, hedged: None, hedge_won: false, first_byte: None, ended: None }
    }

    pub(super) fn note_sent(&mut self) {
        self.sent = Some(Instant::now());
    }

    pub(super) fn note_hedged(&mut self) {
        self.hedged = Some(Instant::now());
    }

    pub(super) fn note_first_byte(&mut self) {
        self.first_byte = Some(Instant::now());
    }
}

/// One attempt at a request, which has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The kind of the request.
    pub kind: RequestKind,
    /// The object, or the listed prefix; without secrets.
    pub url: String,
    /// The reason why bytes were fetched.
    pub cause: Option<Cause>,
    /// 1 for the first attempt, 2 for the first retry …
    pub attempt: u32,
    /// The requested bytes.
    pub range: Range<u64>,
    /// The number of bytes that came.
    pub bytes: u64,
    /// The times when the request was sent and got its response.
    pub steps: Steps,
    /// The error of a request that failed.
    pub error: Option<StoreError>,
}

/// Receives the descriptions of requests that have ended.
pub trait Observer: Send + Sync {
    /// Whether to send descriptions at present.
    fn is_watching(&self) -> bool;

    /// Takes the description of a request that has ended.
    fn ended(&self, request: Request);
}

/// The observer of the process's requests, if there is one.
#[derive(Default)]
pub(super) struct Watch(OnceLock<Weak<dyn Observer>>);

impl Watch {
    pub(super) fn set(&self, observer: Weak<dyn Observer>) {
        let _ = self.0.set(observer);
    }

    /// Describes a request to the observer, if that is watching.
    pub(super) fn ended(&self, describe: impl FnOnce() -> Request) {
        let observer = self.0.get().and_then(Weak::upgrade);
        if let Some(observer) = observer.filter(|observer| observer.is_watching()) {
            let mut request = describe();
            request.steps.ended = Some(Instant::now());
            observer.ended(request);
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", if self.0.get().is_some() { "watched" } else { "not watched" })
    }
}
