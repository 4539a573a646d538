//! The members that a scan makes of headers that are not extended ones: files, directories, links, and files with holes.

use super::fault::{DAMAGED, Fault, NO_HINT, no_size};
use super::header::{BLOCK_BYTES, Dialect, Header, until_nul};
use super::names;
use super::pax::{MAX_MAP_ENTRIES, Pax};
use super::sparse::{self, OldMap, TextMap};
use super::state::{Member, State, TarScanner, round_up};
use crate::format::scanned::TooMany;
use crate::format::{Attributes, Content, Sample};

/// The most bytes of a path or of a link's target; the longest path that the kernel knows has 4096.
const MAX_PATH_BYTES: usize = u16::MAX as usize;
/// The most pieces of all sparse files, besides one for each block of the archive.
const FREE_PIECES: u64 = 1 << 16;

impl TarScanner {
    /// Takes a header that is not an extended one.
    pub(super) fn member(&mut self, at: u64, header: Header) -> Result<(), Fault> {
        let pending = std::mem::take(&mut self.pending);
        let pax = pending.pax.over(&self.global);
        let size = match pax.size.flatten() {
            // A file system knows no larger files.
            Some(size) if i64::try_from(size).is_ok() => size,
            Some(_) => return Err(no_size(at)),
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
            b'5' => self.directory(&member, data_at, 0),
            b'D' => self.directory(&member, data_at, size),
            0 | b'0' if member.path.ends_with(b"/") && (size == 0 || is_v7) => {
                self.directory(&member, data_at, 0)
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
            (Some(path), _) => names::decode(self.charset, path),
            (None, Some(long)) => names::decode(self.charset, &long),
            (None, None) => {
                header.name(&mut self.name);
                names::decode(self.charset, &self.name)
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
            (Some(link), _) => names::decode(self.charset, link),
            (None, Some(long)) => names::decode(self.charset, &long),
            (None, None) => names::decode(self.charset, header.link_name()),
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

    fn directory(&mut self, member: &Member, data_at: u64, size: u64) -> Result<(), Fault> {
        self.build.directory(&member.path, &member.meta).map_err(|e| too_many(member.at, e))?;
        self.pass(member.at, data_at, size)
    }

    /// Takes a further name of a member. Only pax stores the member's data again; others may give a size without data.
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

    pub(super) fn add_link(&mut self, member: &Member, next: u64) -> Result<(), Fault> {
        self.build.link(&member.path, &member.link).map_err(|e| too_many(member.at, e))?;
        self.next_header(next)
    }

    /// Takes the rest of a file that begins on another volume.
    fn continued(&mut self, member: &Member, data_at: u64) -> Result<(), Fault> {
        if !self.allow_damaged {
            return Err(Fault::new(
                member.at,
                "a whole archive",
                "the rest of a file that begins in another volume",
                ": unpack the volumes and pack them anew (--allow-damaged serves the members that are whole)",
            ));
        }
        self.add(member, data_at, Content::Stored, &[], true)
    }

    pub(super) fn file(&mut self, mut member: Member, data_at: u64) -> Result<(), Fault> {
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

    pub(super) fn more_old_map(
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
        // The map would go on behind the member, or is too long.
        if at >= end || map.entries.len() > MAX_MAP_ENTRIES {
            return self.sparse(&member, data_at, data_at, member.size, &[], true);
        }
        self.state = State::TextMap(Box::new((member, map)));
        self.want = Some((at, BLOCK_BYTES));
        Ok(())
    }

    pub(super) fn more_text_map(
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

    /// Adds a sparse file of `size` bytes; its data begins at `data_at`, its pieces at `pieces_at`.
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
        let pieces = stored
            .filter(|_| !is_damaged && i64::try_from(size).is_ok())
            .and_then(|stored| sparse::check(entries, size, stored));
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

    /// Whether `pieces` further pieces may be kept. Each has a byte, and a real one has a block: more only waste memory.
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
}

fn end_of(pieces: &[(u64, u64)]) -> u64 {
    pieces.last().map_or(0, |(at, length)| at.saturating_add(*length))
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
