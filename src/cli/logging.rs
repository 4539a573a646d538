//! Where messages go: stderr, a file, journald or syslog.

use super::Failure;
use std::fmt;
use std::path::Path;
use std::sync::Mutex;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// Where journald and syslog listen.
const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";
const SYSLOG_SOCKET: &str = "/dev/log";

type Sink = Box<dyn Layer<Registry> + Send + Sync>;

/// Messages on stderr, as `ffrfs: warning: …`.
pub(super) fn to_stderr(level: &str) {
    start(level, vec![stderr()]);
}

/// For a daemon: stderr as long as there is a terminal behind it, and where `file` or the system says.
pub(super) fn for_daemon(level: &str, file: Option<&Path>) -> Result<(), Failure> {
    let sink = match file {
        Some(path) => Some(to_file(path)?),
        None => system(),
    };
    // Who mounts wants to hear of trouble only.
    let terminal = stderr().with_filter(LevelFilter::WARN).boxed();
    start(level, std::iter::once(terminal).chain(sink).collect());
    Ok(())
}

/// For a process in the foreground: `file`, or stderr.
pub(super) fn in_foreground(level: &str, file: Option<&Path>) -> Result<(), Failure> {
    let sink = file.map(to_file).transpose()?;
    start(level, vec![sink.unwrap_or_else(stderr)]);
    Ok(())
}

fn start(level: &str, sinks: Vec<Sink>) {
    // What fuser says of itself is for debugging only.
    let filter = EnvFilter::new(format!("{level},fuser=warn"));
    // A second start (in tests) changes nothing.
    let _ = Registry::default().with(sinks.with_filter(filter)).try_init();
}

fn stderr() -> Sink {
    tracing_subscriber::fmt::layer()
        .event_format(OneLine)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .boxed()
}

fn to_file(path: &Path) -> Result<Sink, Failure> {
    let file = std::fs::File::options().append(true).create(true).open(path);
    let file = file.map_err(|e| Failure::output(path.display(), e))?;
    Ok(tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Mutex::new(file)).boxed())
}

/// journald keeps fields apart; syslog is everywhere else; neither (a bare container): nothing.
fn system() -> Option<Sink> {
    if Path::new(JOURNAL_SOCKET).exists()
        && let Ok(journald) = tracing_journald::layer()
    {
        return Some(journald.with_syslog_identifier("ffrfs".to_owned()).boxed());
    }
    if Path::new(SYSLOG_SOCKET).exists() {
        let options = syslog_tracing::Options::LOG_PID;
        let syslog = syslog_tracing::Syslog::new(c"ffrfs", options, Default::default())?;
        let layer = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .without_time()
            .with_level(false)
            .with_target(false)
            .with_writer(syslog);
        return Some(layer.boxed());
    }
    None
}

/// `ffrfs: warning: message key=value`.
struct OneLine;

impl<S, N> FormatEvent<S, N> for OneLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            Level::INFO => "",
            Level::DEBUG => "debug: ",
            Level::TRACE => "trace: ",
        };
        write!(out, "ffrfs: {level}")?;
        context.format_fields(out.by_ref(), event)?;
        writeln!(out)
    }
}
