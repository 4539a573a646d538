//! The content of `/.ffrfs/trace`: a line of JSON about the page, then a line for each request.

use super::Control;
use crate::catalog::Node;
use crate::store::remote::Request;
use crate::vfs::Operation;
use crate::vfs::inode::Inode;
use crate::vfs::report;
use crate::vfs::trace::{Event, Page, Subject, TRACED_FOR};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;

/// The operation of a fetch ahead.
pub const AHEAD: &str = "prefetch";

/// The first line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TraceHead {
    /// The time of the mount, in nanoseconds since 1970, from which all other times are counted.
    pub epoch_unix_ns: u64,
    /// The time for which this read keeps tracing on, in milliseconds.
    pub traced_for_ms: u64,
    /// The number of the last event of this page.
    pub last: u64,
    /// The number of events before `last` that came too fast to be kept.
    pub lost: u64,
    /// Whether more events have been recorded already.
    pub has_more: bool,
}

/// A further line: a request of the kernel, a fetch ahead, or a request to a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// The number of the event, counted from the mount in the order in which events ended.
    pub number: u64,
    /// `lookup`, `read` …, or `prefetch`; of a request to a store `get`, `head` or `list`.
    pub operation: Cow<'static, str>,
    /// The thread that asked, which is the process if it has one thread; 0 for the kernel, and for a thread in a PID
    /// namespace that the daemon does not see.
    pub pid: u32,
    /// The inode that was asked for; of a fetch ahead the first sample's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ino: Option<u64>,
    /// The inode's path from the root of the mount, `.` for the root; of a fetch ahead the first sample's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Of a fetch ahead: the part. Of a request to a store: the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Of a fetch ahead: the number of samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// The offset in the file, or in the part.
    pub offset: u64,
    /// The number of bytes that were asked for.
    pub length: u64,
    /// The number of bytes in the answer.
    pub bytes: u64,
    /// The error number, or 0. A name that does not exist is ENOENT.
    pub errno: i32,
    /// The time from the mount until the request came.
    pub start_ns: u64,
    /// The time from `start_ns` until the request was answered.
    pub duration_ns: u64,
    /// The phases in which the request spent its time, in order.
    pub phases: Vec<TracePhase>,
    /// Further facts about a request to a store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<TraceStore>,
}

/// The facts that only a request to a store has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStore {
    /// Why bytes were fetched: `demand`, `prefetch` or `open`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cow<'static, str>>,
    /// 1 for the first attempt, 2 for the first retry …
    pub attempt: u32,
    /// `won` or `lost` if the request was sent a second time, because the answer took long: `won` if the second answer came
    /// first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hedge: Option<Cow<'static, str>>,
    /// Why the request failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl From<&Request> for TraceStore {
    fn from(request: &Request) -> Self {
        let outcome = if request.steps.hedge_won { "won" } else { "lost" };
        Self {
            cause: request.cause.map(|cause| cause.name().into()),
            attempt: request.attempt,
            hedge: request.steps.hedged.map(|_| outcome.into()),
            error: request.error.as_ref().map(ToString::to_string),
        }
    }
}

/// A phase in which a request spent time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracePhase {
    /// `queue`, `wait`, `cache`, `disk`, `store`, `verify`, `reply`; of a request to a store `queue`, `first-byte`, `hedge`,
    /// `body`.
    pub name: Cow<'static, str>,
    /// The time from the mount until the phase began.
    pub start_ns: u64,
    /// The length of the phase.
    pub duration_ns: u64,
}

impl Control {
    /// Returns the lines that a reader has not read yet, and the number of the last event in them.
    pub(in crate::vfs) fn trace_lines(&self, reader: &[u8]) -> (Vec<u8>, u64) {
        let page = self.trace.page(reader);
        let head = TraceHead {
            epoch_unix_ns: self.trace.epoch_unix_nanos(),
            traced_for_ms: TRACED_FOR.as_millis() as u64,
            last: page.last,
            lost: page.lost,
            has_more: page.has_more,
        };
        let mut out = report::json_line(&head);
        let paths = self.paths_in(&page);
        for (number, event) in &page.events {
            out.extend(report::json_line(&self.line_of(*number, event, &paths)));
        }
        (out, page.last)
    }

