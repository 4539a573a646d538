"""Pickled samples of FFRecord, LMDB and MDS, shown as files, are what pickle.loads gives; of all protocols, over thousands of
samples."""

import collections
import io
import pickle

import cv2
import lmdb
import mds_package
import numpy
import pytest
import torch
from PIL import Image

from conftest import TRANSPORTS, mount, need
from samples import write_ffrecord as write

SAMPLES = 3000
# Of these PNM holds the pixels as PIL has them; TIFF a palette and single bits; an array all others.
PNM, TIFF = {"RGB": "ppm", "L": "pgm"}, ("1", "P", "PA")
MODES = (*PNM, *TIFF, "LA", "La", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV", "I", "F", "I;16", "I;16L", "I;16B")


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    need(request.param)
    return request.param


def jpeg(number):
    out = io.BytesIO()
    Image.new("RGB", (8 + number % 70, 30), (number % 256, 1, 2)).save(out, "JPEG")
    return out.getvalue()


def image_of(mode, number):
    noise = numpy.random.default_rng(number).integers(0, 256, (11, 7 + number % 5, 3), dtype=numpy.uint8)
    image = Image.fromarray(noise)
    match mode:
        case "P": return image.quantize(number % 250 + 2)
        case "PA": return image.convert("P").convert("PA")
        case "La" | "RGBa": return image.convert(mode.upper()).convert(mode)
        case "LAB": return Image.frombytes("LAB", image.size, image.tobytes())
        case "I;16": return image.convert("I").convert("I;16")
        case "I;16L" | "I;16B": return Image.frombytes(mode, image.size, image.convert("I").convert("I;16").tobytes())
        case _: return image.convert(mode)


def value_of(number):
    """A sample of one of several kinds, the same whenever it is asked for."""
    noise, seeded = numpy.random.default_rng(number), torch.Generator().manual_seed(number)
    match number % 8:
        case 0: return jpeg(number), number
        case 1: return {"image": jpeg(number), "label": number / 7, "name": f"ünï {number}", "none": None, 3: number % 2 == 0}
        case 2: return noise.random((number % 9, 3), dtype=numpy.float32), numpy.int64(number), numpy.float32(0.5)
        case 3: return [numpy.asfortranarray(noise.random((3, number % 5 + 2))), numpy.arange(number % 40, dtype=">i2")]
        case 4: return {mode: image_of(mode, number) for mode in MODES}
        case 5: return collections.OrderedDict(a=(bytes(range(256)) * (number % 9), bytearray(b"\xff" * 9)), b=-number << 70)
        case 6: return {"x": torch.arange(number % 50).reshape(-1, 1), "y": torch.rand(3, 4, generator=seeded).T,
                        "z": torch.rand(2, 3, generator=seeded)[1]}
        case _: return noise.random(3) > 0.5, noise.integers(0, 9, 4).astype("datetime64[s]").astype("i8"), "x" * (number % 300)


def check(folder, value):
    """Compares a value with the files at a path without an ending."""
    if value is None:
        assert not list(folder.parent.glob(f"{folder.name}.*")) and not folder.exists()
    elif isinstance(value, dict):
        for key, inner in value.items():
            check(folder / str(key), inner)
    elif isinstance(value, (tuple, list)):
        for number, inner in enumerate(value):
            check(folder / str(number), inner)
    elif isinstance(value, (numpy.ndarray, numpy.generic, torch.Tensor)):
        wanted = value.numpy() if isinstance(value, torch.Tensor) else value
        found = numpy.load(f"{folder}.npy", allow_pickle=False)
        assert found.dtype == wanted.dtype and found.shape == wanted.shape and numpy.array_equal(found, wanted)
    elif isinstance(value, Image.Image):
        if value.mode in (*PNM, *TIFF):
            with Image.open(f"{folder}.{PNM.get(value.mode, 'tif')}") as found:
                assert found.mode == value.mode and found.size == value.size and found.tobytes() == value.tobytes()
                assert found.convert("RGB").tobytes() == value.convert("RGB").tobytes()
        else:
            assert numpy.array_equal(numpy.load(f"{folder}.npy"), numpy.asarray(value))
    elif isinstance(value, (bytes, bytearray)):
        [path] = folder.parent.glob(f"{folder.name}.*")
        assert path.read_bytes() == value
        assert not value.startswith(b"\xff\xd8\xff\xe0") or path.suffix == ".jpg"
    else:
        [path] = folder.parent.glob(f"{folder.name}.txt")
        assert path.read_text() == str(value)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_every_sample_is_what_pickle_loads(ffrfs, tmp_path, transport, protocol):
    values = [value_of(number) for number in range(SAMPLES // 4)]
    write(tmp_path / "p.ffr", [pickle.dumps(value, protocol) for value in values])
    for _ in range(2):
        with mount(ffrfs, [tmp_path / "p.ffr"], transport, "--pickles") as folder:
            assert len(list(folder.iterdir())) == len(values)
            for number, value in enumerate(values):
                # Protocol 2 has bytes as characters, among them the file that a tensor's numbers are in.
                if protocol == 2 and number % 8 == 6:
                    assert (folder / f"{number:06}").read_bytes() == pickle.dumps(value, 2)
                else:
                    check(folder / f"{number:06}", value)
    assert (tmp_path / "p.ffr.ffrfs-index").exists()


def test_samples_alike_are_numbered_on_through_files(ffrfs, tmp_path, transport):
    for part in range(2):
        write(tmp_path / f"{part}.ffr", [pickle.dumps((jpeg(number), part), 4) for number in range(SAMPLES // 2)])
    with mount(ffrfs, [tmp_path], transport, "--pickles") as folder:
        for number in range(SAMPLES):
            check(folder / f"{number:06}", (jpeg(number % (SAMPLES // 2)), number // (SAMPLES // 2)))


def test_images_of_single_bits_and_palettes_are_what_opencv_shows_of_a_file_of_pillow(ffrfs, tmp_path, transport):
    images = [image_of(mode, number) for mode in ("1", "P") for number in range(8)]
    write(tmp_path / "p.ffr", [pickle.dumps((image,), 4) for image in images])
    with mount(ffrfs, [tmp_path / "p.ffr"], transport, "--pickles") as folder:
        for number, image in enumerate(images):
            found = cv2.imread(str(folder / f"{number:06}/0.tif"))
            assert numpy.array_equal(found[:, :, ::-1], numpy.asarray(image.convert("RGB")))


@pytest.mark.parametrize("protocol", range(2, 6))
def test_values_of_a_database_are_what_pickle_loads(ffrfs, tmp_path, transport, protocol):
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 30, max_dbs=1) as env:
        inner = env.open_db(b"inner")
        with env.begin(write=True) as txn:
            for number in range(SAMPLES // 4):
                txn.put(b"train/%06d" % number, pickle.dumps(value_of(number), protocol))
                txn.put(b"%d" % number, pickle.dumps(number, protocol), db=inner)
            txn.put(b"length", b"%d" % (SAMPLES // 4))
    for _ in range(2):
        with mount(ffrfs, [tmp_path / "db"], transport, "--pickles") as folder:
            assert (folder / "length.txt").read_text() == str(SAMPLES // 4)
            with lmdb.open(str(tmp_path / "db"), readonly=True, lock=False, max_dbs=1) as env, env.begin() as txn:
                for number in range(SAMPLES // 4):
                    value = txn.get(b"train/%06d" % number)
                    if protocol == 2 and number % 8 == 6:
                        assert (folder / f"train/{number:06}.bin").read_bytes() == value
                    else:
                        # What is loaded has the byte order of the machine; the file has that of the pickle.
                        check(folder / f"train/{number:06}", value_of(number))
                    check(folder / f"inner/{number}", number)
    with mount(ffrfs, [tmp_path / "db"], transport) as folder:
        assert pickle.loads((folder / "train/000000.bin").read_bytes()) == value_of(0)


@pytest.mark.parametrize("compression", (None, "zstd:3"))
def test_columns_of_mds_are_what_the_package_reads(ffrfs, tmp_path, transport, compression):
    streaming = mds_package.modules() or pytest.skip("mosaicml-streaming is not installed")
    columns, out = {"data": "pkl", "label": "int", "meta": "pkl"}, str(tmp_path / "mds")
    with streaming.MDSWriter(out=out, columns=columns, compression=compression, size_limit=1 << 20) as writer:
        for number in range(SAMPLES // 4):
            writer.write({"data": value_of(number), "label": number, "meta": {"index": [number, f"käse {number}"]}})
    with mount(ffrfs, [out], transport, "--pickles") as folder:
        for number, sample in enumerate(mds_package.samples(streaming, tmp_path / "mds", tmp_path)):
            check(folder / f"{number:06}/data", value_of(number))
            check(folder / f"{number:06}/label", numpy.int64(sample["label"]))
            check(folder / f"{number:06}/meta", sample["meta"])
        assert number == SAMPLES // 4 - 1
    with mount(ffrfs, [out], transport) as folder:
        assert pickle.loads((folder / "000000/data.bin").read_bytes()) == value_of(0)


class Unknown:
    """What a decoder must not make."""

    def __reduce__(self):
        return print, ("executed",)


def test_what_is_not_known_stays_one_file(ffrfs, tmp_path, transport, capfd):
    values = [Unknown(), (1, Unknown()), numpy.array([None]), {1, 2}, numpy.zeros(2, [("a", "i4")]), 3 + 4j]
    # Their numbers are those of others, marked.
    values += [torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j]).conj().imag]
    samples = [pickle.dumps(value, 4) for value in values] + [b"no pickle"]
    write(tmp_path / "p.ffr", samples)
    with lmdb.open(str(tmp_path / "p.mdb"), subdir=False, map_size=1 << 30) as env, env.begin(write=True) as txn:
        for number, sample in enumerate(samples):
            txn.put(b"%d" % number, sample)
    with mount(ffrfs, [tmp_path / "p.ffr"], transport, "--pickles") as folder:
        assert [(folder / f"{number:06}").read_bytes() for number in range(len(samples))] == samples
    with mount(ffrfs, [tmp_path / "p.mdb"], transport, "--pickles") as folder:
        paths = [f"{number}.{'bin' if sample[:1] == bytes([128]) else 'txt'}" for number, sample in enumerate(samples)]
        assert [(folder / path).read_bytes() for path in paths] == samples
    assert "executed" not in capfd.readouterr().out
