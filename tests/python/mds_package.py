"""MosaicML Streaming's own reader and writer of shards, also where it is installed without PyTorch and the clients of clouds
(pip install --no-deps mosaicml-streaming), which neither of the two needs."""

import functools
import importlib
import importlib.util
import json
import os
import sys
import types
from types import SimpleNamespace


class LocalOnly:
    """What the writer hands its shards to."""

    def __init__(self, out):
        self.local, self.remote = out, None
        os.makedirs(out, exist_ok=True)

    @classmethod
    def get(cls, out, *_, **__):
        return cls(out)

    def upload_file(self, name):
        pass


def stand_in(name, **members):
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module
    return module


def bare(place):
    """Makes what the two need of the package importable, and none of its other modules."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "streaming"]:
        del sys.modules[name]
    for name in ("", ".base", ".base.format"):
        stand_in(f"streaming{name}").__path__ = [place + name.replace(".", "/")]
    stand_in("streaming.base.distributed", get_local_rank=lambda: 0, maybe_init_dist=lambda: False)
    stand_in("streaming.base.shared.prefix", _get_path=None)
    stand_in("streaming.base.storage.upload", CloudUploader=LocalOnly)
    for name in ("streaming.base.shared", "streaming.base.storage"):
        stand_in(name).__path__ = []
    torch = {name: sys.modules.pop(name, None) for name in ("torch", "torch.distributed")}
    stand_in("torch", distributed=stand_in("torch.distributed"))
    try:
        importlib.import_module("streaming.base.util")
    finally:
        # Others ask whether it is there.
        for name, module in torch.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module


@functools.cache
def modules():
    """The classes of the reader and of the writer; `None`: the package is not there."""
    found = importlib.util.find_spec("streaming")
    if found is None:
        return None
    try:
        importlib.import_module("streaming")
    except ImportError:
        bare(*found.submodule_search_locations)
    reader, writer = (importlib.import_module(f"streaming.base.format.mds.{name}") for name in ("reader", "writer"))
    return SimpleNamespace(MDSReader=reader.MDSReader, MDSWriter=writer.MDSWriter)


def samples(package, folder, unpacked):
    """All samples of a directory, in the order of its list. Compressed shards are unpacked to another directory."""
    for entry in json.loads((folder / "index.json").read_text())["shards"]:
        place = folder
        if entry["zip_data"]:
            unpack, place = importlib.import_module("streaming.base.compression").decompress, unpacked
            data = unpack(entry["compression"], (folder / entry["zip_data"]["basename"]).read_bytes())
            (unpacked / entry["raw_data"]["basename"]).write_bytes(data)
        shard = package.MDSReader.from_json(str(place), None, dict(entry, compression=None, zip_data=None))
        yield from (shard[number] for number in range(len(shard)))
