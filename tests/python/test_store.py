"""PyTorch's DataLoader over shards in an object store gives what it gives over loose files."""

import os
import sys
import tarfile
from pathlib import Path

import pytest
import samples
import training
from conftest import TRANSPORTS, mount, need

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))
from bench_remote_support import StoreProcess  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than CPUs are meant
              pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")]
SHARDS = 4


@pytest.fixture(scope="module")
def shards(loose, tmp_path_factory):
    """A store with the files in shards, `FFRFS_STORE` in the environment being its program."""
    work = tmp_path_factory.mktemp("store")
    store = StoreProcess([os.environ["FFRFS_STORE"]], work / "root")
    try:
        paths = samples.files(loose)
        for number in range(SHARDS):
            shard = work / f"train-{number:03}.tar"
            with tarfile.open(shard, "w") as out:
                for path in paths[number::SHARDS]:
                    out.add(loose / path, path)
            store.put(shard, f"shards/{shard.name}")
        yield store
    finally:
        store.stop()


@pytest.mark.parametrize("workers, method, persistent", [(0, None, False), (2, "fork", True), (8, "fork", False)])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_data_loader_over_shards_in_a_store(ffrfs, loose, shards, tmp_path, transport, workers, method, persistent):
    need(transport)
    options = ["--endpoint", shards.endpoint, "--anonymous", "--region", "us-east-1", "--cache-dir", tmp_path / "cache"]
    for _ in range(2):  # the second time out of the cache
        with mount(ffrfs, [shards.s3("shards/")], transport, *options) as folder:
            assert training.epochs(folder, workers, method, persistent) == training.epochs(loose)


def test_the_second_mount_fetches_nothing(ffrfs, loose, shards, tmp_path):
    options = ["--endpoint", shards.endpoint, "--anonymous", "--region", "us-east-1", "--cache-dir", tmp_path / "cache"]
    for turn in range(2):
        shards.forget()
        with mount(ffrfs, [shards.s3("shards/train-000.tar")], "devfuse", *options) as folder:
            for path in samples.files(loose)[::SHARDS]:
                assert (folder / path).read_bytes() == (loose / path).read_bytes(), path
        assert turn == 0 or shards.summary()["sent_bytes"] == 0
