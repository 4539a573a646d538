//! Opens a zip file: one pass over the central directory; then links, the character set and the password.

use super::crypto::Lock;
use super::end::{self, End};
use super::links::{Candidate, HardLinks, Targets, resolve};
use super::method::{Fault, Method, fault};
use super::names::Guess;
use super::oddities::Oddities;
use super::record::{CENTRAL_BYTES, Class, Head, LOCAL_BYTES, Row};
use super::walk::{Walked, walk};
use super::{ZipFile, reader, room};
use crate::format::charset::Charset;
use crate::format::codec::Codec;
use crate::format::{Container, Content, OpenOptions, Result, Source, Table, counted, quoted};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// The longest symbolic link that Linux follows.
const MAX_TARGET_BYTES: u64 = 4095;
/// The most stored bytes of a symbolic link.
const MAX_STORED_TARGET_BYTES: u64 = 1 << 16;
/// Targets of symbolic links are kept until they have this many bytes together.
const MAX_TARGETS_BYTES: usize = 64 << 20;
/// The most encrypted members on which a password is tried.
const MAX_ASKED: usize = 8;
/// The most encrypted symbolic links that are read: to decrypt one takes thousands of hashes.
const MAX_ENCRYPTED_LINKS: u64 = 4096;
/// The most PPMd symbolic links that are read: the model of each is filled with zeros first, up to 128 MiB.
const MAX_PPMD_LINKS: u64 = 64;
/// The disk number of a member whose true disk number stands in a zip64 field.
const DISK_IN_ZIP64: u16 = u16::MAX;

pub(super) fn open(source: Arc<dyn Source>, options: &OpenOptions) -> Result<ZipFile> {
    let charset = options.encoding.as_deref().map(|name| charset(source.as_ref(), name));
    let charset = charset.transpose()?;
    let mut end = end::find(source.as_ref())?;
    let table = source.table(end.directory_at, end.directory_bytes).map_err(|e| {
        reader(source.as_ref()).unreadable("the central directory", end.directory_at, e)
    })?;
    check_front(source.as_ref(), table.as_ref(), &mut end, options)?;
    let mut scan = Scan::new(source.as_ref(), end, options);
    let unreadable = |at: u64, e| {
        let at = end.directory_at.saturating_add(at);
        reader(source.as_ref()).unreadable("the central directory", at, e)
    };
    let see = &mut |at: u64, row: &Row| scan.see(at, row);
    let walked = walk(table.as_ref(), end.directory_bytes, &unreadable, see)?;
    scan.check_end(walked)?;
    scan.check_overlaps(table.as_ref())?;
    let links = resolve(&scan.candidates, table.as_ref(), end.directory_bytes, &unreadable)?;
    let hard_links = scan.join(&links);
    let symlinks = std::mem::take(&mut scan.symlinks);
    let encrypted = std::mem::take(&mut scan.encrypted);
    let guessed = charset.is_none().then(|| std::mem::replace(&mut scan.guess, Guess::new()));
    let guessed = guessed.and_then(Guess::charset);
    if let Some(charset) = guessed {
        scan.warn(format!(
            "names are not UTF-8, and are read as {}; set `encoding` if that is wrong",
            charset.name()
        ));
    }
    scan.report();
    let Scan { rows, data_bytes, warnings, .. } = scan;
    let leads = rows.iter().map(|_| AtomicU32::new(0)).collect();
    let mut file = ZipFile {
        directory: table,
        directory_at: end.directory_at,
        directory_bytes: walked.end_bytes,
        shift_bytes: end.shift_bytes,
        rows,
        leads,
        guessed_extra_bytes: AtomicU32::new(0),
        hard_links,
        targets: Targets::default(),
        charset: charset.or(guessed).unwrap_or(Charset::Dos(437)),
        password: options.password.clone(),
        is_encrypted: !encrypted.is_empty(),
        data_bytes,
        warnings,
        source,
    };
    file.learn_leads();
    file.try_password(&encrypted, options)?;
    file.read_targets(&symlinks);
    Ok(file)
}

fn charset(source: &dyn Source, name: &str) -> Result<Charset> {
    Charset::named(name).ok_or_else(|| {
        let expected = "a character set for names, such as cp437, shift_jis, gbk or koi8-r";
        reader(source).malformed(0, expected, quoted(name), "")
    })
}

