//! LMDB (`data.mdb`), as lmdb 0.9 of 64-bit little-endian machines writes it: read only, without its lock file.
//!
//! Two pages at the start point at the trees that hold keys and values: the newer valid page counts. The trees are
//! walked once, which makes an index that can be kept: 24 bytes for each value, and its name. LMDB has no checksums.
//! `page` has the layout.

mod key;
mod page;
mod pickles;
mod row;
#[cfg(test)]
mod tests;
mod walk;

use super::reader::Reader;
use super::scanned::MembersFile;
use super::{Container, Detected, Format, OpenOptions, Result, Source, counted};
use page::{HEAD_BYTES, MAGIC, META_BYTES, Meta};
use row::Index;
use std::path::Path;
use std::sync::Arc;
use walk::Walk;

const NAME: &str = "LMDB";
/// The page sizes by which the second meta page is looked for, if the first one is wrong.
const PAGE_SIZES: [u64; 9] = [4096, 16_384, 65_536, 8192, 32_768, 2048, 1024, 512, 256];
/// The offset of the main database's description in a meta page.
const MAIN_AT: u64 = 88;

/// Whether a file name is that of the lock file that lies beside `data.mdb`.
#[must_use]
pub fn is_lock_file(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "lock.mdb")
}

/// The format LMDB.
#[derive(Debug)]
pub struct Lmdb;

impl Format for Lmdb {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["mdb", "lmdb"]
    }

    fn directory_file(&self) -> Option<&'static str> {
        Some("data.mdb")
    }

    fn detect(&self, source: &dyn Source) -> Result<Detected> {
        let reader = Reader::new(source, NAME);
        if reader.len() < META_BYTES as u64 {
            return Ok(Detected::No);
        }
        let magic = u32::from_le_bytes(reader.bytes("the first page", HEAD_BYTES as u64)?);
        Ok(if magic == MAGIC { Detected::Yes } else { Detected::No })
    }

    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
        let (meta, at) = read_meta(Reader::new(source.as_ref(), NAME))?;
        let mut walk = Walk::new(source.as_ref(), meta.page_bytes, options);
        walk.main(&meta.main, at.saturating_add(MAIN_AT))?;
        let index = walk.build.finish(source.name().clone());
        Ok(Box::new(MembersFile::new(source, index)))
    }

    fn is_scanned(&self) -> bool {
        true
    }

    fn open_kept(
        &self,
        source: Arc<dyn Source>,
        kept: Arc<dyn Source>,
    ) -> Result<Option<Box<dyn Container>>> {
        let index = Index::read(kept.as_ref())?;
        Ok(index.map(|index| Box::new(MembersFile::new(source, index)) as Box<dyn Container>))
    }
}

/// Reads the meta page that counts; returns it and its offset.
fn read_meta(reader: Reader<'_>) -> Result<(Meta, u64)> {
    let first = meta_at(reader, 0);
    let sizes = match &first {
        Ok(meta) => vec![u64::from(meta.page_bytes)],
        Err(_) => PAGE_SIZES.to_vec(),
    };
    let is_second = |meta: &Meta, at: u64| u64::from(meta.page_bytes) == at;
    let second = sizes.into_iter().find_map(|at| {
        meta_at(reader, at).ok().filter(|meta| is_second(meta, at)).map(|meta| (meta, at))
    });
    match (first, second) {
        (Ok(first), Some(second)) if second.0.transaction > first.transaction => Ok(second),
        (Ok(first), _) => Ok((first, 0)),
        (Err(_), Some(second)) => Ok(second),
        (Err(error), None) => Err(error),
    }
}

fn meta_at(reader: Reader<'_>, at: u64) -> Result<Meta> {
    let end = at.saturating_add(META_BYTES as u64);
    if end > reader.len() {
        let found = format!("a file of {}", counted(reader.len(), "byte"));
        return Err(reader.malformed(reader.len(), "two pages that describe it", found, ""));
    }
    let page: [u8; META_BYTES] = reader.bytes("a meta page", at)?;
    Meta::read(&page).map_err(|wrong| {
        let at = at.saturating_add(wrong.at as u64);
        reader.malformed(at, wrong.expected, wrong.found, "")
    })
}
