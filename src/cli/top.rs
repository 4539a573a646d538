//! `ffrfs top`: the present figures of mounts, on the full screen of a terminal.

mod draw;
mod state;

use crate::daemon::live::Live;
use crate::daemon::top::sample::Samplers;
use crate::failure::{Exit, Failure};
use crate::format::quoted;
use clap::Args;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use state::{State, Wish};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest time between looks at keys and signals.
const ATTENTION: Duration = Duration::from_millis(100);

/// After a signal, the time in which the main thread may end the process.
const LAST_CHANCE: Duration = Duration::from_secs(1);

const AFTER_HELP: &str = "\
Keys: q, Esc or Ctrl-C quit; p pauses; + and - change the interval; Tab shows the next mount; \
? helps. Without colours if NO_COLOR is set. For scripts: `ffrfs stats --watch 1 \
MOUNTPOINT`.";

/// Watch what mounts are doing
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct TopArgs {
    /// Where datasets are mounted [default: all mounts of ffrfs]
    #[arg(value_name = "MOUNTPOINT")]
    targets: Vec<PathBuf>,
    /// Seconds between updates, from 0.1 to 60
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
}

pub(super) fn run(args: &TopArgs) -> Result<Exit, Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "top needs a terminal; in scripts, use `ffrfs stats --watch 1 MOUNTPOINT`",
        ));
    }
    let mounts = find(&args.targets)?;
    let mut state = State::new(mounts.iter().map(Live::root), args.interval, has_colours());
    let signalled = signals().map_err(|e| Failure::new(Exit::Mount, e))?;
    leave_with_terminal(Arc::clone(&signalled));
    let samplers = Samplers::start(mounts, args.interval);
    // `try_init` also has a panic restore the terminal.
    let mut terminal = ratatui::try_init().map_err(|e| Failure::output("the terminal", e))?;
    let shown = show(&mut terminal, &mut state, &samplers, &signalled);
    ratatui::restore();
    shown.map_err(|e| Failure::output("the terminal", e))
}

/// Draws until the user quits.
fn show(
    terminal: &mut DefaultTerminal,
    state: &mut State,
    samplers: &Samplers,
    signalled: &AtomicBool,
) -> io::Result<Exit> {
    loop {
        for (mount, sample) in samplers.take() {
            state.take(mount, sample);
        }
        terminal.draw(|frame| draw::draw(frame, state, Instant::now()))?;
        if signalled.load(Ordering::Relaxed) {
            return Ok(Exit::Interrupted);
        }
        if !event::poll(ATTENTION)? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            match state.key(key) {
                Wish::Quit => return Ok(Exit::Ok),
                Wish::Interval => samplers.set_interval(state.interval()),
                Wish::Nothing => {}
            }
        }
    }
}

/// The mounts to watch.
fn find(targets: &[PathBuf]) -> Result<Vec<Live>, Failure> {
    match targets {
        [] => Live::all(),
        targets => targets.iter().map(|target| Live::at(target)).collect(),
    }
}

/// Whether colours are shown: <https://no-color.org>
fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Makes a flag that is set by signals which would otherwise end the process and leave the terminal in raw mode.
fn signals() -> io::Result<Arc<AtomicBool>> {
    let signalled = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&signalled))?;
    }
    Ok(signalled)
}

/// Ends the process when its terminal was closed: crossterm's wait for events never returns then.
fn leave_with_terminal(signalled: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        loop {
            let was_signalled = signalled.load(Ordering::Relaxed);
            std::thread::sleep(LAST_CHANCE);
            if was_signalled || is_hung_up() {
                ratatui::restore();
                std::process::exit(Exit::Interrupted as i32);
            }
        }
    });
}

fn is_hung_up() -> bool {
    let stdin = io::stdin();
    let mut asked = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
    let answer = poll(&mut asked, PollTimeout::ZERO).and(Ok(asked[0].revents()));
    answer.is_ok_and(|events| events.is_some_and(|events| events.contains(PollFlags::POLLHUP)))
}

fn interval(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=60.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("{} is not a number of seconds from 0.1 to 60", quoted(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_from_a_tenth_of_a_second_to_a_minute() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "61", "nan", "inf", "x", ""] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
