//! `ffrfs mount`: in the background once the mount works, unless `-f`.

use super::config;
use super::settings::LiveSettingsArgs;
use super::view::ViewArgs;
use crate::catalog::Catalog;
use crate::daemon::logging::Labels;
use crate::daemon::metrics::{Address, Metrics};
use crate::daemon::reload::Configured;
use crate::daemon::serve::Service;
use crate::daemon::settings::Runtime;
use crate::daemon::{logging, memory};
use crate::dataset::open;
use crate::dataset::open::{OpenArgs, Opened};
use crate::dataset::restarts::Restarts;
use crate::failure::{Exit, Failure};
use crate::format::Source;
use crate::io::{File, Io, handed, mounts, process};
use crate::store::{Part, Store};
use crate::transport::{MountOptions, Mounted, Readdirplus, Target, Transport};
use crate::vfs::{Options, Verify};
use clap::{Args, ValueEnum};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const AFTER_HELP: &str = "\
Every long option can also be given as -o NAME[=VALUE], with - or _ in its name. Options for other readers
of fstab (defaults, noauto, nofail, _netdev, user, x-…) are accepted and ignored.

Examples:
  ffrfs mount train.ffr /mnt/ds
  ffrfs mount photos.zip /mnt/ds --password-file secret.txt
  ffrfs mount 'train-{000000..000146}.tar' /mnt/ds --index-dir /var/cache/ffrfs
  ffrfs mount train.beton /mnt/ds --view npy
  ffrfs mount part0.ffr part1.ffr /mnt/ds -o allow_other,suffix=auto
  ffrfs mount shards/ /mnt/ds --layout shards --verify once --cache-size 1G";

/// A kept index of at least this size is mapped rather than held on the heap.
const WORTH_MAPPING_BYTES: u64 = 16 << 20;

/// Mount containers on a directory
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, args_override_self = true)]
#[command(override_usage = "ffrfs mount [OPTIONS] <SOURCE>... <MOUNTPOINT>
       ffrfs mount [OPTIONS] --config <FILE>")]
pub(super) struct MountArgs {
    /// Containers of any known format, or directories, globs or brace lists of them, shown as one dataset
    /// (--layout); then the mount point: a directory, or /dev/fd/N, an open /dev/fuse that the caller has mounted
    #[arg(required_unless_present = "config", value_name = "SOURCE… MOUNTPOINT")]
    paths: Vec<PathBuf>,

    /// Read sources, mount point and options from FILE, one NAME = VALUE a line; SIGHUP reads it again
    // Its lines are expanded before clap sees them, and stand before it.
    #[arg(long, value_name = "FILE", conflicts_with = "paths")]
    config: Option<PathBuf>,
    #[arg(long, hide = true, requires = "config")]
    source: Vec<PathBuf>,
    #[arg(long, hide = true, requires = "config")]
    mountpoint: Option<PathBuf>,
    /// The config file as it was read.
    #[arg(skip)]
    configured: Option<Configured>,

    /// Mount options, separated by commas
    // Expanded before clap sees it; declared for --help.
    #[arg(short = 'o', long = "options", value_name = "OPT[,OPT…]")]
    _options: Vec<String>,

    /// Stay in the foreground, and write messages to stderr
    #[arg(short = 'f', long)]
    foreground: bool,

    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    view: ViewArgs,
    #[command(flatten)]
    settings: Settings,

