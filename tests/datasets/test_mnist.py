"""MNIST: both layouts on disk, the download, and one line for everything that can be wrong with them."""

import gzip
import hashlib
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from web_server import serving

from syncline.datasets.errors import DataMissingError
from syncline.datasets.images import channel_statistics
from syncline.datasets.mnist import FILES, MEAN, STD, mnist

REAL = Path(os.environ.get("SYNCLINE_DATA", "data")) / "mnist.npz"


def arrays() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "x_train": random.integers(0, 256, (20, 28, 28), np.uint8),
        "y_train": random.integers(0, 10, 20, np.uint8),
        "x_test": random.integers(0, 256, (6, 28, 28), np.uint8),
        "y_test": random.integers(0, 10, 6, np.uint8),
    }


def idx(array: np.ndarray) -> bytes:
    """As http://yann.lecun.com/exdb/mnist describes the format: 0, 0, 8 (bytes), axes, lengths, content."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def official(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The plain content of the four files, with their checksums made those of these small ones."""
    files = {name: idx(array) for (name, *_), array in zip(FILES, arrays().values(), strict=True)}
    sums = [
        (name, *(hashlib.md5(c).hexdigest() for c in (gzip.compress(content, mtime=0), content)))
        for name, content in files.items()
    ]
    monkeypatch.setattr("syncline.datasets.mnist.FILES", tuple(sums))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return files


def packed(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in files.items()}


def write(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def check(root: Path) -> None:
    """The images and labels are those that were written."""
    dataset, written = mnist(str(root)), arrays()
    assert (dataset.name, dataset.num_classes, dataset.shape.in_channels, dataset.shape.image_size) == (
        *("mnist", 10),
        *(1, 28),
    )
    np.testing.assert_array_equal(dataset.train_images[:, 0], written["x_train"])
    np.testing.assert_array_equal(dataset.train_labels, written["y_train"])
    np.testing.assert_array_equal(dataset.test_images[:, 0], written["x_test"])
    np.testing.assert_array_equal(dataset.test_labels, written["y_test"])


def one_line(caught: pytest.ExceptionInfo[ValueError]) -> str:
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("axes", [(), (1,)])
def test_an_npz_file_comes_back_as_written(tmp_path: Path, axes: tuple[int, ...]) -> None:
    """An axis for the channel changes nothing."""
    found = {key: np.expand_dims(each, axes) if key.startswith("x") else each for key, each in arrays().items()}
    np.savez(tmp_path / "mnist.npz", **found)
    check(tmp_path)


@pytest.mark.parametrize("folder", ["", "MNIST/raw"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_the_official_files_are_read(tmp_path: Path, official: dict[str, bytes], folder: str, is_packed: bool) -> None:
    write(tmp_path / folder, packed(official) if is_packed else official)
    check(tmp_path)


def test_absent_files_are_named_with_the_ways_out(tmp_path: Path, official: dict[str, bytes]) -> None:
    del official["t10k-labels-idx1-ubyte"]
    write(tmp_path, official)
    with pytest.raises(DataMissingError) as caught:
        mnist(str(tmp_path))
    text = one_line(caught)
    wanted = (tmp_path / "mnist.npz", "t10k-labels-idx1-ubyte", tmp_path / "MNIST" / "raw")
    for part in (*wanted, "dataset.download=true", "dataset.root=", "SYNCLINE_DATA"):
        assert str(part) in text
    assert "train" not in text


@pytest.mark.parametrize("is_packed", [False, True])
def test_files_with_other_content_are_not_read(tmp_path: Path, official: dict[str, bytes], is_packed: bool) -> None:
    """As those of Fashion-MNIST would be."""
    official["train-images-idx3-ubyte"] = idx(arrays()["x_train"] + 1)
    write(tmp_path, packed(official) if is_packed else official)
    name = "train-images-idx3-ubyte.gz" if is_packed else "train-images-idx3-ubyte"
    with pytest.raises(ValueError, match="not the published file") as caught:
        mnist(str(tmp_path))
    assert one_line(caught).startswith(f"{tmp_path / name}: ")


def test_what_is_missing_is_downloaded_once(
    tmp_path: Path, official: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = official.pop("train-labels-idx1-ubyte")
    write(tmp_path, {"train-labels-idx1-ubyte": there})
    with serving(packed(official)) as site:
        monkeypatch.setattr("syncline.datasets.mnist.MIRRORS", (f"{site.url}nothing/", site.url))
        for _ in range(2):
            mnist(str(tmp_path), download=True)
    assert site.asked == [place for name in packed(official) for place in (f"nothing/{name}", name)]
    assert sorted(path.name for path in (tmp_path / "MNIST" / "raw").iterdir()) == sorted(packed(official))
    check(tmp_path)


def test_images_of_another_size_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mnist.npz"
    np.savez(path, **arrays() | {"x_test": np.zeros((6, 32, 32), np.uint8)})
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
        write(tmp_path, {name: idx(real[key]) for (name, *_), key in zip(FILES, arrays(), strict=True)})
    assert torch.equal(mnist(str(tmp_path)).train_images, dataset.train_images)
