"""CIFAR and MNIST: both layouts on disk, downloads, and one line for everything that can be wrong with them."""

import gzip
import hashlib
import os
import pickle
import shutil
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets.image_files import arrays, check, one_line
from web_server import serving

from syncline.datasets import published_images as module
from syncline.datasets.errors import DataMissingError
from syncline.datasets.images import channel_statistics
from syncline.datasets.npz import KEYS
from syncline.datasets.published_images import MNIST_FILES, PUBLISHED, published_images
from syncline.torchvision_compat import import_torchvision

pytestmark = pytest.mark.xdist_group("torchvision")  # which takes seconds to import

REAL = Path(os.environ.get("SYNCLINE_DATA", "data"))
CIFAR, MNIST = arrays((3, 32, 32)), arrays((28, 28))
WRITTEN = {"cifar10": CIFAR, "cifar100": arrays((3, 32, 32), 100), "mnist": MNIST}
IN_A_COLUMN = {key: CIFAR[key].reshape(-1, 1).astype(int) for key in ("y_train", "y_test")}


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.mark.parametrize(
    ("name", "written"),
    [
        *WRITTEN.items(),
        ("cifar10", {key: CIFAR[key].transpose(0, 2, 3, 1) for key in ("x_train", "x_test")} | IN_A_COLUMN),
        ("mnist", MNIST | {key: MNIST[key][:, None] for key in ("x_train", "x_test")}),
    ],
)
def test_an_npz_file_comes_back_as_written(tmp_path: Path, name: str, written: dict[str, np.ndarray]) -> None:
    """Channels may come last and labels in a column; an axis for one channel changes nothing."""
    np.savez_compressed(tmp_path / f"{name}.npz", **written)
    dataset = published_images(name, str(tmp_path))
    assert (dataset.name, dataset.num_classes) == (name, 100 if name == "cifar100" else 10)
    assert (dataset.shape.in_channels, dataset.shape.image_size) == ((1, 28) if name == "mnist" else (3, 32))
    assert dataset.train.samples.is_contiguous()
    check(dataset, WRITTEN[name])


@pytest.mark.parametrize("fault", ["text", "cut", "pickle", "npy"])
def test_a_broken_file_is_named(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "cifar10.npz"
    if fault == "text":
        path.write_text("not an archive")
    elif fault == "cut":
        np.savez(path, **CIFAR)
        path.write_bytes(path.read_bytes()[:-1000])
    elif fault == "pickle":
        np.savez(path, **CIFAR | {"y_train": np.array([{}], dtype=object)})
    else:
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    with pytest.raises(ValueError, match=r"not a readable \.npz file") as caught:
        published_images("cifar10", str(tmp_path))
    assert str(path) in one_line(caught)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("cifar10", {"x_test": None}, "no array 'x_test'; needed: x_train, y_train, x_test, y_test"),
        (
            "cifar10",
            {"x_train": np.zeros((20, 3, 32, 32))},
            r"images must be uint8 \[N, 3, 32, 32\] or \[N, 32, 32, 3\], got float64",
        ),
        ("cifar10", {"x_train": np.zeros((20, 28, 28), np.uint8)}, r"got uint8 \(20, 28, 28\)"),
        ("cifar10", {"y_train": np.zeros(20)}, "labels must be integers, got float64"),
        ("cifar10", {"y_test": np.full(6, 10)}, r"test part: labels must lie in 0\.\.9"),
        (
            "mnist",
            {"x_test": np.zeros((6, 32, 32), np.uint8)},
            r"images must be uint8 \[N, 28, 28\] or \[N, 1, 28, 28\], got uint8 \(6, 32, 32\)",
        ),
    ],
)
def test_a_faulty_array_is_named(tmp_path: Path, name: str, changed: dict[str, Any], message: str) -> None:
    path = tmp_path / f"{name}.npz"
    np.savez(path, **{key: value for key, value in (WRITTEN[name] | changed).items() if value is not None})
    with pytest.raises(ValueError, match=message) as caught:
        published_images(name, str(tmp_path))
    assert one_line(caught).startswith(f"{path}: ")


# In torchvision's layout, with its checksums made those of these small files.


