//! Mounting for users other than root: the set-user-id helper fusermount3 mounts, and sends the open
//! /dev/fuse back over a socket (as in libfuse's `mount.c`). Imports nothing of ours.

use nix::cmsg_space;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, socketpair,
};
use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::{Command, Stdio};

/// The environment variable with the number of the helper's end of the socket.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// Mounts on `target` with `options` in the form that fusermount3 takes, and returns the connection.
///
/// # Errors
/// The helper is not installed, or refuses: then the error has its message.
pub fn mount(target: &Path, options: &str) -> io::Result<OwnedFd> {
    // Only the helper inherits the descriptors: no other thread runs yet that could start a process.
    let none = SockFlag::empty();
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::Stream, None, none)?;
    nix::fcntl::fcntl(&ours, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    let mut child = Command::new("fusermount3")
        .args(["-o", options, "--"])
        .arg(target)
        .env(SOCKET_VARIABLE, theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    drop(theirs);
    let received = receive(&ours);
    let mut said = String::new();
    if let Some(stderr) = child.stderr.as_mut() {
        let _ = stderr.read_to_string(&mut said);
    }
    child.wait()?;
    received.map_err(|e| {
        let said = said.trim().trim_start_matches("fusermount3: ");
        if said.is_empty() { e } else { io::Error::other(said.to_owned()) }
    })
}

fn receive(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut vectors = [IoSliceMut::new(&mut byte)];
    let mut space = cmsg_space!(RawFd);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut vectors, Some(&mut space), flags)?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control
            && let Some(&descriptor) = descriptors.first()
        {
            // SAFETY: the kernel has just made this descriptor for this process, with the message; no
            // other owner exists.
            return Ok(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, "fusermount3 gave no connection"))
}
