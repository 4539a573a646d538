"""The folder that the checks are about, and the containers that are made of it."""

import hashlib
import os
import struct
import subprocess
import zlib
from pathlib import Path

import cv2
import h5py
import numpy
import pandas
from PIL import Image

CLASSES, IMAGES_EACH, FRAMES = ("ant", "bee", "cat"), 24, 40
OLDEST, CONTAINER_TIME = 1_600_000_000, 1_650_000_000


def make_folder(folder):
    """Images in classes, arrays, tables and a video, the same in every run but for the encoders' versions."""
    noise = numpy.random.default_rng(1)
    for name in ("arrays", "tables", "video", *(f"train/{name}" for name in CLASSES)):
        (folder / name).mkdir(parents=True)
    for name in CLASSES:
        for number in range(IMAGES_EACH):
            Image.fromarray(picture(noise)).save(folder / f"train/{name}/{number:03}.jpg", quality=90)
    # Larger than what is checked at once, and smaller.
    numpy.save(folder / "arrays/large.npy", noise.random((1500, 1000), dtype=numpy.float32))
    numpy.save(folder / "arrays/small.npy", noise.integers(0, 1000, (30, 40)))
    numpy.savez(folder / "arrays/several.npz", a=noise.random(1000), b=numpy.arange(77))
    table = pandas.DataFrame({"number": numpy.arange(20_000), "value": noise.random(20_000)})
    table.to_csv(folder / "tables/table.csv", index=False)
    table.to_parquet(folder / "tables/table.parquet")
    with h5py.File(folder / "tables/store.h5", "w") as store:
        store.create_dataset("images", data=noise.integers(0, 256, (200, 32, 32), dtype=numpy.uint8),
                             chunks=(10, 32, 32), compression="gzip")
        store.create_dataset("plain", data=noise.random((500, 100)))
    make_video(folder / "video/clip.avi", noise)
    for place, path in enumerate(files(folder)):
        os.utime(folder / path, (OLDEST + 60 * place,) * 2)


def picture(noise):
    """Smooth, so that JPEG has something to do, and with noise on top."""
    coarse = Image.fromarray(noise.integers(0, 256, (9, 12, 3), dtype=numpy.uint8)).resize((160, 120))
    return (numpy.asarray(coarse) // 2 + noise.integers(0, 64, (120, 160, 3))).astype(numpy.uint8)


def make_video(path, noise):
    video = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 25, (160, 120))
    assert video.isOpened(), "OpenCV cannot write a video"
    for _ in range(FRAMES):
        video.write(picture(noise))
    video.release()


def files(folder):
    """Relative paths in the order of `ffrfs pack`: names folder by folder."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(found, key=lambda path: [os.fsencode(part) for part in path.parts])


def contents(folder):
    """What a comparison of folders is about: each file's path and the digest of its bytes."""
    return {str(path): hashlib.sha256((folder / path).read_bytes()).hexdigest() for path in files(folder)}


# ---- containers ---------------------------------------------------------------------------------------------------

def pack(ffrfs, folder, out):
    subprocess.run([ffrfs, "pack", folder, out], check=True)
    return [out]


def pack_numbered(ffrfs, folder, out):
    names = out.with_suffix(".txt")
    names.write_text("".join(f"{path}\n" for path in files(folder)))
    subprocess.run([ffrfs, "pack", "--flat", folder, out], check=True)
    return [out, "--names", names]


def make_zip(_ffrfs, folder, out):
    """Images stored, the rest deflated, as zip does it for what is compressed already."""
    subprocess.run(["zip", "-q", "-r", "-n", ".jpg:.avi", out, "."], cwd=folder, check=True)
    return [out]


def make_tar(_ffrfs, folder, out):
    subprocess.run(["tar", "-C", folder, "-cf", out, "."], check=True)
    return [out]


MAKERS = {"packed": (pack, "ffr"), "names": (pack_numbered, "ffr"), "zip": (make_zip, "zip"), "tar": (make_tar, "tar")}


def make_container(ffrfs, source, folder, work):
    """Returns the arguments of `ffrfs mount` for a new container of `folder`; the first is the container."""
    maker, ending = MAKERS[source]
    arguments = maker(ffrfs, folder, Path(work, f"{source}.{ending}"))
    os.utime(arguments[0], (CONTAINER_TIME,) * 2)
    return arguments


def flip_byte(container, member):
    """Change one bit in the middle of the member with these bytes, which are stored as they are."""
    start = container.read_bytes().find(member)
    assert start >= 0, "the member does not lie in the container as it is"
    with open(container, "r+b") as file:
        file.seek(start + len(member) // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def write_ffrecord(path, samples):
    """As the package writes it: u32 crc | i64 n | u32 crcs[n] | i64 offsets[n] | data."""
    offsets, at = [], 12 + 12 * len(samples)
    for sample in samples:
        offsets.append(at)
        at += len(sample)
    index = struct.pack(f"<q{len(samples)}I{len(samples)}q", len(samples), *map(zlib.crc32, samples), *offsets)
    path.write_bytes(struct.pack("<I", zlib.crc32(index)) + index + b"".join(samples))
