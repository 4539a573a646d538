//! Figures as text.

use crate::format::counted;
use crate::tools::bench::{Mode, PassFigures, Row, median};

const HEAD: [&str; 8] =
    ["target", "mode", "threads", "pass", "files/s", "MB/s", "p50 µs", "p99 µs"];

/// A line for each target, mode and pass: the lines of one mode stand together.
pub(super) fn of(rows: &[Row]) -> String {
    let mut lines = vec![HEAD.map(str::to_owned)];
    for mode in Mode::ALL {
        for (pass, later) in [("first", false), ("second", true)] {
            for row in rows.iter().filter(|row| row.mode == mode) {
                let figures = if later { &row.later } else { &row.first };
                lines.extend(line(row, pass, figures));
            }
        }
    }
    let width = |column: usize| lines.iter().map(|l| l[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let mut out = String::new();
    for line in &lines {
        for (column, (text, width)) in line.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width - text.chars().count());
            // Words to the left, numbers to the right.
            let is_word = matches!(column, 0 | 1 | 3);
            out += &if is_word { format!("{text}{pad}  ") } else { format!("{pad}{text}  ") };
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out + &notes(rows)
}

fn line(row: &Row, pass: &str, figures: &[PassFigures]) -> Option<[String; 8]> {
    let of = |value: fn(&PassFigures) -> f64| median(figures.iter().map(value));
    Some([
        row.target.clone(),
        row.mode.name().to_owned(),
        row.threads.to_string(),
        pass.to_owned(),
        format!("{:.0}", of(PassFigures::files_per_second)?),
        format!("{:.1}", of(PassFigures::bytes_per_second)? / 1e6),
        format!("{:.0}", of(|f| f.p50_us)?),
        format!("{:.0}", of(|f| f.p99_us)?),
    ])
}

/// The notes that a comparison needs.
fn notes(rows: &[Row]) -> String {
    let mut out = String::new();
    let mut seen: Vec<&str> = Vec::new();
    for row in rows {
        let Some(figures) = row.first.first().filter(|_| !seen.contains(&&*row.target)) else {
            continue;
        };
        seen.push(&row.target);
        let mean = figures.bytes as f64 / figures.files.max(1) as f64;
        let rounds = row.first.len();
        out += &format!(
            "{}: {}, medians of {}, files of {mean:.0} bytes on average\n",
            row.target,
            row.access,
            counted(rounds, "round")
        );
    }
    out
}
