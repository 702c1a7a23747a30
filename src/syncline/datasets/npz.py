"""Samples with their labels or targets in one .npz file of plain arrays."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

KEYS = ("x_train", "y_train", "x_test", "y_test")


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
