//! Finds the members of an archive, header by header, as a state machine: see [`Scanner`].

use super::builder::Builder;
use super::fault::{DAMAGED, Fault, NO_HINT, TRUNCATED, no_size};
use super::header::{BLOCK_BYTES, Header, until_nul};
use super::names;
use super::pax::{self, Pax};
use super::row::Index;
use super::state::{Member, Pending, State, TarScanner, round_up};
use crate::format::scanned::{MembersFile, Scanner, TooMany};
use crate::format::{Container, OpenOptions, PartName, Result, Source};
use crate::format::{counted, one_or_many};
use std::sync::Arc;

/// The most bytes of an extended header or a long name.
const MAX_EXTENSION_BYTES: u64 = 16 << 20;
/// The most bytes of zeros that are passed over behind the end of an archive in search of a further one.
const MAX_ZEROS_BYTES: u64 = 64 << 20;

impl TarScanner {
    /// Begins at the first byte. Errors call the archive `part`.
    ///
    /// # Errors
    /// The character set of the options is unknown.
    pub(super) fn new(part: &PartName, options: &OpenOptions) -> Result<Self> {
        Ok(Self {
            part: part.clone(),
            allow_damaged: options.allow_damaged,
            charset: names::charset(options, part)?,
            want: Some((0, BLOCK_BYTES)),
            state: State::Header,
            pending: Pending::default(),
            global: Pax::default(),
            build: Builder::default(),
            name: Vec::new(),
            headers: 0,
            zeros: 0,
            is_pax: false,
            lost_at: None,
            has_no_end_mark: false,
            last: None,
            special: 0,
            damaged_maps: 0,
        })
    }

    /// Takes the bytes that were asked for; fewer, if the archive ends there.
    fn step(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let Some((at, length)) = self.want else { return Ok(()) };
        let is_cut = (bytes.len() as u64) < length;
        let state = std::mem::replace(&mut self.state, State::Header);
        let block_end = at.saturating_add(BLOCK_BYTES);
        let step = match state {
            State::Header if is_cut => self.end_of_file(at, bytes),
            State::AfterLink(member) => self.after_link(*member, bytes),
            _ if is_cut => {
                let found = format!(
                    "its end, {} before",
                    counted(length.saturating_sub(bytes.len() as u64), "byte")
                );
                self.want = None;
                Err(Fault::new(at, "a header that goes on", found, TRUNCATED))
            }
            State::Header => self.header(at, Header::new(bytes)),
            State::Extension(kind) => self.extension(kind, at, bytes),
            State::OldMap(parts) => self.more_old_map(*parts, bytes, block_end),
            State::TextMap(parts) => self.more_text_map(*parts, bytes, block_end),
        };
        match step {
            Err(fault) if self.allow_damaged && self.headers > 0 => {
                // The members behind the fault may still be whole, if a header can be found.
                self.build.warn(format!(
                    "{}: at byte {}: expected {}, found {}",
                    self.part, fault.at, fault.expected, fault.found
                ));
                self.pending = Pending::default();
                self.lost_at = Some(fault.at);
                self.state = State::Header;
                // The search never goes back: an extended header is passed over whole.
                let behind = at.checked_add(bytes.len() as u64).and_then(round_up);
                self.want = self.want.and(behind).map(|behind| (behind, BLOCK_BYTES));
                Ok(())
            }
            step => step,
        }
    }

    /// Ends the scan where fewer bytes than a header's are left.
    pub(super) fn end_of_file(&mut self, at: u64, rest: &[u8]) -> Result<(), Fault> {
        self.want = None;
        if let Some(lost_at) = self.lost_at {
            self.lost(lost_at, at);
            return Ok(());
        }
        if self.zeros > 0 {
            return Ok(());
        }
        let is_zero = rest.iter().all(|byte| *byte == 0);
        if let Some(begin) = self.pending.at {
            return Err(Fault::new(
                at,
                "the header of a member",
                format!("the end, behind an extended header at byte {begin}"),
                TRUNCATED,
            ));
        }
        // A member that is cut off is found when the length is known.
        if !is_zero && self.headers > 0 {
            return Err(Fault::new(
                at,
                "a header of 512 bytes",
                counted(rest.len(), "byte"),
                TRUNCATED,
            ));
        }
        if self.headers == 0 {
            return Err(Fault::new(at, "a tar archive", counted(rest.len(), "byte"), NO_HINT));
        }
        self.has_no_end_mark = true;
        Ok(())
    }

    fn lost(&mut self, from: u64, to: u64) {
        self.lost_at = None;
        self.build
            .warn(format!("{}: no member was found in the bytes from {from} to {to}", self.part));
    }

    /// Takes the block behind a hard link that may have data: a header, or the data.
    fn after_link(&mut self, member: Member, bytes: &[u8]) -> Result<(), Fault> {
        let data_at = member.at.saturating_add(BLOCK_BYTES);
        let header = Header::new(bytes);
        if (bytes.len() as u64) < BLOCK_BYTES {
            self.add_link(&member, data_at)?;
            return self.end_of_file(data_at, bytes);
        }
        if header.is_zero() || header.has_right_checksum() {
            self.add_link(&member, data_at)?;
            return self.header(data_at, header);
        }
        self.file(member, data_at)
    }

