//! Zip, as PKWARE's APPNOTE 6.3.10 describes it, with the fields of Info-ZIP and WinZip.
//!
//! ```text
//! [anything] | (local header | data [| data descriptor]) … | central directory | [zip64 end] | end | [anything]
//! ```
//!
//! Only the central directory is read when a zip file is opened. The directory stays in the file (mapped if it is
//! large): memory holds 12 bytes a member. Only a member's local header says where its data begins; the header is
//! fetched with the data, and its length is guessed before that ([`Container::check_header`]).

mod crypto;
mod end;
mod links;
mod method;
mod names;
mod oddities;
mod open;
mod password;
mod record;
mod unlock;
mod walk;
mod writer;

#[cfg(test)]
mod tests;

pub use writer::WriteZip;

use super::{
    Attributes, Checkpoint, Checksum, Container, Content, DecodeError, Decoder, Detected, Error,
    Format, IndexChecksum, Kind, Member, Names, Node, OpenOptions, Result, Sample, Secret, Source,
    Table, codec,
};
use crate::format::bytes::u16_at;
use crate::format::charset::Charset;
use crate::format::reader::Reader;
use crate::format::{counted, quoted};
use crypto::Lock;
use links::{HardLinks, Targets};
use method::{Fault, Method};
use record::{CENTRAL_BYTES, Class, Head, LOCAL_BYTES, LOCAL_MARK, Row};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use unlock::{Locked, Unlock};

const NAME: &str = "zip";

/// The format zip.
#[derive(Debug)]
pub struct Zip;

impl Format for Zip {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["zip", "zipx", "jar"]
    }

    fn detect(&self, source: &dyn Source) -> Result<Detected> {
        let mark = end::mark(source)?;
        let begins_so = end::is_local(mark) || end::is_split(mark);
        match end::find(source) {
            Ok(end) if begins_so || end.directory_at == 0 => Ok(Detected::Yes),
            Ok(end) if end.directory_bytes > 0 => Ok(Detected::Perhaps),
            Err(error @ Error::Unreadable { .. }) => Err(error),
            // A cut or damaged zip file: this format describes its fault best.
            _ if begins_so => Ok(Detected::Perhaps),
            _ => Ok(Detected::No),
        }
    }

    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
        Ok(Box::new(open::open(source, options)?))
    }
}

/// The length of a local header is in these bits of a member's state …
const LEAD_MASK: u32 = (1 << 24) - 1;
/// … and this one says that the header was checked.
const LEAD_CHECKED: u32 = 1 << 31;

/// An open zip file.
struct ZipFile {
    source: Arc<dyn Source>,
    directory: Box<dyn Table>,
    directory_at: u64,
    directory_bytes: u64,
    /// The bytes before the archive, to be added to every stored offset.
    shift_bytes: u64,
    /// The offset in the directory of each sample's row, ascending.
    rows: Vec<u64>,
    /// The length of each sample's local header, and whether the header was checked; 0 if the length is not known.
    leads: Vec<AtomicU32>,
    /// The bytes of extra fields in the local header that was read last: a guess for the next one.
    guessed_extra_bytes: AtomicU32,
    hard_links: HardLinks,
    targets: Targets,
    charset: Charset,
    password: Option<Secret>,
    is_encrypted: bool,
    data_bytes: u64,
    warnings: Vec<String>,
}

impl ZipFile {
    fn row_at(&self, index: u64) -> Result<u64> {
        let row = usize::try_from(index).ok().and_then(|index| self.rows.get(index));
        row.copied().ok_or_else(|| {
            let expected = format!("a member number below {}", self.rows.len());
            self.malformed(0, &expected, index.to_string(), "")
        })
    }

    fn header_length(&self, index: u64) -> Option<&AtomicU32> {
        usize::try_from(index).ok().and_then(|index| self.leads.get(index))
    }

    fn get(&self, at: u64, out: &mut [u8]) -> Result<()> {
        self.directory.copy_to(at, out).map_err(|e| self.unreadable(at, e))
    }

    fn unreadable(&self, at: u64, error: std::io::Error) -> Error {
        let at = self.directory_at.saturating_add(at);
        reader(self.source.as_ref()).unreadable("the central directory", at, error)
    }

    /// The fixed part of the row at `at`, with values of its extra fields where the fixed part refers to them.
    fn head(&self, at: u64) -> Result<Head> {
        let mut fixed = [0; CENTRAL_BYTES];
        self.get(at, &mut fixed)?;
        let mut head = Head::parse(&fixed).ok_or_else(|| self.changed(at))?;
        if head.needs_extra() {
            let bytes = self.behind(at, &head)?;
            head.apply(bytes.get(head.name_bytes()..).unwrap_or_default());
        }
        Ok(head)
    }

