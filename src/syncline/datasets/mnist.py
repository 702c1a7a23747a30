"""MNIST, from one .npz file or from torchvision's own folder."""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from syncline.checksums import file_checksum
from syncline.datasets.download import alone, one_line
from syncline.datasets.errors import DataMissingError
from syncline.datasets.images import ImageDataset, take
from syncline.datasets.npz import KEYS, Array, labelled_images
from syncline.torchvision_compat import import_torchvision

# File, MD5 of its content as published; in the order of KEYS.
FILES = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
FOLDER = Path("MNIST") / "raw"  # torchvision's
# Of the 60,000 training images, in units of 0..255; a smaller train_size keeps them.
MEAN, STD = (33.318,), (78.567,)


def mnist(
    root: str, download: bool = False, train_size: int | None = None, test_size: int | None = None
) -> ImageDataset:
    """Handwritten digits, uint8 [N, 1, 28, 28], 60,000 for training and 10,000 for the test, white on black.

    `<root>/mnist.npz` is tried first: x_train, x_test uint8 [N, 28, 28], y_train, y_test integers [N]. It is read
    without pickle. Else torchvision's folder, `<root>/MNIST/raw` with the four idx files, whose MD5s must be the
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
    read = partial(_read_torchvision, folder, download)
    return take(labelled_images("mnist", root, folder, read, _pixels, 10, MEAN, STD), train_size, test_size)


def _read_torchvision(root: Path, download: bool) -> dict[str, Array]:
    if download:
        _download(root)
    missing = [name for name in FILES if not (root / FOLDER / name).is_file()]
    if missing:
        raise DataMissingError(
            f"mnist not found: neither {root / 'mnist.npz'} nor {', '.join(missing)} in {root / FOLDER}; "
            "dataset.download=true fetches them, dataset.root=FOLDER or SYNCLINE_DATA=FOLDER says where it is"
        )
    for name, published in FILES.items():
        path = root / FOLDER / name
        if (found := file_checksum(path)) != published:
            raise ValueError(f"{path}: not the published file (MD5 {found}, published {published}); remove it")
    loader = import_torchvision().datasets.MNIST
    train, test = loader(root, train=True), loader(root, train=False)
    arrays = (train.data.numpy(), train.targets.numpy(), test.data.numpy(), test.targets.numpy())
    return dict(zip(KEYS, arrays, strict=True))


def _download(root: Path) -> None:
    try:
        with alone(root):
            import_torchvision().datasets.MNIST(root, download=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: raised by torchvision
        raise DataMissingError(f"mnist: {root / FOLDER} could not be downloaded ({one_line(error)})") from None


def _pixels(images: Array) -> Tensor:
    if images.dtype != np.uint8 or images.shape[1:] not in ((28, 28), (1, 28, 28)):
        raise ValueError(f"images must be uint8 [N, 28, 28] or [N, 1, 28, 28], got {images.dtype} {images.shape}")
    return torch.from_numpy(images.reshape(-1, 1, 28, 28).copy())
