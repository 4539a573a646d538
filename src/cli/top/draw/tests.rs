//! Screens of several sizes, as text.

use super::*;
use crate::cli::top::state::tests::state;
use crate::daemon::top::figures::tests::sample;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The screen just after the mount has answered, as lines of text, and whether anything on it has a colour.
fn screen(state: &State, columns: u16, rows: u16) -> (Vec<String>, bool) {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw(frame, state, state.view().answered_at)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let is_coloured = buffer.content().iter().any(|cell| cell.fg != Color::Reset);
    ((0..rows).map(row).collect(), is_coloured)
}

fn busy(bad: &[&str]) -> State {
    let mut state = state(&["/mnt/ds"]);
    for look in 0..60 {
        state.take(0, Ok(sample(100 + look, 5_000 + look * look * 10, bad)));
    }
    state
}

#[track_caller]
fn assert_shows(screen: &[String], what: &str) {
    assert!(screen.iter().any(|line| line.contains(what)), "{what}:\n{}", screen.join("\n"));
}

#[test]
fn eighty_columns_and_24_rows_show_everything() {
    let (screen, is_coloured) = screen(&busy(&["cat/1.jpg: checksum"]), 80, 24);
    for what in [
        "/mnt/ds",
        "123,456 samples",
        "up 00:02:39",
        "uring, reads direct, verify always",
        "MB/s 1170.0, most 1170.0",
        "files/s 11,700, most 11,700",
        "1170.0 MB/s  11,700 files/s  23,400 requests/s",
        "read          11,700    16 µs   2.0 ms",
        "lookup",
        "disk",
        "verify",
        "fetch ahead",
        "75.0% hits  90.0% no wait",
        "100.0% efficiency",
        "64.00 MiB of 256M █████░░░░░░░░░░░░░░░",
        "samples: 1",
        "cat/1.jpg: checksum",
        "q quit",
    ] {
        assert_shows(&screen, what);
    }
    // The charts grow to the right.
    assert!(screen[2..8].iter().any(|line| line.contains('█')));
    assert!(is_coloured);
}

#[test]
fn a_mount_of_a_store_shows_what_its_requests_cost_and_brought() {
    let mut state = state(&["/mnt/ds"]);
    for look in 0..3 {
        let mut sample = sample(100 + look, 5_000 + look * 100, &[]);
        sample.stats.remote = Some(RemoteFigures {
            gets_demand: 1_000_000 * (look + 1),
            fetched_bytes: 3_000_000_000 * (look + 1),
            used_bytes: 2_000_000_000 * (look + 1),
            lock_joins: 7,
            evictions: 1234,
            evicted_blocks: 56,
            ..RemoteFigures::default()
        });
        state.take(0, Ok(sample));
    }
    let (screen, _) = screen(&state, 80, 30);
    for what in [
        "3000.0 MB/s  1,000,000 GET/s",
        "in all about $1.2000  1.50 bytes fetched for each used",
        "in all waited for another mount 7  objects evicted 1,234, blocks 56",
        "first byte",
        "hits",
    ] {
        assert_shows(&screen, what);
    }
    // On 24 rows the line of the store has room.
    assert!(self::screen(&state, 80, 24).0.iter().any(|line| line.contains("store")));
}

#[test]
fn forty_columns_and_10_rows_show_what_matters() {
    let (screen, _) = screen(&busy(&["cat/1.jpg: checksum"]), 40, 10);
    for what in [
        "/mnt/ds",
        "1170.0 MB/s",
        "read",
        "lookup",
        "hits  90.0% no wait",
        "p50      p99",
        "16 µs   2.0 ms",
        "64.00 MiB of 256M",
        "samples: 1",
        "q quit",
    ] {
        assert_shows(&screen, what);
    }
}

#[test]
fn no_size_is_too_small_or_too_large() {
    let mut helped = busy(&["a: checksum"; 90]);
    helped.key(KeyEvent::new(KeyCode::Char('?'), KeyModifiers::NONE));
    let mut gone = busy(&[]);
    gone.take(0, Err("it was unmounted".to_owned()));
    for state in [busy(&["a: checksum"; 90]), state(&["/never/looked/at"]), helped, gone] {
        for (columns, rows) in
            [(1, 1), (2, 3), (3, 2), (10, 4), (39, 9), (40, 10), (79, 23), (200, 60), (500, 3)]
        {
            let (screen, _) = screen(&state, columns, rows);
            assert_eq!(screen.len(), usize::from(rows));
        }
        // All heights in between, so that a row that is counted twice is found.
        for rows in 1..50 {
            let _ = screen(&state, 80, rows);
        }
    }
}

#[test]
fn a_large_screen_names_more_bad_samples() {
    let names: Vec<String> = (0..20).map(|i| format!("cat/{i}.jpg: checksum")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (screen, _) = screen(&busy(&names), 120, 40);
    for what in ["samples: 20", "cat/19.jpg", "cat/13.jpg"] {
        assert_shows(&screen, what);
    }
}

#[test]
fn without_colours_there_are_none() {
    let mut state = busy(&["cat/1.jpg: checksum"]);
    state.has_colours = false;
    assert!(!screen(&state, 80, 24).1);
}

#[test]
fn a_mount_that_is_gone_or_paused_says_so_first() {
    let mut state = busy(&[]);
    state.is_paused = true;
    assert!(screen(&state, 80, 24).0[0].starts_with("PAUSED /mnt/ds"));
    state.take(0, Err("it was unmounted".to_owned()));
    assert!(screen(&state, 80, 24).0[0].starts_with("GONE: it was unmounted /mnt/ds"));
}

#[test]
fn of_a_long_path_the_end_is_shown() {
    assert_eq!(ending("/mnt/ds", 7), "/mnt/ds");
    assert_eq!(ending("/mnt/train", 7), "…/train");
    assert_eq!(ending("/mnt/träin", 6), "…träin");
    assert_eq!(ending("/mnt", 0), "…");
}

#[test]
fn several_mounts_show_which_one_it_is() {
    let mut state = state(&["/a", "/b"]);
    assert!(screen(&state, 80, 24).0[0].starts_with("[1/2] /a "));
    state.key(KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE));
    assert!(screen(&state, 80, 24).0[0].starts_with("[2/2] /b "));
}
