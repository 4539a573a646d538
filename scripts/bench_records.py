"""Containers of records for bench-formats: their writers, and readers in Python that need no mount."""

import json
import random
import struct
import time
from multiprocessing import get_context

from bench_data import WRITERS, BenchError

RECORDIO_MAGIC = 0xced7230a
# The suffix of a sample's directory or name in a mount; the value of the option `view` that shows plain bytes.
KINDS = {"tfrecord": ("", "raw"), "rec": ("/data.bin", ""), "mds": ("/data.bin", ""), "mdb": (".bin", ""),
         "safetensors": ("", "raw")}


def crc32c():
    try:
        import crc32c as package
    except ImportError:
        raise BenchError("TFRecord needs crc32c: pip install crc32c") from None
    return lambda data: (((crc := package.crc32c(data)) >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def write_tfrecord(path, count, sample):
    masked = crc32c()
    with open(path, "wb", buffering=1 << 20) as out:
        for index in range(count):
            data = sample(index)
            length = struct.pack("<Q", len(data))
            out.write(length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data)))


def write_rec(path, count, sample):
    """Image records with one label, as MXNet packs them."""
    with open(path, "wb", buffering=1 << 20) as out:
        for index in range(count):
            data = struct.pack("<IfQQ", 0, index % 1000, index, 0) + sample(index)
            out.write(struct.pack("<II", RECORDIO_MAGIC, len(data)) + data + bytes(-len(data) % 4))


def write_mds(path, count, sample):
    """One shard with a column of bytes."""
    columns = json.dumps({"column_encodings": ["bytes"], "column_names": ["data"], "column_sizes": [None],
                          "compression": None, "format": "mds", "hashes": [], "size_limit": None, "version": 2}).encode()
    offsets = [8 + 4 * count + len(columns)]
    with open(path, "wb", buffering=1 << 20) as out:
        out.seek(offsets[0])
        for index in range(count):
            data = sample(index)
            out.write(struct.pack("<I", len(data)) + data)
            offsets.append(offsets[-1] + 4 + len(data))
        if offsets[-1] >= 1 << 32:
            raise BenchError("a shard of MDS has at most 4 GiB")
        out.seek(0)
        out.write(struct.pack(f"<I{count + 1}I", count, *offsets) + columns)


def lmdb():
    try:
        import lmdb as package
    except ImportError:
        raise BenchError("LMDB needs its package: pip install lmdb") from None
    return package


def write_mdb(path, count, sample):
    with lmdb().open(str(path), map_size=1 << 40, subdir=False, lock=False) as database:
        for start in range(0, count, 1000):
            with database.begin(write=True) as transaction:
                for index in range(start, min(start + 1000, count)):
                    transaction.put(b"%06d" % index, sample(index), append=True)


def write_safetensors(path, count, sample):
    size = len(sample(0))
    tensors = {f"{index:06}": {"dtype": "U8", "shape": [size], "data_offsets": [index * size, (index + 1) * size]}
               for index in range(count)}
    header = json.dumps(tensors).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb", buffering=1 << 20) as out:
        out.write(struct.pack("<Q", len(header)) + header)
        for index in range(count):
            out.write(sample(index))


def read_rec(path):
    """Reads all records in order, as MXNet's `recordio.py` unpacks them; gives the number of their bytes."""
    total = 0
    with open(path, "rb") as file:
        while head := file.read(8):
            magic, length = struct.unpack("<II", head)
            assert magic == RECORDIO_MAGIC
            data = file.read(length + -length % 4)[:length]
            struct.unpack("<IfQQ", data[:24])
            total += len(data[24:])
    return total


def read_mdb(path):
    total = 0
    with lmdb().open(str(path), readonly=True, lock=False, subdir=False) as database, database.begin() as transaction:
        for _, value in transaction.cursor():
            total += len(value)
    return total


# ---- HDF5 ---------------------------------------------------------------------------------------------------------

