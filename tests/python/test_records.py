"""Thousands of records through a mount are what the formats' own packages read from their files."""

import gzip
import io
import json
import struct
import zlib

import mds_package
import numpy
import pytest
from conftest import TRANSPORTS, mount, need
from PIL import Image

RECORDS = 3000


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    need(request.param)
    return request.param


def jpeg(noise):
    out = io.BytesIO()
    pixels = noise.integers(0, 256, (8 + int(noise.integers(8)), 9, 3), dtype=numpy.uint8)
    Image.fromarray(pixels).save(out, "JPEG")
    return out.getvalue()


def one(folder, stem):
    """The file of a name, whatever its ending is."""
    (found,) = folder.glob(f"{stem}.*")
    return found


# ---- TFRecord -----------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def tfrecords(tmp_path_factory):
    """Shards that the package wrote, of records that are alike, that differ, and that have steps."""
    writer = pytest.importorskip("tfrecord.writer")
    folder, noise = tmp_path_factory.mktemp("tfrecord"), numpy.random.default_rng(1)
    for shard in range(3):
        out = writer.TFRecordWriter(str(folder / f"alike.tfrecord-0000{shard}-of-00003"))
        for number in range(RECORDS // 3):
            out.write({"image": (jpeg(noise), "byte"), "label": (int(noise.integers(-9, 9)), "int"),
                       "box": (noise.random(4), "float"), "text": (f"record {number}".encode(), "byte")})
        out.close()
    out = writer.TFRecordWriter(str(folder / "mixed.tfrecord"))
    for number in range(RECORDS):
        out.write({"image/encoded": (jpeg(noise), "byte"), "image/class/label": (number, "int"),
                   "words": ([b"cat", b"dog", b"\xff"][:number % 4], "byte"),
                   "tokens": (noise.integers(0, 1 << 40, number % 7).tolist(), "int")})
    out.close()
    out = writer.TFRecordWriter(str(folder / "steps.tfrecord"))
    for number in range(RECORDS):
        out.write({"id": (number, "int")},
                  {"frames": ([jpeg(noise) for _ in range(number % 3)], "byte"),
                   "x": ([noise.random(3).tolist(), [1.0]], "float")})
    out.close()
    for name in ("mixed", "steps"):
        data = (folder / f"{name}.tfrecord").read_bytes()
        (folder / f"{name}-gzip.gz").write_bytes(gzip.compress(data))
        (folder / f"{name}-zlib.zz").write_bytes(zlib.compress(data))
    return folder


def check_feature(folder, key, feature):
    """A feature as the package's own messages give it."""
    kind = feature.WhichOneof("kind")
    values = getattr(feature, kind).value if kind else []
    if kind in ("float_list", "int64_list"):
        found = numpy.load(folder / f"{key}.npy")
        assert found.dtype == ("<f4" if kind == "float_list" else "<i8")
        assert numpy.array_equal(found, numpy.array(values, found.dtype)), folder / key
    elif len(values) == 1:
        assert one(folder, key).read_bytes() == values[0], folder / key
    else:
        assert len(list((folder / key).iterdir())) == len(values), folder / key
        for number, value in enumerate(values):
            assert one(folder / key, str(number)).read_bytes() == value, folder / key


def check_tfrecords(point, files, message):
    reader = pytest.importorskip("tfrecord.reader")
    number = 0
    for file in files:
        for record in reader.tfrecord_iterator(str(file)):
            folder, parsed = point / f"{number:06}", message.FromString(bytes(record))
            if hasattr(parsed, "features"):
                for key, feature in parsed.features.feature.items():
                    check_feature(folder, key, feature)
            else:
                for key, feature in parsed.context.feature.items():
                    check_feature(folder / "context", key, feature)
                for key, steps in parsed.feature_lists.feature_list.items():
                    assert len(list((folder / "sequence" / key).iterdir())) == len(steps.feature)
                    for step, feature in enumerate(steps.feature):
                        check_feature(folder / "sequence" / key, f"{step:06}", feature)
            number += 1
    assert number == RECORDS == len(list(point.iterdir()))


@pytest.mark.parametrize("name", ("alike", "mixed", "mixed-gzip", "mixed-zlib", "steps", "steps-gzip"))
def test_tfrecords_are_what_the_package_reads(ffrfs, tfrecords, transport, name):
    messages = pytest.importorskip("tfrecord.example_pb2")
    message = messages.SequenceExample if name.startswith("steps") else messages.Example
    is_index = lambda path: path.suffix == ".ffrfs-index"
    sources = [path for path in sorted(tfrecords.glob(f"{name}.*")) if not is_index(path)]
    plain = [path for path in sorted(tfrecords.glob(f"{name.split('-')[0]}.tfrecord*")) if not is_index(path)]
    # Twice: the second mount is one by kept indexes.
    for _ in range(2):
        with mount(ffrfs, [*map(str, sources)], transport) as point:
            check_tfrecords(point, plain, message)


# ---- RecordIO -----------------------------------------------------------------------------------------------------

def recordio(path, records):
    """As MXNet's `recordio.py` and dmlc-core's `recordio.cc` write it; MXNet itself installs on no current Python."""
    magic = struct.pack("<I", 0xced7230a)
    with open(path, "wb") as out:
        for data in records:
            cuts = [at for at in range(0, len(data) & ~3, 4) if data[at:at + 4] == magic]
            starts, ends = [0, *(at + 4 for at in cuts)], [*cuts, len(data)]
            for number, (start, end) in enumerate(zip(starts, ends)):
                kind = 0 if not cuts else 1 if number == 0 else 3 if number == len(cuts) else 2
                out.write(magic + struct.pack("<I", kind << 29 | end - start) + data[start:end])
                out.write(bytes(-(end - start) % 4))


def test_image_records_are_what_was_packed(ffrfs, transport, tmp_path):
    noise, packed = numpy.random.default_rng(2), []
    for number in range(RECORDS):
        labels = noise.random(number % 3 + 1, dtype=numpy.float32)
        value = jpeg(noise) + (struct.pack("<I", 0xced7230a) * 3 if number % 10 == 0 else b"")
        header = (0, labels[0]) if len(labels) == 1 else (len(labels), 0)
        packed.append((labels, value, struct.pack("<IfQQ", *header, number, 0)
                       + (labels.tobytes() if len(labels) > 1 else b"") + value))
    recordio(tmp_path / "x.rec", [data for *_, data in packed])
    with mount(ffrfs, [tmp_path / "x.rec"], transport) as point:
        assert len(list(point.iterdir())) == RECORDS
        for number, (labels, value, _) in enumerate(packed):
            found = numpy.load(point / f"{number:06}" / "label.npy")
            assert found.shape == (() if len(labels) == 1 else labels.shape)
            assert numpy.array_equal(found.reshape(-1), labels)
            assert (point / f"{number:06}" / "data.jpg").read_bytes() == value


# ---- MDS ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("compression", (None, "zstd:3", "gz"))
def test_mds_is_what_the_package_reads(ffrfs, transport, tmp_path, compression):
    streaming = mds_package.modules() or pytest.skip("mosaicml-streaming is not installed")
    noise, out = numpy.random.default_rng(3), str(tmp_path / "mds")
    columns = {"image": "jpeg", "label": "int", "text": "str", "array": "ndarray", "fixed": "ndarray:float32:2,3",
               "small": "uint8", "blob": "bytes", "meta": "json", "weight": "float64"}
    images = []
    with streaming.MDSWriter(out=out, columns=columns, compression=compression, size_limit=1 << 18) as writer:
        for number in range(RECORDS):
            images.append(jpeg(noise))
            shape = tuple(noise.integers(1, 5, number % 3 + 1))
            writer.write({"image": Image.open(io.BytesIO(images[-1])), "label": number - 5, "text": f"käse {number}",
                          "array": noise.integers(0, 99, shape, dtype=numpy.int16), "weight": noise.random(),
                          "fixed": noise.random((2, 3), dtype=numpy.float32), "small": number % 256,
                          "blob": noise.bytes(number % 9), "meta": {"number": number}})
    with mount(ffrfs, [out], transport) as point:
        assert len(list(point.iterdir())) == RECORDS
        for number, sample in enumerate(mds_package.samples(streaming, tmp_path / "mds", tmp_path)):
            folder = point / f"{number:06}"
            assert numpy.array_equal(numpy.asarray(Image.open(folder / "image.jpg")), numpy.asarray(sample["image"]))
            assert (folder / "text.txt").read_text() == sample["text"]
            assert (folder / "blob.bin").read_bytes() == sample["blob"]
            assert json.loads((folder / "meta.json").read_text()) == sample["meta"]
            for key in ("label", "small", "weight", "array", "fixed"):
                assert numpy.array_equal(numpy.load(folder / f"{key}.npy"), sample[key]), (number, key)
        assert number == RECORDS - 1
