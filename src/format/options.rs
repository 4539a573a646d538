//! What the user decides about how containers are opened.

use std::fmt;
use std::sync::Arc;

/// How [`super::Format::open`] reads a container.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Accept damage that is confined to samples (those give an error when they are read).
    pub allow_damaged: bool,
    /// The name of the format, if the content must not tell it.
    pub format: Option<&'static str>,
    /// How samples with a type are shown.
    pub view: View,
    /// Show samples that are pickles as the files that they hold.
    pub pickles: bool,
    /// Show datasets of HDF5 by their rows.
    pub rows: bool,
    /// In what character set names are stored that do not say so themselves; `None`: it is guessed.
    pub encoding: Option<String>,
    /// What encrypted samples are decrypted with.
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
