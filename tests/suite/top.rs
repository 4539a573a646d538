//! `ffrfs top` on a real terminal, that of a tmux of the test's own.

use crate::common::{
    FFRFS, Mount, Need, TempDir, Transport, ffrfs, for_each_transport, have, is_running, offsets,
    run, samples, temp_dir, unmount_soon, wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// A terminal with a shell that runs one command and then stays.
struct Screen {
    directory: TempDir,
}

impl Screen {
    /// `None` if there is no tmux.
    fn new(columns: u16, rows: u16) -> Option<Self> {
        if !have(Need::Program("tmux")) {
            return None;
        }
        let screen = Self { directory: temp_dir() };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        screen.tmux(&["new-session", "-d", "-x", &columns, "-y", &rows, "sh"]);
        Some(screen)
    }

    #[track_caller]
    fn tmux(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.directory.path().join("socket")).args(["-u", "-f", "/dev/null"]);
        command.env_remove("TMUX").env("LC_ALL", "C.UTF-8").env("TERM", "xterm-256color");
        run(command.args(args)).ok().text()
    }

    /// Types a command into the shell.
    fn start(&self, command: &str) {
        self.tmux(&["send-keys", "-l", command]);
        self.press("Enter");
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Whether there is any colour but the terminal's own.
    fn is_coloured(&self) -> bool {
        let text = self.tmux(&["capture-pane", "-p", "-e"]);
        let is_colour = |number: &str| {
            matches!(number.parse(), Ok(30..=38 | 40..=48 | 90..=97 | 100..=107_u32))
        };
        let commands = text.split("\x1b[").skip(1).filter_map(|command| command.split_once('m'));
        commands.into_iter().any(|(numbers, _)| numbers.split(';').any(is_colour))
    }

    #[track_caller]
    fn wait_for(&self, what: &str) -> String {
        let mut text = String::new();
        wait_until(&format!("{what:?} on the screen"), PATIENCE, || {
            text = self.text();
            text.contains(what)
        });
        text
    }

    /// Checks that the shell is there again, on a screen that echoes typed text.
    #[track_caller]
    fn assert_restored(&self) {
        self.start("stty -a | grep -o ' icanon' | tr a-z A-Z");
        self.wait_for("ICANON");
        assert_eq!(
            self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]),
            "0 1\n"
        );
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let socket = self.directory.path().join("socket");
        let _ = Command::new("tmux").arg("-S").arg(socket).arg("kill-server").output();
    }
}

fn top(points: &[&Path], options: &str) -> String {
    let points: Vec<_> = points.iter().map(|point| format!("'{}'", point.display())).collect();
    format!("'{FFRFS}' top -d 0.2 {} {options}; echo \"ended: $?\"", points.join(" "))
}

#[test]
fn a_terminal_of_80_by_24_shows_what_a_mount_does() {
    for_each_transport(|transport| {
        let Some(screen) = Screen::new(80, 24) else { return };
        let contents = samples(200, 40_000);
        let mount = Mount::with_samples(transport, &contents, &[]);
        mount.flip_byte(offsets(&contents)[150] + 1);
        screen.start(&top(&[mount.point()], ""));
        screen.wait_for("bad         none");
        // The screen comes in pieces.
        let text = screen.wait_for("q quit");
        assert!(text.contains(" 200 samples"), "{text}");
        // Reads other samples each time: the kernel asks no more for one that was read.
        let mut read = (0..200).cycle().map(|number| {
            let _ = mount.read(format!("{number:06}"));
        });
        let is_busy = |text: &str| {
            let row =
                |name: &str| text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
            row("read ").is_some_and(|line| line.contains(" µs") || line.contains(" ms"))
                && row("now ").is_some_and(|line| !line.contains(" 0 files/s"))
        };
        wait_until("reads show", PATIENCE, || {
            read.by_ref().take(3).for_each(drop);
            is_busy(&screen.text())
        });
        let _ = mount.read("000150");
        let text = screen.wait_for("000150: checksum");
        assert!(text.contains("samples: 1"), "{text}");
        assert!(screen.is_coloured());
        screen.press("q");
        screen.wait_for("ended: 0");
        screen.assert_restored();
    });
}

