//! `ffrfs info`: a description of containers, in a few lines.

use super::open::OpenArgs;
use super::view::ViewArgs;
use crate::daemon::logging;
use crate::dataset::Opened;
use crate::dataset::warnings;
use crate::failure::{Exit, Failure};
use crate::format::PartName;
use crate::format::{counted, one_line, one_or_many};
use crate::tools::info::{CheckedCounts, Files, Shown, Sizes, files};
use crate::vfs::report::{self, Info};
use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;
use std::collections::BTreeMap;

/// Describe containers
#[derive(Debug, Args)]
pub(super) struct InfoArgs {
    /// Containers, or directories, globs or brace lists of them
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PartName>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    open: OpenArgs,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    info: Info,
    /// The number of samples that are shown as files: of a packed directory all but the sample with the names.
    files: u64,
    /// The bytes of these files.
    file_bytes: u64,
    /// By container: the number of samples that hold names.
    #[serde(skip)]
    indexes: Vec<u64>,
    /// By container: the bytes of these samples.
    #[serde(skip)]
    index_bytes: Vec<u64>,
    sample_bytes: Option<Sizes>,
    /// The number of samples of which neither container nor sidecar has a checksum.
    not_verifiable: u64,
    /// The numbers of samples by the source of their checksum.
    checked_by: CheckedCounts,
    /// The number of samples that look like each kind, of a few samples spread over the dataset.
    looks_like: BTreeMap<String, usize>,
}

pub(super) fn run(args: &InfoArgs) -> Result<Exit, Failure> {
    // The warnings are part of the report.
    logging::to_stderr("error");
    let opened = args.open.open(&args.sources)?;
    let view = ViewArgs::default();
    let catalog = opened.catalog(&view, &args.open).or_else(|failure| {
        super::print::print(&failure);
        opened.catalog(&ViewArgs { flat: true, ..view }, &args.open)
    })?;
    let names = opened.store.parts().iter().map(|part| part.name());
    let Files { count, bytes, indexes, index_bytes, locked_bytes, records, sizes, checked, shown } =
        files(&opened, &catalog)?;
    let mut info = report::info(&opened.dataset, &catalog, names);
    for (container, records) in info.containers.iter_mut().zip(&records) {
        container.records += records;
    }
    // A mount cannot serve encrypted samples without their password, and does not count their bytes; here they are files.
    for (container, locked) in info.containers.iter_mut().zip(&locked_bytes) {
        container.bytes += locked;
    }
    info.bytes += locked_bytes.iter().sum::<u64>();
    info.records += records.iter().sum::<u64>();
    let report = Report {
        info,
        files: count,
        file_bytes: bytes,
        looks_like: looks_like(&opened, &indexes, &shown)?,
        indexes,
        index_bytes,
        sample_bytes: sizes,
        not_verifiable: checked.nothing,
        checked_by: checked,
    };
    let text = if args.json {
        report::json(&report)
    } else {
        describe(&report, args.open.nested > 0).into_bytes()
    };
    super::print::to_stdout(&text)?;
    Ok(Exit::Ok)
}

/// Counts samples by the kind they look like. `indexes`: by container, the number of samples at its end that hold names.
fn looks_like(
    opened: &Opened,
    indexes: &[u64],
    shown: &Shown,
) -> Result<BTreeMap<String, usize>, Failure> {
    let mut kinds = BTreeMap::new();
    let is_shown = |sample| {
        let (container, index) = opened.dataset.container_of(sample).unwrap_or_default();
        let named = opened.dataset.containers().get(container).map_or(0, |one| one.len());
        index < named - indexes.get(container).copied().unwrap_or(0) && shown.has(sample)
    };
    for kind in opened.look(&is_shown)? {
        let name = kind.map_or("unknown", |kind| kind.name);
        *kinds.entry(name.to_owned()).or_default() += 1;
    }
    Ok(kinds)
}

fn names(info: &Info) -> Vec<String> {
    let files = HumanCount(info.named_samples);
    // All but the root, which no container names.
    let directories = HumanCount(info.directories.saturating_sub(1));
    let mut lines = vec![match info.names.as_ref() {
        "tree" if directories.0 == 0 => format!("names:      stored: {}", counted(files, "file")),
        "tree" => format!(
            "names:      stored: {} in {}",
            counted(files, "file"),
            counted(directories, "directory")
        ),
        "records" => {
            format!(
                "names:      numbered records, a directory each: {} in all",
                counted(files, "file")
            )
        }
        _ => "names:      numbered".to_owned(),
    }];
    if let Some(summary) = info.renamed.summary() {
        lines.push(format!("changed:    {summary}"));
        lines.extend(info.renamed.examples.iter().map(|example| format!("            {example}")));
    }
    lines
}

