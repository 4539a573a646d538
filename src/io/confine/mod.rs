//! Confines this process: from then on it cannot gain rights, opens only the files and reaches only the TCP ports that its
//! rules name (Landlock), and makes only the system calls that are in a list (seccomp). All threads are confined, and those
//! that they start later. Imports nothing of ours.

mod calls;
mod errno;
mod files;
mod rights;
mod threads;

pub use files::landlock_version;
pub use rights::{Capability, hide_memory, needed};
#[cfg(feature = "test-hooks")]
pub use rights::{reach, trace_parent};

use std::collections::BTreeSet;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Landlock lets files be moved between directories from this version on (Linux 5.19), as a cache of objects needs it.
pub const LEAST_LANDLOCK: i32 = 2;
/// The first version of Landlock that knows TCP ports (Linux 6.7).
pub const LANDLOCK_WITH_PORTS: i32 = 4;

/// The needs of a process after it was confined. Everything else is forbidden.
#[derive(Debug, Default)]
pub struct Rules {
    /// Files, and directories with all below them, that it reads.
    pub reads: BTreeSet<PathBuf>,
    /// Directories in which it makes, changes, moves and removes files, and files that it writes.
    pub writes: BTreeSet<PathBuf>,
    /// Directories in which it makes and writes files.
    pub creates: BTreeSet<PathBuf>,
    /// Directories from which it removes files and empty directories.
    pub removes: BTreeSet<PathBuf>,
    /// The hosts that it connects to.
    pub network: Network,
    /// Whether it starts programs: these need files that cannot be listed, so that files and ports stay open to it.
    pub starts_programs: bool,
    /// The capabilities that it keeps.
    pub capabilities: Vec<Capability>,
    /// Whether it holds a secret: then no other process of the same user may look into its memory, and no core is
    /// dumped.
    pub has_secret: bool,
    /// Whether a forbidden system call ends the process, instead of failing with EPERM.
    pub is_fatal: bool,
}

/// The hosts that a process may connect to.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub enum Network {
    /// No host: only the sockets of the service manager and the system's log.
    #[default]
    Nobody,
    /// All hosts, by these ports of TCP.
    Ports(BTreeSet<u16>),
    /// All hosts, by any port.
    Everybody,
}

/// A part of the confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Files are opened only where the rules allow that.
    Files,
    /// TCP connections go only where the rules allow that.
    Network,
    /// Only listed system calls are made.
    Calls,
    /// Only needed capabilities are left.
    Capabilities,
    /// No program that is started has more rights (`no_new_privs`).
    Privileges,
}

impl fmt::Display for Measure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Measure::Files => "files",
            Measure::Network => "network",
            Measure::Calls => "system calls",
            Measure::Capabilities => "capabilities",
            Measure::Privileges => "privileges",
        })
    }
}

/// The measures that hold, and the reasons why the others do not.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The measures that hold.
    pub held: Vec<Measure>,
    /// The measures that do not hold, with the reasons.
    pub missing: Vec<(Measure, String)>,
}

impl Outcome {
    fn note(&mut self, measure: Measure, done: Result<(), String>) {
        match done {
            Ok(()) => self.held.push(measure),
            Err(why) => self.missing.push((measure, why)),
        }
    }
}

/// `files, network; not system calls: why`.
impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held: Vec<_> = self.held.iter().map(Measure::to_string).collect();
        let missing = self.missing.iter().map(|(measure, why)| format!("not {measure}: {why}"));
        let all = Some(held.join(", ")).filter(|held| !held.is_empty()).into_iter().chain(missing);
        out.write_str(&all.collect::<Vec<_>>().join("; "))
    }
}

/// A confinement that is ready to be entered.
pub struct Cage {
    ruleset: Option<OwnedFd>,
    calls: Result<calls::Filters, String>,
    kept: u64,
    has_secret: bool,
    /// The outcome as far as it is known already.
    outcome: Outcome,
}

impl Cage {
    /// Prepares the confinement, as far as this kernel has it. Files and directories are those that have these names
    /// now.
    #[must_use]
    pub fn new(rules: &Rules) -> Self {
        let mut outcome = Outcome::default();
        let (ruleset, files, network) = files::ruleset(rules);
        // A measure that cannot be judged before it is tried counts as held until then.
        outcome.note(Measure::Files, files);
        outcome.note(Measure::Network, network);
        let calls = calls::filters(rules);
        if let Err(why) = &calls {
            outcome.note(Measure::Calls, Err(why.clone()));
        }
        let kept = rules.capabilities.iter().map(|kept| kept.mask()).fold(0, |all, one| all | one);
        Self { ruleset, calls, kept, has_secret: rules.has_secret, outcome }
    }

    /// The measures that are known not to hold, before the confinement is entered.
    #[must_use]
    pub fn missing(&self) -> &[(Measure, String)] {
        &self.outcome.missing
    }

    /// Confines all threads of this process, for good.
    #[must_use]
    pub fn enter(self) -> Outcome {
        let Self { ruleset, calls, kept, has_secret, mut outcome } = self;
        if has_secret {
            rights::hide_memory();
        }
        let confined = threads::confine_all(ruleset.as_ref(), kept);
        let with_files = ruleset.is_some();
        let failed = |measure| {
            let error = match measure {
                Measure::Files | Measure::Network => confined.files.as_ref(),
                Measure::Capabilities => confined.capabilities.as_ref(),
                _ => confined.privileges.as_ref(),
            };
            error.err().map(ToString::to_string)
        };
        if with_files && let Some(why) = failed(Measure::Files) {
            let held = std::mem::take(&mut outcome.held);
            held.into_iter().for_each(|measure| outcome.note(measure, Err(why.clone())));
        }
        if let Ok(filters) = calls {
            outcome.note(Measure::Calls, filters.install());
        }
        for measure in [Measure::Capabilities, Measure::Privileges] {
            outcome.note(measure, failed(measure).map_or(Ok(()), Err));
        }
        outcome
    }
}

#[cfg(test)]
mod tests;
