//! Bytes → samples: where samples lie in a container, and how they are checked.
//!
//! One file (or directory) for each format, the registry [`FORMATS`], positioned [`Source`]s and errors. This room imports
//! nothing from the others: no FUSE, no threads, no system calls, no `unsafe`, and no panic on any input. A new format is
//! one module (a file, or a directory) and one line in [`FORMATS`], where reads, names, checks, tools and `--format` find
//! it. Its parts:
//!
//! 1. [`Format`]: `detect` by content (cheap, and only [`Detected::Yes`] if no other format begins so), and `open`, which
//!    checks all of the structure and leaves the index in the container ([`Source::table`]). If `open` must read all of the
//!    container: [`scanned`] has the index, its file and the pass, and `ScannedFormat` the rest.
//! 2. [`Container`]: `sample` says where the bytes of sample i lie, and by its [`Content`] which further methods are
//!    called: none (`Stored`), or `prefix`, `decode` and perhaps `decoder`, `piece`. Damaged samples do not keep whole ones
//!    from being read: they are [`Sample::damaged`], or give an error when they are decoded.
//! 3. Names: `names` chooses a kind of [`Names`]; `members` gives them as they are stored, `field_name` as directory
//!    entries. [`OpenOptions`] hold the decisions of users; `attributes` and `link_target` are for members of archives.
//! 4. No number from a file is believed: checked arithmetic, no memory by a claimed size ([`Error::Malformed`]
//!    names the byte). The lints below hold in the whole room.
//! 5. Tests with every field cut and flipped, a fixture that the format's own package wrote, a fuzz target; a section in
//!    `docs/formats.md`.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

#[cfg(test)]
mod bounds;
mod bytes;
mod charset;
pub mod checksum;
pub mod codec;
pub mod compressed;
mod counted;
mod decode;
mod ending;
mod error;
mod fault;
pub mod ffcv;
pub mod ffrecord;
pub mod file;
mod foreign;
pub mod hdf5;
mod json;
pub mod lmdb;
pub mod magic;
pub mod mds;
mod member;
pub(crate) mod name;
mod npy;
mod options;
pub mod parquet;
mod part_name;
pub mod pickled;
mod reader;
mod recognize;
pub mod recordio;
mod records;
pub mod safetensors;
mod sample;
pub mod scanned;
pub mod shown;
pub mod sidecar;
mod source;
pub mod stream;
pub mod syrah;
pub mod tar;
#[cfg(test)]
mod testing;
pub mod tfrecord;
mod visible;
pub mod write;
pub mod zip;

pub use charset::is_charset;
pub use checksum::{Checksum, ChecksumKind, Mismatch};
pub(crate) use counted::{counted, one_or_many};
pub use decode::{Checkpoint, DecodeError, Decoder, Progress};
pub use error::{Error, Result, unread_codec};
pub use fault::Fault;
pub use ffrecord::pickle::{Directory, Entry};
pub use member::{Attributes, Kind, Member, Node};
pub use options::{OpenOptions, Secret, View};
pub use part_name::PartName;
pub use recognize::{explained, has_known_extension, open, recognize};
pub use sample::{Content, Piece, Sample};
pub use source::{MemorySource, SliceSource, Source, Table, table_in_memory};
pub(crate) use visible::{one_line, quoted, visible, visible_json};
pub use write::{
    Grouping, Holds, Input, MemberWriter, NewMember, NewNode, Outline, Output, WRITERS,
    WriteFormat, WriteList, writer_named,
};

use scanned::Scanner;
use std::sync::Arc;

/// Every format that can be mounted, in the order in which they are tried: those with a magic number
/// first.
pub static FORMATS: &[&dyn Format] = &[
    &compressed::Compressed::GZIP,
    &compressed::Compressed::BZIP2,
    &compressed::Compressed::XZ,
    &compressed::Compressed::ZSTD,
    &tfrecord::TfRecord,
    &recordio::RecordIo,
    &syrah::Syrah,
    &zip::Zip,
    &tar::Tar,
    &lmdb::Lmdb,
    &safetensors::Safetensors,
    &mds::Mds,
    &ffcv::Ffcv,
    &hdf5::Hdf5,
    &parquet::Parquet,
    &ffrecord::FfRecord,
    &compressed::Compressed::ZLIB,
];

