//! Figures as a chart: bars side by side, in SVG, with nothing but text and rectangles.

use crate::tools::bench::{Mode, PassFigures, Row, median};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 20.0;
/// The place where the bars begin, and the length of the longest.
const BARS_AT: f64 = 250.0;
const BARS: f64 = 460.0;
const BAR: f64 = 16.0;
const GAP: f64 = 6.0;
const HEAD: f64 = 58.0;
const TITLE: f64 = 34.0;
/// Colours that differ also for people who see fewer of them.
const FIRST: &str = "#9ecae1";
const LATER: &str = "#2171b5";

/// A group of bars for each mode, two for each target: first and second pass.
pub(super) fn of(rows: &[Row]) -> String {
    let mut body = String::new();
    let mut y = HEAD;
    for mode in Mode::ALL {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.mode == mode).collect();
        if !rows.is_empty() {
            y = group(&mut body, mode, &rows, y);
        }
    }
    let height = y + 16.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"system-ui, sans-serif\" font-size=\"13\" \
         role=\"img\">\n<title>Files opened, read and closed in a second</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"28\" font-size=\"17\" font-weight=\"600\" fill=\"#222\">Files opened, read \
         and closed in a second</text>\n{}{}{body}</svg>\n",
        legend(BARS_AT + 250.0, FIRST, "first pass"),
        legend(BARS_AT + 370.0, LATER, "second pass"),
    )
}

fn legend(x: f64, colour: &str, text: &str) -> String {
    let after = x + 18.0;
    format!(
        "<rect x=\"{x}\" y=\"17\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{colour}\"/>\
         <text x=\"{after}\" y=\"28\" fill=\"#444\">{text}</text>\n"
    )
}

/// Draws the bars of a mode, on a scale of their own; returns where the next group begins.
fn group(out: &mut String, mode: Mode, rows: &[&Row], top: f64) -> f64 {
    let rate = |figures: &[PassFigures]| median(figures.iter().map(PassFigures::files_per_second));
    let threads = rows.first().map_or(0, |row| row.threads);
    let many = if threads == 1 { "thread" } else { "threads" };
    *out += &format!(
        "<text x=\"{LEFT}\" y=\"{:.1}\" font-weight=\"600\" fill=\"#222\">{}, {threads} {many}</text>\n",
        top + 20.0,
        mode.name(),
    );
    let rates = rows.iter().flat_map(|row| [rate(&row.first), rate(&row.later)]).flatten();
    let most = rates.fold(1.0, f64::max);
    let mut y = top + TITLE;
    for row in rows {
        let label = escape(&shorten(&row.target));
        *out += &format!(
            "<text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#444\">{label}</text>\n",
            y + BAR + 4.0
        );
        for (figures, colour) in [(&row.first, FIRST), (&row.later, LATER)] {
            let Some(files) = rate(figures) else { continue };
            let bytes =
                median(figures.iter().map(PassFigures::bytes_per_second)).unwrap_or(0.0) / 1e6;
            let length = (files / most * BARS).max(1.0);
            *out += &format!(
                "<rect x=\"{BARS_AT}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{BAR}\" rx=\"2\" \
                 fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{:.1}\" font-size=\"12\" fill=\"#444\">{} \
                 ({bytes:.0} MB/s)</text>\n",
                BARS_AT + length + 6.0,
                y + BAR - 4.0,
                grouped(files),
            );
            y += BAR + 2.0;
        }
        y += GAP;
    }
    y + GAP
}

/// Shortens a path to its end, which tells most.
fn shorten(text: &str) -> String {
    const MOST: usize = 32;
    let count = text.chars().count();
    match count > MOST {
        true => format!("…{}", text.chars().skip(count - MOST + 1).collect::<String>()),
        false => text.to_owned(),
    }
}

/// `12,345`.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            // XML has no such characters, escaped or not.
            control if control.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_names_are_text() {
        assert_eq!(
            (grouped(7.4), grouped(1234.0), grouped(1e6)),
            ("7".into(), "1,234".into(), "1,000,000".into())
        );
        assert_eq!(escape("a<b>&\u{1}"), "a&lt;b&gt;&amp;\u{fffd}");
        assert_eq!(shorten(&"x".repeat(40)).chars().count(), 32);
    }
}
