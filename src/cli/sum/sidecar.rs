//! `ffrfs sum --sidecar`: checksums of every sample of containers whose format has none.

use super::super::view::ViewArgs;
use super::{SumArgs, refuse_source};
use crate::dataset::checksums::{CheckedBy, beside};
use crate::dataset::open;
use crate::failure::{Exit, Failure, say};
use crate::format::sidecar::{self, ENDING, Key};
use crate::io::File;
use crate::tools::output::{file_beside, give_name};
use crate::tools::sum::Samples;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

pub(super) fn run(args: &SumArgs) -> Result<Exit, Failure> {
    if args.open.nested > 0 {
        return Err(Failure::usage(
            "--sidecar: containers that are members of others can have none; leave --nested away",
        ));
    }
    let mut open = args.open.clone();
    // What is there is what is to be written anew.
    open.checksums.checksums = "none".into();
    let opened = open::open(&args.sources, &open)?;
    let view = ViewArgs { flat: true, ..ViewArgs::default() };
    let catalog = opened.catalog(&view, &open)?;
    if let Some(output) = &args.output {
        refuse_source(output, &opened)?;
        may_replace(output).map_err(|e| Failure::output(output.display(), e))?;
    }
    let mut wanted = Vec::new();
    for number in 0..opened.dataset.parts().len() {
        match lacks_checksums(&opened, number)? {
            true => wanted.push(number),
            false => say(format_args!(
                "{}: every sample has a checksum already",
                opened.store.part(number).name()
            )),
        }
    }
    let names: Vec<_> = opened.store.parts().iter().map(|part| part.name().clone()).collect();
    let samples = Samples::new(opened, catalog, false);
    let (mut together, mut written, mut exit) = (Vec::new(), Vec::new(), Exit::Ok);
    for number in wanted {
        let Some(path) = names[number].as_path() else { continue };
        let key = &key(&samples, number, path)?;
        let Some(rows) = rows(&samples, number, args.jobs())? else {
            say(format_args!("ffrfs: {}: has bad samples: no sidecar of it", path.display()));
            exit = Exit::Checksum;
            continue;
        };
        let mut section = Vec::new();
        let memory = |e| Failure::output("memory", e);
        sidecar::write(&mut section, key, &rows).map_err(memory)?;
        match &args.output {
            Some(_) => together.extend(section),
            None => {
                write(&beside(path), &section)?;
                written.push(beside(path));
            }
        }
    }
    // One file for all that lacks one of them would be refused where it is used.
    if let (Some(output), false, Exit::Ok) = (&args.output, together.is_empty(), exit) {
        write(output, &together)?;
        written.push(output.clone());
    }
    drop(samples);
    written.iter().for_each(|path| say(format_args!("{}", path.display())));
    Ok(exit)
}

/// What tells a container from others: of the file itself, also if it was decoded to another one. If it
/// changes while it is read, the reads say so.
fn key(samples: &Samples, container: usize, path: &Path) -> Result<Key, Failure> {
    let file = File::open(path).map_err(|e| Failure::unreadable(path.display(), e))?;
    Ok(Key::of(&file, samples.dataset().parts()[container].as_ref())?)
}

/// Whether a container has a sample without a checksum.
fn lacks_checksums(opened: &open::Opened, container: usize) -> Result<bool, Failure> {
    let dataset = &opened.dataset;
    for index in 0..dataset.parts()[container].len() {
        let located = dataset.locate(dataset.number(container, index))?;
        if located.is_some_and(|located| opened.checked_by(&located) == CheckedBy::Nothing) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The CRC-32 of each sample of a container; `None` if one is bad. A compressed stream was decoded and checked
/// when it was indexed: its intervals have theirs.
fn rows(samples: &Samples, container: usize, jobs: usize) -> Result<Option<Vec<u32>>, Failure> {
    let part = samples.dataset().parts()[container].as_ref();
    if part.stream().is_some_and(|stream| stream.decoded_bytes() > 0) {
        return Ok(Some(Vec::new()));
    }
    let first = samples.dataset().number(container, 0);
    let wanted = first..first + part.len();
    let (mut rows, mut bad) = (Vec::new(), 0_u64);
    samples.in_order(
        wanted,
        jobs,
        &|sample, fetched| samples.crc32(sample, fetched),
        &mut |_, crc32| {
            bad += u64::from(crc32.is_none());
            rows.push(crc32.unwrap_or_default());
            Ok(())
        },
    )?;
    Ok((bad == 0).then_some(rows))
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

/// A file that was named by mistake must not be lost.
fn may_replace(path: &Path) -> io::Result<()> {
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
