//! Draws the state. Lines that do not fit are left out, the least important first.

use super::state::State;
use crate::cli::stats::{bytes, count, share, time};
use crate::daemon::figures::uptime;
use crate::daemon::memory::in_words;
use crate::daemon::top::figures::MountFigures;
use crate::format::counted;
use crate::store::remote::RemoteFigures;
use crate::vfs::Histogram;
use indicatif::FormattedDuration;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Sparkline};
use std::collections::VecDeque;
use std::time::Instant;

/// The fewest and most rows of a chart with its title.
const CHART_ROWS: std::ops::RangeInclusive<u16> = 3..=14;
/// The columns of a line's label.
const LABEL_COLUMNS: usize = 12;
/// Cells of a bar.
const BAR_CELLS: usize = 20;

const HELP: [&str; 20] = [
    "q, Esc, Ctrl-C   quit",
    "p, Space         pause, and go on",
    "+  -             longer and shorter interval",
    "Tab, Shift-Tab   next and previous mount",
    "?                this help",
    "",
    "All figures are for the time between the last two updates.",
    "MB/s        bytes of samples given to the kernel",
    "files/s     samples whose beginning was read",
    "requests/s  requests of the kernel; reads that its page cache",
    "            answers cause none",
    "p50, p99    half of them, and 99 %, took no longer than this",
    "disk        time a read waits for the disk; verify: is checked",
    "no wait     share of reads that did not wait for the disk",
    "cache       share of requests whose bytes were in memory",
    "prefetch    share of the prefetched bytes that was not",
    "            dropped unread",
    "store       the last column: requests that were sent again;",
    "            the lines below it count from the mount on",
    "bad         samples that cannot be read; see .ffrfs/bad",
];

/// Styles, plain ones on a terminal without colours.
#[derive(Clone, Copy)]
struct Palette(bool);

impl Palette {
    fn colour(self, colour: Color) -> Style {
        if self.0 { Style::new().fg(colour) } else { Style::new() }
    }

    fn label(self) -> Style {
        self.colour(Color::Cyan)
    }