    /// The name and the extra fields of the row at `at`.
    fn behind(&self, at: u64, head: &Head) -> Result<Vec<u8>> {
        let mut bytes = vec![0; head.behind_bytes()];
        self.get(at.saturating_add(CENTRAL_BYTES as u64), &mut bytes)?;
        Ok(bytes)
    }

    /// The row at `at` without its comment.
    fn row(&self, at: u64) -> Result<Vec<u8>> {
        let mut fixed = [0; CENTRAL_BYTES];
        self.get(at, &mut fixed)?;
        let head = Head::parse(&fixed).ok_or_else(|| self.changed(at))?;
        let mut bytes = vec![0; CENTRAL_BYTES.saturating_add(head.behind_bytes())];
        if let Some((first, behind)) = bytes.split_at_mut_checked(CENTRAL_BYTES) {
            first.copy_from_slice(&fixed);
            self.get(at.saturating_add(CENTRAL_BYTES as u64), behind)?;
        }
        Ok(bytes)
    }

    /// The error for a row that was valid when the file was opened: another program is writing to the file.
    fn changed(&self, at: u64) -> Error {
        let expected = "a row of the central directory (was the file rewritten?)";
        self.malformed(self.directory_at.saturating_add(at), expected, "other bytes".to_owned(), "")
    }

    fn malformed(&self, at: u64, expected: &str, found: String, hint: &'static str) -> Error {
        reader(self.source.as_ref()).malformed(at, expected, found, hint)
    }

    /// The offset of a local header, and the most bytes that the header may have so that the data end before the
    /// directory. `None` if the header does not fit there.
    fn room(&self, head: &Head) -> Option<(u64, u64)> {
        room(head, self.shift_bytes, self.directory_at)
    }

    fn fault_of(&self, head: &Head) -> Option<Fault> {
        let lies_well = self.room(head).is_some();
        method::fault(head, self.password.is_some()).or((!lies_well).then_some(Fault::Extent))
    }

    /// The error for an encrypted member that cannot be decrypted.
    fn locked(&self, head: &Head) -> Error {
        let part = self.source.name().clone();
        match self.password {
            _ if head.lock == Lock::Unknown => Error::Encryption { part, how: head.unknown_lock() },
            None => Error::Locked { part },
            Some(_) => Error::WrongPassword { part, hint: "" },
        }
    }

    fn is_encrypted(&self, index: u64) -> bool {
        let head = self.row_at(index).and_then(|row| self.head(row));
        head.is_ok_and(|head| head.lock != Lock::None)
    }

    /// The bytes that the header of the traditional cipher may end in: the highest of the CRC; also that of the time
    /// where the CRC comes behind the data.
    fn check_bytes(head: &Head) -> [u8; 2] {
        const DESCRIPTOR: u16 = 1 << 3;
        let [.., of_crc] = head.crc32.to_le_bytes();
        let [_, of_time, ..] = head.dos_time.to_le_bytes();
        if head.flags & DESCRIPTOR != 0 { [of_crc, of_time] } else { [of_crc, of_crc] }
    }

    fn decode_as(&self, head: &Head, stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let opened;
        let coded = match (head.lock, &self.password) {
            (Lock::None, _) => stored,
            (_, None) => return Err(DecodeError::WrongPassword),
            (lock, Some(password)) => {
                opened = lock.open(password, stored, Self::check_bytes(head))?;
                &opened
            }
        };
        match Method::of(head.method) {
            Some(Method::Stored) if coded.len() == out.len() => {
                out.copy_from_slice(coded);
                Ok(())
            }
            Some(Method::Stored) => Err(DecodeError::Damaged(format!(
                "it is {} long, not {}",
                counted(coded.len(), "byte"),
                out.len()
            ))),
            Some(Method::Coded(codec)) => Ok(codec::decode(codec, coded, out)?),
            None => Err(DecodeError::Damaged(format!("its method {} is not known", head.method))),
        }
    }

    fn decoder_of(
        &self,
        head: &Head,
        from: Option<&Checkpoint>,
    ) -> Result<Option<Box<dyn Decoder>>, String> {
        let Some(method) = Method::of(head.method) else { return Ok(None) };
        match (head.lock, &self.password, method) {
            (Lock::None, _, Method::Stored) => Ok(None),
            (Lock::None, _, Method::Coded(codec)) => codec::decoder(codec, from),
            (_, None, _) => Ok(None),
            (lock, Some(password), method) => {
                let member = Locked {
                    lock,
                    password: password.clone(),
                    check: Self::check_bytes(head),
                    method,
                    stored_bytes: head.stored_bytes,
                };
                Ok(Unlock::new(member, from)?.map(|unlock| Box::new(unlock) as Box<dyn Decoder>))
            }
        }
    }