    /// Takes a block where a header should be.
    pub(super) fn header(&mut self, at: u64, header: Header) -> Result<(), Fault> {
        let next = at.saturating_add(BLOCK_BYTES);
        if header.is_zero() {
            return self.zero_block(next);
        }
        if !header.has_right_checksum() {
            return self.no_header(at, next);
        }
        if let Some(from) = self.lost_at {
            self.lost(from, at);
        }
        self.zeros = 0;
        self.headers = self.headers.saturating_add(1);
        match header.kind() {
            kind @ (b'x' | b'X' | b'g' | b'L' | b'K') => self.begin_extension(kind, at, header),
            _ => self.member(at, header),
        }
    }

    fn zero_block(&mut self, next: u64) -> Result<(), Fault> {
        self.pending = Pending::default();
        self.zeros = self.zeros.saturating_add(1);
        if self.zeros.saturating_mul(BLOCK_BYTES) > MAX_ZEROS_BYTES && self.lost_at.is_none() {
            self.want = None;
            return Ok(());
        }
        self.next_header(next)
    }

    fn no_header(&mut self, at: u64, next: u64) -> Result<(), Fault> {
        if self.lost_at.is_some() {
            return self.next_header(next);
        }
        if self.zeros > 0 && self.headers > 0 {
            self.want = None;
            self.build.warn(format!(
                "{}: the bytes from byte {at} on, after the end of the archive, are ignored",
                self.part
            ));
            return Ok(());
        }
        let hint = if self.headers == 0 { NO_HINT } else { DAMAGED };
        Err(Fault::new(
            at,
            "a header with the right checksum",
            "a block that is not a header",
            hint,
        ))
    }

    fn begin_extension(&mut self, kind: u8, at: u64, header: Header) -> Result<(), Fault> {
        self.pending.at.get_or_insert(at);
        let size = header.size().ok_or_else(|| no_size(at))?;
        if size > MAX_EXTENSION_BYTES {
            let expected = format!("an extended header of at most {MAX_EXTENSION_BYTES} bytes");
            return Err(Fault::new(at, &expected, format!("one of {size}"), NO_HINT));
        }
        let data_at = at.saturating_add(BLOCK_BYTES);
        if size == 0 {
            return self.extension(kind, data_at, &[]);
        }
        self.state = State::Extension(kind);
        self.want = Some((data_at, size));
        Ok(())
    }

    fn extension(&mut self, kind: u8, at: u64, text: &[u8]) -> Result<(), Fault> {
        let next = round_up(at.saturating_add(text.len() as u64)).ok_or_else(|| no_size(at))?;
        match kind {
            b'L' => self.pending.long_name = Some(until_nul(text).to_vec()),
            b'K' => self.pending.long_link = Some(until_nul(text).to_vec()),
            _ => {
                self.is_pax = true;
                let pax = if kind == b'g' { &mut self.global } else { &mut self.pending.pax };
                let read = pax.read(text);
                if kind == b'g' {
                    // One name for all members makes no sense, and a map belongs to one member.
                    self.global = Pax {
                        path: None,
                        link_path: None,
                        sparse: pax::Sparse::default(),
                        ..std::mem::take(&mut self.global)
                    };
                    self.pending.at = None;
                }
                read.map_err(|bad| {
                    let at = at.saturating_add(bad.at as u64);
                    Fault::new(at, "records of an extended header", bad.why, DAMAGED)
                })?;
            }
        }
        self.next_header(next)
    }

    /// Ends the scan of an archive of `length_bytes`. The archive may be cut off within a member.
    fn end(mut self, length_bytes: u64) -> Result<Index, Fault> {
        if let Some((sample, at, end)) = self.last.filter(|(_, _, end)| *end > length_bytes) {
            let fault = Fault::new(
                length_bytes,
                &format!("the rest of the member at byte {at}, which ends at byte {end}"),
                "the end of the file",
                TRUNCATED,
            );
            if !self.allow_damaged {
                return Err(fault);
            }
            if let Some(sample) = sample {
                self.build.mark_damaged(sample);
            }
            self.build.warn(format!("{}: truncated at byte {length_bytes}", self.part));
        } else if self.has_no_end_mark {
            self.build.warn(format!(
                "{}: no end mark (two blocks of zeros): it may have been cut off between two members",
                self.part
            ));
        }
        let part = &self.part;
        if self.special > 0 {
            self.build.warn(format!(
                "{part}: {} not shown",
                one_or_many(self.special, "device or pipe is", "devices and pipes are")
            ));
        }
        if self.damaged_maps > 0 {
            self.build.warn(format!(
                "{part}: {} an invalid map: reading fails",
                one_or_many(self.damaged_maps, "sparse file has", "sparse files have")
            ));
        }
        let names = self.build.name_count();
        self.build.finish(self.part).map_err(|TooMany| {
            Fault::new(length_bytes, "fewer members", format!("{names}"), NO_HINT)
        })
    }
}

impl Scanner for TarScanner {
    fn want(&self) -> Option<(u64, u64)> {
        self.want
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        self.step(bytes).map_err(|fault| fault.into_error(&self.part))
    }

    fn finish(self: Box<Self>, source: Arc<dyn Source>) -> Result<Box<dyn Container>> {
        let part = self.part.clone();
        let index = self.end(source.len()).map_err(|fault| fault.into_error(&part))?;
        Ok(Box::new(MembersFile::new(source, index)))
    }
}
