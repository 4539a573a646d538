"""What a mount shows of HDF5 is what h5py reads, over thousands of rows, of every layout, filter and release."""

import itertools
import json
import random
import subprocess

import h5py
import numpy
import pytest
from conftest import TRANSPORTS, mount, need

ROWS = 3000
LIBVERS = ("earliest", ("earliest", "v108"), ("v108", "v110"), ("v110", "v112"), "latest")
FILTERS = {
    "bare": {}, "gzip": {"compression": "gzip"}, "lzf": {"compression": "lzf"},
    "shuffled": {"compression": "gzip", "shuffle": True},
    "checked": {"compression": "lzf", "shuffle": True, "fletcher32": True}, "sum": {"fletcher32": True},
}
# Those that take bits away; an h5py without an encoder of szip reads no such file.
PACKED = {"szip_nn": {"compression": "szip"}, "szip_ec": {"compression": "szip", "compression_opts": ("ec", 10)}}
TYPES = ("<f4", ">f8", "|u1", "<i2", ">u4", "<c8", "|b1", "<f2")


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    need(request.param)
    return request.param


def loaded(path):
    return numpy.load(path, allow_pickle=False)


def same(found, wanted, name):
    wanted = numpy.asarray(wanted)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, name
    assert found.tobytes() == wanted.tobytes(), name


def fill(file, seed):
    """Rows of images and labels, small datasets of any shape, and thousands of names."""
    noise = numpy.random.default_rng(seed)
    choose = random.Random(seed)
    file.create_dataset("images", data=noise.integers(0, 9, (ROWS, 12, 11, 3), dtype="u1"), compression="gzip",
                        chunks=(16, 12, 11, 3))
    file.create_dataset("cut", data=noise.integers(0, 9, (ROWS, 20, 9), dtype="<i2"), compression="gzip",
                        shuffle=True, chunks=(50, 7, 4), maxshape=(None, 20, 9))
    file["labels"] = numpy.arange(ROWS, dtype="<i8")
    # Thousands of chunks in pages, in trees, and in arrays that grow.
    for name, most in (("fixed", (2 * ROWS,)), ("grows", (None,))):
        values = file.create_dataset(f"many/{name}", (2 * ROWS,), "<u2", chunks=(1,), maxshape=most)
        values[:] = noise.integers(0, 60000, 2 * ROWS)
    tree = file.create_dataset("many/tree", (60, 50), "<u2", chunks=(1, 1), maxshape=(None, None), compression="gzip")
    tree[...] = noise.integers(0, 60000, (60, 50))
    for number, (filters, grows) in enumerate(itertools.product(FILTERS, range(4))):
        rank = 1 + number % 4
        shape = [choose.randint(1, 20) for _ in range(rank)]
        chunks = tuple(choose.randint(1, length) for length in shape)
        most = [None if place < grows else length for place, length in enumerate(shape)]
        dtype = TYPES[number % len(TYPES)]
        values = noise.integers(0, 2, shape).astype(dtype)
        file.create_dataset(f"small/{filters}/{number}", data=values, chunks=chunks, maxshape=most, **FILTERS[filters])
    pack(file, noise)
    for number in range(1500):
        file[f"names/a name that is not very short {number}"] = numpy.int32(number)
    # Written, grown, cut again; in any order, with holes.
    edited = file.create_dataset("edited", (500, 8), "<f4", chunks=(7, 3), maxshape=(None, None), fillvalue=2.5,
                                 compression="gzip")
    for row in choose.sample(range(500), 120):
        edited[row] = noise.random(8)
    edited.resize((700, 9))
    edited[600:650] = 1
    edited.resize((640, 7))
    file.create_dataset("words", data=[f"wörd {number}" for number in range(ROWS)], dtype=h5py.string_dtype())
    file.create_dataset("codes", data=numpy.array([b"%d" % number for number in range(ROWS)], "S6"), chunks=(100,),
                        compression="gzip")
    images = file.create_dataset("encoded", (ROWS,), h5py.vlen_dtype(numpy.uint8))
    for number in range(ROWS):
        images[number] = numpy.frombuffer(b"\xff\xd8\xff" + noise.bytes(choose.randint(0, 3000)), numpy.uint8)