    fn alarm(self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn bar(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

/// Draws the whole screen as it is at this time.
pub(super) fn draw(frame: &mut Frame, state: &State, now: Instant) {
    let area = frame.area();
    let palette = Palette(state.has_colours);
    let view = state.view();
    let silence = state.silence(now);
    let mut rows = area.height.saturating_sub(2);
    let bad = bad_lines(view, palette, rows.saturating_sub(16).clamp(1, 8));
    rows = rows.saturating_sub(bad.len() as u16);
    let figures = fitting(figures(view, palette), rows);
    rows = rows.saturating_sub(figures.len() as u16);
    let chart_rows = if rows < *CHART_ROWS.start() { 0 } else { rows.min(*CHART_ROWS.end()) };
    let [head, charts, body, alarms, _, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(chart_rows),
        Constraint::Length(figures.len() as u16),
        Constraint::Length(bad.len() as u16),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(header(state, silence, palette, head.width), head);
    if chart_rows > 0 {
        draw_charts(frame, charts, view, palette);
    }
    frame.render_widget(Paragraph::new(figures), body);
    frame.render_widget(Paragraph::new(bad), alarms);
    frame.render_widget(footer(state, palette), foot);
    if state.has_help {
        draw_help(frame, area);
    }
}

/// The mount, and whether it still answers.
fn header(state: &State, silence: Option<String>, palette: Palette, columns: u16) -> Paragraph<'_> {
    let view = state.view();
    let place = match state.place() {
        (_, 1) => String::new(),
        (shown, all) => format!("[{shown}/{all}] "),
    };
    let point = ending(&view.point, (usize::from(columns) / 2).saturating_sub(place.len()));
    let mut spans = vec![Span::styled(format!("{place}{point} "), palette.title())];
    if let Some(why) = silence {
        // The path may be long; GONE must be seen.
        spans.insert(0, Span::styled(format!("GONE: {why} "), palette.alarm()));
    } else if state.is_paused {
        spans.insert(0, Span::styled("PAUSED ", palette.alarm()));
    } else if let Some(stats) = &view.stats {
        let dataset = &view.info.dataset;
        let up = FormattedDuration(uptime(stats));
        let up = format!("up {up} ");
        let samples = counted(count(dataset.samples), "sample");
        let more = [up, format!("{samples}, {} ", bytes(dataset.bytes))];
        let mut left = usize::from(columns).saturating_sub(Line::from(spans.clone()).width());
        for text in more {
            let text = format!("  {text}");
            if let Some(less) = left.checked_sub(text.chars().count()) {
                left = less;
                spans.push(Span::raw(text));
            }
        }
    }
    Paragraph::new(Line::from(spans)).style(palette.bar())
}

/// The end of a path that is too long: the end tells more than the beginning.
fn ending(path: &str, columns: usize) -> String {
    let length = path.chars().count();
    if length <= columns {
        return path.to_owned();
    }
    let skip = length - columns.saturating_sub(1).min(length);
    std::iter::once('…').chain(path.chars().skip(skip)).collect()
}

fn footer(state: &State, palette: Palette) -> Paragraph<'static> {
    let interval = format!("every {} s", state.interval().as_secs_f64());
    let text = format!(" q quit  p pause  +/- {interval}  Tab mount  ? help");
    Paragraph::new(text).style(palette.label())
}

/// The lines, each with its rank: those of rank 0 are the most important ones.
fn figures(view: &MountFigures, palette: Palette) -> Vec<(u8, Line<'static>)> {
    let line = |label: &str, text: String| {
        let label = Span::styled(format!("{label:<LABEL_COLUMNS$}"), palette.label());
        Line::from(vec![label, Span::raw(text)])
    };
    let counters = &view.delta.counters;
    let latency = |label: &str, times: Histogram| {
        let quantile = |q| time(times.quantile(q));
        let rate = count(view.rate(times.total()).round() as u64);
        line(label, format!("{rate:>8}{:>9}{:>9}", quantile(0.5), quantile(0.99)))
    };
    let of = |name: &str| counters.latency_us.get(name).cloned().unwrap_or_default();
    let throughput = format!(
        "{:.1} MB/s  {} files/s  {} requests/s",
        view.rate(counters.bytes_served) / 1e6,
        count(view.files_a_second().round() as u64),
        count(view.requests_a_second().round() as u64),
    );
    let columns = format!("{:>8}{:>9}{:>9}", "a second", "p50", "p99");
    let mut lines = vec![
        (0, line("now", throughput)),
        (0, line("", columns)),
        (1, latency("lookup", of("lookup"))),
        (0, latency("read", of("read"))),
        (3, latency("disk", counters.stage("disk"))),
        (4, latency("verify", counters.stage("verify"))),
        (4, latency("fetch ahead", counters.stage("ahead"))),
        (5, line("fetched", format!("{:.1} MB/s", view.rate(counters.bytes_fetched) / 1e6))),
        (1, line("cache", cache(view))),
        (2, line("prefetch", prefetch(view))),
        (2, line("memory", memory(view))),
        (6, line("mount", how(view))),
    ];
    if let Some(remote) = &view.delta.remote {
        lines.insert(4, (2, latency("first byte", remote.first_byte.histogram())));
        let at = lines.iter().position(|(_, line)| line.to_string().starts_with("cache"));
        let all = view.stats.as_ref().and_then(|stats| stats.remote.as_ref());
        let of_store = [
            (1, line("store", store(view, remote))),
            (3, line("", paid(all.unwrap_or(remote)))),
            (4, line("", shared(all.unwrap_or(remote)))),
        ];
        lines.splice(at.unwrap_or(0)..at.unwrap_or(0), of_store);
    }
    lines
}

fn store(view: &MountFigures, remote: &RemoteFigures) -> String {
    format!(
        "{:.1} MB/s  {} GET/s  in flight {}  {} on disk  again {}",
        view.rate(remote.fetched_bytes) / 1e6,
        count(view.rate(remote.gets()).round() as u64),
        count(remote.in_flight),
        share(remote.hit_rate()),
        count(remote.retries()),
    )
}

/// The cost of all requests since the mount, and the bytes fetched for each byte that was of use.
fn paid(remote: &RemoteFigures) -> String {
    let ratio = remote.fetched_per_used().map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    format!("in all about ${:.4}  {ratio} bytes fetched for each used", remote.dollars())
}

/// Since the mount: the reads that waited for another mount of this machine, and the evicted objects and blocks.
fn shared(remote: &RemoteFigures) -> String {
    format!(
        "in all waited for another mount {}  objects evicted {}, blocks {}",
        count(remote.lock_joins),
        count(remote.evictions),
        count(remote.evicted_blocks),
    )
}

fn cache(view: &MountFigures) -> String {
    let without_waiting = share(view.delta.counters.without_waiting());
    format!("{} hits  {without_waiting} no wait", share(view.hit_rate()))
}

fn prefetch(view: &MountFigures) -> String {
    let figures = &view.delta.prefetch;
    format!(
        "{} efficiency  waiting {}  in flight {}",
        share(figures.efficiency()),
        count(figures.waiting),
        count(figures.in_flight)
    )
}

/// How requests come, and how they are answered.
fn how(view: &MountFigures) -> String {
    let info = &view.info;
    match &view.stats {
        Some(_) => format!("{}, reads {}, verify {}", info.transport, info.io, info.verify),
        None => "-".to_owned(),
    }
}

fn memory(view: &MountFigures) -> String {
    let cache = &view.delta.cache;
    let part = cache.bytes as f64 / cache.capacity_bytes.max(1) as f64;
    let filled = ((part * BAR_CELLS as f64).round() as usize).min(BAR_CELLS);
    let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR_CELLS - filled));
    format!("{} of {} {bar}", bytes(cache.bytes), in_words(cache.capacity_bytes))
}

