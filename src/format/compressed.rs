//! A file that is one compressed stream (gzip, bzip2, xz, zstd, zlib): of a container of a scanned format (tar), whose
//! samples are then ranges of the decoded stream, or of any other file, which is then the only sample.
//!
//! The file is decoded once when it is opened, which makes a [`StreamIndex`] and, on the way, the index of the container in
//! it.
//! Magic numbers: RFC 1952 2.3.1, bzip2's `decompress.c`, .xz format 2.1.1.1, RFC 8878 3.1.

mod decoded;
mod examined;
mod feed;
mod file;
mod inside;
mod kept;
mod member;
mod recorded;
#[cfg(test)]
mod tests;

pub use decoded::{LATELY_BYTES, RecentIntervals};
pub use member::{
    Coding, MemberSource, OpenedMember, Recent, open_kept as open_kept_member, open_member,
};

use super::codec::{Codec, GzipHeader, is_zlib_header};
use super::file::PlainFile;
use super::records;
use super::scanned;
use super::stream::{INTERVAL_BYTES, StreamIndex};
use super::tar;
use super::{
    Container, Detected, Error, Format, OpenOptions, Result, Source, counted, has_known_extension,
    recognize,
};
use decoded::DecodedSource;
use feed::Feed;
use file::CompressedFile;
use inside::Inside;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes that suffice for every magic number.
const MAGIC_BYTES: usize = 18;
/// Bytes that suffice for a gzip header with the longest name of a file.
const HEADER_BYTES: u64 = 8 << 10;

/// The most bytes that are decoded to see whether a file that is shown as it is holds a container: its first and last
/// bytes.
const MAX_LOOK_BYTES: u64 = 256 << 20;

const CODECS: [Compressed; 5] =
    [Compressed::GZIP, Compressed::BZIP2, Compressed::XZ, Compressed::ZSTD, Compressed::ZLIB];

/// The formats of compressed files.
#[derive(Debug)]
pub struct Compressed {
    codec: Codec,
    name: &'static str,
    /// Endings of file names, without the dot.
    endings: &'static [&'static str],
}

impl Compressed {
    /// gzip.
    pub const GZIP: Self = Self { codec: Codec::Gzip, name: "gzip", endings: &["gz", "tgz"] };
    /// bzip2.
    pub const BZIP2: Self =
        Self { codec: Codec::Bzip2, name: "bzip2", endings: &["bz2", "tbz2", "tbz"] };
    /// xz.
    pub const XZ: Self = Self { codec: Codec::Xz, name: "xz", endings: &["xz", "txz"] };
    /// zstd.
    pub const ZSTD: Self =
        Self { codec: Codec::Zstd, name: "zstd", endings: &["zst", "zstd", "tzst"] };
    /// zlib, as TensorFlow compresses records.
    pub const ZLIB: Self = Self { codec: Codec::Zlib, name: "zlib", endings: &["zlib", "zz"] };

    fn is_magic(&self, head: &[u8]) -> bool {
        match (self.codec, head) {
            (Codec::Gzip, [0x1f, 0x8b, 8, flags, ..]) => flags & 0xe0 == 0,
            (Codec::Bzip2, [b'B', b'Z', b'h', b'1'..=b'9', magic @ ..]) => {
                magic.starts_with(b"1AY&SY") || magic.starts_with(b"\x17\x72\x45\x38\x50\x90")
            }
            (Codec::Xz, head) => head.starts_with(b"\xfd7zXZ\0"),
            // A frame, or a skippable frame.
            (Codec::Zstd, [0x28, 0xb5, 0x2f, 0xfd, ..]) => true,
            (Codec::Zstd, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]) => true,
            (Codec::Zlib, head) => is_zlib_header(head),
            _ => false,
        }
    }

    /// The header of a gzip file.
    fn header(&self, source: &dyn Source) -> Result<Option<GzipHeader>> {
        if self.codec != Codec::Gzip {
            return Ok(None);
        }
        let length = usize::try_from(source.len().min(HEADER_BYTES)).unwrap_or(0);
        let mut head = vec![0; length];
        read(source, &mut head)?;
        Ok(GzipHeader::read(&head))
    }

    /// A compressed file whose stream holds `container`, or any other file if there is no container.
    fn file(
        &self,
        source: Arc<dyn Source>,
        stream: Arc<StreamIndex>,
        container: Option<Box<dyn Container>>,
    ) -> Result<Box<dyn Container>> {
        let inside = match container {
            Some(container) => Inside::Container(container),
            None => {
                let header = self.header(source.as_ref())?;
                let name = self.file_name(source.as_ref(), header.as_ref());
                let whole = DecodedSource::new(Arc::clone(&source), Arc::clone(&stream));
                // Bytes that look like the end of a zip may refer to any offset.
                whole.limit(MAX_LOOK_BYTES);
                let unopened = unopened(&whole, &name);
                let modified = header.and_then(|header| header.modified);
                Inside::File { name, modified, size_bytes: stream.decoded_bytes(), unopened }
            }
        };
        Ok(Box::new(CompressedFile::new(self.name, source, stream, inside)))
    }

    /// The name of the file that was compressed.
    fn file_name(&self, source: &dyn Source, header: Option<&GzipHeader>) -> Vec<u8> {
        let stored = header.and_then(|header| header.name.as_deref()).unwrap_or_default();
        let stored = stored.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if !stored.is_empty() {
            return latin1(stored);
        }
        let path = source.name().file_name();
        let ending = path.extension().and_then(|e| e.to_str()).map(str::to_lowercase);
        let stem = path.file_stem().unwrap_or(path.as_os_str()).as_encoded_bytes();
        match ending {
            Some(ending) if self.endings.contains(&&*ending) => match ending.starts_with('t') {
                true => [stem, b".tar"].concat(),
                false => stem.to_vec(),
            },
            _ => [path.file_name().unwrap_or_default().as_encoded_bytes(), b".out"].concat(),
        }
    }
}

