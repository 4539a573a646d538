"""Mounts and unmounts datasets, lists mounts, and reads their control files."""

from __future__ import annotations

import errno
import json
import os
import re
import tempfile
import time
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Iterator, Optional, Sequence, TypeVar, Union

from ._program import Error, StrPath, flags, run

CONTROL = ".ffrfs"
TYPE = "fuse.ffrfs"
#: The inode number of each control directory; files and directories of a container have lower numbers.
_CONTROL_INODE = 1 << 62
#: The longest time that a control file may be stale: while one daemon takes over from another, both answer.
_TAKEOVER_SECONDS = 2.0
#: The pause between two tries in this time.
_PAUSE_SECONDS = 0.005

Result = TypeVar("Result")


class Mount:
    """A mount. Usable in ``with``, which gives :attr:`path` and unmounts at the end of the block. Only the process that made
    the mount unmounts it then: a process that was forked in the block does not.
    """

    #: The mount point, where the samples are, without symbolic links.
    path: Path

    def __init__(self, path: Path, made: bool) -> None:
        self.path = path
        self._made = made
        self._is_mounted = True
        self._process = os.getpid()

    def unmount(self, lazy: bool = False) -> None:
        """Unmounts the dataset. A second call does nothing; it is no error if another program has unmounted the dataset.

        Args:
            lazy: detach the mount even while files in it are open; the mount ends when these files are closed.

        Raises:
            Error: files in the mount are open, or the mount belongs to another user.
        """
        if not self._is_mounted:
            return
        try:
            run("umount", [*(["--lazy"] if lazy else []), self.path])
        except Error as error:
            # Another program may have unmounted the dataset.
            if self.path in {info.path for info in mounts()}:
                said = str(error).replace("; -z detaches", "; unmount(lazy=True), or ffrfs umount -z, detaches")
                raise Error(said, error.code) from None
        self._is_mounted = False
        if self._made:
            with suppress(FileNotFoundError):
                self.path.rmdir()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        # The traceback of an exception may hold files open: an error about open files must not hide that exception.
        if self._process == os.getpid():
            self.unmount(lazy=kind is not None)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"<ffrfs.Mount {str(self.path)!r}{'' if self._is_mounted else ', unmounted'}>"


@dataclass(frozen=True)
class MountInfo:
    """A mount of ffrfs, as the kernel's mount table shows it."""

    #: The mount point.
    path: Path
    #: The first source, by the name in the mount table.
    source: str
    #: The kernel's options, such as ``ro`` and ``allow_other``.
    options: tuple[str, ...]


def mount(
    source: Union[StrPath, Sequence[StrPath]],
    path: Optional[StrPath] = None,
    *,
    password: Optional[str] = None,
    **options: Any,
) -> Mount:
    """Mounts containers as one dataset. Returns when the mount works. Each warning of the program (about encrypted members
    without a password, or names that are shown changed) is a :class:`UserWarning`.

    Args:
        source: a container, a directory of containers, a glob or brace list, a URL such as
            ``s3://bucket/train.ffr``, or several of these.
        path: the mount point, which must exist; by default a new temporary directory, which :meth:`Mount.unmount` removes.
        password: the password of encrypted members. It reaches the program through a pipe, not the command line.
        options: the options of ``ffrfs mount --help`` by their names, such as ``suffix=".jpg"``, ``memory="2G"``,
            ``allow_other=True``; a list gives an option several times, such as ``include=["*.jpg", "*.png"]``.

    Raises:
        Error: the containers cannot be mounted.
        ValueError: no source is given; or the option ``foreground``, with which the program would not return before the end
            of the mount; or a password with a newline or a final carriage return, which no password can have.
    """
    if options.get("foreground"):
        raise ValueError("foreground: mount() returns while the dataset is served; run `ffrfs mount -f` for that")
    if password is not None and (password.endswith("\r") or "\n" in password):
        raise ValueError("password: it has a newline, which cannot be a part of a password")
    sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    if not sources:
        raise ValueError("source: there is none; name a container")
    made = path is None
    point = Path(os.path.realpath(tempfile.mkdtemp(prefix="ffrfs-") if path is None else path))
    pipe: list[int] = []
    try:
        if password is not None:
            reader, writer = os.pipe()
            pipe.append(reader)
            with os.fdopen(writer, "wb") as file:
                file.write(password.encode() + b"\n")
            options["password_fd"] = reader
        warned = run("mount", [*flags(options), "--", *sources, point], keep_open=pipe)
    except BaseException:
        if made:
            point.rmdir()
        raise
    finally:
        for descriptor in pipe:
            os.close(descriptor)
    mounted = Mount(point, made)
    try:
        for text in warned:
            warnings.warn(text, stacklevel=2)
    except BaseException:
        # Warnings can be made errors; then the caller does not get the mount.
        mounted.unmount()
        raise
    return mounted