    /// Checks the bytes of a local header that were fetched, and returns the length of the whole header.
    fn compare_headers(&self, row_at: u64, head: &Head, at: u64, header: &[u8]) -> Result<u64> {
        let wrong = |expected: &str, found: String| {
            Err(self.malformed(at, expected, found, ": the member is damaged"))
        };
        if !header.starts_with(LOCAL_MARK) {
            return wrong("a local header", "other bytes".to_owned());
        }
        let field = |at| u16_at(header, at).unwrap_or_default();
        let (method, name_bytes, extra_bytes) = (field(8), field(26), field(28));
        if method != head.local_method() {
            let expected = format!("method {} as in the central directory", head.local_method());
            return wrong(&expected, method.to_string());
        }
        let name_end = LOCAL_BYTES.saturating_add(name_bytes.into());
        let length = name_end.saturating_add(extra_bytes.into());
        let local_name = header.get(LOCAL_BYTES as usize..usize::try_from(name_end).unwrap_or(0));
        if let Some(local_name) = local_name.filter(|_| header.len() as u64 >= length) {
            let bytes = self.row(row_at)?;
            let row = Row::parse(&bytes).ok_or_else(|| self.changed(row_at))?;
            // Some tools write a name here without its special characters, and the whole name in a Unicode field.
            let is_rewritten = record::field(row.extra, record::EXTRA_UNICODE_PATH).is_some();
            if local_name != row.name && !is_rewritten && !is_masked(head) {
                let (expected, shown) = (quoted(row.name), quoted(local_name));
                return wrong(&format!("the header of {expected}"), format!("that of {shown}"));
            }
        }
        self.guessed_extra_bytes.store(extra_bytes.into(), Ordering::Relaxed);
        Ok(length)
    }
}

/// Whether the local header hides its values: PKWARE's encryption of the central directory.
fn is_masked(head: &Head) -> bool {
    head.flags & record::FLAG_MASKED != 0
}

fn room(head: &Head, shift_bytes: u64, directory_at: u64) -> Option<(u64, u64)> {
    let header_at = head.offset_bytes.checked_add(shift_bytes)?;
    let room = directory_at.checked_sub(header_at)?.checked_sub(head.stored_bytes)?;
    (room >= LOCAL_BYTES).then_some((header_at, room))
}

