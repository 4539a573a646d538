//! `ffrfs mount`: in the background once the mount works, unless `-f`.

use super::source::{self, OpenArgs};
use super::view::ViewArgs;
use super::{Exit, Failure, logging, memory};
use crate::format::Source;
use crate::io::{File, Io, mounts, process};
use crate::transport::{MountOptions, Mounted, Readdirplus, Transport};
use crate::vfs::{Options, Verify};
use clap::{Args, CommandFactory, ValueEnum};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const AFTER_HELP: &str = "\
Every long option can also be given as -o NAME[=VALUE], with - or _ in its name; what fstab adds
(defaults, noauto, nofail, _netdev, user, x-…) is accepted.

Examples:
  ffrfs mount train.ffr /mnt/ds
  ffrfs mount photos.zip /mnt/ds --password-file secret.txt
  ffrfs mount 'train-{000000..000146}.tar' /mnt/ds --index-dir /var/cache/ffrfs
  ffrfs mount train.beton /mnt/ds --view npy
  ffrfs mount part0.ffr part1.ffr /mnt/ds -o allow_other,suffix=auto
  ffrfs mount shards/ /mnt/ds --layout shards --verify once --cache-size 1G";

/// Mount containers on a folder
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, args_override_self = true)]
#[command(override_usage = "ffrfs mount [OPTIONS] <SOURCE>... <MOUNTPOINT>")]
pub(super) struct MountArgs {
    /// Containers of any known format, or folders, globs or brace lists of them, shown as one dataset
    /// (--layout); then the mount point
    #[arg(required = true, value_name = "SOURCE… MOUNTPOINT")]
    paths: Vec<PathBuf>,

    /// Mount options, set apart by commas
    // Expanded before clap sees it; declared for --help.
    #[arg(short = 'o', long = "options", value_name = "OPT[,OPT…]")]
    _options: Vec<String>,

    /// Stay in the foreground, messages on stderr
    #[arg(short = 'f', long)]
    foreground: bool,

    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    view: ViewArgs,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Args)]
