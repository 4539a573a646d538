"""What bench-mount stands on: data sets, caches, mounts."""

import array
import contextlib
import io
import os
import random
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from pathlib import Path

DROP_CACHES = "/proc/sys/vm/drop_caches"


class BenchError(Exception):
    """Something that ends the run with one line."""


def say(text):
    print(f"bench-mount: {text}", file=sys.stderr, flush=True)


# ---- data sets ----------------------------------------------------------------------------------------------------

def random_bytes(size):
    """Incompressible and the same in every run."""
    if size <= 1:  # millions of them, which nobody would compress
        return lambda index: bytes([index & 255])[:size]
    return lambda index: random.Random(index).randbytes(size)


def write_folder(path, count, sample):
    path.mkdir()
    for index in range(count):
        fd = os.open(path / f"{index:06}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, sample(index))
        os.close(fd)


def write_ffr(path, count, sample):
    """u32 crc | i64 n | u32 crcs[n] | i64 offsets[n] | data; the header comes last because it holds the crcs."""
    crcs, offsets, offset = array.array("I"), array.array("q"), 12 + 12 * count
    with open(path, "wb", buffering=1 << 20) as out:
        out.seek(offset)
        for index in range(count):
            data = sample(index)
            out.write(data)
            crcs.append(zlib.crc32(data))
            offsets.append(offset)
            offset += len(data)
        if sys.byteorder == "big":
            crcs.byteswap()
            offsets.byteswap()
        header = count.to_bytes(8, "little") + crcs.tobytes() + offsets.tobytes()
        out.seek(0)
        out.write(zlib.crc32(header).to_bytes(4, "little") + header)


def write_zip(path, count, sample):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as out:
        for index in range(count):
            info = zipfile.ZipInfo(f"{index:06}")
            info.external_attr = 0o100644 << 16
            out.writestr(info, sample(index))


def write_tar(path, count, sample):
    with tarfile.open(path, "w") as out:
        for index in range(count):
            data, info = sample(index), tarfile.TarInfo(f"{index:06}")
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))


WRITERS = {"files": write_folder, "ffr": write_ffr, "zip": write_zip, "tar": write_tar}


class Dataset:
    """`count` samples of `size` bytes; `get("ffr")` makes the container unless it is there already."""

    def __init__(self, work, label, count, size):
        self.work, self.label, self.count, self.size = work, label, count, size

    def get(self, kind):
        path = self.work / f"{self.label}-{self.size}x{self.count}.{kind}"
        if path.exists():
            return path
        # A header, a block's rest and an inode a sample are a fair guess of what comes on top of the data.
        need = self.count * (self.size + (4096 if kind == "files" and self.size else 600 if self.size > 1 else 16))
        free = shutil.disk_usage(self.work).free
        if need > free:
            raise BenchError(f"{path.name} needs about {need >> 20} MiB, {self.work} has {free >> 20} MiB free")
        say(f"making {path}")
        part = path.with_name(path.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.unlink(missing_ok=True)
        WRITERS[kind](part, self.count, random_bytes(self.size))
        os.sync()  # ext4 places blocks late: reads before that would find them dirty in memory
        part.rename(path)
        return path


# ---- caches -------------------------------------------------------------------------------------------------------

def warm(path):
    """Bring a file into the page cache."""
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        while file.readinto(buffer):
            pass


def drop_caches(what):
    os.sync()
    Path(DROP_CACHES).write_text(str(what))


# ---- mounts -------------------------------------------------------------------------------------------------------

def is_mounted(path):
    escaped = str(path).replace("\\", "\\134").replace(" ", "\\040")
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        return any(line.split(" ")[4] == escaped for line in table)


def daemons(mountpoint):
    """Processes that were started with this mount point as an argument."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.fsencode(mountpoint) in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(entry)
    return found


def unmount(mountpoint):
    """Unmount for certain: politely first, then lazily; then wait until the daemon is gone."""
    command = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
    for attempt in range(10):
        if not is_mounted(mountpoint):
            break
        lazy = ["-l" if os.geteuid() == 0 else "-z"] if attempt == 9 else []
        done = subprocess.run([*command, *lazy, str(mountpoint)], stderr=subprocess.DEVNULL)
        if done.returncode:
            time.sleep(0.2)
    deadline = time.monotonic() + 20
    while daemons(mountpoint) and time.monotonic() < deadline:
        time.sleep(0.01)


class Program:
    """A program that mounts an archive: `command ARCHIVE MOUNTPOINT`."""

    def __init__(self, name, command, kind, options=(), foreground=False):
        self.name, self.command, self.kind = name, command, kind
        self.options, self.foreground = list(options), foreground
        self.env = {**os.environ, "THREADS": "2"} if foreground else None

    @contextlib.contextmanager
    def mounted(self, archive, work):
        """Mount; gives the mount point and the seconds that mounting took."""
        point, log = work / "mnt", work / "mount.log"
        with open(log, "wb") as output:
            start = time.monotonic()
            child = subprocess.Popen([*self.command, str(archive), str(point), *self.options], env=self.env,
                                     stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
            try:
                yield point, self.wait(child, point, start, log)
            finally:
                if not is_mounted(point):
                    child.terminate()  # interrupted while it was mounting; does nothing to one that has ended
                unmount(point)
                if child.poll() is None:
                    child.terminate()
                    child.wait()

    def wait(self, child, point, start, log):
        """A program in the foreground is ready when the mount shows, another when it returns."""
        if self.foreground:
            while child.poll() is None and not is_mounted(point):
                time.sleep(0.001)
        else:
            child.wait()
        seconds = time.monotonic() - start
        if child.returncode or not is_mounted(point):
            tail = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise BenchError(f"{self.name} failed to mount (status {child.returncode}): {' '.join(tail)}")
        return seconds


def resident(mountpoint):
    """Resident memory in MB of the daemon: all, anonymous, of files; and what is not the mapped container."""
    best = {}
    for process in daemons(mountpoint):
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
        kib = {key: int(status.get(key, "0 kB").split()[0]) for key in ("VmRSS", "RssAnon", "RssFile")}
        mapped, in_container = 0, False
        for line in (process / "smaps").read_text(errors="replace").splitlines():
            if not line.split(" ", 1)[0].endswith(":"):
                in_container = line.endswith(".ffr")
            elif in_container and line.startswith("Rss:"):
                mapped += int(line.split()[1])
        if kib["VmRSS"] > best.get("VmRSS", -1):
            best = {**kib, "beside the mapped container": kib["VmRSS"] - mapped}
    if not best:
        raise BenchError("no process has the mount point among its arguments: its memory cannot be read")
    return {key: value * 1024 / 1e6 for key, value in best.items()}
