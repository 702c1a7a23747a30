"""Labelled images in one .npz file of plain arrays."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]

KEYS = ("x_train", "y_train", "x_test", "y_test")


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays KEYS of the file, read without pickle.

    Raises:
        ValueError: it cannot be read, or an array is missing.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            missing = [key for key in KEYS if key not in archive]
            arrays = {} if missing else {key: archive[key] for key in KEYS}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, TypeError) as error:
        raise ValueError(f"{path}: not a readable .npz file of plain arrays ({error})") from None
    if missing:
        raise ValueError(f"{path}: no array {missing[0]!r}; needed: {', '.join(KEYS)}")
    return arrays


def as_labels(labels: Array) -> Tensor:
    """Integers in any shape -> int64 [N].

    Raises:
        ValueError: not integers.
    """
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels must be integers, got {labels.dtype}")
    return torch.from_numpy(labels.astype(np.int64).reshape(-1))
