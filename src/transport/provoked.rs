//! A panic that a test asks for, of a thread that reads the source. Only debug builds have it.

use std::env;
use std::sync::OnceLock;
use std::thread;

/// The daemon has this variable if it may be asked: by a look-up of [`ASKS`] and what the name of the thread begins with.
const VARIABLE: &str = "FFRFS_TEST_PANIC";
const ASKS: &[u8] = b"panic in ";

static ASKED: OnceLock<String> = OnceLock::new();

/// Takes note of a look-up that may ask for it.
pub(super) fn note(name: &[u8]) {
    let asked = name.strip_prefix(ASKS).and_then(|thread| std::str::from_utf8(thread).ok());
    if let Some(thread) = asked
        && env::var_os(VARIABLE).is_some()
    {
        let _ = ASKED.set(thread.to_owned());
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
