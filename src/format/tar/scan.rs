//! Finds the members of an archive, as a state machine: it says which bytes it needs next, always further on,
//! and takes them. Data of members is passed over. A file and a decoded stream drive it alike.

use super::build::{Builder, TooMany};
use super::header::{BLOCK_BYTES, Dialect, Header, until_nul};
use super::index::Index;
use super::names::Charset;
use super::pax::Pax;
use super::sparse::{self, OldMap, TextMap};
use crate::format::{Attributes, Content, Error, OpenOptions, Result, Sample, Source};
use std::path::{Path, PathBuf};

/// Extended headers and long names may have so many bytes.
const MAX_EXTENSION_BYTES: u64 = 16 << 20;
/// A path, or where a link leads; the longest that the kernel knows is 4096.
const MAX_PATH_BYTES: usize = u16::MAX as usize;
/// Behind the end of an archive so many bytes of zeros are passed over in search of a further one.
const MAX_ZEROS_BYTES: u64 = 64 << 20;
/// The map of a sparse file may have so many entries.
const MAX_MAP_ENTRIES: usize = 4 << 20;
/// The pieces of all sparse files: so many, and one a block of the archive.
const FREE_PIECES: u64 = 1 << 16;

const DAMAGED: &str =
    ": the archive is damaged (--allow-damaged serves the members that are whole)";
const TRUNCATED: &str =
    ": the archive is truncated (--allow-damaged serves the members that are whole)";
const NO_HINT: &str = "";

/// What is wrong with an archive.
#[derive(Debug)]
pub struct Fault {
    at: u64,
    expected: String,
    found: String,
    hint: &'static str,
}

impl Fault {
    fn new(at: u64, expected: &str, found: impl Into<String>, hint: &'static str) -> Self {
        Self { at, expected: expected.to_owned(), found: found.into(), hint }
    }

    /// The error that says so of a file.
    #[must_use]
    pub fn into_error(self, path: &Path) -> Error {
        Error::Malformed {
            path: path.to_owned(),
            format: super::NAME,
            offset_bytes: self.at,
            expected: self.expected,
            found: self.found,
            hint: self.hint,
        }
    }
}

/// A scan on its way through an archive.
#[derive(Debug)]
pub struct Scan {
    path: PathBuf,
    allow_damaged: bool,
    charset: Charset,
    /// What is needed next: offset and length.
    want: Option<(u64, u64)>,
    state: State,
    pending: Pending,
    global: Pax,
    build: Builder,
    name: Vec<u8>,
    /// Headers met so far.
    headers: u64,
    /// Zero blocks since the last header.
    zeros: u64,
    /// An extended header was met: the archive is one of pax.
    is_pax: bool,
    /// What was met last is no header: the next one is searched for, from this byte on.
    lost_at: Option<u64>,
    /// The last member's number if it is a file, where it begins, and where its data ends.
    last: Option<(Option<u32>, u64, u64)>,
    /// Devices and pipes.
    special: u64,
    damaged_maps: u64,
}

#[derive(Debug)]
enum State {
    Header,
    Extension(u8),
    OldMap(Box<(Member, OldMap)>),
    TextMap(Box<(Member, TextMap)>),
    AfterLink(Box<Member>),
}

/// What extension headers say of the next member.
#[derive(Debug, Default)]
struct Pending {
    /// Where the first of them stands.
    at: Option<u64>,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    pax: Pax,
}

/// A member whose header was read.
#[derive(Debug)]
struct Member {
    at: u64,
    path: Vec<u8>,
    link: Vec<u8>,
    meta: Attributes,
    size: u64,
    pax: Pax,
}