    /// The mount options of the command line, as `name` or `name=value`.
    #[arg(skip)]
    pub(super) given: Vec<String>,
    /// The mount namespace to mount in (a file), if it is not this one; mount(8)'s -N.
    #[arg(skip)]
    pub(super) namespace: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Settings {
    /// Let all users access the mount
    #[arg(long, alias = "allow_other")]
    allow_other: bool,
    /// Let root access the mount, and no other user but you
    #[arg(long, alias = "allow_root", conflicts_with = "allow_other")]
    allow_root: bool,
    /// Have the kernel check permissions (it always does)
    #[arg(long, alias = "default_permissions")]
    default_permissions: bool,
    /// Have the kernel refuse all writes, even to .ffrfs/prefetch
    #[arg(long, overrides_with = "rw")]
    ro: bool,
    // mount(8) passes it unasked.
    #[arg(long, hide = true, overrides_with = "ro")]
    rw: bool,
    /// Who may write to .ffrfs/prefetch; `ro` is the same as --ro
    #[arg(long, value_name = "HOW", default_value = "rw")]
    control: Control,
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
    /// Owner of all files [default: the user who mounts]
    #[arg(long, value_name = "N")]
    uid: Option<u32>,
    /// Group of all files [default: that of the user who mounts]
    #[arg(long, value_name = "N")]
    gid: Option<u32>,
    /// Permission bits that files are shown without, in octal
    #[arg(long, value_name = "OCTAL", value_parser = octal, default_value = "0")]
    fmask: u16,
    /// Permission bits that directories are shown without, in octal
    #[arg(long, value_name = "OCTAL", value_parser = octal, default_value = "0")]
    dmask: u16,
    #[command(flatten)]
    live: LiveSettingsArgs,
    /// How containers are read
    #[arg(long, value_name = "HOW", default_value = "auto")]
    io: IoChoice,
    /// Whether listing a directory also gives the kernel the attributes of its files
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    readdirplus: ReaddirplusWhen,
    /// How requests come from the kernel
    #[arg(long, value_name = "HOW", default_value = "auto")]
    transport: TransportChoice,
    /// Threads that serve requests [default: one a CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Serve counters for Prometheus, at http://HOST:PORT/metrics or on a socket
    #[arg(long, value_name = "unix:PATH|HOST:PORT")]
    metrics: Option<Address>,
    /// Write messages to this file instead of journald or syslog
    #[arg(long, alias = "log_file", value_name = "FILE")]
    log_file: Option<PathBuf>,
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
    /// Prepares a container for being read like this.
    fn prepare(self, mut file: File) -> Result<File, Failure> {
        let io = match self {
            IoChoice::Auto => Io::Auto,
            IoChoice::Direct => Io::Direct,
            IoChoice::Buffered => Io::Buffered,
        };
        file.set_io(io).map_err(|e| {
            let why = format!("io=direct: its file system cannot read past the page cache: {e}");
            Failure::unreadable(file.name(), std::io::Error::new(e.kind(), why))
        })?;
        Ok(file)
    }
}

/// The daemon ended before it reported success or failure.
#[derive(Debug, thiserror::Error)]
#[error("the daemon died while it was starting")]
pub(super) struct Died;

pub(super) fn run(args: MountArgs) -> Result<Exit, Failure> {
    match start(args, |failure| failure.exit as u8)? {
        0 => Ok(Exit::Ok),
        // The daemon has printed the reason.
        code => std::process::exit(code.into()),
    }
}

/// Mounts. Gives the exit code: of a daemon whose start failed, and which has said why, what `code_of` makes of
/// that.
pub(super) fn start(mut args: MountArgs, code_of: fn(&Failure) -> u8) -> Result<u8, Failure> {
    if let Some(file) = &args.config {
        args.configured = Some(Configured::new(file, config::OPTIONS)?);
        args.paths = std::mem::take(&mut args.source);
        args.paths.extend(args.mountpoint.take());
    }
    let folder = args.paths.pop().unwrap_or_default();
    if args.paths.is_empty() {
        return Err(Failure::usage(
            "a source and a mount point are needed: ffrfs mount SOURCE... MOUNTPOINT",
        ));
    }
    if args.open.checksums.require_checksums && args.settings.live.values().verify() == Verify::Off
    {
        return Err(Failure::usage("--require-checksums checks nothing with --verify off"));
    }
    let labels = labels(&args, &folder);
    let target = target(folder)?;
    if target.folder().is_none() && args.settings.ro {
        // The kernel has already been told whether the mount is read-only.
        args.settings.control = Control::Ro;
    }
    // Relative paths are the caller's: the daemon changes its working directory.
    if let Some(file) = &mut args.settings.log_file {
        *file = std::path::absolute(&*file).map_err(|e| Failure::output(file.display(), e))?;
    }
    if let Some(folder) = &mut args.open.kept.spool {
        *folder =
            std::path::absolute(&*folder).map_err(|e| Failure::output(folder.display(), e))?;
    }
    if let Some(address) = &mut args.settings.metrics {
        address.absolute().map_err(|e| Failure::output("metrics", e))?;
    }
    args.open.read_password(&args.paths)?;
    args.open.kept.writes = true;
    let live = args.settings.live.values();
    let log_level = live.log_level();
    let log_file = args.settings.log_file.as_deref();
    if args.foreground {
        logging::in_foreground(log_level, log_file, &labels)?;
        return prepare(&args, target)?.serve().map(|exit| exit as u8);
    }
    let kept = match &target {
        Target::Folder(_) => None,
        Target::Handed(connection) => Some(connection.as_fd()),
    };
    match process::fork_daemon(kept).map_err(|e| Failure::new(Exit::Mount, e))? {
        process::Forked::Parent(report) => wait_for_daemon(report),
        process::Forked::Daemon(ready) => {
            let prepared = logging::for_daemon(log_level, log_file, &labels)
                .and_then(|()| prepare(&args, target));
            match prepared {
                Ok(service) => {
                    ready.report(0);
                    service.serve().map(|exit| exit as u8)
                }
                Err(failure) => {
                    super::print::print(&failure);
                    ready.report(code_of(&failure));
                    // The caller sees the exit code of the parent, not this one.
                    Ok(failure.exit as u8)
                }
            }
        }
    }
}

/// A folder, or what `/dev/fd/N` stands for.
fn target(path: PathBuf) -> Result<Target, Failure> {
    let Some(number) = handed::number(&path) else { return Ok(Target::Folder(path)) };
    let connection = handed::take(number).map_err(|e| {
        let what = format!("{}: not an open /dev/fuse", path.display());
        Failure::new(Exit::Mount, e).context(what)
    })?;
    Ok(Target::Handed(connection))
}

fn wait_for_daemon(report: process::Report) -> Result<u8, Failure> {
    let interrupted = report.pass_on_interrupts().map_err(|e| Failure::new(Exit::Mount, e))?;
    let code = report.wait();
    if interrupted.load(Ordering::Relaxed) && matches!(code, None | Some(0)) {
        return Err(Failure::interrupted());
    }
    code.ok_or_else(|| Failure::new(Exit::Mount, Died))
}

/// Fields of each message in the journal.
fn labels(args: &MountArgs, target: &Path) -> Labels {
    let absolute = || std::path::absolute(target).unwrap_or_else(|_| target.to_owned());
    let mount = mounts::resolve(target).unwrap_or_else(|_| absolute());
    Labels { mount: mount.display().to_string(), source: args.name() }
}

/// Everything up to a mount that the kernel has accepted.
fn prepare(args: &MountArgs, target: Target) -> Result<Service, Failure> {
    // Checked before the containers are opened, which may take long.
    let here = args.namespace.is_none();
    let target = if here { free(target, &args.settings)? } else { target };
    let (opened, catalog) = open(args)?;
    if let Some(summary) = catalog.renamed().summary() {
        tracing::warn!("some names are shown changed: {summary}; ffrfs info has examples");
    }
    let samples = opened.dataset.len();
    let (io, given) = (in_words(&opened.store), args.given.clone());
    let options = Options { io, given, ..args.settings.vfs() };
    let vfs = opened.into_vfs(catalog, options);
    if let Some(restarts) = Restarts::new(vfs.store(), &args.open.kept, args.open.options()?) {
        vfs.keep_streams(Box::new(restarts));
    }
    let must_check = args.open.checksums.require_checksums;
    vfs.set_settings(Runtime::new(args.settings.memory(), must_check));
    // Before the mount: a signal that came between would end the process and leave a dead mount.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
    let signals = signals.map_err(|e| Failure::new(Exit::Mount, e))?;
    let options = args.settings.mount(args.name());
    let metrics = args.settings.metrics.as_ref().map(Metrics::bind).transpose()?;
    let target = match &args.namespace {
        None => target,
        Some(namespace) => {
            enter(namespace, vfs.store().len())?;
            free(target, &args.settings)?
        }
    };
    let vfs = Arc::new(vfs);
    if let Some(metrics) = &metrics {
        let served = metrics.serve(&vfs, &target.to_string(), &args.name());
        served.map_err(|e| Failure::new(Exit::Mount, e))?;
    }
    let mounted = Mounted::new(vfs, &target, options)?;
    tracing::info!(samples, "mounted on {target}");
    let status = format!("{samples} samples of {} on {target}", args.name());
    Ok(Service { mounted, target, signals, status, configured: args.configured.clone(), metrics })
}

impl MountArgs {
    /// The dataset, as the mount table shows it.
    fn name(&self) -> String {
        let given = self.settings.fsname.clone().filter(|name| !name.is_empty());
        given.unwrap_or_else(|| name_of(&self.paths))
    }
}

fn open(args: &MountArgs) -> Result<(Opened, Catalog), Failure> {
    let open = || -> Result<_, Failure> {
        let prepare = |file| args.settings.io.prepare(file);
        let opened = open::open_with(&args.paths, &args.open, prepare)?;
        let catalog = opened.catalog(&args.view, &args.open)?;
        Ok((opened, catalog))
    };
    let (opened, catalog) = open()?;
    if opened.written_bytes() < WORTH_MAPPING_BYTES {
        return Ok((opened, catalog));
    }
    // The index is on the heap now; the kept index that was just written can be mapped instead.
    drop((opened, catalog));
    open()
}

/// The containers are open by now, so that they need not be visible in the other namespace.
fn enter(namespace: &Path, containers: usize) -> Result<(), Failure> {
    if containers > open::MANY_FILES {
        let most = open::MANY_FILES;
        return Err(Failure::usage(format!("-N cannot mount more than {most} containers")));
    }
    process::enter_mount_namespace(namespace).map_err(|e| {
        let what = format!("cannot enter the mount namespace {}", namespace.display());
        Failure::new(Exit::Mount, e).context(what)
    })
}

/// How samples are read.
fn in_words(store: &Store) -> &'static str {
    let is_direct = |part: &Arc<Part>| part.file().is_some_and(File::is_direct);
    match store.parts().iter().filter(|part| is_direct(part)).count() {
        0 => "buffered",
        all if all == store.len() => "direct",
        _ => "mixed",
    }
}

