//! The user's options for opening containers.

use std::fmt;
use std::sync::Arc;

/// Options of [`super::Format::open`].
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Whether damage that is confined to samples is accepted (those give an error when they are read).
    pub allow_damaged: bool,
    /// The name of the format, if it is not to be found by content.
    pub format: Option<&'static str>,
    /// How samples with a type are shown.
    pub view: View,
    /// Whether samples that are pickles are shown as the files that they hold.
    pub pickles: bool,
    /// Whether datasets of HDF5 are shown by their rows.
    pub rows: bool,
    /// The character set of names that do not name theirs; `None` if it is to be guessed.
    pub encoding: Option<String>,
    /// The password of encrypted samples.
    pub password: Option<Secret>,
}

/// How samples with a type are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum View {
    /// As files that programs know: `.npy`, `.jpg`, `.ppm`, `.json`, `.txt`.
    #[default]
    Typed,
    /// The stored bytes.
    Raw,
    /// As `Typed`, but raw images as `.npy` too.
    Npy,
}

/// Bytes that are never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// Wraps a password.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// The password.
    #[must_use]
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
