"""Images or other samples with their labels or targets, in one .npz file of plain arrays."""

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from syncline.datasets.images import ImageDataset

Array = npt.NDArray[Any]

KEYS = ("x_train", "y_train", "x_test", "y_test")


def labelled_images(
    name: str,
    root: str,
    published: Path,
    read_published: Callable[[], dict[str, Array]],
    pixels: Callable[[Array], Tensor],
    num_classes: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> ImageDataset:
    """The images of MNIST or CIFAR in `<root>/<name>.npz`; without this file, those that were published.

    Args:
        published: the folder of the published files.
        read_published: returns the arrays KEYS of these files.
        pixels: an array of images -> uint8 [N, C, H, W]; raises ValueError for another shape or dtype.

    Raises:
        ValueError: broken data; and what `read_published` raises.
    """
    path = Path(root) / f"{name}.npz"
    source, arrays = (path, read_npz(path)) if path.exists() else (published, read_published())
    try:
        x_train, x_test = pixels(arrays["x_train"]), pixels(arrays["x_test"])
        y_train, y_test = _labels(arrays["y_train"]), _labels(arrays["y_test"])
        return ImageDataset(name, x_train, y_train, x_test, y_test, num_classes, mean, std)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays KEYS of the file, read without pickle.

    Raises:
        ValueError: it is no .npz file of plain arrays, or lacks one of them.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            missing = [key for key in KEYS if key not in archive]
            arrays = {} if missing else {key: archive[key] for key in KEYS}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a readable .npz file of plain arrays ({error})") from None
    if missing:
        raise ValueError(f"{path}: no array {missing[0]!r}; needed: {', '.join(KEYS)}")
    return arrays


def _labels(labels: Array) -> Tensor:
    """Integers in any shape -> int64 [N]."""
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels must be integers, got {labels.dtype}")
    return torch.from_numpy(labels.astype(np.int64).reshape(-1))
