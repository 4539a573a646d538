//! `ffrfs mount`: in the background once the mount works, unless `-f`.

use super::config;
use super::open::{OpenArgs, names, refuse_url};
use super::print::print;
use super::settings::LiveSettingsArgs;
use super::view::ViewArgs;
use crate::daemon::metrics::Address;
use crate::daemon::mount::{self, Caller, MountRequest, MountSettings};
use crate::daemon::reload::Configured;
use crate::daemon::sandbox::Sandbox;
use crate::daemon::{logging, patience};
use crate::dataset::{self, NameOptions};
use crate::failure::{Exit, Failure};
use crate::format::{self, PartName};
use crate::io::{File, Io};
use crate::transport::{Readdirplus, Transport};
use clap::{Arg, Args, ValueEnum};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const AFTER_HELP: &str = "\
All long options but --config and --foreground work as -o NAME[=VALUE], too, with - or _. Options for \
other readers of fstab (defaults, noauto, nofail, _netdev, user, x-…) are ignored.

Examples:
  ffrfs mount train.ffr /mnt/ds
  ffrfs mount photos.zip /mnt/ds --password-file secret.txt
  ffrfs mount 'train-{000000..000146}.tar' /mnt/ds --index-dir /var/cache/ffrfs
  ffrfs mount train.beton /mnt/ds --view npy
  ffrfs mount part0.ffr part1.ffr /mnt/ds -o allow_other,suffix=auto
  ffrfs mount shards/ /mnt/ds --layout shards --verify once --cache-size 1G";

/// The options that `-h` shows; `--help` shows all options.
const COMMON: [&str; 19] = [
    "options",
    "foreground",
    "config",
    "password-file",
    "nested",
    "view",
    "index-dir",
    "spool",
    "suffix",
    "names",
    "layout",
    "include",
    "exclude",
    "allow-other",
    "rw",
    "verify",
    "memory",
    "endpoint",
    "cache-dir",
];

/// The most daemons that are started within a minute when one dies, unless the user says otherwise.
const RESTARTS: u16 = 5;

/// The largest number of a user or group: the one above it means "no user", and the kernel shows another instead.
const MAX_ID: i64 = 0xffff_fffe;

/// The command `mount`, with the options that most people need in its short help.
pub(super) fn with_short_help(mount: clap::Command) -> clap::Command {
    let is_common = |arg: &Arg| arg.get_long().is_none_or(|name| COMMON.contains(&name));
    mount.mut_args(|arg| if is_common(&arg) { arg } else { arg.hide_short_help(true) })
}

/// Mount containers on a directory
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, args_override_self = true)]
#[command(override_usage = "ffrfs mount [OPTIONS] <SOURCE>... <MOUNTPOINT>
       ffrfs mount [OPTIONS] <SOURCE>
       ffrfs mount [OPTIONS] --config <FILE>")]
pub(super) struct MountArgs {
    /// Containers of any known format, or directories, globs or brace lists of them, shown as one dataset
    /// (--layout); then the mount point: a directory, or /dev/fd/N, an open /dev/fuse that the caller has mounted.
    /// If one container is all that is given, the mount point is made here, named after it, and removed after the mount
    #[arg(required_unless_present = "config", value_name = "SOURCE… MOUNTPOINT")]
    paths: Vec<PathBuf>,

    /// Read sources, mount point and options from FILE, one NAME = VALUE per line; SIGHUP reads it again
    // The file's lines are expanded before clap sees them, and stand before this option.
    #[arg(long, value_name = "FILE", conflicts_with = "paths")]
    config: Option<PathBuf>,
    #[arg(long, hide = true, requires = "config")]
    source: Vec<PathBuf>,
    #[arg(long, hide = true, requires = "config")]
    mountpoint: Option<PathBuf>,

    /// Mount options, separated by commas
    // The option is expanded before clap sees it; it is declared for --help.
    #[arg(short = 'o', long = "options", value_name = "OPT[,OPT…]")]
    _options: Vec<String>,

    /// Stay in the foreground, messages on stderr (restarts: 0 by default)
    #[arg(short = 'f', long)]
    foreground: bool,

    #[command(flatten)]
    view: ViewArgs,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    open: OpenArgs,

