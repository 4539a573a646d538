//! A trace in the Trace Event Format, which Perfetto and chrome://tracing open: each thread that asks has
//! tracks on which its requests lie, and in them their phases. Fetches ahead and requests to stores lie below the daemon.

use super::sink::{Sink, outcome};
use crate::failure::Failure;
use crate::tools::output::{check_free, not_made, parent_of};
use crate::vfs::{AHEAD, TraceEvent, TracePhase, sample_of_inode};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A trace file, which appears as a whole once it is finished.
pub(crate) struct Chrome {
    file: BufWriter<NamedTempFile>,
    path: PathBuf,
    daemon: u32,
    /// The time until which each track is taken, by thread and kind.
    tracks: HashMap<(u32, Kind), Vec<u64>>,
    is_empty: bool,
}

/// The kind of the events on a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Requests,
    Ahead,
    Store,
}

impl Kind {
    fn of(event: &TraceEvent) -> Self {
        match event.store {
            Some(_) => Self::Store,
            None if event.operation == AHEAD => Self::Ahead,
            None => Self::Requests,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Ahead => AHEAD,
            Self::Store => "store",
        }
    }

    /// Tracks are numbered from 1, those of requests to stores in a range of their own; 0 would be the process itself.
    fn tid(self, track: usize) -> usize {
        track + 1 + if self == Self::Store { 1_000_000 } else { 0 }
    }
}

impl Chrome {
    pub(crate) fn create(path: &Path, daemon: u32) -> Result<Self, Failure> {
        check_free(path, true)?;
        let file = tempfile::Builder::new()
            .prefix(".ffrfs-trace-")
            .tempfile_in(parent_of(path))
            .map_err(|e| Failure::output(path.display(), not_made(path, e)))?;
        let (path, tracks) = (path.to_owned(), HashMap::new());
        let mut this = Self { file: BufWriter::new(file), path, daemon, tracks, is_empty: true };
        this.write(|file| file.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":["))?;
        Ok(this)
    }

    fn write(
        &mut self,
        write: impl FnOnce(&mut BufWriter<NamedTempFile>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        write(&mut self.file).map_err(|e| Failure::output(self.path.display(), e))
    }

    fn record(&mut self, record: &Value) -> Result<(), Failure> {
        let before: &[u8] = if std::mem::take(&mut self.is_empty) { b"\n" } else { b",\n" };
        self.write(|file| {
            file.write_all(before)?;
            Ok(serde_json::to_writer(file, record)?)
        })
    }

    /// The first track of a thread that was free when the request came: no two requests overlap on a track.
    fn track(&mut self, pid: u32, event: &TraceEvent) -> Result<usize, Failure> {
        let (kind, end) = (Kind::of(event), event.start_ns + event.duration_ns);
        let is_new_process = !self.tracks.keys().any(|(process, _)| *process == pid);
        let tracks = self.tracks.entry((pid, kind)).or_default();
        let free = tracks.iter().position(|taken_until| *taken_until <= event.start_ns);
        let track = free.unwrap_or(tracks.len());
        match free {
            Some(track) => tracks[track] = end,
            None => tracks.push(end),
        }
        if is_new_process {
            let name = self.process_name(pid);
            self.name("process_name", (pid, kind.tid(0)), &name)?;
        }
        if free.is_none() {
            let name = format!("{} {}", kind.name(), track + 1);
            self.name("thread_name", (pid, kind.tid(track)), &name)?;
        }
        Ok(kind.tid(track))
    }

    fn name(&mut self, what: &str, (pid, tid): (u32, usize), name: &str) -> Result<(), Failure> {
        let record = json!({
            "ph": "M", "name": what, "pid": pid, "tid": tid, "args": { "name": name }
        });
        self.record(&record)
    }

    fn process_name(&self, pid: u32) -> String {
        match pid {
            0 => "kernel".to_owned(),
            pid if pid == self.daemon => "ffrfs".to_owned(),
            pid => match fs::read_to_string(format!("/proc/{pid}/comm")) {
                Ok(name) => name.trim_end().to_owned(),
                Err(_) => "ended".to_owned(),
            },
        }
    }
}

