"""What a mount shows of safetensors and LMDB is what their own packages read, over thousands of values."""

import io
import json

import lmdb
import numpy
import pytest
import safetensors
import safetensors.numpy
import torch
from PIL import Image
from safetensors.torch import save_file

from conftest import TRANSPORTS, mount, need

TENSORS, VALUES = 3000, 5000
PLAIN = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
         "float16", "float32", "float64", "complex64")


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    need(request.param)
    return request.param


def loaded(path):
    return numpy.load(path, allow_pickle=False)


# ---- safetensors ----------------------------------------------------------------------------------------------------

@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """Tensors of all types and of several shapes, with what the writer wants to say."""
    noise = numpy.random.default_rng(5)
    tensors = {}
    for number in range(TENSORS):
        dtype, shape = PLAIN[number % len(PLAIN)], noise.integers(0, 9, number % 4)
        values = noise.integers(0, 2 if dtype == "bool" else 100, shape)
        tensors[f"layer.{number}.weight" if number % 3 else f"block/{number}/bias"] = values.astype(dtype)
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    safetensors.numpy.save_file(tensors, path, metadata={"format": "np", "ümlaut": "日本"})
    return path


def test_every_tensor_is_what_the_package_reads(ffrfs, model, transport):
    with mount(ffrfs, [model], transport) as folder, safetensors.safe_open(model, "numpy") as wanted:
        assert json.loads((folder / "__metadata__.json").read_text()) == wanted.metadata()
        assert len(list(folder.rglob("*.npy"))) == len(list(wanted.keys())) == TENSORS
        for name in wanted.keys():
            found, tensor = loaded(folder / f"{name}.npy"), wanted.get_tensor(name)
            assert found.dtype == tensor.dtype and found.shape == tensor.shape, name
            assert numpy.array_equal(found, tensor), name


def test_a_tensor_is_mapped_and_read_in_its_middle(ffrfs, tmp_path, transport):
    wanted = numpy.random.default_rng(6).random((3000, 700), dtype=numpy.float32)
    safetensors.numpy.save_file({"large": wanted}, tmp_path / "m.safetensors")
    with mount(ffrfs, [tmp_path / "m.safetensors"], transport) as folder:
        found = numpy.load(folder / "large.npy", mmap_mode="r")
        for row in numpy.random.default_rng(7).permutation(len(wanted))[:500]:
            assert numpy.array_equal(found[row], wanted[row]), row


def test_what_numpy_does_not_have_is_shown_as_its_bytes(ffrfs, tmp_path, transport):
    tensors = {"b": torch.arange(12, dtype=torch.bfloat16).reshape(3, 4),
               "f8": torch.arange(5).to(torch.float8_e4m3fn)}
    save_file(tensors, tmp_path / "m.safetensors")
    with mount(ffrfs, [tmp_path / "m.safetensors"], transport) as folder:
        for name, tensor in tensors.items():
            found = torch.frombuffer(bytearray((folder / f"{name}.bin").read_bytes()), dtype=tensor.dtype)
            assert torch.equal(found.view(torch.uint8), tensor.flatten().view(torch.uint8)), name


# ---- LMDB -----------------------------------------------------------------------------------------------------------

def picture(number, kind):
    out = io.BytesIO()
    Image.new("RGB", (8 + number % 90, 30), (number % 256, 1, 2)).save(out, kind)
    return out.getvalue()


def value_of(number):
    """A value, and the ending that it must get."""
    kinds = ((lambda: picture(number, "JPEG"), ".jpg"),
             (lambda: picture(number, "PNG"), ".png"),
             (lambda: json.dumps({"label": number, "name": "ü" * (number % 3000)}).encode(), ".json"),
             (lambda: f"label {number}\n".encode() * (number % 900), ".txt"),
             (lambda: b"\x08" + bytes(number % 9000), ".bin"))
    make, ending = kinds[number % len(kinds)]
    return make(), ending


