//! SIGHUP: the log file is opened anew, and the config file, if there is one, read again.

use super::settings::{self, Changeable};
use super::{logging, notify};
use crate::cli::config::Config;
use crate::cli::{options, set};
use crate::failure::{Exit, Failure};
use std::path::{Path, PathBuf};

/// What a mount was told by its config file.
#[derive(Debug, Clone)]
pub(crate) struct Configured {
    file: PathBuf,
    /// What holds now.
    config: Config,
}

impl Configured {
    /// At the start, where the caller is: a daemon goes elsewhere.
    pub(crate) fn new(file: &Path) -> Result<Self, Failure> {
        let config = Config::read(file, options::takes)?;
        let file = std::path::absolute(file).map_err(|e| Failure::unreadable(file.display(), e))?;
        Ok(Self { file, config })
    }

    /// Reads the file again, and changes what can be changed while it is mounted: all of that, or nothing.
    fn read_again(&mut self, target: Option<&Path>) -> Result<(), Failure> {
        let new = Config::read(&self.file, options::takes)?;
        let differing = self.config.differing(&new);
        let (now, later): (Vec<_>, Vec<_>) =
            differing.into_iter().partition(|name| settings::can_change(name));
        for name in later {
            let file = self.file.display();
            tracing::warn!("{file}: {name} has changed: that counts when it is mounted again");
        }
        if !now.is_empty() {
            let target = target.ok_or_else(|| {
                let why = "the mount was handed in, and where it is is not known here";
                Failure::new(Exit::Mount, why)
            })?;
            set::apply(target, &changes(&now, &new))?;
            now.iter().for_each(|name| self.config.adopt(name, &new));
        }
        Ok(())
    }
}

/// The settings of these names as `config` has them, or the default.
fn changes(names: &[String], config: &Config) -> Vec<(String, String)> {
    let given = |name: &str| Some(config.value(name)?.to_string_lossy().into_owned());
    let defaults = Changeable::default();
    let of = |name: &str| (name.to_owned(), given(name).unwrap_or_else(|| defaults.in_words(name)));
    let is_memory = |name: &&str| matches!(*name, "memory" | "cache-size");
    let names = names.iter().map(String::as_str);
    let mut changes: Vec<_> = names.clone().filter(|name| !is_memory(name)).map(of).collect();
    if names.clone().any(|name| is_memory(&name)) {
        // How much of it is cache is worked out anew, unless the file says it.
        changes.push(of("memory"));
        changes.extend(given("cache-size").map(|size| ("cache-size".to_owned(), size)));
    }
    changes
}

/// What SIGHUP means; `status` is what the service manager shows afterwards.
pub(crate) fn reload(configured: Option<&mut Configured>, target: Option<&Path>, status: &str) {
    // Without a config file it means that the terminal was closed, and little else.
    if let Err(error) = logging::reopen() {
        tracing::error!("{error}");
    }
    let Some(configured) = configured else { return };
    notify::reloading();
    if let Err(failure) = configured.read_again(target) {
        tracing::error!("{failure}; no setting is changed");
    }
    notify::ready(status);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(names: &[&str], text: &str) -> Vec<String> {
        let config = crate::cli::config::parse(text.as_bytes(), options::takes).unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let pairs = changes(&names, &config);
        assert!(settings::parse(&pairs).is_ok(), "{pairs:?}");
        pairs.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn what_is_gone_from_the_file_goes_back_to_its_default() {
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