    /// The mount options of the command line, as `name` or `name=value`.
    #[arg(skip)]
    pub(super) given: Vec<String>,
    /// The mount namespace to mount in (a file), if it is not this one; mount(8)'s -N.
    #[arg(skip)]
    pub(super) namespace: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Sharing")]
struct Settings {
    /// Let all users access the mount
    #[arg(long, alias = "allow_other")]
    allow_other: bool,
    /// Let root access the mount, and no other user but you
    #[arg(long, alias = "allow_root", conflicts_with = "allow_other")]
    allow_root: bool,
    /// Owner of all files [default: the user who mounts]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=MAX_ID))]
    uid: Option<u32>,
    /// Group of all files [default: that of the user who mounts]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=MAX_ID))]
    gid: Option<u32>,
    /// Permission bits that files are shown without, in octal
    #[arg(long, value_name = "OCTAL", value_parser = octal)]
    fmask: Option<u16>,
    /// Permission bits that directories are shown without, in octal
    #[arg(long, value_name = "OCTAL", value_parser = octal)]
    dmask: Option<u16>,
    /// As --fmask and --dmask, where these are not given
    #[arg(long, value_name = "OCTAL", value_parser = octal, default_value = "0")]
    umask: u16,
    #[command(flatten)]
    kernel: KernelArgs,
    #[command(flatten)]
    live: LiveSettingsArgs,
    /// How containers are read
    #[arg(long, value_name = "HOW", default_value = "auto")]
    io: IoChoice,
    /// Threads that serve requests [default: as many as CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// What the process does that serves the mount.
#[derive(Debug, Args)]
#[command(next_help_heading = "The daemon")]
struct DaemonArgs {
    /// Start another daemon when one dies, at most N times in a minute; 0: never (docs/mount.md says what readers see) [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=1000))]
    restarts: Option<u16>,
    /// Whether the daemon is confined to the files, ports and system calls that it needs (docs/security.md)
    #[arg(long, value_name = "HOW", default_value = "auto")]
    sandbox: SandboxChoice,
    /// Serve counters for Prometheus, at http://HOST:PORT/metrics or on a socket
    #[arg(long, value_name = "unix:PATH|HOST:PORT")]
    metrics: Option<Address>,
    /// Write messages to this file [default: journald, else syslog, else ~/.local/state/ffrfs/ffrfs.log]
    #[arg(long, alias = "log_file", value_name = "FILE")]
    log_file: Option<PathBuf>,
}

/// What the kernel is told of the mount.
#[derive(Debug, Args)]
#[command(next_help_heading = "Kernel")]
struct KernelArgs {
    /// Have the kernel check permissions (it always does)
    #[arg(long, alias = "default_permissions")]
    default_permissions: bool,
    /// Have the kernel refuse all writes (the default)
    #[arg(long, overrides_with = "rw")]
    ro: bool,
    /// Let shells write to .ffrfs/prefetch; ffrfs itself refuses all other writes, and a second read is slower
    #[arg(long, overrides_with = "ro")]
    rw: bool,
    /// Who may write to .ffrfs/prefetch; `rw` is the same as --rw
    #[arg(long, value_name = "HOW")]
    control: Option<Control>,
    /// No control directory .ffrfs: ffrfs stats, top, set and warmup cannot reach the mount, nor the Python package
    #[arg(long, alias = "no_control", conflicts_with = "control")]
    no_control: bool,
    /// Ignore the set-user-id bits of archive members (always in effect)
    #[arg(long)]
    nosuid: bool,
    #[arg(long, hide = true)]
    suid: bool,
    /// Ignore device files (always in effect)
    #[arg(long)]
    nodev: bool,
    #[arg(long, hide = true)]
    dev: bool,
    /// Let no program be run from the mount
    #[arg(long)]
    noexec: bool,
    #[arg(long, hide = true)]
    exec: bool,
    /// The source that findmnt and df show [default: the container]
    #[arg(long, value_name = "NAME")]
    fsname: Option<String>,
    /// Whether listing a directory also gives the kernel the attributes of its files
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    readdirplus: ReaddirplusWhen,
    /// Whether samples have extended attributes user.ffrfs.*, which tell where they lie
    #[arg(long, value_name = "WHETHER", default_value = "yes")]
    xattr: XattrChoice,
    /// How requests come from the kernel
    #[arg(long, value_name = "HOW", default_value = "auto")]
    transport: TransportChoice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum XattrChoice {
    /// Whoever asks for one by its name gets it; they are not listed, so that no copy has them
    Yes,
    /// The kernel is told once that there are none
    No,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TransportChoice {
    /// Through io_uring where the host offers it, else through /dev/fuse
    Auto,
    /// Through io_uring, with a queue for each CPU (needs the fuse module's enable_uring)
    Uring,
    /// Through /dev/fuse
    Devfuse,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SandboxChoice {
    /// It may do what the user who mounts may do
    No,
    /// As far as the kernel can; the log says what does not hold
    Auto,
    /// Entirely, or nothing is mounted; a forbidden system call ends the daemon
    Strict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Control {
    /// Every user who may read the files
    Rw,
    /// Nobody
    Ro,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ReaddirplusWhen {
    /// If the program that lists also looks at the files, as far as the kernel can tell
    Auto,
    /// Always
    Yes,
    /// Never: listing a huge directory then takes little kernel memory
    No,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum IoChoice {
    /// Cached pages from the page cache, all else past it (O_DIRECT) if the file system supports that
    Auto,
    /// Past the page cache (O_DIRECT)
    Direct,
    /// Through the page cache
    Buffered,
}

impl IoChoice {
    fn io(self) -> Io {
        match self {
            IoChoice::Auto => Io::Auto,
            IoChoice::Direct => Io::Direct,
            IoChoice::Buffered => Io::Buffered,
        }
    }
}

pub(super) fn run(args: MountArgs) -> Result<Exit, Failure> {
    match start(args, |failure| failure.exit as u8)? {
        0 => Ok(Exit::Ok),
        // The daemon has printed the reason.
        code => std::process::exit(code.into()),
    }
}

/// Mounts. Returns the exit code: 0, or by `exit_code` that of a daemon which failed and has printed the reason.
pub(super) fn start(args: MountArgs, exit_code: fn(&Failure) -> u8) -> Result<u8, Failure> {
    let end = |exit| std::process::exit(exit as i32);
    mount::start(args.request()?, Caller { print, exit_code, end })
}

/// Checks whether [`start`] would mount.
pub(super) fn check(args: MountArgs) -> Result<(), Failure> {
    let request = args.request()?;
    logging::to_stderr("warn");
    mount::check(&request)
}

impl MountArgs {
    fn request(mut self) -> Result<MountRequest, Failure> {
        let mut configured = None;
        if let Some(file) = &self.config {
            configured = Some(Configured::new(file, config::OPTIONS)?);
            self.paths = std::mem::take(&mut self.source);
            self.paths.extend(self.mountpoint.take());
        } else if !self.source.is_empty() || self.mountpoint.is_some() {
            return Err(Failure::usage(
                "--source and --mountpoint are for the lines of a --config file: give both without options, the mount point \
                 last (ffrfs mount SOURCE… MOUNTPOINT)",
            ));
        }
        let mut target = self.paths.pop().unwrap_or_default();
        let makes_target = self.paths.is_empty();
        if makes_target {
            let beside = mount_point_for(&target)?;
            self.paths.push(std::mem::replace(&mut target, beside));
        }
        refuse_url(&target)?;
        let sources = names(&self.paths);
        let answered = self.view.check_answered();
        let open = answered.and_then(|()| self.open.read_password(&sources));
        let open = open.and_then(|()| self.open.options());
        let open = open.map_err(|failure| {
            let first = sources.first().map(ToString::to_string).unwrap_or_default();
            mount::name_in(failure, &first, &sources, &target)
        })?;
        let io = Some(self.settings.io.io());
        let without_control = self.settings.kernel.no_control;
        let mut settings = self.settings.plain();
        // In the foreground, the program that has started the daemon sees its end, as a service manager does.
        if self.foreground && !settings.insists_on_restarts {
            settings.restarts = 0;
        }
        Ok(MountRequest {
            sources,
            target,
            makes_target,
            open: dataset::Options { io, ..open },
            names: NameOptions { without_control, ..self.view.options() },
            settings,
            configured,
            given: self.given,
            namespace: self.namespace,
            foreground: self.foreground,
            known: OnceLock::new(),
        })
    }
}

impl Settings {
    /// The settings, without clap.
    fn plain(self) -> MountSettings {
        let (kernel, daemon) = (self.kernel, self.daemon);
        MountSettings {
            allow_other: self.allow_other,
            allow_root: self.allow_root,
            ro: match kernel.control {
                _ if kernel.ro => Some(true),
                Some(Control::Rw) => Some(false),
                _ => kernel.rw.then_some(false),
            },
            control_ro: kernel.control == Some(Control::Ro),
            no_control: kernel.no_control,
            noexec: kernel.noexec,
            fsname: kernel.fsname,
            uid: self.uid,
            gid: self.gid,
            fmask: self.fmask.unwrap_or(self.umask),
            dmask: self.dmask.unwrap_or(self.umask),
            live: self.live.values(),
            xattrs: kernel.xattr == XattrChoice::Yes,
            readdirplus: match kernel.readdirplus {
                ReaddirplusWhen::Auto => Readdirplus::Auto,
                ReaddirplusWhen::Yes => Readdirplus::Always,
                ReaddirplusWhen::No => Readdirplus::Never,
            },
            transport: match kernel.transport {
                TransportChoice::Auto => Transport::Auto,
                TransportChoice::Uring => Transport::Uring,
                TransportChoice::Devfuse => Transport::DevFuse,
            },
            restarts: daemon.restarts.unwrap_or(RESTARTS),
            insists_on_restarts: daemon.restarts.is_some(),
            sandbox: match daemon.sandbox {
                SandboxChoice::No => Sandbox::No,
                SandboxChoice::Auto => Sandbox::Auto,
                SandboxChoice::Strict => Sandbox::Strict,
            },
            threads: self.threads,
            metrics: daemon.metrics,
            log_file: daemon.log_file,
        }
    }
}

/// The mount point of a container that is given alone: it is called as the container, without the endings of the name.
fn mount_point_for(source: &Path) -> Result<PathBuf, Failure> {
    patience::check([source])?;
    let name = PartName::from(source.as_os_str().to_owned());
    let is_one = name.as_path().is_none_or(Path::is_file);
    let mut stem = name.file_name().to_owned();
    // `train.tar.gz` is shown as `train`.
    while format::has_known_extension(&stem) {
        stem = stem.file_stem().unwrap_or_default().into();
    }
    if let Some(path) = name.as_path().filter(|path| is_missing(path)) {
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        return Err(Failure::unreadable(path.display(), error));
    }
    if let Some(refused) = name.as_path().filter(|path| path.is_file()).and_then(foreign) {
        return Err(refused);
    }
    let needed = "ffrfs mount SOURCE… MOUNTPOINT";
    let why = match name.as_path() {
        Some(path) if path.is_dir() => "a directory",
        _ if !is_one => {
            let why = format!(
                "{}: no container of this name; a pattern needs a mount point: {needed}",
                source.display()
            );
            return Err(Failure::usage(why));
        }
        _ if stem.as_os_str().is_empty() || stem == name.file_name() => {
            "a container whose name has no ending such as .zip"
        }
        _ => return Ok(stem),
    };
    Err(Failure::usage(format!("{name}: {why} gives its mount point no name: {needed}")))
}

/// The failure of a file that cannot be mounted anywhere, if it is of a kind that ffrfs knows and does not mount.
fn foreign(path: &Path) -> Option<Failure> {
    let file = File::open(path).ok()?;
    let refused = format::recognize(&file, &format::OpenOptions::default()).err()?;
    matches!(refused, format::Error::Foreign { .. }).then(|| refused.into())
}

/// Whether a path can only be that of a container, and no file has this path.
fn is_missing(path: &Path) -> bool {
    let is_pattern = path.to_string_lossy().contains(['*', '?', '[', '{']);
    !is_pattern && format::has_known_extension(path) && path.symlink_metadata().is_err()
}

fn octal(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(mask) if mask <= 0o777 => Ok(mask),
        _ => Err("not an octal number from 0 to 777".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_is_named_as_its_container() {
        let name = |source: &str| mount_point_for(Path::new(source)).ok();
        assert_eq!(name("s3://bucket/a/train.tar.zst?x=1"), Some("train".into()));
        assert_eq!(name("https://host/photos.zip"), Some("photos".into()));
        assert_eq!(name("https://host/photos"), None);
        assert_eq!(name("/no/such.zip"), None, "a mistake");
        let refused = |source: &str| mount_point_for(Path::new(source)).unwrap_err().to_string();
        assert_eq!(
            refused("/proc"),
            "/proc: a directory gives its mount point no name: ffrfs mount SOURCE… MOUNTPOINT"
        );
        let file = tempfile::Builder::new().prefix("list").suffix("").tempfile().unwrap();
        std::fs::write(file.path(), b"\x01\x02\x03").unwrap();
        let said = refused(file.path().to_str().unwrap());
        let why = "a container whose name has no ending such as .zip gives its mount point no name";
        assert!(said.contains(why), "{said}");
        assert_eq!(
            refused("/no/*.x"),
            "/no/*.x: no container of this name; a pattern needs a mount point: ffrfs mount SOURCE… MOUNTPOINT"
        );
    }

    #[test]
    fn masks_are_octal() {
        assert_eq!(octal("022"), Ok(0o22));
        assert!(octal("8").is_err() && octal("1000").is_err());
    }
}
