//! Values that are pickles, as the files that they hold.
//!
//! Imports the rows, and `pickled`, which takes pickles apart.

use super::row::{Builder, Row};
use crate::format::scanned::Headers;
use crate::format::{OpenOptions, ending, pickled};

/// The number of files that are taken from pickles, whatever the database's length is.
const FREE_FILES: u64 = 1 << 16;
/// The most bytes of a name besides its own: a slash, and an ending.
const NAME_BYTES_MORE: usize = 6;

/// Takes values that are pickles apart.
pub(super) struct Unpickler {
    is_asked: bool,
    headers: Headers,
    files_left: u64,
}

/// A file of a value, or an empty directory.
pub(super) struct File {
    /// The path below that of the value.
    pub(super) path: Vec<Vec<u8>>,
    /// `None` for a directory.
    pub(super) row: Option<Row>,
    pub(super) size_bytes: u64,
    pub(super) ending: &'static str,
}

impl Unpickler {
    /// The unpickler of a database of `bytes` bytes.
    pub(super) fn new(bytes: u64, options: &OpenOptions) -> Self {
        let files_left = FREE_FILES.saturating_add(bytes / pickled::BYTES_A_FILE);
        Self { is_asked: pickled::is_asked(options), headers: Headers::default(), files_left }
    }

    /// Whether a value of `length` bytes that begins with `head` is to be read whole.
    pub(super) fn may_take(&self, head: &[u8], length: u32) -> bool {
        let is_asked = self.is_asked && u64::from(length) <= pickled::MAX_SAMPLE_BYTES;
        is_asked && pickled::may_be(head)
    }

    /// The files of a value that stands at offset `at`, under a path of `above` bytes; their paths have `room` bytes in
    /// all. `None` if the value is not taken apart.
    pub(super) fn take(
        &mut self,
        value: &[u8],
        at: u64,
        (above, room): (usize, u64),
        build: &mut Builder,
    ) -> Option<Vec<File>> {
        if !self.is_asked || !pickled::may_be(value) {
            return None;
        }
        let files = pickled::take_apart(value)?;
        let paths = files.files.iter().map(|file| &file.path).chain(&files.directories);
        let (mut count, mut path_bytes) = (0_u64, 0_u64);
        for path in paths {
            let names = path.iter().map(|name| name.len().saturating_add(NAME_BYTES_MORE));
            let bytes = names.fold(above.saturating_add(NAME_BYTES_MORE), usize::saturating_add);
            path_bytes = path_bytes.saturating_add(bytes as u64);
            count = count.saturating_add(1);
        }
        let left = self.files_left.checked_sub(count)?;
        if path_bytes > room {
            return None;
        }
        let mut taken = Vec::with_capacity(files.files.len());
        for file in files.files {
            let is_coded = file.data.latin1.is_some();
            let decoded_bytes = file.data.latin1.map(|bytes| bytes as u64);
            let header = match is_coded || !file.header.is_empty() {
                true => Some(self.headers.place(build, &file.header, decoded_bytes)?),
                false => None,
            };
            let row = Row {
                offset: at.saturating_add(file.data.range.start as u64),
                length: u32::try_from(file.data.range.len()).ok()?,
                is_damaged: false,
                is_coded,
                header,
            };
            let size_bytes = (file.header.len() as u64).saturating_add(file.data.len() as u64);
            let ending = ending::named(file.ending);
            taken.push(File { path: file.path, row: Some(row), size_bytes, ending });
        }
        taken.extend(files.directories.into_iter().map(|path| File {
            path,
            row: None,
            size_bytes: 0,
            ending: "",
        }));
        self.files_left = left;
        Some(taken)
    }
}
