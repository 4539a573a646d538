//! The needs of a daemon while it serves: docs/security.md lists them for users.

use super::objects;
use super::request::MountRequest;
use crate::daemon::logging::{self, Destination};
use crate::daemon::metrics::Address;
use crate::daemon::sandbox::Sandbox;
use crate::dataset::IndexPlace;
use crate::io::confine::{self, Rules};
use crate::io::user_cache_directory;
use crate::store::Store;
use crate::transport::Target;
use crate::vfs::Vfs;
use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Directories of this process and of processes that read, of the memory and the CPUs of the host, and of time zones.
const OF_THE_SYSTEM: [&str; 6] = [
    "/proc",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/fs/fuse",
    "/etc/localtime",
    "/usr/share/zoneinfo",
];
/// The file that the terminal's streams lead to once a daemon has left the terminal.
const NULL: &str = "/dev/null";
/// The format whose members get checkpoints while they are read.
const WITH_CHECKPOINTS: &str = "zip";

/// The rules for the daemon of this mount.
pub(super) fn rules(request: &MountRequest, vfs: &Vfs, target: &Target) -> Rules {
    let (settings, store) = (&request.settings, vfs.store());
    let mut rules = Rules {
        has_secret: request.open.format.password.is_some(),
        is_fatal: settings.sandbox == Sandbox::Strict,
        ..Rules::default()
    };
    rules.reads.extend(OF_THE_SYSTEM.iter().map(PathBuf::from));
    rules.reads.extend(std::env::current_exe());
    rules.writes.insert(NULL.into());
    let containers = containers(store);
    let directories: BTreeSet<PathBuf> =
        containers.iter().filter_map(|path| parent(path)).collect();
    rules.reads.extend(directories.iter().cloned());
    if vfs.dataset().containers().iter().any(|container| container.format() == WITH_CHECKPOINTS) {
        checkpoints(&mut rules, request, &directories);
    }
    rules.writes.extend(request.open.indexes.spool.clone());
    match logging::destination() {
        Destination::File(path) => rules.creates.extend(parents(path)),
        Destination::State(path) => rules.writes.extend(parents(path)),
        _ => {}
    }
    let configured = request.configured.as_ref();
    rules.reads.extend(configured.iter().flat_map(|configured| parents(configured.file())));
    if let Some(Address::Unix(path)) = &settings.metrics {
        rules.removes.extend(parent(path));
    }
    if let (true, Some(directory)) = (request.makes_target, target.directory()) {
        rules.removes.extend(parent(directory));
    }
    if store.has_objects() {
        objects::add_needs(&mut rules, request);
    }
    let reads = containers.iter().chain(&rules.reads);
    let writes = rules.writes.iter().chain(&rules.creates).chain(&rules.removes);
    let needed = confine::needed(reads, writes);
    rules.capabilities.extend(needed);
    rules
}

/// The paths of all local parts, and the paths that they lead to.
fn containers(store: &Store) -> BTreeSet<PathBuf> {
    let local = store.parts().iter().filter(|part| !part.is_remote());
    local.filter_map(|part| part.name().as_path().map(Path::to_owned)).collect()
}

/// The directory of a file, which may be replaced or opened again.
fn parent(path: &Path) -> Option<PathBuf> {
    std::path::absolute(path).ok()?.parent().map(Path::to_owned)
}

/// As [`parent`]; if the file is a symbolic link, also the directory of the file that it leads to.
fn parents(path: &Path) -> BTreeSet<PathBuf> {
    let file = path.canonicalize().ok();
    [parent(path), file.as_deref().and_then(parent)].into_iter().flatten().collect()
}

/// Adds the places where checkpoints of large members are kept: those where an index would be.
fn checkpoints(rules: &mut Rules, request: &MountRequest, directories: &BTreeSet<PathBuf>) {
    let indexes = &request.open.indexes;
    let (mut places, mut user) = (BTreeSet::new(), None);
    match (&indexes.place, &indexes.directory) {
        (IndexPlace::None, _) => {}
        (IndexPlace::File(file), _) => places.extend(parent(file)),
        (_, Some(directory)) => places.extend(std::path::absolute(directory)),
        _ => {
            places.extend(directories.iter().cloned());
            user = user_cache_directory();
        }
    }
    let is_writable = |path: &PathBuf| {
        let may = nix::unistd::access(path, nix::unistd::AccessFlags::W_OK);
        may.is_ok()
    };
    // The user's directory must be there to be opened; it is used where a container's own directory cannot be written.
    if let Some(user) = user {
        if indexes.may_write() && (places.is_empty() || !places.iter().all(is_writable)) {
            let _ = DirBuilder::new().recursive(true).mode(0o700).create(&user);
        }
        places.insert(user);
    }
    match indexes.may_write() {
        true => rules.writes.extend(places),
        false => rules.reads.extend(places),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_opens_its_own_directory_and_that_of_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let (links, files) = (root.join("links"), root.join("files"));
        std::fs::create_dir(&links).unwrap();
        std::fs::create_dir(&files).unwrap();
        std::fs::write(files.join("file"), "").unwrap();
        std::os::unix::fs::symlink("../files/file", links.join("link")).unwrap();
        assert_eq!(parents(&links.join("link")), [files.clone(), links.clone()].into());
        assert_eq!(parents(&files.join("file")), [files].into());
        assert_eq!(parents(&links.join("none")), [links].into());
    }
}
