//! What is on the screen, as data: everything that [`crate::cli::top::draw`] needs, and what keys do to it.

use super::sample::Sample;
use crate::vfs::report::{MountInfo, MountStats};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

/// Looks that are remembered: more columns no screen has.
const MAX_HISTORY: usize = 1024;
/// Intervals that `+` and `-` choose from, in milliseconds.
const INTERVALS_MS: [u64; 9] = [100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];
/// A mount that says nothing for so long beyond the interval hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// The whole screen.
pub(crate) struct State {
    mounts: Vec<View>,
    shown: usize,
    interval: Duration,
    pub(crate) is_paused: bool,
    pub(crate) has_help: bool,
    pub(crate) has_colours: bool,
}

/// What is known of a mount.
pub(crate) struct View {
    pub(crate) point: String,
    pub(crate) info: MountInfo,
    /// All since it was mounted.
    pub(crate) stats: Option<MountStats>,
    /// Between the last two looks.
    pub(crate) delta: MountStats,
    /// KB/s and files/s of each look, oldest first.
    pub(crate) kilobytes: VecDeque<u64>,
    pub(crate) files: VecDeque<u64>,
    pub(crate) bad: Vec<String>,
    /// Why it says nothing any more.
    pub(crate) gone: Option<String>,
    answered: Instant,
}

/// What a key asks for beyond the screen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Nothing,
    Quit,
    /// The interval has changed.
    Interval,
}

impl State {
    pub(crate) fn new<'a>(
        points: impl Iterator<Item = &'a Path>,
        interval: Duration,
        has_colours: bool,
    ) -> Self {
        let mounts = points.map(|point| View::new(clean(&point.to_string_lossy()))).collect();
        let (shown, is_paused, has_help) = (0, false, false);
        Self { mounts, shown, interval, is_paused, has_help, has_colours }
    }

    /// The mount that is shown.
    pub(crate) fn view(&self) -> &View {
        &self.mounts[self.shown]
    }

    /// Which of how many that is.
    pub(crate) fn place(&self) -> (usize, usize) {
        (self.shown + 1, self.mounts.len())
    }

    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// Why the mount that is shown says nothing, if it should.
    pub(crate) fn silence(&self, now: Instant) -> Option<String> {
        let view = self.view();
        let silent = now.saturating_duration_since(view.answered);
        view.gone.clone().or_else(|| {
            let hangs = silent > self.interval + PATIENCE;
            hangs.then(|| format!("it has not answered for {} s", silent.as_secs()))
        })
    }

    /// A mount has said something.
    pub(crate) fn take(&mut self, mount: usize, sample: Result<Sample, String>) {
        let Some(view) = self.mounts.get_mut(mount) else { return };
        view.answered = Instant::now();
        match sample {
            Ok(sample) if !self.is_paused => view.take(sample),
            Ok(_) => {}
            Err(why) => view.gone = Some(clean(&why)),
        }
    }

    pub(crate) fn key(&mut self, key: KeyEvent) -> Wish {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Wish::Quit,
            _ if is_control => {}
            KeyCode::Esc | KeyCode::Char('?' | 'h') if self.has_help => self.has_help = false,
            KeyCode::Esc | KeyCode::Char('q' | 'Q') => return Wish::Quit,
            KeyCode::Char('?' | 'h') => self.has_help = true,
            KeyCode::Char('p' | 'P' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Tab | KeyCode::Right => self.shown = (self.shown + 1) % self.mounts.len(),
            KeyCode::BackTab | KeyCode::Left => {
                self.shown = (self.shown + self.mounts.len() - 1) % self.mounts.len();
            }
            KeyCode::Char('+' | '=') => return self.change_interval(true),
            KeyCode::Char('-' | '_') => return self.change_interval(false),
            _ => {}
        }
        Wish::Nothing
    }

    fn change_interval(&mut self, longer: bool) -> Wish {
        let now = self.interval.as_millis();
        let mut all = INTERVALS_MS.into_iter();
        let next = match longer {
            true => all.find(|&ms| u128::from(ms) > now),
            false => all.rfind(|&ms| u128::from(ms) < now),
        };
        let Some(next) = next else { return Wish::Nothing };
        self.interval = Duration::from_millis(next);
        Wish::Interval
    }
}