# By the kilobytes of a row: its shape, and the number of rows in a chunk.
H5_ROWS = {3: ((32, 32, 3), 16), 110: ((192, 192, 3), 4)}
H5_FILTERS = {"deflate": {"compression": "gzip", "compression_opts": 4}, "lzf": {"compression": "lzf"}}


def h5py():
    try:
        import h5py as package
    except ImportError:
        raise BenchError("HDF5 needs its package: pip install h5py") from None
    return package


def write_h5(path, rows, kilobytes, filters):
    """Images, several in a chunk. A filter halves the chunks, as it does with photographs that are not JPEG."""
    import numpy
    shape, in_chunk = H5_ROWS[kilobytes]
    noise = numpy.random.default_rng(1)
    with h5py().File(path, "w") as file:
        values = file.create_dataset("rows", (rows, *shape), "u1", chunks=(in_chunk, *shape), **H5_FILTERS[filters])
        for start in range(0, rows, 256):
            count = min(256, rows - start)
            steps = noise.integers(0, 64, (count, *shape), dtype="u1")
            # LZF finds only bytes that are repeated exactly.
            steps[:, ::2] = numpy.arange(shape[1], dtype="u1")[:, None]
            values[start:start + count] = steps


def read_rows_by_h5py(path, rows):
    with h5py().File(path, "r") as file:
        values = file["rows"]
        return sum(values[row].nbytes for row in rows)


def read_rows_by_mount(folder, rows):
    import numpy
    return sum(numpy.load(f"{folder}/rows/{row:06}.npy").nbytes for row in rows)


def read_rows_plainly(folder, rows):
    total = 0
    for row in rows:
        with open(f"{folder}/rows/{row:06}.npy", "rb", buffering=0) as file:
            total += len(file.readall())
    return total


def read_by_workers(read, place, count, seed, workers=2):
    """Seconds that worker processes take to read all rows of an HDF5 file in random order, each its share."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    with get_context("fork").Pool(workers) as pool:
        pool.starmap(read, [(place, order[:1])] * workers)  # before the time is taken: a worker imports its package
        start = time.monotonic()
        pool.starmap(read, [(place, order[worker::workers]) for worker in range(workers)], chunksize=1)
        return time.monotonic() - start


# ---- Parquet ------------------------------------------------------------------------------------------------------

def parquet():
    try:
        import pyarrow.parquet as package
    except ImportError:
        raise BenchError("Parquet needs its package: pip install pyarrow") from None
    return package


def write_parquet(path, count, sample):
    """One column of bytes in snappy, as `datasets` writes it: a page index, row groups of 64 MiB, pages of about 1 MiB."""
    import pyarrow
    package, schema, size = parquet(), pyarrow.schema([("data", pyarrow.binary())]), len(sample(0))
    rows = max(1, (64 << 20) // size)
    with package.ParquetWriter(path, schema, compression="snappy", use_dictionary=False, write_page_index=True,
                               write_batch_size=max(1, (1 << 20) // size)) as out:
        for start in range(0, count, rows):
            values = [sample(index) for index in range(start, min(start + rows, count))]
            out.write_table(pyarrow.table([pyarrow.array(values, pyarrow.binary())], schema=schema), row_group_size=rows)


def read_parquet(path, batch_rows):
    """Reads all values in order as Python's bytes, a batch of rows at a time; gives the number of their bytes."""
    total = 0
    for batch in parquet().ParquetFile(path).iter_batches(batch_size=batch_rows, columns=["data"]):
        total += sum(map(len, batch.column(0).to_pylist()))
    return total


def index_beside(path):
    """The index that a mount keeps beside a container."""
    return path.with_name(path.name + ".ffrfs-index")


WRITERS.update({"tfrecord": write_tfrecord, "rec": write_rec, "mds": write_mds, "mdb": write_mdb,
                "safetensors": write_safetensors, "parquet": write_parquet})
