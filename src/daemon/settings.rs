//! Settings of a mount that can be changed while it is mounted: how they are parsed, shown and applied.
//!
//! The command line declares the same options for `ffrfs mount` and parses their values with the functions here.

use super::{logging, memory};
use crate::format::quoted;
use crate::io::process::cgroup;
use crate::vfs::{Errno, Settings, Tuning, Verify, report};
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Settings that can be changed while a dataset is mounted. `None` for a setting that was not given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LiveSettings {
    /// When a sample is checked before it is given out.
    pub(crate) verify: Option<Verify>,
    /// The whole memory of the mount.
    pub(crate) memory: Option<memory::Limit>,
    /// Memory for the caches, in bytes.
    pub(crate) cache_size: Option<u64>,
    /// One of [`LOG_LEVELS`].
    pub(crate) log_level: Option<String>,
}

/// A mount with less memory could not hold its requests.
const MIN_MEMORY_BYTES: u64 = 1 << 20;

/// The values of `log_level`.
pub(crate) const LOG_LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// The values of `verify`.
pub(crate) const VERIFY: [(&str, Verify); 3] =
    [("always", Verify::Always), ("once", Verify::Once), ("off", Verify::Off)];

/// The names of these values.
const VERIFY_NAMES: [&str; VERIFY.len()] = [VERIFY[0].0, VERIFY[1].0, VERIFY[2].0];

/// Stores a parsed value, or returns why the value is wrong.
type Parse = fn(&mut LiveSettings, &str) -> Result<(), String>;

/// All settings, sorted by name.
const SETTINGS: [(&str, Parse); 4] = [
    ("cache_size", |out, value| memory::size(value).map(|bytes| out.cache_size = Some(bytes))),
    ("log_level", |out, value| {
        let level = LOG_LEVELS.into_iter().find(|level| *level == value);
        let level = level.ok_or_else(|| not_one_of(value, &LOG_LEVELS))?;
        out.log_level = Some(level.to_owned());
        Ok(())
    }),
    ("memory", |out, value| memory::limit(value).map(|limit| out.memory = Some(limit))),
    ("verify", |out, value| {
        let when = VERIFY.into_iter().find(|(name, _)| *name == value);
        let (_, when) = when.ok_or_else(|| not_one_of(value, &VERIFY_NAMES))?;
        out.verify = Some(when);
        Ok(())
    }),
];

fn not_one_of(value: &str, all: &[&str]) -> String {
    format!("{} is not one of {}", quoted(value), all.join(", "))
}

/// The value of `verify` that means this.
pub(crate) fn verify_name(when: Verify) -> &'static str {
    match when {
        Verify::Always => "always",
        Verify::Once => "once",
        Verify::Off => "off",
    }
}

/// The values that a mount uses: a setting that was given, or its default.
impl LiveSettings {
    /// The value in effect of the setting called `name`, as [`parse`] reads it.
    pub(crate) fn in_words(&self, name: &str) -> String {
        match name.replace('-', "_").as_str() {
            "verify" => verify_name(self.verify()).to_owned(),
            "memory" => memory::in_words(self.memory_bytes()),
            "cache_size" => memory::in_words(self.cache_bytes()),
            _ => self.log_level().to_owned(),
        }
    }