/// A kind of container.
pub trait Format: Sync {
    /// The name that people know the format by, such as `FFRecord`.
    fn name(&self) -> &'static str;

    /// File name endings without the dot, in lower case.
    fn extensions(&self) -> &'static [&'static str];

    /// Whether the content looks like this format; cheap, and no promise that [`Format::open`] succeeds.
    ///
    /// # Errors
    /// The source cannot be read.
    fn detect(&self, source: &dyn Source) -> Result<Detected>;

    /// Reads and checks the container's structure (not its samples).
    ///
    /// # Errors
    /// The source cannot be read, its structure is wrong, or its index fails its checksum.
    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>>;

    /// The name of the file that makes a directory one dataset of this format: the format's own package opens the
    /// directory.
    fn directory_file(&self) -> Option<&'static str> {
        None
    }

    /// Whether opening reads all of the container, so that its index is worth keeping ([`Container::keep`]).
    fn is_scanned(&self) -> bool {
        false
    }

    /// Whether the format is looked for in compressed streams: it is scanned, and no sample has header bytes.
    fn scans_streams(&self) -> bool {
        false
    }

    /// Begins a pass over a decoded stream, if the stream is of this format. `first` are its first
    /// [`scanned::FIRST_BYTES`], or all of a shorter stream; errors call it `part`, which names the compressed file.
    ///
    /// # Errors
    /// The options do not suit the format.
    fn scan_stream(
        &self,
        part: &PartName,
        first: &[u8],
        options: &OpenOptions,
    ) -> Result<Option<Box<dyn Scanner>>> {
        let _ = (part, first, options);
        Ok(None)
    }

    /// Opens a container by its kept index. `None` if another version of the program kept the index.
    ///
    /// # Errors
    /// A source cannot be read, or the index is damaged.
    fn open_kept(
        &self,
        source: Arc<dyn Source>,
        kept: Arc<dyn Source>,
    ) -> Result<Option<Box<dyn Container>>> {
        let _ = (source, kept);
        Ok(None)
    }

    /// Decodes a stream that is refused with [`Error::NoCheckpoints`], whole and in order.
    ///
    /// # Errors
    /// The source cannot be read or is damaged, or `out` fails.
    fn unpack(&self, source: &dyn Source, out: &mut dyn std::io::Write) -> Result<()> {
        let _ = (source, out);
        Ok(())
    }

    /// The name of the file that [`Format::unpack`] decodes.
    ///
    /// # Errors
    /// The source cannot be read.
    fn unpacked_name(&self, source: &dyn Source) -> Result<Vec<u8>> {
        let _ = source;
        Ok(Vec::new())
    }
}

/// How sure [`Format::detect`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detected {
    /// The content is not of this format.
    No,
    /// The content is of this format unless another one is sure of it: a zip file behind a program that unpacks it.
    Perhaps,
    /// The content is of this format, intact or not.
    Yes,
}

/// One open container: an immutable list of samples, each of which is shown as a file.
pub trait Container: Send + Sync {
    /// The format's name, as in [`Format::name`].
    fn format(&self) -> &'static str;
    /// The number of samples.
    fn len(&self) -> u64;
    /// Whether there is no sample.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns where sample `index` lies.
    ///
    /// # Errors
    /// `index` is out of range, or the container was changed so that its index cannot be read any more.
    fn sample(&self, index: u64) -> Result<Sample>;

    /// Checks that the file is still the one that was opened, so that its index can be believed.
    ///
    /// # Errors
    /// The file was changed meanwhile: the error says how.
    fn check_unchanged(&self) -> std::io::Result<()>;

    /// Whether answers about a sample stay the same if the file is rewritten: the index was read into memory, or lies in
    /// another file. An index that is mapped from the file is not fixed.
    fn index_is_fixed(&self) -> bool {
        false
    }

    /// The bytes of all samples together, as they are shown.
    fn data_bytes(&self) -> u64;

    /// The bytes that a file shows before the stored bytes of a sample with [`Content::Prefixed`]: as many as that variant
    /// says.
    ///
    /// # Errors
    /// As [`Container::sample`].
    fn prefix(&self, index: u64) -> Result<Vec<u8>> {
        let _ = index;
        Ok(Vec::new())
    }

