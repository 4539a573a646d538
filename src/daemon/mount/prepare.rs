//! Opens the dataset and mounts it: everything up to a mount that the kernel has accepted.

use super::request::{MountRequest, MountSettings};
use crate::catalog::Catalog;
use crate::daemon::logging;
use crate::daemon::metrics::Metrics;
use crate::daemon::patience;
use crate::daemon::serve::Service;
use crate::daemon::settings::Runtime;
use crate::dataset::{self, KeptCheckpoints, Opened};
use crate::failure::{Exit, Failure};
use crate::io::{File, mounts, process};
use crate::store::{Part, Store};
use crate::tools::progress::Terminal;
use crate::transport::{Handover, Mounted, Target};
use crate::vfs::Options;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A kept index of at least this size is mapped rather than held on the heap.
const WORTH_MAPPING_BYTES: u64 = 16 << 20;

/// The mount of a process that has died, which this one goes on with.
pub(super) struct Resumed {
    pub(super) handover: Handover,
    /// Of the parts that it showed: see [`digest`].
    pub(super) digest: [u8; DIGEST_BYTES],
}

/// The length of a [`digest`].
pub(super) const DIGEST_BYTES: usize = 32;

/// Everything up to a mount that the kernel has accepted.
pub(super) fn prepare(
    request: &MountRequest,
    target: Target,
    resumed: Option<Resumed>,
    end: fn(Exit) -> !,
) -> Result<Service, Failure> {
    let MountRequest { settings, namespace, .. } = request;
    // Checked before the containers are opened, which may take long.
    let is_here = namespace.is_none() && resumed.is_none();
    let target = if is_here { free(target, settings)? } else { target };
    let (opened, catalog) = open(request)?;
    let renamed = catalog.renamed();
    if let Some(summary) = renamed.summary() {
        match renamed.escaped + renamed.numbered + renamed.hidden {
            0 => tracing::info!("not all names are shown: {summary}"),
            _ => tracing::warn!("some names are shown changed: {summary}; ffrfs info has examples"),
        }
    }
    let samples = opened.dataset.len();
    let (io, given) = (in_words(&opened.store), request.given.clone());
    let log = logging::destination().to_string();
    let (stores, has_objects) = (opened.counters.clone(), opened.store.has_objects());
    let options = Options { io, log, given, stores, ..settings.vfs(has_objects) };
    let vfs = opened.into_vfs(catalog, options);
    let dataset::Options { indexes, format, checksums, .. } = &request.open;
    if let Some(kept) = KeptCheckpoints::new(vfs.store(), indexes, format) {
        vfs.keep_checkpoints(Arc::new(kept));
    }
    let must_check = checksums.require;
    vfs.set_settings(Runtime::new(settings.live.memory_bytes(), must_check));
    // Before the mount: a signal that came between would end the process and leave a dead mount.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
    let signals = signals.map_err(|e| Failure::new(Exit::Mount, e))?;
    let options = settings.mount(request.name(), has_objects);
    let metrics = settings.metrics.as_ref().map(Metrics::bind).transpose()?;
    let target = match namespace {
        None => target,
        Some(namespace) => {
            enter(namespace, vfs.store().len())?;
            if resumed.is_some() { target } else { free(target, settings)? }
        }
    };
    let vfs = Arc::new(vfs);
    if let Some(metrics) = &metrics {
        let served = metrics.serve(&vfs, &target.to_string(), &request.name());
        served.map_err(|e| Failure::new(Exit::Mount, e))?;
    }
    let digest = digest(vfs.store());
    let mounted = match resumed {
        None => Mounted::new(vfs, &target, options)?,
        Some(resumed) if resumed.digest == digest => {
            Mounted::resume(&vfs, &target, &options, resumed.handover)?
        }
        Some(_) => {
            let why = "the containers have changed since they were mounted";
            return Err(Failure::new(Exit::Mount, why));
        }
    };
    tracing::info!(samples, "mounted on {target}");
    let status = format!("{samples} samples of {} on {target}", request.name());
    let configured = request.configured.clone();
    Ok(Service { mounted, digest, target, signals, status, configured, metrics, end })
}

/// Tells whether the parts are still the same, by their names and versions.
fn digest(store: &Store) -> [u8; DIGEST_BYTES] {
    let mut digest = blake3::Hasher::new();
    for part in store.parts() {
        digest
            .update(format!("{:?}\n", (part.name(), part.version(), part.len_bytes())).as_bytes());
    }
    *digest.finalize().as_bytes()
}

fn open(request: &MountRequest) -> Result<(Opened, Catalog), Failure> {
    let open = || -> Result<_, Failure> {
        let opened = dataset::open(&request.sources, &request.open, &Terminal::watch())?;
        let catalog = opened.named(&request.names, request.open.format.allow_damaged)?;
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
    if containers > dataset::MANY_FILES {
        let most = dataset::MANY_FILES;
        return Err(Failure::usage(format!("-N cannot mount more than {most} containers")));
    }
    process::enter_mount_namespace(namespace).map_err(|e| {
        let what = format!("cannot enter the mount namespace {}", namespace.display());
        Failure::new(Exit::Mount, e).context(what)
    })
}

/// How containers are read, as `info.json` shows it.
fn in_words(store: &Store) -> &'static str {
    let is_direct = |part: &Arc<Part>| part.file().is_some_and(File::is_direct);
    match store.parts().iter().filter(|part| is_direct(part)).count() {
        0 => "buffered",
        all if all == store.len() => "direct",
        _ => "mixed",
    }
}

/// A target that can be mounted on.
fn free(target: Target, settings: &MountSettings) -> Result<Target, Failure> {
    match target {
        Target::Directory(directory) => free_mount_point(&directory).map(Target::Directory),
        Target::PassedConnection(_) => {
            settings.warn_of_options_without_effect();
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
    let state = patience::state(&target).map_err(|e| match e.kind() {
        io::ErrorKind::TimedOut => patience::unanswered(&target, &e),
        _ => cannot(e),
    })?;
    match state {
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
