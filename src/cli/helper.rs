//! The command line that mount(8) knows: `mount.ffrfs SOURCE MOUNTPOINT [-sfnvrw] [-N NAMESPACE] [-t TYPE]
//! [-o OPTIONS]`. `mount.ffrfs` is this program under another name, for fstab, systemd and autofs.

use super::mount_paths::name_words;
use super::open::check_answered;
use super::{Cli, Command, mount, options, parse, remount};
use crate::daemon::mount::{Died, name_in};
use crate::dataset::local_files;
use crate::failure::{Exit, Failure};
use crate::format::PartName;
use crate::store::remote::{ErrorKind, StoreError};
use crate::transport::MountError;
use clap::Parser;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The names that mount(8) calls, for the types `ffrfs` and `fuse.ffrfs`.
const NAMES: [&str; 2] = ["mount.ffrfs", "mount.fuse.ffrfs"];

const AFTER_HELP: &str = "\
mount(8) calls this program for the types ffrfs and fuse.ffrfs. Options are those of `ffrfs mount \
--help`, remount, which changes options of a mount in use, and nofail: a missing source is then no \
error.

Examples:
  mount -t ffrfs train.ffr /mnt/ds -o allow_other
  mount -t ffrfs '{/data/a.tar,/data/b.tar}' /mnt/ds
  mount -o remount,verify=once /mnt/ds";

pub(super) const EXIT_CODES: &str = "\
Exit codes:
    0  success
    1  wrong usage
    2  a resource of the system is missing: /dev/fuse, memory, processes, file descriptors
    4  ffrfs itself failed
    8  interrupted
   32  mounting failed";

/// Mount dataset containers, called by mount(8)
#[derive(Debug, Parser)]
#[command(name = "mount.ffrfs", version, after_help = format!("{AFTER_HELP}\n\n{EXIT_CODES}"), max_term_width = 100)]
#[command(args_override_self = true)]
struct HelperArgs {
    /// A container, or a directory, a glob or a brace list of them
    source: PathBuf,
    /// Where to mount
    #[arg(value_name = "MOUNTPOINT")]
    target: PathBuf,
    /// Ignore unknown options
    #[arg(short)]
    sloppy: bool,
    /// Check options, containers and mount point, but do not mount
    #[arg(short)]
    fake: bool,
    /// Write no entry to /etc/mtab (ffrfs never does)
    #[arg(short)]
    no_mtab: bool,
    /// Print what was done
    #[arg(short)]
    verbose: bool,
    /// As -o ro
    #[arg(short, overrides_with = "writable")]
    read_only: bool,
    /// As -o control=rw
    #[arg(short, overrides_with = "read_only")]
    writable: bool,
    /// Mount in this mount namespace, such as /proc/PID/ns/mnt; the source is looked up in the caller's
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<PathBuf>,
    /// The file system type (ignored)
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,
    /// Mount options, separated by commas
    #[arg(short, value_name = "OPT[,OPT…]", action = clap::ArgAction::Append)]
    options: Vec<OsString>,
}

/// Whether the program is called by a name that mount(8) uses.
pub(super) fn is_called_by(args: &[OsString]) -> bool {
    let name = args.first().and_then(|name| Path::new(name).file_name());
    name.is_some_and(|name| NAMES.iter().any(|known| name == *known))
}

pub(super) fn main(args: Vec<OsString>) -> ExitCode {
    let parsed = HelperArgs::try_parse_from(&args).map_err(|error| {
        // mount(8) gives source and mount point first.
        let paths = args.get(1..3).unwrap_or_default();
        let is_option = |arg: &OsString| arg.as_bytes().starts_with(b"-");
        let words: Vec<_> = match paths.iter().any(is_option) {
            true => Vec::new(),
            false => paths.iter().map(OsString::as_os_str).collect(),
        };
        name_words(error.into(), &words)
    });
    let outcome = parsed.and_then(run);
    outcome
        .unwrap_or_else(|failure| {
            super::print::print(&failure);
            code_of(&failure)
        })
        .into()
}

fn run(args: HelperArgs) -> Result<u8, Failure> {
    let (source, target) =
        (PartName::from(args.source.clone().into_os_string()), args.target.clone());
    try_run(args).map_err(|failure| name_in(failure, &source.to_string(), &[source], &target))
}

