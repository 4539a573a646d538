//! Which requests suffer which faults.

use super::draw::{lognormal, uniform};
use super::lock;
use super::record::RequestKind;
use serde::{Deserialize, Serialize};
use std::sync::Mutex;
use std::time::Duration;

/// A fault that a request suffers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// The first byte comes after a lognormal time.
    Latency { median_ms: f64, sigma: f64 },
    /// The first byte comes later by this time.
    Stall { ms: u64 },
    /// The connection carries this many bytes a second.
    Bandwidth { bytes: u64 },
    /// An error instead of an answer, with `Retry-After` in seconds.
    Status { status: u16, retry_after: Option<u64> },
    /// The connection is reset after this many bytes of the body.
    Reset { after: u64 },
    /// The body ends in order after this many bytes, though more were promised.
    EndEarly { after: u64 },
    /// No further byte after this many bytes of the body, until the rules are replaced.
    HangAfter { after: u64 },
    /// No answer until the rules are replaced.
    Hang,
    /// A range that is this many bytes shorter than the range asked for, and says so.
    ShortRange { missing: u64 },
    /// The whole object with status 200 for a range.
    IgnoreRange,
    /// A range that begins a byte later than the range asked for.
    WrongRange,
    /// A range of an object that is said to be a byte longer.
    WrongTotal,
    /// An answer without an ETag, as plain HTTP servers may give.
    NoEtag,
    /// An answer with a weak ETag.
    WeakEtag,
    /// If-Match is ignored.
    IgnoreConditions,
    /// The clock of the store is ahead by this many seconds.
    ClockAhead { seconds: u64 },
}

/// A fault, and the requests that suffer it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Rule {
    /// Requests of this kind; `None`: of every kind.
    #[serde(default)]
    pub(crate) kind: Option<RequestKind>,
    /// Requests for keys that begin with this text.
    #[serde(default)]
    pub(crate) key: String,
    /// The percentage of these requests that suffer, drawn by their numbers.
    #[serde(default = "all")]
    pub(crate) percent: f64,
    /// The number of these requests that go well at first.
    #[serde(default)]
    pub(crate) skip: u64,
    /// The most requests that suffer.
    #[serde(default = "unlimited")]
    pub(crate) times: u64,
    /// The seed of the draws.
    #[serde(default)]
    pub(crate) seed: u64,
    /// The fault that the requests suffer.
    pub(crate) fault: Fault,
}

fn all() -> f64 {
    100.0
}

fn unlimited() -> u64 {
    u64::MAX
}

impl Rule {
    /// A rule by which every request suffers `fault`.
    pub(crate) fn all(fault: Fault) -> Self {
        let (percent, times) = (all(), unlimited());
        Self { kind: None, key: String::new(), percent, skip: 0, times, seed: 0, fault }
    }

    /// A rule by which every GET of an object suffers `fault`.
    pub(crate) fn gets(fault: Fault) -> Self {
        Self { kind: Some(RequestKind::Get), ..Self::all(fault) }
    }

    /// The rule, for this percentage of the requests.
    pub(crate) fn percent(self, percent: f64) -> Self {
        Self { percent, ..self }
    }

    /// The rule, after `skip` requests that go well.
    pub(crate) fn after(self, skip: u64) -> Self {
        Self { skip, ..self }
    }

    /// The rule, for at most `times` requests.
    pub(crate) fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    /// The rule, for keys that begin with `key`.
    pub(crate) fn of(self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self }
    }

    /// The rule, with draws from another seed.
    pub(crate) fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }
}

/// All faults that one request suffers.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    pub(super) delay: Duration,
    pub(super) bandwidth: Option<u64>,
    pub(super) status: Option<(u16, Option<u64>)>,
    pub(super) end: Option<End>,
    pub(super) hangs: bool,
    pub(super) missing: u64,
    pub(super) shifted: bool,
    pub(super) whole: bool,
    pub(super) wrong_total: bool,
    pub(super) etag: Etag,
    pub(super) ignores_conditions: bool,
    pub(super) clock_ahead: Duration,
    /// Whether the plan has faults other than latency and bandwidth.
    pub(super) is_faulty: bool,
}

/// How a body ends before its end.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Reset(u64),
    Short(u64),
    Hang(u64),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Etag {
    #[default]
    Strong,
    Weak,
    Absent,
}

/// A rule, the number of requests that it matched, and the number that suffered.
struct Counted {
    rule: Rule,
    seen: u64,
    applied: u64,
}

#[derive(Default)]
pub(super) struct Rules(Mutex<Vec<Counted>>);

impl Rules {
    pub(super) fn add(&self, rule: Rule) {
        lock(&self.0).push(Counted { rule, seen: 0, applied: 0 });
    }

    pub(super) fn replace(&self, rules: Vec<Rule>) {
        let counted = |rule| Counted { rule, seen: 0, applied: 0 };
        *lock(&self.0) = rules.into_iter().map(counted).collect();
    }

    /// The faults that the next request for this key suffers.
    pub(super) fn plan(&self, kind: RequestKind, key: &str) -> Plan {
        let mut plan = Plan::default();
        for (index, counted) in lock(&self.0).iter_mut().enumerate() {
            let rule = &counted.rule;
            if rule.kind.is_some_and(|wanted| wanted != kind) || !key.starts_with(&rule.key) {
                continue;
            }
            let number = counted.seen;
            counted.seen += 1;
            let draw = |stream| uniform(rule.seed ^ ((index as u64) << 32), number, stream);
            let is_drawn = draw(0) * 100.0 <= rule.percent;
            if number < rule.skip || counted.applied >= rule.times || !is_drawn {
                continue;
            }
            let pair = (draw(1), draw(2));
            plan.add(&rule.fault, pair);
            counted.applied += 1;
        }
        plan
    }
}

impl Plan {
    fn add(&mut self, fault: &Fault, pair: (f64, f64)) {
        self.is_faulty |= !matches!(fault, Fault::Latency { .. } | Fault::Bandwidth { .. });
        match *fault {
            Fault::Latency { median_ms, sigma } => {
                self.delay += Duration::from_secs_f64(lognormal(median_ms, sigma, pair) / 1000.0);
            }
            Fault::Stall { ms } => self.delay += Duration::from_millis(ms),
            Fault::Bandwidth { bytes } => self.bandwidth = Some(bytes),
            Fault::Status { status, retry_after } => self.status = Some((status, retry_after)),
            Fault::Reset { after } => self.end = Some(End::Reset(after)),
            Fault::EndEarly { after } => self.end = Some(End::Short(after)),
            Fault::HangAfter { after } => self.end = Some(End::Hang(after)),
            Fault::Hang => self.hangs = true,
            Fault::ShortRange { missing } => self.missing = missing,
            Fault::IgnoreRange => self.whole = true,
            Fault::WrongRange => self.shifted = true,
            Fault::WrongTotal => self.wrong_total = true,
            Fault::NoEtag => self.etag = Etag::Absent,
            Fault::WeakEtag => self.etag = Etag::Weak,
            Fault::IgnoreConditions => self.ignores_conditions = true,
            Fault::ClockAhead { seconds } => self.clock_ahead = Duration::from_secs(seconds),
        }
    }
}
