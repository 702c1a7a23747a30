"""CIFAR: both layouts on disk, and one line for everything that can be wrong with them."""

import hashlib
import os
import pickle
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets.image_files import arrays, check, one_line
from web_server import serving

from syncline.datasets.cifar import cifar
from syncline.datasets.errors import DataMissingError
from syncline.torchvision_compat import import_torchvision

REAL = Path(os.environ.get("SYNCLINE_DATA", "data")) / "cifar10.npz"
SHAPE = (3, 32, 32)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_an_npz_file_comes_back_as_written(tmp_path: Path, name: str) -> None:
    num_classes = 100 if name == "cifar100" else 10
    written = arrays(SHAPE, num_classes)
    np.savez(tmp_path / f"{name}.npz", **written)
    dataset = cifar(name, str(tmp_path))
    assert dataset.num_classes == num_classes
    check(dataset, written)


def test_channels_may_come_last_and_labels_in_a_column(tmp_path: Path) -> None:
    written = arrays(SHAPE)
    turned = {
        k: v.transpose(0, 2, 3, 1) if k.startswith("x") else v.reshape(-1, 1).astype(int) for k, v in written.items()
    }
    np.savez_compressed(tmp_path / "cifar10.npz", **turned)
    dataset = cifar("cifar10", str(tmp_path))
    assert dataset.train_images.is_contiguous()
    check(dataset, written)


@pytest.mark.parametrize("fault", ["text", "cut", "pickle", "npy"])
def test_a_broken_file_is_named(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "cifar10.npz"
    if fault == "text":
        path.write_text("not an archive")
    elif fault == "cut":
        np.savez(path, **arrays(SHAPE))
        path.write_bytes(path.read_bytes()[:-1000])
    elif fault == "pickle":
        np.savez(path, **arrays(SHAPE) | {"y_train": np.array([{}], dtype=object)})
    else:
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    with pytest.raises(ValueError, match=r"not a readable \.npz file") as caught:
        cifar("cifar10", str(tmp_path))
    assert str(path) in one_line(caught)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x_test": None}, "no array 'x_test'; needed: x_train, y_train, x_test, y_test"),
        ({"x_train": np.zeros((20, 3, 32, 32))}, r"images must be uint8 .* got float64"),
        ({"x_train": np.zeros((20, 28, 28), np.uint8)}, r"got uint8 \(20, 28, 28\)"),
        ({"y_train": np.zeros(20)}, "labels must be integers, got float64"),
        ({"y_test": np.full(6, 10)}, r"test part: labels must lie in 0\.\.9"),
    ],
)
def test_a_faulty_array_is_named(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    path = tmp_path / "cifar10.npz"
    np.savez(path, **{key: value for key, value in (arrays(SHAPE) | changed).items() if value is not None})
    with pytest.raises(ValueError, match=message) as caught:
        cifar("cifar10", str(tmp_path))
    assert one_line(caught).startswith(f"{path}: ")


def write_torchvision_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """CIFAR-10 in torchvision's layout, with its checksums made those of these small files."""
    written = arrays(SHAPE)
    folder = root / "cifar-10-batches-py"
    folder.mkdir()

    def save(name: str, content: dict[str, Any]) -> list[str]:
        (folder / name).write_bytes(pickle.dumps(content))
        return [name, hashlib.md5((folder / name).read_bytes()).hexdigest()]

    def batch(part: str, rows: slice) -> dict[str, Any]:
        return {"data": written[f"x_{part}"][rows].reshape(-1, 3072), "labels": written[f"y_{part}"][rows].tolist()}

    loader = import_torchvision().datasets.CIFAR10
    train = [save(f"data_batch_{i + 1}", batch("train", slice(4 * i, 4 * i + 4))) for i in range(5)]
    monkeypatch.setattr(loader, "train_list", train)
    monkeypatch.setattr(loader, "test_list", [save("test_batch", batch("test", slice(None)))])
    name, md5 = save("batches.meta", {"label_names": list("abcdefghij")})
    monkeypatch.setattr(loader, "meta", {"filename": name, "key": "label_names", "md5": md5})
    return written


@pytest.mark.xdist_group("torchvision")
def test_torchvisions_folder_is_read_unless_there_is_an_npz_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = write_torchvision_folder(tmp_path, monkeypatch)
    check(cifar("cifar10", str(tmp_path)), written)
    np.savez(tmp_path / "cifar10.npz", **arrays(SHAPE) | {"y_test": np.full(6, 9)})
    assert cifar("cifar10", str(tmp_path)).test_labels.tolist() == [9] * 6


def test_a_damaged_folder_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_torchvision_folder(tmp_path, monkeypatch)
    damaged = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    damaged.write_bytes(damaged.read_bytes() + b"!")
    with pytest.raises(DataMissingError, match="is missing or has not the published MD5") as caught:
        cifar("cifar10", str(tmp_path), download=True)
    assert str(damaged.parent) in one_line(caught)


@pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")  # torchvision unpacks without a filter
def test_only_download_true_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the packed folder on a server to images; then nothing more is requested."""
    (tmp_path / "there").mkdir()
    written = write_torchvision_folder(tmp_path / "there", monkeypatch)
    with tarfile.open(tmp_path / "packed.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "there" / "cifar-10-batches-py", "cifar-10-batches-py")
    packed, here = (tmp_path / "packed.tar.gz").read_bytes(), tmp_path / "here"
    loader = import_torchvision().datasets.CIFAR10
    monkeypatch.setattr(loader, "tgz_md5", hashlib.md5(packed).hexdigest())
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving({"cifar-10-python.tar.gz": packed}) as site:
        monkeypatch.setattr(loader, "url", f"{site.url}cifar-10-python.tar.gz")
        with pytest.raises(DataMissingError, match="not found"):
            cifar("cifar10", str(here))
        assert site.asked == []
        for download in (True, True, False):
            check(cifar("cifar10", str(here), download), written)
        shutil.rmtree(here / "cifar-10-batches-py")
        check(cifar("cifar10", str(here), download=True), written)  # from the archive that is there
        assert site.asked == 2 * ["cifar-10-python.tar.gz"]  # the first time to see whether it is elsewhere
    assert sorted(path.name for path in here.iterdir()) == ["cifar-10-batches-py", "cifar-10-python.tar.gz"]


def test_a_download_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(import_torchvision().datasets.CIFAR10, "url", "http://127.0.0.1:1/nothing")
    with pytest.raises(DataMissingError, match=r"cifar-10-batches-py could not be downloaded \(.*refused") as caught:
        cifar("cifar10", str(tmp_path), download=True)
    one_line(caught)


@pytest.mark.skipif(not REAL.is_file(), reason=f"no real CIFAR-10 at {REAL}; SYNCLINE_DATA names its folder")
def test_real_images_have_the_published_statistics() -> None:
    dataset = cifar("cifar10", str(REAL.parent))
    images = dataset.train_images.double()
    assert torch.tensor(dataset.mean).sub(images.mean(dim=(0, 2, 3))).abs().max() < 5
    assert torch.tensor(dataset.std).sub(images.std(dim=(0, 2, 3))).abs().max() < 5
    assert dataset.train_labels.bincount(minlength=10).min() > 0.05 * len(dataset.train_labels)
    assert dataset.train_labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]  # frog, truck, truck, deer, ...