impl Settings {
    fn threads(&self) -> usize {
        self.threads.map_or(cpus(), usize::from)
    }

    fn read_only(&self) -> bool {
        self.ro || self.control == Control::Ro
    }

    fn vfs(&self) -> Options {
        // The kernel can only open a mount to all users: permissions keep out all but the owner and root.
        let private = if self.allow_root { 0o077 } else { 0 };
        // With `ro` the kernel refuses to write, until `remount,rw`.
        let writable = if self.control == Control::Ro { 0o444 } else { 0o666 };
        Options {
            verify: self.live.values().verify(),
            cache_bytes: self.live.values().cache_bytes(),
            kernel_bytes: memory::total_bytes() / 4,
            concurrency: (self.threads() + workers()) as u64,
            workers: workers() as u64,
            master: nix::unistd::getuid().as_raw(),
            uid: self.uid.filter(|_| !self.allow_root).unwrap_or(nix::unistd::getuid().as_raw()),
            gid: self.gid.unwrap_or(nix::unistd::getgid().as_raw()),
            file_mode: 0o444 & !self.fmask & !private,
            folder_mode: 0o555 & !self.dmask & !private,
            file_mask: 0o7777 & !self.fmask & !private,
            folder_mask: 0o7777 & !self.dmask & !private,
            prefetch_mode: writable & !self.fmask & !private,
            ..Options::default()
        }
    }

