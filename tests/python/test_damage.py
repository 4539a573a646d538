"""One flipped bit: every program gets an error instead of the sample, and these checks themselves would see it.

Without this the other files could compare a mount with itself and pass.
"""

import signal
import subprocess
import sys

import conftest
import cv2
import h5py
import numpy
import pandas
import pytest
import samples
import training
from PIL import Image

DAMAGED = ("arrays/large.npy", "arrays/small.npy", "tables/store.h5", "tables/table.csv", "train/bee/007.jpg",
           "video/clip.avi")


@pytest.fixture(scope="module", params=conftest.TRANSPORTS)
def damaged(request, ffrfs, loose, tmp_path_factory):
    """A mount of a packed folder in which some samples have one wrong bit each; and the same mount unchecked."""
    conftest.need(request.param)
    arguments = samples.make_container(ffrfs, "packed", loose, tmp_path_factory.mktemp("damaged"))
    for name in DAMAGED:
        samples.flip_byte(arguments[0], (loose / name).read_bytes())
    with conftest.mount(ffrfs, arguments, request.param) as checked:
        with conftest.mount(ffrfs, arguments, request.param, "--verify", "off") as unchecked:
            yield checked, unchecked


READERS = {
    "pillow": lambda folder: Image.open(folder / "train/bee/007.jpg").load(),
    "numpy_load": lambda folder: numpy.load(folder / "arrays/small.npy"),
    "numpy_load_of_a_large_array": lambda folder: numpy.load(folder / "arrays/large.npy"),
    "pandas": lambda folder: pandas.read_csv(folder / "tables/table.csv"),
    "h5py": lambda folder: h5py.File(folder / "tables/store.h5"),
    "data_loader": training.epochs,
    "data_loader_with_workers": lambda folder: training.epochs(folder, 2, "fork"),
}


@pytest.mark.parametrize("reader", READERS)
def test_reader_gets_an_error_instead_of_a_damaged_sample(damaged, reader):
    with pytest.raises(OSError, match="(?i)input/output error|errno = 5|Errno 5|read failed"):
        READERS[reader](damaged[0])


def test_opencv_gets_no_damaged_image(damaged):
    assert cv2.imread(str(damaged[0] / "train/bee/007.jpg")) is None
    assert cv2.imread(str(damaged[0] / "train/bee/008.jpg")) is not None


def test_opencv_gets_no_frame_of_a_damaged_video(damaged):
    assert not cv2.VideoCapture(str(damaged[0] / "video/clip.avi")).read()[0]


def test_mapping_of_a_damaged_array_ends_in_sigbus(damaged):
    code = "import sys, numpy; numpy.memmap(sys.argv[1], 'uint8', 'r').sum()"
    done = subprocess.run([sys.executable, "-c", code, damaged[0] / "arrays/small.npy"])
    assert done.returncode == -signal.SIGBUS


def test_tar_reports_each_damaged_sample(damaged):
    # GNU tar does not read what it would write to /dev/null; through a pipe it does.
    done = subprocess.run(["sh", "-c", 'tar -C "$0" -cf - . | cat >/dev/null', damaged[0]], stderr=subprocess.PIPE,
                          text=True)
    assert [name for name in DAMAGED if f"./{name}: " not in done.stderr] == []
    assert "train/bee/008.jpg" not in done.stderr


def test_rsync_copies_all_but_the_damaged_samples(damaged, loose, tmp_path):
    done = subprocess.run(["rsync", "-a", f"{damaged[0]}/", f"{tmp_path}/"], stderr=subprocess.PIPE)
    assert done.returncode == 23  # partial transfer due to error
    wanted = {path: digest for path, digest in samples.contents(loose).items() if path not in DAMAGED}
    assert samples.contents(tmp_path) == wanted


def test_nginx_serves_no_damaged_sample(damaged, web):
    with web(damaged[0]) as socket:
        codes = [subprocess.run(["curl", "--silent", "--fail", "--output", "/dev/null", "--unix-socket", socket,
                                 f"http://localhost/train/bee/{name}.jpg"]).returncode for name in ("007", "008")]
    assert codes[0] != 0 and codes[1] == 0


def test_comparison_sees_each_flipped_bit_if_ffrfs_does_not_check(damaged, loose):
    wanted, found = samples.contents(loose), samples.contents(damaged[1])
    assert tuple(path for path in wanted if found[path] != wanted[path]) == DAMAGED


def test_comparison_of_tensors_sees_a_flipped_bit_if_ffrfs_does_not_check(damaged, loose):
    wanted, found = training.epochs(loose), training.epochs(damaged[1])
    assert {place for (place, *_), other in zip(wanted[0], found[0], strict=True) if (place, *_) != other} == {
        samples.IMAGES_EACH + 7}
