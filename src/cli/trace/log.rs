//! An access log: a line for each request.

use crate::daemon::trace::{Sink, outcome};
use crate::failure::Failure;
use crate::format::one_line;
use crate::vfs::report;
use crate::vfs::{TraceEvent, TraceStore};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, BufWriter, Stdout, Write};
use std::time::Duration;

/// Lines for people.
pub(super) struct Lines(BufWriter<Stdout>);

/// Lines for programs.
pub(super) struct Json(BufWriter<Stdout>);

/// An event with the time of day, as a line for programs has it.
#[derive(Serialize)]
struct Timed<'a> {
    /// The time when the request came, in nanoseconds since 1970.
    unix_ns: u64,
    #[serde(flatten)]
    event: &'a TraceEvent,
}

impl Default for Lines {
    fn default() -> Self {
        Self(BufWriter::new(io::stdout()))
    }
}

impl Default for Json {
    fn default() -> Self {
        Self(BufWriter::new(io::stdout()))
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::output("standard output", error)
}

impl Sink for Lines {
    fn take(&mut self, event: &TraceEvent, epoch_unix_ns: u64) -> Result<(), Failure> {
        writeln!(self.0, "{}", line(event, epoch_unix_ns)).map_err(failed)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.0.flush().map_err(failed)
    }

    fn finish(mut self: Box<Self>) -> Result<(), Failure> {
        self.flush()
    }
}

impl Sink for Json {
    fn take(&mut self, event: &TraceEvent, epoch_unix_ns: u64) -> Result<(), Failure> {
        let timed = Timed { unix_ns: epoch_unix_ns.saturating_add(event.start_ns), event };
        self.0.write_all(&report::json_line(&timed)).map_err(failed)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.0.flush().map_err(failed)
    }

    fn finish(mut self: Box<Self>) -> Result<(), Failure> {
        self.flush()
    }
}

fn line(event: &TraceEvent, epoch_unix_ns: u64) -> String {
    let time = time_of_day(epoch_unix_ns.saturating_add(event.start_ns));
    let size = match event.bytes {
        0 => "-".to_owned(),
        bytes => bytes.to_string(),
    };
    let outcome = outcome(event.errno);
    let latency = latency(Duration::from_nanos(event.duration_ns));
    let path = event.path.as_deref().or(event.container.as_deref()).unwrap_or("?");
    let mut line = format!(
        "{time} {:>8} {:<11} {:>12} {size:>9} {latency:>8} {outcome:<7} {}",
        event.pid,
        event.operation,
        event.offset,
        one_line(path)
    );
    if let Some(more) = event.samples.and_then(|samples| samples.checked_sub(1)).filter(|n| *n > 0)
    {
        let _ = write!(line, " and {more} more");
    }
    if let Some(store) = &event.store {
        line += &of_store(store);
    }
    line
}

/// The reason why a request was sent to a store, and the attempt.
fn of_store(store: &TraceStore) -> String {
    let cause = store.cause.iter().map(ToString::to_string);
    let attempt = (store.attempt > 1).then(|| format!("attempt {}", store.attempt));
    let hedge = store.hedge.iter().map(|hedge| format!("second request {hedge}"));
    let words: Vec<_> = cause.chain(attempt).chain(hedge).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

/// The time of day in UTC.
fn time_of_day(unix_ns: u64) -> String {
    let (seconds, micros) = (unix_ns / 1_000_000_000 % 86_400, unix_ns / 1000 % 1_000_000);
    format!("{:02}:{:02}:{:02}.{micros:06}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// A latency in three digits and a unit.
fn latency(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    let (value, unit) = match micros {
        ..1e3 => (micros, "us"),
        ..1e6 => (micros / 1e3, "ms"),
        _ => (micros / 1e6, "s"),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> TraceEvent {
        TraceEvent {
            number: 1,
            operation: "read".into(),
            pid: 42,
            ino: Some(4),
            path: Some("cat/\x1b[2J\n1.jpg".to_owned()),
            container: None,
            samples: None,
            offset: 4096,
            length: 131_072,
            bytes: 110_000,
            errno: 0,
            start_ns: 1_500,
            duration_ns: 1_234_567,
            phases: Vec::new(),
            store: None,
        }
    }

    #[test]
    fn a_line_has_all_columns_and_no_control_characters() {
        let epoch = (3600 + 2 * 60 + 3) * 1_000_000_000;
        assert_eq!(
            line(&event(), epoch),
            "01:02:03.000001       42 read                4096    110000   1.23ms ok      \
             cat/\\x1b[2J\\x0a1.jpg"
        );
        let failed = TraceEvent { errno: libc::EIO, bytes: 0, path: None, ..event() };
        assert!(line(&failed, epoch).ends_with("        -   1.23ms EIO     ?"));
        let ahead = TraceEvent { samples: Some(3), path: Some("1".to_owned()), ..event() };
        assert!(line(&ahead, epoch).ends_with("1 and 2 more"));
        let store = TraceStore {
            cause: Some("demand".into()),
            attempt: 2,
            hedge: Some("won".into()),
            error: None,
        };
        let request = TraceEvent {
            operation: "get".into(),
            path: None,
            container: Some("s3://b/k".to_owned()),
            store: Some(store),
            ..event()
        };
        let end = "s3://b/k (demand, attempt 2, second request won)";
        assert!(line(&request, epoch).ends_with(end), "{}", line(&request, epoch));
    }

    #[test]
    fn latencies_have_three_digits() {
        for (nanos, shown) in [
            (0, "0.00us"),
            (38_400, "38.4us"),
            (384_000, "384us"),
            (4_200_000, "4.20ms"),
            (2_000_000_000, "2.00s"),
            (600_000_000_000, "600s"),
        ] {
            assert_eq!(latency(Duration::from_nanos(nanos)), shown);
        }
    }
}
