//! SIGHUP: the log file is opened anew, and the config file, if there is one, read again.

use super::config::{Config, OptionTable};
use super::settings::{self, LiveSettings};
use super::{logging, notify, sandbox};
use crate::failure::{Exit, Failure};
use crate::vfs::Vfs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A mount's config file, and the settings of it that are in effect.
#[derive(Debug, Clone)]
pub(crate) struct Configured {
    file: PathBuf,
    options: OptionTable,
    in_effect: Config,
}

impl Configured {
    /// Reads the file for the first time, before the daemon changes its working directory.
    pub(crate) fn new(file: &Path, options: OptionTable) -> Result<Self, Failure> {
        let in_effect = Config::read(file, options)?;
        let file = std::path::absolute(file).map_err(|e| Failure::unreadable(file.display(), e))?;
        Ok(Self { file, options, in_effect })
    }

    /// The file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Reads the file again, and applies the settings that can be changed while mounted: all of them, or none.
    fn read_again(&mut self, vfs: &Vfs) -> Result<(), Failure> {
        let new = Config::read(&self.file, self.options)?;
        let differing = self.in_effect.differing(&new);
        let (now, later): (Vec<_>, Vec<_>) =
            differing.into_iter().partition(|name| settings::can_change(name));
        for name in later {
            let file = self.file.display();
            tracing::warn!("{file}: the new value of {name} takes effect at the next mount");
        }
        if !now.is_empty() {
            let changes = changes(&now, &new).into_iter();
            let lines: String = changes.map(|(name, value)| format!("{name}={value}\n")).collect();
            vfs.change_settings(lines.as_bytes()).map_err(|_| {
                let why = format!("{}: a value is refused", self.file.display());
                Failure::new(Exit::Mount, why)
            })?;
            now.iter().for_each(|name| self.in_effect.adopt(name, &new));
        }
        Ok(())
    }
}

/// The settings of these names with their values in `config`, or their defaults.
fn changes(names: &[String], config: &Config) -> Vec<(String, String)> {
    let given = |name: &str| Some(config.value(name)?.to_string_lossy().into_owned());
    let defaults = LiveSettings::default();
    let of = |name: &str| (name.to_owned(), given(name).unwrap_or_else(|| defaults.in_words(name)));
    let is_memory = |name: &&str| matches!(*name, "memory" | "cache-size");
    let names = names.iter().map(String::as_str);
    let mut changes: Vec<_> = names.clone().filter(|name| !is_memory(name)).map(of).collect();
    if names.clone().any(|name| is_memory(&name)) {
        // The cache's part of the memory is computed anew, unless the file gives it.
        changes.push(of("memory"));
        changes.extend(given("cache-size").map(|size| ("cache-size".to_owned(), size)));
    }
    changes
}

/// Opens the log file anew: the former one may have been moved away.
pub(crate) fn reopen_log() {
    if let Err(error) = logging::reopen() {
        tracing::error!("{error}");
    }
}

/// The state that SIGHUP changes.
pub(crate) struct Reload {
    /// The config file, if there is one.
    pub(crate) configured: Option<Configured>,
    /// The file system that is mounted.
    pub(crate) vfs: Weak<Vfs>,
}

impl Reload {
    /// Handles SIGHUP; the service manager shows `status` afterwards.
    pub(crate) fn run(&mut self, status: &str) {
        // Without a config file there is only the log file to open anew (the terminal may have been closed).
        reopen_log();
        let (Some(configured), Some(vfs)) = (&mut self.configured, self.vfs.upgrade()) else {
            return;
        };
        notify::reloading();
        if let Err(failure) = configured.read_again(&vfs) {
            tracing::error!("{failure}; no setting is changed");
        }
        notify::ready(status);
    }
}

/// Handles SIGHUP in a thread of its own: the file system of the config file may hang, and other signals are handled meanwhile.
pub(crate) struct Reloads {
    reload: Mutex<Reload>,
    status: String,
    /// How many signals have come that are not handled yet.
    due: AtomicUsize,
}

impl Reloads {
    pub(crate) fn new(reload: Reload, status: String) -> Arc<Self> {
        Arc::new(Self { reload: Mutex::new(reload), status, due: AtomicUsize::new(0) })
    }

    /// Handles a signal. If the one before it is still being handled, this is done once more afterwards.
    pub(crate) fn begin(self: &Arc<Self>) {
        if self.due.fetch_add(1, Ordering::SeqCst) > 0 {
            return;
        }
        let this = Arc::clone(self);
        let thread = std::thread::Builder::new().name("ffrfs-reload".to_owned());
        if thread.spawn(move || this.run()).is_err() {
            self.run();
        }
    }

    fn run(&self) {
        let mut handled = 0;
        loop {
            let due = self.due.fetch_sub(handled, Ordering::SeqCst) - handled;
            if due == 0 {
                return;
            }
            self.reload.lock().unwrap_or_else(PoisonError::into_inner).run(&self.status);
            sandbox::try_to_escape();
            handled = due;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::config::parse;

    fn changed(names: &[&str], text: &str) -> Vec<String> {
        let takes_value = |name: &str| Some(name != "ro");
        let options = OptionTable {
            takes_value,
            is_ignored: |_| false,
            unknown: str::to_owned,
            check_values: |_| Ok(()),
        };
        let config = parse(text.as_bytes(), options).unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let pairs = changes(&names, &config);
        assert!(settings::parse(&pairs).is_ok(), "{pairs:?}");
        pairs.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn a_setting_that_is_gone_from_the_file_goes_back_to_its_default() {
        assert_eq!(changed(&["log-level", "verify"], "ro"), ["log-level=info", "verify=always"]);
        assert_eq!(changed(&["verify"], "verify = off\nverify = once"), ["verify=once"]);
        let [memory] = &changed(&["memory"], "")[..] else { panic!("memory alone") };
        assert!(memory.starts_with("memory=") && memory.len() > "memory=".len(), "{memory}");
    }

    #[test]
    fn memory_and_its_cache_are_changed_together() {
        let text = "memory = 1G\ncache_size = 64M";
        let both = ["memory=1G", "cache-size=64M"];
        assert_eq!(changed(&["memory"], text), both);
        assert_eq!(changed(&["cache-size"], text), both);
        assert_eq!(changed(&["cache-size"], "memory = 1G"), ["memory=1G"]);
    }
}
