//! The directories in which this user's programs keep files that can be made again, and their state. Imports nothing of ours.

use std::path::PathBuf;

fn from_environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// `$XDG_CACHE_HOME/ffrfs` or `~/.cache/ffrfs`; `None` without a home.
#[must_use]
pub fn user_cache_directory() -> Option<PathBuf> {
    let cache = from_environment("XDG_CACHE_HOME");
    let cache = cache.or_else(|| Some(from_environment("HOME")?.join(".cache")));
    cache.map(|cache| cache.join("ffrfs"))
}

/// The cache directory of this user, unless an option names another one: `/var/cache/ffrfs` for root, else
/// [`user_cache_directory`].
#[must_use]
pub fn cache_directory() -> Option<PathBuf> {
    match nix::unistd::geteuid().is_root() {
        true => Some(PathBuf::from("/var/cache/ffrfs")),
        false => user_cache_directory(),
    }
}

/// `$XDG_STATE_HOME/ffrfs` or `~/.local/state/ffrfs`; without a home `/var/lib/ffrfs`, where only root can write.
#[must_use]
pub fn user_state_directory() -> PathBuf {
    let state = from_environment("XDG_STATE_HOME");
    let state = state.or_else(|| Some(from_environment("HOME")?.join(".local/state")));
    state.unwrap_or_else(|| "/var/lib".into()).join("ffrfs")
}
