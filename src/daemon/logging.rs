//! The destinations of messages: stderr, a file, journald or syslog; for a daemon on a host without journald and syslog, a file
//! in the user's state directory.

use super::log_file::LogFile;
use super::log_journal::ForJournal;
use crate::failure::{Failure, without_numbers};
use crate::format::one_line;
use crate::io::process::stderr_is_the_journal;
use crate::io::{check_writable, user_state_directory};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tracing::field::Field;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// The sockets on which journald and syslog listen.
const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";
const SYSLOG_SOCKET: &str = "/dev/log";

type Sink = Box<dyn Layer<Registry> + Send + Sync>;

/// A destination of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Destination {
    Stderr,
    Journal,
    Syslog,
    /// The file that the user has named.
    File(PathBuf),
    /// The file in the user's state directory, because this host has neither journald nor syslog.
    State(PathBuf),
    /// The file in the state directory cannot be written, for this reason.
    Nowhere(String),
}

impl Destination {
    /// The destination of a daemon without `--log-file`.
    pub(crate) fn of_daemons() -> Self {
        if Path::new(JOURNAL_SOCKET).exists() {
            Destination::Journal
        } else if Path::new(SYSLOG_SOCKET).exists() {
            Destination::Syslog
        } else {
            Destination::State(user_state_directory().join(STATE_LOG))
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Stderr => f.write_str("stderr"),
            Destination::Journal => f.write_str("journald"),
            Destination::Syslog => f.write_str("syslog"),
            Destination::File(path) | Destination::State(path) => path.display().fmt(f),
            Destination::Nowhere(why) => write!(f, "nowhere ({why})"),
        }
    }
}

/// The file in the state directory: all daemons of the user share it.
const STATE_LOG: &str = "ffrfs.log";

static DESTINATION: OnceLock<Destination> = OnceLock::new();

/// Where the messages of this process go.
pub(crate) fn destination() -> &'static Destination {
    DESTINATION.get().unwrap_or(&Destination::Stderr)
}

/// Messages of a command on stderr: errors as `ffrfs: …`, warnings as `ffrfs: warning: …`.
pub(crate) fn to_stderr(level: &str) {
    start(level, vec![stderr(true)]);
}

/// Fields that each message in the journal has.
pub(crate) struct Labels {
    /// The mount point.
    pub(crate) mount: String,
    /// The dataset.
    pub(crate) source: String,
}

/// Starts logging of a daemon: warnings go to stderr until it leaves the terminal; all messages go to `file`, journald or
/// syslog, or else to a file in the user's state directory.
pub(crate) fn for_daemon(level: &str, file: Option<&Path>, labels: &Labels) -> Result<(), Failure> {
    let (sink, destination) = match file {
        Some(path) => (Some(to_file(path)?), Destination::File(path.to_owned())),
        None => to_journal(labels)
            .map(|sink| (Some(sink), Destination::Journal))
            .or_else(|| to_syslog().map(|sink| (Some(sink), Destination::Syslog)))
            .unwrap_or_else(|| to_state(labels)),
    };
    let _ = DESTINATION.set(destination);
    // On the terminal of the user who mounts, only warnings; if stderr is the journal, it has them already.
    let terminal = stderr(false).with_filter(LevelFilter::WARN).boxed();
    let terminal = (!stderr_is_the_journal()).then_some(terminal);
    start(level, terminal.into_iter().chain(sink).collect());
    log_panics();
    Ok(())
}

/// Starts logging of a process in the foreground: messages go to `file`, or to stderr; if stderr is the journal, with fields.
pub(crate) fn in_foreground(
    level: &str,
    file: Option<&Path>,
    labels: &Labels,
) -> Result<(), Failure> {
    let sink = match file {
        Some(path) => {
            let _ = DESTINATION.set(Destination::File(path.to_owned()));
            Some(to_file(path)?)
        }
        None if stderr_is_the_journal() => to_journal(labels),
        None => None,
    };
    start(level, vec![sink.unwrap_or_else(|| stderr(false))]);
    log_panics();
    Ok(())
}

/// A panic is logged as other messages are: no user sees the standard error of a daemon.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let why = panic.payload_as_str().unwrap_or("no reason is given");
        let why = joined(why);
        tracing::error!("thread {name} panicked at {place}: {why}; please report this");
    }));
}

