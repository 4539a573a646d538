//! Mount options that can also be changed while it is mounted, and what the daemon does then.

use super::{logging, memory};
use crate::cli::options;
use crate::failure::Failure;
use crate::vfs::{Errno, Settings, Verify, Vfs, report};
use clap::{Args, CommandFactory, Parser, ValueEnum};
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Options of a mount that can be changed later. What is `None` was not said.
#[derive(Debug, Default, Args)]
pub(crate) struct Changeable {
    /// When a sample is checked before it is given out [default: always]
    #[arg(long, value_name = "WHEN")]
    verify: Option<VerifyWhen>,
    /// Memory for everything: requests, reads, caches [default: 5% of what there is, at most 512M]
    #[arg(long, value_name = "SIZE|N%", value_parser = memory::limit)]
    memory: Option<memory::Limit>,
    /// Memory of it for what was read and not asked for yet [default: what the rest leaves]
    #[arg(long, alias = "cache_size", value_name = "SIZE", value_parser = memory::size)]
    cache_size: Option<u64>,
    /// error, warn, info, debug or trace [default: info]
    #[arg(long, alias = "log_level", value_name = "LEVEL")]
    #[arg(value_parser = ["error", "warn", "info", "debug", "trace"])]
    log_level: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum VerifyWhen {
    /// Whenever bytes come from storage
    Always,
    /// The first time
    Once,
    /// Never
    Off,
}

impl From<VerifyWhen> for Verify {
    fn from(when: VerifyWhen) -> Self {
        match when {
            VerifyWhen::Always => Verify::Always,
            VerifyWhen::Once => Verify::Once,
            VerifyWhen::Off => Verify::Off,
        }
    }
}

/// For a mount: what was said, or the default.
impl Changeable {
    /// Of the option with this long flag, in words that [`parse`] understands.
    pub(crate) fn in_words(&self, flag: &str) -> String {
        match flag {
            "verify" => format!("{:?}", self.verify()).to_lowercase(),
            "memory" => memory::in_words(self.memory_bytes()),
            "cache-size" => memory::in_words(self.cache_bytes()),
            _ => self.log_level().to_owned(),
        }
    }

    pub(crate) fn verify(&self) -> Verify {
        self.verify.map_or(Verify::Always, Verify::from)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        memory::Limit::bytes(self.memory)
    }

    pub(crate) fn cache_bytes(&self) -> u64 {
        self.cache_size.unwrap_or_else(|| memory::for_cache(self.memory_bytes()))
    }

    pub(crate) fn log_level(&self) -> &str {
        self.log_level.as_deref().unwrap_or("info")
    }
}

/// Settings as clap knows them, so that they are read as the options of `mount` are.
#[derive(Debug, Parser)]
#[command(name = "ffrfs set", no_binary_name = true, disable_help_flag = true)]
#[command(args_override_self = true)]
struct Wanted {
    #[command(flatten)]
    changeable: Changeable,
}

/// Whether an option of this name can be changed while it is mounted.
pub(crate) fn is_changeable(name: &str) -> bool {
    let command = Wanted::command();
    command.get_arguments().any(|arg| arg.get_id() == name)
}

/// Reads settings, by the names that options of `mount` have.
///
/// # Errors
/// One of them cannot be changed, or not to this.
pub(crate) fn parse(settings: &[(String, String)]) -> Result<Changeable, Failure> {
    let flag = |(name, value): &(String, String)| {
        let dashed = name.replace('_', "-");
        if can_change(&dashed) {
            Ok(format!("--{dashed}={value}"))
        } else {
            Err(refusal(name, &dashed))
        }
    };
    let flags = settings.iter().map(flag).collect::<Result<Vec<_>, _>>()?;
    match Wanted::try_parse_from(flags) {
        Ok(wanted) => Ok(wanted.changeable),
        Err(error) => Err(Failure::from(error)),
    }
}

/// Whether an option of `mount` (its long flag) can be changed while mounted.
pub(crate) fn can_change(flag: &str) -> bool {
    Wanted::command().get_arguments().any(|arg| arg.get_long() == Some(flag))
}

fn refusal(name: &str, dashed: &str) -> Failure {
    let command = Wanted::command();
    let mut names: Vec<_> = command.get_arguments().map(|arg| arg.get_id().as_str()).collect();
    names.sort_unstable();
    let names = names.join(", ");
    Failure::usage(match options::takes(dashed) {
        Some(_) => format!(
            "{name}: this can only be chosen when mounting: unmount, and mount again with the option; what \
             can be changed while mounted: {names}"
        ),
        None => format!("{name:?}: there is no such setting; there are: {names}"),
    })
}

/// Settings as `.ffrfs/settings` shows them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Shown {
    pub(crate) verify: String,
    pub(crate) memory: u64,
    pub(crate) cache_size: u64,
    pub(crate) log_level: String,
    /// Why the last change was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
}

