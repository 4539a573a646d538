//! Bars for long work: on a terminal only.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};

/// A bar that counts bytes.
pub(crate) fn of_bytes(bytes: u64) -> ProgressBar {
    bar(bytes, "{bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left")
}

/// A bar that counts samples.
pub(crate) fn of_samples(samples: u64) -> ProgressBar {
    let bar = bar(samples, "{bar:30} {human_pos}/{human_len} samples, {elapsed}, {eta} left");
    bar.tick();
    bar
}

/// A bar that counts the bytes of large members; hidden if there are none.
pub(crate) fn of_large_members(bytes: u64) -> ProgressBar {
    match bytes {
        0 => ProgressBar::hidden(),
        _ => bar(bytes, "large members {bar:30} {bytes}/{total_bytes}, {eta} left"),
    }
}

/// A bar that counts samples, with a message that the caller sets.
pub(crate) fn of_samples_with_message(samples: u64) -> ProgressBar {
    bar(samples, "{bar:30} {human_pos}/{human_len} samples, {msg}, {eta} left")
}

fn bar(length: u64, template: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template);
    let bar = ProgressBar::new(length);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
