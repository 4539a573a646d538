//! The address of the metrics: `unix:PATH` or `HOST:PORT`.

use crate::format::quoted;
use crate::io::check_makeable;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, fs};

/// Device and inode of a socket's file. As long as a process holds the socket, no other file gets this inode.
pub(crate) type FileId = (u64, u64);

/// The longest path that the system takes for a socket, in bytes.
const LONGEST_PATH: usize = 107;

/// The address on which metrics are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// A socket that is a file; the umask decides its mode.
    Unix(PathBuf),
    /// A host (or address, in brackets if it has colons) and a port.
    Tcp(String),
}

impl Address {
    /// The path of the socket, if it is a file.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Unix(path) => Some(path),
            Self::Tcp(_) => None,
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err("unix: needs the path of a socket".to_owned()),
                path => check_length(Path::new(path)).map(|()| Self::Unix(PathBuf::from(path))),
            };
        }
        let wrong = || {
            let text = quoted(text);
            format!("{text} is not unix:PATH or HOST:PORT, such as localhost:9100 or [::1]:9100")
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        let is_host = !host.is_empty() && (is_bracketed || !host.contains(':'));
        match port.parse::<u16>() {
            Ok(_) if is_host => Ok(Self::Tcp(text.to_owned())),
            _ => Err(wrong()),
        }
    }
}

/// Refuses a path that is too long for a socket once it is absolute.
fn check_length(path: &Path) -> Result<(), String> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let with_directory = if path.is_absolute() { "" } else { " with the working directory" };
    match whole.as_os_str().as_bytes().len() {
        ..=LONGEST_PATH => Ok(()),
        bytes => Err(format!(
            "the path of a socket may have at most {LONGEST_PATH} bytes, and this one has \
             {bytes}{with_directory}: name a shorter one"
        )),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(out, "unix:{}", path.display()),
            Self::Tcp(address) => out.write_str(address),
        }
    }
}

impl Address {
    /// Makes the path absolute: the daemon changes its working directory.
    pub(crate) fn absolute(&mut self) -> io::Result<()> {
        if let Self::Unix(path) = self {
            *path = std::path::absolute(&*path)?;
        }
        Ok(())
    }

    /// Looks whether the address can be bound, and makes no file.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self {
            Self::Tcp(address) => TcpListener::bind(address).map(drop),
            Self::Unix(path) => check_unix(&std::path::absolute(path)?),
        }
    }

    pub(crate) fn bind(&self) -> io::Result<Listener> {
        match self {
            Self::Tcp(address) => TcpListener::bind(address).map(Listener::Tcp),
            Self::Unix(path) => {
                let listener = bind_unix(path)?;
                Ok(Listener::Unix(listener, path.clone(), file_id(path)?))
            }
        }
    }
}

/// Goes on with a socket that another process has bound to `address`. `file`: the socket's file, if that process told of it.
pub(super) fn listener(address: &Address, socket: OwnedFd, file: Option<FileId>) -> Listener {
    match address {
        Address::Tcp(_) => Listener::Tcp(socket.into()),
        Address::Unix(path) => {
            let file = file.or_else(|| file_id(path).ok());
            Listener::Unix(socket.into(), path.clone(), file.unwrap_or_default())
        }
    }
}

fn file_id(path: &Path) -> io::Result<FileId> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Removes the file of a socket, unless another file has taken its place.
pub(super) fn remove(path: &Path, ours: FileId) {
    let is_ours =
        |file: fs::Metadata| file.file_type().is_socket() && (file.dev(), file.ino()) == ours;
    if fs::symlink_metadata(path).is_ok_and(is_ours) {
        let _ = fs::remove_file(path);
    }
}

/// Binds a socket to a path, in place of the socket of a dead daemon.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(e) if e.kind() == ErrorKind::AddrInUse => {}
        bound => return bound,
    }
    check_dead(path)?;
    fs::remove_file(path)?;
    UnixListener::bind(path)
}

/// Refuses any file but the socket of a dead daemon.
fn check_dead(path: &Path) -> io::Result<()> {
    let in_use = |what: &str| Err(io::Error::new(ErrorKind::AddrInUse, what.to_owned()));
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return in_use("the file exists, and is not a socket");
    }
    match UnixStream::connect(path) {
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => Ok(()),
        Err(e) => Err(e),
        Ok(_) => in_use("another process listens there"),
    }
}

