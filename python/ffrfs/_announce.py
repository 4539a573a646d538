"""Telling a mount which samples will be read next, so that they are there before they are asked for."""

from __future__ import annotations

import errno
import fcntl
import operator
import os
import sys
import time
from array import array
from itertools import chain
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, Sized, Union

from ._mounts import CONTROL, root_of
from ._program import Error, StrPath, run

#: ``_IOC(_IOC_WRITE, 0xf1, 1, size)`` without the size, and the most bytes that one call carries.
_ANNOUNCE, _SIZE_SHIFT, _MOST_BYTES = 1 << 30 | 0xF1 << 8 | 1, 16, 16_376
#: What the mount answers to something that is not a sample.
_NOT_A_SAMPLE = (errno.EINVAL, errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
#: Between two tries while too many samples wait.
_PAUSE_SECONDS = 0.05

Order = Union[Iterable[int], Iterable[StrPath]]


def announce(path: StrPath, order: Order, *, wait: bool = False) -> int:
    """Announces samples that will be read, in that order. Works on read-only mounts.

    Args:
        path: the mount point, or a path in it.
        order: sample numbers (a NumPy array, a tensor, a range, any iterable of integers), or
            paths of files: absolute, or relative to the mount point.
        wait: if the mount has no room for more announcements, wait until it has. Without it, announcing ends there:
            what comes later would not be fetched soon anyway.

    Returns:
        How many samples were announced.

    Raises:
        Error: no dataset of ffrfs is mounted there.
        ValueError: the order has something that is not a sample. Samples before it stay announced.
    """
    root = root_of(path)
    descriptor = os.open(root / CONTROL / "prefetch", os.O_RDONLY | os.O_CLOEXEC)
    try:
        announced = 0
        for count, chunk in _chunks(root, order):
            if not _send(descriptor, chunk, wait):
                break
            announced += count
        return announced
    finally:
        os.close(descriptor)


def warmup(path: StrPath, order: Optional[Order] = None, *, background: bool = False) -> None:
    """Has the mount fetch samples into the kernel's page cache, and waits for that.

    Args:
        path: the mount point, or a path in it.
        order: sample numbers or paths; without it all samples.
        background: do not wait.

    Raises:
        Error: samples cannot be read or do not match their checksums (code 4), or it is no mount (code 5).
    """
    root = root_of(path)
    arguments: list[StrPath] = ["--background"] if background else []
    text: Optional[bytes] = None
    if order is not None:
        arguments += ["--list", "-"]
        text = b"".join(_line(root, item) for item in order)
    run("warmup", [*arguments, root], stdin=text)


class Announced:
    """A sampler for a DataLoader that announces each epoch's order before it begins.

    Wraps any sampler or batch sampler, also ``DistributedSampler``; ``set_epoch`` and all else reaches that one::

        sampler = ffrfs.Announced(RandomSampler(data), "/mnt/ds")
        loader = DataLoader(data, 64, sampler=sampler, num_workers=8)

    Args:
        sampler: an iterable of indices, or of lists of indices.
        path: the mount point, or a path in it.
        files: where index i of the dataset lies, if i is not the number of the sample: a sequence of paths, or a
            function. For an ``ImageFolder`` that is ``[path for path, _ in data.samples]``.
    """

    def __init__(
        self,
        sampler: Iterable[Any],
        path: StrPath,
        files: Union[Sequence[StrPath], Callable[[int], StrPath], None] = None,
    ) -> None:
        self.sampler = sampler
        self.path = path
        self._file_of = files if files is None or callable(files) else files.__getitem__

    def __iter__(self) -> Iterator[Any]:
        order = list(self.sampler)
        indices: Iterable[int] = chain.from_iterable(order) if order and _is_batch(order[0]) else order
        announce(self.path, indices if self._file_of is None else map(self._file_of, map(int, indices)))
        return iter(order)

    def __len__(self) -> int:
        if isinstance(self.sampler, Sized):
            return len(self.sampler)
        raise TypeError(f"{type(self.sampler).__name__} has no length")

    def __getattr__(self, name: str) -> Any:
        if name in ("sampler", "__setstate__"):  # a copy that is being unpickled has nothing yet
            raise AttributeError(name)
        return getattr(self.sampler, name)


def _is_batch(item: Any) -> bool:
    return isinstance(item, (list, tuple))


def _chunks(root: StrPath, order: Order) -> Iterator[tuple[int, bytearray]]:
    """What fits into a call each, and how many samples that is."""
    items = iter(order)
    try:
        first = next(items)
    except StopIteration:
        return
    items = chain([first], items)
    if isinstance(first, (str, bytes, os.PathLike)):
        yield from _chunks_of_lines(_line(root, item) for item in items)
        return
    while True:
        numbers = array("Q")
        try:
            for item in items:
                numbers.append(_number(item))
                if len(numbers) * numbers.itemsize >= _MOST_BYTES:
                    break
        except (OverflowError, TypeError) as error:
            raise ValueError(f"{item!r} is not a sample's number") from error
        if not numbers:
            return
        if sys.byteorder == "big":
            numbers.byteswap()
        yield len(numbers), bytearray(numbers.tobytes())


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
    """An integer of Python, NumPy or PyTorch; never a float that happens to be whole."""
    return operator.index(item)


def _line(root: StrPath, item: Any) -> bytes:
    """A sample for a list: its number, or its path below the mount point."""
    if not isinstance(item, (str, bytes, os.PathLike)):
        return b"%d\n" % _number(item)
    path = os.fsencode(item)
    if path.startswith(b"/"):
        path = os.path.relpath(path, os.fsencode(root))
    if b"\n" in path:
        raise ValueError(f"{item!r}: a path with a newline cannot be announced; give the sample's number")
    # A line of digits alone is a number.
    return b"./" + path + b"\n"


def _send(descriptor: int, chunk: bytearray, wait: bool) -> bool:
    """False: there is no room."""
    request = _ANNOUNCE | len(chunk) << _SIZE_SHIFT
    while True:
        try:
            fcntl.ioctl(descriptor, request, chunk, True)
            return True
        except OSError as error:
            if error.errno == errno.ENOSPC:
                if not wait:
                    return False
                time.sleep(_PAUSE_SECONDS)
            elif error.errno in _NOT_A_SAMPLE:
                raise ValueError(
                    "the order has a number or a path that is not a sample of this mount; the mount's log names it"
                ) from error
            elif error.errno in (errno.ENOTTY, errno.ENOTCONN):
                raise Error(f"the mount does not take announcements: {error.strerror}", 5) from error
            else:
                raise