/// Finds whether bytes stand before the archive or only its directory was moved; refuses an archive behind another one.
fn check_front(
    source: &dyn Source,
    table: &dyn Table,
    end: &mut End,
    options: &OpenOptions,
) -> Result<()> {
    if end.shift_bytes == 0 {
        return Ok(());
    }
    let mut fixed = [0; CENTRAL_BYTES];
    let first = table.copy_to(0, &mut fixed).ok().and_then(|()| Head::parse(&fixed));
    let header = |at: Option<u64>| {
        let mut mark = [0; 4];
        at.is_some_and(|at| source.read_exact_at(&mut mark, at).is_ok()) && end::is_local(mark)
    };
    if let Some(first) = first.filter(|first| !first.needs_extra())
        && !header(first.offset_bytes.checked_add(end.shift_bytes))
        && header(Some(first.offset_bytes))
    {
        // Only the directory was moved.
        end.shift_bytes = 0;
        return Ok(());
    }
    if end::is_local(end::mark(source)?) && !options.allow_damaged {
        let found = format!("one that begins at byte {}, after another", end.shift_bytes);
        let hint = ": a truncated archive whose last member is an archive looks like that \
                    (--allow-damaged serves the inner one)";
        return Err(reader(source).malformed(0, "one archive", found, hint));
    }
    Ok(())
}

/// The values that the pass over the directory collects.
struct Scan<'a> {
    source: &'a dyn Source,
    end: End,
    allow_damaged: bool,
    has_password: bool,
    rows: Vec<u64>,
    candidates: Vec<Candidate>,
    /// Rows of symbolic links.
    symlinks: Vec<u64>,
    /// Rows of the first encrypted members.
    encrypted: Vec<u64>,
    guess: Guess,
    /// The largest end of a member so far, and whether each member begins behind those before it.
    last_end: u64,
    is_sorted: bool,
    data_bytes: u64,
    counts: Oddities,
    warnings: Vec<String>,
}

impl<'a> Scan<'a> {
    fn new(source: &'a dyn Source, end: End, options: &OpenOptions) -> Self {
        // A row has at least 46 bytes, so that the capacity is bounded by the file's size.
        let most = end.directory_bytes.checked_div(CENTRAL_BYTES as u64).unwrap_or(0);
        let expected = usize::try_from(end.rows.min(most)).unwrap_or(0);
        Self {
            source,
            end,
            allow_damaged: options.allow_damaged,
            has_password: options.password.is_some(),
            rows: Vec::with_capacity(expected),
            candidates: Vec::new(),
            symlinks: Vec::new(),
            encrypted: Vec::new(),
            guess: Guess::new(),
            last_end: 0,
            is_sorted: true,
            data_bytes: 0,
            counts: Oddities::default(),
            warnings: Vec::new(),
        }
    }

    fn at(&self, row: u64) -> u64 {
        self.end.directory_at.saturating_add(row)
    }

    fn see(&mut self, at: u64, row: &Row) -> Result<bool> {
        let head = &row.head;
        if head.disk != 0 && head.disk != DISK_IN_ZIP64 {
            let found = format!("a member in part {} of a split one", head.disk);
            let hint = ": join the parts first (zip -s 0)";
            return Err(reader(self.source).malformed(self.at(at), "a whole archive", found, hint));
        }
        self.guess.see(row);
        add(&mut self.counts.backslashes, row.has_backslashes());
        let class = row.class();
        match class {
            Class::Directory => {
                add(&mut self.counts.full_directories, head.size_bytes > 0);
                return Ok(true);
            }
            Class::Special => {
                add(&mut self.counts.special, true);
                return Ok(true);
            }
            Class::Symlink => self.symlinks.push(at),
            Class::File => {}
        }
        self.see_extent(at, head)?;
        if let Some(target) = row.hard_link() {
            self.candidates.push(Candidate { row: at, class, target: target.to_vec() });
            return Ok(true);
        }
        self.rows.push(at);
        match fault(head, self.has_password) {
            None => self.data_bytes = self.data_bytes.saturating_add(head.size_bytes),
            Some(Fault::Lock) => add(&mut self.counts.locked, true),
            Some(Fault::Password) => add(&mut self.counts.without_password, true),
            Some(Fault::Method) => add(&mut self.counts.unknown_method, true),
            Some(Fault::Size | Fault::Extent) => add(&mut self.counts.wrong_size, true),
        }
        let is_encrypted = matches!(head.lock, Lock::ZipCrypto | Lock::Aes { .. });
        if is_encrypted && self.encrypted.len() < MAX_ASKED {
            self.encrypted.push(at);
        }
        Ok(true)
    }