/// As many lines as `rows` has room for, the most important ones, in their order.
fn fitting(mut lines: Vec<(u8, Line<'static>)>, rows: u16) -> Vec<Line<'static>> {
    while lines.len() > usize::from(rows) {
        let least = lines.iter().map(|(rank, _)| *rank).max().unwrap_or_default();
        let Some(place) = lines.iter().rposition(|(rank, _)| *rank == least) else { break };
        lines.remove(place);
    }
    lines.into_iter().map(|(_, line)| line).collect()
}

/// The number of bad samples, and the last ones by name.
fn bad_lines(view: &MountFigures, palette: Palette, rows: u16) -> Vec<Line<'static>> {
    let label = Span::styled(format!("{:<LABEL_COLUMNS$}", "bad"), palette.label());
    let Some(stats) = &view.stats else { return vec![Line::from(vec![label, Span::raw("-")])] };
    let what = match (stats.bad_samples, stats.bad_containers) {
        (0, 0) => return vec![Line::from(vec![label, Span::raw("none")])],
        (samples, 0) => format!("samples: {}", count(samples)),
        (samples, containers) => {
            format!("samples: {}, containers: {}", count(samples), count(containers))
        }
    };
    let named = view.bad.iter().rev();
    if rows == 1 {
        let last = named.take(1).fold(what, |what, bad| format!("{what}, last: {bad}"));
        return vec![Line::from(vec![label, Span::styled(last, palette.alarm())])];
    }
    let first = Line::from(vec![label, Span::styled(what, palette.alarm())]);
    let rest = named.take(usize::from(rows) - 1);
    let rest = rest.map(|bad| Line::raw(format!("{:LABEL_COLUMNS$}{bad}", "")));
    std::iter::once(first).chain(rest).collect()
}

fn draw_charts(frame: &mut Frame, area: Rect, view: &MountFigures, palette: Palette) {
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(1).areas(area);
    let most = |history: &VecDeque<u64>| history.iter().copied().max().unwrap_or_default();
    let megabytes = |kilobytes: u64| format!("{:.1}", kilobytes as f64 / 1e3);
    let now = |history: &VecDeque<u64>| history.back().copied().unwrap_or_default();
    let title = format!(
        "MB/s {}, most {}",
        megabytes(now(&view.kilobytes)),
        megabytes(most(&view.kilobytes))
    );
    draw_chart(frame, left, title, &view.kilobytes, palette.colour(Color::Green));
    let title = format!("files/s {}, most {}", count(now(&view.files)), count(most(&view.files)));
    draw_chart(frame, right, title, &view.files, palette.colour(Color::Yellow));
}

/// Draws a chart with a column for each update, the last one on the right.
fn draw_chart(frame: &mut Frame, area: Rect, title: String, history: &VecDeque<u64>, style: Style) {
    let columns = usize::from(area.width);
    let first = history.len().saturating_sub(columns);
    let before = std::iter::repeat_n(0, columns.saturating_sub(history.len()));
    let data: Vec<u64> = before.chain(history.range(first..).copied()).collect();
    let block = Block::new().borders(Borders::TOP).title(title);
    frame.render_widget(Sparkline::default().block(block).data(data).style(style), area);
}

fn draw_help(frame: &mut Frame, area: Rect) {
    let columns = HELP.iter().map(|line| line.chars().count()).max().unwrap_or_default() as u16;
    let (width, height) = ((columns + 4).min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, place);
    let lines: Vec<Line> = HELP.iter().map(|line| Line::raw(format!(" {line}"))).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" help ")), place);
}

#[cfg(test)]
mod tests;
