"""Announces samples to a mount, which fetches them before they are read."""

from __future__ import annotations

import errno
import fcntl
import json
import operator
import os
import re
import stat
import sys
import time
from array import array
from itertools import chain
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, Sized, Union

from ._mounts import control_errors, control_file, opened_anew, read_control, root_of
from ._program import Error, StrPath, run

#: ``_IOC(_IOC_WRITE, 0xf1, 1, size)`` without the size, the bits to shift the size by, and the most bytes of one call.
_ANNOUNCE, _SIZE_SHIFT, _MOST_BYTES = 1 << 30 | 0xF1 << 8 | 1, 16, 16_376
#: ``_IOC(_IOC_WRITE, 0xf1, 3, 8)``: drops the rest of the order with this name, and gives the name to the samples that follow.
_BEGIN_ORDER = 1 << 30 | 8 << 16 | 0xF1 << 8 | 3
#: The name that means all orders.
_ALL_ORDERS = 0
#: The errors of the mount for a number or a path that is not a sample.
_NOT_A_SAMPLE = (errno.EINVAL, errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
#: The program's message about a line of its standard input that is not a sample, and its exit codes with this message.
_WRONG_LINE, _WRONG_LINE_CODES = re.compile(r"standard input:[0-9]+: (.*)", re.DOTALL), (1, 2)
#: The pause between two tries while too many samples wait.
_PAUSE_SECONDS = 0.05
#: The time after which a daemon has ended that another daemon follows.
_LEAVING_SECONDS = 0.2

Order = Union[Iterable[int], Iterable[StrPath]]


def announce(path: StrPath, order: Order, *, wait: bool = False, replace: bool = False) -> int:
    """Announces samples that will be read, in that order, after the samples announced before. Works on read-only mounts.

    Args:
        path: the mount point, or a path in it.
        order: sample numbers (a NumPy array, a tensor, a range, any iterable of integers), or
            paths of files: absolute, or relative to the mount point.
        wait: if the mount has no room for more announcements, wait for room. Otherwise the rest of the order is not
            announced: these samples would not be fetched soon anyway.
        replace: first drop all samples that any program has announced and that are not read yet. With an empty order, the
            call only drops them.

    Returns:
        The number of samples that were announced.

    Raises:
        Error: no dataset of ffrfs is mounted at the path, or the mount takes no announcements.
        TypeError: the order is not a list, nor anything else to iterate over.
        ValueError: an item of the order is not a sample. Samples before it may have been announced.
    """
    return _announce(path, order, wait, _ALL_ORDERS if replace else None)


def _announce(path: StrPath, order: Order, wait: bool, name: Optional[int]) -> int:
    """Announces an order. With a name, first drops the rest of the order that had this name."""
    _check_is_list(order)
    root = root_of(path)
    with _Prefetch(root, name) as prefetch:
        announced = 0
        for count, chunk, is_text in _chunks(root, order):
            try:
                if not _send(prefetch, chunk, wait):
                    break
            except OSError as error:
                raise ValueError(_wrong_item(root, chunk, is_text)) from error
            announced += count
        return announced


def warmup(path: StrPath, order: Optional[Order] = None, *, background: bool = False) -> None:
    """Has the mount fetch samples into the kernel's page cache (from a store: into the node's cache), and waits until it has.

    Args:
        path: the mount point, or a path in it.
        order: sample numbers or paths; without an order, all samples.
        background: do not wait.

    Raises:
        Error: samples cannot be read or do not match their checksums (code 4; 9 if all of these samples are encrypted), or
            no dataset of ffrfs is mounted at the path (code 5).
        TypeError: the order is not a list, nor anything else to iterate over.
        ValueError: an item of the order is not a sample. No sample is fetched.
    """
    root = root_of(path)
    arguments: list[StrPath] = ["--background"] if background else []
    text: Optional[bytes] = None
    if order is not None:
        _check_is_list(order)
        arguments += ["--list", "-"]
        text = b"".join(map(_lines_of(root), order))
    try:
        run("warmup", [*arguments, root], stdin=text)
    except Error as error:
        wrong = _WRONG_LINE.match(str(error))
        if wrong and error.code in _WRONG_LINE_CODES:
            raise ValueError(wrong[1].replace(f"{root}/./", f"{root}/")) from error
        raise


class Announced:
    """A sampler for a DataLoader that announces each epoch's order before the epoch begins.

    If the former epoch was not read to its end, the rest of its order is dropped.

    Wraps any sampler or batch sampler, also ``DistributedSampler``; ``set_epoch`` and all other calls reach that sampler::

        sampler = ffrfs.Announced(RandomSampler(data), "/mnt/ds")
        loader = DataLoader(data, 64, sampler=sampler, num_workers=8)

    Args:
        sampler: an iterable of indices, or of lists or arrays of indices, that ends: it is read to its end to get the order.
            (If a sampler has no end, announce parts of its order with :func:`announce`.)
        path: the mount point, or a path in it.
        files: the path of index i of the dataset, if i is not the number of the sample: a sequence of paths, or a
            function of i. For an ``ImageFolder`` give ``[path for path, _ in data.samples]``.
    """

    def __init__(
        self,
        sampler: Iterable[Any],
        path: StrPath,
        files: Union[Sequence[StrPath], Callable[[int], StrPath], None] = None,
    ) -> None:
        self.sampler = sampler
        self.path = path
        self._files = files

    def __iter__(self) -> Iterator[Any]:
        order = list(self.sampler)
        indices: Iterable[int] = chain.from_iterable(order) if order and _is_batch(order[0]) else order
        files = indices if self._files is None else map(self._file_of, map(int, indices))
        _announce(self.path, files, False, self._name())
        return iter(order)

    def _file_of(self, index: int) -> StrPath:
        """The path of index i of the dataset, from ``files``."""
        files = self._files
        assert files is not None
        if callable(files):
            return files(index)
        try:
            return files[index]
        except IndexError:
            raise IndexError(f"files has {len(files)} paths, and none for index {index} of the sampler") from None

    def _name(self) -> int:
        """The name of this sampler's orders: each process has another name."""
        process, name = self.__dict__.get("_named", (None, _ALL_ORDERS))
        if process != os.getpid():
            name = int.from_bytes(os.urandom(8), "little") | 1
            self._named = os.getpid(), name
        return int(name)

    def __getstate__(self) -> dict[str, Any]:
        # A copy makes another name, so that it does not drop this sampler's orders.
        return {key: value for key, value in self.__dict__.items() if key != "_named"}

    def __len__(self) -> int:
        if isinstance(self.sampler, Sized):
            return len(self.sampler)
        raise TypeError(f"{type(self.sampler).__name__} has no length")

    def __getattr__(self, name: str) -> Any:
        if name in ("sampler", "__setstate__"):  # a copy that is being unpickled has no attributes yet
            raise AttributeError(name)
        return getattr(self.sampler, name)


def _is_batch(item: Any) -> bool:
    """Whether an item is a batch: a list, a tuple, or an array or tensor with a dimension. Without one it is an index."""
    return isinstance(item, (list, tuple)) or bool(getattr(item, "ndim", 0))


def _check_is_list(order: Any) -> None:
    wrong = TypeError(f"a list of samples is needed, not {order!r}")
    if isinstance(order, (str, bytes, os.PathLike)):
        raise wrong
    try:
        iter(order)
    except TypeError:
        raise wrong from None


class _Prefetch:
    """The control file that takes an order. If another daemon follows the daemon that the file was opened at, the file is
    opened again, and the next daemon gets the rest of the order: samples that the former daemon had taken and not fetched are
    not announced again. It is an error if the mount is made anew for the next daemon (with io_uring)."""

    def __init__(self, root: Path, name: Optional[int]) -> None:
        self._root = root
        self._name = name
        self._descriptor: Optional[int] = None
        self._stale_since: Optional[float] = None

    def __enter__(self) -> _Prefetch:
        with control_errors(self._root):
            opened_anew(self._opened)
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def take(self, request: int, chunk: bytearray) -> None:
        """Gives a chunk of the order to the mount.

        Raises:
            OSError: the mount refuses the chunk.
        """
        opened_anew(lambda: self._take(request, chunk))

    def _take(self, request: int, chunk: bytearray) -> None:
        descriptor = self._opened()
        try:
            fcntl.ioctl(descriptor, request, chunk, True)
        except OSError as error:
            if error.errno == errno.ESTALE:
                self._close_if_stale_for_long()
            raise
        self._stale_since = None

    def _close_if_stale_for_long(self) -> None:
        """Waits until the former daemon has ended: it does not know files of the next one, whose order would be dropped."""
        now = time.monotonic()
        self._stale_since = self._stale_since or now
        if now - self._stale_since > _LEAVING_SECONDS:
            self._close()

    def _opened(self) -> int:
        if self._descriptor is None:
            with control_errors(self._root):
                flags = os.O_RDONLY | os.O_CLOEXEC
                self._descriptor = opened_anew(lambda: os.open(control_file(self._root, "prefetch"), flags))
            if self._name is not None:
                self._begin_order(self._descriptor, self._name)
            if self._name == _ALL_ORDERS:
                # At the next daemon, other processes may have announced before this one: their orders stay.
                self._name = None
        return self._descriptor

    def _begin_order(self, descriptor: int, name: int) -> None:
        try:
            fcntl.ioctl(descriptor, _BEGIN_ORDER, name.to_bytes(8, "little"))
        except OSError as error:
            # The daemon may be older than this package: then orders are not dropped.
            if error.errno == errno.ENOTTY and name != _ALL_ORDERS:
                return
            self._close()
            if error.errno == errno.ESTALE:
                raise
            raise Error(f"the mount does not drop announcements: {error.strerror}", 5) from error

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = self._stale_since = None


def _chunks(root: StrPath, order: Order) -> Iterator[tuple[int, bytearray, bool]]:
    """Parts of the order that each fit into a call: the number of samples, the bytes, and whether the bytes are text."""
    items = iter(order)
    try:
        first = next(items)
    except StopIteration:
        return
    items = chain([first], items)
    if isinstance(first, (str, bytes, os.PathLike)):
        for count, lines in _chunks_of_lines(map(_lines_of(root), items)):
            yield count, lines, True
        return
    while True:
        numbers = array("Q")
        try:
            for item in items:
                numbers.append(_number(item))
                if len(numbers) * numbers.itemsize >= _MOST_BYTES:
                    break
        except OverflowError as error:
            raise ValueError(f"{item!r} is not a sample's number") from error
        if not numbers:
            return
        if sys.byteorder == "big":
            numbers.byteswap()
        yield len(numbers), bytearray(numbers.tobytes()), False


def _chunks_of_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, bytearray]]:
    count, chunk = 0, bytearray()
    for line in lines:
        if len(line) > _MOST_BYTES:
            raise ValueError(f"{line[:100]!r} is too long for the path of a sample")
        if len(chunk) + len(line) > _MOST_BYTES:
            yield count, chunk
            count, chunk = 0, bytearray()
        count += 1
        chunk += line
    if chunk:
        yield count, chunk