    /// Decodes a sample with [`Content::Encoded`] from all of its stored bytes. `out` is as long as the
    /// sample says, and is filled; whether the bytes match [`Sample::checksum`] is for the caller to check.
    ///
    /// # Errors
    /// The stored bytes are no encoding of `out.len()` bytes.
    fn decode(&self, index: u64, stored: &[u8], out: &mut [u8]) -> Result<()> {
        let _ = (index, stored, out);
        Ok(())
    }

    /// Makes a decoder of a sample with [`Content::Encoded`], which decodes step by step from the sample's start, or from a
    /// checkpoint that an earlier decoder of this sample gave. `None` if the sample can only be decoded as a whole.
    ///
    /// # Errors
    /// As [`Container::sample`].
    fn decoder(&self, index: u64, from: Option<&Checkpoint>) -> Result<Option<Box<dyn Decoder>>> {
        let _ = (index, from);
        Ok(None)
    }

    /// Whether [`Container::decoder`] gives a decoder for any sample.
    fn has_decoders(&self) -> bool {
        false
    }

    /// Whether checkpoints of a sample may be written to disk: they hold some of its decoded bytes.
    fn may_keep_checkpoints(&self, index: u64) -> bool {
        let _ = index;
        true
    }

    /// Checks the [`Sample::header_bytes`] that stand before a sample; after that the sample has no header bytes. Returns
    /// false if the data lie elsewhere: [`Container::sample`] now says where, and there may be header bytes to check again.
    ///
    /// # Errors
    /// The header bytes are not those of this sample.
    fn check_header(&self, index: u64, header: &[u8]) -> Result<bool> {
        let _ = (index, header);
        Ok(true)
    }

    /// The stored piece of a sample with [`Content::Sparse`] that begins at or behind `offset_bytes` of the file, or that
    /// this byte lies in. `None` if the rest of the file is a hole. With [`Container::stream`] every sample has pieces, and
    /// they lie in the decoded stream.
    ///
    /// # Errors
    /// As [`Container::sample`].
    fn piece(&self, index: u64, offset_bytes: u64) -> Result<Option<Piece>> {
        let _ = (index, offset_bytes);
        Ok(None)
    }

    /// Whether a password is missing: there are encrypted samples, and the container was opened without a password.
    fn wants_password(&self) -> bool {
        false
    }

    /// Whether there are encrypted samples, and the given password opens some of them.
    fn has_password(&self) -> bool {
        false
    }

    /// The reason why a sample that is [`Sample::damaged`] cannot be read, if it was found when the container was indexed:
    /// the sample may be whole, but encrypted.
    fn fault(&self, index: u64) -> Option<Fault> {
        let _ = index;
        None
    }

    /// Whether there is a sample with [`Content::Sparse`].
    fn has_holes(&self) -> bool {
        false
    }

    /// The container as one compressed stream, of which every sample is one or more ranges ([`Container::piece`] gives
    /// them): intervals that are decoded for one sample serve its neighbours, and of a large sample only a part need be
    /// decoded. Such samples are [`Content::Encoded`] too, and can be decoded one by one.
    fn stream(&self) -> Option<&Arc<stream::StreamIndex>> {
        None
    }

    /// The intervals that a sample's bytes are decoded from: those of [`Container::stream`], or chunks in which the
    /// container holds the sample. [`Container::piece`] gives its ranges of the chunks, as of a stream.
    fn intervals(&self, index: u64) -> Option<&dyn stream::Intervals> {
        let _ = index;
        self.stream().map(|stream| stream.as_ref() as &dyn stream::Intervals)
    }

    /// Whether there are samples with [`Container::intervals`].
    fn has_intervals(&self) -> bool {
        self.stream().is_some()
    }

    /// Whether the encoding of a sample with [`Content::Encoded`] holds a check that is made when it is decoded, as AES
    /// does.
    fn checks_encoding(&self, index: u64) -> bool {
        let _ = index;
        false
    }

    /// Whether the chunks of a sample carry checksums of their own, which are compared when they are decoded.
    fn checks_intervals(&self, index: u64) -> bool {
        let _ = index;
        false
    }

