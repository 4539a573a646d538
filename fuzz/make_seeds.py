#!/usr/bin/env python3
"""Writes small containers into fuzz/corpus/, as the first inputs of the fuzz targets: random bytes alone do not
get past the first headers of zip, Syrah and FFCV. scripts/fuzz calls this script."""
import bz2
import collections
import gzip
import io
import json
import lzma
import pickle
import shutil
import stat
import struct
import subprocess
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
FIXTURES = Path(__file__).parent.parent / "tests/fixtures"


def write(target, name, data, modes, mode_is_last=False):
    """Writes a seed for each mode byte, which chooses the options of the target."""
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    for mode in modes:
        whole = data + bytes([mode]) if mode_is_last else bytes([mode]) + data
        (folder / f"seed-{name}-{mode}").write_bytes(whole)


# ---- zip -------------------------------------------------------------------------------------------


class Pipe(io.RawIOBase):
    """An output without seek: members get data descriptors."""

    def __init__(self):
        self.data = b""

    def writable(self):
        return True

    def write(self, data):
        self.data += bytes(data)
        return len(data)


def archive(fill):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        fill(file)
    return out.getvalue()


def members(file):
    file.writestr("a/stored", b"x" * 50)
    for method, name in (8, "deflated"), (12, "bzip2"), (14, "lzma"):
        file.writestr(zipfile.ZipInfo(name), b"hello hello hello " * 9, method)
    link = zipfile.ZipInfo("link")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    file.writestr(link, "a/stored")
    file.writestr(zipfile.ZipInfo("folder/"), b"")
    file.writestr("\u00fc.txt", b"utf-8")


def zip64(file):
    with file.open("large", "w", force_zip64=True) as member:
        member.write(b"zip64")


