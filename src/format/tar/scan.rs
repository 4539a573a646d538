//! Finds the members of an archive, as a state machine: it says which bytes it needs next, always further on,
//! and takes them. Data of members is passed over. A file and a decoded stream drive it alike.

use super::build::{Builder, TooMany};
use super::fault::{DAMAGED, Fault, NO_HINT, TRUNCATED, no_size};
use super::header::{BLOCK_BYTES, Header, until_nul};
use super::index::Index;
use super::members::Member;
use super::names;
use super::pax::{self, Pax};
use super::sparse::{OldMap, TextMap};
use super::window::Window;
use crate::format::charset::Charset;
use crate::format::{OpenOptions, PartName, Result, Source};

/// Extended headers and long names may have so many bytes.
const MAX_EXTENSION_BYTES: u64 = 16 << 20;
/// Behind the end of an archive so many bytes of zeros are passed over in search of a further one.
const MAX_ZEROS_BYTES: u64 = 64 << 20;

/// A scan on its way through an archive.
#[derive(Debug)]
pub struct Scan {
    pub(super) part: PartName,
    pub(super) allow_damaged: bool,
    pub(super) charset: Charset,
    /// What is needed next: offset and length.
    pub(super) want: Option<(u64, u64)>,
    pub(super) state: State,
    pub(super) pending: Pending,
    pub(super) global: Pax,
    pub(super) build: Builder,
    pub(super) name: Vec<u8>,
    /// Headers met so far.
    pub(super) headers: u64,
    /// Zero blocks since the last header.
    pub(super) zeros: u64,
    /// An extended header was met: the archive is one of pax.
    pub(super) is_pax: bool,
    /// What was met last is no header: the next one is searched for, from this byte on.
    pub(super) lost_at: Option<u64>,
    /// The last member's number if it is a file, where it begins, and where its data ends.
    pub(super) last: Option<(Option<u32>, u64, u64)>,
    /// Devices and pipes.
    pub(super) special: u64,
    pub(super) damaged_maps: u64,
}

#[derive(Debug)]
pub(super) enum State {
    Header,
    Extension(u8),
    OldMap(Box<(Member, OldMap)>),
    TextMap(Box<(Member, TextMap)>),
    AfterLink(Box<Member>),
}

/// What extension headers say of the next member.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Where the first of them stands.
    pub(super) at: Option<u64>,
    pub(super) long_name: Option<Vec<u8>>,
    pub(super) long_link: Option<Vec<u8>>,
    pub(super) pax: Pax,
}

impl Scan {
    /// Begins at the first byte. Errors call the archive `part`.
    ///
    /// # Errors
    /// The character set of the options is unknown.
    pub fn new(part: &PartName, options: &OpenOptions) -> Result<Self> {
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
            last: None,
            special: 0,
            damaged_maps: 0,
        })
    }

    /// What is needed next: offset and length in bytes, behind all that was asked for before. `None`: the
    /// scan has ended.
    #[must_use]
    pub fn want(&self) -> Option<(u64, u64)> {
        self.want
    }

    /// Takes the bytes that were asked for; fewer, if the archive ends there.
    ///
    /// # Errors
    /// The archive is malformed.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let Some((at, length)) = self.want else { return Ok(()) };
        let is_cut = (bytes.len() as u64) < length;
        let state = std::mem::replace(&mut self.state, State::Header);
        let block_end = at.saturating_add(BLOCK_BYTES);
        let step = match state {
            State::Header if is_cut => self.end_of_file(at, bytes),
            State::AfterLink(member) => self.after_link(*member, bytes),
            _ if is_cut => {
                let found =
                    format!("its end, {} bytes before", length.saturating_sub(bytes.len() as u64));
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
                // The members behind it may still be whole, if a header can be found.
                self.build.warn(format!(
                    "{}: at byte {}: expected {}, found {}",
                    self.part, fault.at, fault.expected, fault.found
                ));
                self.pending = Pending::default();
                self.lost_at = Some(fault.at);
                self.state = State::Header;
                // Never back: an extended header is passed over whole.
                let behind = at.checked_add(bytes.len() as u64).and_then(round_up);
                self.want = self.want.and(behind).map(|behind| (behind, BLOCK_BYTES));
                Ok(())
            }
            step => step,
        }
    }

    pub(super) fn next_header(&mut self, at: u64) -> Result<(), Fault> {
        self.state = State::Header;
        self.want = Some((at, BLOCK_BYTES));
        Ok(())
    }

    /// Fewer bytes than a header's are left.
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
                format!("{} bytes", rest.len()),
                TRUNCATED,
            ));
        }
        if self.headers == 0 {
            return Err(Fault::new(at, "a tar archive", format!("{} bytes", rest.len()), NO_HINT));
        }
        self.build.warn(format!(
            "{}: no end mark (two blocks of zeros): it may have been cut off between two members",
            self.part
        ));
        Ok(())
    }

    fn lost(&mut self, from: u64, to: u64) {
        self.lost_at = None;
        self.build
            .warn(format!("{}: no member was found in the bytes from {from} to {to}", self.part));
    }

    /// A block where a header should be.
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
                "{}: what follows the end of the archive at byte {at} is none",
                self.part
            ));
            return Ok(());
        }
        let hint = if self.headers == 0 { NO_HINT } else { DAMAGED };
        Err(Fault::new(at, "a header with a right checksum", "a block that is none", hint))
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
                    // A name for all members is none, and maps belong to one.
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

    /// Ends the scan of an archive of `length_bytes`.
    ///
    /// # Errors
    /// The archive is cut off within a member.
    pub fn finish(mut self, length_bytes: u64) -> Result<Index, Fault> {
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
        }
        let part = &self.part;
        if self.special > 0 {
            self.build.warn(format!("{part}: {} devices and pipes are not shown", self.special));
        }
        if self.damaged_maps > 0 {
            self.build.warn(format!(
                "{part}: {} sparse files have maps that cannot be right: reading them fails",
                self.damaged_maps
            ));
        }
        let names = self.build.name_count();
        self.build.finish(self.part).map_err(|TooMany| {
            Fault::new(length_bytes, "fewer members", format!("{names}"), NO_HINT)
        })
    }
}

/// Scans an archive that lies in a file; its data is not read.
///
/// # Errors
/// The source cannot be read, or is malformed.
pub fn scan(source: &dyn Source, options: &OpenOptions) -> Result<Index> {
    let mut scan = Scan::new(source.name(), options)?;
    let mut window = Window::new(source);
    let error = |fault: Fault| fault.into_error(source.name());
    while let Some((at, length)) = scan.want() {
        let bytes = window.get(at, length)?;
        scan.take(bytes).map_err(error)?;
    }
    scan.finish(source.len()).map_err(error)
}

/// The end of the block that `at` lies in.
pub(super) fn round_up(at: u64) -> Option<u64> {
    at.checked_next_multiple_of(BLOCK_BYTES)
}
