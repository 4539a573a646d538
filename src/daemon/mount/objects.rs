//! The needs of a mount of objects while it serves, besides those in `rules`.

use super::request::MountRequest;
use crate::daemon::sandbox::Sandbox;
use crate::format::PartName;
use crate::io::confine::{Capability, Network, Rules};
use crate::io::{cache_directory, user_cache_directory};
use crate::store::cache::sharing_group;
use crate::store::remote::{self, CachePlace, Location};
use nix::unistd::{Gid, getegid, getgroups};
use std::path::Path;

/// The objects that the request names.
fn locations(request: &MountRequest) -> Vec<Location> {
    let urls = request.sources.iter().filter_map(|source| match source {
        PartName::Url(url) => Location::parse(url)?.ok(),
        PartName::Path(_) => None,
    });
    urls.collect()
}

/// Has a process that is not confined run the programs that print credentials for the objects of this mount. The calling
/// process must have no other threads yet.
pub(super) fn run_programs_outside(request: &MountRequest) {
    if request.settings.sandbox != Sandbox::No {
        remote::run_programs_outside(&locations(request), &request.open.remote);
    }
}

/// Adds the files, ports and rights that the clients of these objects need.
pub(super) fn add_needs(rules: &mut Rules, request: &MountRequest) {
    let needs = remote::needs(&locations(request), &request.open.remote);
    rules.reads.extend(needs.files);
    // With `strict` a client that is led to another port fails; otherwise the rules must not be in its way.
    let ports = needs.ports.filter(|_| rules.is_fatal || !needs.may_leave_ports);
    rules.network = ports.map_or(Network::Everybody, Network::Ports);
    rules.starts_programs = needs.starts_programs;
    let cache = match &request.open.remote.cache {
        CachePlace::None => None,
        CachePlace::Directory(directory) => std::path::absolute(directory).ok(),
        CachePlace::User => cache_directory(),
    };
    if cache.as_deref().is_some_and(has_files_of_others) {
        rules.capabilities.push(Capability::DacOverride);
    }
    rules.writes.extend(cache);
    // Kept indexes and checkpoints of objects.
    rules.writes.extend(user_cache_directory());
}

/// Whether a cache has files that only the members of a group may open, to which this process does not belong. Root opens such
/// files only with a capability.
fn has_files_of_others(cache: &Path) -> bool {
    let Some(group) = sharing_group(cache).map(Gid::from_raw) else { return false };
    group != getegid() && !getgroups().is_ok_and(|them| them.contains(&group))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn files_of_others_are_in_a_cache_that_is_shared_with_a_group_of_others() {
        let cache = tempfile::tempdir().unwrap();
        chown(cache.path(), None, Some(getegid().as_raw())).unwrap();
        let with_mode = |mode| {
            fs::set_permissions(cache.path(), fs::Permissions::from_mode(mode)).unwrap();
            has_files_of_others(cache.path())
        };
        assert!(!with_mode(0o700) && !with_mode(0o2770), "its group is that of this process");
        // Only root can give it to a group of others.
        let other = (4711..).find(|&group| {
            let group = Gid::from_raw(group);
            group != getegid() && !getgroups().unwrap().contains(&group)
        });
        if chown(cache.path(), None, other).is_ok() {
            assert!(with_mode(0o2770));
            assert!(!with_mode(0o2750) && !with_mode(0o700), "nobody shares it");
        }
        assert!(!has_files_of_others(&cache.path().join("none")));
    }
}
