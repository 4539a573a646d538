//! The format of a container: by its content, or failing that by its name.
//!
//! Imports the registry, the formats with rules of their own, and the messages about files that no format reads.

use super::{
    Container, Detected, Error, FORMATS, Format, OpenOptions, Result, Source, foreign, lmdb,
    pickled, zip,
};
use std::path::Path;
use std::sync::Arc;

/// Opens a container with the format of its content, or failing that of its name.
///
/// # Errors
/// As [`Format::open`]; or no format knows the content.
pub fn open(source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
    let format = recognize(source.as_ref(), options)?;
    let opened = format.open(Arc::clone(&source), options);
    opened.map_err(|error| explained(error, format, source.as_ref()))
}

/// Adds to an error of a container a fact about the whole file: it is empty, or has a zip archive at its end, which can be
/// mounted.
#[must_use]
pub fn explained(error: Error, format: &dyn Format, source: &dyn Source) -> Error {
    let is_of_bytes = matches!(error, Error::Malformed { .. } | Error::Undecodable { .. });
    if source.is_empty() && is_of_bytes {
        return foreign::refuse_text(source).unwrap_or(error);
    }
    let is_zip = format.name() == zip::Zip.name();
    match error {
        Error::Malformed { part, format, offset_bytes, expected, found, hint }
            if !is_zip && matches!(zip::Zip.detect(source), Ok(Detected::Perhaps)) =>
        {
            let found = found + foreign::AND_A_ZIP;
            Error::Malformed { part, format, offset_bytes, expected, found, hint }
        }
        error => error,
    }
}

/// The format of a container's content, or failing that of its name.
///
/// # Errors
/// The source cannot be read, or no format knows the content.
pub fn recognize(source: &dyn Source, options: &OpenOptions) -> Result<&'static dyn Format> {
    let format = stored_format(source, options)?;
    Ok(pickled::over(format, options).unwrap_or(format))
}

/// The format of the container itself, whatever its samples hold.
fn stored_format(source: &dyn Source, options: &OpenOptions) -> Result<&'static dyn Format> {
    if let Some(format) = options.format.and_then(|name| FORMATS.iter().find(|f| f.name() == name))
    {
        return Ok(*format);
    }
    let mut best: Option<(Detected, &dyn Format)> = None;
    for format in FORMATS {
        let detected = format.detect(source)?;
        if detected > best.map_or(Detected::No, |(detected, _)| detected) {
            best = Some((detected, *format));
        }
        if detected == Detected::Yes {
            break;
        }
    }
    if let Some((detected, format)) = best {
        let may_be_a_part = detected == Detected::Perhaps && format.name() == zip::Zip.name();
        let refused = may_be_a_part.then(|| foreign::refuse_with_zip(source)).flatten();
        return refused.map_or(Ok(format), Err);
    }
    if let Some(error) = foreign::refuse(source) {
        return Err(error);
    }
    // The format of the name cannot be right, but its reader gives the best error.
    let unknown = || foreign::refuse_text(source).unwrap_or_else(|| Error::unknown(source));
    by_name(source.name().file_name()).ok_or_else(unknown)
}

/// The format whose files have names with this ending.
fn by_name(path: &Path) -> Option<&'static dyn Format> {
    let extension = path.extension()?.to_str()?;
    // As in `train.tfrecord-00000-of-00064`.
    let extension = extension.split_once('-').map_or(extension, |(ending, _)| ending);
    let has = |format: &&&dyn Format| {
        format.extensions().iter().any(|known| known.eq_ignore_ascii_case(extension))
    };
    FORMATS.iter().find(has).copied()
}

/// Whether a file name has the ending of some format's files, for which a directory of containers is searched.
#[must_use]
pub fn has_known_extension(path: &Path) -> bool {
    !lmdb::is_lock_file(path) && by_name(path).is_some()
}