/// Joins lines to one: the message of an assertion has several.
fn joined(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// The level, and the handle that changes it.
static LEVEL: Mutex<Option<(String, Handle<EnvFilter, Registry>)>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<(String, Handle<EnvFilter, Registry>)>> {
    LEVEL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(level: &str, sinks: Vec<Sink>) {
    let (filter, handle) = reload::Layer::new(filter(level));
    // A second start (in tests) changes nothing.
    if Registry::default().with(sinks.with_filter(filter)).try_init().is_ok() {
        *lock() = Some((level.to_owned(), handle));
    }
}

fn filter(level: &str) -> EnvFilter {
    // hdfs-native gets over the failures that it warns of (a dead node of several) by itself.
    EnvFilter::new(format!("{level},hdfs_native=error"))
}

/// The level; empty before logging has started.
pub(crate) fn level() -> String {
    lock().as_ref().map(|(level, _)| level.clone()).unwrap_or_default()
}

/// Changes the level.
pub(crate) fn set_level(level: &str) {
    if let Some((now, handle)) = lock().as_mut()
        && handle.reload(filter(level)).is_ok()
    {
        level.clone_into(now);
    }
}

fn stderr(is_command: bool) -> Sink {
    tracing_subscriber::fmt::layer()
        .event_format(OneLine { is_command })
        .fmt_fields(debug_fn(in_text).delimited(" "))
        .with_ansi(false)
        .with_writer(io::stderr)
        .boxed()
}

fn to_file(path: &Path) -> Result<Sink, Failure> {
    let log = LogFile::open(path).map_err(|e| unwritable(path, e))?;
    Ok(in_lines(LOG_FILE.get_or_init(|| log)))
}

/// Looks whether messages can be written to a file that the user names, and does not make it.
pub(crate) fn check_file(path: &Path) -> Result<(), Failure> {
    check_writable(path).map_err(|e| unwritable(path, e))
}

fn unwritable(path: &Path, error: io::Error) -> Failure {
    Failure::output(format_args!("--log-file {}", path.display()), error)
}

/// A sink for a file that all daemons of the user share, so that each line names its mount.
fn to_state(labels: &Labels) -> (Option<Sink>, Destination) {
    let path = user_state_directory().join(STATE_LOG);
    match LogFile::open_shared(&path, &labels.mount) {
        Ok(log) => (Some(in_lines(LOG_FILE.get_or_init(|| log))), Destination::State(path)),
        Err(error) => {
            let why =
                format!("this host has no journald and no syslog; {}: {error}", path.display());
            (None, Destination::Nowhere(why))
        }
    }
}

fn in_lines(log: &'static LogFile) -> Sink {
    tracing_subscriber::fmt::layer()
        .fmt_fields(debug_fn(in_text).delimited(" "))
        .with_ansi(false)
        .with_writer(move || log)
        .boxed()
}

/// A sink for journald, which stores each field of a message.
fn to_journal(labels: &Labels) -> Option<Sink> {
    if !Path::new(JOURNAL_SOCKET).exists() {
        return None;
    }
    let fields = [("FFRFS_MOUNT", &labels.mount), ("FFRFS_SOURCE", &labels.source)];
    let journald = tracing_journald::layer().ok()?;
    let journald = journald
        .with_syslog_identifier("ffrfs".to_owned())
        .with_field_prefix(Some("FFRFS".to_owned()))
        .with_custom_fields(fields);
    Some(ForJournal(journald).boxed())
}

/// A sink for syslog, where there is no journald; a bare container has neither.
fn to_syslog() -> Option<Sink> {
    if !Path::new(SYSLOG_SOCKET).exists() {
        return None;
    }
    let options = syslog_tracing::Options::LOG_PID;
    let syslog = syslog_tracing::Syslog::new(c"ffrfs", options, Default::default())?;
    let layer = tracing_subscriber::fmt::layer()
        .fmt_fields(debug_fn(in_text).delimited(" "))
        .with_ansi(false)
        .without_time()
        .with_level(false)
        .with_target(false)
        .with_writer(syslog);
    Some(layer.boxed())
}

static LOG_FILE: OnceLock<LogFile> = OnceLock::new();

/// After a rotation: goes on in a new file of the same name. Without a log file does nothing.
pub(crate) fn reopen() -> Result<(), Failure> {
    let Some(log) = LOG_FILE.get() else { return Ok(()) };
    log.reopen().map_err(|e| Failure::output(log.path().display(), e))
}

// ---- the form of a line --------------------------------------------------------------------------

/// Writes a message and its fields, except fields that the message has in words: those are for the journal alone. The text
/// stays one line, and commands no terminal, whatever the names in it hold.
fn in_text(out: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = match field.name() {
        "message" => format!("{value:?}"),
        "container" | "sample" => return Ok(()),
        name => format!("{name}={value:?}"),
    };
    out.write_str(&one_line(without_numbers(text)))
}

/// `ffrfs: message key=value`; before the message `error: ` (in the log of a mount), `warning: `, `debug: ` or `trace: `.
struct OneLine {
    /// Whether errors are printed as the reason why a command fails. In the log of a mount, `error: ` tells them from other
    /// messages.
    is_command: bool,
}

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
            Level::ERROR if !self.is_command => "error: ",
            Level::ERROR | Level::INFO => "",
            Level::WARN => "warning: ",
            Level::DEBUG => "debug: ",
            Level::TRACE => "trace: ",
        };
        let mut line = format!("ffrfs: {level}");
        context.format_fields(Writer::new(&mut line), event)?;
        writeln!(out, "{line}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_log_hold_no_numbers_of_errors_and_no_control_characters() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log: &'static LogFile = Box::leak(Box::new(LogFile::open(&path).unwrap()));
        let subscriber = Registry::default().with(vec![in_lines(log)]);
        tracing::subscriber::with_default(subscriber, || {
            let error = io::Error::from_raw_os_error(libc::EIO);
            tracing::warn!(error = %error, "a (os error 5).zip: {error}");
            tracing::warn!(path = %"b\x1b\n", "a\nb\u{9b}");
        });
        let text = std::fs::read_to_string(path).unwrap();
        let (first, second) = text.split_once('\n').unwrap();
        let said = "a (os error 5).zip: Input/output error error=Input/output error";
        assert!(first.ends_with(said), "{text}");
        assert!(second.ends_with("a\\x0ab\\x9b path=b\\x1b\\x0a\n"), "{text:?}");
    }

    #[test]
    fn the_lines_of_an_assertion_are_told_as_one() {
        let said = "assertion `left == right` failed: 7\n  left: 1\n right: 2\n";
        assert_eq!(joined(said), "assertion `left == right` failed: 7; left: 1; right: 2");
    }
}