    /// The paths of all files and directories of a page.
    fn paths_in(&self, page: &Page) -> HashMap<Node, String> {
        let mut nodes: Vec<Node> =
            page.events.iter().filter_map(|(_, event)| node_of(event)).collect();
        nodes.sort_unstable_by_key(|node| Inode::Node(*node).number());
        nodes.dedup();
        // A name that depends on bytes which cannot be read is left out.
        let paths =
            self.namespace.catalog().paths_of(self.samples.dataset(), &nodes).unwrap_or_default();
        let shown = paths.iter().map(|path| String::from_utf8_lossy(path).into_owned());
        nodes.into_iter().zip(shown).collect()
    }

    fn line_of(&self, number: u64, event: &Event, paths: &HashMap<Node, String>) -> TraceEvent {
        let path = node_of(event).and_then(|node| match (node, paths.get(&node)) {
            (Node::Directory(0), _) => Some(".".to_owned()),
            (_, path) => path.filter(|path| !path.is_empty()).cloned(),
        });
        let part = match event.subject {
            Subject::Ahead { part, .. } => self.samples.store().parts().get(part),
            _ => None,
        };
        let absent = match event.subject {
            Subject::Name(..) if event.answer.is_ok() => libc::ENOENT,
            _ => 0,
        };
        let phases = event.phases.iter().map(|(phase, start, end)| TracePhase {
            name: phase.name().into(),
            start_ns: self.trace.nanos(*start),
            duration_ns: self.trace.nanos(*end) - self.trace.nanos(*start),
        });
        let start_ns = self.trace.nanos(event.start);
        TraceEvent {
            number,
            operation: match &event.subject {
                Subject::Store(request) => request.kind.name(),
                _ => event.operation.map_or(AHEAD, Operation::name),
            }
            .into(),
            pid: event.pid,
            ino: match &event.subject {
                Subject::Inode(ino) => Some(*ino),
                Subject::Name(..) | Subject::Store(_) => None,
                Subject::Ahead { first, .. } => *first,
            },
            path: match &event.subject {
                Subject::Name(_, name) => Some(below(path.as_deref(), name)),
                Subject::Inode(_) | Subject::Ahead { .. } | Subject::Store(_) => path,
            },
            container: match &event.subject {
                Subject::Store(request) => Some(request.url.clone()),
                _ => part.map(|part| part.name().to_string()),
            },
            samples: match event.subject {
                Subject::Ahead { samples, .. } => Some(samples as u64),
                _ => None,
            },
            offset: event.offset_bytes,
            length: event.length_bytes,
            bytes: event.answer.unwrap_or(0),
            errno: event.answer.err().map_or(absent, |errno| errno.0),
            start_ns,
            duration_ns: self.trace.nanos(event.end) - start_ns,
            phases: phases.collect(),
            store: match &event.subject {
                Subject::Store(request) => Some(TraceStore::from(&**request)),
                _ => None,
            },
        }
    }
}

/// The node that an event's path leads to, or the directory that the path begins with.
fn node_of(event: &Event) -> Option<Node> {
    let ino = match event.subject {
        Subject::Inode(ino) | Subject::Name(ino, _) => ino,
        Subject::Ahead { first, .. } => first?,
        Subject::Store(_) => return None,
    };
    match Inode::of(ino) {
        Inode::Node(node) => Some(node),
        Inode::ControlDirectory | Inode::Snapshot(_) => None,
    }
}

fn below(directory: Option<&str>, name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    match directory {
        None | Some(".") => name.into_owned(),
        Some(directory) => format!("{directory}/{name}"),
    }
}