fn try_run(args: HelperArgs) -> Result<u8, Failure> {
    let given = args.list();
    let (list, nofail) = options::without(&given, "nofail");
    let (mut list, is_remount) = options::without(&list, "remount");
    if args.sloppy {
        list = options::known(&list, options::takes);
    }
    let done = if is_remount {
        remount::run(&args.target, &list, args.fake)?;
        if args.fake { "checked" } else { "remounted" }
    } else {
        let mount = args.mount(&list)?;
        if nofail && is_missing(&args.source)? {
            args.say("the source is missing, which is no error with nofail");
            return Ok(0);
        }
        if args.fake {
            match mount::check(mount) {
                Err(failure) if nofail && code_with_nofail(&failure) == NO_OBJECT => {
                    args.say("the source is missing, which is no error with nofail");
                    return Ok(0);
                }
                checked => checked?,
            }
        } else {
            let is_missing = |code| nofail && code == NO_OBJECT;
            match mount::start(mount, if nofail { code_with_nofail } else { code_of })? {
                0 => {}
                code if is_missing(code) => {
                    args.say("the source is missing, which is no error with nofail");
                    return Ok(0);
                }
                code => return Ok(code),
            }
        }
        if args.fake { "checked" } else { "mounted" }
    };
    args.say(done);
    Ok(0)
}

impl HelperArgs {
    /// All options as one list.
    fn list(&self) -> OsString {
        let mut list = self.options.clone();
        list.extend(self.read_only.then(|| "ro".into()));
        list.extend(self.writable.then(|| "rw".into()));
        list.join(OsStr::new(","))
    }

    /// Parses the arguments as `ffrfs mount -o LIST -- SOURCE MOUNTPOINT`.
    fn mount(&self, list: &OsStr) -> Result<mount::MountArgs, Failure> {
        // mount(8) passes `rw` unless told `ro`: that `rw` is no wish of the user. `control=rw` and -w are.
        let (plain, _) = options::without(list, "rw");
        let list = if self.writable { list } else { &plain };
        let args = ["ffrfs".as_ref(), "mount".as_ref(), "-o".as_ref(), list, "--".as_ref()];
        let paths = [self.source.as_os_str(), self.target.as_os_str()];
        match parse(args.into_iter().chain(paths).map(OsStr::to_owned).collect())? {
            Cli { command: Command::Mount(mut mount) } => {
                mount.namespace = self.namespace.clone();
                Ok(*mount)
            }
            _ => Err(Failure::usage("not a mount")),
        }
    }

    fn say(&self, what: &str) {
        if self.verbose {
            let (source, target) = (self.source.display(), self.target.display());
            crate::failure::say(format_args!("ffrfs: {source} on {target}: {what}"));
        }
    }
}

/// Whether one of the files that a source names is missing.
fn is_missing(source: &Path) -> Result<bool, Failure> {
    let not_there = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
    let sources = [source.as_os_str().to_owned().into()];
    check_answered(&sources)?;
    match local_files(&sources) {
        Ok(paths) => Ok(paths.iter().any(|path| path.metadata().is_err_and(|e| not_there(&e)))),
        Err(failure) if failure.reason().is_some_and(not_there) => Ok(true),
        Err(failure) => Err(failure),
    }
}

/// The exit code of mount(8) for a failure.
fn code_of(failure: &Failure) -> u8 {
    let lacking = [libc::ENOMEM, libc::EAGAIN, libc::EMFILE, libc::ENFILE];
    let errno = failure.reason::<io::Error>().and_then(io::Error::raw_os_error);
    match failure.exit {
        Exit::Ok => 0,
        Exit::Usage => 1,
        Exit::Interrupted => 8,
        _ if failure.reason::<Died>().is_some() => 4,
        _ if matches!(failure.reason(), Some(MountError::Device(..))) => 2,
        _ if errno.is_some_and(|errno| lacking.contains(&errno)) => 2,
        _ => 32,
    }
}

/// The code of a daemon that found no such object in a store; it is no exit code of mount(8).
const NO_OBJECT: u8 = 200;

fn code_with_nofail(failure: &Failure) -> u8 {
    match failure.reason::<StoreError>() {
        Some(error) if error.kind == ErrorKind::NotFound => NO_OBJECT,
        _ => code_of(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        HelperArgs::command().debug_assert();
    }

    #[test]
    fn only_the_names_that_mount_uses_make_a_helper() {
        let called = |name: &str| is_called_by(&[name.into()]);
        assert!(called("/sbin/mount.ffrfs") && called("mount.fuse.ffrfs"));
        assert!(!called("ffrfs") && !called("/mount.ffrfs/ffrfs") && !is_called_by(&[]));
    }

    #[test]
    fn failures_have_the_exit_codes_of_mount() {
        let io = |errno| io::Error::from_raw_os_error(errno);
        assert_eq!(code_of(&Failure::usage("x")), 1);
        assert_eq!(code_of(&Failure::unreadable("x", io(libc::ENOENT))), 32);
        assert_eq!(code_of(&Failure::unreadable("x", io(libc::EMFILE))), 2);
        assert_eq!(code_of(&MountError::Device(io(libc::ENOENT), "").into()), 2);
        assert_eq!(code_of(&Failure::new(Exit::Mount, Died { how: String::new() })), 4);
        assert_eq!(code_of(&Failure::new(Exit::Interrupted, io(libc::EINTR))), 8);
        assert_eq!(code_of(&Failure::new(Exit::Mount, io(libc::EPERM))), 32);
    }
}
