//! The encoding of the values of a column that is written, by the kind of its first value.
//!
//! Imports `columns`.

use super::columns::{code_of, dtype_of};
use crate::format::npy;
use crate::format::write::Field;
use serde::de::IgnoredAny;
use std::borrow::Cow;

/// The encoding of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Jpeg,
    Png,
    Json,
    Text,
    /// Numbers of a type of NumPy, by the package's name and NumPy's.
    Number(&'static str, &'static str),
    /// Arrays, each with its type and shape.
    Array,
    Bytes,
}

impl Encoding {
    /// The encoding of a column whose first value is `field`.
    pub(super) fn of(field: &Field) -> Self {
        match field.ending {
            ".jpg" | ".jpeg" => Self::Jpeg,
            ".png" => Self::Png,
            ".json" => Self::Json,
            ".txt" => Self::Text,
            _ => match field.array().map(|array| (dtype_of(&array.descr), array.shape)) {
                Some((Some((name, descr)), shape)) if shape.is_empty() => Self::Number(name, descr),
                Some((Some(_), _)) => Self::Array,
                _ => Self::Bytes,
            },
        }
    }

    /// The package's name for the encoding.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::Png => "png",
            Self::Json => "json",
            Self::Text => "str",
            // The name that the package's users write for Python's integers.
            Self::Number("int64", _) => "int",
            Self::Number(name, _) => name,
            Self::Array => "ndarray",
            Self::Bytes => "bytes",
        }
    }

    /// The size of every value, if all have the same.
    pub(super) fn size(self) -> Option<u64> {
        match self {
            Self::Number(_, descr) => npy::item_bytes(descr),
            _ => None,
        }
    }

    /// Encodes a value as it is stored.
    ///
    /// # Errors
    /// Why the value does not have this encoding.
    pub(super) fn encode<'a>(self, field: &Field<'a>) -> Result<Cow<'a, [u8]>, String> {
        let is_right = match self {
            Self::Jpeg | Self::Png => true,
            Self::Json => serde_json::from_slice::<IgnoredAny>(field.bytes).is_ok(),
            Self::Text => std::str::from_utf8(field.bytes).is_ok(),
            Self::Number(_, descr) => {
                let array = field.array().filter(|array| array.descr == descr);
                let array = array.filter(|array| array.shape.is_empty());
                return array
                    .map(|array| Cow::Borrowed(array.elements))
                    .ok_or_else(|| self.refuse());
            }
            Self::Array => return self.array(field).map(Cow::Owned).ok_or_else(|| self.refuse()),
            Self::Bytes => true,
        };
        is_right.then_some(Cow::Borrowed(field.bytes)).ok_or_else(|| self.refuse())
    }

    fn refuse(self) -> String {
        format!("the file is no {}, as the first sample's is", self.name())
    }

    /// Encodes an array: `code of the type | dimensions << 2 | width of their lengths | lengths | elements`
    fn array(self, field: &Field) -> Option<Vec<u8>> {
        let array = field.array()?;
        let mut out = vec![code_of(&array.descr)?];
        let dimensions = u8::try_from(array.shape.len()).ok().filter(|count| *count < 64)?;
        let largest = array.shape.iter().max().copied().unwrap_or(0);
        let width = match largest {
            0..=0xff => 0,
            0x100..=0xffff => 1,
            0x1_0000..=0xffff_ffff => 2,
            _ => 3,
        };
        out.push(dimensions << 2 | width);
        for length in &array.shape {
            out.extend_from_slice(length.to_le_bytes().get(..1 << width)?);
        }
        out.extend_from_slice(array.elements);
        Some(out)
    }
}
