"""Mount dataset containers so that every sample is a plain file, and announce the samples that will be read next.

    import ffrfs

    with ffrfs.mount("train.zip") as path:           # a pathlib.Path; unmounted at the end of the block
        image = PIL.Image.open(path / "cat/017.jpg")

    ffrfs.announce("/mnt/ds", order)                 # samples that will be read, in that order
    loader = DataLoader(data, 64, sampler=ffrfs.Announced(RandomSampler(data), "/mnt/ds"))

The functions :func:`mount` and :func:`warmup`, and :meth:`Mount.unmount`, run the program ``ffrfs``: the program that pip has
installed with this package, else the first ``ffrfs`` in ``PATH``; the environment variable ``FFRFS`` names another program.
``python -m ffrfs`` runs the same program.
"""

from ._announce import Announced, announce, warmup
from ._mounts import Mount, MountInfo, mount, mounts, stats
from ._program import Error

__all__ = ["Announced", "Error", "Mount", "MountInfo", "announce", "mount", "mounts", "stats", "warmup"]
