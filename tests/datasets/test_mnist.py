"""MNIST: both layouts on disk, the download, and one line for everything that can be wrong with them."""

import gzip
import hashlib
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets.image_files import arrays, check, one_line
from web_server import serving

from syncline.datasets.errors import DataMissingError
from syncline.datasets.images import channel_statistics
from syncline.datasets.mnist import FILES, FOLDER, MEAN, STD, mnist
from syncline.datasets.npz import KEYS
from syncline.torchvision_compat import import_torchvision

pytestmark = pytest.mark.xdist_group("torchvision")  # which takes seconds to import

REAL = Path(os.environ.get("SYNCLINE_DATA", "data")) / "mnist.npz"
WRITTEN = arrays((28, 28))


def idx(array: np.ndarray) -> bytes:
    """As http://yann.lecun.com/exdb/mnist describes the format: 0, 0, 8 (bytes), axes, lengths, content."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def official(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The plain content of the four files, with their checksums made those of these small ones."""
    files = {name: idx(WRITTEN[key]) for name, key in zip(FILES, KEYS, strict=True)}
    monkeypatch.setattr(
        "syncline.datasets.mnist.FILES", {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
    )
    return files


def write(root: Path, files: dict[str, bytes]) -> None:
    (root / FOLDER).mkdir(parents=True)
    for name, content in files.items():
        (root / FOLDER / name).write_bytes(content)


@pytest.mark.parametrize("axes", [(), (1,)])
def test_an_npz_file_comes_back_as_written(tmp_path: Path, axes: tuple[int, ...]) -> None:
    """An axis for the channel changes nothing."""
    found = {key: np.expand_dims(each, axes) if key.startswith("x") else each for key, each in WRITTEN.items()}
    np.savez(tmp_path / "mnist.npz", **found)
    dataset = mnist(str(tmp_path))
    assert (dataset.name, dataset.num_classes) == ("mnist", 10)
    assert (dataset.shape.in_channels, dataset.shape.image_size) == (1, 28)
    check(dataset, WRITTEN)


def test_torchvisions_folder_is_read_unless_it_has_other_content(tmp_path: Path, official: dict[str, bytes]) -> None:
    """Such as Fashion-MNIST's."""
    write(tmp_path, official)
    check(mnist(str(tmp_path)), WRITTEN)
    path = tmp_path / FOLDER / "train-images-idx3-ubyte"
    path.write_bytes(idx(WRITTEN["x_train"] + 1))
    with pytest.raises(ValueError, match="not the published file") as caught:
        mnist(str(tmp_path))
    assert one_line(caught).startswith(f"{path}: ")


def test_it_is_downloaded_once(tmp_path: Path, official: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    packed = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in official.items()}
    sums = [(name, hashlib.md5(content).hexdigest()) for name, content in packed.items()]
    loader = import_torchvision().datasets.MNIST
    monkeypatch.setattr(loader, "resources", sums)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(loader, "mirrors", ["http://127.0.0.1:1/"])
    with pytest.raises(DataMissingError, match="MNIST/raw could not be downloaded") as caught:
        mnist(str(tmp_path), download=True)
    one_line(caught)
    with serving(packed) as site:
        monkeypatch.setattr(loader, "mirrors", [site.url])
        for _ in range(2):
            check(mnist(str(tmp_path), download=True), WRITTEN)
    assert site.asked == [name for name in packed for _ in range(2)]  # the first time to see whether it is elsewhere


def test_images_of_another_size_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mnist.npz"
    np.savez(path, **WRITTEN | {"x_test": np.zeros((6, 32, 32), np.uint8)})
    with pytest.raises(ValueError, match=r"got uint8 \(6, 32, 32\)") as caught:
        mnist(str(tmp_path))
    assert one_line(caught).startswith(f"{path}: ")


@pytest.mark.skipif(not REAL.is_file(), reason=f"no real MNIST at {REAL}; SYNCLINE_DATA names its folder")
def test_the_real_digits_have_the_statistics_and_checksums_written_down(tmp_path: Path) -> None:
    dataset = mnist(str(REAL.parent))
    assert (dataset.num_train, len(dataset.test_labels)) == (60_000, 10_000)
    mean, std = channel_statistics(dataset.train_images)
    assert mean == pytest.approx(MEAN, abs=0.001)
    assert std == pytest.approx(STD, abs=0.001)
    assert dataset.train_labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert torch.equal(dataset.test_labels[:5], torch.tensor([7, 2, 1, 0, 4]))
    with np.load(REAL, allow_pickle=False) as real:
        write(tmp_path, {name: idx(real[key]) for name, key in zip(FILES, KEYS, strict=True)})
    assert torch.equal(mnist(str(tmp_path)).train_images, dataset.train_images)
