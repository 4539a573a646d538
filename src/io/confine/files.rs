//! The files and ports that are open to a confined process: Landlock.

use super::{LANDLOCK_WITH_PORTS, LEAST_LANDLOCK, Network, Rules};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, path_beneath_rules,
};
use std::os::fd::OwnedFd;
use std::ptr;

/// The version whose rights are withheld; an older kernel withholds the rights that it knows.
const VERSION: ABI = ABI::V5;
/// The flag that asks for the version instead of making rules.
const CREATE_RULESET_VERSION: u32 = 1;

/// The version of Landlock; `None` if the kernel has no Landlock, or it is switched off, or forbidden to this process.
#[must_use]
pub fn landlock_version() -> Option<i32> {
    // SAFETY: with this flag the system call reads nothing and returns a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<libc::c_void>(),
            0_usize,
            CREATE_RULESET_VERSION,
        )
    };
    i32::try_from(version).ok().filter(|version| *version > 0)
}

/// Makes the rules; tells whether they hold for files, and for the network.
pub(super) fn ruleset(rules: &Rules) -> (Option<OwnedFd>, Result<(), String>, Result<(), String>) {
    if rules.starts_programs {
        let why = || Err("a program is started for credentials, which may need any".to_owned());
        return (None, why(), why());
    }
    let version = landlock_version().unwrap_or(0);
    let too_old = |least, what: &str| match version {
        0 => Err("the kernel has no Landlock, or it is switched off".to_owned()),
        version if version < least => Err(format!("Landlock {version} has no {what}")),
        _ => Ok(()),
    };
    let files = too_old(LEAST_LANDLOCK, "moves between directories");
    let network = match &rules.network {
        Network::Everybody => Err("the servers may answer on any port".to_owned()),
        _ => too_old(LANDLOCK_WITH_PORTS, "ports"),
    };
    if files.is_err() {
        return (None, files, network);
    }
    match make(rules, network.is_ok()) {
        Ok(ruleset) => (ruleset, files, network),
        Err(error) => (None, Err(error.to_string()), Err(error.to_string())),
    }
}

fn make(rules: &Rules, with_network: bool) -> Result<Option<OwnedFd>, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = read
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer;
    let create = AccessFs::WriteFile | AccessFs::MakeReg;
    let remove: BitFlags<AccessFs> = AccessFs::RemoveFile | AccessFs::RemoveDir;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(VERSION))?;
    if with_network {
        ruleset = ruleset.handle_access(AccessNet::ConnectTcp | AccessNet::BindTcp)?;
    }
    // Paths that do not exist need no rule.
    let mut created = ruleset
        .create()?
        .add_rules(path_beneath_rules(&rules.reads, read))?
        .add_rules(path_beneath_rules(&rules.writes, write))?
        .add_rules(path_beneath_rules(&rules.creates, create))?
        .add_rules(path_beneath_rules(&rules.removes, remove))?;
    if let (true, Network::Ports(ports)) = (with_network, &rules.network) {
        for &port in ports {
            created = created.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
        }
    }
    Ok(created.into())
}