impl View {
    fn new(point: String) -> Self {
        Self {
            point,
            info: MountInfo::default(),
            stats: None,
            delta: MountStats::default(),
            kilobytes: VecDeque::new(),
            files: VecDeque::new(),
            bad: Vec::new(),
            gone: None,
            answered: Instant::now(),
        }
    }

    fn take(&mut self, sample: Sample) {
        let Sample { info, stats, bad } = sample;
        // Mounted anew: what was before has nothing to do with it.
        let is_same = |before: &MountStats| {
            before.counters.uptime_seconds <= stats.counters.uptime_seconds
                && self.info.pid == info.pid
        };
        self.delta = match self.stats.take_if(|before| is_same(before)) {
            Some(before) => stats.since(&before),
            None => MountStats::default(),
        };
        let (bytes, files) = (self.rate(self.delta.counters.bytes_served), self.files_a_second());
        push(&mut self.kilobytes, (bytes / 1e3).round() as u64);
        push(&mut self.files, files.round() as u64);
        self.bad = bad.iter().map(|line| clean(line)).collect();
        (self.info, self.stats, self.gone) = (info, Some(stats), None);
    }

    /// So many a second, of a count between the last two looks.
    pub(crate) fn rate(&self, count: u64) -> f64 {
        let seconds = self.delta.counters.uptime_seconds;
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }

    /// Samples whose beginning was read.
    pub(crate) fn files_a_second(&self) -> f64 {
        self.rate(self.delta.counters.first_reads)
    }

    /// Requests of all kinds that somebody waits for.
    pub(crate) fn requests_a_second(&self) -> f64 {
        let requests = self.delta.counters.requests.iter();
        self.rate(requests.filter(|(name, _)| *name != "forget").map(|(_, count)| count).sum())
    }

    /// Samples and parts of samples that were there when they were asked for, of all that were.
    pub(crate) fn hit_rate(&self) -> Option<f64> {
        let MountStats { cache, blocks, prefetch, counters, .. } = &self.delta;
        let hits = cache.hits + blocks.hits + prefetch.used;
        let all = hits + counters.stage("disk").total();
        (all > 0).then(|| hits as f64 / all as f64)
    }
}

fn push(history: &mut VecDeque<u64>, value: u64) {
    if history.len() == MAX_HISTORY {
        history.pop_front();
    }
    history.push_back(value);
}

