//! The state of a scan, and the values of the member that it reads.

use super::builder::Builder;
use super::fault::Fault;
use super::header::BLOCK_BYTES;
use super::pax::Pax;
use super::sparse::{OldMap, TextMap};
use crate::format::charset::Charset;
use crate::format::{Attributes, PartName};

/// A scan on its way through an archive.
#[derive(Debug)]
pub(super) struct TarScanner {
    pub(super) part: PartName,
    pub(super) allow_damaged: bool,
    pub(super) charset: Charset,
    /// The range that is needed next: offset and length.
    pub(super) want: Option<(u64, u64)>,
    pub(super) state: State,
    pub(super) pending: Pending,
    pub(super) global: Pax,
    pub(super) build: Builder,
    pub(super) name: Vec<u8>,
    /// The number of headers so far.
    pub(super) headers: u64,
    /// The number of zero blocks since the last header.
    pub(super) zeros: u64,
    /// Whether an extended header was met: the archive is one of pax.
    pub(super) is_pax: bool,
    /// The offset of the last fault, while the next header is searched for.
    pub(super) lost_at: Option<u64>,
    /// Whether the file ends where a header may begin.
    pub(super) has_no_end_mark: bool,
    /// The last member's number if it is a file, where it begins, and where its data ends.
    pub(super) last: Option<(Option<u64>, u64, u64)>,
    /// The number of devices and pipes.
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

/// The values of extended headers for the next member.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The offset of the first of these headers.
    pub(super) at: Option<u64>,
    pub(super) long_name: Option<Vec<u8>>,
    pub(super) long_link: Option<Vec<u8>>,
    pub(super) pax: Pax,
}

/// A member whose header was read.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) at: u64,
    pub(super) path: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) meta: Attributes,
    pub(super) size: u64,
    pub(super) pax: Pax,
}

impl TarScanner {
    pub(super) fn next_header(&mut self, at: u64) -> Result<(), Fault> {
        self.state = State::Header;
        self.want = Some((at, BLOCK_BYTES));
        Ok(())
    }
}

/// The end of the block that `at` lies in.
pub(super) fn round_up(at: u64) -> Option<u64> {
    at.checked_next_multiple_of(BLOCK_BYTES)
}