    /// The codec of a sample with [`Content::Encoded`] whose stored bytes are one stream of that codec and nothing else:
    /// not encrypted.
    fn codec(&self, index: u64) -> Option<codec::Codec> {
        let _ = index;
        None
    }

    /// With [`Container::stream`]: how the file of a sample comes from its ranges of the decoded stream. With
    /// [`Content::Prefixed`] the pieces lie behind [`Container::prefix`]; with [`Content::Encoded`] they are one range,
    /// from which [`Container::decode_in_stream`] makes the file.
    ///
    /// # Errors
    /// As [`Container::sample`].
    fn content_in_stream(&self, index: u64) -> Result<Content> {
        let _ = index;
        Ok(Content::Stored)
    }

    /// Makes the file of a sample from its range of the decoded stream; `out` is as long as the sample says.
    ///
    /// # Errors
    /// The range is no encoding of `out.len()` bytes.
    fn decode_in_stream(&self, index: u64, range: &[u8], out: &mut [u8]) -> Result<()> {
        let _ = (index, range, out);
        Ok(())
    }

    /// The attributes of a sample.
    ///
    /// # Errors
    /// As [`Container::sample`].
    fn attributes(&self, index: u64) -> Result<Attributes> {
        let _ = index;
        Ok(Attributes::default())
    }

    /// The target of a symbolic link, a sample without bytes.
    ///
    /// # Errors
    /// As [`Container::sample`].
    fn link_target(&self, index: u64) -> Result<Vec<u8>> {
        let _ = index;
        Ok(Vec::new())
    }

    /// With [`Names::Fields`]: the path of a file in its record's directory, of names that can be directory entries. No
    /// other field of the record has this path.
    ///
    /// # Errors
    /// As [`Container::sample`].
    fn field_name(&self, index: u64) -> Result<Vec<u8>> {
        let _ = index;
        Ok(Vec::new())
    }

    /// With [`Names::Members`]: visits every name, in the order of the container. A sample may have several names (hard
    /// links), a name may stand twice, and names are visited as they are stored, unchecked. With [`Names::Records`] each
    /// path begins with the number of its record in the container.
    ///
    /// # Errors
    /// As [`Container::sample`]; or an error that `visit` returns.
    fn members(&self, visit: &mut dyn FnMut(Member) -> Result<()>) -> Result<()> {
        let _ = visit;
        Ok(())
    }

    /// Whether a later member takes the place of an earlier one of the same name, as when all are extracted in order.
    fn replaces_members(&self) -> bool {
        false
    }

    /// The names that the container stores for samples `0..samples`.
    ///
    /// # Errors
    /// The source cannot be read, or the stored names fail their checksum.
    fn names(&self, samples: u64) -> Result<Names>;

    /// Writes the index that was made by reading all of the container, for [`Format::open_kept`].
    ///
    /// # Errors
    /// `out` fails, or the index cannot be read.
    fn keep(&self, out: &mut dyn std::io::Write) -> std::io::Result<()> {
        let _ = out;
        Ok(())
    }

    /// Whether the index carries a checksum (which then was right when the container was opened).
    fn index_checksum(&self) -> IndexChecksum;

    /// Facts that an admin should know, but that do not keep the container from being used.
    fn warnings(&self) -> &[String];

    /// The notice that the container's only sample is itself a container, which was not opened.
    fn unopened(&self) -> Option<&str> {
        None
    }
}

/// Kinds of names in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Names {
    /// Samples have numbers only.
    None,
    /// A tree of names over the samples.
    Tree(Directory),
    /// The number of fields of each record. Records are numbered directories; sample i is field i % fields of record i /
    /// fields. [`Container::field_name`] names the fields.
    Fields(u64),
    /// Every sample has a path: [`Container::members`].
    Members,
    /// The number of records. Each is a numbered file, or a numbered directory of its own files: [`Container::members`].
    Records(u64),
    /// The reason why something that looks like a tree of names cannot be trusted.
    Refused(String),
}

/// State of the checksum over a container's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexChecksum {
    /// The checksum is present and right.
    Ok,
    /// The format has a checksum, this container does not.
    Absent,
    /// The format has no checksum: the index cannot be verified.
    None,
}