impl Container for ZipFile {
    fn format(&self) -> &'static str {
        NAME
    }

    fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    fn sample(&self, index: u64) -> Result<Sample> {
        let head = self.head(self.row_at(index)?)?;
        let is_stored =
            head.lock == Lock::None && head.method == 0 && head.stored_bytes == head.size_bytes;
        let mut sample = Sample {
            length_bytes: head.stored_bytes,
            checksum: head.lock.has_crc().then_some(Checksum::Crc32(head.crc32)),
            content: if is_stored { Content::Stored } else { Content::Encoded(head.size_bytes) },
            ..Sample::default()
        };
        let (Some((header_at, room)), None) = (self.room(&head), self.fault_of(&head)) else {
            sample.damaged = true;
            sample.offset_bytes = head.offset_bytes.saturating_add(self.shift_bytes);
            sample.length_bytes = head.stored_bytes.max(1);
            if let Content::Encoded(size) = &mut sample.content {
                *size = (*size).clamp(1, i64::MAX as u64);
            }
            return Ok(sample);
        };
        let state = self.header_length(index).map_or(0, |length| length.load(Ordering::Relaxed));
        let known = u64::from(state & LEAD_MASK);
        let header_bytes = if known != 0 {
            known
        } else {
            let guess = LOCAL_BYTES
                .saturating_add(head.name_bytes() as u64)
                .saturating_add(self.guessed_extra_bytes.load(Ordering::Relaxed).into());
            guess.min(room)
        };
        sample.offset_bytes = header_at.saturating_add(header_bytes);
        if state & LEAD_CHECKED == 0 {
            sample.header_bytes = u32::try_from(header_bytes).unwrap_or(u32::MAX);
        }
        Ok(sample)
    }

    fn check_unchanged(&self) -> std::io::Result<()> {
        self.source.check_unchanged()
    }

    fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// True of every member: one without a CRC is encrypted by AES (AE-2) and has an HMAC.
    fn checks_encoding(&self, _index: u64) -> bool {
        true
    }

    fn decode(&self, index: u64, stored: &[u8], out: &mut [u8]) -> Result<()> {
        let head = self.head(self.row_at(index)?)?;
        let at = head.offset_bytes.saturating_add(self.shift_bytes);
        let part = || self.source.name().clone();
        self.decode_as(&head, stored, out).map_err(|error| match error {
            DecodeError::WrongPassword => self.locked(&head),
            DecodeError::Damaged(why) => Error::Undecodable { part: part(), offset_bytes: at, why },
        })
    }

    fn decoder(&self, index: u64, from: Option<&Checkpoint>) -> Result<Option<Box<dyn Decoder>>> {
        let head = self.head(self.row_at(index)?)?;
        self.decoder_of(&head, from).map_err(|why| {
            let at = head.offset_bytes.saturating_add(self.shift_bytes);
            self.malformed(at, "a checkpoint of this member", why, "")
        })
    }

    fn has_decoders(&self) -> bool {
        true
    }

    fn codec(&self, index: u64) -> Option<codec::Codec> {
        let head = self.row_at(index).and_then(|row| self.head(row)).ok()?;
        match Method::of(head.method)? {
            Method::Coded(codec) if head.lock == Lock::None => Some(codec),
            _ => None,
        }
    }

    fn may_keep_checkpoints(&self, index: u64) -> bool {
        let head = self.row_at(index).and_then(|row| self.head(row));
        head.is_ok_and(|head| head.lock == Lock::None)
    }

    fn check_header(&self, index: u64, header: &[u8]) -> Result<bool> {
        let row_at = self.row_at(index)?;
        let head = self.head(row_at)?;
        let Some((header_at, room)) = self.room(&head) else { return Err(self.changed(row_at)) };
        let length = self.compare_headers(row_at, &head, header_at, header)?;
        if length > room {
            let expected = "data that end before the central directory";
            let found = format!("a local header of {}", counted(length, "byte"));
            return Err(self.malformed(header_at, expected, found, ": the member is damaged"));
        }
        let is_whole = length == header.len() as u64;
        let state = u32::try_from(length).unwrap_or(0) | if is_whole { LEAD_CHECKED } else { 0 };
        if let Some(length) = self.header_length(index) {
            // A late reader with another guess does not undo the length that another reader has checked.
            let unless_checked = |known| (known & LEAD_CHECKED == 0).then_some(state);
            let _ = length.fetch_update(Ordering::Relaxed, Ordering::Relaxed, unless_checked);
        }
        Ok(is_whole)
    }

    fn attributes(&self, index: u64) -> Result<Attributes> {
        let at = self.row_at(index)?;
        let bytes = self.row(at)?;
        let row = Row::parse(&bytes).ok_or_else(|| self.changed(at))?;
        let links = self.hard_links.names_of(index);
        Ok(Attributes { links, ..attributes(&row) })
    }

    fn link_target(&self, index: u64) -> Result<Vec<u8>> {
        let at = self.row_at(index)?;
        match self.targets.get(index) {
            Some(target) => Ok(target.to_vec()),
            None => {
                let head = self.head(at)?;
                if head.lock != Lock::None {
                    return Err(self.locked(&head));
                }
                let at = self.directory_at.saturating_add(at);
                let expected = "the target of a symbolic link";
                Err(self.malformed(at, expected, "damaged bytes".to_owned(), ""))
            }
        }
    }

    fn members(&self, visit: &mut dyn FnMut(Member) -> Result<()>) -> Result<()> {
        let mut next: u64 = 0;
        let see = &mut |at: u64, row: &Row| -> Result<bool> {
            let node = match row.class() {
                Class::Special => return Ok(true),
                Class::Directory => Node::Directory(attributes(row)),
                _ => Node::Sample(match self.hard_links.sample_at(at) {
                    Some(sample) => sample,
                    None if self.row_at(next).is_ok_and(|row| row == at) => {
                        let sample = next;
                        next = next.saturating_add(1);
                        sample
                    }
                    None => return Err(self.changed(at)),
                }),
            };
            visit(Member { path: &self.charset.name_of(row), node })?;
            Ok(true)
        };
        let unreadable = &|at, e| self.unreadable(at, e);
        walk::walk(self.directory.as_ref(), self.directory_bytes, unreadable, see).map(|_| ())
    }

    fn names(&self, _samples: u64) -> Result<Names> {
        Ok(Names::Members)
    }

    fn index_checksum(&self) -> IndexChecksum {
        IndexChecksum::None
    }

    fn fault(&self, index: u64) -> Option<super::Fault> {
        let head = self.row_at(index).and_then(|row| self.head(row)).ok()?;
        let is_locked = matches!(self.fault_of(&head), Some(Fault::Lock | Fault::Password));
        is_locked.then(|| self.locked(&head).into())
    }

    fn wants_password(&self) -> bool {
        self.is_encrypted && self.password.is_none()
    }

    fn has_password(&self) -> bool {
        self.is_encrypted && self.password.is_some()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

fn attributes(row: &Row) -> Attributes {
    let kind = if row.class() == Class::Symlink { Kind::Symlink } else { Kind::File };
    Attributes { kind, mode: row.head.mode(), modified: row.modified(), links: 1 }
}

fn reader(source: &dyn Source) -> Reader<'_> {
    Reader::new(source, NAME)
}