fn checksums(checked_by: &CheckedCounts, is_nested: bool) -> String {
    let advice = match is_nested {
        true => "none: not verifiable",
        false => "none: not verifiable (ffrfs sum --sidecar writes some)",
    };
    let words = [
        (checked_by.container, ["is", "are"], "checked by what the container has"),
        (checked_by.sidecar, ["is", "are"], "checked by a sidecar"),
        (checked_by.locked, ["is", "are"], "encrypted, and checked only when decrypted"),
        (checked_by.nothing, ["has", "have"], advice),
    ];
    let some = words.iter().filter(|(samples, ..)| *samples > 0);
    let some = some.map(|(samples, verbs, what)| {
        let verb = verbs[usize::from(*samples != 1)];
        format!("{} {verb} {what}", counted(HumanCount(*samples), "file"))
    });
    let some: Vec<_> = some.collect();
    format!("checksums:  {}", if some.is_empty() { "no file".into() } else { some.join("; ") })
}

fn sizes(sizes: &Sizes) -> Vec<String> {
    let mut lines = vec![format!(
        "sizes:      {} to {}, mean {}; {} empty",
        HumanBytes(sizes.min),
        HumanBytes(sizes.max),
        HumanBytes(sizes.mean),
        HumanCount(sizes.empty)
    )];
    for (files, fault) in sizes.encrypted.by_fault() {
        let (files, why) = (counted(HumanCount(files), "file"), fault.to_string());
        let why = why.strip_prefix("encrypted: ").unwrap_or(&why);
        lines.push(format!("encrypted:  {files}; {why}"));
    }
    let (damaged, mismatched) = (sizes.damaged - sizes.mismatched, sizes.mismatched);
    if damaged > 0 {
        lines.push(format!(
            "damaged:    {} not whole",
            one_or_many(HumanCount(damaged), "file is", "files are")
        ));
    }
    if mismatched > 0 {
        lines.push(format!(
            "wrong:      {} not match a checksum",
            one_or_many(HumanCount(mismatched), "file does", "files do")
        ));
    }
    lines
}

fn describe(report: &Report, is_nested: bool) -> String {
    let info = &report.info;
    let mut lines = Vec::new();
    let paths: Vec<_> = info.containers.iter().map(|one| one.path.to_string()).collect();
    let each = paths.iter().zip(&info.containers);
    let each = each.map(|(path, one)| (path.as_str(), one.warnings.as_slice()));
    let mut warnings = warnings::said_once(each).into_iter().peekable();
    for (number, container) in info.containers.iter().enumerate() {
        let index = report.indexes.get(number).copied().unwrap_or(0);
        let index_bytes = report.index_bytes.get(number).copied().unwrap_or(0);
        let count = match container.records {
            0 => counted(HumanCount(container.samples - index), "file"),
            records => counted(HumanCount(records), "record"),
        };
        let checksum = match container.index_checksum.as_ref() {
            "ok" => "index checksum ok",
            "absent" => "no index checksum",
            _ => "index not verifiable",
        };
        lines.push(format!(
            "{}: {}, {count}, {}, {checksum}",
            container.path,
            container.format,
            HumanBytes(container.bytes.saturating_sub(index_bytes)),
        ));
        if let Some(sidecar) = &container.checksums {
            lines.push(format!("  checksums of samples: {}", sidecar));
        }
        while let Some((_, warning)) = warnings.next_if(|(of, _)| *of == number) {
            lines.push(format!("  warning: {warning}"));
        }
    }
    if info.records > 0 {
        lines.push(format!("records:    {}", HumanCount(info.records)));
    }
    lines.push(format!(
        "files:      {} ({} in all)",
        HumanCount(report.files),
        HumanBytes(report.file_bytes)
    ));
    lines.extend(report.sample_bytes.iter().flat_map(sizes));
    lines.push(checksums(&report.checked_by, is_nested));
    lines.extend(names(info));
    let kinds: Vec<_> =
        report.looks_like.iter().map(|(kind, count)| format!("{kind} ({count})")).collect();
    if !kinds.is_empty() {
        lines.push(format!("looks like: {} (of the samples looked at)", kinds.join(", ")));
    }
    if report.looks_like.contains_key("Python pickle") {
        let are_taken_apart = |format: &str| match format {
            "LMDB" | "MDS" => true,
            "FFRecord" => info.names == "numbered",
            _ => false,
        };
        let advice =
            match info.containers.iter().any(|container| are_taken_apart(&container.format)) {
                true => "--pickles shows what they hold as files",
                false => "load them with pickle",
            };
        lines.push(format!(
            "            (pickled objects: {advice}; an image reader cannot read them)"
        ));
    }
    lines.push(String::new());
    lines.iter().map(one_line).collect::<Vec<_>>().join("\n")
}
