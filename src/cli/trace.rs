//! `ffrfs trace`: the requests that a mount answers, and where their time goes.

mod log;

use super::open::refuse_url;
use crate::daemon::patience;
use crate::daemon::trace::{Chrome, Follow, Sink, record};
use crate::failure::{Exit, Failure, say};
use crate::format::{counted, quoted};
use crate::interrupt::Interrupt;
use crate::store::remote::RequestKind;
use crate::vfs::{AHEAD, Operation, TraceEvent};
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;
use std::time::Duration;

const AFTER_HELP: &str = "\
A line for each request that has ended:

  TIME (UTC)  PID  OPERATION  OFFSET  SIZE  LATENCY  OUTCOME  PATH

PID is the thread that asks; 0 is the kernel itself. A `prefetch` line is a read ahead of any \
request: its OFFSET is that in the container. `get`, `head` and `list` lines are requests to a \
store, with the URL as PATH, why they were sent, which attempt it was, and whether it was sent a \
second time because it took long. Reads that the kernel's page cache answers cause no request, and \
are not shown.

The mount records requests only while this command reads them, and for 5 s after that. Only root \
and the user who mounted the dataset may do this.

Examples:
  ffrfs trace /mnt/ds
  ffrfs trace /mnt/ds --op read --slow 10ms
  ffrfs trace /mnt/ds --op get --slow 200ms
  ffrfs trace /mnt/ds --path 'cat/*' --json | jq .duration_ns
  ffrfs trace /mnt/ds --chrome trace.json --seconds 10 # ui.perfetto.dev";

/// Show the requests that a mount answers
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct TraceArgs {
    /// Where the dataset is mounted
    #[arg(value_name = "MOUNTPOINT")]
    target: PathBuf,
    /// Write a trace for Perfetto and chrome://tracing: each request with its phases
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    chrome: Option<PathBuf>,
    /// Stop after N seconds, 0.1 to 86400 [default: at Ctrl-C]
    #[arg(short = 's', long, value_name = "N", value_parser = super::seconds::seconds)]
    seconds: Option<Duration>,
    /// Show only these operations
    #[arg(long, value_name = "OP", value_delimiter = ',', value_parser = operations())]
    op: Vec<String>,
    /// Show only requests that took at least TIME, such as 10ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    slow: Option<Duration>,
    /// Show only paths that match, such as 'cat/*.jpg' (a * also matches slashes)
    #[arg(long, value_name = "GLOB")]
    path: Option<glob::Pattern>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &TraceArgs) -> Result<Exit, Failure> {
    args.chrome.as_deref().map_or(Ok(()), refuse_url)?;
    patience::check(args.chrome.as_deref())?;
    // Before the first request is traced: from then on, Ctrl-C ends the recording and not the process.
    Interrupt::listen();
    let follow = Follow::new(&args.target)?;
    let sink: Box<dyn Sink> = match &args.chrome {
        Some(path) => Box::new(Chrome::create(path, follow.daemon())?),
        None if args.json => Box::new(log::Json::default()),
        None => Box::new(log::Lines::default()),
    };
    let (lost, recorded) = record(follow, sink, |event| args.wants(event), args.seconds);
    if lost > 0 {
        say(format_args!("ffrfs: {} came too fast to be recorded", counted(lost, "request")));
    }
    recorded.map(|()| Exit::Ok)
}

impl TraceArgs {
    fn wants(&self, event: &TraceEvent) -> bool {
        let is_slow = |slow: Duration| u128::from(event.duration_ns) >= slow.as_nanos();
        let matches = |glob: &glob::Pattern| {
            let path = event.path.as_deref().or(event.container.as_deref());
            path.is_some_and(|path| glob.matches(path))
        };
        (self.op.is_empty() || self.op.iter().any(|op| **op == *event.operation))
            && self.slow.is_none_or(is_slow)
            && self.path.as_ref().is_none_or(matches)
    }
}

fn operations() -> PossibleValuesParser {
    let names = Operation::ALL.iter().map(|(_, name)| *name);
    let of_store = RequestKind::ALL.map(RequestKind::name);
    PossibleValuesParser::new(names.chain([AHEAD]).chain(of_store).collect::<Vec<_>>())
}

/// `10ms`, `250us`, `1.5s`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{} is not a time such as 10ms, 250us or 1.5s", quoted(text));
    let number = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let scale = match &text[number.len()..] {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * scale).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(duration("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        for wrong in ["", "10", "ms", "-1s", "1h", "1e999s", "nans"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
