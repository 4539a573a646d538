//! The content of the control files `info.json`, `stats.json`, `prefetch` and `bad`.

use super::Control;
use crate::format::{Fault, counted, one_line};
use crate::store::remote::Counters;
use crate::vfs::PrefetchFigures;
use crate::vfs::options::Options;
use crate::vfs::report::{MountInfo, MountStats, info};
use crate::vfs::samples::bad::{AllBad, Bad};
use std::fmt::Write;
use std::sync::{Arc, OnceLock};

/// The facts about the mount that reports show and that are known when it is made.
pub(super) struct Mounted {
    io: &'static str,
    log: String,
    sandbox: Arc<OnceLock<String>>,
    restarts: u16,
    given: Vec<String>,
    stores: Option<Arc<Counters>>,
    threads: u64,
    workers: u64,
}

impl Mounted {
    pub(super) fn new(options: Options) -> Self {
        let Options { io, log, sandbox, restarts, given, stores, threads, workers, .. } = options;
        Self { io, log, sandbox, restarts, given, stores, threads, workers }
    }
}

impl Control {
    /// The present content of `info.json`.
    pub(in crate::vfs) fn mount_info(&self) -> MountInfo {
        MountInfo {
            dataset: {
                let names = self.samples.store().parts().iter().map(|part| part.name());
                info(self.samples.dataset(), self.namespace.catalog(), names)
            },
            verify: format!("{:?}", self.tuning.verify()).to_lowercase(),
            cache_size_bytes: self.tuning.cache_bytes(),
            transport: self.tuning.transport().into(),
            request_bytes: self.tuning.request_bytes(),
            io: self.mounted.io.into(),
            log: self.mounted.log.clone(),
            sandbox: self.mounted.sandbox.get().cloned().unwrap_or_default(),
            restarts: self.mounted.restarts,
            threads: self.mounted.threads,
            workers: self.mounted.workers,
            options: self.mounted.given.clone(),
            pid: std::process::id(),
            trace_readers: self.trace.readers() as u64,
        }
    }

    /// The present content of `stats.json`.
    pub(in crate::vfs) fn mount_stats(&self) -> MountStats {
        let (bad_samples, bad_containers) = self.samples.bad().counts();
        MountStats {
            pid: std::process::id(),
            counters: self.samples.stats().snapshot(),
            cache: self.memory.cache().figures(),
            blocks: self.memory.blocks().figures(),
            prefetch: self.prefetch.figures(),
            reads_waiting: self.prefetch.reads_waiting(),
            bad_samples,
            bad_containers,
            remote: self.mounted.stores.as_ref().map(|counters| counters.figures()),
        }
    }

    /// The content of `prefetch` for its readers.
    pub(in crate::vfs) fn prefetch_text(&self) -> String {
        let PrefetchFigures { waiting, in_flight, skipped, .. } = self.prefetch.figures();
        let mut text = format!(
            "Write here what will be read next, in order: sample numbers, or paths from the root of the\n\
             mount, one per line; or sample numbers as raw little-endian u64.\n\
             waiting: {waiting}\n\
             in flight: {in_flight}\n\
             fetched only when they are read, or not shown: {skipped}"
        );
        // The kernel cuts appended bytes at page boundaries: with this length, those are boundaries of numbers, too.
        while text.len() % 8 != 7 {
            text.push(' ');
        }
        text + "\n"
    }

    /// The content of `bad`: a line for each bad sample, with fields separated by tabs; empty if no sample or part is bad.
    pub(in crate::vfs) fn bad_list(&self) -> String {
        let catalog = self.namespace.catalog();
        let AllBad { samples, unlisted, parts } = self.samples.bad().all();
        let numbers: Vec<u64> = samples.iter().map(|&(sample, _)| sample).collect();
        let paths = if numbers.is_empty() {
            Ok(Vec::new())
        } else {
            catalog.paths(self.samples.dataset(), &numbers)
        };
        let mut out = String::new();
        for (place, (sample, bad)) in samples.iter().enumerate() {
            let path = paths.as_ref().ok().and_then(|paths| paths.get(place));
            let path = path.map_or_else(|| sample.to_string(), |p| escape(p));
            let _ = writeln!(out, "{path}\t{}", self.bad_fields(*sample, bad));
        }
        for (part, what) in parts {
            let container = escape(self.samples.name_of(part).as_bytes());
            let what = escape(what.as_bytes());
            let _ = writeln!(out, "-\t{what}\t{container}\t-\t-\t-\t-\t-");
        }
        if unlisted > 0 {
            let _ = writeln!(
                out,
                "-\tand {} for bad samples\t-\t-\t-\t-\t-\t-",
                counted(unlisted, "more request")
            );
        }
        out
    }

    fn bad_fields(&self, sample: u64, bad: &Bad) -> String {
        let located = &bad.located;
        let reason = match &bad.fault {
            Fault::Checksum(_) | Fault::PartChecksum { .. } => "checksum".to_owned(),
            Fault::Structure(what) => escape(what.as_bytes()),
            Fault::Damaged => "damaged".to_owned(),
            Fault::Locked => "encrypted".to_owned(),
            Fault::OtherPassword => "encrypted with another password, or damaged".to_owned(),
            Fault::Encryption(how) => format!("encrypted in a way that ffrfs does not read: {how}"),
            Fault::Unreadable(error) | Fault::Lacking(error) => escape(error.as_bytes()),
        };
        let none = || ("-".to_owned(), "-".to_owned());
        let values = |(expected, found)| (format!("{expected:#010x}"), format!("{found:#010x}"));
        let (expected, found) = bad.fault.mismatch().map_or_else(none, values);
        let container = escape(self.samples.name_of(located.part).as_bytes());
        let (offset, length) = (located.sample.offset_bytes, located.sample.length_bytes);
        format!("{reason}\t{container}\t{sample}\t{offset}\t{length}\t{expected}\t{found}")
    }
}

/// Escapes tabs, newlines and backslashes, so that a line stays a line, and characters that command a terminal (as `\x1b`).
fn escape(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let escaped = text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\\' => out.push_str("\\\\"),
            other => out.push(other),
        }
        out
    });
    one_line(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_bad_stays_a_line_and_commands_no_terminal() {
        let shown = escape("a\tb\nc\\x1b\x1b[31m\r\u{9b}\u{202e}ä".as_bytes());
        assert_eq!(shown, "a\\tb\\nc\\\\x1b\\x1b[31m\\x0d\\x9b\\u{202e}ä");
        assert_eq!(escape(b"\xff.jpg"), "\u{fffd}.jpg");
    }
}
