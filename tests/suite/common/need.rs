//! The things that a machine must have for a test, and the end of the test if it lacks them.

use super::{NOTHING, TempDir, python, temp_dir, unmount};
use std::fs::{self, File};
use std::io::{self, Write};

/// A thing that a test may need besides the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// /dev/fuse, and the right or a helper to mount.
    Fuse,
    /// To be root.
    Root,
    /// The control file system for FUSE connections.
    Fusectl,
    /// A program on the path.
    Program(&'static str),
    /// A module of python3.
    Python(&'static str),
}

impl Need {
    fn is_met(self) -> bool {
        match self {
            Need::Fuse => can_mount(),
            Need::Root => nix::unistd::geteuid().is_root(),
            Need::Fusectl => Fusectl::new().is_ok(),
            Need::Program(name) => is_on_path(name),
            Need::Python(module) => {
                is_on_path("python3") && python(&format!("import {module}"), NOTHING).code == 0
            }
        }
    }

    /// Whether the machine itself lacks the thing, so that no installation brings it.
    fn is_of_the_machine(self) -> bool {
        match self {
            Need::Fuse => !opens_fuse(),
            Need::Root | Need::Fusectl => true,
            Need::Program(_) | Need::Python(_) => false,
        }
    }
}

fn opens_fuse() -> bool {
    File::options().read(true).write(true).open("/dev/fuse").is_ok()
}

fn can_mount() -> bool {
    opens_fuse() && (Need::Root.is_met() || is_on_path("fusermount3"))
}

/// The control file system for FUSE connections, mounted for the time of a test.
pub(crate) struct Fusectl(TempDir);

impl Fusectl {
    pub(crate) fn new() -> io::Result<Self> {
        let directory = temp_dir();
        let (source, flags) = (Some("none"), nix::mount::MsFlags::empty());
        nix::mount::mount(source, directory.path(), Some("fusectl"), flags, None::<&str>)?;
        Ok(Self(directory))
    }

    /// Ends a connection to the kernel by force, as an admin can.
    pub(crate) fn abort(&self, connection: u64) -> io::Result<()> {
        fs::write(self.0.path().join(connection.to_string()).join("abort"), "1")
    }
}

impl Drop for Fusectl {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), true);
    }
}

fn is_on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

/// Whether the test can go on; if not, says why, and the test passes (see [`skip`]).
pub(crate) fn have(need: Need) -> bool {
    let met = need.is_met();
    if !met {
        skip_with(&format!("needs {need:?}"), need.is_of_the_machine());
    }
    met
}

/// The first of these programs that is installed; all of them do the same. If none is installed, says so.
pub(crate) fn one_of(names: &[&'static str]) -> Option<&'static str> {
    let found = names.iter().copied().find(|name| is_on_path(name));
    if found.is_none() {
        skip(&format!("needs one of the programs {names:?}"));
    }
    found
}

/// Says that the running test checks nothing, and why. With FFRFS_NO_SKIP=1 the test fails instead: a run that must be
/// complete may lack only things that the machine cannot have.
pub(crate) fn skip(reason: &str) {
    skip_with(reason, false);
}

/// As [`skip`], for a reason that lies in the machine: no run can be more complete here.
pub(crate) fn skip_forced(reason: &str) {
    skip_with(reason, true);
}

fn skip_with(reason: &str, forced: bool) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // The print macros are not used: their output is swallowed when a test passes.
    let _ = writeln!(io::stderr(), "SKIPPED: {test}: {reason}");
    let strict = std::env::var_os("FFRFS_NO_SKIP").is_some_and(|value| value == "1");
    assert!(forced || !strict, "{test} would be skipped: {reason}");
}
