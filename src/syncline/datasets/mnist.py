"""MNIST, from one .npz file or from the four official idx files."""

import gzip
import hashlib
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from syncline.datasets.download import fetch
from syncline.datasets.errors import DataMissingError
from syncline.datasets.images import ImageDataset, take
from syncline.datasets.npz import KEYS, Array, labelled_images

# File, MD5 as published (gzipped), MD5 of its content; in the order of KEYS.
FILES = (
    ("train-images-idx3-ubyte", "f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb"),
    ("train-labels-idx1-ubyte", "d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624"),
    ("t10k-images-idx3-ubyte", "9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"),
    ("t10k-labels-idx1-ubyte", "ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"),
)
MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
FOLDER = Path("MNIST") / "raw"  # torchvision's
# Of the 60,000 training images, in units of 0..255; a smaller train_size keeps them.
MEAN, STD = (33.318,), (78.567,)


def mnist(
    root: str, download: bool = False, train_size: int | None = None, test_size: int | None = None
) -> ImageDataset:
    """Handwritten digits, uint8 [N, 1, 28, 28], 60,000 for training and 10,000 for the test, white on black.

    `<root>/mnist.npz` is tried first: x_train, x_test uint8 [N, 28, 28], y_train, y_test integers [N]. It is read
    without pickle. Else the four idx files in `<root>` or `<root>/MNIST/raw`, gzipped or not, whose MD5s must be the
    published ones (Fashion-MNIST's and EMNIST's files have the same names).

    Args:
        root: the folder to look in.
        download: whether to download missing files from a mirror, 12 MB, to `<root>/MNIST/raw`.
        train_size: the first so many training images; None for all.
        test_size: the same of the test images.

    Raises:
        DataMissingError: neither is there, or the download failed.
        ValueError: a broken file, or a size out of range.

    Source: LeCun et al. 1998, "Gradient-based learning applied to document recognition", section III-A.
    """
    folder = Path(root)
    read = partial(_read_idx_files, folder, download)
    return take(labelled_images("mnist", root, folder, read, _pixels, 10, MEAN, STD), train_size, test_size)


def _read_idx_files(root: Path, download: bool) -> dict[str, Array]:
    paths = [_find(root, name) for name, _, _ in FILES]
    if download:
        paths = [
            path or fetch([f"{mirror}{name}.gz" for mirror in MIRRORS], _packed(root, name), f"md5:{md5}", "mnist")
            for path, (name, md5, _) in zip(paths, FILES, strict=True)
        ]
    missing = [name for path, (name, _, _) in zip(paths, FILES, strict=True) if path is None]
    if missing:
        raise DataMissingError(
            f"mnist not found: neither {root / 'mnist.npz'} nor {', '.join(missing)} (or .gz) in {root} or "
            f"{root / FOLDER}; dataset.download=true fetches them, dataset.root=FOLDER or SYNCLINE_DATA=FOLDER says "
            "where it is"
        )
    return {
        key: _read_idx(path, *md5s)
        for key, path, (_, *md5s) in zip(KEYS, paths, FILES, strict=True)
        if path is not None
    }


def _packed(root: Path, name: str) -> Path:
    return root / FOLDER / f"{name}.gz"


def _find(root: Path, name: str) -> Path | None:
    places = (root / name, root / f"{name}.gz", root / FOLDER / name, _packed(root, name))
    return next((path for path in places if path.is_file()), None)


def _read_idx(path: Path, packed_md5: str, plain_md5: str) -> Array:
    """The array of an idx file: a magic number whose last byte is the number of axes, their lengths, the bytes."""
    content = path.read_bytes()
    found, published = hashlib.md5(content).hexdigest(), packed_md5 if path.suffix == ".gz" else plain_md5
    if found != published:
        raise ValueError(f"{path}: not the published file (MD5 {found}, published {published}); remove it")
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    num_axes = content[3]
    shape = np.frombuffer(content, ">u4", num_axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * num_axes).reshape(shape)


def _pixels(images: Array) -> Tensor:
    if images.dtype != np.uint8 or images.shape[1:] not in ((28, 28), (1, 28, 28)):
        raise ValueError(f"images must be uint8 [N, 28, 28] or [N, 1, 28, 28], got {images.dtype} {images.shape}")
    return torch.from_numpy(images.reshape(-1, 1, 28, 28).copy())
