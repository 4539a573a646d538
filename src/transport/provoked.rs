//! Failures that a test asks for: a panic of a thread that reads the source, or an error of all threads that take requests. Only
//! builds with the feature `test-hooks` have them.

use std::env;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The variable of a daemon that may be asked: by a look-up of [`ASKS`] and the beginning of a thread's name.
const VARIABLE: &str = "FFRFS_TEST_PANIC";
const ASKS: &[u8] = b"panic in ";
/// The look-up that asks for an error.
const BREAKS: &[u8] = b"break";

static ASKED: OnceLock<String> = OnceLock::new();
static IS_BROKEN: AtomicBool = AtomicBool::new(false);

/// Notes a look-up that may ask for a failure.
pub(super) fn note(name: &[u8]) {
    let asked = name.strip_prefix(ASKS).and_then(|thread| std::str::from_utf8(thread).ok());
    if let Some(thread) = asked
        && env::var_os(VARIABLE).is_some()
    {
        let _ = ASKED.set(thread.to_owned());
    }
    if name == BREAKS && env::var_os(VARIABLE).is_some() {
        IS_BROKEN.store(true, Ordering::Relaxed);
    }
}

/// Panics if this thread was asked to.
pub(super) fn panic_if_asked() {
    let is_this = |asked: &String| {
        let thread = thread::current();
        thread.name().is_some_and(|name| name.starts_with(asked))
    };
    assert!(!ASKED.get().is_some_and(is_this), "a test asked for it");
}

/// Fails once a test has asked for an error.
pub(super) fn fail_if_asked() -> io::Result<()> {
    match IS_BROKEN.load(Ordering::Relaxed) {
        true => Err(io::Error::other("a test asked for it")),
        false => Ok(()),
    }
}