struct Settings {
    /// Let all users use the mount
    #[arg(long, alias = "allow_other")]
    allow_other: bool,
    /// Let root use the mount beside you
    #[arg(long, alias = "allow_root", conflicts_with = "allow_other")]
    allow_root: bool,
    /// The kernel checks permissions (it always does)
    #[arg(long, alias = "default_permissions")]
    default_permissions: bool,
    /// The kernel refuses all writing, also to .ffrfs/prefetch
    #[arg(long, overrides_with = "rw")]
    ro: bool,
    // mount(8) passes it unasked.
    #[arg(long, hide = true, overrides_with = "ro")]
    rw: bool,
    /// Whether .ffrfs/prefetch can be written; `ro` is the same as --ro
    #[arg(long, value_name = "HOW", default_value = "rw")]
    control: Control,
    /// Ignore set-user-id bits, which archives may have (always so)
    #[arg(long)]
    nosuid: bool,
    #[arg(long, hide = true)]
    suid: bool,
    /// No devices (always so)
    #[arg(long)]
    nodev: bool,
    #[arg(long, hide = true)]
    dev: bool,
    /// No program can be run from the mount
    #[arg(long)]
    noexec: bool,
    #[arg(long, hide = true)]
    exec: bool,
    /// The source that findmnt and df show [default: the container]
    #[arg(long, value_name = "NAME")]
    fsname: Option<String>,
    /// Owner of all files [default: who mounts]
    #[arg(long, value_name = "N")]
    uid: Option<u32>,
    /// Group of all files [default: who mounts]
    #[arg(long, value_name = "N")]
    gid: Option<u32>,
    /// Permission bits that files do not have, octal
    #[arg(long, value_name = "OCTAL", value_parser = octal, default_value = "0")]
    fmask: u16,
    /// Permission bits that folders do not have, octal
    #[arg(long, value_name = "OCTAL", value_parser = octal, default_value = "0")]
    dmask: u16,
    /// When a sample is checked before it is given out
    #[arg(long, value_name = "WHEN", default_value = "always")]
    verify: VerifyWhen,
    /// Memory for everything: requests, reads, caches [default: 5% of what there is, at most 512M]
    #[arg(long, value_name = "SIZE|N%", value_parser = memory::limit)]
    memory: Option<memory::Limit>,
    /// Memory of it for what was read and not asked for yet [default: what the rest leaves]
    #[arg(long, alias = "cache_size", value_name = "SIZE", value_parser = memory::size)]
    cache_size: Option<u64>,
    /// How samples are read
    #[arg(long, value_name = "HOW", default_value = "auto")]
    io: IoChoice,
    /// Whether listing a folder makes the kernel know its files' attributes too
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    readdirplus: ReaddirplusWhen,
    /// How requests come from the kernel
    #[arg(long, value_name = "HOW", default_value = "auto")]
    transport: TransportChoice,
    /// Threads that serve requests [default: as many as CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// error, warn, info, debug or trace
    #[arg(long, alias = "log_level", value_name = "LEVEL", default_value = "info")]
    #[arg(value_parser = ["error", "warn", "info", "debug", "trace"])]
    log_level: String,
    /// Messages to this file instead of journald or syslog
    #[arg(long, alias = "log_file", value_name = "FILE")]
    log_file: Option<PathBuf>,
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

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TransportChoice {
    /// Through io_uring where the host offers it, else through /dev/fuse
    Auto,
    /// Through io_uring, a queue a CPU (needs the fuse module's enable_uring)
    Uring,
    /// Through /dev/fuse
    Devfuse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Control {
    /// By whoever may read the files
    Rw,
    /// Not at all
    Ro,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ReaddirplusWhen {
    /// As the kernel thinks best: where files are looked at too
    Auto,
    /// Always
    Yes,
    /// Never: listing a huge folder takes little of the kernel's memory
    No,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum IoChoice {
    /// From the page cache what is there, else past it (O_DIRECT) where the file system can
    Auto,
    /// Past the page cache
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
            Failure::unreadable(file.path().display(), std::io::Error::new(e.kind(), why))
        })?;
        Ok(file)
    }
}

/// For `-o`: whether a flag of that name exists, and whether it takes a value.
pub(super) fn option_takes(name: &str) -> Option<bool> {
    let command = super::Cli::command();
    let mount = command.find_subcommand("mount")?;
    let arg = mount.get_arguments().find(|arg| arg.get_long() == Some(name))?;
    let is_option = !matches!(name, "options" | "foreground" | "help" | "version");
    is_option.then(|| arg.get_action().takes_values())
}

pub(super) fn run(mut args: MountArgs) -> Result<Exit, Failure> {
    let target = args.paths.pop().unwrap_or_default();
    if args.paths.is_empty() {
        return Err(Failure::usage(
            "a source and a mount point are needed: ffrfs mount SOURCE... MOUNTPOINT",
        ));
    }
    // A relative log file lies where the caller is, not where the daemon goes.
    if let Some(file) = &mut args.settings.log_file {
        *file = std::path::absolute(&*file).map_err(|e| Failure::output(file.display(), e))?;
    }
    args.open.read_password(&args.paths)?;
    args.open.kept.writes = true;
    if args.foreground {
        logging::in_foreground(&args.settings.log_level, args.settings.log_file.as_deref())?;
        let (mounted, signals) = prepare(&args, &target)?;
        return serve(mounted, signals);
    }
    match process::fork_daemon().map_err(|e| Failure::new(Exit::Mount, e))? {
        process::Forked::Parent(report) => match report.wait() {
            Some(0) => Ok(Exit::Ok),
            // The daemon has said why.
            Some(code) => std::process::exit(code.into()),
            None => Err(Failure::new(Exit::Mount, anyhow::anyhow!("the daemon died at its start"))),
        },
        process::Forked::Daemon(ready) => {
            let log_file = args.settings.log_file.as_deref();
            let prepared = logging::for_daemon(&args.settings.log_level, log_file)
                .and_then(|()| prepare(&args, &target));
            match prepared {
                Ok((mounted, signals)) => {
                    ready.report(0);
                    serve(mounted, signals)
                }
                Err(failure) => {
                    failure.print();
                    ready.report(failure.exit as u8);
                    // The parent's exit code counts; nobody sees this one.
                    Ok(failure.exit)
                }
            }
        }
    }
}

/// Everything up to a mount that the kernel has accepted.
fn prepare(args: &MountArgs, target: &Path) -> Result<(Mounted, Signals), Failure> {
    let target = free_mount_point(target)?;
    let prepare = |file| args.settings.io.prepare(file);
    let opened = source::open_with(&args.paths, &args.open, prepare)?;
    let catalog = opened.catalog(&args.view, &args.open)?;
    if let Some(summary) = catalog.renamed().summary() {
        tracing::warn!(
            "not all names are shown as they are stored: {summary}; `info` has examples"
        );
    }
    let fsname = args
        .settings
        .fsname
        .clone()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| name_of(&args.paths));
    let samples = opened.dataset.len();
    let options = Options { io: in_words(&opened.files), ..args.settings.vfs() };
    let (vfs, files) = opened.into_vfs(catalog, options);
    // Before the mount, so that no signal finds one that it would leave behind.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
    let signals = signals.map_err(|e| Failure::new(Exit::Mount, e))?;
    let mounted = Mounted::new(Arc::new(vfs), files, &target, args.settings.mount(fsname))?;
    tracing::info!(samples, "mounted on {}", target.display());
    Ok((mounted, signals))
}

