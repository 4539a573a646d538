//! Sidecars: checksums of every sample of containers whose format has no checksums.

use super::samples::Samples;
use crate::dataset::beside::{SIDECAR, beside};
use crate::dataset::checksums::CheckedBy;
use crate::failure::Failure;
use crate::format::sidecar::{self, ENDING, Key};
use crate::format::{ChecksumKind, PartName};
use crate::io::File;
use crate::tools::encrypted::Encrypted;
use crate::tools::output::{file_beside, give_name};
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// The outcome for all containers.
#[derive(Debug, Default)]
pub(crate) struct Sidecars {
    /// Files that were written.
    pub(crate) written: Vec<PathBuf>,
    /// Containers that already have a checksum of every sample.
    pub(crate) complete: Vec<PartName>,
    /// Containers with bad samples, which get no sidecar.
    pub(crate) bad: Vec<PartName>,
    /// Containers with encrypted samples that cannot be decrypted, how many, and how many have another password: they get
    /// none either.
    pub(crate) encrypted: Vec<(PartName, Encrypted, u64)>,
}

/// How many samples have no checksum.
#[derive(Debug, Default)]
struct Unread {
    bad: u64,
    encrypted: Encrypted,
    /// Encrypted with another password, or damaged.
    other_password: u64,
}

/// Writes a sidecar beside each container that lacks checksums, or all sections to the file `output`, which gets its
/// name only if no container has bad or encrypted samples.
pub(crate) fn write_sidecars(
    samples: &Samples,
    output: Option<&Path>,
    threads: usize,
) -> Result<Sidecars, Failure> {
    let (mut sidecars, mut together) = (Sidecars::default(), Vec::new());
    for number in 0..samples.dataset().containers().len() {
        let name = samples.opened.store.part(number).name().clone();
        if !lacks_checksums(samples, number)? {
            sidecars.complete.push(name);
            continue;
        }
        let key = key(samples, number)?;
        if output.is_none() && name.as_path().is_none() {
            return Err(Failure::usage(format!(
                "{name}: nothing is written to a store: -o FILE writes the sidecar to a file; upload it as {name}.{ENDING}"
            )));
        }
        let rows = match rows(samples, number, threads)? {
            Ok(rows) => rows,
            Err(Unread { bad, encrypted, other_password }) => {
                if encrypted.all + other_password > 0 {
                    sidecars.encrypted.push((name.clone(), encrypted, other_password));
                }
                if bad > 0 {
                    sidecars.bad.push(name);
                }
                continue;
            }
        };
        let mut section = Vec::new();
        let memory = |e| Failure::output("memory", e);
        sidecar::write(&mut section, &key, &rows).map_err(memory)?;
        match output {
            Some(_) => together.extend(section),
            None => {
                let path = name.as_path().unwrap_or(Path::new(""));
                let path = beside(path, SIDECAR);
                write(&path, &section)?;
                sidecars.written.push(path);
            }
        }
    }
    // A file that lacks one of the containers would be refused when it is used.
    let is_whole = sidecars.bad.is_empty() && sidecars.encrypted.is_empty();
    if let (Some(output), false, true) = (output, together.is_empty(), is_whole) {
        write(output, &together)?;
        sidecars.written.push(output.to_owned());
    }
    Ok(sidecars)
}

/// The key of a container: of the original file, even if that was decoded to another one. Reads report changes of the
/// file.
fn key(samples: &Samples, number: usize) -> Result<Key, Failure> {
    let container = samples.dataset().containers()[number].as_ref();
    let part = samples.opened.store.part(number);
    let Some(path) = part.name().as_path() else { return Ok(Key::of(part, container)?) };
    let file = File::open(path).map_err(|e| Failure::unreadable(path.display(), e))?;
    Ok(Key::of(&file, container)?)
}

/// Whether a container has a sample without a checksum.
fn lacks_checksums(samples: &Samples, container: usize) -> Result<bool, Failure> {
    let dataset = samples.dataset();
    for index in 0..dataset.containers()[container].len() {
        let located = dataset.locate(dataset.number(container, index))?;
        let is_unchecked = |located| samples.opened.checked_by(&located) == CheckedBy::Nothing;
        if located.is_some_and(is_unchecked) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The CRC-32 of each sample of a container, unless one is bad or encrypted. Empty for a compressed stream, whose intervals were
/// decoded and got checksums when it was indexed.
fn rows(
    samples: &Samples,
    container: usize,
    threads: usize,
) -> Result<Result<Vec<u32>, Unread>, Failure> {
    let part = samples.dataset().containers()[container].as_ref();
    if part.stream().is_some_and(|stream| stream.decoded_bytes() > 0) {
        return Ok(Ok(Vec::new()));
    }
    let first = samples.dataset().number(container, 0);
    let wanted = first..first + part.len();
    let (mut rows, mut unread) = (Vec::new(), Unread::default());
    samples.checksums(wanted, threads, ChecksumKind::Crc32, &mut |sample, checksum| {
        match checksum.map(|checksum| checksum.and_then(|checksum| checksum.crc32())) {
            Ok(Some(crc32)) => rows.push(crc32),
            Ok(None) => unread.bad += 1,
            Err(fault) if unread.encrypted.count(&fault) => {}
            Err(fault) => {
                let is_encrypted = fault.is_encrypted();
                *if is_encrypted { &mut unread.other_password } else { &mut unread.bad } += 1;
                // The names of this catalog are numbers.
                samples.log_bad(sample, b"", &fault)?;
            }
        }
        Ok(())
    })?;
    let Unread { bad, encrypted, other_password } = &unread;
    Ok(if bad + encrypted.all + other_password == 0 { Ok(rows) } else { Err(unread) })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let written = || -> io::Result<()> {
        may_replace(path)?;
        let mut out = BufWriter::new(file_beside(path)?);
        out.write_all(bytes)?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.as_file().sync_all()?;
        give_name(file.into_temp_path(), path, true)
    };
    written().map_err(|e| {
        let what = format!("{} (-o FILE writes it elsewhere)", path.display());
        Failure::output(what, e)
    })
}

/// Refuses to replace a file that is not a sidecar: a user may have named it by mistake.
pub(crate) fn may_replace(path: &Path) -> io::Result<()> {
    if path.extension().is_some_and(|ending| ending == ENDING) {
        return Ok(());
    }
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.len() > 0 => {
            Err(io::Error::other(format!("is there, and not called *.{ENDING}: name another file")))
        }
        _ => Ok(()),
    }
}