impl Shown {
    /// Each as `NAME`, `VALUE`, in words that [`parse`] understands.
    pub(crate) fn pairs(&self) -> [(&'static str, String); 4] {
        [
            ("verify", self.verify.clone()),
            ("memory", memory::in_words(self.memory)),
            ("cache_size", memory::in_words(self.cache_size)),
            ("log_level", self.log_level.clone()),
        ]
    }
}

/// What is different in `after`, as `NAME=VALUE (was VALUE)`.
pub(crate) fn differences(before: &Shown, after: &Shown) -> Vec<String> {
    let pairs = before.pairs().into_iter().zip(after.pairs());
    let changed = pairs.filter(|(before, after)| before != after);
    changed.map(|((_, was), (name, is))| format!("{name}={is} (was {was})")).collect()
}

/// The daemon's side of `.ffrfs/settings`.
pub(crate) struct Runtime(Mutex<State>);

struct State {
    memory_bytes: u64,
    /// `verify=off` is refused.
    must_check: bool,
    refused: Option<String>,
}

impl Runtime {
    /// For a mount that was given so much memory, and that must check all samples or need not.
    pub(crate) fn new(memory_bytes: u64, must_check: bool) -> Self {
        Self(Mutex::new(State { memory_bytes, must_check, refused: None }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn shown(&self, vfs: &Vfs) -> Shown {
        Shown {
            verify: format!("{:?}", vfs.verify()).to_lowercase(),
            memory: self.memory_bytes,
            cache_size: vfs.cache_bytes(),
            log_level: logging::level(),
            refused: self.refused.clone(),
        }
    }

    /// All of it, or nothing and why.
    fn change(&mut self, vfs: &Vfs, text: &[u8]) -> Result<(), String> {
        let wanted = parse(&pairs(text)?).map_err(|failure| failure.to_string())?;
        if self.must_check && wanted.verify.map(Verify::from) == Some(Verify::Off) {
            return Err("verify=off: it was mounted with require_checksums".to_owned());
        }
        let memory = wanted.memory.map(|limit| memory::Limit::bytes(Some(limit)));
        // Memory that is said anew is shared out anew.
        let cache = memory.map(|memory| for_cache(vfs.request_bytes(), memory)).transpose()?;
        let cache = wanted.cache_size.or(cache);
        self.memory_bytes = memory.unwrap_or(self.memory_bytes);
        if let Some(bytes) = cache {
            vfs.set_cache_bytes(bytes);
        }
        if let Some(when) = wanted.verify {
            vfs.set_verify(when.into());
        }
        if let Some(level) = &wanted.log_level {
            logging::set_level(level);
        }
        Ok(())
    }
}

impl Settings for Runtime {
    fn show(&self, vfs: &Vfs) -> Vec<u8> {
        report::json(&self.lock().shown(vfs))
    }

    fn change(&self, vfs: &Vfs, text: &[u8]) -> Result<(), Errno> {
        let mut state = self.lock();
        let before = state.shown(vfs);
        state.refused = state.change(vfs, text).err();
        if let Some(why) = &state.refused {
            tracing::warn!("settings stay as they are: {why}");
            return Err(Errno::EINVAL);
        }
        for change in differences(&before, &state.shown(vfs)) {
            tracing::info!("{change}");
        }
        Ok(())
    }
}

fn for_cache(requests: u64, memory: u64) -> Result<u64, String> {
    memory::for_cache_beside(requests, memory).map_err(|least| {
        format!(
            "memory={}: too little: requests hold {} since it was mounted; at least {least} is needed, or \
             mount it again",
            memory::in_words(memory),
            memory::in_words(requests),
        )
    })
}

/// Lines `NAME=VALUE`.
fn pairs(text: &[u8]) -> Result<Vec<(String, String)>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "this is no text".to_owned())?;
    text.lines().filter(|line| !line.trim().is_empty()).map(pair).collect()
}

/// `NAME=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
    match split {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not NAME=VALUE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Result<Changeable, String> {
        parse(&pairs(text.as_bytes())?).map_err(|failure| failure.to_string())
    }

    #[test]
    fn settings_are_read_as_the_options_of_mount() {
        let wanted = said("verify=once\n memory = 10% \ncache-size=1G\nlog_level=debug").unwrap();
        assert_eq!(wanted.verify(), Verify::Once);
        assert_eq!(wanted.memory, Some(memory::Limit::Percent(10)));
        assert_eq!((wanted.cache_size, wanted.log_level()), (Some(1 << 30), "debug"));
        assert_eq!(said("memory=1M\nmemory=2M").unwrap().memory_bytes(), 2 << 20);
    }

    #[test]
    fn what_cannot_be_changed_is_refused_by_name_with_what_to_do() {
        for option in ["transport=uring", "allow_other=", "fmask=022", "suffix=auto"] {
            let said = said(option).unwrap_err();
            let name = option.split('=').next().unwrap();
            assert!(said.contains(name) && said.contains("mount again"), "{said}");
            assert!(said.contains("cache_size, log_level, memory, verify"), "{said}");
        }
        for unknown in
            ["frobnicate=1", "help=", "version=1", "=1", "verify", "x y=1", "--memory=1M"]
        {
            assert!(said(unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn a_value_that_is_none_is_refused() {
        for wrong in ["verify=sometimes", "memory=", "memory=-1", "memory=0%", "log_level=loud"] {
            assert!(said(wrong).is_err(), "{wrong}");
        }
        assert!(pairs(b"verify=\xff").is_err());
    }

    #[test]
    fn differences_are_told_with_what_was() {
        let before = Shown { verify: "always".into(), memory: 1 << 30, ..Shown::default() };
        let after = Shown { memory: 64 << 20, ..before.clone() };
        assert_eq!(differences(&before, &after), ["memory=64M (was 1G)"]);
        assert!(differences(&before, &before).is_empty());
    }

    #[test]
    fn what_is_shown_can_be_set() {
        let shown = Shown {
            verify: "off".into(),
            memory: 1_262_187_521,
            cache_size: 64 << 20,
            log_level: "warn".into(),
            refused: None,
        };
        let pairs = shown.pairs().map(|(name, value)| (name.to_owned(), value));
        let wanted = parse(&pairs).unwrap();
        assert_eq!((wanted.memory_bytes(), wanted.cache_bytes()), (1_262_187_521, 64 << 20));
    }
}
