//! Values → files: the files that a pickled sample shows, and the places of their bytes.

use super::images::of_image;
use super::machine::{Unpickled, most_decoded};
use super::value::{Array, Bytes, Id, Value};
use crate::format::{ending, npy};
use std::collections::HashMap;

/// The most lists and dictionaries within each other.
const MAX_DEPTH: usize = 16;
/// The most files and empty directories of a sample; a sample with more stays one file.
const MAX_FILES: usize = 4096;
/// The most bytes of a sample's headers, which an index holds: a fixed number, or a multiple of the sample's length if that is
/// more.
const MAX_HEADER_BYTES: usize = 4 << 10;
const HEADERS_A_BYTE: usize = 16;
/// The most values that are visited: a value in several places counts each time.
const MAX_LOOKS: usize = 1 << 16;

/// The files and directories that a sample shows.
#[derive(Debug, Default)]
pub(in crate::format) struct Files {
    pub(in crate::format) files: Vec<File>,
    /// The paths of empty lists and dictionaries.
    pub(in crate::format) directories: Vec<Vec<Vec<u8>>>,
    looks: usize,
    /// Bytes of the headers of all files.
    header_bytes: usize,
    /// Bytes of values and names that were visited.
    decoded_bytes: usize,
    key_bytes: usize,
}

/// A file of a sample.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::format) struct File {
    /// The path; empty if the sample is this file.
    pub(in crate::format) path: Vec<Vec<u8>>,
    /// The code of its ending.
    pub(in crate::format) ending: u8,
    /// The header before the bytes.
    pub(in crate::format) header: Vec<u8>,
    /// Bytes of the pickle.
    pub(in crate::format) data: Bytes,
}

/// Finds the files of a pickle. `None` if the pickle has a value that cannot be a file.
pub(super) fn files(bytes: &[u8], pickle: &Unpickled) -> Option<Files> {
    let mut all = Files::default();
    all.visit(bytes, pickle, pickle.top, &mut Vec::new())?;
    (!all.files.is_empty() || !all.directories.is_empty()).then_some(all)
}

impl Files {
    fn visit(
        &mut self,
        bytes: &[u8],
        pickle: &Unpickled,
        id: Id,
        path: &mut Vec<Vec<u8>>,
    ) -> Option<()> {
        self.count(bytes, pickle.get(id)?, path)?;
        let nothing = Bytes { range: 0..0, latin1: None };
        let (header, data, kind) = match pickle.get(id)? {
            Value::None => return Some(()),
            Value::Tuple(items) | Value::List(items) => {
                let names = (0..items.len()).map(|number| number.to_string().into_bytes());
                let entries: Vec<_> = names.zip(items.iter().copied()).collect();
                return self.directory(bytes, pickle, &entries, path);
            }
            Value::Dict(items) => {
                self.count_keys(bytes, pickle, items)?;
                let entries = unique(bytes, pickle, items)?;
                return self.directory(bytes, pickle, &entries, path);
            }
            Value::Bool(value) => {
                let text = if *value { "True" } else { "False" };
                (text.as_bytes().to_vec(), nothing, ".txt")
            }
            Value::Int(value) => (value.to_string().into_bytes(), nothing, ".txt"),
            Value::Float(value) => (float(*value).into_bytes(), nothing, ".txt"),
            Value::Text(range) => {
                (Vec::new(), Bytes { range: range.clone(), latin1: None }, ".txt")
            }
            Value::Bytes(data) => {
                let ending = ending::named(ending::code_of(&decoded(bytes, data)));
                (Vec::new(), data.clone(), ending)
            }
            Value::Array(array) => {
                let (header, ending) = of_array(array);
                (header, array.data.clone(), ending)
            }
            Value::Image(image) => {
                let (header, ending) = of_image(pickle, image)?;
                (header, image.data.clone(), ending)
            }
            Value::Known(_)
            | Value::Dtype(_)
            | Value::NewArray
            | Value::NewImage
            | Value::Storage(_) => return None,
        };
        self.header_bytes = self.header_bytes.saturating_add(header.len());
        if self.header_bytes > MAX_HEADER_BYTES.max(bytes.len().saturating_mul(HEADERS_A_BYTE)) {
            return None;
        }
        self.files.push(File { path: path.clone(), ending: ending::code(kind), header, data });
        Some(())
    }

    /// Counts a value that is visited. `None` if there are too many values, or they lie too deep, or decode to too many bytes.
    fn count(&mut self, bytes: &[u8], value: &Value, path: &[Vec<u8>]) -> Option<()> {
        self.looks = self.looks.saturating_add(1);
        let of_value = match value {
            Value::Bytes(data) => data.range.len(),
            Value::Text(range) => range.len(),
            Value::Array(array) => array.data.range.len(),
            Value::Image(image) => image.data.range.len(),
            Value::Dict(items) => items.len(),
            _ => 0,
        };
        let of_path: usize = path.iter().map(Vec::len).sum();
        self.decoded_bytes = self.decoded_bytes.saturating_add(of_value).saturating_add(of_path);
        let all = self.files.len().saturating_add(self.directories.len());
        let is_bounded = self.decoded_bytes <= most_decoded(bytes.len())
            && path.len() <= MAX_DEPTH
            && all < MAX_FILES
            && self.looks <= MAX_LOOKS;
        is_bounded.then_some(())
    }