def _number(item: Any) -> int:
    """The number of a sample: an integer of Python, NumPy or PyTorch, but no whole float and no truth value.

    Raises:
        ValueError: the item is not such an integer, or negative.
    """
    try:
        number = operator.index(item)
    except TypeError:
        number = -1
    if number < 0 or isinstance(item, bool):
        raise ValueError(f"{item!r} is not a sample's number")
    return number


def _lines_of(root: StrPath) -> Callable[[Any], bytes]:
    """A function that makes a sample's line in a list: its number, or its path below the mount point."""
    top = os.path.join(os.fsencode(root), b"")
    real: dict[bytes, bytes] = {}

    def line(item: Any) -> bytes:
        if not isinstance(item, (str, bytes, os.PathLike)):
            return b"%d\n" % _number(item)
        path = os.fsencode(item)
        if path.startswith(b"/") or b".." in path:
            path = os.path.normpath(path)
        if path.startswith(b"/"):
            if not path.startswith(top):
                # Perhaps a symbolic link leads to the mount.
                directory, name = os.path.split(path)
                if directory not in real:
                    real[directory] = os.path.realpath(directory)
                path = os.path.join(real[directory], name)
            path = os.path.relpath(path, top)
        if path == b".." or path.startswith(b"../"):
            raise ValueError(f"{item!r} does not lie in the mount {root}")
        if b"\n" in path or path.endswith(b"\r"):
            raise ValueError(f"{item!r}: a path with a newline cannot be announced; give the sample's number")
        # A line of digits alone would be a number.
        return b"./" + path + b"\n"

    return line


