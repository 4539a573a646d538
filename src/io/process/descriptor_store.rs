//! Messages to a service manager (sd_notify(3)), and its descriptor store: descriptors in it outlive this process, and come to the
//! next one that the manager starts for the service (`FileDescriptorStoreMax=`; sd_listen_fds(3)). Imports nothing of ours.

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sendmsg, socket,
};
use nix::unistd::pipe2;
use rustix::fs::{MemfdFlags, SealFlags};
use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSlice, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The variable with the socket on which the manager listens.
pub const SOCKET: &str = "NOTIFY_SOCKET";
/// The variable with the number of descriptors that it keeps for this service. systemd sets it from version 254 on, our unit
/// sets it for older ones.
const CAPACITY: &str = "FDSTORE";
/// The most bytes that are read from one file.
const MAX_BYTES: u64 = 1 << 20;

/// How many descriptors the manager keeps for this service; 0 if there is no manager, or it keeps no descriptors.
#[must_use]
pub fn capacity() -> usize {
    if env::var_os(SOCKET).is_some() { service_capacity() } else { 0 }
}

/// As [`capacity`], for the service of this process, which may itself not reach the manager: a command that runs after the main
/// process has ended (`ExecStopPost=`) is told no socket with `NotifyAccess=main`.
#[must_use]
pub fn service_capacity() -> usize {
    env::var(CAPACITY).ok().and_then(|most| most.parse().ok()).unwrap_or(0)
}

/// Gives duplicates of descriptors to the manager, all by one name.
///
/// # Errors
/// The manager cannot be reached. Whether it keeps them is not known; [`wait_until_taken`] tells when it has received them.
pub fn keep(name: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    // By default it polls the descriptors that it keeps, and would be woken by each request that comes through /dev/fuse.
    send(&format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0\n"), descriptors, MsgFlags::empty())
}

/// Waits until the manager has taken all messages that were sent to it. It takes none of a process that has ended before.
/// `false` if the time `at_most` is over.
///
/// # Errors
/// The manager cannot be reached, or no descriptor is left.
pub fn wait_until_taken(at_most: Duration) -> io::Result<bool> {
    // The manager closes the pipe when it comes to this message (sd_notify_barrier(3)).
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    send("BARRIER=1", &[write.as_fd()], MsgFlags::empty())?;
    drop(write);
    let mut polled = [PollFd::new(read.as_fd(), PollFlags::empty())];
    let at_most = PollTimeout::try_from(at_most).map_err(io::Error::other)?;
    Ok(poll(&mut polled, at_most)? > 0)
}

/// Has the manager close the descriptors that it keeps by this name.
///
/// # Errors
/// The manager cannot be reached.
pub fn forget(name: &str) -> io::Result<()> {
    send(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"), &[], MsgFlags::empty())
}

/// Sends assignments, one a line, and waits until the manager has room for them. Without a manager does nothing.
///
/// # Errors
/// The manager cannot be reached.
pub fn notify(lines: &str) -> io::Result<()> {
    send(lines, &[], MsgFlags::empty())
}

/// As [`notify`], but does not wait.
///
/// # Errors
/// As for [`notify`]; and the manager has no room for them now ([`io::ErrorKind::WouldBlock`]).
pub fn notify_at_once(lines: &str) -> io::Result<()> {
    send(lines, &[], MsgFlags::MSG_DONTWAIT)
}

/// The descriptors that the manager has kept for this process by names that begin with `prefix`. Only the first call gives
/// them.
///
/// # Errors
/// The manager's variables are wrong, or name a descriptor that is not open.
pub fn inherited(prefix: &str) -> io::Result<Vec<(String, OwnedFd)>> {
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    // By name: descriptors of sockets that the manager listens on are not ours to close.
    let listed: Vec<(RawFd, String)> =
        sd_notify::listen_fds_with_names()?.filter(|(_, name)| name.starts_with(prefix)).collect();
    if listed.is_empty() || IS_TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    // SAFETY: the manager has left these descriptors to this process, by its number; they are open, since they were just marked
    // to be closed at exec. No other owner exists: this is done once (`IS_TAKEN`), and no file that this program opens itself
    // gets the number of a descriptor that it has from its start.
    let own = |(number, name)| (name, unsafe { OwnedFd::from_raw_fd(number) });
    Ok(listed.into_iter().map(own).collect())
}

/// A file in memory with these bytes, which no process can change.
///
/// # Errors
/// There is no memory or no descriptor left.
pub fn memory_file(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create(name, flags)?);
    file.write_all(bytes)?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

/// The bytes of a file that [`memory_file`] has made.
///
/// # Errors
/// The file cannot be read.
pub fn read_memory_file(file: OwnedFd) -> io::Result<Vec<u8>> {
    let (mut file, mut bytes) = (File::from(file), Vec::new());
    file.rewind()?;
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn send(text: &str, descriptors: &[BorrowedFd<'_>], flags: MsgFlags) -> io::Result<()> {
    let Some(path) = env::var_os(SOCKET) else { return Ok(()) };
    let address = address(&path)?;
    let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let control = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &control[..0] } else { &control[..] };
    let text = [IoSlice::new(text.as_bytes())];
    sendmsg(socket.as_raw_fd(), &text, control, flags | MsgFlags::MSG_NOSIGNAL, Some(&address))?;
    Ok(())
}

/// The address of a socket: a path, or after an `@` a name in the kernel's own list.
fn address(path: &OsStr) -> io::Result<UnixAddr> {
    Ok(match path.as_bytes().strip_prefix(b"@") {
        Some(name) => UnixAddr::new_abstract(name)?,
        None => UnixAddr::new(path)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_memory_gives_what_it_was_made_of_and_cannot_be_changed() {
        let file = memory_file("test", b"told\0\n").unwrap();
        let mut other = File::from(file.try_clone().unwrap());
        assert!(other.write_all(b"x").is_err());
        assert_eq!(read_memory_file(file).unwrap(), b"told\0\n");
    }

    #[test]
    fn a_process_that_no_manager_has_started_inherits_nothing() {
        assert!(inherited("ffrfs").unwrap().is_empty());
    }
}