    /// Members must lie before the directory, and should lie one behind the other.
    fn see_extent(&mut self, at: u64, head: &Head) -> Result<()> {
        let Some((start, end)) = extent(head, &self.end) else {
            if self.allow_damaged {
                add(&mut self.counts.outside, true);
                return Ok(());
            }
            let found =
                format!("{} at byte {}", counted(head.stored_bytes, "byte"), head.offset_bytes);
            let hint = ": the file is damaged (--allow-damaged serves the other members)";
            let expected = "a member before the central directory";
            return Err(reader(self.source).malformed(self.at(at), expected, found, hint));
        };
        self.is_sorted &= start >= self.last_end;
        self.last_end = self.last_end.max(end);
        Ok(())
    }

    fn check_end(&mut self, walked: Walked) -> Result<()> {
        // Without zip64 the count has 16 bits; some tools let it overflow.
        let is_right = match self.end.is_zip64 {
            true => walked.rows == self.end.rows,
            false => walked.rows & 0xffff == self.end.rows,
        };
        if is_right && !walked.is_cut {
            return Ok(());
        }
        let at = self.at(walked.end_bytes);
        let expected = format!("{} in the central directory", counted(self.end.rows, "member"));
        let found = format!("{}, and then other bytes", walked.rows);
        if !self.allow_damaged {
            let hint = ": it is damaged (--allow-damaged serves those that were found)";
            return Err(reader(self.source).malformed(at, &expected, found, hint));
        }
        self.warn(format!("at byte {at}: expected {expected}, found {found}"));
        Ok(())
    }

    /// Refuses members that share bytes: a small file that unpacks to a huge one, or names that show different
    /// bytes to different readers.
    fn check_overlaps(&self, table: &dyn Table) -> Result<()> {
        if self.is_sorted {
            return Ok(());
        }
        let mut extents = Vec::with_capacity(self.rows.len());
        let fail =
            |at: u64, e| reader(self.source).unreadable("the central directory", self.at(at), e);
        walk(table, self.end.directory_bytes, &fail, &mut |_, row| {
            if !matches!(row.class(), Class::Directory | Class::Special) {
                extents.extend(extent(&row.head, &self.end));
            }
            Ok(true)
        })?;
        extents.sort_unstable();
        let mut before = 0;
        for (start, end) in extents {
            if start < before {
                let found = "one that lies within another: a zip bomb?".to_owned();
                let expected = "a member that shares no bytes with others";
                return Err(reader(self.source).malformed(start, expected, found, ""));
            }
            before = end;
        }
        Ok(())
    }

    /// Takes hard links without a target as members of their own, and joins the others to their samples.
    fn join(&mut self, links: &[Option<u64>]) -> HardLinks {
        let mut resolved = Vec::new();
        for (candidate, link) in std::mem::take(&mut self.candidates).iter().zip(links) {
            match link {
                Some(target) => resolved.push((candidate.row, *target)),
                None => {
                    // Symbolic links are not counted: PKZIP for Unix writes one with several names so.
                    add(&mut self.counts.unresolved_links, candidate.class == Class::File);
                    self.rows.push(candidate.row);
                }
            }
        }
        self.rows.sort_unstable();
        let sample = |row: u64| self.rows.binary_search(&row).ok().map(|sample| sample as u64);
        let samples = resolved.iter().filter_map(|&(row, target)| Some((row, sample(target)?)));
        HardLinks::new(samples.collect())
    }

    fn warn(&mut self, text: String) {
        self.warnings.push(format!("{}: {text}", self.source.name()));
    }

    fn report(&mut self) {
        let mut counts = std::mem::take(&mut self.counts);
        (counts.before, counts.behind) = (self.end.shift_bytes, self.end.trailing_bytes);
        counts.texts().for_each(|text| self.warn(text));
    }
}

