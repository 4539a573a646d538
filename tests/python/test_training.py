"""PyTorch and torchvision over a mount give what they give over loose files: tensors, labels and orders."""

import pytest
import samples
import torch
import training
from conftest import MOUNTS
from torchvision.io import decode_image

pytestmark = [pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than CPUs are meant
              pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")]  # users still call it
# A spawned worker imports PyTorch anew, which takes seconds: one container is tried with all loaders.
LOADERS = [(0, None, False), *((workers, method, persistent) for workers in (2, 8) for method in ("fork", "spawn")
                               for persistent in (False, True))]
FEWER = [(0, None, False), (2, "fork", False), (8, "fork", True), (2, "spawn", True)]
CASES = [(pair, *loader) for pair in MOUNTS for loader in (LOADERS if pair[0] == "packed" else FEWER)]


@pytest.fixture(scope="module")
def expected(loose):
    wanted = training.epochs(loose)
    images = len(samples.CLASSES) * samples.IMAGES_EACH
    for epoch in wanted:  # what is compared with must be worth it
        assert sorted(place for place, _, _ in epoch) == list(range(images))
    assert wanted[0] != wanted[1] and len({digest for _, _, digest in wanted[0]}) == images
    return wanted


def case_name(pair, workers, method, persistent):
    parts = *pair, f"{workers}_workers", method, "persistent" if persistent else None
    return "-".join(part for part in parts if part)


def test_image_folder_finds_the_same_images_and_classes(loose, mounted):
    wanted, found = training.image_folder(loose), training.image_folder(mounted.folder)
    assert found.class_to_idx == wanted.class_to_idx
    relative = lambda data, folder: [(path.removeprefix(str(folder)), label) for path, label in data.samples]
    assert relative(found, mounted.folder) == relative(wanted, loose)


@pytest.mark.parametrize("mounted, workers, method, persistent", CASES, indirect=["mounted"],
                         ids=[case_name(*case) for case in CASES])
def test_data_loader_gives_the_same_tensors_in_the_same_order(expected, mounted, workers, method, persistent):
    assert training.epochs(mounted.folder, workers, method, persistent) == expected


def test_decode_image_gives_the_same_tensor(loose, mounted):
    for path in samples.files(loose / "train"):
        assert torch.equal(*(decode_image(str(folder / "train" / path)) for folder in (loose, mounted.folder))), path
