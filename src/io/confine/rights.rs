//! Capabilities of a thread, and the view that other processes have of this one.

use super::errno::errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};
use std::io;
use std::path::PathBuf;

/// The version of the structures with 64 capabilities.
const VERSION: u32 = 0x2008_0522;

/// A capability that a confined process may need: without it, not even root can open the files of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Write to all files.
    DacOverride,
    /// Read all files.
    DacReadSearch,
}

impl Capability {
    pub(super) fn mask(self) -> u64 {
        match self {
            Capability::DacOverride => 1 << 1,
            Capability::DacReadSearch => 1 << 2,
        }
    }
}

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// `struct __user_cap_data_struct`: one has the lower half of three masks, and a second one the upper half.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Masks {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// The capabilities of this thread, in effect and permitted. Can be called in a signal handler.
fn get() -> Result<[Masks; 2], i32> {
    let header = Header { version: VERSION, pid: 0 };
    let mut masks = [Masks::default(); 2];
    // SAFETY: with this version capget(2) reads a header and writes two `Masks`, which outlive the call.
    match unsafe { libc::syscall(libc::SYS_capget, &raw const header, masks.as_mut_ptr()) } {
        0 => Ok(masks),
        _ => Err(errno()),
    }
}

fn set(masks: [Masks; 2]) -> Result<(), i32> {
    let header = Header { version: VERSION, pid: 0 };
    // SAFETY: capset(2) reads a header and two `Masks`, which outlive the call.
    match unsafe { libc::syscall(libc::SYS_capset, &raw const header, masks.as_ptr()) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// Drops all capabilities of this thread but those in the mask `kept`. Can be called in a signal handler.
pub(super) fn drop_all_but(kept: u64) -> Result<(), i32> {
    let half = |masks: Masks, kept: u32| Masks {
        effective: masks.permitted & kept,
        permitted: masks.permitted & kept,
        inheritable: 0,
    };
    let [low, high] = get()?;
    let wanted = [half(low, kept as u32), half(high, (kept >> 32) as u32)];
    let is_same = |a: Masks, b: Masks| {
        (a.effective, a.permitted, a.inheritable) == (b.effective, b.permitted, b.inheritable)
    };
    // Nothing is to be dropped if the thread has no other capabilities; a filter of a service manager may forbid the call.
    match is_same(wanted[0], low) && is_same(wanted[1], high) {
        true => Ok(()),
        false => set(wanted),
    }
}

/// The capabilities without which this process could not read or write these paths; empty for a process without capabilities.
pub fn needed<'a>(
    reads: impl IntoIterator<Item = &'a PathBuf>,
    writes: impl IntoIterator<Item = &'a PathBuf>,
) -> Vec<Capability> {
    let Ok(before) = get() else { return Vec::new() };
    if before.iter().all(|masks| masks.effective == 0) {
        return Vec::new();
    }
    let without = before.map(|masks| Masks { effective: 0, ..masks });
    if set(without).is_err() {
        return Vec::new();
    }
    let may = |path: &PathBuf, how| {
        let can = faccessat(AT_FDCWD, path, how, AtFlags::AT_EACCESS);
        !matches!(can, Err(nix::errno::Errno::EACCES | nix::errno::Errno::EPERM))
    };
    let mut needed = Vec::new();
    if !reads.into_iter().all(|path| may(path, AccessFlags::R_OK)) {
        needed.push(Capability::DacReadSearch);
    }
    if !writes.into_iter().all(|path| may(path, AccessFlags::W_OK)) {
        needed.push(Capability::DacOverride);
    }
    if let Err(error) = set(before) {
        let error = io::Error::from_raw_os_error(error);
        tracing::warn!("capabilities cannot be used any more: {error}");
    }
    needed
}

/// Keeps other processes of this user from looking into the memory of this one, and the kernel from dumping it. Holds for
/// processes that this one forks, too, until they become another program.
pub fn hide_memory() {
    // SAFETY: the call sets a flag of the process, and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
}

/// Looks whether a signal could be sent to another process of this user: for tests of the confinement.
///
/// # Errors
/// The signal is forbidden.
#[cfg(feature = "test-hooks")]
pub fn reach(process: i32) -> io::Result<()> {
    // SAFETY: signal 0 is not sent; the call takes three numbers, and touches no memory.
    match unsafe { libc::syscall(libc::SYS_tgkill, process, process, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Attaches to the parent as a debugger does, and lets go of it: for tests of the confinement.
///
/// # Errors
/// The attachment is forbidden.
#[cfg(feature = "test-hooks")]
pub fn trace_parent() -> io::Result<()> {
    let parent = nix::unistd::getppid().as_raw();
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the process that is attached to keeps running; no memory is touched.
    let attached = unsafe { libc::ptrace(libc::PTRACE_SEIZE, parent, none, none) };
    if attached != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, parent, none, none) };
    Ok(())
}