def _wrong_item(root: Path, chunk: bytearray, is_text: bool) -> str:
    """A message about the item of a chunk that the mount has refused: the mount's answer does not say which item it is."""
    if is_text:
        for line in bytes(chunk).split(b"\n"):
            if not line.startswith(b"./"):
                continue
            path = os.path.join(os.fsencode(root), line)
            try:
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    continue
                why = "is a directory, not a sample"
            except OSError as error:
                why = f"is not a sample of this mount: {error.strerror}"
            return f"{os.fsdecode(line[2:])!r} {why}"
    else:
        numbers = array("Q", bytes(chunk))
        if sys.byteorder == "big":
            numbers.byteswap()
        samples = json.loads(read_control(root, "info.json"))["samples"]
        for number in numbers:
            if number >= samples:
                return f"there is no sample {number}, there are {samples}"
    return "the order has a number or a path that is not a sample of this mount; the mount's log names it"


def _send(prefetch: _Prefetch, chunk: bytearray, wait: bool) -> bool:
    """Announces a chunk of the order. Returns False if the mount has no room for it.

    Raises:
        OSError: an item of the chunk is not a sample.
        Error: the mount takes no announcements.
    """
    request = _ANNOUNCE | len(chunk) << _SIZE_SHIFT
    while True:
        try:
            prefetch.take(request, chunk)
            return True
        except OSError as error:
            if error.errno == errno.ENOSPC:
                if not wait:
                    return False
                time.sleep(_PAUSE_SECONDS)
            elif error.errno in _NOT_A_SAMPLE:
                raise
            else:
                raise Error(f"the mount does not take announcements: {error.strerror}", 5) from error
