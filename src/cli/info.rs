//! `ffrfs info`: what a container is, in a few lines.

use super::source::{self, OpenArgs, Opened};
use super::view::ViewArgs;
use super::{Exit, Failure, logging};
use crate::vfs::report::{self, Info};
use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

/// Describe containers
#[derive(Debug, Args)]
pub(super) struct InfoArgs {
    /// Containers, or folders of them
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    open: OpenArgs,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    info: Info,
    sample_bytes: Option<Sizes>,
    /// Of a few samples spread over the dataset: how many look like what.
    looks_like: BTreeMap<String, usize>,
}

#[derive(Serialize, Clone, Copy)]
struct Sizes {
    min: u64,
    mean: u64,
    max: u64,
    empty: u64,
    damaged: u64,
}

pub(super) fn run(args: &InfoArgs) -> Result<Exit, Failure> {
    // The warnings are part of what is printed.
    logging::to_stderr("error");
    let opened = source::open(&args.sources, &args.open)?;
    let view = ViewArgs::default();
    let catalog = opened.catalog(&view, &args.open).or_else(|failure| {
        failure.print();
        opened.catalog(&ViewArgs { flat: true, ..view }, &args.open)
    })?;
    let paths = opened.parts.iter().map(|part| &part.path);
    let report = Report {
        info: report::info(&opened.dataset, &catalog, paths),
        sample_bytes: sizes(&opened)?,
        looks_like: looks_like(&opened)?,
    };
    let text = if args.json { report::json(&report) } else { describe(&report).into_bytes() };
    std::io::stdout().write_all(&text).map_err(|e| Failure::output("standard output", e))?;
    Ok(Exit::Ok)
}

fn sizes(opened: &Opened) -> Result<Option<Sizes>, Failure> {
    let samples = opened.dataset.len();
    let mut sizes = Sizes { min: u64::MAX, mean: 0, max: 0, empty: 0, damaged: 0 };
    let mut sum: u128 = 0;
    for sample in 0..samples {
        let Some(located) = opened.dataset.locate(sample)? else { break };
        if located.sample.damaged {
            sizes.damaged += 1;
            continue;
        }
        let bytes = located.sample.size_bytes();
        sizes.min = sizes.min.min(bytes);
        sizes.max = sizes.max.max(bytes);
        sizes.empty += u64::from(bytes == 0);
        sum += u128::from(bytes);
    }
    let whole = samples - sizes.damaged;
    sizes.mean = u64::try_from(sum / u128::from(whole.max(1))).unwrap_or(u64::MAX);
    Ok((whole > 0).then_some(sizes))
}

fn looks_like(opened: &Opened) -> Result<BTreeMap<String, usize>, Failure> {
    let mut kinds = BTreeMap::new();
    for kind in opened.look()? {
        let name = kind.map_or("unknown", |kind| kind.name);
        *kinds.entry(name.to_owned()).or_default() += 1;
    }
    Ok(kinds)
}

fn describe(report: &Report) -> String {
    let info = &report.info;
    let mut lines = Vec::new();
    for container in &info.containers {
        let checksum = match container.index_checksum {
            "ok" => "index checksum ok",
            _ => "no index checksum",
        };
        lines.push(format!(
            "{}: {}, {} samples, {}, {checksum}",
            container.path.display(),
            container.format,
            HumanCount(container.samples),
            HumanBytes(container.bytes),
        ));
        lines.extend(container.warnings.iter().map(|warning| format!("  warning: {warning}")));
    }
    lines.push(format!(
        "samples:    {} ({} in all)",
        HumanCount(info.samples),
        HumanBytes(info.bytes)
    ));
    if let Some(sizes) = &report.sample_bytes {
        lines.push(format!(
            "sizes:      {} to {}, mean {}; {} empty",
            HumanBytes(sizes.min),
            HumanBytes(sizes.max),
            HumanBytes(sizes.mean),
            HumanCount(sizes.empty)
        ));
        if sizes.damaged > 0 {
            lines.push(format!("damaged:    {} samples are not whole", HumanCount(sizes.damaged)));
        }
    }
    lines.push(match info.names {
        "tree" => format!(
            "names:      a packed folder: {} files in {} folders",
            HumanCount(info.named_samples),
            HumanCount(info.folders)
        ),
        _ => "names:      numbered".to_owned(),
    });
    let kinds: Vec<_> =
        report.looks_like.iter().map(|(kind, count)| format!("{kind} ({count})")).collect();
    if !kinds.is_empty() {
        lines.push(format!("looks like: {} of the samples looked at", kinds.join(", ")));
    }
    if report.looks_like.contains_key("Python pickle") {
        lines.push(
            "            (pickled objects: load them with pickle, an image reader will not)"
                .to_owned(),
        );
    }
    lines.push(String::new());
    lines.join("\n")
}
