"""OpenCV and Pillow over a mount see the same pixels as over loose files."""

import cv2
import numpy
import samples
from PIL import Image


def pictures(folder):
    return [folder / "train" / path for path in samples.files(folder / "train")]


def test_opencv_imread_gives_the_same_pixels(loose, mounted):
    for wanted, found in zip(pictures(loose), pictures(mounted.folder), strict=True):
        image = cv2.imread(str(found))
        assert image is not None and numpy.array_equal(image, cv2.imread(str(wanted))), found


def frames(path, first=0):
    video = cv2.VideoCapture(str(path))
    assert video.isOpened(), path
    if first:
        assert video.set(cv2.CAP_PROP_POS_FRAMES, first)
    found = []
    while (frame := video.read())[0]:
        found.append(frame[1])
    video.release()
    return found


def test_opencv_videocapture_gives_the_same_frames(loose, mounted):
    wanted, found = (frames(folder / "video/clip.avi") for folder in (loose, mounted.folder))
    assert len(wanted) == samples.FRAMES
    assert numpy.array_equal(found, wanted)


def test_opencv_videocapture_seeks_to_the_same_frame(loose, mounted):
    wanted, found = (frames(folder / "video/clip.avi", first=27) for folder in (loose, mounted.folder))
    assert len(wanted) == samples.FRAMES - 27
    assert numpy.array_equal(found, wanted)


def test_pillow_gives_the_same_pixels(loose, mounted):
    for wanted, found in zip(pictures(loose), pictures(mounted.folder), strict=True):
        with Image.open(wanted) as a, Image.open(found) as b:
            assert (b.format, b.size, b.tobytes()) == (a.format, a.size, a.tobytes()), found


def test_pillow_verifies_every_image(mounted):
    for path in pictures(mounted.folder):
        with Image.open(path) as image:
            image.verify()