    /// Refuses sizes that no mount can work with. `memory_bytes`: the memory of the mount, unless another one is given.
    ///
    /// # Errors
    /// An option is wrong: the error says which, and why.
    pub(crate) fn check(&self, memory_bytes: u64) -> Result<(), String> {
        let (least, total) = (memory::in_words(MIN_MEMORY_BYTES), cgroup::total_bytes());
        let too_much = |name, bytes| {
            let shown = memory::in_words(bytes);
            format!("{name}={shown}: this machine has {} MiB of memory", total >> 20)
        };
        let given = self.memory.map(|limit| memory::Limit::bytes(Some(limit)));
        let cache = self.cache_size;
        match (given, given.unwrap_or(memory_bytes), cache) {
            (Some(bytes), ..) if bytes < MIN_MEMORY_BYTES => {
                let bytes = memory::in_words(bytes);
                Err(format!("memory={bytes}: it must be at least {least}"))
            }
            (Some(bytes), ..) if bytes > total => Err(too_much("memory", bytes)),
            (.., Some(cache)) if cache > total => Err(too_much("cache_size", cache)),
            (given, bytes, Some(cache)) if cache > bytes => {
                let hint = if given.is_none() { ": give more memory, too" } else { "" };
                let (cache, bytes) = (memory::in_words(cache), memory::in_words(bytes));
                Err(format!("cache_size={cache}: it is a part of memory, which is {bytes}{hint}"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn verify(&self) -> Verify {
        self.verify.unwrap_or(Verify::Always)
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

/// Whether the mount option called `name` (with - or _) can be changed while the dataset is mounted.
pub(crate) fn can_change(name: &str) -> bool {
    parser_of(name).is_some()
}

fn parser_of(name: &str) -> Option<Parse> {
    let name = name.replace('-', "_");
    SETTINGS.iter().find(|(known, _)| *known == name).map(|(_, parse)| *parse)
}

/// Parses pairs of name and value. Of a name that is given twice the last value counts.
///
/// # Errors
/// A name is not that of a setting which can be changed, or its value is wrong.
pub(crate) fn parse(settings: &[(String, String)]) -> Result<LiveSettings, String> {
    let mut out = LiveSettings::default();
    for (name, value) in settings {
        let parse = parser_of(name).ok_or_else(|| not_changeable(name))?;
        parse(&mut out, value).map_err(|why| format!("{name}={value}: {why}"))?;
    }
    Ok(out)
}

/// The names of the settings.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|(name, _)| *name)
}

/// The values of the setting called `name` (with - or _), if it takes no others.
pub(crate) fn values(name: &str) -> &'static [&'static str] {
    match name.replace('-', "_").as_str() {
        "log_level" => &LOG_LEVELS,
        "verify" => &VERIFY_NAMES,
        _ => &[],
    }
}

fn not_changeable(name: &str) -> String {
    let names = SETTINGS.map(|(name, _)| name).join(", ");
    format!(
        "{name}: not a setting that can be changed while mounted ({names} can); to change another mount \
         option, unmount, and mount again with it"
    )
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
    /// Each setting as `NAME`, `VALUE`, in words that [`parse`] understands.
    pub(crate) fn pairs(&self) -> [(&'static str, String); 4] {
        [
            ("verify", self.verify.clone()),
            ("memory", memory::in_words(self.memory)),
            ("cache_size", memory::in_words(self.cache_size)),
            ("log_level", self.log_level.clone()),
        ]
    }
}

/// The settings that differ in `after`, as `NAME=VALUE (was VALUE)`.
pub(crate) fn differences(before: &Shown, after: &Shown) -> Vec<String> {
    let pairs = before.pairs().into_iter().zip(after.pairs());
    let changed = pairs.filter(|(before, after)| before != after);
    changed.map(|((_, was), (name, is))| format!("{name}={is} (was {was})")).collect()
}

/// The daemon's side of `.ffrfs/settings`.
pub(crate) struct Runtime(Mutex<State>);

struct State {
    memory_bytes: u64,
    /// Whether `verify=off` is refused.
    must_check: bool,
    refused: Option<String>,
}

impl Runtime {
    /// For a mount with a limit of `memory_bytes`; with `must_check`, `verify=off` is refused.
    pub(crate) fn new(memory_bytes: u64, must_check: bool) -> Self {
        Self(Mutex::new(State { memory_bytes, must_check, refused: None }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn shown(&self, tuning: &Tuning) -> Shown {
        Shown {
            verify: verify_name(tuning.verify()).to_owned(),
            memory: self.memory_bytes,
            cache_size: tuning.cache_bytes(),
            log_level: logging::level(),
            refused: self.refused.clone(),
        }
    }

    /// Applies all settings in `text`, or none of them.
    fn change(&mut self, tuning: &Tuning, text: &[u8]) -> Result<(), String> {
        let wanted = parse(&pairs(text)?)?;
        wanted.check(self.memory_bytes)?;
        if self.must_check && wanted.verify == Some(Verify::Off) {
            return Err(
                "verify=off is refused: the dataset was mounted with require_checksums".to_owned()
            );
        }
        let memory = wanted.memory.map(|limit| memory::Limit::bytes(Some(limit)));
        // A new limit of memory is shared out anew.
        let cache = memory.map(|memory| for_cache(tuning.request_bytes(), memory)).transpose()?;
        let cache = wanted.cache_size.or(cache);
        self.memory_bytes = memory.unwrap_or(self.memory_bytes);
        if let Some(bytes) = cache {
            tuning.set_cache_bytes(bytes);
        }
        if let Some(bytes) = memory {
            tuning.set_fetching_bytes(memory::for_fetching(bytes));
        }
        if let Some(when) = wanted.verify {
            tuning.set_verify(when);
        }
        if let Some(level) = &wanted.log_level {
            logging::set_level(level);
        }
        Ok(())
    }
}

impl Settings for Runtime {
    fn show(&self, tuning: &Tuning) -> Vec<u8> {
        report::json(&self.lock().shown(tuning))
    }

    fn change(&self, tuning: &Tuning, text: &[u8]) -> Result<(), Errno> {
        let mut state = self.lock();
        let before = state.shown(tuning);
        state.refused = state.change(tuning, text).err();
        if let Some(why) = &state.refused {
            tracing::warn!("no setting is changed: {why}");
            return Err(Errno::EINVAL);
        }
        for change in differences(&before, &state.shown(tuning)) {
            tracing::info!("{change}");
        }
        Ok(())
    }
}

fn for_cache(requests: u64, memory: u64) -> Result<u64, String> {
    memory::for_cache_beside(requests, memory).map_err(|least| {
        format!(
            "memory={} is too little: buffers for requests hold {} of it until the dataset is unmounted; give \
             at least {least}, or mount it again",
            memory::in_words(memory),
            memory::in_words(requests),
        )
    })
}

/// Parses lines `NAME=VALUE`.
fn pairs(text: &[u8]) -> Result<Vec<(String, String)>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "not UTF-8 text".to_owned())?;
    text.lines().filter(|line| !line.trim().is_empty()).map(pair).collect()
}

/// `NAME=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
    match split {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{} is not NAME=VALUE", quoted(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Result<LiveSettings, String> {
        parse(&pairs(text.as_bytes())?)
    }

    #[test]
    fn settings_are_parsed_by_name_with_either_separator() {
        let wanted = said("verify=once\n memory = 10% \ncache-size=1G\nlog_level=debug").unwrap();
        assert_eq!(wanted.verify(), Verify::Once);
        assert_eq!(wanted.memory, Some(memory::Limit::Percent(10)));
        assert_eq!((wanted.cache_size, wanted.log_level()), (Some(1 << 30), "debug"));
        assert_eq!(said("memory=1M\nmemory=2M").unwrap().memory_bytes(), 2 << 20);
    }

    #[test]
    fn other_options_are_refused_by_name_with_what_to_do() {
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
    fn a_wrong_value_is_refused() {
        for wrong in ["verify=sometimes", "memory=", "memory=-1", "memory=0%", "log_level=loud"] {
            assert!(said(wrong).is_err(), "{wrong}");
        }
        assert!(pairs(b"verify=\xff").is_err());
    }

    #[test]
    fn differences_name_the_value_before() {
        let before = Shown { verify: "always".into(), memory: 1 << 30, ..Shown::default() };
        let after = Shown { memory: 64 << 20, ..before.clone() };
        assert_eq!(differences(&before, &after), ["memory=64M (was 1G)"]);
        assert!(differences(&before, &before).is_empty());
    }

    #[test]
    fn settings_as_shown_can_be_set() {
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