/// No name commands the terminal.
fn clean(text: &str) -> String {
    text.replace(char::is_control, "?")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::vfs::Histogram;

    /// A look at a mount that has served so much in so many seconds.
    pub(crate) fn sample(seconds: u64, megabytes: u64, bad: &[&str]) -> Sample {
        let mut stats = MountStats::default();
        let counters = &mut stats.counters;
        counters.uptime_seconds = seconds as f64;
        counters.bytes_served = megabytes * 1_000_000;
        counters.first_reads = megabytes * 10;
        counters.requests = [("read", 10), ("lookup", 10), ("forget", 99)]
            .map(|(name, each)| (name.to_owned(), megabytes * each))
            .into();
        let times = |count: Vec<u64>| Histogram {
            le: (0..count.len() as u32 - 1).map(|bucket| 1 << bucket).collect(),
            count,
            sum: 0,
        };
        let read = times(vec![0, 0, 0, 0, megabytes * 9, 0, 0, 0, 0, 0, 0, megabytes, 0]);
        counters.latency_us = [("read".to_owned(), read)].into();
        counters.stage_us = [("disk".to_owned(), times(vec![0, megabytes, 0]))].into();
        stats.cache.bytes = 64 << 20;
        stats.cache.capacity_bytes = 256 << 20;
        stats.prefetch.used = megabytes * 3;
        stats.prefetch.fetched_bytes = megabytes * 1_000_000;
        stats.bad_samples = bad.len() as u64;
        let mut info = MountInfo { pid: 1, ..MountInfo::default() };
        info.transport = "uring".into();
        info.io = "direct".into();
        info.verify = "always".to_owned();
        info.dataset.samples = 123_456;
        info.dataset.bytes = 12_345_678_901;
        Sample { info, stats, bad: bad.iter().map(|&line| line.to_owned()).collect() }
    }

    pub(crate) fn state(points: &[&str]) -> State {
        State::new(points.iter().map(Path::new), Duration::from_secs(1), true)
    }

    fn press(state: &mut State, code: KeyCode) -> Wish {
        state.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn rates_are_between_two_looks() {
        let mut state = state(&["/mnt"]);
        state.take(0, Ok(sample(100, 5_000, &[])));
        assert_eq!(state.view().files_a_second(), 0.0);
        state.take(0, Ok(sample(102, 5_400, &[])));
        let view = state.view();
        assert_eq!(view.kilobytes, [0, 200_000]);
        assert_eq!((view.files_a_second(), view.requests_a_second()), (2_000.0, 4_000.0));
        assert_eq!(view.hit_rate(), Some(0.75));
        let read = &view.delta.counters.latency_us["read"];
        assert_eq!((read.quantile(0.5), read.quantile(0.99)), (Some(16.0), Some(2048.0)));
    }

    #[test]
    fn a_mount_that_goes_is_said_to_and_one_that_comes_again_begins_anew() {
        let mut state = state(&["/mnt"]);
        state.take(0, Ok(sample(100, 5_000, &[])));
        state.take(0, Err("it was\x1b unmounted".to_owned()));
        assert_eq!(state.silence(Instant::now()).as_deref(), Some("it was? unmounted"));
        state.take(0, Ok(sample(1, 10, &[])));
        assert_eq!(state.silence(Instant::now()), None);
        assert_eq!((state.view().files_a_second(), state.view().requests_a_second()), (0.0, 0.0));
    }

    #[test]
    fn a_mount_that_hangs_is_said_to() {
        let state = state(&["/mnt"]);
        let later = Instant::now() + Duration::from_secs(20);
        assert!(state.silence(later).unwrap().contains("not answered for 20 s"));
    }

    #[test]
    fn what_comes_while_it_is_paused_is_not_shown() {
        let mut state = state(&["/mnt"]);
        state.take(0, Ok(sample(1, 0, &[])));
        press(&mut state, KeyCode::Char('p'));
        state.take(0, Ok(sample(2, 100, &[])));
        assert_eq!(state.view().kilobytes, [0]);
        press(&mut state, KeyCode::Char('p'));
        state.take(0, Ok(sample(3, 300, &[])));
        assert_eq!(state.view().kilobytes, [0, 150_000]);
    }

    #[test]
    fn keys_do_what_help_says() {
        let mut state = state(&["/a", "/b", "/c"]);
        assert_eq!(press(&mut state, KeyCode::Char('q')), Wish::Quit);
        assert_eq!(press(&mut state, KeyCode::Esc), Wish::Quit);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.key(control_c), Wish::Quit);
        for point in ["/b", "/c", "/a"] {
            press(&mut state, KeyCode::Tab);
            assert_eq!(state.view().point, point);
        }
        press(&mut state, KeyCode::BackTab);
        assert_eq!(state.view().point, "/c");
        // Escape leaves help first.
        press(&mut state, KeyCode::Char('?'));
        assert!(state.has_help);
        assert_eq!(press(&mut state, KeyCode::Esc), Wish::Nothing);
        assert!(!state.has_help);
        assert_eq!(press(&mut state, KeyCode::Char('+')), Wish::Interval);
        assert_eq!(state.interval(), Duration::from_secs(2));
        while press(&mut state, KeyCode::Char('-')) == Wish::Interval {}
        assert_eq!(state.interval(), Duration::from_millis(100));
        while press(&mut state, KeyCode::Char('+')) == Wish::Interval {}
        assert_eq!(state.interval(), Duration::from_secs(60));
    }
}