/// How samples are read.
fn in_words(files: &[Arc<File>]) -> &'static str {
    match files.iter().filter(|file| file.is_direct()).count() {
        0 => "buffered",
        all if all == files.len() => "direct",
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
        // The kernel knows "all users" only; permissions keep out all but the owner, and root.
        let private = if self.allow_root { 0o077 } else { 0 };
        let writable = if self.read_only() { 0o444 } else { 0o666 };
        Options {
            io: "buffered",
            verify: match self.verify {
                VerifyWhen::Always => Verify::Always,
                VerifyWhen::Once => Verify::Once,
                VerifyWhen::Off => Verify::Off,
            },
            cache_bytes: self.cache_size.unwrap_or_else(|| memory::for_cache(self.memory())),
            kernel_bytes: memory::total_bytes() / 4,
            concurrency: (self.threads() + workers()) as u64,
            uid: self.uid.filter(|_| !self.allow_root).unwrap_or(nix::unistd::getuid().as_raw()),
            gid: self.gid.unwrap_or(nix::unistd::getgid().as_raw()),
            file_mode: 0o444 & !self.fmask & !private,
            folder_mode: 0o555 & !self.dmask & !private,
            file_mask: 0o7777 & !self.fmask & !private,
            folder_mask: 0o7777 & !self.dmask & !private,
            prefetch_mode: writable & !self.fmask & !private,
        }
    }

    fn memory(&self) -> u64 {
        memory::Limit::bytes(self.memory)
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

/// They wait for the disk, not for a CPU: enough to keep a queue of requests in it.
fn workers() -> usize {
    (4 * cpus()).clamp(8, 32)
}

/// The mount point as an absolute path, cleared of a mount whose daemon is dead.
fn free_mount_point(target: &Path) -> Result<PathBuf, Failure> {
    let cannot = |e: io::Error| {
        let what = format!("mount point {}", target.display());
        Failure::new(Exit::Mount, anyhow::Error::new(e).context(what))
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
            anyhow::anyhow!(
                "{}: {} is mounted there already (ffrfs umount {})",
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

fn serve(mounted: Mounted, signals: Signals) -> Result<Exit, Failure> {
    let target = mounted.target().to_owned();
    unmount_on_signals(signals, target.clone(), mounted.device().to_owned())?;
    let served = mounted.serve();
    // After an abort (fusectl, a broken connection) the mount is still there, and dead.
    if let Ok(mounts::State::Dead(_)) = mounts::state(&target) {
        let _ = mounts::unmount(&target, true);
    }
    served.map_err(|e| {
        Failure::new(Exit::Mount, anyhow::Error::new(e).context("the connection to the kernel"))
    })?;
    tracing::info!("unmounted from {}", target.display());
    Ok(Exit::Ok)
}

/// The first signal unmounts, lazily where files are open; a second one ends the process.
fn unmount_on_signals(
    mut signals: Signals,
    target: PathBuf,
    device: String,
) -> Result<(), Failure> {
    let listen = move || {
        let mut leaving = false;
        for signal in &mut signals {
            match signal {
                // Whoever mounted has closed the terminal.
                SIGHUP => {}
                _ if leaving => std::process::exit(Exit::Mount as i32),
                _ => {
                    leaving = true;
                    unmount(&target, &device);
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("ffrfs-signals".to_owned());
    thread.spawn(listen).map_err(|e| Failure::new(Exit::Mount, e))?;
    Ok(())
}

/// Only what is ours: detached before, another mount may have taken the place.
fn unmount(target: &Path, device: &str) {
    let there = mounts::at(target).ok().flatten();
    if there.is_none_or(|mount| mount.device != device) {
        return;
    }
    let Err(error) = mounts::unmount(target, false) else { return };
    tracing::info!("{}: {error}; it goes when the last open file is closed", target.display());
    if let Err(error) = mounts::unmount(target, true) {
        tracing::error!("{}: cannot unmount: {error}", target.display());
    }
}

fn octal(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(mask) if mask <= 0o777 => Ok(mask),
        _ => Err("an octal number of up to 777 is needed".to_owned()),
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

    #[test]
    fn every_long_flag_is_a_mount_option() {
        assert_eq!(option_takes("allow-other"), Some(false));
        assert_eq!(option_takes("cache-size"), Some(true));
        assert_eq!(option_takes("suffix"), Some(true));
        assert_eq!(option_takes("foreground"), None);
        assert_eq!(option_takes("frobnicate"), None);
    }
}