/// Converts a name of gzip to UTF-8: it should be Latin-1, but most programs store the bytes that the file system has.
fn latin1(name: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(name) {
        Ok(_) => name.to_vec(),
        Err(_) => name.iter().map(|byte| char::from(*byte)).collect::<String>().into_bytes(),
    }
}

impl Format for Compressed {
    fn name(&self) -> &'static str {
        self.name
    }

    fn extensions(&self) -> &'static [&'static str] {
        self.endings
    }

    fn detect(&self, source: &dyn Source) -> Result<Detected> {
        let mut head = [0; MAGIC_BYTES];
        let length = usize::try_from(source.len()).unwrap_or(MAGIC_BYTES).min(MAGIC_BYTES);
        let head = head.get_mut(..length).unwrap_or_default();
        read(source, head)?;
        Ok(match self.is_magic(head) {
            false => Detected::No,
            // Other files may begin with the same two bytes.
            true if self.codec == Codec::Zlib => Detected::Perhaps,
            true => Detected::Yes,
        })
    }

    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
        let mut feed = Feed::new(source.name(), options);
        let build = match options.allow_damaged {
            true => StreamIndex::build_cut,
            false => StreamIndex::build,
        };
        let mut fault = None;
        let take = &mut |_: u64, bytes: &[u8]| {
            if fault.is_none() {
                fault = feed.take(bytes).err();
            }
            // The rest is decoded to know whether the stream itself is damaged: then the advice is another.
            match fault.take_if(|fault| !is_of_damage(fault)) {
                Some(fault) => Err(fault),
                None => Ok(()),
            }
        };
        let stream = Arc::new(build(source.as_ref(), self.codec, INTERVAL_BYTES, take)?);
        if let Some(fault) = fault {
            return Err(fault);
        }
        let decoded = DecodedSource::new(Arc::clone(&source), Arc::clone(&stream));
        let container = feed.finish(Arc::new(decoded))?;
        if stream.is_cut() && container.is_none() {
            return Err(Error::Malformed {
                part: source.name().clone(),
                format: self.name,
                offset_bytes: stream.stored_bytes(),
                expected: "a whole file".to_owned(),
                found: format!("{} of it, and the end", counted(stream.decoded_bytes(), "byte")),
                hint: ": the file is truncated, and nothing in it is complete",
            });
        }
        self.file(source, stream, container)
    }

    fn unpack(&self, source: &dyn Source, out: &mut dyn std::io::Write) -> Result<()> {
        StreamIndex::decode_all(source, self.codec, &mut |offset_bytes, bytes| {
            out.write_all(bytes).map_err(|e| Error::Unreadable {
                part: source.name().clone(),
                what: "the stream, to write it to the spool",
                offset_bytes,
                source: e,
            })
        })
    }

    fn unpacked_name(&self, source: &dyn Source) -> Result<Vec<u8>> {
        let header = self.header(source)?;
        Ok(self.file_name(source, header.as_ref()))
    }

    fn is_scanned(&self) -> bool {
        true
    }

    fn open_kept(
        &self,
        source: Arc<dyn Source>,
        kept: Arc<dyn Source>,
    ) -> Result<Option<Box<dyn Container>>> {
        let Some((stream, container)) = kept::read(&source, &kept)? else { return Ok(None) };
        self.file(source, stream, container).map(Some)
    }
}

/// Whether an archive is damaged at some place, as it can be by damage to the stream.
fn is_of_damage(fault: &Error) -> bool {
    matches!(fault, Error::Malformed { hint, .. } if [tar::DAMAGED, records::DAMAGED].contains(hint))
}

fn read(source: &dyn Source, buf: &mut [u8]) -> Result<()> {
    source.read_exact_at(buf, 0).map_err(|e| Error::Unreadable {
        part: source.name().clone(),
        what: "the first bytes",
        offset_bytes: 0,
        source: e,
    })
}

/// The notice about a decoded stream that is shown as a file, but is a container of a format without a pass. The file's
/// name must have the ending of a known format: no other stream is decoded to find out.
fn unopened(decoded: &dyn Source, name: &[u8]) -> Option<String> {
    let name = Path::new(OsStr::from_bytes(name));
    let is_compressed =
        |format: &dyn Format| CODECS.iter().any(|codec| codec.name == format.name());
    if !has_known_extension(name) {
        return None;
    }
    let format = recognize(decoded, &OpenOptions::default()).ok()?;
    (!format.scans_streams() && !is_compressed(format)).then(|| {
        format!(
            "{}: it is compressed {}, shown as one file: --nested 1 shows what is in it, in a directory of its name \
             (where it is read in no order it is faster if it is decompressed first)",
            decoded.name(),
            format.name()
        )
    })
}

/// Opens the decoded stream of a compressed file: a container of a scanned format, or the file `name`.
///
/// # Errors
/// The source cannot be read, or the container in it is malformed.
pub fn open_decoded(
    decoded: Arc<dyn Source>,
    name: Vec<u8>,
    options: &OpenOptions,
) -> Result<Box<dyn Container>> {
    let length = usize::try_from(decoded.len()).unwrap_or(usize::MAX).min(scanned::FIRST_BYTES);
    let mut first = vec![0; length];
    read(decoded.as_ref(), &mut first)?;
    match feed::scanner_of(decoded.name(), &first, options)? {
        Some(scanner) => scanned::scan(decoded, scanner),
        None => {
            let unopened = unopened(decoded.as_ref(), &name);
            Ok(Box::new(PlainFile::new(decoded, name, unopened)))
        }
    }
}