    /// Counts the bytes of a dictionary's keys, which are compared: one long key may be that of many entries.
    fn count_keys(&mut self, bytes: &[u8], pickle: &Unpickled, items: &[(Id, Id)]) -> Option<()> {
        let keys = items.iter().filter_map(|(key, _)| pickle.get(*key));
        let lengths = keys.map(|key| match key {
            Value::Text(range) | Value::Bytes(Bytes { range, .. }) => range.len(),
            _ => 0,
        });
        self.key_bytes = lengths.fold(self.key_bytes, usize::saturating_add);
        (self.key_bytes <= most_decoded(bytes.len())).then_some(())
    }

    fn directory(
        &mut self,
        bytes: &[u8],
        pickle: &Unpickled,
        entries: &[(Vec<u8>, Id)],
        path: &mut Vec<Vec<u8>>,
    ) -> Option<()> {
        if entries.is_empty() && !path.is_empty() {
            self.directories.push(path.clone());
        }
        for (name, id) in entries {
            path.push(name.clone());
            self.visit(bytes, pickle, *id, path)?;
            path.pop();
        }
        Some(())
    }
}

/// The entries of a dictionary. A later entry with an equal key takes the place of the first, as in Python, where `1` and `'1'`
/// are two keys: such keys are shown under names that are made different.
fn unique(bytes: &[u8], pickle: &Unpickled, items: &[(Id, Id)]) -> Option<Vec<(Vec<u8>, Id)>> {
    let mut places: HashMap<(u8, Vec<u8>), usize> = HashMap::new();
    let mut entries: Vec<(Vec<u8>, Id)> = Vec::with_capacity(items.len());
    for (key, value) in items {
        let (kind, name) = match pickle.get(*key)? {
            Value::Text(range) => (0, bytes.get(range.clone())?.to_vec()),
            Value::Bytes(Bytes { range, latin1: None }) => (1, bytes.get(range.clone())?.to_vec()),
            Value::Int(number) => (2, number.to_string().into_bytes()),
            _ => return None,
        };
        str::from_utf8(&name).ok()?;
        match places.get(&(kind, name.clone())).and_then(|place| entries.get_mut(*place)) {
            Some(entry) => entry.1 = *value,
            None => {
                places.insert((kind, name.clone()), entries.len());
                entries.push((name, *value));
            }
        }
    }
    Some(entries)
}

/// Decodes bytes, whatever their form in the pickle is.
pub(super) fn decoded(bytes: &[u8], data: &Bytes) -> Vec<u8> {
    let stored = bytes.get(data.range.clone()).unwrap_or_default();
    match data.latin1 {
        None => stored.to_vec(),
        Some(count) => {
            let mut out = vec![0; count];
            // The characters were checked when the value was made.
            latin1(stored, &mut out);
            out
        }
    }
}

/// Fills `out` with the bytes that characters of UTF-8 stand for. False if the characters stand for other bytes, or for more or
/// fewer.
pub(in crate::format) fn latin1(stored: &[u8], out: &mut [u8]) -> bool {
    let Ok(text) = str::from_utf8(stored) else { return false };
    let mut bytes = text.chars().map(|character| u8::try_from(u32::from(character)));
    let is_filled = out.iter_mut().all(|to| match bytes.next() {
        Some(Ok(byte)) => {
            *to = byte;
            true
        }
        _ => false,
    });
    is_filled && bytes.next().is_none()
}

fn of_array(array: &Array) -> (Vec<u8>, &'static str) {
    match &array.descr {
        Some(descr) => {
            let header = match array.is_fortran {
                true => npy::fortran_header(descr, &array.shape),
                false => npy::header(descr, &array.shape),
            };
            (header, ".npy")
        }
        None => (Vec::new(), ".bin"),
    }
}

/// A float as Python writes it.
fn float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let exponent = format!("{value:e}");
    let (digits, power) = exponent.split_once('e').unwrap_or((&exponent, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&power) {
        let sign = if power < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", power.unsigned_abs());
    }
    format!("{value:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
            (123_456.789, "123456.789"),
        ] {
            assert_eq!(float(value), text);
        }
    }

    #[test]
    fn characters_stand_for_bytes_or_for_none() {
        let mut out = [0; 3];
        assert!(latin1("aÿ\u{80}".as_bytes(), &mut out));
        assert_eq!(out, [b'a', 0xff, 0x80]);
        for wrong in ["aÿ", "aÿ\u{80}b", "aÿ\u{100}"] {
            assert!(!latin1(wrong.as_bytes(), &mut out), "{wrong}");
        }
    }
}