def pack(file, noise):
    """Rows in chunks of the filters that take bits away."""
    for number, dtype in enumerate(("<f4", ">f8", "|u1", "<i2", ">u4", "<i8")):
        values = numpy.cumsum(noise.integers(-2, 3, (ROWS, 5)), axis=0).astype(dtype) * numpy.dtype(dtype).type(1.25)
        values = values.astype(dtype)
        places = 2 if values.dtype.kind == "f" else 0
        file.create_dataset(f"packed/scaled{number}", data=values, chunks=(70, 5), scaleoffset=places)
        for name, options in PACKED.items() if "szip" in h5py.filters.encode else ():
            file.create_dataset(f"packed/{name}{number}", data=values, chunks=(70, 5), **options)
        options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        options.set_chunk((70, 3))
        options.set_filter(h5py.h5z.FILTER_NBIT, h5py.h5z.FLAG_OPTIONAL, ())
        record = numpy.dtype([("a", dtype), ("b", "S3"), ("c", ">u2", (3,))])
        shape = h5py.h5s.create_simple((ROWS, 5))
        dataset = h5py.h5d.create(file["packed"].id, b"record%d" % number, h5py.h5t.py_create(record), shape, options)
        records = numpy.zeros((ROWS, 5), record)
        records["a"], records["b"], records["c"][..., 1] = values, b"ab", noise.integers(0, 99, (ROWS, 5))
        h5py.Dataset(dataset)[...] = records