/// The number of symbolic links so far that take long to read.
#[derive(Default)]
struct CostlyLinks {
    encrypted: u64,
    ppmd: u64,
}

fn add(count: &mut u64, is_one: bool) {
    *count = count.saturating_add(is_one.into());
}

/// The least extent of a member, from its local header on. `None` if it does not end before the directory.
fn extent(head: &Head, end: &End) -> Option<(u64, u64)> {
    let (start, _) = room(head, end.shift_bytes, end.directory_at)?;
    Some((start, start.checked_add(LOCAL_BYTES)?.checked_add(head.stored_bytes)?))
}

impl ZipFile {
    /// Reads a few local headers, so that the first guesses of where data begin are good.
    fn learn_leads(&self) {
        let last = self.len().saturating_sub(1);
        for index in [0, last.checked_div(2).unwrap_or(0), last] {
            // A bad header gives its error when its sample is read.
            let _ = self.find_data(index);
        }
    }

    /// Reads the local header of a member. `None` if the header cannot be read, or is wrong.
    fn find_data(&self, index: u64) -> Option<()> {
        // The second attempt knows the header's length.
        for _ in 0..2 {
            let sample = self.sample(index).ok().filter(|sample| !sample.damaged)?;
            let header_bytes = u64::from(sample.header_bytes);
            if header_bytes == 0 {
                return Some(());
            }
            let mut header = vec![0; usize::try_from(header_bytes).ok()?];
            let at = sample.offset_bytes.checked_sub(header_bytes)?;
            self.source.read_exact_at(&mut header, at).ok()?;
            if self.check_header(index, &header).ok()? {
                return Some(());
            }
        }
        None
    }

    /// Reads the targets of the symbolic links in `rows`.
    fn read_targets(&mut self, rows: &[u64]) {
        let mut targets = Targets::default();
        let (mut unread, mut costly) = (0, CostlyLinks::default());
        for row in rows {
            let Ok(index) = self.rows.binary_search(row) else { continue };
            let index = index as u64;
            match self.read_target(index, *row, &mut costly) {
                Some(target) if targets.bytes() < MAX_TARGETS_BYTES => targets.push(index, &target),
                // Encrypted links are counted with the other encrypted members.
                _ => add(&mut unread, !self.is_encrypted(index)),
            }
        }
        self.targets = targets;
        if unread > 0 {
            let path = self.source.name();
            self.warnings
                .push(format!("{path}: {} cannot be read", counted(unread, "symbolic link")));
        }
    }

    fn read_target(&self, index: u64, at: u64, costly: &mut CostlyLinks) -> Option<Vec<u8>> {
        let bytes = self.row(at).ok()?;
        let row = Row::parse(&bytes)?;
        let head = row.head;
        if head.size_bytes == 0 {
            // PKZIP keeps the target in the extra field.
            return row.pkware_target().map(<[u8]>::to_vec);
        }
        let is_small = head.size_bytes <= MAX_TARGET_BYTES
            && head.stored_bytes <= MAX_STORED_TARGET_BYTES
            && self.fault_of(&head).is_none();
        add(&mut costly.encrypted, head.lock != Lock::None);
        let is_ppmd = matches!(Method::of(head.method), Some(Method::Coded(Codec::Ppmd)));
        add(&mut costly.ppmd, is_small && is_ppmd);
        if !is_small || costly.encrypted > MAX_ENCRYPTED_LINKS || costly.ppmd > MAX_PPMD_LINKS {
            return None;
        }
        self.find_data(index)?;
        let sample = self.sample(index).ok()?;
        let mut stored = vec![0; usize::try_from(sample.length_bytes).ok()?];
        self.source.read_exact_at(&mut stored, sample.offset_bytes).ok()?;
        let target = match sample.content {
            Content::Encoded(size) => {
                let mut target = vec![0; usize::try_from(size).ok()?];
                self.decode(index, &stored, &mut target).ok()?;
                target
            }
            _ => stored,
        };
        let is_right = sample.checksum.is_none_or(|checksum| checksum.check(&target).is_ok());
        (is_right && !target.contains(&0)).then_some(target)
    }
}
