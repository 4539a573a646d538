"""Read all images or arrays of a data set as a training program does; bench-training's worker.

    bench_training_worker.py make FOLDER IMAGES ARRAYS
    bench_training_worker.py PROGRAM READER PLACE SEED EPOCHS    epochs in random order; prints count and seconds of each

PROGRAM: imagefolder (torchvision, a DataLoader with 2 workers), opencv, pillow, numpy. READER: files (PLACE is a
folder), announced (PLACE is a mount that is told each epoch's order), or the library that reads the container PLACE:
zipfile, tarfile, ffrecord; with imagefolder also webdataset (PLACE is a folder of shards).
"""

import functools
import io
import os
import random
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import numpy

CLASSES, BATCH, WORKERS = 10, 64, 2
SHUFFLED = 1000  # samples in the buffer of webdataset
IMAGE_SIZE, ARRAY_SHAPE = (500, 375), (275, 100)  # both some 110 KB on disk


# ---- the data set -------------------------------------------------------------------------------------------------

def make(folder, images, arrays):
    from PIL import Image
    for number in range(images):
        noise = numpy.random.default_rng(number)
        coarse = Image.fromarray(noise.integers(0, 256, (12, 16, 3), dtype=numpy.uint8)).resize(IMAGE_SIZE)
        fine = noise.integers(-24, 25, (*IMAGE_SIZE[::-1], 3), dtype=numpy.int16)
        pixels = numpy.clip(numpy.asarray(coarse) + fine, 0, 255).astype(numpy.uint8)
        path = folder / f"images/{number % CLASSES:02}/{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=94)
    (folder / "arrays").mkdir()
    for number in range(arrays):
        numpy.save(folder / f"arrays/{number:06}.npy",
                   numpy.random.default_rng(number).random(ARRAY_SHAPE, dtype=numpy.float32))


# ---- readers: each gives a sample by its name ---------------------------------------------------------------------

class Files:
    """Plain files: programs open them themselves."""

    def __init__(self, folder):
        self.folder = folder

    def names(self):
        return [os.path.relpath(os.path.join(place, name), self.folder)
                for place, _, files in os.walk(self.folder) for name in files]

    def open(self, name):
        return os.path.join(self.folder, name)

    def expect(self, names):
        """Gets the names of the files that will be read next, in that order."""

    def sampler(self, data):
        """A sampler for a DataLoader; None if the DataLoader shuffles by itself."""
        return None


class Announced(Files):
    """Files of a mount that is told the order of each epoch before it begins."""

    def __init__(self, folder):
        super().__init__(folder)
        import ffrfs
        self.ffrfs = ffrfs

    def expect(self, names):
        self.ffrfs.announce(self.folder, names)

    def sampler(self, data):
        from torch.utils.data import RandomSampler
        return self.ffrfs.Announced(RandomSampler(data), self.folder, files=[path for path, _ in data.samples])


class Container:
    """A library that reads a container: programs get the bytes of samples. Each worker opens the container itself."""

    def __init__(self, path):
        self.path, self.process = path, None

    def names(self):
        return self.opened().names()

    def opened(self):
        if self.process != os.getpid():
            self.library, self.process = LIBRARIES[type(self).__name__](self.path), os.getpid()
        return self.library

    def open(self, name):
        return io.BytesIO(self.opened().read(name))

    def expect(self, names):
        """Does nothing: the library reads a sample when it is asked for the sample."""

    def sampler(self, data):
        return None


class Zipfile(Container):
    class Library(zipfile.ZipFile):
        def names(self):
            return self.namelist()


class Tarfile(Container):
    class Library:
        def __init__(self, path):
            self.tar = tarfile.open(path)
            self.members = {member.name: member for member in self.tar if member.isfile()}

        def names(self):
            return list(self.members)

        def read(self, name):
            return self.tar.extractfile(self.members[name]).read()


class Ffrecord(Container):
    class Library:
        def __init__(self, path):
            from ffrecord import PackedFolder
            self.folder = PackedFolder(path)

        def names(self):
            return [str(name) for name in self.folder.list(list_dir=False, recursive=True)]

        def read(self, name):
            return self.folder.read_one(name)