#[test]
fn keys_pause_help_and_show_the_other_mount_and_a_small_terminal_does_too() {
    let Some(screen) = Screen::new(40, 10) else { return };
    let first = Mount::with_samples(Transport::DevFuse, &samples(3, 100), &[]);
    let second = Mount::with_samples(Transport::DevFuse, &samples(4, 100), &[]);
    screen.start(&format!("NO_COLOR=1 {}", top(&[first.point(), second.point()], "")));
    screen.wait_for("[1/2]");
    screen.press("Tab");
    screen.wait_for("[2/2]");
    screen.press("p");
    screen.wait_for("PAUSED");
    screen.press("p");
    screen.press("+");
    screen.wait_for("every 0.5 s");
    // The text may be reversed and bold.
    assert!(!screen.is_coloured());
    screen.press("?");
    screen.wait_for("help");
    for (columns, rows) in [("20", "5"), ("120", "40"), ("40", "10")] {
        screen.tmux(&["resize-window", "-x", columns, "-y", rows]);
    }
    screen.press("Escape");
    screen.wait_for("q quit");
    screen.press("C-c");
    screen.wait_for("ended: 0");
    screen.assert_restored();
}

#[test]
fn a_mount_that_goes_away_is_said_to_and_one_that_comes_again_is_shown() {
    let Some(screen) = Screen::new(80, 24) else { return };
    let mut mount = Mount::with_samples(Transport::DevFuse, &samples(3, 100), &[]);
    screen.start(&top(&[mount.point()], ""));
    screen.wait_for("bad         none");
    unmount_soon(mount.point());
    mount.wait_for_end();
    screen.wait_for("GONE: it was unmounted");
    let container = mount.container();
    mount.again(Transport::DevFuse, &[&container], &["restarts=0"]);
    wait_until("it is shown again", PATIENCE, || !screen.text().contains("GONE"));
    kill(Pid::from_raw(mount.pid()), Signal::SIGKILL).unwrap();
    screen.wait_for("GONE: ");
    screen.press("q");
    screen.wait_for("ended: 0");
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let Some(screen) = Screen::new(80, 24) else { return };
    let mount = Mount::with_samples(Transport::DevFuse, &samples(3, 100), &[]);
    let pid_file = screen.directory.path().join("pid");
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let (pid_file, point) = (pid_file.display(), mount.point().display());
        // A shell that becomes the program, so that its number is known.
        let run = format!("echo $$ > '{pid_file}'; exec '{FFRFS}' top '{point}'");
        screen.start(&format!(
            "clear; sh -c \"{run}\"; echo ended: $?",
            run = run.replace('$', "\\$")
        ));
        screen.wait_for("bad         none");
        let pid = std::fs::read_to_string(pid_file.to_string()).unwrap();
        kill(Pid::from_raw(pid.trim().parse().unwrap()), signal).unwrap();
        screen.wait_for("ended: 130");
        screen.assert_restored();
    }
}

#[test]
fn what_is_no_terminal_is_told_of_stats() {
    let mount = Mount::with_samples(Transport::DevFuse, &samples(1, 100), &[]);
    let outcome = ffrfs(&[Path::new("top"), mount.point()]);
    assert_eq!(outcome.code, 1);
    assert!(outcome.stderr.contains("ffrfs stats"), "{}", outcome.stderr);
    assert!(outcome.stdout.is_empty());
}

#[test]
fn top_ends_when_its_terminal_is_closed() {
    let mount = Mount::with_samples(Transport::DevFuse, &samples(10, 1000), &[]);
    let Some(screen) = Screen::new(80, 24) else { return };
    let pid = screen.directory.path().join("pid");
    // The program runs in place of the shell, as in a terminal window; only the terminal tells it of the end.
    let (point, pid_file) = (mount.point().display(), pid.display());
    screen.start(&format!("trap '' HUP; echo $$ > '{pid_file}'; exec '{FFRFS}' top '{point}'"));
    screen.wait_for("bad         none");
    let pid: i32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    screen.tmux(&["kill-server"]);
    wait_until("the end of top", PATIENCE, || !is_running(pid));
}
