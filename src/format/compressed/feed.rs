//! Shows a decoded stream, piece by piece, to the scan of an archive, if it is one.

use crate::format::tar::{Index, Scan, Tar};
use crate::format::{Detected, Format, MemorySource, OpenOptions, PartName, Result};
use std::path::Path;

/// The first header.
const FIRST_BYTES: usize = 512;

pub(super) struct Feed {
    part: PartName,
    options: OpenOptions,
    is_decided: bool,
    scan: Option<Scan>,
    /// So many bytes of the stream were taken.
    taken_bytes: u64,
    /// What the scan asked for, as far as it came; before it is decided, what came first.
    held: Vec<u8>,
}

impl Feed {
    pub(super) fn new(part: &PartName, options: &OpenOptions) -> Self {
        Self {
            part: part.clone(),
            options: options.clone(),
            is_decided: false,
            scan: None,
            taken_bytes: 0,
            held: Vec::new(),
        }
    }

    /// Takes the next bytes of the stream.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<()> {
        if !self.is_decided {
            self.held.extend_from_slice(bytes);
            if self.held.len() < FIRST_BYTES {
                return Ok(());
            }
            self.decide()?;
            let held = std::mem::take(&mut self.held);
            return self.show(&held);
        }
        self.show(bytes)
    }

    fn decide(&mut self) -> Result<()> {
        self.is_decided = true;
        let first = self.held.get(..FIRST_BYTES).unwrap_or_default();
        let is_tar =
            Tar.detect(&MemorySource::new(self.part.clone(), first.to_vec()))? == Detected::Yes;
        // An archive without a member is zeros, which by themselves say nothing.
        let is_empty_tar =
            first.iter().all(|byte| *byte == 0) && is_named_tar(self.part.file_name());
        if is_tar || is_empty_tar {
            self.scan = Some(Scan::new(&self.part, &self.options)?);
        }
        Ok(())
    }

    /// What the scan does not ask for is passed over.
    fn show(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(scan) = &mut self.scan else { return Ok(()) };
        let start = self.taken_bytes;
        self.taken_bytes = start.saturating_add(bytes.len() as u64);
        while let Some((at, length)) = scan.want() {
            let next = at.saturating_add(self.held.len() as u64);
            let skip = usize::try_from(next.saturating_sub(start)).unwrap_or(usize::MAX);
            let Some(rest) = bytes.get(skip..).filter(|rest| !rest.is_empty()) else { break };
            let missing = length.saturating_sub(self.held.len() as u64);
            let missing = usize::try_from(missing).unwrap_or(usize::MAX).min(rest.len());
            self.held.extend_from_slice(rest.get(..missing).unwrap_or_default());
            if (self.held.len() as u64) < length {
                break;
            }
            let held = std::mem::take(&mut self.held);
            scan.take(&held).map_err(|fault| fault.into_error(&self.part))?;
        }
        Ok(())
    }

    /// The archive's index, if the stream was one.
    pub(super) fn finish(self) -> Result<Option<Index>> {
        let Some(mut scan) = self.scan else { return Ok(None) };
        let mut held = self.held;
        let error = |fault: crate::format::tar::Fault| fault.into_error(&self.part);
        while scan.want().is_some() {
            scan.take(&held).map_err(error)?;
            held.clear();
        }
        scan.finish(self.taken_bytes).map(Some).map_err(error)
    }
}

fn is_named_tar(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let is_short = ["tgz", "tbz", "tbz2", "txz", "tzst"].iter().any(|e| name.ends_with(e));
    is_short || name.contains(".tar.")
}
