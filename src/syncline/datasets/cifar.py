"""CIFAR-10 and CIFAR-100, from one .npz file or from torchvision's own folder."""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from syncline.datasets.download import alone, one_line
from syncline.datasets.errors import DataMissingError
from syncline.datasets.images import ImageDataset, take
from syncline.datasets.npz import KEYS, Array, labelled_images
from syncline.torchvision_compat import import_torchvision

NUM_CLASSES = {"cifar10": 10, "cifar100": 100}
FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}  # torchvision's
# Of the 50,000 training images, in units of 0..255; a smaller train_size keeps them.
MEAN = {"cifar10": (125.307, 122.950, 113.865), "cifar100": (129.304, 124.070, 112.434)}
STD = {"cifar10": (62.993, 62.089, 66.705), "cifar100": (68.170, 65.392, 70.418)}


def cifar(
    name: str, root: str, download: bool = False, train_size: int | None = None, test_size: int | None = None
) -> ImageDataset:
    """Images uint8 [N, 3, 32, 32], 50,000 for training and 10,000 for the test when the files hold all of them.

    `<root>/<name>.npz` is tried first: x_train, x_test uint8 [N, 3, 32, 32] or [N, 32, 32, 3], y_train, y_test integers
    [N]. It is read without pickle. Else torchvision's folder, whose files torchvision compares with the published MD5s
    before it opens them.

    Args:
        name: cifar10 or cifar100 (its 100 fine labels).
        root: the folder to look in.
        download: whether to download missing files from the author's page, 170 MB.
        train_size: the first so many training images; None for all.
        test_size: the same of the test images.

    Raises:
        DataMissingError: neither is there, or the download failed.
        ValueError: a broken file, or a size out of range.

    Source: Krizhevsky 2009, "Learning multiple layers of features from tiny images".
    """
    folder, read = Path(root) / FOLDERS[name], partial(_read_torchvision, name, root, download)
    whole = labelled_images(name, root, folder, read, _pixels, NUM_CLASSES[name], MEAN[name], STD[name])
    return take(whole, train_size, test_size)


def _read_torchvision(name: str, root: str, download: bool) -> dict[str, Array]:
    folder = Path(root) / FOLDERS[name]
    if not (download or folder.is_dir()):
        raise DataMissingError(
            f"{name} not found: neither {Path(root) / name}.npz nor the folder {folder} is there; "
            "dataset.download=true fetches it, dataset.root=FOLDER or SYNCLINE_DATA=FOLDER says where it is"
        )
    loader = getattr(import_torchvision().datasets, name.upper())
    try:
        if download:
            with alone(Path(root)):  # else it may be there, but not yet complete
                if not folder.is_dir():
                    loader(root, download=True)
        train, test = loader(root, train=True), loader(root, train=False)
    except OSError as error:
        raise DataMissingError(f"{name}: {folder} could not be downloaded ({one_line(error)})") from None
    except RuntimeError:  # raised by torchvision
        raise DataMissingError(
            f"{name}: a file in {folder} is missing or has not the published MD5; "
            "remove the folder, and dataset.download=true downloads it again"
        ) from None
    return dict(zip(KEYS, (train.data, np.asarray(train.targets), test.data, np.asarray(test.targets)), strict=True))


def _pixels(images: Array) -> Tensor:
    if images.dtype == np.uint8 and images.ndim == 4:
        if images.shape[1:] == (32, 32, 3):
            images = images.transpose(0, 3, 1, 2)
        if images.shape[1:] == (3, 32, 32):
            return torch.from_numpy(np.ascontiguousarray(images))
    raise ValueError(f"images must be uint8 [N, 3, 32, 32] or [N, 32, 32, 3], got {images.dtype} {images.shape}")
