"""What `ffrfs convert` writes is what the formats' own packages read, over thousands of samples."""

import io
import json
import subprocess

import mds_package
import numpy
import pytest
from PIL import Image

SAMPLES = 3000


def jpeg(noise):
    out = io.BytesIO()
    Image.fromarray(noise.integers(0, 256, (9, 8, 3), dtype=numpy.uint8)).save(out, "JPEG")
    return out.getvalue()


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """A directory of numbered samples, and what is in them."""
    folder, noise, made = tmp_path_factory.mktemp("samples"), numpy.random.default_rng(11), []
    for number in range(SAMPLES):
        sample = {"image": jpeg(noise), "label": number - 7, "text": f"käse {number}", "meta": {"number": number},
                  "box": noise.random(4, dtype=numpy.float32), "grid": noise.integers(0, 9, (2, number % 5), dtype=numpy.int16)}
        place = folder / "in" / f"{number:06}"
        place.mkdir(parents=True)
        (place / "image.jpg").write_bytes(sample["image"])
        (place / "text.txt").write_text(sample["text"])
        (place / "meta.json").write_text(json.dumps(sample["meta"]))
        for key in ("label", "box", "grid"):
            numpy.save(place / f"{key}.npy", sample[key])
        made.append(sample)
    return folder, made


def convert(ffrfs, folder, *arguments):
    subprocess.run([ffrfs, "convert", "in", *arguments], check=True, cwd=folder)


def test_tfrecord_is_read_by_its_package(ffrfs, samples):
    reader, messages = pytest.importorskip("tfrecord.reader"), pytest.importorskip("tfrecord.example_pb2")
    folder, made = samples
    convert(ffrfs, folder, "t.tfrecord")
    # The package itself looks at no checksum.
    records = [bytes(record) for record in reader.tfrecord_iterator(str(folder / "t.tfrecord"))]
    assert len(records) == SAMPLES
    for record, sample in zip(records, made):
        features = messages.Example.FromString(record).features.feature
        assert set(features) == set(sample)
        assert list(features["image"].bytes_list.value) == [sample["image"]]
        assert list(features["label"].int64_list.value) == [sample["label"]]
        assert list(features["text"].bytes_list.value) == [sample["text"].encode()]
        assert json.loads(features["meta"].bytes_list.value[0]) == sample["meta"]
        assert numpy.array_equal(numpy.array(features["box"].float_list.value, "<f4"), sample["box"])
        assert numpy.array_equal(numpy.load(io.BytesIO(features["grid"].bytes_list.value[0])), sample["grid"])
    described = {"image": "byte", "label": "int", "box": "float"}
    loaded = list(reader.tfrecord_loader(str(folder / "t.tfrecord"), None, described))
    assert [int(one["label"][0]) for one in loaded] == [sample["label"] for sample in made]


def test_checksums_of_tfrecord_are_those_of_its_writer(ffrfs, samples):
    writer, messages = pytest.importorskip("tfrecord.writer"), pytest.importorskip("tfrecord.example_pb2")
    folder, made = samples
    convert(ffrfs, folder, "c.tfrecord")
    masked = writer.TFRecordWriter.masked_crc
    data, at, count = (folder / "c.tfrecord").read_bytes(), 0, 0
    while at < len(data):
        length = int.from_bytes(data[at:at + 8], "little")
        assert data[at + 8:at + 12] == masked(data[at:at + 8])
        record = data[at + 12:at + 12 + length]
        assert data[at + 12 + length:at + 16 + length] == masked(record)
        messages.Example.FromString(record)
        at, count = at + 16 + length, count + 1
    assert (at, count) == (len(data), SAMPLES)


@pytest.mark.parametrize("options", ((), ("--shard-size", "200K"), ("--shards", "7")), ids=("one", "size", "count"))
def test_mds_is_read_by_its_package(ffrfs, samples, tmp_path, options):
    package = mds_package.modules() or pytest.skip("mosaicml-streaming is not installed")
    folder, made = samples
    convert(ffrfs, folder, str(tmp_path / "mds"), "--to", "mds", *options)
    index = json.loads((tmp_path / "mds" / "index.json").read_text())
    assert index["version"] == 2 and (len(index["shards"]) > 1) == bool(options)
    number = 0
    for number, (found, sample) in enumerate(zip(mds_package.samples(package, tmp_path / "mds", tmp_path), made), 1):
        assert set(found) == set(sample)
        assert found["label"] == sample["label"] and found["text"] == sample["text"]
        assert found["meta"] == sample["meta"]
        image = Image.open(io.BytesIO(sample["image"]))
        assert numpy.array_equal(numpy.asarray(found["image"]), numpy.asarray(image))
        for key in ("box", "grid"):
            assert found[key].dtype == sample[key].dtype and numpy.array_equal(found[key], sample[key])
    assert number == SAMPLES


def test_ffcv_is_read_by_its_package(ffrfs, samples):
    """By its tables: what decodes values needs its C library."""
    reader = pytest.importorskip("ffcv.reader")
    folder, made = samples
    for number in range(0, SAMPLES, 5):
        (folder / "in" / f"{number:06}" / "text.txt").write_text("")
    convert(ffrfs, folder, "f.beton")
    found, data = reader.Reader(str(folder / "f.beton")), (folder / "f.beton").read_bytes()
    sizes = dict(zip(found.alloc_table["ptr"].tolist(), found.alloc_table["size"].tolist()))
    assert found.num_samples == SAMPLES and len(sizes) == len(found.alloc_table), "a pointer twice"
    for number, sample in enumerate(made):
        values = dict(zip(found.field_names, found.metadata[number]))
        assert values["label"] == sample["label"]
        image, text = int(values["image"]["data_ptr"]), int(values["text"]["ptr"])
        assert data[image:image + sizes[image]] == sample["image"]
        assert (int(values["image"]["height"]), int(values["image"]["width"])) == (9, 8)
        wanted = b"" if number % 5 == 0 else sample["text"].encode()
        assert data[text:text + sizes[text]] == wanted and int(values["text"]["size"]) == len(wanted)


def test_syrah_is_read_by_its_package(ffrfs, tmp_path):
    syrah = pytest.importorskip("syrah")
    noise, made = numpy.random.default_rng(3), []
    for number in range(SAMPLES):
        sample = {"box": noise.random(4, dtype=numpy.float32), "tokens": noise.integers(0, 9, number % 7).astype("<i2"),
                  "flags": noise.random(3) > 0.5, "image": noise.integers(0, 256, number % 900).astype("u1")}
        place = tmp_path / "in" / f"{number:06}"
        place.mkdir(parents=True)
        for key, value in sample.items():
            numpy.save(place / f"{key}.npy", value)
        (place / "text.txt").write_text(f"käse {number}")
        made.append(sample)
    convert(ffrfs, tmp_path, "s.syr")
    with syrah.File(str(tmp_path / "s.syr"), "r") as file:
        assert file.num_items() == SAMPLES
        for number, sample in enumerate(made):
            found = file.get_item(number)
            assert found.pop("text").item() == f"käse {number}" and set(found) == set(sample)
            for key, value in sample.items():
                assert found[key].dtype == value.dtype and numpy.array_equal(found[key], value), (number, key)