@pytest.fixture(scope="session")
def database(tmp_path_factory):
    """A directory with values of all sizes, under keys that are paths and others; some were written again, or deleted."""
    path = tmp_path_factory.mktemp("database") / "train_lmdb"
    with lmdb.open(str(path), map_size=1 << 30, max_dbs=4) as env:
        for start in range(0, VALUES, 500):
            with env.begin(write=True) as txn:
                for number in range(start, start + 500):
                    txn.put(b"%08d" % number, bytes(number % 7000))
        inner, several = env.open_db(b"inner"), env.open_db(b"several", dupsort=True)
        fixed = env.open_db(b"fixed", dupsort=True, dupfixed=True, integerkey=True)
        with env.begin(write=True) as txn:
            for number in range(VALUES):
                if number % 10 == 7:
                    txn.delete(b"%08d" % number)
                else:
                    txn.put(b"%08d" % number, value_of(number)[0])
            for number in range(300):
                txn.put(b"class/%03d" % number, value_of(number)[0], db=inner)
                txn.put(b"\xff\x00%d" % number, value_of(number)[0], db=inner)
                for each in range(number % 40 + 1):
                    txn.put(b"key %d" % number, b"value %05d of many" % each, db=several)
                    txn.put(number.to_bytes(8, "little"), each.to_bytes(4, "big"), db=fixed)
    return path


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def wanted_of(database):
    """What the package reads, by the path at which it must be shown."""
    files = {}
    with lmdb.open(str(database), readonly=True, lock=False, max_dbs=4) as env, env.begin() as txn:
        names = (b"inner", b"several", b"fixed")
        for key, value in txn.cursor():
            if key not in names:
                made, ending = value_of(int(key))
                assert made == value
                files[key.decode() + ending] = value
        for key, value in txn.cursor(env.open_db(b"inner", txn, create=False)):
            number = int(key[6:] if key.startswith(b"class") else key[2:])
            ending = value_of(number)[1]
            files["inner/" + (key.decode() if key.startswith(b"class") else "hex/" + key.hex()) + ending] = value
        for name in "several", "fixed":
            ending = "txt" if name == "several" else "bin"
            values = {}
            for key, value in txn.cursor(env.open_db(name.encode(), txn, create=False)):
                values.setdefault(key.decode() if name == "several" else "hex/" + key.hex(), []).append(value)
            for key, several in values.items():
                if len(several) == 1:
                    files[f"{name}/{key}.{ending}"] = several[0]
                else:
                    files |= {f"{name}/{key}/{number:06}.{ending}": value for number, value in enumerate(several)}
    return files


def test_every_value_is_what_the_package_reads(ffrfs, database, transport):
    wanted, before = wanted_of(database), sorted(path.name for path in database.iterdir())
    assert len(wanted) > VALUES
    with mount(ffrfs, [database], transport, "--index", "none") as folder:
        assert contents(folder) == wanted
    assert sorted(path.name for path in database.iterdir()) == before


def test_a_kept_index_shows_the_same(ffrfs, database, transport, tmp_path):
    wanted = wanted_of(database)
    for _ in range(2):
        with mount(ffrfs, [database / "data.mdb"], transport, "--index-dir", str(tmp_path)) as folder:
            assert contents(folder) == wanted
    assert len(list(tmp_path.iterdir())) == 1


def test_images_of_a_database_are_read_by_pillow(ffrfs, database, transport):
    with mount(ffrfs, [database], transport, "--index", "none") as folder:
        for path in sorted(folder.glob("*.jpg"))[:500]:
            with Image.open(path) as image:
                assert image.size == (8 + int(path.stem) % 90, 30)


def test_a_database_that_is_compacted_shows_the_same(ffrfs, database, transport, tmp_path):
    with lmdb.open(str(database), readonly=True, lock=False) as env:
        env.copy(str(tmp_path), compact=True)
    with mount(ffrfs, [tmp_path], transport, "--index", "none") as folder:
        assert contents(folder) == wanted_of(database)
