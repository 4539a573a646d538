"""NumPy, pandas and h5py over a mount read the same values as over loose files."""

import h5py
import numpy
import pandas
import pytest

ARRAYS = ("arrays/large.npy", "arrays/small.npy")


@pytest.mark.parametrize("name", ARRAYS)
def test_numpy_load_gives_the_same_array(loose, mounted, name):
    wanted, found = numpy.load(loose / name), numpy.load(mounted.folder / name)
    assert found.dtype == wanted.dtype and numpy.array_equal(found, wanted)


@pytest.mark.parametrize("name", ARRAYS)
def test_numpy_load_maps_the_same_array(loose, mounted, name):
    found = numpy.load(mounted.folder / name, mmap_mode="r")
    assert isinstance(found, numpy.memmap) and numpy.array_equal(found, numpy.load(loose / name))


def test_numpy_memmap_gives_the_same_rows_in_any_order(loose, mounted):
    wanted = numpy.load(loose / "arrays/large.npy")
    found = numpy.memmap(mounted.folder / "arrays/large.npy", wanted.dtype, "r", offset=128, shape=wanted.shape)
    for row in numpy.random.default_rng(3).permutation(len(wanted)):
        assert numpy.array_equal(found[row], wanted[row]), row


def test_numpy_load_gives_the_same_members_of_an_npz(loose, mounted):
    with numpy.load(loose / "arrays/several.npz") as wanted, numpy.load(mounted.folder / "arrays/several.npz") as found:
        assert found.files == wanted.files
        assert all(numpy.array_equal(found[key], wanted[key]) for key in wanted.files)


def test_numpy_fromfile_gives_the_same_values_from_the_middle(loose, mounted):
    wanted, found = (numpy.fromfile(folder / "arrays/large.npy", "float32", 1000, offset=5_000_128)
                     for folder in (loose, mounted.folder))
    assert len(wanted) == 1000 and numpy.array_equal(found, wanted)


def test_pandas_read_csv_gives_the_same_table(loose, mounted):
    assert pandas.read_csv(mounted.folder / "tables/table.csv").equals(pandas.read_csv(loose / "tables/table.csv"))


def test_pandas_read_csv_gives_the_same_table_in_chunks(loose, mounted):
    with pandas.read_csv(mounted.folder / "tables/table.csv", chunksize=700) as chunks:
        assert pandas.concat(chunks).equals(pandas.read_csv(loose / "tables/table.csv"))


@pytest.mark.parametrize("columns", (None, ["value"]), ids=("all", "one_column"))
def test_pandas_read_parquet_gives_the_same_table(loose, mounted, columns):
    wanted, found = (pandas.read_parquet(folder / "tables/table.parquet", columns=columns)
                     for folder in (loose, mounted.folder))
    assert len(wanted) == 20_000 and found.equals(wanted)


@pytest.mark.parametrize("name", ("images", "plain"))
def test_h5py_gives_the_same_data_set_of_a_member(loose, mounted, name):
    with h5py.File(loose / "tables/store.h5") as wanted, h5py.File(mounted.folder / "tables/store.h5") as found:
        assert sorted(found) == sorted(wanted)
        assert numpy.array_equal(found[name][:], wanted[name][:])
        assert numpy.array_equal(found[name][103:151:7], wanted[name][103:151:7])