LIBRARIES = {kind.__name__: kind.Library for kind in (Zipfile, Tarfile, Ffrecord)}
READERS = {"files": Files, "announced": Announced, "zipfile": Zipfile, "tarfile": Tarfile, "ffrecord": Ffrecord}


# ---- programs: each reads one epoch after the other ---------------------------------------------------------------

def opencv():
    import cv2
    cv2.setNumThreads(1)

    def read(place):
        if isinstance(place, str):
            image = cv2.imread(place)
        else:
            image = cv2.imdecode(numpy.frombuffer(place.getbuffer(), numpy.uint8), cv2.IMREAD_COLOR)
        return image.shape[:2] == IMAGE_SIZE[::-1]

    return read


def pillow():
    images = loaded_pillow()

    def read(place):
        with images.open(place) as image:
            image.load()
            return image.size == IMAGE_SIZE

    return read


def loaded_pillow():
    """Pillow with its decoders, which it would else load from a cold disk with the first image."""
    from PIL import Image
    Image.preinit()
    return Image


def arrays():
    return lambda place: numpy.load(place).shape == ARRAY_SHAPE


def one_by_one(program, part, reader, seed, epochs):
    read = program()
    names = sorted(name for name in reader.names() if name.startswith(part))
    for epoch in range(epochs):
        random.Random(seed + epoch).shuffle(names)
        start = time.monotonic()
        reader.expect(names)
        wrong = [name for name in names if not read(reader.open(name))]
        yield len(names), time.monotonic() - start
        if wrong:
            sys.exit(f"not as they were made: {wrong[:3]}")


def imagefolder(reader, seed, epochs):
    import torch
    from torch.utils.data import DataLoader
    from torchvision import transforms
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    crop = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])
    loaded_pillow()
    data = image_dataset(reader, crop)
    sampler = reader.sampler(data)
    loader = DataLoader(data, BATCH, shuffle=sampler is None, sampler=sampler, num_workers=WORKERS,
                        persistent_workers=True, multiprocessing_context="fork")
    yield from through(loader, epochs)


def through(loader, epochs):
    for _ in range(epochs):
        start = time.monotonic()
        count = sum(len(labels) for _, labels in loader)
        yield count, time.monotonic() - start


def webdataset(folder, seed, epochs):
    """Reads as users of webdataset do: workers share the shards, and shuffle the samples that they read in order."""
    import torch
    import webdataset as wds
    from torchvision import transforms
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    crop = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])

    images = loaded_pillow()

    def decoded(sample):
        with images.open(io.BytesIO(sample["jpg"])) as image:
            return crop(image.convert("RGB")), int(sample["__key__"].split("/")[1])

    shards = sorted(str(path) for path in Path(folder).glob("*.tar"))
    data = wds.WebDataset(shards, shardshuffle=len(shards)).shuffle(SHUFFLED).map(decoded)
    loader = wds.WebLoader(data, batch_size=BATCH, num_workers=WORKERS, persistent_workers=True,
                           multiprocessing_context="fork")
    yield from through(loader, epochs)


def image_dataset(reader, transform):
    """ImageFolder; over a library a dataset of the same images that reads through the library, as its users write it."""
    from PIL import Image
    from torchvision import datasets
    if isinstance(reader, Files):
        return datasets.ImageFolder(os.path.join(reader.folder, "images"), transform)

    class Images:
        def __init__(self):
            self.names = sorted(name for name in reader.names() if name.startswith("images/"))

        def __len__(self):
            return len(self.names)

        def __getitem__(self, place):
            name = self.names[place]
            with Image.open(reader.open(name)) as image:
                return transform(image.convert("RGB")), int(name.split("/")[1])

    return Images()


PROGRAMS = {"imagefolder": imagefolder, "opencv": functools.partial(one_by_one, opencv, "images/"),
            "pillow": functools.partial(one_by_one, pillow, "images/"),
            "numpy": functools.partial(one_by_one, arrays, "arrays/")}


def main():
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
        return
    program, reader, place, seed, epochs = sys.argv[1:]
    measured = (webdataset(place, int(seed), int(epochs)) if reader == "webdataset" else
                PROGRAMS[program](READERS[reader](place), int(seed), int(epochs)))
    for count, seconds in measured:
        print(count, seconds)


if __name__ == "__main__":
    main()
