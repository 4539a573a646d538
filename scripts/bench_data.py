"""The data sets of the bench-… and soak-… scripts, and the writers of their containers."""

import array
import io
import os
import random
import shutil
import struct
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path

WORDS = [f"{word:x} " for word in random.Random(1).choices(range(1 << 20), k=4096)]


class BenchError(Exception):
    """An error that ends the run with a message of one line."""


def say(text):
    print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr, flush=True)


def random_bytes(size):
    """A function of a sample's number: incompressible bytes, the same in every run."""
    if size <= 1:  # for millions of samples, too small to compress
        return lambda index: bytes([index & 255])[:size]
    return lambda index: random.Random(index).randbytes(size)


def text(size):
    """A function of a sample's number: compressible text, the same in every run."""
    def sample(index):
        rng = random.Random(index)
        return "".join(rng.choices(WORDS, k=size // 4)).encode()[:size]
    return sample


def write_folder(path, count, sample):
    path.mkdir()
    for index in range(count):
        fd = os.open(path / f"{index:06}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, sample(index))
        os.close(fd)


def write_ffr(path, count, sample):
    """u32 crc | i64 n | u32 crcs[n] | i64 offsets[n] | data; the header is written last because it holds the crcs."""
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


def write_deflated(path, count, sample):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out:
        for index in range(count):
            info = zipfile.ZipInfo(f"{index:06}")
            info.external_attr, info.compress_type = 0o100644 << 16, zipfile.ZIP_DEFLATED
            out.writestr(info, sample(index))


def write_tar_gz(path, count, sample):
    """An archive as `tar -cz` makes it."""
    with tarfile.open(path, "w:gz", compresslevel=6) as out:
        for index in range(count):
            data, info = sample(index), tarfile.TarInfo(f"{index:06}")
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))


def bson(*fields):
    """A document of (name, value): bytes as binary, text as text, lists of fields as documents."""
    body = b""
    for name, value in fields:
        key = name.encode() + b"\0"
        if isinstance(value, bytes):
            body += b"\x05" + key + struct.pack("<iB", len(value), 0) + value
        elif isinstance(value, str):
            body += b"\x02" + key + struct.pack("<i", len(value) + 1) + value.encode() + b"\0"
        else:
            body += b"\x03" + key + bson(*value)
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def write_syr(path, count, sample):
    offsets, sizes, offset = array.array("q"), array.array("q"), 22
    with open(path, "wb", buffering=1 << 20) as out:
        out.seek(offset)
        for index in range(count):
            data = sample(index)
            out.write(data)
            offsets.append(offset)
            sizes.append(len(data))
            offset += len(data)
        fields = ("offset", offsets.tobytes()), ("size", sizes.tobytes()), ("dtype", "uint8")
        metadata = bson(("data", fields))
        out.write(metadata)
        out.seek(0)
        out.write(b"GS" + bytes([0, 0, 2, 0]) + struct.pack("<qq", offset, len(metadata)))


WRITERS = {"files": write_folder, "ffr": write_ffr, "zip": write_zip, "tar": write_tar,
           "tar.gz": write_tar_gz, "deflated.zip": write_deflated, "syr": write_syr}


class Dataset:
    """`count` samples of `size` bytes; `get("ffr")` makes the container unless it is there already."""

    def __init__(self, work, label, count, size, sample=None):
        self.work, self.label, self.count, self.size = work, label, count, size
        self.sample = sample or random_bytes(size)

    def get(self, kind):
        path = self.work / f"{self.label}-{self.size}x{self.count}.{kind}"
        if path.exists():
            return path
        # For each sample a header, the rest of a block and an inode: a fair guess of the bytes besides the data.
        need = self.count * (self.size + (4096 if kind in ("files", "erofs") and self.size else 600 if self.size > 1 else 16))
        free = shutil.disk_usage(self.work).free
        if need > free:
            raise BenchError(f"{path.name} needs about {need >> 20} MiB, {self.work} has {free >> 20} MiB free")
        say(f"making {path}")
        part = path.with_name(path.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.unlink(missing_ok=True)
        self.write(kind, part)
        os.sync()  # ext4 places blocks late: until then, reads would find dirty pages in memory
        part.rename(path)
        return path

    def write(self, kind, path):
        WRITERS[kind](path, self.count, self.sample)
