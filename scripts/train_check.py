#!/usr/bin/env python3
"""Train from a mount as PyTorch users do: ImageFolder, a DataLoader with 8 forked workers, two epochs.

Every image must be the one in the folder that was packed. Called by `scripts/test --with-torch`, with the
program under test as argument.
"""

import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

# More workers than CPUs are meant.
warnings.filterwarnings("ignore", message="This DataLoader will create")
CLASSES, IMAGES, WORKERS, EPOCHS = ("ant", "bee"), 64, 8, 2


class WithPlace(datasets.ImageFolder):
    """Says also which image it was: a loader that shuffles would hide that."""

    def __getitem__(self, place):
        return *super().__getitem__(place), place


def make_images(folder):
    noise = numpy.random.default_rng(1)
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for number in range(IMAGES):
            pixels = noise.integers(0, 256, (48, 64, 3), dtype=numpy.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number:03}.png")


def compare(original, mounted):
    expected = datasets.ImageFolder(original, transforms.ToTensor())
    data = WithPlace(mounted, transforms.ToTensor())
    assert data.classes == expected.classes and len(data) == len(expected)
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=WORKERS, multiprocessing_context="fork")
    for _ in range(EPOCHS):
        seen = set()
        for images, labels, places in loader:
            for image, label, place in zip(images, labels, places.tolist()):
                wanted, wanted_label = expected[place]
                assert image.equal(wanted) and label == wanted_label, data.samples[place]
                seen.add(place)
        assert len(seen) == len(expected)


def main():
    ffrfs = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="ffrfs-train-") as work:
        original, container, mounted = Path(work, "images"), Path(work, "images.ffr"), Path(work, "mnt")
        make_images(original)
        mounted.mkdir()
        subprocess.run([ffrfs, "pack", original, container], check=True)
        subprocess.run([ffrfs, "mount", container, mounted], check=True)
        try:
            compare(original, mounted)
        finally:
            subprocess.run([ffrfs, "umount", "--lazy", mounted], check=True)
    print(f"PyTorch: {EPOCHS} epochs of {len(CLASSES) * IMAGES} images, {WORKERS} forked workers: all the same")


if __name__ == "__main__":
    main()
