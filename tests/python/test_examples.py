"""The examples in Python of docs/formats.md run as they stand there, but for the place of the mount."""

import io
import json
import pickle
import re
import shlex
import struct
from pathlib import Path

import numpy
import pytest
from conftest import mount
from PIL import Image
from samples import write_ffrecord

PAGE = Path(__file__).parents[2] / "docs/formats.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
RECORDS = 130  # the examples look at number 123


def jpeg():
    out = io.BytesIO()
    Image.new("RGB", (8, 9), (1, 2, 3)).save(out, "JPEG")
    return out.getvalue()


def pickles(path):
    write_ffrecord(path, [pickle.dumps((jpeg(), number, numpy.arange(3)), 4) for number in range(RECORDS)])


def tfrecord(path):
    writer = pytest.importorskip("tfrecord.writer").TFRecordWriter(str(path))
    for number in range(RECORDS):
        writer.write({"image/encoded": (jpeg(), "byte"), "image/class/label": (number % 3, "int")})
    writer.close()


def recordio(path):
    data = struct.pack("<IfQQ", 0, 7, 0, 0) + jpeg()
    path.write_bytes((struct.pack("<II", 0xced7230a, len(data)) + data + bytes(-len(data) % 4)) * RECORDS)


def mds(path):
    path.mkdir()
    columns = json.dumps({"column_encodings": ["jpeg", "int"], "column_names": ["image", "label"],
                          "column_sizes": [None, 8], "compression": None, "format": "mds", "hashes": [],
                          "size_limit": None, "version": 2}).encode()
    sample, start = struct.pack("<I", len(jpeg())) + jpeg() + struct.pack("<q", 7), 8 + 4 * RECORDS + len(columns)
    offsets = [start + number * len(sample) for number in range(RECORDS + 1)]
    (path / "shard.00000.mds").write_bytes(struct.pack(f"<{RECORDS + 2}I", RECORDS, *offsets) + columns + sample * RECORDS)


def safetensors(path):
    data = numpy.zeros((4, 8), "<f4").tobytes()
    head = json.dumps({"encoder.layer.0.weight": {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, len(data)]}}).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


def lmdb(path):
    package = pytest.importorskip("lmdb")
    with package.open(str(path), map_size=1 << 20) as database, database.begin(write=True) as transaction:
        transaction.put(b"00001234", jpeg())


def hdf5(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file.create_dataset("images", (1300, 4, 4), "u1", chunks=(16, 4, 4), compression="gzip")
        file["labels"] = numpy.arange(1300)


def parquet(path):
    arrow, tables = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = {"image": [{"bytes": jpeg(), "path": "a.jpg"}] * RECORDS, "label": [number % 2 for number in range(RECORDS)]}
    features = {"label": {"_type": "ClassLabel", "names": ["cat", "dog"]}, "image": {"_type": "Image"}}
    table = arrow.table(rows).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    tables.write_table(table, path)


SOURCES = {"train.ffr": pickles, "train.tfrecord": tfrecord, "train.rec": recordio, "dataset/": mds, "train_lmdb/": lmdb,
           "model.safetensors": safetensors, "train.h5": hdf5, "train-*.parquet": parquet}


def command(example):
    """What mounts the example's dataset: the words behind `ffrfs mount`."""
    return shlex.split(re.search(r"# ffrfs mount (.*)", example).group(1))


def test_each_format_has_an_example():
    used = [word for example in EXAMPLES for word in command(example)]
    assert set(SOURCES) <= set(used)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: " ".join(command(example)[:2]))
def test_an_example_runs(ffrfs, tmp_path, monkeypatch, example):
    words = command(example)
    source = next(word for word in words if word in SOURCES)
    point = next(word for word in words if word.startswith("/mnt/"))
    options = [word for word in words if word not in (source, point)]
    path = tmp_path / source.replace("*", "0").rstrip("/")
    SOURCES[source](path)
    monkeypatch.chdir(tmp_path)
    with mount(ffrfs, [str(path)], "devfuse", *options) as folder:
        exec(compile(example.replace(point, str(folder)), str(PAGE), "exec"), {})