impl Scan {
    /// Begins at the first byte. Errors call the archive `path`.
    ///
    /// # Errors
    /// The character set of the options is unknown.
    pub fn new(path: &Path, options: &OpenOptions) -> Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            allow_damaged: options.allow_damaged,
            charset: Charset::new(options, path)?,
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
                self.build.warnings.push(format!(
                    "{}: at byte {}: expected {}, found {}",
                    self.path.display(),
                    fault.at,
                    fault.expected,
                    fault.found
                ));
                self.pending = Pending::default();
                self.lost_at = Some(fault.at);
                self.state = State::Header;
                self.want = self.want.map(|_| (block_end, BLOCK_BYTES));
                Ok(())
            }
            step => step,
        }
    }

    fn next_header(&mut self, at: u64) -> Result<(), Fault> {
        self.state = State::Header;
        self.want = Some((at, BLOCK_BYTES));
        Ok(())
    }

    /// Fewer bytes than a header's are left.
    fn end_of_file(&mut self, at: u64, rest: &[u8]) -> Result<(), Fault> {
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
        self.build.warnings.push(format!(
            "{}: no end mark (two blocks of zeros): it may have been cut off between two members",
            self.path.display()
        ));
        Ok(())
    }

    fn lost(&mut self, from: u64, to: u64) {
        self.lost_at = None;
        self.build.warnings.push(format!(
            "{}: no member was found in the bytes from {from} to {to}",
            self.path.display()
        ));
    }

    /// A block where a header should be.
    fn header(&mut self, at: u64, header: Header) -> Result<(), Fault> {
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
            self.build.warnings.push(format!(
                "{}: what follows the end of the archive at byte {at} is none",
                self.path.display()
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
                        sparse: Default::default(),
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

    /// A header that is no extension.
    fn member(&mut self, at: u64, header: Header) -> Result<(), Fault> {
        let pending = std::mem::take(&mut self.pending);
        let pax = pending.pax.over(&self.global);
        let size = match pax.size.flatten() {
            Some(size) => size,
            None => header.size().ok_or_else(|| no_size(at))?,
        };
        let kind = header.kind();
        let meta = Attributes {
            mode: header.mode(),
            modified: pax.modified.flatten().or_else(|| header.modified().map(|time| (time, 0))),
            ..Attributes::default()
        };
        let member = Member {
            at,
            path: self.path_of(header, &pax, pending.long_name, at)?,
            link: self.link_of(header, &pax, pending.long_link, at)?,
            meta,
            size,
            pax,
        };
        let data_at = at.saturating_add(BLOCK_BYTES);
        let is_v7 = header.dialect() == Dialect::V7;
        match kind {
            // A volume's label, names in an old form, access rights: they belong to no file.
            b'V' | b'N' | b'A' => self.pass(at, data_at, size),
            b'3' | b'4' | b'6' => {
                self.special = self.special.saturating_add(1);
                self.next_header(data_at)
            }
            b'5' => self.folder(&member, data_at, 0),
            b'D' => self.folder(&member, data_at, size),
            0 | b'0' if member.path.ends_with(b"/") && (size == 0 || is_v7) => {
                self.folder(&member, data_at, 0)
            }
            b'2' => {
                self.build
                    .symlink(&member.path, &member.meta, &member.link)
                    .map_err(|e| too_many(at, e))?;
                self.next_header(data_at)
            }
            b'1' => self.link(member, header, data_at),
            b'M' => self.continued(&member, data_at),
            b'S' => self.old_map(member, OldMap::new(header), data_at),
            _ => self.file(member, data_at),
        }
    }

    fn path_of(
        &mut self,
        header: Header,
        pax: &Pax,
        long: Option<Vec<u8>>,
        at: u64,
    ) -> Result<Vec<u8>, Fault> {
        let is_utf8 = pax.is_binary != Some(true);
        let given = pax.sparse.name.as_ref().or(pax.path.as_ref().and_then(Option::as_ref));
        let path = match (given, long) {
            (Some(path), _) if is_utf8 => path.clone(),
            (Some(path), _) => self.charset.decode(path),
            (None, Some(long)) => self.charset.decode(&long),
            (None, None) => {
                header.name(&mut self.name);
                self.charset.decode(&self.name)
            }
        };
        limited(path, at)
    }

    fn link_of(
        &self,
        header: Header,
        pax: &Pax,
        long: Option<Vec<u8>>,
        at: u64,
    ) -> Result<Vec<u8>, Fault> {
        if !matches!(header.kind(), b'1' | b'2') {
            return Ok(Vec::new());
        }
        let is_utf8 = pax.is_binary != Some(true);
        let link = match (pax.link_path.as_ref().and_then(Option::as_ref), long) {
            (Some(link), _) if is_utf8 => link.clone(),
            (Some(link), _) => self.charset.decode(link),
            (None, Some(long)) => self.charset.decode(&long),
            (None, None) => self.charset.decode(header.link_name()),
        };
        limited(until_nul(&link).to_vec(), at)
    }

    /// Passes over data that is not shown.
    fn pass(&mut self, at: u64, data_at: u64, size: u64) -> Result<(), Fault> {
        let end = data_at.checked_add(size).ok_or_else(|| no_size(at))?;
        let next = round_up(end).ok_or_else(|| no_size(at))?;
        self.last = Some((None, at, end));
        self.next_header(next)
    }

    fn folder(&mut self, member: &Member, data_at: u64, size: u64) -> Result<(), Fault> {
        self.build.folder(&member.path, &member.meta).map_err(|e| too_many(member.at, e))?;
        self.pass(member.at, data_at, size)
    }

    /// A further name of a member. Only pax stores its data again; others may give a size without data.
    fn link(&mut self, member: Member, header: Header, data_at: u64) -> Result<(), Fault> {
        let knows_size = self.is_pax || header.dialect() == Dialect::Ustar;
        if member.size == 0 || !knows_size {
            return self.add_link(&member, data_at);
        }
        if self.is_pax {
            return self.file(member, data_at);
        }
        self.state = State::AfterLink(Box::new(member));
        self.want = Some((data_at, BLOCK_BYTES));
        Ok(())
    }

    fn add_link(&mut self, member: &Member, next: u64) -> Result<(), Fault> {
        self.build.link(&member.path, &member.link).map_err(|e| too_many(member.at, e))?;
        self.next_header(next)
    }

    /// What follows a hard link that may have data: a header, or that data.
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

    /// The rest of a file that begins on another volume.
    fn continued(&mut self, member: &Member, data_at: u64) -> Result<(), Fault> {
        if !self.allow_damaged {
            return Err(Fault::new(
                member.at,
                "a whole archive",
                "the rest of a file that begins in another one: a volume of several",
                ": unpack the volumes and pack them anew (--allow-damaged serves the members that are whole)",
            ));
        }
        self.add(member, data_at, Content::Stored, &[], true)
    }

    fn file(&mut self, mut member: Member, data_at: u64) -> Result<(), Fault> {
        let map = std::mem::take(&mut member.pax.sparse);
        if map.is_map_in_data {
            member.pax.sparse = map;
            return self.want_text_map(member, TextMap::default(), data_at);
        }
        if let Some(pieces) = &map.pieces {
            let size = map.real_size.unwrap_or_else(|| end_of(pieces));
            return self.sparse(&member, data_at, data_at, size, pieces, map.is_damaged);
        }
        match map.holes.and_then(|turns| sparse::holes(&turns, member.size)) {
            Some(pieces) if self.has_room(pieces.len(), data_at, member.size) => {
                self.add(&member, data_at, Content::Sparse(member.size), &pieces, false)
            }
            _ => self.add(&member, data_at, Content::Stored, &[], false),
        }
    }

    fn old_map(&mut self, member: Member, map: OldMap, next: u64) -> Result<(), Fault> {
        if map.entries.len() > MAX_MAP_ENTRIES {
            let expected = format!("a sparse file of at most {MAX_MAP_ENTRIES} pieces");
            return Err(Fault::new(next, &expected, "more", NO_HINT));
        }
        if map.has_more {
            self.state = State::OldMap(Box::new((member, map)));
            self.want = Some((next, BLOCK_BYTES));
            return Ok(());
        }
        let size = member.pax.sparse.real_size.or(map.real_size);
        let is_damaged = map.is_damaged || size.is_none();
        let size = size.unwrap_or(member.size);
        self.sparse(&member, next, next, size, &map.entries, is_damaged)
    }

    fn more_old_map(
        &mut self,
        parts: (Member, OldMap),
        block: &[u8],
        next: u64,
    ) -> Result<(), Fault> {
        let (member, mut map) = parts;
        map.extend(block);
        self.old_map(member, map, next)
    }

    fn want_text_map(&mut self, member: Member, map: TextMap, at: u64) -> Result<(), Fault> {
        let data_at = member.at.saturating_add(BLOCK_BYTES);
        let end = data_at.checked_add(member.size).and_then(round_up);
        let end = end.ok_or_else(|| no_size(member.at))?;
        // It would go on behind the member.
        if at >= end || map.entries.len() > MAX_MAP_ENTRIES {
            return self.sparse(&member, data_at, data_at, member.size, &[], true);
        }
        self.state = State::TextMap(Box::new((member, map)));
        self.want = Some((at, BLOCK_BYTES));
        Ok(())
    }

    fn more_text_map(
        &mut self,
        parts: (Member, TextMap),
        block: &[u8],
        next: u64,
    ) -> Result<(), Fault> {
        let (member, mut map) = parts;
        let data_at = member.at.saturating_add(BLOCK_BYTES);
        match map.take(block) {
            Ok(false) => self.want_text_map(member, map, next),
            Err(()) => self.sparse(&member, data_at, data_at, member.size, &[], true),
            Ok(true) => {
                let given = &member.pax.sparse;
                let size = given.real_size.unwrap_or_else(|| end_of(&map.entries));
                let is_damaged = given.is_damaged;
                self.sparse(&member, data_at, next, size, &map.entries, is_damaged)
            }
        }
    }

    /// A sparse file of `size` bytes; its data begins at `data_at`, its pieces at `pieces_at`.
    fn sparse(
        &mut self,
        member: &Member,
        data_at: u64,
        pieces_at: u64,
        size: u64,
        entries: &[(u64, u64)],
        is_damaged: bool,
    ) -> Result<(), Fault> {
        let behind = pieces_at.saturating_sub(data_at);
        let stored = member.size.checked_sub(behind);
        let pieces =
            stored.filter(|_| !is_damaged).and_then(|stored| sparse::check(entries, size, stored));
        let pieces = pieces.filter(|pieces| self.has_room(pieces.len(), data_at, member.size));
        match (pieces, stored) {
            (Some(mut pieces), Some(_)) => {
                for piece in &mut pieces {
                    piece.2 = piece.2.saturating_add(behind);
                }
                self.add(member, data_at, Content::Sparse(size), &pieces, false)
            }
            _ => {
                self.damaged_maps = self.damaged_maps.saturating_add(1);
                self.add(member, data_at, Content::Stored, &[], true)
            }
        }
    }

    /// Each piece has a byte, and a real one has a block: more of them only waste memory.
    fn has_room(&self, pieces: usize, data_at: u64, size: u64) -> bool {
        let blocks = data_at.saturating_add(size) / BLOCK_BYTES;
        let all = self.build.piece_count().saturating_add(pieces) as u64;
        all <= FREE_PIECES.saturating_add(blocks)
    }

    fn add(
        &mut self,
        member: &Member,
        data_at: u64,
        content: Content,
        pieces: &[(u64, u64, u64)],
        damaged: bool,
    ) -> Result<(), Fault> {
        let sample = Sample {
            offset_bytes: data_at,
            length_bytes: member.size,
            damaged,
            content,
            ..Sample::default()
        };
        let end = data_at.checked_add(member.size).ok_or_else(|| no_size(member.at))?;
        let next = round_up(end).ok_or_else(|| no_size(member.at))?;
        let number = self.build.file(&member.path, &member.meta, &sample, pieces);
        let number = number.map_err(|e| too_many(member.at, e))?;
        self.last = Some((Some(number), member.at, end));
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
            self.build
                .warnings
                .push(format!("{}: truncated at byte {length_bytes}", self.path.display()));
        }
        let path = self.path.display();
        if self.special > 0 {
            self.build
                .warnings
                .push(format!("{path}: {} devices and pipes are not shown", self.special));
        }
        if self.damaged_maps > 0 {
            self.build.warnings.push(format!(
                "{path}: {} sparse files have maps that cannot be right: reading them fails",
                self.damaged_maps
            ));
        }
        let names = self.build.name_count();
        self.build.finish(self.path).map_err(|TooMany| {
            Fault::new(length_bytes, "fewer members", format!("{names}"), NO_HINT)
        })
    }
}

/// Scans an archive that lies in a file; its data is not read.
///
/// # Errors
/// The source cannot be read, or is malformed.
pub fn scan(source: &dyn Source, options: &OpenOptions) -> Result<Index> {
    let mut scan = Scan::new(source.path(), options)?;
    let mut window = super::window::Window::new(source);
    let error = |fault: Fault| fault.into_error(source.path());
    while let Some((at, length)) = scan.want() {
        let bytes = window.get(at, length)?;
        scan.take(bytes).map_err(error)?;
    }
    scan.finish(source.len()).map_err(error)
}

fn end_of(pieces: &[(u64, u64)]) -> u64 {
    pieces.last().map_or(0, |(at, length)| at.saturating_add(*length))
}

/// The end of the block that `at` lies in.
fn round_up(at: u64) -> Option<u64> {
    at.checked_next_multiple_of(BLOCK_BYTES)
}

fn no_size(at: u64) -> Fault {
    Fault::new(at, "the size of a member", "no number, or one that is too large", DAMAGED)
}

fn too_many(at: u64, _: TooMany) -> Fault {
    Fault::new(at, "fewer members than 2³¹", "one more", NO_HINT)
}

fn limited(path: Vec<u8>, at: u64) -> Result<Vec<u8>, Fault> {
    if path.len() <= MAX_PATH_BYTES {
        return Ok(path);
    }
    let expected = format!("a path of at most {MAX_PATH_BYTES} bytes");
    Err(Fault::new(at, &expected, format!("one of {}", path.len()), DAMAGED))
}
