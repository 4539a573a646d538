//! Progress bars for long work, only on a terminal.

use crate::dataset::{Watch, Work};
use crate::interrupt::Interrupt;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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

/// Shows the progress of opening containers, and cancels it when the user interrupts the program.
pub(crate) struct Terminal {
    bar: Mutex<ProgressBar>,
    /// Set once long work has begun. Until then a signal ends the process, even one that waits for a named pipe.
    interrupt: OnceLock<Interrupt>,
}

impl Terminal {
    pub(crate) fn watch() -> Arc<dyn Watch> {
        let bar = Mutex::new(ProgressBar::hidden());
        Arc::new(Self { bar, interrupt: OnceLock::new() })
    }

    fn bar(&self) -> MutexGuard<'_, ProgressBar> {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch for Terminal {
    fn begin(&self, work: Work, amount: u64) {
        self.interrupt.get_or_init(Interrupt::while_opening);
        *self.bar() = match work {
            Work::Index => bar(amount, "indexing {bar:30} {bytes}/{total_bytes}, {eta} left"),
            Work::Decode => bar(amount, "decoding {bar:30} {bytes}/{total_bytes}, {eta} left"),
            Work::Digest => {
                bar(amount, "digest {bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left")
            }
            Work::Suffixes => {
                bar(amount, "suffixes {bar:30} {human_pos}/{human_len} samples, {eta} left")
            }
        };
    }

    fn done(&self, amount: u64) {
        self.bar().set_position(amount);
    }

    fn end(&self) {
        self.bar().finish_and_clear();
    }

    fn is_cancelled(&self) -> bool {
        self.interrupt.get().is_some_and(Interrupt::requested)
    }
}
