//! `ffrfs sum --check`: samples against a list, without a mount.

use super::list::parse;
use super::{Output, SumArgs};
use crate::catalog::{Catalog, Node};
use crate::dataset::hash::Algorithm;
use crate::dataset::open::Opened;
use crate::failure::{Exit, Failure, say};
use crate::tools::sum::{Fetched, Samples};
use std::io::Read;
use std::path::Path;

/// A line of the list.
struct Line {
    hash: Vec<u8>,
    path: Vec<u8>,
    algorithm: Algorithm,
}

pub(super) fn run(
    args: &SumArgs,
    list: &Path,
    opened: Opened,
    catalog: Catalog,
) -> Result<Exit, Failure> {
    let mut lines = lines(list, args.algorithm)?;
    let mut out = Output::new(None, &opened)?;
    let samples = Samples::new(opened, catalog, out.is_terminal());
    // In the order of the container, which is the order to read in; what is not there comes first.
    let mut found = Vec::with_capacity(lines.len());
    for line in lines.drain(..) {
        let node = samples.catalog().find(samples.dataset(), &line.path)?;
        found.push((if let Some(Node::Sample(sample)) = node { Some(sample) } else { None }, line));
    }
    found.sort_by_key(|(sample, _)| *sample);
    let (mut missing, mut wrong, mut bad) = (0_u64, 0_u64, 0_u64);
    let mut tell = |line: &Line, what: &str| {
        out.write(&[&line.path[..], b": ", what.as_bytes(), b"\n"].concat())
    };
    let there = found.partition_point(|(sample, _)| sample.is_none());
    for (_, line) in &found[..there] {
        missing += 1;
        tell(line, "FAILED: no such sample")?;
    }
    let found = &found[there..];
    let wanted = found.iter().filter_map(|(sample, _)| *sample);
    let mut next = found.iter();
    // Lines are taken one by one, by as many threads; each result is for the next line.
    let of_sample = |sample: u64, fetched: &Fetched| -> Vec<Option<Vec<u8>>> {
        let first = found.partition_point(|(other, _)| *other < Some(sample));
        let same = found[first..].iter().take_while(|(other, _)| *other == Some(sample));
        let mut hashes: Vec<(Algorithm, Option<Vec<u8>>)> = Vec::new();
        same.map(|(_, line)| {
            if let Some((_, hash)) = hashes.iter().find(|(of, _)| *of == line.algorithm) {
                return hash.clone();
            }
            let hash = samples.hash(sample, fetched, line.algorithm);
            hashes.push((line.algorithm, hash.clone()));
            hash
        })
        .collect()
    };
    let mut wanted: Vec<u64> = wanted.collect();
    wanted.dedup();
    samples.in_order(wanted.into_iter(), args.jobs(), &of_sample, &mut |_, hashes| {
        for (hash, (_, line)) in hashes.into_iter().zip(&mut next) {
            match hash {
                None => {
                    bad += 1;
                    tell(line, "FAILED: bad in its container")?;
                }
                Some(hash) if hash != line.hash => {
                    wrong += 1;
                    tell(line, "FAILED")?;
                }
                Some(_) if args.quiet => {}
                Some(_) => tell(line, "OK")?,
            }
        }
        Ok(())
    })?;
    out.finish()?;
    for (count, what) in [
        (missing, "listed samples are not there"),
        (bad, "samples are bad"),
        (wrong, "checksums did not match"),
    ] {
        if count > 0 {
            say(format_args!("ffrfs: {count} {what}"));
        }
    }
    Ok(if missing + bad + wrong > 0 { Exit::Checksum } else { Exit::Ok })
}

/// The lines of a list. What is no line is counted, unless none is one.
fn lines(list: &Path, algorithm: Option<Algorithm>) -> Result<Vec<Line>, Failure> {
    let unreadable = |e| Failure::unreadable(list.display(), e);
    let mut text = Vec::new();
    if list == Path::new("-") {
        std::io::stdin().read_to_end(&mut text).map_err(unreadable)?;
    } else {
        text = std::fs::read(list).map_err(unreadable)?;
    }
    let (mut lines, mut wrong) = (Vec::new(), 0);
    for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let read = parse(line).and_then(|(hash, path)| {
            let algorithm = algorithm.or_else(|| Algorithm::of_length(hash.len()))?;
            (hash.len() == algorithm.length()).then_some(Line { hash, path, algorithm })
        });
        match read {
            Some(line) => lines.push(line),
            None => wrong += 1,
        }
    }
    if lines.is_empty() {
        let message = format!("{}: no line of it is a checksum and a path", list.display());
        return Err(Failure::usage(message));
    }
    if wrong > 0 {
        tracing::warn!("{}: {wrong} lines are no checksum and path", list.display());
    }
    Ok(lines)
}
