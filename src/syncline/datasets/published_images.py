"""MNIST, CIFAR-10 and CIFAR-100, from one .npz file or from torchvision's own folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from syncline.checksums import file_checksum
from syncline.datasets.download import alone, one_line
from syncline.datasets.errors import DataMissingError
from syncline.datasets.images import ImageDataset
from syncline.datasets.labelled import Labelled
from syncline.datasets.npz import KEYS, Array, read_npz
from syncline.torchvision_compat import import_torchvision

# File of MNIST, MD5 of its content as published; in the order of KEYS.
MNIST_FILES = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


@dataclass(frozen=True)
class Published:
    """What is known of a data set. Mean and std are those of all training images, in units of 0..255."""

    num_classes: int
    layouts: tuple[tuple[int, ...], ...]  # of an image in an .npz file
    mean: tuple[float, ...]
    std: tuple[float, ...]
    folder: Path  # torchvision's


OF_CIFAR = ((3, 32, 32), (32, 32, 3))
PUBLISHED = {
    "cifar10": Published(
        10, OF_CIFAR, (125.307, 122.950, 113.865), (62.993, 62.089, 66.705), Path("cifar-10-batches-py")
    ),
    "cifar100": Published(
        100, OF_CIFAR, (129.304, 124.070, 112.434), (68.170, 65.392, 70.418), Path("cifar-100-python")
    ),
    "mnist": Published(10, ((28, 28), (1, 28, 28)), (33.318,), (78.567,), Path("MNIST") / "raw"),
}


def published_images(name: str, root: str, download: bool = False) -> ImageDataset:
    """CIFAR's images uint8 [N, 3, 32, 32], 50,000 for training, or MNIST's digits uint8 [N, 1, 28, 28], white on black,
    60,000 for training; 10,000 each for the test, when the files hold all of them.

    `<root>/<name>.npz` is tried first: x_train, x_test uint8 [N, 3, 32, 32] or [N, 32, 32, 3], of MNIST [N, 28, 28],
    y_train, y_test integers [N]. It is read without pickle. Else torchvision's folder, whose files must have the
    published MD5s: CIFAR's are compared by torchvision before it opens them, MNIST's four idx files here, as those of
    Fashion-MNIST and EMNIST have the same names.

    Args:
        name: cifar10, cifar100 (its 100 fine labels) or mnist.
        root: the folder to look in.
        download: whether to download missing files, CIFAR's from the author's page, 170 MB, MNIST's from a mirror,
            12 MB.

    Raises:
        DataMissingError: neither is there, or the download failed.
        ValueError: a broken file.

    Source: Krizhevsky 2009, "Learning multiple layers of features from tiny images"; LeCun et al. 1998,
    "Gradient-based learning applied to document recognition", section III-A.
    """
    known, file = PUBLISHED[name], Path(root) / f"{name}.npz"
    if file.exists():
        source, arrays = file, read_npz(file)
    else:
        source = Path(root) / known.folder
        arrays = _read_mnist(Path(root), source, download) if name == "mnist" else _read_cifar(name, source, download)
    try:
        images = [_pixels(arrays[f"x_{part}"], known.layouts) for part in ("train", "test")]
        train, test = map(Labelled, images, (_labels(arrays[f"y_{part}"]) for part in ("train", "test")))
        return ImageDataset(name, train, test, known.num_classes, known.mean, known.std)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def _read_cifar(name: str, folder: Path, download: bool) -> dict[str, Array]:
    root = folder.parent
    if not (download or folder.is_dir()):
        raise DataMissingError(
            f"{name} not found: neither {root / name}.npz nor the folder {folder} is there; "
            "dataset.download=true fetches it, dataset.root=FOLDER or SYNCLINE_DATA=FOLDER says where it is"
        )
    loader = getattr(import_torchvision().datasets, name.upper())
    try:
        if download:
            with alone(root):  # else it may be there, but not yet complete
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


def _read_mnist(root: Path, folder: Path, download: bool) -> dict[str, Array]:
    if download:
        try:
            with alone(root):
                import_torchvision().datasets.MNIST(root, download=True)
        except (OSError, RuntimeError) as error:  # RuntimeError: raised by torchvision
            raise DataMissingError(f"mnist: {folder} could not be downloaded ({one_line(error)})") from None
    missing = [name for name in MNIST_FILES if not (folder / name).is_file()]
    if missing:
        raise DataMissingError(
            f"mnist not found: neither {root / 'mnist.npz'} nor {', '.join(missing)} in {folder}; "
            "dataset.download=true fetches them, dataset.root=FOLDER or SYNCLINE_DATA=FOLDER says where it is"
        )
    for name, published in MNIST_FILES.items():
        if (found := file_checksum(folder / name)) != published:
            raise ValueError(f"{folder / name}: not the published file (MD5 {found}, published {published}); remove it")
    loader = import_torchvision().datasets.MNIST
    train, test = loader(root, train=True), loader(root, train=False)
    arrays = (train.data.numpy(), train.targets.numpy(), test.data.numpy(), test.targets.numpy())
    return dict(zip(KEYS, arrays, strict=True))


def _pixels(images: Array, layouts: Sequence[tuple[int, ...]]) -> Tensor:
    """Images in one of these layouts -> uint8 [N, C, H, W]."""
    if images.dtype != np.uint8 or images.shape[1:] not in layouts:
        allowed = " or ".join(f"[N, {', '.join(map(str, layout))}]" for layout in layouts)
        raise ValueError(f"images must be uint8 {allowed}, got {images.dtype} {images.shape}")
    if images.ndim == 3:
        images = images[:, None]
    if images.shape[3] == 3:
        images = images.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(images))


def _labels(labels: Array) -> Tensor:
    """Integers in any shape -> int64 [N]."""
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels must be integers, got {labels.dtype}")
    return torch.from_numpy(labels.astype(np.int64).reshape(-1))
