//! Shows a decoded stream, piece by piece, to the scan of a container, if the stream is one.

use crate::format::scanned::{FIRST_BYTES, Scanner};
use crate::format::{Container, FORMATS, OpenOptions, PartName, Result, Source};
use std::sync::Arc;

pub(super) struct Feed {
    part: PartName,
    options: OpenOptions,
    is_decided: bool,
    scanner: Option<Box<dyn Scanner>>,
    /// Bytes of the stream that were shown.
    taken_bytes: u64,
    /// The bytes that the scan asked for, as far as they came; before the format is decided, the first bytes.
    held: Vec<u8>,
}

impl Feed {
    pub(super) fn new(part: &PartName, options: &OpenOptions) -> Self {
        Self {
            part: part.clone(),
            options: options.clone(),
            is_decided: false,
            scanner: None,
            taken_bytes: 0,
            held: Vec::new(),
        }
    }

    /// Takes the next bytes of the stream.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<()> {
        if self.is_decided {
            return self.show(bytes);
        }
        self.held.extend_from_slice(bytes);
        if self.held.len() < FIRST_BYTES { Ok(()) } else { self.decide() }
    }

    /// Finds the format by the first bytes, and shows them to its scan.
    fn decide(&mut self) -> Result<()> {
        self.is_decided = true;
        let held = std::mem::take(&mut self.held);
        let first = held.get(..FIRST_BYTES).unwrap_or(&held);
        self.scanner = scanner_of(&self.part, first, &self.options)?;
        self.show(&held)
    }

    /// Shows bytes to the scan. Bytes that the scan does not ask for are skipped.
    fn show(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(scanner) = &mut self.scanner else { return Ok(()) };
        let start = self.taken_bytes;
        self.taken_bytes = start.saturating_add(bytes.len() as u64);
        while let Some((at, length)) = scanner.want() {
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
            scanner.take(&held)?;
        }
        Ok(())
    }

    /// The container that the stream is, if it is one. `decoded` holds all of the stream.
    pub(super) fn finish(mut self, decoded: Arc<dyn Source>) -> Result<Option<Box<dyn Container>>> {
        if !self.is_decided {
            self.decide()?;
        }
        let Some(mut scanner) = self.scanner else { return Ok(None) };
        let mut held = self.held;
        while scanner.want().is_some() {
            scanner.take(&held)?;
            held.clear();
        }
        scanner.finish(decoded).map(Some)
    }
}

/// The scan for the format of a stream, by the stream's first bytes and the name of the compressed file.
pub(super) fn scanner_of(
    part: &PartName,
    first: &[u8],
    options: &OpenOptions,
) -> Result<Option<Box<dyn Scanner>>> {
    for format in FORMATS.iter().filter(|format| format.scans_streams()) {
        if let Some(scanner) = format.scan_stream(part, first, options)? {
            return Ok(Some(scanner));
        }
    }
    Ok(None)
}
