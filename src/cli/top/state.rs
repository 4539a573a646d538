//! The state of the screen: all values that [`super::draw`] shows and that keys change.

use crate::daemon::top::figures::MountFigures;
use crate::daemon::top::sample::Sample;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::path::Path;
use std::time::{Duration, Instant};

/// Intervals that `+` and `-` choose from, in milliseconds.
const INTERVALS_MS: [u64; 9] = [100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];
/// The time beyond the interval after which a mount without an answer is said to hang.
const PATIENCE: Duration = Duration::from_secs(5);

/// The whole screen.
pub(super) struct State {
    mounts: Vec<MountFigures>,
    shown: usize,
    interval: Duration,
    pub(super) is_paused: bool,
    pub(super) has_help: bool,
    pub(super) has_colours: bool,
}

/// The request of a key, beyond a change of the screen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    Quit,
    /// The interval has changed.
    Interval,
}

impl State {
    pub(super) fn new<'a>(
        points: impl Iterator<Item = &'a Path>,
        interval: Duration,
        has_colours: bool,
    ) -> Self {
        let mounts = points.map(MountFigures::new).collect();
        let (shown, is_paused, has_help) = (0, false, false);
        Self { mounts, shown, interval, is_paused, has_help, has_colours }
    }

    /// The mount that is shown.
    pub(super) fn view(&self) -> &MountFigures {
        &self.mounts[self.shown]
    }

    /// The number of the mount that is shown, from 1 on, and that of all mounts.
    pub(super) fn place(&self) -> (usize, usize) {
        (self.shown + 1, self.mounts.len())
    }

    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// The reason why the mount that is shown does not answer, if it does not.
    pub(super) fn silence(&self, now: Instant) -> Option<String> {
        let view = self.view();
        let silent = now.saturating_duration_since(view.answered_at);
        view.gone.clone().or_else(|| {
            let hangs = silent > self.interval + PATIENCE;
            hangs.then(|| format!("it has not answered for {} s", silent.as_secs()))
        })
    }

    /// Takes the answer of a mount, or the reason why it gave none.
    pub(super) fn take(&mut self, mount: usize, sample: Result<Sample, String>) {
        let Some(figures) = self.mounts.get_mut(mount) else { return };
        match sample {
            Ok(_) if self.is_paused => figures.answered_at = Instant::now(),
            sample => figures.take(sample),
        }
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Wish {
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::daemon::top::figures::tests::sample;

    pub(in crate::cli::top) fn state(points: &[&str]) -> State {
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
        assert_eq!(state.silence(Instant::now()).as_deref(), Some("it was\\x1b unmounted"));
        state.take(0, Ok(sample(1, 10, &[])));
        assert_eq!(state.silence(state.view().answered_at), None);
        assert_eq!((state.view().files_a_second(), state.view().requests_a_second()), (0.0, 0.0));
    }

    #[test]
    fn a_mount_that_hangs_is_said_to() {
        let state = state(&["/mnt"]);
        let later = state.view().answered_at + Duration::from_secs(20);
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