    /// The program that mounted /dev/fd/N chose the options that the kernel takes at a mount.
    fn warn_of_what_the_caller_decides(&self) {
        for (given, option) in [
            (self.allow_other, "allow_other"),
            (self.allow_root, "allow_root"),
            (self.noexec, "noexec"),
            (self.fsname.is_some(), "fsname"),
        ] {
            if given {
                tracing::warn!(
                    "{option} has no effect: it is up to the program that mounted /dev/fd/N"
                );
            }
        }
    }

    fn memory(&self) -> u64 {
        self.live.values().memory_bytes()
    }

    fn mount(&self, source: String) -> MountOptions {
        MountOptions {
            source,
            request_bytes: memory::for_requests(self.memory()),
            allow_other: self.allow_other || self.allow_root,
            noexec: self.noexec,
            read_only: self.read_only(),
            readdirplus: match self.readdirplus {
                ReaddirplusWhen::Auto => Readdirplus::Auto,
                ReaddirplusWhen::Yes => Readdirplus::Always,
                ReaddirplusWhen::No => Readdirplus::Never,
            },
            transport: match self.transport {
                TransportChoice::Auto => Transport::Auto,
                TransportChoice::Uring => Transport::Uring,
                TransportChoice::Devfuse => Transport::DevFuse,
            },
            threads: self.threads(),
            workers: workers(),
        }
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Threads for reads that wait for storage: enough to keep the queue of a device filled.
fn workers() -> usize {
    (4 * cpus()).clamp(8, 32)
}

/// A target that can be mounted on.
fn free(target: Target, settings: &Settings) -> Result<Target, Failure> {
    match target {
        Target::Folder(folder) => free_mount_point(&folder).map(Target::Folder),
        Target::Handed(_) => {
            settings.warn_of_what_the_caller_decides();
            Ok(target)
        }
    }
}

/// The mount point as an absolute path, cleared of a mount whose daemon is dead.
fn free_mount_point(target: &Path) -> Result<PathBuf, Failure> {
    let cannot = |e: io::Error| {
        let point = target.display();
        let hint = match e.kind() {
            io::ErrorKind::NotFound => format!("; make it first: mkdir -p {point}"),
            _ => String::new(),
        };
        Failure::new(Exit::Mount, format!("mount point {point}: {e}{hint}"))
    };
    let target = mounts::resolve(target).map_err(cannot)?;
    match mounts::state(&target).map_err(cannot)? {
        mounts::State::Free => Ok(target),
        mounts::State::Dead(_) => {
            tracing::warn!("{}: removing a mount whose daemon is dead", target.display());
            mounts::unmount(&target, true).map_err(cannot)?;
            free_mount_point(&target)
        }
        mounts::State::Mounted(mount) => Err(Failure::new(
            Exit::Mount,
            format!(
                "{}: {} is already mounted there (to unmount it: ffrfs umount {})",
                target.display(),
                mount.source.to_string_lossy(),
                target.display()
            ),
        )),
    }
}

fn name_of(sources: &[PathBuf]) -> String {
    let first = sources.first().map(|p| p.canonicalize().unwrap_or_else(|_| p.clone()));
    let first = first.unwrap_or_default().to_string_lossy().replace(['\n', '\0'], "?");
    match sources.len() {
        0 | 1 => first,
        more => format!("{first} and {} more", more - 1),
    }
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
    fn masks_are_octal() {
        assert_eq!(octal("022"), Ok(0o22));
        assert!(octal("8").is_err() && octal("1000").is_err());
    }
}
