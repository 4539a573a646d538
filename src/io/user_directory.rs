//! Where this user's programs keep what can be made again. Imports nothing of ours.

use std::path::PathBuf;

/// `$XDG_CACHE_HOME/ffrfs` or `~/.cache/ffrfs`; `None` without a home.
#[must_use]
pub fn user_cache_directory() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    cache.map(|cache| cache.join("ffrfs"))
}