@pytest.fixture(scope="module", params=range(len(LIBVERS)))
def container(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("hdf5") / "train.h5"
    with h5py.File(path, "w", libver=LIBVERS[request.param]) as file:
        fill(file, request.param)
    return path


def datasets(file):
    found = {}
    file.visititems(lambda name, item: found.update({name: item}) if isinstance(item, h5py.Dataset) else None)
    return found


def test_every_dataset_is_what_h5py_reads(ffrfs, container, transport):
    with mount(ffrfs, [container], transport) as folder, h5py.File(container) as file:
        shown = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        for name, dataset in datasets(file).items():
            if name == "encoded":
                for number, value in enumerate(dataset):
                    assert (folder / f"encoded/{number:06}.jpg").read_bytes() == value.tobytes(), number
                    shown.remove(f"encoded/{number:06}.jpg")
            elif h5py.check_string_dtype(dataset.dtype):
                assert json.loads((folder / f"{name}.json").read_text()) == dataset.asstr()[()].tolist(), name
                shown.remove(f"{name}.json")
            else:
                same(loaded(folder / f"{name}.npy"), dataset[()], name)
                shown.remove(f"{name}.npy")
        assert not shown - {path for path in shown if path.startswith(".ffrfs/")}


def test_every_row_in_any_order_is_what_h5py_reads(ffrfs, container, transport):
    order = random.Random(7)
    with mount(ffrfs, [container], transport, "--rows") as folder, h5py.File(container) as file:
        for name in ("images", "cut", "labels", "edited", "many/fixed", "many/tree", "packed/scaled0", "packed/record3"):
            values = file[name][()]
            assert len(list((folder / name).iterdir())) == len(values)
            for row in order.sample(range(len(values)), len(values)):
                same(loaded(folder / name / f"{row:06}.npy"), values[row], f"{name} {row}")
        words = file["words"].asstr()[()]
        for row in order.sample(range(ROWS), ROWS):
            assert (folder / f"words/{row:06}.txt").read_text() == words[row]
            assert (folder / f"codes/{row:06}.txt").read_text() == str(row)


def test_a_range_of_a_large_dataset_is_mapped_and_read_in_its_middle(ffrfs, tmp_path, transport):
    wanted = numpy.random.default_rng(1).integers(0, 99, (4000, 900), dtype="<i4")
    with h5py.File(tmp_path / "large.h5", "w", libver="latest") as file:
        file.create_dataset("a", data=wanted, chunks=(64, 900), compression="lzf")
        file["b"] = wanted
    with mount(ffrfs, [tmp_path / "large.h5"], transport) as folder:
        for name in "ab":
            found = numpy.load(folder / f"{name}.npy", mmap_mode="r")
            assert numpy.array_equal(found[1999:2100], wanted[1999:2100])
            assert numpy.array_equal(found[::-333], wanted[::-333])


@pytest.mark.parametrize("options", ({}, {"fletcher32": True}), ids=("bare", "filtered"))
def test_any_of_very_many_chunks_is_what_h5py_reads(ffrfs, tmp_path, transport, options):
    choose = random.Random(11)
    # Super blocks begin there; their data blocks have 1, 2, 4 and 8 pages.
    edges = [(1 << power) - 12 + step for power in range(15, 21) for step in (-1, 0, 1)]
    with h5py.File(tmp_path / "many.h5", "w", libver="latest") as file:
        full = file.create_dataset("full", (200_000,), "u1", chunks=(1,), maxshape=(None,), **options)
        full[...] = numpy.random.default_rng(2).integers(1, 255, 200_000, dtype="u1")
        sparse = file.create_dataset("sparse", (1 << 20,), "u1", chunks=(1,), maxshape=(None,), **options)
        for place in sorted({*edges, *choose.sample(range(1 << 20), 300)} & set(range(1 << 20))):
            sparse[place] = place % 255 + 1
    with mount(ffrfs, [tmp_path / "many.h5"], transport) as folder, h5py.File(tmp_path / "many.h5") as file:
        for name in ("full", "sparse"):
            same(loaded(folder / f"{name}.npy"), file[name][()], name)


def test_no_more_rows_are_files_than_the_container_has_bytes(ffrfs, tmp_path, transport):
    with h5py.File(tmp_path / "hollow.h5", "w") as file:
        for name, rows in (("few", 900), ("many", 1_000_000), ("more", 700)):
            file.create_dataset(name, (rows, 3), "<f4", chunks=(100, 3), fillvalue=1.5)
    room = (tmp_path / "hollow.h5").stat().st_size
    with mount(ffrfs, [tmp_path / "hollow.h5"], transport, "--rows") as folder:
        assert sum(1 for path in folder.rglob("*") if path.is_file()) < room < 1_000_000
        assert numpy.array_equal(loaded(folder / "few/000899.npy"), [1.5] * 3)
        assert numpy.array_equal(loaded(folder / "more/000000.npy"), [1.5] * 3)
        assert loaded(folder / "many.npy").shape == (1_000_000, 3)


def text_of(size, padding):
    text = h5py.h5t.C_S1.copy()
    text.set_size(size)
    text.set_strpad(padding)
    return text


@pytest.mark.parametrize("padding", (h5py.h5t.STR_SPACEPAD, h5py.h5t.STR_NULLTERM), ids=("spaces", "nul"))
@pytest.mark.parametrize("libver", ("earliest", "latest"))
def test_padded_text_in_long_arrays_and_long_rows_is_what_h5py_reads(ffrfs, tmp_path, transport, libver, padding):
    text = text_of(4, padding)
    stored = b"ab  " if padding == h5py.h5t.STR_SPACEPAD else b"ab\0x"
    field = h5py.h5t.create(h5py.h5t.COMPOUND, 8)
    field.insert(b"text", 0, text)
    field.insert(b"number", 4, h5py.h5t.STD_I32LE)
    layout = numpy.dtype([("text", "S4"), ("number", "<i4")])
    deep = h5py.h5t.create(h5py.h5t.COMPOUND, 28)
    deep.insert(b"pairs", 0, h5py.h5t.array_create(field, (3,)))
    deep.insert(b"last", 24, text)
    deep_layout = numpy.dtype([("pairs", layout, (3,)), ("last", "S4")])
    pairs = numpy.array([(stored, number) for number in range(300_000)], layout)
    with h5py.File(tmp_path / "text.h5", "w", libver=libver) as file:
        for name, kind, shape, values in (
            ("wide", h5py.h5t.array_create(text, (5000,)), (2,), numpy.array([stored] * 10_000, "S4")),
            ("long", field, (1, 300_000), pairs), ("rows", field, (3, 100_000), pairs), ("flat", field, (300_000,), pairs),
            ("deep", h5py.h5t.array_create(deep, (1000,)), (2,),
             numpy.array([(pairs[:3], stored)] * 2000, deep_layout)),
        ):
            dataset = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple(shape))
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, values, mtype=kind)
        lists = h5py.h5d.create(file.id, b"lists", h5py.h5t.vlen_create(text), h5py.h5s.create_simple((1,)))
        assert lists.get_type().get_super().get_strpad() == padding
    for options in (), ("--rows",):
        with mount(ffrfs, [tmp_path / "text.h5"], transport, *options) as folder, h5py.File(tmp_path / "text.h5") as file:
            for name in ("wide", "long", "rows", "flat", "deep"):
                wanted = file[name][()]
                if not options:
                    same(loaded(folder / f"{name}.npy"), wanted, name)
                elif name != "flat":
                    for row, values in enumerate(wanted):
                        same(loaded(folder / name / f"{row:06}.npy"), values, name)
            assert not list(folder.glob("lists*"))
    said = subprocess.run([ffrfs, "info", tmp_path / "text.h5"], capture_output=True, text=True)
    assert '"lists" is left out: text that may be padded' in said.stdout + said.stderr
    with mount(ffrfs, [tmp_path / "text.h5"], transport, "--view", "raw") as folder:
        assert loaded(folder / "lists/000000.npy").size == 0
