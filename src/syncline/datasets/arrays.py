"""Arrays of the user's own, from one .npz file. Legend: N samples for training, M for the test, B of a batch."""

import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from syncline.datasets.batch_source import Batch, BatchSource
from syncline.datasets.errors import DataMissingError, checked_size
from syncline.datasets.files import arrays_file
from syncline.datasets.images import ImageDataset, channel_statistics, take
from syncline.datasets.validation import split
from syncline.shapes import ArrayShape

KEYS = ("x_train", "y_train", "x_test", "y_test")
TEST_BATCH = 500


def arrays(
    root: str, path: str, train_size: int | None = None, test_size: int | None = None
) -> "ArrayDataset | ImageDataset":
    """The arrays x_train, y_train, x_test and y_test of an .npz file.

    Pixels, uint8 [N, C, S, S] or [N, S, S] with labels, are normalised by channel as the images of other data sets are.
    Other samples [N, ...] are taken as they are, as float32 or int64. Whole numbers y [N] >= 0 are labels; real numbers
    y [N, ...] are targets.

    Args:
        root: a folder.
        path: of the file, within it unless it is absolute.
        train_size: the first so many training samples; None for all.
        test_size: the same of the test samples.

    Raises:
        DataMissingError: there is no such file.
        ValueError: it is no .npz file, lacks a key, or has arrays that do not fit each other.
    """
    file = arrays_file(root, path)
    if not file.is_file():
        raise DataMissingError(f"arrays not found: no {file}; dataset.path=FILE names it, within dataset.root")
    try:
        with np.load(file, allow_pickle=False) as archive:
            found = {key: archive[key] for key in KEYS if key in archive}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        raise ValueError(f"{file} must be an .npz file of plain arrays: {error}") from None
    if missing := [key for key in KEYS if key not in found]:
        raise ValueError(f"{file} must have {', '.join(KEYS)}; it has no {', '.join(missing)}")
    _check(str(file), found)
    x_train, y_train, x_test, y_test = (found[key] for key in KEYS)
    if _are_pixels(x_train, y_train):
        images, tests = (torch.from_numpy(each.reshape(len(each), -1, *each.shape[-2:])) for each in (x_train, x_test))
        labels, test_labels = (torch.from_numpy(each.astype(np.int64)) for each in (y_train, y_test))
        num_classes = int(max(labels.max(), test_labels.max())) + 1
        mean, std = channel_statistics(images)
        return take(
            ImageDataset("arrays", images, labels, tests, test_labels, num_classes, mean, std), train_size, test_size
        )
    num_train = checked_size("arrays", "train_size", train_size, len(x_train))
    num_test = checked_size("arrays", "test_size", test_size, len(x_test))
    train = _tensor(x_train[:num_train]), _tensor(y_train[:num_train])
    test = _tensor(x_test[:num_test]), _tensor(y_test[:num_test])
    is_labelled = train[1].dtype == torch.int64
    num_outputs = int(max(y_train.max(), y_test.max())) + 1 if is_labelled else int(np.prod(y_train.shape[1:]))
    return ArrayDataset(train, test, ArrayShape(x_train.shape[1:], num_outputs))


def _check(file: str, found: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raises ValueError: the arrays do not fit each other."""
    for key, array in found.items():
        if array.dtype.kind not in "biuf":
            raise ValueError(f"{file}: {key} must hold numbers, got {array.dtype}")
        if array.ndim == 0 or len(array) == 0:
            raise ValueError(f"{file}: {key} must have at least one sample, got the shape {array.shape}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"{file}: {key} must be finite")
    for part in ("train", "test"):
        x, y = found[f"x_{part}"], found[f"y_{part}"]
        if len(x) != len(y):
            raise ValueError(f"{file}: x_{part} and y_{part} must be equally long, got {len(x)} and {len(y)}")
        if y.dtype.kind in "biu" and (y.ndim > 1 or y.min() < 0):
            rule = "must be labels >= 0, one a sample, or real numbers"
            raise ValueError(f"{file}: y_{part} {rule}; got {y.dtype} {y.shape}, least {y.min()}")
    for name in "xy":
        train, test = found[f"{name}_train"], found[f"{name}_test"]
        if train.shape[1:] != test.shape[1:] or (train.dtype.kind == "f") != (test.dtype.kind == "f"):
            kinds = f"{train.dtype} {train.shape} and {test.dtype} {test.shape}"
            raise ValueError(f"{file}: {name}_train and {name}_test must be alike, got {kinds}")


def _are_pixels(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> bool:
    return x.dtype == np.uint8 and x.ndim in (3, 4) and x.shape[-1] == x.shape[-2] and y.dtype.kind in "biu"


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    """As float32 or int64."""
    return torch.from_numpy(array.astype(np.float32 if array.dtype.kind == "f" else np.int64))


@dataclass(frozen=True)
class ArrayDataset:
    """Samples and their labels or targets, checked."""

    train: tuple[Tensor, Tensor]  # float32 or int64 [N, ...]; int64 [N] or float32 [N, ...]
    test: tuple[Tensor, Tensor]  # the same [M, ...]
    shape: ArrayShape
    name: str = "arrays"

    @property
    def num_train(self) -> int:
        return len(self.train[0])

    def with_validation(self, share: float) -> "ArrayDataset":
        rest, held = map(torch.from_numpy, split(self.num_train, share))
        samples, targets = self.train
        return replace(self, train=(samples[rest], targets[rest]), test=(samples[held], targets[held]))

    def batch_source(self, device: torch.device, task: str) -> BatchSource:
        """Raises ValueError: y is not what the task learns."""
        check_targets(self.name, task, self.train[1])
        return ArraySource(self.train, self.test, device)


def check_targets(name: str, task: str, targets: Tensor) -> None:
    """Raises ValueError: these are not what the task learns."""
    wanted = {"classification": (torch.int64, "labels, whole numbers"), "regression": (torch.float32, "real numbers")}
    if task in wanted and targets.dtype != wanted[task][0]:
        raise ValueError(f"dataset={name}: targets must be {wanted[task][1]}, for task={task}; got {targets.dtype}")


class ArraySource:
    """Batches of samples [B, ...] and their targets [B, ...]; the training samples are kept on the device."""

    is_random = False

    def __init__(self, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], device: torch.device) -> None:
        self._train, self._test, self._device = tuple(each.to(device) for each in train), test, device

    def take(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> Batch:
        index = torch.from_numpy(indices).to(self._device)
        return tuple(each.index_select(0, index) for each in self._train)

    def test(self) -> Iterator[Batch]:
        for batch in zip(*(torch.split(each, TEST_BATCH) for each in self._test), strict=True):
            yield tuple(each.to(self._device) for each in batch)