def encrypted(program, *options):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "f").write_text("secret " * 20)
        try:
            subprocess.run([program, *options, "x.zip", "f"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        except FileNotFoundError:
            return None
        return (Path(folder) / "x.zip").read_bytes()


def zips():
    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", 8) as file:
        file.writestr("streamed", b"data descriptor" * 3)
    seeds = {
        "members": archive(members),
        "streamed": pipe.data,
        "zip64": archive(zip64),
        "sfx": b"#!/bin/sh\n" * 5 + archive(zip64),
        "zipcrypto": encrypted("zip", "-q", "-P", "password"),
        "aes": encrypted("7zz", "a", "-tzip", "-ppassword", "-mem=AES256"),
    }
    for name, data in seeds.items():
        if data is not None:
            write("zip", name, data, [0, 1, 2, 12], mode_is_last=True)


# ---- Syrah -----------------------------------------------------------------------------------------


def bson(document):
    out = b""
    for key, value in document.items():
        name = key.encode() + b"\0"
        if isinstance(value, dict):
            out += b"\x03" + name + bson(value)
        elif isinstance(value, bytes):
            out += b"\x05" + name + struct.pack("<i", len(value)) + b"\0" + value
        else:
            out += b"\x02" + name + struct.pack("<i", len(value) + 1) + value.encode() + b"\0"
    return struct.pack("<i", len(out) + 5) + out + b"\0"


def syrah(keys, items):
    data, document = b"", {}
    for key, (dtype, size) in keys.items():
        offsets = []
        for _ in range(items):
            offsets.append(22 + len(data))
            data += bytes(range(size))
        numbers = struct.Struct(f"<{items}q")
        document[key] = {
            "offset": numbers.pack(*offsets),
            "size": numbers.pack(*[size] * items),
            "dtype": dtype,
        }
    metadata = bson(document)
    return b"GS\0\0\2\0" + struct.pack("<qq", 22 + len(data), len(metadata)) + data + metadata


def syrahs():
    for name, keys in {
        "numbers": {"f": ("float32", 8), "l": ("int64", 8)},
        "text": {"t": ("str", 5)},
        "odd": {"x": ("weird", 7), "b": ("bool", 3)},
    }.items():
        write("syrah", name, syrah(keys, 3), [0, 1, 2, 4])


# ---- FFCV ------------------------------------------------------------------------------------------

PAGE = 64


def field(kind, name, arguments=b""):
    return bytes([kind]) + name.ljust(16, b"\0") + arguments.ljust(1024, b"\0")


def array_arguments():
    dtype = b'[["", "<i2"]]'
    return struct.pack("<Q", 2).ljust(256, b"\0") + struct.pack("<Q", len(dtype)) + dtype


def ffcv(fields, stride, records, values):
    """A file. `records`: functions of the first page's offset; `values`: one for each page, the sample's number and bytes."""
    end = 24 + sum(map(len, fields)) + stride * len(records)
    first = -(-end // PAGE) * PAGE
    pages = b"".join(value.ljust(PAGE, b"\0") for _, value in values)
    out = struct.pack("<HHIQQ", 2, len(fields), PAGE, len(records), first + len(pages))
    out += b"".join(fields) + b"".join(record(first).ljust(stride, b"\0") for record in records)
    out = out.ljust(first, b"\0") + pages
    for number, (sample, value) in enumerate(values):
        out += struct.pack("<QQQ", sample, first + number * PAGE, len(value))
    return out


def ffcvs():
    def raw_image(number):
        return lambda at: struct.pack("<BHHQ", 1, 2, 2, at + number * PAGE).ljust(16, b"\0") + struct.pack("<q", 7)

    seeds = {
        "raw-int": ffcv([field(2, b"image"), field(1, b"label")], 24, [raw_image(0), raw_image(1)],
                        [(0, bytes(range(12))), (1, bytes(12))]),
        "bytes-json": ffcv([field(3, b"b"), field(5, b"j")], 32, [lambda at: struct.pack("<QQQQ", at, 5, at + PAGE, 3)],
                           [(0, b"hello"), (0, b"{}\0")]),
        "array-float": ffcv([field(4, b"a", array_arguments()), field(0, b"f")], 16,
                            [lambda at: struct.pack("<Qd", at, 1.5)], [(0, b"abcd")]),
        "jpeg": ffcv([field(2, b"jpg")], 13, [lambda at: struct.pack("<BHHQ", 0, 2, 2, at)],
                     [(0, b"\xff\xd8\xff\xe0xx")]),
    }
    for name, data in seeds.items():
        write("ffcv", name, data, [0, 1, 2])


# ---- safetensors -----------------------------------------------------------------------------------


def safetensors():
    def entry(dtype, shape, start, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}

    seeds = {
        "arrays": {"a": entry("F32", [2, 3], 0, 24), "b/c": entry("BF16", [2], 24, 28), "s": entry("I64", [], 28, 36)},
        "metadata": {"__metadata__": {"format": "pt"}, "x": entry("BOOL", [0, 4], 0, 0), "y": entry("F4", [2], 0, 1)},
    }
    for name, header in seeds.items():
        text = json.dumps(header).encode()
        write("safetensors", name, struct.pack("<Q", len(text)) + text + bytes(36 if name == "arrays" else 1), [0, 2, 6])


# ---- LMDB ------------------------------------------------------------------------------------------


def databases():
    """The project's fixtures, and a database that the package lmdb writes, if it is installed."""
    seeds = {"several": (FIXTURES / "data.mdb").read_bytes(), "empty": (FIXTURES / "empty.mdb").read_bytes()}
    with tempfile.TemporaryDirectory() as folder:
        try:
            import lmdb
        except ImportError:
            folder = None
        if folder:
            with lmdb.open(folder, map_size=1 << 20) as env, env.begin(write=True) as txn:
                txn.put(b"a", b"[1]")
                txn.put(b"long", bytes(5000))
            seeds["small"] = (Path(folder) / "data.mdb").read_bytes()
    for name, data in seeds.items():
        write("lmdb", name, data, [0, 2, 6])


def parquets():
    for path in sorted(FIXTURES.glob("*.parquet")):
        write("parquet", path.stem, path.read_bytes(), [0, 1, 2])


# ---- records ---------------------------------------------------------------------------------------


def message(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


def example(features):
    def entry(key, kind, body):
        return message(1, message(1, key) + message(2, message(kind, body)))
    return message(1, b"".join(entry(*feature) for feature in features))


def records():
    plain = example([(b"image", 1, message(1, b"\xff\xd8\xff\xe0")), (b"label", 3, message(1, b"\x05"))])
    nested = example([(b"a/b", 1, message(1, b"x") + message(1, b"[]")), (b"f", 2, message(1, bytes(8))),
                      (b"g", 2, b"\x0d" + bytes(4)), (b"i", 3, b"\x08\xff\x01")])
    steps = message(1, message(1, b"s") + message(2, message(1, message(2, message(1, bytes(4))))))
    sequence = plain + message(2, steps)
    for name, parts in {"alike": [plain, plain], "mixed": [plain, nested, b"raw"], "sequence": [sequence]}.items():
        write("tfrecord", name, b"".join(bytes([len(part)]) + part for part in parts), [2, 3, 6])
    header = struct.pack("<IfQQ", 0, 1.5, 7, 0)
    labels = struct.pack("<IfQQff", 2, 0, 7, 0, 1, 2)
    for name, parts in {"image": [(0, header + b"\xff\xd8\xffxx"), (0, labels + b"text")],
                        "parts": [(1, header + b"abcd"), (2, b"efgh"), (3, b"ij")]}.items():
        write("recordio", name, b"".join(bytes([kind << 6 | len(part)]) + part for kind, part in parts), [2, 3, 10])
    columns = b'{"column_encodings":["ndarray","int","str"],"column_names":["a","i","s"],"column_sizes":[null,8,null]}'
    sample = struct.pack("<II", 4, 2) + b"\x08\x08\x01\x01" + bytes(8) + b"hi"
    offsets = [16 + len(columns) + number * len(sample) for number in range(3)]
    write("mds", "samples", struct.pack("<4I", 2, *offsets) + columns + sample * 2, [0, 1, 8])


# ---- HDF5 ------------------------------------------------------------------------------------------


def hdf5_values(h5py, numpy):
    """Functions that each fill a file, with a few objects, so that the file stays small."""
    grid = numpy.arange(60, dtype="<i2").reshape(12, 5)
    filters = {"deflate": {"compression": "gzip"}, "lzf": {"compression": "lzf"}, "sum": {"fletcher32": True},
               "shuffle": {"compression": "lzf", "shuffle": True, "fletcher32": True}, "none": {},
               "scale": {"scaleoffset": 3}}
    indexes = {"fixed": {}, "grows": {"maxshape": (None, 5)}, "tree": {"maxshape": (None, None)},
               "one": {"chunks": (12, 5)}}

    def links(file):
        file["a/b"] = grid[0]
        file["hard"], file["a/up"] = file["a"], file["/"]
        file["soft"], file["loop"] = h5py.SoftLink("/a/b"), h5py.SoftLink("loop")
        file["out"] = h5py.ExternalLink("other.h5", "/x")

    def types(file):
        for name in ("|u1", ">f8", "<c8", "|b1", "|V3"):
            file[name.strip("|<>")] = numpy.zeros(2, name)
        file["record"] = numpy.zeros(2, [("x", "<f4"), ("y", ">i2", (2,)), ("s", "S3")])
        file.create_dataset("enum", data=[0, 1], dtype=h5py.enum_dtype({"A": 0, "B": 1}))
        file["scalar"], file["none"] = 1.5, h5py.Empty("f")

    def strings(file):
        file["one"], file["many"] = "text", ["a", "bc"]
        file["fixed"] = numpy.array([b"x", b"yz"], "S4")
        file.create_dataset("chunks", data=numpy.array([b"x", b"yz"] * 4, "S4"), chunks=(3,), compression="lzf")
        ragged = file.create_dataset("ragged", (3,), h5py.vlen_dtype("u1"))
        ragged[0], ragged[1] = numpy.frombuffer(b"\xff\xd8\xff\xe0", "u1"), [1, 2]
        file.create_dataset("numbers", (2,), h5py.vlen_dtype("<f4"))[0] = [1.5]

    def compact(file):
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        create.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((4,))
        h5py.h5d.create(file.id, b"compact", h5py.h5t.STD_I32BE, space, create).write(space, space, numpy.ones(4, "i4"))
        file["contiguous"] = grid

    def sparse(file):
        values = file.create_dataset("sparse", (40, 5), "<f4", chunks=(3, 2), maxshape=(None, 5), fillvalue=2.5)
        values[7], values[30] = 1, 2

    def attributes(file):
        for number in range(12):
            file.attrs[f"attribute {number}"] = number
            file[f"group/name {number}"] = number

    fills = {"links": links, "types": types, "strings": strings, "compact": compact, "sparse": sparse,
             "attributes": attributes}
    for filter, index in [(f, i) for f in filters for i in indexes if f in ("deflate", "none") or i == "grows"]:
        chunks = {"chunks": (5, 3), **filters[filter], **indexes[index]}
        fills[f"{filter}-{index}"] = lambda file, c=chunks: file.create_dataset("rows", data=grid, **c)
    # 1300 chunks make indexes with pages and trees with levels.
    for name, most in ("fixed", (1300,)), ("grows", (None,)):
        fills[f"many-{name}"] = lambda file, m=most: file.create_dataset(
            "many", data=numpy.arange(1300, dtype="u1"), chunks=(1,), maxshape=m)
    return fills


def hdf5s():
    """The fixtures have each kind of structure, whether h5py is installed or not; large ones, which are slow, are left out."""
    for path in sorted([*FIXTURES.glob("*.h5"), *FIXTURES.glob("*.h5.zz")]):
        data = path.read_bytes()
        data = zlib.decompress(data) if path.suffix == ".zz" else data
        if len(data) < 64 << 10:
            write("hdf5", path.name.partition(".")[0], data, [0, 4, 7])
    try:
        import h5py
        import numpy
    except ImportError:
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, fill in hdf5_values(h5py, numpy).items():
            for number, libver in enumerate(("earliest", ("earliest", "v108"), ("v108", "v110"), "latest")):
                path = Path(folder) / f"{name}-{number}.h5"
                with h5py.File(path, "w", libver=libver, userblock_size=512 if name == "compact" else 0) as file:
                    fill(file)
                write("hdf5", path.stem, path.read_bytes(), [0, 4, 7] if number != 1 else [4])


# ---- pickled samples -------------------------------------------------------------------------------


def pickles():
    values = {"tuple": (b"\xff\xd8\xff\xe0", 7, "text"), "dict": {"a": [1.5, None], "b": {"c": b"\x80"}, 3: True}}
    try:
        import numpy

        values["arrays"] = [numpy.arange(6, dtype="<f4").reshape(2, 3), numpy.int64(3), numpy.zeros((2, 2), order="F")]
    except ImportError:
        pass
    folder = CORPUS / "pickled"
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        for protocol in range(2, 6):
            (folder / f"seed-{name}-{protocol}").write_bytes(pickle.dumps(value, protocol))
    trees = {"tree": {"a": 0, "b": {"c": 1, "\u00fc": 2}}, "ordered": collections.OrderedDict(x=0, y={"z": 1})}
    for name, tree in trees.items():
        for protocol in range(6):
            write("pickle", f"{name}-{protocol}", pickle.dumps(tree, protocol), [8, 60], mode_is_last=True)


# ---- tar, streams, FFRecord, sidecars, announcements ------------------------------------------------


def tar(kind, fill):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as file:
        fill(file)
    return out.getvalue().rstrip(b"\0") + bytes(1024)


def tars():
    def add(file, name, data=b"", **fields):
        info = tarfile.TarInfo(name)
        info.size = len(data)
        for field, value in fields.items():
            setattr(info, field, value)
        file.addfile(info, io.BytesIO(data))

    def members(file):
        add(file, "a/b.jpg", b"\xff\xd8\xff\xe0" * 9)
        add(file, "n" * 120 + ".txt", b"long")
        add(file, "link", type=tarfile.SYMTYPE, linkname="a/b.jpg")
        add(file, "hard", type=tarfile.LNKTYPE, linkname="a/b.jpg")
        add(file, "\u00fc", b"umlaut", mtime=1.5)
        add(file, "folder", type=tarfile.DIRTYPE)

    def sparse(file):
        pieces = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "holes",
                  "GNU.sparse.realsize": "4000"}
        add(file, "GNUSparseFile.0/holes", b"2\n0\n3\n3000\n3\n".ljust(512, b"\0") + b"abcdef", pax_headers=pieces)
        old = {"GNU.sparse.map": "0,3,3000,3", "GNU.sparse.size": "4000", "GNU.sparse.numblocks": "2"}
        add(file, "old", b"abcdef", pax_headers=old)

    kinds = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
    for name, kind in kinds.items():
        fill = members if name != "ustar" else lambda file: add(file, "d" * 60 + "/" + "f" * 60, b"split name")
        write("tar", name, tar(kind, fill), range(8))
    write("tar", "sparse", tar(tarfile.PAX_FORMAT, sparse), range(4))


def streams():
    """Streams behind three bytes: the number of the codec, the size of a piece of input, and the room for output."""
    text = b"hello hello hello " * 30 + bytes(range(256))
    raw = zlib.compressobj(6, zlib.DEFLATED, -15)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0}]
    coded = {0: raw.compress(text) + raw.flush(), 2: bz2.compress(text) + bz2.compress(b"two"),
             3: lzma.compress(text, lzma.FORMAT_ALONE), 4: lzma.compress(text, filters=filters) * 2,
             6: gzip.compress(text) + gzip.compress(b"two"), 7: zlib.compress(text)}
    if shutil.which("zstd"):
        run = subprocess.run(["zstd", "-q", "-c"], input=text, capture_output=True, check=True)
        coded[5] = run.stdout * 2
    folder = CORPUS / "codec"
    folder.mkdir(parents=True, exist_ok=True)
    for codec, data in coded.items():
        for piece, room in (0, 0), (255, 255), (13, 2):
            (folder / f"seed-{codec}-{piece}").write_bytes(bytes([codec, piece, room]) + data)


def ffrecords():
    for name in "packed_folder", "pickled", "truncated_index", "empty":
        write("container", name, (FIXTURES / f"{name}.ffr").read_bytes(), range(4))


def sidecars():
    """A sidecar with one section, and one with two, the second without rows. The target corrects the first's checksums."""
    head = lambda rows: b"FFRFSUM1" + bytes(8) + bytes([rows, 1]) + bytes(54)
    write("sidecar", "rows", head(3) + bytes(range(12)), range(2))
    write("sidecar", "two", head(1) + b"abcd" + head(0), range(2))


def announcements():
    folder = CORPUS / "announce"
    folder.mkdir(parents=True, exist_ok=True)
    lines = {"numbers": b"0\n7\n9\n", "paths": b"000003\n000001\n", "binary": struct.pack("<4Q", 1, 5, 0, 9),
             "range": b"0-9\n", "wrong": b"12\n\xff\n-1\n"}
    for name, data in lines.items():
        for first, step in (0, 0), (3, 1), (8, 200):
            (folder / f"seed-{name}-{first}").write_bytes(bytes([first, step]) + data)


if __name__ == "__main__":
    pickles()
    zips()
    syrahs()
    ffcvs()
    safetensors()
    databases()
    parquets()
    records()
    hdf5s()
    tars()
    streams()
    ffrecords()
    sidecars()
    announcements()
    print(f"seeds are in {CORPUS}")