impl Sink for Chrome {
    fn take(&mut self, event: &TraceEvent, epoch_unix_ns: u64) -> Result<(), Failure> {
        let pid = if Kind::of(event) == Kind::Requests { event.pid } else { self.daemon };
        let tid = self.track(pid, event)?;
        self.record(&json!({
            "ph": "X", "cat": "request", "name": event.operation, "pid": pid, "tid": tid,
            "ts": micros(event.start_ns), "dur": micros(event.duration_ns),
            "args": args(event, epoch_unix_ns),
        }))?;
        for TracePhase { name, start_ns, duration_ns } in &event.phases {
            self.record(&json!({
                "ph": "X", "cat": "phase", "name": name, "pid": pid, "tid": tid,
                "ts": micros(*start_ns), "dur": micros(*duration_ns),
            }))?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), Failure> {
        self.write(|file| {
            file.write_all(b"\n]}\n")?;
            file.flush()
        })?;
        let failed = |e| Failure::output(self.path.display(), e);
        let file = self.file.into_inner().map_err(|e| failed(e.into_error()))?;
        file.persist(&self.path).map(drop).map_err(|e| failed(e.error))
    }
}

/// Microseconds, exact to the nanosecond.
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

fn args(event: &TraceEvent, epoch_unix_ns: u64) -> Value {
    let mut args = json!({
        "outcome": outcome(event.errno),
        "offset": event.offset,
        "length": event.length,
        "bytes": event.bytes,
        "unix_ns": epoch_unix_ns.saturating_add(event.start_ns),
    });
    let store = event.store.as_ref();
    let sample = event.ino.and_then(sample_of_inode);
    let more = [
        ("path", event.path.as_deref().map(Value::from)),
        ("inode", event.ino.map(Value::from)),
        ("sample", sample.map(Value::from)),
        ("samples", event.samples.map(Value::from)),
        ("container", event.container.as_deref().map(Value::from)),
        ("cause", store.and_then(|store| store.cause.as_deref()).map(Value::from)),
        ("attempt", store.map(|store| store.attempt.into())),
        ("hedge", store.and_then(|store| store.hedge.as_deref()).map(Value::from)),
        ("error", store.and_then(|store| store.error.as_deref()).map(Value::from)),
    ];
    if let Value::Object(args) = &mut args {
        args.extend(more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(start_ns: u64, end_ns: u64) -> TraceEvent {
        TraceEvent {
            number: 1,
            operation: "read".into(),
            pid: 0,
            ino: Some(4),
            path: None,
            container: None,
            samples: None,
            offset: 0,
            length: 1,
            bytes: 1,
            errno: 0,
            start_ns,
            duration_ns: end_ns - start_ns,
            phases: Vec::new(),
            store: None,
        }
    }

    #[test]
    fn on_one_track_nothing_overlaps() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.json");
        let mut chrome = Chrome::create(&path, 7).unwrap();
        // In the order in which they end.
        for (start, end) in [(0, 10), (5, 12), (12, 13), (1, 14), (13, 20), (14, 21), (13, 22)] {
            chrome.take(&event(start, end), 0).unwrap();
        }
        Box::new(chrome).finish().unwrap();
        let trace: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let mut tracks: HashMap<u64, Vec<(f64, f64)>> = HashMap::new();
        let records = trace["traceEvents"].as_array().unwrap();
        for record in records.iter().filter(|record| record["ph"] == "X") {
            let start = record["ts"].as_f64().unwrap();
            let end = start + record["dur"].as_f64().unwrap();
            tracks.entry(record["tid"].as_u64().unwrap()).or_default().push((start, end));
        }
        assert_eq!(tracks.len(), 4);
        assert_eq!(tracks.values().map(Vec::len).sum::<usize>(), 7);
        for spans in tracks.values_mut() {
            spans.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-9), "{spans:?}");
        }
    }

    #[test]
    fn a_trace_that_is_not_finished_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut chrome = Chrome::create(&directory.path().join("trace.json"), 7).unwrap();
        chrome.take(&event(0, 1), 0).unwrap();
        drop(chrome);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
