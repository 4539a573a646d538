//! Reads `/.ffrfs/trace` page by page.

use crate::daemon::live::Live;
use crate::failure::Failure;
use crate::vfs::{TraceEvent, TraceHead};
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// A reader of a mount's trace, with a name of its own.
pub(crate) struct Follow {
    live: Live,
    name: String,
    daemon: u32,
}

/// The requests that have ended since the last page.
pub(super) struct Page {
    pub(super) head: TraceHead,
    pub(super) events: Vec<TraceEvent>,
}

impl Follow {
    /// Begins to trace the mount on `target`.
    pub(crate) fn new(target: &Path) -> Result<Self, Failure> {
        let live = Live::at(target)?;
        let daemon = live.info()?.pid;
        // A name unlike that of every other reader, also in other namespaces.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let name = format!("trace.{}-{:x}", std::process::id(), now.as_nanos());
        let mut this = Self { live, name, daemon };
        // The first page is empty: tracing begins with it.
        this.next()?;
        Ok(this)
    }

    /// The process that serves the mount.
    pub(crate) fn daemon(&self) -> u32 {
        self.daemon
    }

    /// The requests that have ended since the last page.
    pub(super) fn next(&mut self) -> Result<Page, Failure> {
        let path = self.live.path(&self.name);
        let text = self.live.read(&self.name);
        text.and_then(|text| parse(&text)).map_err(|e| self.live.failed(&path, e))
    }
}

fn parse(text: &[u8]) -> io::Result<Page> {
    let mut lines = text.split(|&b| b == b'\n').filter(|line| !line.is_empty());
    let head = serde_json::from_slice(lines.next().unwrap_or_default())?;
    let events = lines.map(serde_json::from_slice).collect::<Result<_, _>>()?;
    Ok(Page { head, events })
}