def mounts() -> list[MountInfo]:
    """All mounts of ffrfs that this process can see."""
    with open("/proc/self/mountinfo", "rb") as file:
        rows = (line.split(b" ") for line in file.read().splitlines())
        return [info for info in map(_of_row, rows) if info]


def _of_row(row: list[bytes]) -> Optional[MountInfo]:
    """Parses a row of mountinfo, see proc_pid_mountinfo(5). ``None`` if it is not a mount of ffrfs."""
    behind = row[row.index(b"-") + 1 :]
    if behind[0].decode() != TYPE:
        return None
    options = dict.fromkeys(row[5].decode().split(",") + behind[2].decode().split(","))
    return MountInfo(Path(_text(row[4])), _text(behind[1]), tuple(options))


def _text(field: bytes) -> str:
    """Decodes a field of mountinfo, where blanks and the like are written as \\040."""
    return os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), field))


def root_of(path: StrPath) -> Path:
    """The mount point that a path lies in.

    Raises:
        Error: the path lies in no mount of ffrfs.
    """
    here = Path(os.path.realpath(path))
    points = {info.path for info in mounts()}
    for candidate in (here, *here.parents):
        if candidate in points:
            return candidate
        if os.path.ismount(candidate):
            break
    raise Error(f"{path}: no dataset of ffrfs is mounted there", 5)


def stats(path: StrPath) -> dict[str, Any]:
    """The counters of a mount: the field ``stats`` of ``ffrfs stats --json``; docs/monitoring.md explains each.

    Raises:
        Error: no dataset of ffrfs is mounted at the path, or the mount has no control directory, or its daemon is gone.
    """
    counters: dict[str, Any] = json.loads(read_control(root_of(path), "stats.json"))
    return counters


def control_file(root: Path, name: str) -> Path:
    """The path of a control file.

    Raises:
        NotADirectoryError: the mount has no control directory, though its container may have a file of that name.
    """
    directory = root / CONTROL
    try:
        is_there = os.lstat(directory).st_ino == _CONTROL_INODE
    except FileNotFoundError:
        is_there = False
    if not is_there:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
    return directory / name


def read_control(root: Path, name: str) -> str:
    """The content of a control file."""
    with control_errors(root):
        return opened_anew(lambda: control_file(root, name).read_text(encoding="utf-8"))


def opened_anew(call: Callable[[], Result]) -> Result:
    """Makes a call that opens a control file, and makes it again while the file is stale (it was opened at one daemon, and the
    daemon that follows has answered) or the call is interrupted, as by a daemon that dies."""
    until = time.monotonic() + _TAKEOVER_SECONDS
    while True:
        try:
            return call()
        except OSError as error:
            if error.errno not in (errno.ESTALE, errno.EINTR) or time.monotonic() >= until:
                raise
        time.sleep(_PAUSE_SECONDS)


def _is_shared(root: Path) -> bool:
    return any(info.path == root and "allow_other" in info.options for info in mounts())


@contextmanager
def control_errors(root: Path) -> Iterator[None]:
    """Turns the error of a control file that cannot be opened or read into an :class:`Error` with the reason."""
    try:
        yield
    except OSError as error:
        is_missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        if is_missing and root not in {info.path for info in mounts()}:
            why = "it was unmounted"
        elif isinstance(error, NotADirectoryError):
            why = "it is mounted without its control directory (--no-control): it has no figures, and takes no announcements"
        elif isinstance(error, FileNotFoundError):
            why = f"it has no file {error.filename}: another version of ffrfs serves it"
        elif error.errno in (errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED):
            why = f"its daemon is gone; `ffrfs umount {root}` removes the mount"
        elif isinstance(error, PermissionError) and not _is_shared(root):
            why = "another user has mounted it without allow_other"
        else:
            why = f"its control files cannot be read: {error.strerror}"
        raise Error(f"{root}: {why}", 5) from error
