//! `ffrfs list`: the mounts of this user, or of all users for root.

use super::print::to_stdout;
use crate::daemon::figures::uptime;
use crate::daemon::live::{Answer, Live, Reached};
use crate::failure::{Exit, Failure, say};
use crate::format::{counted, one_line};
use crate::vfs::report::{self, MountInfo, MountStats};
use clap::Args;
use indicatif::HumanDuration;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

const AFTER_HELP: &str = "\
Examples:
  ffrfs list
  ffrfs list --json | jq -r '.[].mountpoint'";

/// List mounts: yours, or as root those of all users
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct ListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A mount, with the figures that it tells.
#[derive(Debug, Serialize)]
struct Row {
    source: String,
    #[serde(serialize_with = "report::lossy")]
    mountpoint: PathBuf,
    /// `serving`, `dead` (its daemon is gone), `stopped` (it has not answered), `silent` (mounted with
    /// --no-control) or `private` (another user has mounted it without `allow_other` or `allow_root`, and root cannot look
    /// into it as that user).
    state: &'static str,
    transport: Option<String>,
    age_seconds: Option<f64>,
    requests: Option<u64>,
    bad_samples: Option<u64>,
    /// Containers that changed under the mount, or cannot be read.
    bad_containers: Option<u64>,
}

pub(super) fn run(args: &ListArgs) -> Result<Exit, Failure> {
    print(args.json)
}

/// Prints the list.
pub(super) fn print(json: bool) -> Result<Exit, Failure> {
    let mounts = Live::reach_all()?;
    let figures = Live::figures(&mounts);
    let mut exit = Exit::Ok;
    for Reached { target, state, .. } in &mounts {
        if let Answer::Unasked(error) = state {
            say(format_args!("ffrfs: {}: {error}", target.display()));
            exit = Exit::Mount;
        }
    }
    let rows: Vec<Row> = mounts.into_iter().zip(figures).map(row).collect();
    to_stdout(&if json { report::json(&rows) } else { table(&rows).into_bytes() })?;
    Ok(exit)
}

fn row((mount, figures): (Reached, Option<(MountInfo, MountStats)>)) -> Row {
    let Reached { source, target, state } = mount;
    let state = match state {
        Answer::Live(_) => "serving",
        Answer::Dead => "dead",
        Answer::Stopped | Answer::Unasked(_) => "stopped",
        Answer::Silent => "silent",
        Answer::Private => "private",
    };
    let (info, stats) = figures.unzip();
    Row {
        source,
        mountpoint: target,
        state,
        transport: info.map(|info| info.transport.into_owned()),
        age_seconds: stats.as_ref().map(|stats| uptime(stats).as_secs_f64()),
        requests: stats.as_ref().map(|stats| stats.counters.requests.values().sum()),
        bad_samples: stats.as_ref().map(|stats| stats.bad_samples),
        bad_containers: stats.as_ref().map(|stats| stats.bad_containers),
    }
}

/// The numbers of bad samples and of bad containers.
fn bad(row: &Row) -> String {
    match (row.bad_samples, row.bad_containers) {
        (Some(samples), Some(0)) => samples.to_string(),
        (Some(0), Some(containers)) => counted(containers, "container"),
        (Some(samples), Some(containers)) => {
            format!("{samples}, {}", counted(containers, "container"))
        }
        _ => "-".to_owned(),
    }
}

fn table(rows: &[Row]) -> String {
    let head = ["SOURCE", "MOUNT POINT", "TRANSPORT", "AGE", "REQUESTS", "BAD"].map(str::to_owned);
    let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    let age = |seconds: f64| HumanDuration(Duration::from_secs_f64(seconds)).to_string();
    let cells = rows.iter().map(|row| {
        [
            row.source.clone(),
            row.mountpoint.to_string_lossy().into_owned(),
            row.transport.clone().unwrap_or_else(|| match row.state {
                "silent" => "no control directory".to_owned(),
                "private" => "its user's alone".to_owned(),
                state => state.to_owned(),
            }),
            row.age_seconds.map_or("-".to_owned(), age),
            number(row.requests),
            bad(row),
        ]
        .map(one_line)
    });
    let lines: Vec<[String; 6]> = std::iter::once(head).chain(cells).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<_> = (0..6).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<0$}", width));
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}