def write_cifar(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / PUBLISHED["cifar10"].folder
    folder.mkdir(parents=True)

    def save(name: str, content: dict[str, Any]) -> list[str]:
        (folder / name).write_bytes(pickle.dumps(content))
        return [name, hashlib.md5((folder / name).read_bytes()).hexdigest()]

    def batch(part: str, rows: slice) -> dict[str, Any]:
        return {"data": CIFAR[f"x_{part}"][rows].reshape(-1, 3072), "labels": CIFAR[f"y_{part}"][rows].tolist()}

    loader = import_torchvision().datasets.CIFAR10
    train = [save(f"data_batch_{i + 1}", batch("train", slice(4 * i, 4 * i + 4))) for i in range(5)]
    monkeypatch.setattr(loader, "train_list", train)
    monkeypatch.setattr(loader, "test_list", [save("test_batch", batch("test", slice(None)))])
    name, md5 = save("batches.meta", {"label_names": list("abcdefghij")})
    monkeypatch.setattr(loader, "meta", {"filename": name, "key": "label_names", "md5": md5})


def idx(array: np.ndarray) -> bytes:
    """As http://yann.lecun.com/exdb/mnist describes the format: 0, 0, 8 (bytes), axes, lengths, content."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_mnist(root: Path, monkeypatch: pytest.MonkeyPatch, written: Any = MNIST) -> dict[str, bytes]:
    """Returns the content of the files."""
    files = {name: idx(written[key]) for name, key in zip(MNIST_FILES, KEYS, strict=True)}
    folder = root / PUBLISHED["mnist"].folder
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    monkeypatch.setattr(module, "MNIST_FILES", {name: hashlib.md5(each).hexdigest() for name, each in files.items()})
    return files


@pytest.mark.parametrize(("name", "write"), [("cifar10", write_cifar), ("mnist", write_mnist)])
def test_torchvisions_folder_is_read_unless_there_is_an_npz_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, write: Callable[..., Any]
) -> None:
    write(tmp_path, monkeypatch)
    check(published_images(name, str(tmp_path)), WRITTEN[name])
    np.savez(tmp_path / f"{name}.npz", **WRITTEN[name] | {"y_test": np.full(6, 9)})
    assert published_images(name, str(tmp_path)).test.targets.tolist() == [9] * 6


def test_a_folder_of_other_content_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged file of CIFAR, or Fashion-MNIST in place of MNIST."""
    write_cifar(tmp_path, monkeypatch)
    damaged = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    damaged.write_bytes(damaged.read_bytes() + b"!")
    with pytest.raises(DataMissingError, match="is missing or has not the published MD5") as missing:
        published_images("cifar10", str(tmp_path), download=True)
    assert str(damaged.parent) in one_line(missing)
    write_mnist(tmp_path, monkeypatch)
    other = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte"
    other.write_bytes(idx(MNIST["x_train"] + 1))
    with pytest.raises(ValueError, match="not the published file") as caught:
        published_images("mnist", str(tmp_path))
    assert one_line(caught).startswith(f"{other}: ")


@pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")  # torchvision unpacks without a filter
def test_only_download_true_downloads_cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the packed folder on a server to images; then nothing more is requested."""
    write_cifar(tmp_path / "there", monkeypatch)
    with tarfile.open(tmp_path / "packed.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "there" / "cifar-10-batches-py", "cifar-10-batches-py")
    packed, here = (tmp_path / "packed.tar.gz").read_bytes(), tmp_path / "here"
    loader = import_torchvision().datasets.CIFAR10
    monkeypatch.setattr(loader, "tgz_md5", hashlib.md5(packed).hexdigest())
    with serving({"cifar-10-python.tar.gz": packed}) as site:
        monkeypatch.setattr(loader, "url", f"{site.url}cifar-10-python.tar.gz")
        with pytest.raises(DataMissingError, match="not found"):
            published_images("cifar10", str(here))
        assert site.asked == []
        for download in (True, True, False):
            check(published_images("cifar10", str(here), download), CIFAR)
        shutil.rmtree(here / "cifar-10-batches-py")
        check(published_images("cifar10", str(here), download=True), CIFAR)  # from the archive that is there
        assert site.asked == 2 * ["cifar-10-python.tar.gz"]  # the first time to see whether it is elsewhere
    assert sorted(path.name for path in here.iterdir()) == ["cifar-10-batches-py", "cifar-10-python.tar.gz"]


def test_mnist_is_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write_mnist(tmp_path / "there", monkeypatch)
    packed = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in files.items()}
    loader, here = import_torchvision().datasets.MNIST, str(tmp_path / "here")
    sums = [(name, hashlib.md5(content).hexdigest()) for name, content in packed.items()]
    monkeypatch.setattr(loader, "resources", sums)
    with serving(packed) as site:
        monkeypatch.setattr(loader, "mirrors", [site.url])
        for _ in range(2):
            check(published_images("mnist", here, download=True), MNIST)
    assert site.asked == [name for name in packed for _ in range(2)]  # the first time to see whether it is elsewhere


@pytest.mark.parametrize(
    ("name", "source", "line"),
    [
        ("cifar10", ("url", "http://127.0.0.1:1/nothing"), r"cifar-10-batches-py could not be downloaded \(.*refused"),
        ("mnist", ("mirrors", ["http://127.0.0.1:1/"]), "MNIST/raw could not be downloaded"),
    ],
)
def test_a_download_that_fails_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: tuple[str, Any], line: str
) -> None:
    monkeypatch.setattr(getattr(import_torchvision().datasets, name.upper()), *source)
    with pytest.raises(DataMissingError, match=line) as caught:
        published_images(name, str(tmp_path), download=True)
    one_line(caught)


def needs_real(name: str) -> pytest.MarkDecorator:
    file = REAL / f"{name}.npz"
    return pytest.mark.skipif(not file.is_file(), reason=f"no {file}; SYNCLINE_DATA names its folder")


@needs_real("cifar10")
def test_real_images_have_the_published_statistics() -> None:
    dataset = published_images("cifar10", str(REAL))
    images, labels = dataset.train.samples.double(), dataset.train.targets
    assert torch.tensor(dataset.mean).sub(images.mean(dim=(0, 2, 3))).abs().max() < 5
    assert torch.tensor(dataset.std).sub(images.std(dim=(0, 2, 3))).abs().max() < 5
    assert labels.bincount(minlength=10).min() > 0.05 * len(labels)
    assert labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]  # frog, truck, truck, deer, ...


@needs_real("mnist")
def test_the_real_digits_have_the_statistics_and_checksums_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = published_images("mnist", str(REAL))
    assert (dataset.num_train, len(dataset.test.targets)) == (60_000, 10_000)
    mean, std = channel_statistics(dataset.train.samples)
    assert mean == pytest.approx(PUBLISHED["mnist"].mean, abs=0.001)
    assert std == pytest.approx(PUBLISHED["mnist"].std, abs=0.001)
    assert dataset.train.targets[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert dataset.test.targets[:5].tolist() == [7, 2, 1, 0, 4]
    with np.load(REAL / "mnist.npz", allow_pickle=False) as real:
        write_mnist(tmp_path, monkeypatch, real)
    monkeypatch.setattr(module, "MNIST_FILES", MNIST_FILES)
    assert torch.equal(published_images("mnist", str(tmp_path)).train.samples, dataset.train.samples)