/// Looks whether [`bind_unix`] would succeed.
fn check_unix(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(_) => check_dead(path)?,
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    check_makeable(path)
}

/// A bound socket.
pub(crate) enum Listener {
    Tcp(TcpListener),
    /// With the path of its file, in whose place another file may be, and the file's identity.
    Unix(UnixListener, PathBuf, FileId),
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener, ..) => listener.as_fd(),
        }
    }
}

impl Listener {
    pub(crate) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
            Self::Unix(listener, ..) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        }
    }

    /// The socket's file; `None` if it has no file.
    pub(crate) fn file(&self) -> Option<FileId> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(.., file) => Some(*file),
        }
    }

    /// Removes the socket's file.
    pub(crate) fn remove(&self) {
        if let Self::Unix(_, path, ours) = self {
            remove(path, *ours);
        }
    }
}

/// A connection.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Sets how long the next read or write may take.
    pub(crate) fn set_timeout(&self, limit: Duration) -> io::Result<()> {
        let limit = Some(limit.max(Duration::from_millis(1)));
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit))
            }
        }
    }

    /// Tells the client that no more bytes follow.
    pub(crate) fn end(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(std::net::Shutdown::Write),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_path_or_a_host_with_a_port() {
        assert_eq!("unix:/run/m".parse(), Ok(Address::Unix("/run/m".into())));
        for good in ["localhost:9100", "127.0.0.1:0", "[::1]:9100", "[::]:1", "host.example:65535"]
        {
            assert_eq!(good.parse(), Ok(Address::Tcp(good.to_owned())));
        }
        for wrong in
            ["", "unix:", "9100", ":9100", "localhost", "localhost:", "::1:9100", "h:65536", "h:-1"]
        {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_address_is_refused_with_what_it_may_be() {
        let said = |text: &str| text.parse::<Address>().unwrap_err();
        assert!(said("a\u{9b}").starts_with("\"a\\x9b\" is not unix:PATH or HOST:PORT"));
        let path = |bytes: usize| format!("unix:/{}", "x".repeat(bytes - 1));
        assert!(path(107).parse::<Address>().is_ok());
        let wanted = "the path of a socket may have at most 107 bytes, and this one has 108: name a \
                      shorter one";
        assert_eq!(said(&path(108)), wanted);
        let relative = said(&format!("unix:{}", "x".repeat(107)));
        let wanted = " with the working directory: name a shorter one";
        assert!(relative.ends_with(wanted), "{relative}");
    }

    #[test]
    fn a_socket_that_another_process_has_bound_is_not_taken_for_the_one_in_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Unix(directory.path().join("socket"));
        let first = address.bind().unwrap();
        fs::remove_file(address.path().unwrap()).unwrap();
        let other = address.bind().unwrap();
        let socket = first.as_fd().try_clone_to_owned().unwrap();
        listener(&address, socket, first.file()).remove();
        assert!(address.path().unwrap().exists());
        other.remove();
        assert!(!address.path().unwrap().exists());
    }

    #[test]
    fn a_dead_socket_is_replaced_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let address = Address::Unix(path.clone());
        let live = address.bind().unwrap();
        assert!(address.bind().is_err_and(|e| e.to_string().contains("listens")));
        drop(live);
        assert!(path.exists(), "as a process that was killed leaves it");
        let live = address.bind().unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        live.remove();
        assert!(address.bind().is_err_and(|e| e.to_string().contains("not a socket")));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn whether_an_address_can_be_bound_is_found_without_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let address = Address::Unix(path.clone());
        let said = |address: &Address| address.check().unwrap_err().to_string();
        address.check().unwrap();
        assert!(!path.exists());
        let live = address.bind().unwrap();
        assert!(said(&address).contains("listens"));
        drop(live);
        address.check().expect("its process has ended");
        assert!(path.exists());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        assert!(said(&address).contains("not a socket"));
        let missing = Address::Unix(directory.path().join("none/socket"));
        assert_eq!(missing.check().unwrap_err().kind(), ErrorKind::NotFound);
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = Address::Tcp(held.local_addr().unwrap().to_string());
        assert_eq!(taken.check().unwrap_err().kind(), ErrorKind::AddrInUse);
    }
}
