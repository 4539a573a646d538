//! What a mount of objects needs while it serves, beside what `rules` has.

use super::request::MountRequest;
use crate::daemon::sandbox::Sandbox;
use crate::format::PartName;
use crate::io::confine::{Network, Rules};
use crate::io::{cache_directory, user_cache_directory};
use crate::store::remote::{self, CachePlace, Location};

/// The objects that the request names.
fn locations(request: &MountRequest) -> Vec<Location> {
    let urls = request.sources.iter().filter_map(|source| match source {
        PartName::Url(url) => Location::parse(url)?.ok(),
        PartName::Path(_) => None,
    });
    urls.collect()
}

/// Has a process that is not confined run the programs that print credentials for the objects of this mount. This one must
/// have no other threads yet.
pub(super) fn run_programs_outside(request: &MountRequest) {
    if request.settings.sandbox != Sandbox::No {
        remote::run_programs_outside(&locations(request), &request.open.remote);
    }
}

/// Adds what the clients of these objects need.
pub(super) fn add_needs(rules: &mut Rules, request: &MountRequest) {
    let needs = remote::needs(&locations(request), &request.open.remote);
    rules.reads.extend(needs.files);
    // With `strict` a client that is led to another port fails; otherwise users must not be in its way.
    let ports = needs.ports.filter(|_| rules.is_fatal || !needs.may_leave_ports);
    rules.network = ports.map_or(Network::Everybody, Network::Ports);
    rules.starts_programs = needs.starts_programs;
    rules.writes.extend(match &request.open.remote.cache {
        CachePlace::None => None,
        CachePlace::Directory(directory) => std::path::absolute(directory).ok(),
        CachePlace::User => cache_directory(),
    });
    // Kept indexes and checkpoints of objects.
    rules.writes.extend(user_cache_directory());
}
